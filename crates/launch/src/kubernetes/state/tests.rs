//! Statuses as API servers and kubelets write them.

use serde_json::{Value, json};

use super::*;

#[expect(clippy::needless_pass_by_value, reason = "tests write them in place")]
fn pod(status: Value) -> Pod {
    serde_json::from_value(json!({"metadata": {"name": "shoal-a-1"}, "status": status})).expect("a pod")
}

fn ended(status: Value) -> (Ending, String) {
    match of(&pod(status)) {
        PodState::Over(HostEnd { ending, text }) => (ending, text),
        other => panic!("{other:?}"),
    }
}

fn waits(status: Value) -> String {
    match of(&pod(status)) {
        PodState::Waits(why) => why,
        other => panic!("{other:?}"),
    }
}

fn scheduled() -> Value {
    json!([{"type": "PodScheduled", "status": "True", "lastTransitionTime": "2026-11-27T10:00:00Z"}])
}

/// Of a container that waits on a node.
fn waiting(reason: &str, message: &str) -> Value {
    json!({"phase": "Pending", "conditions": scheduled(), "containerStatuses": [{
        "name": "instance", "image": "registry/mine:1", "imageID": "", "ready": false, "restartCount": 0,
        "state": {"waiting": {"reason": reason, "message": message}}}]})
}

/// Of a container that has ended.
fn terminated(code: i32, reason: &str, message: &str) -> Value {
    json!({"phase": "Failed", "conditions": scheduled(), "containerStatuses": [{
        "name": "instance", "image": "registry/mine:1", "imageID": "docker://x", "ready": false, "restartCount": 0,
        "state": {"terminated": {"exitCode": code, "reason": reason, "message": message,
            "startedAt": "2026-11-27T10:00:00Z", "finishedAt": "2026-11-27T10:00:05Z"}}}]})
}

#[test]
fn a_pod_waits_for_a_node_and_its_reason_says_what_to_do() {
    let unscheduled = |reason: &str, message: &str| json!({"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "False", "reason": reason, "message": message}]});
    let why = waits(unscheduled("Unschedulable", "0/3 nodes are available: 3 Insufficient cpu."));
    assert!(
        why.starts_with("Unschedulable: 0/3 nodes are available: 3 Insufficient cpu. (it waits for capacity;"),
        "{why}"
    );
    let why = waits(unscheduled("Unschedulable", "0/3 nodes are available: 3 node(s) didn't match node selector."));
    assert!(why.contains("kubectl get nodes --show-labels"), "{why}");
    assert!(
        waits(unscheduled("SchedulingGated", "x")).starts_with("Kueue has not admitted it yet (SchedulingGated): ")
    );
    assert_eq!(waits(json!({"phase": "Pending"})), NOT_SEEN);
    assert_eq!(of(&serde_json::from_value(json!({"metadata": {}})).expect("a pod")), PodState::Waits(NOT_SEEN.into()));
}

#[test]
fn a_pod_that_starts_runs() {
    for reason in ["ContainerCreating", "PodInitializing"] {
        assert_eq!(of(&pod(waiting(reason, ""))), PodState::Runs, "{reason}");
    }
    assert_eq!(of(&pod(json!({"phase": "Pending", "conditions": scheduled()}))), PodState::Runs);
    assert_eq!(of(&pod(json!({"phase": "Running", "conditions": scheduled()}))), PodState::Runs);
    assert_eq!(of(&pod(json!({"phase": "Unknown"}))), PodState::Runs, "its agent shows whether it lives");
}

#[test]
fn an_image_that_may_come_is_waited_for_and_one_that_cannot_ends_the_pod() {
    for (reason, message) in [
        ("ErrImagePull", "rpc error: code = Unknown desc = dial tcp: lookup registry: i/o timeout"),
        ("ImagePullBackOff", "Back-off pulling image \"registry/mine:1\""),
    ] {
        let expected = "the image \"registry/mine:1\" could not be pulled yet, and is tried again";
        assert_eq!(waits(waiting(reason, message)), expected);
    }
    for (reason, message) in [
        ("ErrImagePull", "rpc error: code = NotFound desc = failed to pull and unpack image \"m\": not found"),
        ("ErrImagePull", "Error response from daemon: manifest unknown: manifest tagged by \"9\" is not found"),
        (
            "ImagePullBackOff",
            "Back-off pulling image \"m\": ErrImagePull: pull access denied, repository does not exist",
        ),
        ("InvalidImageName", "Failed to apply default image tag \"A:b:c\""),
        ("ErrImageNeverPull", "Container image \"m\" is not present with pull policy of Never"),
    ] {
        let (ending, text) = ended(waiting(reason, message));
        assert_eq!(ending, Ending::NeverStarted, "{reason} {message}");
        assert!(text.contains("\"registry/mine:1\" cannot be pulled") && text.contains(message), "{text}");
    }
    let why = waits(waiting("CreateContainerConfigError", "secret \"s\" not found"));
    assert_eq!(why, "CreateContainerConfigError (something that its pod names is missing): secret \"s\" not found");
}

#[test]
fn containers_that_failed_have_a_cause() {
    assert_eq!(
        ended(terminated(1, "Error", "a\nshoal agent: no room\n\n")),
        (Ending::Itself, "shoal agent: no room".into())
    );
    let killed = ended(terminated(137, "Error", "shoal agent: something before"));
    assert_eq!(killed, (Ending::Itself, "its container was ended by signal 9 (exit code 137)".into()));
    let aborted = ended(terminated(134, "Error", "memory allocation of 8 bytes failed"));
    let expected = "its container was ended by signal 6 (exit code 134): memory allocation of 8 bytes failed";
    assert_eq!(aborted, (Ending::Itself, expected.into()));
    assert_eq!(ended(terminated(255, "Error", "last")), (Ending::Itself, "last".into()));
    let lost = "The container could not be located when the pod was deleted.";
    assert_eq!(ended(terminated(137, "ContainerStatusUnknown", lost)), (Ending::Itself, lost.into()));
    let (ending, text) = ended(terminated(137, "OOMKilled", ""));
    assert_eq!(ending, Ending::OutOfMemory);
    assert!(text.contains("choose an instance type that has more of it"), "{text}");
    let (ending, text) = ended(terminated(128, "StartError", "exec: \"/shoal/shoal\": no such file"));
    assert_eq!(ending, Ending::NeverStarted);
    assert!(text.ends_with("could not be started: exec: \"/shoal/shoal\": no such file"), "{text}");
    assert_eq!(ended(json!({"phase": "Succeeded"})), (Ending::Itself, String::new()));
}

#[test]
fn the_clusters_reasons_are_aws_words() {
    for (reason, expected) in [
        ("Evicted", Ending::Preempted),
        ("Preempting", Ending::Preempted),
        ("DeadlineExceeded", Ending::TimeLimit),
        ("NodeLost", Ending::NodeFailed),
        ("Shutdown", Ending::NodeFailed),
        ("OutOfcpu", Ending::NodeFailed),
        ("UnexpectedAdmissionError", Ending::NodeFailed),
    ] {
        let (ending, text) = ended(json!({"phase": "Failed", "reason": reason, "message": "the cluster's words"}));
        assert_eq!(ending, expected, "{reason}");
        assert!(text.contains("shoal-a-1") && text.contains("the cluster's words"), "{text}");
    }
    let lost =
        json!({"phase": "Running", "reason": "NodeLost", "message": "Node n1 which was running pod a is unresponsive"});
    assert_eq!(ended(lost).0, Ending::NodeFailed);
    let target = |reason: &str| {
        json!({"phase": "Failed", "conditions": [
            {"type": "DisruptionTarget", "status": "True", "reason": reason, "message": "m"}]})
    };
    assert_eq!(ended(target("PreemptionByScheduler")).0, Ending::Preempted);
    assert_eq!(ended(target("EvictionByEvictionAPI")).0, Ending::Preempted);
    assert_eq!(ended(target("DeletionByTaintManager")).0, Ending::NodeFailed);
}

#[test]
fn what_was_deleted_is_explained_by_what_was_known_of_it() {
    let running = pod(json!({"phase": "Running", "conditions": scheduled()}));
    let event = |reason: &str| -> Event {
        let event = json!({"metadata": {}, "involvedObject": {}, "reason": reason, "message": "by x on node n1"});
        serde_json::from_value(event).expect("an event")
    };
    let of = |last: Option<&Pod>, events: &[Event], gone| of_deleted("shoal-a-1", last, events, gone).ending;
    assert_eq!(of(Some(&running), &[], false), Ending::Cancelled);
    assert_eq!(of(None, &[event("Scheduled"), event("Killing")], false), Ending::Cancelled);
    assert_eq!(of(None, &[event("Preempted"), event("Killing")], false), Ending::Preempted);
    assert_eq!(of(Some(&running), &[event("TaintManagerEviction")], false), Ending::NodeFailed);
    assert_eq!(of(Some(&running), &[], true), Ending::NodeFailed);
    assert_eq!(of(Some(&pod(terminated(137, "OOMKilled", ""))), &[event("Preempted")], true), Ending::OutOfMemory);
    let mut killed = pod(terminated(137, "Error", ""));
    assert_eq!(of(Some(&killed), &[event("Preempted")], false), Ending::Itself, "it ended before");
    killed.metadata.deletion_timestamp = serde_json::from_value(json!("2026-11-27T10:00:06Z")).expect("a time");
    assert_eq!(super::of(&killed), PodState::Runs, "it is about to be gone");
    assert_eq!(of(Some(&killed), &[event("Preempted")], false), Ending::Preempted);
    let marked = json!({"phase": "Running", "conditions": [
        {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler", "message": "for x"}]});
    assert_eq!(of(Some(&pod(marked)), &[], false), Ending::Preempted);
}
