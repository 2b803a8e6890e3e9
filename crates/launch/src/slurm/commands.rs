//! Slurm's commands, which speak to its controller.

use std::env;
use std::io::{Read, Write};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use super::SlurmOptions;
use crate::LaunchError;

/// For a command, whose own limit is 10 to 100 s; one that takes longer than this is repeated.
const TIMEOUT: Duration = Duration::from_secs(20);
const POLL: Duration = Duration::from_millis(5);

/// What of the server's environment commands and batch jobs have, beside `SLURM_*`: not its secrets.
const ENVIRONMENT: [&str; 5] = ["HOME", "USER", "LOGNAME", "PATH", "LANG"];

/// What Slurm's commands say when the controller cannot be reached, or takes nothing now. The same
/// command may succeed later.
const PASSING: [&str; 12] = [
    "unable to contact slurm controller",
    "socket timed out",
    "connection refused",
    "connection timed out",
    "zero bytes were transmitted",
    "communication connection failure",
    "connect failure",
    "temporarily unable",
    "submit limit",
    "maxsubmitjob",
    "slurm controller not responding",
    "resource temporarily unavailable",
];

/// Runs a command of Slurm's; gives what it prints.
///
/// # Errors
/// [`LaunchError::Unavailable`] if it may succeed later, [`LaunchError::Refused`] if not.
pub(super) fn run(
    options: &SlurmOptions,
    program: &str,
    args: &[String],
    input: Option<&str>,
) -> Result<String, LaunchError> {
    run_within(options, program, args, input, TIMEOUT)
}

/// The same within another time.
pub(super) fn run_within(
    options: &SlurmOptions,
    program: &str,
    args: &[String],
    input: Option<&str>,
    limit: Duration,
) -> Result<String, LaunchError> {
    let target = &options.target;
    let unavailable = |what: String| LaunchError::Unavailable { target: target.clone(), what };
    let mut command = Command::new(program);
    let is_passed = |name: &str| ENVIRONMENT.contains(&name) || name.starts_with("SLURM_");
    let passed = env::vars_os().filter(|(name, _)| name.to_str().is_some_and(is_passed));
    command.env_clear().envs(passed);
    command.envs(options.conf.iter().map(|conf| ("SLURM_CONF", conf)));
    command.args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|error| unavailable(format!("{program}: {error}")))?;
    let (mut stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let (out, err) = (reader(stdout), reader(stderr));
    if let (Some(stdin), Some(input)) = (&mut stdin, input) {
        // A command that reads nothing prints why.
        let _ = stdin.write_all(input.as_bytes());
    }
    drop(stdin);
    let until = Instant::now() + limit;
    let status = loop {
        match child.try_wait().map_err(|error| unavailable(format!("{program}: {error}")))? {
            Some(status) => break status,
            None if Instant::now() >= until => {
                let _ = child.kill();
                let _ = child.wait();
                return Err(unavailable(format!("{program} has not answered for {} s", limit.as_secs())));
            }
            None => thread::sleep(POLL),
        }
    };
    let text = |reader: thread::JoinHandle<String>| reader.join().unwrap_or_default();
    let (out, err) = (text(out), text(err));
    if status.success() {
        return Ok(out);
    }
    Err(refusal(target, program, &err))
}

fn reader(pipe: Option<impl Read + Send + 'static>) -> thread::JoinHandle<String> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut pipe) = pipe {
            // What was read so far is used.
            let _ = pipe.read_to_end(&mut bytes);
        }
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

fn refusal(target: &str, program: &str, errors: &str) -> LaunchError {
    let lines = errors.lines().map(str::trim).filter(|line| !line.is_empty());
    let errors = Vec::from_iter(lines).join("; ");
    let lower = errors.to_lowercase();
    let target = target.to_owned();
    match PASSING.iter().any(|passing| lower.contains(passing)) {
        true => LaunchError::Unavailable { target, what: errors },
        false if errors.is_empty() => {
            LaunchError::Refused { scheduler: "Slurm", target, what: format!("{program} failed without a word") }
        }
        false => LaunchError::Refused { scheduler: "Slurm", target, what: errors },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str, input: Option<&str>) -> Result<String, LaunchError> {
        run(&gpu(), "/bin/sh", &["-c".to_owned(), script.to_owned()], input)
    }

    fn gpu() -> SlurmOptions {
        SlurmOptions { target: "gpu".to_owned(), ..SlurmOptions::default() }
    }

    #[test]
    fn what_passes_is_told_from_what_does_not() {
        assert_eq!(shell("cat", Some("in")).expect("cat"), "in");
        let error = |script: &str| shell(script, None).expect_err("it fails").to_string();
        assert_eq!(
            error("echo 'sbatch: error: invalid partition specified: foo' >&2; exit 1"),
            "Slurm refused the job on compute target gpu: sbatch: error: invalid partition specified: foo"
        );
        assert_eq!(
            error("echo 'slurm_load_jobs error: Unable to contact slurm controller (connect failure)' >&2; exit 1"),
            "the compute target gpu does not answer: slurm_load_jobs error: Unable to contact slurm controller (connect \
             failure)"
        );
        assert!(matches!(
            run(&gpu(), "/nonexistent/squeue", &[], None),
            Err(LaunchError::Unavailable { what, .. }) if what.starts_with("/nonexistent/squeue: ")
        ));
    }
}
