//! Tuning jobs of a scenario, and their tuner: real studies, rebuilt from what is stored.

use std::collections::VecDeque;

use shoal_plane::{
    Child, Command, DefinitionSpec, Event, Fact, Objective, Observation, Pause, StudyRecord, TrainingSpec,
    TunerRequest, TuningSpec, TuningStatus,
};
use shoal_tuner::{
    Ask, Direction, Domain, Parameter, Record, Scaling, SchedulerSpec, SearcherSpec, Space, Study, StudySpec,
    schedule::{AshaOptions, Form, HyperbandOptions, MedianOptions, PbtOptions, RoundRobinOptions},
};

use crate::{
    Bug,
    coverage::Point,
    events::SimEvent,
    faults::Severity,
    random::Random,
    scenario::{End, Program},
    server::Refusal,
    world::{Simulation, Step, broken},
};

/// Delay before an answer is submitted to the core again.
const COMMIT_RETRY_MS: u64 = 1000;
/// Units of resource of a trial that runs to its end.
const UNITS: u32 = 9;

/// A tuning job of the scenario.
#[derive(Debug, Clone)]
pub(crate) struct Tuning {
    pub(crate) name: String,
    uid: String,
    pub(crate) spec: TuningSpec,
    study: StudySpec,
    /// Of each trial.
    program: Program,
    pub(crate) at_ms: u64,
    pub(crate) stop_after_ms: Option<u64>,
    /// So long after its creation its user lets so many trials run, or stops one of them.
    changes: Vec<(u64, Change)>,
}

/// What a user does to a tuning job that runs.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Change {
    Parallel(u32),
    StopTrial,
}

/// What the tuner of a tuning job does next.
#[derive(Debug)]
pub(crate) enum TunerTask {
    Answer(TunerRequest),
    Commit(Command),
}

/// What a tuning job's client knows.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Tuner {
    asked: bool,
    pub(crate) created: bool,
    pub(crate) stopped: bool,
}

impl Tuner {
    pub(crate) fn is_done(self, tuning: &Tuning) -> bool {
        self.created && (self.stopped || tuning.stop_after_ms.is_none())
    }
}

/// One that runs its trials one after the other, so that the order of all that its study sees is
/// forced, and one or two that do not.
pub(crate) fn tunings(seed: u64) -> Vec<Tuning> {
    let mut random = Random::new(seed, 3);
    let others = random.between(1, 2);
    (0..=others).map(|index| tuning(&mut random, seed, index)).collect()
}

fn tuning(random: &mut Random, seed: u64, index: u64) -> Tuning {
    let is_sequential = index == 0;
    let few = |number| u32::try_from(number).expect("few");
    let asha = |form| SchedulerSpec::Asha(AshaOptions { form, ..AshaOptions::up_to(UNITS) });
    let scheduler = match random.below(7) {
        0 => SchedulerSpec::None,
        1 => SchedulerSpec::Median(MedianOptions { min_resource: 1, min_trials: 2, min_completed: 1 }),
        2 => asha(Form::Stopping),
        3 => asha(Form::Promotion),
        4 => SchedulerSpec::Hyperband(HyperbandOptions::up_to(UNITS)),
        5 => SchedulerSpec::Pbt(PbtOptions { population: 4, interval: 2, ..PbtOptions::up_to(UNITS) }),
        _ => SchedulerSpec::RoundRobin(RoundRobinOptions { width: 3, rule: Box::new(asha(Form::Stopping)) }),
    };
    let max_jobs = few(random.between(4, if matches!(scheduler, SchedulerSpec::Pbt(_)) { 24 } else { 9 }));
    let domain = Domain::Continuous { min: 0.001, max: 1.0, scaling: Scaling::Logarithmic };
    let space = Space::new(vec![Parameter { name: "eta".to_owned(), domain, condition: None }]).expect("a space");
    let searcher = if random.one_in(2) { SearcherSpec::Random } else { SearcherSpec::Sobol };
    let objectives = vec![Direction::Minimize];
    let study = StudySpec { space, objectives, searcher, scheduler, seed, max_trials: Some(max_jobs) };
    let training = TrainingSpec {
        // Large ones make those that rest frozen leave.
        instance_type: random.pick(&["ml.m5.large", "ml.m5.2xlarge", "ml.m5.4xlarge"]).to_owned(),
        instances: 1,
        other_groups: Vec::new(),
        max_runtime_s: 86_400,
        max_pending_s: None,
        max_wait_s: random.one_in(2).then_some(40 * 86_400),
        grace_s: 20,
        retries: random.pick(&[0, 1, 3]),
        min_instances: None,
    };
    let objective = Objective { metric: "loss-1".to_owned(), direction: Direction::Minimize };
    let definition = DefinitionSpec {
        objectives: vec![objective],
        training,
        checkpoints: !random.one_in(4),
        pause: if random.one_in(3) { Pause::Park } else { Pause::Freeze },
        max_resource: study.scheduler.max_resource(&study.space),
    };
    let change = |random: &mut Random| match random.below(3) {
        0 => Change::StopTrial,
        _ => Change::Parallel(few(random.between(1, 5))),
    };
    let changes = if is_sequential { 0 } else { random.between(0, 3) };
    let changes = (0..changes).map(|_| (random.between(1, 20_000), change(random))).collect();
    Tuning {
        name: format!("tuning-{index}"),
        uid: format!("q{index}"),
        spec: TuningSpec {
            max_jobs: Some(max_jobs),
            max_parallel: if is_sequential { 1 } else { few(random.between(2, 4)) },
            max_runtime_s: (!is_sequential && random.one_in(5)).then(|| random.between(5, 60)),
            target: (!is_sequential && random.one_in(5)).then_some(0.2),
            not_improving: (!is_sequential && random.one_in(5)).then(|| few(random.between(1, 3))),
            complete_on_convergence: !is_sequential && random.one_in(3),
            definitions: vec![definition],
        },
        study,
        program: Program {
            download_ms: random.between(1, 300),
            steps: UNITS,
            step_ms: random.between(20, 400),
            saves_every: 1,
            end: End::Exit(0),
            term_ms: random.between(1, 500),
            parts: 1,
        },
        at_ms: random.below(20_000),
        stop_after_ms: (!is_sequential && random.one_in(3)).then(|| random.between(1, 40_000)),
        changes,
    }
}

/// What a trial reports after so many units: better from unit to unit, and different from trial to
/// trial.
fn value(uid: &str, unit: u32) -> f64 {
    let hash = uid.bytes().fold(7_u32, |hash, byte| hash.wrapping_mul(31).wrapping_add(byte.into()));
    f64::from(hash % 1000) / 1000.0 + 1.0 / f64::from(unit)
}

/// A trial's part of an agent.
#[derive(Debug, Clone)]
pub(crate) struct Units {
    uid: String,
    /// Behind it when the attempt began.
    pub(crate) from: u32,
    /// It stands still there.
    pub(crate) to: Option<u32>,
    pub(crate) frozen: bool,
}

impl Units {
    /// What it says after the attempt's line of this number.
    pub(crate) fn value_after(&self, line: u32) -> f64 {
        value(&self.uid, self.from + line)
    }

    /// It may begin another unit after so many steps.
    pub(crate) fn may_step(&self, steps: u32) -> bool {
        !self.frozen && self.to.is_none_or(|to| self.from + steps < to)
    }
}

impl Simulation {
    /// What runs in an attempt of a trial.
    pub(crate) fn trial_program(&self, attempt: &str) -> Option<(Program, Units)> {
        let state = &self.mirror;
        let trial = state.job_of(attempt).and_then(|job| state.view(job))?.trial?;
        let tuning = self.tunings.iter().find(|tuning| tuning.name == trial.tuning)?;
        let (from, to) = self.launches.get(attempt).copied()?;
        let uid = format!("{}-{}", tuning.uid, trial.trial);
        let steps = UNITS.saturating_sub(from);
        Some((Program { steps, ..tuning.program.clone() }, Units { uid, from, to, frozen: false }))
    }

    pub(crate) fn create_tuning(&mut self, index: usize) -> Step {
        if self.tuners[index].created {
            return Ok(());
        }
        let pause = self.faults.random.between(50, 800);
        self.after(pause, SimEvent::CreateTuning(index));
        if self.server.is_none() {
            return Ok(());
        }
        let Tuning { name, uid, spec, stop_after_ms, changes, .. } = self.tunings[index].clone();
        let had_asked = std::mem::replace(&mut self.tuners[index].asked, true);
        let name_taken = self.disk.tunings.contains_key(&name);
        let result = self
            .execute(&Command::CreateTuningJob { name: name.clone(), uid, spec: Box::new(spec), name_taken }, true)?;
        match result.answer {
            Ok(()) => {}
            Err(Refusal::Rejected(shoal_plane::Rejection::TuningNameTaken(_))) if had_asked => {}
            Err(Refusal::Journal) => return Ok(()),
            Err(Refusal::Rejected(rejection)) => return broken(format!("{name} was refused: {rejection}")),
        }
        self.tuners[index].created = true;
        if let Some(ms) = stop_after_ms {
            self.after(ms, SimEvent::StopTuning(index));
        }
        for (ms, change) in changes {
            self.after(ms, SimEvent::ChangeTuning(index, change));
        }
        Ok(())
    }

    /// A user who is not answered gives it up.
    pub(crate) fn change_tuning(&mut self, index: usize, change: Change) -> Step {
        let name = self.tunings[index].name.clone();
        let command = match change {
            Change::Parallel(max_parallel) => {
                let ended = self.disk.tunings.get(&name).filter(|view| view.ended.is_some()).map(|view| view.status);
                Command::ChangeParallel { name, max_parallel, ended }
            }
            Change::StopTrial => {
                let mut trials: Vec<_> =
                    self.mirror.jobs().filter(|job| job.starts_with(&format!("{name}-"))).map(str::to_owned).collect();
                if trials.is_empty() {
                    return Ok(());
                }
                trials.sort_unstable();
                let index = self.faults.random.below(trials.len() as u64);
                let name = trials.swap_remove(usize::try_from(index).expect("an index"));
                let ended = self.disk.rows.get(&name).filter(|row| row.ended).map(|row| row.status);
                Command::StopTrainingJob { name, ended }
            }
        };
        if self.server.is_some() {
            self.say(|| format!("client: {command:?}"));
            self.execute(&command, true)?;
        }
        Ok(())
    }

    pub(crate) fn stop_tuning(&mut self, index: usize) -> Step {
        if self.tuners[index].stopped {
            return Ok(());
        }
        let pause = self.faults.random.between(50, 800);
        self.after(pause, SimEvent::StopTuning(index));
        if self.server.is_none() {
            return Ok(());
        }
        let name = self.tunings[index].name.clone();
        let ended = self.disk.tunings.get(&name).filter(|view| view.ended.is_some()).map(|view| view.status);
        match self.execute(&Command::StopTuningJob { name, ended }, true)?.answer {
            Ok(()) | Err(Refusal::Rejected(shoal_plane::Rejection::TuningAlreadyEnded(_))) => {
                self.tuners[index].stopped = true;
            }
            Err(Refusal::Journal) => {}
            Err(Refusal::Rejected(rejection)) => return broken(format!("a stop was refused: {rejection}")),
        }
        Ok(())
    }

    /// Requests of one tuning job are answered sequentially.
    pub(crate) fn queue_request(&mut self, request: TunerRequest) {
        let tuning = request.tuning().to_owned();
        let queue = self.server().requests.entry(tuning.clone()).or_default();
        queue.push_back(TunerTask::Answer(request));
        if queue.len() == 1 {
            let (pause, epoch) = (self.faults.latency(), self.epoch);
            self.after(pause, SimEvent::TunerDue { epoch, tuning });
        }
    }

    pub(crate) fn run_tuner(&mut self, tuning: String) -> Step {
        let Some(task) = self.server().requests.get_mut(&tuning).and_then(VecDeque::pop_front) else { return Ok(()) };
        let (mut pause, mut next) = (self.faults.latency(), None);
        match task {
            TunerTask::Answer(request) => (pause, next) = (1, Some(TunerTask::Commit(self.answer(request)?))),
            TunerTask::Commit(command) => {
                let result = self.execute(&command, true)?;
                if result.answer.is_ok() {
                    self.check_study(&command)?;
                } else if matches!(result.answer, Err(Refusal::Journal)) && self.bug != Some(Bug::OutcomeToldOnce) {
                    (pause, next) = (COMMIT_RETRY_MS, Some(TunerTask::Commit(command)));
                }
            }
        }
        let epoch = self.epoch;
        let Some(queue) = self.server().requests.get_mut(&tuning) else { return Ok(()) };
        next.into_iter().for_each(|task| queue.push_front(task));
        if queue.is_empty() {
            self.server().requests.remove(&tuning);
        } else {
            self.after(pause, SimEvent::TunerDue { epoch, tuning });
        }
        Ok(())
    }

    /// Asks or tells the study; gives what the core has to know.
    fn answer(&mut self, request: TunerRequest) -> Step<Command> {
        let (name, kind) = match &request {
            TunerRequest::Ask { tuning, .. } => (tuning.clone(), "suggestions_wanted"),
            TunerRequest::Tell { tuning, what: Observation::Reported { .. }, .. } => {
                (tuning.clone(), "objective_reported")
            }
            TunerRequest::Tell { tuning, .. } => (tuning.clone(), "trial_ended"),
        };
        let Some(index) = self.tunings.iter().position(|tuning| tuning.name == name) else {
            return broken(format!("no {name}"));
        };
        self.passes(&[kind], Point::MidAction)?;
        let mut study = match self.server().studies.remove(&name) {
            Some(study) => study,
            None => self.replayed(index)?,
        };
        let before = study.records().len();
        let uid = self.tunings[index].uid.clone();
        let is_new = |study: &Study| -> Vec<StudyRecord> {
            study.records()[before..]
                .iter()
                .map(|record| StudyRecord { definition: 0, record: record.clone() })
                .collect()
        };
        let command = match request {
            TunerRequest::Ask { seq, wanted, .. } => {
                let (mut children, mut waits) = (Vec::new(), false);
                for _ in 0..wanted {
                    match study.ask() {
                        Ask::Start(start) => {
                            let (child, uid) = (format!("{name}-{}", start.trial), format!("{uid}-{}", start.trial));
                            let origin = start.origin.map(|origin| format!("{name}-{}", origin.trial));
                            children.push(Child { definition: 0, trial: start.trial, name: child, uid, origin });
                        }
                        Ask::Resume { .. } => {}
                        Ask::Wait => {
                            waits = true;
                            break;
                        }
                        Ask::End => break,
                    }
                }
                Command::Suggested { tuning: name.clone(), seq, records: is_new(&study), children, waits }
            }
            TunerRequest::Tell { seq, trial, what, .. } => {
                match what {
                    Observation::Reported { resource, value } => {
                        drop(study.report(trial, resource, &[value.unwrap_or(f64::NAN)]));
                    }
                    Observation::Ended { outcome } => drop(study.end(trial, outcome)),
                }
                // Sooner than a real study's own rule, which few trials fulfil.
                let converged = study.progress().not_improving() >= 3;
                Command::Judged { tuning: name.clone(), seq, records: is_new(&study), converged }
            }
        };
        self.server().studies.insert(name, study);
        self.passes(&[kind], Point::AfterAction)?;
        Ok(command)
    }

    /// The study of what is stored.
    fn replayed(&self, index: usize) -> Step<Study> {
        let Tuning { name, study, .. } = &self.tunings[index];
        let mut study = Study::new(study.clone()).or_else(|error| broken(error.to_string()))?;
        if self.bug == Some(Bug::StudyForgotten) {
            return Ok(study);
        }
        for StudyRecord { record, .. } in self.disk.records.get(name).map_or(&[][..], Vec::as_slice) {
            study.replay(record.clone()).or_else(|error| broken(format!("{name}: {error}")))?;
        }
        Ok(study)
    }

    /// What the tuner said is durable: its live study must be that of the records.
    fn check_study(&mut self, command: &Command) -> Step {
        let (Command::Suggested { tuning, .. } | Command::Judged { tuning, .. }) = command else { return Ok(()) };
        // Nobody listens to it any more once the tuning job ends.
        let has_say = self.mirror.tuning(tuning).is_some_and(|view| view.status == TuningStatus::InProgress);
        let stored = self.disk.records.get(tuning).map_or(&[][..], Vec::as_slice);
        let Some(study) = self.server.as_ref().and_then(|server| server.studies.get(tuning)).filter(|_| has_say) else {
            return Ok(());
        };
        let is_same = study.records().iter().eq(stored.iter().map(|stored| &stored.record));
        if is_same { Ok(()) } else { broken(format!("{tuning}: the live study is not that of its records")) }
    }

    /// A trial is started once; no more run than may; and what the counters say has happened.
    pub(crate) fn check_tuning_event(&mut self, event: &Event) -> Step {
        if let Fact::JobCreated { trial: Some(trial), .. } = &event.fact
            && !self.trials.insert((trial.tuning.clone(), trial.trial))
        {
            return broken(format!("trial {} of {} is started twice", trial.trial, trial.tuning));
        }
        match &event.fact {
            Fact::TrialPaused { attempt: Some(attempt), frozen: true, .. } => drop(self.frozen.insert(attempt.clone())),
            Fact::AttemptThawed { attempt, .. } => drop(self.frozen.remove(attempt)),
            _ => {}
        }
        for name in self.mirror.tunings() {
            let Some(view) = self.mirror.tuning(name) else { continue };
            // What the tuner was asked for before fewer may run is started still.
            let is_new = matches!(event.fact, Fact::SuggestionsWanted { .. }) && event.job == name;
            let most = self
                .parallel
                .get(name)
                .filter(|_| !is_new)
                .map_or(view.max_parallel, |before| view.max_parallel.max(*before));
            self.parallel.insert(name.to_owned(), most);
            if view.active > most {
                return broken(format!("{} trials of {name} run, and {most} may", view.active));
            }
        }
        Ok(())
    }

    /// At the end of the history.
    pub(crate) fn check_tunings(&self) -> Result<(), String> {
        for (tuning, tuner) in self.tunings.iter().zip(&self.tuners) {
            let name = &tuning.name;
            let view = self
                .disk
                .tunings
                .get(name)
                .ok_or_else(|| format!("the creation of {name} was acknowledged and is lost"))?;
            if view.ended.is_none() {
                return Err(format!("{name} has not ended: {view:?}"));
            }
            // It fails where all trials do, which needs somebody to die; and only its user stops
            // it.
            let may_be = match view.status {
                TuningStatus::Completed => true,
                TuningStatus::Failed => self.faults.severity == Severity::Lethal,
                TuningStatus::Stopped => tuner.stopped,
                TuningStatus::InProgress | TuningStatus::Stopping => false,
            };
            if !may_be {
                return Err(format!("{name} is {}: {view:?}", view.status.name()));
            }
            let children: Vec<_> = self
                .disk
                .rows
                .values()
                .filter(|row| row.trial.as_ref().is_some_and(|trial| trial.tuning == *name))
                .collect();
            let counters = view.training;
            let counted =
                counters.completed + counters.stopped + counters.retryable_error + counters.non_retryable_error;
            if counted as usize != children.len() || view.started != counted || counters.in_progress != 0 {
                return Err(format!("{name} had {} training jobs and counts {view:?}", children.len()));
            }
            if let Some(row) = children.iter().find(|row| !row.ended) {
                return Err(format!("{name} has ended, and a training job has not: {row:?}"));
            }
            let starts = |stored: &&StudyRecord| matches!(&stored.record, Record::Asked { answer: Ask::Start(_), .. });
            let started = self.disk.records.get(name).map_or(0, |records| records.iter().filter(starts).count());
            if started != children.len() {
                return Err(format!("{name} had {} training jobs, and its studies started {started}", children.len()));
            }
        }
        Ok(())
    }
}
