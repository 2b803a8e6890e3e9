//! What every searcher and every scheduler promises, in every pair. A new one is in the suite as
//! soon as it has a name (`shoal_tuner::named`); what it cannot work on is one line in `REFUSES`. A
//! failure names pair, space and seed.

#![expect(clippy::unwrap_used, reason = "a set-up that fails is a failed test")]

mod draws;
mod game;
mod spaces;

use shoal_tuner::{
    Ask, Outcome, Space, Study, StudySpec, TrialState,
    named::{self, Resources, SCHEDULERS, SEARCHERS, Strategy},
};

use game::Game;

const RESOURCES: Resources = Resources { min: Some(1), max: Some(9), eta: Some(3) };

/// Searchers that need to be told something: name, specification.
const OPTIONS: &[(&str, &str)] = &[("grid", r#"{"kind":"grid","points":8}"#)];

/// Searchers that cannot work on a space, and are right to say so: searcher, space.
const REFUSES: &[(&str, &str)] = &[];

/// Searchers whose every proposal costs milliseconds: shorter games.
const SLOW: &[&str] = &["bayesian"];

fn strategy(searcher: &str, scheduler: &str) -> Strategy {
    let options =
        OPTIONS.iter().find(|(name, _)| *name == searcher).map(|(_, options)| serde_json::from_str(options).unwrap());
    Strategy {
        searcher: named::searcher(&options.unwrap_or_else(|| searcher.into())).unwrap(),
        scheduler: named::scheduler(&scheduler.into(), RESOURCES).unwrap(),
    }
}

fn spec(strategy: &Strategy, space: Space, seed: u64, max_trials: u32) -> StudySpec {
    let Strategy { searcher, scheduler } = strategy.clone();
    StudySpec { max_trials: Some(max_trials), searcher, scheduler, ..StudySpec::random(space, seed) }
}

/// Calls `check` with each pair on each space that it can work on: a label, the strategy, the
/// space, and how many trials are reasonable.
fn for_each_pair(check: impl Fn(&str, &Strategy, &Space, u32)) {
    for (name, json) in spaces::ALL {
        let space: Space = serde_json::from_str(json).unwrap();
        for (searcher, _) in SEARCHERS {
            let trials = if SLOW.contains(searcher) { 14 } else { 40 };
            for (scheduler, _) in SCHEDULERS {
                let strategy = strategy(searcher, scheduler);
                let made = Study::new(spec(&strategy, space.clone(), 0, trials));
                let is_refused = REFUSES.contains(&(searcher, name));
                assert_eq!(made.is_err(), is_refused, "{searcher}+{scheduler} on {name}: {:?}", made.err());
                if !is_refused {
                    check(&format!("{searcher}+{scheduler} on {name}"), &strategy, &space, trials);
                }
            }
        }
    }
}

/// A rough game: trials fail, report nonsense, skip units, are told twice and out of order. `Game`
/// checks every answer; it comes to an end.
#[test]
fn every_answer_is_lawful_and_the_search_ends() {
    for_each_pair(|label, strategy, space, trials| {
        for (seed, workers) in [(1, 1), (2, 4), (3, 11)] {
            let mut game = Game::new(
                spec(strategy, space.clone(), seed, trials),
                seed,
                workers,
                format!("{label}, seed {seed}, {workers} workers"),
            );
            game.play();
        }
    });
}

/// The same seed and the same events give the same bits.
#[test]
fn the_same_seed_gives_the_same_search() {
    for_each_pair(|label, strategy, space, trials| {
        let run = |seed| {
            let mut game =
                Game::new(spec(strategy, space.clone(), seed, trials), 5, 3, format!("{label}, seed {seed}"));
            game.play();
            serde_json::to_string(&game.study().snapshot()).unwrap()
        };
        assert_eq!(run(9), run(9), "{label}");
    });
}

/// A study that was stored and read back at any point goes on as the one that was not: the game
/// plays both from there on.
#[test]
fn a_snapshot_is_the_study() {
    for_each_pair(|label, strategy, space, trials| {
        for seed in [4, 5] {
            let mut game =
                Game::new(spec(strategy, space.clone(), seed, trials), seed, 3, format!("{label}, seed {seed}"));
            game.restores_every(if trials < 40 { 5 } else { 1 });
            game.play();
        }
    });
}

/// Folding the records one by one gives the same study, searching nothing.
#[test]
fn records_are_the_study() {
    for_each_pair(|label, strategy, space, trials| {
        let mut game = Game::new(spec(strategy, space.clone(), 6, trials), 6, 4, label.to_owned());
        game.play();
        let study = game.study();
        let mut replayed = Study::new(study.spec().clone()).unwrap();
        for record in study.records().to_vec() {
            let stored = serde_json::to_string(&record).unwrap();
            replayed.replay(serde_json::from_str(&stored).unwrap()).unwrap_or_else(|error| panic!("{label}: {error}"));
        }
        assert_eq!(replayed.history(), study.history(), "{label}");
        assert_eq!((replayed.best(), replayed.progress()), (study.best(), study.progress()), "{label}");
    });
}

/// Without a limit a space that can be gone through is, once, and then the search ends.
#[test]
fn a_small_space_is_gone_through_once() {
    let space: Space = serde_json::from_str(spaces::SMALL).unwrap();
    for (searcher, _) in SEARCHERS {
        let strategy = strategy(searcher, "none");
        let mut study = Study::new(spec(&strategy, space.clone(), 8, 12)).unwrap();
        let mut tried = Vec::new();
        while let Ask::Start(start) = study.ask() {
            assert!(!tried.contains(&start.config), "{searcher}: {:?} twice", start.config);
            tried.push(start.config);
            study.end(start.trial, Outcome::Completed { values: vec![f64::from(start.trial % 5)] });
        }
        assert_eq!(Some(tried.len() as u64), space.combinations(), "{searcher}");
    }
}

/// Several objectives: searchers that can work with them propose lawfully and the front is one.
#[test]
fn several_objectives() {
    use shoal_tuner::Direction::{Maximize, Minimize};
    let space: Space = serde_json::from_str(spaces::MIXED).unwrap();
    let mut working = 0;
    for (searcher, _) in SEARCHERS {
        let strategy = strategy(searcher, "none");
        let spec = StudySpec { objectives: vec![Minimize, Maximize], ..spec(&strategy, space.clone(), 3, 14) };
        let Ok(mut study) = Study::new(spec) else { continue };
        working += 1;
        while let Ask::Start(start) = study.ask() {
            assert!(space.holds(&start.config), "{searcher}");
            let place = space.unit(0, start.config.0[0].unwrap());
            study.end(start.trial, Outcome::Completed { values: vec![place * place, (place - 1.0).powi(2)] });
        }
        for (one, other) in
            study.front().into_iter().flat_map(|one| study.front().into_iter().map(move |other| (one, other)))
        {
            let values = |trial| &study.history().trial(trial).unwrap().values;
            let dominates =
                values(one).iter().zip(values(other)).all(|(one, other)| one <= other) && values(one) != values(other);
            assert!(!dominates, "{searcher}: {one} dominates {other} of the front");
        }
    }
    assert!(working >= 2, "random search and others can");
}

/// Injected trials are known, and not proposed again.
#[test]
fn injected_trials_are_not_proposed_again() {
    let space: Space = serde_json::from_str(spaces::SMALL).unwrap();
    for (searcher, _) in SEARCHERS {
        let strategy = strategy(searcher, "none");
        let mut study = Study::new(spec(&strategy, space.clone(), 2, 12)).unwrap();
        let all: Vec<_> = space.configs().collect();
        for (place, config) in all.iter().enumerate().take(9) {
            let outcome = if place == 4 { Outcome::Failed } else { Outcome::Completed { values: vec![place as f64] } };
            study.inject(config.clone(), outcome).unwrap();
        }
        let mut proposed = Vec::new();
        while let Ask::Start(start) = study.ask() {
            proposed.push(all.iter().position(|config| *config == start.config).unwrap());
            study.end(start.trial, Outcome::Failed);
            if proposed.len() == 3 {
                break;
            }
        }
        proposed.sort_unstable();
        assert_eq!(proposed, [9, 10, 11], "{searcher}");
        assert_eq!(
            study.history().trials().iter().filter(|trial| trial.state == TrialState::Failed).count(),
            4,
            "{searcher}"
        );
    }
}

/// Extreme spaces: what is proposed lies in them, and travels as text and as JSON without loss.
#[test]
fn extreme_values_travel_without_loss() {
    for (name, json) in spaces::EXTREME {
        let space: Space = serde_json::from_str(json).unwrap_or_else(|error| panic!("{name}: {error}"));
        for (searcher, _) in SEARCHERS {
            if REFUSES.contains(&(searcher, name)) {
                continue;
            }
            let strategy = strategy(searcher, "none");
            let mut study = Study::new(spec(&strategy, space.clone(), 1, 12)).unwrap();
            while let Ask::Start(start) = study.ask() {
                assert!(space.holds(&start.config), "{searcher} on {name}: {:?}", start.config);
                let texts = space.texts(&start.config);
                let look = |name: &str| texts.iter().find(|(it, _)| it == name).map(|(_, text)| text.as_str());
                assert_eq!(space.parse(look).unwrap(), start.config, "{searcher} on {name}: {texts:?}");
                assert_eq!(space.adopt(look).unwrap(), start.config, "{searcher} on {name}: {texts:?}");
                let stored: shoal_tuner::Config =
                    serde_json::from_str(&serde_json::to_string(&start.config).unwrap()).unwrap();
                assert_eq!(stored.key(), start.config.key(), "{searcher} on {name}");
                study.end(start.trial, Outcome::Completed { values: vec![f64::from(start.trial)] });
            }
        }
    }
}

#[test]
fn lists_of_exceptions_name_what_exists() {
    let names: Vec<_> = named::names().collect();
    assert!(
        REFUSES
            .iter()
            .map(|(searcher, _)| searcher)
            .chain(SLOW)
            .chain(OPTIONS.iter().map(|(searcher, _)| searcher))
            .all(|name| names.contains(name))
    );
}
