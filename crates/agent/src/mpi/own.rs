//! Ranks without `mpirun`: the first instance has every instance start its own (`shoal ranks`), and
//! ends all when one fails.

use std::io;
use std::process::{Command, Stdio};
use std::sync::mpsc::channel;
use std::sync::{Arc, PoisonError};
use std::thread;
use std::time::Duration;

use rustix::process::Signal;
use shoal_contract::{FAILURE, LAUNCHER, Places, RankNames, Ranks, SUCCESS, variables};

use super::line::{Line, SECRET, Wish};
use super::run::Running;
use super::{TERMINATED, failure, say};
use crate::outcome::code;
use crate::signalled::Signalled;

/// How long ranks of this instance may take to end when one elsewhere has failed; those that are
/// left end with this program.
const GRACE: Duration = Duration::from_secs(10);

/// A program that succeeds if this Python has mpi4py.
const LOOK: &str = "import importlib.util, sys; sys.exit(importlib.util.find_spec('mpi4py') is None)";

/// Runs all ranks to their end. Of `mpirun`'s `options`, the variables and the number of ranks
/// apply. `tell_all` ends the other instances' ranks, and gives whether one of these instances has
/// reported the cause.
pub(super) fn run(
    places: &Places,
    options: &[String],
    program: &[String],
    running: &Running,
    tell_all: impl FnOnce(i32) -> bool,
) -> Result<i32, String> {
    let in_all = number(options);
    fits(in_all, places)?;
    let of = |node: usize| Ranks {
        names: RankNames::Mpi,
        hosts: places.hosts.clone(),
        node: u32::try_from(node).unwrap_or(u32::MAX),
        per_host: places.per_host.max(1),
        in_all,
        variables: variables(options),
        program: without_mpi4py(program),
    };
    let (ends, ended) = channel();
    let secret = std::env::var(SECRET).unwrap_or_default();
    let mut lines = Vec::new();
    for (node, host) in places.hosts.iter().enumerate().skip(1) {
        let wish = Wish::Start(shell_line(&of(node).command()));
        let reached = Line::open(host, &secret, &wish).and_then(|line| Ok((line.another()?, line)));
        let (line, mut other) = reached.map_err(|error| format!("{host} is gone, or does not answer: {error}"))?;
        lines.push(line);
        let ends = ends.clone();
        // The receiver may have ended by then.
        thread::spawn(move || {
            let _ = ends.send((node, code_of(other.hear())));
        });
    }
    let (mut here, of_here) = {
        // Either it is started, or there is nothing to end in order.
        let mut running = running.lock().unwrap_or_else(PoisonError::into_inner);
        let command = of(0).command();
        let itself = std::env::current_exe().map_err(|error| format!("{LAUNCHER} is gone: {error}"))?;
        let child = Command::new(itself).args(&command[1..]).stdin(Stdio::null()).spawn();
        let child = child.map_err(|error| format!("{LAUNCHER} cannot be started: {error}"))?;
        let signalled = Arc::new(Signalled::of(&child));
        *running = Some(Arc::clone(&signalled));
        (child, signalled)
    };
    let waited = Arc::clone(&of_here);
    thread::spawn(move || {
        let _ = ends.send((0, waited.wait(&mut here).map_or(FAILURE, code)));
    });
    let mut left = places.hosts.len();
    let mut first = SUCCESS;
    while left > 0 {
        let heard = if first == SUCCESS { ended.recv().ok() } else { ended.recv_timeout(GRACE).ok() };
        let Some((node, code)) = heard else { break };
        left -= 1;
        if code != SUCCESS && first == SUCCESS {
            first = code;
            if left > 0 && code != TERMINATED {
                say(format_args!("a rank on {} has failed, and all others end", places.hosts[node]));
            }
            // When the first instance closes the connection, the ranks here end.
            lines.iter().for_each(Line::close);
            of_here.signal(Signal::TERM);
        }
    }
    let has_reason = tell_all(first);
    if first != SUCCESS && first != TERMINATED && !has_reason && !failure::exists() {
        let _ = failure::leave(&format!("a rank has failed with exit code {first}; the log of its instance says more"));
    }
    Ok(first)
}

fn code_of(said: io::Result<String>) -> i32 {
    said.ok().and_then(|said| said.strip_prefix("ended ")?.parse().ok()).unwrap_or(FAILURE)
}

/// The number of ranks in all that options of `mpirun` name.
fn number(options: &[String]) -> Option<u32> {
    let at = options.iter().rposition(|word| word == "-np" || word == "-n" || word == "--np")?;
    options.get(at + 1)?.parse().ok()
}

/// As with `mpirun`, more ranks than places are a mistake.
fn fits(in_all: Option<u32>, places: &Places) -> Result<(), String> {
    let most = places.per_host.max(1).saturating_mul(u32::try_from(places.hosts.len()).unwrap_or(u32::MAX));
    match in_all {
        Some(in_all) if !(1..=most).contains(&in_all) => Err(format!(
            "-np {in_all}: {} instances with {} ranks each have places for 1 to {most}; change processes_per_host, or \
             -np in custom_mpi_options",
            places.hosts.len(),
            places.per_host.max(1)
        )),
        _ => Ok(()),
    }
}

/// The program as `mpirun` can start it: by mpi4py, which ends all ranks when one raises, where the
/// instance's Python has it.
pub(super) fn runnable(program: &[String]) -> Vec<String> {
    let has = || {
        Command::new(&program[0]).args(["-c", LOOK]).stdin(Stdio::null()).status().is_ok_and(|status| status.success())
    };
    if is_by_mpi4py(program) && !has() { without_mpi4py(program) } else { program.to_vec() }
}

/// `python3 train.py` of `python3 -m mpi4py train.py`: mpi4py wants a library of MPI.
fn without_mpi4py(program: &[String]) -> Vec<String> {
    match is_by_mpi4py(program) {
        true => [&program[..1], &program[3..]].concat(),
        false => program.to_vec(),
    }
}

fn is_by_mpi4py(program: &[String]) -> bool {
    program.get(1..3).is_some_and(|words| words == ["-m", "mpi4py"])
}

/// Words as a shell reads them again.
fn shell_line(words: &[String]) -> String {
    let quoted = words.iter().map(|word| format!("'{}'", word.replace('\'', "'\"'\"'")));
    format!("exec {}", Vec::from_iter(quoted).join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn what_mpirun_would_be_told_is_understood() {
        assert_eq!(number(&words("--host a:2 -np 2 --noprefix")), Some(2));
        assert_eq!(number(&words("-np 4 -x A=1 -np 3")), Some(3), "the user's comes last");
        assert_eq!(number(&words("--noprefix -np")), None);
        let two_by_two = Places { per_host: 2, hosts: words("a b") };
        assert!([None, Some(1), Some(4)].into_iter().all(|number| fits(number, &two_by_two).is_ok()));
        assert!(
            [Some(0), Some(5)]
                .into_iter()
                .all(|number| fits(number, &two_by_two).unwrap_err().contains("places for 1 to 4"))
        );
        assert_eq!(without_mpi4py(&words("python3 -m mpi4py train.py -m mpi4py")), words("python3 train.py -m mpi4py"));
        assert_eq!(without_mpi4py(&words("/bin/sh -c exec")), words("/bin/sh -c exec"));
        // A shell that cannot be a Python has none.
        assert_eq!(runnable(&words("/bin/false -m mpi4py train.py")), words("/bin/false train.py"));
        assert_eq!(runnable(&words("/bin/true -m mpi4py train.py")), words("/bin/true -m mpi4py train.py"));
    }

    #[test]
    fn a_shell_reads_the_same_words() {
        let all = ["printf", "%s|", "a b", "it's", "$HOME", "\"q\"", ""].map(str::to_owned);
        let said = Command::new("/bin/sh").args(["-c", &shell_line(&all)]).output().unwrap();
        assert_eq!(String::from_utf8(said.stdout).unwrap(), "a b|it's|$HOME|\"q\"||");
    }
}
