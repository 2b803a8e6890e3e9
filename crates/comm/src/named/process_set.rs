//! A process set on one rank: operations from their submission to their end, and the threads that
//! run its cycles.
//!
//! A rank takes part in cycles while it has outstanding operations; without any, none of its
//! threads runs. One thread at a time drives (runs cycles): the set's own, or one that waits for an
//! operation.

use std::{
    any::Any,
    collections::HashMap,
    fmt,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use super::{
    driver::Driver,
    error::{Failure, of_world},
    execute::Site,
    handle::{Engine, Handle},
    membership::Membership,
    request::Request,
    submission::{Buffer, Callback, Completed, Submission},
};
use crate::ProcessGroup;

/// State that the set's threads share; its lock is never held while waiting for other ranks.
#[derive(Default)]
struct State {
    new: Vec<Submission>,
    /// When the first of `new` was submitted, and the bytes of all.
    first: Option<Instant>,
    bytes: usize,
    /// Names of outstanding operations, and when they were submitted.
    names: HashMap<Arc<str>, Instant>,
    outstanding: usize,
    driving: bool,
    /// The set's own thread sleeps until something is submitted.
    parked: bool,
    /// Threads that wait, and those of them that do not drive.
    waiters: usize,
    timed: usize,
    /// Cycles in a row in which no rank announced anything.
    empty: u32,
    ended: Option<Instant>,
    stop: bool,
    failure: Option<Failure>,
}

/// One process set.
pub(super) struct ProcessSet {
    pub(super) membership: Membership,
    group: Mutex<Option<Arc<dyn ProcessGroup>>>,
    state: Mutex<State>,
    /// For the set's own thread.
    work: Condvar,
    /// For threads that wait.
    done: Condvar,
    driver: Mutex<Driver>,
    pub(super) cycles: AtomicU64,
}

impl fmt::Debug for ProcessSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "process set of {:?}", self.membership.members)
    }
}

/// Submissions of this many bytes do not wait for others to share a cycle.
const URGENT: usize = 1 << 20;
/// Pause after cycles in which no rank announced anything.
const SHORTEST_REST: Duration = Duration::from_micros(50);
const LONGEST_REST: Duration = Duration::from_millis(2);
/// How long a shutdown waits for the operation in progress.
const GRACE: Duration = Duration::from_millis(500);

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl ProcessSet {
    pub(super) fn new(membership: Membership, group: Arc<dyn ProcessGroup>) -> Arc<Self> {
        let driver = Mutex::new(Driver::new(&membership));
        Arc::new(Self {
            membership,
            group: Mutex::new(Some(group)),
            state: Mutex::default(),
            work: Condvar::new(),
            done: Condvar::new(),
            driver,
            cycles: AtomicU64::new(0),
        })
    }

    /// Takes an operation. `drives`: the caller waits for it next.
    pub(super) fn submit(
        self: &Arc<Self>,
        request: Request,
        buffers: Vec<Buffer>,
        callback: Option<Callback>,
        keeps: Option<Box<dyn Any + Send>>,
        drives: bool,
    ) -> Result<Handle, Failure> {
        let waits = Arc::clone(self) as Arc<dyn Engine>;
        let (handle, since) = (Handle::new(waits, keeps), Instant::now());
        let mut state = lock(&self.state);
        if let Some(failure) = &state.failure {
            return Err(failure.clone());
        }
        if state.stop {
            return Err(Failure::ShutDown { tensors: vec![request.name.to_string()] });
        }
        if let Some(name) = request.names().find(|name| state.names.contains_key(*name)) {
            return Err(Failure::Duplicate { action: request.action.name(), tensor: name.to_string() });
        }
        for name in request.names() {
            state.names.insert(Arc::clone(name), since);
        }
        state.bytes += request.bytes();
        state.outstanding += 1;
        state.first.get_or_insert(since);
        state.new.push(Submission { request: Arc::new(request), buffers, handle: handle.clone(), callback, since });
        // A thread that drives now wakes the set's own if it leaves submissions behind.
        if !drives && !state.driving && (state.parked || state.bytes >= URGENT) {
            state.parked = false;
            self.work.notify_one();
        }
        Ok(handle)
    }

    /// Completes operations: first their names are free, then their callers are told.
    fn finish(&self, over: Vec<Completed>) {
        if over.is_empty() {
            return;
        }
        let mut state = lock(&self.state);
        for (submission, _) in &over {
            for name in submission.request.names() {
                state.names.remove(name);
            }
        }
        state.outstanding -= over.len();
        for (submission, result) in over {
            submission.handle.finish(result);
        }
        if state.waiters > 0 {
            self.done.notify_all();
        }
    }

    /// Runs one cycle. The caller has checked `driving`.
    fn drive<'a>(&'a self, mut state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        state.driving = true;
        let new = std::mem::take(&mut state.new);
        (state.bytes, state.first) = (0, None);
        drop(state);
        self.cycles.fetch_add(1, Ordering::Relaxed);
        let group = lock(&self.group).clone();
        let result = {
            let mut driver = lock(&self.driver);
            let cycle = AssertUnwindSafe(|| match &group {
                Some(group) => {
                    let finish = |over| self.finish(over);
                    driver.cycle(&Site { set: &self.membership, group: &**group, finish: &finish }, new)
                }
                None => Err(Failure::ShutDown { tensors: Vec::new() }),
            });
            catch_unwind(cycle).unwrap_or_else(|_| {
                Err(Failure::config("the engine of operations by name has panicked: report this as a bug"))
            })
        };
        if self.membership.timeline.is_active() {
            self.membership.timeline.flush();
        }
        let is_empty = match result {
            Ok(is_empty) => is_empty,
            Err(failure) => {
                // A failure of this rank alone, such as a lack of memory, must end the others'
                // waits too.
                if let Some(group) = &group {
                    group.give_up(&failure.to_string());
                }
                self.fail(&failure);
                false
            }
        };
        drop(group);
        let mut state = lock(&self.state);
        state.driving = false;
        state.ended = Some(Instant::now());
        state.empty = if is_empty { state.empty.saturating_add(1) } else { 0 };
        if state.waiters > 0 {
            self.done.notify_all();
        }
        state
    }

    /// Fails all outstanding and all later operations with this.
    fn fail(&self, failure: &Failure) {
        let mut over = lock(&self.driver).abandon();
        let mut state = lock(&self.state);
        over.append(&mut state.new);
        let mut tensors: Vec<_> = over.iter().flat_map(|it| it.request.names()).map(ToString::to_string).collect();
        tensors.sort_unstable();
        let failure = match failure.clone() {
            Failure::Comm { error, .. } => Failure::Comm { tensors, error: of_world(error, &self.membership.members) },
            Failure::ShutDown { .. } => Failure::ShutDown { tensors },
            other => other,
        };
        let later = match &failure {
            Failure::Comm { error, .. } => Failure::Comm { tensors: Vec::new(), error: error.clone() },
            other => other.clone(),
        };
        state.failure.get_or_insert(later);
        state.names.clear();
        state.outstanding = 0;
        for submission in over {
            submission.handle.finish(Err(failure.clone()));
        }
        self.done.notify_all();
        self.work.notify_all();
    }

    fn rest(empty: u32) -> Duration {
        if empty == 0 { Duration::ZERO } else { (SHORTEST_REST * (1 << empty.min(6))).min(LONGEST_REST) }
    }

    /// The set's own thread.
    pub(super) fn serve(&self) {
        let mut state = lock(&self.state);
        while !state.stop {
            if state.outstanding == 0 || state.driving || state.failure.is_some() {
                state.parked = true;
                state = self.work.wait(state).unwrap_or_else(PoisonError::into_inner);
                state.parked = false;
                continue;
            }
            let now = Instant::now();
            let due = match state.first {
                _ if state.timed > 0 || state.bytes >= URGENT => now,
                Some(first) => first + self.membership.settings.cycle,
                None => state.ended.unwrap_or(now) + Self::rest(state.empty),
            };
            if due > now {
                state = self.work.wait_timeout(state, due - now).unwrap_or_else(PoisonError::into_inner).0;
                continue;
            }
            state = self.drive(state);
        }
    }

    /// Whether a thread is in the middle of a cycle.
    pub(super) fn is_driven(&self) -> bool {
        lock(&self.state).driving
    }

    /// Fails outstanding operations, ends the set's thread and leaves the group.
    pub(super) fn close(&self) {
        let mut state = lock(&self.state);
        if std::mem::replace(&mut state.stop, true) {
            return;
        }
        self.work.notify_all();
        state.waiters += 1;
        let mut end = Instant::now() + GRACE;
        let mut said = false;
        while state.driving {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                if said {
                    break;
                }
                said = true;
                end = Instant::now() + 4 * GRACE;
                let names: Vec<_> = state.names.keys().map(ToString::to_string).collect();
                drop(state);
                if let Some(group) = lock(&self.group).clone() {
                    group.give_up(&format!(
                        "it was shut down while it waited for others in {}",
                        super::error::quoted(&names)
                    ));
                }
                state = lock(&self.state);
                continue;
            }
            state = self.done.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        state.waiters -= 1;
        let stuck = state.driving;
        drop(state);
        if !stuck {
            self.fail(&Failure::ShutDown { tensors: Vec::new() });
            lock(&self.driver).forget();
        }
        *lock(&self.group) = None;
    }
}

impl Engine for ProcessSet {
    fn wait(&self, handle: &Handle, limit: Option<Duration>) {
        let end = limit.map(|limit| Instant::now() + limit.min(Duration::from_secs(10 * 365 * 86_400)));
        let mut state = lock(&self.state);
        state.waiters += 1;
        state.timed += usize::from(end.is_some());
        while !handle.is_done() {
            if let Some(failure) = state.failure.as_ref().filter(|_| !state.driving) {
                // A panic has lost the submission.
                handle.finish(Err(failure.clone()));
                break;
            }
            let free = !state.driving && !state.stop;
            let time = match end {
                Some(end) => {
                    let left = end.saturating_duration_since(Instant::now());
                    if left.is_zero() {
                        break;
                    }
                    if free {
                        self.work.notify_one();
                    }
                    left
                }
                None if free => {
                    let rest = if state.new.is_empty() { Self::rest(state.empty) } else { Duration::ZERO };
                    let rested = state.ended.map_or(rest, |ended| ended.elapsed());
                    if rested >= rest {
                        state = self.drive(state);
                        continue;
                    }
                    rest - rested
                }
                None => LONGEST_REST * 50,
            };
            state = self.done.wait_timeout(state, time).unwrap_or_else(PoisonError::into_inner).0;
        }
        state.waiters -= 1;
        state.timed -= usize::from(end.is_some());
        if !state.driving {
            if state.outstanding > 0 {
                self.work.notify_one();
            }
            if state.waiters > 0 {
                self.done.notify_all();
            }
        }
    }
}
