use super::*;
use crate::{Ask, Direction, Outcome, SearcherSpec, Sobol, Study, StudySpec, Value, pareto};

const MIXED: &str = r#"[
    {"name":"kind","type":"categorical","values":["a","b","c"]},
    {"name":"x","type":"continuous","min":0.001,"max":10.0,"scaling":"Logarithmic"},
    {"name":"n","type":"integer","min":1,"max":9},
    {"name":"wide","type":"integer","min":1,"max":5000,"scaling":"Logarithmic"},
    {"name":"only_a","type":"continuous","min":-1.0,"max":1.0,"condition":{"parent":"kind","in":["a"]}},
    {"name":"not_a","type":"integer","min":0,"max":3,"condition":{"parent":"kind","in":["b","c"]}}]"#;

fn space(json: &str) -> Space {
    serde_json::from_str(json).unwrap()
}

fn study(json: &str, seed: u64, objectives: usize) -> Study {
    let searcher = SearcherSpec::Tpe(TpeSpec::default());
    let spec = StudySpec {
        searcher,
        objectives: vec![Direction::Minimize; objectives],
        ..StudySpec::random(space(json), seed)
    };
    Study::new(spec).unwrap()
}

/// Asks `count` times and tells at once; gives the values.
fn run(study: &mut Study, count: usize, values: impl Fn(&Space, &Config) -> Option<Vec<f64>>) -> Vec<Option<Vec<f64>>> {
    let mut told = Vec::new();
    for _ in 0..count {
        let Ask::Start(start) = study.ask() else { break };
        assert!(study.space().holds(&start.config), "{:?}", start.config);
        let found = values(study.space(), &start.config);
        told.push(found.clone());
        study.end(start.trial, found.map_or(Outcome::Failed, |values| Outcome::Completed { values }));
    }
    told
}

/// Best: kind a, x 0.1, n 4, wide 300, only_a 0.5.
fn mixed(space: &Space, config: &Config) -> Option<Vec<f64>> {
    let number = |name| space.number(config, name);
    let mut value = (number("x")?.log10() + 1.0).powi(2)
        + 0.1 * (number("n")? - 4.0).abs()
        + 0.1 * (number("wide")? / 300.0).ln().powi(2);
    value += match number("only_a") {
        Some(only) => (only - 0.5).powi(2),
        None => 0.3 + 0.05 * number("not_a")?,
    };
    Some(vec![value])
}

#[test]
fn the_best_branch_of_a_conditional_space_is_found() {
    for seed in 0..2 {
        let mut study = study(MIXED, seed, 1);
        let values = run(&mut study, 150, mixed);
        let least = values.iter().flatten().map(|it| it[0]).fold(f64::INFINITY, f64::min);
        // Random search comes to 0.2.
        assert!(least < 0.06, "seed {seed}: {least}");
        let late = &study.history().trials()[100..];
        assert!(late.iter().filter(|trial| trial.config.0[0] == Some(Value::Choice(0))).count() > 25);
    }
}

#[test]
fn two_dimensions_converge() {
    let cube = r#"[{"name":"x","type":"continuous","min":-5.0,"max":5.0},{"name":"y","type":"continuous","min":-5.0,"max":5.0}]"#;
    for seed in 0..2 {
        let sphere = |space: &Space, config: &Config| {
            Some(vec![(space.number(config, "x")? - 1.3).powi(2) + (space.number(config, "y")? + 2.1).powi(2)])
        };
        let values = run(&mut study(cube, seed, 1), 120, sphere);
        let least = values.iter().flatten().map(|it| it[0]).fold(f64::INFINITY, f64::min);
        assert!(least < 1e-3, "seed {seed}: {least}");
    }
}

#[test]
fn what_it_keeps_is_never_needed() {
    let mut one = study(MIXED, 3, 1);
    run(&mut one, 30, mixed);
    // Trials under way, told later and in another order, and a failed one.
    let mut open = Vec::new();
    for turn in 0..40_u32 {
        let Ask::Start(start) = one.ask() else { panic!("there is more to try") };
        open.push(start);
        if turn % 3 == 2 {
            let first = open.remove(0);
            let last = open.pop().unwrap();
            one.end(last.trial, Outcome::Failed);
            let values = mixed(one.space(), &first.config).unwrap();
            one.end(first.trial, Outcome::Completed { values });
        }
        if turn % 10 == 5 {
            let mut other = Study::restore(one.snapshot()).unwrap();
            assert_eq!(other.ask(), one.ask());
            let id = one.history().trials().len() as u32 - 1;
            one.end(id, Outcome::Failed);
        }
    }
}

#[test]
fn densities_are_densities() {
    const CONDITIONAL: &str = r#"[{"name":"kind","type":"categorical","values":["a","b","c"]},{"name":"n","type":"integer","min":1,"max":9},
        {"name":"x","type":"continuous","min":0.001,"max":10.0,"scaling":"Logarithmic"},
        {"name":"y","type":"continuous","min":-1.0,"max":1.0,"condition":{"parent":"kind","in":["a"]}}]"#;
    let space = space(CONDITIONAL);
    let dims = Dim::all(&space);
    let mut study = study(CONDITIONAL, 5, 1);
    run(&mut study, 60, |space, config| Some(vec![space.number(config, "x")? + space.number(config, "n")?]));
    let trials = study.history().trials();
    let good: Vec<_> = trials.iter().take(12).collect();
    let below = Below::new(&space, &dims, &good, trials.len(), true);
    let mut all = All::default();
    all.follow(&space, &dims, trials, &[1, 5, 9], 0.2);
    // Against the uniform density: their mean over uniform points is 1.
    let sobol = Sobol::new(dims.len(), 8);
    let marks: Vec<Vec<f64>> = (0..1 << 15)
        .map(|index| {
            let config = space.build(|parameter| space.from_unit(parameter, sobol.coordinate(index, parameter)));
            (0..dims.len()).map(|parameter| dims[parameter].mark(&space, parameter, config.0[parameter])).collect()
        })
        .collect();
    for kernels in [&below.kernels, &all.kernels] {
        let mean = kernels.densities(&marks).iter().sum::<f64>() / marks.len() as f64;
        assert!((mean - 1.0).abs() < 0.05, "{mean}");
    }
}

#[test]
fn candidates_follow_the_density_of_the_good_ones() {
    let space = space(
        r#"[{"name":"x","type":"continuous","min":0.0,"max":1.0},{"name":"n","type":"integer","min":0,"max":4}]"#,
    );
    let dims = Dim::all(&space);
    let trial = |x: f64, n: i64| {
        let mut history = crate::History::default();
        let config = Config(vec![Some(Value::Float(x)), Some(Value::Int(n))]);
        let reports = Vec::new();
        let state = crate::TrialState::Completed;
        let trial = crate::Trial {
            config,
            state,
            to: None,
            bracket: 0,
            origin: None,
            reports,
            values: vec![0.0],
            injected: false,
        };
        history.push(trial.clone());
        trial
    };
    let trials = [trial(0.05, 0), trial(0.3, 1), trial(0.9, 4)];
    let below = Below::new(&space, &dims, &trials.iter().collect::<Vec<_>>(), 40, true);
    let mut rng = Rng::new(1, 1);
    let mut counts = [[0_u32; 5]; 10];
    const DRAWS: u32 = 40_000;
    for _ in 0..DRAWS {
        let marks = below.draw(&space, &dims, &mut rng);
        counts[((marks[0] * 10.0) as usize).min(9)][marks[1] as usize] += 1;
    }
    // Chi-square of 50 cells against the density, integrated in each.
    let mut chi_square = 0.0;
    for (cell, row) in counts.iter().enumerate() {
        for (n, &count) in row.iter().enumerate() {
            let marks: Vec<Vec<f64>> =
                (0..200).map(|step| vec![(cell as f64 + (f64::from(step) + 0.5) / 200.0) / 10.0, n as f64]).collect();
            let expected = below.kernels.densities(&marks).iter().sum::<f64>() / 200.0 / 50.0 * f64::from(DRAWS);
            chi_square += (f64::from(count) - expected).powi(2) / expected;
        }
    }
    // 49 degrees of freedom: beyond 85 once in a thousand times.
    assert!(chi_square < 85.0, "{chi_square}");
}

#[test]
fn kernels_that_were_kept_up_are_those_made_at_once() {
    let space = space(MIXED);
    let dims = Dim::all(&space);
    let mut random = Study::new(StudySpec::random(space.clone(), 1)).unwrap();
    for _ in 0..4400 {
        let Ask::Start(start) = random.ask() else { panic!("there is more to try") };
        random.end(start.trial, Outcome::Failed);
    }
    let trials = random.history().trials();
    let mut kept = All::default();
    let marks: Vec<Vec<f64>> = trials[..50]
        .iter()
        .map(|trial| (0..6).map(|index| dims[index].mark(&space, index, trial.config.0[index])).collect())
        .collect();
    for until in (1..110).step_by(3).chain([150, 151, 400, 2047, 2048, 2049, 4095, 4096, 4100, 4400]) {
        let good: Vec<u32> = [0, 7, until as u32 - 1].into_iter().filter(|&it| (it as usize) < until).collect();
        kept.follow(&space, &dims, &trials[..until], &good, 0.2);
        let mut fresh = All::default();
        fresh.follow(&space, &dims, &trials[..until], &good, 0.2);
        assert_eq!(kept.kernels.densities(&marks), fresh.kernels.densities(&marks), "{until} trials");
        assert!(kept.kernels.weights.len() <= 4096 && kept.kernels.weights.len() >= until.min(2048));
    }
}

#[test]
fn where_trials_fail_fewer_are_tried() {
    let line = r#"[{"name":"x","type":"continuous","min":0.0,"max":1.0},{"name":"y","type":"continuous","min":0.0,"max":1.0}]"#;
    let mut study = study(line, 2, 1);
    // Half of the space fails, and the best is at its border.
    let half = |space: &Space, config: &Config| {
        let (x, y) = (space.number(config, "x")?, space.number(config, "y")?);
        (x < 0.5).then(|| vec![(x - 0.4).abs() + y])
    };
    let values = run(&mut study, 100, half);
    let failed = values[30..].iter().filter(|value| value.is_none()).count();
    assert!(failed < 20, "{failed} of 70");
}

#[test]
fn pending_trials_are_kept_away_from() {
    let line = r#"[{"name":"x","type":"continuous","min":0.0,"max":1.0}]"#;
    let mut study = study(line, 6, 1);
    run(&mut study, 16, |space, config| Some(vec![(space.number(config, "x")? - 0.37).abs()]));
    let mut places = Vec::new();
    for _ in 0..12 {
        let Ask::Start(start) = study.ask() else { panic!("there is more to try") };
        places.push(study.space().number(&start.config, "x").unwrap());
    }
    places.sort_by(f64::total_cmp);
    let near = places.windows(2).filter(|pair| pair[1] - pair[0] < 1e-3).count();
    assert!(near < 4, "{places:?}");
}

#[test]
fn a_small_space_is_tried_whole() {
    let small =
        r#"[{"name":"a","type":"categorical","values":["p","q","r"]},{"name":"n","type":"integer","min":1,"max":8}]"#;
    let mut study = study(small, 2, 1);
    run(&mut study, 24, |space, config| Some(vec![space.number(config, "n")?]));
    assert_eq!(study.history().different(), 24);
}

#[test]
fn two_objectives_have_a_better_front_than_random_search() {
    let cube = r#"[{"name":"x","type":"continuous","min":0.0,"max":1.0},{"name":"y","type":"continuous","min":0.0,"max":1.0},
        {"name":"z","type":"continuous","min":0.0,"max":1.0},{"name":"w","type":"continuous","min":0.0,"max":1.0}]"#;
    // ZDT1 of four variables: the front is where y, z and w are 0.
    let zdt = |space: &Space, config: &Config| {
        let number = |name| space.number(config, name);
        let g = 1.0 + 3.0 * (number("y")? + number("z")? + number("w")?);
        Some(vec![number("x")?, g * (1.0 - (number("x")? / g).sqrt())])
    };
    let volume = |study: &mut Study| {
        let found: Vec<Vec<f64>> = run(study, 150, zdt).into_iter().flatten().collect();
        pareto::hypervolume(&found, &[1.0, 4.0])
    };
    for seed in 0..1 {
        let ours = volume(&mut study(cube, seed, 2));
        let mut random =
            Study::new(StudySpec { objectives: vec![Direction::Minimize; 2], ..StudySpec::random(space(cube), seed) })
                .unwrap();
        let random = volume(&mut random);
        // The whole front has 3.67.
        assert!(ours > random + 0.4 && ours > 3.0, "seed {seed}: {ours} against {random}");
        // Three objectives, and points that tie.
        run(&mut study(cube, seed, 3), 60, |space, config| {
            Some(vec![space.number(config, "x")?, 0.5, space.number(config, "y")?])
        });
    }
}

#[test]
fn of_trials_that_were_cut_short_those_at_the_greatest_resource_count() {
    let line = r#"[{"name":"x","type":"continuous","min":0.0,"max":1.0}]"#;
    let mut study = study(line, 1, 1);
    for turn in 0..110 {
        let Ask::Start(start) = study.ask() else { panic!("there is more to try") };
        let x = study.space().number(&start.config, "x").unwrap();
        // After one unit the wrong end looks better, and every other trial stops there.
        study.report(start.trial, 1, &[-x]);
        if turn % 2 == 0 {
            study.report(start.trial, 2, &[(x - 0.2).abs()]);
        }
        study.end(start.trial, Outcome::Stopped);
    }
    let late: Vec<f64> =
        study.history().trials()[90..].iter().map(|trial| trial.config.0[0].unwrap().number()).collect();
    let near = late.iter().filter(|x| (**x - 0.2).abs() < 0.2).count();
    assert!(near > 14, "{late:?}");
}
