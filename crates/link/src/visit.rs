//! Visits: somebody looks after a running instance from outside. The server asks for one
//! ([`crate::ToAgent::Visit`]); the agent opens a connection of its own for it, whose first message
//! is [`crate::ToServer::Visit`], answered by [`crate::ToAgent::Ready`].
//!
//! From then on [`crate::Frame::Chunk`]s carry bytes: down, what the command is to read; up, what
//! it writes, after one byte that tells the stream.

use serde::{Deserialize, Serialize};

/// What a visitor wants.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Visit {
    /// A command beside the training program: same user, namespaces, limits and environment.
    Command {
        /// Program and arguments, not empty.
        command: Vec<String>,
        /// It is to have a terminal.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        terminal: Option<Terminal>,
    },
    /// The stacks of all processes of the instance, as text.
    Stacks {
        /// They are sampled for this number of seconds, and folded: one line for each different
        /// stack. Agents before this existed show them once.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        seconds: Option<u32>,
    },
}

/// A terminal as the visitor has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Terminal {
    /// Its kind, for `TERM`.
    pub name: String,
    /// Lines.
    pub rows: u16,
    /// Characters of a line.
    pub columns: u16,
}

/// First byte of a chunk that an agent sends: which stream it is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Stream {
    /// Standard output, or all that goes to a terminal.
    Stdout = 1,
    /// Standard error.
    Stderr = 2,
}

impl Stream {
    /// The chunk for these bytes.
    #[must_use]
    pub fn chunk(self, bytes: &[u8]) -> Vec<u8> {
        [&[self as u8], bytes].concat()
    }

    /// The stream of a chunk and its bytes; `None` if no agent sends such a chunk.
    #[must_use]
    pub fn of(chunk: &[u8]) -> Option<(Self, &[u8])> {
        match chunk.split_first()? {
            (1, bytes) => Some((Self::Stdout, bytes)),
            (2, bytes) => Some((Self::Stderr, bytes)),
            _ => None,
        }
    }
}

/// How a visit ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "end", rename_all = "snake_case")]
pub enum VisitEnd {
    /// `exit(code)`.
    Exited {
        /// Its code.
        code: i32,
    },
    /// The command was killed.
    Signaled {
        /// By this signal.
        signal: i32,
    },
    /// It did not come to its end.
    Broken {
        /// Why, and what to do.
        reason: String,
    },
}

#[cfg(test)]
mod tests {
    use super::Stream;

    #[test]
    fn a_chunk_tells_its_stream() {
        for stream in [Stream::Stdout, Stream::Stderr] {
            assert_eq!(Stream::of(&stream.chunk(b"text")), Some((stream, &b"text"[..])));
            assert_eq!(Stream::of(&stream.chunk(b"")), Some((stream, &b""[..])));
        }
        assert_eq!(Stream::of(b""), None);
        assert_eq!(Stream::of(b"\x03text"), None);
    }
}
