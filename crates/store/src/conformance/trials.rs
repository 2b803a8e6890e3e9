//! Rows of tuning jobs' trials and of their tuners' records.

use super::Reopen;
use crate::{
    Batch, Journal, RecordRow, ResourceKind, ResourceProgress, ResourceRow, RowChange, Rows, SortOrder, StoreError,
    TrialFilter, TrialProgress, TrialRow, TrialSort,
};

fn change(journal: &mut dyn Journal, rows: Vec<RowChange>) {
    journal.append(&Batch { events: Vec::new(), rows }).expect("append");
}

pub(super) fn trials_are_listed_with_their_jobs(reopen: &Reopen) {
    let (mut journal, rows) = reopen();
    // Training job, created, status, value.
    let trials = [
        ("t-1", 10, "Completed", Some(0.5)),
        ("t-2", 10, "Failed", None),
        ("t-3", 20, "Completed", Some(-1e-300)),
        ("t-4", 15, "Stopped", Some(0.1 + 0.2)),
        ("t-5", 30, "InProgress", Some(0.5)),
    ];
    let trial = |tuning: &str, (job, created_ms, status, value): (&str, u64, &str, Option<f64>)| TrialRow {
        tuning: tuning.to_owned(),
        job: job.to_owned(),
        created_ms,
        status: status.to_owned(),
        value,
        tuned: b"{\"eta\":\"0.1\"}".to_vec(),
        view: job.as_bytes().to_vec(),
    };
    let kind = ResourceKind::TRAINING_JOB;
    let job = |name: &str| {
        RowChange::Put(Box::new(ResourceRow { uid: format!("of {name}"), ..ResourceRow::new(kind, name) }))
    };
    let mut changes: Vec<_> = trials.iter().map(|it| job(it.0)).collect();
    changes.extend(trials.map(|it| RowChange::PutTrial(Box::new(trial("t", it)))));
    changes.extend([job("u-1"), RowChange::PutTrial(Box::new(trial("u", ("u-1", 10, "Completed", Some(0.0)))))]);
    change(&mut *journal, changes);
    drop((journal, rows));

    let (mut journal, rows) = reopen();
    assert_eq!(rows.trial("t-4").expect("trial"), Some(trial("t", trials[3])));
    assert_eq!(rows.trial("t").expect("trial"), None);
    let base = TrialFilter { tuning: "t".to_owned(), ..TrialFilter::default() };
    let descending = TrialFilter { order: SortOrder::Descending, ..base.clone() };
    let completed = TrialFilter { status: Some("Completed".to_owned()), ..base.clone() };
    for (filter, expected) in [
        (base.clone(), "1 2 3 4 5"),
        (descending.clone(), "5 4 3 2 1"),
        (TrialFilter { sort: TrialSort::CreationTime, ..base.clone() }, "1 2 4 3 5"),
        (TrialFilter { sort: TrialSort::CreationTime, ..descending.clone() }, "5 3 4 2 1"),
        (TrialFilter { sort: TrialSort::Status, ..base.clone() }, "1 3 2 5 4"),
        (TrialFilter { sort: TrialSort::Value, ..base.clone() }, "3 4 1 5"),
        (TrialFilter { sort: TrialSort::Value, ..descending }, "5 1 4 3"),
        (completed.clone(), "1 3"),
        (TrialFilter { sort: TrialSort::Value, ..completed }, "3 1"),
        (TrialFilter { tuning: "nobody".to_owned(), ..base.clone() }, ""),
    ] {
        for limit in 1..=6 {
            let mut filter = TrialFilter { limit, ..filter.clone() };
            let mut names = Vec::new();
            loop {
                let page = rows.list_trials(&filter).expect("list");
                assert!(page.rows.len() <= limit);
                for (trial, job) in page.rows {
                    assert_eq!((trial.job.as_bytes(), &job.uid), (trial.view.as_slice(), &format!("of {}", trial.job)));
                    names.push(trial.job.trim_start_matches("t-").to_owned());
                }
                let Some(next) = page.next else { break };
                filter.after = Some(next.to_string().parse().expect("a cursor's text form is a cursor"));
            }
            assert_eq!(names.join(" "), expected, "{filter:?}");
        }
    }
    let bad =
        TrialFilter { sort: TrialSort::Value, after: Some("x/t-1".parse().expect("has a slash")), ..base.clone() };
    assert!(matches!(rows.list_trials(&bad), Err(StoreError::BadCursor(_))));

    // The status is the training job's, the rest the trial's own.
    let ended = |kind: ResourceKind, name: &str| {
        let (name, status, keys, view) = (name.to_owned(), "Stopped".to_owned(), [None, None], Vec::new());
        RowChange::Move(Box::new(ResourceProgress {
            kind,
            name,
            modified_ms: 9,
            ended_ms: Some(9),
            status,
            ended: true,
            keys,
            view,
        }))
    };
    let valued = |job: &str| TrialProgress { job: job.to_owned(), value: Some(2.0), view: b"{}".to_vec() };
    change(
        &mut *journal,
        vec![
            ended(kind, "t-5"),
            ended(ResourceKind::TUNING_JOB, "t-2"),
            RowChange::MoveTrial(Box::new(valued("t-5"))),
            RowChange::MoveTrial(Box::new(valued("no-such"))),
            RowChange::Delete(kind, "t-1".to_owned()),
        ],
    );
    let stopped = TrialFilter { sort: TrialSort::Value, status: Some("Stopped".to_owned()), ..base.clone() };
    let values: Vec<_> = rows.list_trials(&stopped).expect("list").rows.into_iter().map(|(row, _)| row.value).collect();
    assert_eq!(values, [Some(0.1 + 0.2), Some(2.0)]);
    assert_eq!(rows.list_trials(&base).expect("list").rows.len(), 4, "without the deleted job");
    change(&mut *journal, vec![RowChange::Delete(ResourceKind::TUNING_JOB, "t".to_owned())]);
    assert_eq!(rows.list_trials(&base).expect("list").rows, []);
    assert!(rows.resource(kind, "t-2").expect("job").is_some(), "training jobs outlive their tuning job");
    assert!(rows.trial("u-1").expect("trial").is_some());
}

pub(super) fn records_are_read_in_order(reopen: &Reopen) {
    let (mut journal, rows) = reopen();
    let record =
        |tuning: &str, seq: u64, bytes: &[u8]| RecordRow { tuning: tuning.to_owned(), seq, bytes: bytes.to_vec() };
    let put = [
        record("t", 2, b"two"),
        record("t", 1, b"\0\xff"),
        record("u", 1, b"other"),
        record("t", 10, b""),
        record("t", 2, b"2"),
    ];
    change(&mut *journal, put.map(RowChange::PutRecord).to_vec());
    drop((journal, rows));

    let (mut journal, rows) = reopen();
    let read = |rows: &dyn Rows, tuning: &str, after: u64| {
        let mut records = Vec::new();
        let mut collect = |seq: u64, bytes: &[u8]| {
            records.push((seq, bytes.to_vec()));
            Ok(())
        };
        rows.records(tuning, after, &mut collect).expect("records");
        records
    };
    assert_eq!(read(&*rows, "t", 0), [(1, b"\0\xff".to_vec()), (2, b"2".to_vec()), (10, Vec::new())]);
    assert_eq!(read(&*rows, "t", 2), [(10, Vec::new())]);
    let stop = rows.records("t", 0, &mut |_, _| Err(StoreError::BadCursor("stop".to_owned())));
    assert!(stop.is_err());
    change(&mut *journal, vec![RowChange::Delete(ResourceKind::TUNING_JOB, "t".to_owned())]);
    assert_eq!(read(&*rows, "t", 0), []);
    assert_eq!(read(&*rows, "u", 0), [(1, b"other".to_vec())]);
}
