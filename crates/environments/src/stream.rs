//! What a program writes, read while its reader can be told to stop, however long nothing comes.

use std::io::{self, Read};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::thread;

use crate::Watcher;
use crate::run::LOOK;

const PIECE: usize = 256 << 10;
/// Read ahead.
const PIECES: usize = 4;

/// The bytes of a pipe.
pub(crate) struct Stream<'a> {
    pieces: Receiver<io::Result<Vec<u8>>>,
    piece: Vec<u8>,
    taken: usize,
    watcher: &'a mut dyn Watcher,
    /// The watcher waits no more: the last read failed for that.
    pub(crate) is_stopped: bool,
}

impl<'a> Stream<'a> {
    /// Of what `pipe` gives.
    pub(crate) fn new(mut pipe: impl Read + Send + 'static, watcher: &'a mut dyn Watcher) -> Self {
        let (sender, pieces) = sync_channel(PIECES);
        thread::spawn(move || {
            loop {
                let mut piece = vec![0; PIECE];
                let read = pipe.read(&mut piece).map(|count| {
                    piece.truncate(count);
                    piece
                });
                let is_last = match &read {
                    Ok(piece) => piece.is_empty(),
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                    Err(_) => true,
                };
                if sender.send(read).is_err() || is_last {
                    return;
                }
            }
        });
        Self { pieces, piece: Vec::new(), taken: 0, watcher, is_stopped: false }
    }
}

impl Read for Stream<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.taken == self.piece.len() {
            if self.watcher.is_to_stop() {
                self.is_stopped = true;
                return Err(io::Error::other("it is wanted no more"));
            }
            match self.pieces.recv_timeout(LOOK) {
                Ok(piece) => (self.piece, self.taken) = (piece?, 0),
                Err(RecvTimeoutError::Timeout) => continue,
                Err(RecvTimeoutError::Disconnected) => return Ok(0),
            }
            if self.piece.is_empty() {
                return Ok(0);
            }
        }
        let count = buffer.len().min(self.piece.len() - self.taken);
        buffer[..count].copy_from_slice(&self.piece[self.taken..self.taken + count]);
        self.taken += count;
        Ok(count)
    }
}
