//! Who did what: `audit.log` in the data directory, one JSON line for each call that changes
//! something or is refused, each with the SHA-256 of the line before.
//!
//! A thread writes; no request waits for it. A line is in the file within some milliseconds and on
//! the disk within [`writer::SYNC`]: that much a crash of the machine loses. With each sync the
//! number and the hash of the last line are sealed with the owner's key in `audit.seal`, so that
//! lines that are cut off at the end, or a whole log that is written again, are found, too.
//!
//! Not in it: reads (unless the settings want them), points of metrics and log lines that programs
//! send, parts of uploads, bytes of exec sessions.

mod chain;
mod files;
mod lookup;
mod record;
mod verify;
mod writer;

pub(crate) use files::Directory;
pub(crate) use record::{Outcome, Record};
pub use verify::{AuditFault, AuditReport, verify};
pub(crate) use writer::AuditLog;
