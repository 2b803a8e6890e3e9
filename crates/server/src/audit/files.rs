//! The files of the audit log: `audit.log`, which is written, and `audit-<first number>.log`, which
//! are full.

use std::{
    fs::{self, File, OpenOptions},
    io,
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

use shoal_wire::timestamp;

use super::chain::{Line, Seal};

const CURRENT: &str = "audit.log";
const SEAL: &str = "audit.seal";

/// A data directory, as far as it has the audit log.
#[derive(Debug, Clone)]
pub(crate) struct Directory(PathBuf);

impl Directory {
    pub(crate) fn new(data_dir: &Path) -> Self {
        Self(data_dir.to_owned())
    }

    pub(super) fn root(&self) -> &Path {
        &self.0
    }

    /// All files, the oldest first; the last one is written.
    pub(super) fn files(&self) -> io::Result<Vec<PathBuf>> {
        let mut full = Vec::new();
        for entry in fs::read_dir(&self.0)? {
            let path = entry?.path();
            if first_of(&path).is_some() {
                full.push(path);
            }
        }
        // Numbers have leading zeros.
        full.sort();
        full.extend(Some(self.current()).filter(|path| path.exists()));
        Ok(full)
    }

    /// The oldest of the full files, as far as their last lines are older than this.
    pub(super) fn older_than(&self, before_ms: u64) -> io::Result<Vec<PathBuf>> {
        let mut old = Vec::new();
        for path in self.files()?.into_iter().filter(|path| first_of(path).is_some()) {
            if time_of(fs::read_to_string(&path)?.lines().next_back()).is_none_or(|time| time >= before_ms) {
                break;
            }
            old.push(path);
        }
        Ok(old)
    }

    pub(super) fn current(&self) -> PathBuf {
        self.0.join(CURRENT)
    }

    /// Opens the file that is written, at its end (mode 0600).
    pub(super) fn open(&self) -> io::Result<File> {
        OpenOptions::new().append(true).create(true).mode(0o600).open(self.current())
    }

    /// Makes the file that is written one of the full ones.
    pub(super) fn rotate(&self, first: u64) -> io::Result<()> {
        let full = self.0.join(format!("audit-{first:020}.log"));
        match fs::rename(self.current(), &full) {
            // An earlier try came so far.
            Err(error) if error.kind() == io::ErrorKind::NotFound && full.exists() => Ok(()),
            renamed => renamed,
        }
    }

    /// The seal; `None` if there is none.
    pub(super) fn seal(&self) -> io::Result<Option<Seal>> {
        match fs::read(self.0.join(SEAL)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            read => Ok(Some(serde_json::from_slice(&read?)?)),
        }
    }

    pub(super) fn write_seal(&self, seal: &Seal) -> io::Result<()> {
        let (path, temporary) = (self.0.join(SEAL), self.0.join("audit.seal.new"));
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&temporary)?;
        io::Write::write_all(&mut file, &serde_json::to_vec(seal)?)?;
        fs::rename(&temporary, &path)
    }
}

/// Milliseconds since the epoch at which a line was written.
pub(super) fn time_of(line: Option<&str>) -> Option<u64> {
    timestamp::parse(&serde_json::from_str::<Line>(line?).ok()?.record.time)
}

/// A line's number.
pub(super) fn number_of(line: &str) -> Option<u64> {
    serde_json::from_str::<Line>(line).ok().map(|line| line.number)
}

/// Number of the first line of a full file, by its name.
pub(super) fn first_of(path: &Path) -> Option<u64> {
    path.file_name()?.to_str()?.strip_prefix("audit-")?.strip_suffix(".log")?.parse().ok()
}
