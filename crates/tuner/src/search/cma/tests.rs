use crate::{Ask, Config, Outcome, SearcherSpec, Space, Study, StudySpec};

fn study(space: &str, seed: u64) -> Study {
    let space: Space = serde_json::from_str(space).unwrap();
    let searcher = serde_json::from_str::<SearcherSpec>(r#"{"kind":"cma_es"}"#).unwrap();
    Study::new(StudySpec { searcher, ..StudySpec::random(space, seed) }).unwrap()
}

/// Asks and tells; the least value.
fn run(study: &mut Study, count: usize, workers: usize, value: impl Fn(&[f64]) -> Option<f64>) -> f64 {
    let mut least = f64::INFINITY;
    let mut open: Vec<(u32, Config)> = Vec::new();
    for turn in 0..count {
        let Ask::Start(start) = study.ask() else { panic!("there is more to try") };
        assert!(study.space().holds(&start.config));
        open.push((start.trial, start.config));
        if open.len() >= workers {
            // Not in the order of starts.
            let (trial, config) = open.remove(turn * 7 % open.len());
            let numbers: Vec<f64> =
                config.0.iter().map(|value| value.map_or(f64::NAN, |value| value.number())).collect();
            let found = value(&numbers);
            least = least.min(found.unwrap_or(f64::INFINITY));
            study.end(trial, found.map_or(Outcome::Failed, |value| Outcome::Completed { values: vec![value] }));
        }
    }
    least
}

fn cube(size: usize) -> String {
    let one = |index| format!(r#"{{"name":"x{index}","type":"continuous","min":-1.0,"max":1.0}}"#);
    format!("[{}]", (0..size).map(one).collect::<Vec<_>>().join(","))
}

/// Stretched, and turned.
fn ellipsoid(x: &[f64]) -> f64 {
    let turned: Vec<f64> = (0..x.len()).map(|k| x[k] - 0.3 + 0.5 * (x[(k + 1) % x.len()] - 0.3)).collect();
    turned.iter().enumerate().map(|(k, t)| 10_f64.powi(k as i32) * t * t).sum()
}

#[test]
fn a_turned_ellipsoid_is_solved_in_sequence_and_by_workers() {
    for workers in [1, 5] {
        let least = run(&mut study(&cube(4), 3), 1400, workers, |x| Some(ellipsoid(x)));
        assert!(least < 1e-6, "{workers} workers: {least}");
    }
}

#[test]
fn a_converged_strategy_starts_again() {
    // Two basins, the wide one without the best value: sooner or later the other is found.
    let two = |x: &[f64]| {
        let near = |center: f64| x.iter().map(|x| (x - center).powi(2)).sum::<f64>();
        Some((0.1 + near(0.5)).min(8.0 * near(-0.75)))
    };
    let found = (0..3).filter(|&seed| run(&mut study(&cube(2), seed), 4000, 1, two) < 1e-3).count();
    assert!(found >= 2, "{found} of 3");
}

#[test]
fn integers_and_names_find_their_best_value() {
    let space = r#"[{"name":"n","type":"integer","min":1,"max":40},{"name":"k","type":"categorical","values":["a","b","c","d"]},
        {"name":"x","type":"continuous","min":0.001,"max":10.0,"scaling":"Logarithmic"},
        {"name":"only","type":"continuous","min":0.0,"max":1.0,"condition":{"parent":"k","in":["c"]}}]"#;
    let value = |x: &[f64]| {
        let branch = if x[1] == 2.0 { (x[3] - 0.7).powi(2) } else { 0.4 };
        Some(0.05 * (x[0] - 13.0).abs() + (x[2].log10() + 0.5).powi(2) + branch)
    };
    for seed in 0..2 {
        let least = run(&mut study(space, seed), 400, 1, value);
        assert!(least < 0.02, "seed {seed}: {least}");
    }
}

#[test]
fn a_restored_study_goes_on_bit_for_bit() {
    let mut one = study(&cube(3), 8);
    run(&mut one, 40, 3, |x| (x[0] < 0.5).then(|| ellipsoid(x)));
    let mut other = Study::restore(one.snapshot()).unwrap();
    for _ in 0..30 {
        let (Ask::Start(mine), Ask::Start(its)) = (one.ask(), other.ask()) else { panic!("there is more to try") };
        assert_eq!(mine, its);
        one.end(mine.trial, Outcome::Completed { values: vec![f64::from(mine.trial % 7)] });
        other.end(its.trial, Outcome::Completed { values: vec![f64::from(its.trial % 7)] });
    }
}

#[test]
fn names_alone_and_several_objectives() {
    let names = r#"[{"name":"a","type":"categorical","values":["p","q","r"]},{"name":"b","type":"categorical","values":["p","q","r"]}]"#;
    assert_eq!(run(&mut study(names, 1), 9, 1, |x| Some((x[0] - 2.0).abs() + x[1])), 0.0);
    let space: Space = serde_json::from_str(names).unwrap();
    let spec = StudySpec { searcher: SearcherSpec::CmaEs(super::CmaSpec::default()), ..StudySpec::random(space, 1) };
    let error =
        Study::new(StudySpec { objectives: vec![crate::Direction::Minimize; 2], ..spec }).unwrap_err().to_string();
    assert!(error.contains("cma_es") && error.contains("one objective"), "{error}");
}
