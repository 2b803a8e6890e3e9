//! `/metrics`: how the server does, in Prometheus's text format (version 0.0.4). Numbers only: no
//! names of jobs, no keys, nothing of a request's content. Every reader shows the token in
//! `metrics-token` of the data directory.

mod format;
mod histogram;
mod journal;
mod lifetimes;
mod notifications;
mod process;
mod requests;
mod utilization;

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use shoal_plane::{JobName, SecondaryStatus, Time, TuningName, TuningStatus};
use shoal_store::Journal;

use self::{
    format::{Kind, Text},
    histogram::Histogram,
    lifetimes::{Lifetimes, TRAINING_JOBS, TUNING_JOBS},
};
pub(crate) use self::{
    notifications::Counts,
    process::Process,
    requests::{Asked, announced},
    utilization::Utilization,
};
use crate::attempts::Attempts;

/// Seconds of HTTP requests: from a read of a row to a large upload.
const REQUEST_SECONDS: &[f64] = &[0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];
/// Seconds of the journal's appends.
const APPEND_SECONDS: &[f64] = &[0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 1.0];

/// Seconds in which requests to the tuner are answered: random suggestions to those of a model.
const TUNER_SECONDS: &[f64] = &[0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0];

/// What is counted while the server lives.
pub(crate) struct Exporter {
    requests: Histogram<3>,
    appends: Histogram<0>,
    tuner: Histogram<1>,
    jobs: Lifetimes,
    tunings: Lifetimes,
    trials: AtomicU64,
    log_lines: AtomicU64,
    metric_points: AtomicU64,
    samples: AtomicU64,
    s3_received: AtomicU64,
    s3_sent: AtomicU64,
    inputs_sent: AtomicU64,
    pub(crate) notifications: Arc<Counts>,
}

impl Exporter {
    /// Starts counting, with the training jobs and the tuning jobs that are not over.
    pub(crate) fn new<'a>(
        live: impl Iterator<Item = (&'a JobName, SecondaryStatus, Time)>,
        tunings: impl Iterator<Item = (&'a TuningName, TuningStatus, Time)>,
    ) -> Arc<Self> {
        let exporter = Self {
            requests: Histogram::new(["service", "operation", "code"], REQUEST_SECONDS),
            appends: Histogram::new([], APPEND_SECONDS),
            tuner: Histogram::new(["kind"], TUNER_SECONDS),
            jobs: Lifetimes::new(&TRAINING_JOBS),
            tunings: Lifetimes::new(&TUNING_JOBS),
            trials: AtomicU64::default(),
            log_lines: AtomicU64::default(),
            metric_points: AtomicU64::default(),
            samples: AtomicU64::default(),
            s3_received: AtomicU64::default(),
            s3_sent: AtomicU64::default(),
            inputs_sent: AtomicU64::default(),
            notifications: Arc::default(),
        };
        live.for_each(|(name, secondary, created)| exporter.jobs.found(name, secondary.name(), created.0));
        tunings.for_each(|(name, status, created)| exporter.tunings.found(name, status.name(), created.0));
        Arc::new(exporter)
    }

    /// The journal, whose appends are timed from now on and tell here what becomes of jobs.
    pub(crate) fn watch<J: Journal>(self: &Arc<Self>, journal: J) -> journal::Watched<J> {
        journal::Watched { journal, exporter: self.clone() }
    }

    /// What an agent has brought is durable.
    pub(crate) fn ingested(&self, lines: usize, points: usize, samples: usize) {
        self.log_lines.fetch_add(lines as u64, Ordering::Relaxed);
        self.metric_points.fetch_add(points as u64, Ordering::Relaxed);
        self.samples.fetch_add(samples as u64, Ordering::Relaxed);
    }

    /// Bytes of an input were sent to an agent on another machine.
    pub(crate) fn sent_input(&self, bytes: usize) {
        self.inputs_sent.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// The tuner has computed an answer: `suggest` or `judge`.
    pub(crate) fn searched(&self, kind: &str, time: Duration) {
        self.tuner.observe([kind], time);
    }

    /// The page.
    pub(crate) fn page(&self, attempts: &Attempts, utilization: &Utilization, process: &Process) -> String {
        let mut text = Text::default();
        text.family("shoal_build_info", Kind::Gauge, "The server's version, as a label of a constant 1.");
        text.sample("shoal_build_info", &[("version", env!("CARGO_PKG_VERSION"))], 1.0);
        self.jobs.write_counts(&mut text);
        let waiting = self.jobs.count(SecondaryStatus::Pending.name());
        text.gauge("shoal_queue_length", "Training jobs that wait for capacity.", waiting as f64);
        self.jobs.write_durations(&mut text);
        self.tunings.write_counts(&mut text);
        let help = "Trials (training jobs of tuning jobs) that were started while this server ran.";
        text.counter("shoal_trials_started_total", help, self.trials.load(Ordering::Relaxed) as f64);
        self.tunings.write_durations(&mut text);
        self.notifications.write(&mut text);
        let attempts = attempts.all();
        let instances: usize = attempts.iter().map(|attempt| attempt.plan.assignments.len()).sum();
        let connected: usize = attempts.iter().map(|attempt| attempt.connected()).sum();
        text.gauge("shoal_instances_running", "Instances that training jobs hold.", instances as f64);
        text.gauge(
            "shoal_agents_connected",
            "Agents of instances that are connected; those that are not will call again.",
            connected as f64,
        );
        utilization.write(&mut text);
        for (name, help, counter) in [
            ("shoal_log_lines_total", "Log lines of training jobs that were stored.", &self.log_lines),
            ("shoal_metric_points_total", "Metric points of training jobs that were stored.", &self.metric_points),
            ("shoal_samples_total", "Samples of instances' system metrics that were stored.", &self.samples),
            (
                "shoal_s3_received_bytes_total",
                "Bytes of S3 requests' bodies, as they announced them.",
                &self.s3_received,
            ),
            ("shoal_s3_sent_bytes_total", "Bytes of S3 answers' bodies, as they announced them.", &self.s3_sent),
            (
                "shoal_inputs_sent_bytes_total",
                "Bytes of inputs that were sent to agents on other machines.",
                &self.inputs_sent,
            ),
        ] {
            text.counter(name, help, counter.load(Ordering::Relaxed) as f64);
        }
        let help = "Time until an answer began. DescribeTrainingJob to an SDK includes up to 3 s in which it is held \
                    for news.";
        self.requests.write(&mut text, "shoal_http_request_duration_seconds", help);
        self.appends.write(
            &mut text,
            "shoal_journal_append_duration_seconds",
            "Time of a durable append of events and rows.",
        );
        let help = "Time in which suggestions of trials and judgements of their reports and ends were computed.";
        self.tuner.write(&mut text, "shoal_tuner_answer_duration_seconds", help);
        process.write(&mut text);
        text.into_string()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use http::StatusCode;
    use shoal_store::{ResourceKind, ResourceRow, RowChange, SqliteJournal, Telemetry};

    use super::*;

    /// A sample's name and value.
    fn sample(line: &str) -> (&str, f64) {
        let (name, value) = line.rsplit_once(' ').unwrap_or_else(|| panic!("no sample: {line}"));
        let value = value.replace("+Inf", "inf").parse().unwrap_or_else(|_| panic!("no number: {line}"));
        (name.split('{').next().unwrap_or(name), value)
    }

    #[test]
    fn the_page_is_what_prometheus_reads() {
        let exporter = Exporter::new([].into_iter(), [].into_iter());
        let dir = tempfile::tempdir().unwrap();
        let mut journal = exporter.watch(SqliteJournal::open(&dir.path().join("shoal.db")).unwrap());
        for (ended, status) in [(false, "InProgress"), (true, "Completed")] {
            let row = ResourceRow {
                status: status.to_owned(),
                keys: [Some("A \"state\"\n".into()), None],
                ended,
                ..ResourceRow::new(ResourceKind::TRAINING_JOB, "secret-name")
            };
            let rows = vec![RowChange::Put(Box::new(row))];
            journal.append(&shoal_store::Batch { rows, ..Default::default() }).unwrap();
        }
        exporter.answered(&Asked::page(), StatusCode::OK, Duration::from_millis(3));
        exporter.searched("suggest", Duration::from_secs(60));
        exporter.ingested(3, 4, 5);
        exporter.received(5);
        let telemetry = Telemetry::open(&dir.path().join("telemetry.db")).unwrap();
        let utilization = Utilization::read(&Attempts::default(), &telemetry).unwrap();
        let page = exporter.page(&Attempts::default(), &utilization, &Process::read().unwrap());
        assert!(page.ends_with('\n') && !page.contains("secret-name"), "{page}");
        let (mut families, mut family) = (BTreeSet::new(), String::new());
        for line in page.lines() {
            if let Some(help) = line.strip_prefix("# HELP ") {
                family = help.split(' ').next().unwrap().to_owned();
                assert!(families.insert(family.clone()), "{family} is there twice");
            } else if let Some(kind) = line.strip_prefix("# TYPE ") {
                assert!(kind.starts_with(&format!("{family} ")), "{line}");
            } else {
                let (name, value) = sample(line);
                let of = ["_bucket", "_sum", "_count", ""].map(|suffix| format!("{family}{suffix}"));
                assert!(of.iter().any(|expected| expected == name), "{line} stands below {family}");
                assert!(value >= 0.0, "{line}");
            }
        }
        for (line, value) in [
            ("shoal_log_lines_total", 3.0),
            ("shoal_metric_points_total", 4.0),
            ("shoal_samples_total", 5.0),
            ("shoal_s3_received_bytes_total", 5.0),
            ("shoal_queue_length", 0.0),
            ("shoal_instances_running", 0.0),
        ] {
            assert!(page.lines().any(|it| it == format!("{line} {value}")), "{line}: {page}");
        }
        assert!(page.contains("shoal_training_job_duration_seconds_count{status=\"Completed\"} 1\n"), "{page}");
        assert!(
            page.contains("duration_seconds_bucket{service=\"page\",operation=\"GET\",code=\"200\",le=\"0.005\"} 1\n")
        );
    }
}
