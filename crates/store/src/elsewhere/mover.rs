//! The threads that send contents to the store elsewhere, and remove there what no object has.

use std::collections::HashSet;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use sha2::{Digest, Sha256};

use super::rows::{self, Row};
use super::{Elsewhere, Failure, Movers, Outgoing, State, is_missing, name_of, number_of};
use crate::StoreError;
use crate::error::io_at;
use crate::object_writer::file_path;

/// Contents on their way.
pub(super) const AT_ONCE: usize = 4;
/// Contents removed by one call.
const REMOVED_AT_ONCE: u32 = 200;
/// After the first failure, and at most.
const PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(15);

/// Between two checks of trees that have ended and held contents.
const TREES_POLL: Duration = Duration::from_secs(30);

enum Task {
    Send(Row),
    Remove,
}

impl Movers {
    /// Starts the threads.
    pub(crate) fn start(elsewhere: Elsewhere) -> Result<Self, StoreError> {
        let mut movers = Self { elsewhere: Arc::new(elsewhere), threads: Vec::new() };
        for _ in 0..AT_ONCE {
            let elsewhere = Arc::clone(&movers.elsewhere);
            let started = thread::Builder::new().name("mover".to_owned()).spawn(move || elsewhere.work());
            movers.threads.push(started.map_err(|source| StoreError::Io {
                what: "start a thread for",
                path: movers.elsewhere.files.clone(),
                source,
            })?);
        }
        Ok(movers)
    }
}

impl Drop for Movers {
    fn drop(&mut self) {
        self.elsewhere.ends.store(true, Ordering::SeqCst);
        self.elsewhere.lock().failure = None;
        self.elsewhere.changed.notify_all();
        // One that panicked has printed why.
        self.threads.drain(..).for_each(|thread| drop(thread.join()));
    }
}

impl Elsewhere {
    /// Nothing is sent to, or removed from, a store that has another directory's contents.
    /// Returns whether that was found out now.
    fn ensure_claimed(&self) -> Result<bool, StoreError> {
        if self.is_claimed.load(Ordering::SeqCst) {
            return Ok(false);
        }
        self.store.claim(&self.owner, true)?;
        self.is_claimed.store(true, Ordering::SeqCst);
        Ok(true)
    }

    fn ends(&self) -> bool {
        self.ends.load(Ordering::SeqCst)
    }

    fn work(&self) {
        while let Some(task) = self.next() {
            let result = match &task {
                Task::Send(row) => self.send(row),
                Task::Remove => self.remove(),
            };
            let mut state = self.lock();
            match task {
                Task::Remove => {
                    state.is_removing = false;
                    // There may be more.
                    state.has_unnamed |= !matches!(result, Ok(false));
                }
                Task::Send(row) => state.sent(row, &result),
            }
            match result {
                Ok(true) => state.failure = None,
                // The store was not asked.
                Ok(false) => {}
                Err(error) => state.failed(&error),
            }
            self.evict(&mut state, 0);
            self.changed.notify_all();
        }
    }

    fn next(&self) -> Option<Task> {
        let mut state = self.lock();
        loop {
            if self.ends() {
                return None;
            }
            let pause =
                state.failure.as_ref().map(|failure| failure.again_at.saturating_duration_since(Instant::now()));
            match pause {
                Some(pause) if !pause.is_zero() => {
                    state = self.changed.wait_timeout(state, pause).expect("no holder of this lock panics").0;
                    continue;
                }
                _ => {}
            }
            if state.has_unnamed && !state.is_removing {
                (state.has_unnamed, state.is_removing) = (false, true);
                return Some(Task::Remove);
            }
            if let Some(row) = state.queue.pop_front() {
                state.sending.insert(row.file.clone());
                return Some(Task::Send(row));
            }
            if !state.waits_for_trees {
                state = self.changed.wait(state).expect("no holder of this lock panics");
                continue;
            }
            let (woken, waited) = self.changed.wait_timeout(state, TREES_POLL).expect("no holder of this lock panics");
            state = woken;
            if waited.timed_out() {
                (state.waits_for_trees, state.has_unnamed) = (false, true);
            }
        }
    }

    /// Sends a content; returns whether the store has it now, for an object.
    fn send(&self, row: &Row) -> Result<bool, StoreError> {
        let name = name_of(&row.file);
        self.ensure_claimed()?;
        if let Some(upload) = rows::upload(&self.index, &row.file)? {
            self.store.abort(&name, &upload)?;
        }
        if !rows::begin(&self.index, &row.file)? {
            return Ok(false);
        }
        let path = file_path(&self.files, &row.file);
        let file = match File::open(&path) {
            // Its object has gone since, or it is damaged, which its readers find.
            Err(error) if is_missing(&error) => return Ok(false),
            file => file.map_err(io_at("open", &path))?,
        };
        let mut hash = Sha256::new();
        let mut read = |at: u64, length: usize| {
            let mut bytes = vec![0; length];
            file.read_exact_at(&mut bytes, at).map_err(io_at("read", &path))?;
            hash.update(&bytes);
            Ok(bytes)
        };
        self.store.send(Outgoing {
            name: &name,
            size: row.size,
            read: &mut read,
            begun: &|upload| rows::note_upload(&self.index, &row.file, upload),
            is_cancelled: &|| self.ends(),
        })?;
        rows::end(&self.index, &row.file, &hash.finalize().into())
    }

    /// Removes contents that no object has and no reader needs; `false`: there are none.
    fn remove(&self) -> Result<bool, StoreError> {
        let is_found = self.ensure_claimed()?;
        let all = rows::unnamed(&self.index, REMOVED_AT_ONCE)?;
        let held = if all.is_empty() { HashSet::new() } else { self.held()? };
        let unused: Vec<Row> = {
            let mut state = self.lock();
            let is_used = |row: &Row| state.sending.contains(&row.file) || state.cache.is_pinned(number_of(&row.file));
            let (used, unused) = all.into_iter().partition::<Vec<_>, _>(is_used);
            state.waits_for_readers |= !used.is_empty();
            let (held, unused) = unused.into_iter().partition::<Vec<_>, _>(|row| held.contains(&row.file));
            state.waits_for_trees |= !held.is_empty();
            unused
        };
        if unused.is_empty() {
            return Ok(is_found);
        }
        for row in &unused {
            row.upload.iter().try_for_each(|upload| self.store.abort(&name_of(&row.file), upload))?;
        }
        let names: HashSet<String> = unused.iter().map(|row| name_of(&row.file)).collect();
        self.store.remove(&Vec::from_iter(names))?;
        rows::removed(&self.index, &unused)?;
        Ok(true)
    }
}

impl State {
    /// Nothing is sent before a pause.
    fn failed(&mut self, error: &StoreError) {
        let cause = std::error::Error::source(error).map_or(String::new(), |cause| format!(": {cause}"));
        let times = self.failure.as_ref().map_or(0, |failure| failure.times) + 1;
        let pause = PAUSE.saturating_mul(1 << times.min(6)).min(LONGEST_PAUSE);
        self.failure = Some(Failure { text: format!("{error}{cause}"), times, again_at: Instant::now() + pause });
    }

    /// A content was sent, or not.
    fn sent(&mut self, row: Row, result: &Result<bool, StoreError>) {
        self.sending.remove(&row.file);
        match result {
            // One that the store refuses holds up no other.
            Err(_) => self.queue.push_back(row),
            Ok(is_there) => {
                self.unsent_bytes -= row.size;
                match is_there {
                    true => self.cache.add(number_of(&row.file), row.size),
                    // What came of it meanwhile is to be removed.
                    false => self.has_unnamed = true,
                }
            }
        }
    }
}
