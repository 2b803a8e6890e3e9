//! Training jobs by state, and how long they took.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Mutex, PoisonError},
    time::Duration,
};

use shoal_store::{JobProgress, JobRow};

use super::{
    format::{Kind, Text},
    histogram::Histogram,
};

/// Seconds that jobs take: from a test to a day.
const JOB_SECONDS: &[f64] = &[0.5, 1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3600.0, 14_400.0, 86_400.0];
/// States that are shown though no job is in them, so that a chart has a line.
const ALWAYS: [&str; 6] = ["Pending", "Starting", "Downloading", "Training", "Uploading", "Stopping"];
const WAITS: &str = "Pending";

pub(super) struct Jobs {
    /// Every job that is not over.
    live: Mutex<HashMap<String, Live>>,
    /// By the status that they ended in.
    durations: Histogram<1>,
}

struct Live {
    secondary: String,
    created_ms: u64,
}

impl Jobs {
    pub(super) fn new() -> Self {
        Self { live: Mutex::default(), durations: Histogram::new(["status"], JOB_SECONDS) }
    }

    /// A job was found that is not over.
    pub(super) fn goes_on(&self, name: &str, secondary: &str, created_ms: u64) {
        let mut live = self.live.lock().unwrap_or_else(PoisonError::into_inner);
        live.insert(name.to_owned(), Live { secondary: secondary.to_owned(), created_ms });
    }

    /// A job's row was written. Rows of jobs that are over may be written again.
    pub(super) fn changed(&self, row: &JobRow) {
        let mut live = self.live.lock().unwrap_or_else(PoisonError::into_inner);
        if !row.ended {
            live.insert(row.name.clone(), Live { secondary: row.secondary.clone(), created_ms: row.created_ms });
        } else if live.remove(&row.name).is_some() {
            self.took(&row.status, row.created_ms, row.ended_ms.unwrap_or(row.modified_ms));
        }
    }

    /// The core's part of a job's row was written.
    pub(super) fn moved(&self, progress: &JobProgress) {
        let mut live = self.live.lock().unwrap_or_else(PoisonError::into_inner);
        if progress.ended {
            if let Some(job) = live.remove(&progress.name) {
                self.took(&progress.status, job.created_ms, progress.ended_ms.unwrap_or(progress.modified_ms));
            }
        } else if let Some(job) = live.get_mut(&progress.name) {
            job.secondary.clone_from(&progress.secondary);
        }
    }

    fn took(&self, status: &str, created_ms: u64, ended_ms: u64) {
        self.durations.observe([status], Duration::from_millis(ended_ms.saturating_sub(created_ms)));
    }

    pub(super) fn write(&self, text: &mut Text) {
        let mut counts: BTreeMap<String, usize> = ALWAYS.map(|status| (status.to_owned(), 0)).into();
        for job in self.live.lock().unwrap_or_else(PoisonError::into_inner).values() {
            *counts.entry(job.secondary.clone()).or_default() += 1;
        }
        text.family("shoal_training_jobs", Kind::Gauge, "Training jobs that are not over, by SecondaryStatus.");
        for (status, count) in &counts {
            text.sample("shoal_training_jobs", &[("status", status)], *count as f64);
        }
        text.gauge("shoal_queue_length", "Training jobs that wait for capacity.", counts[WAITS] as f64);
        let help = "Time from creation to end of training jobs that ended while this server ran, by TrainingJobStatus.";
        self.durations.write(text, "shoal_training_job_duration_seconds", help);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(name: &str, secondary: &str, ended: Option<u64>) -> JobRow {
        JobRow {
            name: name.into(),
            status: secondary.into(),
            secondary: secondary.into(),
            created_ms: 1000,
            ended_ms: ended,
            ended: ended.is_some(),
            ..JobRow::default()
        }
    }

    fn moved(row: &JobRow) -> JobProgress {
        let JobRow { name, modified_ms, ended_ms, status, secondary, ended, view, .. } = row.clone();
        JobProgress { name, modified_ms, ended_ms, status, secondary, ended, view }
    }

    #[test]
    fn a_job_that_is_over_is_counted_once() {
        let whole = |jobs: &Jobs, row: &JobRow| jobs.changed(row);
        let moved_once_created =
            |jobs: &Jobs, row: &JobRow| if row.secondary == "Pending" { jobs.changed(row) } else { jobs.moved(&moved(row)) };
        check(whole);
        check(moved_once_created);
    }

    fn check(write: impl Fn(&Jobs, &JobRow)) {
        let jobs = Jobs::new();
        for row in [
            row("a", "Pending", None),
            row("b", "Pending", None),
            row("b", "Training", None),
            row("b", "Completed", Some(1750)),
            row("b", "Completed", Some(1750)),
            row("never seen alive", "Stopped", Some(9000)),
        ] {
            write(&jobs, &row);
        }
        let mut text = Text::default();
        jobs.write(&mut text);
        let text = text.into_string();
        for line in [
            "shoal_training_jobs{status=\"Pending\"} 1\n",
            "shoal_training_jobs{status=\"Training\"} 0\n",
            "shoal_queue_length 1\n",
            "shoal_training_job_duration_seconds_sum{status=\"Completed\"} 0.75\n",
            "shoal_training_job_duration_seconds_count{status=\"Completed\"} 1\n",
        ] {
            assert!(text.contains(line), "{line}{text}");
        }
        assert!(!text.contains("Stopped"), "{text}");
    }
}
