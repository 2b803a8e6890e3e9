use std::io::Write;

use shoal_link::encode;

use super::*;

fn opened() -> (Visits, Arc<Session>) {
    let visits = Visits::default();
    let session = visits.open("id", &"attempt".into(), Host(2));
    (visits, session)
}

fn hello(attempt: &str, host: u32) -> Hello {
    Hello {
        protocol: 1,
        attempt: attempt.to_owned(),
        host,
        token: String::new(),
        pid: 1,
        visits: true,
        sampling: true,
        profiler_rules: true,
    }
}

/// What the server has sent to an agent by now, which has closed its side.
fn sent(agent: UnixStream) -> Vec<Frame<ToAgent>> {
    let (mut agent, mut decoder, mut frames) = (agent, Decoder::default(), Vec::new());
    while read_some(&mut agent, &mut decoder).is_ok() {}
    while let Some(frame) = decoder.next().unwrap() {
        frames.push(frame);
    }
    frames
}

#[tokio::test]
async fn bytes_go_both_ways_until_the_agent_reports_the_end() {
    let (visits, session) = opened();
    let (server, mut agent) = UnixStream::pair().unwrap();
    let serving = thread::spawn(move || {
        let down = AgentSender::new(server.try_clone().unwrap());
        visits.receive(&hello("attempt", 2), "id", ConnId(1), server, &down, Decoder::default())
    });
    assert!(session.started().await);
    assert!(session.write(vec![Frame::Chunk(b"in".to_vec())]).await);
    let from_agent = [
        Frame::Chunk(Stream::Stdout.chunk(b"out")),
        Frame::Chunk(Stream::Stderr.chunk(b"")),
        Frame::Message(ToServer::VisitEnded(VisitEnd::Signaled { signal: 9 })),
    ];
    let (mut decoder, mut to_agent) = (Decoder::default(), Vec::new());
    while to_agent.len() < 2 {
        read_some(&mut agent, &mut decoder).unwrap();
        to_agent.extend(std::iter::from_fn(|| decoder.next::<ToAgent>().unwrap()));
    }
    assert_eq!(to_agent, [Frame::Message(ToAgent::Ready), Frame::Chunk(b"in".to_vec())]);
    for frame in &from_agent {
        agent.write_all(&encode(frame).unwrap()).unwrap();
    }
    let (mut output, mut end) = (Vec::new(), None);
    while end.is_none() {
        let (pieces, now) = session.read().await;
        output.extend(pieces);
        end = now;
    }
    assert_eq!(output, [(Stream::Stdout, b"out".to_vec()), (Stream::Stderr, Vec::new())]);
    assert_eq!(end, Some(VisitEnd::Signaled { signal: 9 }));
    serving.join().unwrap().unwrap();
}

#[tokio::test]
async fn what_breaks_a_visit_is_its_end() {
    let wrong = Frame::Message(ToServer::Alive);
    for (frames, expected) in [
        (vec![], "the training program has ended"),
        (vec![Frame::Chunk(Vec::new())], "a chunk without a stream"),
        (vec![Frame::Chunk(vec![7, 1])], "a chunk without a stream"),
        (vec![wrong], "only output comes"),
    ] {
        let (visits, session) = opened();
        let (server, mut agent) = UnixStream::pair().unwrap();
        let bytes: Vec<u8> = frames.iter().flat_map(|frame| encode(frame).unwrap()).collect();
        agent.write_all(&bytes).unwrap();
        agent.shutdown(Shutdown::Write).unwrap();
        let down = AgentSender::new(server.try_clone().unwrap());
        visits.receive(&hello("attempt", 2), "id", ConnId(1), server, &down, Decoder::default()).unwrap();
        let (_, end) = session.read().await;
        assert!(matches!(&end, Some(VisitEnd::Broken { reason }) if reason.contains(expected)), "{end:?}");
    }
}

#[test]
fn only_the_agent_that_is_asked_serves_a_visit_and_only_once() {
    let (visits, session) = opened();
    let refused = |hello: &Hello, id: &str| {
        let (server, agent) = UnixStream::pair().unwrap();
        let down = AgentSender::new(server.try_clone().unwrap());
        visits.receive(hello, id, ConnId(2), server, &down, Decoder::default()).unwrap();
        drop(down);
        matches!(&sent(agent)[..], [Frame::Message(ToAgent::Refused { .. })])
    };
    for (attempt, host, id) in [("another", 2, "id"), ("attempt", 1, "id"), ("attempt", 2, "other id")] {
        assert!(refused(&hello(attempt, host), id), "{attempt} {host} {id}");
    }
    let (stream, _agent) = UnixStream::pair().unwrap();
    assert!(session.serve(ConnId(1), stream, mpsc::channel().0), "none of them was taken for its agent");
    assert!(refused(&hello("attempt", 2), "id"), "it is served already");
    visits.close("id");
    assert!(visits.get("id").is_none());
}
