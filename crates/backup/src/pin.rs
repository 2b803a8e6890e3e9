//! Captures are held while they are copied, and as long as one is, the server's logs grow. A target
//! that is slow, full or silent must not fill the server's disk: a watch lets a capture go beyond a
//! size, whatever its reader waits for. Then the copy begins again.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use shoal_store::{Capture, CaptureSource, DatabaseView, LogPosition, Logs};

use crate::BackupError;
use crate::error::io_at;

/// What logs may get while a capture is held, unless half of the databases is more: then a full
/// backup costs no more than what the logs have.
pub(crate) const LOG_BYTES: u64 = 256 << 20;

/// What they get between two moves into their files: no reason to let go even where the disk is
/// full.
const LITTLE: u64 = 16 << 20;

/// Between two looks.
const LOOK: Duration = Duration::from_millis(200);

/// A capture, until it is dropped or let go.
#[derive(Debug)]
pub(crate) struct Pin(Arc<Pinned>);

#[derive(Debug)]
struct Pinned {
    capture: Mutex<Option<Capture>>,
    positions: Vec<(&'static str, LogPosition)>,
    most: u64,
}

/// A capture that another thread has.
#[derive(Debug)]
pub(crate) struct Loan(Weak<Pinned>);

impl Loan {
    /// Whether that thread still reads from it.
    pub(crate) fn is_held(&self) -> bool {
        self.0.upgrade().is_some_and(|pinned| lock(&pinned.capture).is_some())
    }
}

/// Looks after what is held.
#[derive(Debug)]
pub(crate) struct LogWatch {
    shared: Arc<Shared>,
    log_bytes: u64,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    pins: Vec<Weak<Pinned>>,
    ends: bool,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether a log has grown by too much for a capture to be held any longer.
fn is_too_long(grown: u64, most: u64, free: u64) -> bool {
    // At most half of what was free when it was captured.
    grown >= most || (grown >= LITTLE && grown > free)
}

impl Pin {
    /// Reads from it. What this does must not wait for a target.
    pub(crate) fn with<T, E: Into<BackupError>>(
        &self,
        read: impl FnOnce(&Capture) -> Result<T, E>,
    ) -> Result<T, BackupError> {
        let capture = lock(&self.0.capture);
        read(capture.as_ref().ok_or(BackupError::LetGo)?).map_err(Into::into)
    }

    /// Whether all that it was captured for can still be read.
    pub(crate) fn is_held(&self) -> bool {
        lock(&self.0.capture).is_some()
    }

    /// For one who gives it away.
    pub(crate) fn loan(&self) -> Loan {
        Loan(Arc::downgrade(&self.0))
    }

    /// Frames of the longest of the logs.
    pub(crate) fn longest_log(&self) -> u32 {
        let capture = lock(&self.0.capture);
        capture.iter().flat_map(|it| &it.databases).map(DatabaseView::log_frames).max().unwrap_or(0)
    }

    /// The capture itself, which nothing looks after then.
    pub(crate) fn into_inner(self) -> Option<Capture> {
        lock(&self.0.capture).take()
    }
}

impl LogWatch {
    /// Of the logs of a data directory, which may get this number of bytes.
    pub(crate) fn begin(source: &CaptureSource, log_bytes: u64) -> Result<Self, BackupError> {
        let shared = Arc::new(Shared::default());
        let (watched, logs, root) = (Arc::clone(&shared), source.logs(), source.root().to_owned());
        let free = move || match rustix::fs::statvfs(&root) {
            Ok(disk) => disk.f_bavail.saturating_mul(disk.f_frsize),
            Err(_) => u64::MAX,
        };
        let watch = move || watched.watch(&logs, &free);
        let thread = thread::Builder::new().name("log watch".to_owned()).spawn(watch);
        let thread = thread.map_err(io_at("start", "a thread"))?;
        Ok(Self { shared, log_bytes, thread: Some(thread) })
    }

    /// Holds a capture.
    pub(crate) fn pin(&self, capture: Capture) -> Pin {
        let positions = capture.databases.iter().map(|view| (view.name(), view.position())).collect();
        let half = capture.databases.iter().map(DatabaseView::bytes).sum::<u64>() / 2;
        let most = self.log_bytes.max(half);
        let pinned = Arc::new(Pinned { capture: Mutex::new(Some(capture)), positions, most });
        lock(&self.shared.state).pins.push(Arc::downgrade(&pinned));
        Pin(pinned)
    }
}

impl Drop for LogWatch {
    fn drop(&mut self) {
        lock(&self.shared.state).ends = true;
        self.shared.changed.notify_all();
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

impl Shared {
    fn watch(&self, logs: &Logs, free: &dyn Fn() -> u64) {
        loop {
            let waited = self.changed.wait_timeout_while(lock(&self.state), LOOK, |state| !state.ends);
            let (mut state, _) = waited.unwrap_or_else(PoisonError::into_inner);
            if state.ends {
                return;
            }
            state.pins.retain(|pin| pin.strong_count() > 0);
            let pins: Vec<Arc<Pinned>> = state.pins.iter().filter_map(Weak::upgrade).collect();
            drop(state);
            for pin in pins {
                if is_too_long(logs.bytes_since(&pin.positions), pin.most, free()) {
                    // Waits for a read, never for a target.
                    drop(lock(&pin.capture).take());
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_may_grow_to_a_size_and_to_half_of_the_disk() {
        const GIB: u64 = 1 << 30;
        assert!(!is_too_long(LOG_BYTES - 1, LOG_BYTES, GIB));
        assert!(is_too_long(LOG_BYTES, LOG_BYTES, GIB));
        assert!(!is_too_long(100 << 20, LOG_BYTES, 101 << 20));
        assert!(is_too_long(100 << 20, LOG_BYTES, 99 << 20));
        // A disk that is full without us.
        assert!(!is_too_long(LITTLE - 1, LOG_BYTES, 0));
        assert!(is_too_long(LITTLE, LOG_BYTES, 0));
    }
}
