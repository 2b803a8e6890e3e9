//! Sums of kernels: a product of one-dimensional ones around each trial, and a uniform density.
//! Densities are against the uniform one.

use crate::exp::weighted_exp_sum;

/// What the kernels are in one dimension.
#[derive(Debug, Clone)]
pub(super) enum Column {
    /// Normal, by trial. Where a trial has not the parameter, it is uniform: inverse width 0 and
    /// norm 0.
    Normal { center: Vec<f64>, inverse: Vec<f64>, norm: Vec<f64> },
    /// Of few values. By value: the log of its density around each centre; by trial: the centre.
    Table { logs: Vec<Vec<f64>>, center: Vec<u16> },
}

/// The kernels of many trials, with a weight each.
#[derive(Debug, Clone, Default)]
pub(super) struct Kernels {
    pub(super) weights: Vec<f64>,
    /// Weight of the uniform density.
    pub(super) uniform: f64,
    pub(super) columns: Vec<Column>,
}

/// Kernels that are worked on at once: what they are made of stays in the processor's nearest
/// cache.
const BLOCK: usize = 128;

impl Kernels {
    /// Densities at candidates (their marks).
    pub(super) fn densities(&self, candidates: &[Vec<f64>]) -> Vec<f64> {
        let mut sums = vec![self.uniform; candidates.len()];
        let mut logs = [0.0; BLOCK];
        for start in (0..self.weights.len()).step_by(BLOCK) {
            let end = self.weights.len().min(start + BLOCK);
            for (sum, marks) in sums.iter_mut().zip(candidates) {
                let logs = &mut logs[..end - start];
                logs.fill(0.0);
                for (column, &mark) in self.columns.iter().zip(marks) {
                    if !mark.is_nan() {
                        column.add(mark, start, end, logs);
                    }
                }
                *sum += weighted_exp_sum(logs, &self.weights[start..end]);
            }
        }
        sums
    }
}

impl Column {
    /// Adds the log densities at a mark.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "an index")]
    fn add(&self, mark: f64, start: usize, end: usize, logs: &mut [f64]) {
        match self {
            Self::Normal { center, inverse, norm } => {
                let parts = center[start..end].iter().zip(&inverse[start..end]).zip(&norm[start..end]);
                for (log, ((center, inverse), norm)) in logs.iter_mut().zip(parts) {
                    let distance = (mark - center) * inverse;
                    *log += norm - 0.5 * (distance * distance);
                }
            }
            Self::Table { logs: rows, center } => {
                let row = &rows[mark as usize];
                for (log, &center) in logs.iter_mut().zip(&center[start..end]) {
                    *log += row[usize::from(center)];
                }
            }
        }
    }
}
