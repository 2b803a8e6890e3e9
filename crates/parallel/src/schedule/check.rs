//! Plays a schedule: that it is whole and in order, that it cannot lock up, how long it takes, how
//! long ranks are idle, and how many activations they hold.
//!
//! A rank computes its list in order and waits where a result of another stage is not there yet.
//! Sending waits for nobody, and takes time on the way but none of the sender's.

use serde::{Deserialize, Serialize};

use super::{Action, Schedule, Work};

/// How long each kind of work takes, in seconds or any other unit.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Durations {
    /// A forward pass, of each stage; the last one stands for all after it.
    pub forward: Vec<f64>,
    /// The gradient of inputs.
    pub input: Vec<f64>,
    /// The gradient of weights. A whole backward pass takes both.
    pub weight: Vec<f64>,
    /// From the end of an action to where its result can be used on another rank.
    pub transfer: f64,
}

impl Durations {
    /// The same for all stages, with results that are there at once.
    pub fn uniform(forward: f64, input: f64, weight: f64) -> Self {
        Self { forward: vec![forward], input: vec![input], weight: vec![weight], transfer: 0.0 }
    }

    fn of(&self, action: Action) -> f64 {
        let at = |times: &[f64]| times.get(action.stage).or(times.last()).copied().unwrap_or(0.0);
        match action.work {
            Work::Forward => at(&self.forward),
            Work::Input => at(&self.input),
            Work::Weight => at(&self.weight),
            Work::Backward => at(&self.input) + at(&self.weight),
        }
    }
}

/// Why a schedule cannot run, or would compute something else.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// An action of a stage that the rank does not have, or of a stage or micro-batch that does not
    /// exist.
    #[error("rank {rank} cannot compute {action:?}")]
    Misplaced {
        /// Whose list has it.
        rank: usize,
        /// What.
        action: Action,
    },
    /// An action that stands in a list twice.
    #[error("rank {rank} computes {action:?} twice")]
    Twice {
        /// Whose list has it.
        rank: usize,
        /// What.
        action: Action,
    },
    /// An action before what it needs on the same rank.
    #[error("rank {rank} computes {action:?} before what it needs of the same stage")]
    Early {
        /// Whose list has it.
        rank: usize,
        /// What.
        action: Action,
    },
    /// An action that stands in no list.
    #[error("nobody computes {0:?}")]
    Missing(Action),
    /// A rank waits for ever, since whom it waits for waits, too.
    #[error("rank {rank} waits for ever before {action:?}")]
    Deadlock {
        /// The first such rank.
        rank: usize,
        /// What it cannot begin.
        action: Action,
    },
}

/// What a schedule costs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Timing {
    /// From the first action to the end of the last one.
    pub total: f64,
    /// How long each rank computes.
    pub busy: Vec<f64>,
    /// The share of the ranks' time in which they do not compute.
    pub idle: f64,
    /// The most activations of a micro-batch in a stage that each rank holds at once, from the
    /// beginning of a forward pass to the end of its last backward pass.
    pub activations: Vec<usize>,
}

/// What of one stage and micro-batch has been computed, and when.
#[derive(Debug, Clone, Copy, Default)]
struct Done {
    forward: Option<f64>,
    /// The gradient of inputs, alone or with that of weights.
    input: Option<f64>,
    weight: bool,
}

impl Schedule {
    /// Plays it.
    ///
    /// # Errors
    /// The first fault.
    pub fn check(&self, durations: &Durations) -> Result<Timing, Fault> {
        self.play(durations, |_, _| ())
    }

    /// How long it takes where only `cores` ranks compute as fast as one alone: at a moment when
    /// more of them would compute, all are slowed down alike.
    ///
    /// # Errors
    /// The first fault.
    pub fn total_on(&self, cores: f64, durations: &Durations) -> Result<f64, Fault> {
        let mut edges = Vec::new();
        self.play(durations, |begun, end| edges.extend([(begun, 1.0), (end, -1.0)]))?;
        edges.sort_by(|one, other| one.0.total_cmp(&other.0));
        let (mut total, mut computing, mut before) = (0.0, 0.0_f64, 0.0);
        for (at, change) in edges {
            total += (at - before) * (computing / cores).max(1.0);
            (computing, before) = (computing + change, at);
        }
        Ok(total)
    }

    fn play(&self, durations: &Durations, mut computes: impl FnMut(f64, f64)) -> Result<Timing, Fault> {
        let ranks = self.ranks.len();
        let mut done = vec![vec![Done::default(); self.micros]; self.stages];
        let (mut next, mut free_at, mut busy) = (vec![0; ranks], vec![0.0_f64; ranks], vec![0.0; ranks]);
        let (mut held, mut activations) = (vec![0_usize; ranks], vec![0; ranks]);
        loop {
            let mut moved = false;
            for rank in 0..ranks {
                while let Some(&action) = self.ranks[rank].get(next[rank]) {
                    let Some(ready) = self.ready(rank, action, &done, durations)? else { break };
                    let begun = free_at[rank].max(ready);
                    let end = begun + durations.of(action);
                    computes(begun, end);
                    let cell = &mut done[action.stage][action.micro];
                    match action.work {
                        Work::Forward => {
                            cell.forward = Some(end);
                            held[rank] += 1;
                            activations[rank] = activations[rank].max(held[rank]);
                        }
                        Work::Input => cell.input = Some(end),
                        Work::Weight => cell.weight = true,
                        Work::Backward => (cell.input, cell.weight) = (Some(end), true),
                    }
                    if matches!(action.work, Work::Weight | Work::Backward) {
                        held[rank] -= 1;
                    }
                    busy[rank] += durations.of(action);
                    free_at[rank] = end;
                    next[rank] += 1;
                    moved = true;
                }
            }
            if !moved {
                break;
            }
        }
        self.is_whole(&next, &done)?;
        let total = free_at.into_iter().fold(0.0, f64::max);
        let computed: f64 = busy.iter().sum();
        let idle = if total > 0.0 { 1.0 - computed / (total * ranks as f64) } else { 0.0 };
        Ok(Timing { total, busy, idle, activations })
    }

    /// When an action's inputs are there; `None`: not yet.
    fn ready(
        &self,
        rank: usize,
        action: Action,
        done: &[Vec<Done>],
        durations: &Durations,
    ) -> Result<Option<f64>, Fault> {
        let Action { stage, micro, work } = action;
        if stage >= self.stages || micro >= self.micros || stage % self.ranks.len() != rank {
            return Err(Fault::Misplaced { rank, action });
        }
        let own = done[stage][micro];
        let (is_done, is_early) = match work {
            Work::Forward => (own.forward.is_some(), false),
            Work::Input | Work::Backward => (own.input.is_some(), own.forward.is_none()),
            Work::Weight => (own.weight, own.input.is_none()),
        };
        if is_done {
            return Err(Fault::Twice { rank, action });
        }
        if is_early {
            return Err(Fault::Early { rank, action });
        }
        let Some((other, work)) = action.awaits(self.stages) else { return Ok(Some(0.0)) };
        let sent = if work == Work::Forward { done[other][micro].forward } else { done[other][micro].input };
        // A stage of the same rank needs no message.
        let way = if other % self.ranks.len() == rank { 0.0 } else { durations.transfer };
        Ok(sent.map(|end| end + way))
    }

    /// Every list came to its end, and everything was computed.
    fn is_whole(&self, next: &[usize], done: &[Vec<Done>]) -> Result<(), Fault> {
        let mut stuck = None;
        for (rank, list) in self.ranks.iter().enumerate() {
            let Some(&action) = list.get(next[rank]) else { continue };
            stuck = stuck.or(Some(Fault::Deadlock { rank, action }));
        }
        for (stage, micros) in done.iter().enumerate() {
            for (micro, cell) in micros.iter().enumerate() {
                let lacks = [
                    (cell.forward.is_none(), Work::Forward),
                    (cell.input.is_none(), Work::Backward),
                    (!cell.weight, Work::Weight),
                ];
                let Some((_, work)) = lacks.into_iter().find(|(lacks, _)| *lacks) else { continue };
                // What is in a list and was not reached is a consequence of whoever is stuck.
                let is_listed = self.ranks.iter().enumerate().any(|(rank, list)| {
                    list[next[rank]..].iter().any(|it| {
                        let same = it.work == work || (work != Work::Forward && it.work != Work::Forward);
                        it.stage == stage && it.micro == micro && same
                    })
                });
                if !is_listed {
                    return Err(Fault::Missing(Action { stage, micro, work }));
                }
            }
        }
        stuck.map_or(Ok(()), Err)
    }
}

#[cfg(test)]
mod tests;
