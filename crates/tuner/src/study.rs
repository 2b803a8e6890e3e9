//! A searcher and a scheduler over one history.

use serde::{Deserialize, Serialize};

use crate::{
    Ask, Config, Direction, History, Memo, Next, Outcome, Progress, Proposal, Record, Report, Rng, Scheduler, Searcher,
    Space, SpecError, Stage, Start, StudySpec, Trial, TrialId, TrialState, Verdict, View, pareto,
};

/// How often the searcher is asked again for something that was not tried yet.
const TRIES: u64 = 64;

/// Random numbers of one purpose: the ask's number, the try within it.
fn rng(seed: u64, ask: u64, part: u64) -> Rng {
    Rng::new(seed, ask.wrapping_mul(256).wrapping_add(part))
}

/// What is asked and told. Every method changes the study by one [`Record`] at most, and gives it
/// to those who keep records.
#[derive(Debug)]
pub struct Study {
    spec: StudySpec,
    history: History,
    searcher: Box<dyn Searcher>,
    scheduler: Box<dyn Scheduler>,
    /// Asks that were answered with something to do.
    asks: u64,
    started: u32,
    memo: Option<Memo>,
    /// There was nothing left to try.
    exhausted: bool,
    progress: Progress,
    best: Option<TrialId>,
    records: Vec<Record>,
}

/// A study as data: [`Study::snapshot`] and [`Study::restore`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Snapshot {
    spec: StudySpec,
    records: Vec<Record>,
}

impl Study {
    /// An empty study.
    ///
    /// # Errors
    /// Space, searcher, scheduler and objectives do not go together.
    pub fn new(spec: StudySpec) -> Result<Self, SpecError> {
        if spec.objectives.is_empty() {
            return Err(SpecError::Objectives("there must be at least one".to_owned()));
        }
        let searcher = spec.searcher.build(&spec.space, &spec.objectives)?;
        let scheduler = spec.scheduler.build(&spec.space)?;
        Ok(Self {
            spec,
            history: History::default(),
            searcher,
            scheduler,
            asks: 0,
            started: 0,
            memo: None,
            exhausted: false,
            progress: Progress::default(),
            best: None,
            records: Vec::new(),
        })
    }

    /// What it was made of.
    pub fn spec(&self) -> &StudySpec {
        &self.spec
    }

    /// What may be tried.
    pub fn space(&self) -> &Space {
        &self.spec.space
    }

    /// What is known.
    pub fn history(&self) -> &History {
        &self.history
    }

    /// All that has happened, in order.
    pub fn records(&self) -> &[Record] {
        &self.records
    }

    /// The study's own completed trial with the best value of the first objective, the first of
    /// equal ones.
    pub fn best(&self) -> Option<TrialId> {
        self.best
    }

    /// Whether it still gets anywhere, by the first objective of its own trials that completed or
    /// were stopped after a report.
    pub fn progress(&self) -> &Progress {
        &self.progress
    }

    /// The completed trials that no other one dominates: the best one (or equal ones) where there
    /// is one objective, the Pareto front where there are several.
    pub fn front(&self) -> Vec<TrialId> {
        let completed = |(id, trial): (TrialId, &'_ Trial)| (trial.state == TrialState::Completed).then_some(id);
        let ids: Vec<TrialId> = (0..).zip(self.history.trials()).filter_map(completed).collect();
        let values: Vec<&[f64]> = ids.iter().map(|&id| self.history.trials()[id as usize].values.as_slice()).collect();
        pareto::front(&values).into_iter().map(|place| ids[place]).collect()
    }

    /// What an idle worker is to do.
    pub fn ask(&mut self) -> Ask {
        let was_exhausted = self.exhausted;
        let (answer, memo) = self.answer();
        let exhausted = self.exhausted && !was_exhausted;
        // Waiting is no event, unless there is something to remember.
        if answer != Ask::Wait || exhausted {
            self.fold(Record::Asked { answer: answer.clone(), memo, exhausted });
        }
        answer
    }

    /// From now on no more than so many trials are started in all ([`StudySpec::max_trials`]):
    /// several studies may share a number.
    pub fn limit(&mut self, trials: u32) {
        self.spec.max_trials = Some(trials);
    }

    /// Whether another trial may be started.
    pub fn may_start(&self) -> bool {
        !self.exhausted && self.spec.max_trials.is_none_or(|most| self.started < most)
    }

    fn stage(&self) -> Stage<'_> {
        Stage { history: &self.history, may_start: self.may_start() }
    }

    fn answer(&mut self) -> (Ask, Option<Memo>) {
        // Asked once more, at most: when the searcher has nothing left, the scheduler may still
        // have trials that go on.
        loop {
            let next = self.scheduler.next(&self.stage(), &mut rng(self.spec.seed, self.asks, 0));
            let trial = self.history.next_id();
            match next {
                Next::New { bracket, to } if self.may_start() => match self.new_config(to) {
                    Some((config, memo)) => {
                        return (Ask::Start(Start { trial, config, to, origin: None, bracket }), memo);
                    }
                    None => self.exhausted = true,
                },
                Next::Copy { config, origin, to } => {
                    return (Ask::Start(Start { trial, config, to, origin: Some(origin), bracket: 0 }), None);
                }
                Next::Resume { trial, to } => {
                    let from = self.history.trial(trial).map_or(0, Trial::resource);
                    return (Ask::Resume { trial, from, to }, None);
                }
                Next::Wait => return (Ask::Wait, None),
                Next::New { .. } if self.history.running() > 0 => return (Ask::Wait, None),
                Next::New { .. } | Next::End => return (Ask::End, None),
            }
        }
    }

    /// A configuration that was not tried yet, where the space has one.
    fn new_config(&mut self, to: Option<u32>) -> Option<(Config, Option<Memo>)> {
        let StudySpec { space, objectives, seed, .. } = &self.spec;
        let max_resource = self.scheduler.max_resource();
        let is_full = space.combinations().is_some_and(|all| self.history.different() as u64 >= all);
        for part in 1..=TRIES {
            let view = View { space, objectives, history: &self.history, memo: self.memo.as_ref(), to, max_resource };
            match self.searcher.propose(&view, &mut rng(*seed, self.asks, part)) {
                Proposal::Exhausted => return None,
                Proposal::Try { config, memo } if is_full || !self.history.has_tried(&config) => {
                    return Some((config, memo));
                }
                Proposal::Try { .. } => {}
            }
        }
        Some((self.untried()?, None))
    }

    /// Any configuration that was not tried: where random draws find none, the space is small
    /// enough to be gone through.
    fn untried(&self) -> Option<Config> {
        let mut rng = rng(self.spec.seed, self.asks, TRIES + 1);
        let drawn = (0..4096).map(|_| self.spec.space.draw(&mut rng)).find(|config| !self.history.has_tried(config));
        drawn.or_else(|| self.spec.space.configs().find(|config| !self.history.has_tried(config)))
    }

    /// A trial has `resource` units behind it, and these values (one per objective, or the first
    /// only). Late, repeated and unknown reports change nothing and say nothing; one that is not a
    /// number counts as worse than all.
    pub fn report(&mut self, trial: TrialId, resource: u32, values: &[f64]) -> Vec<(TrialId, Verdict)> {
        let is_news =
            self.history.trial(trial).is_some_and(|known| !known.state.is_over() && resource > known.resource());
        let (Some(&first), true) = (values.first(), is_news) else { return Vec::new() };
        self.take_report(trial, resource, first);
        let verdicts = self.scheduler.judge(&self.stage(), trial);
        self.finish(Record::Reported { trial, resource, values: values.to_vec(), verdicts: verdicts.clone() });
        verdicts
    }

    /// A trial is over. Repeated and unknown ends change nothing.
    pub fn end(&mut self, trial: TrialId, outcome: Outcome) -> Vec<(TrialId, Verdict)> {
        if self.history.trial(trial).is_none_or(|known| known.state.is_over()) {
            return Vec::new();
        }
        self.take_end(trial, &outcome);
        let verdicts = self.scheduler.ended(&self.stage(), trial);
        self.finish(Record::Ended { trial, outcome, verdicts: verdicts.clone() });
        verdicts
    }

    /// A finished trial of elsewhere: a warm start.
    ///
    /// # Errors
    /// It is no configuration of this space.
    pub fn inject(&mut self, config: Config, outcome: Outcome) -> Result<(), SpecError> {
        if !self.spec.space.holds(&config) {
            return Err(SpecError::Record("an injected trial is no configuration of the space".to_owned()));
        }
        self.fold(Record::Injected { config, outcome });
        Ok(())
    }

    /// Folds what happened before, without deciding anything again.
    ///
    /// # Errors
    /// The record does not fit what came before.
    pub fn replay(&mut self, record: Record) -> Result<(), SpecError> {
        let is_known = |trial: TrialId| self.history.trial(trial).is_some();
        let fits = match &record {
            Record::Asked { answer: Ask::Start(start), .. } => {
                start.trial == self.history.next_id() && self.spec.space.holds(&start.config)
            }
            Record::Asked { answer: Ask::Resume { trial, .. }, .. }
            | Record::Reported { trial, .. }
            | Record::Ended { trial, .. } => is_known(*trial),
            Record::Injected { config, .. } => self.spec.space.holds(config),
            Record::Asked { answer: Ask::Wait | Ask::End, .. } => true,
        };
        if !fits {
            return Err(SpecError::Record(format!("it does not fit what came before: {record:?}")));
        }
        self.fold(record);
        Ok(())
    }

    /// All of it, as data.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot { spec: self.spec.clone(), records: self.records.clone() }
    }

    /// The study of a snapshot: it goes on as the other would have.
    ///
    /// # Errors
    /// It was not made by [`Self::snapshot`].
    pub fn restore(snapshot: Snapshot) -> Result<Self, SpecError> {
        let mut study = Self::new(snapshot.spec)?;
        snapshot.records.into_iter().try_for_each(|record| study.replay(record))?;
        Ok(study)
    }

    fn fold(&mut self, record: Record) {
        match &record {
            Record::Asked { answer, memo, exhausted } => {
                self.exhausted |= exhausted;
                self.take_answer(answer, memo.as_ref());
            }
            Record::Reported { trial, resource, values, .. } => {
                self.take_report(*trial, *resource, values.first().copied().unwrap_or(f64::NAN));
            }
            Record::Ended { trial, outcome, .. } => self.take_end(*trial, outcome),
            Record::Injected { config, outcome } => {
                let trial = self.history.push(fresh(config.clone(), None, None, 0, true));
                self.take_end(trial, outcome);
            }
        }
        self.finish(record);
    }

    /// Verdicts, and those who follow.
    fn finish(&mut self, record: Record) {
        if let Record::Reported { verdicts, .. } | Record::Ended { verdicts, .. } = &record {
            for &(trial, verdict) in verdicts {
                self.take_verdict(trial, verdict, &record);
            }
        }
        self.scheduler.follow(&self.history, &record);
        self.searcher.follow(&self.spec.space, &self.history, &record);
        self.records.push(record);
    }

    fn take_answer(&mut self, answer: &Ask, memo: Option<&Memo>) {
        self.asks += 1;
        match answer {
            Ask::Start(Start { config, to, origin, bracket, .. }) => {
                self.started += 1;
                if memo.is_some() {
                    self.memo = memo.cloned();
                }
                self.history.push(fresh(config.clone(), *to, *origin, *bracket, false));
            }
            Ask::Resume { trial, to, .. } => {
                self.history.set_running(*trial, true);
                if let Some(trial) = self.history.trial_mut(*trial) {
                    trial.to = *to;
                }
            }
            Ask::Wait | Ask::End => {}
        }
    }

    fn take_report(&mut self, trial: TrialId, resource: u32, value: f64) {
        let value = minimised(self.spec.objectives[0], value);
        if let Some(known) = self.history.trial_mut(trial).filter(|known| resource > known.resource()) {
            known.reports.push(Report { resource, value });
        }
    }

    fn take_end(&mut self, trial: TrialId, outcome: &Outcome) {
        let objectives = &self.spec.objectives;
        let Some(known) = self.history.trial_mut(trial) else { return };
        let state = match outcome {
            Outcome::Completed { values }
                if values.len() == objectives.len() && values.iter().all(|value| value.is_finite()) =>
            {
                known.values =
                    values.iter().zip(objectives).map(|(value, direction)| direction.minimised(*value)).collect();
                TrialState::Completed
            }
            Outcome::Completed { .. } | Outcome::Failed => TrialState::Failed,
            Outcome::Stopped => {
                known.values = known.last().map(|report| report.value).into_iter().collect();
                TrialState::Stopped
            }
        };
        if let (Some(&value), false) = (known.values.first(), known.injected) {
            self.progress.take(value);
            let best = self.best.and_then(|best| self.history.trial(best)?.value());
            if state == TrialState::Completed && best.is_none_or(|best| value < best) {
                self.best = Some(trial);
            }
        }
        self.history.close(trial, state);
    }

    fn take_verdict(&mut self, trial: TrialId, verdict: Verdict, record: &Record) {
        let Some(known) = self.history.trial_mut(trial).filter(|known| !known.state.is_over()) else { return };
        match verdict {
            Verdict::Continue { to } => known.to = to,
            Verdict::Pause => self.history.set_running(trial, false),
            Verdict::Stop => {
                let is_whole = self.scheduler.max_resource().is_some_and(|max| known.resource() >= max);
                // Its end brings the other objectives.
                if is_whole && self.spec.objectives.len() > 1 {
                    return;
                }
                let outcome = match record {
                    // At the greatest resource there is nothing that it could still do: it has
                    // completed, with what it just said.
                    Record::Reported { trial: reporter, values, .. }
                        if is_whole && *reporter == trial && values.len() == self.spec.objectives.len() =>
                    {
                        Outcome::Completed { values: values.clone() }
                    }
                    _ => Outcome::Stopped,
                };
                self.take_end(trial, &outcome);
            }
        }
    }
}

fn fresh(config: Config, to: Option<u32>, origin: Option<crate::Origin>, bracket: u32, injected: bool) -> Trial {
    Trial { config, state: TrialState::Running, to, bracket, origin, reports: Vec::new(), values: Vec::new(), injected }
}

/// What is not a finite number is worse than all.
fn minimised(direction: Direction, value: f64) -> f64 {
    if value.is_finite() { direction.minimised(value) } else { f64::INFINITY }
}
