//! The decoder over honest streams cut anywhere and over hostile ones.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use shoal_link::{Artifact, Decoder, Frame, FrameError, MAX_FRAME_BYTES, Report, ReportBody, ToServer, encode};

fn frames() -> Vec<Frame<ToServer>> {
    let report = |seq, body| Frame::Message(ToServer::Report(Report { seq, at_ms: 5, body }));
    vec![
        report(1, ReportBody::Note { text: "a\tb \u{1f600}".into() }),
        Frame::Part { seq: 2, artifact: Artifact::Model, bytes: vec![0, 1, 2, 255] },
        Frame::Part { seq: 3, artifact: Artifact::Output, bytes: vec![] },
        Frame::Chunk(vec![3, 0, 255]),
        report(4, ReportBody::Uploaded),
    ]
}

fn stream() -> Vec<u8> {
    frames().iter().flat_map(|frame| encode(frame).unwrap()).collect()
}

fn drain(decoder: &mut Decoder) -> Vec<Frame<ToServer>> {
    std::iter::from_fn(|| decoder.next().unwrap()).collect()
}

#[test]
fn a_stream_split_at_any_byte_gives_the_same_frames() {
    let stream = stream();
    for cut in 0..=stream.len() {
        let mut decoder = Decoder::default();
        decoder.push(&stream[..cut]);
        let mut got = drain(&mut decoder);
        decoder.push(&stream[cut..]);
        got.extend(drain(&mut decoder));
        assert_eq!(got, frames(), "cut at {cut}");
    }
}

#[test]
fn a_stream_that_comes_byte_by_byte_gives_the_same_frames() {
    let mut decoder = Decoder::default();
    let mut got = Vec::new();
    for byte in stream() {
        decoder.push(&[byte]);
        got.extend(drain(&mut decoder));
    }
    assert_eq!(got, frames());
}

#[test]
fn a_long_stream_with_a_frame_always_begun_is_cut_right() {
    let part = Frame::Part { seq: 9, artifact: Artifact::Model, bytes: vec![7; 300 << 10] };
    let bytes = encode::<ToServer>(&part).unwrap();
    let mut decoder = Decoder::default();
    decoder.push(&bytes[..10]);
    for _ in 0..20 {
        decoder.push(&bytes[10..]);
        decoder.push(&bytes[..10]);
        assert_eq!(drain(&mut decoder), std::slice::from_ref(&part));
    }
}

#[test]
fn hostile_bytes_are_refused_before_they_are_stored() {
    type Expected = fn(&FrameError) -> bool;
    let framed = |body: &[u8]| [&u32::try_from(body.len()).unwrap().to_le_bytes()[..], body].concat();
    let too_long = u32::try_from(MAX_FRAME_BYTES + 1).unwrap().to_le_bytes().to_vec();
    let cases: Vec<(&str, Vec<u8>, Expected)> = vec![
        ("an empty frame", vec![0; 4], |e| matches!(e, FrameError::Length(0))),
        ("one byte too long", too_long, |e| matches!(e, FrameError::Length(n) if *n == MAX_FRAME_BYTES + 1)),
        ("the longest", vec![255; 4], |e| matches!(e, FrameError::Length(_))),
        ("an unknown kind", framed(&[3]), |e| matches!(e, FrameError::Kind(3))),
        ("a message that is not JSON", framed(b"\0{"), |e| matches!(e, FrameError::Message(_))),
        ("a message of no known type", framed(b"\0{\"type\":\"x\"}"), |e| matches!(e, FrameError::Message(_))),
        ("a part without its number", framed(&[1, 0, 0]), |e| matches!(e, FrameError::Part)),
        ("a part without its artifact", framed(&[1, 0, 0, 0, 0, 0, 0, 0, 0]), |e| matches!(e, FrameError::Part)),
        ("a part of no artifact", framed(&[1, 0, 0, 0, 0, 0, 0, 0, 0, 9]), |e| matches!(e, FrameError::Part)),
    ];
    for (what, bytes, expected) in cases {
        let mut decoder = Decoder::default();
        decoder.push(&bytes);
        let error = decoder.next::<ToServer>().expect_err(what);
        assert!(expected(&error), "{what}: {error:?}");
    }
}

#[test]
fn a_frame_that_nobody_would_accept_is_not_sent() {
    let frame = Frame::Part { seq: 1, artifact: Artifact::Model, bytes: vec![0; MAX_FRAME_BYTES] };
    assert!(matches!(encode::<ToServer>(&frame), Err(FrameError::Length(_))));
}
