//! What is known of an allocation's jobs on a scheduler: a file in its directory, written before a
//! job is submitted and again when its number is known.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::AllocationSpec;
use crate::scheduled::job_name;

/// The jobs of an allocation.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Record {
    /// The compute target's name.
    pub(crate) target: String,
    /// In order of submission.
    #[serde(default)]
    pub(crate) jobs: Vec<Submitted>,
    /// Hosts for which a job was about to be submitted, and may have been.
    #[serde(default)]
    pub(crate) submitting: Option<BTreeSet<u32>>,
    /// Hosts that were ended and are not missed.
    #[serde(default)]
    pub(crate) removed: BTreeSet<u32>,
    /// The scheduler's user whose jobs they are; none: the caller's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) user: Option<String>,
}

/// A job of the scheduler, which starts agents.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Submitted {
    /// The scheduler's number for it.
    pub(crate) id: u64,
    pub(crate) name: String,
    pub(crate) hosts: BTreeSet<u32>,
    /// The scheduler's user whose job it is; none: the caller's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) user: Option<String>,
}

impl Record {
    /// None: nothing was ever submitted.
    pub(crate) fn read(dir: &Path, file: &str) -> io::Result<Option<Record>> {
        match fs::read(dir.join(file)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            read => Ok(Some(serde_json::from_slice(&read?)?)),
        }
    }

    /// As a whole or not at all.
    pub(crate) fn write(&self, dir: &Path, file: &str) -> io::Result<()> {
        let (path, draft) = (dir.join(file), dir.join(format!("{file}.draft")));
        fs::write(&draft, serde_json::to_vec(self)?)?;
        fs::File::open(&draft)?.sync_all()?;
        fs::rename(draft, path)
    }

    /// The job that a host is or was in last.
    pub(crate) fn job_of(&self, host: u32) -> Option<&Submitted> {
        self.jobs.iter().rev().find(|job| job.hosts.contains(&host))
    }

    /// The next job, for these hosts, before it has a number.
    pub(crate) fn next(&self, spec: &AllocationSpec, hosts: BTreeSet<u32>) -> Submitted {
        Submitted { id: 0, name: job_name(spec, self.jobs.len()), hosts, user: self.user.clone() }
    }

    /// A job was submitted.
    pub(crate) fn submitted(&mut self, job: Submitted) {
        self.submitting = None;
        self.removed.retain(|host| !job.hosts.contains(host));
        self.jobs.push(job);
    }
}
