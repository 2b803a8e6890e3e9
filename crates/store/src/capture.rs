//! A data directory at one moment, for copies that are made beside a running server.

mod contents;
mod source;
#[cfg(test)]
mod tests;
mod view;
mod wal;

pub use contents::{Content, ContentKey, IsKnown, Opened, are_named, contents_of, jobs_running};
pub use source::{Capture, CaptureSource, Logs, id_of, is_left_out, make_another};
pub use view::{DatabaseView, LogPosition, Pages};
