//! Keys that a command of the owner's has, such as the client of an external KMS. It is run with
//! `wrap KEY` or `unwrap KEY` behind its own arguments, reads the bytes on its standard input and
//! writes the result to its standard output.

use std::io::{Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};
use zeroize::Zeroizing;

/// For how long it may run.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Between two looks at whether it has ended.
const POLL: Duration = Duration::from_millis(2);
/// Bytes of a wrapped data key at most; AWS's have some 200.
const MAX_RESULT_BYTES: u64 = 64 << 10;
/// Bytes of its standard error that a message shows.
const MAX_SHOWN: u64 = 500;

/// What it is to do.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Task {
    Wrap,
    Unwrap,
}

/// What the command writes.
///
/// # Errors
/// It cannot be started, ends with an error or not in time.
pub(crate) fn run(command: &[String], task: Task, key: &str, input: &[u8]) -> Result<Zeroizing<Vec<u8>>, String> {
    run_within(command, task, key, input, TIMEOUT)
}

fn run_within(
    command: &[String],
    task: Task,
    key: &str,
    input: &[u8],
    timeout: Duration,
) -> Result<Zeroizing<Vec<u8>>, String> {
    let (program, arguments) = command.split_first().ok_or("the command is empty")?;
    let name = match task {
        Task::Wrap => "wrap",
        Task::Unwrap => "unwrap",
    };
    let shown = format!("{program} {name} {key}");
    let mut child = Command::new(program)
        .args(arguments)
        .args([name, key])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        // What it has started ends with it.
        .process_group(0)
        .spawn()
        .map_err(|error| format!("{program} cannot be started: {error}"))?;
    // A command may read and write as it likes: no pipe keeps another one waiting.
    let (stdin, input) = (child.stdin.take(), Zeroizing::new(input.to_vec()));
    thread::spawn(move || stdin.map(|mut stdin| stdin.write_all(&input)));
    let (stdout, stderr) = (reader(child.stdout.take(), MAX_RESULT_BYTES), reader(child.stderr.take(), MAX_SHOWN));
    let until = Instant::now() + timeout;
    let left = || until.saturating_duration_since(Instant::now());
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) => break status,
            Ok(None) if left() > Duration::ZERO => thread::sleep(POLL),
            Ok(None) => {
                end(&mut child);
                return Err(format!("{shown} did not end within {} s", timeout.as_secs_f64()));
            }
            Err(error) => return Err(format!("{shown}: {error}")),
        }
    };
    if !status.success() {
        let output = stderr.recv_timeout(left()).unwrap_or_default();
        return Err(format!("{shown} ended with {status}: {}", String::from_utf8_lossy(&output).trim()));
    }
    let result = stdout.recv_timeout(left()).map_err(|_| format!("{shown} did not close its standard output"))?;
    if result.is_empty() { Err(format!("{shown} wrote nothing to its standard output")) } else { Ok(result) }
}

fn reader(pipe: Option<impl Read + Send + 'static>, most: u64) -> mpsc::Receiver<Zeroizing<Vec<u8>>> {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        let mut bytes = Zeroizing::new(Vec::new());
        if let Some(mut pipe) = pipe {
            let _ = pipe.by_ref().take(most).read_to_end(&mut bytes);
            let _ = std::io::copy(&mut pipe, &mut std::io::sink());
        }
        let _ = sender.send(bytes);
    });
    receiver
}

fn end(child: &mut Child) {
    if let Some(group) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
        let _ = kill_process_group(group, Signal::KILL);
    }
    let _ = child.kill();
    let _ = child.wait();
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sh(script: &str) -> Result<Vec<u8>, String> {
        let command = ["sh", "-c", script, "kms"].map(str::to_owned);
        run_within(&command, Task::Unwrap, "team", b"in", Duration::from_secs(2)).map(|bytes| bytes.to_vec())
    }

    #[test]
    fn a_command_gets_its_task_and_the_bytes() {
        assert_eq!(sh("echo \"$1 $2 $(cat)\"").unwrap(), b"unwrap team in\n");
        let error = sh("echo no such key >&2; exit 3").unwrap_err();
        assert!(error.starts_with("sh unwrap team ended with") && error.ends_with("no such key"), "{error}");
        assert!(sh("exit 0").unwrap_err().contains("wrote nothing"));
        let began = Instant::now();
        assert!(sh("sleep 60 & sleep 60").unwrap_err().contains("did not end within 2 s"));
        assert!(began.elapsed() < Duration::from_secs(20));
        assert!(sh("sleep 60 & echo x").unwrap_err().contains("did not close"));
        let none = run(&["/nowhere/kms".to_owned()], Task::Wrap, "team", b"");
        assert!(none.unwrap_err().contains("cannot be started"));
    }
}
