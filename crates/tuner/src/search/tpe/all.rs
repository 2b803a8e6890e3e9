//! The density of all trials, kept up as they come: every trial has its kernel, also one that is
//! running, and the good ones get no weight.

use super::below;
use super::dims::{self, Dim};
use super::kernels::{Column, Kernels};
use crate::{Space, Trial};

/// Trials that are kept: at least the last so many, at most twice as many.
const KEPT: usize = 2048;

/// Where a kernel is.
#[derive(Debug, Clone, Copy)]
struct Spot {
    place: f64,
    kernel: u32,
    cell: f64,
}

/// Kernels of the trials from [`first`] on.
#[derive(Debug, Default)]
pub(super) struct All {
    /// Trials that are in.
    until: usize,
    first: usize,
    /// Least width that the kernels were made with.
    least: f64,
    /// By dimension, of places only: in order.
    sorted: Vec<Vec<Spot>>,
    pub(super) kernels: Kernels,
}

/// The first trial that is kept: a function of their number alone.
pub(super) fn first(trials: usize) -> usize {
    (trials / KEPT).saturating_sub(1) * KEPT
}

impl All {
    /// Takes in what has come since, and gives the good ones (their numbers) no weight. `steps`:
    /// width of kernels over few integers.
    pub(super) fn follow(&mut self, space: &Space, dims: &[Dim], trials: &[Trial], good: &[u32], steps: f64) {
        let first = first(trials.len());
        let least = below::least_width(trials.len());
        if first != self.first || least != self.least || self.until > trials.len() {
            let empty = |dim: &Dim| match dim {
                Dim::Place { .. } => Column::Normal { center: Vec::new(), inverse: Vec::new(), norm: Vec::new() },
                _ => Column::Table { logs: Vec::new(), center: Vec::new() },
            };
            let columns = dims.iter().map(empty).collect();
            *self = Self {
                until: first,
                first,
                least,
                sorted: vec![Vec::new(); dims.len()],
                kernels: Kernels { columns, ..Kernels::default() },
            };
        }
        let news = &trials[self.until..];
        for (index, dim) in dims.iter().enumerate() {
            let marks: Vec<f64> = news.iter().map(|trial| dim.mark(space, index, trial.config.0[index])).collect();
            match (&mut self.kernels.columns[index], dim) {
                (Column::Normal { center, inverse, norm }, Dim::Place { .. }) => {
                    let cell = |mark| dim.cell(space, index, mark);
                    insert(&marks, self.least, cell, &mut self.sorted[index], [center, inverse, norm]);
                }
                (Column::Table { center, .. }, _) => center.extend(below::centers(dim, &marks)),
                (Column::Normal { .. }, _) => {}
            }
        }
        self.until = trials.len();
        self.weigh(dims, good, steps);
    }

    fn weigh(&mut self, dims: &[Dim], good: &[u32], steps: f64) {
        let weights = &mut self.kernels.weights;
        weights.clear();
        weights.resize(self.until - self.first, 1.0);
        for &trial in good {
            if let Some(place) = (trial as usize).checked_sub(self.first) {
                weights[place] = 0.0;
            }
        }
        let count: f64 = weights.iter().sum();
        self.kernels.uniform = 1.0 / (1.0 + count);
        weights.iter_mut().for_each(|weight| *weight *= self.kernels.uniform);
        for (column, dim) in self.kernels.columns.iter_mut().zip(dims) {
            if let Column::Table { logs, .. } = column {
                *logs = dim.log_rows(&dim.masses(steps, self.kernels.uniform));
            }
        }
    }
}

/// Adds kernels, and changes the width of those whose neighbours are new.
#[expect(clippy::cast_possible_truncation, reason = "fewer trials than 2^32 are kept")]
fn insert(
    marks: &[f64],
    least: f64,
    cell: impl Fn(f64) -> f64,
    sorted: &mut Vec<Spot>,
    [center, inverse, norm]: [&mut Vec<f64>; 3],
) {
    let mut changed = Vec::new();
    for &mark in marks {
        let kernel = center.len() as u32;
        center.push(if mark.is_nan() { 0.5 } else { mark });
        inverse.push(0.0);
        norm.push(0.0);
        if !mark.is_nan() {
            let at = sorted.partition_point(|spot| spot.place <= mark);
            sorted.insert(at, Spot { place: mark, kernel, cell: cell(mark) });
            changed.push(mark);
        }
    }
    if changed.len() > 8 {
        // All of them, in one go.
        changed = sorted.iter().map(|spot| spot.place).collect();
    }
    for mark in changed {
        // The new one and its neighbours, and those at equal places.
        let from = sorted.partition_point(|spot| spot.place < mark).saturating_sub(1);
        let to = (sorted.partition_point(|spot| spot.place <= mark) + 1).min(sorted.len());
        for at in from..to {
            let Spot { place, kernel, cell } = sorted[at];
            let left = at.checked_sub(1).map(|left| sorted[left].place);
            let right = sorted.get(at + 1).map(|right| right.place);
            let gap = below::gap(left, place, right);
            let sigma = below::width(gap, least, cell);
            let kernel = kernel as usize;
            if inverse[kernel] != 1.0 / sigma {
                inverse[kernel] = 1.0 / sigma;
                norm[kernel] = dims::log_norm(place, sigma);
            }
        }
    }
}
