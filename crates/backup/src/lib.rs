//! Copies of a data directory elsewhere, made while its server runs, and back.
//!
//! A target has *contents* (objects, parts, log segments), each copied once, and *backups*. A
//! backup is the databases and small files of one moment, in chunks of which only new ones are
//! written; its head is written last, so one that was cut short is none. *Ticks* follow a backup:
//! the pages that the databases' logs have got since. What a backup or a tick names was copied
//! before it.

mod bucket;
mod chunks;
mod directory;
mod error;
mod files;
mod follow;
mod lease;
mod list;
mod manifest;
mod pin;
mod restore;
mod run;
mod take;
mod target;
mod thin;
mod tick;
mod transfer;

pub use bucket::InBucket;
pub use directory::Directory;
pub use error::BackupError;
pub use follow::{Follow, Follower, Lag};
pub use list::{Listed, Listing, list};
pub use manifest::{Head, Origin, Skipped};
pub use restore::{Restore, Restored, restore};
pub use take::{Taken, back_up};
pub use target::{Guard, Target};

/// How far a long operation is.
#[derive(Debug, Clone, Copy)]
pub enum Step<'a> {
    /// Contents are copied.
    Contents {
        /// Those that are done.
        done: u64,
        /// All that are to be copied, as far as is known.
        of: u64,
        /// Bytes of those that are done.
        bytes: u64,
    },
    /// This database is read or written.
    Database(&'a str),
    /// What was restored is compared with what was written.
    Checking(shoal_store::Step<'a>),
}

/// What is shown of a long operation.
pub type Progress<'a> = dyn FnMut(Step<'_>) + 'a;
