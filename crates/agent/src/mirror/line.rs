//! The connection that carries the files of a directory.

use std::io::{self, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use shoal_link::{Decoder, Frame, MirrorKind, ToAgent, ToServer, encode};

use crate::Options;
use crate::connection::{hello, receive};
use crate::mirror::changes::Changes;

/// A server that takes nothing for so long is as good as gone: connect anew.
const SERVER_TIMEOUT: Duration = Duration::from_secs(60);

const STACK: usize = 128 << 10;

/// A connection that the server has said yes to.
pub(crate) struct Line {
    stream: UnixStream,
}

/// What came of an attempt to connect.
pub(crate) enum Met {
    Ready(Line),
    /// Nobody wants these files.
    Refused(String),
}

impl Drop for Line {
    fn drop(&mut self) {
        // Wakes the listener.
        let _ = self.stream.shutdown(Shutdown::Both);
    }
}

impl Line {
    /// Connects; what the server says from then on goes to `changes` under this number.
    pub(crate) fn connect(options: &Options, kind: MirrorKind, number: u64, changes: &Arc<Changes>) -> io::Result<Met> {
        let mut stream = options.server.connect()?;
        stream.set_write_timeout(Some(SERVER_TIMEOUT))?;
        stream.set_read_timeout(Some(SERVER_TIMEOUT))?;
        let mut line = Line { stream: stream.try_clone()? };
        line.say(ToServer::Mirror { hello: hello(options), kind })?;
        let mut decoder = Decoder::default();
        match receive(&mut stream, &mut decoder)? {
            ToAgent::Ready => {}
            ToAgent::Refused { reason } => return Ok(Met::Refused(reason)),
            _ => return Err(io::Error::other("the server does not take files")),
        }
        // Making gigabytes durable may take long; a server that has died closes the connection.
        stream.set_read_timeout(None)?;
        let changes = changes.clone();
        thread::Builder::new().name("file answers".into()).stack_size(STACK).spawn(move || {
            while let Ok(answer) = receive(&mut stream, &mut decoder) {
                changes.answer(number, Some(answer));
            }
            changes.answer(number, None);
        })?;
        Ok(Met::Ready(line))
    }

    pub(crate) fn say(&mut self, message: ToServer) -> io::Result<()> {
        self.send(&Frame::Message(message))
    }

    pub(crate) fn chunk(&mut self, bytes: Vec<u8>) -> io::Result<()> {
        self.send(&Frame::Chunk(bytes))
    }

    fn send(&mut self, frame: &Frame<ToServer>) -> io::Result<()> {
        self.stream.write_all(&encode(frame).map_err(io::Error::other)?)
    }
}
