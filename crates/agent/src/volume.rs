//! What a training program may write on this machine's disk: a program that writes more than its
//! `VolumeSizeInGB` is ended before it takes the room of everybody else.
//!
//! It is looked at, not enforced by the file system: for a moment there can be more, and a file
//! without a name that is only mapped, or on its way through a socket, is not counted.

use std::collections::HashSet;
use std::ffi::CString;
use std::fs;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, fstat, open, openat, stat, statat};

use crate::events::Event;
use crate::stacks::descendants;

const LOOK: Duration = Duration::from_millis(250);
/// However little the file system grows, files are counted this often,
const AT_LEAST_EVERY: Duration = Duration::from_secs(10);
/// unless counting would take more than one part in so many of the time.
const SHARE: u32 = 100;
const STACK: usize = 128 << 10;

/// What is known since the files were counted: they are counted again only when the file system has
/// grown so much that they may be over the limit, and now and then, since what grows here may be
/// hidden by what somebody else removes.
#[derive(Debug, Default)]
struct Since {
    counted: Option<Counted>,
}

#[derive(Debug)]
struct Counted {
    own: u64,
    /// Bytes that the file system has come to hold since, whatever was removed in between.
    grown: u64,
    /// Bytes of the file system when it was last looked at.
    taken: u64,
    again: Instant,
}

impl Since {
    fn count(own: u64, taken: u64, cost: Duration) -> Self {
        Self {
            counted: Some(Counted { own, grown: 0, taken, again: Instant::now() + AT_LEAST_EVERY.max(cost * SHARE) }),
        }
    }

    fn may_be_over(&mut self, taken: u64, limit: u64) -> bool {
        let Some(counted) = &mut self.counted else { return true };
        counted.grown = counted.grown.saturating_add(taken.saturating_sub(counted.taken));
        counted.taken = taken;
        counted.own.saturating_add(counted.grown) > limit || Instant::now() >= counted.again
    }
}

/// Looks at these directories, and at what the processes below `first` hold open, until `program`
/// is dropped, or there are more than `limit` bytes: then [`Event::Overfull`] comes, once. What was
/// counted last is in `counted`.
pub(crate) fn watch(
    directories: Vec<PathBuf>,
    first: Option<u32>,
    limit: u64,
    counted: Arc<AtomicU64>,
    program: Weak<()>,
    events: Sender<Event>,
) -> std::io::Result<()> {
    let look = move || {
        let mut since = Since::default();
        while program.strong_count() > 0 {
            let taken = directories.first().and_then(|directory| taken(directory)).unwrap_or(u64::MAX);
            if since.may_be_over(taken, limit) {
                let begun = Instant::now();
                let own = used(&directories, first);
                counted.store(own, Ordering::Relaxed);
                if own > limit {
                    // If nobody listens the agent has ended.
                    let _ = events.send(Event::Overfull { bytes: own });
                    return;
                }
                since = Since::count(own, taken, begun.elapsed());
            }
            thread::sleep(LOOK);
        }
    };
    thread::Builder::new().name("volume".into()).stack_size(STACK).spawn(look).map(drop)
}

/// Why a program was ended that had written so many bytes.
pub(crate) fn too_much(bytes: u64) -> String {
    let written = bytes as f64 / f64::from(1 << 30);
    format!(
        "it had written {written:.1} GiB to its volume, more than VolumeSizeInGB allows: write less, or ask for a \
         larger volume"
    )
}

/// Bytes taken of the file system that holds a directory.
fn taken(directory: &Path) -> Option<u64> {
    let system = rustix::fs::statvfs(directory).ok()?;
    Some(system.f_blocks.saturating_sub(system.f_bfree).saturating_mul(system.f_frsize))
}

/// Bytes that the files of these trees take on the disk, and those that have no name any more and
/// that the processes below `first` hold open; each once whatever its names.
fn used(directories: &[PathBuf], first: Option<u32>) -> u64 {
    let (mut bytes, mut several, mut waiting) = (0, HashSet::new(), Vec::new());
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut devices = HashSet::new();
    // What has just been removed counts for nothing.
    for directory in directories.iter().filter_map(|directory| open(directory, flags, Mode::empty()).ok()) {
        devices.extend(fstat(&directory).map(|it| it.st_dev));
        waiting.push((Rc::new(directory), None::<CString>));
    }
    while let Some((parent, name)) = waiting.pop() {
        // By descriptors, since what lies deep has a longer path than one can say.
        let directory = match name {
            None => parent,
            Some(name) => match openat(&*parent, name, flags, Mode::empty()) {
                Ok(directory) => Rc::new(directory),
                Err(_) => continue,
            },
        };
        for entry in Dir::read_from(&*directory).into_iter().flatten().flatten() {
            let name = entry.file_name();
            if [c".", c".."].contains(&name) {
                continue;
            }
            let Ok(status) = statat(&*directory, name, AtFlags::SYMLINK_NOFOLLOW) else { continue };
            let is_directory = FileType::from_raw_mode(status.st_mode) == FileType::Directory;
            if is_directory {
                waiting.push((Rc::clone(&directory), Some(name.to_owned())));
            }
            if is_directory || status.st_nlink == 1 || several.insert((status.st_dev, status.st_ino)) {
                bytes += blocks(status.st_blocks);
            }
        }
    }
    for pid in first.map(descendants).unwrap_or_default() {
        for held in fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten() {
            let Ok(status) = stat(held.path()) else { continue };
            let is_nameless = status.st_nlink == 0 && FileType::from_raw_mode(status.st_mode) == FileType::RegularFile;
            if is_nameless && devices.contains(&status.st_dev) && several.insert((status.st_dev, status.st_ino)) {
                bytes += blocks(status.st_blocks);
            }
        }
    }
    bytes
}

fn blocks(count: i64) -> u64 {
    count.unsigned_abs() * 512
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::process::{Command, Stdio};
    use std::sync::Arc;
    use std::sync::mpsc::channel;

    #[test]
    fn files_count_once_and_links_for_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let tree = dir.path().join("tree");
        fs::create_dir_all(tree.join("a/b")).unwrap();
        let empty = used(std::slice::from_ref(&tree), None);
        fs::write(tree.join("a/b/file"), vec![1; 1 << 20]).unwrap();
        fs::hard_link(tree.join("a/b/file"), tree.join("second")).unwrap();
        fs::write(dir.path().join("outside"), vec![1; 1 << 20]).unwrap();
        std::os::unix::fs::symlink("../outside", tree.join("link")).unwrap();
        let bytes = used(std::slice::from_ref(&tree), None) - empty;
        assert!((1 << 20..(1 << 20) + (64 << 10)).contains(&bytes), "{bytes}");
        assert_eq!(used(&[dir.path().join("nowhere")], None), 0);
    }

    #[test]
    fn neither_depth_nor_namelessness_hides_a_file() {
        let dir = tempfile::tempdir().unwrap();
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        let mut deep = open(dir.path(), flags, Mode::empty()).unwrap();
        for _ in 0..20 {
            let name = "d".repeat(240);
            rustix::fs::mkdirat(&deep, &name, Mode::RWXU).unwrap();
            deep = openat(&deep, &name, flags, Mode::empty()).unwrap();
        }
        let trees = [dir.path().to_owned()];
        let before = used(&trees, None);
        let file = openat(&deep, "file", OFlags::WRONLY | OFlags::CREATE, Mode::RWXU).unwrap();
        fs::File::from(file).write_all(&vec![1; 1 << 20]).unwrap();
        assert!(used(&trees, None) - before >= 1 << 20);

        let script = "exec 3>nameless; rm nameless; head -c 1048576 /dev/zero >&3; echo; exec sleep 1000";
        let mut holder =
            Command::new("sh").args(["-c", script]).current_dir(dir.path()).stdout(Stdio::piped()).spawn().unwrap();
        holder.stdout.take().unwrap().read_exact(&mut [0]).unwrap();
        let held = used(&trees, Some(std::process::id())) - used(&trees, None);
        holder.kill().unwrap();
        holder.wait().unwrap();
        assert!((1 << 20..2 << 20).contains(&held), "{held}");
    }

    #[test]
    fn what_others_remove_hides_no_growth() {
        let mut since = Since::default();
        assert!(since.may_be_over(50, 100), "not counted yet");
        since = Since::count(60, 1000, Duration::ZERO);
        assert!(!since.may_be_over(1030, 100));
        assert!(!since.may_be_over(400, 100), "somebody removed much");
        assert!(since.may_be_over(411, 100), "60 and 30 and 11 are more than 100");
        since.counted.as_mut().unwrap().again = Instant::now();
        assert!(Since { counted: since.counted.take() }.may_be_over(0, u64::MAX), "now and then");
    }

    #[test]
    fn too_much_is_told_once_and_a_program_that_ended_is_not_watched() {
        let dir = tempfile::tempdir().unwrap();
        let program = Arc::new(());
        let (events, told) = channel();
        let counted = Arc::<AtomicU64>::default();
        let of_program = Arc::downgrade(&program);
        watch(vec![dir.path().to_owned()], None, 1 << 20, counted.clone(), of_program, events.clone()).unwrap();
        fs::write(dir.path().join("file"), vec![1; 2 << 20]).unwrap();
        assert!(matches!(told.recv().unwrap(), Event::Overfull { bytes } if bytes >= 2 << 20));
        assert!(counted.load(Ordering::Relaxed) >= 2 << 20);
        drop(program);
        watch(vec![dir.path().to_owned()], None, 0, Arc::default(), Weak::new(), events).unwrap();
        assert!(told.recv().is_err(), "the watcher has let go of its sender and said nothing");
    }
}
