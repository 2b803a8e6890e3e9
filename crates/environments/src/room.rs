//! Room on the disk, looked at before it is taken: what is made here is made for later, and what
//! runs needs the rest now.

use std::path::Path;

use crate::EnvironmentError;

/// Bytes that stay free for others,
const KEPT: u64 = 256 << 20;
/// and so many files, where a file system has a number of them.
const KEPT_FILES: u64 = 10_000;

/// Whether `bytes` more have room in the file system of `directory`, which is there, beside what
/// stays free.
///
/// # Errors
/// [`EnvironmentError::NoRoom`]: `what` has none.
pub(crate) fn ensure(directory: &Path, bytes: u64, what: &str) -> Result<(), EnvironmentError> {
    let system = rustix::fs::statvfs(directory)
        .map_err(|error| EnvironmentError::io("look at the room in", directory)(error.into()))?;
    let free = system.f_bavail.saturating_mul(system.f_frsize);
    let has_files = system.f_files == 0 || system.f_favail >= KEPT_FILES;
    if free >= bytes.saturating_add(KEPT) && has_files {
        return Ok(());
    }
    Err(EnvironmentError::NoRoom {
        what: what.to_owned(),
        directory: directory.to_owned(),
        needed: bytes >> 20,
        free: free >> 20,
        files: system.f_favail,
        kept: KEPT >> 20,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_than_the_disk_has_is_told_before() {
        let temp = tempfile::tempdir().unwrap();
        ensure(temp.path(), 0, "nothing").unwrap();
        let error = ensure(temp.path(), 1 << 60, "the image x").unwrap_err().to_string();
        assert!(
            error.starts_with(&format!(
                "there is no room for the image x in {}: it needs 1099511627776 MB",
                temp.path().display()
            )),
            "{error}"
        );
        assert!(error.contains("shoal env-cache prune"), "{error}");
    }
}
