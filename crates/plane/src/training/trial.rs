//! The training job's side of a trial: what it has reported, how far it may run. How it rests is
//! its gang's.

use serde::{Deserialize, Serialize};

use crate::{Host, JobName, TrialLaunch, TrialStart, TrialView, TuningName, gang::Gang};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Trial {
    pub(crate) tuning: TuningName,
    pub(crate) definition: u32,
    pub(crate) trial: u32,
    pub(crate) to: Option<u32>,
    pub(crate) origin: Option<JobName>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) checkpoints: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) max: Option<u32>,
    /// Units that earlier attempts leave to the present one.
    pub(crate) behind: u32,
    /// Whose values count in the present attempt: the first host that reported.
    pub(crate) host: Option<Host>,
    pub(crate) resource: u32,
    /// Of the last report; none if that was not a number.
    pub(crate) value: Option<f64>,
    /// Units that a durable checkpoint has.
    pub(crate) saved: u32,
    /// The present attempt's launch did not know how far it may run now.
    pub(crate) raised: bool,
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
        }
    }

    pub(crate) fn launch(&self) -> TrialLaunch {
        let (tuning, definition, from, to) = (self.tuning.clone(), self.definition, self.behind, self.to);
        TrialLaunch { tuning, definition, from, to, max: self.max, origin: self.origin.clone() }
    }

    /// The last report of the present attempt was not a number.
    pub(crate) fn is_astray(&self) -> bool {
        self.host.is_some() && self.value.is_none()
    }

    pub(crate) fn view(&self, gang: &Gang) -> TrialView {
        let (is_live, waits) = (gang.end.is_none(), gang.waits());
        TrialView {
            tuning: self.tuning.clone(),
            definition: self.definition,
            trial: self.trial,
            resource: self.resource,
            to: self.to,
            objective: self.value,
            paused: is_live && gang.rest.is_some() && !waits,
            waits,
            passed_over: !is_live && gang.is_unwanted(),
        }
    }
}
