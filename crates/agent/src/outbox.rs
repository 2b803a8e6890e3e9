//! The one way out: everything that the agent says is numbered here, spooled, and sent by the
//! connection when there is one.

use std::path::Path;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use shoal_link::{Artifact, Frame, FrameError, Report, ReportBody, ToServer, encode};

use crate::clock::now_ms;
use crate::own_log::say;
use crate::spool::Spool;

/// How long to wait before a spool that could not be written (a full disk) is tried again.
const RETRY: Duration = Duration::from_millis(200);

/// Of the spool's bytes so many have their place on the disk from the beginning: enough for the
/// largest frame, a part of an artifact.
const RESERVED: u64 = (1 << 20) + (64 << 10);

/// Nobody will hear it any more: the server refused the agent, or the lease is over.
#[derive(Debug, thiserror::Error)]
#[error("the server is gone for good")]
pub(crate) struct Closed;

/// Shared by those who report and by the connection.
#[derive(Debug)]
pub(crate) struct Outbox {
    /// Held while a frame is numbered and appended, so that numbers have no gaps though one may
    /// wait for room.
    turn: Mutex<()>,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug)]
struct State {
    spool: Spool,
    closed: bool,
    connected: bool,
}

impl Outbox {
    /// An empty one. `capacity` bounds the bytes that wait for acknowledgement. At the bound,
    /// threads that report block, so the program's output is not read until the server has caught
    /// up.
    pub(crate) fn create(path: &Path, capacity: u64) -> std::io::Result<Self> {
        let spool = Spool::create(path, capacity)?;
        spool.reserve(RESERVED.min(capacity))?;
        let state = State { spool, closed: false, connected: false };
        Ok(Self { turn: Mutex::new(()), state: Mutex::new(state), changed: Condvar::new() })
    }

    /// Says something; waits while the spool is full.
    pub(crate) fn report(&self, body: ReportBody) -> Result<(), Closed> {
        self.report_at(now_ms(), body)
    }

    /// Says something that was so at this time, in milliseconds since the epoch.
    pub(crate) fn report_at(&self, at_ms: u64, body: ReportBody) -> Result<(), Closed> {
        self.append(|seq| encode(&Frame::Message(ToServer::Report(Report { seq, at_ms, body }))))
    }

    /// Says all of this, so that the server hears it at once if there is room for it.
    pub(crate) fn report_together(&self, at_ms: u64, bodies: Vec<ReportBody>) -> Result<(), Closed> {
        let frame = |(seq, body)| encode(&Frame::Message(ToServer::Report(Report { seq, at_ms, body })));
        self.append_all(|first| (first..).zip(bodies).map(frame).collect())
    }

    /// Sends a part of an artifact; waits while the spool is full, which bounds what is under way.
    pub(crate) fn part(&self, artifact: Artifact, bytes: Vec<u8>) -> Result<(), Closed> {
        self.append(|seq| encode::<ToServer>(&Frame::Part { seq, artifact, bytes }))
    }

    fn append(&self, frame: impl FnOnce(u64) -> Result<Vec<u8>, FrameError>) -> Result<(), Closed> {
        self.append_all(|first| frame(first).map(|frame| vec![frame]))
    }

    /// Numbers them from the number that it is given on.
    fn append_all(&self, frames: impl FnOnce(u64) -> Result<Vec<Vec<u8>>, FrameError>) -> Result<(), Closed> {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let frames = frames(self.lock().spool.next_number())
            .expect("what the agent says is far below the frame limit and always serialises");
        let mut state = self.lock();
        let mut complained = false;
        for frame in frames {
            loop {
                if state.closed {
                    return Err(Closed);
                }
                if !state.spool.has_room(frame.len()) {
                    // The sender must hear of those before it.
                    self.changed.notify_all();
                    state = self.wait(state);
                    continue;
                }
                match state.spool.append(&frame) {
                    Ok(()) => break,
                    Err(error) => {
                        if !std::mem::replace(&mut complained, true) {
                            say(format_args!(
                                "cannot write the spool ({error}); the program's output waits until it can be written"
                            ));
                        }
                        state = self.changed.wait_timeout(state, RETRY).unwrap_or_else(PoisonError::into_inner).0;
                    }
                }
            }
        }
        drop(state);
        self.changed.notify_all();
        Ok(())
    }

    /// A new connection, on which the server has said that everything up to `acked` is durable:
    /// where to send on from.
    pub(crate) fn connect(&self, acked: u64) -> u64 {
        let mut state = self.lock();
        state.spool.acknowledge(acked);
        state.connected = true;
        let position = state.spool.start();
        drop(state);
        self.changed.notify_all();
        position
    }

    /// The connection is lost; whoever waits in [`Self::next`] hears of it.
    pub(crate) fn disconnect(&self) {
        self.lock().connected = false;
        self.changed.notify_all();
    }

    /// Everything up to `seq` is durable on the server.
    pub(crate) fn acknowledge(&self, seq: u64) {
        self.lock().spool.acknowledge(seq);
        self.changed.notify_all();
    }

    /// Reads bytes to send from `position` on and returns their number. Waits for some, at most for
    /// `patience`; 0 means that none came, and that `position` lies between two frames. `None` when
    /// the connection is lost or the outbox closed.
    pub(crate) fn next(&self, position: u64, buffer: &mut [u8], patience: Duration) -> Option<usize> {
        let until = Instant::now() + patience;
        let mut state = self.lock();
        loop {
            if !state.connected || state.closed {
                return None;
            }
            // The server may acknowledge only what was sent, but a broken one must not make this
            // read what is gone.
            if position < state.spool.start() {
                return None;
            }
            if position < state.spool.end() {
                return match state.spool.read(position, buffer) {
                    Ok(count) => Some(count),
                    Err(error) => {
                        say(format_args!("cannot read the spool ({error}); connecting anew"));
                        None
                    }
                };
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Some(0);
            }
            state = self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// See [`Self::close`].
    pub(crate) fn is_closed(&self) -> bool {
        self.lock().closed
    }

    /// From now on nothing is taken or sent; whoever waits stops waiting.
    pub(crate) fn close(&self) {
        self.lock().closed = true;
        self.changed.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(&self, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        self.changed.wait(state).unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shoal_link::Decoder;
    use std::thread;

    const LONG: Duration = Duration::from_secs(60);

    fn note(text: &str) -> ReportBody {
        ReportBody::Note { text: text.into() }
    }

    #[test]
    fn numbers_have_no_gaps_though_the_spool_is_full_most_of_the_time() {
        let dir = tempfile::tempdir().unwrap();
        let outbox = Outbox::create(&dir.path().join("spool"), 300).unwrap();
        const EACH: usize = 200;
        thread::scope(|scope| {
            for producer in 0..4 {
                let outbox = &outbox;
                scope.spawn(move || (0..EACH).for_each(|n| outbox.report(note(&format!("{producer} {n}"))).unwrap()));
            }
            let (mut position, mut decoder, mut seen) = (outbox.connect(0), Decoder::default(), 0);
            let mut buffer = [0; 64];
            while seen < 4 * EACH as u64 {
                let count = outbox.next(position, &mut buffer, LONG).unwrap();
                decoder.push(&buffer[..count]);
                position += count as u64;
                while let Some(frame) = decoder.next::<ToServer>().unwrap() {
                    let Frame::Message(ToServer::Report(report)) = frame else { panic!("{frame:?}") };
                    seen += 1;
                    assert_eq!(report.seq, seen);
                    outbox.acknowledge(seen);
                }
            }
        });
    }

    #[test]
    fn closing_wakes_those_who_wait() {
        let dir = tempfile::tempdir().unwrap();
        let outbox = &Outbox::create(&dir.path().join("spool"), 150).unwrap();
        outbox.report(note("fits")).unwrap();
        thread::scope(|scope| {
            let full = scope.spawn(|| outbox.report(note("does not fit any more")));
            outbox.connect(0);
            let end = outbox.lock().spool.end();
            let idle = scope.spawn(move || outbox.next(end, &mut [0; 8], LONG));
            outbox.close();
            full.join().unwrap().unwrap_err();
            assert_eq!(idle.join().unwrap(), None);
        });
        assert_eq!(outbox.next(0, &mut [0; 8], LONG), None);
    }

    #[test]
    fn a_lost_connection_wakes_the_sender_and_a_new_one_begins_at_the_first_unacknowledged() {
        let dir = tempfile::tempdir().unwrap();
        let outbox = Outbox::create(&dir.path().join("spool"), 1000).unwrap();
        (0..3).for_each(|n| outbox.report(note(&n.to_string())).unwrap());
        let all = outbox.lock().spool.end();
        assert_eq!(outbox.connect(0), 0);
        thread::scope(|scope| {
            let sender = scope.spawn(|| outbox.next(all, &mut [0; 8], LONG));
            outbox.disconnect();
            assert_eq!(sender.join().unwrap(), None);
        });
        assert_eq!(outbox.connect(2), all * 2 / 3);
    }
}
