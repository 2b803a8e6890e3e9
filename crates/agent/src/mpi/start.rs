//! `shoal mpi start HOST COMMAND`: what `mpirun` has in ssh's place. Who ends it ends the command.
//! The command `-` is a script for a shell on standard input.

use std::io::{self, Read};
use std::thread;
use std::time::{Duration, Instant};

use super::line::{Line, SECRET, Wish};
use super::say;

/// ssh's exit code when it is not the command that failed.
const UNREACHABLE: i32 = 255;
/// How long an instance whose program has only just started may refuse connections.
const LISTENS_WITHIN: Duration = Duration::from_secs(10);
const CONNECT_INTERVAL: Duration = Duration::from_millis(50);

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
            Err(_) if Instant::now() < until => thread::sleep(CONNECT_INTERVAL),
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
