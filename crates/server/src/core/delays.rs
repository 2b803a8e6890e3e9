//! What a snapshot of a large state costs those who ask the loop for something meanwhile.

use std::{path::Path, sync::Arc, thread, time::Duration, time::Instant};

use shoal_plane::{Capacity, Catalog, Command, Form, GangSpec, Node, Packing};
use shoal_runtime::control::SNAPSHOT_INTERVAL;
use shoal_store::{Journal, SqliteJournal};

use super::{Opaque, recover, start};
use crate::ServerError;

/// Delays around a snapshot, each of a command that was decided, applied and made durable.
#[derive(Debug, Clone, Copy)]
pub struct SnapshotDelays {
    /// Longest time for which taking the snapshot itself held up the loop.
    pub freeze: Duration,
    /// Longest answer while no snapshot was written.
    pub worst_without: Duration,
    /// Longest answer while one was written.
    pub worst_with: Duration,
    /// From the snapshot's taking to its last byte and the last dropped event.
    pub written_in: Duration,
    /// Commands that were answered while it was written.
    pub answered: usize,
}

/// Fills a loop in this empty directory with waiting jobs, and measures while its state is
/// snapshot.
///
/// # Errors
/// The directory cannot be written.
pub fn snapshot_delays(dir: &Path, jobs: usize) -> Result<SnapshotDelays, ServerError> {
    let capacity =
        Capacity::of(Node { cpus: 1, memory_bytes: 1 << 34, gpus: 0, instances: 1, ..Node::local() }, Packing::Promise);
    let journal = SqliteJournal::open(&dir.join("shoal.db"))?;
    let (rows, snapshots) = (Arc::new(journal.rows()), journal.snapshots());
    let recovered = recover(&journal, &capacity, &Catalog::default())?;
    let (core, thread) = start(Box::new(journal), rows, recovered, capacity, Catalog::default(), Box::new(|_| ()))
        .map_err(|source| ServerError::Io { what: "start the core's thread".to_owned(), source })?;
    let create = |number: usize| {
        let spec = GangSpec::new("ml.m5.xlarge", 1, Form::Ends { max_runtime_s: 86_400 }, 120);
        let name = format!("training-job-{number:06}");
        let uid = format!("{number:012x}");
        let opaque = Opaque {
            uid,
            arn: String::new(),
            request: b"{}".to_vec(),
            spec: Vec::new(),
            tags: b"[]".to_vec(),
            creator: None,
        };
        (Command::CreateTrainingJob { name: name.into(), uid: opaque.uid.clone(), spec, name_taken: false }, opaque)
    };
    let ask = |number: usize| {
        let creation = vec![create(number)];
        let begun = Instant::now();
        let answer = core.tell_all_with(creation);
        answer.map(|()| begun.elapsed()).map_err(|refusal| ServerError::Journal(refusal.to_string()))
    };
    let creations = (0..jobs).map(create).collect::<Vec<_>>();
    core.tell_all_with(creations).map_err(|refusal| ServerError::Journal(refusal.to_string()))?;
    // Its own snapshots are over before one is taken by hand.
    let mut next = jobs;
    let mut worst = |until: &dyn Fn(usize) -> bool| -> Result<(Duration, usize), ServerError> {
        let (mut worst, mut answered) = (Duration::ZERO, 0);
        while !until(answered) {
            worst = worst.max(ask(next)?);
            (next, answered) = (next + 1, answered + 1);
        }
        Ok((worst, answered))
    };
    let few = usize::try_from(SNAPSHOT_INTERVAL / 20).unwrap_or(usize::MAX);
    thread::sleep(Duration::from_secs(2));
    let (worst_without, _) = worst(&|answered| answered >= few)?;

    let frozen_in = Instant::now();
    let (state, version) = core.freeze().ok_or_else(|| ServerError::Journal("the loop has ended".to_owned()))?;
    let freeze = frozen_in.elapsed();
    let begun = Instant::now();
    let writer = thread::spawn(move || snapshots.put(version, &state.encode()).map(|()| begun.elapsed()));
    let (worst_with, answered) = worst(&|_| writer.is_finished())?;
    let written_in = writer.join().map_err(|_| ServerError::Journal("the snapshot's thread panicked".to_owned()))??;
    core.stop();
    if thread.join().is_err() {
        return Err(ServerError::Journal("the loop panicked".to_owned()));
    }
    Ok(SnapshotDelays { freeze, worst_without, worst_with, written_in, answered })
}
