//! One host.

use crate::cluster::{Job, library, start};
use crate::data::Table;

#[test]
fn a_csv_job_prints_metrics_and_writes_a_model() {
    let test = "a_csv_job_prints_metrics_and_writes_a_model";
    let (Some(_), Some(wine)) = (library(test), Table::wine(test)) else { return };
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
    let ended = start(test, &job, &[]).wait().remove(0);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let metrics = ended.metrics();
    assert_eq!(metrics.len(), 10, "{ended:?}");
    assert!(metrics[0].starts_with("[0]\ttrain-rmse:0.78299"), "{metrics:?}");
    assert!(metrics[9].contains("\tvalidation-r2:0.3"), "{metrics:?}");
    assert!(
        ended.stdout.contains("reg:linear is now named reg:squarederror") && ended.stdout.contains("predictor was removed"),
        "{ended:?}"
    );
    let model = ended.model.unwrap();
    let predictions = model.predict(&parts[1].features());
    assert_eq!(predictions.len(), parts[1].csv().lines().count());
    assert!(predictions.iter().all(|quality| (3.0..9.5).contains(quality)), "{predictions:?}");
}
