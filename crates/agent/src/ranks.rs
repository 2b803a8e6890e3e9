//! `shoal ranks`: starts an instance's ranks of a distributed program and ends them together, where
//! neither torchrun nor `mpirun` does.
//!
//! The first rank that fails ends the others, and the failure file names it with its last output. A
//! rank that fails because it lost a peer is not the first.

use std::fs;
use std::io::{self, Read, Write};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use shoal_contract::{FAILURE, Places, RankLine, SUCCESS};
pub use shoal_contract::{RankNames, Ranks};
use signal_hook::consts::SIGTERM;
use signal_hook::iterator::Signals;

use crate::lines::Splitter;
use crate::mpi::failure::{self, Errors};
use crate::outcome::code;
use crate::signalled::Signalled;

/// The process name by which `shoal mpi` finds this program.
pub(crate) const NAME: &str = "shoal-ranks";

/// How long ranks may take to end after SIGTERM when another has failed.
const GRACE: Duration = Duration::from_secs(5);

/// How long the output of a rank that has ended may take to be read.
const SETTLE: Duration = Duration::from_millis(200);

/// How long a rank that lost its peer is only suspected: the peer may report its failure later, as
/// a large Python process takes a second to end.
const PATIENCE: Duration = Duration::from_secs(4);

/// Poll interval for SIGTERM when no rank is running any more.
const LOOK: Duration = Duration::from_millis(20);

const READ_BYTES: usize = 32 << 10;

/// Whether this program has received SIGTERM.
static TERMINATING: AtomicBool = AtomicBool::new(false);

/// An event of a rank: a line of its output, or its end.
enum Event {
    Line { rank: u32, is_error: bool, text: Vec<u8> },
    Ended { rank: u32, status: ExitStatus },
}

/// A rank's number and process.
type Rank = (u32, Arc<Signalled>);

/// Runs the ranks of this instance to their end; gives the exit code: that of the first that
/// failed.
pub fn run(ranks: &Ranks) -> i32 {
    started(ranks).unwrap_or_else(|text| {
        eprintln!("shoal ranks: {text}");
        // Without a failure file, the line above is in the log.
        let _ = failure::leave(&text);
        FAILURE
    })
}

fn started(ranks: &Ranks) -> Result<i32, String> {
    let here = ranks.here();
    if here.is_empty() {
        return Ok(SUCCESS);
    }
    // So `shoal mpi` takes its children for ranks. Without /proc it does not search.
    let _ = fs::write("/proc/self/comm", NAME);
    let (events, heard) = channel();
    let mut signals = Signals::new([SIGTERM]).map_err(|error| format!("SIGTERM cannot be waited for: {error}"))?;
    let mut processes = Vec::new();
    for rank in here {
        match spawn(ranks, rank, &events) {
            Ok(process) => processes.push(process),
            Err(error) => {
                end(&processes, Signal::KILL);
                return Err(not_started(ranks, &error));
            }
        }
    }
    drop(events);
    let all = processes.clone();
    thread::spawn(move || {
        for _ in signals.forever() {
            TERMINATING.store(true, Ordering::Release);
            end(&all, Signal::TERM);
        }
    });
    Ok(supervise(ranks, processes, &heard, PATIENCE))
}

fn not_started(ranks: &Ranks, error: &io::Error) -> String {
    format!("{} cannot be started: {error}", ranks.program.first().map_or("", String::as_str))
}

fn command(ranks: &Ranks, rank: u32) -> Result<Command, String> {
    let (program, arguments) = ranks.program.split_first().ok_or("no program is named behind --")?;
    let mut command = Command::new(program);
    command.args(arguments).envs(ranks.told(rank)).stdin(Stdio::null());
    Ok(command)
}

/// Starts a rank, whose lines and end come as events.
fn spawn(ranks: &Ranks, rank: u32, events: &Sender<Event>) -> io::Result<Rank> {
    let mut command = command(ranks, rank).map_err(io::Error::other)?;
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let process = Arc::new(Signalled::of(&child));
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let streams = [stdout.map(|it| reader(it, rank, false, events)), stderr.map(|it| reader(it, rank, true, events))];
    let (events, waited) = (events.clone(), Arc::clone(&process));
    thread::spawn(move || ended(child, &waited, rank, &streams, &events));
    Ok((rank, process))
}

/// Reports a rank's end after its lines, unless other processes keep its streams open.
fn ended(
    mut child: Child,
    process: &Signalled,
    rank: u32,
    streams: &[Option<thread::JoinHandle<()>>; 2],
    events: &Sender<Event>,
) {
    let Ok(status) = process.wait(&mut child) else { return };
    let until = Instant::now() + SETTLE;
    while Instant::now() < until && streams.iter().flatten().any(|stream| !stream.is_finished()) {
        thread::sleep(Duration::from_millis(2));
    }
    // The receiver may have ended.
    let _ = events.send(Event::Ended { rank, status });
}

fn reader(
    mut stream: impl Read + Send + 'static,
    rank: u32,
    is_error: bool,
    events: &Sender<Event>,
) -> thread::JoinHandle<()> {
    let events = events.clone();
    thread::spawn(move || {
        let (mut buffer, mut splitter) = (vec![0; READ_BYTES], Splitter::default());
        let put = |text: Vec<u8>| drop(events.send(Event::Line { rank, is_error, text }));
        loop {
            match stream.read(&mut buffer) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // A pipe that cannot be read is at its end.
                Ok(0) | Err(_) => break,
                Ok(count) => splitter.push(&buffer[..count], put),
            }
        }
        splitter.finish().into_iter().for_each(put);
    })
}

/// Shows what ranks say until all have ended. `patience`: how long one that lost another is only
/// suspected.
fn supervise(ranks: &Ranks, mut running: Vec<Rank>, heard: &Receiver<Event>, patience: Duration) -> i32 {
    let places = Places { hosts: ranks.hosts.clone(), per_host: ranks.per_host };
    let (mut errors, mut blame, mut kill_at) = (Errors::default(), Blame::default(), None::<Instant>);
    loop {
        let is_decided = blame.is_certain() || TERMINATING.load(Ordering::Acquire);
        if running.is_empty() && (is_decided || blame.is_unknown()) {
            break;
        }
        let until = [kill_at, blame.suspected_until().filter(|_| !is_decided)].into_iter().flatten().min();
        match next(heard, until) {
            Some(Event::Line { rank, is_error, text }) => {
                let line = RankLine { rank: Some(rank), text };
                if is_error && !blame.is_certain() {
                    errors.note(&line);
                }
                show(&line, ranks.names, &places, is_error);
            }
            Some(Event::Ended { rank, status }) => {
                running.retain(|(other, _)| *other != rank);
                if !status.success() {
                    let suspected_until = errors.has_lost_another(rank).then(|| Instant::now() + patience);
                    blame.note(rank, status, suspected_until);
                }
            }
            None => {
                let now = Instant::now();
                blame.decide(now);
                if kill_at.is_some_and(|at| now >= at) {
                    end(&running, Signal::KILL);
                    kill_at = Some(now + GRACE);
                }
            }
        }
        if blame.is_certain() && kill_at.is_none() && !TERMINATING.load(Ordering::Acquire) {
            if let Some((rank, status)) = blame.first.filter(|_| !running.is_empty()) {
                let how = failure::how(rank, status, places.host(rank));
                eprintln!("shoal ranks: {how}; the others of this instance end, too");
            }
            end(&running, Signal::TERM);
            kill_at = Some(Instant::now() + GRACE);
        }
    }
    let Some((rank, status)) = blame.first else { return SUCCESS };
    if !TERMINATING.load(Ordering::Acquire) && !failure::exists() {
        errors.name(rank, status, places.host(rank));
        let text = errors.text(code(status), &places, &ranks.program);
        if let Err(error) = failure::leave(&text) {
            eprintln!("shoal ranks: the failure file cannot be written: {error}");
        }
    }
    code(status)
}

/// The next event; `None` at `until`, or after [`LOOK`] when no rank is left.
fn next(heard: &Receiver<Event>, until: Option<Instant>) -> Option<Event> {
    let Some(until) = until else { return heard.recv().ok() };
    match heard.recv_timeout(until.saturating_duration_since(Instant::now())) {
        Ok(event) => Some(event),
        Err(RecvTimeoutError::Timeout) => None,
        Err(RecvTimeoutError::Disconnected) => {
            thread::sleep(LOOK);
            None
        }
    }
}

/// The rank that failed first. A rank that lost its peer is only suspected for a while: the peer,
/// here or on another instance, may be about to report its own failure.
#[derive(Debug, Default)]
struct Blame {
    first: Option<(u32, ExitStatus)>,
    /// Until when `first` is a suspicion.
    until: Option<Instant>,
}

impl Blame {
    fn note(&mut self, rank: u32, status: ExitStatus, until: Option<Instant>) {
        if self.is_unknown() || (self.until.is_some() && until.is_none()) {
            (self.first, self.until) = (Some((rank, status)), until);
        }
    }

    fn decide(&mut self, now: Instant) {
        self.until = self.until.filter(|until| now < *until);
    }

    fn is_unknown(&self) -> bool {
        self.first.is_none()
    }

    fn is_certain(&self) -> bool {
        self.first.is_some() && self.until.is_none()
    }

    fn suspected_until(&self) -> Option<Instant> {
        self.until
    }
}

/// In one write, so that no line is torn.
fn show(line: &RankLine, names: RankNames, places: &Places, is_error: bool) {
    let name = if is_error { "stderr" } else { "stdout" };
    let mut bytes = match names {
        RankNames::Mpi => line.shown(places, name),
        RankNames::DataParallel => line.text.clone(),
    };
    bytes.push(b'\n');
    // It fails when the agent is gone, and then this process is about to end too.
    let _ = if is_error { io::stderr().write_all(&bytes) } else { io::stdout().write_all(&bytes) };
    let _ = io::stdout().flush();
}

/// Signals these processes; one that has ended is skipped.
fn end(ranks: &[Rank], signal: Signal) {
    ranks.iter().for_each(|(_, process)| process.signal(signal));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(line: &str, per_host: u32) -> Ranks {
        Ranks {
            names: RankNames::Mpi,
            hosts: vec!["algo-1".to_owned()],
            node: 0,
            per_host,
            in_all: None,
            variables: Vec::new(),
            program: ["/bin/sh", "-c", line].map(str::to_owned).to_vec(),
        }
    }

    /// Runs as [`started`] does, without its process' name and signals; gives the exit code and how
    /// long it took.
    fn supervised(ranks: &Ranks, patience: Duration) -> (i32, Duration) {
        let (events, heard) = channel();
        let begun = Instant::now();
        let processes = ranks.here().map(|rank| spawn(ranks, rank, &events).unwrap()).collect();
        drop(events);
        (supervise(ranks, processes, &heard, patience), begun.elapsed())
    }

    #[test]
    fn all_end_well_or_the_first_that_fails_ends_the_others() {
        assert_eq!(supervised(&shell("exit 0", 3), PATIENCE).0, SUCCESS);
        // Nobody waits for those that would never end.
        let (code, took) = supervised(&shell("[ $OMPI_COMM_WORLD_RANK = 1 ] && exit 7; exec sleep 60", 3), PATIENCE);
        assert_eq!(code, 7);
        assert!(took < Duration::from_secs(60), "{took:?}");
        let (code, _) =
            supervised(&shell("[ $OMPI_COMM_WORLD_LOCAL_RANK = 0 ] && kill -9 $$; exec sleep 60", 2), PATIENCE);
        assert_eq!(code, 128 + 9);
    }

    #[test]
    fn who_has_lost_another_is_not_to_blame_if_somebody_else_is() {
        let long = Duration::from_secs(60);
        let lost = "echo 'shoal.comm.PeerDied: rank 1 died' >&2; exit 4";
        let directory = tempfile::tempdir().unwrap();
        // Rank 1 fails when rank 0 has ended and nobody has waited for it any more.
        let file = directory.path().join("pid");
        let file = file.display();
        let later = format!(
            "until [ -s {file} ]; do sleep 0.05; done; while kill -0 $(cat {file}) 2>&-; do sleep 0.05; done; sleep \
             0.3; exit 7"
        );
        let script = format!("[ $OMPI_COMM_WORLD_RANK = 1 ] && {{ {later}; }}; echo $$ > {file}; {lost}");
        let (code, took) = supervised(&shell(&script, 2), long);
        assert_eq!(code, 7);
        assert!(took < long, "{took:?}");
        let short = Duration::from_millis(300);
        let (code, took) = supervised(&shell(lost, 2), short);
        assert_eq!(code, 4);
        assert!(took >= short, "{took:?}");
    }
}
