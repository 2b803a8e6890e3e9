//! One of NCCL's communicators, which blocks nobody: what it does can be waited for with a
//! deadline, and ended.

#![expect(unsafe_code, reason = "a foreign library is called by address")]

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use cudarc::nccl::sys::{ncclComm_t, ncclUniqueId};

use super::{
    device::{Device, Stream},
    library::{Answer, IN_PROGRESS, Library, SUCCESS},
    steps::Step,
};
use crate::{
    Error,
    guard::{Backoff, Guard, Pace},
};

/// How long a communicator that is not used any more waits for the others' part, so that nobody
/// loses what it still reads.
const FAREWELL: Duration = Duration::from_secs(1);
/// How long an error of NCCL's waits for the news that a rank is gone, which would be its reason.
const NEWS: Duration = Duration::from_millis(300);

/// Some ranks' GPUs, connected by NCCL. Does one operation at a time.
pub(super) struct Communicator {
    library: &'static Library,
    raw: ncclComm_t,
    stream: Stream,
    /// By NCCL; it is of no more use.
    is_aborted: AtomicBool,
    /// The other ranks, by the numbers of the group that it serves.
    others: Vec<usize>,
}

// SAFETY: NCCL lets any thread use a communicator, one at a time; whoever has a turn in its lane is
// that one.
unsafe impl Send for Communicator {}
// SAFETY: as above.
unsafe impl Sync for Communicator {}

impl fmt::Debug for Communicator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Communicator with {:?} on {:?}", self.others, self.stream)
    }
}

/// A rank's place in a communicator.
#[derive(Debug, Clone, Copy)]
pub(super) struct Seat {
    pub(super) rank: usize,
    pub(super) size: usize,
}

impl Communicator {
    /// Connects with the others that have the same id.
    pub(super) fn connect(
        library: &'static Library,
        device: &Arc<Device>,
        id: ncclUniqueId,
        seat: Seat,
        others: Vec<usize>,
        guard: &Guard<'_>,
    ) -> Result<Self, Error> {
        let stream = Stream::new(device)?;
        let _entered = device.enter()?;
        // SAFETY: the GPU's context is current.
        let raw = unsafe { library.begin(id, seat.rank, seat.size)? };
        let communicator = Self { library, raw, stream, is_aborted: AtomicBool::new(false), others };
        match communicator.settle(guard) {
            Ok(()) => Ok(communicator),
            Err(error) => Err(communicator.give_up(error, guard)),
        }
    }

    pub(super) fn stream(&self) -> &Stream {
        &self.stream
    }

    /// Does an operation and waits for its end; `meet` is called while the GPU works. After an
    /// error the communicator is of no more use. The GPU's context is current.
    ///
    /// # Safety
    /// The steps' memory is reached by the GPU, valid for their lengths, and nobody else's until
    /// this returns.
    pub(super) unsafe fn perform(
        &self,
        steps: &[Step],
        guard: &Guard<'_>,
        meet: impl FnOnce() -> Result<(), Error>,
    ) -> Result<(), Error> {
        // SAFETY: the caller's promise. Whatever goes wrong, the communicator is aborted below,
        // after which its GPU does nothing more.
        let begun = unsafe { self.library.issue(steps, self.raw, self.stream.raw()) };
        let done = begun.and_then(|()| meet()).and_then(|()| self.settle(guard)).and_then(|()| self.drain(guard));
        done.map_err(|error| self.give_up(error, guard))
    }

    fn state(&self) -> Answer {
        // SAFETY: not aborted: operations end with the first error, and this is asked within one.
        unsafe { self.library.state(self.raw) }
    }

    /// Waits until the stream has been given all that was begun.
    fn settle(&self, guard: &Guard<'_>) -> Result<(), Error> {
        self.wait(guard, || match self.state() {
            SUCCESS => Ok(true),
            IN_PROGRESS => Ok(false),
            answer => Err(self.library.failure(answer, &guard.at().operation)),
        })
    }

    /// Waits until the stream has done it.
    fn drain(&self, guard: &Guard<'_>) -> Result<(), Error> {
        self.wait(guard, || {
            let is_done = self.stream.is_done()?;
            match self.state() {
                _ if is_done => Ok(true),
                SUCCESS | IN_PROGRESS => Ok(false),
                answer => Err(self.library.failure(answer, &guard.at().operation)),
            }
        })
    }

    fn wait(&self, guard: &Guard<'_>, look: impl Fn() -> Result<bool, Error>) -> Result<(), Error> {
        let mut backoff = Backoff::default();
        while !look()? {
            if let Pace::Sleep(time) = guard.turn(&mut backoff, &|| self.others.clone())? {
                thread::sleep(time);
            }
        }
        Ok(())
    }

    /// Ends what the GPU does. NCCL's own errors mean a lost rank more often than not: then that is
    /// the error.
    fn give_up(&self, error: Error, guard: &Guard<'_>) -> Error {
        self.abort();
        if !matches!(error, Error::Io { .. }) {
            return error;
        }
        let end = Instant::now() + NEWS;
        while guard.check().is_ok() && Instant::now() < end {
            thread::sleep(Duration::from_millis(1));
        }
        guard.check().err().unwrap_or(error)
    }

    fn abort(&self) {
        if self.is_aborted.swap(true, Ordering::AcqRel) {
            return;
        }
        // SAFETY: made in `connect`, not aborted before. What NCCL says about it changes nothing.
        let _ = unsafe { self.library.abort(self.raw) };
    }
}

impl Drop for Communicator {
    fn drop(&mut self) {
        let Ok(_entered) = self.stream.device().enter() else { return };
        if self.is_aborted.load(Ordering::Acquire) {
            return;
        }
        // SAFETY: not aborted, and nobody else has it.
        let mut state = unsafe { self.library.finalize(self.raw) };
        let end = Instant::now() + FAREWELL;
        while state == IN_PROGRESS && Instant::now() < end {
            thread::sleep(Duration::from_micros(200));
            state = self.state();
        }
        if state == SUCCESS {
            // SAFETY: finalized, and of no more use.
            let _ = unsafe { self.library.destroy(self.raw) };
        } else {
            self.abort();
        }
    }
}
