//! Golden files: what was journalled once is read forever. A file is never changed; a new form gets
//! a new version and new files.

use std::{fs, path::PathBuf};

use shoal_plane::{
    AttemptId, Capacity, Catalog, DefinitionSpec, Event, Fact, Form, GangSpec, Host, InstancePhase, JobStatus,
    MetricValue, Objective, Pause, Placement, Quotas, RankEnd, RuleVerdict, SecondaryStatus, State, StopCause,
    StudyRecord, Time, TrialEnd, TrialStart, TuningEnd, TuningSpec, TuningStatus, apply,
};
use shoal_tuner::{Ask, Config, Direction, Outcome, Record, Start, Value, Verdict};

use crate::{
    samples::{claimed, elastic, evicted, interrupted, on_nodes, placement, retried, served, training},
    script::{GIB, laptop},
};

fn path(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden/v1").join(format!("{name}.json"))
}

/// Reads `tests/golden/v1/<name>.json`.
pub(crate) fn golden(name: &str, would_be: &[u8]) -> Vec<u8> {
    let path = path(name);
    fs::read(&path).unwrap_or_else(|error| {
        panic!("{}: {error}; it would be\n{}", path.display(), String::from_utf8_lossy(would_be))
    })
}

/// The name of an event's golden file: its `type`. That each kind has one is checked by the random
/// histories.
pub(crate) fn kind(event: &Event) -> String {
    let json: serde_json::Value = serde_json::from_slice(&event.encode()).expect("an event is JSON");
    json["type"].as_str().expect("an event has a type").to_owned()
}

fn samples() -> Vec<Event> {
    let attempt = || AttemptId::from("5f1c-1");
    let text = |text: &str| text.to_owned();
    let facts = vec![
        Fact::JobCreated {
            uid: text("5f1c"),
            spec: GangSpec {
                max_pending_s: Some(1800),
                ..GangSpec::new("ml.g5.xlarge", 2, Form::Ends { max_runtime_s: 3600 }, 120)
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
                others: Vec::new(),
                reserve_bytes: None,
                nodes: Vec::new(),
            },
            lease_s: 7200,
            message: text("Preparing the instances for training"),
        },
        Fact::InstanceMoved { attempt: attempt(), host: Host(1), phase: InstancePhase::Training },
        Fact::JobMoved { secondary: SecondaryStatus::Downloading, message: text("Downloading input data") },
        Fact::JobMoved { secondary: SecondaryStatus::Training, message: text("Training in progress.") },
        Fact::InstanceMoved { attempt: attempt(), host: Host(2), phase: InstancePhase::Downloading },
        Fact::StopRequested { cause: StopCause::User, message: text("Stopping the training job") },
        Fact::RankEnded {
            attempt: attempt(),
            host: Host(1),
            end: RankEnd {
                code: None,
                signal: Some(15),
                out_of_memory: false,
                crowded_out: None,
                failure_file: Some(text("\"äh\"\n")),
                stderr_tail: text("Traceback\n"),
                at: Time(1_700_000_005_000),
            },
            final_metrics: vec![
                MetricValue { name: text("validation:rmse"), value: 0.1 + 0.2, at: Time(1_700_000_004_000) },
                MetricValue { name: text("tiny"), value: -5e-324, at: Time(1_700_000_004_001) },
            ],
        },
        Fact::InstanceUploaded { attempt: attempt(), host: Host(1) },
        Fact::InstanceLost {
            attempt: attempt(),
            host: Host(2),
            reason: text("the agent of algo-2 ended without a report"),
        },
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
            host: Host(2),
            path: text("epoch-1/model \u{e4}.pt"),
            bytes: 5_000_000_000,
            sha256: "ab".repeat(32),
        },
    ];
    at_a_time(facts)
}

pub(crate) fn at_a_time(facts: Vec<Fact>) -> Vec<Event> {
    let at = |index: u64| Time(1_700_000_000_000 + index);
    (0..).zip(facts).map(|(index, fact)| Event { at: at(index), name: "titanic".to_owned(), fact }).collect()
}

/// A job with a rule that stops it.
fn observed() -> Vec<Event> {
    let evaluated = |host: u32, rule: &str, verdict: RuleVerdict, details: &str| Fact::RuleEvaluated {
        attempt: AttemptId::from("5f1c-1"),
        host: Host(host),
        rule: rule.to_owned(),
        verdict,
        details: details.to_owned(),
    };
    let mut facts: Vec<Fact> = samples().into_iter().map(|event| event.fact).take(6).collect();
    facts.push(evaluated(1, "vanishing", RuleVerdict::NoIssuesFound, "evaluated at 40 steps"));
    facts.push(evaluated(
        2,
        "nan",
        RuleVerdict::IssuesFound,
        "RuleEvaluationConditionMet: gradient/\u{e4}.weight is NaN at step 7",
    ));
    facts.push(Fact::StopRequested { cause: StopCause::Rule, message: "Stopping the training job".to_owned() });
    at_a_time(facts)
}

/// A trial and its tuning job, from beginning to end.
fn tuned() -> Vec<Event> {
    let text = |text: &str| text.to_owned();
    let attempt = || AttemptId::from("5f1c-1");
    let training = training();
    let objectives = vec![Objective { metric: text("validation:auc"), direction: Direction::Maximize }];
    let spec = TuningSpec {
        max_jobs: Some(30),
        max_parallel: 4,
        max_runtime_s: Some(3600),
        target: Some(0.1 + 0.2),
        not_improving: Some(10),
        complete_on_convergence: true,
        definitions: vec![DefinitionSpec {
            objectives,
            training: training.clone(),
            checkpoints: true,
            pause: Pause::Freeze,
            max_resource: None,
        }],
    };
    let start = Start {
        trial: 0,
        config: Config(vec![Some(Value::Float(0.1 + 0.2)), None]),
        to: Some(1),
        origin: None,
        bracket: 2,
    };
    let asked = Record::Asked { answer: Ask::Start(start), memo: Some(vec![0.5]), exhausted: false };
    let verdicts = vec![(0, Verdict::Pause), (3, Verdict::Stop), (4, Verdict::Continue { to: Some(9) })];
    let reported = Record::Reported { trial: 0, resource: 1, values: vec![1.0 / 3.0], verdicts };
    let stored = |record| vec![StudyRecord { definition: 0, record }];
    let trial = TrialStart {
        tuning: text("titanic").into(),
        definition: 0,
        trial: 0,
        to: Some(1),
        origin: Some(text("titanic-007-0badcafe").into()),
        from: 0,
        checkpoints: false,
        max: None,
    };
    let of_child = vec![
        Fact::JobCreated {
            uid: text("5f1c"),
            spec: training,
            message: text("Starting the training job"),
            trial: Some(trial),
        },
        Fact::AttemptLaunched {
            attempt: attempt(),
            placement: placement(),
            lease_s: 3660,
            message: text("Preparing the instances for training"),
        },
        Fact::JobMoved { secondary: SecondaryStatus::Downloading, message: text("Downloading input data") },
        Fact::JobMoved { secondary: SecondaryStatus::Training, message: text("Training in progress.") },
        Fact::InstanceMoved { attempt: attempt(), host: Host(1), phase: InstancePhase::Training },
        Fact::ObjectiveReported {
            attempt: attempt(),
            host: Host(1),
            resource: 1,
            value: Some(1.0 / 3.0),
            seq: Some(2),
        },
        Fact::TrialPaused {
            attempt: Some(attempt()),
            frozen: true,
            message: text("Paused"),
            stores: false,
            unseen: false,
        },
        Fact::TrialResumed { to: Some(3), message: text("Resuming the training job") },
        Fact::AttemptThawed { attempt: attempt(), message: text("Training resumed where it had paused") },
        Fact::TrialRaised { to: None },
        Fact::ObjectiveReported { attempt: attempt(), host: Host(1), resource: 2, value: None, seq: None },
        Fact::TrialPaused {
            attempt: Some(attempt()),
            frozen: true,
            message: text("Paused"),
            stores: false,
            unseen: false,
        },
        Fact::TrialParked { attempt: attempt(), message: text("Its memory is wanted"), stores: false, rested: false },
    ];
    let created = vec![
        Fact::TuningCreated { uid: text("7ea5"), spec: Box::new(spec) },
        Fact::SuggestionsWanted { seq: 1, wanted: 4, starts: 4 },
        Fact::Suggested { seq: 1, records: stored(asked), exhausted: vec![0], waits: true },
    ];
    let ended = vec![
        Fact::Judged { seq: 2, records: stored(reported), converged: true },
        Fact::ParallelChanged { max_parallel: 8 },
        Fact::TuningStopping { end: TuningEnd::Target, failure_reason: None },
    ];
    let last = vec![
        Fact::TrialEnded {
            definition: 0,
            trial: 0,
            training_job: text("titanic-001-deadbeef").into(),
            end: TrialEnd::Completed,
            outcome: Outcome::Completed { values: vec![0.1 + 0.2] },
            value: Some(0.1 + 0.2),
            is_best: true,
            not_improving: 0,
            training_s: 17,
            seq: Some(3),
        },
        Fact::TuningEnded {
            status: TuningStatus::Failed,
            end: TuningEnd::Failures,
            failure_reason: Some(text("No training job succeeded")),
        },
        Fact::TuningReleased,
    ];
    let named = |name: &'static str, facts: Vec<Fact>| facts.into_iter().map(move |fact| (text(name), fact));
    let all = named("titanic", created)
        .chain(named("titanic-001-deadbeef", of_child))
        .chain(named("titanic", ended))
        .chain(named("titanic", last));
    (0..).zip(all).map(|(index, (job, fact))| Event { at: Time(1_700_000_000_000 + index), name: job, fact }).collect()
}

/// The event is read from, and written as, its golden file.
#[track_caller]
fn check_event(name: &str, event: &Event) {
    let bytes = golden(name, &event.encode());
    assert_eq!(&Event::decode(bytes.trim_ascii_end()).expect("a golden event decodes"), event);
    assert_eq!(String::from_utf8_lossy(&event.encode()), String::from_utf8_lossy(bytes.trim_ascii_end()));
}

/// The state after these events is read from, and written as, its golden file.
#[track_caller]
fn check_snapshot(name: &str, events: impl IntoIterator<Item = Event>) {
    check_snapshot_on(name, events, &laptop());
}

fn check_snapshot_on(name: &str, events: impl IntoIterator<Item = Event>, capacity: &Capacity) {
    let mut state = State::new(capacity.clone(), Catalog::default());
    events.into_iter().for_each(|event| drop(apply(&mut state, &event)));
    let bytes = golden(name, &state.snapshot());
    let restored =
        State::from_snapshot(&bytes, capacity.clone(), Catalog::default()).expect("a golden snapshot decodes");
    assert_eq!(restored, state);
    assert_eq!(String::from_utf8_lossy(&state.snapshot()), String::from_utf8_lossy(bytes.trim_ascii_end()));
}

#[test]
fn a_service_is_read_and_written_as_it_once_was() {
    for (name, event) in [("service_created", &served()[0]), ("attempt_replaced", &served()[8])] {
        check_event(name, event);
    }
    check_snapshot("snapshot_served", served());
}

#[test]
fn a_snapshot_of_an_evicted_job_is_read_as_it_once_was() {
    check_snapshot("snapshot_evicted", evicted());
}

#[test]
fn a_snapshot_of_an_elastic_job_is_read_as_it_once_was() {
    check_snapshot("snapshot_elastic", elastic());
}

#[test]
fn evaluations_of_rules_are_read_and_written_as_they_once_were() {
    let events = observed();
    let of_rule = |event: &&Event| matches!(&event.fact, Fact::RuleEvaluated { .. });
    check_event("rule_evaluated", events.iter().rfind(of_rule).expect("there is one"));
    check_event("stop_requested_by_rule", events.last().expect("there is one"));
    check_snapshot("snapshot_observed", events);
}

#[test]
fn nodes_are_read_and_written_as_they_once_were() {
    let launched = |event: &&Event| matches!(event.fact, Fact::AttemptLaunched { .. });
    let added = |event: &&Event| matches!(event.fact, Fact::InstancesAdded { .. });
    let events = on_nodes();
    for (name, event) in [
        ("attempt_launched_on_nodes", events.iter().find(launched)),
        ("instances_added_on_nodes", events.iter().find(added)),
    ] {
        check_event(name, event.expect("there is one"));
    }
    check_snapshot("snapshot_on_nodes", events);
}

#[test]
fn claims_are_read_and_written_as_they_once_were() {
    let events = claimed();
    let created = events.iter().find(|event| matches!(event.fact, Fact::JobCreated { .. }));
    check_event("job_created_claimed", created.expect("there is one"));
    let quotas = Quotas { half_life_s: Some(3600), ..Quotas::default() };
    check_snapshot_on("snapshot_claimed", events, &Capacity { quotas, ..laptop() });
}

#[test]
fn every_sample_is_read_and_written_as_it_once_was() {
    let mut seen = Vec::new();
    for event in samples()
        .into_iter()
        .chain(retried())
        .chain(interrupted())
        .chain(evicted())
        .chain(elastic())
        .chain(tuned().into_iter().filter(|event| !matches!(event.fact, Fact::JobCreated { .. })))
    {
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
    // All but the release, so that something is left to be seen.
    check_snapshot("snapshot", samples().into_iter().take_while(|event| !matches!(event.fact, Fact::Released { .. })));
}

#[test]
fn a_snapshot_of_a_retried_job_is_read_as_it_once_was() {
    check_snapshot("snapshot_retried", retried());
}

#[test]
fn a_snapshot_of_an_interrupted_job_is_read_as_it_once_was() {
    check_snapshot("snapshot_interrupted", interrupted());
}

#[test]
fn a_trial_is_created_as_it_once_was() {
    let event = tuned().into_iter().find(|event| matches!(event.fact, Fact::JobCreated { .. })).expect("there is one");
    let bytes = golden("trial_created", &event.encode());
    assert_eq!(Event::decode(bytes.trim_ascii_end()).expect("a golden event decodes"), event);
}

#[test]
fn a_snapshot_of_a_tuning_job_is_read_as_it_once_was() {
    check_snapshot(
        "snapshot_tuned",
        tuned().into_iter().take_while(|event| !matches!(event.fact, Fact::TuningStopping { .. })),
    );
}

#[test]
fn what_is_no_event_is_refused() {
    let refused = |bytes: &[u8]| Event::decode(bytes).expect_err("refused").to_string();
    assert!(refused(br#"{"v":2,"at":1,"job":"a","type":"revised"}"#).starts_with("event of format 2"));
    assert_eq!(refused(br#"{"v":1,"at":1,"job":"a","type":"nothing_known"}"#), "malformed event");
    assert_eq!(refused(b"{"), "malformed event");
    let formless =
        br#"{"v":1,"at":1,"job":"a","type":"job_created","uid":"u","spec":{"instance_type":"m","instances":1,"grace_s":9},"message":"m"}"#;
    assert_eq!(refused(formless), "malformed event", "it neither ends nor serves");
    let refused = State::from_snapshot(br#"{"v":9,"clock":0,"created":0,"jobs":[]}"#, laptop(), Catalog::default());
    assert!(refused.expect_err("refused").to_string().starts_with("snapshot of format 9"));
}
