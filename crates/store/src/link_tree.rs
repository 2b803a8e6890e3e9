//! Directory trees of links to objects: a channel without a copy of its bytes.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

use shoal_encryption::Holder;

use crate::data_dir::{has_room, random_hex, sync_parent};
use crate::elsewhere::HELD;
use crate::error::io_at;
use crate::file_copies::link_or_copy;
use crate::object_writer::FILE_MODE;
use crate::{ObjectMeta, Objects, StoreError};

/// Whether [`Objects::link_tree`] can make a tree of these entries.
///
/// # Errors
/// [`StoreError::KeyConflict`], [`StoreError::UnusableKey`] and [`StoreError::CustomersObject`].
pub fn check_tree(entries: &[(&str, &ObjectMeta)]) -> Result<(), StoreError> {
    Tree::plan(entries).map(drop)
}

impl Objects {
    /// Makes `dir` a tree of hard links to the objects' files at their relative paths (copies,
    /// where the file system allows no link; of encrypted objects decrypted copies, which go with
    /// the tree). Directories have mode 0755, files the objects' 0666:
    /// mount it read-only or under an overlay. Keys that end in `/` (folder markers) are left out.
    ///
    /// The tree appears whole or not at all; if `dir` exists already it is left as it is.
    /// `is_cancelled` is asked before each file, and while one comes from another store.
    ///
    /// # Errors
    /// [`StoreError::KeyConflict`] and [`StoreError::UnusableKey`] before anything is made;
    /// [`StoreError::ObjectGone`] when an object was replaced or deleted meanwhile;
    /// [`StoreError::DamagedObject`]; [`StoreError::Cancelled`]; [`StoreError::Key`];
    /// [`StoreError::Full`]: there is no room for decrypted copies.
    pub fn link_tree(
        &self,
        dir: &Path,
        entries: &[(&str, &ObjectMeta)],
        is_cancelled: &dyn Fn() -> bool,
    ) -> Result<(), StoreError> {
        self.make_tree(dir, entries, false, is_cancelled)
    }

    /// The same for readers on other machines: contents that are elsewhere alone stay there, and
    /// the tree holds them ([`Objects::content_address`], [`Objects::bring_held`]). Entries are
    /// named by their ids.
    ///
    /// # Errors
    /// As [`Objects::link_tree`].
    pub fn hold_tree(
        &self,
        dir: &Path,
        entries: &[(&str, &ObjectMeta)],
        is_cancelled: &dyn Fn() -> bool,
    ) -> Result<(), StoreError> {
        self.make_tree(dir, entries, true, is_cancelled)
    }

    fn make_tree(
        &self,
        dir: &Path,
        entries: &[(&str, &ObjectMeta)],
        holds: bool,
        is_cancelled: &dyn Fn() -> bool,
    ) -> Result<(), StoreError> {
        let tree = Tree::plan(entries)?;
        if dir.exists() {
            return Ok(());
        }
        // What is linked takes no space.
        let decrypted = tree.files.values().filter(|meta| meta.attributes.encryption.is_some());
        let decrypted: u64 = decrypted.map(|meta| meta.size).sum();
        if decrypted > 0 && !has_room(&self.files, decrypted) {
            return Err(StoreError::Full(format!(
                "the data directory, and a job reads {decrypted} bytes of encrypted objects"
            )));
        }
        let parent = dir.parent().unwrap_or(Path::new("/"));
        let draft = Draft { path: parent.join(format!(".draft-{}", random_hex::<8>()?)) };
        make_dir(&draft.path)?;
        if holds {
            make_dir(&draft.path.join(HELD))?;
        }
        for relative in &tree.dirs {
            make_dir(&draft.path.join(relative))?;
        }
        for (relative, meta) in &tree.files {
            if is_cancelled() {
                return Err(StoreError::Cancelled);
            }
            let target = draft.path.join(relative);
            if meta.attributes.encryption.is_some() {
                self.decrypt_to(meta, &target, is_cancelled)?;
                continue;
            }
            if let Some(shown) = self.passthrough_of(meta)? {
                self.with_copy(shown, meta, is_cancelled, |copy| link_or_copy(copy, &target))?;
                continue;
            }
            if holds && self.hold(&draft.path, meta)? {
                continue;
            }
            let _pin = self.pin(meta);
            match self.open_file(meta) {
                Err(StoreError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                    return Err(StoreError::ObjectGone { key: meta.key.clone() });
                }
                // Who reads the link reads the file itself: it is compared now.
                sound => drop(sound?),
            }
            match link_or_copy(&self.path(meta), &target) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    return Err(StoreError::ObjectGone { key: meta.key.clone() });
                }
                Err(error) => return Err(io_at("link", &target)(error)),
            }
        }
        // Links before the name that promises them.
        for relative in tree.dirs.iter().copied().chain([""]) {
            let made = draft.path.join(relative);
            File::open(&made).and_then(|made| made.sync_all()).map_err(io_at("sync", &made))?;
        }
        match fs::rename(&draft.path, dir) {
            Ok(()) => sync_parent(dir),
            // Another thread made the same tree first.
            Err(_) if dir.is_dir() => Ok(()),
            Err(error) => Err(io_at("create", dir)(error)),
        }
    }
}

impl Objects {
    /// Writes the plaintext of an encrypted object.
    fn decrypt_to(&self, meta: &ObjectMeta, target: &Path, is_cancelled: &dyn Fn() -> bool) -> Result<(), StoreError> {
        let reader = match self.open_reader(meta, None) {
            Err(StoreError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                return Err(StoreError::ObjectGone { key: meta.key.clone() });
            }
            opened => opened?,
        };
        let mut options = OpenOptions::new();
        let file = options.write(true).create_new(true).mode(FILE_MODE).open(target);
        let mut file = file.map_err(io_at("create", target))?;
        file.set_permissions(Permissions::from_mode(FILE_MODE)).map_err(io_at("set the mode of", target))?;
        let mut at = 0;
        while at < meta.size {
            if is_cancelled() {
                return Err(StoreError::Cancelled);
            }
            let piece = reader.read(at, meta.size)?;
            file.write_all(&piece).map_err(io_at("write", target))?;
            at += piece.len() as u64;
        }
        // A tree that has its name after a crash has its files, too.
        file.sync_data().map_err(io_at("sync", target))
    }

    /// Has a tree hold a content that is elsewhere alone; `false`: it is here.
    fn hold(&self, draft: &Path, meta: &ObjectMeta) -> Result<bool, StoreError> {
        let Some(elsewhere) = self.elsewhere().filter(|_| !self.path(meta).exists()) else { return Ok(false) };
        let held = draft.join(HELD).join(&meta.id);
        File::create(&held).map_err(io_at("create", &held))?;
        // From now on the store keeps it; it may have gone before.
        if elsewhere.sha256(meta)?.is_some() {
            return Ok(true);
        }
        fs::remove_file(&held).map_err(io_at("remove", &held))?;
        Ok(false)
    }
}

/// A tree that is not yet in place, removed if it never gets there.
struct Draft {
    path: std::path::PathBuf,
}

impl Drop for Draft {
    fn drop(&mut self) {
        // After the rename there is nothing here.
        let _ = fs::remove_dir_all(&self.path);
    }
}

#[derive(Debug)]
struct Tree<'a> {
    /// Parents before children.
    dirs: BTreeSet<&'a str>,
    files: BTreeMap<&'a str, &'a ObjectMeta>,
}

impl<'a> Tree<'a> {
    fn plan(entries: &[(&'a str, &'a ObjectMeta)]) -> Result<Self, StoreError> {
        let mut tree = Self { dirs: BTreeSet::new(), files: BTreeMap::new() };
        // Which key first needed a directory, for the message.
        let mut needed_by = BTreeMap::new();
        for &(path, meta) in entries {
            if path.ends_with('/') || path.is_empty() {
                continue;
            }
            if meta.attributes.encryption.as_ref().is_some_and(|envelope| envelope.holder == Holder::Customer) {
                return Err(StoreError::CustomersObject { key: path.to_owned() });
            }
            check_path(path)?;
            if tree.files.insert(path, meta).is_some() {
                return Err(StoreError::KeyConflict { file: path.to_owned(), under: path.to_owned() });
            }
            for (at, _) in path.match_indices('/') {
                tree.dirs.insert(&path[..at]);
                needed_by.entry(&path[..at]).or_insert(path);
            }
        }
        match tree.files.keys().find_map(|file| needed_by.get_key_value(file)) {
            Some((file, under)) => {
                Err(StoreError::KeyConflict { file: (*file).to_owned(), under: (*under).to_owned() })
            }
            None => Ok(tree),
        }
    }
}

fn check_path(path: &str) -> Result<(), StoreError> {
    let unusable = |why| Err(StoreError::UnusableKey { key: path.to_owned(), why });
    for segment in path.split('/') {
        match segment {
            "" => return unusable("a name between two `/` (or before the first) is empty"),
            "." | ".." => return unusable("`.` and `..` are no file names"),
            _ if segment.len() > 255 => return unusable("a name is longer than 255 bytes"),
            _ if segment.contains('\0') => return unusable("a name holds a NUL character"),
            _ => {}
        }
    }
    Ok(())
}

fn make_dir(path: &Path) -> Result<(), StoreError> {
    DirBuilder::new().mode(0o755).create(path).map_err(io_at("create", path))?;
    fs::set_permissions(path, Permissions::from_mode(0o755)).map_err(io_at("set the mode of", path))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;
    use crate::{Attributes, DataDir};

    fn objects() -> (tempfile::TempDir, DataDir, Objects, ObjectMeta) {
        let temp = tempfile::tempdir().unwrap();
        let dir = DataDir::open(&temp.path().join("data")).unwrap();
        let objects = Objects::open(&dir).unwrap();
        objects.create_bucket("b").unwrap();
        let meta = objects.put("b", "k", b"content", &Attributes::default()).unwrap();
        (temp, dir, objects, meta)
    }

    #[test]
    fn a_tree_links_the_stored_bytes() {
        let (_temp, dir, objects, meta) = objects();
        let tree = dir.channels_path().join("one");
        let marker = objects.put("b", "m/", b"", &Attributes::default()).unwrap();
        objects
            .link_tree(&tree, &[("a b/ö", &meta), ("x/y/z", &meta), ("a b/", &marker), ("top", &meta)], &|| false)
            .unwrap();
        for path in ["a b/ö", "x/y/z", "top"] {
            let linked = fs::metadata(tree.join(path)).unwrap();
            assert_eq!(linked.ino(), fs::metadata(objects.path(&meta)).unwrap().ino(), "{path} is a link");
            assert_eq!(linked.mode() & 0o777, 0o666);
        }
        assert_eq!(fs::metadata(tree.join("x/y")).unwrap().mode() & 0o777, 0o755);
        // The tree outlives the object, and making it again changes nothing.
        objects.delete("b", "k").unwrap();
        objects.link_tree(&tree, &[("other", &meta)], &|| false).unwrap();
        assert_eq!(fs::read(tree.join("top")).unwrap(), b"content");
        assert!(!tree.join("other").exists());
    }

    #[test]
    fn a_tree_that_is_cancelled_leaves_nothing() {
        let (_temp, dir, objects, meta) = objects();
        let names: Vec<String> = (0..5).map(|number| number.to_string()).collect();
        let entries: Vec<_> = names.iter().map(|name| (name.as_str(), &meta)).collect();
        let asked = std::cell::Cell::new(0);
        let is_cancelled = || asked.replace(asked.get() + 1) == 3;
        let error = objects.link_tree(&dir.channels_path().join("one"), &entries, &is_cancelled).unwrap_err();
        assert!(matches!(error, StoreError::Cancelled), "{error}");
        assert_eq!(asked.get(), 4, "nothing is linked after that");
        assert_eq!(fs::read_dir(dir.channels_path()).unwrap().count(), 0, "no draft is left");
    }

    #[test]
    fn a_tree_is_whole_or_absent() {
        let (_temp, dir, objects, meta) = objects();
        let tree = dir.channels_path().join("one");
        let gone = ObjectMeta { id: "00".repeat(16), ..meta.clone() };
        let error = objects.link_tree(&tree, &[("a", &meta), ("b", &gone)], &|| false).unwrap_err();
        assert!(matches!(error, StoreError::ObjectGone { .. }), "{error}");
        assert_eq!(fs::read_dir(dir.channels_path()).unwrap().count(), 0, "no draft is left");
    }

    #[test]
    fn a_tree_on_another_file_system_is_a_copy() {
        let (_temp, _dir, objects, meta) = objects();
        let elsewhere = tempfile::tempdir_in("/dev/shm").unwrap();
        let tree = elsewhere.path().join("tree");
        objects.link_tree(&tree, &[("a", &meta)], &|| false).unwrap();
        assert_eq!(fs::read(tree.join("a")).unwrap(), b"content");
        assert_eq!(fs::metadata(tree.join("a")).unwrap().mode() & 0o777, 0o666);
    }

    #[test]
    fn keys_that_make_no_tree_are_named() {
        let (_temp, dir, objects, meta) = objects();
        let long = format!("a/{}", "x".repeat(256));
        for (paths, expected) in [
            (vec!["a", "a/b"], "objects `a` and `a/b` cannot"),
            (vec!["d/e/f", "d/e"], "objects `d/e` and `d/e/f` cannot"),
            (vec!["a", "a"], "objects `a` and `a` cannot"),
            (vec!["../up"], "`../up` cannot be a file of a directory tree: `.` and `..`"),
            (vec!["a/./b"], "`a/./b`"),
            (vec!["/etc/passwd"], "`/etc/passwd` cannot be a file of a directory tree: a name between"),
            (vec!["a//b"], "`a//b`"),
            (vec!["a\0b"], "NUL"),
            (vec![long.as_str()], "longer than 255"),
        ] {
            let entries: Vec<_> = paths.iter().map(|path| (*path, &meta)).collect();
            let error = objects.link_tree(&dir.channels_path().join("t"), &entries, &|| false).unwrap_err().to_string();
            assert!(error.contains(expected), "{paths:?}: {error}");
        }
    }
}
