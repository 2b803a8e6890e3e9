//! Instances as jobs of a Slurm cluster: one allocation for each attempt, whole or not at all, with
//! a step for each agent. Slurm decides when and where. Its commands are all that is needed:
//! `sbatch`, `squeue`, `scancel` here, `srun` and `scontrol` in the batch script. Where slurmrestd
//! is configured, it is asked instead of the commands here.

mod checking;
mod commands;
mod controller;
mod hostlist;
mod partitions;
mod queue;
mod request;
mod rest;
mod script;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use self::checking::Verdicts;
use self::commands::Commands;
use self::controller::Controller;
use self::hostlist::expand;
use self::queue::{Job, State, how, node_failure, why};
use self::request::Request;
use self::rest::Rest;
pub use self::rest::{Address as RestAddress, RestOptions, Token as RestToken, Version as RestVersion};
use self::script::{ended, step_name};
use crate::record::Submitted;
use crate::scheduled::{PREFIX, Scheduled, Scheduler, Stage, allocation_of};
use crate::{AllocationSpec, Ending, HostEnd, LaunchError, Launcher, Wants};

/// For Slurm to end a job's processes.
const TIMEOUT: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(100);

/// How jobs are submitted to a cluster.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SlurmOptions {
    /// The compute target's name, for messages.
    pub target: String,
    /// The cluster's configuration file, where Slurm's commands do not find it by themselves.
    pub conf: Option<PathBuf>,
    /// Where slurmrestd answers; none: Slurm's commands are used.
    pub rest: Option<RestOptions>,
    /// The program on the cluster's nodes; none: at the server's own path.
    pub program: Option<PathBuf>,
    /// Variables that agents get there, besides those of the allocation.
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
    let commands = Commands { target: options.target.clone(), conf: options.conf.clone() };
    let controller: Box<dyn Controller> = match options.rest.clone() {
        Some(rest) => Box::new(Rest::new(rest, commands)),
        None => Box::new(commands),
    };
    Scheduled::on(Cluster { options, controller, snapshot: Mutex::default(), verdicts: Verdicts::default() })
}

/// A Slurm cluster.
#[derive(Debug)]
struct Cluster {
    options: SlurmOptions,
    controller: Box<dyn Controller>,
    snapshot: Mutex<Option<Snapshot>>,
    verdicts: Verdicts,
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
        jobs.map_err(|what| LaunchError::Unavailable { target: self.options.target.clone(), what })
    }

    fn queued(&self, id: u64, job: &Job) -> String {
        let mut text =
            format!("Waiting in the queue of compute target {}, job {id}: {}", self.options.target, why(&job.reason));
        if let Some(start) = &job.start {
            // By the minute: estimates move with each look of the scheduler's.
            let minute = start.rsplit_once(':').map_or(&**start, |(minute, _)| minute).replace('T', " ");
            text.push_str(&format!("; expected to start at {minute}"));
        }
        text
    }
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

    fn submit(&self, spec: &AllocationSpec, name: &str, hosts: &BTreeSet<u32>) -> Result<u64, LaunchError> {
        let submitted = self.controller.submit(&Request::of(&self.options, spec, name, hosts));
        self.forget_snapshot();
        submitted
    }

    fn find(&self, name: &str, _: &BTreeSet<u32>, known: &[Submitted]) -> Result<Option<u64>, LaunchError> {
        let jobs = self.jobs_since(Instant::now())?;
        let is_known = |id: &u64| known.iter().any(|job| job.id == *id);
        Ok(jobs.iter().filter(|(id, job)| job.name == name && !is_known(id)).map(|(id, _)| *id).max())
    }

    fn stage(&self, jobs: &Jobs, submitted: &Submitted) -> Stage {
        match job_of(submitted, jobs) {
            None => Stage::Forgotten,
            Some(Job { state: State::Over(_), .. }) => Stage::Over,
            Some(job @ Job { state: State::Waits, .. }) => Stage::Waits { reason: self.queued(submitted.id, job) },
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
                let down = self.controller.nodes_down(&job.nodes).unwrap_or_default();
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
        let left = || -> Result<Vec<u64>, LaunchError> {
            let jobs = self.jobs_since(Instant::now())?;
            // By name: an `sbatch` that was given up may have submitted the same again.
            let is_left = |job: &Job| {
                !matches!(job.state, State::Over(_)) && all.iter().any(|submitted| submitted.name == job.name)
            };
            Ok(jobs.iter().filter(|(_, job)| is_left(job)).map(|(id, _)| *id).collect())
        };
        if all.is_empty() {
            return Ok(());
        }
        let ids = left()?;
        if ids.is_empty() {
            return Ok(());
        }
        self.controller.cancel(&ids)?;
        let until = Instant::now() + TIMEOUT;
        loop {
            match left()?.first() {
                None => return Ok(()),
                Some(id) if Instant::now() >= until => {
                    return Err(LaunchError::Unavailable {
                        target: self.options.target.clone(),
                        what: format!("job {id} was cancelled {} s ago and has not ended", TIMEOUT.as_secs()),
                    });
                }
                Some(_) => thread::sleep(POLL),
            }
        }
    }

    fn end_hosts(&self, job: &Submitted, hosts: &BTreeSet<u32>) -> Result<(), LaunchError> {
        let until = Instant::now() + TIMEOUT;
        let steps = hosts.iter().map(|host| step_name(*host)).collect();
        loop {
            match self.controller.kill_steps(job.id, &steps)?.first() {
                None => {
                    self.forget_snapshot();
                    return Ok(());
                }
                Some(step) if Instant::now() >= until => {
                    return Err(LaunchError::Unavailable {
                        target: self.options.target.clone(),
                        what: format!("step {step} was killed {} s ago and has not ended", TIMEOUT.as_secs()),
                    });
                }
                Some(_) => thread::sleep(POLL),
            }
        }
    }

    fn check(&self, wants: &Wants) -> Result<(), LaunchError> {
        let refused =
            |what| Err(LaunchError::Refused { target: self.options.target.clone(), scheduler: "Slurm", what });
        self.refusal(wants).map_or(Ok(()), refused)
    }

    fn end_others(&self, is_other: &dyn Fn(&str) -> bool) -> Result<(), LaunchError> {
        let jobs = self.jobs_since(Instant::now())?;
        let is_other = |job: &Job| allocation_of(&job.name).is_some_and(is_other);
        let others = jobs.iter().filter(|(_, job)| !matches!(job.state, State::Over(_)) && is_other(job));
        let submitted = |(id, job): (&u64, &Job)| Submitted { id: *id, name: job.name.clone(), hosts: BTreeSet::new() };
        self.end(&Vec::from_iter(others.map(submitted)))
    }

    /// Partitions, and the jobs of all servers.
    fn details(&self) -> Result<Vec<String>, String> {
        let words = |error: LaunchError| error.to_string();
        let known = self.controller.partitions().map_err(words)?;
        let mut details = partitions::sentences(&known);
        details.extend(partitions::missing(&self.options, &known));
        let jobs = self.jobs_since(Instant::now()).map_err(words)?;
        let ours = || jobs.values().filter(|job| job.name.starts_with(PREFIX));
        let count = |state: State| ours().filter(|job| job.state == state).count();
        details.push(format!("jobs of Shoal: {} run, {} wait", count(State::Runs), count(State::Waits)));
        Ok(details)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_that_ends_has_no_ends_of_hosts_yet() {
        let of = |state: &str| {
            let all = queue::jobs(&format!("7|{state}|None|N/A|n1|shoal-a|arn:a|2:killed"));
            hosts_that_ended(&all[&7])
        };
        assert_eq!(of("RUNNING"), BTreeSet::from([2]));
        assert_eq!(of("COMPLETING"), BTreeSet::new());
    }

    /// Counts how often it is asked, and never answers.
    #[derive(Debug, Default)]
    struct Silent(Arc<std::sync::atomic::AtomicU32>);

    impl Silent {
        fn silent<T>() -> Result<T, LaunchError> {
            Err(LaunchError::Unavailable { target: "a".to_owned(), what: "no answer".to_owned() })
        }
    }

    impl Controller for Silent {
        fn jobs(&self) -> Result<BTreeMap<u64, Job>, LaunchError> {
            self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            Self::silent()
        }
        fn submit(&self, _: &Request) -> Result<u64, LaunchError> {
            Self::silent()
        }
        fn test(&self, _: &Request) -> Result<(), LaunchError> {
            Self::silent()
        }
        fn cancel(&self, _: &[u64]) -> Result<(), LaunchError> {
            Self::silent()
        }
        fn kill_steps(&self, _: u64, _: &BTreeSet<String>) -> Result<Vec<String>, LaunchError> {
            Self::silent()
        }
        fn partitions(&self) -> Result<Vec<partitions::Partition>, LaunchError> {
            Self::silent()
        }
        fn nodes_down(&self, _: &str) -> Result<Vec<String>, LaunchError> {
            Self::silent()
        }
    }

    #[test]
    fn a_controller_that_does_not_answer_is_asked_once_for_all_allocations() {
        let asked = Arc::default();
        let options = SlurmOptions { target: "a".to_owned(), interval: Duration::from_secs(60), ..Default::default() };
        let cluster = Cluster {
            options,
            controller: Box::new(Silent(Arc::clone(&asked))),
            snapshot: Mutex::default(),
            verdicts: Verdicts::default(),
        };
        for _ in 0..3 {
            let error = cluster.jobs().expect_err("it is silent").to_string();
            assert_eq!(error, "the compute target a does not answer: no answer");
            cluster.find("shoal-a", &BTreeSet::new(), &[]).expect_err("it is silent");
        }
        assert_eq!(asked.load(std::sync::atomic::Ordering::Relaxed), 1);
    }
}
