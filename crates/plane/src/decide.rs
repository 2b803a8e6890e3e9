//! From requests and reports to facts.

use crate::{
    AttemptId, Command, Event, Fact, GangSpec, Host, InstanceReport, JobStatus, Rejection, RuleVerdict,
    SecondaryStatus, State, StopCause, Time,
    capacity::cut,
    decision::Decision,
    gang::instances::{Attempt, Instance, Stage},
    limits::MAX_TEXT,
    quotas::{Amounts, Claimed},
    reports::{can_be_interrupted, reported},
    text::first_characters,
    training::{TrainingJob, follow::completed, messages, reason::internal_error},
};

/// What a command does to the job or tuning job that it is about; changes nothing by itself.
/// Reports that are late, repeated or of unknown attempts yield no events. What follows for others
/// is [`crate::step`]'s.
///
/// # Errors
/// The request cannot be granted; nothing happens.
pub fn decide(state: &State, command: &Command, now: Time) -> Result<Vec<Event>, Rejection> {
    // A clock that was set back must not make an end come before its start.
    let now = now.max(state.clock);
    let mut decision = Decision::new(state, now);
    match command {
        Command::CreateTrainingJob { name, uid, spec, name_taken } => {
            decision.create(name, uid, spec.clone(), *name_taken)?;
        }
        Command::StopTrainingJob { name, cause, ended } => decision.stop(name, *cause, *ended)?,
        Command::InterruptTrainingJob { name, instances, ended } => decision.interrupt(name, *instances, *ended)?,
        Command::CreateTuningJob { name, uid, spec, name_taken } => {
            decision.create_tuning(name, uid, spec, *name_taken)?;
        }
        Command::StopTuningJob { name, ended } => decision.stop_tuning(name, *ended)?,
        Command::ChangeParallel { name, max_parallel, ended } => {
            decision.change_parallel(name, *max_parallel, *ended)?;
        }
        Command::Suggested { tuning, seq, records, children, waits } => {
            decision.suggested(tuning, *seq, records, children, *waits)?;
        }
        Command::Judged { tuning, seq, records, converged } => decision.judged(tuning, *seq, records, *converged),
        Command::SearchFailed { tuning, seq, reason } => decision.search_failed(tuning, *seq, reason),
        Command::MemoryMeasured { used, lacking } => decision.relieve(used, lacking),
        Command::Tick => decision.tick(),
        Command::LaunchFailed { attempt, reason } if decision.joining(attempt).is_some() => {
            decision.not_joined(attempt, reason);
        }
        Command::LaunchFailed { attempt, reason } => {
            decision.of_attempt(attempt, Stage::Running, |job, attempt| {
                let matters = job.gang.in_progress() && attempt.failed.is_none();
                matters.then(|| job.attempt_failed(attempt, internal_error(reason), now))
            });
        }
        Command::LaunchDelayed { attempt, reason } => {
            decision.of_attempt(attempt, Stage::Running, |job, attempt| {
                let message = messages::launch_delayed(job, reason);
                awaits_launch(job, attempt).then_some(Fact::JobMoved { secondary: SecondaryStatus::Starting, message })
            });
        }
        Command::LaunchQueued { attempt, reason } => {
            decision.of_attempt(attempt, Stage::Running, |job, attempt| launch_queued(job, attempt, reason.as_deref()));
        }
        // At any stage: the last files of a failed job are saved while it is being released.
        Command::InstanceReported {
            attempt,
            host,
            report: InstanceReport::CheckpointSaved { path, bytes, sha256 },
        } => {
            if let Some(job) = state.job_of(attempt).and_then(|name| state.jobs.get(name)) {
                let (attempt, path, sha256) = (attempt.clone(), path.clone(), sha256.clone());
                decision.happens(job, Fact::CheckpointSaved { attempt, host: *host, path, bytes: *bytes, sha256 });
            }
        }
        // At any stage, too: its report may arrive after the instance has ended.
        Command::InstanceReported {
            attempt,
            host,
            report: InstanceReport::RuleEvaluated { rule, verdict, details, stops },
        } => {
            let (attempt, rule) = (attempt.clone(), rule.clone());
            let details = first_characters(details, MAX_TEXT);
            let fact = Fact::RuleEvaluated { attempt: attempt.clone(), host: *host, rule, verdict: *verdict, details };
            decision.evaluated(&attempt, fact, *stops && *verdict == RuleVerdict::IssuesFound);
        }
        Command::InstanceReported { attempt, host, report: report @ InstanceReport::RankEnded { end, .. } }
            if end.crowded_out.is_some() && !end.success() =>
        {
            decision.crowded_out(attempt, *host, report);
        }
        Command::InstanceReported { attempt, host, report } => {
            decision.of_attempt(attempt, Stage::Running, |job, _| reported(state, job, attempt, *host, report));
        }
        Command::InstancesCleared { attempt, hosts } => decision.cleared(attempt, hosts),
        Command::ArtifactsStored { attempt } => decision.of_attempt(attempt, Stage::Storing, |job, attempt| {
            Some(match job.gang.stop {
                Some(_) => job.stopped(),
                None if attempt.parked => Fact::ReleaseOrdered { attempt: attempt.id.clone() },
                None => completed(),
            })
        }),
        Command::ArtifactsFailed { attempt, reason } => decision.of_attempt(attempt, Stage::Storing, |job, attempt| {
            Some(match job.gang.stop {
                // Its checkpoints are what it resumes from.
                None if attempt.parked => Fact::ReleaseOrdered { attempt: attempt.id.clone() },
                _ => job.attempt_failed(attempt, internal_error(reason), now),
            })
        }),
        Command::Released { attempt } => {
            decision
                .of_attempt(attempt, Stage::Releasing, |_, _| Some(Fact::Released { attempt: Some(attempt.clone()) }));
        }
    }
    Ok(decision.events)
}

impl<'a> Decision<'a> {
    fn create(&mut self, name: &str, uid: &str, spec: GangSpec, name_taken: bool) -> Result<(), Rejection> {
        if name_taken || self.state.jobs.contains(name) {
            return Err(Rejection::NameTaken(name.to_owned()));
        }
        self.can_ever_run(&spec)?;
        let fact = Fact::JobCreated { uid: uid.to_owned(), spec, message: messages::CREATED.to_owned(), trial: None };
        self.events.push(Event { at: self.now, name: name.to_owned(), fact });
        Ok(())
    }

    /// Instances of this size exist, and quotas permit them where nothing else is held.
    pub(crate) fn can_ever_run(&self, spec: &GangSpec) -> Result<(), Rejection> {
        let State { capacity, catalog, .. } = self.state;
        let needs = Amounts::of(&cut(spec, capacity, catalog)?.demand().total(), 1);
        match capacity.quotas.excess(&spec.claim, &Claimed::default(), needs) {
            Some(excess) => Err(Rejection::NeverFits(excess.refusal())),
            None => Ok(()),
        }
    }

    fn live(&self, name: &str, ended: Option<JobStatus>) -> Result<&'a TrainingJob, Rejection> {
        let unknown = || ended.map_or(Rejection::NotFound, |status| Rejection::AlreadyEnded(status.name()));
        self.state.jobs.get(name).ok_or_else(unknown)
    }

    fn stop(&mut self, name: &str, cause: StopCause, ended: Option<JobStatus>) -> Result<(), Rejection> {
        let job = self.live(name, ended)?;
        match job.status() {
            JobStatus::InProgress => self.happens(job, job.stop_for(cause, self.now)),
            JobStatus::Stopping => {}
            status @ (JobStatus::Completed | JobStatus::Failed | JobStatus::Stopped) => {
                return Err(Rejection::AlreadyEnded(status.name()));
            }
        }
        Ok(())
    }

    /// A rule was evaluated; some stop the job that meets their condition.
    fn evaluated(&mut self, attempt: &AttemptId, fact: Fact, stops: bool) {
        let Some(job) = self.state.job_of(attempt).and_then(|name| self.state.jobs.get(name)) else { return };
        let mut job = job.clone();
        self.record(&mut job, fact);
        let is_present = job.gang.attempt.as_ref().is_some_and(|present| present.id == *attempt);
        // Programs that are over need no stop.
        if stops && is_present && job.gang.in_progress() && job.secondary() != SecondaryStatus::Uploading {
            let stop = job.stop_for(StopCause::Rule, self.now);
            self.happens(&job, stop);
        }
    }

    fn interrupt(&mut self, name: &str, instances: Option<u32>, ended: Option<JobStatus>) -> Result<(), Rejection> {
        let job = self.live(name, ended)?;
        if !job.gang.in_progress() {
            return Err(Rejection::AlreadyEnded(job.status().name()));
        }
        let dispensable = job.gang.attempt.as_ref().map_or(Vec::new(), |attempt| job.gang.dispensable(attempt));
        let wanted = instances.unwrap_or(u32::from(!dispensable.is_empty())) as usize;
        if wanted > dispensable.len() {
            return Err(Rejection::NotDispensable { name: name.to_owned(), dispensable: dispensable.len(), wanted });
        }
        if let (1.., Some(attempt)) = (wanted, &job.gang.attempt) {
            let hosts = Vec::from_iter(dispensable.into_iter().take(wanted).rev());
            let message = messages::continues_without(attempt, &hosts, messages::INSTANCE_INTERRUPTED);
            self.happens(job, Fact::InstancesInterrupted { attempt: attempt.id.clone(), hosts, message });
            return Ok(());
        }
        if job.gang.spec.max_wait_s.is_none() {
            let not_dispensable = Rejection::NotDispensable { name: name.to_owned(), dispensable: 0, wanted: 1 };
            return Err(if job.gang.spec.min_instances.is_some() {
                not_dispensable
            } else {
                Rejection::NotSpot(name.to_owned())
            });
        }
        let Some(attempt) = job.gang.running().filter(|attempt| can_be_interrupted(&job.gang, attempt)) else {
            return Err(Rejection::NothingToInterrupt { name: name.to_owned(), secondary: job.secondary().name() });
        };
        let message = messages::INTERRUPTED.to_owned();
        self.happens(job, Fact::AttemptInterrupted { attempt: attempt.id.clone(), message });
        Ok(())
    }

    /// Instances that are added to this attempt and have not reported.
    fn joining(&self, attempt: &AttemptId) -> Option<(&'a TrainingJob, Vec<Host>)> {
        let job = self.state.job_of(attempt).and_then(|name| self.state.jobs.get(name))?;
        let current = job
            .gang
            .running()
            .filter(|current| current.complete && current.failed.is_none() && job.gang.in_progress())?;
        Some((job, current.joining()))
    }

    fn not_joined(&mut self, attempt: &AttemptId, reason: &str) {
        let Some((job, hosts)) = self.joining(attempt) else { return };
        for host in hosts {
            let reason = first_characters(reason, MAX_TEXT);
            self.happens(job, Fact::InstanceLost { attempt: attempt.clone(), host, reason });
        }
    }

    fn cleared(&mut self, attempt: &AttemptId, hosts: &[Host]) {
        let Some(job) = self.state.job_of(attempt).and_then(|name| self.state.jobs.get(name)) else { return };
        let Some(current) = job.gang.running() else { return };
        let (lost, taken) = current.cleared(hosts);
        let until = current.replaced_after(self.now);
        for (hosts, until) in [(lost, Some(until)), (taken, None)] {
            if !hosts.is_empty() {
                self.happens(job, Fact::InstancesCleared { attempt: attempt.clone(), hosts, until });
            }
        }
    }

    fn tick(&mut self) {
        let Decision { state, now, .. } = *self;
        let due = state.index.deadlines.iter().take_while(|(at, _)| *at <= now);
        for job in due.filter_map(|(_, name)| state.jobs.get(name)) {
            self.follow(job.clone());
        }
    }

    fn of_attempt(
        &mut self,
        attempt: &AttemptId,
        stage: Stage,
        fact: impl FnOnce(&TrainingJob, &Attempt) -> Option<Fact>,
    ) {
        let Some(job) = self.state.job_of(attempt).and_then(|name| self.state.jobs.get(name)) else { return };
        if let Some(attempt) = job.gang.attempt.as_ref().filter(|attempt| attempt.stage == stage)
            && let Some(fact) = fact(job, attempt)
        {
            self.happens(job, fact);
        }
    }
}

/// Nothing has been reported by the attempt's agents, and they are still expected.
fn awaits_launch(job: &TrainingJob, attempt: &Attempt) -> bool {
    job.gang.in_progress() && attempt.failed.is_none() && attempt.all(|instance| *instance == Instance::Starting)
}

fn launch_queued(job: &TrainingJob, attempt: &Attempt, reason: Option<&str>) -> Option<Fact> {
    let is_pending = job.secondary() == SecondaryStatus::Pending;
    // A trial whose rest nobody saw has the status `Training` throughout.
    if !awaits_launch(job, attempt) || !is_pending && job.secondary() != SecondaryStatus::Starting {
        return None;
    }
    let (secondary, message) = match reason {
        Some(reason) => (SecondaryStatus::Pending, messages::launch_queued(job, reason)),
        None if is_pending => (SecondaryStatus::Starting, messages::moved(SecondaryStatus::Starting).to_owned()),
        None => return None,
    };
    let is_known = (secondary, message.as_str()) == (job.secondary(), job.message());
    (!is_known).then_some(Fact::JobMoved { secondary, message })
}
