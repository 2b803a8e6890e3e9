//! Servers that go away, come back, or do not listen.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Duration;

use shoal_link::ReportBody;
use shoal_sandbox::{Isolation, Support};

use crate::Test;
use crate::stage::{Stage, eventually, processes_with};

pub(crate) const TESTS: &[Test] = &[
    ("an outage loses and repeats nothing", an_outage_loses_nothing),
    ("an outage at the end is waited for", an_outage_at_the_end),
    ("objective values are said at once, and each once over outages", objective_values),
    ("the end of the lease ends the program", the_end_of_the_lease),
    ("a deaf server slows the program down", a_deaf_server),
    ("a full disk slows the program down", a_full_disk),
];

fn count_to(last: usize) -> Vec<String> {
    (1..=last).map(|number| format!("line {number}")).collect()
}

fn an_outage_loses_nothing(_: &Support) {
    const LAST: usize = 3000;
    let mut stage = Stage::new("outage");
    stage.run(&format!(
        "i=0; while [ $i -lt {LAST} ]; do i=$((i+1)); echo line $i; [ $((i % 100)) = 0 ] && sleep 0.03; done; exit 0"
    ));
    for round in 1..=4 {
        stage.server.until(1, "some lines", |it| it.lines().len() >= round * 400);
        stage.server.drop_acknowledgements(true);
        stage.server.until(1, "some more lines", |it| it.lines().len() >= round * 400 + 150);
        stage.server.go_away();
        stage.server.drop_acknowledgements(false);
        thread::sleep(Duration::from_millis(60));
        stage.server.come_back();
    }
    let heard = stage.server.until(1, "the end", |it| it.has(&ReportBody::Uploaded));
    assert_eq!(heard.lines(), count_to(LAST));
    assert_eq!(heard.welcomes, 5);
    stage.release();
}

fn an_outage_at_the_end(_: &Support) {
    let mut stage = Stage::new("late");
    let done = stage.run_dir().join("algo-1/ml/output/done");
    stage.run("echo line 1; sleep 0.2; echo line 2; echo model > $SM_MODEL_DIR/m; touch $SM_OUTPUT_DATA_DIR/../done");
    stage.server.until(1, "the start", |it| it.lines().len() == 1);
    stage.server.go_away();
    eventually("the program's end", || done.exists());
    stage.server.come_back();
    let heard = stage.server.until(1, "the end", |it| it.has(&ReportBody::Uploaded));
    assert_eq!(heard.lines(), count_to(2));
    stage.release();
}

fn objective_values(_: &Support) {
    const LAST: u32 = 1000;
    let mut stage = Stage::new("objective");
    let script = format!(
        "i=0; while [ $i -lt {LAST} ]; do i=$((i+1)); echo auc:0.$i; [ $((i % 50)) = 0 ] && sleep 0.03; done; exit 0"
    );
    let mut assignment = stage.assignment(1, 1, &script);
    assignment.objective = Some("auc".into());
    stage.start(assignment);
    for round in 1..=3 {
        stage.server.until(1, "some values", |it| it.objectives().len() >= round * 200);
        stage.server.drop_acknowledgements(true);
        stage.server.until(1, "some more values", |it| it.objectives().len() >= round * 200 + 70);
        stage.server.go_away();
        stage.server.drop_acknowledgements(false);
        thread::sleep(Duration::from_millis(60));
        stage.server.come_back();
    }
    let heard = stage.server.until(1, "the end", |it| it.has(&ReportBody::Uploaded));
    let expected: Vec<(u32, f64)> = (1..=LAST).map(|it| (it, format!("0.{it}").parse().unwrap())).collect();
    assert_eq!(heard.objectives(), expected);
    assert_eq!(heard.points().len(), LAST as usize, "they are ordinary points, too");
    // None waits for the lines that are gathered: a value is said before the report that holds its
    // line.
    let (mut values, mut lines) = (0, 0);
    for report in &heard.reports {
        match report {
            ReportBody::Objective { .. } => values += 1,
            ReportBody::Logs { lines: some } => lines += some.len(),
            _ => {}
        }
        assert!(values >= lines, "a line came before its value");
    }
    stage.release();
}

fn the_end_of_the_lease(_: &Support) {
    let mut stage = Stage::new("lease");
    let mark = format!("sleep 1000.{}", std::process::id());
    let told = stage.run_dir().join("algo-1/ml/output/told");
    let mut assignment = stage.assignment(
        1,
        1,
        &format!("trap 'touch $SM_OUTPUT_DATA_DIR/../told; {mark}' TERM; echo ready; {mark} & wait"),
    );
    assignment.lease_s = 1;
    stage.start(assignment);
    stage.server.until(1, "the start", |it| it.lines().contains(&"ready".into()));
    stage.server.go_away();
    // The program is told first, and has its grace of a second.
    eventually("SIGTERM", || told.exists());
    assert_eq!(stage.exit(1).code(), Some(1));
    stage.nothing_is_left();
    eventually("the end of all processes", || processes_with(&mark).is_empty());
}

fn a_deaf_server(_: &Support) {
    // More than the spool holds, in long lines that cost little.
    const LINES: usize = 9000;
    let mut stage = Stage::new("deaf");
    stage.run(&format!(
        "python3 -c \"import sys\nfor i in range({LINES}): print(i, 'x' * 10000, flush=True)\nprint('done', file=sys.stderr, flush=True)\""
    ));
    stage.server.until(1, "the start", |it| !it.lines().is_empty());
    stage.server.be_deaf(true);
    let spool = stage.run_dir().join("algo-1/spool");
    // Full but for less than a report.
    eventually("the spool's end", || fs::metadata(&spool).is_ok_and(|it| it.len() > 62 << 20));
    thread::sleep(Duration::from_millis(100));
    let memory = resident_kib(stage.agent(1));
    assert!(memory < 32 << 10, "the agent holds {memory} KiB");
    let heard = stage.server.until(1, "what there is", |_| true);
    assert!(heard.end().is_none());
    stage.server.be_deaf(false);
    let heard = stage.server.until(1, "the end", |it| it.has(&ReportBody::Uploaded));
    let numbers =
        heard.lines().iter().filter_map(|line| line.split_once(' ')?.0.parse::<usize>().ok()).collect::<Vec<_>>();
    assert!(numbers == (0..LINES).collect::<Vec<_>>());
    stage.release();
}

fn a_full_disk(support: &Support) {
    if support.isolation != (Isolation::Full { rootless: false }) {
        return println!("  (not tried: only root can make a small disk)");
    }
    const LINES: usize = 1000;
    let mut stage = Stage::new("disk");
    let disk = SmallDisk::mount(&stage.run_dir(), "size=2m");
    stage.run(&format!("python3 -c \"for i in range({LINES}): print(i, 'x' * 10000, flush=True)\""));
    stage.server.until(1, "the start", |it| !it.lines().is_empty());
    stage.server.be_deaf(true);
    let mut fillers = 0..;
    eventually("the disk's end", || disk.fill(fillers.next().unwrap()));
    stage.server.be_deaf(false);
    let heard = stage.server.until(1, "the end", |it| it.has(&ReportBody::Uploaded));
    let numbers =
        heard.lines().iter().filter_map(|line| line.split_once(' ')?.0.parse::<usize>().ok()).collect::<Vec<_>>();
    assert!(numbers == (0..LINES).collect::<Vec<_>>());
    stage.release();
}

/// A file system of a few megabytes, gone when it is dropped.
struct SmallDisk(PathBuf);

impl SmallDisk {
    fn mount(place: &Path, size: &str) -> Self {
        let status = Command::new("mount").args(["-t", "tmpfs", "-o", size, "tmpfs"]).arg(place).status().unwrap();
        assert!(status.success());
        Self(place.to_owned())
    }

    /// Takes some of what is left, if something is.
    fn fill(&self, number: u32) -> bool {
        fs::write(self.0.join(format!("filler-{number}")), vec![0; 64 << 10]).is_err()
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Lazily, as a failed test may leave something open. What it lay on could not be removed
        // while it did.
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
        let _ = self.0.parent().map(fs::remove_dir_all);
    }
}

fn resident_kib(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}
