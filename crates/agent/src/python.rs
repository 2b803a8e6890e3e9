//! The Python environment of the program: made before it starts, shown in its instance, first in its paths.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

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
    let PythonEnvironment { name, pythons, lock, .. } = wanted.clone();
    cache.prepare(&Environment { name, pythons, lock }, watcher)
}

/// The job's `requirements.txt`: beside its script, or in the channel in which SDK v3 brings its sources. Empty if there is none.
pub(crate) fn requirements(assignment: &Assignment, ml: &Path) -> io::Result<String> {
    let name = Path::new("requirements.txt");
    let beside = inside::read_start(ml, &Path::new("code").join(name), MOST_REQUIREMENTS)?;
    let code = assignment.channels.iter().find(|channel| channel.name == "code");
    let bytes = match (beside, code.map(|channel| Path::new(&channel.tree).join(name)).filter(|file| file.is_file())) {
        (Some(bytes), _) => bytes,
        (None, Some(file)) => {
            let mut bytes = Vec::new();
            File::open(file)?.take(MOST_REQUIREMENTS).read_to_end(&mut bytes)?;
            bytes
        }
        (None, None) => Vec::new(),
    };
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Lets the program see the environment, and use it before anything else.
pub(crate) fn show(prepared: &Prepared, spec: &mut SandboxSpec) {
    // At the same path, as virtual environments and their scripts hold absolute paths.
    spec.mounts.extend(prepared.shown().into_iter().map(|path| Mount::ReadOnly { source: path.clone(), target: path }));
    put_paths(&mut spec.env, "PATH", &prepared.path(), true);
    put_paths(&mut spec.env, "PYTHONPATH", &prepared.python_path(), false);
}

/// Before or behind what is there.
fn put_paths(variables: &mut Vec<(String, String)>, name: &str, paths: &[PathBuf], first: bool) {
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
