//! Which trials are the good ones.

use crate::{History, Trial, TrialId, TrialState, View, pareto};

use super::all;

/// One in ten is good, and no more than these.
const SHARE: usize = 10;
const MOST: usize = 25;
/// Fewer trials than this at a resource say nothing about it.
const LEAST_AT_RESOURCE: usize = 10;
/// Fronts of more points are thinned by crowding alone, where the volume is slow to compute.
const MOST_FOR_VOLUME: usize = 64;

/// The best trials, kept up as trials end.
#[derive(Debug, Default)]
pub(super) struct Order {
    /// Trials that were looked at.
    until: usize,
    /// Of these, those that were not over.
    open: Vec<TrialId>,
    /// Over, whatever came of them.
    over: usize,
    /// Completed.
    completed: usize,
    /// Some were stopped or paused: values at less than the whole resource count.
    is_partial: bool,
    /// Best first, at most one more than `MOST`.
    best: Vec<(f64, TrialId)>,
}

/// The good trials, best first, and whether their order says something.
#[derive(Debug, Default)]
pub(super) struct Good {
    pub(super) trials: Vec<TrialId>,
    pub(super) is_ranked: bool,
}

impl Order {
    /// The good trials of a view. None before `least` results are there.
    pub(super) fn good(&mut self, view: &View<'_>, least: usize) -> Good {
        self.follow(view.history);
        if view.objectives.len() > 1 {
            return Good { trials: several(view.history, least), is_ranked: false };
        }
        if self.is_partial || view.to.is_some() {
            return Good { trials: at_resource(view.history, least), is_ranked: true };
        }
        if self.completed < least {
            return Good::default();
        }
        let trials = self.best.iter().take(share(self.over)).map(|(_, trial)| *trial).collect();
        Good { trials, is_ranked: true }
    }

    fn follow(&mut self, history: &History) {
        let trials = history.trials();
        let mut open = std::mem::take(&mut self.open);
        open.extend((self.until..trials.len()).filter_map(|it| TrialId::try_from(it).ok()));
        self.until = trials.len();
        for id in open {
            let trial = &trials[id as usize];
            self.is_partial |= matches!(trial.state, TrialState::Paused | TrialState::Stopped);
            if !trial.state.is_over() {
                self.open.push(id);
                continue;
            }
            self.over += 1;
            if let Some(value) = trial.value() {
                self.completed += 1;
                let at = self.best.partition_point(|known| (known.0.total_cmp(&value)).then(known.1.cmp(&id)).is_lt());
                self.best.insert(at, (value, id));
                self.best.truncate(MOST + 1);
            }
        }
    }
}

fn share(results: usize) -> usize {
    results.div_ceil(SHARE).clamp(1, MOST)
}

fn numbered(history: &History) -> impl Iterator<Item = (TrialId, &Trial)> {
    let first = all::first(history.trials().len());
    (0..).zip(history.trials()).skip(first)
}

/// Trials were cut short: the good ones are the best at the greatest resource that enough of them
/// have reached (as in BOHB: S. Falkner et al., 2018).
fn at_resource(history: &History, least: usize) -> Vec<TrialId> {
    let reached = |trial: &Trial| if trial.value().is_some() { u32::MAX } else { trial.resource() };
    let mut resources: Vec<u32> = numbered(history).map(|(_, trial)| reached(trial)).filter(|it| *it > 0).collect();
    resources.sort_unstable_by(|one, other| other.cmp(one));
    let Some(&level) = resources.get(least.max(LEAST_AT_RESOURCE) - 1) else { return Vec::new() };
    let value = |trial: &Trial| {
        let count = trial.reports.partition_point(|report| report.resource <= level);
        let reported = trial.reports[..count].last().map(|report| report.value);
        if level == u32::MAX { trial.value().or(reported) } else { reported.or(trial.value()) }
    };
    let at_level =
        |(id, trial): (TrialId, &Trial)| (reached(trial) >= level).then(|| Some((value(trial)?, id))).flatten();
    let mut found: Vec<(f64, TrialId)> = numbered(history).filter_map(at_level).collect();
    found.sort_by(|one, other| one.0.total_cmp(&other.0).then(one.1.cmp(&other.1)));
    let count = share(found.len());
    found.into_iter().take(count).map(|(_, trial)| trial).collect()
}

/// Several objectives: fronts in turn, and of the last one those that add most volume (Y. Ozaki et
/// al., "Multiobjective tree-structured Parzen estimator", 2022).
fn several(history: &History, least: usize) -> Vec<TrialId> {
    let completed = |(id, trial): (TrialId, &'_ Trial)| (trial.state == TrialState::Completed).then_some(id);
    let ids: Vec<TrialId> = numbered(history).filter_map(completed).collect();
    if ids.len() < least {
        return Vec::new();
    }
    let points: Vec<&[f64]> = ids.iter().map(|&id| history.trials()[id as usize].values.as_slice()).collect();
    let ranks = pareto::ranks(&points);
    let count = share(ids.len());
    let mut order: Vec<usize> = (0..ids.len()).collect();
    order.sort_by_key(|&place| (ranks[place], place));
    let last = ranks[order[count - 1]];
    let mut good: Vec<usize> = order.iter().copied().filter(|&place| ranks[place] < last).collect();
    let front: Vec<usize> = order.iter().copied().filter(|&place| ranks[place] == last).collect();
    let shares = volumes(&front.iter().map(|&place| points[place]).collect::<Vec<_>>());
    let mut by_share: Vec<usize> = (0..front.len()).collect();
    by_share.sort_by(|&one, &other| shares[other].total_cmp(&shares[one]).then(one.cmp(&other)));
    good.extend(by_share.into_iter().take(count - good.len()).map(|it| front[it]));
    good.into_iter().map(|place| ids[place]).collect()
}

/// What each point of a front adds to the volume below the worst of each objective and a tenth
/// more; points at the ends add without limit.
fn volumes(front: &[&[f64]]) -> Vec<f64> {
    let objectives = front.first().map_or(0, |point| point.len());
    let mut scaled: Vec<Vec<f64>> = vec![Vec::with_capacity(objectives); front.len()];
    for objective in 0..objectives {
        let values = || front.iter().map(|point| point[objective]);
        let (low, high) =
            values().fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), it| (low.min(it), high.max(it)));
        let span = if high > low { high - low } else { 1.0 };
        scaled.iter_mut().zip(values()).for_each(|(point, value)| point.push((value - low) / span));
    }
    let mut shares = if front.len() <= MOST_FOR_VOLUME {
        pareto::contributions(&scaled, &vec![1.1; objectives])
    } else {
        crowding(&scaled, objectives)
    };
    for (share, point) in shares.iter_mut().zip(&scaled) {
        if point.contains(&0.0) {
            *share = f64::INFINITY;
        }
    }
    shares
}

/// Distance between the neighbours, over all objectives.
fn crowding(points: &[Vec<f64>], objectives: usize) -> Vec<f64> {
    let mut sums = vec![0.0; points.len()];
    for objective in 0..objectives {
        let mut order: Vec<usize> = (0..points.len()).collect();
        order.sort_by(|&one, &other| points[one][objective].total_cmp(&points[other][objective]).then(one.cmp(&other)));
        for three in order.windows(3) {
            sums[three[1]] += points[three[2]][objective] - points[three[0]][objective];
        }
    }
    sums
}
