//! Contents of objects in a store elsewhere. What is acknowledged is durable on the local disk, as
//! without such a store: the index that gives objects their names is there, too, so a content that
//! was sent first would be no safer. Threads ([`mover`]) then send each content that is longer than
//! [`crate::object_writer::SMALL`], and its local file becomes a cached one. A row for each content
//! ([`rows`]) has how far that is, in the transaction of the object's own row: whatever a crash cut
//! short is done again, and what the store has without need is removed.

mod content_store;
mod held;
mod mover;
mod reading;
pub(crate) mod rows;

#[cfg(test)]
mod tests;

use std::collections::{HashSet, VecDeque};
use std::fmt::Write;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::Instant;

pub use content_store::{ContentStore, Outgoing, ReadContent};
pub use held::ContentAddress;
pub(crate) use held::FOLDER as HELD;
pub(crate) use reading::{Pin, Remote};

use crate::content_cache::Cache;
use rows::Row;

use crate::error::io_at;
use crate::object_writer::file_path;
use crate::reserve::Reserve;
use crate::sqlite::Database;
use crate::{DataDir, ObjectMeta, StoreError};

/// A store elsewhere, and how much of its contents may be on the local disk.
#[derive(Debug, Clone)]
pub struct ElsewhereOptions {
    /// The store.
    pub store: Arc<dyn ContentStore>,
    /// Bytes of local files: those that wait to be sent, and those that are kept to be read.
    pub local_bytes: u64,
}

/// How far contents are on their way.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ElsewhereStatus {
    /// Of the store.
    pub location: String,
    /// Contents that wait to be sent.
    pub waiting: u64,
    /// Their bytes.
    pub waiting_bytes: u64,
    /// Bytes of local files that the store has, too.
    pub cached_bytes: u64,
    /// What the store answered last, if that was an error.
    pub failure: Option<String>,
}

/// The contents of a data directory that are elsewhere, or will be.
#[derive(Debug)]
pub(crate) struct Elsewhere {
    store: Arc<dyn ContentStore>,
    local_bytes: u64,
    files: PathBuf,
    /// Where trees are whose readers need contents.
    trees: PathBuf,
    index: Arc<Database>,
    reserve: Reserve,
    state: Mutex<State>,
    changed: Condvar,
    ends: AtomicBool,
    /// The directory's id.
    owner: String,
    /// The store was found to be this directory's.
    is_claimed: AtomicBool,
}

#[derive(Debug, Default)]
struct State {
    queue: VecDeque<Row>,
    /// Files that a thread sends.
    sending: HashSet<String>,
    /// Bytes of both.
    unsent_bytes: u64,
    /// There may be contents to remove.
    has_unnamed: bool,
    /// Some of them are still read.
    waits_for_readers: bool,
    /// Some of them are held by trees, which end without a word.
    waits_for_trees: bool,
    /// A thread removes some.
    is_removing: bool,
    /// Contents that a thread brings here.
    fetching: HashSet<u128>,
    cache: Cache,
    failure: Option<Failure>,
}

/// Why nothing is sent at present.
#[derive(Debug)]
struct Failure {
    text: String,
    times: u32,
    again_at: Instant,
}

/// The threads; they end with this.
#[derive(Debug)]
pub(crate) struct Movers {
    pub(crate) elsewhere: Arc<Elsewhere>,
    threads: Vec<JoinHandle<()>>,
}

impl Elsewhere {
    /// Of this directory's files and index, whose rows decide what is to be done.
    ///
    /// # Errors
    /// [`StoreError::BadElsewhere`]: the store cannot be used; [`StoreError::Elsewhere`]: it does
    /// not answer, and has nothing yet.
    pub(crate) fn open(
        options: ElsewhereOptions,
        dir: &DataDir,
        files: &Path,
        index: &Arc<Database>,
        reserve: &Reserve,
    ) -> Result<Self, StoreError> {
        let there = rows::there(index)?;
        let owner = dir.id();
        let claimed = options.store.claim(owner, !there.is_empty());
        let (is_claimed, failure) = match claimed {
            Ok(()) => (true, None),
            // Jobs run, and what is here is read; the rest waits.
            Err(StoreError::Elsewhere(text)) if !there.is_empty() => {
                (false, Some(Failure { text, times: 1, again_at: Instant::now() }))
            }
            Err(error) => return Err(error),
        };
        rows::adopt(index)?;
        let queue = VecDeque::from(rows::unsent(index)?);
        let mut state = State {
            unsent_bytes: queue.iter().map(|row| row.size).sum(),
            queue,
            has_unnamed: true,
            failure,
            ..State::default()
        };
        let mut local: Vec<_> = there
            .into_iter()
            .filter_map(|row| Some((fs::metadata(file_path(files, &row.file)).ok()?.accessed().ok()?, row)))
            .collect();
        local.sort_by_key(|(accessed, _)| *accessed);
        local.iter().for_each(|(_, row)| state.cache.add(number_of(&row.file), row.size));
        let this = Self {
            store: options.store,
            local_bytes: options.local_bytes,
            files: files.to_owned(),
            trees: dir.channels_path(),
            index: Arc::clone(index),
            reserve: reserve.clone(),
            state: Mutex::new(state),
            changed: Condvar::new(),
            ends: AtomicBool::new(false),
            owner: owner.to_owned(),
            is_claimed: AtomicBool::new(is_claimed),
        };
        this.evict(&mut this.lock(), 0);
        Ok(this)
    }

    /// How far it is.
    pub(crate) fn status(&self) -> ElsewhereStatus {
        let state = self.lock();
        ElsewhereStatus {
            location: self.store.location(),
            waiting: (state.queue.len() + state.sending.len()) as u64,
            waiting_bytes: state.unsent_bytes,
            cached_bytes: state.cache.bytes(),
            failure: state.failure.as_ref().map(|failure| failure.text.clone()),
        }
    }

    /// Whether there is room for another content before more of them are sent.
    ///
    /// # Errors
    /// [`StoreError::Elsewhere`].
    pub(crate) fn ensure_room(&self) -> Result<(), StoreError> {
        let state = self.lock();
        if state.unsent_bytes < self.local_bytes {
            return Ok(());
        }
        let mut why = format!(
            "{} bytes of objects wait to be sent to {}, and objects_cache allows {}",
            state.unsent_bytes,
            self.store.location(),
            self.local_bytes
        );
        if let Some(failure) = &state.failure {
            let _ = write!(why, "; the last attempt failed: {}", failure.text);
        }
        Err(StoreError::Elsewhere(why))
    }

    /// A content has its row.
    pub(crate) fn committed(&self, meta: &ObjectMeta) {
        if !rows::is_sent(meta.size) {
            return;
        }
        let mut state = self.lock();
        state.unsent_bytes += meta.size;
        state.queue.push_back(Row { file: meta.id.clone(), size: meta.size, upload: None });
        self.evict(&mut state, 0);
        self.changed.notify_all();
    }

    /// No object has these contents any more.
    pub(crate) fn forgot(&self, ids: &[String]) {
        let mut state = self.lock();
        ids.iter().for_each(|id| state.cache.remove(number_of(id)));
        let State { queue, unsent_bytes, .. } = &mut *state;
        queue.retain(|row| {
            let is_named = !ids.contains(&row.file);
            *unsent_bytes -= if is_named { 0 } else { row.size };
            is_named
        });
        state.has_unnamed = true;
        self.changed.notify_all();
    }

    /// Removes local files that the store has, too, until there is room for these bytes.
    fn evict(&self, state: &mut State, room: u64) {
        let most = self.local_bytes.saturating_sub(state.unsent_bytes).saturating_sub(room);
        for id in state.cache.shrink(most) {
            // One that cannot be removed stays in the way, and is found at the next start.
            let _ = fs::remove_file(file_path(&self.files, &format!("{id:032x}")));
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no holder of this lock panics")
    }
}

/// Ends the use of a store elsewhere, where all contents are here again: an owner has brought them,
/// or nothing was ever sent.
///
/// # Errors
/// [`StoreError::ContentsElsewhere`].
pub(crate) fn leave(files: &Path, index: &Database) -> Result<(), StoreError> {
    let there = rows::there(index)?;
    let (mut missing, mut bytes) = (0, 0);
    for row in &there {
        let path = file_path(files, &row.file);
        if !fs::metadata(&path).is_ok_and(|found| found.len() == row.size) {
            missing += 1;
            bytes += row.size;
            continue;
        }
        // Programs of sandboxes open it by this mode, which a copy may lack.
        let mode = std::os::unix::fs::PermissionsExt::from_mode(crate::object_writer::FILE_MODE);
        File::open(&path).and_then(|file| file.set_permissions(mode)).map_err(io_at("set the mode of", &path))?;
    }
    match missing {
        0 => rows::clear(index),
        _ => Err(StoreError::ContentsElsewhere { objects: missing, bytes }),
    }
}

/// What a content is called in the store: as its file in `objects/`, so that tools that copy
/// folders bring all of them back.
fn name_of(id: &str) -> String {
    format!("objects/{}/{id}", id.get(..2).unwrap_or("__"))
}

fn number_of(id: &str) -> u128 {
    u128::from_str_radix(id, 16).unwrap_or_default()
}

fn is_missing(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound
}
