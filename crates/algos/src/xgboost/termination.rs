//! What a stop request (SIGTERM) does. Boosting ends after the round that is under way, and the
//! model of the finished rounds is saved as that of a training that came to its end: whatever a
//! tuning job calls best has a model. A round that takes longer than [`ROUND_TIMEOUT`] is not
//! waited for: the model of the rounds before it is saved. A process that has not begun to boost
//! ends at once.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, eventfd};
use signal_hook::consts::SIGTERM;
use signal_hook::iterator::Signals;

use super::failure::Failure;
use super::ffi::booster::Booster;
use super::{log, model_file};

/// From a stop request to the end of the round that is under way; below the shortest grace that an
/// agent gives.
const ROUND_TIMEOUT: Duration = Duration::from_secs(3);
/// The same on other hosts than the first, which alone saves the model and needs them for its
/// round.
const PEER_TIMEOUT: Duration = Duration::from_secs(6);
/// Between two copies of the model that are kept for rounds longer than [`ROUND_TIMEOUT`].
const COPY_INTERVAL: Duration = Duration::from_secs(1);
/// As shells report a process that SIGTERM ended: nobody takes a stopped training for a complete
/// one.
const TERMINATED: i32 = 128 + SIGTERM;
/// A stop reaches the hosts of a job one after the other: how long one that lost another waits to
/// hear of it.
const STOP_SPREADS: Duration = Duration::from_millis(500);
const STOP_POLL: Duration = Duration::from_millis(20);

/// Ends the process without running destructors: other threads may be in the library.
pub(super) fn end_process(code: i32) -> ! {
    signal_hook::low_level::exit(code)
}

/// The stop requests of this process, and what is to be saved when one comes.
pub(super) struct Termination {
    shared: Arc<Shared>,
    /// Exit code of a process that was stopped.
    code: i32,
    /// Boosting ended because of a request.
    has_stopped: AtomicBool,
}

struct Shared {
    requested: AtomicBool,
    /// Readable once a stop is requested.
    wake: OwnedFd,
    /// Held while a model file is written, so that no other thread writes or ends the process
    /// meanwhile.
    saved: Mutex<Saved>,
}

/// What can be saved.
enum Saved {
    /// Boosting has not begun, or models are saved one by one (cross-validation).
    Nothing,
    /// Boosting is under way.
    Boosting {
        is_first: bool,
        target: PathBuf,
        /// The newest copy of the model.
        copy: Option<Vec<u8>>,
        copied: Instant,
    },
    /// The model file is final.
    Model,
}

impl Termination {
    /// Begins to listen for SIGTERM. `is_success`: a stopped process ends with code 0
    /// (`save_model_on_termination`).
    ///
    /// # Errors
    /// The signal cannot be handled.
    pub(super) fn listen(model_directory: PathBuf, is_success: bool) -> Result<Self, Failure> {
        let failed = |source| Failure::Signals { source };
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(|error| failed(error.into()))?;
        let shared = Arc::new(Shared { requested: AtomicBool::new(false), wake, saved: Mutex::new(Saved::Nothing) });
        let code = if is_success { shoal_contract::SUCCESS } else { TERMINATED };
        let mut signals = Signals::new([SIGTERM]).map_err(failed)?;
        let heard = shared.clone();
        thread::Builder::new()
            .name("stop".to_owned())
            .spawn(move || {
                if signals.forever().next().is_some() {
                    heard.stop(&model_directory, code);
                }
            })
            .map_err(failed)?;
        Ok(Self { shared, code, has_stopped: AtomicBool::new(false) })
    }

    /// A stop is requested.
    pub(super) fn is_requested(&self) -> bool {
        self.shared.requested.load(Ordering::Acquire)
    }

    /// For another thread: whether a stop is requested.
    pub(super) fn requests(&self) -> StopRequests {
        StopRequests { shared: self.shared.clone(), code: self.code }
    }

    /// Readable once a stop is requested.
    pub(super) fn wake(&self) -> BorrowedFd<'_> {
        self.shared.wake.as_fd()
    }

    /// Boosting begins: from here on a stop request lets a round end. `copy` is the model of a
    /// checkpoint that it begins with.
    pub(super) fn begins(&self, is_first: bool, target: PathBuf, copy: Option<Vec<u8>>) {
        *self.shared.lock() = Saved::Boosting { is_first, target, copy, copied: Instant::now() };
    }

    /// A round is finished: keeps a copy of the model if the last one is old.
    pub(super) fn round_finished(&self, booster: &Booster) -> Result<(), Failure> {
        if let Saved::Boosting { is_first: true, copy, copied, .. } = &mut *self.shared.lock()
            && copied.elapsed() >= COPY_INTERVAL
        {
            *copy = Some(booster.to_bytes()?);
            *copied = Instant::now();
        }
        Ok(())
    }

    /// Boosting ends after so many rounds because of a request.
    pub(super) fn ends_after(&self, rounds: u32) {
        self.has_stopped.store(true, Ordering::Release);
        log::info(&format!("Stopped on request after {rounds} rounds; their model is kept"));
    }

    /// Writes a model file that a later one replaces.
    pub(super) fn save(&self, booster: &Booster, directory: &Path, name: &str) -> Result<(), Failure> {
        let _held = self.shared.lock();
        model_file::save(booster, directory, name)
    }

    /// Writes the final model file.
    pub(super) fn save_last(&self, booster: &Booster, directory: &Path, name: &str) -> Result<(), Failure> {
        let mut saved = self.shared.lock();
        model_file::save(booster, directory, name)?;
        *saved = Saved::Model;
        Ok(())
    }

    /// Exit code of a training that went well.
    pub(super) fn exit_code(&self) -> i32 {
        if self.has_stopped.load(Ordering::Acquire) { self.code } else { shoal_contract::SUCCESS }
    }
}

/// Whether this process, and with it the others of its job, is told to end.
pub(super) struct StopRequests {
    shared: Arc<Shared>,
    code: i32,
}

impl StopRequests {
    /// The exit code, if another host was lost because all are told to end: that is no failure, and
    /// only said. Blocks for a moment if they are not, or not yet.
    pub(super) fn explain(&self, loss: &impl std::fmt::Display) -> Option<i32> {
        let until = Instant::now() + STOP_SPREADS;
        while !self.shared.requested.load(Ordering::Acquire) {
            if Instant::now() > until {
                return None;
            }
            thread::sleep(STOP_POLL);
        }
        log::info(&format!("Stopped on request, as the other hosts are ({loss})"));
        Some(self.code)
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Saved> {
        self.saved.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends the process unless the training does so by itself.
    fn stop(&self, model_directory: &Path, code: i32) {
        let saved = self.lock();
        self.requested.store(true, Ordering::Release);
        let timeout = match *saved {
            Saved::Nothing => self.end(model_directory, code),
            Saved::Boosting { is_first: false, .. } => PEER_TIMEOUT,
            Saved::Boosting { .. } | Saved::Model => ROUND_TIMEOUT,
        };
        drop(saved);
        // An eventfd takes any number below 2^64 - 1.
        let _ = rustix::io::write(&self.wake, &1_u64.to_ne_bytes());
        thread::sleep(timeout);
        let saved = self.lock();
        if let Saved::Boosting { target, copy: Some(model), .. } = &*saved {
            match model_file::write(model, target) {
                Ok(()) => log::info("Stopped on request; the model of the last finished rounds is kept"),
                Err(failure) => log::error(&failure.to_string()),
            }
        }
        self.end(model_directory, code)
    }

    /// The caller holds the lock, so that no model file is half-written.
    fn end(&self, model_directory: &Path, code: i32) -> ! {
        model_file::clean(model_directory);
        end_process(code)
    }
}
