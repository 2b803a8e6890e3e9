//! The clients of tuning jobs, and their tuner: real studies, rebuilt from what is stored.

use shoal_plane::{
    AttemptId, Child, Command, Event, Fact, Observation, StopCause, StudyRecord, TunerRequest, TuningName, TuningStatus,
};
use shoal_runtime::tuner_queue::{Event as QueueEvent, Io, Outcome};
use shoal_tuner::{Ask, Record, Study};

use crate::{
    Bug,
    coverage::Point,
    faults::Severity,
    scenario::{
        Program,
        tunings::{Change, Tuning, UNITS},
    },
    server::Refusal,
    state::{agent::Units, events::SimEvent},
    world::{Simulation, Step, broken},
};

impl Simulation {
    /// What runs in an attempt of a trial.
    pub(crate) fn trial_program(&self, attempt: &AttemptId) -> Option<(Program, Units)> {
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
                    self.mirror.jobs().filter(|job| job.starts_with(&format!("{name}-"))).cloned().collect();
                if trials.is_empty() {
                    return Ok(());
                }
                trials.sort_unstable();
                let index = self.faults.random.below(trials.len() as u64);
                let name = trials.swap_remove(usize::try_from(index).expect("an index"));
                let ended = self.disk.rows.get(&name).filter(|row| row.ended).map(|row| row.status);
                Command::StopTrainingJob { name, cause: StopCause::Budget, ended }
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

    /// Performs what `shoal_runtime::tuner_queue` requests.
    pub(crate) fn perform_for_tuner(&mut self, io: Io) -> Step {
        match io {
            Io::Answer { tuning, requests, reopens } => {
                if reopens {
                    self.server().studies.remove(&tuning);
                }
                if self.disk.tunings.get(&tuning).is_none_or(|view| view.ended.is_some()) {
                    self.completes(QueueEvent::Performed { tuning, outcome: Outcome::Over });
                    return Ok(());
                }
                let mut answers = Vec::with_capacity(requests.len());
                for request in requests {
                    answers.push(self.answer(request)?);
                }
                let (ms, epoch) = (1 + self.faults.latency(), self.epoch);
                self.after(ms, SimEvent::Answered { epoch, tuning, answers });
            }
            Io::Close { tuning } => drop(self.server().studies.remove(&tuning)),
            Io::CheckEnd { tuning } => {
                if !self.has_more_trials(&tuning) {
                    self.completes(QueueEvent::Ended { tuning });
                }
            }
            Io::Fail { tuning, reason, .. } => return broken(format!("{tuning}: {reason}")),
        }
        Ok(())
    }

    /// Submits a tuner's answers to the core.
    pub(crate) fn submit_answers(&mut self, tuning: TuningName, answers: &[Command]) -> Step {
        let result = self.execute_all(answers, true)?;
        let outcome = match result.answer {
            Err(Refusal::Journal) if self.bug != Some(Bug::OutcomeToldOnce) => Outcome::Again,
            answer => {
                if answer.is_ok() {
                    answers.iter().take(1).try_for_each(|command| self.check_study(command))?;
                }
                Outcome::Done { is_quick: self.faults.one_in(2) }
            }
        };
        self.completes(QueueEvent::Performed { tuning, outcome });
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
                            let origin = start.origin.map(|origin| format!("{name}-{}", origin.trial).into());
                            children.push(Child { definition: 0, trial: start.trial, name: child.into(), uid, origin });
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
            let is_new = matches!(event.fact, Fact::SuggestionsWanted { .. }) && event.tuning() == Some(name);
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
