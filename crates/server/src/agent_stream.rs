//! Messages of the link on an agent's stream, whatever the connection is for.

use std::{
    fs,
    io::{self, Read, Write},
    net::Shutdown,
    os::{
        fd::AsRawFd,
        unix::net::{UnixListener, UnixStream},
    },
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
};

use shoal_link::{Decoder, Frame, ToAgent, encode};

/// Listens on a Unix socket whose path may be longer than the 108 bytes that an address holds.
pub(crate) fn listen_unix(path: &Path) -> io::Result<UnixListener> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let dir = fs::File::open(path.parent().unwrap_or(Path::new("/")))?;
    let short = PathBuf::from(format!("/proc/self/fd/{}", dir.as_raw_fd())).join(path.file_name().unwrap_or_default());
    UnixListener::bind(short)
}

/// Lets the loop that listens there see that it is to end.
pub(crate) fn wake(socket: &Path) {
    // Without a listener the loop has ended already.
    let _ = UnixStream::connect(socket);
}

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
        self.send_encoded(&encode(frame).map_err(io::Error::other)?)
    }

    /// A whole frame as it is sent.
    pub(crate) fn send_encoded(&self, frame: &[u8]) -> io::Result<()> {
        self.0.lock().expect("no holder of this lock panics").write_all(frame)
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
