//! What can go wrong with an instance.

use std::io;

use nix::errno::Errno;

/// Begins what was tried where a tree is copied.
pub(crate) const COPY: &str = "copy ";

/// Why there is no instance, or no more word from it.
#[derive(Debug, thiserror::Error)]
pub enum SandboxError {
    /// The operating system refused.
    #[error("could not {what}")]
    Io {
        /// What was tried, and on what.
        what: String,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// The instance was there, but its program could not be started: the user's mistake, not ours.
    #[error("{message}")]
    Program {
        /// What, where, and what to do.
        message: String,
        /// What a shell would answer: 127 for a program that is not there, 126 for one that cannot
        /// be run.
        code: i32,
    },
    /// A helper process reported why it could not go on.
    #[error("{helper} failed: {message}")]
    Helper {
        /// Its name, as in the process list.
        helper: String,
        /// Its error with all causes.
        message: String,
    },
    /// A helper process ended without a word; its own stderr may say why.
    #[error("{helper} ended without a word (killed, or this machine is out of memory)")]
    Silent {
        /// Its name, as in the process list.
        helper: String,
    },
    /// [`crate::Network::join`] found nobody: whoever made the network is gone.
    #[error("network \"{handle}\" is gone: the agent of the first instance made it and has ended")]
    NetworkGone {
        /// As given.
        handle: String,
    },
    /// More hosts than addresses.
    #[error("{hosts} hosts do not fit one network: 1 to {most} do")]
    TooManyHosts {
        /// As asked.
        hosts: u32,
        /// What fits.
        most: u32,
    },
    /// Ids name processes and control groups.
    #[error("\"{id}\" cannot name an instance: 1 to 200 letters, digits, '-', '_' and '.' can, not beginning with '.'")]
    BadId {
        /// As given.
        id: String,
    },
    /// Helpers are this executable started again, and it would not know what to do.
    #[error("this executable cannot start instances: its main must begin with shoal_sandbox::reexec_entry()")]
    NoEntry,
}

impl SandboxError {
    /// Whether the disk has no space left for a copy of what is mounted where there are overlays,
    /// also for a helper process. Other calls have the same error for limits of namespaces.
    pub fn is_of_full_disk(&self) -> bool {
        match self {
            SandboxError::Io { what, source } => what.starts_with(COPY) && source.kind() == io::ErrorKind::StorageFull,
            SandboxError::Helper { message, .. } => {
                message.starts_with(&format!("could not {COPY}"))
                    && message.ends_with(&io::Error::from_raw_os_error(Errno::ENOSPC as i32).to_string())
            }
            _ => false,
        }
    }

    /// For `map_err`: says what was tried.
    pub(crate) fn io<E: Into<io::Error>>(what: impl Into<String>) -> impl FnOnce(E) -> SandboxError {
        let what = what.into();
        move |source| SandboxError::Io { what, source: source.into() }
    }

    /// The error and its causes on one line, to be sent to another process.
    pub(crate) fn chain(&self) -> String {
        let mut text = self.to_string();
        let mut cause = std::error::Error::source(self);
        while let Some(error) = cause {
            text = format!("{text}: {error}");
            cause = error.source();
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_is_that_of_a_copy() {
        let full = || io::Error::from_raw_os_error(Errno::ENOSPC as i32);
        let failed = |what: &str, source| SandboxError::Io { what: what.to_owned(), source };
        let helper =
            |error: &SandboxError| SandboxError::Helper { helper: "shoal-init".to_owned(), message: error.chain() };
        for (error, expected) in [
            (failed("copy a to b", full()), true),
            (failed("copy a to b", io::ErrorKind::PermissionDenied.into()), false),
            // The limit of namespaces has the same number.
            (failed("make namespaces", full()), false),
        ] {
            assert_eq!((error.is_of_full_disk(), helper(&error).is_of_full_disk()), (expected, expected), "{error}");
        }
    }
}
