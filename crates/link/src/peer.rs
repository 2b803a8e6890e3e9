//! Messages between agents of one job: instances on several machines pass parts of their inputs on
//! ([`crate::ToServer::PartSum`] has what they compare them with).

use serde::{Deserialize, Serialize};

use crate::Hello;

/// From an agent to another host's of the same attempt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum ToPeer {
    /// The first message, with the attempt's secret and the caller's host number. Answered by
    /// [`FromPeer::Ready`] or [`FromPeer::Refused`].
    Hello(Hello),
    /// A part of an object. Answered by one [`crate::Frame::Chunk`] with all of it,
    /// [`FromPeer::Later`] or [`FromPeer::Absent`].
    Part {
        /// See [`crate::ManifestEntry::id`].
        id: String,
        /// Of the first byte.
        offset: u64,
        /// Number of bytes.
        length: u64,
    },
}

/// The answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum FromPeer {
    /// Parts may be asked for.
    Ready,
    /// The caller is of another job.
    Refused {
        /// Why.
        reason: String,
    },
    /// It has not come there yet: ask again.
    Later,
    /// This host does not get the object, or has lost it.
    Absent,
}
