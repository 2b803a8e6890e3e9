//! The entry of helpers: this executable started again under another name.

use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;

use nix::sys::prctl;

use crate::spawn::{self, INSTANCE, NETWORK};
use crate::{hub, instance};

/// First thing in `main`, before any thread: if this process was started as one of this crate's
/// helpers, does that work and never returns.
pub fn reexec_entry() {
    let name = std::env::args_os().next().unwrap_or_default();
    let name = name.to_string_lossy();
    if let Some(id) = name.strip_prefix(INSTANCE) {
        begin("shoal-init").map_or_else(|error| give_up(&name, &error), |stream| instance::run(&stream, id));
    } else if let Some(id) = name.strip_prefix(NETWORK) {
        begin("shoal-net").map_or_else(|error| give_up(&name, &error), |stream| hub::run(&stream, id));
    } else {
        spawn::allow();
    }
}

fn give_up(name: &str, error: &io::Error) -> ! {
    eprintln!("{name}: {error}");
    std::process::exit(1)
}

/// The socket arrives as standard input; nothing else but output and error is inherited.
fn begin(short: &str) -> io::Result<UnixStream> {
    prctl::set_name(&std::ffi::CString::new(short)?)?;
    close_all_from(3)?;
    let stream = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    nix::unistd::dup2_stdin(std::fs::File::open("/dev/null")?)?;
    // Nobody's directory is kept busy.
    std::env::set_current_dir("/")?;
    Ok(stream)
}

#[allow(unsafe_code, reason = "close_range has no safe wrapper")]
fn close_all_from(first: u32) -> io::Result<()> {
    // SAFETY: at the very start of main nothing of this process owns a descriptor above standard
    // error.
    if unsafe { libc::syscall(libc::SYS_close_range, first, u32::MAX, 0) } == 0 {
        return Ok(());
    }
    // Linux before 5.9, which runs plain processes only.
    for entry in std::fs::read_dir("/proc/self/fd")?.collect::<Vec<_>>() {
        if let Some(fd) =
            entry?.file_name().to_str().and_then(|name| name.parse::<i32>().ok()).filter(|fd| *fd >= first as i32)
        {
            // SAFETY: as above; the directory that was listed is closed already, and closing it
            // again fails.
            unsafe { libc::close(fd) };
        }
    }
    Ok(())
}
