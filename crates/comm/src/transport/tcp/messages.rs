//! Messages of two ranks: connections of their own, so that they wait for no collective.

#![expect(unsafe_code, reason = "calls are addresses")]

use std::io::{ErrorKind, Read};
use std::net::TcpStream;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::Tcp;
use super::flow::{self, AWAKE, Broken, Head, In, Order, Out, Stop, TURN};
use crate::guard::Guard;
use crate::timeline::Way;
use crate::transport::wire::{Label, Wire};
use crate::{Call, Error, Kind};

/// Bytes that are read at once where a label is expected: short messages come with theirs.
const STAGE: usize = 4096;

/// One connection per other rank. Its two directions are used by two threads at most, one each.
#[derive(Debug)]
pub(super) struct Messages {
    streams: Vec<TcpStream>,
    inlets: Vec<Mutex<Inlet>>,
}

/// What has come of one rank and was not taken.
#[derive(Debug, Default)]
struct Inlet {
    stage: Vec<u8>,
    start: usize,
    end: usize,
    /// It has left: nothing more comes, and nothing is wrong for those who wait for others.
    has_left: bool,
}

impl Messages {
    pub(super) fn new(streams: Vec<TcpStream>) -> Self {
        let inlets = streams.iter().map(|_| Mutex::default()).collect();
        Self { streams, inlets }
    }

    /// Sends the call's message, which is done when the system has taken it, or takes the next one,
    /// which has to be that of the call: for transports whose messages are not chosen by their
    /// tags.
    ///
    /// # Safety
    /// As for [`crate::transport::Transport::execute`].
    pub(super) unsafe fn exchange(
        &self,
        lane: usize,
        call: &Call,
        head: Head,
        guard: &Guard<'_>,
        rank_of: &dyn Fn(usize) -> usize,
    ) -> Result<(), Stop> {
        let (sends, bytes) = (matches!(call.kind, Kind::Send { .. }), call.len * call.dtype.size());
        let mut out = sends.then(|| Out::new(lane, Some(head), call.send, bytes));
        let mut into = (!sends).then(|| In::new(lane, Some(head), call.recv, bytes));
        let (outs, ins) = (out.as_mut_slice(), into.as_mut_slice());
        // SAFETY: the caller's promise.
        unsafe { flow::run(&self.streams, rank_of, outs, ins, Order::AtOnce, guard, &mut |_, _| {}) }
    }

    /// Reads what has come into `target`; 0 where nothing has.
    fn read(&self, lane: usize, target: &mut [u8]) -> Result<usize, Broken> {
        let broken = |how| Err(Broken { lane, how });
        match (&self.streams[lane]).read(target) {
            Ok(0) => broken("its data connection was closed".to_owned()),
            Ok(count) => Ok(count),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => Ok(0),
            Err(error) => broken(format!("its data connection failed: {error}")),
        }
    }

    /// Reads into the stage; how much is in it.
    fn fill(&self, lane: usize, inlet: &mut Inlet) -> Result<usize, Broken> {
        inlet.stage.resize(STAGE, 0);
        inlet.stage.copy_within(inlet.start..inlet.end, 0);
        (inlet.start, inlet.end) = (0, inlet.end - inlet.start);
        inlet.end += self.read(lane, &mut inlet.stage[inlet.end..])?;
        Ok(inlet.end)
    }

    fn next(&self, lane: usize, inlet: &mut Inlet) -> Result<Option<Label>, Broken> {
        if inlet.end - inlet.start < Head::BYTES && self.fill(lane, inlet)? < Head::BYTES {
            return Ok(None);
        }
        let words = inlet.stage[inlet.start..inlet.start + Head::BYTES].chunks_exact(8);
        let mut words = words.map(|word| u64::from_le_bytes(word.try_into().expect("8 bytes")));
        inlet.start += Head::BYTES;
        Ok(Some(Label::of_words(std::array::from_fn(|_| words.next().expect("two words")))))
    }

    fn take(&self, lane: usize, inlet: &mut Inlet, target: &mut [u8]) -> Result<usize, Broken> {
        let staged = inlet.end - inlet.start;
        if staged == 0 && target.len() >= STAGE {
            let most = target.len().min(TURN);
            return self.read(lane, &mut target[..most]);
        }
        let staged = if staged == 0 { self.fill(lane, inlet)? } else { staged };
        let count = staged.min(target.len());
        target[..count].copy_from_slice(&inlet.stage[inlet.start..inlet.start + count]);
        inlet.start += count;
        Ok(count)
    }
}

impl Tcp {
    /// What comes of a rank that left is nothing.
    fn come<T>(
        &self,
        from: usize,
        guard: &Guard<'_>,
        nothing: T,
        look: impl FnOnce(usize, &mut Inlet) -> Result<T, Broken>,
    ) -> Result<T, Error> {
        let lane = self.lane(from);
        let mut inlet = self.messages.inlets[lane].lock().unwrap_or_else(PoisonError::into_inner);
        if inlet.has_left {
            return Ok(nothing);
        }
        look(lane, &mut inlet).or_else(|broken| {
            inlet.has_left = self.has_left(from, guard);
            if inlet.has_left { Ok(nothing) } else { Err(self.lost(&broken, guard)) }
        })
    }
}

impl Wire for Tcp {
    unsafe fn send(&self, to: usize, call: &Call, label: Label, guard: &Guard<'_>) -> Result<(), Error> {
        let [seq, signature] = label.words();
        let mut out = [Out::new(self.lane(to), Some(Head { seq, signature }), call.send, label.bytes)];
        let (rank_of, lanes) = (|lane| self.rank_of(lane), &self.messages.streams);
        // SAFETY: the caller's promise.
        unsafe { flow::run(lanes, &rank_of, &mut out, &mut [], Order::AtOnce, guard, &mut |_, _| {}) }
            .map_err(|stop| self.stopped(stop, guard))
    }

    fn next(&self, from: usize, guard: &Guard<'_>) -> Result<Option<Label>, Error> {
        self.come(from, guard, None, |lane, inlet| self.messages.next(lane, inlet))
    }

    unsafe fn take(&self, from: usize, target: *mut u8, left: usize, guard: &Guard<'_>) -> Result<usize, Error> {
        // SAFETY: the caller's promise.
        let target = unsafe { std::slice::from_raw_parts_mut(target, left) };
        self.come(from, guard, 0, |lane, inlet| self.messages.take(lane, inlet, target))
    }

    fn awake(&self, _from: &[usize]) -> Option<Duration> {
        Some(AWAKE)
    }

    fn pause(&self, from: &[usize], time: Duration) {
        let lanes = from.iter().map(|from| self.lane(*from));
        let here =
            lanes.filter(|lane| !self.messages.inlets[*lane].lock().unwrap_or_else(PoisonError::into_inner).has_left);
        let mut descriptors: Vec<_> =
            here.map(|lane| PollFd::new(&self.messages.streams[lane], PollFlags::IN)).collect();
        let time = Timespec {
            tv_sec: i64::try_from(time.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(time.subsec_nanos()),
        };
        // Interrupted or not: the caller looks again.
        let _ = poll(&mut descriptors, Some(&time));
    }

    fn way(&self, _from: usize) -> Way {
        Way::Pairs
    }
}
