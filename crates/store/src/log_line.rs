//! A line of a log stream, and what it counts.

/// A line of a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogEvent {
    /// When it was written, in milliseconds since the epoch, as its writer says.
    pub at_ms: u64,
    /// When it came in.
    pub ingested_ms: u64,
    /// The line.
    pub text: String,
    /// Lines before it in its stream.
    pub position: u64,
}

/// Bytes that a line counts beside its text, as at AWS.
pub const LINE_OVERHEAD: usize = 26;

/// Bytes that a line of this text counts.
pub(crate) fn counted(text: &str) -> u64 {
    (text.len() + LINE_OVERHEAD) as u64
}
