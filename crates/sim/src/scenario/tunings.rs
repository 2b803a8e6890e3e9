//! Which tuning jobs come. The same for a seed whatever goes wrong.

use shoal_plane::{Claim, DefinitionSpec, GangSpec, Objective, Pause, TuningName, TuningSpec};
use shoal_tuner::{
    Direction, Domain, Parameter, Scaling, SchedulerSpec, SearcherSpec, Space, StudySpec,
    schedule::{AshaOptions, Form, HyperbandOptions, MedianOptions, PbtOptions, RoundRobinOptions},
};

use super::{End, Program};
use crate::random::Random;

/// Units of resource of a trial that runs to its end.
pub(crate) const UNITS: u32 = 9;

/// A tuning job of the scenario.
#[derive(Debug, Clone)]
pub(crate) struct Tuning {
    pub(crate) name: TuningName,
    pub(crate) uid: String,
    pub(crate) spec: TuningSpec,
    pub(crate) study: StudySpec,
    /// Of each trial.
    pub(crate) program: Program,
    pub(crate) at_ms: u64,
    pub(crate) stop_after_ms: Option<u64>,
    /// So long after its creation its user lets so many trials run, or stops one of them.
    pub(crate) changes: Vec<(u64, Change)>,
}

/// What a user does to a tuning job that runs.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Change {
    Parallel(u32),
    StopTrial,
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
    let training = GangSpec {
        // Large ones make those that rest frozen leave.
        instance_type: random.pick(&["ml.m5.large", "ml.m5.2xlarge", "ml.m5.4xlarge"]).to_owned(),
        instances: 1,
        other_groups: Vec::new(),
        form: shoal_plane::Form::Ends { max_runtime_s: 86_400 },
        max_pending_s: None,
        max_wait_s: random.one_in(2).then_some(40 * 86_400),
        grace_s: 20,
        retries: random.pick(&[0, 1, 3]),
        min_instances: None,
        target: None,
        claim: Claim::default(),
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
        name: format!("tuning-{index}").into(),
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
