//! Instances that end otherwise: fail, are stopped, are killed, cannot start.

use std::fs;

use shoal_link::{Artifact, Order, Program, RankOutcome, ReportBody};
use shoal_sandbox::{Isolation, Support};

use crate::Test;
use crate::stage::{Stage, eventually, processes_with};

pub(crate) const TESTS: &[Test] = &[
    ("a failure says why", a_failure_says_why),
    ("a failure that is printed is a reason", a_failure_that_is_printed),
    ("a stop that comes too late brings what there is", a_stop_that_comes_too_late),
    ("a failure file that leads elsewhere is not read", a_failure_file_that_leads_elsewhere),
    ("a rank that is killed says so", a_killed_rank),
    ("memory is a limit", memory_is_a_limit),
    ("stop lets the program end by itself", stop_lets_the_program_end),
    ("stop kills after the grace", stop_kills_after_the_grace),
    ("stop before the start starts nothing", stop_before_the_start),
    ("a release ends packing", a_release_ends_packing),
    ("a program that is not there is the user's mistake", a_program_that_is_not_there),
    ("a model that is a link is refused", a_model_that_is_a_link),
    ("a refused agent leaves", a_refused_agent_leaves),
    ("a killed agent takes its instance along", a_killed_agent),
];

fn a_failure_says_why(_: &Support) {
    let mut stage = Stage::new("failure");
    let output = "${SAGEMAKER_BASE_DIR:-/opt/ml}/output";
    stage.run(&format!(
        "echo lost > $SM_MODEL_DIR/m; printf '%1500s' x > {output}/failure; echo Traceback >&2; echo ValueError >&2; exit 3"
    ));
    let heard = stage.server.until(1, "the end", |it| it.end().is_some());
    let (end, _) = heard.end().unwrap();
    assert_eq!(end.outcome, RankOutcome::Exited(3));
    assert_eq!(end.stderr_tail, "ValueError\nTraceback\nValueError", "the cause goes first");
    assert_eq!(end.failure_file, Some("x".into()), "the white space around a reason says nothing");
    let server = stage.server.clone();
    stage.release();
    let heard = server.until(1, "what was heard", |_| true);
    assert!(!heard.has(&ReportBody::Uploaded) && heard.parts.is_empty(), "a failed rank leaves no artifacts");
}

fn a_failure_that_is_printed(_: &Support) {
    for (script, expected) in [
        (
            "echo starting; echo 'error: no column price'; exit 1",
            "error: no column price\nstarting\nerror: no column price",
        ),
        ("echo starting; echo broken >&2; exit 1", "broken"),
        ("exit 1", ""),
    ] {
        let mut stage = Stage::new("printed");
        stage.run(script);
        let heard = stage.server.until(1, "the end", |it| it.end().is_some());
        assert_eq!(heard.end().unwrap().0.stderr_tail, expected);
        stage.release();
    }
}

fn a_stop_that_comes_too_late(_: &Support) {
    let mut stage = Stage::new("too-late");
    stage.run("echo model > $SM_MODEL_DIR/m; exit 3");
    stage.server.until(1, "the end", |it| it.end().is_some());
    stage.server.order(1, stop(60));
    stage.server.order(1, stop(60));
    let heard = stage.server.until(1, "the upload", |it| it.has(&ReportBody::Uploaded));
    assert!(!heard.parts[&Artifact::Model].is_empty());
    stage.release();
}

fn a_failure_file_that_leads_elsewhere(_: &Support) {
    let mut stage = Stage::new("elsewhere");
    let secret = stage.dir.path().join("secret");
    fs::write(&secret, "only the agent may read this").unwrap();
    stage.run(&format!("ln -s {} ${{SAGEMAKER_BASE_DIR:-/opt/ml}}/output/failure; exit 1", secret.display()));
    let heard = stage.server.until(1, "the end", |it| it.end().is_some());
    assert_eq!(heard.end().unwrap().0.failure_file, None);
    stage.release();
}

fn a_killed_rank(_: &Support) {
    let mut stage = Stage::new("killed");
    stage.run("sleep 1000 & echo going; kill -9 $$");
    let heard = stage.server.until(1, "the end", |it| it.end().is_some());
    let (end, _) = heard.end().unwrap();
    assert_eq!((end.outcome, end.out_of_memory), (RankOutcome::Signaled(9), false));
    assert_eq!(heard.lines(), ["going"]);
    stage.release();
}

fn memory_is_a_limit(support: &Support) {
    if support.cgroup.is_none() {
        return println!("  (not tried: no control group can be made)");
    }
    let mut stage = Stage::new("memory");
    let mut assignment = stage.assignment(1, 1, "python3 -c 'b = bytearray(1 << 30); print(len(b))'; exit $?");
    assignment.limits.memory_bytes = 64 << 20;
    stage.start(assignment);
    let heard = stage.server.until(1, "the end", |it| it.end().is_some());
    let (end, _) = heard.end().unwrap();
    assert!(end.out_of_memory && end.outcome != RankOutcome::Exited(0), "{end:?}");
    stage.release();
}

fn stop(grace_s: u32) -> Order {
    Order::Stop { grace_s, reason: "test".into() }
}

fn stop_lets_the_program_end(_: &Support) {
    let mut stage = Stage::new("stop");
    stage
        .run("trap 'echo saving; echo saved > $SM_MODEL_DIR/m; exit 0' TERM; echo ready; while :; do sleep 0.01; done");
    stage.server.until(1, "the start", |it| it.lines().contains(&"ready".into()));
    stage.server.order(1, stop(60));
    stage.server.order(1, stop(60));
    let heard = stage.server.until(1, "the end", |it| it.has(&ReportBody::Uploaded));
    assert_eq!(heard.lines(), ["ready", "saving"]);
    assert_eq!(heard.end().unwrap().0.outcome, RankOutcome::Exited(0));
    assert!(!heard.parts[&Artifact::Model].is_empty());
    stage.release();
}

fn stop_kills_after_the_grace(_: &Support) {
    let mut stage = Stage::new("grace");
    stage.run("trap 'echo no' TERM; echo kept > $SM_MODEL_DIR/m; (trap '' TERM; sleep 1000) & echo ready; while :; do sleep 0.01; done");
    stage.server.until(1, "the start", |it| it.lines().contains(&"ready".into()));
    stage.server.order(1, stop(1));
    let heard = stage.server.until(1, "the end", |it| it.has(&ReportBody::Uploaded));
    assert_eq!(heard.lines(), ["ready", "no"]);
    assert_eq!(heard.end().unwrap().0.outcome, RankOutcome::Signaled(9));
    assert!(!heard.parts[&Artifact::Model].is_empty(), "after an ordered stop what is there is kept");
    stage.release();
}

fn stop_before_the_start(support: &Support) {
    if support.isolation == Isolation::Processes {
        return println!("  (not tried: without namespaces there is no network to wait for)");
    }
    let mut stage = Stage::new("early");
    // The second instance waits for the first one's network, which does not come.
    stage.start(stage.assignment(2, 2, "echo started"));
    stage.server.until(2, "the assignment", |it| !it.reports.is_empty());
    stage.server.order(2, stop(60));
    let heard = stage.server.until(2, "the end", |it| it.has(&ReportBody::Uploaded));
    assert_eq!(heard.end().unwrap().0.outcome, RankOutcome::Signaled(15));
    assert_eq!(heard.lines(), [""; 0]);
    assert!(heard.has(&ReportBody::ArtifactSent { artifact: Artifact::Model, bytes: 0, files: 0 }));
    stage.release();
}

fn a_release_ends_packing(_: &Support) {
    let mut stage = Stage::new("packing");
    // One file on the disk, and twenty-five gigabytes for the process that packs it.
    stage.run("cd $SM_MODEL_DIR; head -c 50M /dev/zero | tr '\\0' x > 0; i=0; while [ $((i += 1)) -le 500 ]; do ln 0 $i; done");
    let name = format!("shoal-pack:test-{}", stage.attempt);
    eventually("the process that packs", || !processes_with(&name).is_empty());
    let server = stage.server.clone();
    stage.release();
    assert!(!server.until(1, "the reports", |_| true).has(&ReportBody::Uploaded));
}

fn a_program_that_is_not_there(_: &Support) {
    let mut stage = Stage::new("missing");
    let mut assignment = stage.assignment(1, 1, "");
    assignment.program = Program::Host { entrypoint: vec!["no-such-program".into()], arguments: vec![] };
    stage.start(assignment);
    let heard = stage.server.until(1, "the end", |it| it.end().is_some());
    let (end, _) = heard.end().unwrap();
    assert_eq!(end.outcome, RankOutcome::Exited(127));
    assert!(end.stderr_tail.contains("no-such-program"), "{end:?}");
    assert_eq!(heard.lines(), [end.stderr_tail]);
    stage.release();
}

fn a_model_that_is_a_link(_: &Support) {
    let mut stage = Stage::new("link");
    let secrets = stage.dir.path().join("secrets");
    fs::create_dir(&secrets).unwrap();
    fs::write(secrets.join("secret"), "only the agent may read this").unwrap();
    stage.run(&format!("rmdir $SM_MODEL_DIR && ln -s {} $SM_MODEL_DIR", secrets.display()));
    let heard = stage.server.until(1, "the failure", |it| it.failure().is_some());
    assert_eq!(heard.failure(), Some("could not pack /opt/ml/model: a symbolic link is in its place"));
    assert!(heard.parts.is_empty());
    stage.release();
}

fn a_refused_agent_leaves(_: &Support) {
    let mut stage = Stage::new("refused");
    stage.server.assign(stage.assignment(1, 1, "echo started"));
    stage.start_agent(1, "a wrong token");
    assert_eq!(stage.exit(1).code(), Some(1));
    stage.nothing_is_left();
}

fn a_killed_agent(_: &Support) {
    let mut stage = Stage::new("orphan");
    let mark = format!("sleep 1000.{}", std::process::id());
    stage.run(&format!("setsid {mark} & echo ready; exec {mark}"));
    stage.server.until(1, "the start", |it| it.lines().contains(&"ready".into()));
    eventually("the program", || processes_with(&mark).len() >= 2);
    stage.kill_agent(1);
    eventually("the end of all processes", || {
        processes_with(&mark).is_empty() && processes_with(&stage.attempt).is_empty()
    });
}
