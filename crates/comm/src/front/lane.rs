//! Operations that follow each other: tickets, and a thread for those that progress by themselves.

use std::{
    collections::VecDeque,
    fmt,
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    thread,
};

use crate::{Call, Error, Work};

/// How many calls are remembered that ended before every rank had seen them.
const REMEMBERED: usize = 64;

/// Operations that follow each other in the order of their calls.
#[derive(Debug, Default)]
pub(super) struct Lane {
    /// Tickets given out.
    issued: AtomicU64,
    /// Tickets whose operations are over: the ticket of that number has its turn.
    served: AtomicU64,
    /// Threads that wait for their turn asleep.
    waiting: AtomicUsize,
    line: Mutex<Line>,
    changed: Condvar,
    recent: Mutex<VecDeque<(u64, Call)>>,
}

/// Operations that progress by themselves and have not begun.
#[derive(Default)]
struct Line {
    jobs: VecDeque<Job>,
    has_worker: bool,
    closed: bool,
}

/// Does an operation of this number.
type Perform = dyn FnOnce(u64, &Call) -> Result<(), Error> + Send;

struct Job {
    number: u64,
    call: Call,
    perform: Box<Perform>,
    work: Work,
}

impl fmt::Debug for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} operations", self.jobs.len())
    }
}

/// A ticket whose turn it is; the next one's when dropped.
#[derive(Debug)]
pub(super) struct Turn<'a> {
    lane: &'a Lane,
    number: u64,
    has_waited: bool,
}

impl Turn<'_> {
    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// Whether it was not its turn at once.
    pub(super) fn has_waited(&self) -> bool {
        self.has_waited
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.lane.served.store(self.number + 1, Ordering::SeqCst);
        if self.lane.waiting.load(Ordering::SeqCst) > 0 {
            drop(self.lane.line());
            self.lane.changed.notify_all();
        }
    }
}

impl Lane {
    fn line(&self) -> MutexGuard<'_, Line> {
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a ticket and waits for its turn.
    #[inline]
    pub(super) fn next_turn(&self) -> Turn<'_> {
        let number = self.issued.fetch_add(1, Ordering::Relaxed);
        self.wait_for(number)
    }

    #[inline]
    fn wait_for(&self, number: u64) -> Turn<'_> {
        let has_waited = self.served.load(Ordering::Acquire) != number;
        if has_waited {
            self.wait_asleep(number);
        }
        Turn { lane: self, number, has_waited }
    }

    #[cold]
    fn wait_asleep(&self, number: u64) {
        let mut line = self.line();
        self.waiting.fetch_add(1, Ordering::SeqCst);
        while self.served.load(Ordering::SeqCst) != number {
            line = self.changed.wait(line).unwrap_or_else(PoisonError::into_inner);
        }
        self.waiting.fetch_sub(1, Ordering::SeqCst);
    }

    /// Puts an operation into the line of those that progress by themselves; `work` is over when it
    /// is done.
    pub(super) fn enqueue(
        self: &Arc<Self>,
        call: Call,
        work: Work,
        perform: impl FnOnce(u64, &Call) -> Result<(), Error> + Send + 'static,
    ) -> Result<(), Error> {
        let mut line = self.line();
        if !line.has_worker {
            let lane = Arc::clone(self);
            let thread = thread::Builder::new().name("shoal-comm".to_owned()).spawn(move || lane.work());
            thread.map_err(|source| {
                Error::io("cannot start a thread for an operation that progresses by itself", source)
            })?;
            line.has_worker = true;
        }
        // Under the line's lock, so that the line has the tickets in their order.
        let number = self.issued.fetch_add(1, Ordering::Relaxed);
        line.jobs.push_back(Job { number, call, perform: Box::new(perform), work });
        drop(line);
        self.changed.notify_all();
        Ok(())
    }

    /// The thread of those that progress by themselves: does them in turn, and ends when the group
    /// is gone and nothing is left.
    fn work(&self) {
        loop {
            let mut line = self.line();
            let job = loop {
                if let Some(job) = line.jobs.pop_front() {
                    break job;
                }
                if line.closed {
                    return;
                }
                line = self.changed.wait(line).unwrap_or_else(PoisonError::into_inner);
            };
            drop(line);
            let Job { number, call, perform, work } = job;
            let turn = self.wait_for(number);
            let result = perform(number, &call);
            drop(turn);
            work.finish(result);
        }
    }

    /// The group is gone: the thread may end.
    pub(super) fn close(&self) {
        self.line().closed = true;
        self.changed.notify_all();
    }

    /// The number of the ticket that was given out last.
    pub(super) fn last_number(&self) -> u64 {
        self.issued.load(Ordering::Relaxed).saturating_sub(1)
    }

    /// Keeps what was called, for ranks that find later that they called something else.
    pub(super) fn remember(&self, number: u64, call: &Call) {
        let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        if recent.len() == REMEMBERED {
            recent.pop_front();
        }
        recent.push_back((number, call.clone()));
    }

    /// What was called as this number, if that is remembered.
    pub(super) fn recall(&self, number: u64) -> Option<String> {
        let recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        recent.iter().find(|(remembered, _)| *remembered == number).map(|(_, call)| call.to_string())
    }
}
