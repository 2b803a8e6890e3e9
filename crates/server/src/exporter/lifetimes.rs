//! Resources of a kind by state, and the time from creation to end.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use shoal_store::{Key, ResourceKind, ResourceProgress, ResourceRow};

use super::{
    format::{Kind, Text},
    histogram::Histogram,
};
use crate::core::secondary_status;

/// What is exported of a kind.
pub(super) struct Family {
    kind: ResourceKind,
    /// Gauge of resources that have not ended: name and help.
    counts: (&'static str, &'static str),
    /// Histogram of lifetimes: name and help.
    durations: (&'static str, &'static str),
    /// The gauge's label, of a row's status and keys.
    state: for<'a> fn(&'a str, &'a [Option<Key>; 2]) -> &'a str,
    /// States that are exported even when no resource is in them, so that a chart has a line.
    always: &'static [&'static str],
    /// Bounds of the histogram's buckets.
    seconds: &'static [f64],
}

/// From a test to a day.
pub(super) static TRAINING_JOBS: Family = Family {
    kind: ResourceKind::TRAINING_JOB,
    counts: ("shoal_training_jobs", "Training jobs that are not over, by SecondaryStatus."),
    durations: (
        "shoal_training_job_duration_seconds",
        "Time from creation to end of training jobs that ended while this server ran, by TrainingJobStatus.",
    ),
    state: |_, keys| secondary_status(keys),
    always: &["Pending", "Starting", "Downloading", "Training", "Uploading", "Stopping"],
    seconds: &[0.5, 1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3600.0, 14_400.0, 86_400.0],
};

/// From a test to a week.
pub(super) static TUNING_JOBS: Family = Family {
    kind: ResourceKind::TUNING_JOB,
    counts: ("shoal_tuning_jobs", "Tuning jobs that are not over, by HyperParameterTuningJobStatus."),
    durations: (
        "shoal_tuning_job_duration_seconds",
        "Time from creation to end of tuning jobs that ended while this server ran, by HyperParameterTuningJobStatus.",
    ),
    state: |status, _| status,
    always: &["InProgress", "Stopping"],
    seconds: &[1.0, 10.0, 60.0, 300.0, 900.0, 3600.0, 14_400.0, 86_400.0, 604_800.0],
};

/// Resources of one kind.
pub(super) struct Lifetimes {
    family: &'static Family,
    /// Every resource that has not ended, by name.
    live: Mutex<HashMap<String, Live>>,
    /// By final status.
    durations: Histogram<1>,
}

struct Live {
    state: String,
    created_ms: u64,
}

impl Lifetimes {
    pub(super) fn new(family: &'static Family) -> Self {
        Self { family, live: Mutex::default(), durations: Histogram::new(["status"], family.seconds) }
    }

    fn live(&self) -> MutexGuard<'_, HashMap<String, Live>> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A resource that had not ended when the server started.
    pub(super) fn found(&self, name: &str, state: &str, created_ms: u64) {
        self.live().insert(name.to_owned(), Live { state: state.to_owned(), created_ms });
    }

    /// A whole row was written, perhaps once more after its end. Rows of other kinds are ignored.
    pub(super) fn put(&self, row: &ResourceRow) {
        if row.kind != self.family.kind {
            return;
        }
        if row.ended {
            self.end(&row.name, &row.status, row.ended_ms.unwrap_or(row.modified_ms));
        } else {
            self.found(&row.name, (self.family.state)(&row.status, &row.keys), row.created_ms);
        }
    }

    /// A row's progress was written. Rows of other kinds are ignored.
    pub(super) fn moved(&self, progress: &ResourceProgress) {
        if progress.kind != self.family.kind {
            return;
        }
        if progress.ended {
            self.end(&progress.name, &progress.status, progress.ended_ms.unwrap_or(progress.modified_ms));
        } else if let Some(live) = self.live().get_mut(&progress.name) {
            (self.family.state)(&progress.status, &progress.keys).clone_into(&mut live.state);
        }
    }

    fn end(&self, name: &str, status: &str, ended_ms: u64) {
        let ended = self.live().remove(name);
        if let Some(Live { created_ms, .. }) = ended {
            self.durations.observe([status], Duration::from_millis(ended_ms.saturating_sub(created_ms)));
        }
    }

    /// Resources in this state.
    pub(super) fn count(&self, state: &str) -> usize {
        self.live().values().filter(|live| live.state == state).count()
    }

    pub(super) fn write_counts(&self, text: &mut Text) {
        let mut counts: BTreeMap<String, usize> =
            self.family.always.iter().map(|state| ((*state).to_owned(), 0)).collect();
        for live in self.live().values() {
            *counts.entry(live.state.clone()).or_default() += 1;
        }
        let (name, help) = self.family.counts;
        text.family(name, Kind::Gauge, help);
        for (state, count) in &counts {
            text.sample(name, &[("status", state)], *count as f64);
        }
    }

    pub(super) fn write_durations(&self, text: &mut Text) {
        let (name, help) = self.family.durations;
        self.durations.write(text, name, help);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(family: &Family, name: &str, state: &str, ended: Option<u64>) -> ResourceRow {
        ResourceRow {
            status: state.into(),
            keys: [Some(state.into()), None],
            created_ms: 1000,
            ended_ms: ended,
            ended: ended.is_some(),
            ..ResourceRow::new(family.kind, name)
        }
    }

    fn moved(row: &ResourceRow) -> ResourceProgress {
        let ResourceRow { kind, name, modified_ms, ended_ms, status, ended, keys, view, .. } = row.clone();
        ResourceProgress { kind, name, modified_ms, ended_ms, status, ended, keys, view }
    }

    fn page(lifetimes: &Lifetimes) -> String {
        let mut text = Text::default();
        lifetimes.write_counts(&mut text);
        lifetimes.write_durations(&mut text);
        text.into_string()
    }

    #[test]
    fn a_job_that_has_ended_is_counted_once() {
        let whole = |jobs: &Lifetimes, row: &ResourceRow| jobs.put(row);
        let moved_once_created = |jobs: &Lifetimes, row: &ResourceRow| {
            if row.status == "Pending" { jobs.put(row) } else { jobs.moved(&moved(row)) }
        };
        check(whole);
        check(moved_once_created);
    }

    fn check(write: impl Fn(&Lifetimes, &ResourceRow)) {
        let jobs = Lifetimes::new(&TRAINING_JOBS);
        for row in [
            row(&TRAINING_JOBS, "a", "Pending", None),
            row(&TUNING_JOBS, "a", "Pending", None),
            row(&TRAINING_JOBS, "b", "Pending", None),
            row(&TRAINING_JOBS, "b", "Training", None),
            row(&TUNING_JOBS, "b", "Failed", Some(1750)),
            row(&TRAINING_JOBS, "b", "Completed", Some(1750)),
            row(&TRAINING_JOBS, "b", "Completed", Some(1750)),
            row(&TRAINING_JOBS, "never seen alive", "Stopped", Some(9000)),
        ] {
            write(&jobs, &row);
        }
        let text = page(&jobs);
        for line in [
            "shoal_training_jobs{status=\"Pending\"} 1\n",
            "shoal_training_jobs{status=\"Training\"} 0\n",
            "shoal_training_job_duration_seconds_sum{status=\"Completed\"} 0.75\n",
            "shoal_training_job_duration_seconds_count{status=\"Completed\"} 1\n",
        ] {
            assert!(text.contains(line), "{line}{text}");
        }
        assert!(!text.contains("Stopped") && !text.contains("Failed"), "{text}");
        assert_eq!((jobs.count("Pending"), jobs.count("Training")), (1, 0));
    }

    #[test]
    fn tuning_jobs_are_counted_by_status() {
        let tunings = Lifetimes::new(&TUNING_JOBS);
        tunings.found("found", "InProgress", 1000);
        tunings.put(&row(&TUNING_JOBS, "new", "InProgress", None));
        tunings.moved(&moved(&row(&TUNING_JOBS, "new", "Stopping", None)));
        let over =
            ResourceProgress { ended: true, modified_ms: 2000, ..moved(&row(&TUNING_JOBS, "found", "Failed", None)) };
        tunings.moved(&over);
        tunings.moved(&over);
        tunings.put(&row(&TUNING_JOBS, "never seen alive", "Completed", Some(3500)));
        let text = page(&tunings);
        for line in [
            "shoal_tuning_jobs{status=\"InProgress\"} 0\n",
            "shoal_tuning_jobs{status=\"Stopping\"} 1\n",
            "shoal_tuning_job_duration_seconds_sum{status=\"Failed\"} 1\n",
            "shoal_tuning_job_duration_seconds_count{status=\"Failed\"} 1\n",
        ] {
            assert!(text.contains(line), "{line}{text}");
        }
        assert!(!text.contains("Completed"), "{text}");
    }
}
