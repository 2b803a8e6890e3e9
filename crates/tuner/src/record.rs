//! What a study is asked and told, and what it answers. All of it is data that can be stored.

use serde::{Deserialize, Serialize};

use crate::Config;

/// A trial's number, from 0 in the order of starts and injections.
pub type TrialId = u32;

/// Numbers that a searcher wants back at its next proposal: a starting point, nothing that its
/// answers may not be reproduced without. Stored with the record of the proposal, so that a study
/// that is restored goes on bit for bit.
pub type Memo = Vec<f64>;

/// What an idle worker is to do.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ask {
    /// A new trial.
    Start(Start),
    /// A paused trial goes on.
    Resume {
        /// Which.
        trial: TrialId,
        /// Units of resource that it has behind it.
        from: u32,
        /// It pauses there, having reported `to`; none: to its end.
        to: Option<u32>,
    },
    /// Nothing, until another trial reports or ends.
    Wait,
    /// Nothing more, ever.
    End,
}

/// A new trial.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Start {
    /// Counted from 0 in the order of starts.
    pub trial: TrialId,
    /// What to try.
    pub config: Config,
    /// It pauses there, having reported `to`; none: to its end.
    pub to: Option<u32>,
    /// It begins with a copy of another trial's checkpoint.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<Origin>,
    /// The scheduler's bracket, from 0.
    #[serde(default)]
    pub bracket: u32,
}

/// Whose checkpoint a trial begins with (population based training). The copy counts on from there:
/// its first report is for `resource + 1`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Origin {
    /// Whose.
    pub trial: TrialId,
    /// After how many units of resource.
    pub resource: u32,
}

/// What a running trial is to do, after a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Go on up to a further resource, if it stands at its `to`.
    Continue {
        /// Its new `to`.
        to: Option<u32>,
    },
    /// End early: it is over, and its last report is its result.
    Stop,
    /// Keep a checkpoint and make room; it may go on later.
    Pause,
}

/// How a trial ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// By itself. One value per objective, as the user sees them; not a number is a failure.
    Completed {
        /// In the order of the objectives.
        #[serde(with = "numbers")]
        values: Vec<f64>,
    },
    /// It was stopped, by a verdict or from outside; what it reported counts at the resource where
    /// it was reported.
    Stopped,
    /// It has no result. Searchers take it for as bad as the worst trial, and never propose it
    /// again.
    Failed,
}

/// Something that happened to a study, with all that folding it needs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Record {
    /// It was asked and did not say to wait.
    Asked {
        /// What it answered.
        answer: Ask,
        /// What its searcher wants to remember.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        memo: Option<Memo>,
        /// From now on there is nothing new left to try. Only then is an answer to wait recorded.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        exhausted: bool,
    },
    /// A trial reported, after a unit of resource.
    Reported {
        /// Which.
        trial: TrialId,
        /// Units that it has behind it, from 1.
        resource: u32,
        /// One value per objective, or the first only.
        #[serde(with = "numbers")]
        values: Vec<f64>,
        /// What follows, for it or for others; a trial that is not named goes on.
        verdicts: Vec<(TrialId, Verdict)>,
    },
    /// A trial ended.
    Ended {
        /// Which.
        trial: TrialId,
        /// How.
        outcome: Outcome,
        /// What follows for others.
        #[serde(default)]
        verdicts: Vec<(TrialId, Verdict)>,
    },
    /// A finished trial of elsewhere is known (warm start).
    Injected {
        /// What was tried.
        config: Config,
        /// How it ended.
        outcome: Outcome,
    },
}

/// As a program says them. JSON has no number for what is none: it travels as null.
mod numbers {
    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(values: &[f64], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(values.iter().map(|value| value.is_finite().then_some(*value)))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<f64>, D::Error> {
        let values: Vec<Option<f64>> = Deserialize::deserialize(deserializer)?;
        Ok(values.into_iter().map(|value| value.unwrap_or(f64::NAN)).collect())
    }
}
