//! Messages on their way between threads: copies, of which each pair and direction has a queue.

#![expect(unsafe_code, reason = "calls are addresses")]

use std::{
    collections::{HashMap, VecDeque},
    slice,
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use super::Local;
use crate::{
    Call, Error,
    guard::{Backoff, Guard, Pace},
    transport::wire::{Label, Wire},
};

/// Bytes on their way before the next message waits for its receiver.
const ROOM: usize = 1 << 20;

/// All messages on their way in one group.
#[derive(Debug, Default)]
pub(super) struct Pipes {
    /// By sender and receiver.
    state: Mutex<HashMap<(usize, usize), Pipe>>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Pipe {
    messages: VecDeque<(Label, Vec<u8>)>,
    bytes: usize,
    /// Of the first message: its label was read, and so many of its bytes.
    begun: bool,
    taken: usize,
}

impl Pipe {
    fn is_taken(&mut self) {
        let (label, _) = self.messages.pop_front().expect("the message that was taken");
        self.bytes -= label.bytes;
        (self.begun, self.taken) = (false, 0);
    }
}

impl Pipes {
    fn lock(&self) -> MutexGuard<'_, HashMap<(usize, usize), Pipe>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Wire for Local {
    unsafe fn send(&self, to: usize, call: &Call, label: Label, guard: &Guard<'_>) -> Result<(), Error> {
        let pipes = &self.world.messages;
        let bytes = if label.bytes == 0 {
            Vec::new()
        } else {
            // SAFETY: the caller's promise.
            unsafe { slice::from_raw_parts(call.send, label.bytes) }.to_vec()
        };
        let mut state = pipes.lock();
        let mut backoff = Backoff::asleep();
        loop {
            let pipe = state.entry((self.rank, to)).or_default();
            if pipe.bytes == 0 || pipe.bytes + label.bytes <= ROOM {
                pipe.bytes += label.bytes;
                pipe.messages.push_back((label, bytes));
                break;
            }
            let time = match guard.turn(&mut backoff, &|| vec![to])? {
                Pace::Sleep(time) => time,
                Pace::Again => Duration::from_millis(1),
            };
            state = pipes.changed.wait_timeout(state, time).unwrap_or_else(PoisonError::into_inner).0;
        }
        drop(state);
        pipes.changed.notify_all();
        Ok(())
    }

    fn next(&self, from: usize, _guard: &Guard<'_>) -> Result<Option<Label>, Error> {
        let mut state = self.world.messages.lock();
        let Some(pipe) = state.get_mut(&(from, self.rank)).filter(|pipe| !pipe.begun) else { return Ok(None) };
        let Some(label) = pipe.messages.front().map(|(label, _)| *label) else { return Ok(None) };
        pipe.begun = true;
        if label.bytes == 0 {
            pipe.is_taken();
        }
        Ok(Some(label))
    }

    unsafe fn take(&self, from: usize, target: *mut u8, left: usize, _guard: &Guard<'_>) -> Result<usize, Error> {
        let mut state = self.world.messages.lock();
        let Some(pipe) = state.get_mut(&(from, self.rank)).filter(|pipe| pipe.begun) else { return Ok(0) };
        let Some((_, bytes)) = pipe.messages.front() else { return Ok(0) };
        let rest = &bytes[pipe.taken..];
        let count = rest.len().min(left);
        // SAFETY: the caller's promise.
        unsafe { slice::from_raw_parts_mut(target, count) }.copy_from_slice(&rest[..count]);
        pipe.taken += count;
        if count == rest.len() {
            pipe.is_taken();
            drop(state);
            self.world.messages.changed.notify_all();
        }
        Ok(count)
    }

    fn awake(&self, _from: &[usize]) -> Option<Duration> {
        Some(Duration::ZERO)
    }

    fn pause(&self, from: &[usize], time: Duration) {
        let state = self.world.messages.lock();
        let has_come =
            from.iter().any(|from| state.get(&(*from, self.rank)).is_some_and(|pipe| !pipe.messages.is_empty()));
        // What has come and waits for room, or for another thread, does not keep this one awake
        // either.
        let time = if has_come { time.min(Duration::from_micros(50)) } else { time };
        drop(self.world.messages.changed.wait_timeout(state, time));
    }
}
