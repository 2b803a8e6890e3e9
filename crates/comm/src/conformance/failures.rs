//! Failures: every rank gets an error that names who and what, in time, and the living go on.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

use super::{MakeWorld, play, play_and_leave};
use crate::{Call, DType, Error, Kind, ProcessGroupExt, ReduceOp};

/// Long enough for a loaded machine; nothing here takes it when all is well.
const PATIENCE: Duration = Duration::from_secs(60);

/// One rank calls something else; all are told who called what.
pub(super) fn different_calls(make: MakeWorld<'_>) {
    for (which, len) in [(0, 3), (1, 3), (0, 70_000), (2, 40)] {
        play(make(3), |group| {
            group.barrier().unwrap();
            let odd = group.rank() == 2;
            let result = match which {
                0 => group.all_reduce(&mut vec![1_i32; if odd { len + 1 } else { len }], ReduceOp::Sum),
                1 if odd => group.all_reduce(&mut vec![1_f32; len], ReduceOp::Sum),
                1 => group.all_reduce(&mut vec![1_i32; len], ReduceOp::Sum),
                _ if odd => group.barrier(),
                _ => group.broadcast(&mut vec![1_i32; len], 0),
            };
            // A root may be done before the others come; it hears of it at its next operation.
            let error = result.and_then(|()| group.barrier()).expect_err("a disagreement");
            let Error::Disagreement { number: 1, calls } = &error else { panic!("rank {}: {error}", group.rank()) };
            assert_eq!(calls.len(), 3, "{error}");
            let said: Vec<_> = calls.iter().map(|(_, call)| call.clone().unwrap_or_default()).collect();
            assert!(said[0] == said[1] && said[1] != said[2] && said.iter().all(|call| !call.is_empty()), "{error}");
            let again = group.barrier().expect_err("the group is broken");
            assert!(matches!(again, Error::Broken { .. }), "{again}");
        });
    }
}

/// A rank does not come: the deadline names it, and the others are told.
pub(super) fn nobody_comes(make: MakeWorld<'_>) {
    let given_up = AtomicBool::new(false);
    play(make(3), |group| {
        group.barrier().unwrap();
        let started = Instant::now();
        if group.rank() == 2 {
            while !given_up.load(Ordering::Acquire) && started.elapsed() < PATIENCE {
                std::thread::sleep(Duration::from_millis(1));
            }
            // Until it has been told, it would find that the others called something else.
            std::thread::sleep(Duration::from_millis(400));
            let error = group.barrier().expect_err("the others gave up");
            assert!(matches!(error, Error::PeerGaveUp { rank: 0 | 1, .. }), "{error}");
            return;
        }
        let deadline = Some(Duration::from_millis(if group.rank() == 0 { 100 } else { 60_000 }));
        let mut buffer = [0_u8; 4];
        let address = buffer.as_mut_ptr();
        let call = Call { deadline, ..Call::new(Kind::AllReduce(ReduceOp::Sum), DType::U8, address, address, 4) };
        #[expect(unsafe_code, reason = "a deadline is set at the seam")]
        // SAFETY: the buffer outlives the call.
        let error = unsafe { group.run(&call) }.expect_err("rank 2 does not come");
        given_up.store(true, Ordering::Release);
        match (&error, group.rank()) {
            (Error::Deadline { waiting_for, milliseconds: 100, .. }, 0) => assert!(waiting_for.contains(&2), "{error}"),
            (Error::PeerGaveUp { rank: 0, .. }, 1) => {}
            _ => panic!("rank {}: {error}", group.rank()),
        }
        assert!(started.elapsed() < PATIENCE, "told in time");
    });
}

/// A rank is gone: the others are told which one, and make the group anew without it.
pub(super) fn gone(make: MakeWorld<'_>) {
    play_and_leave(make(4), |group| {
        group.barrier().unwrap();
        if group.rank() == 1 {
            return;
        }
        let mut kept = vec![group.rank() as f64; 5000];
        let error = loop {
            // The first may have been done before rank 1 went.
            if let Err(error) = group.all_reduce(&mut kept, ReduceOp::Sum) {
                break error;
            }
        };
        assert!(matches!(error, Error::PeerDied { rank: 1, .. }), "rank {}: {error}", group.rank());
        let living = group.shrink().unwrap();
        assert_eq!((living.size(), living.epoch()), (3, group.epoch() + 1));
        assert_eq!(living.rank(), [0, 9, 1, 2][group.rank()], "numbered anew in their order");
        let revoked = group.barrier().expect_err("the old group is of the past");
        assert!(matches!(revoked, Error::Revoked { .. }), "{revoked}");
        let mut retried = vec![group.rank() as f64; 5000];
        living.all_reduce(&mut retried, ReduceOp::Sum).unwrap();
        assert!(retried.iter().all(|x| *x == 5.0), "0 + 2 + 3");
        assert!(!living.plan().is_empty());
    });
}

/// Calls that cannot be are refused, and the group goes on.
pub(super) fn bad_calls(make: MakeWorld<'_>) {
    play(make(2), |group| {
        let problems = [
            group.broadcast(&mut [1_u8], 2),
            group.send(&[1_u8], group.rank(), 0),
            group.all_reduce(&mut [1_i32], ReduceOp::Avg),
            group.all_gather(&[1_u8], &mut [0; 3]),
        ];
        for problem in problems {
            assert!(matches!(problem, Err(Error::Config { .. })), "{problem:?}");
        }
        group.barrier().unwrap();
    });
}
