//! Slurm's commands, which speak to its controller.

use std::collections::{BTreeMap, BTreeSet};
use std::env;
use std::io::{Read, Write};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use super::controller::Controller;
use super::partitions::{self, Partition};
use super::queue::{FORMAT, Job, jobs};
use super::request::Request;
use crate::LaunchError;
use crate::process::end_with_caller;

/// For a command, whose own limit is 10 to 100 s; one that takes longer than this is repeated.
const TIMEOUT: Duration = Duration::from_secs(20);
const POLL: Duration = Duration::from_millis(5);
/// For a question before a job is created: a controller that takes longer delays no creation.
const TEST_TIMEOUT: Duration = Duration::from_secs(3);

/// What of the server's environment commands and batch jobs have, beside `SLURM_*`: not its
/// secrets.
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

/// A cluster that Slurm's commands on this machine speak to.
#[derive(Debug, Clone)]
pub(super) struct Commands {
    /// The compute target's name, for messages.
    pub(super) target: String,
    pub(super) conf: Option<PathBuf>,
}

impl Commands {
    /// Runs a command of Slurm's; gives what it prints. One that takes longer than `limit` is
    /// killed, and so is one whose caller is.
    ///
    /// # Errors
    /// [`LaunchError::Unavailable`] if it may succeed later, [`LaunchError::Refused`] if not.
    pub(super) fn run(
        &self,
        words: &[&str],
        args: &[String],
        input: Option<&str>,
        limit: Duration,
    ) -> Result<String, LaunchError> {
        let mut command = Command::new(words[0]);
        let is_passed = |name: &str| ENVIRONMENT.contains(&name) || name.starts_with("SLURM_");
        let passed = env::vars_os().filter(|(name, _)| name.to_str().is_some_and(is_passed));
        command.env_clear().envs(passed);
        command.envs(self.conf.iter().map(|conf| ("SLURM_CONF", conf)));
        command.args(&words[1..]).args(args);
        run(&self.target, command, input, limit)
    }
}

/// Runs a command; gives what it prints.
fn run(target: &str, mut command: Command, input: Option<&str>, limit: Duration) -> Result<String, LaunchError> {
    let program = &*command.get_program().to_string_lossy().into_owned();
    let unavailable = |what: String| LaunchError::Unavailable { target: target.to_owned(), what };
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    // A server that is killed and started again looks for its jobs by name, and must not find one
    // later that is being submitted then.
    end_with_caller(&mut command);
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

/// An error of a command, or of slurmrestd, which passes the controller's on.
pub(super) fn refusal(target: &str, program: &str, errors: &str) -> LaunchError {
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

impl Controller for Commands {
    fn jobs(&self) -> Result<BTreeMap<u64, Job>, LaunchError> {
        let text = self.run(&["squeue", "--noheader", "--states=all", "--format", FORMAT], &[], None, TIMEOUT)?;
        Ok(jobs(&text))
    }

    fn submit(&self, request: &Request) -> Result<u64, LaunchError> {
        let printed = self.run(&["sbatch"], &request.arguments(), Some(&request.script), TIMEOUT)?;
        // `ID` or `ID;CLUSTER`.
        let id = printed.trim().split(';').next().and_then(|id| id.parse().ok());
        id.ok_or_else(|| LaunchError::Unavailable {
            target: self.target.clone(),
            what: format!("sbatch printed {printed:?} and no job's number"),
        })
    }

    fn test(&self, request: &Request) -> Result<(), LaunchError> {
        let words = ["sbatch", "--test-only"];
        self.run(&words, &request.arguments(), Some(&request.script), TEST_TIMEOUT).map(drop)
    }

    fn cancel(&self, jobs: &[u64]) -> Result<(), LaunchError> {
        let ids = Vec::from_iter(jobs.iter().map(u64::to_string));
        // Steps first and immediately; then what is queued, or is between two steps.
        for words in [&["scancel", "--quiet", "--full", "--signal=KILL"][..], &["scancel", "--quiet"]] {
            unless_over(self.run(words, &ids, None, TIMEOUT))?;
        }
        Ok(())
    }

    fn kill_steps(&self, job: u64, names: &BTreeSet<String>) -> Result<Vec<String>, LaunchError> {
        let job = job.to_string();
        let words = ["squeue", "--steps", "--noheader", "--format", "%i|%j", "--job", &job];
        let text = self.run(&words, &[], None, TIMEOUT)?;
        let steps = text.lines().filter_map(|line| line.trim().split_once('|'));
        let left = Vec::from_iter(steps.filter(|(_, name)| names.contains(*name)).map(|(step, _)| step.to_owned()));
        if !left.is_empty() {
            unless_over(self.run(&["scancel", "--quiet", "--signal=KILL"], &left, None, TIMEOUT))?;
        }
        Ok(left)
    }

    fn partitions(&self) -> Result<Vec<Partition>, LaunchError> {
        let text = self.run(&["sinfo", "--noheader", "--format", partitions::FORMAT], &[], None, TIMEOUT)?;
        Ok(partitions::partitions(&text))
    }

    fn nodes_down(&self, nodes: &str) -> Result<Vec<String>, LaunchError> {
        let words = ["sinfo", "--noheader", "--Node", "--states=down,fail", "--format", "%N", "--nodes", nodes];
        let text = self.run(&words, &[], None, TIMEOUT)?;
        // One line for each partition of a node.
        Ok(BTreeSet::from_iter(text.lines().map(|line| line.trim().to_owned())).into_iter().collect())
    }
}

/// Jobs that are over already need no cancelling.
fn unless_over(cancelled: Result<String, LaunchError>) -> Result<(), LaunchError> {
    match cancelled {
        Ok(_) | Err(LaunchError::Refused { .. }) => Ok(()),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str, input: Option<&str>) -> Result<String, LaunchError> {
        gpu().run(&["/bin/sh", "-c", script], &[], input, TIMEOUT)
    }

    fn gpu() -> Commands {
        Commands { target: "gpu".to_owned(), conf: None }
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
            gpu().run(&["/nonexistent/squeue"], &[], None, TIMEOUT),
            Err(LaunchError::Unavailable { what, .. }) if what.starts_with("/nonexistent/squeue: ")
        ));
    }
}
