//! Trees of images with a command that answers as docker does, and notes what it is asked. Real
//! engines are in `tests/clients/test_images.py`.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;

use shoal_environments::{Engine, EnvironmentError, Images, Source, Watcher};

const ID: &str = "0f5c1fe5b4c66fd6e3d1f26d3e6c1b4e0f5c1fe5b4c66fd6e3d1f26d3e6c1b4e";

/// Stops when the engine has been asked for something that begins so.
struct Until(Option<(PathBuf, &'static str)>);

impl Watcher for Until {
    fn line(&mut self, _: &str) {}

    fn is_to_stop(&mut self) -> bool {
        let asked = |(log, start): &(PathBuf, &str)| {
            fs::read_to_string(log).is_ok_and(|log| log.lines().any(|line| line.starts_with(start)))
        };
        self.0.as_ref().is_some_and(asked)
    }
}

struct Place {
    dir: tempfile::TempDir,
}

impl Place {
    /// With an engine that does this for `image inspect`, `pull` and `export`.
    fn new(inspect: &str, pull: &str, export: &str) -> Self {
        let place = Self { dir: tempfile::tempdir().unwrap() };
        let tree = place.dir.path().join("tree");
        fs::create_dir(&tree).unwrap();
        fs::write(tree.join("train"), "x").unwrap();
        let script = format!(
            "#!/bin/sh\necho \"$@\" >> {0}/log\ncase $1 in\nimage) {inspect};;\npull) {pull};;\nexport) {export};;\nesac\n",
            place.dir.path().display()
        );
        let source = place.dir.path().join("engine.sh");
        fs::write(&source, script.replace("TREE", tree.to_str().unwrap())).unwrap();
        // By another process: what this one has open for writing, a child that another test starts
        // just now would hold open, too, and then it is busy.
        assert!(
            Command::new("install").args(["-m", "755"]).args([source, place.program()]).status().unwrap().success()
        );
        place
    }

    fn program(&self) -> PathBuf {
        self.dir.path().join("engine")
    }

    fn log(&self) -> PathBuf {
        self.dir.path().join("log")
    }

    /// What the engine was asked, the first word of each; and the whole.
    fn asked(&self) -> (Vec<String>, Vec<String>) {
        let lines: Vec<String> = fs::read_to_string(self.log()).unwrap().lines().map(str::to_owned).collect();
        (lines.iter().map(|line| line.split(' ').next().unwrap().to_owned()).collect(), lines)
    }

    fn images(&self) -> Images {
        Images::new(self.dir.path().join("images"))
    }

    fn prepare(&self, stop_at: Option<&'static str>) -> Result<shoal_environments::PreparedImage, EnvironmentError> {
        let engine = Engine::at(self.program(), &Source::of_this_process(None));
        self.images().prepare(&engine, "me/trainer:1", &mut Until(stop_at.map(|start| (self.log(), start))))
    }
}

fn known() -> String {
    format!(r#"echo '[{{"Id":"sha256:{ID}","Size":1,"Config":{{}}}}]'"#)
}

const EXPORT: &str = "tar -C TREE -c .";

#[test]
fn what_was_looked_up_is_read_and_a_container_that_was_left_is_removed_first() {
    let place = Place::new(&known(), "exit 1", EXPORT);
    let prepared = place.prepare(None).unwrap();
    assert_eq!(fs::read_to_string(prepared.tree().join("train")).unwrap(), "x");
    assert!(
        prepared.tree().ends_with(format!("trainer-1-{ID}")),
        "two images never have one place: {}",
        prepared.tree().display()
    );
    let (words, lines) = place.asked();
    assert_eq!(words, ["image", "rm", "create", "export", "rm"]);
    let container = lines[3].strip_prefix("export ").unwrap();
    assert!(container.starts_with("shoal-"));
    assert_eq!(lines[1], format!("rm --force --volumes {container}"), "as an agent leaves it that is killed");
    assert_eq!(
        lines[2],
        format!("create --name {container} --network none {ID} none"),
        "not by a tag, which may be another image's by now"
    );
    assert_eq!(lines[4], lines[1]);
    let mode = fs::metadata(prepared.tree().parent().unwrap()).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o700, "other users of the machine have no business there");
    drop(prepared);
    place.prepare(None).unwrap();
    assert_eq!(place.asked().0.len(), 6, "the second time it is there");
}

#[test]
fn an_export_that_stalls_is_stopped_and_leaves_nothing() {
    let place = Place::new(&known(), "exit 1", "tar -C TREE -c . | head -c 600; sleep 1000");
    let stopped = place.prepare(Some("export")).unwrap_err();
    assert!(matches!(stopped, EnvironmentError::Stopped(_)), "{stopped}");
    assert_eq!(place.asked().0.last().unwrap(), "rm");
    assert_eq!(place.images().list().unwrap(), vec![]);
}

#[test]
fn an_export_that_fails_says_why_and_leaves_nothing() {
    let place = Place::new(&known(), "exit 1", "tar -C TREE -c . ; echo it broke >&2; exit 3");
    let failed = place.prepare(None).unwrap_err();
    assert!(failed.to_string().ends_with("failed: it broke") && !failed.is_the_jobs(), "{failed}");
    assert_eq!(place.images().list().unwrap(), vec![]);
}

#[test]
fn only_an_image_that_is_not_to_be_had_is_the_jobs_own_failure() {
    let missing = "echo Error: No such image: me/trainer:1 >&2; exit 1";
    for (inspect, pull, is_the_jobs, expected) in [
        (missing, "echo manifest unknown >&2; exit 1", true, "could not pull the image me/trainer:1"),
        (missing, "echo denied: access is denied >&2; exit 1", true, "logged in to its registry"),
        (
            missing,
            "echo dial tcp: connection refused >&2; echo manifest unknown >&2; exit 1",
            false,
            "connection refused",
        ),
        (missing, "echo no space left on device >&2; exit 1", false, "no space left"),
        (
            "echo Cannot connect to the Docker daemon >&2; exit 1",
            "true",
            false,
            "image inspect me/trainer:1 failed: Cannot connect",
        ),
    ] {
        let failed = Place::new(inspect, pull, EXPORT).prepare(None).unwrap_err();
        assert!(failed.to_string().contains(expected), "{failed}");
        assert_eq!(failed.is_the_jobs(), is_the_jobs, "{failed}");
    }
}
