//! The order in which the tuner answers: each tuning job's requests in theirs, those of one tuning
//! job at a time; tuning jobs take turns, so that a long suggestion of one holds up no other for
//! longer than that.
//!
//! Judgements go together. A suggestion goes with them only where it takes no time, as they are
//! waited for, and nothing goes with it that comes after: its numbers must be durable before
//! anything depends on them. Studies that may be ahead of what is stored are dropped and opened
//! again; so are those of a tuning job that has ended.

use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

use shoal_plane::{TunerRequest, TuningName};

use crate::{Mono, Now};

/// Requests of one tuning job that are answered together at most: their answers become durable
/// together.
const MAX_TOGETHER: usize = 64;
/// After the journal, or a row, could not be used.
const RETRY: Duration = Duration::from_millis(200);
/// Between two checks for studies whose tuning job has ended.
const END_CHECK: Duration = Duration::from_secs(2);

/// What happened.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// The core requests it.
    Requested(TunerRequest),
    /// Answer to [`Io::Answer`] and [`Io::Fail`].
    Performed {
        /// Tuning job's name.
        tuning: TuningName,
        /// How it ended.
        outcome: Outcome,
    },
    /// Answer to [`Io::CheckEnd`]: no client waits for answers to this tuning job's requests.
    Ended {
        /// Tuning job's name.
        tuning: TuningName,
    },
    /// [`TunerQueue::deadline`] has passed.
    Timeout,
}

/// How requests were answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The answers are durable.
    Done {
        /// The next suggestion is likely to take less time than making something durable.
        is_quick: bool,
    },
    /// No answer is awaited: the tuning job has ended, or the server is stopping.
    Over,
    /// Later it may work.
    Again,
    /// It will never work.
    Never {
        /// For people.
        reason: String,
    },
}

/// What the driver does.
#[derive(Debug, Clone, PartialEq)]
pub enum Io {
    /// Answer these and submit the answers to the core in one transaction; answered by
    /// [`Event::Performed`].
    Answer {
        /// Tuning job's name.
        tuning: TuningName,
        /// In this order.
        requests: Vec<TunerRequest>,
        /// Open the studies of what is stored: those that are open may be ahead of it.
        reopens: bool,
    },
    /// Drop the tuning job's studies if they are open; not answered.
    Close {
        /// Tuning job's name.
        tuning: TuningName,
    },
    /// Submit to the core that the search of these requests has failed: the first one that is still
    /// awaited ends the tuning job. Answered by [`Event::Performed`].
    Fail {
        /// Tuning job's name.
        tuning: TuningName,
        /// All of them.
        requests: Vec<TunerRequest>,
        /// For people.
        reason: String,
    },
    /// Answered by [`Event::Ended`] if it has.
    CheckEnd {
        /// Tuning job's name.
        tuning: TuningName,
    },
}

#[derive(Debug, Default)]
enum State {
    /// Without requests, or waiting for its turn.
    #[default]
    Idle,
    /// This number of its first requests is answered.
    Answering(usize),
    Pausing(Mono),
}

#[derive(Debug, Default)]
struct Job {
    requests: VecDeque<TunerRequest>,
    state: State,
    /// Its studies are those of what is stored.
    is_open: bool,
    is_quick: bool,
}

/// All tuning jobs with requests, or with studies that are open.
#[derive(Debug)]
pub struct TunerQueue {
    jobs: BTreeMap<TuningName, Job>,
    /// Tuning jobs whose turn comes, in order.
    ready: VecDeque<TuningName>,
    /// How many more may be worked at.
    free: usize,
    end_check: Option<Mono>,
}

impl TunerQueue {
    /// For a driver that works at this many tuning jobs at a time.
    #[must_use]
    pub fn new(threads: usize) -> Self {
        Self { jobs: BTreeMap::new(), ready: VecDeque::new(), free: threads, end_check: None }
    }

    /// What follows from an event.
    pub fn handle(&mut self, event: Event, now: Now) -> Vec<Io> {
        let now = now.mono;
        let mut io = match event {
            Event::Requested(request) => {
                let tuning = request.tuning().to_owned();
                let job = self.jobs.entry(tuning.clone()).or_default();
                job.requests.push_back(request);
                if matches!(job.state, State::Idle) && job.requests.len() == 1 {
                    self.ready.push_back(tuning);
                }
                Vec::new()
            }
            Event::Performed { tuning, outcome } => self.on_performed(tuning, outcome, now),
            Event::Ended { tuning } => {
                let is_idle = |job: &Job| matches!(job.state, State::Idle) && job.requests.is_empty();
                if self.jobs.get(&tuning).is_some_and(is_idle) {
                    self.jobs.remove(&tuning);
                    vec![Io::Close { tuning }]
                } else {
                    Vec::new()
                }
            }
            Event::Timeout => self.on_timeout(now),
        };
        io.extend(self.turns());
        self.end_check = (!self.jobs.is_empty()).then(|| self.end_check.unwrap_or(now + END_CHECK));
        io
    }

    /// When [`Event::Timeout`] is due.
    pub fn deadline(&self) -> Option<Mono> {
        let pauses = self.jobs.values().filter_map(|job| match job.state {
            State::Pausing(until) => Some(until),
            State::Idle | State::Answering(_) => None,
        });
        pauses.chain(self.end_check).min()
    }

    fn on_performed(&mut self, tuning: TuningName, outcome: Outcome, now: Mono) -> Vec<Io> {
        let Some(job) = self.jobs.get_mut(&tuning) else { return Vec::new() };
        let State::Answering(count) = job.state else { return Vec::new() };
        if let Outcome::Never { reason } = outcome {
            job.state = State::Answering(job.requests.len());
            job.is_open = false;
            return vec![Io::Fail { requests: job.requests.iter().cloned().collect(), tuning, reason }];
        }
        self.free += 1;
        job.state = State::Idle;
        (job.is_open, job.is_quick) = match outcome {
            Outcome::Done { is_quick } => (true, is_quick),
            _ => (false, false),
        };
        if outcome == Outcome::Again {
            job.state = State::Pausing(now + RETRY);
            return Vec::new();
        }
        job.requests.drain(..count);
        if !job.requests.is_empty() {
            self.ready.push_back(tuning);
        }
        Vec::new()
    }

    fn on_timeout(&mut self, now: Mono) -> Vec<Io> {
        for (tuning, job) in &mut self.jobs {
            if matches!(job.state, State::Pausing(until) if now >= until) {
                job.state = State::Idle;
                self.ready.push_back(tuning.clone());
            }
        }
        if self.end_check.is_none_or(|at| now < at) {
            return Vec::new();
        }
        self.end_check = None;
        let idle = self.jobs.iter().filter(|(_, job)| matches!(job.state, State::Idle) && job.requests.is_empty());
        idle.map(|(tuning, _)| Io::CheckEnd { tuning: tuning.clone() }).collect()
    }

    /// Has tuning jobs answered whose turn it is.
    fn turns(&mut self) -> Vec<Io> {
        let mut io = Vec::new();
        while self.free > 0
            && let Some(tuning) = self.ready.pop_front()
        {
            let Some(job) = self.jobs.get_mut(&tuning) else { continue };
            let judgements =
                job.requests.iter().take_while(|request| matches!(request, TunerRequest::Tell { .. })).count();
            let together = if job.is_quick { judgements + 1 } else { judgements.max(1) };
            let together = together.min(job.requests.len()).min(MAX_TOGETHER);
            job.state = State::Answering(together);
            self.free -= 1;
            let requests = job.requests.iter().take(together).cloned().collect();
            io.push(Io::Answer { tuning, requests, reopens: !job.is_open });
        }
        io
    }
}

#[cfg(test)]
mod tests;
