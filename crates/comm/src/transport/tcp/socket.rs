//! Options of data connections.

#![expect(unsafe_code, reason = "TCP_NOTSENT_LOWAT has no safe wrapper")]

use std::io;
use std::net::TcpStream;
use std::os::fd::AsRawFd;

/// Bytes that may lie in a socket before they go onto the wire; what is on the wire is bounded by
/// congestion control only. Of the next rank, to which rings send, they may be many, so that the
/// wire has work while this process waits for a core. Of others, what is above a few milliseconds
/// of a fast wire waits here, so that pieces go to other ranks in turn.
const fn unsent(is_next: bool) -> libc::c_int {
    if is_next { 8 << 20 } else { 1 << 20 }
}

/// Makes a connection ready for data: no delays, no time limits, non-blocking, and a bound on what
/// lies unsent.
pub(super) fn prepare(stream: &TcpStream, is_next: bool) -> io::Result<()> {
    stream.set_nodelay(true)?;
    stream.set_read_timeout(None)?;
    stream.set_write_timeout(None)?;
    stream.set_nonblocking(true)?;
    let size = libc::socklen_t::try_from(size_of::<libc::c_int>()).expect("4");
    let unsent = unsent(is_next);
    // SAFETY: the option's value is a C int, which lives during the call.
    let set = unsafe {
        libc::setsockopt(
            stream.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_NOTSENT_LOWAT,
            (&raw const unsent).cast(),
            size,
        )
    };
    if set == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
