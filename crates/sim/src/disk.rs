//! What outlives a crash of the server: journal, rows, telemetry, run directories, stored artifacts.

use std::collections::{BTreeMap, BTreeSet};

use shoal_plane::{Event, JobView};

use crate::launcher::Key;

#[derive(Debug, Default)]
pub(crate) struct Disk {
    /// All events ever, by version - 1; those that the snapshot stands for are not read any more.
    pub(crate) events: Vec<Vec<u8>>,
    pub(crate) snapshot: Option<(usize, Vec<u8>)>,
    pub(crate) rows: BTreeMap<String, JobView>,
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
    /// In one transaction.
    pub(crate) fn append(&mut self, events: &[Event], rows: impl IntoIterator<Item = (String, JobView)>) {
        self.events.extend(events.iter().map(Event::encode));
        self.rows.extend(rows);
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
