//! Random draws follow the scales: Kolmogorov and Smirnov's test for continuous parameters,
//! chi-square for integers and choices. Seeds are fixed, so a test that passes passes always; the
//! limits are those of one false alarm in a thousand.

use shoal_tuner::{Ask, Space, Study, StudySpec};

const DRAWS: usize = 4000;

/// Values of each parameter over many trials of random search.
fn drawn(json: &str) -> (Space, Vec<Vec<f64>>) {
    let space: Space = serde_json::from_str(json).unwrap();
    let mut study = Study::new(StudySpec::random(space.clone(), 20)).unwrap();
    let mut values = vec![Vec::new(); space.parameters().len()];
    for _ in 0..DRAWS {
        let Ask::Start(start) = study.ask() else { panic!("random search ends") };
        for (list, value) in values.iter_mut().zip(&start.config.0) {
            list.extend(value.map(shoal_tuner::Value::number));
        }
    }
    (space, values)
}

/// The greatest distance between the draws' distribution and `cumulative`, times the root of their
/// number.
fn kolmogorov(mut values: Vec<f64>, cumulative: impl Fn(f64) -> f64) -> f64 {
    values.sort_by(f64::total_cmp);
    let n = values.len() as f64;
    let distance = |(place, value): (usize, &f64)| {
        let expected = cumulative(*value);
        (expected - place as f64 / n).abs().max((expected - (place + 1) as f64 / n).abs())
    };
    values.iter().enumerate().map(distance).fold(0.0, f64::max) * n.sqrt()
}

#[test]
fn continuous_draws_are_uniform_on_their_scale() {
    let (_, values) = drawn(
        r#"[{"name":"linear","type":"continuous","min":-3,"max":5},{"name":"log","type":"continuous","min":1e-8,"max":100,"scaling":"Logarithmic"},
        {"name":"reverse","type":"continuous","min":0,"max":0.9999,"scaling":"ReverseLogarithmic"},
        {"name":"auto","type":"continuous","min":1e-4,"max":1,"scaling":"Auto"}]"#,
    );
    let cumulative: [fn(f64) -> f64; 4] = [
        |x| (x + 3.0) / 8.0,
        |x| (x.log10() + 8.0) / 10.0,
        |x| (1.0 - x).ln() / 0.0001_f64.ln(),
        |x| (x.log10() + 4.0) / 4.0,
    ];
    for (parameter, (values, cumulative)) in values.into_iter().zip(cumulative).enumerate() {
        let statistic = kolmogorov(values, cumulative);
        assert!(statistic < 1.95, "parameter {parameter}: {statistic}");
    }
}

fn chi_square(values: &[f64], expected: &[(f64, f64)]) -> f64 {
    let squares = expected.iter().map(|(value, share)| {
        let (seen, expected) = (values.iter().filter(|it| *it == value).count() as f64, share * values.len() as f64);
        (seen - expected).powi(2) / expected
    });
    squares.sum()
}

#[test]
fn integers_and_choices_have_their_share() {
    let (_, values) = drawn(
        r#"[{"name":"linear","type":"integer","min":-2,"max":4},{"name":"log","type":"integer","min":1,"max":8,"scaling":"Logarithmic"},
        {"name":"choice","type":"categorical","values":["a","b","c","d","e"]},{"name":"x","type":"continuous","min":0,"max":1}]"#,
    );
    let even = |from: i32, to: i32| {
        (from..=to).map(|value| (f64::from(value), 1.0 / f64::from(to - from + 1))).collect::<Vec<_>>()
    };
    // Each integer's part of the logarithm goes from half below to half above.
    let width = (8.5_f64 / 0.5).ln();
    let log: Vec<_> = (1..=8)
        .map(|value| (f64::from(value), ((f64::from(value) + 0.5) / (f64::from(value) - 0.5)).ln() / width))
        .collect();
    // 99.9 % quantiles of chi-square with 6, 7 and 4 degrees of freedom.
    for (parameter, (expected, limit)) in
        [(even(-2, 4), 22.46), (log, 24.32), (even(0, 4), 18.47)].into_iter().enumerate()
    {
        let statistic = chi_square(&values[parameter], &expected);
        assert!(statistic < limit, "parameter {parameter}: {statistic}");
    }
}

#[test]
fn thirty_parameters_do_not_depend_on_each_other() {
    let parameters: Vec<String> =
        (0..30).map(|it| format!(r#"{{"name":"p{it}","type":"continuous","min":0,"max":1}}"#)).collect();
    let (_, values) = drawn(&format!("[{}]", parameters.join(",")));
    for one in 0..30 {
        for other in 0..one {
            let product = |(x, y): (&f64, &f64)| (x - 0.5) * (y - 0.5) * 12.0;
            let correlation = values[one].iter().zip(&values[other]).map(product).sum::<f64>() / DRAWS as f64;
            assert!(correlation.abs() < 4.5 / (DRAWS as f64).sqrt(), "p{one} and p{other}: {correlation}");
        }
    }
}
