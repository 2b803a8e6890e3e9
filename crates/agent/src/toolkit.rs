//! What scripts import from SageMaker's images (`sagemaker_training`, `sagemaker_containers`,
//! `sagemaker_xgboost_container`, `smdebug`): the package index has no wheels of these, or one that
//! no longer runs, so instances with a Python environment have ours, of the public documentation
//! (`python/` of this crate, `py/python/smdebug`).

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

/// AWS's `smdebug` in an environment of the user's: then scripts have that, and no hook attaches
/// itself.
const DEBUGGER: &str = "smdebug";

macro_rules! files {
    ($root:literal: $($path:literal),* $(,)?) => { &[$(($path, include_str!(concat!($root, $path)))),*] };
}

/// Path and text.
const FILES: &[(&str, &str)] = files!["../python/":
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

/// Debugger's library, and what Python imports when it starts, which has the hook attach itself.
const DEBUGGER_FILES: &[(&str, &str)] = files!["../../../py/python/":
    "smdebug/__init__.py",
    "smdebug/analysis/__init__.py",
    "smdebug/analysis/refreshing.py",
    "smdebug/automatic/__init__.py",
    "smdebug/automatic/keras.py",
    "smdebug/automatic/pytorch.py",
    "smdebug/automatic/sklearn.py",
    "smdebug/automatic/xgboost.py",
    "smdebug/core/__init__.py",
    "smdebug/core/collection.py",
    "smdebug/core/collection_manager.py",
    "smdebug/core/events.py",
    "smdebug/core/guard.py",
    "smdebug/core/hook.py",
    "smdebug/core/json_config.py",
    "smdebug/core/layout.py",
    "smdebug/core/logger.py",
    "smdebug/core/modes.py",
    "smdebug/core/protobuf.py",
    "smdebug/core/reduction_config.py",
    "smdebug/core/reductions.py",
    "smdebug/core/refused.py",
    "smdebug/core/save_config.py",
    "smdebug/core/singleton.py",
    "smdebug/core/state_store.py",
    "smdebug/core/tensor.py",
    "smdebug/core/tfrecord.py",
    "smdebug/core/unmatched.py",
    "smdebug/core/writer.py",
    "smdebug/exceptions.py",
    "smdebug/keras/__init__.py",
    "smdebug/keras/gradients.py",
    "smdebug/keras/hook.py",
    "smdebug/keras/tape.py",
    "smdebug/profiler/__init__.py",
    "smdebug/profiler/communication.py",
    "smdebug/profiler/keras.py",
    "smdebug/profiler/pytorch.py",
    "smdebug/profiler/steps.py",
    "smdebug/profiler/timeline.py",
    "smdebug/profiler/xgboost.py",
    "smdebug/pytorch/__init__.py",
    "smdebug/pytorch/callback.py",
    "smdebug/pytorch/hook.py",
    "smdebug/pytorch/models.py",
    "smdebug/pytorch/values.py",
    "smdebug/rules/__init__.py",
    "smdebug/rules/action/__init__.py",
    "smdebug/rules/req_tensors.py",
    "smdebug/rules/rule.py",
    "smdebug/rules/rule_invoker.py",
    "smdebug/tensorflow/__init__.py",
    "smdebug/trials/__init__.py",
    "smdebug/trials/sources.py",
    "smdebug/trials/trial.py",
    "smdebug/xgboost/__init__.py",
    "smdebug/xgboost/hook.py",
    "smdebug/xgboost/trees.py",
];
const STARTS: &[(&str, &str)] = files!["../python/": "start/sitecustomize.py"];

/// Whether instances with this environment have our `smdebug`.
pub(crate) fn brings_debugger(environment: &Environment) -> bool {
    environment.pinned(DEBUGGER).is_none()
}

/// Lets programs of this environment import them, behind what else they find by `PYTHONPATH`;
/// `place` is this instance's own directory for them. With `hooks`, Debugger's hook and the
/// profiler attach themselves in each program: else Python starts as it does without (it takes 2 ms
/// to run a file then).
///
/// # Errors
/// They cannot be written.
pub(crate) fn show(
    environment: &Environment,
    place: &Path,
    spec: &mut SandboxSpec,
    support: &Support,
    hooks: bool,
) -> io::Result<()> {
    let scripts = if PACKAGES.iter().any(|name| environment.pinned(name).is_some()) { &[][..] } else { FILES };
    let has_debugger = brings_debugger(environment);
    let debugger = if has_debugger { [DEBUGGER_FILES, STARTS] } else { [&[][..]; 2] };
    let files: Vec<_> = debugger.into_iter().flatten().chain(scripts).collect();
    if files.is_empty() {
        return Ok(());
    }
    for (path, text) in files {
        let file = place.join(path);
        fs::create_dir_all(file.parent().unwrap_or(place))?;
        fs::write(file, text)?;
    }
    let inside = PathBuf::from(INSIDE);
    spec.mounts.push(Mount::ReadOnly { source: place.to_owned(), target: inside.clone() });
    put_paths(&mut spec.env, "PYTHONPATH", &[support.path_of(&spec.mounts, &inside)], false);
    if hooks && has_debugger {
        // In front: it runs the one of that name that Python would have run.
        put_paths(&mut spec.env, "PYTHONPATH", &[support.path_of(&spec.mounts, &inside.join("start"))], true);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Python files beneath a directory, in order, relative to another.
    fn python_files(directory: &Path, root: &Path) -> Vec<String> {
        let (mut found, mut directories) = (Vec::new(), vec![directory.to_owned()]);
        while let Some(directory) = directories.pop() {
            for entry in fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()) {
                if entry.is_dir() {
                    directories.push(entry);
                } else if entry.extension().is_some_and(|ending| ending == "py") {
                    found.push(entry.strip_prefix(root).unwrap().to_str().unwrap().to_owned());
                }
            }
        }
        found.sort();
        found
    }

    #[test]
    fn every_file_is_named() {
        let names = |files: &[(&str, &str)]| files.iter().map(|(path, _)| (*path).to_owned()).collect::<Vec<_>>();
        let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("python");
        // An own rule's process sees that one alone.
        let rule = vec!["rule/own_rule.py".to_owned()];
        assert_eq!([rule, names(FILES), names(STARTS)].concat(), python_files(&own, &own));
        let package = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../py/python");
        assert_eq!(names(DEBUGGER_FILES), python_files(&package.join("smdebug"), &package));
    }
}
