//! The density of the good trials, and candidates drawn from it.

use super::dims::{self, Dim};
use super::kernels::{Column, Kernels};
use crate::{Config, Rng, Space, Trial};

/// Widths are this times the distance to the farther neighbour, by dimension.
pub(super) const WIDTH: f64 = 0.8;

/// The least width of kernels, of so many trials.
#[expect(clippy::cast_precision_loss, reason = "few")]
pub(super) fn least_width(trials: usize) -> f64 {
    1.0 / (1.0 + trials.min(99) as f64)
}

/// The width of kernels over few integers, of so many good trials (a rule of Scott's kind).
#[expect(clippy::cast_precision_loss, reason = "few")]
pub(super) fn step_width(good: usize, dimensions: usize) -> f64 {
    0.2 * libm::pow(good as f64, -1.0 / (dimensions as f64 + 4.0))
}

/// Distance to the farther of the neighbours (at an end: to the one); 1 where there is none.
pub(super) fn gap(left: Option<f64>, place: f64, right: Option<f64>) -> f64 {
    match (left, right) {
        (Some(left), Some(right)) => (place - left).max(right - place),
        (Some(left), None) => place - left,
        (None, Some(right)) => right - place,
        (None, None) => 1.0,
    }
}

/// A width, given the gap and the least; integers' parts make it wider.
pub(super) fn width(gap: f64, least: f64, cell: f64) -> f64 {
    let sigma = (WIDTH * gap).clamp(least, 1.0);
    libm::sqrt(sigma * sigma + cell * cell / 12.0)
}

/// Kernels around good trials, the best first.
#[derive(Debug)]
pub(super) struct Below {
    pub(super) kernels: Kernels,
    /// Of steps and names: chances, as [`Dim::masses`] gives them.
    masses: Vec<Vec<f64>>,
}

impl Below {
    /// `all`: how many trials there are.
    #[expect(clippy::cast_precision_loss, reason = "few")]
    pub(super) fn new(space: &Space, dims: &[Dim], good: &[&Trial], all: usize, is_ranked: bool) -> Self {
        let count = good.len() as f64;
        // Falling with the logarithm of the rank, as in evolution strategies; of several objectives
        // there is no such order.
        let weight = |rank: usize| if is_ranked { libm::log((count + 0.5) / (rank as f64 + 1.0)) } else { 1.0 };
        let weights: Vec<f64> = (0..good.len()).map(weight).collect();
        let sum: f64 = weights.iter().sum();
        let uniform = 1.0 / (1.0 + count);
        let weights = weights.into_iter().map(|weight| weight * (1.0 - uniform) / sum).collect();
        let least = least_width(all);
        let steps = step_width(good.len(), dims.len());
        let mut masses = Vec::with_capacity(dims.len());
        let mut columns = Vec::with_capacity(dims.len());
        for (index, dim) in dims.iter().enumerate() {
            let marks: Vec<f64> = good.iter().map(|trial| dim.mark(space, index, trial.config.0[index])).collect();
            let chances = dim.masses(steps, uniform);
            columns.push(match dim {
                Dim::Place { .. } => normal(&marks, least, |mark| dim.cell(space, index, mark)),
                _ => Column::Table { logs: dim.log_rows(&chances), center: centers(dim, &marks) },
            });
            masses.push(chances);
        }
        Self { kernels: Kernels { weights, uniform, columns }, masses }
    }

    /// Draws the marks of a candidate.
    #[expect(clippy::cast_precision_loss, reason = "few")]
    pub(super) fn draw(&self, space: &Space, dims: &[Dim], rng: &mut Rng) -> Vec<f64> {
        let kernel = pick(&self.kernels.weights, rng.unit());
        let mut marks = vec![f64::NAN; dims.len()];
        space.build(|index| {
            let dim = &dims[index];
            let mark = match (kernel, &self.kernels.columns[index]) {
                (Some(kernel), Column::Normal { center, inverse, .. }) if inverse[kernel] > 0.0 => {
                    dims::draw(center[kernel], 1.0 / inverse[kernel], rng)
                }
                (Some(kernel), Column::Table { center, logs }) if usize::from(center[kernel]) < logs.len() => {
                    let row = &self.masses[index][usize::from(center[kernel]) * logs.len()..][..logs.len()];
                    pick(row, rng.unit()).unwrap_or(logs.len() - 1) as f64
                }
                _ => dim.uniform(rng),
            };
            let value = dim.value(space, index, mark);
            // An integer's mark is its middle.
            marks[index] = if matches!(dim, Dim::Place { is_whole: true }) { space.unit(index, value) } else { mark };
            value
        });
        marks
    }
}

/// The configuration of marks.
pub(super) fn config(space: &Space, dims: &[Dim], marks: &[f64]) -> Config {
    space.build(|index| dims[index].value(space, index, marks[index]))
}

/// Which part a place in [0, 1) falls into; none: what the parts leave.
fn pick(parts: &[f64], place: f64) -> Option<usize> {
    let mut end = 0.0;
    parts.iter().position(|part| {
        end += part;
        place < end
    })
}

/// Indices of the centres; of a trial without the parameter the one after the last.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "an index")]
pub(super) fn centers(dim: &Dim, marks: &[f64]) -> Vec<u16> {
    let absent = dim.few().unwrap_or(0) as u16;
    marks.iter().map(|mark| if mark.is_nan() { absent } else { *mark as u16 }).collect()
}

fn normal(marks: &[f64], least: f64, cell: impl Fn(f64) -> f64) -> Column {
    let mut sorted: Vec<f64> = marks.iter().copied().filter(|mark| !mark.is_nan()).collect();
    sorted.sort_by(f64::total_cmp);
    let mut center = marks.to_vec();
    let (mut inverse, mut norm) = (vec![0.0; marks.len()], vec![0.0; marks.len()]);
    for (kernel, &mark) in marks.iter().enumerate() {
        if mark.is_nan() {
            center[kernel] = 0.5;
        } else {
            let left = sorted[..sorted.partition_point(|it| *it < mark)].last().copied();
            let right = sorted[sorted.partition_point(|it| *it <= mark)..].first().copied();
            let sigma = width(gap(left, mark, right), least, cell(mark));
            inverse[kernel] = 1.0 / sigma;
            norm[kernel] = dims::log_norm(mark, sigma);
        }
    }
    Column::Normal { center, inverse, norm }
}
