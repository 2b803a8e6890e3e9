use std::io::Write;

use shoal_link::encode;

use super::*;

fn opened() -> (Visits, Arc<Session>) {
    let visits = Visits::default();
    let session = visits.open("id", &"attempt".into(), 2);
    (visits, session)
}

fn hello(attempt: &str, host: u32) -> Hello {
    Hello { protocol: 1, attempt: attempt.to_owned(), host, token: String::new(), pid: 1, visits: true }
}

fn exited(code: i32) -> VisitEnd {
    VisitEnd::Exited { code }
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

#[tokio::test(start_paused = true)]
async fn the_end_comes_with_the_last_output_or_after_it() {
    let (_visits, session) = opened();
    session.put_out(Stream::Stdout, b"one").unwrap();
    session.put_out(Stream::Stderr, b"two").unwrap();
    let both = vec![(Stream::Stdout, b"one".to_vec()), (Stream::Stderr, b"two".to_vec())];
    assert_eq!(session.read().await, (both, None));
    assert_eq!(session.read().await, (Vec::new(), None), "after a while there is nothing");
    session.put_out(Stream::Stdout, b"last").unwrap();
    session.finish(exited(3));
    session.finish(exited(4));
    assert_eq!(session.read().await, (vec![(Stream::Stdout, b"last".to_vec())], Some(exited(3))));
    assert_eq!(session.read().await, (Vec::new(), Some(exited(3))), "the first end is the end");
}

#[tokio::test(start_paused = true)]
async fn a_visit_is_over_when_its_reader_goes_and_not_when_its_wait_ends() {
    let (_visits, session) = opened();
    assert_eq!(session.read().await, (Vec::new(), None));
    assert!(session.is_wanted().is_ok(), "its client comes again");
    assert!(tokio::time::timeout(Duration::ZERO, session.read()).await.is_err());
    assert!(session.is_wanted().is_err(), "its connection has ended while it waited");
    let (_visits, session) = opened();
    session.leave();
    assert!(session.is_wanted().is_err(), "its client has left it");
}

#[tokio::test(start_paused = true)]
async fn input_that_is_not_taken_is_bounded_and_in_order() {
    let (_visits, session) = opened();
    let chunk = |byte: u8, length: usize| vec![Frame::Chunk(vec![byte; length])];
    assert!(session.write(chunk(1, MOST_BYTES - 1)).await);
    assert!(session.write(chunk(2, MOST_BYTES)).await, "one that begins within the bound is taken whole");
    assert!(!session.write(chunk(3, 1)).await, "the client is to come again");
    // The agent takes what waits.
    let (server, agent) = UnixStream::pair().unwrap();
    let reader = thread::spawn(move || sent(agent));
    let feeder = thread::spawn({
        let (session, down) = (session.clone(), AgentSender::new(server));
        move || session.feed(&down)
    });
    while session.lock().input_bytes > 0 {
        thread::yield_now();
    }
    assert!(session.write(chunk(4, 1)).await, "there is room again");
    while session.lock().input_bytes > 0 {
        thread::yield_now();
    }
    session.finish(exited(0));
    feeder.join().unwrap();
    assert!(session.write(chunk(5, 1)).await, "after the end it is dropped: the reader has the end");
    let first_bytes: Vec<u8> = reader
        .join()
        .unwrap()
        .iter()
        .map(|frame| match frame {
            Frame::Chunk(bytes) => bytes[0],
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(first_bytes, [1, 2, 4]);
}

#[test]
fn output_that_is_not_read_waits_and_ends_with_its_reader() {
    let (_visits, session) = opened();
    session.put_out(Stream::Stdout, &vec![0; MOST_BYTES]).unwrap();
    let writer = thread::spawn({
        let session = session.clone();
        move || session.put_out(Stream::Stdout, b"more")
    });
    session.leave();
    assert!(writer.join().unwrap().is_err());
    assert_eq!(session.lock().output_bytes, MOST_BYTES, "no more was taken");
}

#[tokio::test]
async fn bytes_go_both_ways_until_the_agent_reports_the_end() {
    let (visits, session) = opened();
    let (server, mut agent) = UnixStream::pair().unwrap();
    let serving = thread::spawn(move || {
        let down = AgentSender::new(server.try_clone().unwrap());
        visits.receive(&hello("attempt", 2), "id", server, &down, Decoder::default())
    });
    assert!(session.arrived().await);
    assert!(session.write(vec![Frame::Chunk(b"in".to_vec())]).await);
    let from_agent = [
        Frame::Chunk(Stream::Stdout.chunk(b"out")),
        Frame::Chunk(Stream::Stderr.chunk(b"")),
        Frame::Message(ToServer::VisitEnded(VisitEnd::Signaled { signal: 9 })),
    ];
    while session.lock().input_bytes > 0 {
        thread::yield_now();
    }
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
    assert_eq!(sent(agent), [Frame::Message(ToAgent::Ready), Frame::Chunk(b"in".to_vec())]);
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
        visits.receive(&hello("attempt", 2), "id", server, &down, Decoder::default()).unwrap();
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
        visits.receive(hello, id, server, &down, Decoder::default()).unwrap();
        drop(down);
        matches!(&sent(agent)[..], [Frame::Message(ToAgent::Refused { .. })])
    };
    for (attempt, host, id) in [("another", 2, "id"), ("attempt", 1, "id"), ("attempt", 2, "other id")] {
        assert!(refused(&hello(attempt, host), id), "{attempt} {host} {id}");
    }
    assert!(session.arrive(), "none of them was taken for its agent");
    assert!(refused(&hello("attempt", 2), "id"), "it is served already");
    visits.close("id");
    assert!(visits.get("id").is_none());
}
