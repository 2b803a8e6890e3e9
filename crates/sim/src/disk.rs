//! What outlives a crash of the server: journal, rows, telemetry, run directories, stored artifacts.

use std::collections::{BTreeMap, BTreeSet};

use shoal_plane::{Event, JobView, StudyRecord, TuningView, Turn};

use crate::launcher::Key;

#[derive(Debug, Default)]
pub(crate) struct Disk {
    /// All events ever, by version - 1; those that the snapshot stands for are not read any more.
    pub(crate) events: Vec<Vec<u8>>,
    pub(crate) snapshot: Option<(usize, Vec<u8>)>,
    pub(crate) rows: BTreeMap<String, JobView>,
    pub(crate) tunings: BTreeMap<String, TuningView>,
    /// Records of tuning jobs' studies.
    pub(crate) records: BTreeMap<String, Vec<StudyRecord>>,
    /// Highest stored report number.
    pub(crate) acked: BTreeMap<Key, u64>,
    /// Lines of a host, by attempt, as they were stored.
    pub(crate) lines: BTreeMap<Key, Vec<u32>>,
    /// Parts of a host's model that have come.
    pub(crate) parts: BTreeMap<Key, BTreeSet<u32>>,
    /// Instances of attempts that have a plan in their run directory.
    pub(crate) plans: BTreeMap<String, u32>,
    /// The attempt and the hosts whose model a job has.
    pub(crate) models: BTreeMap<String, (String, Vec<u32>)>,
}

impl Disk {
    /// In one transaction. Whether each record has the next number of its tuning job.
    pub(crate) fn append(&mut self, turn: &Turn, rows: impl IntoIterator<Item = (String, JobView)>, keeps_records: bool) -> bool {
        self.events.extend(turn.events.iter().map(Event::encode));
        self.rows.extend(rows);
        self.tunings.extend(turn.tunings.clone());
        turn.records.iter().filter(|_| keeps_records).all(|stored| {
            let records = self.records.entry(stored.tuning.clone()).or_default();
            records.push(stored.record.clone());
            records.len() as u64 == stored.number + 1
        })
    }

    /// Lines and their number in one transaction, unless the number is stored already; gives the highest number.
    pub(crate) fn ingest(&mut self, key: &Key, seq: u64, lines: &mut Vec<u32>) -> u64 {
        let acked = self.acked.entry(key.clone()).or_default();
        let lines = std::mem::take(lines);
        if seq > *acked {
            *acked = seq;
            self.lines.entry(key.clone()).or_default().extend(lines);
        }
        *acked
    }

    /// Removes an attempt's directory and numbers; its lines stay.
    pub(crate) fn remove_run(&mut self, attempt: &str) {
        self.plans.remove(attempt);
        self.acked.retain(|(of, _), _| of != attempt);
        self.parts.retain(|(of, _), _| of != attempt);
    }
}
