//! The databases of a data directory at one moment, read beside a server that writes to them.
//!
//! A moment is found under the write locks of all three, which are held for no longer than it takes
//! to begin a read in each: what is then read is what a server finds that was killed at that
//! moment.

use std::fs::{self, File};
use std::io;
use std::mem::ManuallyDrop;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rusqlite::{Connection, OpenFlags};

use super::view::{DatabaseView, LogPosition};
use super::wal::{FRAME_HEADER, IndexHeader};
use crate::error::io_at;
use crate::{DataDir, StoreError, objects, sqlite_journal, telemetry_schema};

/// The databases, in the order in which they are locked: objects come before what refers to them.
pub(crate) const DATABASES: [&str; 3] = ["objects.db", "telemetry.db", "shoal.db"];

/// What a server keeps of an attempt in its run directory; all else there is its launcher's.
const PLAN: &str = "attempt.json";

/// How long a server's commit is waited for.
const LOCK_WAIT: Duration = Duration::from_secs(30);

/// A data directory whose content is captured, with a server in it or without.
#[derive(Debug)]
pub struct CaptureSource {
    root: PathBuf,
    databases: Vec<Followed>,
}

/// Everything at one moment. What it has read from is kept as it was until this is dropped.
#[derive(Debug)]
pub struct Capture {
    /// The databases.
    pub databases: Vec<DatabaseView>,
    /// The journal's snapshot as it belongs to the events.
    pub snapshot: Option<File>,
}

/// The logs of the databases as they are now.
#[derive(Debug, Clone)]
pub struct Logs(Vec<(&'static str, Arc<RawFiles>)>);

impl Logs {
    /// Bytes that they have got since a capture with these positions.
    pub fn bytes_since(&self, positions: &[(&'static str, LogPosition)]) -> u64 {
        let since = |(name, position): &(&'static str, LogPosition)| {
            let (_, raw) = self.0.iter().find(|(other, _)| other == name)?;
            // It is there twice: a writer that is at work shows by a difference.
            let mut bytes = [0; 2 * IndexHeader::BYTES];
            raw.index.read_exact_at(&mut bytes, 0).ok()?;
            let (first, second) = bytes.split_first_chunk::<{ IndexHeader::BYTES }>()?;
            let header = IndexHeader::parse(first).filter(|_| first[..] == *second)?;
            Some(position.frames_until(&header) * (FRAME_HEADER as u64 + u64::from(header.page_bytes)))
        };
        positions.iter().filter_map(since).sum()
    }
}

#[derive(Debug)]
struct Followed {
    name: &'static str,
    path: PathBuf,
    /// Takes the write lock, and moves the log into the file.
    writer: Connection,
    raw: Arc<RawFiles>,
}

/// Closing a descriptor of a file drops all locks that this process has on it, those of SQLite's
/// connections, too: so these are never closed.
#[derive(Debug)]
pub(super) struct RawFiles {
    pub(super) main: ManuallyDrop<File>,
    index: ManuallyDrop<File>,
}

impl CaptureSource {
    /// Opens the databases of the data directory at this path.
    ///
    /// # Errors
    /// [`StoreError::NotADataDir`]; [`StoreError::Format`] for one that no server of this version
    /// has opened yet.
    pub fn open(root: &Path) -> Result<Self, StoreError> {
        if !root.join("VERSION").exists() || DATABASES.iter().any(|name| !root.join(name).exists()) {
            return Err(StoreError::NotADataDir(root.to_owned()));
        }
        let root = root.canonicalize().map_err(io_at("resolve", root))?;
        let formats = [&objects::SCHEMA, &telemetry_schema::SCHEMA, &sqlite_journal::SCHEMA]
            .map(|schema| i64::try_from(schema.formats.len()).unwrap_or(i64::MAX));
        let databases = DATABASES.iter().zip(formats).map(|(name, format)| Followed::open(&root, name, format));
        let databases = databases.collect::<Result<_, _>>()?;
        Ok(Self { root, databases })
    }

    /// The data directory, absolute.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Everything as of now, as often as is asked for: all of them of the same moment. A server
    /// that wants to commit meanwhile waits for `while_locked`, which sees the first of them.
    ///
    /// # Errors
    /// SQLite's; what `while_locked` returns.
    pub fn capture<T>(
        &self,
        copies: usize,
        while_locked: impl FnOnce(&Capture) -> Result<T, StoreError>,
    ) -> Result<(Vec<Capture>, T), StoreError> {
        let mut readers = Vec::new();
        for _ in 0..copies {
            readers.push(self.databases.iter().map(Followed::reader).collect::<Result<Vec<_>, _>>()?);
        }
        let _locks = self.databases.iter().map(Followed::lock).collect::<Result<Vec<_>, _>>()?;
        let captured: Vec<Capture> =
            readers.into_iter().map(|readers| self.begin(readers)).collect::<Result<_, _>>()?;
        let seen = while_locked(&captured[0])?;
        Ok((captured, seen))
    }

    fn begin(&self, readers: Vec<Connection>) -> Result<Capture, StoreError> {
        let views = self.databases.iter().zip(readers).map(|(database, reader)| database.view(reader));
        let path = self.root.join("shoal.snapshot");
        let snapshot = match File::open(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            opened => Some(opened.map_err(io_at("open", &path))?),
        };
        Ok(Capture { databases: views.collect::<Result<_, _>>()?, snapshot })
    }

    /// Moves the logs into their files, up to what is still read from them, so that a server begins
    /// them again.
    ///
    /// # Errors
    /// SQLite's.
    pub fn move_logs(&self) -> Result<(), StoreError> {
        let moved = |database: &Followed| {
            database.writer.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(())).map_err(StoreError::from)
        };
        self.databases.iter().try_for_each(moved)
    }

    /// For a thread that looks after the logs while this one waits.
    pub fn logs(&self) -> Logs {
        Logs(self.databases.iter().map(|database| (database.name, Arc::clone(&database.raw))).collect())
    }

    /// Moves logs of this many frames or more into their files, so that a server begins them again:
    /// it cannot as long as they are always read. `catch_up` sees all that is in the logs by now;
    /// then `previous`, which they were kept for, is dropped. The capture that is returned is of
    /// the same moment and reads from the files alone.
    ///
    /// # Errors
    /// SQLite's; what `catch_up` returns.
    pub fn capture_renewed<T>(
        &self,
        previous: Capture,
        least_frames: u32,
        catch_up: impl FnOnce(&Capture, &Capture) -> Result<T, StoreError>,
    ) -> Result<(Capture, T), StoreError> {
        let readers = || self.databases.iter().map(Followed::reader).collect::<Result<Vec<_>, _>>();
        let (last, next) = (readers()?, readers()?);
        let long = self.databases.iter().zip(&previous.databases).filter(|(_, view)| view.log_frames() >= least_frames);
        // The lock's own connection is in a transaction, which no checkpoint is part of.
        let movers = long.map(|(database, _)| database.open_writer()).collect::<Result<Vec<_>, _>>()?;
        let move_all =
            || movers.iter().try_for_each(|mover| mover.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(())));
        // Up to what is kept for `previous`: most of it, and no writer waits for that.
        move_all()?;
        let _locks = self.databases.iter().map(Followed::lock).collect::<Result<Vec<_>, _>>()?;
        let last = self.begin(last)?;
        let seen = catch_up(&previous, &last)?;
        drop((previous, last));
        move_all()?;
        Ok((self.begin(next)?, seen))
    }
}

/// A write lock, until it is dropped.
struct WriteLock<'a>(&'a Connection);

impl Drop for WriteLock<'_> {
    fn drop(&mut self) {
        // Nothing was written.
        let _ = self.0.execute_batch("ROLLBACK");
    }
}

impl Followed {
    fn open(root: &Path, name: &'static str, format: i64) -> Result<Self, StoreError> {
        let path = root.join(name);
        let writer = connect(&path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
        let found: i64 = writer.pragma_query_value(None, "user_version", |row| row.get(0))?;
        if found != format {
            return Err(StoreError::Format { path, found: found.to_string(), expected: format.to_string() });
        }
        // Makes the index of the log, where no process has it open.
        writer.query_row("SELECT count(*) FROM sqlite_schema", [], |_| Ok(()))?;
        let open = |path: &Path| File::open(path).map(ManuallyDrop::new).map_err(io_at("open", path));
        let raw = Arc::new(RawFiles { main: open(&path)?, index: open(&beside(&path, "-shm"))? });
        Ok(Self { name, path, writer, raw })
    }

    fn open_writer(&self) -> Result<Connection, StoreError> {
        connect(&self.path, OpenFlags::SQLITE_OPEN_READ_WRITE)
    }

    fn reader(&self) -> Result<Connection, StoreError> {
        let reader = connect(&self.path, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
        // Reads the schema ahead of the lock.
        reader.prepare_cached("SELECT count(*) FROM sqlite_schema")?.query_row([], |_| Ok(()))?;
        Ok(reader)
    }

    fn lock(&self) -> Result<WriteLock<'_>, StoreError> {
        self.writer.execute_batch("BEGIN IMMEDIATE")?;
        Ok(WriteLock(&self.writer))
    }

    /// The last commit. The caller has the write lock, so none follows.
    fn view(&self, reader: Connection) -> Result<DatabaseView, StoreError> {
        reader.execute_batch("BEGIN")?;
        reader.prepare_cached("SELECT count(*) FROM sqlite_schema")?.query_row([], |_| Ok(()))?;
        let mut bytes = [0; IndexHeader::BYTES];
        let index = beside(&self.path, "-shm");
        self.raw.index.read_exact_at(&mut bytes, 0).map_err(io_at("read", &index))?;
        let mut header = IndexHeader::parse(&bytes)
            .ok_or_else(|| StoreError::Corrupt { path: index, detail: "it is no index of a log".to_owned() })?;
        // Until the first commit after an opening, the index does not have these.
        header.pages = reader.pragma_query_value(None, "page_count", |row| row.get(0))?;
        header.page_bytes = reader.pragma_query_value(None, "page_size", |row| row.get(0))?;
        let log_path = beside(&self.path, "-wal");
        let log = match File::open(&log_path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            opened => Some(opened.map_err(io_at("open", &log_path))?),
        };
        Ok(DatabaseView::new(self.name, self.path.clone(), reader, Arc::clone(&self.raw), log, header))
    }
}

fn connect(path: &Path, flags: OpenFlags) -> Result<Connection, StoreError> {
    let connection = Connection::open_with_flags(path, flags | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
    connection.busy_timeout(LOCK_WAIT)?;
    // A log that becomes long is moved on purpose.
    connection.pragma_update(None, "wal_autocheckpoint", 0)?;
    Ok(connection)
}

fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// Files of a data directory that a copy leaves out: what a server makes again at its start, what
/// agents of running attempts have written, and what is copied as what it contains. Of an attempt
/// there remains how it was started, by which a launcher finds it elsewhere.
pub fn is_left_out(relative: &Path) -> bool {
    const OUT: [&str; 9] =
        ["lock", "address", "link.sock", "reserve", "channels", "objects", "logs", "client", "shoal.snapshot"];
    let names: Vec<_> = relative.components().map(|part| part.as_os_str().to_string_lossy()).collect();
    let (Some(first), Some(last)) = (names.first(), names.last()) else { return true };
    let is_database = DATABASES.iter().any(|name| first.starts_with(name));
    let is_of_agents = first == "runs" && names.len() > 2 && (names.len() > 3 || !last.ends_with(".json"));
    OUT.contains(&&**first) || is_database || is_of_agents || last.ends_with(".new")
}

/// The id of a data directory, without opening it.
///
/// # Errors
/// I/O.
pub fn id_of(root: &Path) -> Result<String, StoreError> {
    let path = root.join("id");
    Ok(fs::read_to_string(&path).map_err(io_at("read", &path))?.trim().to_owned())
}

/// Makes a copy of a data directory another one: it gets an id of its own, and loses all by which a
/// launcher would find what was started for the original, or end it. Of each attempt the server's
/// own plan remains.
///
/// # Errors
/// I/O.
pub fn make_another(root: &Path) -> Result<String, StoreError> {
    let runs = root.join("runs");
    let list = |folder: &Path| -> Result<Vec<PathBuf>, StoreError> {
        let entries = match fs::read_dir(folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.map_err(io_at("list", folder))?,
        };
        entries.map(|entry| Ok(entry.map_err(io_at("list", folder))?.path())).collect()
    };
    for run in list(&runs)?.iter().filter(|run| run.is_dir()) {
        for record in list(run)?.iter().filter(|path| path.file_name().is_none_or(|name| name != PLAN)) {
            // Directories of agents, too; a link is removed, and not what it leads to.
            let is_dir = fs::symlink_metadata(record).map_err(io_at("read", record))?.is_dir();
            let removed = if is_dir { fs::remove_dir_all(record) } else { fs::remove_file(record) };
            removed.map_err(io_at("remove", record))?;
        }
    }
    // Agents of the original try its port until their lease ends, and a copy has nothing for them.
    for port in ["agents-port", "jobs-port"].map(|name| root.join(name)).iter().filter(|port| port.exists()) {
        fs::remove_file(port).map_err(io_at("remove", port))?;
    }
    let id = crate::data_dir::random_hex::<8>()?;
    DataDir::write_private(&root.join("id"), format!("{id}\n").as_bytes())?;
    Ok(id)
}
