//! The cache with real interpreters, real pip and wheels that are made here; no network.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};

use shoal_environments::{Cache, Environment, EnvironmentError, Prepared, Source, Watcher};

/// Keeps the lines, and stops when one of them begins so.
#[derive(Default)]
struct Lines {
    said: Vec<String>,
    stop_at: Option<&'static str>,
}

impl Watcher for Lines {
    fn line(&mut self, line: &str) {
        self.said.push(line.to_owned());
    }

    fn is_to_stop(&mut self) -> bool {
        self.stop_at.is_some_and(|start| self.said.iter().any(|line| line.starts_with(start)))
    }
}

/// A directory with a cache and a house of wheels.
struct Place {
    dir: tempfile::TempDir,
}

impl Place {
    fn new() -> Self {
        let place = Self { dir: tempfile::tempdir().unwrap() };
        fs::create_dir(place.wheels()).unwrap();
        place
    }

    fn wheels(&self) -> PathBuf {
        self.dir.path().join("wheels")
    }

    fn root(&self) -> PathBuf {
        self.dir.path().join("cache")
    }

    fn cache(&self) -> Cache {
        Cache::new(self.root(), Source::of_this_process(Some(self.wheels())))
    }

    /// A wheel with one module that says its version, and a script of the same name that prints it.
    fn wheel(&self, name: &str, version: &str, requires: &str) {
        self.wheel_with(name, version, requires, "");
    }

    /// The same with a line of code that every interpreter runs that finds the wheel.
    fn wheel_with(&self, name: &str, version: &str, requires: &str, path_line: &str) {
        let script = concat!(
            include_str!("../../../tests/clients/wheels.py"),
            "\nimport pathlib, sys\nwheel(pathlib.Path(sys.argv[1]), *sys.argv[2:])\n"
        );
        let made = Command::new("python3")
            .args(["-c", script])
            .arg(self.wheels())
            .args([name, version, requires, path_line])
            .status()
            .unwrap();
        assert!(made.success());
    }
}

fn environment(lock: &str) -> Environment {
    let pythons = ["3.11", "3.12", "3.13", "3.10"].map(str::to_owned).to_vec();
    Environment { name: "test".into(), pythons, lock: lock.into() }
}

/// Runs a program as an instance would, with the environment's paths.
fn output(prepared: &Prepared, program: &str, args: &[&str]) -> String {
    let join = |paths: Vec<PathBuf>| std::env::join_paths(paths).unwrap();
    let mut path = prepared.path();
    path.push("/usr/bin".into());
    let program = path.iter().map(|directory| directory.join(program)).find(|file| file.exists()).unwrap();
    let output = Command::new(program)
        .args(args)
        .env_clear()
        .env("PATH", join(path))
        .env("PYTHONPATH", join(prepared.python_path()))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn made_once_read_only_and_found_again_at_once() {
    let place = Place::new();
    place.wheel("alpha", "1.0", "");
    let (cache, mut lines) = (place.cache(), Lines::default());
    let prepared = cache.prepare(&environment("alpha==1.0\n"), &mut lines).unwrap();
    assert!(
        lines.said[0].starts_with("making the environment test, once for this machine: Python 3."),
        "{:?}",
        lines.said
    );
    assert!(lines.said.last().unwrap().starts_with("the environment test is ready"), "{:?}", lines.said);
    let said = output(&prepared, "alpha", &[]);
    assert_eq!(
        said.trim(),
        format!("1.0 {}", prepared.python().display()),
        "a script of the environment runs with its interpreter"
    );
    assert!(
        output(&prepared, "python", &["-c", "import alpha; print(alpha.__file__)"])
            .contains(&*place.root().to_string_lossy())
    );
    let file = prepared.record().site_packages.join("alpha.py");
    assert!(
        fs::metadata(&file).unwrap().permissions().readonly()
            && fs::metadata(file.parent().unwrap()).unwrap().permissions().readonly()
    );

    let mut lines = Lines::default();
    let again = cache.prepare(&environment("alpha==1.0\n"), &mut lines).unwrap();
    assert_eq!((again.record(), lines.said), (prepared.record(), vec![]), "nothing is made");

    let cached = cache.list().unwrap().remove(0);
    let verdict = cache.verify(&cached).unwrap();
    assert!(verdict.files > 5 && verdict.problems.is_empty(), "{verdict:?}");
    make_writable(&file);
    fs::write(&file, "VERSION = 'evil'\n").unwrap();
    let problems = cache.verify(&cached).unwrap().problems;
    assert_eq!(problems, [format!("{}: it is not the file that was installed", file.display())]);

    // As a builder leaves it that is killed before the record is written, while its pip lives on:
    // who comes next waits for that, and makes it anew.
    drop((prepared, again));
    fs::remove_file(format!("{}.json", cached.directory.display())).unwrap();
    let left = cache.list().unwrap();
    assert_eq!((left.len(), &left[0].record, left[0].in_use), (1, &None, false));
    let lock = fs::File::options().read(true).write(true).open(format!("{}.lock", cached.directory.display())).unwrap();
    lock.lock().unwrap();
    let mut orphan = Command::new("sleep").arg("1").stdin(lock.try_clone().unwrap()).spawn().unwrap();
    drop(lock);
    let (begun, mut lines) = (Instant::now(), Lines::default());
    let anew = cache.prepare(&environment("alpha==1.0\n"), &mut lines).unwrap();
    assert!(
        lines.said[0].starts_with("waiting for the environment test") && lines.said[1].starts_with("making"),
        "{:?}",
        lines.said
    );
    assert!(begun.elapsed() >= Duration::from_millis(900));
    assert!(orphan.wait().unwrap().success());
    assert_eq!(output(&anew, "python", &["-c", "import alpha; print(alpha.VERSION)"]), "1.0\n");

    // Its interpreter goes while a job has it.
    make_writable(anew.python().parent().unwrap());
    fs::remove_file(anew.python()).unwrap();
    let mut lines = Lines::default();
    let broken = cache.prepare(&environment("alpha==1.0\n"), &mut lines).unwrap_err();
    assert!(
        broken.to_string().starts_with("the environment test is in use by running jobs and no longer whole")
            && !broken.is_the_jobs()
    );
    assert_eq!(lines.said, Vec::<String>::new(), "nobody makes it");
    drop(anew);
    cache.prune(Duration::ZERO).unwrap();
    assert_eq!(fs::read_dir(place.root()).unwrap().count(), 0, "no lock is left");
}

#[test]
fn a_look_at_the_files_runs_no_code_of_theirs() {
    let place = Place::new();
    place.wheel("alpha", "1.0", "");
    let marker = place.dir.path().join("marker");
    place.wheel_with("beta", "1.0", "", &format!("import sys; open({:?}, 'w')", marker.to_str().unwrap()));
    let cache = place.cache();
    let base = cache.prepare(&environment("alpha==1.0\n"), &mut Lines::default()).unwrap();
    let job = cache.overlay(base, "beta\n", None, &mut Lines::default()).unwrap();
    let cached = cache.list().unwrap().into_iter().find(|cached| cached.id.starts_with("test-job-")).unwrap();
    let verdict = cache.verify(&cached).unwrap();
    assert!(verdict.files >= 5 && verdict.problems.is_empty(), "{verdict:?}");
    assert!(!marker.exists(), "the job's code ran outside of its sandbox");
    output(&job, "python", &["-c", ""]);
    assert!(marker.exists(), "the line does what it says where it may");

    // What a list names elsewhere, and what is no file, is not read.
    let info = job.record().site_packages.join("beta-1.0.dist-info");
    for path in [&info, &info.join("RECORD")] {
        make_writable(path);
    }
    let list = fs::read_to_string(info.join("RECORD")).unwrap();
    fs::write(
        info.join("RECORD"),
        format!(
            "{list}/dev/zero,sha256=0,1\n../../../../../../dev/zero,sha256=0,1\n../../../bin,sha256=0,1\nx.py,md5=0,1\n"
        ),
    )
    .unwrap();
    let problems = cache.verify(&cached).unwrap().problems;
    assert_eq!(problems.len(), 4, "{problems:?}");
    for (problem, expected) in
        problems.iter().zip(["outside of the environment", "outside of the environment", "is no file", "\"md5\""])
    {
        assert!(problem.contains(expected), "{problem}");
    }
}

#[test]
fn two_at_once_wait_for_one_build() {
    let place = Place::new();
    place.wheel("alpha", "1.0", "");
    let start = Arc::new(Barrier::new(2));
    let builders = [0, 1].map(|_| {
        let (cache, start) = (place.cache(), start.clone());
        thread::spawn(move || {
            let mut lines = Lines::default();
            start.wait();
            let prepared = cache.prepare(&environment("alpha==1.0\n"), &mut lines).unwrap();
            (prepared.record().clone(), lines.said)
        })
    });
    let [first, second] = builders.map(|builder| builder.join().unwrap());
    assert_eq!(first.0, second.0);
    let made = [&first, &second].iter().filter(|it| it.1.iter().any(|line| line.starts_with("making"))).count();
    let waited = [&first, &second]
        .iter()
        .filter(|it| it.1 == ["waiting for the environment test, which another instance or job is making"])
        .count();
    assert_eq!((made, waited), (1, 1), "{first:?} {second:?}");
}

#[test]
fn a_failed_build_says_what_pip_said_and_leaves_nothing() {
    let place = Place::new();
    place.wheel("alpha", "1.0", "");
    let failed = place.cache().prepare(&environment("alpha==2.0\n"), &mut Lines::default()).unwrap_err();
    let text = failed.to_string();
    assert!(
        text.contains("No matching distribution found for alpha==2.0")
            || text.contains("there is no version of alpha==2.0"),
        "{text}"
    );
    assert_eq!(fs::read_dir(place.root()).unwrap().count(), 0);
}

#[test]
fn who_waits_no_more_ends_the_build() {
    let place = Place::new();
    place.wheel("alpha", "1.0", "");
    let mut lines = Lines { stop_at: Some("making"), ..Lines::default() };
    let stopped = place.cache().prepare(&environment("alpha==1.0\n"), &mut lines).unwrap_err();
    assert!(matches!(stopped, EnvironmentError::Stopped(_)), "{stopped}");
    assert_eq!(place.cache().list().unwrap(), vec![]);
}

#[test]
fn requirements_lie_over_the_environment_and_are_made_once() {
    let place = Place::new();
    for (name, version, requires) in [("alpha", "1.0", ""), ("alpha", "2.0", ""), ("beta", "1.0", "alpha")] {
        place.wheel(name, version, requires);
    }
    let cache = place.cache();
    let base = || cache.prepare(&environment("alpha==1.0\n"), &mut Lines::default()).unwrap();
    let mut lines = Lines::default();
    let job = cache.overlay(base(), "# needs\nbeta\n", None, &mut lines).unwrap();
    assert!(
        lines.said[0].starts_with("installing what the job requires over the environment test"),
        "{:?}",
        lines.said
    );
    // What is there already serves: alpha 2.0 is not installed for beta's sake.
    assert!(!job.record().site_packages.join("alpha.py").exists());
    assert_eq!(output(&job, "python", &["-c", "import alpha, beta; print(alpha.VERSION, beta.VERSION)"]), "1.0 1.0\n");
    // A script of the environment below finds what lies over it.
    assert_eq!(output(&job, "alpha", &[]).split(' ').next(), Some("1.0"));
    let mut lines = Lines::default();
    let again = cache.overlay(base(), "beta   # the same\n", None, &mut lines).unwrap();
    assert_eq!((again.python(), lines.said), (job.python(), vec![]));
    // Other versions win over those below, for scripts of the environment below too.
    let newer = cache.overlay(base(), "alpha==2.0\n", None, &mut Lines::default()).unwrap();
    assert_eq!(output(&newer, "python", &["-c", "import alpha; print(alpha.VERSION)"]), "2.0\n");
    assert_eq!(output(&newer, "alpha", &[]).split(' ').next(), Some("2.0"));
    // A wheel on top comes from no index, with what is required or alone.
    place.wheel("gamma", "1.0", "");
    let wheel = place.dir.path().join("gamma-1.0-py3-none-any.whl");
    fs::rename(place.wheels().join("gamma-1.0-py3-none-any.whl"), &wheel).unwrap();
    let with_wheel = cache.overlay(base(), "beta\n", Some(&wheel), &mut Lines::default()).unwrap();
    assert_eq!(output(&with_wheel, "python", &["-c", "import alpha, beta, gamma; print(gamma.VERSION)"]), "1.0\n");
    let alone = cache.overlay(base(), "", Some(&wheel), &mut Lines::default()).unwrap();
    assert_eq!(output(&alone, "python", &["-c", "import alpha, gamma; print(gamma.VERSION)"]), "1.0\n");
    // Nothing required is the environment itself.
    assert_eq!(cache.overlay(base(), "# nothing\n", None, &mut Lines::default()).unwrap().python(), base().python());
    let refused = cache.overlay(base(), "-e .\n", None, &mut Lines::default()).unwrap_err();
    assert!(refused.to_string().starts_with("requirements.txt:1: \"-e .\" is no requirement of an index"), "{refused}");
    let missing = cache.overlay(base(), "nowhere==1\n", None, &mut Lines::default()).unwrap_err();
    assert!(
        missing
            .to_string()
            .starts_with("what the job requires could not be installed over the environment test: pip install"),
        "{missing}"
    );
    assert!(missing.is_the_jobs());
    let variables = [("PIP_RETRIES", "1"), ("PIP_TIMEOUT", "1"), ("PIP_INDEX_URL", "http://127.0.0.1:1/simple")];
    let mut source = Source::of_this_process(None);
    source.variables.retain(|(name, _)| !name.starts_with("PIP_"));
    source.variables.extend(variables.map(|(name, value)| (name.to_owned(), value.to_owned())));
    let unreachable =
        Cache::new(place.root(), source).overlay(base(), "nowhere==1\n", None, &mut Lines::default()).unwrap_err();
    let text = unreachable.to_string();
    assert!(!unreachable.is_the_jobs() && text.contains("as a package index did not answer as it should"), "{text}");
    assert_eq!(text.matches("WARNING: Retrying").count(), 1, "{text}");
    // For an isolated job nothing is fetched: not past the house of wheels, nor without one.
    let isolated = cache.isolated();
    let link = isolated
        .overlay(base(), "--find-links https://127.0.0.1:9/\nalpha==2.0\n", None, &mut Lines::default())
        .unwrap_err();
    assert!(matches!(&link, EnvironmentError::Isolated(name) if name == "test") && link.is_the_jobs(), "{link}");
    let from_house = isolated.overlay(base(), "beta\nalpha==2.0\n", None, &mut Lines::default()).unwrap();
    // What another job had made by the same settings serves.
    let mut source = Source::of_this_process(None);
    source.variables.retain(|(name, _)| !name.starts_with("PIP_"));
    source.variables.extend([
        ("PIP_NO_INDEX".to_owned(), "1".to_owned()),
        ("PIP_FIND_LINKS".to_owned(), place.wheels().display().to_string()),
    ]);
    let without_house = Cache::new(place.root(), source);
    let kept = without_house.overlay(base(), "alpha==2.0\n", None, &mut Lines::default()).unwrap();
    assert_ne!(kept.python(), newer.python(), "packages of another origin are others");
    let without_house = without_house.isolated();
    let fetched = without_house.overlay(base(), "beta\nalpha\n", None, &mut Lines::default()).unwrap_err();
    assert!(matches!(fetched, EnvironmentError::Isolated(_)), "{fetched}");
    assert_eq!(
        without_house.overlay(base(), "alpha==2.0\n", None, &mut Lines::default()).unwrap().python(),
        kept.python()
    );
    // What is in use stays; requirements go before what they lie over.
    assert!(cache.list().unwrap().iter().all(|cached| cached.in_use));
    assert_eq!(cache.prune(Duration::ZERO).unwrap(), vec![]);
    drop((job, again, newer, with_wheel, alone, from_house, kept));
    assert_eq!(cache.prune(Duration::from_secs(3600)).unwrap(), vec![], "they were wanted just now");
    let removed: Vec<_> =
        cache.prune(Duration::ZERO).unwrap().into_iter().map(|cached| cached.record.unwrap().below.is_some()).collect();
    assert_eq!(removed, [true, true, true, true, true, true, false]);
    assert_eq!(cache.list().unwrap(), vec![]);
}

fn make_writable(file: &Path) {
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(file, fs::Permissions::from_mode(if file.is_dir() { 0o755 } else { 0o644 })).unwrap();
}

#[test]
fn without_its_python_there_is_none_and_the_text_says_what_to_do() {
    let place = Place::new();
    let wanted = Environment { pythons: vec!["3.99".into()], ..environment("") };
    let error = place.cache().prepare(&wanted, &mut Lines::default()).unwrap_err().to_string();
    assert!(
        error.starts_with("the environment test needs Python 3.99")
            && error.contains("apt-get install python3.99 python3.99-venv"),
        "{error}"
    );
    assert_eq!(place.cache().list().unwrap(), vec![]);
}
