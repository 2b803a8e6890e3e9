//! Operations that overlap: several in flight, asynchronous among blocking, messages that cross,
//! groups within the group.

use crate::{ProcessGroup, ProcessGroupExt, ReduceOp};

/// Sum over the ranks of `value(r)`.
fn total(group: &dyn ProcessGroup, value: impl Fn(usize) -> i64) -> i64 {
    (0..group.size()).map(value).sum()
}

pub(super) fn many_in_flight(group: &dyn ProcessGroup) {
    let rank = group.rank();
    for round in 0..20_usize {
        let mut pending = Vec::new();
        for i in 0..5 {
            let len = [1, 3000, 7, 20_000, 0][i];
            let buffer = vec![(rank + 10 * i + round) as i64; len];
            pending.push(group.start_all_reduce(buffer, ReduceOp::Sum).unwrap());
            if i % 2 == round % 2 {
                let mut blocking = [rank as i64 + 1000, 1];
                group.all_reduce(&mut blocking, ReduceOp::Sum).unwrap();
                assert_eq!(
                    blocking,
                    [total(group, |r| r as i64 + 1000), group.size() as i64],
                    "blocking among asynchronous"
                );
            }
        }
        let registered = group.alloc(4000).unwrap();
        let last = group.start_broadcast::<f32, _>(registered, round % group.size()).unwrap();
        for (i, one) in pending.into_iter().enumerate() {
            let (buffer, result) = one.wait();
            result.unwrap();
            let expected = total(group, |r| (r + 10 * i + round) as i64);
            assert!(
                buffer.iter().all(|x| *x == expected),
                "operation {i} of round {round}: {buffer:?}, not {expected}"
            );
        }
        last.wait().1.unwrap();
    }
}

/// Every rank sends to all others before it receives from any, short and long, asynchronously; then
/// a ring of blocking ones.
pub(super) fn crossing_messages(group: &dyn ProcessGroup) {
    let (rank, size) = (group.rank(), group.size());
    let others = || (0..size).filter(|other| *other != rank);
    for len in [0_usize, 1, 9, 5000, 300_000] {
        let content = |from: usize, to: usize, which: usize| (from * 100 + to * 10 + which) as i32;
        let mut sends = Vec::new();
        for which in 0..3 {
            for to in others() {
                sends.push(group.start_send(vec![content(rank, to, which); len], to, which as u32).unwrap());
            }
        }
        group.barrier().unwrap();
        for from in others() {
            let second = group.start_recv(vec![0_i32; len], from, 0).unwrap();
            let mut first = vec![0_i32; len];
            let (received, result) = second.wait();
            result.unwrap();
            assert!(received.iter().all(|x| *x == content(from, rank, 0)), "first message of {from} to {rank}");
            group.recv(&mut first, from, 1).unwrap();
            assert!(first.iter().all(|x| *x == content(from, rank, 1)), "second message of {from} to {rank}");
            group.recv(&mut first, from, 2).unwrap();
            assert!(first.iter().all(|x| *x == content(from, rank, 2)), "third message of {from} to {rank}");
        }
        for send in sends {
            send.wait().1.unwrap();
        }
    }
    if size > 1 {
        let mut token = [0_i64];
        if rank == 0 {
            group.send(&[7_i64], 1, 9).unwrap();
            group.recv(&mut token, size - 1, 9).unwrap();
            assert_eq!(token[0], 7 + size as i64 - 1, "once around");
        } else {
            group.recv(&mut token, rank - 1, 9).unwrap();
            group.send(&[token[0] + 1], (rank + 1) % size, 9).unwrap();
        }
    }
}

/// Groups that are split off work beside the whole and beside each other; their ranks are numbered
/// in the order given.
pub(super) fn parts_of_the_group(group: &dyn ProcessGroup) {
    let (rank, size) = (group.rank(), group.size());
    let reversed: Vec<_> = (0..size).rev().collect();
    let turned = group.split(&reversed).unwrap().expect("all are in it");
    assert_eq!((turned.rank(), turned.size()), (size - 1 - rank, size));
    let odd: Vec<_> = (0..size).filter(|r| r % 2 == 1).collect();
    let even: Vec<_> = (0..size).filter(|r| r % 2 == 0).collect();
    let (first, second) = (group.split(&odd).unwrap(), group.split(&even).unwrap());
    assert_eq!((first.is_some(), second.is_some()), (rank % 2 == 1, rank % 2 == 0));
    let own = first.or(second).expect("odd or even");
    for round in 0..10 {
        let mut buffer = vec![rank as i64; 1 + round * 700];
        own.all_reduce(&mut buffer, ReduceOp::Sum).unwrap();
        let expected: usize = (0..size).filter(|r| r % 2 == rank % 2).sum();
        assert!(buffer.iter().all(|x| *x == expected as i64), "sum over the {} ranks of one parity", own.size());
        let mut gathered = vec![0_u8; size];
        turned.all_gather(&[rank as u8], &mut gathered).unwrap();
        assert_eq!(gathered, (0..size as u8).rev().collect::<Vec<_>>());
    }
    assert!(group.split(&[0, 0]).is_err() && group.split(&[size]).is_err());
}
