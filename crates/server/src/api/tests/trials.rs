//! Tuning jobs and their trials as clients see them.

use shoal_store::{Batch, CheckpointRow, Journal as _, RowChange, SqliteJournal, TrialRow};
use shoal_wire::CreateTuningJob;

use super::*;

/// Adds rows beside the core.
fn append(server: &Unconnected, rows: Vec<RowChange>) {
    let mut journal = SqliteJournal::open(&server.api.data_dir.journal_path()).unwrap();
    journal.append(&Batch { events: Vec::new(), rows }).unwrap();
}

/// A trial of a tuning job, with its training job.
fn trial(tuning: &str, name: &str, status: &str, value: Option<f64>) -> [RowChange; 2] {
    let ended = status != "InProgress";
    let view = json!({"tuning": tuning, "definition": 0, "trial": 0, "resource": 1, "to": null, "objective": value,
        "paused": false});
    let trial = TrialRow {
        tuning: tuning.to_owned(),
        job: name.to_owned(),
        created_ms: 1000,
        status: status.to_owned(),
        value,
        tuned: br#"[["x", "0.5"]]"#.to_vec(),
        view: view.to_string().into_bytes(),
    };
    let job = ResourceRow { status: status.to_owned(), ..job(name, ended) };
    [RowChange::Put(Box::new(job)), RowChange::PutTrial(Box::new(trial))]
}

/// A tuning job that is over.
fn tuning(name: &str, goal: &str, best: Option<(&str, f64)>, changes: &Value) -> RowChange {
    let config = json!({
        "Strategy": "Random",
        "HyperParameterTuningJobObjective": {"Type": goal, "MetricName": "loss"},
        "ResourceLimits": {"MaxNumberOfTrainingJobs": 9, "MaxParallelTrainingJobs": 3},
        "ParameterRanges": {"ContinuousParameterRanges": [{"Name": "x", "MinValue": "0", "MaxValue": "1"}]},
    });
    let mut all = json!({"HyperParameterTuningJobName": name, "HyperParameterTuningJobConfig": config});
    all.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
    let request = crate::tuning::tests::request("Random", &all);
    let spec = CreateTuningJob::from_raw(serde_json::from_slice(&request).unwrap()).unwrap().to_stored();
    let best = best.map(|(job, value)| json!({"job": job, "definition": 0, "value": value}));
    RowChange::Put(Box::new(ResourceRow {
        uid: "0123456789ab".to_owned(),
        arn: arn::tuning_job(REGION, ACCOUNT, name),
        status: "Completed".to_owned(),
        ended: true,
        request,
        spec,
        tags: b"[]".to_vec(),
        view: tuning_view(best.as_ref()).to_string().into_bytes(),
        ..ResourceRow::new(ResourceKind::TUNING_JOB, name)
    }))
}

fn warm_start(parents: &[&str], kind: &str) -> Value {
    let parents: Value = parents.iter().map(|parent| json!({"HyperParameterTuningJobName": parent})).collect();
    json!({"WarmStartConfig": {"ParentHyperParameterTuningJobs": parents, "WarmStartType": kind}})
}

#[tokio::test]
async fn a_trial_succeeded_if_it_ended_with_a_value() {
    let server = Unconnected::start().await;
    let mut rows = vec![tuning("tune", "Minimize", None, &json!({}))];
    rows.extend(trial("tune", "t-1", "Completed", Some(0.5)));
    rows.extend(trial("tune", "t-2", "Failed", None));
    rows.extend(trial("tune", "t-3", "InProgress", None));
    rows.extend(trial("tune", "t-4", "Stopped", Some(0.2)));
    rows.extend(trial("tune", "t-5", "Completed", None));
    rows.extend(trial("other", "t-6", "Completed", Some(0.1)));
    append(&server, rows);
    let name = "ListTrainingJobsForHyperParameterTuningJob";
    let list = async |changes: Value| {
        let mut input = json!({"HyperParameterTuningJobName": "tune"});
        input.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
        server.pages(name, &input, "TrainingJobSummaries", "NextToken").await.concat()
    };
    let shown = |trial: &Value| {
        let text = |member: &str| trial[member].as_str().unwrap().to_owned();
        let value = &trial["FinalHyperParameterTuningJobObjectiveMetric"]["Value"];
        format!("{} {} {value}", text("TrainingJobName"), text("ObjectiveStatus"))
    };
    let all = list(json!({"SortBy": "Name", "SortOrder": "Ascending", "MaxResults": 2})).await;
    assert_eq!(
        all.iter().map(shown).collect::<Vec<_>>(),
        ["t-1 Succeeded 0.5", "t-2 Failed null", "t-3 Pending null", "t-4 Succeeded 0.2", "t-5 Failed null"]
    );
    assert_eq!(all[0]["TunedHyperParameters"], json!({"x": "0.5"}));
    for order in ["Ascending", "Descending"] {
        let sorted = list(json!({"SortBy": "FinalObjectiveMetricValue", "SortOrder": order, "MaxResults": 1})).await;
        let values = sorted.iter().filter_map(|it| it["FinalHyperParameterTuningJobObjectiveMetric"]["Value"].as_f64());
        let mut expected = [0.2, 0.5];
        if order == "Descending" {
            expected.reverse();
        }
        // Those without a value are not in this order, as at AWS.
        assert_eq!((values.collect::<Vec<_>>(), sorted.len()), (expected.to_vec(), 2), "{order}");
    }
    let stopped = list(json!({"StatusEquals": "Stopped"})).await;
    assert_eq!(stopped.iter().map(shown).collect::<Vec<_>>(), ["t-4 Succeeded 0.2"]);
    let missing = json!({"HyperParameterTuningJobName": "none"});
    assert_eq!(server.code(name, missing).await, ErrorCode::ResourceNotFound);
    let first = server.call(name, json!({"HyperParameterTuningJobName": "tune", "MaxResults": 1})).await.unwrap();
    let other =
        json!({"HyperParameterTuningJobName": "tune", "SortBy": "CreationTime", "NextToken": first["NextToken"]});
    assert_eq!(server.code(name, other).await, ErrorCode::ValidationException);
    server.stop().await;
}

#[tokio::test]
async fn the_overall_best_is_the_best_of_it_and_its_identical_parents() {
    let server = Unconnected::start().await;
    const IDENTICAL: &str = "IdenticalDataAndAlgorithm";
    for (goal, better, worse) in [("Minimize", 0.1, 0.9), ("Maximize", 0.9, 0.1)] {
        let mut rows = Vec::new();
        for (name, value) in [("own-1", 0.5), ("one-1", better), ("two-1", better), ("bad-1", worse), ("even-1", 0.5)] {
            let of = name.split('-').next().unwrap();
            rows.extend(trial(of, name, "Completed", Some(value)));
            let changes = if of == "own" { warm_start(&["one"], IDENTICAL) } else { json!({}) };
            rows.push(tuning(of, goal, Some((name, value)), &changes));
        }
        // Its best training job was deleted.
        rows.push(tuning("lost", goal, Some(("lost-1", better)), &json!({})));
        append(&server, rows);
        for (parents, kind, expected) in [
            (&["one"][..], IDENTICAL, json!("one-1")),
            (&["bad", "two", "one"], IDENTICAL, json!("two-1")),
            (&["bad"], IDENTICAL, json!("own-1")),
            (&["even"], IDENTICAL, json!("own-1")),
            (&["lost", "deleted"], IDENTICAL, json!("own-1")),
            (&["one"], "TransferLearning", Value::Null),
        ] {
            append(&server, vec![tuning("own", goal, Some(("own-1", 0.5)), &warm_start(parents, kind))]);
            let own = json!({"HyperParameterTuningJobName": "own"});
            let shown = server.call("DescribeHyperParameterTuningJob", own).await.unwrap();
            assert_eq!(shown["BestTrainingJob"]["TrainingJobName"], "own-1", "{goal} {parents:?}");
            let overall = &shown["OverallBestTrainingJob"];
            assert_eq!(overall["TrainingJobName"], expected, "{goal} {parents:?} {kind}");
            let tuning = expected.as_str().map_or(Value::Null, |job| json!(job.split('-').next()));
            assert_eq!(overall["TuningJobName"], tuning, "{goal} {parents:?} {kind}");
        }
        let lost = json!({"HyperParameterTuningJobName": "lost"});
        let shown = server.call("DescribeHyperParameterTuningJob", lost).await.unwrap();
        assert_eq!(shown["BestTrainingJob"], Value::Null);
    }
    server.stop().await;
}

#[tokio::test]
async fn a_tuning_job_without_its_metric_shows_the_lines_that_came_near() {
    let server = Unconnected::start().await;
    let view = |reason: Option<&str>, end: &str| -> TuningView {
        let mut view = tuning_view(None);
        (view["failure_reason"], view["end"]) = (json!(reason), json!(end));
        serde_json::from_value(view).unwrap()
    };
    let RowChange::Put(row) = tuning("tune", "Minimize", None, &json!({})) else { panic!("a row") };
    let no_trial = [RowChange::Put(row.clone())];
    append(&server, no_trial.into());
    let reason = |view: &TuningView| near::failure_reason(&server.api.records, &row, view).unwrap();
    let missing = view(Some("No metric loss."), "no_objective");
    assert_eq!(reason(&missing).as_deref(), Some("No metric loss."), "no trial completed");
    append(&server, trial("tune", "t-1", "Completed", None).into());
    let none = "No metric loss. The output of t-1 has no line that looks like a metric.";
    assert_eq!(reason(&missing).as_deref(), Some(none));
    let lines = [(1, "Loss: 0.5".to_owned()), (2, "done".to_owned())];
    let logs = |stream: &str| LogLines { stream: stream.to_owned(), lines: lines.to_vec(), ..LogLines::default() };
    server.telemetry.append_logs(&[logs("t-10/algo-1-1")]).unwrap();
    assert_eq!(reason(&missing).as_deref(), Some(none), "those are another job's lines");
    server.telemetry.append_logs(&[logs("t-1/algo-1-1")]).unwrap();
    let near = "No metric loss. Lines of t-1 that came near: 'Loss: 0.5'.";
    assert_eq!(reason(&missing).as_deref(), Some(near));
    assert_eq!(reason(&view(Some("All failed."), "failures")).as_deref(), Some("All failed."));
    assert_eq!(reason(&view(None, "finished")), None);
    server.stop().await;
}

#[tokio::test]
async fn receipts_of_checkpoints_come_in_pages() {
    let server = Unconnected::start().await;
    server.put_job("a", true).await;
    let receipt = |number: u32| {
        RowChange::PutCheckpoint(CheckpointRow {
            job: "a".to_owned(),
            // A path with the sign that divides a token, and the same path of two hosts.
            path: format!("epoch/{:04}", number / 2),
            host: 1 + number % 2,
            bytes: u64::from(number),
            sha256: String::new(),
            saved_ms: 1,
        })
    };
    append(&server, (0..1001).map(receipt).collect());
    let pages = server.pages("ListCheckpoints", &json!({"TrainingJobName": "a"}), "Checkpoints", "NextToken").await;
    assert_eq!(pages.iter().map(Vec::len).collect::<Vec<_>>(), [1000, 1]);
    let all: std::collections::BTreeSet<String> = pages.concat().iter().map(Value::to_string).collect();
    assert_eq!(all.len(), 1001, "each once");
    server.stop().await;
}

#[tokio::test]
async fn jobs_are_deleted_when_they_are_old_and_trials_with_their_tuning_job() {
    let server = Unconnected::start().await;
    let trial_that_ended = |tuning: &str, name: &str, ended_ms: Option<u64>| {
        let status = if ended_ms.is_some() { "Completed" } else { "InProgress" };
        trial(tuning, name, status, None).map(|change| match change {
            RowChange::Put(row) => {
                RowChange::Put(Box::new(ResourceRow { ended_ms, modified_ms: ended_ms.unwrap_or(9), ..*row }))
            }
            other => other,
        })
    };
    let tuning_that_ended = |name: &str, ended_ms: u64| match tuning(name, "Minimize", None, &json!({})) {
        RowChange::Put(row) => RowChange::Put(Box::new(ResourceRow { ended_ms: Some(ended_ms), ..*row })),
        other => other,
    };
    let mut rows = vec![tuning_that_ended("old", 10), tuning_that_ended("young", 99), tuning_that_ended("runs", 10)];
    rows.extend(trial_that_ended("old", "old-1", Some(5)));
    rows.extend(trial_that_ended("young", "young-1", Some(5)));
    rows.extend(trial_that_ended("runs", "runs-1", Some(5)));
    // A tuning job that was stopped may end before its last trial.
    rows.extend(trial_that_ended("runs", "runs-2", None));
    rows.extend(trial_that_ended("deleted", "orphan", Some(5)));
    for (name, ended_ms) in [("single", 5), ("recent", 50)] {
        let row = ResourceRow { ended_ms: Some(ended_ms), modified_ms: ended_ms, ..job(name, true) };
        rows.push(RowChange::Put(Box::new(row)));
    }
    rows.push(RowChange::Put(Box::new(job("busy", false))));
    append(&server, rows);

    assert_eq!(server.api.delete_ended_before(50).await.unwrap(), 4);

    let names = |list: Vec<Vec<Value>>, key: &str| {
        let mut names = Vec::from_iter(list.concat().iter().map(|row| row[key].as_str().unwrap().to_owned()));
        names.sort();
        names
    };
    let left = server.pages("ListTrainingJobs", &json!({}), "TrainingJobSummaries", "NextToken").await;
    assert_eq!(names(left, "TrainingJobName"), ["busy", "recent", "runs-1", "runs-2", "young-1"]);
    let list = ("ListHyperParameterTuningJobs", "HyperParameterTuningJobSummaries");
    let left = server.pages(list.0, &json!({}), list.1, "NextToken").await;
    assert_eq!(names(left, "HyperParameterTuningJobName"), ["runs", "young"]);
}
