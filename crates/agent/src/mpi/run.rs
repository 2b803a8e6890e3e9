//! `shoal mpi run`: the program of the first instance.

use std::io::{self, Read, Write};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use shoal_contract::{FAILURE, Places, RankLine, RankLines, SUCCESS};
use signal_hook::consts::SIGTERM;
use signal_hook::iterator::Signals;

use super::blame::Failed;
use super::failure::{self, Errors};
use super::line::{Known, Line, SECRET, Wish};
use super::version::OpenMpi;
use super::{POLL, TERMINATED, own, rank, ranks, say};
use crate::clock::now_us;
use crate::lines::Splitter;
use crate::outcome::code;
use crate::signalled::Signalled;

/// When to say that an instance is missing.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long after SIGTERM ranks may not be there yet, before `mpirun` is told to end without them.
const RANKS_COME: Duration = Duration::from_secs(20);

const READ_BYTES: usize = 32 << 10;

/// This program was told to end.
static TERMINATING: AtomicBool = AtomicBool::new(false);

/// `mpirun`, once it runs.
pub(super) type Running = Arc<Mutex<Option<Arc<Signalled>>>>;

/// Runs `mpirun` (`command`, whose last `program` words are each rank's program) once all instances
/// are there; gives its exit code.
pub fn run(places: &Places, program: usize, command: &[String]) -> i32 {
    run_to_the_end(places, program, command).unwrap_or_else(|text| {
        say(&text);
        // What was said above is in the log all the same.
        let _ = failure::leave(&text);
        FAILURE
    })
}

fn run_to_the_end(places: &Places, program: usize, command: &[String]) -> Result<i32, String> {
    let Some((mpirun, arguments)) = command.split_first() else {
        return Err("no mpirun is named behind --".to_owned());
    };
    let (options, program) = arguments.split_at(arguments.len().saturating_sub(program));
    let found = OpenMpi::find(mpirun)?;
    let running = Running::default();
    heed_signals(&running).map_err(|error| format!("SIGTERM cannot be waited for: {error}"))?;
    let mut others = meet(places.hosts.get(1..).unwrap_or_default());
    let Some(version) = found else {
        say("there is no mpirun here, so the ranks are started without one: Horovod and smdistributed need none, \
             mpi4py needs openmpi in requirements.txt");
        return own::run(places, options, program, &running, |code| tell_all(&mut others, code).has_reason);
    };
    let arguments = [options, &rank::command(places, &own::runnable(program))?].concat();
    let (mut child, mpirun_here) = {
        // Either it is started, or there is nothing to end in order.
        let mut running = running.lock().unwrap_or_else(PoisonError::into_inner);
        let child =
            spawn(mpirun, &arguments, version).map_err(|error| format!("{mpirun} cannot be started: {error}"))?;
        let signalled = Arc::new(Signalled::of(&child));
        *running = Some(Arc::clone(&signalled));
        (child, signalled)
    };
    let mut errors = Errors::default();
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let (code, others) = thread::scope(|scope| {
        scope.spawn(|| show(stdout, "stdout", io::stdout(), places, version, |_| {}));
        scope.spawn(|| show(stderr, "stderr", io::stderr(), places, version, |line| errors.note_at(line, now_us())));
        let code =
            mpirun_here.wait(&mut child).map(code).map_err(|error| format!("the end of {mpirun} is not told: {error}"));
        // What runs for it on other instances has its output, and ends now.
        let others = tell_all(&mut others, *code.as_ref().unwrap_or(&FAILURE));
        code.map(|code| (code, others))
    })?;
    if code == SUCCESS || others.has_reason || failure::exists() || TERMINATING.load(Ordering::Acquire) {
        return Ok(code);
    }
    let culprit = errors.culprit(&[rank::failed(), others.failed].concat());
    // mpirun's exit code may be that of a rank that lost the culprit.
    let code = culprit.map_or(code, |culprit| crate::outcome::code(culprit.status));
    if let Some(Failed { rank, host, status, .. }) = culprit {
        errors.name(rank, status, places.hosts.get(host).map_or("", String::as_str));
    }
    failure::leave(&errors.text(code, places, command))
        .map_err(|error| format!("the failure file cannot be written: {error}"))?;
    Ok(code)
}

fn spawn(mpirun: &str, arguments: &[String], version: OpenMpi) -> io::Result<Child> {
    let launcher = format!("{} mpi start", std::env::current_exe()?.display());
    let mut command = Command::new(mpirun);
    command.args(arguments).envs(version.variables(&launcher)).stdin(Stdio::null());
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()
}

/// Passes SIGTERM on to the ranks; `mpirun` ends after them. Without `mpirun` this process ends at
/// once.
fn heed_signals(running: &Running) -> io::Result<()> {
    let (mut signals, running) = (Signals::new([SIGTERM])?, running.clone());
    thread::spawn(move || {
        for _ in signals.forever() {
            let held = running.lock().unwrap_or_else(PoisonError::into_inner);
            let Some(mpirun) = held.clone() else { std::process::exit(TERMINATED) };
            drop(held);
            TERMINATING.store(true, Ordering::Release);
            let until = Instant::now() + RANKS_COME;
            while ranks::terminate() == 0 {
                if Instant::now() > until {
                    mpirun.signal(Signal::TERM);
                    break;
                }
                thread::sleep(POLL);
            }
        }
    });
    Ok(())
}

/// Connects to all other instances and waits until each answers. There is no timeout: the server
/// ends the job if an instance does not start.
fn meet(hosts: &[String]) -> Vec<Line> {
    let secret = std::env::var(SECRET).unwrap_or_default();
    let meet = |host: &String| {
        let (begun, mut is_said) = (Instant::now(), false);
        loop {
            let met = Line::open(host, &secret, &Wish::Watch).and_then(|mut line| line.hear().map(|_| line));
            match met {
                Ok(line) => return line,
                Err(error) if !is_said && begun.elapsed() > PATIENCE => {
                    say(format_args!("waiting for {host}, where nobody answers: {error}"));
                    is_said = true;
                }
                Err(_) => {}
            }
            thread::sleep(POLL);
        }
    };
    hosts.iter().map(meet).collect()
}

/// That all is over.
fn tell_all(others: &mut [Line], code: i32) -> Known {
    let mut known = Known::default();
    for (host, line) in (1..).zip(others) {
        let answer = line.say(&format!("over {code}")).and_then(|()| line.hear());
        // The job fails with the reason of an instance that is gone.
        let Some(of_instance) = answer.ok().and_then(|answer| answer.parse::<Known>().ok()) else { continue };
        known.has_reason |= of_instance.has_reason;
        known.failed.extend(of_instance.failed.into_iter().map(|failed| Failed { host, ..failed }));
    }
    known
}

/// Shows what `mpirun` prints, line by line.
fn show(
    stream: Option<impl Read>,
    name: &str,
    mut to: impl Write,
    places: &Places,
    version: OpenMpi,
    mut note: impl FnMut(&RankLine),
) {
    let Some(mut stream) = stream else { return };
    let (mut buffer, mut splitter, mut lines) =
        (vec![0; READ_BYTES], Splitter::default(), RankLines::new(version.major > 4));
    let mut out = Vec::new();
    let mut put = |line: &RankLine, out: &mut Vec<u8>| {
        note(line);
        out.extend(line.shown(places, name));
        out.push(b'\n');
    };
    loop {
        let count = match stream.read(&mut buffer) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            // A pipe that cannot be read is at its end.
            Ok(0) | Err(_) => break,
            Ok(count) => count,
        };
        splitter.push(&buffer[..count], |line| lines.push(&line).iter().for_each(|line| put(line, &mut out)));
        // Nobody reads it any more when the agent is gone, and this process is about to follow it.
        let _ = to.write_all(&std::mem::take(&mut out)).and_then(|()| to.flush());
    }
    let last = splitter.finish().into_iter().flat_map(|line| lines.push(&line)).collect::<Vec<_>>();
    last.iter().chain(&lines.finish()).for_each(|line| put(line, &mut out));
    let _ = to.write_all(&out).and_then(|()| to.flush());
}
