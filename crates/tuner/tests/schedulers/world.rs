//! Trials that run on workers in virtual time, and what was done to them.

use std::collections::BTreeMap;

use shoal_tuner::{Ask, Direction, Outcome, SchedulerSpec, Space, Study, StudySpec, TrialId, Verdict};

/// One continuous parameter `x` in [0, 1].
pub(crate) fn line() -> Space {
    serde_json::from_str(r#"[{"name":"x","type":"continuous","min":0.0,"max":1.0}]"#).unwrap()
}

/// Random search with a scheduler.
pub(crate) fn study(scheduler: &str, direction: Direction, max_trials: Option<u32>, seed: u64) -> Study {
    let scheduler: SchedulerSpec = serde_json::from_str(scheduler).unwrap();
    Study::new(StudySpec { objectives: vec![direction], scheduler, max_trials, ..StudySpec::random(line(), seed) })
        .unwrap()
}

/// A trial on a worker.
#[derive(Debug, Clone, Copy)]
struct Running {
    trial: TrialId,
    resource: u32,
    to: Option<u32>,
}

/// What happened.
#[derive(Debug, Default)]
pub(crate) struct World {
    /// Units that each trial ran.
    pub(crate) units: BTreeMap<TrialId, u32>,
    /// Trials that were resumed, and where from.
    pub(crate) resumed: Vec<(TrialId, u32)>,
    /// Where each trial stands.
    pub(crate) at: BTreeMap<TrialId, u32>,
    /// Who ended last.
    pub(crate) last: Option<TrialId>,
    /// Workers asked in vain while nothing ran.
    pub(crate) stuck: bool,
}

/// What a trial says after a unit, or how it ends there.
pub(crate) enum Turn {
    Says(f64),
    Fails,
    Ends(f64),
}

/// Runs a study on workers of equal speed, in lockstep and in their order, until there is nothing
/// left or so many units were run. `turn` says what a trial does after a unit; it ends by itself
/// after `length`.
pub(crate) fn run(
    study: &mut Study,
    workers: usize,
    length: u32,
    most: u32,
    mut turn: impl FnMut(&Study, TrialId, u32) -> Turn,
) -> World {
    let mut world = World::default();
    let mut places: Vec<Option<Running>> = vec![None; workers];
    let mut units = 0;
    while units < most {
        for place in &mut places {
            if place.is_none() {
                *place = match study.ask() {
                    Ask::Start(start) => {
                        let resource = start.origin.map_or(0, |origin| origin.resource);
                        Some(Running { trial: start.trial, resource, to: start.to })
                    }
                    Ask::Resume { trial, from, to } => {
                        world.resumed.push((trial, from));
                        Some(Running { trial, resource: world.at[&trial], to })
                    }
                    Ask::Wait | Ask::End => None,
                };
            }
        }
        if places.iter().all(Option::is_none) {
            world.stuck = study.ask() != Ask::End;
            return world;
        }
        for place in 0..workers {
            let Some(mut running) = places[place] else { continue };
            running.resource += 1;
            units += 1;
            let trial = running.trial;
            *world.units.entry(trial).or_default() += 1;
            world.at.insert(trial, running.resource);
            places[place] = Some(running);
            let (verdicts, over) = match turn(study, trial, running.resource) {
                Turn::Fails => (study.end(trial, Outcome::Failed), true),
                Turn::Says(value) => (study.report(trial, running.resource, &[value]), false),
                Turn::Ends(value) => {
                    let mut verdicts = study.report(trial, running.resource, &[value]);
                    verdicts.extend(study.end(trial, Outcome::Completed { values: vec![value] }));
                    (verdicts, true)
                }
            };
            if over {
                places[place] = None;
                world.last = Some(trial);
            }
            for (trial, verdict) in verdicts {
                let Some(at) = places.iter().position(|it| it.is_some_and(|it| it.trial == trial)) else { continue };
                match verdict {
                    Verdict::Stop | Verdict::Pause => {
                        places[at] = None;
                        if verdict == Verdict::Stop {
                            world.last = Some(trial);
                        }
                    }
                    Verdict::Continue { to } => places[at].as_mut().unwrap().to = to,
                }
            }
            if let Some(running) = places[place].filter(|it| it.to.is_some_and(|to| it.resource >= to)) {
                panic!("trial {} stands at its end {} without a verdict", running.trial, running.resource);
            }
            if places[place].is_some_and(|it| it.resource >= length) {
                let value =
                    study.history().trial(trial).and_then(|trial| trial.last()).map_or(0.0, |report| report.value);
                let value = study.spec().objectives[0].minimised(value);
                study.end(trial, Outcome::Completed { values: vec![value] });
                places[place] = None;
                world.last = Some(trial);
            }
        }
    }
    world
}
