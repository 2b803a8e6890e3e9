//! Moves bytes on several connections at once: what goes out, what comes in, and what is done with
//! it on the way.
//!
//! One thread serves all connections of an operation. In short ones it polls without sleeping for a
//! while, because waking up costs more than a small message does.

#![expect(unsafe_code, reason = "calls are addresses; bytes go between them and sockets without copies")]

use std::io::{IoSlice, IoSliceMut};
use std::net::TcpStream;
use std::slice;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags, recvmsg, sendmsg};

use crate::Error;
use crate::guard::{Backoff, Guard, Pace};

/// How long to look at the sockets again and again before sleeping until something comes.
pub(super) const AWAKE: Duration = Duration::from_micros(80);
/// Above so many bytes a wake-up costs little beside the transfer, and looking would take the cores
/// from those who have work: it sleeps at once.
const LONG: usize = 1 << 20;
/// Most bytes of one system call, so that all connections get their turn.
pub(super) const TURN: usize = 512 * 1024;

/// What goes before the bytes of an operation: its number, and what was called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) seq: u64,
    pub(super) signature: u64,
}

impl Head {
    pub(super) const BYTES: usize = 16;

    fn encode(self) -> [u8; Self::BYTES] {
        (u128::from(self.seq) | u128::from(self.signature) << 64).to_le_bytes()
    }
}

/// Bytes that go to one rank.
pub(super) struct Out {
    /// Index of the connection.
    pub(super) to: usize,
    /// What goes before them; on the first of an operation.
    pub(super) head: Option<Head>,
    pub(super) base: *const u8,
    pub(super) len: usize,
    /// Bytes that may go; the others are not known yet.
    pub(super) allowed: usize,
    pub(super) head_done: usize,
    pub(super) done: usize,
}

/// Bytes that come from one rank.
pub(super) struct In {
    /// Index of the connection.
    pub(super) from: usize,
    pub(super) head: Option<Head>,
    pub(super) base: *mut u8,
    pub(super) len: usize,
    came: [u8; Head::BYTES],
    head_done: usize,
    pub(super) done: usize,
}

impl Out {
    pub(super) fn new(to: usize, head: Option<Head>, base: *const u8, len: usize) -> Self {
        let head_done = if head.is_some() { 0 } else { Head::BYTES };
        Self { to, head, base, len, allowed: len, head_done, done: 0 }
    }

    fn is_over(&self) -> bool {
        self.head_done == Head::BYTES && self.done == self.len
    }

    fn can_go(&self) -> bool {
        self.head_done < Head::BYTES || self.done < self.allowed
    }
}

impl In {
    pub(super) fn new(from: usize, head: Option<Head>, base: *mut u8, len: usize) -> Self {
        let head_done = if head.is_some() { 0 } else { Head::BYTES };
        Self { from, head, base, len, came: [0; Head::BYTES], head_done, done: 0 }
    }

    fn is_over(&self) -> bool {
        self.head_done == Head::BYTES && self.done == self.len
    }
}

/// Whether bytes to several ranks go at once or to one after the other, in the order given. One
/// after the other keeps a receiver from being sent to by all at once, where a switch would drop
/// what it cannot hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Order {
    AtOnce,
    InTurn,
}

/// How one operation's connection failed.
pub(super) struct Broken {
    /// Index of the connection.
    pub(super) lane: usize,
    pub(super) how: String,
}

/// Why a flow stopped.
pub(super) enum Stop {
    Connection(Broken),
    Error(Error),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Self::Error(error)
    }
}

/// Moves all of it. `step` is called after each progress, with how far everything is: it works on
/// what has come and allows more to go. Transfers of one connection and direction follow each other
/// in the order given.
///
/// # Safety
/// The addresses are valid for their lengths until this returns, and `step` keeps its own promises.
pub(super) unsafe fn run(
    lanes: &[TcpStream],
    rank_of: &dyn Fn(usize) -> usize,
    outs: &mut [Out],
    ins: &mut [In],
    order: Order,
    guard: &Guard<'_>,
    step: &mut dyn FnMut(&mut [Out], &[In]),
) -> Result<(), Stop> {
    let bytes = outs.iter().map(|out| out.len).chain(ins.iter().map(|each| each.len)).sum::<usize>();
    let awake = if bytes > LONG { Duration::ZERO } else { AWAKE };
    let mut last_progress = None;
    let mut backoff = Backoff::asleep();
    step(outs, ins);
    loop {
        // SAFETY: the caller's promise.
        let moved = unsafe { send_some(lanes, outs, order)? | receive_some(lanes, ins, guard)? };
        if moved {
            step(outs, ins);
        }
        if outs.iter().all(Out::is_over) && ins.iter().all(In::is_over) {
            return Ok(());
        }
        if moved {
            last_progress = None;
            continue;
        }
        guard.check()?;
        let now = Instant::now();
        if now.duration_since(*last_progress.get_or_insert(now)) < awake {
            std::thread::yield_now();
            continue;
        }
        let missing = || {
            let mut ranks: Vec<_> = ins.iter().filter(|each| !each.is_over()).map(|each| rank_of(each.from)).collect();
            if ranks.is_empty() {
                ranks = outs.iter().filter(|each| !each.is_over()).map(|each| rank_of(each.to)).collect();
            }
            ranks.sort_unstable();
            ranks.dedup();
            ranks
        };
        if let Pace::Sleep(time) = guard.turn(&mut backoff, &missing)? {
            sleep(lanes, outs, ins, order, time);
        }
    }
}

/// Indices of the transfers that may go now.
fn sendable(outs: &[Out], order: Order) -> Vec<usize> {
    let mut blocked: Vec<usize> = Vec::new();
    let mut list = Vec::new();
    for (index, out) in outs.iter().enumerate() {
        if out.is_over() || blocked.contains(&out.to) {
            continue;
        }
        blocked.push(out.to);
        if out.can_go() {
            list.push(index);
            if order == Order::InTurn {
                break;
            }
        }
    }
    list
}

fn receivable(ins: &[In]) -> Vec<usize> {
    let mut seen: Vec<usize> = Vec::new();
    let mut list = Vec::new();
    for (index, each) in ins.iter().enumerate() {
        if !each.is_over() && !seen.contains(&each.from) {
            seen.push(each.from);
            list.push(index);
        }
    }
    list
}

unsafe fn send_some(lanes: &[TcpStream], outs: &mut [Out], order: Order) -> Result<bool, Stop> {
    let mut moved = false;
    for index in sendable(outs, order) {
        let out = &mut outs[index];
        let head = out.head.map_or([0; Head::BYTES], Head::encode);
        let count = out.allowed.saturating_sub(out.done).min(TURN);
        // SAFETY: `base` is valid for `len` bytes, of which `done + count` is within.
        let body = unsafe { body(out.base, out.done, count) };
        let slices = [IoSlice::new(&head[out.head_done..]), IoSlice::new(body)];
        match sendmsg(
            &lanes[out.to],
            &slices,
            &mut SendAncillaryBuffer::default(),
            SendFlags::NOSIGNAL | SendFlags::DONTWAIT,
        ) {
            Ok(sent) => {
                let of_head = sent.min(Head::BYTES - out.head_done);
                out.head_done += of_head;
                out.done += sent - of_head;
                moved |= sent > 0;
            }
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(error) => return Err(Stop::Connection(Broken { lane: out.to, how: failure(error) })),
        }
    }
    Ok(moved)
}

unsafe fn body<'a>(base: *const u8, done: usize, count: usize) -> &'a [u8] {
    if count == 0 {
        return &[];
    }
    // SAFETY: the caller's promise.
    unsafe { slice::from_raw_parts(base.add(done), count) }
}

unsafe fn receive_some(lanes: &[TcpStream], ins: &mut [In], guard: &Guard<'_>) -> Result<bool, Stop> {
    let mut moved = false;
    for index in receivable(ins) {
        let each = &mut ins[index];
        let count = (each.len - each.done).min(TURN);
        let body: &mut [u8] = if count == 0 {
            &mut []
        } else {
            // SAFETY: `base` is valid for `len` bytes, of which `done + count` is within, and
            // nobody else touches them.
            unsafe { slice::from_raw_parts_mut(each.base.add(each.done), count) }
        };
        let mut slices = [IoSliceMut::new(&mut each.came[each.head_done..]), IoSliceMut::new(body)];
        match recvmsg(
            &lanes[each.from],
            &mut slices,
            &mut rustix::net::RecvAncillaryBuffer::default(),
            RecvFlags::DONTWAIT,
        ) {
            Ok(message) if message.bytes == 0 => {
                return Err(Stop::Connection(Broken {
                    lane: each.from,
                    how: "its data connection was closed".to_owned(),
                }));
            }
            Ok(message) => {
                let of_head = message.bytes.min(Head::BYTES - each.head_done);
                each.head_done += of_head;
                each.done += message.bytes - of_head;
                moved = true;
                if of_head > 0
                    && each.head_done == Head::BYTES
                    && each.head.is_some_and(|head| head.encode() != each.came)
                {
                    let theirs = u64::from_le_bytes(*each.came.first_chunk().expect("16 bytes"));
                    return Err(Stop::Error(guard.dispute_of(theirs)));
                }
            }
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(error) => return Err(Stop::Connection(Broken { lane: each.from, how: failure(error) })),
        }
    }
    Ok(moved)
}

fn failure(error: Errno) -> String {
    format!("its data connection failed: {}", std::io::Error::from(error))
}

/// Sleeps until a connection can go on, or for that time.
fn sleep(lanes: &[TcpStream], outs: &[Out], ins: &[In], order: Order, time: Duration) {
    let mut flags = vec![PollFlags::empty(); lanes.len()];
    sendable(outs, order).into_iter().for_each(|index| flags[outs[index].to] |= PollFlags::OUT);
    receivable(ins).into_iter().for_each(|index| flags[ins[index].from] |= PollFlags::IN);
    let mut descriptors: Vec<_> = lanes
        .iter()
        .zip(&flags)
        .filter(|(_, flags)| !flags.is_empty())
        .map(|(lane, flags)| PollFd::new(lane, *flags))
        .collect();
    let time =
        Timespec { tv_sec: i64::try_from(time.as_secs()).unwrap_or(i64::MAX), tv_nsec: i64::from(time.subsec_nanos()) };
    // Interrupted or not: the caller looks again.
    let _ = poll(&mut descriptors, Some(&time));
}
