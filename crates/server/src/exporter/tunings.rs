//! Tuning jobs by status, how long they took, and how many trials they started.

use std::{
    collections::HashMap,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use shoal_store::{TuningProgress, TuningRow};

use super::{
    format::{Kind, Text},
    histogram::Histogram,
};

/// Seconds that tuning jobs take: from a test to a week.
const TUNING_SECONDS: &[f64] = &[1.0, 10.0, 60.0, 300.0, 900.0, 3600.0, 14_400.0, 86_400.0, 604_800.0];
/// Statuses that are shown though no tuning job has them, so that a chart has a line.
const ALWAYS: [&str; 2] = ["InProgress", "Stopping"];

pub(super) struct Tunings {
    /// Every tuning job that is not over: its status, and when it was created.
    live: Mutex<HashMap<String, (String, u64)>>,
    /// By the status that they ended in.
    durations: Histogram<1>,
    trials: AtomicU64,
}

impl Tunings {
    pub(super) fn new() -> Self {
        Self { live: Mutex::default(), durations: Histogram::new(["status"], TUNING_SECONDS), trials: AtomicU64::default() }
    }

    /// A tuning job was found that is not over.
    pub(super) fn goes_on(&self, name: &str, status: &str, created_ms: u64) {
        let mut live = self.live.lock().unwrap_or_else(PoisonError::into_inner);
        live.insert(name.to_owned(), (status.to_owned(), created_ms));
    }

    /// A tuning job's row was written whole. Rows of those that are over may be written again.
    pub(super) fn changed(&self, row: &TuningRow) {
        if row.ended {
            self.is_over(&row.name, &row.status, row.ended_ms.unwrap_or(row.modified_ms));
        } else {
            self.goes_on(&row.name, &row.status, row.created_ms);
        }
    }

    /// The core's part of a tuning job's row was written.
    pub(super) fn moved(&self, progress: &TuningProgress) {
        if progress.ended {
            return self.is_over(&progress.name, &progress.status, progress.ended_ms.unwrap_or(progress.modified_ms));
        }
        let mut live = self.live.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((status, _)) = live.get_mut(&progress.name) {
            status.clone_from(&progress.status);
        }
    }

    /// A trial's row was written for the first time.
    pub(super) fn has_started_a_trial(&self) {
        self.trials.fetch_add(1, Ordering::Relaxed);
    }

    fn is_over(&self, name: &str, status: &str, ended_ms: u64) {
        let known = self.live.lock().unwrap_or_else(PoisonError::into_inner).remove(name);
        if let Some((_, created_ms)) = known {
            self.durations.observe([status], Duration::from_millis(ended_ms.saturating_sub(created_ms)));
        }
    }

    pub(super) fn write(&self, text: &mut Text) {
        text.family("shoal_tuning_jobs", Kind::Gauge, "Tuning jobs that are not over, by HyperParameterTuningJobStatus.");
        let live = self.live.lock().unwrap_or_else(PoisonError::into_inner);
        for wanted in ALWAYS {
            let count = live.values().filter(|(status, _)| status == wanted).count();
            text.sample("shoal_tuning_jobs", &[("status", wanted)], count as f64);
        }
        drop(live);
        let help = "Trials (training jobs of tuning jobs) that were started while this server ran.";
        text.counter("shoal_trials_started_total", help, self.trials.load(Ordering::Relaxed) as f64);
        let help = "Time from creation to end of tuning jobs that ended while this server ran, by HyperParameterTuningJobStatus.";
        self.durations.write(text, "shoal_tuning_job_duration_seconds", help);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tuning_job_that_is_over_is_counted_once() {
        let tunings = Tunings::new();
        tunings.goes_on("found", "InProgress", 1000);
        let row = |name: &str, ended: bool| TuningRow {
            name: name.into(),
            status: if ended { "Completed" } else { "InProgress" }.into(),
            created_ms: 1000,
            ended_ms: ended.then_some(3500),
            ended,
            ..TuningRow::default()
        };
        tunings.changed(&row("new", false));
        tunings.has_started_a_trial();
        tunings.moved(&TuningProgress { name: "new".into(), status: "Stopping".into(), ..TuningProgress::default() });
        let over =
            TuningProgress { name: "found".into(), status: "Failed".into(), ended: true, modified_ms: 2000, ..TuningProgress::default() };
        tunings.moved(&over);
        tunings.moved(&over);
        tunings.changed(&row("never seen alive", true));
        let mut text = Text::default();
        tunings.write(&mut text);
        let text = text.into_string();
        for line in [
            "shoal_tuning_jobs{status=\"InProgress\"} 0\n",
            "shoal_tuning_jobs{status=\"Stopping\"} 1\n",
            "shoal_trials_started_total 1\n",
            "shoal_tuning_job_duration_seconds_sum{status=\"Failed\"} 1\n",
            "shoal_tuning_job_duration_seconds_count{status=\"Failed\"} 1\n",
        ] {
            assert!(text.contains(line), "{line}{text}");
        }
        assert!(!text.contains("Completed"), "{text}");
    }
}
