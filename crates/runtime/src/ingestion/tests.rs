use shoal_link::{LogLine, RankEnd as LinkRankEnd};

use super::*;

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
        let mut ingestion = Ingestion::new("attempt".into(), 1, 2);
        assert_eq!(steps(&mut ingestion, frames), expected);
    }
}

#[test]
fn repeated_reports_are_ignored() {
    let mut ingestion = Ingestion::new("attempt".into(), 1, 2);
    assert_eq!(steps(&mut ingestion, vec![line(1), ended(2), part(2)]), ["read"]);
    assert_eq!(steps(&mut ingestion, vec![line(2), line(3)]), ["store 3 with 1 lines", "acknowledge 3", "read"]);
    assert_eq!(steps(&mut ingestion, vec![line(3)]), ["read"]);
}

#[test]
fn other_messages_end_the_connection() {
    let mut ingestion = Ingestion::new("attempt".into(), 1, 0);
    assert_eq!(steps(&mut ingestion, vec![Frame::Chunk(vec![1])]), ["refuse"]);
}
