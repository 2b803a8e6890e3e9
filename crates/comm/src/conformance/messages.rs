//! Messages by tag, and from any rank.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use super::{MakeWorld, play, play_and_leave};
use crate::{Call, DType, Error, Kind, ProcessGroup, ProcessGroupExt};

/// Elements: nothing, what fits a line, what is short, and what goes in parts. All of one test's
/// are less than what is kept of a sender.
const LENGTHS: [usize; 5] = [0, 3, 1000, 9001, 200_000];

/// Which messages of one test; the last is of a tag that was there before.
const TAGS: [u32; 5] = [7, 0, u32::MAX, 1, 7];

fn content(from: usize, to: usize, place: usize, len: usize) -> Vec<i32> {
    (0..len).map(|i| (from * 1_000_000 + to * 100_000 + place * 10_000 + i % 9973) as i32).collect()
}

fn others(group: &dyn ProcessGroup) -> impl Iterator<Item = usize> + Clone + use<> {
    let (rank, size) = (group.rank(), group.size());
    (0..size).filter(move |other| *other != rank)
}

/// Whatever the order in which a rank receives, it gets the oldest message of the tag that it
/// names. The senders of a few short messages wait for nobody; others go on by themselves.
pub(super) fn tags_choose(group: &dyn ProcessGroup) {
    let rank = group.rank();
    for (round, order) in [[0, 1, 2, 3, 4], [3, 2, 1, 0, 4], [1, 0, 4, 3, 2]].into_iter().enumerate() {
        for len in LENGTHS {
            let mut sends = Vec::new();
            for to in others(group) {
                for (place, tag) in TAGS.into_iter().enumerate() {
                    let message = content(rank, to, place, len + place);
                    if round == 0 && len <= 3 && place < 4 {
                        group.send(&message, to, tag).unwrap();
                    } else {
                        sends.push(group.start_send(message, to, tag).unwrap());
                    }
                }
            }
            for from in others(group) {
                for place in order {
                    let mut got = vec![0_i32; len + place];
                    group.recv(&mut got, from, TAGS[place]).unwrap();
                    assert!(
                        got == content(from, rank, place, len + place),
                        "message {place} of {from} to {rank}, {len} elements, order {order:?}"
                    );
                }
            }
            sends.into_iter().for_each(|send| send.wait().1.unwrap());
        }
    }
}

/// A receive that waits keeps no other from its message, whichever was called first and however
/// they wait.
pub(super) fn others_wait(group: &dyn ProcessGroup) {
    let rank = group.rank();
    let peer = rank ^ 1;
    for len in LENGTHS {
        let late = group.start_recv(vec![0_i32; len], peer, 1).unwrap();
        let any = group.start_recv_any(vec![0_i32; len], 2).unwrap();
        let early = group.start_recv(vec![0_i32; len], peer, 3).unwrap();
        group.send(&content(rank, peer, 3, 5), peer, 4).unwrap();
        let mut blocking = [0_i32; 5];
        group.recv(&mut blocking, peer, 4).unwrap();
        assert_eq!(blocking[..], content(peer, rank, 3, 5)[..], "while others wait");
        let third = group.start_send(content(rank, peer, 2, len), peer, 3).unwrap();
        let (got, result) = early.wait();
        assert_eq!(
            (result, got == content(peer, rank, 2, len)),
            (Ok(()), true),
            "called last, sent first: {len} elements"
        );
        let second = group.start_send(content(rank, peer, 1, len), peer, 2).unwrap();
        let (got, from) = any.wait_from();
        assert_eq!((from, got == content(peer, rank, 1, len)), (Ok(peer), true), "of any: {len} elements");
        assert!(!late.is_done());
        // Nobody goes on before both have looked.
        group.send(&[0_u8], peer, 5).unwrap();
        group.recv(&mut [0_u8], peer, 5).unwrap();
        let first = group.start_send(content(rank, peer, 0, len), peer, 1).unwrap();
        let (got, result) = late.wait();
        assert_eq!(
            (result, got == content(peer, rank, 0, len)),
            (Ok(()), true),
            "called first, sent last: {len} elements"
        );
        for send in [first, second, third] {
            send.wait().1.unwrap();
        }
    }
}

/// All ranks send to all, several each; who takes from any gets all of them, those of each sender
/// and tag in their order, also among receives from ranks that are named.
pub(super) fn from_any(group: &dyn ProcessGroup) {
    let (rank, size) = (group.rank(), group.size());
    for len in LENGTHS {
        let mut sends = Vec::new();
        for place in 0..3 {
            for to in others(group) {
                sends.push(group.start_send(content(rank, to, place, len), to, 6).unwrap());
                sends.push(group.start_send(content(rank, to, place + 3, len), to, 8).unwrap());
            }
        }
        let named = (rank + 1) % size;
        let mut got = vec![0_i32; len];
        let mut next = BTreeMap::from([(named, 1)]);
        group.recv(&mut got, named, 6).unwrap();
        assert!(got == content(named, rank, 0, len), "from a rank that is named");
        let pending: Vec<_> = (0..size - 1).map(|_| group.start_recv_any(vec![0_i32; len], 8).unwrap()).collect();
        for _ in 1..3 * (size - 1) {
            let from = group.recv_any(&mut got, 6).unwrap();
            let place = next.entry(from).or_insert(0);
            assert!(got == content(from, rank, *place, len), "message {place} of {from} to {rank}, {len} elements");
            *place += 1;
        }
        assert_eq!(next, others(group).map(|from| (from, 3)).collect(), "all have come");
        let mut came: BTreeMap<usize, usize> = BTreeMap::new();
        for one in pending {
            let (got, from) = one.wait_from();
            let from = from.unwrap();
            let place = came.entry(from).or_insert(3);
            assert!(got == content(from, rank, *place, len), "message {place} of {from} to {rank}, {len} elements");
            *place += 1;
        }
        for from in others(group) {
            for place in *came.entry(from).or_insert(3)..6 {
                group.recv(&mut got, from, 8).unwrap();
                assert!(got == content(from, rank, place, len), "the rest, message {place} of {from}");
            }
        }
        sends.into_iter().for_each(|send| send.wait().1.unwrap());
        group.barrier().unwrap();
    }
}

/// A message and the receive that names it differ: both sides are told what each called. Whether
/// the receive was there first or the message.
pub(super) fn lengths_differ(make: MakeWorld<'_>) {
    for is_late in [false, true] {
        for any in [false, true] {
            play(make(2), |group| {
                let error = if group.rank() == 0 {
                    if !is_late {
                        std::thread::sleep(Duration::from_millis(30));
                    }
                    group.send(&[1_u8], 1, 5).unwrap();
                    group.send(&[1_f32, 2.0], 1, 3).and_then(|()| group.barrier()).expect_err("a disagreement")
                } else {
                    if is_late {
                        // The one that differs has come before it is named.
                        group.recv(&mut [0_u8], 0, 5).unwrap();
                        std::thread::sleep(Duration::from_millis(30));
                    }
                    let result = if any {
                        group.recv_any(&mut [0_f32; 3], 3).map(drop)
                    } else {
                        group.recv(&mut [0_f32; 3], 0, 3)
                    };
                    result.expect_err("a disagreement")
                };
                let Error::Disagreement { number: 1, calls } = &error else { panic!("rank {}: {error}", group.rank()) };
                let receive = if any { "recv (from any, tag 3) of 3 f32" } else { "recv (from 0, tag 3) of 3 f32" };
                let said = [(0, Some("send (to 1, tag 3) of 2 f32".to_owned())), (1, Some(receive.to_owned()))];
                assert_eq!(calls[..], said, "rank {}", group.rank());
            });
        }
    }
}

/// What is named does not come: the error says what has come instead.
pub(super) fn nothing_fits(make: MakeWorld<'_>) {
    for kind in [Kind::Recv { from: 0, tag: 9 }, Kind::RecvAny { tag: 9 }] {
        play(make(3), |group| {
            if group.rank() == 2 {
                let mut buffer = [0_u8; 4];
                let address = buffer.as_mut_ptr();
                let call = Call {
                    deadline: Some(Duration::from_millis(200)),
                    ..Call::new(kind, DType::U8, address, address, 4)
                };
                group.barrier().unwrap();
                #[expect(unsafe_code, reason = "a deadline is set at the seam")]
                // SAFETY: the buffer outlives the call.
                let error = unsafe { group.run(&call) }.expect_err("nobody sends it");
                let Error::Deadline { waiting_for, milliseconds: 200, .. } = &error else { panic!("{error}") };
                let named = if matches!(kind, Kind::RecvAny { .. }) { vec![0, 1] } else { vec![0] };
                let mut waiting_for = waiting_for.clone();
                waiting_for.sort_unstable();
                assert_eq!(waiting_for, named);
                let text = error.to_string();
                assert!(
                    text.contains("tag 9") && text.contains("rank 0 has sent messages of tag 4 that nobody receives"),
                    "{text}"
                );
            } else {
                if group.rank() == 0 {
                    group.send(&[1_u8; 4], 2, 4).unwrap();
                }
                group.barrier().unwrap();
                let begun = Instant::now();
                let error = group.recv(&mut [0_u8; 4], 2, 0).expect_err("rank 2 gave up");
                assert!(matches!(error, Error::PeerGaveUp { rank: 2, .. }), "{error}");
                assert!(begun.elapsed() < Duration::from_secs(60), "told in time");
            }
        });
    }
}

/// Who waits for any other is told when the last that could send is gone.
pub(super) fn senders_leave(make: MakeWorld<'_>) {
    play_and_leave(make(3), |group| {
        if group.rank() == 1 {
            group.send(&[1_u8; 100], 0, 1).unwrap();
        }
        group.barrier().unwrap();
        if group.rank() != 0 {
            return;
        }
        std::thread::sleep(Duration::from_millis(50));
        let mut got = [0_u8; 100];
        assert_eq!(group.recv(&mut got, 1, 1), Ok(()), "sent before it left");
        assert_eq!(got, [1; 100]);
        let error = group.recv_any(&mut got, 1).expect_err("nobody is left");
        assert!(matches!(error, Error::PeerDied { rank: 1 | 2, .. }), "{error}");
    });
}
