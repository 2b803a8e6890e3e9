//! [`Local`] against the conformance suite and against callers that are killed.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use std::collections::BTreeSet;
use std::fs;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use shoal_launch::conformance::{self, living, program, reported_to, started};
use shoal_launch::{AllocationSpec, AllocationStatus, Launcher, LauncherExt, Local};

const DIRECTORY: &str = "SHOAL_TEST_CALLER_DIRECTORY";
const INSTANCES: u32 = 12;

#[test]
fn conforms() {
    let dir = tempfile::tempdir().unwrap();
    conformance::check(&Local::default(), dir.path());
}

#[test]
fn a_command_that_starts_agents_conforms() {
    let dir = tempfile::tempdir().unwrap();
    let launcher = Local::by_command(["/bin/sh", "-c", "exec \"$@\"", "launch"].map(str::to_owned).into());
    assert!(launcher.is_remote(&[]) && !Local::default().is_remote(&[]));
    conformance::check(&launcher, dir.path());
}

#[test]
fn a_command_finds_the_name_of_each_instances_node() {
    let dir = tempfile::tempdir().unwrap();
    let command = "echo $SHOAL_NODE > \"$1/node-$$\"; exec sleep 1000";
    let launcher = Local::by_command(
        ["/bin/sh", "-c", command, "launch"]
            .map(str::to_owned)
            .into_iter()
            .chain([dir.path().display().to_string()])
            .collect(),
    );
    let named = |id: &str, nodes: &[&str]| AllocationSpec {
        nodes: nodes.iter().map(|node| (*node).to_owned()).collect(),
        ..program(id, 2, dir.path())
    };
    let found = |number: usize| {
        let of_node = |entry: std::io::Result<fs::DirEntry>| {
            let path = entry.unwrap().path();
            path.file_name().unwrap().to_str().unwrap().starts_with("node-").then(|| fs::read_to_string(path).unwrap())
        };
        loop {
            let mut nodes: Vec<String> = fs::read_dir(dir.path()).unwrap().filter_map(of_node).collect();
            nodes.sort();
            if nodes.len() == number && nodes.iter().all(|text| text.ends_with('\n')) {
                return nodes.concat();
            }
            thread::sleep(Duration::from_millis(5));
        }
    };
    let spec = named("on-nodes", &["box-1", "box-2"]);
    launcher.submit(&spec).unwrap();
    assert_eq!(found(2), "box-1\nbox-2\n");
    // One that is added in the place of another may be elsewhere.
    launcher.remove(&spec, &[2]).unwrap();
    let spec = named("on-nodes", &["box-1", "box-3"]);
    launcher.add(&spec, &[2]).unwrap();
    assert_eq!(found(3), "box-1\nbox-2\nbox-3\n");
    launcher.stop(&spec).unwrap();
}

/// Not a test by itself: what the next test runs as another process, to kill it.
#[test]
fn caller() {
    if let Some(dir) = std::env::var_os(DIRECTORY) {
        Local::default().submit(&program("killed-caller", INSTANCES, dir.as_ref())).unwrap();
    }
}

#[test]
fn a_caller_killed_at_any_moment_of_submit_starts_nothing_twice() {
    for round in 0..12 {
        let dir = tempfile::tempdir().unwrap();
        let spec = program("killed-caller", INSTANCES, dir.path());
        let mut caller = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "caller"])
            .env(DIRECTORY, dir.path())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        // Somewhere in the middle of its twelve starts, which take some ten milliseconds.
        thread::sleep(Duration::from_millis(2 * round));
        caller.kill().unwrap();
        caller.wait().unwrap();

        Local::default().submit(&spec).unwrap();
        for host in 1..=INSTANCES {
            assert_eq!(
                started(&spec, host),
                format!("killed-caller {host} hello none\n"),
                "started twice, or not by itself"
            );
        }
        assert_eq!(Local::default().status_of(&spec).unwrap(), AllocationStatus::Running { lost: vec![] });
        Local::default().stop(&spec).unwrap();
        assert_eq!(living(dir.path()), [0; 0]);
    }
}

#[test]
fn ends_are_reported_to_a_caller_that_did_not_start_the_processes() {
    let dir = tempfile::tempdir().unwrap();
    let spec = program("killed-caller", INSTANCES, dir.path());
    let mut first = Command::new(std::env::current_exe().unwrap());
    let first = first.args(["--exact", "caller"]).env(DIRECTORY, dir.path()).stdout(Stdio::null());
    assert!(first.status().unwrap().success());
    (1..=INSTANCES).for_each(|host| drop(started(&spec, host)));
    let (sender, ends) = mpsc::channel();
    let _watch = Local::default().watch(&spec, reported_to(sender)).unwrap();
    for host in [5, 1, 12] {
        fs::write(dir.path().join(format!("go-{host}")), "").unwrap();
        assert_eq!(ends.recv().unwrap(), host);
    }
    Local::default().stop(&spec).unwrap();
    assert_eq!(ends.iter().count(), INSTANCES as usize - 3);
}

#[test]
fn two_callers_at_once_start_everything_once() {
    let dir = tempfile::tempdir().unwrap();
    let spec = program("two-callers", INSTANCES, dir.path());
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| Local::default().submit(&spec).unwrap());
        }
        loop {
            match Local::default().status_of(&spec).unwrap() {
                AllocationStatus::Unknown => thread::yield_now(),
                status => break assert_eq!(status, AllocationStatus::Running { lost: vec![] }, "seen half started"),
            }
        }
    });
    for host in 1..=INSTANCES {
        assert_eq!(started(&spec, host), format!("two-callers {host} hello none\n"));
    }
    Local::default().stop(&spec).unwrap();
    assert_eq!(living(dir.path()), [0; 0]);
}

#[test]
fn a_stale_pid_file_kills_nobody() {
    let dir = tempfile::tempdir().unwrap();
    let spec = program("stale", 1, dir.path());
    let mut bystander = Command::new("sleep").arg("1000").spawn().unwrap();
    fs::write(dir.path().join("agent-1.pid"), format!("{} 1 another-boot", bystander.id())).unwrap();
    assert_eq!(Local::default().status_of(&spec).unwrap(), AllocationStatus::Ended);
    Local::default().stop(&spec).unwrap();
    assert_eq!(bystander.try_wait().unwrap(), None);
    bystander.kill().unwrap();
    bystander.wait().unwrap();
}

#[test]
fn the_kernel_is_told_who_goes_first() {
    let dir = tempfile::tempdir().unwrap();
    let specs = ["newest", "between", "oldest"].map(|name| {
        fs::create_dir(dir.path().join(name)).unwrap();
        program(name, 2, &dir.path().join(name))
    });
    specs.iter().for_each(|spec| Local::default().submit(spec).unwrap());
    // Who has just ended weighs nothing.
    let weight = |pid: u32| fs::read_to_string(format!("/proc/{pid}/oom_score_adj")).ok()?.trim().parse().ok();
    let weights =
        || specs.each_ref().map(|spec| living(&spec.dir).into_iter().filter_map(weight).collect::<BTreeSet<i32>>());
    let until = |order: &[&AllocationSpec], expected: [i32; 3]| {
        let expected = expected.map(|weight| BTreeSet::from([weight]));
        for _ in 0..500 {
            // Again, as a process that is born meanwhile has what its parent had.
            Local::default().end_first(order);
            if weights() == expected {
                return;
            }
            thread::sleep(Duration::from_millis(10));
        }
        panic!("{:?} is not {expected:?}", weights());
    };
    until(&specs.each_ref(), [1000, 500, 0]);
    // Alone it goes before anything else of the machine.
    until(&[&specs[2]], [1000, 500, 1000]);
    specs.iter().for_each(|spec| Local::default().stop(spec).unwrap());
}
