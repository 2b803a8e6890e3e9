//! The Python environment of the program: made before it starts, shown in its instance, first in its paths.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Component, Path, PathBuf};

use serde_json::Value;
use shoal_environments::{Cache, Environment, EnvironmentError, Prepared, Watcher};
use shoal_link::{Assignment, PythonEnvironment};
use shoal_sandbox::{Mount, SandboxSpec};

use crate::inside;

/// Longer `requirements.txt` are none.
const MOST_REQUIREMENTS: u64 = 1 << 20;

/// Makes the environment if this machine has none like it. It stays while what is given lives.
pub(crate) fn prepare(cache: &Cache, wanted: &PythonEnvironment, watcher: &mut dyn Watcher) -> Result<Prepared, EnvironmentError> {
    if let Some(notice) = &wanted.notice {
        watcher.line(notice);
    }
    cache.prepare(&environment(wanted), watcher)
}

/// Whether the environment has PyTorch, which finds its backends `shoal` and `smddp` in Shoal's Python package.
pub(crate) fn has_torch(wanted: &PythonEnvironment) -> bool {
    environment(wanted).pinned("torch").is_some()
}

/// What is wanted, as the cache knows it.
pub(crate) fn environment(wanted: &PythonEnvironment) -> Environment {
    let PythonEnvironment { name, pythons, lock, .. } = wanted.clone();
    Environment { name, pythons, lock }
}

/// What the job requires: the `requirements.txt` beside its script, or the file that SDK v3 names and brings in a channel. Empty if there is none.
pub(crate) fn requirements(assignment: &Assignment, ml: &Path) -> io::Result<String> {
    let beside = inside::read_start(ml, Path::new("code/requirements.txt"), MOST_REQUIREMENTS)?;
    let bytes = match (beside, of_sdk_v3(assignment)) {
        (Some(bytes), _) => bytes,
        (None, Some(file)) => read_start(&file)?,
        (None, None) => Vec::new(),
    };
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// The channel `sm_drivers` tells which file of the channel `code` it is.
fn of_sdk_v3(assignment: &Assignment) -> Option<PathBuf> {
    let tree = |name: &str| assignment.channels.iter().find(|channel| channel.name == name).map(|channel| Path::new(&channel.tree));
    let told: Value = serde_json::from_slice(&read_start(&tree("sm_drivers")?.join("sourcecode.json")).ok()?).ok()?;
    let name = Path::new(told["requirements"].as_str()?);
    let is_below = name.components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir));
    let file = tree("code")?.join(name);
    (is_below && file.is_file()).then_some(file)
}

/// Of a tree that the server has made.
fn read_start(file: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(file)?.take(MOST_REQUIREMENTS).read_to_end(&mut bytes)?;
    Ok(bytes)
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
