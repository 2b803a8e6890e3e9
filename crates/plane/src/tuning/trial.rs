//! The training job's side of a trial: what it has reported, how far it may run, and how it rests.

use serde::{Deserialize, Serialize};

use crate::{Time, TrialLaunch, TrialStart, TrialView};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Trial {
    pub(crate) tuning: String,
    pub(crate) definition: u32,
    pub(crate) trial: u32,
    pub(crate) to: Option<u32>,
    pub(crate) origin: Option<String>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) checkpoints: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) max: Option<u32>,
    /// Units that earlier attempts leave to the present one.
    pub(crate) behind: u32,
    /// Whose values count in the present attempt: the first host that reported.
    pub(crate) host: Option<u32>,
    pub(crate) resource: u32,
    /// Of the last report; none if that was not a number.
    pub(crate) value: Option<f64>,
    /// Units that a durable checkpoint has.
    pub(crate) saved: u32,
    /// The present attempt's launch did not know how far it may run now.
    pub(crate) raised: bool,
    pub(crate) rest: Option<Rest>,
}

/// A trial that makes room for others.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Rest {
    pub(crate) since: Time,
    /// Its programs stand still and hold memory only; otherwise they are ended, and the attempt is released.
    pub(crate) frozen: bool,
    /// It is to go on.
    pub(crate) wanted: bool,
    /// It has not been frozen, and takes its place among the active trials until its attempt is released.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) stays: bool,
}

impl Trial {
    pub(crate) fn new(start: &TrialStart) -> Trial {
        let TrialStart { tuning, definition, trial, to, origin, from, checkpoints, max } = start.clone();
        Trial {
            tuning,
            definition,
            trial,
            to,
            origin,
            checkpoints,
            max,
            behind: from,
            host: None,
            resource: from,
            value: None,
            saved: from,
            raised: false,
            rest: None,
        }
    }

    pub(crate) fn launch(&self) -> TrialLaunch {
        let (tuning, definition, from, to) = (self.tuning.clone(), self.definition, self.behind, self.to);
        TrialLaunch { tuning, definition, from, to, max: self.max, origin: self.origin.clone() }
    }

    /// Its attempt is over, and another follows: what rests, rests without instances.
    pub(crate) fn is_released(&mut self) {
        self.host = None;
        self.raised = false;
        if let Some(rest) = &mut self.rest {
            rest.frozen = false;
            rest.stays = false;
        }
    }

    /// Its programs stand still.
    pub(crate) fn is_frozen(&self) -> bool {
        self.rest.as_ref().is_some_and(|rest| rest.frozen)
    }

    /// The last report of the present attempt was not a number.
    pub(crate) fn is_astray(&self) -> bool {
        self.host.is_some() && self.value.is_none()
    }

    /// It rests until it is wanted again.
    pub(crate) fn is_unwanted(&self) -> bool {
        self.rest.as_ref().is_some_and(|rest| !rest.wanted)
    }

    /// `is_live`: its training job has not ended. `waits`: it is in the queue.
    pub(crate) fn view(&self, is_live: bool, waits: bool) -> TrialView {
        TrialView {
            tuning: self.tuning.clone(),
            definition: self.definition,
            trial: self.trial,
            resource: self.resource,
            to: self.to,
            objective: self.value,
            paused: is_live && self.rest.is_some() && !waits,
            waits,
            passed_over: !is_live && self.is_unwanted(),
        }
    }
}
