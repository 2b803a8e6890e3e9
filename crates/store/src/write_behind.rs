//! Makes the disk begin with a long file while it is still being written, so that the sync at its
//! end finds little left to do. It promises nothing: what lasts is what was synced.
#![allow(unsafe_code, reason = "sync_file_range has no safe wrapper")]

use std::fs::File;
use std::os::fd::AsRawFd;

/// The disk is given this much at a time.
const STEP_BYTES: u64 = 4 << 20;

/// How far the disk has been made to begin.
#[derive(Debug, Default)]
pub(crate) struct WriteBehind {
    begun: u64,
}

impl WriteBehind {
    /// Of bytes from here on.
    pub(crate) fn from(begun: u64) -> Self {
        Self { begun }
    }

    /// The file is written up to here now. Does not wait for the disk, unless the disk takes no
    /// more.
    pub(crate) fn wrote(&mut self, file: &File, length: u64) {
        if length - self.begun < STEP_BYTES {
            return;
        }
        if let (Ok(from), Ok(bytes)) = (i64::try_from(self.begun), i64::try_from(length - self.begun)) {
            // SAFETY: the descriptor is open as long as `file` lives, and the call touches no
            // memory of ours. Its result does not matter: an error of the disk is the sync's to
            // find, and this call does not take it away from there, as it waits for nothing.
            unsafe { libc::sync_file_range(file.as_raw_fd(), from, bytes, libc::SYNC_FILE_RANGE_WRITE) };
        }
        self.begun = length;
    }
}
