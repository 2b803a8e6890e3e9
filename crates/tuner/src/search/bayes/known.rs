//! What a study has found out so far, as the model takes it in.

use super::encode::Encoding;
use super::output::{finite, tamed};
use super::scalar::scalarised;
use crate::{Rng, TrialState, View};

/// Points and values of finished trials, points of pending ones.
#[derive(Debug, Clone, Default)]
pub(super) struct Known {
    pub(super) points: Vec<Vec<f64>>,
    /// One per point; less is better.
    pub(super) values: Vec<f64>,
    pub(super) pending: Vec<Vec<f64>>,
    /// How many finished trials there are, in the model or not.
    pub(super) finished: usize,
}

impl Known {
    /// Of a study. A failed trial is as bad as the worst; a stopped one has its last report, or
    /// nothing to say. Several objectives become one by weights drawn from `rng`. Of more than
    /// `most` finished trials the better half and others evenly over time stay.
    pub(super) fn new(view: &View<'_>, encoding: &Encoding<'_>, most: usize, rng: &mut Rng) -> Self {
        let objectives = view.objectives.len();
        let mut known = Self::default();
        let mut rows: Vec<Vec<f64>> = Vec::new();
        for trial in view.history.trials() {
            match trial.state {
                TrialState::Running | TrialState::Paused => known.pending.push(encoding.point(&trial.config)),
                TrialState::Failed => {
                    known.points.push(encoding.point(&trial.config));
                    rows.push(vec![f64::INFINITY; objectives]);
                }
                TrialState::Completed | TrialState::Stopped if !trial.values.is_empty() => {
                    known.points.push(encoding.point(&trial.config));
                    // A report of a stopped trial is of the first objective only.
                    rows.push(
                        (0..objectives).map(|it| trial.values.get(it).copied().unwrap_or(f64::INFINITY)).collect(),
                    );
                }
                TrialState::Completed | TrialState::Stopped => {}
            }
        }
        known.finished = rows.len();
        let column = |objective: usize| tamed(&finite(&rows.iter().map(|row| row[objective]).collect::<Vec<_>>()));
        known.values = if objectives > 1 {
            let columns: Vec<Vec<f64>> = (0..objectives).map(column).collect();
            let rows: Vec<Vec<f64>> =
                (0..rows.len()).map(|row| columns.iter().map(|column| column[row]).collect()).collect();
            scalarised(&rows, rng)
        } else {
            column(0)
        };
        known.thin(most);
        known
    }

    fn thin(&mut self, most: usize) {
        if self.points.len() > most {
            (self.points, self.values) = self.sample(most);
        }
    }

    /// At most so many points and their values: the better half and others evenly over time, in
    /// their order.
    pub(super) fn sample(&self, most: usize) -> (Vec<Vec<f64>>, Vec<f64>) {
        let order = self.by_value();
        let (better, rest) = order.split_at(most.div_ceil(2).min(order.len()));
        let mut rest = rest.to_vec();
        rest.sort_unstable();
        let room = (most - better.len()).min(rest.len());
        let mut stay: Vec<usize> =
            (0..room).map(|place| rest[place * rest.len() / room]).chain(better.iter().copied()).collect();
        stay.sort_unstable();
        (
            stay.iter().map(|index| self.points[*index].clone()).collect(),
            stay.iter().map(|index| self.values[*index]).collect(),
        )
    }

    /// Indices of the points, best first.
    pub(super) fn by_value(&self) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.points.len()).collect();
        order.sort_by(|one, other| self.values[*one].total_cmp(&self.values[*other]));
        order
    }
}
