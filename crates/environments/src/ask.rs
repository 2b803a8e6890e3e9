//! A question to a command: its answer within a limit of time, or none.

use std::io::{self, Read};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use crate::run::end;

/// What a command answered.
pub(crate) struct Answer {
    /// Whether it ended well.
    pub(crate) success: bool,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// Runs a command to its end. `None`: it takes longer than `limit`, and was ended with everything
/// that it had started.
pub(crate) fn ask(command: &mut Command, limit: Duration) -> io::Result<Option<Answer>> {
    let until = Instant::now() + limit;
    let mut child = command.process_group(0).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let (stdout, stderr) = (all_of(child.stdout.take()), all_of(child.stderr.take()));
    let wait = |text: Receiver<String>| text.recv_timeout(until.saturating_duration_since(Instant::now()));
    match (wait(stdout), wait(stderr)) {
        (Ok(stdout), Ok(stderr)) => Ok(Some(Answer { success: child.wait()?.success(), stdout, stderr })),
        _ => {
            end(&mut child);
            Ok(None)
        }
    }
}

fn all_of(pipe: Option<impl Read + Send + 'static>) -> Receiver<String> {
    let (said, text) = channel();
    thread::spawn(move || {
        let mut bytes = Vec::new();
        // What cannot be read was not said.
        let _ = pipe.map(|mut pipe| pipe.read_to_end(&mut bytes));
        // If nobody waits any more, it is of no use.
        let _ = said.send(String::from_utf8_lossy(&bytes).trim().to_owned());
    });
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn an_answer_has_its_limit_of_time() {
        let answer = ask(&mut shell("echo out; echo err >&2; exit 3"), Duration::from_secs(60)).unwrap().unwrap();
        assert_eq!((answer.success, &*answer.stdout, &*answer.stderr), (false, "out", "err"));
        let begun = Instant::now();
        // The one that it has started holds the pipes, too.
        assert!(ask(&mut shell("sleep 100 & sleep 100"), Duration::from_millis(200)).unwrap().is_none());
        assert!(begun.elapsed() < Duration::from_secs(50));
    }
}
