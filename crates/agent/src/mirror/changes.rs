//! What is to be sent and when, shared by the watcher, who finds out, the sender, and the agent's
//! main loop, who ends it.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use shoal_link::ToAgent;

/// From the last event of a file until it is read. A temporary file gets its final name meanwhile,
/// and a file that is rewritten repeatedly is read once.
pub(crate) const SETTLE: Duration = Duration::from_millis(150);

/// A closed file is sent only after this time. A program that was killed closes its files, too, and
/// on a busy machine the agent learns of that end a little later.
const LAST_MOMENT: Duration = Duration::from_millis(500);

/// Files that may wait for the server's answer.
const MOST_UNANSWERED: usize = 64;

/// How often to look where the kernel does not tell.
const POLL: Duration = Duration::from_secs(1);

/// Why a file is to be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Why {
    /// Somebody who could write closed it at this time; it may be a temporary one.
    Closed(Instant),
    /// It was moved or linked to where it is, or was found there.
    Placed,
}

/// What the sender does next.
#[derive(Debug)]
pub(crate) enum Step {
    /// Send this file.
    Send(PathBuf, Why),
    /// Look at all files.
    Rescan,
    /// The server said something; `None` when the connection broke.
    Answer(Option<ToAgent>),
    /// All is answered, and no more will come.
    Finished,
    /// Leave it as it is.
    GiveUp,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Changes {
    /// From the event of a file that was placed, and of one that was closed, until it is due.
    waits: (Duration, Duration),
    is_ordered: bool,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    due: BTreeMap<(Instant, PathBuf), Why>,
    /// When each of those is due.
    times: HashMap<PathBuf, Instant>,
    /// Of which connection, and what it said.
    answers: VecDeque<(u64, Option<ToAgent>)>,
    rescan: bool,
    /// The kernel does not tell of changes (any more).
    polled: Option<Instant>,
    /// The program has ended, and whether it was killed.
    ended: Option<(Instant, bool)>,
    /// All that happened before its end is known.
    complete: bool,
    /// Files that the program's death may have cut short.
    cut_short: Vec<PathBuf>,
    gave_up: bool,
}

impl State {
    fn put(&mut self, path: PathBuf, at: Instant, why: Why) {
        if let Some(before) = self.times.remove(&path) {
            self.due.remove(&(before, path.clone()));
        }
        self.times.insert(path.clone(), at);
        self.due.insert((at, path), why);
    }

    fn complete(&mut self) {
        let Some((end, was_killed)) = self.ended else { return };
        if std::mem::replace(&mut self.complete, true) {
            return;
        }
        if was_killed && self.polled.is_some() {
            // Only the looks before the end tell what is whole.
            self.due.clear();
            self.times.clear();
        } else if was_killed {
            let last = |why: &Why| matches!(why, Why::Closed(at) if *at + LAST_MOMENT > end);
            let cut: Vec<_> = self.due.iter().filter(|(_, why)| last(why)).map(|((_, path), _)| path.clone()).collect();
            for path in &cut {
                self.forget(path);
            }
            self.cut_short = cut;
        }
        // Nothing changes any more.
        for (path, why) in std::mem::take(&mut self.due).into_iter().map(|((_, path), why)| (path, why)) {
            self.put(path, end, why);
        }
        self.rescan = true;
    }

    fn forget(&mut self, path: &Path) {
        if let Some(at) = self.times.remove(path) {
            self.due.remove(&(at, path.to_owned()));
        }
    }
}

impl Default for Changes {
    fn default() -> Self {
        Self::with_waits(SETTLE, LAST_MOMENT)
    }
}

impl Changes {
    fn with_waits(placed: Duration, closed: Duration) -> Self {
        Self { waits: (placed, closed), is_ordered: false, state: Mutex::default(), changed: Condvar::new() }
    }

    /// For files that are complete when they have their names, and due then, in the order in which
    /// they got them.
    pub(crate) fn ordered() -> Self {
        Self { is_ordered: true, ..Self::with_waits(Duration::ZERO, Duration::ZERO) }
    }

    /// A file was found by a look at its directory. It may be older than what events have reported,
    /// so that where the order matters all files are looked at.
    pub(crate) fn add_found(&self, path: PathBuf) {
        if self.is_ordered { self.rescan() } else { self.add(path, Why::Placed) }
    }

    /// A file has changed. What was due before stays due when it was, so that a file that changes
    /// all the time is sent all the same.
    pub(crate) fn add(&self, path: PathBuf, why: Why) {
        let mut state = self.lock();
        let wait = match why {
            _ if state.complete => Duration::ZERO,
            Why::Closed(_) => self.waits.1,
            Why::Placed => self.waits.0,
        };
        let at = state.times.get(&path).copied().unwrap_or_else(|| Instant::now() + wait);
        state.put(path, at, why);
        drop(state);
        self.changed.notify_all();
    }

    /// A file is to be sent, but not before so long.
    pub(crate) fn add_later(&self, path: PathBuf, wait: Duration) {
        let mut state = self.lock();
        if !state.times.contains_key(&path) {
            state.put(path, Instant::now() + wait, Why::Placed);
        }
    }

    /// Something may have been missed.
    pub(crate) fn rescan(&self) {
        self.lock().rescan = true;
        self.changed.notify_all();
    }

    /// From now on changes are looked for.
    pub(crate) fn poll(&self) {
        self.lock().polled.get_or_insert_with(Instant::now);
        self.changed.notify_all();
    }

    /// Whether changes are looked for.
    pub(crate) fn is_polled(&self) -> bool {
        self.lock().polled.is_some()
    }

    /// What the server said on a connection; `None` for its end.
    pub(crate) fn answer(&self, connection: u64, answer: Option<ToAgent>) {
        self.lock().answers.push_back((connection, answer));
        self.changed.notify_all();
    }

    /// The program has ended. [`Self::complete`] is to follow.
    pub(crate) fn end(&self, was_killed: bool) {
        self.lock().ended.get_or_insert_with(|| (Instant::now(), was_killed));
    }

    /// Everything that happened before the end was added.
    pub(crate) fn complete(&self) {
        self.lock().complete();
        self.changed.notify_all();
    }

    /// Whether the program has ended.
    pub(crate) fn has_ended(&self) -> bool {
        self.lock().ended.is_some()
    }

    /// Whether the program was killed and only looks tell which files are whole.
    pub(crate) fn is_polled_and_killed(&self) -> bool {
        let state = self.lock();
        state.polled.is_some() && state.ended.is_some_and(|(_, was_killed)| was_killed)
    }

    /// How long ago the program ended.
    pub(crate) fn since_end(&self) -> Option<Duration> {
        self.lock().ended.map(|(end, _)| end.elapsed())
    }

    /// Files that were open for writing, it seems, when the program was killed.
    pub(crate) fn cut_short(&self) -> Vec<PathBuf> {
        self.lock().cut_short.clone()
    }

    /// Nobody wants the files any more.
    pub(crate) fn give_up(&self) {
        self.lock().gave_up = true;
        self.changed.notify_all();
    }

    /// Whether the files are wanted no more.
    pub(crate) fn has_given_up(&self) -> bool {
        self.lock().gave_up
    }

    /// Waits, but not when it was given up; says whether it was.
    pub(crate) fn pause(&self, pause: Duration) -> bool {
        let state = self.lock();
        let (state, _) = self
            .changed
            .wait_timeout_while(state, pause, |state| !state.gave_up)
            .unwrap_or_else(PoisonError::into_inner);
        state.gave_up
    }

    /// Waits for something to do, for a sender with so many unanswered files on this connection.
    pub(crate) fn next(&self, connection: u64, unanswered: usize) -> Step {
        let mut state = self.lock();
        loop {
            if state.gave_up {
                return Step::GiveUp;
            }
            while let Some((of, answer)) = state.answers.pop_front() {
                if of == connection {
                    return Step::Answer(answer);
                }
            }
            let now = Instant::now();
            let mut wake = None;
            if unanswered < MOST_UNANSWERED {
                if state.polled.is_some_and(|last| last + POLL <= now) {
                    state.polled = Some(now);
                    state.rescan = true;
                }
                if std::mem::take(&mut state.rescan) {
                    return Step::Rescan;
                }
                wake = state.polled.map(|last| last + POLL);
                if let Some(((at, _), _)) = state.due.first_key_value() {
                    let at = *at;
                    if at <= now
                        && let Some(((_, path), why)) = state.due.pop_first()
                    {
                        state.times.remove(&path);
                        return Step::Send(path, why);
                    }
                    wake = Some(wake.map_or(at, |wake| wake.min(at)));
                }
            }
            if state.complete && state.due.is_empty() && unanswered == 0 {
                return Step::Finished;
            }
            state = match wake {
                Some(wake) => {
                    let wait = wake.saturating_duration_since(now);
                    self.changed.wait_timeout(state, wait).unwrap_or_else(PoisonError::into_inner).0
                }
                None => self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
            };
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether an error only says that a file is not there any more, or no longer what it was.
pub(crate) fn is_gone(error: &io::Error) -> bool {
    use rustix::io::Errno;
    let gone = [Errno::LOOP, Errno::NOTDIR, Errno::NXIO, Errno::ISDIR].map(|errno| errno.raw_os_error());
    error.kind() == io::ErrorKind::NotFound || error.raw_os_error().is_some_and(|code| gone.contains(&code))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(changes: &Changes) -> Vec<String> {
        let mut sent = Vec::new();
        loop {
            match changes.next(1, 0) {
                Step::Send(path, _) => sent.push(path.display().to_string()),
                Step::Rescan => sent.push("*".to_owned()),
                Step::Finished => return sent,
                other => panic!("{other:?}"),
            }
        }
    }

    #[test]
    fn a_file_is_sent_once_however_often_it_changed_meanwhile() {
        let changes = Changes::default();
        for name in ["b", "a", "b", "b"] {
            changes.add(name.into(), Why::Placed);
        }
        assert!(
            matches!(changes.next(1, 0), Step::Send(path, _) if path == Path::new("b")),
            "the first to change is the first to be sent"
        );
        changes.add("b".into(), Why::Placed);
        changes.end(false);
        changes.complete();
        assert_eq!(sent(&changes), ["*", "a", "b"]);
    }

    #[test]
    fn what_a_kill_may_have_cut_short_is_not_sent() {
        for (killed, expected) in [(true, vec!["*", "moved"]), (false, vec!["*", "moved", "torn"])] {
            let changes = Changes::default();
            changes.add("moved".into(), Why::Placed);
            changes.add("torn".into(), Why::Closed(Instant::now()));
            changes.end(killed);
            changes.complete();
            assert_eq!(sent(&changes), expected);
            assert_eq!(changes.cut_short().len(), usize::from(killed));
        }
    }

    #[test]
    fn what_was_found_by_looking_is_looked_at_again_after_a_kill() {
        let changes = Changes::default();
        changes.poll();
        changes.add("found".into(), Why::Placed);
        changes.end(true);
        changes.complete();
        assert!(changes.is_polled_and_killed());
        assert_eq!(sent(&changes), ["*"]);
    }

    #[test]
    fn what_is_to_be_sent_again_is_waited_for() {
        let changes = Changes::default();
        changes.end(false);
        changes.complete();
        changes.add_later("refused".into(), Duration::from_millis(20));
        assert_eq!(sent(&changes), ["*", "refused"]);
    }

    #[test]
    fn answers_of_a_connection_that_is_gone_are_not_heard() {
        let changes = Changes::default();
        changes.answer(1, None);
        changes.answer(2, Some(ToAgent::Ready));
        assert!(matches!(changes.next(2, MOST_UNANSWERED), Step::Answer(Some(ToAgent::Ready))));
        changes.give_up();
        assert!(matches!(changes.next(2, 0), Step::GiveUp));
    }
}
