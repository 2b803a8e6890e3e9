//! What instances of an MPI program say to each other: a line of text each time. The first line of
//! a connection begins with the secret.

use std::fmt;
use std::io::{self, BufRead, BufReader, Write};
use std::net::{Shutdown, TcpStream};
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::event::{PollFd, PollFlags, Timespec};
use sha2::{Digest, Sha256};

use super::{blame::Failed, port};

/// Variable with the attempt's secret among its instances.
pub(crate) const SECRET: &str = "SHOAL_MPI_SECRET";

/// Between two checks whether a connection is still needed.
const END_POLL: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };

/// Longest line: a daemon's command, or a worker's script with its variables.
const MOST: u64 = 1 << 20;

/// What instances of an attempt have in common, of what only its agents know.
pub(crate) fn secret(token: &str) -> String {
    derived("mpi", token)
}

/// Variable with the secret of the ranks' process groups, which meet at their launcher's address.
pub(crate) const SECRET_OF_GROUPS: &str = "SHOAL_COMM_SECRET";

/// Derives the process groups' secret from the token.
pub(crate) fn secret_of_groups(token: &str) -> String {
    derived("groups", token)
}

fn derived(what: &str, token: &str) -> String {
    hex_simd::encode_to_string(Sha256::digest(format!("{what}:{token}")), hex_simd::AsciiCase::Lower)
}

/// What a connection is for.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Wish {
    /// To tell when all is over.
    Watch,
    /// To start a command, which a shell reads.
    Start(String),
    /// To run a script by a shell that reads it from standard input, where no process list shows
    /// it.
    Script(Vec<u8>),
}

/// What an instance knows when all is over.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Known {
    /// It has a failure file.
    pub(super) has_reason: bool,
    /// Its ranks that failed.
    pub(super) failed: Vec<Failed>,
}

/// `why;3 9 17 0;2 256 18 1`, or `good;..` without a failure file.
impl fmt::Display for Known {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(if self.has_reason { "why" } else { "good" })?;
        self.failed.iter().try_for_each(|failed| write!(formatter, ";{failed}"))
    }
}

impl FromStr for Known {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let mut words = text.split(';');
        let has_reason = match words.next() {
            Some("why") => true,
            Some("good") => false,
            _ => return Err(()),
        };
        Ok(Self { has_reason, failed: words.map(str::parse).collect::<Result<_, _>>()? })
    }
}

/// Both ends of a connection.
#[derive(Debug)]
pub(super) struct Line(BufReader<TcpStream>);

impl Line {
    /// To the instance that waits at `host`.
    pub(super) fn open(host: &str, secret: &str, wish: &Wish) -> io::Result<Self> {
        let stream = TcpStream::connect((host, port()))?;
        stream.set_nodelay(true)?;
        let mut line = Self(BufReader::new(stream));
        match wish {
            Wish::Watch => line.say(&format!("{secret} watch"))?,
            Wish::Script(script) => {
                line.say(&format!(
                    "{secret} script {}",
                    hex_simd::encode_to_string(script, hex_simd::AsciiCase::Lower)
                ))?;
            }
            Wish::Start(command) => line.say(&format!("{secret} start {}", command.replace('\n', " ")))?,
        }
        Ok(line)
    }

    /// Of whoever has connected; `None` if it is not one of us.
    pub(super) fn accept(stream: TcpStream, secret: &str) -> io::Result<Option<(Self, Wish)>> {
        stream.set_nodelay(true)?;
        let mut line = Self(BufReader::new(stream));
        let first = line.hear()?;
        let wish = first.strip_prefix(secret).filter(|_| !secret.is_empty()).and_then(|rest| {
            match rest.strip_prefix(' ')?.split_once(' ') {
                None => (rest == " watch").then_some(Wish::Watch),
                Some(("start", command)) => Some(Wish::Start(command.to_owned())),
                Some(("script", script)) => Some(Wish::Script(hex_simd::decode_to_vec(script).ok()?)),
                Some(_) => None,
            }
        });
        Ok(wish.map(|wish| (line, wish)))
    }

    pub(super) fn say(&mut self, text: &str) -> io::Result<()> {
        self.0.get_mut().write_all(format!("{text}\n").as_bytes())
    }

    /// The next line.
    ///
    /// # Errors
    /// The other end is gone.
    pub(super) fn hear(&mut self) -> io::Result<String> {
        let mut text = String::new();
        io::Read::take(&mut self.0, MOST).read_line(&mut text)?;
        text.strip_suffix('\n').map(str::to_owned).ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
    }

    /// Waits, without reading, until the other end has closed the connection, or until `ended` is
    /// set.
    pub(super) fn wait_for_end(&mut self, ended: &AtomicBool) {
        let stream = self.0.get_ref();
        let mut byte = [0];
        // A read timeout would hold for all clones of the connection.
        while !ended.load(Ordering::Acquire) {
            let mut polled = [PollFd::new(stream, PollFlags::IN | PollFlags::RDHUP)];
            if rustix::event::poll(&mut polled, Some(&END_POLL)).is_ok_and(|ready| ready > 0)
                && stream.peek(&mut byte).is_ok_and(|count| count == 0)
            {
                return;
            }
            if polled[0].revents().intersects(PollFlags::ERR | PollFlags::HUP | PollFlags::RDHUP) {
                return;
            }
        }
    }

    /// Shuts the connection down for all of its clones.
    pub(super) fn close(&self) {
        // It fails if it has ended by itself.
        let _ = self.0.get_ref().shutdown(Shutdown::Both);
    }

    /// Another hold on the same connection.
    pub(super) fn another(&self) -> io::Result<Self> {
        Ok(Self(BufReader::new(self.0.get_ref().try_clone()?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;
    use std::os::unix::process::ExitStatusExt;
    use std::process::ExitStatus;

    #[test]
    fn what_an_instance_knows_is_one_line() {
        let status = ExitStatus::from_raw;
        let failed = vec![
            Failed { rank: 3, host: 0, status: status(9), at: 17, is_stopped: false },
            Failed { rank: 2, host: 0, status: status(256), at: 18, is_stopped: true },
        ];
        for (known, text) in [
            (Known::default(), "good"),
            (Known { has_reason: true, failed: Vec::new() }, "why"),
            (Known { has_reason: false, failed }, "good;3 9 17 0;2 256 18 1"),
        ] {
            assert_eq!(known.to_string(), text);
            assert_eq!(text.parse(), Ok(known));
        }
        assert!(["", "bad", "good;", "good;1", "why;1 x"].iter().all(|text| text.parse::<Known>().is_err()));
    }

    #[test]
    fn whoever_has_not_the_secret_is_not_heard() {
        let ours = secret("token");
        assert_eq!(ours.len(), 64);
        assert_ne!(ours, secret("another"));
        assert_ne!(ours, secret_of_groups("token"));
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let heard = |said: &str, secret: &str| {
            let mut stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            stream.write_all(said.as_bytes()).unwrap();
            drop(stream);
            Line::accept(listener.accept().unwrap().0, secret).map(|found| found.map(|(_, wish)| wish))
        };
        assert_eq!(heard(&format!("{ours} watch\n"), &ours).unwrap(), Some(Wish::Watch));
        assert_eq!(heard(&format!("{ours} start a b\n"), &ours).unwrap(), Some(Wish::Start("a b".into())));
        assert_eq!(heard(&format!("{ours} script 610a\n"), &ours).unwrap(), Some(Wish::Script(b"a\n".into())));
        assert_eq!(heard(&format!("{ours} script 61x\n"), &ours).unwrap(), None);
        for said in [" watch\n", "x watch\n", "start a\n", "\n"] {
            assert_eq!(heard(said, &ours).unwrap(), None, "{said}");
            // Without a secret there is no way in at all.
            assert_eq!(heard(said, "").unwrap(), None, "{said}");
        }
        assert_eq!(heard(&format!("{ours}watch\n"), &ours).unwrap(), None);
        assert!(heard(&format!("{ours} watch"), &ours).is_err(), "no end of the line");
    }
}
