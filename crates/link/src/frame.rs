//! Length-prefixed frames over any byte stream.
//!
//! `u32` little-endian length of what follows, one kind byte, payload. Kind 0: a JSON message. Kind
//! 1: a part of an artifact: `u64` seq, `u8` artifact (0 model, 1 output), bytes. Kind 2: bytes of
//! the file that has begun.

use std::borrow::Cow;

use serde::{Serialize, de::DeserializeOwned};

use crate::Artifact;

/// Frames larger than this are refused: a peer that sends one is broken or hostile.
pub const MAX_FRAME_BYTES: usize = 64 << 20;
/// Bytes of the length and the kind.
pub const FRAME_HEADER_BYTES: usize = 5;

const MESSAGE: u8 = 0;
const PART: u8 = 1;
const CHUNK: u8 = 2;

/// One frame.
#[derive(Debug, Clone, PartialEq)]
pub enum Frame<M> {
    /// A message.
    Message(M),
    /// A part of an artifact, in order; numbered in the same sequence as the reports.
    Part {
        /// See [`crate::Report::seq`].
        seq: u64,
        /// Which.
        artifact: Artifact,
        /// Appended to what came before.
        bytes: Vec<u8>,
    },
    /// The next bytes of a file, between [`crate::ToServer::FileBegins`] and its end.
    Chunk(Vec<u8>),
}

/// The stream does not hold frames of this protocol.
#[derive(Debug, thiserror::Error)]
pub enum FrameError {
    /// Longer than [`MAX_FRAME_BYTES`] or empty.
    #[error("frame of {0} bytes is outside 1..={MAX_FRAME_BYTES}")]
    Length(usize),
    /// Unknown kind byte.
    #[error("unknown frame kind {0}")]
    Kind(u8),
    /// Unknown artifact or a part cut short.
    #[error("malformed artifact part")]
    Part,
    /// Not a message of this protocol.
    #[error("malformed message")]
    Message(#[from] serde_json::Error),
}

/// The bytes of a frame, length prefix included.
///
/// # Errors
/// [`FrameError::Message`] if the message cannot be serialised, [`FrameError::Length`] if it is too
/// long.
pub fn encode<M: Serialize>(frame: &Frame<M>) -> Result<Vec<u8>, FrameError> {
    let mut out = vec![0; 4];
    match frame {
        Frame::Message(message) => {
            out.push(MESSAGE);
            serde_json::to_writer(&mut out, message)?;
        }
        Frame::Part { seq, artifact, bytes } => {
            out.push(PART);
            out.extend_from_slice(&seq.to_le_bytes());
            out.push(match artifact {
                Artifact::Model => 0,
                Artifact::Output => 1,
            });
            out.extend_from_slice(bytes);
        }
        Frame::Chunk(bytes) => {
            out.push(CHUNK);
            out.extend_from_slice(bytes);
        }
    }
    let prefix = prefix(out.len() - 4)?;
    out[..4].copy_from_slice(&prefix);
    Ok(out)
}

/// What stands before a frame's body: its length and its kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrameHeader {
    /// Bytes that follow.
    pub body_bytes: usize,
    kind: u8,
}

impl FrameHeader {
    /// Of a chunk of this many bytes.
    ///
    /// # Errors
    /// [`FrameError::Length`].
    pub fn of_chunk(body_bytes: usize) -> Result<[u8; FRAME_HEADER_BYTES], FrameError> {
        let [a, b, c, d] = prefix(body_bytes + 1)?;
        Ok([a, b, c, d, CHUNK])
    }

    /// Reads one.
    ///
    /// # Errors
    /// [`FrameError::Length`].
    pub fn decode([a, b, c, d, kind]: [u8; FRAME_HEADER_BYTES]) -> Result<Self, FrameError> {
        Ok(Self { body_bytes: length([a, b, c, d])? - 1, kind })
    }

    /// The frame with this body; one that is owned becomes a chunk without being copied.
    ///
    /// # Errors
    /// It is none of this protocol.
    pub fn frame<M: DeserializeOwned>(self, body: Cow<'_, [u8]>) -> Result<Frame<M>, FrameError> {
        Ok(match self.kind {
            MESSAGE => Frame::Message(serde_json::from_slice(&body)?),
            PART => {
                let (seq, rest) = body.split_first_chunk::<8>().ok_or(FrameError::Part)?;
                let (artifact, bytes) = rest.split_first().ok_or(FrameError::Part)?;
                let artifact = match artifact {
                    0 => Artifact::Model,
                    1 => Artifact::Output,
                    _ => return Err(FrameError::Part),
                };
                Frame::Part { seq: u64::from_le_bytes(*seq), artifact, bytes: bytes.to_vec() }
            }
            CHUNK => Frame::Chunk(body.into_owned()),
            kind => return Err(FrameError::Kind(kind)),
        })
    }
}

fn length(prefix: [u8; 4]) -> Result<usize, FrameError> {
    match u32::from_le_bytes(prefix) as usize {
        length @ 1..=MAX_FRAME_BYTES => Ok(length),
        length => Err(FrameError::Length(length)),
    }
}

fn prefix(length: usize) -> Result<[u8; 4], FrameError> {
    match u32::try_from(length) {
        Ok(prefix) if length <= MAX_FRAME_BYTES => Ok(prefix.to_le_bytes()),
        _ => Err(FrameError::Length(length)),
    }
}

/// Cuts a byte stream into frames.
#[derive(Debug, Default)]
pub struct Decoder {
    buffer: Vec<u8>,
    start: usize,
}

impl Decoder {
    /// Adds bytes as they came.
    pub fn push(&mut self, bytes: &[u8]) {
        if self.start > 0 && self.start == self.buffer.len() {
            self.buffer.clear();
            self.start = 0;
        }
        self.buffer.extend_from_slice(bytes);
    }

    /// The next whole frame, or `None` until more bytes come.
    ///
    /// # Errors
    /// The stream is not of this protocol; it must be closed.
    #[expect(
        clippy::should_implement_trait,
        reason = "an iterator has one item type and ends; this is asked again when more bytes came"
    )]
    pub fn next<M: DeserializeOwned>(&mut self) -> Result<Option<Frame<M>>, FrameError> {
        let available = &self.buffer[self.start..];
        // One that is wrong is found before the kind has come.
        available.first_chunk().map(|prefix| length(*prefix)).transpose()?;
        let Some((header, rest)) = available.split_first_chunk() else { return Ok(None) };
        let header = FrameHeader::decode(*header)?;
        let Some(body) = rest.get(..header.body_bytes) else { return Ok(None) };
        let frame = header.frame(Cow::Borrowed(body))?;
        self.start += FRAME_HEADER_BYTES + header.body_bytes;
        if self.start > 1 << 20 {
            self.buffer.drain(..self.start);
            self.start = 0;
        }
        Ok(Some(frame))
    }
}
