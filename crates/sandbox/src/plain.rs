//! Instances where no namespaces can be had: plain processes that find their mounts elsewhere.
//!
//! What would be mounted stays where it is; what would be mounted inside of something writable is
//! linked into it. So a program that takes the base directory of its files from its environment
//! finds everything below that.

use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use crate::{Mount, SandboxError, SandboxSpec};

/// In the environment of plain processes: the instance's id, by which [`crate::sweep()`] finds
/// those that nothing else leads to.
pub(crate) const MARK: &str = "SHOAL_INSTANCE";

/// Where a path of the instance is on the machine.
pub(crate) fn path_of(mounts: &[Mount], path: &Path) -> PathBuf {
    let inside = |mount: &&Mount| path.starts_with(mount.target());
    // The innermost mount, and of equals the last, as it would lie on top.
    match mounts.iter().filter(inside).max_by_key(|mount| mount.target().components().count()) {
        Some(mount) => {
            let rest = path.strip_prefix(mount.target()).expect("only mounts around the path were kept");
            if rest.as_os_str().is_empty() { on_machine(mount) } else { on_machine(mount).join(rest) }
        }
        None => path.to_owned(),
    }
}

/// Without an overlay, the throw-away layer is a copy.
fn on_machine(mount: &Mount) -> PathBuf {
    match mount {
        Mount::Bind { source, .. } | Mount::ReadOnly { source, .. } => source.clone(),
        Mount::Overlay { scratch, .. } => scratch.join("copy"),
        Mount::Shared { root, below, .. } => root.join(below),
    }
}

/// Makes what is mounted findable, and the description one of a plain process.
pub(crate) fn arrange(spec: SandboxSpec) -> Result<SandboxSpec, SandboxError> {
    if spec.mounts.iter().any(Mount::is_root) {
        let source = io::Error::other("it needs namespaces, and this machine gives none (`shoal doctor` says why)");
        return Err(SandboxError::Io { what: "run an image".to_owned(), source });
    }
    for (index, mount) in spec.mounts.iter().enumerate() {
        let place = on_machine(mount);
        mount.open_shared().map_err(SandboxError::io(format!("open {} without links", place.display())))?;
        if let Mount::Overlay { lower, .. } = mount {
            copy(lower, &place).map_err(SandboxError::io(format!(
                "copy {} to {}",
                lower.display(),
                place.display()
            )))?;
        }
        let around = path_of(&spec.mounts[..index], mount.target());
        if around != mount.target() {
            link(&place, &around).map_err(SandboxError::io(format!(
                "link {} to {}",
                around.display(),
                place.display()
            )))?;
        }
    }
    Ok(find(spec))
}

/// The description with paths of the machine, once all of it is arranged.
pub(crate) fn find(mut spec: SandboxSpec) -> SandboxSpec {
    spec.cwd = path_of(&spec.mounts, &spec.cwd);
    if let Some(program) = spec.command.first_mut().filter(|program| program.starts_with('/')) {
        *program = path_of(&spec.mounts, Path::new(program)).to_string_lossy().into_owned();
    }
    spec.env.push((MARK.to_owned(), spec.id.clone()));
    spec
}

/// An empty directory at the link's place is what would have been mounted on.
fn link(to: &Path, at: &Path) -> io::Result<()> {
    if let Some(parent) = at.parent() {
        fs::create_dir_all(parent)?;
    }
    match fs::symlink_metadata(at) {
        Ok(metadata) if metadata.is_dir() => fs::remove_dir(at)?,
        Ok(_) => fs::remove_file(at)?,
        Err(_) => {}
    }
    symlink(to, at)
}

/// Follows links: the tree may consist of them. `fs::copy` shares the blocks where the file system
/// can.
fn copy(from: &Path, to: &Path) -> io::Result<()> {
    if !fs::metadata(from)?.is_dir() {
        return fs::copy(from, to).map(drop);
    }
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        copy(&entry.path(), &to.join(entry.file_name()))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mounts() -> Vec<Mount> {
        vec![
            Mount::Bind { source: "/data/ml".into(), target: "/opt/ml".into() },
            Mount::Overlay {
                lower: "/data/tree".into(),
                scratch: "/data/s".into(),
                target: "/opt/ml/input/data/train".into(),
            },
            Mount::ReadOnly { source: "/cache/xgb".into(), target: "/cache/xgb".into() },
        ]
    }

    #[test]
    fn the_innermost_mount_says_where_a_path_is() {
        for (path, expected) in [
            ("/opt/ml", "/data/ml"),
            ("/opt/ml/model/a", "/data/ml/model/a"),
            ("/opt/ml/input/data/train", "/data/s/copy"),
            ("/opt/ml/input/data/train/x.csv", "/data/s/copy/x.csv"),
            ("/opt/ml/input/data/training", "/data/ml/input/data/training"),
            ("/cache/xgb/lib", "/cache/xgb/lib"),
            ("/usr/bin/python3", "/usr/bin/python3"),
        ] {
            assert_eq!(path_of(&mounts(), Path::new(path)), Path::new(expected), "{path}");
        }
    }
}
