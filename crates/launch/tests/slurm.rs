//! [`slurm`] on a real cluster, which this test starts.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use shoal_launch::conformance::{self, program, started};
use shoal_launch::{
    AllocationStatus, Launcher, LauncherExt, Nodes, RestOptions, RestToken, RestVersion, SlurmOptions, slurm,
};

/// Goes down with the test.
struct Cluster(PathBuf);

fn cluster(verb: &str, dir: &Path) -> Result<String, String> {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/clients/slurm_cluster.py");
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
    let printed = match cluster("up", &dir.path().join("cluster")) {
        Ok(printed) => printed,
        Err(problem) if problem.starts_with("needs ") => return eprintln!("skipped: {problem}"),
        Err(problem) => panic!("{problem}"),
    };
    let (conf, address) = printed.split_once('\n').unwrap();
    let options = SlurmOptions {
        target: "tests".into(),
        nodes: Nodes::Packed,
        conf: Some(conf.into()),
        interval: Duration::from_millis(100),
        ..SlurmOptions::default()
    };
    let token = ["scontrol", "token", "lifespan=600"].map(str::to_owned).to_vec();
    let rest = RestOptions {
        address: address.parse().unwrap(),
        version: RestVersion::default(),
        user: None,
        token: Some(RestToken::Command(token)),
    };
    a_token_that_has_ended_is_renewed(&options, &rest, &dir.path().join("first"));
    for (way, options) in [("commands", options.clone()), ("rest", SlurmOptions { rest: Some(rest), ..options })] {
        let dir = dir.path().join(way);
        std::fs::create_dir(&dir).unwrap();
        let slurm = slurm(options);
        conformance::check(&slurm, &dir);
        only_others_are_ended(&slurm, &dir.join("others"));
        let report = slurm.reports(&[]).remove(0).details.unwrap();
        assert!(report[0].starts_with("partition main (default): up, 4 of 4 nodes idle"), "{way}: {report:?}");
    }
}

/// `first`: a path of no file.
fn a_token_that_has_ended_is_renewed(options: &SlurmOptions, rest: &RestOptions, first: &Path) {
    let script = format!(
        "if mkdir {} 2>/dev/null; then scontrol token lifespan=1; sleep 3; else scontrol token lifespan=600; fi",
        first.display()
    );
    let token = RestToken::Command(["sh", "-c", &script].map(str::to_owned).to_vec());
    let rest = RestOptions { token: Some(token), ..rest.clone() };
    let report = slurm(SlurmOptions { rest: Some(rest), ..options.clone() }).reports(&[]).remove(0).details.unwrap();
    assert!(report[0].starts_with("partition main (default): up, "), "{report:?}");
    assert!(first.exists(), "the first token was not asked for");
}

fn only_others_are_ended(slurm: &dyn Launcher, dir: &Path) {
    std::fs::create_dir(dir).unwrap();
    let spec = program("data-1", 1, dir);
    slurm.submit(&spec).unwrap();
    started(&spec, 1);
    slurm.end_others("data-", &|id| id == "data-1").unwrap();
    slurm.end_others("data2-", &|_| false).unwrap();
    assert_eq!(slurm.status_of(&spec).unwrap(), AllocationStatus::Running { lost: vec![] });
    slurm.end_others("data-", &|_| false).unwrap();
    assert_eq!(slurm.status_of(&spec).unwrap(), AllocationStatus::Ended);
}
