//! One host.

use std::time::{Duration, Instant};

use crate::cluster::{Ended, Job, library, start};
use crate::data::Table;
use crate::together::same;

/// Trains on one host with 80 % of the rows and validates on the rest.
fn train(
    hyperparameters: &[(&str, &str)],
    content_type: Option<&str>,
    text: impl Fn(&Table) -> String,
    table: &Table,
) -> Ended {
    let parts = table.parts(&[80, 20]);
    let (train, validation) = (text(&parts[0]), text(&parts[1]));
    let hosts = vec![vec![("train", vec![("1", train.as_str())]), ("validation", vec![("1", validation.as_str())])]];
    start(&Job { hyperparameters, content_type, hosts }, &[]).wait().remove(0)
}

/// The value of a metric in a line.
fn value(line: &str, metric: &str) -> f64 {
    let item = line.split('\t').find_map(|item| item.strip_prefix(metric)?.strip_prefix(':'));
    item.unwrap_or_else(|| panic!("no {metric} in {line}")).parse().unwrap()
}

#[test]
fn a_csv_job_prints_metrics_and_writes_a_model() {
    let (Some(_), Some(wine)) = (library(), Table::wine()) else { return };
    let parts = wine.parts(&[80, 20]);
    let (train, validation) = (parts[0].csv(), parts[1].csv());
    let job = Job {
        hyperparameters: &[
            ("num_round", "10"),
            ("objective", "reg:linear"),
            ("eval_metric", "rmse,mae,r2"),
            ("predictor", "cpu_predictor"),
        ],
        content_type: Some("text/csv; label_size=1"),
        hosts: vec![vec![("train", vec![("1.csv", &train)]), ("validation", vec![("1.csv", &validation)])]],
    };
    let ended = start(&job, &[]).wait().remove(0);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let metrics = ended.metrics();
    assert_eq!(metrics.len(), 10, "{ended:?}");
    assert!(metrics[0].starts_with("[0]\ttrain-rmse:0.78299"), "{metrics:?}");
    assert!(metrics[9].contains("\tvalidation-r2:0.3"), "{metrics:?}");
    assert!(
        ended.stdout.contains("reg:linear is now named reg:squarederror")
            && ended.stdout.contains("predictor was removed"),
        "{ended:?}"
    );
    let model = ended.model.unwrap();
    let predictions = model.predict(&parts[1].features());
    assert_eq!(predictions.len(), parts[1].csv().lines().count());
    assert!(predictions.iter().all(|quality| (3.0..9.5).contains(quality)), "{predictions:?}");
}

#[test]
fn csv_and_libsvm_of_the_same_rows_give_the_same_model() {
    let (Some(_), Some(wine)) = (library(), Table::wine()) else { return };
    for tree_method in ["hist", "exact"] {
        let parameters = [("num_round", "5"), ("max_bin", "1024"), ("tree_method", tree_method)];
        let csv = train(&parameters, Some("csv"), Table::csv, &wine);
        // libsvm is the default.
        let libsvm = train(&parameters, None, Table::libsvm, &wine);
        assert_eq!(csv.metrics().len(), 5, "{csv:?}");
        // A zero is absent in libsvm and a value in csv; only a few wines have one.
        let last = |ended: &Ended| value(ended.metrics()[4], "validation-rmse");
        assert!((last(&csv) - last(&libsvm)).abs() < 0.01, "{csv:?}\n{libsvm:?}");
    }
}

#[test]
fn early_stopping_keeps_the_best_round() {
    let (Some(_), Some(titanic)) = (library(), Table::titanic()) else { return };
    let objective = ("objective", "binary:logistic");
    for (metric, maximize) in [("logloss", false), ("auc", true), ("f1", true)] {
        let parameters = [
            objective,
            ("num_round", "200"),
            ("eval_metric", &format!("error,{metric}")),
            ("early_stopping_rounds", "4"),
        ];
        let ended = train(&parameters, Some("text/csv"), Table::csv, &titanic);
        let values: Vec<f64> =
            ended.metrics().iter().map(|line| value(line, &format!("validation-{metric}"))).collect();
        let better = |left: f64, right: f64| if maximize { left > right } else { left < right };
        let best =
            (0..values.len()).fold(0, |best, round| if better(values[round], values[best]) { round } else { best });
        assert!(values.len() < 200, "{metric} never stopped");
        // Printed values are rounded, so the best of them may be one of several.
        assert!((values[values.len() - 5] - values[best]).abs() < 1e-4, "{metric}: {values:?}");
        let best = values.len() - 5;
        let rounds = (best + 1).to_string();
        let shorter = train(&[objective, ("num_round", &rounds)], Some("text/csv"), Table::csv, &titanic);
        same(&ended.model.unwrap().predict(&titanic.features()), &shorter.model.unwrap().predict(&titanic.features()));
    }
}

#[test]
fn the_users_mistakes_are_in_the_failure_file() {
    if library().is_none() {
        return;
    }
    let good = "1,2\n0,3\n";
    // Hyperparameters, content type, channel and its file, and what the failure file says.
    type Case<'a> = (&'a [(&'a str, &'a str)], &'a str, &'a str, &'a str, &'a str);
    let cases: [Case<'_>; 13] = [
        (
            &[("max_dept", "3"), ("num_round", "1")],
            "csv",
            "train",
            good,
            "ClientError: Extraneous hyperparameter found: max_dept",
        ),
        (&[], "csv", "train", good, "ClientError: Missing required hyperparameter: num_round"),
        (&[("num_round", "1")], "image/png", "train", good, "ClientError: image/png is not an accepted ContentType"),
        (&[("num_round", "1")], "text/csv;label_size=2", "train", good, "label_size must be equal to 1"),
        (
            &[("num_round", "1")],
            "parquet",
            "train",
            good,
            "ClientError: this XGBoost reads csv and libsvm, not parquet",
        ),
        (&[("num_round", "1")], "csv", "test", good, "ClientError: Missing required channel: train"),
        (&[("num_round", "1")], "csv", "train", "", "ClientError: No data in training channel path "),
        (
            &[("num_round", "1")],
            "csv",
            "train",
            "1,2\n1,x\n",
            "ClientError: train/f, line 2, column 2: \"x\" is not a number",
        ),
        (
            &[("num_round", "1")],
            "libsvm",
            "train",
            good,
            "ClientError: train/f, line 1, column 1: the label \"1,2\" is not a finite number",
        ),
        (
            &[("num_round", "1"), ("objective", "binary:logistic")],
            "csv",
            "train",
            "1,2\n7,3\n",
            "ClientError: label must be in [0,1] for logistic regression; row 2 of the train channel has label 7",
        ),
        (
            &[("num_round", "1"), ("sagemaker_program", "train.py")],
            "csv",
            "train",
            good,
            "ClientError: the XGBoost image's script mode",
        ),
        (
            &[("num_round", "1"), ("objective", "multi:softmax"), ("num_class", "2")],
            "csv",
            "train",
            "1,2\n2,3\n",
            "ClientError: label must be in [0, num_class), and num_class is 2; row 2",
        ),
        (
            &[("num_round", "1"), ("updater", "distcol")],
            "csv",
            "train",
            good,
            "ClientError: updater distcol was removed",
        ),
    ];
    for (hyperparameters, content_type, channel, text, expected) in cases {
        let job =
            Job { hyperparameters, content_type: Some(content_type), hosts: vec![vec![(channel, vec![("f", text)])]] };
        let ended = start(&job, &[]).wait().remove(0);
        assert_eq!(ended.code, Some(1), "{ended:?}");
        let failure = ended.failure.as_deref().unwrap_or_default();
        assert!(
            failure.contains(expected) && !failure.contains("Stack trace"),
            "expected {expected:?}, got {failure:?}"
        );
    }
}

#[test]
fn a_missing_library_is_told_with_the_remedy() {
    let job = Job {
        hyperparameters: &[("num_round", "1")],
        content_type: Some("csv"),
        hosts: vec![vec![("train", vec![("f", "1,2\n")])]],
    };
    let empty = tempfile::tempdir().unwrap();
    let file = empty.path().join("libxgboost.so");
    std::fs::write(&file, "not a library").unwrap();
    let (empty, file) = (empty.path().to_str().unwrap(), file.to_str().unwrap());
    for environment in [
        [("SHOAL_CACHE", empty), ("XGB_LIB", "")],
        [("XGB_LIB", "/nowhere/libxgboost.so"), ("A", "")],
        [("XGB_LIB", file), ("A", "")],
    ] {
        let failure = start(&job, &environment).wait().remove(0).failure.unwrap();
        assert!(failure.contains("shoal setup") && failure.contains("XGB_LIB"), "{failure}");
    }
}

#[test]
fn a_stop_request_keeps_the_model_of_the_finished_rounds() {
    let (Some(_), Some(wine)) = (library(), Table::wine()) else { return };
    let text = wine.csv();
    // An end with code 0 is what the hyperparameter asks for; without it nobody takes a stopped
    // training for a complete one.
    for (keep, code) in [("true", 0), ("false", 143)] {
        let job = Job {
            hyperparameters: &[("num_round", "1000000"), ("save_model_on_termination", keep)],
            content_type: Some("csv"),
            hosts: vec![vec![("train", vec![("f", &text)])]],
        };
        let mut cluster = start(&job, &[]);
        let instance = &mut cluster.instances[0];
        let began = Instant::now();
        while !instance.stdout().contains("[5]\t") {
            assert!(began.elapsed() < Duration::from_secs(240), "{}", instance.stdout());
            std::thread::sleep(Duration::from_millis(5));
        }
        instance.signal("-TERM");
        let ended = instance.wait();
        assert_eq!((ended.code, &ended.failure), (Some(code), &None), "{ended:?}");
        assert!(ended.stdout.contains("Stopped on request after"), "{ended:?}");
        assert_eq!(ended.model.unwrap().predict(&wine.features()).len(), text.lines().count());
        let files: Vec<_> =
            std::fs::read_dir(instance.base.join("model")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(files, ["xgboost-model"]);
    }
}

#[test]
fn cross_validation_writes_a_model_per_fold_and_predictions() {
    let (Some(_), Some(titanic)) = (library(), Table::titanic()) else { return };
    let text = titanic.csv();
    let parameters = [
        ("num_round", "6"),
        ("objective", "binary:logistic"),
        ("eval_metric", "auc,accuracy"),
        ("_kfold", "4"),
        ("_num_cv_round", "2"),
        ("max_depth", "3"),
    ];
    let job = Job {
        hyperparameters: &parameters,
        content_type: Some("csv"),
        hosts: vec![vec![("train", vec![("f", &text)])]],
    };
    let mut cluster = start(&job, &[]);
    let base = cluster.instances[0].base.clone();
    let ended = cluster.instances[0].wait();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let of_folds: Vec<&str> = ended.metrics().into_iter().filter(|line| line.starts_with("[6]")).collect();
    assert_eq!(of_folds.len(), 3, "two rounds and their mean: {ended:?}");
    for fold in 0..8 {
        assert!(base.join(format!("model/xgboost-model-{fold}")).is_file());
    }
    // Two thirds of the passengers and more are told right by models that have not seen them.
    let predictions = std::fs::read_to_string(base.join("output/data/predictions.csv")).unwrap();
    let rows: Vec<Vec<f64>> =
        predictions.lines().map(|line| line.split(',').map(|value| value.parse().unwrap()).collect()).collect();
    assert_eq!(rows.len(), text.lines().count());
    let right = rows.iter().filter(|row| row[0] == row[2]).count();
    assert!(right * 3 > rows.len() * 2, "{right} of {}", rows.len());
    assert!(rows.iter().all(|row| row.len() == 3 && (0.0..=1.0).contains(&row[1])));
}
