//! `shoal mpi wait`: the program of every instance but the first.

use std::io::{self, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use rustix::process::Signal;
use shoal_contract::{FAILURE, SUCCESS};
use signal_hook::consts::SIGTERM;
use signal_hook::iterator::Signals;

use super::line::{Known, Line, SECRET, Wish};
use super::{TERMINATED, failure, port, rank, ranks, say};
use crate::outcome::code;
use crate::signalled::Signalled;

/// The first instance is there and will say when all is over.
static WATCHED: AtomicBool = AtomicBool::new(false);

/// How many commands run here.
static RUNNING: (Mutex<usize>, Condvar) = (Mutex::new(0), Condvar::new());

/// When all is over, how long a daemon may take to end by itself.
const LAST_DAEMON: Duration = Duration::from_secs(5);

/// Starts what the first instance sends until that one says that all is over; gives the exit code:
/// 0, or the program's own if it has left word here of why it failed. `is_elastic`: SIGTERM ends
/// it, too, and no instance waits for another.
pub fn wait(is_elastic: bool) -> i32 {
    serve(is_elastic).unwrap_or_else(|error| {
        say(format_args!("port {} of this instance is needed to be told what to start: {error}", port()));
        FAILURE
    })
}

fn serve(is_elastic: bool) -> io::Result<i32> {
    let secret = std::env::var(SECRET).unwrap_or_default();
    let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, port()))?;
    let mut signals = Signals::new([SIGTERM])?;
    let (ends, end) = channel();
    let of_signals = ends.clone();
    thread::spawn(move || {
        for _ in signals.forever() {
            ranks::terminate();
            if is_elastic {
                // The others continue without this instance.
                let running = RUNNING.0.lock().unwrap_or_else(PoisonError::into_inner);
                drop(RUNNING.1.wait_timeout_while(running, LAST_DAEMON, |running| *running > 0));
            }
            if is_elastic || !WATCHED.load(Ordering::Acquire) {
                // If nobody listens this process is about to end.
                let _ = of_signals.send(TERMINATED);
            }
        }
    });
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let (secret, ends) = (secret.clone(), ends.clone());
            thread::spawn(move || answer(stream, &secret, &ends));
        }
    });
    Ok(end.recv().unwrap_or(FAILURE))
}

/// A connection that ends early is the affair of who has made it.
fn answer(stream: TcpStream, secret: &str, ends: &Sender<i32>) {
    match Line::accept(stream, secret) {
        Ok(Some((line, Wish::Watch))) => drop(ends.send(watched(line))),
        Ok(Some((line, wish))) => drop(start(line, wish)),
        Ok(None) => say("a connection without the job's secret was closed"),
        Err(_) => {}
    }
}

fn watched(mut line: Line) -> i32 {
    WATCHED.store(true, Ordering::Release);
    let told = line.say("ready").and_then(|()| line.hear());
    let Some(code) = told.ok().and_then(|over| over.strip_prefix("over ")?.parse().ok()) else {
        say("the first instance is gone, and all that runs here for it ends");
        return FAILURE;
    };
    let has_reason = code != SUCCESS && failure::exists();
    // If the first instance is gone by now, this is the end all the same.
    let _ = line.say(&Known { has_reason, failed: rank::failed() }.to_string());
    let running = RUNNING.0.lock().unwrap_or_else(PoisonError::into_inner);
    drop(RUNNING.1.wait_timeout_while(running, LAST_DAEMON, |running| *running > 0));
    if has_reason { code } else { SUCCESS }
}

/// Runs a command until it ends, or whoever wants it is gone.
fn start(line: Line, wish: Wish) -> io::Result<()> {
    let change = |by: isize| {
        let mut running = RUNNING.0.lock().unwrap_or_else(PoisonError::into_inner);
        *running = running.saturating_add_signed(by);
        RUNNING.1.notify_all();
    };
    change(1);
    let done = run(line, wish);
    change(-1);
    done
}

fn run(mut line: Line, wish: Wish) -> io::Result<()> {
    let mut shell = Command::new("/bin/sh");
    shell.process_group(0);
    let mut child = match wish {
        Wish::Start(command) => shell.args(["-c", &command]).stdin(Stdio::null()).spawn()?,
        Wish::Script(script) => {
            let mut child = shell.arg("-s").stdin(Stdio::piped()).spawn()?;
            // One that ends before it has read all of it says so by its exit code.
            child.stdin.take().map(|mut stdin| stdin.write_all(&script));
            child
        }
        Wish::Watch => return Ok(()),
    };
    let (mut other, process) = (line.another()?, Arc::new(Signalled::of(&child)));
    let group = Arc::clone(&process);
    thread::spawn(move || {
        // Nothing more is said there.
        if other.hear().is_err() {
            group.signal_group(Signal::TERM);
        }
    });
    let code = code(process.wait(&mut child)?);
    line.say(&format!("ended {code}"))
}
