//! Deliveries by a command of the owner's, which gets the envelope as JSON on its standard input.

use std::{
    io::{Read, Write},
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use shoal_runtime::outbox::Outcome;

/// Between two looks at whether the command has ended.
const LOOK: Duration = Duration::from_millis(20);
/// Bytes of what it writes to its standard error that a reason shows.
const MAX_SHOWN: u64 = 500;

/// Runs the command. It has the message if it ends with exit code 0; else it is run again later.
pub(super) fn run(command: &[String], input: &str, timeout: Duration) -> Outcome {
    let Some((program, arguments)) = command.split_first() else {
        return Outcome::Refused("the command is empty".to_owned());
    };
    let spawned = Command::new(program)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn();
    let mut child = match spawned {
        Ok(child) => child,
        Err(error) => return Outcome::Failed(format!("{program} cannot be started: {error}")),
    };
    // A command may read and write as it likes: neither pipe keeps the other waiting.
    let (stdin, stderr, input) = (child.stdin.take(), child.stderr.take(), input.to_owned());
    thread::spawn(move || stdin.map(|mut stdin| stdin.write_all(input.as_bytes())));
    let shown = thread::spawn(move || {
        let mut shown = Vec::new();
        if let Some(mut stderr) = stderr {
            let _ = stderr.by_ref().take(MAX_SHOWN).read_to_end(&mut shown);
            let _ = std::io::copy(&mut stderr, &mut std::io::sink());
        }
        String::from_utf8_lossy(&shown).trim().to_owned()
    });
    let until = Instant::now() + timeout;
    loop {
        match child.try_wait() {
            Ok(Some(status)) if status.success() => return Outcome::Delivered,
            Ok(Some(status)) => {
                let output = if shown.is_finished() { shown.join().unwrap_or_default() } else { String::new() };
                return Outcome::Failed(format!("{program} ended with {status}: {output}"));
            }
            Ok(None) if Instant::now() < until => thread::sleep(LOOK),
            Ok(None) => {
                let _ = child.kill();
                let _ = child.wait();
                return Outcome::Failed(format!("{program} did not end within {} s", timeout.as_secs()));
            }
            Err(error) => return Outcome::Failed(format!("{program}: {error}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sh(script: &str, timeout: Duration) -> Outcome {
        run(&["sh", "-c", script].map(str::to_owned), "{\"a\":1}", timeout)
    }

    #[test]
    fn a_command_has_the_message_when_it_ends_well() {
        let long = Duration::from_secs(20);
        assert_eq!(sh("test \"$(cat)\" = '{\"a\":1}'", long), Outcome::Delivered);
        assert_eq!(sh("exit 0", long), Outcome::Delivered);
        let failed = |outcome| if let Outcome::Failed(why) = outcome { why } else { String::new() };
        assert!(failed(sh("exit 3", long)).contains('3'));
        assert!(failed(sh("sleep 30", Duration::from_millis(50))).contains("did not end"));
        assert!(failed(run(&["/nowhere/it".to_owned()], "", long)).contains("cannot be started"));
        assert_eq!(run(&[], "", long), Outcome::Refused("the command is empty".to_owned()));
    }
}
