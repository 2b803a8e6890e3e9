//! Runs what makes environments: its lines are passed on while it runs, and it can be ended with
//! all that it has started.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};

use crate::{EnvironmentError, blame};

/// Who waits for an environment.
pub trait Watcher {
    /// A line of progress, for people.
    fn line(&mut self, line: &str);

    /// Nobody waits any more. Asked several times a second.
    fn is_to_stop(&mut self) -> bool;
}

/// How often the watcher is asked whether it still waits.
pub(crate) const LOOK: Duration = Duration::from_millis(50);

/// So many last lines tell why something failed.
const LAST_LINES: usize = 15;

/// Runs one step of making `name` to its end. `lock` is its standard input: whoever holds that file
/// open holds the lock, so a build whose agent was killed keeps others away until it has ended
/// itself.
pub(crate) fn run(
    mut command: Command,
    step: &'static str,
    name: &str,
    lock: &File,
    watcher: &mut dyn Watcher,
) -> Result<(), EnvironmentError> {
    let program = PathBuf::from(command.get_program());
    let stdin = lock.try_clone().map_err(EnvironmentError::io("hold the lock of", name.as_ref()))?;
    let started = command.process_group(0).stdin(stdin).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let mut child = started.map_err(EnvironmentError::io(&format!("run {step} by"), &program))?;
    let (said, lines) = channel();
    if let (Some(stdout), Some(stderr)) = (child.stdout.take(), child.stderr.take()) {
        let too = said.clone();
        thread::spawn(move || pass_on(stdout, &too));
        thread::spawn(move || pass_on(stderr, &said));
    }
    let (mut last, mut retried, mut unreachable): (Vec<String>, _, _) = (Vec::new(), None, false);
    loop {
        match lines.recv_timeout(LOOK) {
            Ok(line) => {
                if is_progress(&line) {
                    watcher.line(line.trim());
                }
                unreachable |= blame::is_of_network(&line);
                // pip says the same many times.
                if line.trim_start().starts_with("WARNING: Retrying (") {
                    retried.get_or_insert(line);
                } else if !line.trim().is_empty() {
                    last.push(line);
                    last.drain(..last.len().saturating_sub(LAST_LINES));
                }
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break,
        }
        if watcher.is_to_stop() {
            end(&mut child);
            return Err(EnvironmentError::Stopped(format!("the environment {name}")));
        }
    }
    let status = child.wait().map_err(EnvironmentError::io("wait for the making of", name.as_ref()))?;
    match status.success() {
        true => Ok(()),
        false => {
            let said = Vec::from_iter(retried.into_iter().chain(last)).join("\n");
            Err(EnvironmentError::Failed { name: name.to_owned(), step, how: status.to_string(), said, unreachable })
        }
    }
}

fn pass_on(pipe: impl Read, said: &Sender<String>) {
    for line in BufReader::new(pipe).split(b'\n').map_while(Result::ok) {
        if said.send(String::from_utf8_lossy(&line).trim_end().to_owned()).is_err() {
            return;
        }
    }
}

/// With everything that it has started.
pub(crate) fn end(child: &mut Child) {
    let group = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    // A group that is gone needs no signal.
    let _ = group.map(|group| kill_process_group(group, Signal::KILL));
    let _ = child.wait();
}

/// What of the many lines of pip, uv and engines that pull tells people that it goes on.
fn is_progress(line: &str) -> bool {
    let begins = [
        "Downloading ",
        "Using cached ",
        "Installing collected",
        "Prepared ",
        "Installed ",
        "Trying to pull ",
        "Status: ",
    ];
    begins.iter().any(|start| line.trim_start().starts_with(start)) || line.ends_with(": Pull complete")
}
