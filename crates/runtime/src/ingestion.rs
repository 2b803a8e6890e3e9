//! The reports of one agent's connection: what becomes durable in which order before they are
//! acknowledged.
//!
//! Steps are sequential. Facts go through the core first, then the number up to which everything is
//! stored; a reader who sees the job ended must find its last lines, and parts that are stored must
//! not be sent again, so both become durable before a fact that follows them. All facts of a batch
//! that nothing separates share a commit. Reports that come again are ignored.

use std::collections::VecDeque;

use shoal_link::{Artifact, Frame, MetricPoint, Phase, RankOutcome, Report, ReportBody, SampleTable, ToServer};
use shoal_plane::{AttemptId, Command, Host, InstanceReport, MetricValue, RankEnd, RuleVerdict, Time};

/// What happened.
#[derive(Debug)]
pub enum Event {
    /// These arrived together.
    Arrived(Vec<Frame<ToServer>>),
    /// The core has the facts, or the part is written.
    Done,
    /// Reports are durable up to this number.
    Stored(u64),
}

/// What the driver does. If it fails, the connection ends, and the agent sends again what was not
/// acknowledged.
#[derive(Debug, PartialEq)]
pub enum Io {
    /// A sign of life was among what arrived; not answered.
    Sign,
    /// Submit these in one transaction; answered by [`Event::Done`].
    Commit(Vec<Command>),
    /// Write a part of an artifact; answered by [`Event::Done`].
    Part {
        /// The report's number.
        seq: u64,
        /// Which artifact.
        artifact: Artifact,
        /// Its bytes.
        bytes: Vec<u8>,
    },
    /// Keep the handle of the job's network, and send it to the other hosts; answered by
    /// [`Event::Done`].
    Network(String),
    /// Store a page of a rule; answered by [`Event::Done`].
    RuleFile {
        /// The rule's configuration.
        rule: String,
        /// The page's name.
        name: String,
        /// What it contains.
        text: String,
    },
    /// Make the parts durable, then all of this in one transaction; answered by [`Event::Stored`].
    Store(Batch),
    /// Send that everything up to this number is durable; not answered.
    Acknowledge(u64),
    /// Read from the connection: what arrived is handled. Answered by [`Event::Arrived`].
    Read,
    /// End the connection: this is not what agents send on it.
    Refuse,
}

/// Lines, points and samples, and the number up to which all reports are durable with them.
#[derive(Debug, Default, PartialEq)]
pub struct Batch {
    /// The report's number.
    pub seq: u64,
    /// Log lines.
    pub lines: Vec<Line>,
    /// Metric points.
    pub points: Vec<MetricPoint>,
    /// System metrics.
    pub samples: Vec<SampleTable>,
}

impl Batch {
    fn is_empty(&self) -> bool {
        self.lines.is_empty() && self.points.is_empty() && self.samples.is_empty()
    }
}

/// A log line.
#[derive(Debug, PartialEq)]
pub struct Line {
    /// It is the agent's own, not the program's.
    pub is_own: bool,
    /// Milliseconds since the epoch.
    pub at_ms: u64,
    /// Without its line end.
    pub text: String,
}

/// The receiving end of a connection for reports.
#[derive(Debug)]
pub struct Ingestion {
    attempt: AttemptId,
    host: Host,
    /// Everything up to here is durable.
    acked: u64,
    /// What the agent knows of that.
    acknowledged: u64,
    steps: VecDeque<Io>,
}

impl Ingestion {
    /// For an agent whose reports up to this number are durable, as it was informed.
    pub fn new(attempt: AttemptId, host: Host, acked: u64) -> Self {
        Self { attempt, host, acked, acknowledged: acked, steps: VecDeque::new() }
    }

    /// What follows from an event.
    pub fn handle(&mut self, event: Event) -> Vec<Io> {
        let mut io = Vec::new();
        match event {
            Event::Arrived(frames) => match self.plan(frames) {
                Some(has_sign) => io.extend(has_sign.then_some(Io::Sign)),
                None => return vec![Io::Refuse],
            },
            Event::Done => {}
            Event::Stored(acked) => self.acked = self.acked.max(acked),
        }
        match self.steps.pop_front() {
            Some(step) => io.push(step),
            None => {
                if self.acked > self.acknowledged {
                    self.acknowledged = self.acked;
                    io.push(Io::Acknowledge(self.acked));
                }
                io.push(Io::Read);
            }
        }
        io
    }

    /// Divides what arrived into steps; returns whether there was a sign of life, or nothing if it
    /// must not come on this connection.
    fn plan(&mut self, frames: Vec<Frame<ToServer>>) -> Option<bool> {
        let (mut last, mut batch, mut facts) = (self.acked, Batch::default(), Vec::new());
        let (mut has_parts, mut has_sign) = (false, false);
        for frame in frames {
            match frame {
                Frame::Part { seq, artifact, bytes } => {
                    if seq > last {
                        // If there is no room for it, the core learns that after what came before.
                        self.commit(&mut facts);
                        self.steps.push_back(Io::Part { seq, artifact, bytes });
                        has_parts = true;
                        last = seq;
                    }
                }
                Frame::Message(ToServer::Report(report)) if report.seq > last => {
                    last = report.seq;
                    match report.body {
                        ReportBody::Logs { lines } => {
                            batch.lines.extend(lines.into_iter().map(|it| Line {
                                is_own: false,
                                at_ms: it.at_ms,
                                text: it.text,
                            }));
                        }
                        ReportBody::Metrics { points } => batch.points.extend(points),
                        ReportBody::Samples { tables } => batch.samples.extend(tables),
                        ReportBody::Note { text } => {
                            batch.lines.push(Line {
                                is_own: true,
                                at_ms: report.at_ms,
                                text: format!("[shoal] {text}"),
                            });
                        }
                        ReportBody::Network { handle } => self.steps.push_back(Io::Network(handle)),
                        ReportBody::RuleFile { rule, name, text } => {
                            self.steps.push_back(Io::RuleFile { rule, name, text });
                        }
                        ReportBody::ArtifactSent { .. } => {}
                        // A scheduler or a stop waits for it; lines around it do not.
                        body @ (ReportBody::Objective { .. } | ReportBody::RuleEvaluated { .. }) => {
                            facts.extend(self.fact(Report { body, ..report }));
                        }
                        body => {
                            if has_parts || !batch.is_empty() {
                                self.commit(&mut facts);
                                self.store(report.seq - 1, &mut batch);
                                has_parts = false;
                            }
                            facts.extend(self.fact(Report { body, ..report }));
                        }
                    }
                }
                Frame::Message(ToServer::Report(_)) => {}
                Frame::Message(ToServer::Alive) => has_sign = true,
                _ => return None,
            }
        }
        self.commit(&mut facts);
        if last > self.acked {
            self.store(last, &mut batch);
        }
        Some(has_sign)
    }

    fn commit(&mut self, facts: &mut Vec<Command>) {
        if !facts.is_empty() {
            self.steps.push_back(Io::Commit(std::mem::take(facts)));
        }
    }

    fn store(&mut self, seq: u64, batch: &mut Batch) {
        self.steps.push_back(Io::Store(Batch { seq, ..std::mem::take(batch) }));
    }

    /// What the core is to know of a report, if anything.
    fn fact(&self, report: Report) -> Option<Command> {
        let at = Time(report.at_ms);
        let report = match report.body {
            ReportBody::Phase { phase: Phase::Downloading } => InstanceReport::Downloading,
            ReportBody::Phase { phase: Phase::Training } => InstanceReport::Training,
            ReportBody::RankEnded { end, final_metrics } => InstanceReport::RankEnded {
                end: RankEnd {
                    code: match end.outcome {
                        RankOutcome::Exited(code) => Some(code),
                        RankOutcome::Signaled(_) => None,
                    },
                    signal: match end.outcome {
                        RankOutcome::Exited(_) => None,
                        RankOutcome::Signaled(signal) => Some(signal),
                    },
                    out_of_memory: end.out_of_memory,
                    crowded_out: end.crowded_out,
                    failure_file: end.failure_file,
                    stderr_tail: end.stderr_tail,
                    at,
                },
                final_metrics: final_metrics
                    .into_iter()
                    .map(|it| MetricValue { name: it.name, value: it.value, at: Time(it.at_ms) })
                    .collect(),
            },
            ReportBody::Objective { ordinal, value } => InstanceReport::Objective { ordinal, value },
            ReportBody::RuleEvaluated { rule, verdict, details, stops } => {
                let verdict = match verdict {
                    shoal_link::RuleVerdict::IssuesFound => RuleVerdict::IssuesFound,
                    shoal_link::RuleVerdict::NoIssuesFound => RuleVerdict::NoIssuesFound,
                    shoal_link::RuleVerdict::Unobserved => RuleVerdict::Unobserved,
                    shoal_link::RuleVerdict::Error => RuleVerdict::Error,
                };
                InstanceReport::RuleEvaluated { rule, verdict, details, stops }
            }
            ReportBody::Uploaded => InstanceReport::Uploaded,
            ReportBody::InstanceFailed { reason } => InstanceReport::Lost { reason },
            ReportBody::Phase { phase: Phase::Uploading }
            | ReportBody::Logs { .. }
            | ReportBody::Metrics { .. }
            | ReportBody::Samples { .. }
            | ReportBody::Note { .. }
            | ReportBody::Network { .. }
            | ReportBody::RuleFile { .. }
            | ReportBody::ArtifactSent { .. } => return None,
        };
        Some(Command::InstanceReported { attempt: self.attempt.clone(), host: self.host, report })
    }
}

#[cfg(test)]
mod tests;
