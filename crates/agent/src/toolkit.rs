//! What scripts import from SageMaker's images (`sagemaker_training`, `sagemaker_containers`,
//! `sagemaker_xgboost_container`): the package index has no wheels of these, so instances with a
//! Python environment have ours, of the public documentation (`python/` of this crate).

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use shoal_environments::Environment;
use shoal_sandbox::{Mount, SandboxSpec, Support};

use crate::python::put_paths;

/// Where instances see them.
const INSIDE: &str = "/opt/shoal/python";

/// Of the same name in an environment of the user's: then that has its own.
const PACKAGES: [&str; 4] =
    ["sagemaker-training", "sagemaker-containers", "sagemaker-xgboost-container", "sagemaker-algorithm-toolkit"];

macro_rules! files {
    ($($path:literal),* $(,)?) => { &[$(($path, include_str!(concat!("../python/", $path)))),*] };
}

/// Path and text.
const FILES: &[(&str, &str)] = files![
    "sagemaker_algorithm_toolkit/__init__.py",
    "sagemaker_algorithm_toolkit/exceptions.py",
    "sagemaker_containers/__init__.py",
    "sagemaker_containers/_env.py",
    "sagemaker_containers/beta/__init__.py",
    "sagemaker_containers/beta/framework/__init__.py",
    "sagemaker_containers/beta/framework/content_types.py",
    "sagemaker_containers/beta/framework/encoders.py",
    "sagemaker_containers/beta/framework/errors.py",
    "sagemaker_containers/beta/framework/modules.py",
    "sagemaker_containers/beta/framework/server.py",
    "sagemaker_containers/beta/framework/transformer.py",
    "sagemaker_containers/beta/framework/worker.py",
    "sagemaker_containers/entry_point.py",
    "sagemaker_training/__init__.py",
    "sagemaker_training/entry_point.py",
    "sagemaker_training/environment.py",
    "sagemaker_training/errors.py",
    "sagemaker_xgboost_container/__init__.py",
    "sagemaker_xgboost_container/checkpointing.py",
    "sagemaker_xgboost_container/constants.py",
    "sagemaker_xgboost_container/data_utils.py",
    "sagemaker_xgboost_container/distributed.py",
    "sagemaker_xgboost_container/encoder.py",
    "sagemaker_xgboost_container/recordio.py",
    "sagemaker_xgboost_container/svmlight.py",
];

/// Lets programs of this environment import them, behind what else they find by `PYTHONPATH`;
/// `place` is this instance's own directory for them.
///
/// # Errors
/// They cannot be written.
pub(crate) fn show(
    environment: &Environment,
    place: &Path,
    spec: &mut SandboxSpec,
    support: &Support,
) -> io::Result<()> {
    if PACKAGES.iter().any(|name| environment.pinned(name).is_some()) {
        return Ok(());
    }
    for (path, text) in FILES {
        let file = place.join(path);
        fs::create_dir_all(file.parent().unwrap_or(place))?;
        fs::write(file, text)?;
    }
    let inside = PathBuf::from(INSIDE);
    spec.mounts.push(Mount::ReadOnly { source: place.to_owned(), target: inside.clone() });
    put_paths(&mut spec.env, "PYTHONPATH", &[support.path_of(&spec.mounts, &inside)], false);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_is_named() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("python");
        let mut found = Vec::new();
        let mut directories = vec![root.clone()];
        while let Some(directory) = directories.pop() {
            for entry in fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()) {
                if entry.is_dir() {
                    directories.push(entry);
                } else if entry.extension().is_some_and(|ending| ending == "py") {
                    found.push(entry.strip_prefix(&root).unwrap().to_str().unwrap().to_owned());
                }
            }
        }
        found.sort();
        assert_eq!(FILES.iter().map(|(path, _)| *path).collect::<Vec<_>>(), found);
    }
}
