//! Messages of the link on an agent's stream, whatever the connection is for.

use std::{
    io::{self, Read, Write},
    net::Shutdown,
    os::unix::net::UnixStream,
    sync::{Arc, Mutex},
};

use shoal_link::{Decoder, Frame, ToAgent, encode};

/// Sends to an agent. Messages arrive unmixed, from whatever thread they are sent.
#[derive(Clone)]
pub(crate) struct AgentSender(Arc<Mutex<UnixStream>>);

impl AgentSender {
    pub(crate) fn new(stream: UnixStream) -> Self {
        Self(Arc::new(Mutex::new(stream)))
    }

    pub(crate) fn send(&self, message: ToAgent) -> io::Result<()> {
        self.send_frame(&Frame::Message(message))
    }

    pub(crate) fn send_frame(&self, frame: &Frame<ToAgent>) -> io::Result<()> {
        let bytes = encode(frame).map_err(io::Error::other)?;
        self.0.lock().expect("no holder of this lock panics").write_all(&bytes)
    }

    pub(crate) fn close(&self) {
        // A connection that is closed already needs nothing more.
        let _ = self.0.lock().expect("no holder of this lock panics").shutdown(Shutdown::Both);
    }
}

/// Waits for what an agent sends next.
pub(crate) fn read_some(stream: &mut UnixStream, decoder: &mut Decoder) -> io::Result<()> {
    // As much as a socket holds: what comes together shares a transaction.
    let mut buffer = vec![0; 256 << 10];
    match stream.read(&mut buffer)? {
        0 => Err(io::ErrorKind::UnexpectedEof.into()),
        read => {
            decoder.push(&buffer[..read]);
            Ok(())
        }
    }
}
