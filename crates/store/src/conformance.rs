//! What every implementation of [`Journal`] and [`Rows`] must do.

use crate::{Batch, CheckpointRow, Journal, ResourceKind, RowChange, Rows, StoreError};

mod resources;
mod trials;

/// One storage. Opening it again gives the same contents.
pub type Reopen = Box<dyn Fn() -> (Box<dyn Journal>, Box<dyn Rows>)>;

/// Runs the whole suite; `fresh` makes an empty storage each time.
///
/// # Panics
/// When the implementation does not conform.
pub fn check_journal(fresh: &dyn Fn() -> Reopen) {
    events_are_numbered_and_replayed(&fresh());
    a_snapshot_replaces_its_events(&fresh());
    receipts_are_kept_by_path_and_host_and_go_with_their_job(&fresh());
    a_consumer_can_stop_a_replay(&fresh());
    resources::rows_change_with_their_events(&fresh());
    resources::kinds_do_not_share_names(&fresh());
    resources::lists_are_filtered_ordered_and_paged(&fresh());
    resources::resources_of_a_creator_are_listed(&fresh());
    resources::names_are_found_in_either_case(&fresh());
    resources::names_at_the_ends_of_links_are_listed(&fresh());
    resources::jobs_without_a_spec_are_found(&fresh());
    resources::cursors_survive_their_text_form(&fresh());
    trials::trials_are_listed_with_their_jobs(&fresh());
    trials::records_are_read_in_order(&fresh());
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
    let saved = [
        receipt("a", "x/1", 1, 1),
        receipt("a", "x/1", 2, 2),
        receipt("a", "b", 2, 3),
        receipt("a", "x/1", 1, 4),
        receipt("b", "c", 1, 5),
    ];
    let changes = saved.iter().cloned().map(RowChange::PutCheckpoint).collect();
    journal.append(&Batch { events: vec![b"e".to_vec()], rows: changes }).expect("append");

    let expected = [&saved[2], &saved[3], &saved[1]].map(Clone::clone);
    assert_eq!(rows.checkpoints("a", ("", 0), 9).expect("receipts"), expected);
    assert_eq!(rows.checkpoints("a", ("", 0), 2).expect("first page"), expected[..2]);
    assert_eq!(rows.checkpoints("a", ("x/1", 1), 2).expect("second page"), expected[2..]);
    journal
        .append(&Batch {
            events: Vec::new(),
            rows: vec![RowChange::Delete(ResourceKind::TRAINING_JOB, "a".to_owned())],
        })
        .expect("delete");
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
