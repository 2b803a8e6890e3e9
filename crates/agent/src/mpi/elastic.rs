//! `shoal mpi elastic`: the first instance's program of a job that loses and gains instances:
//! Horovod's elastic launcher, which starts its workers on other instances by
//! [`start()`](super::start()).

use std::collections::BTreeMap;
use std::fs;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use shoal_contract::FAILURE;
use signal_hook::consts::SIGTERM;
use signal_hook::iterator::Signals;

use super::line::{Line, SECRET, Wish};
use super::say;
use crate::outcome::code;
use crate::signalled::Signalled;

/// Variable of the launcher: what starts a command, read from standard input, on another instance.
const REMOTE_SHELL: &str = "SHOAL_REMOTE_SHELL";
/// Variable with the path of the list of present instances.
const HOSTS: &str = "SHOAL_ELASTIC_ROSTER";
/// Between two tries to reach an instance.
const CONNECT_INTERVAL: Duration = Duration::from_millis(50);
/// How long instances that have just come are waited for at the end, to be sent it.
const LAST_CONNECT: Duration = Duration::from_secs(2);

/// Connections to the other instances that are there, by name.
type Connected = Arc<Mutex<BTreeMap<String, Line>>>;

/// The launcher has ended.
static ENDED: AtomicBool = AtomicBool::new(false);

/// Runs the launcher (`command`) and, when it ends, has the others of `hosts` end with its exit
/// code; returns that.
pub fn elastic(hosts: &[String], command: &[String]) -> i32 {
    run(hosts, command).unwrap_or_else(|text| {
        say(&text);
        FAILURE
    })
}

fn run(hosts: &[String], command: &[String]) -> Result<i32, String> {
    let (program, arguments) = command.split_first().ok_or("no launcher is named behind --")?;
    let shell = std::env::current_exe().map_err(|error| format!("this program is not found: {error}"))?;
    let mut signals = Signals::new([SIGTERM]).map_err(|error| format!("SIGTERM cannot be waited for: {error}"))?;
    let mut launcher = Command::new(program);
    launcher.args(arguments).env(REMOTE_SHELL, format!("{} mpi start", shell.display())).stdin(Stdio::null());
    let mut child = launcher.spawn().map_err(|error| format!("{program} cannot be started: {error}"))?;
    let process = Arc::new(Signalled::of(&child));
    let signalled = Arc::clone(&process);
    thread::spawn(move || signals.forever().for_each(|_| signalled.signal(Signal::TERM)));
    let others = hosts.get(1..).unwrap_or_default();
    let connected = Connected::default();
    for host in others {
        let (host, connected) = (host.clone(), connected.clone());
        thread::spawn(move || keep_connected(&host, &connected));
    }
    let code = code(process.wait(&mut child).map_err(|error| format!("{program} cannot be waited for: {error}"))?);
    let until = Instant::now() + LAST_CONNECT;
    while Instant::now() < until && !are_connected(others, &connected) {
        thread::sleep(CONNECT_INTERVAL);
    }
    ENDED.store(true, Ordering::Release);
    for line in lock(&connected).values_mut() {
        // One that is gone needs no end.
        let _ = line.say(&format!("over {code}"));
    }
    Ok(code)
}

/// Whether all instances are connected that are present.
fn are_connected(others: &[String], connected: &Connected) -> bool {
    let present = std::env::var(HOSTS).ok().and_then(|path| fs::read_to_string(path).ok()).unwrap_or_default();
    let is_present = |host: &String| present.lines().any(|line| line.split(':').next() == Some(host));
    others.iter().filter(|host| is_present(host)).all(|host| lock(connected).contains_key(host))
}

/// Connects to an instance whenever it is there, and reads nothing before the end: a closed
/// connection is an instance that has left.
fn keep_connected(host: &str, connected: &Connected) {
    let secret = std::env::var(SECRET).unwrap_or_default();
    while !ENDED.load(Ordering::Acquire) {
        let line = Line::open(host, &secret, &Wish::Watch).and_then(|mut line| line.hear().map(|_| line));
        if let Ok((line, mut other)) = line.and_then(|line| Ok((line.another()?, line))) {
            lock(connected).insert(host.to_owned(), line);
            other.wait_for_end(&ENDED);
            if ENDED.load(Ordering::Acquire) {
                return;
            }
            lock(connected).remove(host);
        }
        thread::sleep(CONNECT_INTERVAL);
    }
}

fn lock(connected: &Connected) -> std::sync::MutexGuard<'_, BTreeMap<String, Line>> {
    connected.lock().unwrap_or_else(PoisonError::into_inner)
}
