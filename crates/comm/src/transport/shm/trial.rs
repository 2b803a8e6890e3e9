//! Tries, when a group is made, the ways in which memory that is not registered can go: whole
//! all-reduces by all ranks of the host, each candidate in turns. A few milliseconds. The slowest
//! rank's times count, so all ranks choose alike.

#![expect(unsafe_code, reason = "operations are addresses")]

use std::time::{Duration, Instant};

use super::{
    Shm,
    choice::{CANDIDATES, Choice, TRIED, Times, candidates},
};
use crate::{
    Call, DType, Error, Kind, ReduceOp,
    guard::{Alarm, Guard, Stall, Terms, UNLIMITED},
    transport::Transport,
};

/// How often each candidate has its turn; the least time counts. The first turns bring the pages.
const TURNS: usize = 5;

/// What a trial waits by.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Patience<'a> {
    /// What says that another rank is gone.
    pub(crate) alarm: &'a Alarm,
    /// How long it may take.
    pub(crate) limit: Duration,
}

impl Shm {
    /// The same with what the trial finds. All ranks call it, before the first operation.
    pub(super) fn tried(mut self, second: usize, patience: Patience<'_>) -> Result<Self, Error> {
        let begun = Instant::now();
        let (before, longest) = (self.choice, TRIED[TRIED.len() - 1]);
        let (source, mut target) = (vec![1.0_f32; longest / 4], vec![0.0_f32; longest / 4]);
        let mut times: Times = [[f64::INFINITY; CANDIDATES]; TRIED.len()];
        let stall = Stall { after: UNLIMITED, ..Stall::default() };
        let step = |shm: &Self, call: &Call| {
            let left = patience.limit.saturating_sub(begun.elapsed());
            let terms = Terms {
                epoch: shm.epoch,
                alarm: patience.alarm,
                limit: left,
                spins: shm.tuning.spins,
                stall: &stall,
                watch: None,
            };
            let guard = Guard::new(call, shm.rank, 0, &terms);
            // SAFETY: the vectors are apart, long enough, and outlive the operation.
            unsafe { shm.execute(call, 0, &guard) }
        };
        let mut number = 0;
        let mut next = |shm: &mut Self, call: &Call| {
            let begun = Instant::now();
            step(shm, call)?;
            // Operations proper are counted from here on.
            number += 1;
            shm.tried = number;
            Ok::<_, Error>(begun.elapsed().as_secs_f64())
        };
        let all = candidates(second);
        for (turn, (candidate, staging)) in (0..TURNS).flat_map(|turn| all.iter().enumerate().map(move |it| (turn, it)))
        {
            self.choice = Choice { short: *staging, long: *staging, ..before };
            for (size, bytes) in TRIED.into_iter().enumerate() {
                let kind = Kind::AllReduce(ReduceOp::Sum);
                next(&mut self, &Call::barrier())?;
                let call = Call::new(kind, DType::F32, source.as_ptr().cast(), target.as_mut_ptr().cast(), bytes / 4);
                let took = next(&mut self, &call)?;
                if turn > 0 {
                    times[size][candidate] = times[size][candidate].min(took);
                }
            }
        }
        let mut slowest = times;
        let len = CANDIDATES * TRIED.len();
        let kind = Kind::AllReduce(ReduceOp::Max);
        next(&mut self, &Call::new(kind, DType::F64, times.as_ptr().cast(), slowest.as_mut_ptr().cast(), len))?;
        self.choice = before.found(second, &slowest);
        Ok(self)
    }
}
