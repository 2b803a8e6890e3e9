//! The Python environment of the program: made before it starts, shown in its instance, first in
//! its paths.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde_json::Value;
use shoal_contract::Script;
use shoal_environments::{Cache, Environment, EnvironmentError, Prepared, RequirementsError, Watcher};
use shoal_link::{Assignment, PythonEnvironment};
use shoal_sandbox::{Mount, SandboxSpec};

use crate::{inside, source};

/// Bytes of a `requirements.txt`.
const MOST_REQUIREMENTS: u64 = 1 << 20;
const TOO_LONG: &str = "is where the first MiB ends, and a longer file is not followed; leave out what is not required";
const LEADS_OUT: &str =
    "is where requirements.txt, a symbolic link, leads, and that is not beside the script; put the file itself there";

/// Makes the environment if this machine has none like it. It stays while what is given lives.
pub(crate) fn prepare(
    cache: &Cache,
    wanted: &PythonEnvironment,
    watcher: &mut dyn Watcher,
) -> Result<Prepared, EnvironmentError> {
    if let Some(notice) = &wanted.notice {
        watcher.line(notice);
    }
    cache.prepare(&environment(wanted), watcher)
}

/// Names of TensorFlow among packages.
const TENSORFLOW: [&str; 3] = ["tensorflow", "tensorflow-cpu", "tensorflow-gpu"];

/// For what the job's environment gets Shoal's Python package laid over it, if it does.
pub(crate) fn package_for(assignment: &Assignment, wanted: &PythonEnvironment) -> Option<PackageFor> {
    let environment = environment(wanted);
    let has = |names: &[&str]| names.iter().any(|name| environment.pinned(name).is_some());
    if Script::has_parameter_servers(&assignment.hyperparameters) && !has(&TENSORFLOW) {
        return Some(PackageFor::ParameterServer);
    }
    (has(&["torch"]) || has(&TENSORFLOW)).then_some(PackageFor::Framework)
}

/// Whether the package is for this version of Python, as in `3.11.7`: 3.10 and newer (`abi3-py310`
/// in py/Cargo.toml).
pub(crate) fn takes_package(version: &str) -> bool {
    let mut numbers = version.split('.').map(str::parse::<u32>);
    let (major, minor) = (numbers.next(), numbers.next());
    matches!((major, minor), (Some(Ok(major)), Some(Ok(minor))) if (major, minor) >= (3, 10))
}

/// What Shoal's Python package is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PackageFor {
    /// PyTorch finds its backends `shoal` and `smddp` in it, scripts find Horovod and
    /// `smdistributed`, as SageMaker's images have them.
    Framework,
    /// The job requires Horovod or `smdistributed`.
    Required,
    /// The job's distribution is parameter servers, and nobody else has one.
    ParameterServer,
}

/// What is wanted, as the cache knows it.
pub(crate) fn environment(wanted: &PythonEnvironment) -> Environment {
    let PythonEnvironment { name, pythons, lock, .. } = wanted.clone();
    Environment { name, pythons, lock }
}

/// What the job requires: the `requirements.txt` beside its script, or the file that SDK v3 names
/// and brings in a channel. Empty if there is none.
pub(crate) fn requirements(assignment: &Assignment, ml: &Path) -> Result<String, EnvironmentError> {
    let failed = |source| EnvironmentError::Io { what: "read requirements.txt".to_owned(), source };
    let mut beside = PathBuf::from("code/requirements.txt");
    if let Ok(target) = fs::read_link(ml.join(&beside)) {
        let inside = source::relative(&target).ok_or_else(|| wrong(1, target.display().to_string(), LEADS_OUT))?;
        beside = Path::new("code").join(inside);
    }
    let most = MOST_REQUIREMENTS + 1;
    let found = match inside::read_start(ml, &beside, most).map_err(failed)? {
        Some(bytes) => Some(bytes),
        None => of_sdk_v3(assignment, most).map_err(failed)?,
    };
    let text = String::from_utf8_lossy(&found.unwrap_or_default()).into_owned();
    if text.len() as u64 > MOST_REQUIREMENTS {
        let last = text.lines().last().unwrap_or_default().chars().take(100).collect();
        return Err(wrong(text.lines().count(), last, TOO_LONG));
    }
    Ok(text)
}

fn wrong(line: usize, text: String, why: &'static str) -> EnvironmentError {
    RequirementsError { line, text, why }.into()
}

/// The channel `sm_drivers` tells which file of the channel `code` it is, or of the archive there.
fn of_sdk_v3(assignment: &Assignment, most: u64) -> io::Result<Option<Vec<u8>>> {
    let read = |channel: &str, file: &Path| match assignment.channels.iter().find(|it| it.name == channel) {
        Some(channel) => inside::read_start(channel.tree.directory(), file, most),
        None => Ok(None),
    };
    let told = read("sm_drivers", Path::new("sourcecode.json"))?;
    let told = told.and_then(|bytes| serde_json::from_slice::<Value>(&bytes).ok());
    let told_path = |member: &str| told.as_ref().and_then(|told| told[member].as_str()).map(Path::new);
    let Some(name) = told_path("requirements").and_then(source::relative) else { return Ok(None) };
    let archive =
        told_path("source_dir").and_then(Path::file_name).filter(|name| name.to_string_lossy().ends_with(".tar.gz"));
    let Some(archive) = archive else { return read("code", &name) };
    let Some(code) = assignment.channels.iter().find(|it| it.name == "code") else { return Ok(None) };
    let file = inside::resolve(code.tree.directory(), Path::new(archive))?;
    // One that cannot be read is the driver's to tell, which unpacks it.
    Ok(file.and_then(|file| source::read_start(&file, &archive.to_string_lossy(), &name, most).ok().flatten()))
}

/// Lets the program see the environment, and use it before anything else.
pub(crate) fn show(prepared: &Prepared, spec: &mut SandboxSpec) {
    // At the same path, as virtual environments and their scripts hold absolute paths.
    spec.mounts.extend(prepared.shown().into_iter().map(|path| Mount::ReadOnly { source: path.clone(), target: path }));
    put_paths(&mut spec.env, "PATH", &prepared.path(), true);
    put_paths(&mut spec.env, "PYTHONPATH", &prepared.python_path(), false);
}

/// Before or behind what is there.
pub(crate) fn put_paths(variables: &mut Vec<(String, String)>, name: &str, paths: &[PathBuf], first: bool) {
    if paths.is_empty() {
        return;
    }
    let mut all: Vec<String> = paths.iter().map(|path| path.to_string_lossy().into_owned()).collect();
    let at = variables.iter().position(|(known, value)| known == name && !value.is_empty());
    if let Some((_, value)) = at.map(|at| variables.remove(at)) {
        all.insert(if first { all.len() } else { 0 }, value);
    }
    variables.push((name.to_owned(), all.join(":")));
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An assignment with nothing of its own.
    fn assignment() -> Assignment {
        let golden = include_str!("../../link/tests/golden/welcome_python.json");
        let message: Value = serde_json::from_str(golden).unwrap();
        serde_json::from_value(message["assignment"].clone()).unwrap()
    }

    #[test]
    fn the_package_is_for_frameworks_and_for_parameter_servers() {
        let of = |lock: &str, hyperparameters: &[(&str, &str)]| {
            let mut assignment = assignment();
            assignment.hyperparameters =
                hyperparameters.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect();
            let wanted = PythonEnvironment { lock: lock.to_owned(), ..assignment.python.clone().unwrap() };
            package_for(&assignment, &wanted)
        };
        let [on, off] = ["true", "false"].map(|value| [("sagemaker_parameter_server_enabled", value)]);
        assert_eq!(of("torch==2.9\n", &[]), Some(PackageFor::Framework));
        assert_eq!(of("numpy==2.0\n", &[]), None);
        assert_eq!(of("numpy==2.0\n", &on), Some(PackageFor::ParameterServer));
        assert_eq!(of("numpy==2.0\n", &off), None);
        // It has servers of its own, and no Horovod.
        assert_eq!(of("tensorflow-cpu==2.20\n", &on), Some(PackageFor::Framework));
        for (version, expected) in
            [("3.11.7", true), ("3.10", true), ("4.0.1", true), ("3.9.18", false), ("2.7", false), ("?", false)]
        {
            assert_eq!(takes_package(version), expected, "{version}");
        }
    }

    #[test]
    fn requirements_are_read_whole_or_not_at_all() {
        let dir = tempfile::tempdir().unwrap();
        let (code, assignment) = (dir.path().join("code"), assignment());
        fs::create_dir_all(code.join("lists")).unwrap();
        let read = || requirements(&assignment, dir.path()).map_err(|error| error.to_string());
        assert_eq!(read().unwrap(), "");
        fs::write(code.join("lists/base.txt"), "numpy==2.0\n").unwrap();
        for (target, expected) in [
            ("lists/base.txt", Ok("numpy==2.0\n")),
            ("./lists/base.txt", Ok("numpy==2.0\n")),
            ("/etc/passwd", Err("\"/etc/passwd\" is where requirements.txt, a symbolic link, leads")),
            ("../secret", Err("\"../secret\" is where")),
        ] {
            std::os::unix::fs::symlink(target, code.join("requirements.txt")).unwrap();
            match (read(), expected) {
                (Ok(text), Ok(expected)) => assert_eq!(text, expected),
                (Err(error), Err(expected)) => assert!(error.contains(expected), "{error}"),
                (read, _) => panic!("{target}: {read:?}"),
            }
            fs::remove_file(code.join("requirements.txt")).unwrap();
        }
        let comments = "# a comment\n".repeat((1 << 20) / 12);
        fs::write(code.join("requirements.txt"), &comments).unwrap();
        assert_eq!(read().unwrap(), comments);
        fs::write(code.join("requirements.txt"), comments + "numpy==1.26\n").unwrap();
        let error = read().unwrap_err();
        assert!(error.contains("is where the first MiB ends"), "{error}");
    }

    #[test]
    fn paths_come_before_and_behind_what_is_there() {
        for (before, first, expected) in [
            (Some("/usr/bin:/bin"), true, "/a/bin:/b/bin:/usr/bin:/bin"),
            (Some("/opt/ml/code"), false, "/opt/ml/code:/a/bin:/b/bin"),
            (Some(""), true, "/a/bin:/b/bin"),
            (None, false, "/a/bin:/b/bin"),
        ] {
            let mut variables: Vec<_> = before.iter().map(|value| ("P".to_owned(), (*value).to_owned())).collect();
            put_paths(&mut variables, "P", &["/a/bin".into(), "/b/bin".into()], first);
            assert_eq!(variables.last(), Some(&("P".to_owned(), expected.to_owned())), "{before:?}");
        }
    }
}
