//! A directory as a target, on a disk of this machine or one that is mounted.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use shoal_store::Opened;

use crate::BackupError;
use crate::error::io_at;
use crate::target::{Guard, Target};

/// From this number of files, one sync of the file system is cheaper than one of each.
const MANY: usize = 8;

/// What is not yet a file of its name.
const INCOMING: &str = "incoming";

/// A directory.
#[derive(Debug)]
pub struct Directory {
    root: PathBuf,
    next: AtomicU64,
}

impl Directory {
    /// The target at this path, made when something is written to it.
    pub fn at(root: &Path) -> Self {
        Self { root: root.to_owned(), next: AtomicU64::new(0) }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    fn draft(&self) -> Result<(PathBuf, File), BackupError> {
        let folder = self.path(INCOMING);
        make(&folder)?;
        let path = folder.join(self.next.fetch_add(1, Ordering::Relaxed).to_string());
        // Of a process that was killed.
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(true).mode(0o600).open(&path);
        Ok((path.clone(), file.map_err(io_at("create", path.display()))?))
    }

    /// Makes drafts durable, then their names.
    fn settle(&self, drafts: &[(String, PathBuf, File)]) -> Result<(), BackupError> {
        if drafts.len() < MANY {
            for (_, path, file) in drafts {
                file.sync_all().map_err(io_at("sync", path.display()))?;
            }
        } else if let Some((_, path, file)) = drafts.first() {
            rustix::fs::syncfs(file).map_err(|error| io_at("sync", path.display())(error.into()))?;
        }
        let mut folders = BTreeSet::new();
        for (name, draft, _) in drafts {
            let path = self.path(name);
            let folder = path.parent().unwrap_or(&self.root);
            if !folders.contains(folder) {
                make(folder)?;
                folders.insert(folder.to_owned());
            }
            fs::rename(draft, &path).map_err(io_at("rename", draft.display()))?;
        }
        folders.iter().try_for_each(|folder| sync_folder(folder))
    }

    fn walk(&self, folder: &Path, found: &mut BTreeMap<String, u64>) -> Result<(), BackupError> {
        let entries = match fs::read_dir(folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            entries => entries.map_err(io_at("list", folder.display()))?,
        };
        for entry in entries {
            let entry = entry.map_err(io_at("list", folder.display()))?;
            let path = entry.path();
            let about = match entry.metadata() {
                // A thinning has removed it.
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                about => about.map_err(io_at("read", path.display()))?,
            };
            if about.is_dir() {
                self.walk(&path, found)?;
            } else if let Some(name) = path.strip_prefix(&self.root).ok().and_then(Path::to_str) {
                found.insert(name.to_owned(), about.len());
            }
        }
        Ok(())
    }
}

impl Target for Directory {
    fn location(&self) -> String {
        self.root.display().to_string()
    }

    fn put(&self, name: &str, bytes: &[u8]) -> Result<(), BackupError> {
        let (path, mut file) = self.draft()?;
        file.write_all(bytes).map_err(io_at("write", path.display()))?;
        self.settle(&[(name.to_owned(), path, file)])
    }

    fn put_all(&self, files: Vec<(String, Opened)>) -> Result<u64, BackupError> {
        let (mut drafts, mut bytes) = (Vec::new(), 0);
        for (name, Opened { file: mut from, start, size }) in files {
            let (path, mut to) = self.draft()?;
            // The kernel copies; where the file system can, it shares the blocks.
            let copied = from.seek(SeekFrom::Start(start)).and_then(|_| io::copy(&mut from.take(size), &mut to));
            bytes += copied.map_err(io_at("write", path.display()))?;
            drafts.push((name, path, to));
        }
        self.settle(&drafts)?;
        Ok(bytes)
    }

    fn read(&self, name: &str) -> Result<Option<Vec<u8>>, BackupError> {
        match fs::read(self.path(name)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            read => Ok(Some(read.map_err(io_at("read", self.path(name).display()))?)),
        }
    }

    fn read_range(&self, name: &str, at: u64, length: usize) -> Result<Vec<u8>, BackupError> {
        let mut bytes = vec![0; length];
        let read = File::open(self.path(name)).and_then(|file| file.read_exact_at(&mut bytes, at));
        read.map_err(io_at("read", self.path(name).display()))?;
        Ok(bytes)
    }

    fn fetch(&self, name: &str, mut to: &File, at: u64) -> Result<Option<u64>, BackupError> {
        let mut from = match File::open(self.path(name)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            opened => opened.map_err(io_at("open", self.path(name).display()))?,
        };
        let copied = to.seek(SeekFrom::Start(at)).and_then(|_| io::copy(&mut from, &mut to));
        Ok(Some(copied.map_err(io_at("copy", self.path(name).display()))?))
    }

    fn list(&self, folder: &str) -> Result<BTreeMap<String, u64>, BackupError> {
        let mut found = BTreeMap::new();
        self.walk(&self.path(folder), &mut found)?;
        Ok(found)
    }

    fn remove(&self, names: &[String]) -> Result<(), BackupError> {
        for name in names {
            match fs::remove_file(self.path(name)) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                removed => removed.map_err(io_at("remove", self.path(name).display()))?,
            }
            // Empty ones only.
            if let Some(folder) = self.path(name).parent()
                && folder != self.root
            {
                let _ = fs::remove_dir(folder);
            }
        }
        Ok(())
    }

    fn lock(&self) -> Result<Box<dyn Guard>, BackupError> {
        make(&self.root)?;
        let path = self.path("lock");
        let mut options = OpenOptions::new();
        let mut file = options
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&path)
            .map_err(io_at("open", path.display()))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let mut holder = String::new();
                let _ = file.read_to_string(&mut holder);
                let holder = if holder.is_empty() { "another process".to_owned() } else { holder.trim().to_owned() };
                return Err(BackupError::Busy { location: self.location(), holder });
            }
            Err(TryLockError::Error(error)) => return Err(io_at("lock", path.display())(error)),
        }
        let who = crate::manifest::this_process();
        file.set_len(0).and_then(|()| file.write_all_at(who.as_bytes(), 0)).map_err(io_at("write", path.display()))?;
        // Drafts of a process that was killed.
        let _ = fs::remove_dir_all(self.path(INCOMING));
        Ok(Box::new(Lock { _file: file }))
    }
}

/// The lock is the open file description's, so it goes when the process does.
#[derive(Debug)]
struct Lock {
    _file: File,
}

impl Guard for Lock {
    fn ensure(&self) -> Result<(), BackupError> {
        Ok(())
    }
}

/// Copies of keys are among the files: other users reach none of them.
fn make(folder: &Path) -> Result<(), BackupError> {
    DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(io_at("create", folder.display()))
}

fn sync_folder(folder: &Path) -> Result<(), BackupError> {
    File::open(folder).and_then(|folder| folder.sync_all()).map_err(io_at("sync", folder.display()))
}
