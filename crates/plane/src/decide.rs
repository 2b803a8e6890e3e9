//! From wishes and reports to facts.

use crate::{
    Command, Event, Fact, InstancePhase, InstanceReport, JobStatus, MetricValue, RankEnd, Rejection, SecondaryStatus, State, StopCause,
    Time, TrainingSpec,
    capacity::cut,
    failure::{first_characters, internal_error, last_characters},
    lifecycle::{attempt_failed, completed, consequence, stop_of, stopped, stopped_as},
    queue::attempts_before,
    training_job::{Attempt, Instance, Stage, TrainingJob},
};

/// Most characters of texts that come from an instance.
const MOST_TEXT: usize = 1024;

/// What a command does to the job or tuning job that it is about; changes nothing by itself. Reports that are late, repeated or of unknown attempts
/// yield no events. What follows for others is [`crate::step`]'s.
///
/// # Errors
/// The wish cannot be granted; nothing happens.
pub fn decide(state: &State, command: &Command, now: Time) -> Result<Vec<Event>, Rejection> {
    // A clock that was set back must not make an end come before its start.
    let now = now.max(state.clock);
    let mut decision = Decision::new(state, now);
    match command {
        Command::CreateTrainingJob { name, uid, spec, name_taken } => decision.create(name, uid, spec, *name_taken)?,
        Command::StopTrainingJob { name, ended } => decision.stop(name, *ended)?,
        Command::InterruptTrainingJob { name, ended } => decision.interrupt(name, *ended)?,
        Command::CreateTuningJob { name, uid, spec, name_taken } => decision.create_tuning(name, uid, spec, *name_taken)?,
        Command::StopTuningJob { name, ended } => decision.stop_tuning(name, *ended)?,
        Command::ChangeParallel { name, max_parallel, ended } => decision.change_parallel(name, *max_parallel, *ended)?,
        Command::Suggested { tuning, seq, records, children, waits } => decision.suggested(tuning, *seq, records, children, *waits)?,
        Command::Judged { tuning, seq, records, converged } => decision.judged(tuning, *seq, records, *converged),
        Command::SearchFailed { tuning, seq, reason } => decision.search_failed(tuning, *seq, reason),
        Command::MemoryMeasured { used, lacking } => decision.relieve(used, *lacking),
        Command::Tick => decision.tick(),
        Command::LaunchFailed { attempt, reason } => {
            decision.of_attempt(attempt, Stage::Running, |job, attempt| {
                let matters = job.status == JobStatus::InProgress && attempt.failed.is_none();
                matters.then(|| attempt_failed(job, attempt, internal_error(reason), now))
            });
        }
        Command::LaunchDelayed { attempt, reason } => {
            decision.of_attempt(attempt, Stage::Running, |job, attempt| {
                let is_silent = attempt.instances.iter().all(|instance| *instance == Instance::Starting);
                let matters = job.status == JobStatus::InProgress && attempt.failed.is_none() && is_silent;
                let message = first_characters(&format!("The launch waits: {reason}{}", attempts_before(job)), MOST_TEXT);
                matters.then_some(Fact::JobMoved { secondary: SecondaryStatus::Starting, message })
            });
        }
        // At any stage: the last files of a failed job are saved while it is being released.
        Command::InstanceReported { attempt, host, report: InstanceReport::CheckpointSaved { path, bytes, sha256 } } => {
            if let Some(job) = state.job_of(attempt).and_then(|name| state.jobs.get(name)) {
                let (attempt, path, sha256) = (attempt.clone(), path.clone(), sha256.clone());
                decision.happens(job, Fact::CheckpointSaved { attempt, host: *host, path, bytes: *bytes, sha256 });
            }
        }
        Command::InstanceReported { attempt, host, report: report @ InstanceReport::RankEnded { end, .. } }
            if end.crowded_out.is_some() && !end.success() =>
        {
            decision.crowded_out(attempt, *host, report);
        }
        Command::InstanceReported { attempt, host, report } => {
            decision.of_attempt(attempt, Stage::Running, |job, _| reported(state, job, attempt, *host, report));
        }
        Command::ArtifactsStored { attempt } => decision.of_attempt(attempt, Stage::Storing, |job, attempt| {
            Some(match job.stop {
                Some(_) => stopped(stopped_as(job)),
                None if attempt.parked => Fact::ReleaseOrdered { attempt: attempt.id.clone() },
                None => completed(),
            })
        }),
        Command::ArtifactsFailed { attempt, reason } => decision.of_attempt(attempt, Stage::Storing, |job, attempt| {
            Some(match job.stop {
                // Its checkpoints are what it resumes from.
                None if attempt.parked => Fact::ReleaseOrdered { attempt: attempt.id.clone() },
                _ => attempt_failed(job, attempt, internal_error(reason), now),
            })
        }),
        Command::Released { attempt } => {
            decision.of_attempt(attempt, Stage::Releasing, |_, _| Some(Fact::Released { attempt: Some(attempt.clone()) }));
        }
    }
    Ok(decision.events)
}

/// Events as they come.
pub(crate) struct Decision<'a> {
    pub(crate) state: &'a State,
    pub(crate) now: Time,
    pub(crate) events: Vec<Event>,
}

impl<'a> Decision<'a> {
    pub(crate) fn new(state: &'a State, now: Time) -> Self {
        Self { state, now, events: Vec::new() }
    }

    fn create(&mut self, name: &str, uid: &str, spec: &TrainingSpec, name_taken: bool) -> Result<(), Rejection> {
        if name_taken || self.state.jobs.contains(name) {
            return Err(Rejection::NameTaken(name.to_owned()));
        }
        cut(spec, &self.state.capacity, &self.state.catalog)?;
        let message = "Starting the training job".to_owned();
        let fact = Fact::JobCreated { uid: uid.to_owned(), spec: spec.clone(), message, trial: None };
        self.events.push(Event { at: self.now, job: name.to_owned(), fact });
        Ok(())
    }

    fn live(&self, name: &str, ended: Option<JobStatus>) -> Result<&'a TrainingJob, Rejection> {
        let unknown = || ended.map_or(Rejection::NotFound, |status| Rejection::AlreadyEnded(status.name()));
        self.state.jobs.get(name).ok_or_else(unknown)
    }

    fn stop(&mut self, name: &str, ended: Option<JobStatus>) -> Result<(), Rejection> {
        let job = self.live(name, ended)?;
        match job.status {
            JobStatus::InProgress => self.happens(job, stop_of(job, StopCause::User, self.now)),
            JobStatus::Stopping => {}
            JobStatus::Completed | JobStatus::Failed | JobStatus::Stopped => return Err(Rejection::AlreadyEnded(job.status.name())),
        }
        Ok(())
    }

    fn interrupt(&mut self, name: &str, ended: Option<JobStatus>) -> Result<(), Rejection> {
        let job = self.live(name, ended)?;
        if job.status != JobStatus::InProgress {
            return Err(Rejection::AlreadyEnded(job.status.name()));
        }
        if job.spec.max_wait_s.is_none() {
            return Err(Rejection::NotSpot(name.to_owned()));
        }
        let Some(attempt) = job.running().filter(|attempt| can_be_interrupted(job, attempt)) else {
            return Err(Rejection::NothingToInterrupt { name: name.to_owned(), secondary: job.secondary().name() });
        };
        let message = "The instances were taken away; training goes on from its checkpoints when there are others".to_owned();
        self.happens(job, Fact::AttemptInterrupted { attempt: attempt.id.clone(), message });
        Ok(())
    }

    fn tick(&mut self) {
        let Decision { state, now, .. } = *self;
        let due = state.index.deadlines.iter().take_while(|(at, _)| *at <= now);
        for job in due.filter_map(|(_, name)| state.jobs.get(name)) {
            self.follow(job.clone());
        }
    }

    fn of_attempt(&mut self, attempt: &str, stage: Stage, fact: impl FnOnce(&TrainingJob, &Attempt) -> Option<Fact>) {
        let Some(job) = self.state.job_of(attempt).and_then(|name| self.state.jobs.get(name)) else { return };
        if let Some(attempt) = job.attempt.as_ref().filter(|attempt| attempt.stage == stage)
            && let Some(fact) = fact(job, attempt)
        {
            self.happens(job, fact);
        }
    }

    /// The fact and all that follows from it for this job.
    pub(crate) fn happens(&mut self, job: &TrainingJob, fact: Fact) {
        let mut job = job.clone();
        let is_back = self.record(&mut job, fact);
        if !is_back {
            self.follow(job);
        }
    }

    pub(crate) fn follow(&mut self, mut job: TrainingJob) {
        while let Some(fact) = consequence(&job, self.now) {
            if self.record(&mut job, fact) {
                return;
            }
        }
    }

    /// Whether the job has left its instances, or the hot state.
    pub(crate) fn record(&mut self, job: &mut TrainingJob, fact: Fact) -> bool {
        job.apply(self.now, &fact);
        let is_released = matches!(fact, Fact::Released { .. });
        self.events.push(Event { at: self.now, job: job.name.clone(), fact });
        is_released
    }
}

/// Its programs run, or are about to, and none has said how it ended.
pub(crate) fn can_be_interrupted(job: &TrainingJob, attempt: &Attempt) -> bool {
    attempt.failed.is_none() && !job.is_frozen() && !attempt.instances.iter().any(Instance::over)
}

pub(crate) fn reported(state: &State, job: &TrainingJob, attempt: &str, host: u32, report: &InstanceReport) -> Option<Fact> {
    let instances = &job.running()?.instances;
    let instance = instances.get((host as usize).checked_sub(1)?)?;
    let attempt = attempt.to_owned();
    match (report, instance) {
        (InstanceReport::Downloading, Instance::Starting) => Some(Fact::InstanceMoved { attempt, host, phase: InstancePhase::Downloading }),
        (InstanceReport::Training, Instance::Starting | Instance::Downloading) => {
            Some(Fact::InstanceMoved { attempt, host, phase: InstancePhase::Training })
        }
        (InstanceReport::RankEnded { end, final_metrics }, Instance::Starting | Instance::Downloading | Instance::Training) => {
            Some(Fact::RankEnded { attempt, host, end: bounded(end), final_metrics: finite(final_metrics) })
        }
        (InstanceReport::Uploaded, Instance::Ended { .. }) => Some(Fact::InstanceUploaded { attempt, host }),
        // Stopped before it had started its program.
        (InstanceReport::Uploaded, Instance::Starting | Instance::Downloading | Instance::Training) if job.stop.is_some() => {
            Some(Fact::InstanceUploaded { attempt, host })
        }
        // How its program failed is known already and tells more.
        (InstanceReport::Lost { .. }, Instance::Ended { end, .. }) if !end.success() && job.stop.is_none() => None,
        (InstanceReport::Lost { reason }, Instance::Starting | Instance::Downloading | Instance::Training | Instance::Ended { .. }) => {
            Some(Fact::InstanceLost { attempt, host, reason: first_characters(reason, MOST_TEXT) })
        }
        (InstanceReport::Objective { ordinal, value }, Instance::Starting | Instance::Downloading | Instance::Training) => {
            objective(state, job, attempt, host, *ordinal, *value)
        }
        _ => None,
    }
}

/// The first host that reports counts. A trial that rests may have run a little further: that counts as its own, and is no news to the tuner.
fn objective(state: &State, job: &TrainingJob, attempt: String, host: u32, ordinal: u32, value: f64) -> Option<Fact> {
    let trial = job.trial.as_deref().filter(|trial| trial.host.is_none_or(|counts| counts == host))?;
    let resource = trial.behind.saturating_add(ordinal);
    if resource <= trial.resource || job.ended.is_some() || job.attempt.as_ref().is_some_and(|attempt| attempt.failed.is_some()) {
        return None;
    }
    // What it says while it is being stopped is its last value, and no news to the tuner.
    let tuning = state.tunings.get(&trial.tuning).filter(|_| job.stop.is_none() && trial.rest.is_none());
    let value = Some(value).filter(|value| value.is_finite());
    Some(Fact::ObjectiveReported { attempt, host, resource, value, seq: tuning.and_then(|tuning| tuning.next_wish()) })
}

fn bounded(end: &RankEnd) -> RankEnd {
    RankEnd {
        failure_file: end.failure_file.as_deref().map(|text| first_characters(text, MOST_TEXT)),
        stderr_tail: last_characters(&end.stderr_tail, MOST_TEXT),
        ..end.clone()
    }
}

/// JSON has no other numbers, and neither has AWS's wire.
fn finite(metrics: &[MetricValue]) -> Vec<MetricValue> {
    metrics.iter().filter(|metric| metric.value.is_finite()).cloned().collect()
}
