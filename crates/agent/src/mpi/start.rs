//! `shoal mpi start HOST COMMAND`: what `mpirun` has in ssh's place. Who ends it ends the command.
//! The command `-` is a script for a shell on standard input.

use std::io::{self, Read};
use std::thread;
use std::time::{Duration, Instant};

use super::line::{Line, SECRET, Wish};
use super::{POLL, say};

/// ssh's exit code when it is not the command that failed.
const UNREACHABLE: i32 = 255;
/// How long an instance whose program has only just started may refuse connections.
const LISTENS_WITHIN: Duration = Duration::from_secs(10);

/// Runs a command, words that a shell on that host reads, to its end; gives its exit code. What it
/// says stands in the log of its instance.
pub fn start(host: &str, command: &[String]) -> i32 {
    let secret = std::env::var(SECRET).unwrap_or_default();
    let ended = wish(command).and_then(|wish| open(host, &secret, &wish)).and_then(|mut line| line.hear());
    match ended {
        Ok(ended) => ended.strip_prefix("ended ").and_then(|code| code.parse().ok()).unwrap_or(UNREACHABLE),
        Err(error) => {
            say(format_args!("{host} is gone, or does not answer: {error}"));
            UNREACHABLE
        }
    }
}

fn open(host: &str, secret: &str, wish: &Wish) -> io::Result<Line> {
    let until = Instant::now() + LISTENS_WITHIN;
    loop {
        match Line::open(host, secret, wish) {
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused && Instant::now() < until => {
                thread::sleep(POLL);
            }
            opened => return opened,
        }
    }
}

fn wish(command: &[String]) -> io::Result<Wish> {
    if *command != ["-"] {
        return Ok(Wish::Start(command.join(" ")));
    }
    let mut script = Vec::new();
    io::stdin().read_to_end(&mut script)?;
    Ok(Wish::Script(script))
}

#[cfg(test)]
mod tests {
    use super::super::port;
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn an_instance_that_does_not_listen_yet_is_waited_for() {
        // An address of its own: tests run side by side.
        let host = "127.77.22.7";
        thread::scope(|scope| {
            let opened = scope.spawn(|| open(host, "secret", &Wish::Start("true".to_owned())));
            thread::sleep(5 * POLL);
            let listener = TcpListener::bind((host, port())).unwrap();
            let accepted = Line::accept(listener.accept().unwrap().0, "secret").unwrap();
            assert_eq!(accepted.map(|(_, wish)| wish), Some(Wish::Start("true".to_owned())));
            opened.join().unwrap().unwrap();
        });
    }
}
