//! What every implementation of [`Journal`] and [`Rows`] must do.

use crate::{Batch, CheckpointRow, JobFilter, JobProgress, JobRow, JobSort, Journal, RowChange, Rows, SortOrder, StoreError};

mod tuning;

/// One storage. Opening it again gives the same contents.
pub type Reopen = Box<dyn Fn() -> (Box<dyn Journal>, Box<dyn Rows>)>;

/// Runs the whole suite; `fresh` makes an empty storage each time.
///
/// # Panics
/// When the implementation does not conform.
pub fn check_journal(fresh: &dyn Fn() -> Reopen) {
    events_are_numbered_and_replayed(&fresh());
    a_snapshot_replaces_its_events(&fresh());
    rows_change_with_their_events(&fresh());
    receipts_are_kept_by_path_and_host_and_go_with_their_job(&fresh());
    a_consumer_can_stop_a_replay(&fresh());
    lists_are_filtered_ordered_and_paged(&fresh());
    tuning::tuning_rows_change_and_go(&fresh());
    tuning::tuning_lists_are_filtered_ordered_and_paged(&fresh());
    tuning::trials_are_listed_with_their_jobs(&fresh());
    tuning::records_are_read_in_order(&fresh());
}

fn replay(journal: &dyn Journal, after: u64) -> Vec<(u64, Vec<u8>)> {
    let mut events = Vec::new();
    let mut collect = |version: u64, bytes: &[u8]| {
        events.push((version, bytes.to_owned()));
        Ok(())
    };
    journal.events_after(after, &mut collect).expect("replay");
    events
}

fn batch(events: &[&[u8]]) -> Batch {
    Batch { events: events.iter().map(|event| event.to_vec()).collect(), rows: Vec::new() }
}

fn events_are_numbered_and_replayed(reopen: &Reopen) {
    let (mut journal, _rows) = reopen();
    assert_eq!(journal.version().expect("version"), 0);
    assert_eq!(journal.append(&batch(&[])).expect("append nothing"), 0);
    assert_eq!(journal.append(&batch(&[b"a", b""])).expect("append"), 2);
    assert_eq!(journal.append(&batch(&[b"\0\xff"])).expect("append"), 3);
    drop(journal);

    let (journal, _rows) = reopen();
    assert_eq!(journal.version().expect("version"), 3);
    let all = vec![(1, b"a".to_vec()), (2, Vec::new()), (3, b"\0\xff".to_vec())];
    assert_eq!(replay(&*journal, 0), all);
    assert_eq!(replay(&*journal, 2), all[2..]);
    assert_eq!(replay(&*journal, 3), []);
}

fn a_snapshot_replaces_its_events(reopen: &Reopen) {
    let (mut journal, _rows) = reopen();
    assert_eq!(journal.snapshot().expect("snapshot"), None);
    journal.append(&batch(&[b"a", b"b", b"c"])).expect("append");
    journal.snapshots().put(2, b"ab").expect("snapshot");
    assert_eq!(journal.snapshot().expect("snapshot"), Some((2, b"ab".to_vec())));
    assert_eq!(replay(&*journal, 0), [(3, b"c".to_vec())]);

    journal.snapshots().put(1, b"a").expect("late snapshot");
    assert_eq!(journal.snapshot().expect("snapshot"), Some((2, b"ab".to_vec())), "an older snapshot must not win");

    journal.snapshots().put(3, b"abc").expect("snapshot");
    drop(journal);
    let (mut journal, _rows) = reopen();
    assert_eq!(journal.version().expect("version"), 3, "the version outlives the events");
    assert_eq!(journal.append(&batch(&[b"d"])).expect("append"), 4);
    assert_eq!(journal.snapshot().expect("snapshot"), Some((3, b"abc".to_vec())));
    assert_eq!(replay(&*journal, 3), [(4, b"d".to_vec())]);
}

fn rows_change_with_their_events(reopen: &Reopen) {
    let (mut journal, rows) = reopen();
    let row = JobRow {
        name: "titanic".to_owned(),
        uid: "1f".to_owned(),
        arn: "arn:x".to_owned(),
        created_ms: 1,
        modified_ms: 2,
        ended_ms: None,
        status: "InProgress".to_owned(),
        secondary: "Starting".to_owned(),
        ended: false,
        request: b"{\"a\":1}".to_vec(),
        view: b"{}".to_vec(),
        tags: b"[]".to_vec(),
    };
    let put = |row: &JobRow| RowChange::PutJob(Box::new(row.clone()));
    journal.append(&Batch { events: vec![b"created".to_vec()], rows: vec![put(&row)] }).expect("append");
    assert_eq!(rows.job("titanic").expect("job"), Some(row.clone()));
    assert_eq!(rows.job("Titanic").expect("job"), None, "names are case-sensitive");

    let of_core = |name: &str| JobProgress {
        name: name.to_owned(),
        modified_ms: 9,
        ended_ms: Some(9),
        status: "Completed".to_owned(),
        secondary: "Completed".to_owned(),
        ended: true,
        view: b"{1}".to_vec(),
    };
    let JobProgress { modified_ms, ended_ms, status, secondary, ended, view, .. } = of_core("titanic");
    let ended = JobRow { modified_ms, ended_ms, status, secondary, ended, view, ..row };
    let moves = ["titanic", "no-such-job"].map(|name| RowChange::MoveJob(Box::new(of_core(name)))).to_vec();
    journal.append(&Batch { events: vec![b"ended".to_vec()], rows: moves }).expect("append");
    assert_eq!(rows.job("no-such-job").expect("job"), None, "only rows that are there move");
    drop((journal, rows));
    let (mut journal, rows) = reopen();
    assert_eq!(rows.job("titanic").expect("job"), Some(ended.clone()));

    let gone = RowChange::DeleteJob("titanic".to_owned());
    let changes = vec![gone.clone(), put(&ended), gone];
    assert_eq!(journal.append(&Batch { events: vec![], rows: changes }).expect("append"), 2, "rows take no version");
    assert_eq!(rows.job("titanic").expect("job"), None);
}

fn receipts_are_kept_by_path_and_host_and_go_with_their_job(reopen: &Reopen) {
    let (mut journal, rows) = reopen();
    let receipt = |job: &str, path: &str, host: u32, bytes: u64| CheckpointRow {
        job: job.to_owned(),
        path: path.to_owned(),
        host,
        bytes,
        sha256: format!("{bytes:064x}"),
        saved_ms: 1_700_000_000_000 + bytes,
    };
    let saved =
        [receipt("a", "x/1", 1, 1), receipt("a", "x/1", 2, 2), receipt("a", "b", 2, 3), receipt("a", "x/1", 1, 4), receipt("b", "c", 1, 5)];
    let changes = saved.iter().cloned().map(RowChange::PutCheckpoint).collect();
    journal.append(&Batch { events: vec![b"e".to_vec()], rows: changes }).expect("append");

    let expected = [&saved[2], &saved[3], &saved[1]].map(Clone::clone);
    assert_eq!(rows.checkpoints("a", ("", 0), 9).expect("receipts"), expected);
    assert_eq!(rows.checkpoints("a", ("", 0), 2).expect("first page"), expected[..2]);
    assert_eq!(rows.checkpoints("a", ("x/1", 1), 2).expect("second page"), expected[2..]);
    journal.append(&Batch { events: Vec::new(), rows: vec![RowChange::DeleteJob("a".to_owned())] }).expect("delete");
    drop((journal, rows));

    let (_journal, rows) = reopen();
    assert_eq!(rows.checkpoints("a", ("", 0), 9).expect("none"), []);
    assert_eq!(rows.checkpoints("b", ("", 0), 9).expect("the other job's"), saved[4..]);
}

fn a_consumer_can_stop_a_replay(reopen: &Reopen) {
    let (mut journal, _rows) = reopen();
    journal.append(&batch(&[b"a", b"b", b"c"])).expect("append");
    let mut seen = 0;
    let mut fail_at_second = |version: u64, _: &[u8]| {
        seen = version;
        if version == 2 { Err(StoreError::BadCursor("stop".to_owned())) } else { Ok(()) }
    };
    assert!(journal.events_after(0, &mut fail_at_second).is_err());
    assert_eq!(seen, 2);
}

fn lists_are_filtered_ordered_and_paged(reopen: &Reopen) {
    let (mut journal, rows) = reopen();
    // Name, created, modified, status; two share a creation time.
    let jobs = [("c", 10, 50, "Failed"), ("a", 20, 40, "Completed"), ("ab", 20, 30, "Failed"), ("B", 30, 60, "InProgress")];
    let puts = jobs.map(|(name, created_ms, modified_ms, status)| {
        let secondary = if name == "ab" { "Odd" } else { "Even" }.to_owned();
        let (name, status) = (name.to_owned(), status.to_owned());
        RowChange::PutJob(Box::new(JobRow { name, created_ms, modified_ms, status, secondary, ..JobRow::default() }))
    });
    journal.append(&Batch { events: vec![], rows: puts.to_vec() }).expect("append");

    let base = JobFilter::default();
    let some = |text: &str| Some(text.to_owned());
    for (filter, expected) in [
        (base.clone(), "c a ab B"),
        (JobFilter { order: SortOrder::Descending, ..base.clone() }, "B ab a c"),
        (JobFilter { sort: JobSort::Name, ..base.clone() }, "B a ab c"),
        (JobFilter { sort: JobSort::Name, order: SortOrder::Descending, ..base.clone() }, "c ab a B"),
        (JobFilter { sort: JobSort::Status, ..base.clone() }, "a ab c B"),
        (JobFilter { sort: JobSort::Status, order: SortOrder::Descending, ..base.clone() }, "B c ab a"),
        (JobFilter { status: some("Failed"), ..base.clone() }, "c ab"),
        (JobFilter { name_contains: some("b"), ..base.clone() }, "ab"),
        (JobFilter { name_contains: some("%"), ..base.clone() }, ""),
        (JobFilter { names: Some(vec!["ab".to_owned(), "c".to_owned(), "other".to_owned()]), ..base.clone() }, "c ab"),
        (JobFilter { names: Some(Vec::new()), ..base.clone() }, ""),
        (JobFilter { name_resembles: some("b"), ..base.clone() }, "ab B"),
        (JobFilter { name_resembles: some("AB"), ..base.clone() }, "ab"),
        (JobFilter { name_resembles: some("_"), ..base.clone() }, ""),
        (JobFilter { status: some("Failed"), secondary: some("Odd"), ..base.clone() }, "ab"),
        (JobFilter { status: some("Failed"), secondary_not: some("Odd"), ..base.clone() }, "c"),
        (JobFilter { created_after_ms: Some(10), created_before_ms: Some(30), ..base.clone() }, "a ab"),
        (JobFilter { modified_after_ms: Some(40), modified_before_ms: Some(60), ..base.clone() }, "c"),
        (JobFilter { status: some("Failed"), created_after_ms: Some(10), ..base.clone() }, "ab"),
    ] {
        assert_eq!(rows.count(&filter).expect("count"), expected.split_whitespace().count() as u64, "{filter:?}");
        for limit in 1..=5 {
            let mut filter = JobFilter { limit, ..filter.clone() };
            let mut names = Vec::new();
            loop {
                let page = rows.list(&filter).expect("list");
                assert!(page.rows.len() <= limit);
                names.extend(page.rows.into_iter().map(|row| row.name));
                let Some(next) = page.next else { break };
                filter.after = Some(next.to_string().parse().expect("a cursor's text form is a cursor"));
            }
            assert_eq!(names.join(" "), expected, "{filter:?}");
        }
    }
    for (name, expected) in [("A", "a"), ("b", "B"), ("AB", "ab"), ("", ""), ("a%", "")] {
        assert_eq!(rows.names(name).expect("names").join(" "), expected, "{name}");
    }
    let bad = JobFilter { after: Some("x/a".parse().expect("has a slash")), ..base };
    assert!(matches!(rows.list(&bad), Err(StoreError::BadCursor(_))));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{MemoryJournal, SqliteJournal};

    #[test]
    fn sqlite_conforms() {
        check_journal(&|| {
            let temp = tempfile::tempdir().unwrap();
            Box::new(move || {
                let journal = SqliteJournal::open(&temp.path().join("shoal.db")).unwrap();
                let rows = journal.rows();
                (Box::new(journal), Box::new(rows))
            })
        });
    }

    #[test]
    fn memory_conforms() {
        check_journal(&|| {
            let journal = MemoryJournal::default();
            Box::new(move || (Box::new(journal.clone()), Box::new(journal.clone())))
        });
    }
}
