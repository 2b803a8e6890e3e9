//! XGBoost's own Python package and scikit-learn as the judge of our model files and metrics.

use std::path::{Path, PathBuf};
use std::process::Command;

use shoal_algos::xgboost::LIBRARY;

use crate::cluster::{Job, library, start};
use crate::data::Table;
use crate::together::same;

/// Loads the model by its name as people do, and prints its predictions and its metrics on labelled
/// rows.
const PEER: &str = r#"
import sys
import numpy as np
import sklearn.metrics as sk
import xgboost as xgb

directory, rows, metrics = sys.argv[1:]
data = np.genfromtxt(rows, delimiter=",")
label, features = data[:, 0].astype(np.float32), data[:, 1:].astype(np.float32)
matrix = xgb.DMatrix(features, label=label)
booster = xgb.Booster()
booster.load_model(directory + "/xgboost-model")
predictions = booster.predict(matrix)
print(" ".join(repr(float(value)) for value in predictions.reshape(-1)))
classes = predictions > 0.5 if predictions.ndim == 1 else predictions.argmax(axis=1)
own = {
    "accuracy": lambda: sk.accuracy_score(label, classes),
    "balanced_accuracy": lambda: sk.balanced_accuracy_score(label, classes),
    "f1": lambda: sk.f1_score(label, classes, average="macro"),
    "f1_binary": lambda: sk.f1_score(label, classes),
    "precision": lambda: sk.precision_score(label, classes),
    "precision_macro": lambda: sk.precision_score(label, classes, average="macro", zero_division=0),
    "precision_micro": lambda: sk.precision_score(label, classes, average="micro"),
    "recall": lambda: sk.recall_score(label, classes),
    "recall_macro": lambda: sk.recall_score(label, classes, average="macro", zero_division=0),
    "recall_micro": lambda: sk.recall_score(label, classes, average="micro"),
    "r2": lambda: sk.r2_score(label, predictions),
    "mse": lambda: sk.mean_squared_error(label, predictions),
    "mae": lambda: sk.mean_absolute_error(label, predictions),
    "rmse": lambda: sk.mean_squared_error(label, predictions) ** 0.5,
}
line = ""
for metric in metrics.split(","):
    if metric in own:
        value = own[metric]()
    else:
        booster.set_param({"eval_metric": metric})
        value = float(booster.eval_set([(matrix, "validation")]).split(":")[-1])
        booster = xgb.Booster()
        booster.load_model(directory + "/xgboost-model")
    line += f"\tvalidation-{metric}:{value:.5f}"
print(line)
"#;

/// A Python with XGBoost and scikit-learn, made once; `None` after telling why the test is skipped.
fn python() -> Option<PathBuf> {
    static PYTHON: std::sync::OnceLock<Result<PathBuf, String>> = std::sync::OnceLock::new();
    let found = PYTHON.get_or_init(|| {
        let home = std::env::var_os("HOME").ok_or("HOME is not set")?;
        let environment = PathBuf::from(home).join(".cache/shoal/venv-xgb");
        let python = environment.join("bin/python");
        let run = |command: &mut Command| match command.output() {
            Ok(output) if output.status.success() => Ok(()),
            Ok(output) => Err(String::from_utf8_lossy(&output.stderr).lines().last().unwrap_or("it failed").to_owned()),
            Err(error) => Err(error.to_string()),
        };
        if !python.exists() {
            // The library's own version needs Python 3.12.
            let newest = ["python3.14", "python3.13", "python3.12"]
                .into_iter()
                .find(|name| run(Command::new(name).arg("--version")).is_ok());
            run(Command::new(newest.unwrap_or("python3")).args(["-m", "venv"]).arg(&environment))?;
        }
        if run(Command::new(&python).args(["-c", "import xgboost, sklearn"])).is_err() {
            let install = |xgboost: &str| {
                run(Command::new(&python).args([
                    "-m",
                    "pip",
                    "install",
                    "--quiet",
                    xgboost,
                    "numpy",
                    "scipy",
                    "scikit-learn",
                ]))
            };
            install(&format!("xgboost-cpu=={}", LIBRARY.wheel.version)).or_else(|_| install("xgboost-cpu>=3"))?;
        }
        Ok(python)
    });
    match found {
        Ok(python) => Some(python.clone()),
        Err(reason) => {
            println!("skipped: needs python3 with xgboost-cpu and scikit-learn: {reason}");
            None
        }
    }
}

fn is_of_the_librarys_version(python: &Path) -> bool {
    let output = Command::new(python).args(["-c", "import xgboost; print(xgboost.__version__)"]).output();
    output.is_ok_and(|output| String::from_utf8_lossy(&output.stdout).trim() == LIBRARY.wheel.version)
}

fn check(table: &Table, parameters: &[(&str, &str)], metrics: &str) {
    let (Some(_), Some(python)) = (library(), python()) else { return };
    let parts = table.parts(&[70, 30]);
    let (train, validation) = (parts[0].csv(), parts[1].csv());
    let hyperparameters = [&[("num_round", "9"), ("eval_metric", metrics)], parameters].concat();
    let job = Job {
        hyperparameters: &hyperparameters,
        content_type: Some("text/csv"),
        hosts: vec![vec![("train", vec![("1.csv", &train)]), ("validation", vec![("1.csv", &validation)])]],
    };
    let mut cluster = start(&job, &[]);
    let base = cluster.instances[0].base.clone();
    let ended = cluster.instances[0].wait();
    assert_eq!(ended.code, Some(0), "{ended:?}");

    let output = Command::new(python)
        .args(["-c", PEER])
        .arg(base.join("model"))
        .arg(base.join("input/data/validation/1.csv"))
        .arg(metrics)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    let (predictions, line) = text.split_once('\n').unwrap();
    let theirs: Vec<f32> = predictions.split(' ').map(|value| value.parse().unwrap()).collect();
    same(&ended.model.as_ref().unwrap().predict(&parts[1].features()), &theirs);
    let last = ended.metrics().last().unwrap().to_string();
    assert!(last.ends_with(line.trim_end_matches('\n')), "ours:   {last}\ntheirs: {line}");
}

#[test]
fn python_loads_a_regression_and_agrees() {
    let Some(wine) = Table::wine() else { return };
    check(&wine, &[], "rmsle,mape,mphe,rmse,mae,mse,r2");
    check(&wine, &[("booster", "gblinear")], "mphe,rmse");
    // Models with dropout changed their format in between.
    if python().is_some_and(|python| is_of_the_librarys_version(&python)) {
        check(&wine, &[("booster", "dart"), ("rate_drop", "0.2"), ("seed", "3")], "mphe,rmse");
    } else {
        println!("without booster dart: the Python package is not of version {}", LIBRARY.wheel.version);
    }
    check(&wine, &[("tree_method", "exact")], "mphe,mae");
    check(&wine, &[("tree_method", "approx"), ("sketch_eps", "0.01")], "mphe,mae");
}

#[test]
fn python_loads_a_classification_and_agrees() {
    let Some(titanic) = Table::titanic() else { return };
    let metrics = "logloss,auc,aucpr,error@0.7,accuracy,balanced_accuracy,f1,f1_binary,precision,precision_macro,precision_micro,recall,recall_macro,recall_micro";
    check(&titanic, &[("objective", "binary:logistic"), ("scale_pos_weight", "1.5")], metrics);
}

#[test]
fn python_loads_several_classes_and_agrees() {
    let Some(wine) = Table::wine() else { return };
    let metrics = "mlogloss,merror,accuracy,balanced_accuracy,f1,precision_macro,recall_macro";
    check(&wine, &[("objective", "multi:softprob"), ("num_class", "10")], metrics);
}
