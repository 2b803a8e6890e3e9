//! Options of data connections.

#![expect(unsafe_code, reason = "TCP_NOTSENT_LOWAT has no safe wrapper")]

use std::io;
use std::net::TcpStream;
use std::os::fd::AsRawFd;

/// Bytes that may lie in a socket before they go onto the wire. What is above waits here, where it can still be ordered; what is on the wire
/// is bounded by congestion control only.
const UNSENT: libc::c_int = 256 * 1024;

/// Makes a connection ready for data: no delays, no time limits, non-blocking, and a bound on what lies unsent.
pub(super) fn prepare(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    stream.set_read_timeout(None)?;
    stream.set_write_timeout(None)?;
    stream.set_nonblocking(true)?;
    let size = libc::socklen_t::try_from(size_of::<libc::c_int>()).expect("4");
    let unsent = UNSENT;
    // SAFETY: the option's value is a C int, which lives during the call.
    let set = unsafe { libc::setsockopt(stream.as_raw_fd(), libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT, (&raw const unsent).cast(), size) };
    if set == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
