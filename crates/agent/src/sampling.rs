//! System metrics of the instance while its program runs: a thread reads counters
//! ([`sources`]), two readings make a sample ([`reading`], pure), and samples of a few seconds make
//! one report, so that a server has few of them to store.

mod nvml;
mod reading;
mod sources;
mod texts;

use std::io;
use std::sync::atomic::AtomicU64;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use shoal_link::{Limits, ReportBody, SampleColumn, SampleRow, SampleTable, Sampling};

use self::reading::{Reading, Scale, judged, sample};
use self::sources::Sources;
use crate::clock::now_ms;
use crate::judging::Judging;
use crate::outbox::Outbox;

/// Samples are reported together for this long.
const REPORT_INTERVAL: Duration = Duration::from_secs(5);
/// Columns of a table; those of further ranks are left out.
const MAX_COLUMNS: usize = 256;
/// Lowest interval, whatever a server requests.
const MIN_INTERVAL: Duration = Duration::from_millis(50);
const STACK: usize = 256 << 10;

/// The thread that samples; ends, with its last samples reported, when this is dropped.
pub(crate) struct Sampler {
    orders: Option<Sender<Sampling>>,
    thread: Option<JoinHandle<()>>,
}

/// What is sampled.
pub(crate) struct Sampled {
    /// The instance's first process, as the machine numbers it.
    pub(crate) first: u32,
    pub(crate) limits: Limits,
    /// Bytes that are known to be on its volume.
    pub(crate) volume_bytes: Arc<AtomicU64>,
    /// They judge the samples.
    pub(crate) rules: Option<Arc<Mutex<Judging>>>,
}

impl Sampler {
    /// Begins to sample.
    pub(crate) fn start(sampled: Sampled, sampling: Sampling, outbox: Arc<Outbox>) -> io::Result<Self> {
        let (orders, arriving) = channel();
        let run = move || run(&sampled, sampling, &arriving, &outbox);
        let thread = thread::Builder::new().name("sampling".into()).stack_size(STACK).spawn(run)?;
        Ok(Self { orders: Some(orders), thread: Some(thread) })
    }

    /// Samples in another way from now on.
    pub(crate) fn set(&self, sampling: Sampling) {
        // A thread that has ended has no server any more.
        if let Some(orders) = &self.orders {
            let _ = orders.send(sampling);
        }
    }
}

impl Drop for Sampler {
    fn drop(&mut self) {
        self.orders = None;
        // It panics only with the whole agent.
        self.thread.take().into_iter().for_each(|thread| drop(thread.join()));
    }
}

fn run(sampled: &Sampled, mut sampling: Sampling, orders: &Receiver<Sampling>, outbox: &Outbox) {
    let mut sources = Sources::of(sampled.first, &sampled.limits, sampled.volume_bytes.clone());
    let mut series = Series::new(Sources::scale(&sampled.limits), sources.read(true));
    let mut last = Instant::now();
    loop {
        let is_over = loop {
            match next_order(orders, sampling, last) {
                Ok(order) => sampling = order,
                Err(RecvTimeoutError::Timeout) => break false,
                Err(RecvTimeoutError::Disconnected) => break true,
            }
        };
        last = Instant::now();
        if !is_over {
            let judged = series.add(sources.read(sampling.profile_ms.is_some()), now_ms(), sampling.profile_ms);
            if let (Some(rules), Some(reading)) = (&sampled.rules, judged) {
                let reports = rules.lock().unwrap_or_else(PoisonError::into_inner).observe(reading);
                if reports.into_iter().any(|report| outbox.report(report).is_err()) {
                    return;
                }
            }
        }
        if is_over || series.is_due() {
            let tables = series.take();
            if !tables.is_empty() && outbox.report(ReportBody::Samples { tables }).is_err() {
                return;
            }
        }
        if is_over {
            return;
        }
    }
}

/// An order, or that it is time for the next sample.
fn next_order(orders: &Receiver<Sampling>, sampling: Sampling, last: Instant) -> Result<Sampling, RecvTimeoutError> {
    let Some(interval_ms) = sampling.shortest_ms() else { return Ok(orders.recv()?) };
    let due = last + Duration::from_millis(interval_ms.into()).max(MIN_INTERVAL);
    orders.recv_timeout(due.saturating_duration_since(Instant::now()))
}

/// Samples that are not reported so far. Pure.
struct Series {
    scale: Scale,
    last: Reading,
    tables: Vec<SampleTable>,
    /// Time of the first sample among them.
    since: Option<Duration>,
    /// Time of the last sample for the profiler's files.
    profiled: Option<Duration>,
}

impl Series {
    fn new(scale: Scale, first: Reading) -> Self {
        Self { scale, last: first, tables: Vec::new(), since: None, profiled: None }
    }

    /// Adds the sample that this reading makes with the one before. Gives what the profiler's rules
    /// judge: of its own samples, or of all where there are none of it.
    fn add(&mut self, reading: Reading, at_ms: u64, profile_ms: Option<u32>) -> Option<shoal_rules::Reading> {
        let mut sample = sample(&self.last, &reading, &self.scale);
        sample.truncate(MAX_COLUMNS);
        let at = reading.at;
        let before = std::mem::replace(&mut self.last, reading);
        if sample.is_empty() {
            return None;
        }
        // A timer may be some milliseconds early by the other clock.
        let is_due = |profile_ms: u32, last: Duration| at >= last + Duration::from_millis(profile_ms.into()) * 9 / 10;
        let is_profiled = profile_ms.is_some_and(|ms| self.profiled.is_none_or(|last| is_due(ms, last)));
        if is_profiled {
            self.profiled = Some(at);
        }
        let is_judged = is_profiled || profile_ms.is_none();
        let judged = if is_judged { judged(&sample, &before, &self.last, at_ms) } else { None };
        let (columns, values): (Vec<SampleColumn>, Vec<f64>) = sample.into_iter().unzip();
        let row = SampleRow { at_ms, is_profiled, values };
        match self.tables.last_mut().filter(|table| table.columns == columns) {
            Some(table) => table.rows.push(row),
            None => self.tables.push(SampleTable { columns, rows: vec![row] }),
        }
        self.since.get_or_insert(at);
        judged
    }

    /// Whether it is time for a report.
    fn is_due(&self) -> bool {
        self.since.is_some_and(|since| self.last.at >= since + REPORT_INTERVAL)
    }

    fn take(&mut self) -> Vec<SampleTable> {
        self.since = None;
        std::mem::take(&mut self.tables)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shoal_link::{Decoder, Frame, ToServer};
    use std::process::Command;

    use crate::profiler_rules::ProfilerRules;

    const SCALE: Scale =
        Scale { cores: 1, memory_bytes: 100, volume_bytes: None, page_bytes: 4096, ticks_per_second: 100 };

    fn reading(at_ms: u64, cpu_ms: u64, has_network: bool) -> Reading {
        Reading {
            at: Duration::from_millis(at_ms),
            group_cpu: Some(Duration::from_millis(cpu_ms)),
            network: has_network.then(texts::Transferred::default),
            ..Reading::default()
        }
    }

    #[test]
    fn samples_of_some_seconds_are_one_report() {
        let mut series = Series::new(SCALE, reading(0, 0, true));
        for second in 1..=6 {
            assert!(!series.is_due(), "{second}");
            series.add(reading(1000 * second, 500 * second, true), 7000 + second, None);
        }
        assert!(series.is_due());
        let tables = series.take();
        assert_eq!(tables.len(), 1);
        assert_eq!(tables[0].columns[0], SampleColumn::of_instance("CPUUtilization"));
        let rows: Vec<_> = tables[0].rows.iter().map(|row| (row.at_ms, row.values[0], row.is_profiled)).collect();
        assert_eq!(rows, (1..=6).map(|second| (7000 + second, 50.0, false)).collect::<Vec<_>>());
        assert!(!series.is_due() && series.take().is_empty());
    }

    #[test]
    fn another_column_begins_another_table() {
        let mut series = Series::new(SCALE, reading(0, 0, true));
        for (at, has_network) in [(1000, true), (2000, false), (3000, false), (4000, true), (5000, true)] {
            series.add(reading(at, 0, has_network), at, None);
        }
        // A rate needs two readings.
        let sizes: Vec<_> = series.take().iter().map(|table| (table.columns.len(), table.rows.len())).collect();
        assert_eq!(sizes, [(4, 1), (2, 3), (4, 1)]);
    }

    #[test]
    fn the_profiler_has_an_interval_of_its_own() {
        let mut series = Series::new(SCALE, reading(0, 0, false));
        let mut profiled = |from: u64, profile_ms| {
            let mut judged = Vec::new();
            for n in 1..=10 {
                // The timer is not exact.
                let found = series.add(reading(from + n * 1000 - n % 3, 0, false), n, profile_ms);
                judged.extend(found.map(|reading| reading.at_ms));
            }
            let rows: Vec<_> = series.take().into_iter().flat_map(|table| table.rows).collect();
            let profiled = rows.iter().filter(|row| row.is_profiled).map(|row| row.at_ms).collect::<Vec<_>>();
            let expected = if profile_ms.is_some() { profiled.clone() } else { Vec::from_iter(1..=10) };
            assert_eq!(judged, expected, "rules judge the profiler's samples, or all without it");
            profiled
        };
        assert_eq!(profiled(0, Some(5000)), [1, 6]);
        assert_eq!(profiled(10_000, Some(1000)), Vec::from_iter(1..=10));
        assert_eq!(profiled(20_000, None), Vec::<u64>::new());
    }

    #[test]
    fn the_last_samples_are_reported_when_the_program_has_ended() {
        let temp = tempfile::tempdir().unwrap();
        let outbox = Arc::new(Outbox::create(&temp.path().join("spool"), 1 << 20).unwrap());
        let mut busy = Command::new("/bin/sh").args(["-c", "while :; do :; done"]).env("RANK", "2").spawn().unwrap();
        let limits = serde_json::json!({"memory_bytes": 1 << 30, "cpus": 1, "cpu_weight": 1, "pids": 9, "gpus": []});
        let usage = serde_json::json!({"name": "usage", "rule": "OverallSystemUsage"});
        let (rules, _) = ProfilerRules::new("algo-1", &[serde_json::from_value(usage).unwrap()]);
        let rules = Arc::new(Mutex::new(Judging::new(rules, None)));
        let sampled = Sampled {
            first: busy.id(),
            limits: serde_json::from_value(limits).unwrap(),
            volume_bytes: Arc::default(),
            rules: Some(rules.clone()),
        };
        let sampling = Sampling { interval_ms: None, profile_ms: None };
        let sampler = Sampler::start(sampled, sampling, outbox.clone()).unwrap();
        sampler.set(Sampling { interval_ms: Some(100), profile_ms: Some(100) });
        thread::sleep(Duration::from_millis(700));
        drop(sampler);
        let concluded = rules.lock().unwrap().conclude();
        assert!(
            matches!(&concluded[..], [_, ReportBody::Note { text }] if text.starts_with("rule usage: algo-1 CPU: p50 ")),
            "{concluded:?}"
        );
        busy.kill().unwrap();
        busy.wait().unwrap();
        let (mut buffer, mut decoder) = ([0; 1 << 16], Decoder::default());
        let position = outbox.connect(0);
        let count = outbox.next(position, &mut buffer, Duration::from_secs(9)).unwrap();
        decoder.push(&buffer[..count]);
        let Some(Frame::Message(ToServer::Report(report))) = decoder.next().unwrap() else { panic!("no report") };
        let ReportBody::Samples { tables } = report.body else { panic!("{report:?}") };
        let rows: usize = tables.iter().map(|table| table.rows.len()).sum();
        assert!((2..=8).contains(&rows), "{rows}");
        let of_rank = |table: &SampleTable| {
            table.columns.iter().position(|it| it.metric == "CPUUtilization" && it.rank == Some(2))
        };
        let busiest = tables.iter().filter_map(|table| Some(table.rows.last()?.values[of_rank(table)?]));
        assert!(busiest.fold(0.0, f64::max) > 5.0, "{tables:?}");
    }
}
