//! What the Debugger's hook saves of a training.

use std::path::Path;

use shoal_contract::tensors::{Collections, Event, Index, Location, Records};

use crate::cluster::{Ended, Job, library, start};
use crate::data::Table;

/// Collections that are saved, each with its parameters.
const COLLECTIONS: &str = r#"[
    {"CollectionName": "predictions"}, {"CollectionName": "labels"}, {"CollectionName": "hyperparameters"},
    {"CollectionName": "feature_importance"}, {"CollectionName": "average_shap"}, {"CollectionName": "trees"},
    {"CollectionName": "full_shap", "CollectionParameters": {"save_steps": "4", "start_step": "100"}},
    {"CollectionName": "mine", "CollectionParameters": {"include_regex": "never"}}]"#;

/// Trains on most rows and validates on the others; the tensors are in the directory.
fn train(directory: &Path, tables: (&Table, &Table), hyperparameters: &[(&str, &str)]) -> Ended {
    let tensors = directory.join("tensors");
    let config = format!(
        r#"{{"LocalPath": "{}", "HookParameters": {{"save_interval": "2"}}, "CollectionConfigurations": {COLLECTIONS}}}"#,
        tensors.display()
    );
    let file = directory.join("debughookconfig.json");
    std::fs::write(&file, config).unwrap();
    let (train, validation) = (tables.0.csv(), tables.1.csv());
    let hosts = vec![vec![("train", vec![("1", train.as_str())]), ("validation", vec![("1", validation.as_str())])]];
    let job = Job { hyperparameters, content_type: Some("csv"), hosts };
    start(&job, &[("SMDEBUG_CONFIG_FILE_PATH", file.to_str().unwrap())]).wait().remove(0)
}

/// Name, shape and values of the tensors of a step; texts have none.
fn saved(directory: &Path, step: u64) -> Vec<(String, Vec<u64>, Vec<f64>)> {
    let tensors = directory.join("tensors");
    let worker = || "worker_0".to_owned();
    let read = |location: Location| std::fs::read(tensors.join(location.path())).unwrap();
    let index = Index::parse(&read(Location::Index { step, worker: worker() })).unwrap();
    let events = read(Location::Events { step, worker: worker() });
    let mut found = Vec::new();
    for record in Records::new(&events) {
        let event = Event::parse(record.unwrap()).unwrap().unwrap();
        assert_eq!(event.step, step);
        found.push((
            event.tensor.name.to_string(),
            event.tensor.shape.clone(),
            event.tensor.values().unwrap_or_default(),
        ));
    }
    assert!(index.tensors.iter().map(|it| &it.name).eq(found.iter().map(|it| &it.0)));
    found
}

fn value<'a>(saved: &'a [(String, Vec<u64>, Vec<f64>)], name: &str) -> &'a (String, Vec<u64>, Vec<f64>) {
    saved.iter().find(|it| it.0 == name).unwrap_or_else(|| {
        panic!("no {name} among {:?}", saved.iter().map(|it| &it.0).collect::<Vec<_>>());
    })
}

#[test]
fn a_training_saves_what_the_image_saves_and_is_the_same_training() {
    let (Some(_), Some(titanic)) = (library(), Table::titanic()) else { return };
    let parts = titanic.parts(&[80, 20]);
    let hyperparameters =
        [("num_round", "5"), ("objective", "binary:logistic"), ("eval_metric", "logloss,auc"), ("max_depth", "3")];
    let directory = tempfile::tempdir().unwrap();
    let ended = train(directory.path(), (&parts[0], &parts[1]), &hyperparameters);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let steps = Vec::from_iter((0..5).filter(|step| {
        let index = Location::Index { step: *step, worker: "worker_0".to_owned() };
        directory.path().join("tensors").join(index.path()).exists()
    }));
    assert_eq!(steps, [0, 2, 4]);
    assert!(ended.stdout.contains("No tensor has a name that never (collection mine) fits"), "{ended:?}");
    let last = saved(directory.path(), 4);
    // The log has five places of it.
    let line = ended.metrics()[4];
    let logloss = value(&last, "validation-logloss").2[0];
    assert!(line.contains(&format!("validation-logloss:{logloss:.5}")), "{line} {logloss}");
    let rows = parts[1].csv().lines().count() as u64;
    let (_, shape, predictions) = value(&last, "predictions");
    assert_eq!(*shape, [rows]);
    let labels = &value(&last, "labels").2;
    let loss = |(prediction, label): (&f64, &f64)| -(if *label == 1.0 { *prediction } else { 1.0 - prediction }).ln();
    let mean = predictions.iter().zip(labels).map(loss).sum::<f64>() / rows as f64;
    assert!((mean - logloss).abs() < 1e-5, "{mean} {logloss}");
    assert_eq!(value(&last, "hyperparameters/max_depth").2, [3.0]);
    let gains = last.iter().filter(|it| it.0.starts_with("feature_importance/gain/"));
    assert!((gains.map(|it| it.2[0]).sum::<f64>() - 1.0).abs() < 1e-6);
    let nodes = &value(&last, "trees/Node").2;
    assert!(nodes.len() >= 3 && nodes.iter().all(|node| *node < 15.0), "{nodes:?}");
    assert_eq!(value(&last, "trees/Tree").2, vec![4.0; nodes.len()]);
    let trained = parts[0].csv().lines().count() as u64;
    let (_, shape, bias) = value(&last, "full_shap/bias");
    assert_eq!(*shape, [trained]);
    let average = value(&last, "average_shap/bias").2[0];
    assert!((bias.iter().sum::<f64>() / trained as f64 - average).abs() < 1e-6);
    assert!(saved(directory.path(), 2).iter().all(|it| !it.0.starts_with("full_shap/")));
    let collections = Location::Collections { worker: "worker_0".to_owned() };
    let bytes = std::fs::read(directory.path().join("tensors").join(collections.path())).unwrap();
    let losses = &Collections::parse(&bytes).unwrap().collections["losses"];
    assert!(losses.tensor_names.is_empty(), "it is not saved by itself");
    // What is saved changes nothing of the training.
    let without = tempfile::tempdir().unwrap();
    let (train, validation) = (parts[0].csv(), parts[1].csv());
    let hosts = vec![vec![("train", vec![("1", train.as_str())]), ("validation", vec![("1", validation.as_str())])]];
    let plain = Job { hyperparameters: &hyperparameters, content_type: Some("csv"), hosts };
    let plain = start(&plain, &[("TMPDIR", without.path().to_str().unwrap())]).wait().remove(0);
    assert_eq!(plain.metrics(), ended.metrics());
    assert_eq!(plain.model.unwrap().0, ended.model.unwrap().0);
}

#[test]
fn a_linear_model_saves_what_it_has() {
    let (Some(_), Some(titanic)) = (library(), Table::titanic()) else { return };
    let parts = titanic.parts(&[80, 20]);
    let directory = tempfile::tempdir().unwrap();
    let hyperparameters = [("num_round", "3"), ("objective", "binary:logistic"), ("booster", "gblinear")];
    let ended = train(directory.path(), (&parts[0], &parts[1]), &hyperparameters);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(ended.stdout.contains("Debugger does not save trees: "), "{ended:?}");
    let last = saved(directory.path(), 2);
    assert!(last.iter().any(|it| it.0.starts_with("feature_importance/weight/")), "{ended:?}");
}
