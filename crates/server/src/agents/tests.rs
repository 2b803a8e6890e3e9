//! Which connections are let in.

use shoal_launch::AllocationSpec;
use shoal_link::{Assignment, Limits, OutputCompression, Program};

use super::*;
use crate::{AccessKeys, attempts::Plan};

fn assignment(host: u32) -> Assignment {
    Assignment {
        job_name: "job".to_owned(),
        job_arn: String::new(),
        region: String::new(),
        host,
        hosts: vec!["algo-1".to_owned(), "algo-2".to_owned()],
        instance_type: String::new(),
        groups: Vec::new(),
        hyperparameters: Default::default(),
        environment: Default::default(),
        channels: Vec::new(),
        program: Program::Host { entrypoint: vec!["true".to_owned()], arguments: Vec::new() },
        python: None,
        root: None,
        metric_definitions: Vec::new(),
        objective: None,
        limits: Limits {
            memory_bytes: 1,
            together_bytes: None,
            cpus: 1,
            cpu_weight: 100,
            pids: 1,
            disk_bytes: None,
            gpus: Vec::new(),
        },
        endpoint: None,
        egress: None,
        checkpoint: None,
        debug_hook: None,
        rules: Vec::new(),
        profiler_rules: Vec::new(),
        tensor_board: None,
        intermediate: None,
        output_compression: OutputCompression::Gzip,
        lease_s: 1,
        grace_s: 1,
        resource: None,
        elastic: None,
        warm: false,
        machine_network: None,
        sampling: None,
        profiler: None,
    }
}

#[test]
fn only_an_attempts_own_agents_are_let_in() {
    let plan = Plan {
        version: Plan::VERSION,
        job: "job".to_owned().into(),
        attempt: "u-1".into(),
        streams: vec!["job/algo-1-0".to_owned(), "job/algo-2-0".to_owned()],
        reads: Vec::new(),
        writes: Vec::new(),
        isolated: false,
        checkpoints: None,
        intermediate: None,
        tensors: None,
        tensor_board: None,
        profiler: None,
        assignments: vec![assignment(1), assignment(2)],
        nodes: Vec::new(),
        creator: None,
        reuse: None,
        allocation_id: None,
        longest_s: None,
    };
    let allocation = AllocationSpec {
        wants: shoal_launch::Wants::default(),
        id: "u-1".to_owned(),
        instances: 2,
        program: "/bin/true".into(),
        args: vec![],
        env: vec![],
        nodes: vec![],
        dir: "/".into(),
    };
    let owner = AccessKeys { access_key_id: "A".to_owned(), secret_access_key: "S".to_owned(), session_token: None };
    let attempts = Attempts::default();
    attempts.insert(Attempt::new(plan, allocation, &owner));
    let good = Hello {
        protocol: PROTOCOL,
        attempt: "u-1".into(),
        host: 2,
        token: owner.agent_token("u-1"),
        pid: 1,
        visits: false,
        sampling: false,
        profiler_rules: false,
    };
    assert!(admit(&attempts, &good).is_ok());
    for (hello, expected) in [
        (Hello { protocol: PROTOCOL + 1, ..good.clone() }, "link protocol"),
        (Hello { attempt: "u-2".into(), ..good.clone() }, "attempt u-2 does not run"),
        (Hello { host: 0, ..good.clone() }, "has no host 0"),
        (Hello { host: 3, ..good.clone() }, "has no host 3"),
        (Hello { token: String::new(), ..good.clone() }, "wrong token"),
        (Hello { token: owner.agent_token("u-2"), ..good }, "wrong token"),
    ] {
        match admit(&attempts, &hello) {
            Err(reason) => assert!(reason.contains(expected), "{reason}"),
            Ok(_) => panic!("{hello:?} was let in"),
        }
    }
}
