//! The terminal: a screen of its own that is left as it was found, and keys as they are pressed.

use std::{
    io::{self, Read, Write},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    termios::{LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcgetwinsize, tcsetattr},
};
use signal_hook::{consts::SIGTERM, flag};

/// What a key means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Key {
    Quit,
    Sort,
    /// So many rows down.
    Move(isize),
    /// The frame is to be drawn again: the terminal has another size, perhaps.
    Redraw,
}

/// How long nobody waits for a signal or a new size to be noticed.
const GLANCE: Duration = Duration::from_millis(250);

/// The alternate screen; the user's own comes back when this goes.
pub(super) struct Screen {
    before: Option<Termios>,
    terminated: Arc<AtomicBool>,
}

impl Screen {
    /// Takes the screen, and the keyboard if standard input is one.
    ///
    /// # Errors
    /// The terminal's.
    pub(super) fn enter() -> io::Result<Self> {
        let terminated = Arc::new(AtomicBool::new(false));
        flag::register(SIGTERM, terminated.clone())?;
        let before = tcgetattr(io::stdin()).ok();
        if let Some(before) = &before {
            let mut raw = before.clone();
            // Keys come one by one and unseen; Ctrl-C is one of them, so that we leave in order.
            raw.local_modes.remove(LocalModes::ICANON | LocalModes::ECHO | LocalModes::ISIG);
            raw.special_codes[SpecialCodeIndex::VMIN] = 0;
            raw.special_codes[SpecialCodeIndex::VTIME] = 0;
            tcsetattr(io::stdin(), OptionalActions::Now, &raw)?;
        }
        let screen = Self { before, terminated };
        // Alternate screen, no cursor, no wrapping.
        write("\x1b[?1049h\x1b[?25l\x1b[?7l")?;
        Ok(screen)
    }

    /// Columns and rows.
    pub(super) fn size(&self) -> (usize, usize) {
        let size = tcgetwinsize(io::stdout()).ok().filter(|size| size.ws_col > 0 && size.ws_row > 0);
        size.map_or((80, 24), |size| (usize::from(size.ws_col), usize::from(size.ws_row)))
    }

    /// Draws over what was there: nothing flickers, and nothing stays.
    pub(super) fn show(&self, lines: &[String]) -> io::Result<()> {
        write(&format!("\x1b[H{}\x1b[K\x1b[J", lines.join("\x1b[K\r\n")))
    }

    /// The next key within this time.
    ///
    /// # Errors
    /// The terminal's, or it is gone.
    pub(super) fn key(&self, within: Duration) -> io::Result<Option<Key>> {
        let (until, size) = (Instant::now() + within, self.size());
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if self.terminated.load(Ordering::Relaxed) {
                return Ok(Some(Key::Quit));
            }
            if left.is_zero() {
                return Ok(None);
            }
            if self.size() != size {
                return Ok(Some(Key::Redraw));
            }
            let Some(bytes) = self.read(left.min(GLANCE))? else { continue };
            match meaning(&bytes) {
                // Space: look again now.
                Some(Key::Redraw) => return Ok(None),
                Some(key) => return Ok(Some(key)),
                None => {}
            }
        }
    }

    /// What was typed within this time.
    fn read(&self, within: Duration) -> io::Result<Option<Vec<u8>>> {
        let (stdin, timeout) = (io::stdin(), Timespec { tv_sec: 0, tv_nsec: i64::from(within.subsec_nanos()) });
        if self.before.is_none() {
            std::thread::sleep(within);
            return Ok(None);
        }
        let mut watched = [PollFd::new(&stdin, PollFlags::IN)];
        match poll(&mut watched, Some(&timeout)) {
            Ok(0) | Err(rustix::io::Errno::INTR) => return Ok(None),
            Ok(_) => {}
            Err(error) => return Err(error.into()),
        }
        let mut buffer = [0; 64];
        match stdin.lock().read(&mut buffer)? {
            // The terminal has been closed.
            0 => Ok(Some(vec![b'q'])),
            read => Ok(Some(buffer[..read].to_vec())),
        }
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // There is nobody to tell if this fails.
        let _ = write("\x1b[?7h\x1b[?25h\x1b[?1049l");
        if let Some(before) = &self.before {
            let _ = tcsetattr(io::stdin(), OptionalActions::Now, before);
        }
    }
}

fn write(text: &str) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(text.as_bytes())?;
    stdout.flush()
}

/// The last key of what was typed.
fn meaning(bytes: &[u8]) -> Option<Key> {
    for (ending, key) in [
        (&b"\x1b[A"[..], Key::Move(-1)),
        (b"\x1b[B", Key::Move(1)),
        (b"\x1b[5~", Key::Move(-10)),
        (b"\x1b[6~", Key::Move(10)),
    ] {
        if bytes.ends_with(ending) {
            return Some(key);
        }
    }
    match bytes.last()? {
        b'q' | b'Q' | 3 => Some(Key::Quit),
        b's' => Some(Key::Sort),
        b'k' => Some(Key::Move(-1)),
        b'j' => Some(Key::Move(1)),
        b' ' => Some(Key::Redraw),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_have_meanings() {
        for (bytes, expected) in [
            (&b"q"[..], Some(Key::Quit)),
            (b"\x03", Some(Key::Quit)),
            (b"\x1b[A", Some(Key::Move(-1))),
            (b"xs", Some(Key::Sort)),
            (b"x", None),
            (b"", None),
        ] {
            assert_eq!(meaning(bytes), expected, "{bytes:?}");
        }
    }
}
