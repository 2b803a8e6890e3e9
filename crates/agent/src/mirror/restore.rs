//! Puts what an earlier run has saved into the checkpoint directory.

use std::fs;
use std::io;
use std::path::Path;

/// Copies the tree of links into the directory: copies are the program's own, and what is stored
/// never changes. Blocks are shared where the file system can. Returns how many files that were;
/// stops between two files when `is_to_stop` says so.
pub(crate) fn restore(from: &Path, to: &Path, is_to_stop: &mut dyn FnMut() -> bool) -> io::Result<u64> {
    let mut files = 0;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            fs::create_dir_all(&target)?;
            files += restore(&entry.path(), &target, is_to_stop)?;
        } else if is_to_stop() {
            break;
        } else {
            fs::copy(entry.path(), &target)?;
            files += 1;
        }
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_restored_file_may_be_changed_without_harm_to_the_stored_one() {
        let dir = tempfile::tempdir().unwrap();
        let (stored, tree, to) = (dir.path().join("stored"), dir.path().join("tree"), dir.path().join("to"));
        fs::create_dir_all(tree.join("sub")).unwrap();
        fs::create_dir(&to).unwrap();
        fs::write(&stored, "saved").unwrap();
        fs::hard_link(&stored, tree.join("a")).unwrap();
        fs::hard_link(&stored, tree.join("sub/b")).unwrap();
        assert_eq!(restore(&tree, &to, &mut || false).unwrap(), 2);
        fs::write(to.join("sub/b"), "changed").unwrap();
        assert_eq!(fs::read_to_string(to.join("a")).unwrap(), "saved");
        assert_eq!(fs::read_to_string(&stored).unwrap(), "saved");
        assert_eq!(restore(&tree, &to, &mut || true).unwrap(), 0);
    }
}
