//! What outlives a crash of the server: journal, rows, telemetry, run directories, stored
//! artifacts.

use std::collections::{BTreeMap, BTreeSet};

use shoal_plane::{AttemptId, Event, Host, JobName, JobView, Placement, StudyRecord, TuningName, TuningView, Turn};
use shoal_runtime::warm_pool::ReusePolicy;

/// A host of an attempt.
pub(crate) type AttemptHost = (AttemptId, Host);

/// What is stored of an attempt in its run directory.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    pub(crate) job: JobName,
    pub(crate) attempt: AttemptId,
    pub(crate) instances: u32,
    pub(crate) placement: Placement,
    /// The attempt that its instance was started for.
    pub(crate) allocation: AttemptId,
    pub(crate) reuse: Option<ReusePolicy>,
}

#[derive(Debug, Default)]
pub(crate) struct Disk {
    /// All events ever, by version - 1; those that the snapshot stands for are not read any more.
    pub(crate) events: Vec<Vec<u8>>,
    pub(crate) snapshot: Option<(usize, Vec<u8>)>,
    pub(crate) rows: BTreeMap<JobName, JobView>,
    pub(crate) tunings: BTreeMap<TuningName, TuningView>,
    /// Records of tuning jobs' studies.
    pub(crate) records: BTreeMap<TuningName, Vec<StudyRecord>>,
    /// Highest stored report number.
    pub(crate) acked: BTreeMap<AttemptHost, u64>,
    /// Lines of a host, as they were stored.
    pub(crate) lines: BTreeMap<AttemptHost, Vec<u32>>,
    /// Parts of a host's model that have come.
    pub(crate) parts: BTreeMap<AttemptHost, BTreeSet<u32>>,
    /// Run directories, by attempt.
    pub(crate) dirs: BTreeSet<AttemptId>,
    /// What is in them of attempts.
    pub(crate) plans: BTreeMap<AttemptId, Plan>,
    /// Checkpoint files that are objects.
    pub(crate) objects: BTreeSet<(AttemptHost, String)>,
    /// The attempt and the hosts whose model a job has.
    pub(crate) models: BTreeMap<JobName, (AttemptId, Vec<Host>)>,
}

impl Disk {
    /// In one transaction. Whether each record has the next number of its tuning job.
    pub(crate) fn append(
        &mut self,
        turn: &Turn,
        rows: impl IntoIterator<Item = (JobName, JobView)>,
        keeps_records: bool,
    ) -> bool {
        self.events.extend(turn.events.iter().map(Event::encode));
        self.rows.extend(rows);
        self.tunings.extend(turn.tunings.clone());
        turn.records.iter().filter(|_| keeps_records).all(|stored| {
            let records = self.records.entry(stored.tuning.clone()).or_default();
            records.push(stored.record.clone());
            records.len() as u64 == stored.number + 1
        })
    }

    /// Lines and their number in one transaction, unless the number is stored already; gives the
    /// highest number.
    pub(crate) fn ingest(&mut self, host: &AttemptHost, seq: u64, lines: Vec<u32>) -> u64 {
        let acked = self.acked.entry(host.clone()).or_default();
        if seq > *acked {
            *acked = seq;
            self.lines.entry(host.clone()).or_default().extend(lines);
        }
        *acked
    }

    /// The numbers of an attempt's reports; its lines stay.
    pub(crate) fn forget_reports(&mut self, attempt: &AttemptId) {
        self.acked.retain(|(of, _), _| of != attempt);
    }

    /// What of an attempt is in its directory.
    pub(crate) fn remove_plan(&mut self, attempt: &AttemptId) {
        self.plans.remove(attempt);
        self.parts.retain(|(of, _), _| of != attempt);
    }

    pub(crate) fn remove_dir(&mut self, attempt: &AttemptId) {
        self.remove_plan(attempt);
        self.dirs.remove(attempt);
    }
}
