//! What can go wrong: which operation, which ranks, and what to do.

use std::{fmt, sync::Arc};

/// The operation during which something went wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct At {
    /// What this rank called.
    pub operation: String,
    /// Its number in the group, from 0; messages between two ranks are counted per pair.
    pub number: u64,
}

impl fmt::Display for At {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (operation {})", self.operation, self.number)
    }
}

/// What went wrong. Ranks are those of the group that was called. After any of these but `Config`
/// the group is of no more use: re-form it with `shrink` or `rejoin`, or end.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A rank's process is gone.
    #[error("{at}: rank {rank} died ({how}); re-form the group without it (shrink) or with a replacement (rejoin)")]
    PeerDied {
        /// Who.
        rank: usize,
        /// How it was noticed.
        how: String,
        /// During what.
        at: At,
    },
    /// A rank has given no sign of life for longer than the heartbeat allows.
    #[error("{at}: rank {rank} has given no sign of life for {seconds:.1} s; look whether it is stopped or its machine \
             overloaded, or re-form without it", seconds = *milliseconds as f64 / 1e3)]
    PeerHung {
        /// Who.
        rank: usize,
        /// For how long.
        milliseconds: u64,
        /// During what.
        at: At,
    },
    /// The operation's time was over. "Timed out" is what users of PyTorch match.
    #[error("{at}: Timed out after {seconds:.3} s waiting for {}; check these ranks, or allow more \
             time", ranks(waiting_for), seconds = *milliseconds as f64 / 1e3)]
    Deadline {
        /// Who has not come or not finished.
        waiting_for: Vec<usize>,
        /// The time allowed.
        milliseconds: u64,
        /// During what.
        at: At,
    },
    /// Another rank gave up; the group cannot go on.
    #[error("{at}: rank {rank} gave up: {why}; re-form the group (shrink), or end")]
    PeerGaveUp {
        /// Who.
        rank: usize,
        /// What it said.
        why: String,
        /// During what.
        at: At,
    },
    /// Ranks called different things.
    #[error(
        "operation {number}: the ranks called different things: {}; make them call the same with the same lengths and \
         types",
        calls_text(calls)
    )]
    Disagreement {
        /// Which operation of the group; of the pair, for messages between two.
        number: u64,
        /// What each rank called, as far as it said.
        calls: Vec<(usize, Option<String>)>,
    },
    /// The ranks could not find each other.
    #[error("rendezvous: {problem}")]
    Rendezvous {
        /// What, where, and what to do.
        problem: String,
    },
    /// A stranger, or one with another secret.
    #[error("secret: {problem}")]
    Secret {
        /// What, where, and what to do.
        problem: String,
    },
    /// Ranks of different builds.
    #[error(
        "{peer} speaks version {theirs} of the protocol between ranks, this rank {ours}: use the same Shoal on all \
         hosts"
    )]
    Version {
        /// Who.
        peer: String,
        /// Its version.
        theirs: u16,
        /// Our version.
        ours: u16,
    },
    /// A mistake of the caller or the configuration; the group goes on.
    #[error("{problem}")]
    Config {
        /// What, where, and what to do.
        problem: String,
    },
    /// The group was re-formed; this one is of the past.
    #[error("this group is of epoch {epoch} and was re-formed since; use the new group")]
    Revoked {
        /// Of the group that was called.
        epoch: u64,
    },
    /// An earlier operation failed, and nothing after it can be trusted.
    #[error(
        "no operation of this group can be done any more, since one failed: {cause}; go on with the group that shrink \
         or rejoin gives"
    )]
    Broken {
        /// The first failure.
        cause: Box<Self>,
    },
    /// The operating system, or the library of a GPU, refused something.
    #[error("{what}: {source}")]
    Io {
        /// What was tried.
        what: String,
        /// What the system said.
        source: Arc<IoError>,
    },
}

/// An error of the operating system that can be told twice.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct IoError(#[from] pub std::io::Error);

impl PartialEq for IoError {
    fn eq(&self, other: &Self) -> bool {
        self.0.raw_os_error() == other.0.raw_os_error() && self.0.kind() == other.0.kind()
    }
}

impl Eq for IoError {}

impl Error {
    /// What the system refused, with what was tried.
    pub(crate) fn io(what: impl Into<String>, source: std::io::Error) -> Self {
        Self::Io { what: what.into(), source: Arc::new(source.into()) }
    }

    /// A mistake of the caller or the configuration.
    pub(crate) fn config(problem: impl Into<String>) -> Self {
        Self::Config { problem: problem.into() }
    }

    /// The ranks could not find each other.
    pub(crate) fn rendezvous(problem: impl Into<String>) -> Self {
        Self::Rendezvous { problem: problem.into() }
    }

    /// That peer could not prove that it has our secret, or did not accept ours.
    pub(crate) fn secret(peer: &str) -> Self {
        let problem = format!(
            "{peer} has another secret than this rank, or is no rank of this group: set SHOAL_COMM_SECRET to the same \
             text on all ranks, and \
             check the meeting place"
        );
        Self::Secret { problem }
    }

    /// Whether the group can still be used.
    pub(crate) fn leaves_group_usable(&self) -> bool {
        matches!(self, Self::Config { .. })
    }
}

fn ranks(ranks: &[usize]) -> String {
    let list = ranks.iter().map(usize::to_string).collect::<Vec<_>>().join(", ");
    if ranks.len() == 1 { format!("rank {list}") } else { format!("ranks {list}") }
}

fn calls_text(calls: &[(usize, Option<String>)]) -> String {
    let text =
        |(rank, call): &(usize, Option<String>)| format!("rank {rank}: {}", call.as_deref().unwrap_or("nothing yet"));
    calls.iter().map(text).collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_say_who_and_what() {
        let at = At { operation: "all-reduce (sum) of 3 f32".to_owned(), number: 7 };
        let deadline = Error::Deadline { waiting_for: vec![1, 3], milliseconds: 1500, at };
        assert_eq!(
            deadline.to_string(),
            "all-reduce (sum) of 3 f32 (operation 7): Timed out after 1.500 s waiting for ranks 1, 3; check these \
             ranks, or allow more time"
        );
        let calls = vec![(0, Some("barrier".to_owned())), (1, None)];
        let text = Error::Disagreement { number: 2, calls }.to_string();
        assert!(text.contains("rank 0: barrier; rank 1: nothing yet"), "{text}");
    }
}
