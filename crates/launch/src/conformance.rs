//! What every launcher must do, run on a real program. Each check panics with what went wrong.

use std::fs;
use std::path::Path;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use crate::{AllocationSpec, AllocationStatus, Launcher, LauncherExt, OnEnd, Wants, Watch};

/// Longest time that anything in this suite may take; reached only by a launcher that fails it.
const LIMIT: Duration = Duration::from_secs(30);

/// A shell that writes `host ATTEMPT K VARIABLE` to `started-K` in `dir`, leaves a child of its
/// own, and goes on for longer than any test, or until `go-K` appears.
pub fn program(id: &str, instances: u32, dir: &Path) -> AllocationSpec {
    let script = format!(
        "echo \"$0 $2 $GREETING ${{UNWANTED-none}}\" >> '{dir}/started-'$2; sleep 1000 & while ! [ -e '{dir}/go-'$2 ]; \
         do sleep 0.01; done; kill $!; exit 3",
        dir = dir.display()
    );
    AllocationSpec {
        id: id.into(),
        instances,
        program: "/bin/sh".into(),
        args: vec!["-c".into(), script, id.into()],
        env: vec![("GREETING".into(), "hello".into())],
        nodes: Vec::new(),
        wants: Wants { cpus: 1, label: "a test".into(), ..Wants::default() },
        dir: dir.into(),
    }
}

/// Most instances of one check.
const MOST: u32 = 20;

/// A check that fails leaves no process behind either.
struct Ended<'a> {
    launcher: &'a dyn Launcher,
    spec: AllocationSpec,
}

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        if let Err(error) = self.launcher.stop(&self.spec) {
            eprintln!("the suite's processes could not be stopped: {error}");
        }
    }
}

type Check = fn(&dyn Launcher, &AllocationSpec);

/// Runs every check in fresh directories below `dir`.
pub fn check(launcher: &dyn Launcher, dir: &Path) {
    let checks: [(&str, Check); 9] = [
        ("unknown", nothing_is_known_of_what_was_never_submitted),
        ("starts", every_instance_starts_once),
        ("lost", lost_instances_are_named),
        ("starting", nothing_is_lost_that_is_yet_to_start),
        ("stop", stop_leaves_nothing),
        ("none", all_or_none),
        ("many", many_are_told_apart),
        ("ends", ends_are_reported),
        ("replaced", instances_are_replaced_one_by_one),
    ];
    for (name, check) in checks {
        let dir = dir.join(name);
        fs::create_dir(&dir).expect("the suite's directory is writable");
        let spec = program(&format!("conformance-{name}-{}", std::process::id()), 3, &dir);
        let _ended = Ended { launcher, spec: AllocationSpec { instances: MOST, ..spec.clone() } };
        check(launcher, &spec);
        launcher.stop(&spec).expect("stop");
        assert_eq!(living(&dir), [0; 0], "{name} left processes");
    }
}

fn nothing_is_known_of_what_was_never_submitted(launcher: &dyn Launcher, spec: &AllocationSpec) {
    assert_eq!(status(launcher, spec), AllocationStatus::Unknown);
    launcher.stop(spec).expect("stopping the unknown is fine");
    assert_eq!(status(launcher, spec), AllocationStatus::Unknown);
}

fn every_instance_starts_once(launcher: &dyn Launcher, spec: &AllocationSpec) {
    for _ in 0..3 {
        launcher.submit(spec).expect("submit");
        assert_eq!(begun(launcher, spec), AllocationStatus::Running { lost: vec![] });
    }
    for host in 1..=3 {
        assert_eq!(started(spec, host), format!("{} {host} hello none\n", spec.id));
    }
    (1..=3).for_each(|host| finish(spec, host));
    until("the end", || status(launcher, spec) == AllocationStatus::Ended);
    launcher.submit(spec).expect("submit");
    assert_eq!(status(launcher, spec), AllocationStatus::Ended, "an allocation that is over stays over");
}

fn lost_instances_are_named(launcher: &dyn Launcher, spec: &AllocationSpec) {
    launcher.submit(spec).expect("submit");
    started(spec, 2);
    finish(spec, 2);
    until("the loss", || status(launcher, spec) == AllocationStatus::Running { lost: vec![2] });
}

fn nothing_is_lost_that_is_yet_to_start(launcher: &dyn Launcher, spec: &AllocationSpec) {
    let many = &AllocationSpec { instances: MOST, ..spec.clone() };
    thread::scope(|scope| {
        let submission = scope.spawn(|| launcher.submit(many).expect("submit"));
        while !submission.is_finished() {
            let status = status(launcher, many);
            let is_queued = matches!(status, AllocationStatus::Unknown | AllocationStatus::Queued { .. });
            assert!(is_queued || status == AllocationStatus::Running { lost: vec![] }, "{status:?}");
        }
    });
    launcher.stop(many).expect("stop");
}

fn instances_are_replaced_one_by_one(launcher: &dyn Launcher, spec: &AllocationSpec) {
    launcher.submit(spec).expect("submit");
    (1..=3).for_each(|host| drop(started(spec, host)));
    launcher.remove(spec, &[2, 3]).expect("remove");
    assert!(!living(&spec.dir).is_empty(), "the first one runs");
    assert_eq!(status(launcher, spec), AllocationStatus::Running { lost: vec![] }, "what was removed is not lost");
    launcher.remove(spec, &[2]).expect("removing it again is fine");
    for _ in 0..2 {
        launcher.add(spec, &[2]).expect("add");
        until("the second start", || started(spec, 2).lines().count() == 2);
    }
    assert_eq!(begun(launcher, spec), AllocationStatus::Running { lost: vec![] });
    assert_eq!(
        [started(spec, 1), started(spec, 3)].map(|text| text.lines().count()),
        [1, 1],
        "only the second one was added"
    );
    launcher.remove(spec, &[1, 2]).expect("remove");
    assert_eq!(living(&spec.dir), [0; 0]);
}

fn stop_leaves_nothing(launcher: &dyn Launcher, spec: &AllocationSpec) {
    launcher.submit(spec).expect("submit");
    started(spec, 3);
    for _ in 0..2 {
        launcher.stop(spec).expect("stop");
        assert_eq!(living(&spec.dir), [0; 0]);
        assert_eq!(status(launcher, spec), AllocationStatus::Ended);
    }
}

fn all_or_none(launcher: &dyn Launcher, spec: &AllocationSpec) {
    let wrong = AllocationSpec { program: "/nonexistent/program".into(), ..spec.clone() };
    match launcher.submit(&wrong) {
        Err(_) => {}
        // Whether there is such a program is found out where it is started.
        Ok(()) if launcher.is_remote(&[]) => {
            return until("the end", || status(launcher, &wrong) == AllocationStatus::Ended);
        }
        Ok(()) => panic!("there is no such program"),
    }
    assert_eq!(living(&spec.dir), [0; 0]);
    launcher.submit(spec).expect("what never started can be started");
    assert_eq!(begun(launcher, spec), AllocationStatus::Running { lost: vec![] });
}

fn many_are_told_apart(launcher: &dyn Launcher, spec: &AllocationSpec) {
    assert!(launcher.status(&[]).is_empty());
    launcher.submit(spec).expect("submit");
    begun(launcher, spec);
    let other = AllocationSpec { id: format!("{}-other", spec.id), dir: spec.dir.join("other"), ..spec.clone() };
    fs::create_dir(&other.dir).expect("the suite's directory is writable");
    let both = || launcher.status(&[&other, spec, &other]).into_iter().collect::<Result<Vec<_>, _>>().expect("status");
    let runs = AllocationStatus::Running { lost: vec![] };
    assert_eq!(both(), [AllocationStatus::Unknown, runs, AllocationStatus::Unknown]);
    launcher.stop(spec).expect("stop");
    assert_eq!(both(), [AllocationStatus::Unknown, AllocationStatus::Ended, AllocationStatus::Unknown]);
}

fn ends_are_reported(launcher: &dyn Launcher, spec: &AllocationSpec) {
    if !launcher.reports_ends() {
        return;
    }
    let nothing = watch(launcher, spec);
    assert_eq!(nothing.1.recv(), Err(mpsc::RecvError), "nothing is watched of what was never submitted");
    launcher.submit(spec).expect("submit");
    (1..=3).for_each(|host| drop(started(spec, host)));
    let (dropped, unheard) = watch(launcher, spec);
    let (_first, ends) = watch(launcher, spec);
    finish(spec, 2);
    assert_eq!(ends.recv_timeout(LIMIT), Ok(2));
    assert_eq!(status(launcher, spec), AllocationStatus::Running { lost: vec![2] }, "what was reported is so");
    let (_second, later) = watch(launcher, spec);
    assert_eq!(later.recv_timeout(LIMIT), Ok(2), "it had ended before");
    assert_eq!(unheard.recv_timeout(LIMIT), Ok(2));
    drop(dropped);
    assert_eq!(unheard.recv_timeout(LIMIT), Err(mpsc::RecvTimeoutError::Disconnected), "no more is reported");
    launcher.stop(spec).expect("stop");
    for watched in [ends, later] {
        let mut left: Vec<u32> = watched.iter().collect();
        left.sort_unstable();
        assert_eq!(left, [1, 3], "each is reported once");
    }
}

/// Sends the numbers of hosts that end.
pub fn reported_to(sender: mpsc::Sender<u32>) -> OnEnd {
    Box::new(move |host| {
        // The check is over if nobody receives it.
        let _ = sender.send(host);
    })
}

fn watch(launcher: &dyn Launcher, spec: &AllocationSpec) -> (Watch, mpsc::Receiver<u32>) {
    let (sender, ends) = mpsc::channel();
    let watch = launcher.watch(spec, reported_to(sender)).expect("watch");
    (watch, ends)
}

fn status(launcher: &dyn Launcher, spec: &AllocationSpec) -> AllocationStatus {
    launcher.status_of(spec).expect("status")
}

/// The status when it is not queued any more.
fn begun(launcher: &dyn Launcher, spec: &AllocationSpec) -> AllocationStatus {
    until("the start of all", || !matches!(status(launcher, spec), AllocationStatus::Queued { .. }));
    status(launcher, spec)
}

/// What instance `host` wrote when it started.
pub fn started(spec: &AllocationSpec, host: u32) -> String {
    let path = spec.dir.join(format!("started-{host}"));
    until("the start", || fs::read_to_string(&path).is_ok_and(|text| text.ends_with('\n')));
    fs::read_to_string(&path).expect("it was just there")
}

fn finish(spec: &AllocationSpec, host: u32) {
    fs::write(spec.dir.join(format!("go-{host}")), "").expect("the suite's directory is writable");
}

/// Ids of the processes that write to a log in `dir`, or whose command line names it.
pub fn living(dir: &Path) -> Vec<u32> {
    let dir = dir.canonicalize().expect("the suite's directory exists");
    let belongs = |pid: &u32| {
        let command = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let stderr = fs::read_link(format!("/proc/{pid}/fd/2"));
        stderr.is_ok_and(|file| file.starts_with(&dir))
            || String::from_utf8_lossy(&command).contains(&*dir.to_string_lossy())
    };
    let entries = fs::read_dir("/proc").expect("Linux");
    let pids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    pids.filter(|pid| *pid != std::process::id()).filter(belongs).collect()
}

fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + LIMIT;
    while !is_so() {
        assert!(Instant::now() < end, "{what} did not come");
        thread::sleep(Duration::from_millis(5));
    }
}
