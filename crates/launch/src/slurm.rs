//! Instances as jobs of a Slurm cluster: one allocation for each attempt, whole or not at all, with
//! a step for each agent. Slurm decides when and where. Its commands are all that is needed:
//! `sbatch`, `squeue`, `scancel` here, `srun` and `scontrol` in the batch script.

mod checking;
mod commands;
mod partitions;
mod queue;
mod script;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use self::checking::Verdicts;
use self::commands::run;
use self::queue::{FORMAT, Job, State, how, jobs, why};
use self::script::{ended, script, step_name};
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

/// A launcher of this cluster: the one that Slurm's commands speak to.
#[must_use]
pub fn slurm(options: SlurmOptions) -> impl Launcher {
    Scheduled::on(Cluster { options, snapshot: Mutex::default(), verdicts: Verdicts::default() })
}

/// A Slurm cluster.
#[derive(Debug)]
struct Cluster {
    options: SlurmOptions,
    snapshot: Mutex<Option<Snapshot>>,
    verdicts: Verdicts,
}

/// Jobs by number.
type Jobs = Arc<BTreeMap<u64, Job>>;

/// All jobs, as the controller had them.
#[derive(Debug, Clone)]
struct Snapshot {
    at: Instant,
    jobs: Jobs,
}

impl Cluster {
    fn run(&self, program: &str, args: &[&str], input: Option<&str>) -> Result<String, LaunchError> {
        let args = Vec::from_iter(args.iter().map(|arg| (*arg).to_owned()));
        run(&self.options, program, &args, input)
    }

    /// All jobs, as they were after this moment.
    fn jobs_since(&self, since: Instant) -> Result<Jobs, LaunchError> {
        let mut snapshot = self.snapshot.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(Snapshot { jobs, .. }) = snapshot.as_ref().filter(|it| it.at >= since) {
            return Ok(jobs.clone());
        }
        let at = Instant::now();
        let text = self.run("squeue", &["--noheader", "--states=all", "--format", FORMAT], None)?;
        let jobs = Arc::new(jobs(&text));
        *snapshot = Some(Snapshot { at, jobs: jobs.clone() });
        Ok(jobs)
    }

    fn forget_snapshot(&self) {
        *self.snapshot.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Arguments of `sbatch`, and the script.
    fn job(&self, spec: &AllocationSpec, name: &str, hosts: &BTreeSet<u32>) -> (Vec<String>, String) {
        let (options, wants) = (&self.options, &spec.wants);
        let of_type = options.types.get(&wants.kind).cloned().unwrap_or_default();
        let mut args: Vec<String> = [
            "--parsable",
            "--no-requeue",
            // All of `commands::ENVIRONMENT`. For a list of names slurmd runs a login shell, which
            // takes up to a second.
            "--export=ALL",
            "--output=/dev/null",
            "--input=/dev/null",
        ]
        .map(str::to_owned)
        .to_vec();
        args.push(format!("--job-name={name}"));
        args.push(format!("--comment={}", wants.label));
        let (count, megabytes) = (hosts.len() as u64, wants.memory_bytes.div_ceil(1 << 20));
        let nodes = of_type.nodes.unwrap_or(options.nodes);
        if nodes != Nodes::Packed {
            args.extend([format!("--nodes={count}-{count}"), "--ntasks-per-node=1".to_owned()]);
        }
        match nodes {
            Nodes::Exclusive => args.extend(["--exclusive".to_owned(), "--mem=0".to_owned()]),
            Nodes::Spread => {
                args.extend((wants.cpus > 0).then(|| format!("--cpus-per-task={}", wants.cpus)));
                args.extend((megabytes > 0).then(|| format!("--mem={megabytes}M")));
                args.extend((wants.gpus > 0).then(|| format!("--gpus-per-node={}", wants.gpus)));
            }
            Nodes::Packed => {
                args.push(format!("--ntasks={count}"));
                args.extend((wants.cpus > 0).then(|| format!("--cpus-per-task={}", wants.cpus)));
                let per_cpu = megabytes.div_ceil(wants.cpus.max(1).into());
                args.extend((megabytes > 0).then(|| format!("--mem-per-cpu={per_cpu}M")));
                args.extend((wants.gpus > 0).then(|| format!("--gpus-per-task={}", wants.gpus)));
            }
        }
        args.extend(wants.seconds.map(|seconds| format!("--time={}", seconds.div_ceil(60).max(1))));
        args.extend(options.args.iter().chain(&of_type.args).cloned());
        let program = options.program.as_ref().unwrap_or(&spec.program).to_string_lossy().into_owned();
        let spec = &AllocationSpec { env: [&spec.env[..], &options.env].concat(), ..spec.clone() };
        (args, script(spec, hosts, &program, nodes != Nodes::Packed))
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
        let (args, text) = self.job(spec, name, hosts);
        let printed = run(&self.options, "sbatch", &args, Some(&text))?;
        self.forget_snapshot();
        // `ID` or `ID;CLUSTER`.
        let id = printed.trim().split(';').next().and_then(|id| id.parse().ok());
        id.ok_or_else(|| LaunchError::Unavailable {
            target: self.options.target.clone(),
            what: format!("sbatch printed {printed:?} and no job's number"),
        })
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
        Some(HostEnd { ending, text: how(id, ending, last.unwrap_or_default()) })
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
        let words = Vec::from_iter(ids.iter().map(u64::to_string));
        let words = || words.iter().map(String::as_str);
        let all = |first: &[&'static str]| Vec::from_iter(first.iter().copied().chain(words()).map(str::to_owned));
        // Steps first and at once; then what is queued, or is between two steps.
        for first in [&["--quiet", "--full", "--signal=KILL"][..], &["--quiet"]] {
            match run(&self.options, "scancel", &all(first), None) {
                // Jobs that are over already.
                Ok(_) | Err(LaunchError::Refused { .. }) => {}
                Err(error) => return Err(error),
            }
        }
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
        let job = job.id.to_string();
        loop {
            let text = self.run("squeue", &["--steps", "--noheader", "--format", "%i|%j", "--job", &job], None)?;
            let steps = text.lines().filter_map(|line| line.trim().split_once('|'));
            let ours = steps.filter(|(_, name)| hosts.iter().any(|host| step_name(*host) == *name));
            let ours = Vec::from_iter(ours.map(|(step, _)| step.to_owned()));
            if ours.is_empty() {
                self.forget_snapshot();
                return Ok(());
            }
            if Instant::now() >= until {
                return Err(LaunchError::Unavailable {
                    target: self.options.target.clone(),
                    what: format!("step {} was killed {} s ago and has not ended", ours[0], TIMEOUT.as_secs()),
                });
            }
            let mut args = vec!["--quiet".to_owned(), "--signal=KILL".to_owned()];
            args.extend(ours);
            match run(&self.options, "scancel", &args, None) {
                Ok(_) | Err(LaunchError::Refused { .. }) => thread::sleep(POLL),
                Err(error) => return Err(error),
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
        let text = self.run("sinfo", &["--noheader", "--format", partitions::FORMAT], None).map_err(words)?;
        let mut details = partitions::sentences(&text);
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
            let all = jobs(&format!("7|{state}|None|N/A|shoal-a|arn:a|2:killed"));
            hosts_that_ended(&all[&7])
        };
        assert_eq!(of("RUNNING"), BTreeSet::from([2]));
        assert_eq!(of("COMPLETING"), BTreeSet::new());
    }
}
