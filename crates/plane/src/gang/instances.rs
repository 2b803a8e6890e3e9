//! An attempt: a gang on instances, and where each of them is.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::{AttemptId, Host, Placement, RankEnd, Time};

/// The gang on instances.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Attempt {
    pub(crate) id: AttemptId,
    pub(crate) placement: Placement,
    pub(crate) lease_s: u64,
    pub(crate) launched: Time,
    pub(crate) stage: Stage,
    /// By host number - 1.
    pub(crate) instances: Vec<Instance>,
    /// When it failed, paused or was interrupted, if another follows: its instances are only waited
    /// for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) failed: Option<Time>,
    /// Its instances are taken away, and its programs have the grace of a stop.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) interrupted: bool,
    /// They are, since the machine's memory ran short.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) evicted: bool,
    /// It is ended to make room for others while its gang rests: what its hosts upload is stored.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) parked: bool,
    /// Its launch waits in the queue of a compute target: the time to report does not count.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) queued: bool,
    /// Programs ran on all of its instances at the same time: from then on a gang that may can lose
    /// some.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) complete: bool,
    /// Instances that were lost while the others continued.
    #[serde(default, skip_serializing_if = "crate::nouns::is_default")]
    pub(crate) losses: u32,
    /// Hosts whose present instance was added while others ran.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub(crate) joined: BTreeSet<Host>,
}

/// What is awaited from the shell for the attempt as a whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Stage {
    /// Reports.
    Running,
    /// The stored artifacts; never of a gang that serves.
    Storing,
    /// The release.
    Releasing,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Instance {
    /// Has not reported yet.
    Starting,
    /// Prepares its program's inputs.
    Downloading,
    /// Its program runs.
    #[serde(rename = "training")]
    Running,
    /// Its program is over; `seen` is when the server learnt of it.
    Ended {
        end: RankEnd,
        seen: Time,
    },
    /// As before, and its artifacts are here; no end when it was stopped before it had started its
    /// program.
    Uploaded,
    Lost {
        reason: String,
        seen: Time,
    },
    /// It is taken away: its program has the grace of a stop, and nothing of it counts any more.
    Leaving {
        since: Time,
    },
    /// What is left of it is removed.
    Clearing {
        is_lost: bool,
    },
    /// There is no instance. A new one may start once `until` is over, if it is set.
    Absent {
        until: Option<Time>,
    },
}

impl Instance {
    /// Nothing runs there any more that counts.
    pub(crate) fn over(&self) -> bool {
        matches!(self, Instance::Ended { .. } | Instance::Uploaded | Instance::Lost { .. }) || !self.is_member()
    }

    /// The gang counts on it; otherwise it was taken away or lost while the others continued.
    pub(crate) fn is_member(&self) -> bool {
        !matches!(self, Instance::Leaving { .. } | Instance::Clearing { .. } | Instance::Absent { .. })
    }

    /// It is there, whether it counts or not.
    pub(crate) fn is_present(&self) -> bool {
        !matches!(self, Instance::Absent { .. })
    }

    /// A program runs there, or is about to.
    pub(crate) fn active(&self) -> bool {
        matches!(self, Instance::Downloading | Instance::Running)
    }

    /// Its program has started, or may have.
    pub(crate) fn has_run(&self) -> bool {
        matches!(self, Instance::Running | Instance::Ended { .. } | Instance::Uploaded)
    }
}

impl RankEnd {
    /// Exit code 0.
    pub(crate) fn success(&self) -> bool {
        self.code == Some(0)
    }
}

impl Attempt {
    /// Numbers of the hosts whose instances are like this.
    pub(crate) fn hosts(&self, is_wanted: impl Fn(&Instance) -> bool) -> Vec<Host> {
        Host::numbered()
            .zip(&self.instances)
            .filter(|(_, instance)| is_wanted(instance))
            .map(|(host, _)| host)
            .collect()
    }

    pub(crate) fn any(&self, is_wanted: impl Fn(&Instance) -> bool) -> bool {
        self.instances.iter().any(is_wanted)
    }

    pub(crate) fn all(&self, is_wanted: impl Fn(&Instance) -> bool) -> bool {
        self.instances.iter().all(is_wanted)
    }

    /// Nothing runs on any instance any more.
    pub(crate) fn all_over(&self) -> bool {
        self.all(Instance::over)
    }

    /// It is about to give its capacity back.
    pub(crate) fn is_leaving(&self) -> bool {
        self.failed.is_some() || self.stage != Stage::Running
    }

    /// When the last of the programs ended whose artifacts are awaited.
    pub(crate) fn last_awaited(&self) -> Option<Time> {
        let ends = self.instances.iter().filter_map(|instance| match instance {
            Instance::Ended { seen, .. } => Some(*seen),
            _ => None,
        });
        ends.max()
    }

    /// The instance of a host.
    pub(crate) fn instance(&self, host: Host) -> Option<&Instance> {
        self.instances.get(host.index()?)
    }

    /// Whether there is such an instance.
    pub(crate) fn set_instance(&mut self, host: Host, next: Instance) -> bool {
        let instance = host.index().and_then(|index| self.instances.get_mut(index));
        let is_known = instance.is_some();
        if let Some(instance) = instance {
            *instance = next;
        }
        is_known
    }

    /// Whether it was not there yet.
    pub(crate) fn set_stage(&mut self, stage: Stage) -> bool {
        let is_news = self.stage < stage;
        self.stage = self.stage.max(stage);
        is_news
    }
}
