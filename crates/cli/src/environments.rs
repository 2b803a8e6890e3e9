//! Where Python environments lie, and how the agents that a server starts find them.

use std::path::{Path, PathBuf};

use shoal_environments::{Cache, Images, Source, is_for_installers};
use shoal_sandbox::Support;

use crate::settings::{Scheduler, Settings, Target};

/// The user's rows of the table of images, in the data directory.
const TABLE: &str = "environments.txt";

/// Tells agents the directory of wheels.
const WHEEL_HOUSE_VARIABLE: &str = "SHOAL_WHEEL_HOUSE";

/// Tells them the wheel of our Python package.
const PACKAGE_VARIABLE: &str = "SHOAL_PYTHON_PACKAGE";

/// Tells them the user's cache.
const CACHE_VARIABLE: &str = "SHOAL_CACHE";

/// Has a directory that all nodes of the cluster see.
pub(crate) const SHARED_VARIABLE: &str = "SHOAL_SHARED_OBJECTS";

/// Has how many bytes may be kept there.
pub(crate) const SHARED_SIZE_VARIABLE: &str = "SHOAL_SHARED_OBJECTS_SIZE";

/// The file with the user's rows.
pub fn table_file(data_dir: &Path) -> PathBuf {
    data_dir.join(TABLE)
}

/// The cache as a server with these settings would have it.
pub fn cache(settings: &Settings) -> Cache {
    Cache::new(directory(), Source::of_this_process(settings.wheel_house.clone()))
}

/// The cache as the server of this agent has it.
pub(crate) fn of_agent() -> Cache {
    let wheel_house = std::env::var_os(WHEEL_HOUSE_VARIABLE).map(PathBuf::from);
    Cache::new(directory(), Source::of_this_process(wheel_house))
}

/// The wheel of our Python package as the server of this agent has it.
pub(crate) fn package_of_agent() -> Option<PathBuf> {
    std::env::var_os(PACKAGE_VARIABLE).map(PathBuf::from)
}

/// What agents are to have in their environment, which is empty otherwise.
pub(crate) fn variables(settings: &Settings) -> Vec<(String, String)> {
    let cache = shoal_algos::cache();
    let cache = std::path::absolute(&cache).unwrap_or(cache);
    let ours = [
        (CACHE_VARIABLE, Some(cache)),
        (WHEEL_HOUSE_VARIABLE, settings.wheel_house.clone()),
        (PACKAGE_VARIABLE, settings.python_package.clone()),
    ];
    let ours =
        ours.into_iter().filter_map(|(name, path)| Some((name.to_owned(), path?.into_os_string().into_string().ok()?)));
    variables_elsewhere().into_iter().chain(ours).collect()
}

/// The same for agents on other machines, where the paths of this one are not.
pub(crate) fn variables_elsewhere() -> Vec<(String, String)> {
    let all =
        std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
    all.filter(|(name, _)| is_for_installers(name)).collect()
}

/// The same for agents of a compute target. One that runs the program at the path of this machine's
/// has its file system, too.
pub(crate) fn variables_of_target(settings: &Settings, target: &Target) -> Vec<(String, String)> {
    let shared = match &target.scheduler {
        Scheduler::Slurm(options) => options.program.is_none(),
        // What agents need not find out.
        Scheduler::Kubernetes(_) => return vec![shoal_agent::support_variable(&Support::container())],
    };
    let mut all = if shared { variables(settings) } else { Vec::new() };
    if let Scheduler::Slurm(options) = &target.scheduler
        && options.users.is_some()
    {
        // Each user's own.
        all.retain(|(name, _)| name != CACHE_VARIABLE);
    }
    if let Some(cache) = target.cache.as_ref().and_then(|cache| cache.to_str()) {
        all.retain(|(name, _)| name != CACHE_VARIABLE);
        all.push((CACHE_VARIABLE.to_owned(), cache.to_owned()));
    }
    if let Some(shared) = target.shared.as_ref().and_then(|shared| shared.to_str()) {
        all.push((SHARED_VARIABLE.to_owned(), shared.to_owned()));
        all.extend(target.shared_size.map(|size| (SHARED_SIZE_VARIABLE.to_owned(), size.to_string())));
    }
    all
}

/// Trees of images.
pub(crate) fn images() -> Images {
    Images::new(below_cache("images"))
}

fn directory() -> PathBuf {
    below_cache("environments")
}

pub(crate) fn below_cache(name: &str) -> PathBuf {
    let place = shoal_algos::cache().join(name);
    std::path::absolute(&place).unwrap_or(place)
}
