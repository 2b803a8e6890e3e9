use shoal_plane::Host;
use std::collections::BTreeSet;

use shoal_link::{LogLine, RankEnd as LinkRankEnd};

use super::*;
use crate::random::Random;

fn report(seq: u64, body: ReportBody) -> Frame<ToServer> {
    Frame::Message(ToServer::Report(Report { seq, at_ms: seq, body }))
}

fn line(seq: u64) -> Frame<ToServer> {
    report(seq, ReportBody::Logs { lines: vec![LogLine { at_ms: seq, text: seq.to_string() }] })
}

fn ended(seq: u64) -> Frame<ToServer> {
    let end = LinkRankEnd {
        outcome: RankOutcome::Exited(0),
        out_of_memory: false,
        crowded_out: None,
        failure_file: None,
        stderr_tail: String::new(),
    };
    report(seq, ReportBody::RankEnded { end, final_metrics: Vec::new() })
}

fn part(seq: u64) -> Frame<ToServer> {
    Frame::Part { seq, artifact: Artifact::Model, bytes: vec![1] }
}

#[test]
fn a_page_of_a_rule_is_stored_before_its_number_is_acknowledged() {
    let mut ingestion = Ingestion::new("u-1".into(), Host(1), 0);
    let page = ReportBody::RuleFile { rule: "trees".into(), name: "a.html".into(), text: "<p>".into() };
    let expected = ["page a.html of trees", "store 1 with 0 lines", "acknowledge 1", "read"];
    assert_eq!(steps(&mut ingestion, vec![report(1, page.clone())]), expected);
    // It comes again if the server was killed in between, and not a third time.
    assert_eq!(steps(&mut ingestion, vec![report(1, page)]), ["read"]);
}

fn objective(seq: u64) -> Frame<ToServer> {
    report(seq, ReportBody::Objective { ordinal: 1, value: 0.5 })
}

/// All steps, each completed before the next; `name` of each.
fn steps(ingestion: &mut Ingestion, frames: Vec<Frame<ToServer>>) -> Vec<String> {
    let (mut names, mut event) = (Vec::new(), Event::Arrived(frames));
    loop {
        let mut next = None;
        for io in ingestion.handle(event) {
            let (name, completion) = match io {
                Io::Sign => ("sign".to_owned(), None),
                Io::Commit(commands) => (format!("commit {}", commands.len()), Some(Event::Done)),
                Io::Part { seq, .. } => (format!("part {seq}"), Some(Event::Done)),
                Io::Network(handle) => (format!("network {handle}"), Some(Event::Done)),
                Io::RuleFile { rule, name, .. } => (format!("page {name} of {rule}"), Some(Event::Done)),
                Io::Store(batch) => {
                    (format!("store {} with {} lines", batch.seq, batch.lines.len()), Some(Event::Stored(batch.seq)))
                }
                Io::Acknowledge(seq) => (format!("acknowledge {seq}"), None),
                Io::Read => ("read".to_owned(), None),
                Io::Refuse => ("refuse".to_owned(), None),
            };
            names.push(name);
            next = next.or(completion);
        }
        match next {
            Some(completion) => event = completion,
            None => return names,
        }
    }
}

#[test]
fn what_precedes_a_fact_is_durable_before_it() {
    let cases: [(Vec<Frame<ToServer>>, &[&str]); 7] = [
        (vec![], &["read"]),
        (vec![line(3), line(4)], &["store 4 with 2 lines", "acknowledge 4", "read"]),
        (
            vec![line(3), ended(4)],
            &["store 3 with 1 lines", "commit 1", "store 4 with 0 lines", "acknowledge 4", "read"],
        ),
        (
            vec![part(3), ended(4)],
            &["part 3", "store 3 with 0 lines", "commit 1", "store 4 with 0 lines", "acknowledge 4", "read"],
        ),
        (vec![objective(3), line(4), objective(5)], &["commit 2", "store 5 with 1 lines", "acknowledge 5", "read"]),
        (vec![objective(3), part(4)], &["commit 1", "part 4", "store 4 with 0 lines", "acknowledge 4", "read"]),
        (vec![Frame::Message(ToServer::Alive), line(3)], &["sign", "store 3 with 1 lines", "acknowledge 3", "read"]),
    ];
    for (frames, expected) in cases {
        let mut ingestion = Ingestion::new("attempt".into(), Host(1), 2);
        assert_eq!(steps(&mut ingestion, frames), expected);
    }
}

#[test]
fn repeated_reports_are_ignored() {
    let mut ingestion = Ingestion::new("attempt".into(), Host(1), 2);
    assert_eq!(steps(&mut ingestion, vec![line(1), ended(2), part(2)]), ["read"]);
    assert_eq!(steps(&mut ingestion, vec![line(2), line(3)]), ["store 3 with 1 lines", "acknowledge 3", "read"]);
    assert_eq!(steps(&mut ingestion, vec![line(3)]), ["read"]);
}

#[test]
fn other_messages_end_the_connection() {
    let mut ingestion = Ingestion::new("attempt".into(), Host(1), 0);
    assert_eq!(steps(&mut ingestion, vec![Frame::Chunk(vec![1])]), ["refuse"]);
}

/// A server's storage, and what an agent has sent.
#[derive(Default)]
struct Server {
    /// Numbers of reports whose line, point or part is durable.
    stored: BTreeSet<u64>,
    parts: BTreeSet<u64>,
    /// Numbers of facts that the core has, in order; some twice.
    facts: Vec<u64>,
    /// The last of them on this connection.
    last_fact: u64,
    /// Up to here, as a connection reads it at its begin.
    acked: u64,
}

/// What the agent sends under a number, the same each time.
#[derive(Clone, Copy, PartialEq)]
enum Sent {
    Line,
    Point,
    Note,
    Part,
    Fact,
    Objective,
    /// Nothing of it is stored.
    Other,
}

impl Sent {
    fn frame(self, seq: u64) -> Frame<ToServer> {
        let body = match self {
            Sent::Line => return line(seq),
            Sent::Part => return part(seq),
            Sent::Point => {
                ReportBody::Metrics { points: vec![MetricPoint { name: String::new(), value: 0.0, at_ms: seq }] }
            }
            Sent::Note => ReportBody::Note { text: seq.to_string() },
            Sent::Fact => ReportBody::InstanceFailed { reason: seq.to_string() },
            Sent::Objective => ReportBody::Objective { ordinal: u32::try_from(seq).unwrap(), value: 0.5 },
            Sent::Other => ReportBody::Phase { phase: Phase::Uploading },
        };
        report(seq, body)
    }
}

fn number_of_fact(command: &Command) -> u64 {
    match command {
        Command::InstanceReported { report: InstanceReport::Lost { reason }, .. } => reason.parse().unwrap(),
        Command::InstanceReported { report: InstanceReport::Objective { ordinal, .. }, .. } => u64::from(*ordinal),
        other => panic!("{other:?}"),
    }
}

impl Server {
    fn perform(&mut self, io: Io, sent: &[Sent], seed: u64) -> Option<Event> {
        let kind = |seq: u64| sent[usize::try_from(seq).unwrap() - 1];
        match io {
            Io::Commit(commands) => {
                for number in commands.iter().map(number_of_fact) {
                    let needed = (1..number).filter(|seq| {
                        matches!(kind(*seq), Sent::Line | Sent::Point | Sent::Note | Sent::Part)
                            && kind(number) == Sent::Fact
                    });
                    let missing: Vec<_> = needed.filter(|seq| !self.stored.contains(seq)).collect();
                    assert!(
                        missing.is_empty(),
                        "seed {seed}: fact {number} is committed before {missing:?} are durable"
                    );
                    assert!(number > self.last_fact, "seed {seed}: fact {number} comes after {}", self.last_fact);
                    self.last_fact = number;
                    self.facts.push(number);
                }
                Some(Event::Done)
            }
            Io::Part { seq, .. } => {
                self.parts.insert(seq);
                Some(Event::Done)
            }
            Io::Store(batch) => {
                let lines = batch.lines.iter().map(|line| line.text.trim_start_matches("[shoal] ").parse().unwrap());
                for seq in lines.chain(batch.points.iter().map(|point| point.at_ms)) {
                    assert!(seq <= batch.seq && self.stored.insert(seq), "seed {seed}: report {seq} is stored twice");
                }
                // Parts are made durable with it.
                self.stored.append(&mut self.parts);
                self.acked = self.acked.max(batch.seq);
                Some(Event::Stored(batch.seq))
            }
            Io::Acknowledge(until) => {
                for seq in 1..=until {
                    let is_durable = match kind(seq) {
                        Sent::Fact | Sent::Objective => self.facts.contains(&seq),
                        Sent::Other => true,
                        _ => self.stored.contains(&seq),
                    };
                    assert!(is_durable, "seed {seed}: report {seq} is acknowledged with {until} and lost");
                }
                None
            }
            Io::Network(_) | Io::RuleFile { .. } | Io::Sign | Io::Read => None,
            Io::Refuse => panic!("seed {seed}: refused"),
        }
    }
}

#[test]
fn what_is_acknowledged_is_durable_and_stored_once_wherever_connections_break() {
    const KINDS: [Sent; 7] =
        [Sent::Line, Sent::Point, Sent::Note, Sent::Part, Sent::Fact, Sent::Objective, Sent::Other];
    for seed in 0..1000 {
        let mut random = Random::new(seed);
        let sent: Vec<_> = (0..1 + random.below(30)).map(|_| KINDS[random.below(KINDS.len())]).collect();
        let (mut server, last) = (Server::default(), sent.len() as u64);
        while server.acked < last {
            // A connection: the agent was informed of `acked`, or of less.
            let mut ingestion = Ingestion::new("attempt".into(), Host(1), server.acked);
            // Parts that were not made durable may be lost; the agent sends them again.
            server.parts.clear();
            server.last_fact = 0;
            let mut next = 1 + random.below(usize::try_from(server.acked + 1).unwrap()) as u64;
            'connection: while next <= last {
                let until = (next + random.below(6) as u64).min(last);
                let frames = (next..=until).map(|seq| sent[usize::try_from(seq).unwrap() - 1].frame(seq)).collect();
                next = until + 1;
                let mut event = Some(Event::Arrived(frames));
                while let Some(happened) = event.take() {
                    for io in ingestion.handle(happened) {
                        if random.one_in(25) {
                            break 'connection;
                        }
                        let answer = server.perform(io, &sent, seed);
                        event = event.or(answer);
                    }
                }
            }
        }
        let expected = (1..).zip(&sent).filter(|(_, kind)| matches!(kind, Sent::Fact | Sent::Objective));
        let mut facts = server.facts.clone();
        facts.sort_unstable();
        facts.dedup();
        assert_eq!(facts, expected.map(|(seq, _)| seq).collect::<Vec<u64>>(), "seed {seed}: no fact is lost");
    }
}
