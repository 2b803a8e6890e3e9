//! Slurm's commands, which speak to its controller, as the caller or as another user.

use std::collections::{BTreeMap, BTreeSet};
use std::env;
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rustix::process::geteuid;

use super::controller::Controller;
use super::partitions::{self, Partition};
use super::queue::{self, Job};
use super::request::Request;
use super::users::words_for;
use crate::LaunchError;
use crate::exchange::{Printed, exchange};

/// For a command, whose own limit is 10 to 100 s; one that takes longer than this is repeated.
const TIMEOUT: Duration = Duration::from_secs(20);
/// For a question that something waits for which does not depend on its answer: the creation of a
/// job, the words for a node's failure.
pub(super) const QUICK: Duration = Duration::from_secs(3);

/// What of the server's environment Slurm's commands and batch jobs have: not its secrets.
const ENVIRONMENT: [&str; 6] = ["HOME", "USER", "LOGNAME", "PATH", "LANG", "LD_LIBRARY_PATH"];
/// Likewise, all that begin so.
const PREFIXES: [&str; 3] = ["SLURM_", "SBATCH_", "LC_"];
/// What of all that only the caller gets: another user has their own, and not the caller's token.
const OWN: [&str; 4] = ["HOME", "USER", "LOGNAME", "SLURM_JWT"];
/// But for these: one job becomes many, `sbatch` does not return before its job's end.
const NOT_PASSED: [&str; 2] = ["SBATCH_ARRAY_INX", "SBATCH_WAIT"];

/// How long another user's `sbatch` may go on when its caller has given it up, or was killed: the
/// kernel ends it with its caller only as long as both are of one user.
const GRACE: Duration = Duration::from_secs(20);

/// What Slurm's commands say when the controller cannot be reached, takes nothing now, or refuses a
/// credential (which another token or a clock that is right again replaces), or what they say while
/// their configuration cannot be read. The same command may succeed later.
const PASSING: [&str; 18] = [
    "configuration source",
    "configuration file",
    "fetch_config",
    "protocol authentication error",
    "invalid authentication credential",
    "authentication credential expired",
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
#[derive(Debug)]
pub(super) struct Commands {
    /// The compute target's name, for messages.
    pub(super) target: String,
    pub(super) conf: Option<PathBuf>,
    /// Before commands of another user; empty: the caller runs them.
    submit_as: Vec<String>,
    /// Numbers of users, by name.
    uids: Mutex<BTreeMap<String, u32>>,
}

impl Commands {
    pub(super) fn new(target: &str, conf: Option<PathBuf>, submit_as: Vec<String>) -> Self {
        Self { target: target.to_owned(), conf, submit_as, uids: Mutex::default() }
    }

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
        self.run_command(of_caller(words), words, args, input, limit)
    }

    /// A word for one call of `squeue`, which no name of a job has in it.
    fn fence(&self) -> Result<String, LaunchError> {
        let mut bytes = [0; 16];
        getrandom::fill(&mut bytes).map_err(|error| LaunchError::Unavailable {
            target: self.target.clone(),
            what: format!("no random number: {error}"),
        })?;
        Ok(format!("@{:032x}", u128::from_ne_bytes(bytes)))
    }

    /// `squeue` printed something else.
    fn not_asked_for(&self, text: &str) -> LaunchError {
        let start: String = text.chars().take(100).collect();
        let what = format!("squeue printed {start:?}, and not in the format that it was asked for: is it Slurm's own?");
        LaunchError::Unavailable { target: self.target.clone(), what }
    }

    /// The same as a user (none: the caller).
    ///
    /// # Errors
    /// As those of [`Commands::run`]; [`LaunchError::Unavailable`], too, if nothing can be run as
    /// that user, who may be there again in a moment.
    fn run_as(
        &self,
        user: Option<&str>,
        words: &[&str],
        args: &[String],
        input: Option<&str>,
        limit: Duration,
    ) -> Result<String, LaunchError> {
        let Some(user) = user.filter(|_| !self.submit_as.is_empty()) else {
            return self.run(words, args, input, limit);
        };
        match self.run_for(user, words, args, input, limit) {
            Err(refused @ LaunchError::Refused { .. }) => match self.try_user(user) {
                Err(LaunchError::Refused { target, what, .. }) => Err(LaunchError::Unavailable { target, what }),
                _ => Err(refused),
            },
            done => done,
        }
    }

    fn run_for(
        &self,
        user: &str,
        words: &[&str],
        args: &[String],
        input: Option<&str>,
        limit: Duration,
    ) -> Result<String, LaunchError> {
        let before = words_for(&self.submit_as, user);
        let words = Vec::from_iter(before.iter().map(String::as_str).chain(words.iter().copied()));
        let mut command = Command::new(words[0]);
        let is_passed = |name: &str| is_passed(name) && !OWN.contains(&name);
        command.env_clear().envs(env::vars_os().filter(|(name, _)| name.to_str().is_some_and(is_passed)));
        // Jobs begin where they are submitted, and that user may not enter this directory.
        command.current_dir("/");
        self.run_command(command, &words, args, input, limit)
    }

    /// Runs a command of the target's owner, which has the server's whole environment.
    ///
    /// # Errors
    /// As those of [`Commands::run`].
    pub(super) fn run_as_owner(&self, words: &[&str], limit: Duration) -> Result<String, LaunchError> {
        self.run_command(Command::new(words[0]), words, &[], None, limit)
    }

    fn run_command(
        &self,
        mut command: Command,
        words: &[&str],
        args: &[String],
        input: Option<&str>,
        limit: Duration,
    ) -> Result<String, LaunchError> {
        command.envs(self.conf.iter().map(|conf| ("SLURM_CONF", conf)));
        command.args(&words[1..]).args(args);
        let unavailable = |what: String| LaunchError::Unavailable {
            target: self.target.clone(),
            what: format!("{}{what}", words[0]),
        };
        // Slurm's commands themselves wait a minute for it.
        if let Some(conf) = self.conf.as_ref().filter(|conf| !conf.exists()) {
            let what = format!("{} does not exist: correct conf of [target.{}]", conf.display(), self.target);
            return Err(LaunchError::Unavailable { target: self.target.clone(), what });
        }
        match exchange(command, input.unwrap_or_default(), limit) {
            Ok(Some(Printed { is_success: true, out, .. })) => Ok(out),
            Ok(Some(Printed { err, .. })) => Err(refusal(&self.target, words[0], &err)),
            Ok(None) => Err(unavailable(format!(" has not answered for {} s", limit.as_secs()))),
            Err(error) => Err(unavailable(format!(": {error}"))),
        }
    }
}

/// A command that has what the caller's have of the environment.
fn of_caller(words: &[&str]) -> Command {
    let mut command = Command::new(words[0]);
    command.env_clear().envs(env::vars_os().filter(|(name, _)| name.to_str().is_some_and(is_passed)));
    command
}

/// Whether Slurm's commands get this variable.
fn is_passed(name: &str) -> bool {
    let begins = || PREFIXES.iter().any(|prefix| name.starts_with(prefix));
    (ENVIRONMENT.contains(&name) || begins()) && !NOT_PASSED.contains(&name)
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
        let words = ["squeue", "--noheader", "--states=all"];
        let (mut command, fence) = (of_caller(&words), self.fence()?);
        // All users of this machine see arguments, and could name a job by them; not variables.
        command.env("SQUEUE_FORMAT", queue::format(&fence));
        command.envs([("TZ", "UTC"), ("SLURM_TIME_FORMAT", "standard")]);
        let text = self.run_command(command, &words, &[], None, TIMEOUT)?;
        queue::jobs(&text, &fence).ok_or_else(|| self.not_asked_for(&text))
    }

    fn submit(&self, request: &Request) -> Result<u64, LaunchError> {
        let user = request.user.as_deref();
        let printed = self.run_as(user, &["sbatch"], &request.arguments(), Some(&request.script), TIMEOUT)?;
        // `ID` or `ID;CLUSTER`.
        let id = printed.trim().split(';').next().and_then(|id| id.parse().ok());
        id.ok_or_else(|| LaunchError::Unavailable {
            target: self.target.clone(),
            what: format!("sbatch printed {printed:?} and no job's number"),
        })
    }

    fn test(&self, request: &Request) -> Result<(), LaunchError> {
        let words = ["sbatch", "--test-only"];
        self.run_as(request.user.as_deref(), &words, &request.arguments(), Some(&request.script), QUICK).map(drop)
    }

    fn cancel(&self, jobs: &[u64], user: Option<&str>) -> Result<(), LaunchError> {
        let ids = Vec::from_iter(jobs.iter().map(u64::to_string));
        // Steps first and immediately; then what is queued, or is between two steps.
        for words in [&["scancel", "--quiet", "--full", "--signal=KILL"][..], &["scancel", "--quiet"]] {
            let cancelled = unless_over(self.run_as(user, words, &ids, None, TIMEOUT));
            if cancelled.is_err() && user.is_some() {
                // The user may be gone, and the caller an operator. The next look shows it.
                let _ = self.run(words, &ids, None, TIMEOUT);
            }
            cancelled?;
        }
        Ok(())
    }

    fn kill_steps(&self, job: u64, names: &BTreeSet<String>, user: Option<&str>) -> Result<Vec<String>, LaunchError> {
        let (fence, number) = (self.fence()?, job.to_string());
        // It takes no format of steps from its environment; their names are of the job's own user.
        let format = queue::format_of_steps(&fence);
        let words = ["squeue", "--steps", "--noheader", "--format", &format, "--job", &number];
        let text = self.run(&words, &[], None, TIMEOUT)?;
        let steps = queue::steps(&text, &fence, job).ok_or_else(|| self.not_asked_for(&text))?.into_iter();
        let left = Vec::from_iter(steps.filter(|(_, name)| names.contains(*name)).map(|(step, _)| step.to_owned()));
        if !left.is_empty() {
            unless_over(self.run_as(user, &["scancel", "--quiet", "--signal=KILL"], &left, None, TIMEOUT))?;
        }
        Ok(left)
    }

    fn try_user(&self, user: &str) -> Result<(), LaunchError> {
        match self.run_for(user, &["sbatch", "--version"], &[], None, QUICK) {
            Err(LaunchError::Refused { scheduler, target, what }) => {
                let what = format!("sbatch cannot be run as user {user}: {what}");
                Err(LaunchError::Refused { scheduler, target, what })
            }
            tried => tried.map(drop),
        }
    }

    fn uid_of(&self, user: Option<&str>) -> Option<u32> {
        let Some(user) = user else { return Some(geteuid().as_raw()) };
        let known = || self.uids.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(uid) = known().get(user) {
            return Some(*uid);
        }
        let uid = self.run(&["id", "-u", user], &[], None, QUICK).ok()?.trim().parse().ok()?;
        known().insert(user.to_owned(), uid);
        Some(uid)
    }

    fn partitions(&self) -> Result<Vec<Partition>, LaunchError> {
        let text = self.run(&["sinfo", "--noheader", "--format", partitions::FORMAT], &[], None, TIMEOUT)?;
        Ok(partitions::partitions(&text))
    }

    fn nodes_down(&self, nodes: &str) -> Result<Vec<String>, LaunchError> {
        let words = ["sinfo", "--noheader", "--Node", "--states=down,fail", "--format", "%N", "--nodes", nodes];
        let text = self.run(&words, &[], None, QUICK)?;
        // One line for each partition of a node.
        Ok(BTreeSet::from_iter(text.lines().map(|line| line.trim().to_owned())).into_iter().collect())
    }

    fn grace(&self) -> Duration {
        if self.submit_as.is_empty() { Duration::ZERO } else { GRACE }
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
        Commands::new("gpu", None, Vec::new())
    }

    fn as_others(script: &str) -> Commands {
        let words = ["/bin/sh", "-c", script, "{user}"].map(str::to_owned).to_vec();
        Commands::new("gpu", None, words)
    }

    #[test]
    fn another_users_command_follows_the_settings_words() {
        let commands = as_others("echo \"$(pwd):$0:$*:${HOME:-none}:${CARGO_MANIFEST_DIR:-none}\"");
        let run = |user| commands.run_as(user, &["/bin/echo", "a"], &["b".to_owned()], None, TIMEOUT);
        assert_eq!(run(Some("anna")).expect("it prints"), "/:anna:/bin/echo a b:none:none\n");
        assert_eq!(run(None).expect("it prints"), "a b\n");
        assert_eq!((commands.grace(), gpu().grace()), (GRACE, Duration::ZERO));
    }

    #[test]
    fn a_user_as_whom_nothing_runs_is_told_from_what_slurm_refuses() {
        let refusing = as_others("echo \"sudo: unknown user $0\" >&2; exit 1");
        let what = "sbatch cannot be run as user anna: sudo: unknown user anna";
        assert!(matches!(refusing.try_user("anna"), Err(LaunchError::Refused { what: it, .. }) if it == what));
        let done = refusing.run_as(Some("anna"), &["sbatch"], &[], None, TIMEOUT);
        assert!(matches!(done, Err(LaunchError::Unavailable { what: it, .. }) if it == what));
        let script = "[ \"$2\" = --version ] || { echo sbatch: error: invalid account >&2; exit 1; }";
        let refused = as_others(script).run_as(Some("anna"), &["sbatch", "--parsable"], &[], None, TIMEOUT);
        assert!(matches!(refused, Err(LaunchError::Refused { what, .. }) if what == "sbatch: error: invalid account"));
    }

    #[test]
    fn a_configuration_that_is_not_there_is_named() {
        let commands = Commands::new("gpu", Some(PathBuf::from("/none/slurm.conf")), Vec::new());
        let error = commands.run(&["true"], &[], None, TIMEOUT).expect_err("it is not there").to_string();
        assert!(error.ends_with("/none/slurm.conf does not exist: correct conf of [target.gpu]"), "{error}");
    }

    #[test]
    fn users_have_numbers() {
        assert_eq!((gpu().uid_of(Some("root")), gpu().uid_of(Some("no-such-user"))), (Some(0), None));
        assert_eq!(gpu().uid_of(None), Some(geteuid().as_raw()));
    }

    #[test]
    fn the_environment_has_what_slurm_needs_and_no_secrets() {
        for name in ["SLURM_CONF", "SBATCH_PARTITION", "LC_ALL", "LD_LIBRARY_PATH", "HOME"] {
            assert!(is_passed(name), "{name}");
        }
        for name in ["AWS_SECRET_ACCESS_KEY", "SBATCH_WAIT", "SBATCH_ARRAY_INX", "LD_PRELOAD", "CARGO_MANIFEST_DIR"] {
            assert!(!is_passed(name), "{name}");
        }
        // Cargo sets it for tests.
        let script = "echo ${CARGO_MANIFEST_DIR:-none}";
        assert_eq!(shell(script, None).expect("it prints").trim(), "none");
        let whole = gpu().run_as_owner(&["/bin/sh", "-c", script], TIMEOUT).expect("it prints");
        assert_eq!(whole.trim(), env!("CARGO_MANIFEST_DIR"));
    }

    #[test]
    fn a_credential_and_a_configuration_pass() {
        for words in [
            "slurm_load_jobs error: Protocol authentication error",
            "sbatch: error: Batch job submission failed: Invalid authentication credential",
            "sinfo: fatal: Could not establish a configuration source",
            "sinfo: error: s_p_parse_file: unable to status file /etc/slurm/slurm.conf: No such file or directory; sinfo: \
             fatal: Unable to process configuration file",
        ] {
            let error = refusal("gpu", "squeue", words);
            assert!(matches!(error, LaunchError::Unavailable { .. }), "{words}");
        }
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
