//! Connections between agents and the server, and what is sent on them.

use shoal_link::{Frame, Order, ToServer};
use shoal_plane::AttemptId;

use super::{disk::AttemptHost, processes::Process};

/// What a connection is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Reports of a host.
    Reports(AttemptHost),
    /// Checkpoint files of a host.
    Files(AttemptHost),
    /// The agent serves no attempt.
    Idle,
}

#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) process: Process,
    pub(crate) purpose: Purpose,
    /// When what was last sent in each direction arrives.
    pub(crate) up_at: u64,
    pub(crate) down_at: u64,
}

/// From an agent to the server.
#[derive(Debug, Clone)]
pub(crate) enum Up {
    /// First on each connection, whatever its purpose.
    Hello,
    /// They arrive together.
    Frames(Vec<Frame<ToServer>>),
}

/// From the server to an agent.
#[derive(Debug, Clone)]
pub(crate) enum Down {
    Welcome {
        acked: u64,
    },
    Refused,
    Ack(u64),
    Order(Order),
    /// An idle agent is to serve this attempt.
    Serve {
        attempt: AttemptId,
    },
    /// Files may come.
    Ready,
    FileSaved(String),
    FileRefused,
    /// Nothing more comes.
    Closed,
}
