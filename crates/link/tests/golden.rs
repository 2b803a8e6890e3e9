//! Golden files: the wire form of every message. A kind without a file fails, and so does a file
//! that no longer reads or writes the same. A changed file is a changed protocol: raise `PROTOCOL`
//! or keep the old form readable.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use std::path::PathBuf;

use serde::{Serialize, de::DeserializeOwned};
use shoal_link::{
    FromPeer, Input, Order, Program, RankOutcome, ReportBody, Root, ToAgent, ToPeer, ToServer, Visit, VisitEnd,
};

/// A name for every variant, as an exhaustive match, and the list of the names: a new variant does
/// not compile until it is named here.
macro_rules! kinds {
    ($function:ident, $list:ident, $message:ty, $($pattern:pat $(if $guard:expr)? => $name:literal),+ $(,)?) => {
        const $list: &[&str] = &[$($name),+];
        fn $function(message: &$message) -> &'static str {
            match message { $($pattern $(if $guard)? => $name),+ }
        }
    };
}

kinds!(report_kind, REPORTS, ReportBody,
    ReportBody::Phase { .. } => "report_phase",
    ReportBody::Logs { .. } => "report_logs",
    ReportBody::Metrics { .. } => "report_metrics",
    ReportBody::Samples { .. } => "report_samples",
    ReportBody::Objective { value, .. } if value.is_nan() => "report_objective_nan",
    ReportBody::Objective { .. } => "report_objective",
    ReportBody::Network { .. } => "report_network",
    ReportBody::Note { .. } => "report_note",
    ReportBody::RuleEvaluated { .. } => "report_rule_evaluated",
    ReportBody::RuleFile { .. } => "report_rule_file",
    ReportBody::RankEnded { end, .. } if end.crowded_out.is_some() => "report_rank_ended_crowded_out",
    ReportBody::RankEnded { end, .. } if matches!(end.outcome, RankOutcome::Exited(_)) => "report_rank_ended_exited",
    ReportBody::RankEnded { .. } => "report_rank_ended_signaled",
    ReportBody::ArtifactSent { .. } => "report_artifact_sent",
    ReportBody::Uploaded => "report_uploaded",
    ReportBody::InstanceFailed { .. } => "report_instance_failed",
);
kinds!(order_kind, ORDERS, Order,
    Order::Stop { .. } => "order_stop",
    Order::Release => "order_release",
    Order::Park => "order_park",
    Order::Freeze => "order_freeze",
    Order::Thaw { .. } => "order_thaw",
    Order::Leave { .. } => "order_leave",
    Order::Members { .. } => "order_members",
    Order::Sample(sampling) if sampling.profile_ms.is_some() => "order_sample_profiled",
    Order::Sample(_) => "order_sample",
    Order::ProfilerRules { .. } => "order_profiler_rules",
);
kinds!(to_agent_kind, TO_AGENT, ToAgent,
    ToAgent::Welcome { assignment, .. } if assignment.channels.iter().any(|it| !it.delivery.is_files()) => "welcome_deliveries",
    ToAgent::Welcome { assignment, .. } if assignment.channels.iter().any(|it| matches!(it.tree, Input::Objects(_))) => "welcome_objects",
    ToAgent::Welcome { now_ms: Some(_), .. } => "welcome_clock",
    ToAgent::Welcome { alive_ms: Some(_), .. } => "welcome_alive",
    ToAgent::Welcome { assignment, .. } if assignment.rules.iter().any(|rule| rule.source.is_some()) => "welcome_own_rules",
    ToAgent::Welcome { assignment, .. } if !assignment.profiler_rules.is_empty() => "welcome_profiler_rules",
    ToAgent::Welcome { assignment, .. } if assignment.profiler.as_ref().is_some_and(|it| it.uri.is_some()) => "welcome_profiler_events",
    ToAgent::Welcome { assignment, .. } if assignment.machine_network.is_some_and(|it| it.has_sums) => "welcome_passing",
    ToAgent::Welcome { assignment, .. } if assignment.profiler.is_some() => "welcome_profiler",
    ToAgent::Welcome { assignment, .. } if assignment.sampling.is_some() => "welcome_sampling",
    ToAgent::Welcome { assignment, .. } if assignment.limits.together_bytes.is_some() => "welcome_together",
    ToAgent::Welcome { assignment, .. } if assignment.egress.is_some() => "welcome_egress",
    ToAgent::Welcome { assignment, .. } if assignment.objective.is_some() => "welcome_objective",
    ToAgent::Welcome { assignment, .. } if assignment.elastic.is_some() => "welcome_elastic",
    ToAgent::Welcome { assignment, .. } if assignment.debug_hook.is_some() => "welcome_observed",
    ToAgent::Welcome { assignment, .. } if assignment.warm => "welcome_trial",
    ToAgent::Welcome { assignment, .. } if assignment.checkpoint.is_some() => "welcome_checkpoint",
    ToAgent::Welcome { assignment, .. } if assignment.intermediate.is_some() => "welcome_intermediate",
    ToAgent::Welcome { assignment, .. } if matches!(&assignment.program, Program::Builtin { library_dirs, .. } if library_dirs.is_empty()) => "welcome_builtin_without_library",
    ToAgent::Welcome { assignment, .. } if matches!(&assignment.program, Program::Builtin { library_dirs, .. } if library_dirs.len() > 1) => "welcome_builtin_libraries",
    ToAgent::Welcome { assignment, .. } if matches!(assignment.program, Program::Builtin { .. }) => "welcome_builtin",
    ToAgent::Welcome { assignment, .. } if matches!(&assignment.program, Program::Script { arguments, .. } if !arguments.is_empty()) => "welcome_script_arguments",
    ToAgent::Welcome { assignment, .. } if matches!(assignment.program, Program::Script { .. }) => "welcome_script",
    ToAgent::Welcome { assignment, .. } if assignment.python.is_some() => "welcome_python",
    ToAgent::Welcome { assignment, .. } if matches!(assignment.root, Some(Root::Container { .. })) => "welcome_container",
    ToAgent::Welcome { assignment, .. } if assignment.root.is_some() => "welcome_image",
    ToAgent::Welcome { .. } => "welcome_host",
    ToAgent::Refused { .. } => "refused",
    ToAgent::Ack { .. } => "ack",
    ToAgent::Order(_) => "order",
    ToAgent::Ready => "ready",
    ToAgent::FileSaved { .. } => "file_saved",
    ToAgent::FileRefused { .. } => "file_refused",
    ToAgent::Serve { .. } => "serve",
    ToAgent::Visit { visit: Visit::Stacks { seconds: None }, .. } => "visit_stacks",
    ToAgent::Visit { visit: Visit::Stacks { seconds: Some(_) }, .. } => "visit_sampled_stacks",
    ToAgent::Visit { visit: Visit::Command { terminal: Some(_), .. }, .. } => "visit_terminal",
    ToAgent::Visit { .. } => "visit_command",
    ToAgent::Manifest { entries, .. } if entries.iter().any(|it| it.text.is_some()) => "manifest_texts",
    ToAgent::Manifest { .. } => "manifest",
    ToAgent::ObjectEnds { .. } => "object_ends",
    ToAgent::ObjectAt { .. } => "object_at",
    ToAgent::NoObject { .. } => "no_object",
    ToAgent::Network { .. } => "network",
    ToAgent::InputEnds => "input_ends",
    ToAgent::Resized { .. } => "resized",
);

fn to_server_kind(message: &ToServer) -> &'static str {
    match message {
        ToServer::Hello(hello) if hello.profiler_rules => "hello_profiler_rules",
        ToServer::Hello(hello) if hello.sampling => "hello_sampling",
        ToServer::Hello(hello) if hello.visits => "hello_visits",
        ToServer::Hello(_) => "hello",
        ToServer::Report(report) => report_kind(&report.body),
        ToServer::Alive => "alive",
        ToServer::Checkpoints(_) => "checkpoints",
        ToServer::Intermediate(_) => "intermediate",
        ToServer::Mirror { .. } => "mirror",
        ToServer::FileBegins { .. } => "file_begins",
        ToServer::FileEnds { .. } => "file_ends",
        ToServer::FileDropped => "file_dropped",
        ToServer::Idle(_) => "idle",
        ToServer::Visit { .. } => "visit",
        ToServer::VisitEnded(VisitEnd::Exited { .. }) => "visit_exited",
        ToServer::VisitEnded(VisitEnd::Signaled { .. }) => "visit_signaled",
        ToServer::VisitEnded(VisitEnd::Broken { .. }) => "visit_broken",
        ToServer::Objects(_) => "objects",
        ToServer::List { .. } => "list",
        ToServer::Fetch { elsewhere: true, .. } => "fetch_elsewhere",
        ToServer::Fetch { .. } => "fetch",
        ToServer::FetchPart { unsummed: true, .. } => "fetch_part_unsummed",
        ToServer::FetchPart { .. } => "fetch_part",
        ToServer::PartSum { .. } => "part_sum",
        ToServer::Forward(_) => "forward",
    }
}

const TO_PEER: &[&str] = &["peer_hello", "peer_part"];
const FROM_PEER: &[&str] = &["peer_ready", "peer_refused", "peer_later", "peer_absent"];

fn to_peer_kind(message: &ToPeer) -> &'static str {
    match message {
        ToPeer::Hello(_) => "peer_hello",
        ToPeer::Part { .. } => "peer_part",
    }
}

fn from_peer_kind(message: &FromPeer) -> &'static str {
    match message {
        FromPeer::Ready => "peer_ready",
        FromPeer::Refused { .. } => "peer_refused",
        FromPeer::Later => "peer_later",
        FromPeer::Absent => "peer_absent",
    }
}

fn golden_dir() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden")
}

fn check<M: Serialize + DeserializeOwned>(name: &str, kind: impl Fn(&M) -> &'static str) {
    let path = golden_dir().join(format!("{name}.json"));
    let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{} has no golden file: {e}", path.display()));
    let message: M = serde_json::from_str(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    assert_eq!(kind(&message), name, "{} holds another kind", path.display());
    assert_eq!(
        serde_json::to_string_pretty(&message).unwrap() + "\n",
        text,
        "{} is no longer written like this",
        path.display()
    );
}

#[test]
fn every_message_has_its_golden_form() {
    let to_server: Vec<&str> = [
        "hello",
        "hello_visits",
        "hello_sampling",
        "hello_profiler_rules",
        "alive",
        "checkpoints",
        "file_begins",
        "file_ends",
        "file_dropped",
        "idle",
    ]
    .into_iter()
    .chain([
        "intermediate",
        "mirror",
        "visit",
        "visit_exited",
        "visit_signaled",
        "visit_broken",
        "objects",
        "list",
        "fetch",
        "fetch_elsewhere",
        "fetch_part",
        "fetch_part_unsummed",
        "part_sum",
        "forward",
    ])
    .chain(REPORTS.iter().copied())
    .collect();
    // "order(..)" is reached through the orders' own names.
    let to_agent: Vec<&str> = TO_AGENT.iter().chain(ORDERS).copied().filter(|name| *name != "order").collect();
    for name in &to_server {
        check::<ToServer>(name, to_server_kind);
    }
    for name in &to_agent {
        check::<ToAgent>(name, |message| match message {
            ToAgent::Order(order) => order_kind(order),
            other => to_agent_kind(other),
        });
    }
    TO_PEER.iter().for_each(|name| check::<ToPeer>(name, to_peer_kind));
    FROM_PEER.iter().for_each(|name| check::<FromPeer>(name, from_peer_kind));
    let mut found: Vec<String> = golden_dir()
        .read_dir()
        .unwrap()
        .map(|e| e.unwrap().path().file_stem().unwrap().to_string_lossy().into_owned())
        .collect();
    let mut known: Vec<String> = to_server
        .into_iter()
        .chain(to_agent)
        .chain(TO_PEER.iter().chain(FROM_PEER).copied())
        .map(String::from)
        .collect();
    found.sort();
    known.sort();
    assert_eq!(found, known, "a file that no message is checked against proves nothing");
}
