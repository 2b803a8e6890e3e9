//! A mirrored directory as seen from outside: the program may put links and pipes anywhere at any
//! time, and nothing but its own regular files may be read.

use std::fs::{self, File, Metadata};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags, ResolveFlags, openat2};
use rustix::io::Errno;

use crate::inside;

/// Files with these endings are a program's own affair: SageMaker's platform leaves them out too.
const IGNORED: [&str; 3] = [".sagemaker-ignore", ".sagemaker-uploading", ".sagemaker-uploaded"];

/// The directory.
#[derive(Debug)]
pub(crate) struct Tree {
    /// A directory that the program cannot replace.
    base: PathBuf,
    base_file: File,
    /// The mirrored directory below it; empty if it is the base itself.
    root: PathBuf,
}

/// By which a change of a file is noticed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stamp {
    device: u64,
    inode: u64,
    pub(crate) size: u64,
    /// Seconds and nanoseconds.
    modified: (i64, i64),
}

impl Stamp {
    pub(crate) fn of(metadata: &Metadata) -> Self {
        let modified = (metadata.mtime(), metadata.mtime_nsec());
        Self { device: metadata.dev(), inode: metadata.ino(), size: metadata.size(), modified }
    }
}

/// Whether a file is never mirrored.
pub(crate) fn is_ignored(path: &Path) -> bool {
    path.to_str().is_some_and(|path| IGNORED.iter().any(|ending| path.ends_with(ending)))
}

impl Tree {
    pub(crate) fn open(base: &Path, root: &Path) -> io::Result<Self> {
        Ok(Self { base: base.to_owned(), base_file: File::open(base)?, root: root.to_owned() })
    }

    /// The names that lead from the base to the directory.
    pub(crate) fn way(&self) -> impl Iterator<Item = PathBuf> {
        self.root.components().map(|name| PathBuf::from(name.as_os_str()))
    }

    /// Opens a file or directory below the directory, through no link. A pipe is not waited for.
    pub(crate) fn open_inside(&self, path: &Path) -> io::Result<File> {
        self.open_below_base(&self.root.join(path))
    }

    /// The same below the base.
    pub(crate) fn open_below_base(&self, path: &Path) -> io::Result<File> {
        let name = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        match openat2(&self.base_file, name, flags, Mode::empty(), resolve) {
            // A kernel before 5.6, or a container that knows the call not.
            Err(Errno::NOSYS | Errno::PERM) => self.open_by_name(path).map(File::from),
            opened => Ok(opened?.into()),
        }
    }

    fn open_by_name(&self, path: &Path) -> io::Result<OwnedFd> {
        let path = inside::resolve(&self.base, path)?.ok_or(io::ErrorKind::NotFound)?;
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        Ok(rustix::fs::open(path, flags, Mode::empty())?)
    }

    /// What has this name now; links are not followed.
    pub(crate) fn look(&self, path: &Path) -> io::Result<Metadata> {
        let directory = self.open_inside(path.parent().unwrap_or(Path::new("")))?;
        fs::symlink_metadata(at(&directory).join(path.file_name().unwrap_or_default()))
    }

    /// Tells of everything in one directory; what vanishes meanwhile is left out.
    pub(crate) fn list(&self, path: &Path, mut tell: impl FnMut(PathBuf, &Metadata)) -> io::Result<()> {
        let directory = self.open_inside(path)?;
        for entry in fs::read_dir(at(&directory))? {
            let Ok(entry) = entry else { continue };
            if let Ok(metadata) = entry.metadata() {
                tell(path.join(entry.file_name()), &metadata);
            }
        }
        Ok(())
    }

    /// Tells of every regular file. A directory that cannot be read is left out.
    pub(crate) fn walk(&self, mut tell: impl FnMut(PathBuf, Stamp)) {
        let mut waiting = vec![PathBuf::new()];
        while let Some(directory) = waiting.pop() {
            // One that is gone has nothing to tell.
            let _ = self.list(&directory, |path, metadata| {
                if metadata.is_dir() {
                    waiting.push(path);
                } else if metadata.is_file() {
                    tell(path, Stamp::of(metadata));
                }
            });
        }
    }
}

/// The name under which an open directory is found whatever became of its path.
pub(crate) fn at(directory: &File) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", directory.as_raw_fd()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn only_regular_files_of_the_directory_itself_are_seen() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("ml/checkpoints");
        fs::create_dir_all(root.join("sub/deep")).unwrap();
        fs::write(dir.path().join("secret"), "secret").unwrap();
        for name in ["a", "sub/b", "sub/deep/c"] {
            fs::write(root.join(name), name).unwrap();
        }
        symlink("../../secret", root.join("link")).unwrap();
        symlink("../..", root.join("up")).unwrap();
        let tree = Tree::open(&dir.path().join("ml"), Path::new("checkpoints")).unwrap();
        let mut seen = Vec::new();
        tree.walk(|path, stamp| seen.push((path.display().to_string(), stamp.size)));
        seen.sort();
        assert_eq!(seen, [("a".to_owned(), 1), ("sub/b".to_owned(), 5), ("sub/deep/c".to_owned(), 10)]);
        for refused in ["link", "up/secret", "../secret", "sub/../../../secret", "/etc/passwd"] {
            tree.open_inside(Path::new(refused)).unwrap_err();
            tree.open_by_name(&Path::new("checkpoints").join(refused)).unwrap_err();
        }
        for read in ["a", "sub/deep/c"] {
            tree.open_inside(Path::new(read)).unwrap();
            tree.open_by_name(&Path::new("checkpoints").join(read)).unwrap();
        }
        fs::rename(&root, dir.path().join("elsewhere")).unwrap();
        symlink("../elsewhere", &root).unwrap();
        tree.open_inside(Path::new("a")).unwrap_err();
    }

    #[test]
    fn platform_files_are_left_out() {
        assert!(is_ignored(Path::new("sub/tmp1.sagemaker-ignore")));
        assert!(!is_ignored(Path::new("sub.sagemaker-ignore/model")));
    }
}
