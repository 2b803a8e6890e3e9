//! Removing what a program left, however deep it dug and whatever modes it set.

use std::fs::{self, DirEntry, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Removes a directory and everything in it; nothing is there is fine. Symbolic links are removed,
/// never followed.
///
/// Memory and path lengths do not grow with depth, as they do with [`fs::remove_dir_all`], which a
/// chain of some ten thousand directories makes overflow the stack: directories within are moved up
/// to the top before they are looked into, each once.
///
/// # Errors
/// The first thing that could not be removed; what else could be is gone.
pub fn remove_tree(root: &Path) -> io::Result<()> {
    match fs::symlink_metadata(root) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
        Ok(found) if !found.is_dir() => return fs::remove_file(root),
        Ok(_) => {}
    }
    let mut work = Work { root, moved: 0, waiting: Vec::new(), failure: None };
    work.empty(root);
    while let Some(directory) = work.waiting.pop() {
        work.empty(&directory);
        let removed = fs::remove_dir(&directory);
        work.note(removed);
    }
    match work.failure {
        Some(error) => Err(error),
        None => fs::remove_dir(root),
    }
}

struct Work<'a> {
    root: &'a Path,
    moved: u64,
    /// Directories at the top that have not been looked into.
    waiting: Vec<PathBuf>,
    failure: Option<io::Error>,
}

impl Work<'_> {
    fn note(&mut self, done: io::Result<()>) {
        if let Err(error) = done {
            self.failure.get_or_insert(error);
        }
    }

    /// Removes the files of a directory and moves its directories to the top.
    fn empty(&mut self, directory: &Path) {
        // Its owner, a program, may have closed it. If it stays closed, reading it says so.
        let _ = fs::set_permissions(directory, Permissions::from_mode(0o700));
        let entries: io::Result<Vec<DirEntry>> = fs::read_dir(directory).and_then(Iterator::collect);
        match entries {
            Ok(entries) => entries.iter().for_each(|entry| self.take(directory, entry)),
            Err(error) => self.note(Err(error)),
        }
    }

    fn take(&mut self, directory: &Path, entry: &DirEntry) {
        let path = entry.path();
        let done = match entry.file_type() {
            Ok(kind) if !kind.is_dir() => fs::remove_file(&path),
            Ok(_) if directory == self.root => {
                self.waiting.push(path);
                Ok(())
            }
            Ok(_) => self.move_up(&path),
            Err(error) => Err(error),
        };
        self.note(done);
    }

    fn move_up(&mut self, path: &Path) -> io::Result<()> {
        // Moving a directory writes its `..`, so it has to be open as well.
        let _ = fs::set_permissions(path, Permissions::from_mode(0o700));
        loop {
            self.moved += 1;
            let top = self.root.join(format!(".moved-{}", self.moved));
            if fs::symlink_metadata(&top).is_ok() {
                continue;
            }
            fs::rename(path, &top)?;
            self.waiting.push(top);
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn shapes_of_all_kinds_go_and_nothing_outside() {
        let outside = tempfile::tempdir().unwrap();
        fs::write(outside.path().join("kept"), "kept").unwrap();
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("root");
        fs::create_dir_all(root.join("a/b/c")).unwrap();
        // Names that are used for moving may be taken, by files and by directories that are not
        // empty.
        fs::create_dir_all(root.join(".moved-1/x")).unwrap();
        fs::write(root.join(".moved-2"), "").unwrap();
        fs::write(root.join("a/b/file"), "").unwrap();
        symlink(outside.path(), root.join("a/b/link")).unwrap();
        symlink("nowhere", root.join("dangling")).unwrap();
        for closed in ["a/b/c", "a/b", "a"] {
            fs::set_permissions(root.join(closed), Permissions::from_mode(0o000)).unwrap();
        }
        remove_tree(&root).unwrap();
        assert!(!root.exists());
        assert_eq!(fs::read_to_string(outside.path().join("kept")).unwrap(), "kept");
        remove_tree(&root).expect("removing nothing is fine");
        symlink(outside.path(), &root).unwrap();
        remove_tree(&root).unwrap();
        assert!(outside.path().join("kept").exists(), "a link at the root is not followed either");
    }

    #[test]
    fn thousands_of_levels_are_no_deeper_than_one() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("root");
        fs::create_dir(&root).unwrap();
        // A chain longer than any path is built from its end: each step wraps the chain so far.
        let (inner, outer) = (root.join("d"), root.join("next"));
        fs::create_dir(&inner).unwrap();
        for _ in 0..5_000 {
            fs::create_dir(&outer).unwrap();
            fs::rename(&inner, outer.join("d")).unwrap();
            fs::rename(&outer, &inner).unwrap();
        }
        let small = std::thread::Builder::new().stack_size(64 << 10);
        let removed = small.spawn(move || remove_tree(&root).map(|()| root.exists())).unwrap().join().unwrap();
        assert!(!removed.unwrap());
    }
}
