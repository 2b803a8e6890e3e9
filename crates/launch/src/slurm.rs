//! Instances as jobs of a Slurm cluster: one allocation for each attempt, whole or not at all, with
//! a step for each agent. Slurm decides when and where. Its commands are all that is needed:
//! `sbatch`, `squeue`, `scancel` here, `srun` and `scontrol` in the batch script.

mod checking;
mod commands;
mod partitions;
mod queue;
mod record;
mod script;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use self::checking::Verdicts;
use self::commands::run;
use self::queue::{FORMAT, Job, State, how, jobs, why};
use self::record::{Record, Submitted};
use self::script::{ended, script, step_name};
use crate::{AllocationSpec, AllocationStatus, Ending, HostEnd, LaunchError, Launcher, MemoryUse, TargetReport, Wants};

/// For Slurm to end a job's processes.
const TIMEOUT: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(100);
/// Names of jobs begin so.
const PREFIX: &str = "shoal-";

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

/// Starts agents by Slurm.
#[derive(Debug)]
pub struct Slurm {
    options: SlurmOptions,
    /// By directory, as on disk.
    records: Mutex<HashMap<PathBuf, Record>>,
    /// By directory, held by who submits or ends jobs: of one allocation nothing is done twice.
    turns: Mutex<HashMap<PathBuf, Arc<Mutex<()>>>>,
    snapshot: Mutex<Option<Snapshot>>,
    verdicts: Verdicts,
}

/// All jobs, as the controller had them.
#[derive(Debug, Clone)]
struct Snapshot {
    at: Instant,
    jobs: Arc<BTreeMap<u64, Job>>,
}

impl Slurm {
    /// A launcher of this cluster: the one that Slurm's commands speak to.
    #[must_use]
    pub fn new(options: SlurmOptions) -> Self {
        Self {
            options,
            records: Mutex::default(),
            turns: Mutex::default(),
            snapshot: Mutex::default(),
            verdicts: Verdicts::default(),
        }
    }

    fn records(&self) -> MutexGuard<'_, HashMap<PathBuf, Record>> {
        self.records.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn turn(&self, spec: &AllocationSpec) -> Arc<Mutex<()>> {
        let mut turns = self.turns.lock().unwrap_or_else(PoisonError::into_inner);
        turns.entry(spec.dir.clone()).or_default().clone()
    }

    fn run(&self, program: &str, args: &[&str], input: Option<&str>) -> Result<String, LaunchError> {
        let args = Vec::from_iter(args.iter().map(|arg| (*arg).to_owned()));
        run(&self.options, program, &args, input)
    }

    /// All jobs, as they were after this moment.
    fn jobs_since(&self, since: Instant) -> Result<Arc<BTreeMap<u64, Job>>, LaunchError> {
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

    /// All jobs, as they were at most an interval ago.
    fn jobs(&self) -> Result<Arc<BTreeMap<u64, Job>>, LaunchError> {
        self.jobs_since(Instant::now().checked_sub(self.options.interval).unwrap_or_else(Instant::now))
    }

    fn forget_snapshot(&self) {
        *self.snapshot.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// What is known of an allocation.
    fn record(&self, spec: &AllocationSpec) -> Result<Record, LaunchError> {
        if let Some(record) = self.records().get(&spec.dir) {
            return Ok(record.clone());
        }
        Ok(Record::read(&spec.dir)
            .map_err(of_file("read", &spec.dir))?
            .unwrap_or_else(|| Record { target: self.options.target.clone(), ..Record::default() }))
    }

    /// The same when nobody else submits: a job whose submission was cut short is found by its
    /// name.
    fn settled(&self, spec: &AllocationSpec) -> Result<Record, LaunchError> {
        let mut record = self.record(spec)?;
        if let Some(hosts) = record.submitting.clone() {
            let name = job_name(spec, record.jobs.len());
            let known = |id: &u64| record.jobs.iter().any(|job| job.id == *id);
            let jobs = self.jobs_since(Instant::now())?;
            let found = jobs.iter().filter(|(id, job)| job.name == name && !known(id)).map(|(id, _)| *id).max();
            match found {
                Some(id) => record.submitted(id, name, hosts),
                None => record.submitting = None,
            }
            self.keep(spec, &record)?;
        }
        Ok(record)
    }

    fn keep(&self, spec: &AllocationSpec, record: &Record) -> Result<(), LaunchError> {
        record.write(&spec.dir).map_err(of_file("write", &spec.dir))?;
        self.records().insert(spec.dir.clone(), record.clone());
        Ok(())
    }

    /// Submits a job for these hosts.
    fn start(&self, spec: &AllocationSpec, hosts: BTreeSet<u32>, mut record: Record) -> Result<(), LaunchError> {
        record.submitting = Some(hosts.clone());
        self.keep(spec, &record)?;
        let name = job_name(spec, record.jobs.len());
        let (args, text) = self.job(spec, &name, &hosts);
        let printed = run(&self.options, "sbatch", &args, Some(&text));
        if matches!(printed, Err(LaunchError::Refused { .. })) {
            record.submitting = None;
            self.keep(spec, &record)?;
            return printed.map(drop);
        }
        let printed = printed?;
        // `ID` or `ID;CLUSTER`.
        let id = printed.trim().split(';').next().and_then(|id| id.parse().ok());
        let id = id.ok_or_else(|| LaunchError::Unavailable {
            target: self.options.target.clone(),
            what: format!("sbatch printed {printed:?} and no job's number"),
        })?;
        record.submitted(id, name, hosts);
        self.forget_snapshot();
        self.keep(spec, &record)
    }

    /// Arguments of `sbatch`, and the script.
    fn job(&self, spec: &AllocationSpec, name: &str, hosts: &BTreeSet<u32>) -> (Vec<String>, String) {
        let (options, wants) = (&self.options, &spec.wants);
        let of_type = options.types.get(&wants.kind).cloned().unwrap_or_default();
        let mut args: Vec<String> = [
            "--parsable",
            "--no-requeue",
            "--export=HOME,USER,LOGNAME,PATH,LANG",
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

    fn status_now(&self, spec: &AllocationSpec) -> Result<AllocationStatus, LaunchError> {
        let mut record = self.record(spec)?;
        if record.submitting.is_some()
            && let Ok(_turn) = self.turn(spec).try_lock()
        {
            record = self.settled(spec)?;
        }
        let Some(first) = record.jobs.first() else { return Ok(AllocationStatus::Unknown) };
        let jobs = self.jobs()?;
        let mut lost = BTreeSet::new();
        let mut is_over = true;
        for submitted in &record.jobs {
            let job = job_of(submitted, &jobs);
            is_over &= job.is_some_and(|job| matches!(job.state, State::Over(_)));
            lost.extend(lost_of(submitted, job));
        }
        if let Some(job) = job_of(first, &jobs).filter(|job| job.state == State::Waits) {
            return Ok(AllocationStatus::Queued { reason: self.queued(first.id, job) });
        }
        if is_over {
            return Ok(AllocationStatus::Ended);
        }
        // A host that was started again is in the later job.
        let is_lost = |host: &u32| {
            !record.removed.contains(host)
                && record.job_of(*host).is_some_and(|job| lost_of(job, job_of(job, &jobs)).contains(host))
        };
        Ok(AllocationStatus::Running { lost: lost.into_iter().filter(is_lost).collect() })
    }

    /// Partitions, and the jobs of all servers.
    fn details(&self) -> Result<Vec<String>, LaunchError> {
        let text = self.run("sinfo", &["--noheader", "--format", partitions::FORMAT], None)?;
        let mut details = partitions::sentences(&text);
        let jobs = self.jobs_since(Instant::now())?;
        let ours = || jobs.values().filter(|job| job.name.starts_with(PREFIX));
        let count = |state: State| ours().filter(|job| job.state == state).count();
        details.push(format!("jobs of Shoal: {} run, {} wait", count(State::Runs), count(State::Waits)));
        Ok(details)
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

    /// Ends these jobs of an allocation; returns when nothing of them is left.
    fn end(&self, all: &[Submitted]) -> Result<(), LaunchError> {
        let left = || -> Result<Vec<u64>, LaunchError> {
            let jobs = self.jobs_since(Instant::now())?;
            let is_left = |it: &&Submitted| job_of(it, &jobs).is_some_and(|job| !matches!(job.state, State::Over(_)));
            Ok(all.iter().filter(is_left).map(|it| it.id).collect())
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

    /// Ends the steps of these hosts in a job whose others go on.
    fn end_steps(&self, id: u64, hosts: &BTreeSet<u32>) -> Result<(), LaunchError> {
        let until = Instant::now() + TIMEOUT;
        let job = id.to_string();
        loop {
            let text = self.run("squeue", &["--steps", "--noheader", "--format", "%i|%j", "--job", &job], None)?;
            let steps = text.lines().filter_map(|line| line.trim().split_once('|'));
            let ours = steps.filter(|(_, name)| hosts.iter().any(|host| step_name(*host) == *name));
            let ours = Vec::from_iter(ours.map(|(step, _)| step.to_owned()));
            if ours.is_empty() {
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
}

/// The job that was submitted, if the controller has it: one that lost its state may give a number
/// again, and then the name is another one's.
fn job_of<'a>(submitted: &Submitted, jobs: &'a BTreeMap<u64, Job>) -> Option<&'a Job> {
    jobs.get(&submitted.id).filter(|job| job.name == submitted.name)
}

/// Hosts of a job that have ended.
fn lost_of(submitted: &Submitted, job: Option<&Job>) -> BTreeSet<u32> {
    match job {
        // Lost by the controller, or ended long ago: agents show themselves whether they live.
        None => BTreeSet::new(),
        Some(Job { state: State::Over(_), .. }) => submitted.hosts.clone(),
        Some(Job { state: State::Waits, .. }) => BTreeSet::new(),
        // Of a job that ends, how it ends is not known yet.
        Some(job) => ended(&job.comment).into_iter().map(|(host, _)| host).collect(),
    }
}

/// Names the allocation that a job is of; later jobs of one have a number.
fn job_name(spec: &AllocationSpec, jobs_before: usize) -> String {
    match jobs_before {
        0 => format!("{PREFIX}{}", spec.id),
        before => format!("{PREFIX}{}+{before}", spec.id),
    }
}

fn of_file(what: &'static str, dir: &Path) -> impl FnOnce(io::Error) -> LaunchError {
    let what = format!("{what} what is known of Slurm's jobs in {}", dir.display());
    move |source| LaunchError::Io { what, source }
}

impl Launcher for Slurm {
    fn is_remote(&self, _: &[String]) -> bool {
        true
    }

    fn has_submitted(&self, spec: &AllocationSpec) -> bool {
        let of_this = |record: &Record| record.target == self.options.target;
        Record::read(&spec.dir).ok().flatten().is_some_and(|record| of_this(&record))
    }

    fn check(&self, _: &[String], wants: &Wants) -> Result<(), LaunchError> {
        let refused = |what| Err(LaunchError::Refused { target: self.options.target.clone(), what });
        self.refusal(wants).map_or(Ok(()), refused)
    }

    fn submit(&self, spec: &AllocationSpec) -> Result<(), LaunchError> {
        let turn = self.turn(spec);
        let _turn = turn.lock().unwrap_or_else(PoisonError::into_inner);
        let record = self.settled(spec)?;
        match record.jobs.is_empty() {
            true => self.start(spec, (1..=spec.instances).collect(), record),
            false => Ok(()),
        }
    }

    fn add(&self, spec: &AllocationSpec, hosts: &[u32]) -> Result<(), LaunchError> {
        let turn = self.turn(spec);
        let _turn = turn.lock().unwrap_or_else(PoisonError::into_inner);
        let record = self.settled(spec)?;
        let jobs = self.jobs_since(Instant::now())?;
        let runs = |host: &u32| {
            !record.removed.contains(host)
                && record.job_of(*host).is_some_and(|job| !lost_of(job, job_of(job, &jobs)).contains(host))
        };
        let hosts: BTreeSet<u32> = hosts.iter().copied().filter(|host| !runs(host)).collect();
        match hosts.is_empty() {
            true => Ok(()),
            false => self.start(spec, hosts, record),
        }
    }

    fn remove(&self, spec: &AllocationSpec, hosts: &[u32]) -> Result<(), LaunchError> {
        let turn = self.turn(spec);
        let _turn = turn.lock().unwrap_or_else(PoisonError::into_inner);
        let mut record = self.settled(spec)?;
        for job in &record.jobs {
            let is_there = |host: &u32| record.job_of(*host) == Some(job) && !record.removed.contains(host);
            let present = job.hosts.iter().copied().filter(is_there);
            let (leave, stay): (BTreeSet<u32>, BTreeSet<u32>) = present.partition(|host| hosts.contains(host));
            match (leave.is_empty(), stay.is_empty()) {
                (true, _) => {}
                (false, true) => self.end(std::slice::from_ref(job))?,
                (false, false) => self.end_steps(job.id, &leave)?,
            }
        }
        record.removed.extend(hosts);
        self.forget_snapshot();
        self.keep(spec, &record)
    }

    fn status(&self, specs: &[&AllocationSpec]) -> Vec<Result<AllocationStatus, LaunchError>> {
        specs.iter().map(|spec| self.status_now(spec)).collect()
    }

    fn reports(&self) -> Vec<TargetReport> {
        let details = self.details().map_err(|error| error.to_string());
        vec![TargetReport { name: self.options.target.clone(), kind: "slurm".to_owned(), details }]
    }

    fn end_of(&self, spec: &AllocationSpec, host: u32) -> Option<HostEnd> {
        let record = self.record(spec).ok()?;
        let submitted = record.job_of(host)?;
        let jobs = self.jobs().ok()?;
        let (id, job) = (submitted.id, job_of(submitted, &jobs)?);
        let last = ended(&job.comment).into_iter().find(|(other, _)| *other == host).map(|(_, last)| last);
        let ending = match job.state {
            State::Over(ending) => ending,
            _ => Ending::Itself,
        };
        Some(HostEnd { ending, text: how(id, ending, last.unwrap_or_default()) })
    }

    fn memory(&self, _: &[&AllocationSpec]) -> MemoryUse {
        // Slurm measures and limits it.
        MemoryUse::new()
    }

    fn end_others(&self, id_prefix: &str, is_known: &dyn Fn(&str) -> bool) -> Result<(), LaunchError> {
        let jobs = self.jobs_since(Instant::now())?;
        let is_other = |job: &Job| {
            let id = job.name.strip_prefix(PREFIX).map(|name| name.split_once('+').map_or(name, |(id, _)| id));
            id.is_some_and(|id| id.starts_with(id_prefix) && !is_known(id))
        };
        let others = jobs.iter().filter(|(_, job)| !matches!(job.state, State::Over(_)) && is_other(job));
        let submitted = |(id, job): (&u64, &Job)| Submitted { id: *id, name: job.name.clone(), hosts: BTreeSet::new() };
        self.end(&Vec::from_iter(others.map(submitted)))
    }

    fn stop(&self, spec: &AllocationSpec) -> Result<(), LaunchError> {
        let turn = self.turn(spec);
        let _turn = turn.lock().unwrap_or_else(PoisonError::into_inner);
        let record = self.settled(spec)?;
        self.end(&record.jobs)?;
        self.records().remove(&spec.dir);
        self.turns.lock().unwrap_or_else(PoisonError::into_inner).remove(&spec.dir);
        Ok(())
    }
}
