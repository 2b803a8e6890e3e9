//! Allocations as jobs of a scheduler, which decides when and where: what launchers of schedulers
//! have in common. An allocation is a job, and one more for each set of instances that is added
//! later. Which ones were submitted is in a file of the allocation's directory.

use std::collections::{BTreeSet, HashMap};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::record::{Record, Submitted};
use crate::{AllocationSpec, AllocationStatus, HostEnd, LaunchError, Launcher, MemoryUse, TargetReport, Wants};

/// Names of jobs begin so.
pub(crate) const PREFIX: &str = "shoal-";

/// What a job of a scheduler is to its allocation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Stage {
    /// The scheduler does not have it: it has lost it, or forgotten it.
    Forgotten,
    /// Waits for capacity.
    Waits {
        /// For people.
        reason: String,
    },
    /// Has capacity; these hosts have ended.
    Runs {
        /// Host numbers.
        ended: BTreeSet<u32>,
    },
    /// Has capacity, and the scheduler has stopped its processes for a while.
    Paused,
    /// Nothing of it is left.
    Over,
}

/// A scheduler's own operations. Each may ask it, and take seconds.
pub(crate) trait Scheduler: Send + Sync {
    /// Its jobs at a moment.
    type Jobs;

    /// `slurm`: its name in settings, and of the file with what was submitted.
    const KIND: &'static str;

    /// The compute target's name.
    fn target(&self) -> &str;

    /// Its jobs now, or a moment ago.
    ///
    /// # Errors
    /// It does not answer.
    fn jobs(&self) -> Result<Self::Jobs, LaunchError>;

    /// Variables that agents get besides an allocation's, which others than the scheduler are asked
    /// for. Called before a submission, with no lock held; takes seconds at most.
    fn variables(&self, _spec: &AllocationSpec) -> Vec<(String, String)> {
        Vec::new()
    }

    /// The scheduler's user whose jobs such an allocation's are; none: the caller's.
    ///
    /// # Errors
    /// [`LaunchError::NoUser`].
    fn user_of(&self, _wants: &Wants) -> Result<Option<String>, LaunchError> {
        Ok(None)
    }

    /// Submits a job of this name, hosts and user; returns its number, which the given one lacks.
    ///
    /// # Errors
    /// [`LaunchError::Refused`]: nothing of it is left. Any other: something may be, and the caller
    /// finds it by [`Scheduler::find`] or calls this again.
    fn submit(&self, spec: &AllocationSpec, job: &Submitted) -> Result<u64, LaunchError>;

    /// The number of a job that was submitted so, and is complete, except for those that are known.
    ///
    /// # Errors
    /// It does not answer.
    fn find(&self, job: &Submitted, known: &[Submitted]) -> Result<Option<u64>, LaunchError>;

    /// Ends what an incomplete submission under this name has left, if it can leave something.
    ///
    /// # Errors
    /// Something may be left.
    fn clear(&self, _name: &str) -> Result<(), LaunchError> {
        Ok(())
    }

    /// Whether it would refuse such instances whenever they are asked for, as far as it knows.
    ///
    /// # Errors
    /// [`LaunchError::Refused`], [`LaunchError::NoUser`].
    fn check(&self, _wants: &Wants) -> Result<(), LaunchError> {
        Ok(())
    }

    /// How a job is.
    fn stage(&self, jobs: &Self::Jobs, job: &Submitted) -> Stage;

    /// How a host of a job has ended.
    fn end_of(&self, jobs: &Self::Jobs, job: &Submitted, host: u32) -> Option<HostEnd>;

    /// The node that a host of a job is or was on, as far as it is known.
    fn node_of(&self, jobs: &Self::Jobs, job: &Submitted, host: u32) -> Option<String>;

    /// Ends these jobs; returns when nothing of them is left.
    ///
    /// # Errors
    /// Something may be left.
    fn end(&self, jobs: &[Submitted]) -> Result<(), LaunchError>;

    /// Ends these hosts of a job whose others stay; returns when nothing of them is left.
    ///
    /// # Errors
    /// Something may be left.
    fn end_hosts(&self, job: &Submitted, hosts: &BTreeSet<u32>) -> Result<(), LaunchError>;

    /// Ends the jobs of allocations for whose id this is so.
    ///
    /// # Errors
    /// Something may be left.
    fn end_others(&self, is_other: &dyn Fn(&str) -> bool) -> Result<(), LaunchError>;

    /// The state of its capacity and its queue, and what these creators lack there, in sentences.
    ///
    /// # Errors
    /// It does not answer, or something that jobs need is missing: what, and what to do.
    fn details(&self, creators: &[String]) -> Result<Vec<String>, String>;
}

/// A launcher of a scheduler's jobs.
#[derive(Debug)]
pub(crate) struct Scheduled<S> {
    scheduler: S,
    /// By directory, as on disk.
    records: Mutex<HashMap<PathBuf, Record>>,
    /// By directory, held by who submits or ends jobs: of one allocation nothing is done twice.
    turns: Mutex<HashMap<PathBuf, Arc<Mutex<()>>>>,
}

/// What becomes of a submission that was cut short.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Unfinished {
    /// It is completed, by who submits again.
    Left,
    Ended,
}

impl<S: Scheduler> Scheduled<S> {
    pub(crate) fn on(scheduler: S) -> Self {
        Self { scheduler, records: Mutex::default(), turns: Mutex::default() }
    }

    fn file() -> String {
        format!("{}.json", S::KIND)
    }

    fn records(&self) -> MutexGuard<'_, HashMap<PathBuf, Record>> {
        self.records.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn turn(&self, spec: &AllocationSpec) -> Arc<Mutex<()>> {
        let mut turns = self.turns.lock().unwrap_or_else(PoisonError::into_inner);
        turns.entry(spec.dir.clone()).or_default().clone()
    }

    /// What is known of an allocation.
    fn record(&self, spec: &AllocationSpec) -> Result<Record, LaunchError> {
        if let Some(record) = self.records().get(&spec.dir) {
            return Ok(record.clone());
        }
        Ok(Record::read(&spec.dir, &Self::file())
            .map_err(of_file("read", &spec.dir))?
            .unwrap_or_else(|| Record { target: self.scheduler.target().to_owned(), ..Record::default() }))
    }

    /// The same when no other thread submits: a job whose submission was cut short is found by its
    /// name.
    fn settled(&self, spec: &AllocationSpec, unfinished: Unfinished) -> Result<Record, LaunchError> {
        let mut record = self.record(spec)?;
        if let Some(hosts) = record.submitting.clone() {
            let job = record.next(spec, hosts);
            match self.scheduler.find(&job, &record.jobs)? {
                Some(id) => record.submitted(Submitted { id, ..job }),
                None if unfinished == Unfinished::Ended => {
                    self.scheduler.clear(&job.name)?;
                    record.submitting = None;
                }
                None => return Ok(record),
            }
            self.keep(spec, &record)?;
        }
        Ok(record)
    }

    fn keep(&self, spec: &AllocationSpec, record: &Record) -> Result<(), LaunchError> {
        record.write(&spec.dir, &Self::file()).map_err(of_file("write", &spec.dir))?;
        self.records().insert(spec.dir.clone(), record.clone());
        Ok(())
    }

    fn with_variables(&self, spec: &AllocationSpec) -> AllocationSpec {
        let env = [spec.env.clone(), self.scheduler.variables(spec)].concat();
        AllocationSpec { env, ..spec.clone() }
    }

    /// Submits a job for these hosts.
    fn start(&self, spec: &AllocationSpec, hosts: BTreeSet<u32>, mut record: Record) -> Result<(), LaunchError> {
        // Later jobs of an allocation are the same user's, whatever the settings say meanwhile.
        if record.jobs.is_empty() {
            record.user = self.scheduler.user_of(&spec.wants)?;
        }
        record.submitting = Some(hosts.clone());
        self.keep(spec, &record)?;
        let job = record.next(spec, hosts);
        let submitted = self.scheduler.submit(spec, &job);
        if matches!(submitted, Err(LaunchError::Refused { .. })) {
            record.submitting = None;
            self.keep(spec, &record)?;
        }
        record.submitted(Submitted { id: submitted?, ..job });
        self.keep(spec, &record)
    }

    fn status_now(&self, spec: &AllocationSpec) -> Result<AllocationStatus, LaunchError> {
        let mut record = self.record(spec)?;
        if record.submitting.is_some()
            && let Ok(_turn) = self.turn(spec).try_lock()
        {
            record = self.settled(spec, Unfinished::Left)?;
        }
        if record.jobs.is_empty() {
            return Ok(AllocationStatus::Unknown);
        }
        let jobs = self.scheduler.jobs()?;
        let stages = Vec::from_iter(record.jobs.iter().map(|job| self.scheduler.stage(&jobs, job)));
        if let Some(Stage::Waits { reason }) = stages.first() {
            return Ok(AllocationStatus::Queued { reason: reason.clone() });
        }
        if stages.iter().all(|stage| *stage == Stage::Over) {
            return Ok(AllocationStatus::Ended);
        }
        if stages.contains(&Stage::Paused) {
            return Ok(AllocationStatus::Paused);
        }
        let lost = record.jobs.iter().zip(stages).flat_map(|(job, stage)| {
            // A host that was started again is in the later job.
            let is_lost = |host: &u32| !record.removed.contains(host) && record.job_of(*host) == Some(job);
            Vec::from_iter(ended_of(job, stage).into_iter().filter(is_lost))
        });
        Ok(AllocationStatus::Running { lost: BTreeSet::from_iter(lost).into_iter().collect() })
    }
}

/// Hosts of a job that have ended.
fn ended_of(job: &Submitted, stage: Stage) -> BTreeSet<u32> {
    match stage {
        // Agents show themselves whether they live.
        Stage::Forgotten | Stage::Waits { .. } | Stage::Paused => BTreeSet::new(),
        Stage::Runs { ended } => ended,
        Stage::Over => job.hosts.clone(),
    }
}

/// Names the allocation that a job is of; later jobs of one have a number.
pub(crate) fn job_name(spec: &AllocationSpec, jobs_before: usize) -> String {
    match jobs_before {
        0 => format!("{PREFIX}{}", spec.id),
        before => format!("{PREFIX}{}+{before}", spec.id),
    }
}

/// The id of the allocation that a job of this name is of; none: it is not one of ours.
pub(crate) fn allocation_of(job_name: &str) -> Option<&str> {
    let name = job_name.strip_prefix(PREFIX)?;
    Some(name.split_once('+').map_or(name, |(id, _)| id))
}

fn of_file(what: &'static str, dir: &Path) -> impl FnOnce(io::Error) -> LaunchError {
    let what = format!("{what} what is known of the scheduler's jobs in {}", dir.display());
    move |source| LaunchError::Io { what, source }
}

impl<S: Scheduler> Launcher for Scheduled<S> {
    fn is_remote(&self, _: &[String]) -> bool {
        true
    }

    fn has_submitted(&self, spec: &AllocationSpec) -> bool {
        let of_this = |record: &Record| record.target == self.scheduler.target();
        Record::read(&spec.dir, &Self::file()).ok().flatten().is_some_and(|record| of_this(&record))
    }

    fn check(&self, _: &[String], wants: &Wants) -> Result<(), LaunchError> {
        self.scheduler.check(wants)
    }

    fn submit(&self, spec: &AllocationSpec) -> Result<(), LaunchError> {
        // What was started already needs none.
        let spec = &if self.record(spec)?.jobs.is_empty() { self.with_variables(spec) } else { spec.clone() };
        let turn = self.turn(spec);
        let _turn = turn.lock().unwrap_or_else(PoisonError::into_inner);
        let record = self.settled(spec, Unfinished::Left)?;
        match record.jobs.is_empty() {
            true => self.start(spec, (1..=spec.instances).collect(), record),
            false => Ok(()),
        }
    }

    fn add(&self, spec: &AllocationSpec, hosts: &[u32]) -> Result<(), LaunchError> {
        let spec = &self.with_variables(spec);
        let turn = self.turn(spec);
        let _turn = turn.lock().unwrap_or_else(PoisonError::into_inner);
        let record = self.settled(spec, Unfinished::Left)?;
        let jobs = self.scheduler.jobs()?;
        let runs = |host: &u32| {
            !record.removed.contains(host)
                && record
                    .job_of(*host)
                    .is_some_and(|job| !ended_of(job, self.scheduler.stage(&jobs, job)).contains(host))
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
        let mut record = self.settled(spec, Unfinished::Ended)?;
        for job in &record.jobs {
            let is_there = |host: &u32| record.job_of(*host) == Some(job) && !record.removed.contains(host);
            let present = job.hosts.iter().copied().filter(is_there);
            let (leave, stay): (BTreeSet<u32>, BTreeSet<u32>) = present.partition(|host| hosts.contains(host));
            match (leave.is_empty(), stay.is_empty()) {
                (true, _) => {}
                (false, true) => self.scheduler.end(std::slice::from_ref(job))?,
                (false, false) => self.scheduler.end_hosts(job, &leave)?,
            }
        }
        record.removed.extend(hosts);
        self.keep(spec, &record)
    }

    fn status(&self, specs: &[&AllocationSpec]) -> Vec<Result<AllocationStatus, LaunchError>> {
        specs.iter().map(|spec| self.status_now(spec)).collect()
    }

    fn reports(&self, creators: &[String]) -> Vec<TargetReport> {
        let details = self.scheduler.details(creators);
        vec![TargetReport { name: self.scheduler.target().to_owned(), kind: S::KIND.to_owned(), details }]
    }

    fn end_of(&self, spec: &AllocationSpec, host: u32) -> Option<HostEnd> {
        let record = self.record(spec).ok()?;
        let job = record.job_of(host)?;
        let jobs = self.scheduler.jobs().ok()?;
        self.scheduler.end_of(&jobs, job, host)
    }

    fn finds_lost_machines(&self, _: &AllocationSpec) -> bool {
        true
    }

    fn machine_of(&self, spec: &AllocationSpec, host: u32) -> Option<String> {
        let record = self.record(spec).ok()?;
        let jobs = self.scheduler.jobs().ok()?;
        self.scheduler.node_of(&jobs, record.job_of(host)?, host)
    }

    fn memory(&self, _: &[&AllocationSpec]) -> MemoryUse {
        // The scheduler measures and limits it.
        MemoryUse::new()
    }

    fn end_others(&self, id_prefix: &str, is_known: &dyn Fn(&str) -> bool) -> Result<(), LaunchError> {
        self.scheduler.end_others(&|id| id.starts_with(id_prefix) && !is_known(id))
    }

    fn stop(&self, spec: &AllocationSpec) -> Result<(), LaunchError> {
        let turn = self.turn(spec);
        let _turn = turn.lock().unwrap_or_else(PoisonError::into_inner);
        let record = self.settled(spec, Unfinished::Ended)?;
        self.scheduler.end(&record.jobs)?;
        self.records().remove(&spec.dir);
        self.turns.lock().unwrap_or_else(PoisonError::into_inner).remove(&spec.dir);
        Ok(())
    }
}
