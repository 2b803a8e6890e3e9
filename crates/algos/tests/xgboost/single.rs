//! One host.

use crate::cluster::{Job, data_file, library, start};

/// The white wines: quality first, then the features; shuffled by a fixed rule into train and validation.
fn wine(test: &str) -> Option<(String, String)> {
    let text = data_file(test, "wine/winequality-white.csv")?;
    let (mut train, mut validation) = (String::new(), String::new());
    for (number, line) in text.lines().skip(1).enumerate() {
        let (features, quality) = line.rsplit_once(';').unwrap();
        let target = if number * 7919 % 10 < 8 { &mut train } else { &mut validation };
        target.push_str(&format!("{quality},{}\n", features.replace(';', ",")));
    }
    Some((train, validation))
}

#[test]
fn a_csv_job_prints_metrics_and_writes_a_model() {
    let test = "a_csv_job_prints_metrics_and_writes_a_model";
    let (Some(_), Some((train, validation))) = (library(test), wine(test)) else { return };
    let job = Job {
        hyperparameters: &[("num_round", "10"), ("objective", "reg:squarederror"), ("eval_metric", "rmse,mae,r2")],
        content_type: Some("text/csv"),
        hosts: vec![vec![("train", vec![("1.csv", &train)]), ("validation", vec![("1.csv", &validation)])]],
    };
    let ended = start(test, &job, &[]).wait().remove(0);
    println!("{}", ended.stdout);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert_eq!(ended.metrics().len(), 10);
    assert!(ended.model.is_some());
}
