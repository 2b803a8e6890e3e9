//! What is known of an allocation's Slurm jobs: a file in its directory, written before a job is
//! submitted and again when its number is known.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};

const FILE: &str = "slurm.json";

/// The jobs of an allocation.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Record {
    /// The compute target's name.
    pub(super) target: String,
    /// In order of submission.
    #[serde(default)]
    pub(super) jobs: Vec<Submitted>,
    /// Hosts for which a job was about to be submitted, and may have been.
    #[serde(default)]
    pub(super) submitting: Option<BTreeSet<u32>>,
    /// Hosts that were ended and are not missed.
    #[serde(default)]
    pub(super) removed: BTreeSet<u32>,
}

/// A Slurm job, which starts agents.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Submitted {
    pub(super) id: u64,
    pub(super) name: String,
    pub(super) hosts: BTreeSet<u32>,
}

impl Record {
    /// None: nothing was ever submitted.
    pub(super) fn read(dir: &Path) -> io::Result<Option<Record>> {
        match fs::read(dir.join(FILE)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            read => Ok(Some(serde_json::from_slice(&read?)?)),
        }
    }

    /// As a whole or not at all.
    pub(super) fn write(&self, dir: &Path) -> io::Result<()> {
        let (path, draft) = (dir.join(FILE), dir.join("slurm.json.draft"));
        fs::write(&draft, serde_json::to_vec(self)?)?;
        fs::File::open(&draft)?.sync_all()?;
        fs::rename(draft, path)
    }

    /// The job that a host is or was in last.
    pub(super) fn job_of(&self, host: u32) -> Option<&Submitted> {
        self.jobs.iter().rev().find(|job| job.hosts.contains(&host))
    }

    /// A job was submitted for these hosts.
    pub(super) fn submitted(&mut self, id: u64, name: String, hosts: BTreeSet<u32>) {
        self.submitting = None;
        self.removed.retain(|host| !hosts.contains(host));
        self.jobs.push(Submitted { id, name, hosts });
    }
}
