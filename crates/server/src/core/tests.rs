//! The loop over a real journal: what is durable, what a restart knows, what a full disk undoes.

use std::sync::{
    Mutex,
    atomic::{AtomicBool, Ordering},
};

use shoal_plane::{Action, Form, GangSpec, Node, Packing, Rejection, State, StopCause, apply};
use shoal_store::{ResourceKind, ResourceRow, SqliteJournal};

use super::*;

/// A journal on a disk that is full while the switch is on.
struct Full {
    inner: SqliteJournal,
    full: Arc<AtomicBool>,
}

impl Journal for Full {
    fn append(&mut self, batch: &Batch) -> Result<u64, StoreError> {
        if self.full.load(Ordering::SeqCst) {
            Err(StoreError::Full("the test's disk".to_owned()))
        } else {
            self.inner.append(batch)
        }
    }
    fn version(&self) -> Result<u64, StoreError> {
        self.inner.version()
    }
    fn events_after(&self, version: u64, each: &mut shoal_store::EachEvent<'_>) -> Result<(), StoreError> {
        self.inner.events_after(version, each)
    }
    fn snapshots(&self) -> Box<dyn shoal_store::Snapshots> {
        self.inner.snapshots()
    }
    fn snapshot(&self) -> Result<Option<(u64, Vec<u8>)>, StoreError> {
        self.inner.snapshot()
    }
}

struct Fixture {
    core: Core,
    thread: thread::JoinHandle<()>,
    rows: Arc<dyn Rows>,
    full: Arc<AtomicBool>,
    actions: Arc<Mutex<Vec<Action>>>,
}

fn capacity() -> Capacity {
    Capacity::of(Node { cpus: 2, memory_bytes: 64 << 30, gpus: 0, instances: 8, ..Node::local() }, Packing::Promise)
}

fn start_at(path: &std::path::Path) -> (Fixture, Vec<Action>) {
    let journal = SqliteJournal::open(path).unwrap();
    let rows: Arc<dyn Rows> = Arc::new(journal.rows());
    let (full, actions) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(Vec::new())));
    let recovered = recover(&journal, &capacity(), &Catalog::default()).unwrap();
    let pending = recovered.state.pending().actions;
    let journal = Box::new(Full { inner: journal, full: full.clone() });
    let seen = actions.clone();
    let act = Box::new(move |new: Effects| seen.lock().unwrap().extend(new.actions));
    let (core, thread) = start(journal, rows.clone(), recovered, capacity(), Catalog::default(), act).unwrap();
    (Fixture { core, thread, rows, full, actions }, pending)
}

async fn create(core: &Core, name: &str) -> Result<(), Refusal> {
    let spec = GangSpec::new("ml.m5.large", 1, Form::Ends { max_runtime_s: 3600 }, 120);
    let uid = format!("uid-{name}");
    let command =
        Command::CreateTrainingJob { name: name.to_owned().into(), uid: uid.clone(), spec, name_taken: false };
    let opaque = Opaque {
        uid,
        arn: format!("arn-{name}"),
        request: b"{}".to_vec(),
        spec: Vec::new(),
        tags: b"[]".to_vec(),
        creator: None,
    };
    core.ask(command, Some(opaque)).await
}

#[tokio::test]
async fn an_answer_rests_on_rows_and_a_restart_knows_what_was_answered() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("shoal.db");
    let (first, pending) = start_at(&path);
    assert_eq!(pending, []);
    create(&first.core, "a").await.unwrap();
    assert_eq!(first.rows.resource(ResourceKind::TRAINING_JOB, "a").unwrap().unwrap().arn, "arn-a");
    assert!(matches!(create(&first.core, "a").await, Err(Refusal::Rejected(Rejection::NameTaken(_)))));
    let launched = first.actions.lock().unwrap().clone();
    assert!(matches!(&launched[..], [Action::Launch { job, .. }] if job == "a"), "{launched:?}");
    first.core.stop();
    first.thread.join().unwrap();

    let (second, pending) = start_at(&path);
    assert_eq!(pending, launched, "what may not have been done is asked for again");
    // The row of a job that was live over the restart keeps what only its creation brought.
    second
        .core
        .ask(Command::StopTrainingJob { name: "a".to_owned().into(), cause: StopCause::User, ended: None }, None)
        .await
        .unwrap();
    let row = second.rows.resource(ResourceKind::TRAINING_JOB, "a").unwrap().unwrap();
    assert_eq!((row.arn.as_str(), row.request.as_slice()), ("arn-a", &b"{}"[..]));
    assert_ne!(row.status, "InProgress");
}

#[tokio::test]
async fn a_journal_that_refuses_undoes_all() {
    let dir = tempfile::tempdir().unwrap();
    let (fixture, _) = start_at(&dir.path().join("shoal.db"));
    create(&fixture.core, "before").await.unwrap();
    let done = fixture.actions.lock().unwrap().len();
    fixture.full.store(true, Ordering::SeqCst);
    let refused = create(&fixture.core, "lost").await;
    assert!(matches!(&refused, Err(Refusal::Journal(text)) if text.contains("the test's disk")), "{refused:?}");
    assert_eq!(fixture.rows.resource(ResourceKind::TRAINING_JOB, "lost").unwrap(), None);
    assert_eq!(fixture.core.view("lost").await, None);
    assert_eq!(fixture.actions.lock().unwrap().len(), done, "no action without its event");
    fixture.full.store(false, Ordering::SeqCst);
    create(&fixture.core, "lost").await.expect("the name was never taken");
    assert!(fixture.core.view("before").await.is_some(), "what was durable is still known");
}

#[tokio::test]
async fn many_at_once_are_all_answered() {
    let dir = tempfile::tempdir().unwrap();
    let (fixture, _) = start_at(&dir.path().join("shoal.db"));
    let all = (0..200).map(|n| {
        let core = fixture.core.clone();
        tokio::spawn(async move { create(&core, &format!("job-{}", n % 100)).await.is_ok() })
    });
    let created = futures::future::join_all(all).await.into_iter().filter(|created| *created.as_ref().unwrap()).count();
    assert_eq!(created, 100, "each name once");
}

#[tokio::test]
async fn edits_of_rows_compose_and_last() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("shoal.db");
    let (fixture, _) = start_at(&path);
    create(&fixture.core, "a").await.unwrap();
    let missing = || shoal_wire::Error::validation("missing");
    let add = |text: &'static str| {
        move |row: Option<ResourceRow>| {
            let mut row = row.ok_or_else(missing)?;
            row.tags.extend(text.as_bytes());
            Ok(Some(row))
        }
    };
    let refuse = |_| Err(shoal_wire::Error::validation("no"));
    let (core, kind) = (&fixture.core, ResourceKind::TRAINING_JOB);
    let defect = |_| -> Result<Option<ResourceRow>, shoal_wire::Error> { panic!("a defect") };
    // Sent together, they are one batch on most runs, and in order on all.
    let (one, broken, two, refused, unknown) = tokio::join!(
        core.edit(kind, "a", add("1")),
        core.edit(kind, "a", defect),
        core.edit(kind, "a", add("2")),
        core.edit(kind, "a", refuse),
        core.edit(kind, "b", add("3"))
    );
    assert!(
        matches!(&broken, Err(Refusal::Edit(error)) if error.code == shoal_wire::ErrorCode::InternalFailure),
        "{broken:?}"
    );
    assert!(one.is_ok() && two.is_ok(), "{one:?} {two:?}");
    assert!(matches!(&refused, Err(Refusal::Edit(error)) if error.message == "no"), "{refused:?}");
    assert!(matches!(&unknown, Err(Refusal::Edit(error)) if error.message == "missing"), "{unknown:?}");
    let tags = |fixture: &Fixture| {
        fixture.rows.resource(ResourceKind::TRAINING_JOB, "a").unwrap().map(|row| String::from_utf8(row.tags).unwrap())
    };
    assert_eq!(tags(&fixture).as_deref(), Some("[]12"));

    fixture.full.store(true, Ordering::SeqCst);
    assert!(matches!(core.edit(kind, "a", add("lost")).await, Err(Refusal::Journal(_))));
    fixture.full.store(false, Ordering::SeqCst);
    // The job's next event writes back what was edited, and no more.
    core.ask(Command::StopTrainingJob { name: "a".to_owned().into(), cause: StopCause::User, ended: None }, None)
        .await
        .unwrap();
    assert_eq!(tags(&fixture).as_deref(), Some("[]12"));
    fixture.core.stop();
    fixture.thread.join().unwrap();

    let (again, _) = start_at(&path);
    again.core.edit(kind, "a", add("4")).await.unwrap();
    assert_eq!(tags(&again).as_deref(), Some("[]124"));
    again.core.edit(kind, "a", |_| Ok(None)).await.unwrap();
    assert_eq!(tags(&again), None);
    assert!(matches!(again.core.edit(kind, "a", add("5")).await, Err(Refusal::Edit(_))));

    // A kind that the core does not know has no rows but those of edits; its names are its own.
    let model = ResourceKind::new("model");
    let create = move |row: Option<ResourceRow>| match row {
        Some(_) => Err(shoal_wire::Error::validation("taken")),
        None => Ok(Some(ResourceRow { uid: "1".to_owned(), ..ResourceRow::new(model, "a") })),
    };
    let (first, second) = tokio::join!(again.core.edit(model, "a", create), again.core.edit(model, "a", create));
    assert!(first.is_ok() && matches!(second, Err(Refusal::Edit(_))), "{first:?}");
    assert_eq!(again.rows.resource(model, "a").unwrap().map(|row| row.uid), Some("1".to_owned()));
    assert_eq!(tags(&again), None);
}

/// A journal whose events are replaced by a snapshot up to some version just after its snapshot was
/// read.
struct Overtaken {
    inner: SqliteJournal,
    up_to: u64,
}

impl Journal for Overtaken {
    fn append(&mut self, batch: &Batch) -> Result<u64, StoreError> {
        self.inner.append(batch)
    }
    fn version(&self) -> Result<u64, StoreError> {
        self.inner.version()
    }
    fn events_after(&self, version: u64, each: &mut shoal_store::EachEvent<'_>) -> Result<(), StoreError> {
        self.inner.events_after(version, each)
    }
    fn snapshots(&self) -> Box<dyn shoal_store::Snapshots> {
        self.inner.snapshots()
    }
    fn snapshot(&self) -> Result<Option<(u64, Vec<u8>)>, StoreError> {
        let read = self.inner.snapshot();
        let mut state = State::new(capacity(), Catalog::default());
        self.inner.events_after(0, &mut |at, bytes| {
            if at <= self.up_to {
                apply(&mut state, &Event::decode(bytes).unwrap());
            }
            Ok(())
        })?;
        self.inner.snapshots().put(self.up_to, &state.snapshot())?;
        read
    }
}

#[tokio::test]
async fn what_a_snapshot_took_away_meanwhile_is_missed() {
    for kept in [0, 1] {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("shoal.db");
        let (fixture, _) = start_at(&path);
        create(&fixture.core, "a").await.unwrap();
        fixture.core.stop();
        fixture.thread.join().unwrap();

        let inner = SqliteJournal::open(&path).unwrap();
        let up_to = inner.version().unwrap() - kept;
        let overtaken = Overtaken { inner, up_to };
        let folded = recover(&overtaken, &capacity(), &Catalog::default());
        assert!(
            matches!(&folded, Err(ServerError::Journal(text)) if text.contains("is missing")),
            "{kept} events kept"
        );
        let again = recover(&overtaken.inner, &capacity(), &Catalog::default()).unwrap();
        assert!(again.state.view("a").is_some(), "the next look finds all");
    }
}

#[tokio::test]
async fn time_does_not_go_back_over_a_snapshot() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("shoal.db");
    let mut journal = SqliteJournal::open(&path).unwrap();
    let later = Time(now_ms() + 3_600_000);
    let mut state = State::new(capacity(), Catalog::default());
    let mut turn = Turn::default();
    let spec = GangSpec::new("ml.m5.large", 1, Form::Ends { max_runtime_s: 3600 }, 120);
    let command =
        Command::CreateTrainingJob { name: "a".to_owned().into(), uid: "uid-a".to_owned(), spec, name_taken: false };
    turn.take(&mut state, &command, later).unwrap();
    let version =
        journal.append(&Batch { events: turn.events.iter().map(Event::encode).collect(), rows: vec![] }).unwrap();
    journal.snapshots().put(version, &state.snapshot()).unwrap();
    assert_eq!(recover(&journal, &capacity(), &Catalog::default()).unwrap().state.clock(), later);
    drop(journal);

    let (fixture, _) = start_at(&path);
    create(&fixture.core, "b").await.unwrap();
    assert!(fixture.rows.resource(ResourceKind::TRAINING_JOB, "b").unwrap().unwrap().created_ms >= later.0);
}
