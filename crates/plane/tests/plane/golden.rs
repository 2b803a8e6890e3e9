//! Golden files: what was journalled once is read forever. A file is never changed; a new form gets a new version and new files.

use std::{fs, path::PathBuf};

use shoal_plane::{
    Catalog, Event, Fact, InstancePhase, JobStatus, MetricValue, Placement, RankEnd, SecondaryStatus, State, StopCause, Time, TrainingSpec,
    apply,
};

use crate::script::{GIB, laptop};

fn path(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden/v1").join(format!("{name}.json"))
}

/// Reads `tests/golden/v1/<name>.json`.
pub(crate) fn golden(name: &str, would_be: &[u8]) -> Vec<u8> {
    let path = path(name);
    fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}; it would be\n{}", path.display(), String::from_utf8_lossy(would_be)))
}

/// The name of an event's golden file: its `type`. That each kind has one is checked by the random histories.
pub(crate) fn kind(event: &Event) -> String {
    let json: serde_json::Value = serde_json::from_slice(&event.encode()).expect("an event is JSON");
    json["type"].as_str().expect("an event has a type").to_owned()
}

fn samples() -> Vec<Event> {
    let attempt = || "5f1c-1".to_owned();
    let text = |text: &str| text.to_owned();
    let facts = vec![
        Fact::JobCreated {
            uid: text("5f1c"),
            spec: TrainingSpec {
                instance_type: text("ml.g5.xlarge"),
                instances: 2,
                max_runtime_s: 3600,
                max_pending_s: Some(1800),
                grace_s: 120,
                retries: 0,
            },
            message: text("Starting the training job"),
            trial: None,
        },
        Fact::JobMoved { secondary: SecondaryStatus::Pending, message: text("Waiting for capacity") },
        Fact::AttemptLaunched {
            attempt: attempt(),
            placement: Placement {
                cpus: 4,
                cpu_weight: 400,
                memory_bytes: 12 * GIB,
                gpus: vec![vec![0], vec![1]],
                capped: Some(text("ml.g5.xlarge capped to this machine")),
            },
            lease_s: 7200,
            message: text("Preparing the instances for training"),
        },
        Fact::InstanceMoved { attempt: attempt(), host: 1, phase: InstancePhase::Training },
        Fact::JobMoved { secondary: SecondaryStatus::Downloading, message: text("Downloading input data") },
        Fact::JobMoved { secondary: SecondaryStatus::Training, message: text("Training in progress.") },
        Fact::InstanceMoved { attempt: attempt(), host: 2, phase: InstancePhase::Downloading },
        Fact::StopRequested { cause: StopCause::User, message: text("Stopping the training job") },
        Fact::RankEnded {
            attempt: attempt(),
            host: 1,
            end: RankEnd {
                code: None,
                signal: Some(15),
                out_of_memory: false,
                failure_file: Some(text("\"äh\"\n")),
                stderr_tail: text("Traceback\n"),
                at: Time(1_700_000_005_000),
            },
            final_metrics: vec![
                MetricValue { name: text("validation:rmse"), value: 0.1 + 0.2, at: Time(1_700_000_004_000) },
                MetricValue { name: text("tiny"), value: -5e-324, at: Time(1_700_000_004_001) },
            ],
        },
        Fact::InstanceUploaded { attempt: attempt(), host: 1 },
        Fact::InstanceLost { attempt: attempt(), host: 2, reason: text("the agent of algo-2 ended without a report") },
        Fact::UploadsEnded { attempt: attempt() },
        Fact::JobEnded {
            status: JobStatus::Failed,
            secondary: SecondaryStatus::Failed,
            message: text("InternalServerError: disk full"),
            failure_reason: Some(text("InternalServerError: disk full")),
        },
        Fact::ReleaseOrdered { attempt: attempt() },
        Fact::Released { attempt: Some(attempt()) },
        Fact::CheckpointSaved {
            attempt: attempt(),
            host: 2,
            path: text("epoch-1/model \u{e4}.pt"),
            bytes: 5_000_000_000,
            sha256: "ab".repeat(32),
        },
    ];
    at_a_time(facts)
}

fn at_a_time(facts: Vec<Fact>) -> Vec<Event> {
    let at = |index: u64| Time(1_700_000_000_000 + index);
    (0..).zip(facts).map(|(index, fact)| Event { at: at(index), job: "titanic".to_owned(), fact }).collect()
}

/// A job in its second attempt, which is failing too.
fn retried() -> Vec<Event> {
    let text = |text: &str| text.to_owned();
    let spec =
        TrainingSpec { instance_type: text("ml.m5.large"), instances: 1, max_runtime_s: 60, max_pending_s: None, grace_s: 9, retries: 3 };
    let placement = Placement { cpus: 1, cpu_weight: 100, memory_bytes: GIB, gpus: vec![vec![]], capped: None };
    let launched = |attempt: &str| Fact::AttemptLaunched {
        attempt: text(attempt),
        placement: placement.clone(),
        lease_s: 3660,
        message: text("Preparing the instances for training"),
    };
    let failed = |attempt: &str| Fact::AttemptFailed {
        attempt: text(attempt),
        reason: text("InternalServerError: algo-1: no space left on device"),
        message: text("Starting the training job again"),
    };
    at_a_time(vec![
        failed("5f1c-1"),
        Fact::JobCreated { uid: text("5f1c"), spec, message: text("Starting the training job"), trial: None },
        launched("5f1c-1"),
        Fact::JobMoved { secondary: SecondaryStatus::Downloading, message: text("Downloading input data") },
        failed("5f1c-1"),
        Fact::ReleaseOrdered { attempt: text("5f1c-1") },
        Fact::Released { attempt: Some(text("5f1c-1")) },
        launched("5f1c-2"),
        Fact::JobMoved { secondary: SecondaryStatus::Downloading, message: text("Downloading input data") },
        failed("5f1c-2"),
    ])
}

#[test]
fn every_sample_is_read_and_written_as_it_once_was() {
    let mut seen = Vec::new();
    for event in samples().into_iter().chain(retried()) {
        let kind = kind(&event);
        if seen.contains(&kind) {
            continue;
        }
        let bytes = golden(&kind, &event.encode());
        assert_eq!(Event::decode(bytes.trim_ascii_end()).expect("a golden event decodes"), event);
        assert_eq!(String::from_utf8_lossy(&event.encode()), String::from_utf8_lossy(bytes.trim_ascii_end()));
        seen.push(kind);
    }
}

#[test]
fn a_snapshot_is_read_as_it_once_was() {
    let mut state = State::new(laptop(), Catalog::default());
    // All but the release, so that something is left to be seen.
    for event in samples().iter().take_while(|event| !matches!(event.fact, Fact::Released { .. })) {
        apply(&mut state, event);
    }
    let bytes = golden("snapshot", &state.snapshot());
    let restored = State::from_snapshot(&bytes, laptop(), Catalog::default()).expect("a golden snapshot decodes");
    assert_eq!(restored, state);
    assert_eq!(String::from_utf8_lossy(&state.snapshot()), String::from_utf8_lossy(bytes.trim_ascii_end()));
}

#[test]
fn a_snapshot_of_a_retried_job_is_read_as_it_once_was() {
    let mut state = State::new(laptop(), Catalog::default());
    retried().iter().for_each(|event| drop(apply(&mut state, event)));
    let bytes = golden("snapshot_retried", &state.snapshot());
    let restored = State::from_snapshot(&bytes, laptop(), Catalog::default()).expect("a golden snapshot decodes");
    assert_eq!(restored, state);
    assert_eq!(String::from_utf8_lossy(&state.snapshot()), String::from_utf8_lossy(bytes.trim_ascii_end()));
}

#[test]
fn what_is_no_event_is_refused() {
    let refused = |bytes: &[u8]| Event::decode(bytes).expect_err("refused").to_string();
    assert!(refused(br#"{"v":2,"at":1,"job":"a","type":"revised"}"#).starts_with("event of format 2"));
    assert_eq!(refused(br#"{"v":1,"at":1,"job":"a","type":"nothing_known"}"#), "malformed event");
    assert_eq!(refused(b"{"), "malformed event");
    let refused = State::from_snapshot(br#"{"v":9,"clock":0,"created":0,"jobs":[]}"#, laptop(), Catalog::default());
    assert!(refused.expect_err("refused").to_string().starts_with("snapshot of format 9"));
}
