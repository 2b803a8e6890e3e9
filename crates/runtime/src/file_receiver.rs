//! The receiving end of a connection on which an agent mirrors files: checkpoints, or the
//! intermediate output.
//!
//! A file becomes an object first, then (of checkpoints) its receipt an event, then the agent is
//! answered, in the order of the files. Whatever is lost in between, the agent sends again what was
//! not answered: the object is replaced by an equal one, and there is a receipt for it. Receipts of
//! files that arrive together share a commit.

use shoal_link::{Frame, ToAgent, ToServer};

/// What happened.
#[derive(Debug)]
pub enum Event {
    /// This arrived.
    Arrived(Frame<ToServer>),
    /// All that arrived is handled.
    Drained,
    /// Answer to [`Io::Store`].
    Stored(Result<(), String>),
    /// Answer to [`Io::Commit`].
    Committed,
}

/// What the driver does. If it fails, the connection ends, and the agent sends again what was not
/// answered.
#[derive(Debug, PartialEq)]
pub enum Io {
    /// A file begins; not answered.
    Begin {
        /// Below the agent's directory.
        path: String,
        /// It cannot be written again when there is more room.
        is_last: bool,
    },
    /// Append to it; not answered.
    Append(Vec<u8>),
    /// Forget it; not answered.
    Drop,
    /// It is complete: store it, or tell why it was not written. Answered by [`Event::Stored`].
    Store,
    /// Submit that these files are stored; answered by [`Event::Committed`].
    Commit(Vec<String>),
    /// Not answered.
    Send(ToAgent),
    /// Take the next message: bring [`Event::Arrived`], or [`Event::Drained`] if there is none and
    /// none was brought since the last.
    Read,
    /// End the connection: this is not what agents send on it.
    Refuse,
}

#[derive(Debug, Default)]
enum State {
    #[default]
    Idle,
    /// So many bytes of a file have arrived.
    Receiving {
        path: String,
        bytes: u64,
    },
    Storing {
        path: String,
    },
    /// The receipts of these files; then the agent is to be answered about another one.
    Committing {
        paths: Vec<String>,
        refused: Option<ToAgent>,
    },
}

/// The files of one connection.
#[derive(Debug)]
pub struct FileReceiver {
    has_receipts: bool,
    state: State,
    /// Files that are stored, and not answered so far.
    stored: Vec<String>,
}

impl FileReceiver {
    /// For files with receipts, or without.
    pub fn new(has_receipts: bool) -> Self {
        Self { has_receipts, state: State::Idle, stored: Vec::new() }
    }

    /// What follows from an event.
    pub fn handle(&mut self, event: Event) -> Vec<Io> {
        match (event, std::mem::take(&mut self.state)) {
            (Event::Arrived(Frame::Message(ToServer::FileBegins { path, is_last })), State::Idle) => {
                self.state = State::Receiving { path: path.clone(), bytes: 0 };
                vec![Io::Begin { path, is_last }, Io::Read]
            }
            (Event::Arrived(Frame::Chunk(chunk)), State::Receiving { path, bytes }) => {
                self.state = State::Receiving { path, bytes: bytes + chunk.len() as u64 };
                vec![Io::Append(chunk), Io::Read]
            }
            (Event::Arrived(Frame::Message(ToServer::FileDropped)), State::Idle | State::Receiving { .. }) => {
                vec![Io::Drop, Io::Read]
            }
            (
                Event::Arrived(Frame::Message(ToServer::FileEnds { bytes })),
                State::Receiving { path, bytes: arrived },
            ) if bytes == arrived => {
                self.state = State::Storing { path };
                vec![Io::Store]
            }
            (Event::Arrived(_), _) => vec![Io::Refuse],
            (Event::Stored(Ok(())), State::Storing { path }) => {
                self.stored.push(path);
                vec![Io::Read]
            }
            (Event::Stored(Err(reason)), State::Storing { path }) => {
                self.answer(Some(ToAgent::FileRefused { path, reason }))
            }
            (Event::Drained, State::Idle) if !self.stored.is_empty() => self.answer(None),
            (Event::Committed, State::Committing { paths, refused }) => answers(paths, refused),
            // An answer that no state awaits, or nothing to do.
            (Event::Drained | Event::Stored(_) | Event::Committed, state) => {
                self.state = state;
                Vec::new()
            }
        }
    }

    fn answer(&mut self, refused: Option<ToAgent>) -> Vec<Io> {
        let paths = std::mem::take(&mut self.stored);
        if paths.is_empty() || !self.has_receipts {
            return answers(paths, refused);
        }
        self.state = State::Committing { paths: paths.clone(), refused };
        vec![Io::Commit(paths)]
    }
}

fn answers(saved: Vec<String>, refused: Option<ToAgent>) -> Vec<Io> {
    let saved = saved.into_iter().map(|path| ToAgent::FileSaved { path });
    saved.chain(refused).map(Io::Send).chain([Io::Read]).collect()
}

#[cfg(test)]
mod tests;
