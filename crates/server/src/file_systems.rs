//! Directories of this machine, or of a compute target's nodes, that jobs may read or write by
//! `FileSystemDataSource`.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};

use shoal_launch::{Launcher, volume_path};
use shoal_plane::Node;
use shoal_wire::{Channel, ChannelSource, FileSystemSource};

/// Which directories the owner allows.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FileSystems {
    /// By `FileSystemId`: absolute.
    roots: BTreeMap<String, SharedDirectory>,
    /// By compute target: what its nodes have.
    on_targets: BTreeMap<String, BTreeMap<String, OnTarget>>,
    /// Instances are on other machines, which do not have them.
    is_remote: bool,
}

/// A file system that the nodes of a compute target have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OnTarget {
    /// At the path that this machine has it.
    SamePath,
    /// Pods mount it: see [`volume_path`].
    Volume {
        /// No job may write into it.
        is_read_only: bool,
    },
}

/// A directory that the owner allows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SharedDirectory {
    /// Absolute.
    pub path: PathBuf,
    /// No job may write into it.
    pub is_read_only: bool,
}

impl SharedDirectory {
    /// `/srv/data`, or `/srv/data:ro`.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        let read_only = text.strip_suffix(":ro");
        Self { path: PathBuf::from(read_only.unwrap_or(text)), is_read_only: read_only.is_some() }
    }
}

impl FileSystems {
    /// Roots by `FileSystemId`, each absolute.
    #[must_use]
    pub fn new(roots: BTreeMap<String, SharedDirectory>) -> Self {
        Self { roots, ..Self::default() }
    }

    /// The nodes of a compute target have these of them, at the same paths.
    ///
    /// # Errors
    /// An id that is none of them.
    pub fn on_target(&mut self, target: &str, ids: &[String]) -> Result<(), String> {
        match ids.iter().find(|id| !self.roots.contains_key(*id)) {
            Some(unknown) => Err(unknown.clone()),
            None => {
                let known = ids.iter().map(|id| (id.clone(), OnTarget::SamePath));
                self.on_targets.insert(target.to_owned(), known.collect());
                Ok(())
            }
        }
    }

    /// The pods of a compute target mount these, each with whether no job may write into it.
    pub fn in_pods(&mut self, target: &str, volumes: BTreeMap<String, bool>) {
        let known = volumes.into_iter().map(|(id, is_read_only)| (id, OnTarget::Volume { is_read_only }));
        self.on_targets.insert(target.to_owned(), known.collect());
    }

    /// Those of this machine alone that are no directories at present.
    pub fn missing(&self) -> impl Iterator<Item = (&str, &Path)> {
        let is_on_nodes = |id: &String| self.on_targets.values().any(|ids| ids.contains_key(id));
        let missing = self.roots.iter().filter(move |(id, root)| !is_on_nodes(id) && !root.path.is_dir());
        missing.map(|(id, root)| (id.as_str(), root.path.as_path()))
    }

    /// The same for the agents of a launcher, which may start them on other machines alone.
    pub(crate) fn started_by(self, launcher: &dyn Launcher) -> Self {
        Self { is_remote: launcher.is_remote(&[Node::LOCAL.to_owned()]), ..self }
    }

    /// Those of these channels that the nodes of a target have, by where they have them.
    pub(crate) fn directories(&self, channels: &[Channel], target: &str) -> BTreeSet<PathBuf> {
        let sources = channels.iter().filter_map(|channel| match &channel.source {
            ChannelSource::FileSystem { file_system } => Some(file_system),
            ChannelSource::S3(_) => None,
        });
        sources.filter_map(|source| self.directory(source, Some(target)).ok()).collect()
    }

    /// The root of the file system, for instances on this machine or on the nodes of a target; its
    /// directory exists and is reached without a symbolic link, as far as this machine has it. An
    /// instance's mount makes sure of it again, since others may change the directory until then.
    ///
    /// # Errors
    /// Why not, and what to do.
    pub(crate) fn directory(&self, source: &FileSystemSource, target: Option<&str>) -> Result<PathBuf, String> {
        let of_target = |target: &str| self.on_targets.get(target)?.get(&source.id);
        let refused = || format!("{} is mounted read-only here; set FileSystemAccessMode to ro", source.id);
        match target.map(|target| of_target(target).ok_or(target)) {
            Some(Err(target)) => {
                return Err(format!(
                    "the nodes of {target} have no file system {}: the owner of the server names those that they have by \
                     file_systems of [target.{target}]; or copy the data to S3 (`aws s3 cp --recursive`) and give \
                     S3DataSource",
                    source.id
                ));
            }
            Some(Ok(OnTarget::Volume { is_read_only: true })) if source.is_writable => return Err(refused()),
            Some(Ok(OnTarget::Volume { .. })) => return Ok(volume_path(&source.id, source.is_writable)),
            None if self.is_remote => {
                return Err(
                    "instances are on other machines, which do not have this machine's directories; copy the data \
                     to S3 (`aws s3 cp --recursive`) and give S3DataSource"
                        .to_owned(),
                );
            }
            _ => {}
        }
        let Some(root) = self.roots.get(&source.id) else {
            return Err(format!(
                "this server has no file system {}; its owner names one in shoal.toml: [file_systems] {} = \
                 \"/srv/data\", or copy the data to S3 and give S3DataSource",
                source.id, source.id
            ));
        };
        if root.is_read_only && source.is_writable {
            return Err(refused());
        }
        let root = &root.path;
        if target.is_some() && !root.is_dir() {
            return Ok(root.clone());
        }
        let mut at = root.clone();
        // Names alone: the request's check leaves no other component.
        for name in source.directory.split('/').filter(|name| !name.is_empty()) {
            at.push(name);
            match at.symlink_metadata() {
                Ok(metadata) if metadata.is_symlink() => {
                    return Err(format!(
                        "/{} leads through a symbolic link of {}; give the directory that it points to",
                        source.directory, source.id
                    ));
                }
                Ok(metadata) if metadata.is_dir() => {}
                _ => return Err(format!("there is no directory /{} in {}", source.directory, source.id)),
            }
        }
        match root.is_dir() {
            true => Ok(root.clone()),
            false => Err(format!("what is named for {} is no directory of this machine; tell the owner", source.id)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_are_below_allowed_roots_and_reached_without_links() {
        let temp = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(temp.path().join("srv/a/b")).unwrap();
        std::fs::write(temp.path().join("srv/file"), "").unwrap();
        std::os::unix::fs::symlink("/etc", temp.path().join("srv/a/out")).unwrap();
        std::os::unix::fs::symlink("b", temp.path().join("srv/a/within")).unwrap();
        let roots = [("fs-00000001", "srv"), ("fs-00000002", "none")];
        let root = |name: &str| SharedDirectory { path: temp.path().join(name), is_read_only: true };
        let roots = roots.map(|(id, name)| (id.to_owned(), root(name))).into();
        let mut systems = FileSystems::new(roots);
        systems.on_target("lab", &["fs-00000001", "fs-00000002"].map(str::to_owned)).unwrap();
        for (id, directory, expected) in [
            ("fs-00000001", "", Ok("srv")),
            ("fs-00000001", "a/b", Ok("srv")),
            ("fs-00000001", "a/c", Err("no directory /a/c")),
            ("fs-00000001", "file", Err("no directory /file")),
            ("fs-00000001", "a/out", Err("symbolic link")),
            ("fs-00000001", "a/within", Err("symbolic link")),
            ("fs-00000002", "", Err("no directory of this machine")),
            ("fs-00000003", "", Err("[file_systems] fs-00000003")),
        ] {
            let source = FileSystemSource { id: id.to_owned(), is_writable: false, directory: directory.to_owned() };
            let written = systems.directory(&FileSystemSource { is_writable: true, ..source.clone() }, None);
            assert!(written.is_err_and(|why| why.contains("read-only") || why.contains("[file_systems]")));
            let elsewhere = systems.directory(&source, Some("k8s")).unwrap_err();
            assert!(elsewhere.contains("[target.k8s]"), "{elsewhere}");
            for target in [None, Some("lab")] {
                // The nodes may have what this machine lacks.
                let expected = match (target, id) {
                    (Some(_), "fs-00000002") => Ok("none"),
                    (Some(_), "fs-00000003") => Err("[target.lab]"),
                    _ => expected,
                };
                match (systems.directory(&source, target), expected) {
                    (Ok(root), Ok(name)) => assert_eq!(root, temp.path().join(name)),
                    (Err(why), Err(part)) => assert!(why.contains(part), "{why}"),
                    (found, expected) => panic!("{id} {directory} {target:?}: {found:?}, expected {expected:?}"),
                }
            }
        }
        systems.in_pods("k8s", [("fs-00000007".to_owned(), false), ("fs-00000008".to_owned(), true)].into());
        for (id, is_writable, expected) in [
            ("fs-00000007", true, Ok("/mnt/shoal/rw/fs-00000007")),
            ("fs-00000007", false, Ok("/mnt/shoal/ro/fs-00000007")),
            ("fs-00000008", false, Ok("/mnt/shoal/ro/fs-00000008")),
            ("fs-00000008", true, Err("read-only")),
            ("fs-00000001", false, Err("file_systems of [target.k8s]")),
        ] {
            let source = FileSystemSource { id: id.to_owned(), is_writable, directory: "any".to_owned() };
            match (systems.directory(&source, Some("k8s")), expected) {
                (Ok(found), Ok(path)) => assert_eq!(found.to_str(), Some(path)),
                (Err(why), Err(part)) => assert!(why.contains(part), "{why}"),
                (found, expected) => panic!("{id} {is_writable}: {found:?}, expected {expected:?}"),
            }
        }
        systems.roots.insert("fs-00000003".to_owned(), root("none"));
        assert_eq!(Vec::from_iter(systems.missing().map(|(id, _)| id)), ["fs-00000003"], "nodes may have the other");
        assert_eq!(systems.on_target("lab", &["fs-00000009".to_owned()]), Err("fs-00000009".to_owned()));
    }
}
