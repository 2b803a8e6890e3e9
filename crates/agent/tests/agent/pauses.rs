//! Programs that take turns: frozen, let go on, and told how far.

use std::thread::sleep;
use std::time::Duration;

use shoal_link::{Order, RankOutcome, ReportBody, Resource};
use shoal_sandbox::Support;

use crate::Test;
use crate::stage::{Stage, eventually};

pub(crate) const TESTS: &[Test] = &[
    ("a frozen program stands still, over outages too, and goes on when it may", stands_still),
    ("a frozen program that is stopped ends as any other", stopped_while_frozen),
];

/// Says what it is told of its resource when that changes, and lives.
const TELLS: &str = "f=${SAGEMAKER_BASE_DIR:-/opt/ml}/input/config/shoal_resource.json; while :; do now=$(cat $f); \
    if [ \"$now\" != \"$before\" ]; then echo \"told $now\"; before=$now; fi; echo alive; sleep 0.01; done";

fn lines(stage: &Stage) -> usize {
    stage.server.until(1, "anything", |_| true).lines().len()
}

/// Waits until nothing more comes; gives how much there is.
fn standstill(stage: &Stage) -> usize {
    loop {
        let before = lines(stage);
        sleep(Duration::from_millis(700));
        if lines(stage) == before {
            return before;
        }
    }
}

fn start(name: &str, script: &str) -> Stage {
    let mut stage = Stage::new(name);
    let mut assignment = stage.assignment(1, 1, script);
    assignment.resource = Some(Resource { from: 2, until: Some(9), max: Some(27) });
    stage.start(assignment);
    stage.server.until(1, "a few lines", |it| it.lines().len() > 5);
    stage
}

fn stands_still(_: &Support) {
    let stage = start("frozen", TELLS);
    assert_eq!(lines_told(&stage), [r#"told {"from":2,"until":9,"max":27}"#]);
    stage.server.order(1, Order::Freeze);
    let before = standstill(&stage);
    stage.server.go_away();
    stage.server.come_back();
    eventually("another connection", || stage.server.until(1, "anything", |_| true).welcomes > 1);
    sleep(Duration::from_millis(200));
    assert_eq!(lines(&stage), before, "the order stands");
    stage.server.order(1, Order::Thaw { until: Some(27) });
    stage.server.until(1, "more lines", |it| it.lines().len() > before + 5);
    stage.server.order(1, Order::Thaw { until: None });
    stage.server.until(1, "word of the end", |it| it.lines().iter().any(|line| line == r#"told {"from":2,"max":27}"#));
    let told = lines_told(&stage);
    assert_eq!(told[..2], [r#"told {"from":2,"until":9,"max":27}"#, r#"told {"from":2,"until":27,"max":27}"#]);
    stage.release();
}

fn lines_told(stage: &Stage) -> Vec<String> {
    let lines = stage.server.until(1, "anything", |_| true).lines();
    lines.into_iter().filter(|line| line.starts_with("told")).collect()
}

fn stopped_while_frozen(_: &Support) {
    let stage = start("stopped", &format!("trap 'echo bye; exit 7' TERM; {TELLS}"));
    stage.server.order(1, Order::Freeze);
    standstill(&stage);
    stage.server.order(1, Order::Stop { grace_s: 20, reason: "a test".into() });
    let heard = stage.server.until(1, "the end", |it| it.has(&ReportBody::Uploaded));
    assert_eq!(heard.end().unwrap().0.outcome, RankOutcome::Exited(7));
    assert_eq!(heard.lines().last().unwrap(), "bye");
    stage.release();
}
