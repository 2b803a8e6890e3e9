//! [`kubernetes`] on a real control plane, which this test starts, with the tests' own node agent.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use std::path::{Path, PathBuf};
use std::process::Command;

use shoal_launch::conformance::{self, program, started};
use shoal_launch::{
    AllocationSpec, AllocationStatus, CacheVolume, Ending, KubernetesOptions, LaunchError, Launcher, LauncherExt,
    Wants, kubernetes,
};

/// Goes down with the test.
struct Cluster(PathBuf);

fn cluster(verb: &str, dir: &Path) -> Result<String, String> {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/clients/k8s_cluster.py");
    let output = Command::new("python3").arg(script).arg(verb).arg(dir).output().map_err(|error| error.to_string())?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if let Err(error) = cluster("down", &self.0) {
            eprintln!("the cluster is not down: {error}");
        }
    }
}

#[test]
fn conforms() {
    let dir = tempfile::tempdir().unwrap();
    let _cluster = Cluster(dir.path().join("cluster"));
    let kubeconfig = match cluster("up", &dir.path().join("cluster")) {
        Ok(kubeconfig) => PathBuf::from(kubeconfig),
        Err(problem) if problem.starts_with("needs ") => return eprintln!("skipped: {problem}"),
        Err(problem) => panic!("{problem}"),
    };
    let options = KubernetesOptions {
        target: "tests".into(),
        kubeconfig: Some(kubeconfig),
        // The tests' nodes have one that is this machine's files.
        image: "host".into(),
        cache: CacheVolume::Node(dir.path().into()),
        ..KubernetesOptions::default()
    };
    let launcher = kubernetes(options.clone());
    conformance::check(&launcher, dir.path());
    let in_dir = |name: &str| {
        let dir = dir.path().join(name);
        std::fs::create_dir(&dir).unwrap();
        dir
    };
    only_others_are_ended(&launcher, &in_dir("others"));
    another_launcher_finds_what_one_has_left(&options, &in_dir("found"));
    what_cannot_start_says_why(&options, &in_dir("refused"));
}

fn only_others_are_ended(launcher: &dyn Launcher, dir: &Path) {
    let spec = program("data-1", 1, dir);
    launcher.submit(&spec).unwrap();
    started(&spec, 1);
    launcher.end_others("data-", &|id| id == "data-1").unwrap();
    launcher.end_others("data2-", &|_| false).unwrap();
    assert_eq!(launcher.status_of(&spec).unwrap(), AllocationStatus::Running { lost: vec![] });
    launcher.end_others("data-", &|_| false).unwrap();
    assert_eq!(launcher.status_of(&spec).unwrap(), AllocationStatus::Ended);
}

/// As a server that was killed between the API server's answer and its own note of it.
fn another_launcher_finds_what_one_has_left(options: &KubernetesOptions, dir: &Path) {
    let spec = program("data-2", 2, dir);
    kubernetes(options.clone()).submit(&spec).unwrap();
    (1..=2).for_each(|host| drop(started(&spec, host)));
    let record = dir.join("kubernetes.json");
    let text = r#"{"target":"tests","jobs":[],"submitting":[1,2]}"#;
    std::fs::write(&record, text).unwrap();
    let next = kubernetes(options.clone());
    assert!(next.has_submitted(&spec));
    next.submit(&spec).unwrap();
    assert_eq!(next.status_of(&spec).unwrap(), AllocationStatus::Running { lost: vec![] });
    assert_eq!(started(&spec, 2).lines().count(), 1, "it was started once");
    // One that was never noted is ended, too.
    std::fs::write(&record, text).unwrap();
    kubernetes(options.clone()).stop(&spec).unwrap();
    assert_eq!(conformance::living(dir), [0; 0]);
}

fn what_cannot_start_says_why(options: &KubernetesOptions, dir: &Path) {
    let launcher = kubernetes(options.clone());
    let of = |name: &str, wants: Wants| {
        let dir = dir.join(name);
        std::fs::create_dir(&dir).unwrap();
        AllocationSpec { wants, ..program(&format!("data-{name}"), 1, &dir) }
    };
    let large = of("large", Wants { cpus: 1000, ..Wants::default() });
    launcher.submit(&large).unwrap();
    until(|| match launcher.status_of(&large).unwrap() {
        AllocationStatus::Queued { reason } => {
            reason.contains("Insufficient cpu") && reason.contains("it waits for capacity")
        }
        _ => false,
    });
    launcher.stop(&large).unwrap();
    let launcher = kubernetes(KubernetesOptions { image: "registry/none:1".to_owned(), ..options.clone() });
    let unknown = of("image", Wants::default());
    launcher.submit(&unknown).unwrap();
    until(|| launcher.status_of(&unknown).unwrap() == AllocationStatus::Ended);
    let end = launcher.end_of(&unknown, 1).unwrap();
    assert_eq!(end.ending, Ending::NeverStarted);
    assert!(end.text.contains("\"registry/none:1\" cannot be pulled"), "{}", end.text);
    launcher.stop(&unknown).unwrap();
    let wrong = of("wrong", Wants { image: Some("  ".to_owned()), ..Wants::default() });
    let error = launcher.submit(&wrong).unwrap_err();
    assert!(matches!(error, LaunchError::Refused { .. }), "{error}");
    assert_eq!(launcher.status_of(&wrong).unwrap(), AllocationStatus::Unknown);
}

fn until(mut is_so: impl FnMut() -> bool) {
    let end = std::time::Instant::now() + std::time::Duration::from_secs(30);
    while !is_so() {
        assert!(std::time::Instant::now() < end, "it did not come");
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
}
