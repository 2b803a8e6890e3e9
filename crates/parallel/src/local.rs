//! Training with little communication: ranks step by themselves and meet every `period` steps. When
//! they meet, what they send, and how the common state steps.
//!
//! Post-local SGD (Lin et al., "Don't Use Large Mini-Batches, Use Local SGD", 2020), DiLoCo
//! (Douillard et al., 2023: the mean movement of the ranks is the gradient of an outer Nesterov
//! step) and streaming DiLoCo (Douillard et al., 2025: fragments of the model take turns, and their
//! way is hidden behind steps). Steps are the inner optimizer's, counted from 0. Where training
//! ends between two meetings, one more is needed.

use serde::{Deserialize, Serialize};

use crate::error::{Invalid, at_least_one, within};

/// What ranks exchange at a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Exchange {
    /// Nothing.
    Nothing,
    /// Gradients, before the optimizer's step: their mean is what all step by.
    Gradients,
    /// Weights, after the step: their mean goes through the [`Outer`] step.
    Weights,
}

/// When ranks meet: at every step at first, then every `period` steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Meetings {
    /// Steps from one exchange of weights to the next.
    pub period: u64,
    /// Synchronous steps before; post-local SGD starts at the first decay of the rate.
    pub synchronous: u64,
}

impl Meetings {
    /// Whether it is a plan.
    ///
    /// # Errors
    /// A period of 0.
    pub fn check(&self) -> Result<(), Invalid> {
        at_least_one("period", usize::try_from(self.period).unwrap_or(usize::MAX))
    }

    /// At a step.
    pub fn at(&self, step: u64) -> Exchange {
        match step.checked_sub(self.synchronous) {
            None => Exchange::Gradients,
            Some(local) if (local + 1).is_multiple_of(self.period) => Exchange::Weights,
            Some(_) => Exchange::Nothing,
        }
    }

    /// How many times so many steps exchange gradients and weights.
    pub fn exchanges(&self, steps: u64) -> (u64, u64) {
        (steps.min(self.synchronous), steps.saturating_sub(self.synchronous) / self.period)
    }
}

/// The step of what ranks have in common, by the mean of where they went.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Outer {
    /// Rate.
    pub rate: f32,
    /// Of its velocity.
    pub momentum: f32,
    /// Nesterov's form of the momentum, as PyTorch's SGD has it.
    pub nesterov: bool,
}

impl Outer {
    /// The mean itself: local SGD.
    pub const MEAN: Self = Self { rate: 1.0, momentum: 0.0, nesterov: false };
    /// DiLoCo's.
    pub const DILOCO: Self = Self { rate: 0.7, momentum: 0.9, nesterov: true };

    /// Whether it is a step.
    ///
    /// # Errors
    /// A rate or a momentum out of bounds.
    pub fn check(&self) -> Result<(), Invalid> {
        within("rate", f64::from(self.rate), 0.0, f64::from(f32::MAX))?;
        within("momentum", f64::from(self.momentum), 0.0, 1.0)
    }

    /// `common` are the weights that all ranks began the period with, `mean` those that they ended
    /// it with, on average; `common` becomes what they begin the next one with. The slices have one
    /// length.
    pub fn step(&self, common: &mut [f32], mean: &[f32], velocity: &mut [f32]) {
        for ((common, mean), velocity) in common.iter_mut().zip(mean).zip(velocity) {
            let gradient = *common - mean;
            *velocity = self.momentum * *velocity + gradient;
            *common -= self.rate * if self.nesterov { gradient + self.momentum * *velocity } else { *velocity };
        }
    }
}

/// Fragments of a model that take turns.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Streaming {
    /// Steps from one exchange of a fragment to its next.
    pub period: u64,
    /// How many.
    pub fragments: u64,
    /// Steps that a fragment is on its way, while ranks go on (the paper's tau).
    pub delay: u64,
    /// How much of a rank's own weights stays when the common ones come (the paper's alpha); 0:
    /// nothing.
    pub mix: f32,
}

/// What happens to a fragment after a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Turn {
    /// Its weights are sent as they are now.
    Send(u64),
    /// Their mean goes through the outer step and is mixed into the rank's own.
    Receive(u64),
}

impl Streaming {
    /// Whether it is a plan.
    ///
    /// # Errors
    /// No fragments, more than steps of a period, a delay as long as the period, or a mix out of
    /// bounds.
    pub fn check(&self) -> Result<(), Invalid> {
        let number = |value: u64| usize::try_from(value).unwrap_or(usize::MAX);
        at_least_one("period", number(self.period))?;
        at_least_one("fragments", number(self.fragments))?;
        if self.fragments > self.period {
            let problem = format!("{} cannot take turns in a period of {} steps", self.fragments, self.period);
            return Err(Invalid::new("fragments", problem).nearest([number(self.period)]));
        }
        if self.delay >= self.period {
            let problem =
                format!("{} steps: a fragment must be back before it is sent again, after {}", self.delay, self.period);
            return Err(Invalid::new("delay", problem).nearest([number(self.period - 1)]));
        }
        within("mix", f64::from(self.mix), 0.0, 1.0)
    }

    /// After a step: what was sent is received first, by fragment. Fragments are spread evenly over
    /// the period, the first one at its end.
    pub fn at(&self, step: u64) -> Vec<Turn> {
        let is_sent = |fragment: u64, after: u64| {
            let offset = fragment * self.period / self.fragments;
            // Steps done, of which the fragment counts those behind its offset; none is sent before
            // it has been trained.
            after > 0 && after >= offset && (after - offset).is_multiple_of(self.period)
        };
        let received = (0..self.fragments)
            .filter(|fragment| step + 1 >= self.delay && is_sent(*fragment, step + 1 - self.delay))
            .map(Turn::Receive);
        let sent = (0..self.fragments).filter(|fragment| is_sent(*fragment, step + 1)).map(Turn::Send);
        if self.delay == 0 { sent.clone().chain(received).collect() } else { received.chain(sent).collect() }
    }

    /// A rank's own weights when the common ones have come; the slices have one length.
    pub fn mix(&self, own: &mut [f32], common: &[f32]) {
        for (own, common) in own.iter_mut().zip(common) {
            *own = self.mix * *own + (1.0 - self.mix) * common;
        }
    }

    /// Which fragment each of so many layers belongs to: in strides, which the paper found better
    /// than blocks.
    pub fn fragment_of(&self, layers: u64) -> Vec<u64> {
        (0..layers).map(|layer| layer % self.fragments).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Rng;

    /// Gradient of a rank's own quadratic: 0.5 c (w - t)^2 for each weight.
    fn gradient(weights: &[f32], targets: &[f32]) -> Vec<f32> {
        weights.iter().zip(targets).map(|(weight, target)| 0.8 * (weight - target)).collect()
    }

    fn descend(weights: &mut [f32], gradient: &[f32]) {
        weights.iter_mut().zip(gradient).for_each(|(weight, gradient)| *weight -= 0.25 * gradient);
    }

    fn mean(ranks: &[Vec<f32>]) -> Vec<f32> {
        (0..ranks[0].len()).map(|at| ranks.iter().map(|rank| rank[at]).sum::<f32>() / ranks.len() as f32).collect()
    }

    /// Weights of all ranks after so many steps.
    fn train(meetings: Meetings, outer: Outer, targets: &[Vec<f32>], steps: u64) -> Vec<Vec<f32>> {
        let size = targets[0].len();
        let (mut common, mut velocity) = (vec![1.0; size], vec![0.0; size]);
        let mut ranks = vec![common.clone(); targets.len()];
        for step in 0..steps {
            let mut gradients: Vec<Vec<f32>> =
                ranks.iter().zip(targets).map(|(weights, targets)| gradient(weights, targets)).collect();
            let exchange = meetings.at(step);
            if exchange == Exchange::Gradients {
                gradients = vec![mean(&gradients); ranks.len()];
            }
            ranks.iter_mut().zip(&gradients).for_each(|(weights, gradient)| descend(weights, gradient));
            match exchange {
                Exchange::Nothing => continue,
                Exchange::Gradients => common.clone_from(&ranks[0]),
                Exchange::Weights => outer.step(&mut common, &mean(&ranks), &mut velocity),
            }
            ranks.fill(common.clone());
        }
        ranks
    }

    fn near(one: &[f32], other: &[f32], tolerance: f32) {
        assert!(one.iter().zip(other).all(|(a, b)| (a - b).abs() < tolerance), "{one:?} {other:?}");
    }

    /// With a meeting at every step, averaging weights is averaging gradients.
    #[test]
    fn a_period_of_one_is_synchronous_training() {
        let mut rng = Rng::new(17);
        for _ in 0..20 {
            let targets: Vec<Vec<f32>> =
                (0..rng.from(1, 5)).map(|_| (0..4).map(|_| rng.unit() as f32).collect()).collect();
            let steps = rng.from(1, 12) as u64;
            let synchronous = train(Meetings { period: 1, synchronous: steps }, Outer::MEAN, &targets, steps);
            let local = train(Meetings { period: 1, synchronous: 0 }, Outer::MEAN, &targets, steps);
            let post = train(Meetings { period: 1, synchronous: steps / 2 }, Outer::MEAN, &targets, steps);
            near(&local[0], &synchronous[0], 1e-5);
            near(&post[0], &synchronous[0], 1e-5);
        }
    }

    #[test]
    fn all_ways_arrive_at_the_common_optimum() {
        let targets = vec![vec![0.0, 2.0], vec![1.0, -1.0], vec![2.0, 5.0]];
        for outer in [Outer::MEAN, Outer::DILOCO] {
            let ranks = train(Meetings { period: 5, synchronous: 3 }, outer, &targets, 603);
            near(&ranks[0], &[1.0, 2.0], 1e-3);
            assert!(ranks.iter().all(|weights| weights == &ranks[0]));
        }
    }

    /// PyTorch: SGD([1.0], lr=0.7, momentum=0.9, nesterov=True) with gradients 0.5 and 0.2.
    #[test]
    fn the_outer_step_is_nesterovs() {
        let (mut common, mut velocity) = ([1.0], [0.0]);
        Outer::DILOCO.step(&mut common, &[0.5], &mut velocity);
        near(&common, &[1.0 - 0.7 * (0.5 + 0.9 * 0.5)], 1e-6);
        let before = common[0];
        Outer::DILOCO.step(&mut common, &[before - 0.2], &mut velocity);
        near(&common, &[before - 0.7 * (0.2 + 0.9 * (0.9 * 0.5 + 0.2))], 1e-6);
    }

    #[test]
    fn meetings_are_counted() {
        let mut rng = Rng::new(18);
        for _ in 0..100 {
            let meetings = Meetings { period: rng.from(1, 9) as u64, synchronous: rng.from(0, 30) as u64 };
            let steps = rng.from(0, 100) as u64;
            let count = |kind| (0..steps).filter(|step| meetings.at(*step) == kind).count() as u64;
            assert_eq!(meetings.exchanges(steps), (count(Exchange::Gradients), count(Exchange::Weights)));
        }
        assert_eq!(Meetings { period: 0, synchronous: 0 }.check().unwrap_err().nearest, [1]);
    }

    #[test]
    fn each_fragment_is_sent_once_a_period_and_comes_after_its_delay() {
        let mut rng = Rng::new(19);
        for _ in 0..200 {
            let period = rng.from(1, 20) as u64;
            let (fragments, delay) = (rng.from(1, period as usize) as u64, rng.from(0, period as usize - 1) as u64);
            let plan = Streaming { period, fragments, delay, mix: 0.5 };
            plan.check().unwrap();
            let turns: Vec<Vec<Turn>> = (0..5 * period).map(|step| plan.at(step)).collect();
            for fragment in 0..fragments {
                let steps = |turn: Turn| {
                    (0..turns.len())
                        .filter(|step| turns[*step].contains(&turn))
                        .map(|step| step as u64)
                        .collect::<Vec<_>>()
                };
                let (sent, received) = (steps(Turn::Send(fragment)), steps(Turn::Receive(fragment)));
                assert!(sent.len() >= 4 && sent.windows(2).all(|pair| pair[1] - pair[0] == period));
                assert!(
                    received.iter().zip(&sent).all(|(came, went)| *came == went + delay)
                        && received.len() + 1 >= sent.len()
                );
            }
            // Turns are spread: no step has many more than its share.
            let most =
                turns.iter().map(|turns| turns.iter().filter(|turn| matches!(turn, Turn::Send(_))).count()).max();
            assert_eq!(most, Some(1), "{plan:?}");
        }
    }

    #[test]
    fn streaming_of_one_fragment_without_delay_is_diloco() {
        let plan = Streaming { period: 4, fragments: 1, delay: 0, mix: 0.0 };
        let meetings = Meetings { period: 4, synchronous: 0 };
        for step in 0..20 {
            let expected =
                if meetings.at(step) == Exchange::Weights { vec![Turn::Send(0), Turn::Receive(0)] } else { vec![] };
            assert_eq!(plan.at(step), expected);
        }
        let mut own = [1.0, 2.0];
        plan.mix(&mut own, &[3.0, 4.0]);
        assert_eq!(own, [3.0, 4.0]);
        Streaming { mix: 0.5, ..plan }.mix(&mut own, &[1.0, 2.0]);
        assert_eq!(own, [2.0, 3.0]);
        assert_eq!(Streaming { fragments: 2, ..plan }.fragment_of(5), [0, 1, 0, 1, 0]);
    }

    #[test]
    fn plans_that_are_none_are_refused() {
        let plan = Streaming { period: 4, fragments: 2, delay: 1, mix: 0.5 };
        assert_eq!(Streaming { fragments: 5, ..plan }.check().unwrap_err().nearest, [4]);
        assert_eq!(Streaming { delay: 4, ..plan }.check().unwrap_err().nearest, [3]);
        assert_eq!(Streaming { mix: 2.0, ..plan }.check().unwrap_err().field, "mix");
        assert_eq!(Outer { momentum: -1.0, ..Outer::MEAN }.check().unwrap_err().field, "momentum");
    }
}
