//! The Bayesian searcher in studies: repeatable to the bit, restored in the middle, unmoved by odd
//! data, and better than chance.

#![expect(clippy::unwrap_used, reason = "a set-up that fails is a failed test")]

use shoal_tuner::{Ask, Config, Direction, Outcome, SearcherSpec, Space, Start, Study, StudySpec, pareto};

fn spec(space: &str, searcher: &str, seed: u64) -> StudySpec {
    let space: Space = serde_json::from_str(space).unwrap();
    let searcher: SearcherSpec = serde_json::from_str(searcher).unwrap();
    StudySpec { searcher, ..StudySpec::random(space, seed) }
}

const PLAIN: &str = r#"{"kind":"bayesian"}"#;

const MIXED: &str = r#"[{"name":"rate","type":"continuous","min":1e-5,"max":1.0,"scaling":"Logarithmic"},
    {"name":"layers","type":"integer","min":1,"max":6},{"name":"units","type":"integer","min":16,"max":1024,"scaling":"Logarithmic"},
    {"name":"method","type":"categorical","values":["sgd","adam","lion"]},
    {"name":"momentum","type":"continuous","min":0.0,"max":0.99,"scaling":"ReverseLogarithmic","condition":{"parent":"method","in":["sgd"]}}]"#;

const SQUARE: &str =
    r#"[{"name":"x","type":"continuous","min":-5.0,"max":10.0},{"name":"y","type":"continuous","min":0.0,"max":15.0}]"#;

fn start(study: &mut Study) -> Start {
    match study.ask() {
        Ask::Start(start) => start,
        other => panic!("{other:?}"),
    }
}

fn mixed(study: &Study, config: &Config) -> f64 {
    let number = |name: &str| study.space().number(config, name);
    let rate = libm::log10(number("rate").unwrap()) + 2.5;
    let momentum = number("momentum").map_or(0.3, |it| (it - 0.9).abs());
    rate * rate + 0.1 * (number("layers").unwrap() - 3.0).abs() + momentum + 0.05 * number("method").unwrap()
}

fn branin(study: &Study, config: &Config) -> f64 {
    use std::f64::consts::PI;
    let (x, y) = (study.space().number(config, "x").unwrap(), study.space().number(config, "y").unwrap());
    let bowl = y - 5.1 / (4.0 * PI * PI) * x * x + 5.0 / PI * x - 6.0;
    bowl * bowl + 10.0 * (1.0 - 1.0 / (8.0 * PI)) * libm::cos(x) + 10.0
}

/// Runs trials with so many at a time, the oldest ending first; gives the values.
fn run(study: &mut Study, trials: usize, workers: usize, value: impl Fn(&Study, &Config) -> f64) -> Vec<f64> {
    let mut running = std::collections::VecDeque::new();
    let (mut started, mut values) = (0, Vec::new());
    while values.len() < trials {
        while started < trials && running.len() < workers {
            running.push_back(start(study));
            started += 1;
        }
        let Start { trial, config, .. } = running.pop_front().unwrap();
        let found = value(study, &config);
        study.end(trial, Outcome::Completed { values: vec![found] });
        values.push(found);
    }
    values
}

fn least(values: &[f64]) -> f64 {
    values.iter().copied().fold(f64::INFINITY, f64::min)
}

#[test]
fn it_is_far_better_than_chance() {
    for seed in 0..3 {
        let mut study = Study::new(spec(SQUARE, PLAIN, seed)).unwrap();
        let regret = least(&run(&mut study, 35, 1, branin)) - 0.397_887;
        // Random search has 1.6 after 50.
        assert!(regret < 0.02, "seed {seed}: {regret}");
        let mut study = Study::new(spec(SQUARE, PLAIN, seed)).unwrap();
        let regret = least(&run(&mut study, 60, 8, branin)) - 0.397_887;
        assert!(regret < 0.05, "seed {seed} with 8 workers: {regret}");
        let mut study = Study::new(spec(MIXED, PLAIN, seed)).unwrap();
        assert!(least(&run(&mut study, 50, 1, mixed)) < 0.1, "seed {seed}");
    }
}

/// What is suggested, as bits, over some trials with three at a time, one of which fails.
fn suggestions(searcher: &str, seed: u64) -> Vec<String> {
    let mut study = Study::new(spec(MIXED, searcher, seed)).unwrap();
    let mut lines = Vec::new();
    for round in 0..7 {
        let trials: Vec<Start> = (0..3).map(|_| start(&mut study)).collect();
        for (place, Start { trial, config, .. }) in trials.into_iter().enumerate() {
            let bits = config
                .0
                .iter()
                .map(|value| value.map_or("-".to_owned(), |value| format!("{:016x}", value.number().to_bits())));
            lines.push(bits.collect::<Vec<_>>().join(" "));
            let value = mixed(&study, &config);
            study.end(
                trial,
                if (round, place) == (3, 1) { Outcome::Failed } else { Outcome::Completed { values: vec![value] } },
            );
        }
    }
    lines
}

#[test]
fn suggestions_are_what_they_were() {
    let lines = suggestions(PLAIN, 3);
    assert_eq!(lines, suggestions(PLAIN, 3));
    assert_ne!(lines, suggestions(PLAIN, 4));
    let golden: Vec<&str> = include_str!("golden/bayesian.txt").lines().collect();
    assert!(
        lines == golden,
        "suggestions changed; if that was the purpose, tests/golden/bayesian.txt becomes:\n{}",
        lines.join("\n")
    );
    let sampled = r#"{"kind":"bayesian","hyperparameters":{"sampled":2}}"#;
    assert_eq!(suggestions(sampled, 3), suggestions(sampled, 3));
}

#[test]
fn a_restored_study_goes_on_as_the_other() {
    for searcher in [PLAIN, r#"{"kind":"bayesian","hyperparameters":{"sampled":2},"warp":false}"#] {
        let mut study = Study::new(spec(MIXED, searcher, 5)).unwrap();
        run(&mut study, 14, 2, mixed);
        start(&mut study);
        let text = serde_json::to_string(&study.snapshot()).unwrap();
        let mut restored = Study::restore(serde_json::from_str(&text).unwrap()).unwrap();
        for _ in 0..4 {
            assert_eq!(run(&mut study, 2, 2, mixed), run(&mut restored, 2, 2, mixed));
        }
        assert_eq!(study.records(), restored.records());
    }
}

#[test]
fn pending_trials_are_not_proposed_again() {
    let mut study = Study::new(spec(SQUARE, PLAIN, 1)).unwrap();
    run(&mut study, 12, 1, branin);
    let points: Vec<(f64, f64)> = (0..8)
        .map(|_| {
            let config = start(&mut study).config;
            (study.space().number(&config, "x").unwrap() / 15.0, study.space().number(&config, "y").unwrap() / 15.0)
        })
        .collect();
    for (index, one) in points.iter().enumerate() {
        for other in &points[..index] {
            let distance = (one.0 - other.0).hypot(one.1 - other.1);
            assert!(distance > 1e-3, "{points:?}");
        }
    }
    // A space of few points is gone through without a repetition.
    let few =
        r#"[{"name":"a","type":"integer","min":0,"max":4},{"name":"b","type":"categorical","values":["x","y","z"]}]"#;
    let mut study = Study::new(spec(few, PLAIN, 1)).unwrap();
    run(&mut study, 15, 4, |study, config| study.space().number(config, "a").unwrap());
    assert_eq!(study.history().different(), 15);
}

#[test]
fn odd_data_do_no_harm() {
    let one = r#"[{"name":"x","type":"continuous","min":2.0,"max":2.0},{"name":"y","type":"continuous","min":0.0,"max":1.0}]"#;
    type Value = fn(f64) -> Outcome;
    let outcomes: [Value; 8] = [
        |_| Outcome::Failed,
        |_| Outcome::Completed { values: vec![4.0] },
        |y| Outcome::Completed { values: vec![if y < 0.5 { f64::NAN } else { y }] },
        |y| Outcome::Completed { values: vec![if y < 0.5 { f64::INFINITY } else { y }] },
        |y| Outcome::Completed { values: vec![y * 1e300 - 5e299] },
        |y| Outcome::Completed { values: vec![y * 1e-300] },
        |y| Outcome::Completed { values: vec![1e15 + y] },
        |y| Outcome::Completed { values: vec![if y > 0.9 { 1e12 } else { y }] },
    ];
    for (index, outcome) in outcomes.iter().enumerate() {
        let mut study = Study::new(spec(one, PLAIN, 1)).unwrap();
        for _ in 0..25 {
            let Start { trial, config, .. } = start(&mut study);
            assert!(study.space().holds(&config), "{index}: {config:?}");
            let y = study.space().number(&config, "y").unwrap();
            study.end(trial, outcome(y));
        }
    }
}

#[test]
fn a_front_of_two_objectives_is_found() {
    let volume = |searcher: &str, seed: u64| {
        let spec =
            StudySpec { objectives: vec![Direction::Minimize, Direction::Maximize], ..spec(SQUARE, searcher, seed) };
        let mut study = Study::new(spec).unwrap();
        let mut points = Vec::new();
        for _ in 0..40 {
            let Start { trial, config, .. } = start(&mut study);
            let (x, y) = (study.space().number(&config, "x").unwrap(), study.space().number(&config, "y").unwrap());
            let values =
                vec![(x - 1.0) * (x - 1.0) + (y - 4.0) * (y - 4.0), -(x - 4.0) * (x - 4.0) - (y - 9.0) * (y - 9.0)];
            points.push(vec![values[0], -values[1]]);
            study.end(trial, Outcome::Completed { values });
        }
        pareto::hypervolume(&points, &[40.0, 40.0])
    };
    for seed in 0..3 {
        let (ours, chance) = (volume(PLAIN, seed), volume(r#"{"kind":"random"}"#, seed));
        assert!(ours > chance, "seed {seed}: {ours} {chance}");
    }
}
