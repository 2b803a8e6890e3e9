//! Messages between this process and its helpers over an inherited Unix socket.
//!
//! `u32` little-endian length, JSON; descriptors travel with the first byte. A message is one
//! `sendmsg`, so that two helpers can share an end of the socket: small messages do not mix.

use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;

use nix::sys::socket::{ControlMessage, ControlMessageOwned, MsgFlags, recvmsg, sendmsg};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::guest::Terminal;
use crate::spec::SandboxSpec;

/// To a helper.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Order {
    /// Make this instance. With namespaces, the descriptors are the program's user namespace, the
    /// network's network namespace, and the line that the program is to have, if it is to have one.
    Start { spec: Box<SandboxSpec>, mode: Mode },
    /// To a network's helper: your user namespace has its maps now.
    Mapped,
    /// To an instance's first process: you are in your control group now.
    Limited,
    /// SIGTERM to the program.
    Terminate,
    /// SIGKILL to everything (used where there is no PID namespace that would do it).
    Kill,
    /// SIGSTOP to everything but the first process.
    Freeze,
    /// SIGCONT to everything but the first process.
    Thaw,
    /// Start the command of this description beside the program, as [`crate::Guest`] has it; of the
    /// rest only the environment and the working directory count. The descriptors are the guest's
    /// line and, without a terminal, its standard input, output and error.
    Guest { spec: Box<SandboxSpec>, terminal: Option<Terminal> },
}

/// How an instance is kept apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Mode {
    /// Namespaces made by the machine's root.
    Root,
    /// Namespaces made by root of a user namespace of our own.
    Rootless,
    /// Plain processes.
    Processes,
    /// Plain processes in a container whose files are the instance's.
    Container,
}

impl Mode {
    /// Whether the instance has namespaces of its own.
    pub(crate) fn has_namespaces(self) -> bool {
        matches!(self, Mode::Root | Mode::Rootless)
    }
}

/// From a helper.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Report {
    /// The process that speaks from now on, as a child of the one that listens.
    Forked { pid: i32 },
    /// A network's helper is in its user namespace and needs the maps.
    NeedsMaps,
    /// A network is up.
    Up,
    /// The program runs, with these shortfalls (see [`crate::root::Shortfalls`]). With namespaces,
    /// the descriptors are the listeners: the forwarder's, and the proxy's if the instance has one.
    Running { notes: Vec<String>, read_only: bool },
    /// The program could not be started.
    NotStarted { message: String, code: i32 },
    /// The program ended.
    Ended { code: Option<i32>, signal: Option<i32> },
    /// The helper could not do its work.
    Failed { message: String },
}

/// Sends one message.
pub(crate) fn send<M: Serialize>(stream: &UnixStream, message: &M, fds: &[BorrowedFd<'_>]) -> io::Result<()> {
    let body = serde_json::to_vec(message)?;
    let length = u32::try_from(body.len()).map_err(|_| io::Error::other("a message of more than 4 GiB"))?;
    let mut frame = Vec::with_capacity(4 + body.len());
    frame.extend_from_slice(&length.to_le_bytes());
    frame.extend_from_slice(&body);
    let raw: Vec<_> = fds.iter().map(AsRawFd::as_raw_fd).collect();
    let rights = [ControlMessage::ScmRights(&raw)];
    let control = if raw.is_empty() { &[][..] } else { &rights[..] };
    let sent = sendmsg::<()>(stream.as_raw_fd(), &[IoSlice::new(&frame)], control, MsgFlags::MSG_NOSIGNAL, None)?;
    let mut rest = stream;
    rest.write_all(&frame[sent..])
}

/// Receives one message and the descriptors that came with it; `None` when the other side is gone.
pub(crate) fn receive<M: DeserializeOwned>(stream: &UnixStream) -> io::Result<Option<(M, Vec<OwnedFd>)>> {
    let mut header = [0_u8; 4];
    let mut space = nix::cmsg_space!([std::os::fd::RawFd; 4]);
    let mut fds = Vec::new();
    let received = loop {
        let mut slices = [IoSliceMut::new(&mut header)];
        match recvmsg::<()>(stream.as_raw_fd(), &mut slices, Some(&mut space), MsgFlags::MSG_CMSG_CLOEXEC) {
            Ok(message) => {
                for control in message.cmsgs().map_err(io::Error::from)? {
                    if let ControlMessageOwned::ScmRights(raw) = control {
                        #[allow(unsafe_code, reason = "received descriptors arrive as bare numbers")]
                        // SAFETY: the kernel has just made these descriptors for us; nobody else
                        // knows their numbers.
                        fds.extend(raw.into_iter().map(|fd| unsafe { OwnedFd::from_raw_fd(fd) }));
                    }
                }
                break message.bytes;
            }
            Err(nix::Error::EINTR) => {}
            Err(nix::Error::ECONNRESET) => return Ok(None),
            Err(error) => return Err(error.into()),
        }
    };
    if received == 0 {
        return Ok(None);
    }
    let mut rest = stream;
    let mut body = Vec::new();
    let complete = rest.read_exact(&mut header[received..]).and_then(|()| {
        body.resize(u32::from_le_bytes(header) as usize, 0);
        rest.read_exact(&mut body)
    });
    match complete {
        Ok(()) => Ok(Some((serde_json::from_slice(&body)?, fds))),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
        Err(error) => Err(error),
    }
}
