//! Instances as jobs of a Slurm cluster: one allocation for each attempt, whole or not at all, with
//! a step for each agent. Slurm decides when and where. Its commands are all that is needed:
//! `sbatch`, `squeue`, `scancel` here, `srun` and `scontrol` in the batch script. Where slurmrestd
//! is configured, it is asked instead of the commands here.

mod checking;
mod commands;
mod controller;
mod failed_nodes;
mod hostlist;
mod partitions;
mod queue;
mod request;
mod rest;
mod script;
mod unanswered;
mod users;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use self::commands::Commands;
use self::controller::Controller;
use self::failed_nodes::FailedNodes;
use self::hostlist::expand;
use self::queue::{Job, State, how, node_failure, why};
use self::request::Request;
use self::rest::Rest;
pub use self::rest::{Address as RestAddress, RestOptions, Token as RestToken, Version as RestVersion};
use self::script::{ended, step_name};
use self::unanswered::Unanswered;
pub use self::users::SlurmUsers;
use crate::record::Submitted;
use crate::scheduled::{PREFIX, Scheduled, Scheduler, Stage, allocation_of};
use crate::verdicts::Verdicts;
use crate::{AllocationSpec, Ending, HostEnd, LaunchError, Launcher, Wants};

/// For Slurm to end a job's processes.
const TIMEOUT: Duration = Duration::from_secs(60);
/// Between two checks of that: at first, and at most.
const FIRST_POLL: Duration = Duration::from_millis(100);
const POLL: Duration = Duration::from_secs(1);

/// How jobs are submitted to a cluster.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SlurmOptions {
    /// The compute target's name, for messages.
    pub target: String,
    /// The cluster's configuration file, where Slurm's commands do not find it by themselves.
    pub conf: Option<PathBuf>,
    /// Where slurmrestd answers; none: Slurm's commands are used.
    pub rest: Option<RestOptions>,
    /// As whom jobs are submitted; none: all as the caller, or as the token's user.
    pub users: Option<SlurmUsers>,
    /// The program on the cluster's nodes; none: at the server's own path.
    pub program: Option<PathBuf>,
    /// Variables that agents get there, besides those of the allocation; `{user}` in them is the
    /// user that they run as.
    pub env: Vec<(String, String)>,
    /// Arguments of each `sbatch`.
    pub args: Vec<String>,
    /// How the instances of a job are on nodes, where their type names nothing else.
    pub nodes: Nodes,
    /// What differs by instance type.
    pub types: BTreeMap<String, SlurmType>,
    /// Between two questions to the controller.
    pub interval: Duration,
}

impl SlurmOptions {
    /// Whether its arguments say whose jobs are, which root may: `--uid=anna`.
    fn names_user(&self) -> bool {
        let of_types = self.types.values().flat_map(|of_type| &of_type.args);
        self.args.iter().chain(of_types).any(|arg| arg.starts_with("--uid"))
    }

    /// Whether several instances of a job may be on one node.
    fn packs(&self) -> bool {
        let of_types = self.types.values().filter_map(|of_type| of_type.nodes);
        of_types.chain([self.nodes]).any(|nodes| nodes == Nodes::Packed)
    }
}

/// What an instance type is on the cluster.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SlurmType {
    /// Arguments of `sbatch`: a partition, generic resources, a constraint.
    pub args: Vec<String>,
    /// How the instances of a job are on nodes; none: as the target has it.
    pub nodes: Option<Nodes>,
}

/// How the instances of a job are on nodes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Nodes {
    /// Each on another node, which other jobs may share.
    #[default]
    Spread,
    /// Each on another node, which no other job shares.
    Exclusive,
    /// As many on a node as there is room for.
    Packed,
}

/// A launcher of this cluster: the one that Slurm's commands, or slurmrestd, speak to.
#[must_use]
pub fn slurm(options: SlurmOptions) -> impl Launcher {
    let submit_as = options.users.as_ref().map(|users| users.submit_as.clone()).unwrap_or_default();
    let commands = Commands::new(&options.target, options.conf.clone(), submit_as);
    let controller: Box<dyn Controller> = match options.rest.clone() {
        Some(rest) => Box::new(Rest::new(rest, commands)),
        None => Box::new(commands),
    };
    Scheduled::on(Cluster::of(options, controller))
}

/// A Slurm cluster.
#[derive(Debug)]
struct Cluster {
    options: SlurmOptions,
    controller: Box<dyn Controller>,
    snapshot: Mutex<Option<Snapshot>>,
    verdicts: Verdicts,
    verdicts_on_users: Verdicts,
    failed: FailedNodes,
    unanswered: Unanswered,
}

/// Jobs by number.
type Jobs = Arc<BTreeMap<u64, Job>>;

/// All jobs, as the controller had them; or why it did not answer.
#[derive(Debug, Clone)]
struct Snapshot {
    at: Instant,
    jobs: Result<Jobs, String>,
}

impl Snapshot {
    /// What is known for a caller who asks for what was so after `since`.
    fn valid_for(&self, since: Instant, interval: Duration) -> Option<Result<Jobs, String>> {
        let is_valid = match self.jobs {
            Ok(_) => self.at >= since,
            Err(_) => self.at.elapsed() <= interval || self.at >= since,
        };
        is_valid.then(|| self.jobs.clone())
    }
}

impl Cluster {
    fn of(options: SlurmOptions, controller: Box<dyn Controller>) -> Self {
        Self {
            options,
            controller,
            snapshot: Mutex::default(),
            verdicts: Verdicts::default(),
            verdicts_on_users: Verdicts::default(),
            failed: FailedNodes::default(),
            unanswered: Unanswered::default(),
        }
    }

    fn unavailable(&self, what: String) -> LaunchError {
        LaunchError::Unavailable { target: self.options.target.clone(), what }
    }

    /// All jobs, as they were after this moment. Where it does not answer, that is not asked again
    /// for each allocation.
    fn jobs_since(&self, since: Instant) -> Result<Jobs, LaunchError> {
        let mut snapshot = self.snapshot.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = snapshot.as_ref().and_then(|it| it.valid_for(since, self.options.interval)) {
            return self.known(known);
        }
        let begun = Instant::now();
        let (at, jobs) = match self.controller.jobs() {
            Ok(jobs) => (begun, Ok(Arc::new(jobs))),
            // As of its end: a controller that is silent is waited for until a timeout.
            Err(error) => (Instant::now(), Err(words_of(error))),
        };
        *snapshot = Some(Snapshot { at, jobs: jobs.clone() });
        self.known(jobs)
    }

    fn forget_snapshot(&self) {
        *self.snapshot.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    fn known(&self, jobs: Result<Jobs, String>) -> Result<Jobs, LaunchError> {
        jobs.map_err(|what| self.unavailable(what))
    }

    /// Ends other jobs of this one's name: an earlier submission that was not answered.
    fn end_twins(&self, jobs: &BTreeMap<u64, Job>, submitted: &Submitted) {
        if !self.unanswered.has(&submitted.name) {
            return;
        }
        let is_twin = |(id, job): &(&u64, &Job)| {
            self.is_of(submitted, job) && **id != submitted.id && !matches!(job.state, State::Ends | State::Over(_))
        };
        let twins = Vec::from_iter(jobs.iter().filter(is_twin).map(|(id, _)| *id));
        if !twins.is_empty() {
            // The next look tries it again.
            let _ = self.controller.cancel(&twins, submitted.user.as_deref());
        }
    }

    /// Whether it has the name and the user of one that was submitted: other users may give a job
    /// any name.
    fn is_of(&self, submitted: &Submitted, job: &Job) -> bool {
        job.name == submitted.name && (self.options.names_user() || self.is_users(submitted.user.as_deref(), job))
    }

    fn is_users(&self, user: Option<&str>, job: &Job) -> bool {
        if let (Some(uid), Some(of_job)) = (self.controller.uid_of(user), job.uid) {
            return uid == of_job;
        }
        // A user without a name where Slurm was asked has a number for one, or nothing.
        let has_no_name = job.user.bytes().all(|byte| byte.is_ascii_digit());
        // Directories of users may take `Anna` for `anna`.
        let is_same = |name: String| name.eq_ignore_ascii_case(&job.user);
        has_no_name || self.controller.name_of(user).is_none_or(is_same)
    }

    /// Why an allocation of this creator's has no user, if so.
    fn no_user(&self, creator: &str, what: String) -> LaunchError {
        LaunchError::NoUser { target: self.options.target.clone(), creator: creator.to_owned(), what }
    }

    fn queued(&self, id: u64, job: &Job) -> String {
        if job.state == State::Boots {
            return format!("Compute target {}, job {id}: its nodes are being started", self.options.target);
        }
        let mut text =
            format!("Waiting in the queue of compute target {}, job {id}: {}", self.options.target, why(&job.reason));
        if let Some(start) = &job.start {
            // By the minute: estimates move with each look of the scheduler's.
            let minute = start.rsplit_once(':').map_or(&**start, |(minute, _)| minute).replace('T', " ");
            text.push_str(&format!("; expected to start at {minute} UTC"));
        }
        text
    }
}

/// Sleeps; returns how long the next time.
fn pause(time: Duration) -> Duration {
    thread::sleep(time);
    (2 * time).min(POLL)
}

/// Without the target's name, which is added again.
fn words_of(error: LaunchError) -> String {
    match error {
        LaunchError::Unavailable { what, .. } | LaunchError::Refused { what, .. } => what,
        other => other.to_string(),
    }
}

/// By a job's comment; of a job that ends none, as it is not known yet how it ends: steps of a
/// preempted job end before Slurm calls it so.
fn hosts_that_ended(job: &Job) -> BTreeSet<u32> {
    match job.state {
        State::Ends => BTreeSet::new(),
        _ => ended(&job.comment).into_iter().map(|(host, _)| host).collect(),
    }
}

/// The job that was submitted, if the controller has it: one that lost its state may give a number
/// again, and then the name is another one's.
fn job_of<'a>(submitted: &Submitted, jobs: &'a BTreeMap<u64, Job>) -> Option<&'a Job> {
    jobs.get(&submitted.id).filter(|job| job.name == submitted.name)
}

impl Scheduler for Cluster {
    type Jobs = Jobs;

    const KIND: &'static str = "slurm";

    fn target(&self) -> &str {
        &self.options.target
    }

    fn jobs(&self) -> Result<Jobs, LaunchError> {
        self.jobs_since(Instant::now().checked_sub(self.options.interval).unwrap_or_else(Instant::now))
    }

    fn user_of(&self, wants: &Wants) -> Result<Option<String>, LaunchError> {
        let (Some(users), Some(creator)) = (&self.options.users, &wants.creator) else { return Ok(None) };
        users.of(creator).map(Some).map_err(|what| self.no_user(creator, what))
    }

    fn submit(&self, spec: &AllocationSpec, job: &Submitted) -> Result<u64, LaunchError> {
        let submitted = self.controller.submit(&Request::of(&self.options, spec, job));
        self.forget_snapshot();
        if submitted.as_ref().is_err_and(|error| !matches!(error, LaunchError::Refused { .. })) {
            self.unanswered.note(&job.name);
        }
        submitted
    }

    fn find(&self, submitted: &Submitted, known: &[Submitted]) -> Result<Option<u64>, LaunchError> {
        let jobs = self.jobs_since(Instant::now())?;
        let is_known = |id: &u64| known.iter().any(|job| job.id == *id);
        let found =
            jobs.iter().filter(|(id, job)| self.is_of(submitted, job) && !is_known(id)).map(|(id, _)| *id).max();
        let grace = self.controller.grace();
        if self.unanswered.may_appear(&submitted.name, grace) && found.is_none() {
            let seconds = grace.as_secs();
            return Err(self.unavailable(format!(
                "a submission was not answered; its job is looked for for {seconds} s before it is submitted again"
            )));
        }
        Ok(found)
    }

    fn stage(&self, jobs: &Jobs, submitted: &Submitted) -> Stage {
        self.end_twins(jobs, submitted);
        match job_of(submitted, jobs) {
            None => Stage::Forgotten,
            Some(Job { state: State::Over(_), .. }) => Stage::Over,
            Some(Job { state: State::Paused, .. }) => Stage::Paused,
            Some(job @ Job { state: State::Waits | State::Boots, .. }) => {
                Stage::Waits { reason: self.queued(submitted.id, job) }
            }
            Some(job) => Stage::Runs { ended: hosts_that_ended(job) },
        }
    }

    fn end_of(&self, jobs: &Jobs, submitted: &Submitted, host: u32) -> Option<HostEnd> {
        let (id, job) = (submitted.id, job_of(submitted, jobs)?);
        let last = ended(&job.comment).into_iter().find(|(other, _)| *other == host).map(|(_, last)| last);
        let ending = match job.state {
            State::Over(ending) => ending,
            _ => Ending::Itself,
        };
        let text = match ending {
            Ending::NodeFailed => {
                // Without it the message has all nodes of the job.
                let down = self.failed.of(id, || self.controller.nodes_down(&job.nodes));
                node_failure(id, &expand(&job.nodes), &down)
            }
            _ => how(id, ending, last.unwrap_or_default()),
        };
        Some(HostEnd { ending, text })
    }

    fn node_of(&self, jobs: &Jobs, submitted: &Submitted, host: u32) -> Option<String> {
        let mut nodes = expand(&job_of(submitted, jobs)?.nodes);
        // By the script: hosts are on nodes in their order.
        let place = match nodes.len() {
            1 => 0,
            several if several == submitted.hosts.len() && !self.options.packs() => {
                submitted.hosts.iter().position(|other| *other == host)?
            }
            _ => return None,
        };
        Some(nodes.swap_remove(place))
    }

    fn end(&self, all: &[Submitted]) -> Result<(), LaunchError> {
        // By user.
        let left = |since: Instant| -> Result<BTreeMap<Option<&str>, Vec<u64>>, LaunchError> {
            let jobs = self.jobs_since(since)?;
            let mut left: BTreeMap<_, Vec<u64>> = BTreeMap::new();
            for (id, job) in jobs.iter().filter(|(_, job)| !matches!(job.state, State::Over(_))) {
                // By name: an `sbatch` that was given up may have submitted the same again.
                if let Some(submitted) = all.iter().find(|submitted| self.is_of(submitted, job)) {
                    left.entry(submitted.user.as_deref()).or_default().push(*id);
                }
            }
            Ok(left)
        };
        if all.is_empty() {
            return Ok(());
        }
        let ids = left(Instant::now())?;
        if ids.is_empty() {
            return Ok(());
        }
        // One user's refusal keeps no other's jobs.
        ids.iter().map(|(user, ids)| self.controller.cancel(ids, *user)).fold(Ok(()), Result::and)?;
        let (cancelled, mut wait) = (Instant::now(), FIRST_POLL);
        loop {
            wait = pause(wait);
            // All who wait share a look that was taken since.
            let recent = Instant::now().checked_sub(self.options.interval).unwrap_or(cancelled);
            match left(recent.max(cancelled))?.into_values().flatten().next() {
                None => return Ok(()),
                Some(id) if cancelled.elapsed() >= TIMEOUT => {
                    let seconds = TIMEOUT.as_secs();
                    return Err(self.unavailable(format!("job {id} was cancelled {seconds} s ago and has not ended")));
                }
                Some(_) => {}
            }
        }
    }

    fn end_hosts(&self, job: &Submitted, hosts: &BTreeSet<u32>) -> Result<(), LaunchError> {
        let (begun, mut wait) = (Instant::now(), FIRST_POLL);
        let steps = hosts.iter().map(|host| step_name(*host)).collect();
        loop {
            match self.controller.kill_steps(job.id, &steps, job.user.as_deref())?.first() {
                None => {
                    self.forget_snapshot();
                    return Ok(());
                }
                Some(step) if begun.elapsed() >= TIMEOUT => {
                    let seconds = TIMEOUT.as_secs();
                    return Err(self.unavailable(format!("step {step} was killed {seconds} s ago and has not ended")));
                }
                Some(_) => wait = pause(wait),
            }
        }
    }

    fn check(&self, wants: &Wants) -> Result<(), LaunchError> {
        let user = self.user_of(wants)?;
        if let (Some(creator), Some(user)) = (&wants.creator, &user) {
            self.refusal_of_user(user).map_or(Ok(()), |what| Err(self.no_user(creator, what)))?;
        }
        let refused =
            |what| Err(LaunchError::Refused { target: self.options.target.clone(), scheduler: "Slurm", what });
        self.refusal(wants, user).map_or(Ok(()), refused)
    }

    fn end_others(&self, is_other: &dyn Fn(&str) -> bool) -> Result<(), LaunchError> {
        let jobs = self.jobs_since(Instant::now())?;
        let is_other = |job: &Job| allocation_of(&job.name).is_some_and(is_other);
        let others = jobs.iter().filter(|(_, job)| !matches!(job.state, State::Over(_)) && is_other(job));
        let submitted = |(id, job): (&u64, &Job)| Submitted {
            id: *id,
            name: job.name.clone(),
            hosts: BTreeSet::new(),
            user: self.options.users.as_ref().and_then(|_| self.controller.user_of(job)),
        };
        self.end(&Vec::from_iter(others.map(submitted)))
    }

    /// Partitions, and the jobs of all servers.
    fn details(&self, creators: &[String]) -> Result<Vec<String>, String> {
        let words = |error: LaunchError| error.to_string();
        let known = self.controller.partitions().map_err(words)?;
        let mut details = partitions::sentences(&known);
        details.extend(partitions::missing(&self.options, &known));
        let jobs = self.jobs_since(Instant::now()).map_err(words)?;
        let ours = || jobs.values().filter(|job| job.name.starts_with(PREFIX));
        let count = |states: [State; 2]| ours().filter(|job| states.contains(&job.state)).count();
        let (run, wait) = (count([State::Runs, State::Paused]), count([State::Waits, State::Boots]));
        details.push(format!("jobs of Shoal: {run} run, {wait} wait"));
        details.extend(self.missing_users(creators));
        Ok(details)
    }
}

#[cfg(test)]
mod tests;
