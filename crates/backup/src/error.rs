//! Why a copy could not be made or read.

use std::io;

use shoal_store::StoreError;

/// Why a backup or a restore failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BackupError {
    /// The data directory.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The target's file system.
    #[error("cannot {what} {name}")]
    Io {
        /// A verb.
        what: &'static str,
        /// Of what.
        name: String,
        /// Why.
        source: io::Error,
    },
    /// The target, where it is no directory.
    #[error(transparent)]
    Remote(#[from] shoal_elsewhere::Error),
    /// What was typed is no target.
    #[error("{0}")]
    BadTarget(String),
    /// Another process writes to the target.
    #[error("{location} is in use by {holder}; two backups to one target at a time are refused")]
    Busy {
        /// The target.
        location: String,
        /// The process.
        holder: String,
    },
    /// The target has something else.
    #[error("{location} {why}")]
    Unusable {
        /// The target.
        location: String,
        /// What is wrong with it.
        why: String,
    },
    /// What was written is not what is there.
    #[error("{name} in {location} is damaged: {detail}")]
    Damaged {
        /// The target.
        location: String,
        /// The file.
        name: String,
        /// What is wrong with it.
        detail: String,
    },
    /// What was restored is not what was written.
    #[error("{}", found(.0))]
    DamagedContents(Vec<shoal_store::Damage>),
    /// What was copied was let go before all of it was in the target.
    #[error(
        "the target is slow or does not answer, and what the server wrote meanwhile was about to fill its disk: the copy \
         was given up"
    )]
    LetGo,
    /// Of one that follows.
    #[error("a full backup failed and is made later; changes are in the target all the same")]
    Full(#[source] Box<BackupError>),
    /// The server changes more than can be copied.
    #[error("objects were deleted faster than they could be copied; try again when the server is less busy")]
    Outrun,
}

fn found(damages: &[shoal_store::Damage]) -> String {
    let lines: Vec<String> = damages.iter().map(|damage| format!("  {}: {}", damage.name, damage.detail)).collect();
    format!(
        "{} of what was restored is not what was written; nothing was kept. Restore another backup, or the rest of \
         this one with --accept-damage:\n{}",
        damages.len(),
        lines.join("\n")
    )
}

/// For `map_err`, with the name of the file or directory.
pub(crate) fn io_at(what: &'static str, name: impl std::fmt::Display) -> impl FnOnce(io::Error) -> BackupError {
    move |source| BackupError::Io { what, name: name.to_string(), source }
}
