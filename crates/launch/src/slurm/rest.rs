//! slurmrestd: Slurm's own REST API, with a token (JWT) over TCP, or on a Unix socket. What it
//! cannot do is done by Slurm's commands, where the target names their configuration: ending one
//! step of a job, and the check before a job is created (`sbatch --test-only`). Without it,
//! commands of this machine may speak to another cluster.

mod address;
mod answers;
mod submission;
mod tokens;
mod transport;
mod verdict;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use http::{Method, Request as HttpRequest};
use serde_json::Value;

pub use self::address::Address;
use self::answers::Answers;
pub use self::submission::Version;
use self::submission::body;
pub use self::tokens::Token;
use self::tokens::Tokens;
use self::transport::{Answer, call};
use self::verdict::{Verdict, verdict};
use super::commands::{Commands, QUICK, refusal};
use super::controller::Controller;
use super::partitions::Partition;
use super::queue::Job;
use super::request::Request;
use super::users::SlurmUsers;
use crate::LaunchError;

/// For an answer; slurmrestd itself waits for the controller for as long as `MessageTimeout`.
const TIMEOUT: Duration = Duration::from_secs(20);
/// In which a submission that was not answered becomes a job, or never does.
const GRACE: Duration = Duration::from_secs(10);

/// How slurmrestd is reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RestOptions {
    /// Where it listens.
    pub address: Address,
    /// Which of its APIs is spoken.
    pub version: Version,
    /// Who the token is of, where it does not name its user.
    pub user: Option<String>,
    /// None: the socket's user is known by the socket.
    pub token: Option<Token>,
}

impl RestOptions {
    /// Whether an option of `sbatch`, `--NAME=VALUE`, can be given to it.
    #[must_use]
    pub fn has_option(option: &str) -> bool {
        submission::member(option).is_some()
    }
}

/// A cluster that slurmrestd speaks to.
#[derive(Debug)]
pub(super) struct Rest {
    options: RestOptions,
    /// By user; none: the caller's.
    tokens: Mutex<BTreeMap<Option<String>, Arc<Tokens>>>,
    commands: Commands,
}

impl Rest {
    pub(super) fn new(options: RestOptions, commands: Commands) -> Self {
        Self { tokens: Mutex::default(), options, commands }
    }

    fn unavailable(&self, what: String) -> LaunchError {
        LaunchError::Unavailable { target: self.commands.target.clone(), what }
    }

    /// The tokens of a user; none: the one that the settings name.
    fn tokens(&self, user: Option<&str>) -> Arc<Tokens> {
        let mut tokens = self.tokens.lock().unwrap_or_else(PoisonError::into_inner);
        let of_user = || {
            let name = user.or(self.options.user.as_deref()).unwrap_or_default();
            Arc::new(Tokens::new(self.options.token.as_ref().map(|token| token.of(name))))
        };
        tokens.entry(user.map(str::to_owned)).or_insert_with(of_user).clone()
    }

    fn get(&self, path: &str) -> Result<Value, LaunchError> {
        self.ask(None, TIMEOUT, &Method::GET, path, None)
    }

    /// Asks as a user; a token that is refused is renewed once.
    fn ask(
        &self,
        user: Option<&str>,
        limit: Duration,
        method: &Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Value, LaunchError> {
        let (until, tokens) = (Instant::now() + limit, self.tokens(user));
        let send = |limit: Duration| {
            let token = tokens.token(&self.commands, limit)?;
            self.send(limit, token.map(|token| (user, token)), method, path, body)
        };
        let mut answer = send(limit);
        let is_renewed = match verdict(answer.as_ref()) {
            Verdict::Fine => false,
            Verdict::TokenRefused => tokens.renew(),
            // Something was perhaps submitted: the caller looks for it first.
            Verdict::Doubtful => tokens.renew_doubtful() && *method != Method::POST,
        };
        let left = until.saturating_duration_since(Instant::now());
        if is_renewed && !left.is_zero() {
            answer = send(left);
        }
        self.read(&answer?)
    }

    fn send(
        &self,
        limit: Duration,
        token: Option<(Option<&str>, String)>,
        method: &Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Answer, LaunchError> {
        let RestOptions { address, version, .. } = &self.options;
        let path = format!("/slurm/{}/{path}", version.name());
        let mut request = HttpRequest::builder().method(method.clone()).uri(&path).header("Host", address.host());
        request = request.header("Accept", "application/json");
        if let Some((user, token)) = token {
            // It needs the user, though the token names it.
            let user = user.or(self.options.user.as_deref()).map(str::to_owned);
            if let Some(user) = user.or_else(|| tokens::user(&token)) {
                request = request.header("X-SLURM-USER-NAME", user);
            }
            request = request.header("X-SLURM-USER-TOKEN", token);
        }
        if body.is_some() {
            request = request.header("Content-Type", "application/json");
        }
        let bytes = body.map(ToString::to_string).unwrap_or_default().into_bytes();
        let request = request.body(bytes.into()).map_err(|error| self.unavailable(format!("slurmrestd: {error}")))?;
        call(address, request, limit).map_err(|what| {
            self.unavailable(format!(
                "slurmrestd at {address}: {what}; check that it runs there and that `rest` of the target names its address"
            ))
        })
    }

    /// The answer, unless it has errors.
    fn read(&self, answer: &Answer) -> Result<Value, LaunchError> {
        let Answer { status, body } = answer;
        let RestOptions { address, version, .. } = &self.options;
        match status {
            _ if verdict(Ok(answer)) == Verdict::TokenRefused => {
                return Err(self.unavailable(format!(
                    "slurmrestd at {address} refuses the token (HTTP {status}): set token_file or token_command of the \
                     target, for instance token_command = [\"scontrol\", \"token\", \"lifespan=3600\"], and user to the \
                     token's user"
                )));
            }
            404 if serde_json::from_slice::<Value>(body).is_err() => {
                return Err(self.unavailable(format!(
                    "slurmrestd at {address} has no API {}: set api_version of the target to one that `slurmrestd -s list` \
                     prints",
                    version.name()
                )));
            }
            _ => {}
        }
        let Ok(value) = serde_json::from_slice::<Value>(body) else {
            let text = String::from_utf8_lossy(body);
            let start: String = text.trim().chars().take(200).collect();
            return Err(self.unavailable(format!("slurmrestd at {address} answers HTTP {status} with {start:?}")));
        };
        match answers::errors(&value) {
            Some(errors) if verdict(Ok(answer)) == Verdict::Doubtful => Err(self.unavailable(format!(
                "slurmrestd at {address} has no answer of slurmctld's ({}): slurmctld is not reached there, or it refuses \
                 the token, which may have ended; check `scontrol ping`, and token_file or token_command of the target",
                errors.lines().collect::<Vec<_>>().join("; ")
            ))),
            Some(errors) => Err(refusal(&self.commands.target, "slurmrestd", &errors)),
            None if *status >= 400 => Err(self.unavailable(format!("slurmrestd at {address} answers HTTP {status}"))),
            None => Ok(value),
        }
    }

    fn answers(&self) -> Answers {
        Answers { version: self.options.version }
    }
}

impl Controller for Rest {
    fn jobs(&self) -> Result<BTreeMap<u64, Job>, LaunchError> {
        Ok(self.answers().jobs(&self.get("jobs/")?))
    }

    fn submit(&self, request: &Request) -> Result<u64, LaunchError> {
        let body = body(self.options.version, request).map_err(|what| LaunchError::Refused {
            scheduler: "Slurm",
            target: self.commands.target.clone(),
            what,
        })?;
        let answer = self.ask(request.user.as_deref(), TIMEOUT, &Method::POST, "job/submit", Some(&body))?;
        answers::number(&answer["job_id"])
            .filter(|id| *id > 0)
            .ok_or_else(|| self.unavailable(format!("slurmrestd answers {answer} and no job's number")))
    }

    fn test(&self, request: &Request) -> Result<(), LaunchError> {
        // Nothing is refused where nothing can be asked.
        if self.commands.conf.is_none() { Ok(()) } else { self.commands.test(request) }
    }

    fn cancel(&self, jobs: &[u64], user: Option<&str>) -> Result<(), LaunchError> {
        for job in jobs {
            match self.ask(user, TIMEOUT, &Method::DELETE, &format!("job/{job}"), None) {
                // Jobs that are over already.
                Ok(_) | Err(LaunchError::Refused { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn kill_steps(&self, job: u64, names: &BTreeSet<String>, user: Option<&str>) -> Result<Vec<String>, LaunchError> {
        if self.commands.conf.is_none() {
            return Err(LaunchError::Refused {
                scheduler: "Slurm",
                target: self.commands.target.clone(),
                what: format!(
                    "slurmrestd cannot end {} of job {job} alone: set conf of the target to the cluster's slurm.conf, so \
                     that scancel does it, or stop the whole job",
                    Vec::from_iter(names.iter().map(String::as_str)).join(", ")
                ),
            });
        }
        self.commands.kill_steps(job, names, user)
    }

    fn try_user(&self, user: &str) -> Result<(), LaunchError> {
        self.tokens(Some(user)).find(&self.commands, QUICK).map(drop)
    }

    fn partitions(&self) -> Result<Vec<Partition>, LaunchError> {
        let partitions = self.get("partitions/")?;
        Ok(self.answers().partitions(&partitions, &self.get("nodes/")?))
    }

    fn nodes_down(&self, nodes: &str) -> Result<Vec<String>, LaunchError> {
        let names = super::hostlist::expand(nodes);
        let mut down = self.answers().nodes_down(&self.ask(None, QUICK, &Method::GET, "nodes/", None)?);
        down.retain(|name| names.contains(name));
        Ok(down)
    }

    fn user_of(&self, job: &Job) -> Option<String> {
        let is_own = self.name_of(None).is_none_or(|own| own == job.user);
        (!is_own && SlurmUsers::is_name(&job.user)).then(|| job.user.clone())
    }

    /// The caller is who the token is of.
    fn name_of(&self, user: Option<&str>) -> Option<String> {
        let of_token = || tokens::user(&self.tokens(None).token(&self.commands, TIMEOUT).ok()??);
        user.map(str::to_owned).or_else(|| self.options.user.clone()).or_else(of_token)
    }

    fn grace(&self) -> Duration {
        GRACE
    }
}

#[cfg(test)]
mod tests;
