//! Steps of all ranks, folded as they come: memory is bounded whatever a training writes.

use std::collections::BTreeMap;

use crate::model::{RankSteps, SlowStep, StepPoint};
use crate::steps::Step;

/// Ranks that are distinguished.
const MOST_RANKS: usize = 1024;
/// Points of a rank over time; when there are more, two become one.
const MOST_POINTS: usize = 240;
/// Long steps that are kept of a rank.
const MOST_SLOW: usize = 40;
/// Of the durations' logarithm, so that percentiles are exact to 1 %.
const BASE: f64 = 1.02;
/// Times the usual duration, above which a step is slow.
const SLOW: f64 = 2.0;

/// See the module.
#[derive(Debug, Default)]
pub struct StepFold {
    begin_us: u64,
    ranks: BTreeMap<(u32, String), Rank>,
}

#[derive(Debug, Default)]
struct Rank {
    sums: RankSteps,
    /// Steps by the logarithm of their duration: how many, and their microseconds.
    durations: BTreeMap<u16, (u64, f64)>,
    /// The longest.
    long: Vec<SlowStep>,
    /// By the part of time in which they begin: steps, milliseconds, the longest.
    points: BTreeMap<u64, (u64, f64, f64)>,
    /// Seconds of a point, as a power of two.
    doubled: u32,
}

impl StepFold {
    /// Of a program that began at this time, in microseconds since the epoch.
    #[must_use]
    pub fn new(begin_us: u64) -> Self {
        Self { begin_us, ranks: BTreeMap::new() }
    }

    /// Adds a step.
    pub fn add(&mut self, host: &str, step: &Step) {
        let key = (step.rank, host.to_owned());
        if self.ranks.len() < MOST_RANKS || self.ranks.contains_key(&key) {
            let at_s = step.begin_us.saturating_sub(self.begin_us) as f64 / 1e6;
            self.ranks.entry(key).or_default().add(step, at_s);
        }
    }

    /// What came of them.
    #[must_use]
    pub fn finish(self) -> Vec<RankSteps> {
        self.ranks.into_iter().map(|((rank, host), it)| it.finish(rank, host)).collect()
    }
}

impl Rank {
    fn add(&mut self, step: &Step, at_s: f64) {
        let sums = &mut self.sums;
        let seconds = |us: u64| us as f64 / 1e6;
        let before_s = seconds(step.total_us.saturating_sub(step.duration_us));
        let first_s = (at_s - before_s).max(0.0);
        sums.first_s = if sums.steps == 0 { first_s } else { sums.first_s.min(first_s) };
        sums.steps = sums.steps.saturating_add(step.steps);
        sums.total_s += seconds(step.total_us);
        sums.waiting_s += seconds(step.waiting_us);
        sums.communicating_s += seconds(step.communicating_us);
        let ms = step.duration_us as f64 / 1000.0;
        sums.max_ms = sums.max_ms.max(ms);
        self.count(step.duration_us as f64, 1);
        let others = step.steps - 1;
        if others > 0 {
            self.count(1e6 * before_s / others as f64, others);
        }
        self.keep(step, at_s, ms);
        self.place(at_s, step.steps, seconds(step.total_us) * 1000.0, ms);
    }

    fn count(&mut self, us: f64, steps: u64) {
        let at = (us.max(1.0).ln() / BASE.ln()) as u16;
        let (count, sum) = self.durations.entry(at).or_default();
        *count = count.saturating_add(steps);
        *sum += us * steps as f64;
    }

    fn keep(&mut self, step: &Step, at_s: f64, ms: f64) {
        // Waits are of this step only where there is no other in the sums.
        let own = |us: u64| if step.steps == 1 { us as f64 / 1000.0 } else { 0.0 };
        let (waiting_ms, communicating_ms) = (own(step.waiting_us), own(step.communicating_us));
        let slow = SlowStep { step: step.number, at_s, ms, waiting_ms, communicating_ms };
        let at = self.long.partition_point(|it| it.ms >= ms);
        if at < MOST_SLOW {
            self.long.insert(at, slow);
            self.long.truncate(MOST_SLOW);
        }
    }

    fn place(&mut self, at_s: f64, steps: u64, ms: f64, longest: f64) {
        let place = |doubled: u32| (at_s as u64) >> doubled;
        let point = self.points.entry(place(self.doubled)).or_default();
        *point = (point.0.saturating_add(steps), point.1 + ms, point.2.max(longest));
        while self.points.len() > MOST_POINTS {
            self.doubled += 1;
            let mut merged = BTreeMap::<u64, (u64, f64, f64)>::new();
            for (at, (steps, ms, longest)) in std::mem::take(&mut self.points) {
                let point = merged.entry(at >> 1).or_default();
                *point = (point.0.saturating_add(steps), point.1 + ms, point.2.max(longest));
            }
            self.points = merged;
        }
    }

    /// The duration that this share of steps does not reach.
    fn percentile(&self, share: f64) -> f64 {
        let wanted = share * self.durations.values().map(|(count, _)| *count as f64).sum::<f64>();
        let mut counted = 0.0;
        for (count, sum) in self.durations.values() {
            counted += *count as f64;
            if counted >= wanted {
                return sum / *count as f64 / 1000.0;
            }
        }
        0.0
    }

    fn finish(self, rank: u32, host: String) -> RankSteps {
        let [p50_ms, p95_ms] = [0.5, 0.95].map(|share| self.percentile(share));
        let is_slow = |ms: f64| ms > SLOW * p50_ms;
        let (mut slow_steps, mut slow_s) = (0_u64, 0.0);
        for (count, sum) in self.durations.values() {
            let mean_ms = sum / *count as f64 / 1000.0;
            if is_slow(mean_ms) {
                slow_steps = slow_steps.saturating_add(*count);
                slow_s += *count as f64 * (mean_ms - p50_ms) / 1000.0;
            }
        }
        let mut slow = Vec::from_iter(self.long.into_iter().filter(|it| is_slow(it.ms)));
        slow.sort_by_key(|it| it.step);
        let width = (1_u64 << self.doubled) as f64;
        let point = |(at, (steps, ms, max_ms)): (u64, (u64, f64, f64))| StepPoint {
            at_s: at as f64 * width,
            mean_ms: ms / steps.max(1) as f64,
            max_ms,
        };
        let points = self.points.into_iter().map(point).collect();
        RankSteps { host, rank, p50_ms, p95_ms, slow_steps, slow_s, slow, points, ..self.sums }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(number: u64, begin_us: u64, duration_us: u64) -> Step {
        Step { number, begin_us, duration_us, steps: 1, total_us: duration_us, ..Step::default() }
    }

    #[test]
    fn percentiles_sums_and_slow_steps() {
        let mut fold = StepFold::new(1_000_000);
        let mut at = 3_000_000;
        for number in 0..1000 {
            let us = if number % 100 == 50 { 90_000 } else { 10_000 };
            let waiting_us = us / 2;
            fold.add("algo-1", &Step { waiting_us, ..step(number, at, us) });
            at += us;
        }
        let ranks = fold.finish();
        let [rank] = &ranks[..] else { panic!("{ranks:?}") };
        assert_eq!((rank.steps, rank.slow_steps, rank.first_s), (1000, 10, 2.0));
        assert!((rank.total_s - 10.8).abs() < 1e-6 && (rank.waiting_s - 5.4).abs() < 1e-6, "{rank:?}");
        assert!((rank.p50_ms - 10.0).abs() < 0.01 && (rank.p95_ms - 10.0).abs() < 0.01 && rank.max_ms == 90.0);
        assert!((rank.slow_s - 0.8).abs() < 0.01, "{}", rank.slow_s);
        let numbers = Vec::from_iter(rank.slow.iter().map(|it| it.step));
        assert_eq!(numbers, Vec::from_iter((0..10).map(|it| 100 * it + 50)));
        assert_eq!(rank.slow[0].waiting_ms, 45.0);
    }

    #[test]
    fn steps_without_events_count() {
        let mut fold = StepFold::new(0);
        let many = Step { steps: 101, total_us: 1_010_000, ..step(100, 1_000_000, 10_000) };
        fold.add("algo-1", &many);
        let rank = fold.finish().remove(0);
        assert_eq!((rank.steps, rank.first_s, rank.slow_steps), (101, 0.0, 0));
        assert!((rank.p50_ms - 10.0).abs() < 0.01);
    }

    #[test]
    fn memory_is_bounded() {
        let mut fold = StepFold::new(0);
        for number in 0..200_000 {
            fold.add("algo-1", &step(number, 1_000_000 * number, number % 90_000));
            fold.add("algo-1", &Step { rank: u32::try_from(number).unwrap(), ..step(0, 0, 5) });
        }
        let ranks = fold.finish();
        assert!(ranks.len() <= MOST_RANKS);
        assert!(ranks.iter().all(|it| it.points.len() <= MOST_POINTS && it.slow.len() <= MOST_SLOW));
        assert_eq!(fold_of_nothing(), []);
    }

    fn fold_of_nothing() -> Vec<RankSteps> {
        StepFold::new(0).finish()
    }
}
