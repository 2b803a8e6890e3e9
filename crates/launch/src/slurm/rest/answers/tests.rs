//! On answers of slurmrestd 22.05, v0.0.38, as they came but for fewer jobs; of v0.0.40 by its
//! schema.

use serde_json::json;

use super::*;
use crate::Ending;
use crate::slurm::partitions::sentences;

const V38: Answers = Answers { version: Version::V38 };
const V40: Answers = Answers { version: Version::V40 };

fn golden(text: &str) -> Value {
    serde_json::from_str(text).expect("JSON")
}

#[test]
fn jobs_of_v38() {
    let jobs = V38.jobs(&golden(include_str!("v0.0.38/jobs.json")));
    assert_eq!(jobs.keys().copied().collect::<Vec<_>>(), [23, 24, 25]);
    let runs = &jobs[&23];
    assert_eq!((runs.state, &*runs.name, &*runs.nodes), (State::Runs, "shoal-runs", "n[1-2]"));
    assert_eq!(runs.comment, "arn:aws:sagemaker:us-east-1:000000000000:training-job/shoal-runs");
    assert_eq!(runs.start.as_deref(), Some("2026-11-27T15:46:01Z"));
    assert_eq!((jobs[&24].state, &*jobs[&24].reason), (State::Over(Ending::Itself), "NonZeroExitCode"));
    assert_eq!((jobs[&25].state, &*jobs[&25].reason, &*jobs[&25].nodes), (State::Waits, "Resources", ""));
}

#[test]
fn partitions_and_nodes_of_v38() {
    let nodes = golden(include_str!("v0.0.38/nodes.json"));
    let partitions = V38.partitions(&golden(include_str!("v0.0.38/partitions.json")), &nodes);
    let counts = "0 of 3 nodes idle, 1 down or drained, 12 of 24 processors free";
    assert_eq!(
        sentences(&partitions),
        [
            format!("partition main (default): up, {counts}"),
            format!("partition high: up, {counts}"),
            format!("partition short: up, {counts}, at most 1:00"),
        ]
    );
    assert_eq!(V38.nodes_down(&nodes), ["n3"]);
}

#[test]
fn submissions_and_errors_of_v38() {
    let submitted = golden(include_str!("v0.0.38/submitted.json"));
    assert_eq!((errors(&submitted), number(&submitted["job_id"])), (None, Some(24)));
    let refused = errors(&golden(include_str!("v0.0.38/refused.json")));
    assert_eq!(refused.as_deref(), Some("Invalid partition name specified"));
    let unknown = errors(&golden(include_str!("v0.0.38/unknown.json")));
    assert_eq!(
        unknown.as_deref(),
        Some("unable to kill JobId=99 with signal 9: Invalid job id specified: Invalid job id specified")
    );
}

#[test]
fn later_versions_have_lists_and_numbers_with_set() {
    let set = |number: u64| json!({"set": true, "infinite": false, "number": number});
    let job = |state: &[&str], start: Value| {
        let job = json!({"job_id": 7, "job_state": state, "state_reason": "None", "start_time": start, "nodes": "n1",
            "name": "shoal-a", "comment": ""});
        V40.jobs(&json!({"jobs": [job]})).remove(&7).expect("a job")
    };
    assert_eq!(job(&["RUNNING"], set(1_795_794_361)).start.as_deref(), Some("2026-11-27T15:46:01Z"));
    assert_eq!(job(&["RUNNING"], json!({"set": true, "infinite": true, "number": 0})).start, None);
    assert_eq!(job(&["CANCELLED", "COMPLETING"], set(0)).state, State::Ends);
    assert_eq!(job(&["SUSPENDED"], set(0)).state, State::Paused);
    assert_eq!(job(&["NODE_FAIL"], set(0)).state, State::Over(Ending::NodeFailed));
    assert_eq!(job(&["RUNNING", "CONFIGURING"], set(0)).state, State::Boots);

    let node = |name: &str, state: &[&str], gres: &str| json!({"name": name, "state": state, "gres": gres, "cpus": 8, "alloc_cpus": 0, "partitions": ["gpu"]});
    let nodes = json!({"nodes": [
        node("n1", &["IDLE"], "gpu:2"), node("n2", &["IDLE", "DRAIN"], "gpu:2"), node("n3", &["IDLE"], ""),
        node("n4", &["DOWN", "NOT_RESPONDING"], ""), node("m1", &["IDLE"], ""),
    ]});
    let partitions = json!({"partitions": [{
        "name": "gpu", "nodes": {"configured": "n[1-4]", "total": 4}, "partition": {"state": ["UP"]},
        "maximums": {"time": set(1590)},
    }]});
    assert_eq!(
        sentences(&V40.partitions(&partitions, &nodes)),
        [
            "partition gpu: up, 1 of 2 nodes idle, 1 down or drained, 8 of 16 processors free, at most 1-02:30:00",
            "partition gpu: up, 1 of 2 nodes idle, 1 down or drained, 8 of 16 processors free, gpu:2 on a node, at most \
             1-02:30:00",
        ]
    );
    assert_eq!(V40.nodes_down(&nodes), ["n4"]);
    let refused = json!({"errors": [{"description": "Invalid partition name specified", "error_number": 2000,
        "error": "Invalid partition name specified", "source": "_op_handler_submit_job"}]});
    assert_eq!(errors(&refused).as_deref(), Some("Invalid partition name specified"));
}
