//! A game against a study: workers that do everything a worker may do, and a look at every answer.

use shoal_tuner::{Ask, History, Outcome, Rng, Study, StudySpec, TrialId, TrialState, Verdict};

/// A study, those of its snapshots, and the workers' side of what is going on.
pub(crate) struct Game {
    study: Study,
    /// Restored from a snapshot; hears the same.
    shadow: Option<Study>,
    restores_every: Option<u64>,
    rng: Rng,
    workers: usize,
    label: String,
    steps: u64,
}

/// Units that a trial has at most.
const UNITS: u32 = 9;
/// More than any game takes.
const STEPS: u64 = 20_000;

impl Game {
    pub(crate) fn new(spec: StudySpec, seed: u64, workers: usize, label: String) -> Self {
        let study = Study::new(spec).unwrap();
        Self { study, shadow: None, restores_every: None, rng: Rng::new(seed, 77), workers, label, steps: 0 }
    }

    pub(crate) fn study(&self) -> &Study {
        &self.study
    }

    /// The study is stored and read back that often.
    pub(crate) fn restores_every(&mut self, steps: u64) {
        self.restores_every = Some(steps);
    }

    fn running(&self) -> Vec<TrialId> {
        self.study.history().live().filter(|(_, trial)| trial.state == TrialState::Running).map(|(id, _)| id).collect()
    }

    /// Until the study says that nothing more will come.
    pub(crate) fn play(&mut self) {
        let mut over = false;
        while !over {
            self.steps += 1;
            assert!(self.steps < STEPS, "{}: does not end", self.label);
            if self.restores_every.is_some_and(|every| self.steps.is_multiple_of(every)) {
                let stored = serde_json::to_string(&self.study.snapshot()).unwrap();
                let restored = Study::restore(serde_json::from_str(&stored).unwrap()).unwrap();
                assert_eq!(restored.history(), self.study.history(), "{}: step {}", self.label, self.steps);
                self.shadow = Some(restored);
            }
            let running = self.running();
            if running.len() < self.workers && (running.is_empty() || self.rng.below(2) == 0) {
                over = self.ask();
            } else {
                let trial = running[self.rng.index(running.len())];
                self.work(trial);
            }
        }
        assert!(self.running().is_empty(), "{}: ended while trials run", self.label);
        assert_eq!(self.study.ask(), Ask::End, "{}: the end is not the end", self.label);
        let own = self.study.history().trials().iter().filter(|trial| !trial.injected).count();
        assert!(own <= self.study.spec().max_trials.unwrap() as usize, "{}: {own} trials", self.label);
    }

    /// Whether it said that nothing more will come while nothing runs.
    fn ask(&mut self) -> bool {
        let before = self.study.history().clone();
        let answer = self.study.ask();
        if let Some(shadow) = &mut self.shadow {
            assert_eq!(shadow.ask(), answer, "{}: step {}: a restored study goes another way", self.label, self.steps);
        }
        match &answer {
            Ask::Start(start) => self.check_start(&before, start),
            Ask::Resume { trial, from, to } => {
                let known = before
                    .trial(*trial)
                    .unwrap_or_else(|| panic!("{}: resumes {trial}, which is not there", self.label));
                assert_eq!(
                    (known.state, known.resource()),
                    (TrialState::Paused, *from),
                    "{}: resumes {trial}",
                    self.label
                );
                assert!(to.is_none_or(|to| to > *from), "{}: resumes {trial} from {from} to {to:?}", self.label);
            }
            Ask::Wait => assert!(before.running() > 0, "{}: waits for nobody", self.label),
            Ask::End => return before.running() == 0,
        }
        false
    }

    fn check_start(&self, before: &History, start: &shoal_tuner::Start) {
        let (label, space) = (&self.label, self.study.space());
        assert_eq!(start.trial as usize, before.trials().len(), "{label}");
        assert!(space.holds(&start.config), "{label}: {:?} is not of the space", start.config);
        let is_full = space.combinations().is_some_and(|all| before.different() as u64 >= all);
        assert!(
            start.origin.is_some() || is_full || !before.has_tried(&start.config),
            "{label}: {:?} again",
            start.config
        );
        let from = start.origin.map_or(0, |origin| origin.resource);
        assert!(start.to.is_none_or(|to| to > from), "{label}: starts at {from}, to {:?}", start.to);
        if let Some(origin) = start.origin {
            assert!(
                before.trial(origin.trial).is_some_and(|trial| trial.resource() >= origin.resource),
                "{label}: {origin:?}"
            );
        }
    }

    /// A worker does something with its trial, mostly what it should.
    fn work(&mut self, trial: TrialId) {
        let resource = self.study.history().trial(trial).unwrap().resource();
        match self.rng.below(40) {
            0 => self.end(trial, &Outcome::Failed),
            1 => self.end(trial, &Outcome::Stopped),
            2 => self.end(trial, &Outcome::Completed { values: vec![f64::NAN] }),
            // What changes nothing: late, repeated and unknown.
            3 => self.says_nothing(trial, resource),
            4 => self.says_nothing(1_000_000, 1),
            5 => self.end_says_nothing(1_000_000),
            6 if trial > 0 && self.study.history().trial(trial - 1).is_some_and(|it| it.state.is_over()) => {
                self.end_says_nothing(trial - 1);
            }
            7 => self.report(trial, resource + 1, f64::NAN),
            8 => self.report(trial, resource + 2, f64::INFINITY),
            9 => self.report(trial, resource + 3, -1e300),
            _ if resource >= UNITS => {
                let value = self.value(trial, UNITS);
                self.end(trial, &Outcome::Completed { values: vec![value] });
            }
            _ => {
                let value = self.value(trial, resource + 1);
                self.report(trial, resource + 1, value);
            }
        }
    }

    /// A learning curve of the configuration, with ties.
    fn value(&self, trial: TrialId, resource: u32) -> f64 {
        let config = &self.study.history().trial(trial).unwrap().config;
        let space = self.study.space();
        let places =
            config.0.iter().enumerate().filter_map(|(index, value)| value.map(|value| space.unit(index, value)));
        let height: f64 = places.map(|place| (place - 0.4) * (place - 0.4)).sum();
        (8.0 * height).round() / 8.0 + 1.0 / f64::from(resource)
    }

    fn report(&mut self, trial: TrialId, resource: u32, value: f64) {
        let verdicts = self.study.report(trial, resource, &[value]);
        if let Some(shadow) = &mut self.shadow {
            assert_eq!(shadow.report(trial, resource, &[value]), verdicts, "{}: step {}", self.label, self.steps);
        }
        self.check_verdicts(&verdicts);
        // A worker that came to its `to` and was not told to go on further would run for ever.
        let known = self.study.history().trial(trial).unwrap();
        let is_stuck = known.state == TrialState::Running && known.to.is_some_and(|to| to <= resource);
        assert!(!is_stuck, "{}: trial {trial} stands at its `to` and runs", self.label);
    }

    fn end(&mut self, trial: TrialId, outcome: &Outcome) {
        let verdicts = self.study.end(trial, outcome.clone());
        if let Some(shadow) = &mut self.shadow {
            assert_eq!(shadow.end(trial, outcome.clone()), verdicts, "{}: step {}", self.label, self.steps);
        }
        self.check_verdicts(&verdicts);
        assert!(self.study.history().trial(trial).unwrap().state.is_over(), "{}", self.label);
    }

    fn check_verdicts(&self, verdicts: &[(TrialId, Verdict)]) {
        for (trial, verdict) in verdicts {
            let state = self.study.history().trial(*trial).map(|known| known.state);
            let is_followed = match verdict {
                Verdict::Stop => state.is_some_and(TrialState::is_over),
                Verdict::Pause => state == Some(TrialState::Paused),
                Verdict::Continue { .. } => state.is_some(),
            };
            assert!(is_followed, "{}: {verdict:?} on {trial} left it {state:?}", self.label);
        }
    }

    fn says_nothing(&mut self, trial: TrialId, resource: u32) {
        let before = self.study.records().len();
        assert!(self.study.report(trial, resource, &[0.5]).is_empty(), "{}: a late report was judged", self.label);
        assert_eq!(self.study.records().len(), before, "{}", self.label);
    }

    fn end_says_nothing(&mut self, trial: TrialId) {
        let before = self.study.records().len();
        assert!(self.study.end(trial, Outcome::Completed { values: vec![-1e9] }).is_empty(), "{}", self.label);
        assert_eq!(self.study.records().len(), before, "{}: a trial ended twice", self.label);
    }
}
