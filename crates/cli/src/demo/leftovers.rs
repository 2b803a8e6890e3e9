//! What demos that were killed have left: a directory each, to which nobody comes back.

use std::{fs, os::unix::fs::MetadataExt, path::Path};

use rustix::process::getuid;
use shoal_store::DataDir;

/// How the names of their directories begin.
pub(super) const PREFIX: &str = "shoal-demo-";

/// Removes those of dead demos of this user, and what still runs there. One that lives has its
/// directory locked.
pub(super) fn sweep(parent: &Path) {
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        let is_ours = |it: fs::Metadata| it.is_dir() && it.uid() == getuid().as_raw();
        let is_demo = entry.file_name().to_string_lossy().starts_with(PREFIX) && entry.metadata().is_ok_and(is_ours);
        // One that has no address yet is about to start.
        if !is_demo || !entry.path().join("address").exists() {
            continue;
        }
        let Ok(dir) = DataDir::open(&entry.path()) else { continue };
        shoal_sandbox::sweep(&[dir.id()]);
        if let Err(error) = shoal_sandbox::remove_tree(&entry.path()) {
            tracing::warn!("{} of an earlier demo cannot be removed: {error}", entry.path().display());
        }
    }
}
