//! What can go wrong with an operation by name.

use crate::Error;

/// What went wrong with an operation by name. Ranks are those of the world.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Failure {
    /// The ranks submitted different operations under one name, or one that joined ranks cannot
    /// take part in. Other operations go on.
    #[error("{problem}")]
    Mismatch {
        /// The operation's tensors.
        tensors: Vec<String>,
        /// What each rank submitted, and what to do.
        problem: String,
    },
    /// An operation of that name is outstanding. Other operations go on.
    #[error(
        "Requested to {action} a tensor with the same name as another tensor that is currently being processed: \
         {tensor:?}. Wait for that one, or give this one another name"
    )]
    Duplicate {
        /// The operation's kind.
        action: &'static str,
        /// The name.
        tensor: String,
    },
    /// The engine was shut down before the operation was done.
    #[error(
        "the engine was shut down before {} was done: shut down after the last operation, on all ranks",
        quoted(tensors)
    )]
    ShutDown {
        /// What was outstanding.
        tensors: Vec<String>,
    },
    /// The process group failed; the engine does no further operation.
    #[error("{}{error}", prefix(tensors))]
    Comm {
        /// What was outstanding.
        tensors: Vec<String>,
        /// Why.
        error: Error,
    },
    /// The caller's function failed on this rank. Other operations go on.
    #[error("{tensor:?}: {problem}")]
    External {
        /// The operation's name.
        tensor: String,
        /// What the function said.
        problem: String,
    },
}

impl Failure {
    /// A mistake of the caller.
    pub(super) fn config(problem: impl Into<String>) -> Self {
        Self::Comm { tensors: Vec::new(), error: Error::config(problem) }
    }

    /// The names of the operations' tensors, as far as known.
    pub fn tensors(&self) -> Vec<String> {
        match self {
            Self::Mismatch { tensors, .. } | Self::ShutDown { tensors } | Self::Comm { tensors, .. } => tensors.clone(),
            Self::Duplicate { tensor, .. } | Self::External { tensor, .. } => vec![tensor.clone()],
        }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Comm { tensors: Vec::new(), error }
    }
}

/// At most so many names are listed.
const LISTED: usize = 5;

/// A list of names for a message.
pub(super) fn quoted(names: &[String]) -> String {
    let mut text = names.iter().take(LISTED).map(|name| format!("{name:?}")).collect::<Vec<_>>().join(", ");
    if names.len() > LISTED {
        text += &format!(" and {} more", names.len() - LISTED);
    }
    if text.is_empty() { "the operation".to_owned() } else { text }
}

fn prefix(tensors: &[String]) -> String {
    if tensors.is_empty() { String::new() } else { format!("{}: ", quoted(tensors)) }
}

/// A list of ranks for a message.
pub(super) fn ranks(list: &[usize]) -> String {
    let text = list.iter().map(usize::to_string).collect::<Vec<_>>().join(", ");
    if list.len() == 1 { format!("rank {text}") } else { format!("ranks {text}") }
}

/// An error of a process set's group, with the world's ranks.
pub(super) fn of_world(error: Error, members: &[usize]) -> Error {
    let rank = |rank: usize| members.get(rank).copied().unwrap_or(rank);
    match error {
        Error::PeerDied { rank: it, how, at } => Error::PeerDied { rank: rank(it), how, at },
        Error::PeerHung { rank: it, milliseconds, at } => Error::PeerHung { rank: rank(it), milliseconds, at },
        Error::PeerGaveUp { rank: it, why, at } => Error::PeerGaveUp { rank: rank(it), why, at },
        Error::Deadline { waiting_for, milliseconds, at } => {
            Error::Deadline { waiting_for: waiting_for.into_iter().map(rank).collect(), milliseconds, at }
        }
        Error::Disagreement { number, calls } => {
            Error::Disagreement { number, calls: calls.into_iter().map(|(it, call)| (rank(it), call)).collect() }
        }
        Error::Broken { cause } => Error::Broken { cause: Box::new(of_world(*cause, members)) },
        other => other,
    }
}
