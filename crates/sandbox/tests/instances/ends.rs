//! Nothing is left behind, whoever ends first and however.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::Duration;

use shoal_sandbox::{Mount, Support, sweep};

use crate::Test;
use crate::stage::{Outcome, Stage, first_line, groups_with, processes_with, until};

pub(crate) const TESTS: &[Test] = &[
    ("a_program_takes_its_daemons_along", a_program_takes_its_daemons_along),
    ("a_kill_takes_everything_along", a_kill_takes_everything_along),
    ("a_dropped_instance_leaves_nothing", a_dropped_instance_leaves_nothing),
    ("a_failed_start_leaves_nothing", a_failed_start_leaves_nothing),
    ("a_killed_owner_takes_everything_along", a_killed_owner_takes_everything_along),
    ("a_killed_helper_is_an_end", a_killed_helper_is_an_end),
    ("a_sweep_ends_what_is_left", a_sweep_ends_what_is_left),
    ("a_sweep_is_for_its_own_prefix", a_sweep_is_for_its_own_prefix),
];

/// Starts a daemon in a session of its own, an orphan, that would stay for a thousand seconds.
fn daemon(mark: &str) -> String {
    format!("setsid sh -c 'sh -c \"sleep 1000; : {mark}\" & echo started'")
}

/// No process with this text in its command line, no control group with the id, no mount with the
/// directory.
fn assert_nothing_left(mark: &str, id: &str, dir: &Path) {
    let left = processes_with(mark);
    assert!(left.is_empty(), "processes: {left:?}");
    let helpers = processes_with(id);
    assert!(helpers.is_empty(), "helpers: {helpers:?}");
    let groups = groups_with(id);
    assert!(groups.is_empty(), "control groups: {groups:?}");
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    assert!(!mounts.contains(&*dir.to_string_lossy()), "mounts: {mounts}");
}

fn a_program_takes_its_daemons_along(stage: &Stage) -> Outcome {
    let mut instance = stage.shell("");
    let mark = format!("daemon-of-{}", instance.spec.id);
    instance.spec.command[2] = format!("{}; exit 3", daemon(&mark));
    let mut sandbox = stage.start(&instance).unwrap();
    assert_eq!(first_line(&mut sandbox.stdout().unwrap()), "started");
    assert_eq!(sandbox.wait().unwrap().code, Some(3));
    let (id, dir) = (instance.spec.id.clone(), instance.dir.path().to_owned());
    drop(instance.network);
    assert_nothing_left(&mark, &id, &dir);
    Ok(())
}

fn a_kill_takes_everything_along(stage: &Stage) -> Outcome {
    let mut instance = stage.shell("");
    let mark = format!("daemon-of-{}", instance.spec.id);
    instance.spec.command[2] = format!("trap '' TERM; {}; sleep 1000", daemon(&mark));
    let mut sandbox = stage.start(&instance).unwrap();
    assert_eq!(first_line(&mut sandbox.stdout().unwrap()), "started");
    assert!(!processes_with(&mark).is_empty());
    sandbox.kill();
    assert_eq!(sandbox.wait().unwrap().signal, Some(9));
    assert_nothing_left(&mark, &instance.spec.id, instance.dir.path());
    Ok(())
}

fn a_dropped_instance_leaves_nothing(stage: &Stage) -> Outcome {
    let mut instance = stage.shell("");
    let mark = format!("daemon-of-{}", instance.spec.id);
    instance.spec.command[2] = format!("{}; sleep 1000", daemon(&mark));
    let mut sandbox = stage.start(&instance).unwrap();
    assert_eq!(first_line(&mut sandbox.stdout().unwrap()), "started");
    drop(sandbox);
    assert_nothing_left(&mark, &instance.spec.id, instance.dir.path());
    Ok(())
}

fn a_failed_start_leaves_nothing(stage: &Stage) -> Outcome {
    let mut instance = stage.shell("");
    instance.spec.command = vec!["no-such-program".to_owned()];
    stage.start(&instance).unwrap_err();
    assert_nothing_left(&instance.spec.id, &instance.spec.id, instance.dir.path());
    instance.spec.mounts.push(Mount::Overlay {
        lower: "/no/such".into(),
        scratch: "/no/such".into(),
        target: "/opt/x".into(),
    });
    stage.start(&instance).unwrap_err();
    assert_nothing_left(&instance.spec.id, &instance.spec.id, instance.dir.path());
    Ok(())
}

/// This executable as another process: makes an instance with a daemon, says so and waits to be
/// killed.
pub(crate) fn own_an_instance(dir: &str) -> ExitCode {
    let stage = Stage::new(Support::probe());
    let mut instance = stage.shell("");
    let mark = Path::new(dir).file_name().unwrap().to_string_lossy();
    instance.spec.id = format!("{mark}-1");
    instance.spec.command[2] = format!("{}; sleep 1000", daemon(&mark));
    let mut sandbox = stage.start(&instance).unwrap();
    println!("{}", first_line(&mut sandbox.stdout().unwrap()));
    loop {
        std::thread::sleep(Duration::from_secs(1000));
    }
}

/// Starts that process; returns when its daemon runs.
fn owner(dir: &Path) -> Child {
    let mut owner = Command::new("/proc/self/exe")
        .args(["own", &dir.to_string_lossy()])
        .env("TMPDIR", dir)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(owner.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line.trim(), "started");
    owner
}

fn a_killed_owner_takes_everything_along(stage: &Stage) -> Outcome {
    let dir = tempfile::Builder::new().prefix("test-owner-").rand_bytes(12).tempdir().unwrap();
    let mark = dir.path().file_name().unwrap().to_string_lossy().into_owned();
    let mut owner = owner(dir.path());
    owner.kill().unwrap();
    owner.wait().unwrap();
    until("the end of the processes", || processes_with(&mark).is_empty());
    let left = groups_with(&mark);
    let swept = sweep(&[&mark]);
    assert_eq!(swept.len(), left.len(), "{swept:?} {left:?}");
    assert_eq!(left.is_empty(), stage.support.cgroup.is_none(), "{left:?}");
    assert_nothing_left(&mark, &mark, dir.path());
    Ok(())
}

fn a_killed_helper_is_an_end(stage: &Stage) -> Outcome {
    let mut instance = stage.shell("");
    let mark = format!("daemon-of-{}", instance.spec.id);
    instance.spec.command[2] = format!("{}; sleep 1000", daemon(&mark));
    let mut sandbox = stage.start(&instance).unwrap();
    assert_eq!(first_line(&mut sandbox.stdout().unwrap()), "started");
    let killed = Command::new("kill").args(["-KILL", &sandbox.pid().to_string()]).status().unwrap();
    assert!(killed.success());
    assert_eq!(sandbox.wait().unwrap().signal, Some(9));
    assert_nothing_left(&mark, &instance.spec.id, instance.dir.path());
    Ok(())
}

fn a_sweep_ends_what_is_left(stage: &Stage) -> Outcome {
    let mut instance = stage.shell("");
    let mark = format!("daemon-of-{}", instance.spec.id);
    instance.spec.command[2] = format!("{}; sleep 1000", daemon(&mark));
    let mut sandbox = stage.start(&instance).unwrap();
    assert_eq!(first_line(&mut sandbox.stdout().unwrap()), "started");
    let swept = sweep(&[&instance.spec.id]);
    assert!(swept.iter().any(|line| line.starts_with("killed shoal-init")), "{swept:?}");
    // The daemon too, where it does not end with its first process.
    assert_eq!(processes_with(&mark), Vec::<String>::new());
    assert_eq!(sandbox.wait().unwrap().signal, Some(9));
    assert_nothing_left(&mark, &instance.spec.id, instance.dir.path());
    assert_eq!(sweep(&[&instance.spec.id]), Vec::<String>::new());
    Ok(())
}

fn a_sweep_is_for_its_own_prefix(stage: &Stage) -> Outcome {
    let instance = stage.shell("trap 'exit 8' TERM; echo ready; while :; do sleep 0.01; done");
    let mut sandbox = stage.start(&instance).unwrap();
    assert_eq!(first_line(&mut sandbox.stdout().unwrap()), "ready");
    assert_eq!(sweep(&["test-none-of-these"]), Vec::<String>::new());
    sandbox.terminate().unwrap();
    assert_eq!(sandbox.wait().unwrap().code, Some(8));
    Ok(())
}
