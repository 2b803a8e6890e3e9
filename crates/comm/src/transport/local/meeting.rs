//! Where threads meet: all have come with what they call, all have done their share.

use std::{
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use crate::{
    Call, Error,
    guard::{Backoff, Guard, Pace},
    transport::direct::View,
};

/// A place for operations one after the other.
#[derive(Debug)]
pub(super) struct Meeting {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug)]
struct State {
    /// By rank: how many operations it has entered and left, and what it called last.
    entered: Vec<u64>,
    left: Vec<u64>,
    posted: Vec<Posted>,
}

#[derive(Debug, Clone, Default)]
struct Posted {
    signature: u64,
    call: Option<Call>,
}

impl Meeting {
    pub(super) fn new(size: usize) -> Self {
        let state = State { entered: vec![0; size], left: vec![0; size], posted: vec![Posted::default(); size] };
        Self { state: Mutex::new(state), changed: Condvar::new() }
    }

    /// Comes with a call and waits for all others; gives every rank's memory as `rank` sees it.
    pub(super) fn enter(
        &self,
        rank: usize,
        seq: u64,
        signature: u64,
        call: &Call,
        guard: &Guard<'_>,
    ) -> Result<Vec<View>, Error> {
        let mut state = self.lock();
        state.entered[rank] = seq + 1;
        state.posted[rank] = Posted { signature, call: Some(call.clone()) };
        self.changed.notify_all();
        let state = self.wait(state, guard, |state| &state.entered, seq)?;
        if state.posted.iter().any(|posted| posted.signature != signature) {
            return Err(guard.dispute());
        }
        let size = state.posted.len();
        let mut views = Vec::with_capacity(size);
        for (from, posted) in state.posted.iter().enumerate() {
            let other = posted.call.as_ref().expect("all have entered");
            if matches!(call.kind, crate::Kind::AllToAll) && other.piece(rank) != call.piece_from(from, size) {
                return Err(guard.dispute());
            }
            views.push(View { send: other.send, recv: other.recv, mine: other.offset(rank) });
        }
        Ok(views)
    }

    /// Has done its share and waits for all others.
    pub(super) fn leave(&self, rank: usize, seq: u64, guard: &Guard<'_>) -> Result<(), Error> {
        let mut state = self.lock();
        state.left[rank] = seq + 1;
        self.changed.notify_all();
        self.wait(state, guard, |state| &state.left, seq).map(drop)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(
        &self,
        mut state: MutexGuard<'a, State>,
        guard: &Guard<'_>,
        which: fn(&State) -> &Vec<u64>,
        seq: u64,
    ) -> Result<MutexGuard<'a, State>, Error> {
        let mut backoff = Backoff::asleep();
        loop {
            let missing: Vec<_> =
                which(&state).iter().enumerate().filter(|(_, done)| **done <= seq).map(|(rank, _)| rank).collect();
            if missing.is_empty() {
                return Ok(state);
            }
            let time = match guard.turn(&mut backoff, &|| missing.clone())? {
                Pace::Sleep(time) => time,
                Pace::Again => Duration::from_millis(1),
            };
            state = self.changed.wait_timeout(state, time).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}
