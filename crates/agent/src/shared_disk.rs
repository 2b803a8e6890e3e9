//! A program that found no space on the disk which all instances share: the machine failed it, and
//! a RetryStrategy applies. Its own limits (`VolumeSizeInGB`, `/dev/shm`) are its own affair.

use std::path::Path;

use rustix::fs::statvfs;

/// A disk with less than this available is full.
const FULL_BYTES: u64 = 64 << 20;

/// The C library's text of ENOSPC, which Python, Java and shells pass on.
const NO_SPACE: &str = "no space left on device";

/// Why the program failed, if its last lines on stderr report a full disk and the disk of `written`
/// is full.
pub(crate) fn failure(stderr_tail: &str, written: &Path) -> Option<String> {
    let line = complaint(stderr_tail)?;
    let disk = statvfs(written).ok()?;
    let is_full = disk.f_bavail.saturating_mul(disk.f_frsize) < FULL_BYTES;
    is_full.then(|| {
        format!(
            "no space is left on the disk that all training jobs share, and the program ended: {line}; free some space"
        )
    })
}

/// The last line that reports a full disk other than the instance's own shared memory.
fn complaint(stderr_tail: &str) -> Option<&str> {
    let complains = |line: &&str| line.to_lowercase().contains(NO_SPACE) && !line.contains("/dev/shm");
    stderr_tail.lines().rev().find(complains).map(str::trim)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_shared_disk_is_blamed() {
        for (tail, expected) in [
            ("head: write error: No space left on device\n", Some("head: write error: No space left on device")),
            (
                "Traceback\nOSError: [Errno 28] No space left on device: '/opt/ml/model/m'\n",
                Some("OSError: [Errno 28] No space left on device: '/opt/ml/model/m'"),
            ),
            ("OSError: [Errno 28] No space left on device: '/dev/shm/x'", None),
            ("ValueError: no space", None),
            ("", None),
        ] {
            assert_eq!(complaint(tail), expected, "{tail}");
        }
    }
}
