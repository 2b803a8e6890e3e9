//! Rows of tuning jobs' trials and of their tuners' records, in memory.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::mem;
use std::ops::Bound;

use crate::{
    Cursor, RecordRow, ResourceRow, SortOrder, StoreError, TrialFilter, TrialPage, TrialProgress, TrialRow, TrialSort,
};

#[derive(Debug, Default)]
pub(crate) struct Trials {
    /// By training job.
    rows: BTreeMap<String, TrialRow>,
    /// By tuning job and number.
    records: BTreeMap<(String, u64), Vec<u8>>,
}

impl Trials {
    pub(crate) fn put(&mut self, row: &TrialRow) {
        self.rows.insert(row.job.clone(), row.clone());
    }

    pub(crate) fn advance(&mut self, progress: &TrialProgress) {
        let TrialProgress { job, value, view } = progress.clone();
        if let Some(row) = self.rows.get_mut(&job) {
            *row = TrialRow { value, view, ..mem::take(row) };
        }
    }

    pub(crate) fn put_record(&mut self, row: &RecordRow) {
        self.records.insert((row.tuning.clone(), row.seq), row.bytes.clone());
    }

    pub(crate) fn forget_tuning(&mut self, name: &str) {
        self.rows.retain(|_, row| row.tuning != *name);
        self.records.retain(|(tuning, _), _| tuning != name);
    }

    pub(crate) fn follow_job(&mut self, job: &str, status: &str) {
        if let Some(row) = self.rows.get_mut(job) {
            status.clone_into(&mut row.status);
        }
    }

    pub(crate) fn forget_job(&mut self, job: &str) {
        self.rows.remove(job);
    }

    pub(crate) fn trial(&self, job: &str) -> Option<TrialRow> {
        self.rows.get(job).cloned()
    }

    pub(crate) fn list(
        &self,
        filter: &TrialFilter,
        job: impl Fn(&str) -> Option<ResourceRow>,
    ) -> Result<TrialPage, StoreError> {
        let start = filter.after.as_ref().map(|cursor| start(cursor, filter.sort)).transpose()?;
        let is_wanted = |row: &&TrialRow| {
            row.tuning == filter.tuning
                && filter.status.as_ref().is_none_or(|status| row.status == *status)
                && (filter.sort != TrialSort::Value || row.value.is_some())
        };
        let in_order = |one: &TrialRow, other: &TrialRow| {
            let place = compare(one, other, filter.sort).then_with(|| one.job.cmp(&other.job));
            if filter.order == SortOrder::Descending { place.reverse() } else { place }
        };
        let mut rows: Vec<&TrialRow> = self.rows.values().filter(is_wanted).collect();
        rows.sort_by(|one, other| in_order(one, other));
        rows.retain(|row| start.as_ref().is_none_or(|start| in_order(start, row) == Ordering::Less));
        let more = rows.len() > filter.limit;
        rows.truncate(filter.limit);
        let next = rows.last().filter(|_| more).map(|row| Cursor::after_trial(row, filter.sort));
        Ok(TrialPage { rows: rows.into_iter().filter_map(|row| Some((row.clone(), job(&row.job)?))).collect(), next })
    }

    pub(crate) fn records(&self, tuning: &str, after: u64) -> Vec<(u64, Vec<u8>)> {
        let start = (Bound::Excluded((tuning.to_owned(), after)), Bound::Unbounded);
        let records = self.records.range(start).take_while(|((of, _), _)| of == tuning);
        records.map(|((_, seq), bytes)| (*seq, bytes.clone())).collect()
    }
}

fn compare(one: &TrialRow, other: &TrialRow, sort: TrialSort) -> Ordering {
    match sort {
        TrialSort::Name => Ordering::Equal,
        TrialSort::CreationTime => one.created_ms.cmp(&other.created_ms),
        TrialSort::Status => one.status.cmp(&other.status),
        TrialSort::Value => one.value.partial_cmp(&other.value).unwrap_or(Ordering::Equal),
    }
}

/// A trial in the place of the cursor.
fn start(cursor: &Cursor, sort: TrialSort) -> Result<TrialRow, StoreError> {
    let mut row = TrialRow { job: cursor.name.clone(), ..TrialRow::default() };
    match sort {
        TrialSort::Name => {}
        TrialSort::CreationTime => row.created_ms = cursor.number()?,
        TrialSort::Status => row.status.clone_from(&cursor.value),
        TrialSort::Value => row.value = Some(cursor.number()?),
    }
    Ok(row)
}
