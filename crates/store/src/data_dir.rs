//! The data directory: who has it, what lies where in it.

use std::fmt;
use std::fs::{self, DirBuilder, File, OpenOptions, Permissions, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use rustix::fs::statvfs;

use crate::StoreError;
use crate::error::io_at;
use crate::reserve::Reserve;

/// Format of the directory, as its `VERSION` file says.
pub const FORMAT: u32 = 1;

/// Room beyond the reserve without which no new work begins.
const STARTING_BYTES: u64 = 2 << 20;

/// Room that an object leaves to others which are written at the same time.
const SPARE_BYTES: u64 = 256 << 10;

/// A data directory that this process has for itself until it drops this.
///
/// Everything lies under a directory of mode 0700: other users reach nothing in it, whatever the
/// modes inside.
#[derive(Debug)]
pub struct DataDir {
    root: PathBuf,
    id: String,
    // The lock is the open file description's, so it goes when the process does.
    _lock: File,
}

/// The process that has a data directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holder {
    /// Process id; `None` if it has not yet written it.
    pub pid: Option<u32>,
    /// Its command line.
    pub command: String,
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.pid {
            Some(pid) => write!(f, "process {pid} (`{}`)", self.command),
            None => f.write_str("another process"),
        }
    }
}

impl DataDir {
    /// Locks the directory and makes what is missing in it.
    ///
    /// # Errors
    /// [`StoreError::Locked`] with the holder, [`StoreError::Format`] for another version's
    /// directory, [`StoreError::NotADataDir`] for one with other things in it.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        make_dir(path)?;
        let root = path.canonicalize().map_err(io_at("resolve", path))?;
        refuse_foreign(&root)?;
        fs::set_permissions(&root, Permissions::from_mode(0o700)).map_err(io_at("set the mode of", &root))?;
        let lock = take_lock(&root)?;

        let version_path = root.join("VERSION");
        match read_if_there(&version_path)? {
            Some(text) if text.trim() == FORMAT.to_string() => {}
            Some(text) => {
                let found = text.trim().to_owned();
                return Err(StoreError::Format { path: version_path, found, expected: FORMAT.to_string() });
            }
            None => write_private(&version_path, format!("{FORMAT}\n").as_bytes())?,
        }
        let id_path = root.join("id");
        let id = match read_if_there(&id_path)? {
            Some(text) => text.trim().to_owned(),
            None => {
                let id = random_hex::<8>()?;
                write_private(&id_path, format!("{id}\n").as_bytes())?;
                id
            }
        };
        for name in ["objects", "runs", "channels"] {
            make_dir(&root.join(name))?;
        }
        // A server on a full disk is still of use.
        let _ = Reserve::beside(&root.join("VERSION")).ensure();
        Ok(Self { root, id, _lock: lock })
    }

    /// Whether there is room for new work; what is under way may use a reserve that this keeps.
    ///
    /// # Errors
    /// [`StoreError::Full`].
    pub fn ensure_room(&self) -> Result<(), StoreError> {
        self.reserve().ensure()
    }

    /// Whether an instance may start: it needs room beyond the reserve for itself.
    ///
    /// # Errors
    /// [`StoreError::Full`].
    pub fn ensure_room_to_start(&self) -> Result<(), StoreError> {
        self.reserve().ensure()?;
        match statvfs(&self.root) {
            Ok(disk) if disk.f_bavail.saturating_mul(disk.f_frsize) < STARTING_BYTES => {
                Err(StoreError::Full(self.root.display().to_string()))
            }
            _ => Ok(()),
        }
    }

    /// Whether the disk has room for so many bytes besides the reserve, and some to spare; a disk
    /// that does not say may have it.
    pub fn has_room(&self, bytes: u64) -> bool {
        has_room(&self.root, bytes)
    }

    /// Does what must be written now and may be as long as [`crate::RESERVE_STEP_BYTES`], on a disk
    /// that is full: with that much of the reserve, which is taken back at once.
    pub fn with_step<T>(&self, work: impl FnOnce() -> T) -> T {
        self.reserve().release();
        let done = work();
        self.reserve().refill();
        done
    }

    fn reserve(&self) -> Reserve {
        Reserve::beside(&self.root.join("VERSION"))
    }

    /// Names this directory in sandboxes, cgroups and process names: 16 hexadecimal digits, drawn
    /// once.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The directory itself, absolute and without symbolic links.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// `shoal.db`: journal and rows.
    pub fn journal_path(&self) -> PathBuf {
        self.root.join("shoal.db")
    }

    /// `objects.db`: metadata of the objects.
    pub fn object_index_path(&self) -> PathBuf {
        self.root.join("objects.db")
    }

    /// `objects/`: the objects' files under opaque ids.
    pub fn objects_path(&self) -> PathBuf {
        self.root.join("objects")
    }

    /// `telemetry.db`: logs, series and what is acknowledged.
    pub fn telemetry_path(&self) -> PathBuf {
        self.root.join("telemetry.db")
    }

    /// `runs/`: a directory per attempt.
    pub fn runs_path(&self) -> PathBuf {
        self.root.join("runs")
    }

    /// `runs/<attempt>/`, which the caller makes and removes.
    pub fn run_path(&self, attempt: &str) -> PathBuf {
        self.runs_path().join(attempt)
    }

    /// `channels/`: trees of links to objects, each whole or absent.
    pub fn channels_path(&self) -> PathBuf {
        self.root.join("channels")
    }

    /// `keys`: access keys; write it with [`DataDir::write_private`].
    pub fn keys_path(&self) -> PathBuf {
        self.root.join("keys")
    }

    /// `metrics-token`: what a Prometheus elsewhere shows to read `/metrics`; write it with
    /// [`DataDir::write_private`].
    pub fn metrics_token_path(&self) -> PathBuf {
        self.root.join("metrics-token")
    }

    /// `tls/`: the authority of self-made certificates; its key is written with
    /// [`DataDir::write_private`].
    pub fn tls_path(&self) -> PathBuf {
        self.root.join("tls")
    }

    /// `jobs-port`: where jobs find the server when the port for others speaks TLS.
    pub fn jobs_port_path(&self) -> PathBuf {
        self.root.join("jobs-port")
    }

    /// Remembers the port of agents on other machines.
    pub fn agents_port_path(&self) -> PathBuf {
        self.root.join("agents-port")
    }

    /// `link.sock`: where agents call.
    pub fn socket_path(&self) -> PathBuf {
        self.root.join("link.sock")
    }

    /// `shoal.toml`: settings.
    pub fn settings_path(&self) -> PathBuf {
        self.root.join("shoal.toml")
    }

    /// Replaces a file of mode 0600 durably: after a crash it is the old one or the new one.
    ///
    /// # Errors
    /// I/O.
    pub fn write_private(path: &Path, bytes: &[u8]) -> Result<(), StoreError> {
        write_private(path, bytes)
    }
}

/// What a data directory without `VERSION` may hold: what a person or an interrupted first start
/// put there.
const BEFORE_VERSION: [&str; 5] = ["lock", "shoal.toml", "instance-types.txt", "VERSION.new", "lost+found"];

/// Nobody's home becomes a data directory, with a mode that shuts others out, by a slip.
fn refuse_foreign(root: &Path) -> Result<(), StoreError> {
    if root.join("VERSION").exists() {
        return Ok(());
    }
    for entry in fs::read_dir(root).map_err(io_at("list", root))? {
        let name = entry.map_err(io_at("list", root))?.file_name();
        if !BEFORE_VERSION.iter().any(|expected| name == *expected) {
            return Err(StoreError::NotADataDir(root.to_owned()));
        }
    }
    Ok(())
}

fn take_lock(root: &Path) -> Result<File, StoreError> {
    let path = root.join("lock");
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(0o600);
    let lock = options.open(&path).map_err(io_at("open", &path))?;
    match lock.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            let holder = read_holder(&lock).map_err(io_at("read", &path))?;
            return Err(StoreError::Locked { path: root.to_owned(), holder });
        }
        Err(TryLockError::Error(error)) => return Err(io_at("lock", &path)(error)),
    }
    let command = std::env::args().collect::<Vec<_>>().join(" ");
    let text = format!("{}\n{command}\n", std::process::id());
    // Over what is there: on a full disk there may be no other place.
    lock.write_all_at(text.as_bytes(), 0)
        .and_then(|()| lock.set_len(text.len() as u64))
        .map_err(io_at("write", &path))?;
    Ok(lock)
}

/// Who has the lock. One that has only just taken it may not have written so yet, and what stands
/// there is of the one before, or nothing: so a process that lives is waited for, for a second.
fn read_holder(lock: &File) -> io::Result<Holder> {
    for _ in 0..100 {
        let holder = written_holder(lock)?;
        if holder.pid.is_some_and(|pid| Path::new("/proc").join(pid.to_string()).exists()) {
            return Ok(holder);
        }
        thread::sleep(Duration::from_millis(10));
    }
    written_holder(lock)
}

fn written_holder(mut lock: &File) -> io::Result<Holder> {
    let mut text = String::new();
    lock.rewind()?;
    lock.read_to_string(&mut text)?;
    Ok(parse_holder(&text))
}

fn parse_holder(text: &str) -> Holder {
    let (pid, command) = text.split_once('\n').unwrap_or((text, ""));
    Holder { pid: pid.parse().ok(), command: command.trim_end().to_owned() }
}

/// Makes a directory of mode 0700 and its parents, if missing.
fn make_dir(path: &Path) -> Result<(), StoreError> {
    DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(io_at("create", path))
}

fn read_if_there(path: &Path) -> Result<Option<String>, StoreError> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(io_at("read", path)(error)),
    }
}

fn write_private(path: &Path, bytes: &[u8]) -> Result<(), StoreError> {
    let next = path.with_extension("new");
    let mut file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&next)
        .map_err(io_at("create", &next))?;
    file.write_all(bytes).and_then(|()| file.sync_all()).map_err(io_at("write", &next))?;
    fs::rename(&next, path).map_err(io_at("replace", path))?;
    sync_parent(path)
}

/// Whether the disk that has this path has room for these bytes and some to spare.
pub(crate) fn has_room(path: &Path, bytes: u64) -> bool {
    statvfs(path).map_or(true, |disk| disk.f_bavail.saturating_mul(disk.f_frsize) >= bytes.saturating_add(SPARE_BYTES))
}

/// Makes a created, renamed or removed name durable.
pub(crate) fn sync_parent(path: &Path) -> Result<(), StoreError> {
    let parent = path.parent().expect("a file in a data directory has a parent");
    File::open(parent).and_then(|dir| dir.sync_all()).map_err(io_at("sync", parent))
}

/// `N` random bytes in hexadecimal.
pub(crate) fn random_hex<const N: usize>() -> Result<String, StoreError> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(|error| io_at("read", Path::new("/dev/urandom"))(error.into()))?;
    Ok(hex(&bytes))
}

/// Lower-case hexadecimal.
pub(crate) fn hex(bytes: &[u8]) -> String {
    hex_simd::encode_to_string(bytes, hex_simd::AsciiCase::Lower)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_holder_is_told_who_has_it() {
        let temp = tempfile::tempdir().unwrap();
        let first = DataDir::open(temp.path()).unwrap();
        let error = DataDir::open(temp.path()).unwrap_err();
        let StoreError::Locked { holder, .. } = &error else { panic!("{error}") };
        assert_eq!(holder.pid, Some(std::process::id()));
        assert!(error.to_string().contains(&std::env::args().next().unwrap()), "{error}");
        let id = first.id().to_owned();
        drop(first);
        assert_eq!(DataDir::open(temp.path()).unwrap().id(), id);
    }

    #[test]
    fn the_holder_before_is_not_blamed() {
        let temp = tempfile::tempdir().unwrap();
        drop(DataDir::open(temp.path()).unwrap());
        let mut dead = std::process::Command::new("/bin/true").spawn().unwrap();
        dead.wait().unwrap();
        let path = temp.path().join("lock");
        fs::write(&path, format!("{}\nanother\n", dead.id())).unwrap();
        let lock = File::open(&path).unwrap();
        lock.lock().unwrap();
        let writer = thread::spawn(move || {
            thread::sleep(Duration::from_millis(100));
            fs::write(path, format!("{}\nthis one\n", std::process::id())).unwrap();
        });
        let error = DataDir::open(temp.path()).unwrap_err();
        writer.join().unwrap();
        let StoreError::Locked { holder, .. } = &error else { panic!("{error}") };
        assert_eq!(*holder, Holder { pid: Some(std::process::id()), command: "this one".to_owned() });
    }

    #[test]
    fn nobody_else_can_look_inside() {
        let temp = tempfile::tempdir().unwrap();
        let root = temp.path().join("deep/data");
        let dir = DataDir::open(&root).unwrap();
        DataDir::write_private(&dir.keys_path(), b"secret").unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&root), 0o700);
        assert_eq!(mode(&dir.keys_path()), 0o600);
        assert_eq!(fs::read(dir.keys_path()).unwrap(), b"secret");
    }

    #[test]
    fn a_directory_of_other_things_is_left_alone() {
        let temp = tempfile::tempdir().unwrap();
        for name in ["shoal.toml", "instance-types.txt"] {
            fs::write(temp.path().join(name), "").unwrap();
        }
        drop(DataDir::open(temp.path()).unwrap());
        let home = tempfile::tempdir().unwrap();
        fs::set_permissions(home.path(), Permissions::from_mode(0o755)).unwrap();
        fs::write(home.path().join("thesis.tex"), "").unwrap();
        let error = DataDir::open(home.path()).unwrap_err();
        assert!(matches!(error, StoreError::NotADataDir(_)), "{error}");
        assert_eq!(fs::metadata(home.path()).unwrap().permissions().mode() & 0o777, 0o755);
        assert_eq!(fs::read_dir(home.path()).unwrap().count(), 1);
    }

    #[test]
    fn another_format_is_refused() {
        let temp = tempfile::tempdir().unwrap();
        fs::write(temp.path().join("VERSION"), "2\n").unwrap();
        let error = DataDir::open(temp.path()).unwrap_err();
        assert!(error.to_string().contains("has format 2, this version of shoal reads format 1"), "{error}");
    }
}
