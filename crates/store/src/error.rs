//! What can go wrong, told apart by what a caller does about it.

use std::io;
use std::path::{Path, PathBuf};

use shoal_encryption::KeyError;

use crate::Holder;

/// Why the store could not do something.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The disk (or the quota) is full; free some space and try again. Nothing was half written.
    #[error("no space left on the disk of {0}")]
    Full(String),
    /// The disk lost what was being written, and the file with it its trust: it takes nothing more
    /// until it is opened anew. What was being written may or may not be there then.
    #[error("{0}; nothing rests on it. Check the disk, then start the server again")]
    NotDurable(String),
    /// The file system refused.
    #[error("cannot {what} {}", path.display())]
    Io {
        /// Verb phrase: `create`, `write`.
        what: &'static str,
        /// The file or directory concerned.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// SQLite refused.
    #[error("database error")]
    Sql(#[source] rusqlite::Error),
    /// Stored bytes are not what was written.
    #[error("{} is corrupt: {detail}", path.display())]
    Corrupt {
        /// The file concerned.
        path: PathBuf,
        /// What is wrong with it.
        detail: String,
    },
    /// An object's file is not what was written: the disk, or somebody else, has changed it.
    #[error("object `{key}` is damaged: {detail}; upload it again, or delete it; `shoal verify` checks all objects")]
    DamagedObject {
        /// Object key.
        key: String,
        /// What is wrong with its file.
        detail: String,
    },
    /// The store elsewhere does not answer, or takes nothing more for now; try again.
    #[error("{0}")]
    Elsewhere(String),
    /// The store elsewhere cannot be used as it is.
    #[error("{0}")]
    BadElsewhere(String),
    /// Of a bucket that shows one elsewhere as it is.
    #[error(transparent)]
    Foreign(#[from] ForeignError),
    /// Contents are in a store elsewhere alone.
    #[error(
        "the contents of {objects} objects ({bytes} bytes) are in a store elsewhere alone: start the server with the \
         setting objects that it had, or bring them into its data directory first (docs/objects.md)"
    )]
    ContentsElsewhere {
        /// How many.
        objects: u64,
        /// Their bytes.
        bytes: u64,
    },
    /// An object's content cannot be encrypted, or its key is not there.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// A tree cannot have an object that only a customer's key opens.
    #[error(
        "object `{key}` is encrypted under a key of the customer (SSE-C), which comes with requests alone, so jobs \
         cannot read it: store it under a key of the owner (SSE-KMS), or without one"
    )]
    CustomersObject {
        /// Object key.
        key: String,
    },
    /// The caller reads files, and this one is encrypted.
    #[error("object `{key}` is encrypted, and is read by pieces")]
    Encrypted {
        /// Object key.
        key: String,
    },
    /// The directory was written by another version of Shoal.
    #[error("{} has format {found}, this version of shoal reads format {expected}; use the version that wrote \
             it", path.display())]
    Format {
        /// The file that says so.
        path: PathBuf,
        /// What it says.
        found: String,
        /// What this version reads.
        expected: String,
    },
    /// The directory holds something else, or is missing where there must be one.
    #[error(
        "{} is not a data directory that a shoal server has used: name one; a new server takes an empty directory, or one \
         that is not there",
        .0.display()
    )]
    NotADataDir(PathBuf),
    /// Another process has the data directory.
    #[error("data directory {} is in use by {holder}; stop it or choose another directory", path.display())]
    Locked {
        /// The data directory.
        path: PathBuf,
        /// Who has it.
        holder: Holder,
    },
    /// A list cursor that no list call gave out.
    #[error("`{0}` is not a list cursor")]
    BadCursor(String),
    /// Lines of a log stream were deleted while they were moved.
    #[error("log stream {0} was deleted meanwhile")]
    LogGone(i64),
    /// S3: the bucket does not exist.
    #[error("bucket `{0}` does not exist")]
    NoSuchBucket(String),
    /// S3: the bucket exists already.
    #[error("bucket `{0}` exists already")]
    BucketExists(String),
    /// S3: the bucket to be deleted holds objects.
    #[error("bucket `{0}` is not empty")]
    BucketNotEmpty(String),
    /// S3: the object does not exist (or no longer).
    #[error("object `{key}` does not exist in bucket `{bucket}`")]
    NoSuchKey {
        /// S3 bucket.
        bucket: String,
        /// Object key.
        key: String,
    },
    /// S3: the version does not exist (or no longer).
    #[error("version `{version}` of object `{key}` does not exist")]
    NoSuchVersion {
        /// Object key.
        key: String,
        /// The id.
        version: String,
    },
    /// S3: where the object would be is a delete marker.
    #[error("object `{key}` is deleted: its version `{version}` is a delete marker")]
    DeleteMarker {
        /// Object key.
        key: String,
        /// The marker's id.
        version: String,
        /// When it was made, in milliseconds since the epoch.
        modified_ms: u64,
        /// It was asked for by its id.
        is_named: bool,
    },
    /// S3: the multipart upload does not exist (completed and aborted ones do not).
    #[error("multipart upload `{0}` does not exist")]
    NoSuchUpload(String),
    /// S3: a part that completion names was not uploaded, or has another ETag.
    #[error("part {0} was not uploaded or its ETag differs")]
    InvalidPart(u32),
    /// S3: completion names parts out of order.
    #[error("part {0} is not in ascending order")]
    InvalidPartOrder(u32),
    /// S3: the object is not in the state that the request asks for.
    #[error("object `{key}` does not meet the request's precondition")]
    PreconditionFailed {
        /// Object key.
        key: String,
    },
    /// Two objects cannot both be files of one tree.
    #[error(
        "objects `{file}` and `{under}` cannot be in one directory tree: the first would be both a file and a \
         directory; rename one"
    )]
    KeyConflict {
        /// The key that would be a file.
        file: String,
        /// The key that needs it to be a directory (or the same file again).
        under: String,
    },
    /// An object was replaced or deleted between being found and being linked; look again.
    #[error("object `{key}` was replaced or deleted meanwhile; try again")]
    ObjectGone {
        /// Object key.
        key: String,
    },
    /// The caller does not want it any more.
    #[error("cancelled")]
    Cancelled,
    /// An object's key cannot be a path.
    #[error("object `{key}` cannot be a file of a directory tree: {why}; rename it")]
    UnusableKey {
        /// The key's part below the prefix.
        key: String,
        /// Which rule it breaks.
        why: &'static str,
    },
}

/// What is wrong with a bucket elsewhere, or with a request for what it shows.
#[derive(Debug, thiserror::Error)]
#[error("{text}")]
pub struct ForeignError {
    /// What a caller does about it.
    pub fault: ForeignFault,
    /// For people: what is wrong, where, and what to do.
    pub text: String,
}

/// Kinds of [`ForeignError`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ForeignFault {
    /// It does not answer; the same may succeed later.
    Away,
    /// It refuses this server's keys.
    Refused,
    /// It does not exist.
    NoBucket,
    /// It does not do what it was asked for.
    Rejected,
    /// This server's owner has it read only.
    ReadOnly,
    /// This server does not do that for such a bucket.
    Unsupported,
}

impl StoreError {
    /// Whether a store elsewhere does not answer: the same may succeed later.
    pub fn is_away(&self) -> bool {
        matches!(self, Self::Elsewhere(_) | Self::Foreign(ForeignError { fault: ForeignFault::Away, .. }))
    }

    /// The error for clients: without paths of the server's machine, which its own log has.
    #[must_use]
    pub fn without_paths(&self) -> String {
        match self {
            Self::Full(_) => "no space left on the server's disk".to_owned(),
            Self::NotDurable(_) => {
                "the server's disk did not take what was written; the server's log says more".to_owned()
            }
            Self::Io { what, .. } => format!("the server cannot {what} one of its files; its log says which"),
            Self::Elsewhere(_) => {
                "the store that has the contents of this server's objects does not answer, or takes no more of them at \
                 present; try again"
                    .to_owned()
            }
            Self::Corrupt { .. }
            | Self::Format { .. }
            | Self::NotADataDir(_)
            | Self::Locked { .. }
            | Self::BadElsewhere(_) => {
                "one of the server's files is not as it should be; its log says which".to_owned()
            }
            other => other.to_string(),
        }
    }
}

impl From<rusqlite::Error> for StoreError {
    fn from(source: rusqlite::Error) -> Self {
        match source.sqlite_error_code() {
            Some(rusqlite::ErrorCode::DiskFull) => Self::Full("the database".to_owned()),
            // Its shared memory lies beside it.
            _ if source
                .sqlite_error()
                .is_some_and(|error| error.extended_code == rusqlite::ffi::SQLITE_IOERR_SHMSIZE) =>
            {
                Self::Full("the database".to_owned())
            }
            _ => Self::Sql(source),
        }
    }
}

/// Names the path and the deed in I/O errors: `fs::read(p).map_err(io_at("read", p))`.
pub(crate) fn io_at(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> StoreError {
    move |source| match source.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => StoreError::Full(path.display().to_string()),
        _ => StoreError::Io { what, path: path.to_owned(), source },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_for_clients_name_no_file() {
        let root = Path::new("/home/ann/shoal");
        let path = root.join("objects/ab");
        let text = |what: &str| format!("{what} {}", path.display());
        for error in [
            StoreError::Full(text("the file")),
            StoreError::NotDurable(text("the disk lost")),
            io_at("write", &path)(io::Error::other(text("why"))),
            io_at("write", &path)(io::ErrorKind::StorageFull.into()),
            StoreError::Sql(rusqlite::Error::InvalidPath(path.clone())),
            StoreError::Corrupt { path: path.clone(), detail: text("short:") },
            StoreError::Format { path: path.clone(), found: "2".to_owned(), expected: "1".to_owned() },
            StoreError::NotADataDir(root.to_owned()),
            StoreError::Locked { path: root.to_owned(), holder: Holder { pid: Some(1), command: text("shoal serve") } },
        ] {
            let message = error.without_paths();
            assert!(!message.is_empty() && !message.contains("/home/ann"), "{error:?}: {message}");
        }
        let object = StoreError::NoSuchKey { bucket: "b".to_owned(), key: "home/ann".to_owned() };
        assert_eq!(object.without_paths(), object.to_string(), "what the client named is named");
    }
}
