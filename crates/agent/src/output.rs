//! From what the training program writes to log lines and metric points on their way to the server.
//!
//! A thread per stream reads and cuts lines; one more gathers both into reports. The queue between
//! them is short and the outbox is bounded, so when the server falls behind the program's own
//! writes wait: memory stays bounded and nothing is lost.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use shoal_contract::{Scraper, Tail, escape_line};
use shoal_link::{LogLine, MetricPoint, ReportBody};

use crate::clock::now_ms;
use crate::hints::Hints;
use crate::lines::Splitter;
use crate::outbox::Outbox;

/// Reports go out at most this often, or when one is full. The first line after a pause goes at
/// once.
const EVERY: Duration = Duration::from_millis(20);
const MOST_LINES: usize = 200;
const MOST_BYTES: usize = 256 << 10;

const READ_BYTES: usize = 32 << 10;
const STACK: usize = 128 << 10;

/// What the program has said in all.
#[derive(Debug, Default)]
pub(crate) struct Said {
    /// The last value of every metric, by name.
    pub(crate) final_metrics: Vec<MetricPoint>,
    /// The end of stderr.
    pub(crate) stderr_tail: String,
    /// The end of stdout, where there was nothing on stderr: many scripts print their errors.
    pub(crate) stdout_tail: String,
}

/// The lines that one read has finished.
struct Chunk {
    at_ms: u64,
    is_stderr: bool,
    lines: Vec<Vec<u8>>,
}

/// Reads both streams to their ends, then calls `at_end` from a thread of its own. Values of the
/// metric `objective` are said at once.
pub(crate) fn start(
    stdout: Option<File>,
    stderr: Option<File>,
    scraper: Scraper,
    objective: Option<String>,
    hints: Hints,
    outbox: Arc<Outbox>,
    at_end: impl FnOnce(Said) + Send + 'static,
) -> io::Result<()> {
    let (queue, chunks) = sync_channel(8);
    let named = |name: &str| thread::Builder::new().name(name.into()).stack_size(STACK);
    for (stream, is_stderr) in [(stdout, false), (stderr, true)] {
        let Some(stream) = stream else { continue };
        let queue = queue.clone();
        named(if is_stderr { "stderr" } else { "stdout" }).spawn(move || read(stream, is_stderr, &queue))?;
    }
    // Regular expressions and JSON want more stack than copying does.
    let gatherer = thread::Builder::new().name("output".into());
    gatherer.spawn(move || at_end(Gatherer::new(scraper, objective, hints, &outbox).run(&chunks)))?;
    Ok(())
}

fn read(mut stream: File, is_stderr: bool, queue: &SyncSender<Chunk>) {
    let (mut buffer, mut splitter) = (vec![0; READ_BYTES], Splitter::default());
    loop {
        let count = match stream.read(&mut buffer) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            // A pipe that cannot be read is at its end.
            Ok(0) | Err(_) => break,
            Ok(count) => count,
        };
        let mut chunk = Chunk { at_ms: now_ms(), is_stderr, lines: Vec::new() };
        splitter.push(&buffer[..count], |line| chunk.lines.push(line));
        if !chunk.lines.is_empty() && queue.send(chunk).is_err() {
            return;
        }
    }
    let last = Chunk { at_ms: now_ms(), is_stderr, lines: splitter.finish().into_iter().collect() };
    // If the gatherer is gone there is nobody left to tell.
    let _ = queue.send(last);
}

struct Gatherer<'a> {
    scraper: Scraper,
    objective: Option<String>,
    hints: Hints,
    /// Values of the objective so far.
    ordinal: u32,
    outbox: &'a Outbox,
    lines: Vec<LogLine>,
    points: Vec<MetricPoint>,
    bytes: usize,
    flushed: Option<Instant>,
    last: BTreeMap<String, MetricPoint>,
    tail: Tail,
    stdout_tail: Tail,
}

impl<'a> Gatherer<'a> {
    fn new(scraper: Scraper, objective: Option<String>, hints: Hints, outbox: &'a Outbox) -> Self {
        Self {
            scraper,
            objective,
            hints,
            ordinal: 0,
            outbox,
            lines: Vec::new(),
            points: Vec::new(),
            bytes: 0,
            flushed: None,
            last: BTreeMap::new(),
            tail: Tail::default(),
            stdout_tail: Tail::default(),
        }
    }

    fn run(mut self, chunks: &Receiver<Chunk>) -> Said {
        self.tell_rejected();
        loop {
            let due = self
                .flushed
                .map_or(Duration::ZERO, |flushed| (flushed + EVERY).saturating_duration_since(Instant::now()));
            let next = if self.lines.is_empty() {
                chunks.recv().map_err(|_| RecvTimeoutError::Disconnected)
            } else {
                chunks.recv_timeout(due)
            };
            match next {
                Ok(chunk) => self.take(chunk),
                Err(RecvTimeoutError::Timeout) => self.flush(),
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        self.flush();
        let stderr_tail = self.tail.text();
        let stdout_tail = if stderr_tail.trim().is_empty() { self.stdout_tail.text() } else { String::new() };
        Said { final_metrics: self.last.into_values().collect(), stderr_tail, stdout_tail }
    }

    fn take(&mut self, chunk: Chunk) {
        let at_ms = chunk.at_ms;
        for line in chunk.lines {
            if chunk.is_stderr {
                self.tail.push(&line);
            } else {
                self.stdout_tail.push(&line);
            }
            let text = escape_line(&line);
            for found in self.scraper.values(&text, &line) {
                if self.objective.as_ref() == Some(&found.name) {
                    self.ordinal += 1;
                    // A unit of resource has been run all the same. Once the outbox is closed
                    // nobody waits for it any more.
                    let value = if found.value.is_finite() { found.value } else { f64::NAN };
                    let _ = self.outbox.report_at(at_ms, ReportBody::Objective { ordinal: self.ordinal, value });
                }
                if !found.value.is_finite() {
                    continue;
                }
                let point = MetricPoint { name: found.name, value: found.value, at_ms };
                self.last.insert(point.name.clone(), point.clone());
                self.points.push(point);
            }
            self.bytes += text.len();
            let hint = self.hints.after(&text);
            self.lines.push(LogLine { at_ms, text });
            if let Some(text) = hint {
                self.flush();
                // Once the outbox is closed nobody reads it.
                let _ = self.outbox.report(ReportBody::Note { text });
            }
            if self.lines.len() >= MOST_LINES || self.bytes >= MOST_BYTES {
                self.flush();
            }
        }
        self.tell_rejected();
    }

    /// Once the outbox is closed this throws away: the program must not hang on a full pipe when it
    /// is told to end.
    fn flush(&mut self) {
        if !self.lines.is_empty() {
            let _ = self.outbox.report(ReportBody::Logs { lines: std::mem::take(&mut self.lines) });
        }
        if !self.points.is_empty() {
            let _ = self.outbox.report(ReportBody::Metrics { points: std::mem::take(&mut self.points) });
        }
        self.bytes = 0;
        self.flushed = Some(Instant::now());
    }

    fn tell_rejected(&mut self) {
        for rejected in self.scraper.take_rejected() {
            let text = format!("metric {} is not collected: {}", rejected.name, rejected.reason);
            let _ = self.outbox.report(ReportBody::Note { text });
        }
    }
}
