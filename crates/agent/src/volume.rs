//! What a training program may write on this machine's disk: a program that writes more than its `VolumeSizeInGB` is ended before it takes the room
//! of everybody else.
//!
//! It is looked at, not enforced by the file system: for a moment there can be more, and what lies deeper than a path can be long is not counted.

use std::collections::HashSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Weak;
use std::sync::mpsc::Sender;
use std::thread;
use std::time::{Duration, Instant};

use crate::events::Event;

const LOOK: Duration = Duration::from_millis(250);
/// However little the file system grows, files are counted this often,
const AT_LEAST_EVERY: Duration = Duration::from_secs(10);
/// unless counting would take more than one part in so many of the time.
const SHARE: u32 = 100;
const STACK: usize = 128 << 10;

/// What is known since the files were counted: they are counted again only when the file system has grown so much that they may be over the limit, and
/// now and then, since what grows here may be hidden by what somebody else removes.
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
        Self { counted: Some(Counted { own, grown: 0, taken, again: Instant::now() + AT_LEAST_EVERY.max(cost * SHARE) }) }
    }

    fn may_be_over(&mut self, taken: u64, limit: u64) -> bool {
        let Some(counted) = &mut self.counted else { return true };
        counted.grown = counted.grown.saturating_add(taken.saturating_sub(counted.taken));
        counted.taken = taken;
        counted.own.saturating_add(counted.grown) > limit || Instant::now() >= counted.again
    }
}

/// Looks at these directories until `program` is dropped, or there are more than `limit` bytes in them: then [`Event::Overfull`] comes, once.
pub(crate) fn watch(directories: Vec<PathBuf>, limit: u64, program: Weak<()>, events: Sender<Event>) -> std::io::Result<()> {
    let look = move || {
        let mut since = Since::default();
        while program.strong_count() > 0 {
            let taken = directories.first().and_then(|directory| taken(directory)).unwrap_or(u64::MAX);
            if since.may_be_over(taken, limit) {
                let begun = Instant::now();
                let own = used(&directories);
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
    format!("it had written {written:.1} GiB to its volume, more than VolumeSizeInGB allows: write less, or ask for a larger volume")
}

/// Bytes taken of the file system that holds a directory.
fn taken(directory: &Path) -> Option<u64> {
    let system = rustix::fs::statvfs(directory).ok()?;
    Some(system.f_blocks.saturating_sub(system.f_bfree).saturating_mul(system.f_frsize))
}

/// Bytes that the files of these trees take on the disk, each once whatever its names.
fn used(directories: &[PathBuf]) -> u64 {
    let (mut bytes, mut several, mut waiting) = (0, HashSet::new(), directories.to_vec());
    while let Some(directory) = waiting.pop() {
        // What has just been removed counts for nothing.
        for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
            let Ok(metadata) = entry.metadata() else { continue };
            if metadata.is_dir() {
                waiting.push(entry.path());
            }
            if metadata.is_dir() || metadata.nlink() == 1 || several.insert((metadata.dev(), metadata.ino())) {
                bytes += metadata.blocks() * 512;
            }
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::mpsc::channel;

    #[test]
    fn files_count_once_and_links_for_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let tree = dir.path().join("tree");
        fs::create_dir_all(tree.join("a/b")).unwrap();
        let empty = used(std::slice::from_ref(&tree));
        fs::write(tree.join("a/b/file"), vec![1; 1 << 20]).unwrap();
        fs::hard_link(tree.join("a/b/file"), tree.join("second")).unwrap();
        fs::write(dir.path().join("outside"), vec![1; 1 << 20]).unwrap();
        std::os::unix::fs::symlink("../outside", tree.join("link")).unwrap();
        let bytes = used(std::slice::from_ref(&tree)) - empty;
        assert!((1 << 20..(1 << 20) + (64 << 10)).contains(&bytes), "{bytes}");
        assert_eq!(used(&[dir.path().join("nowhere")]), 0);
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
        watch(vec![dir.path().to_owned()], 1 << 20, Arc::downgrade(&program), events.clone()).unwrap();
        fs::write(dir.path().join("file"), vec![1; 2 << 20]).unwrap();
        assert!(matches!(told.recv().unwrap(), Event::Overfull { bytes } if bytes >= 2 << 20));
        drop(program);
        watch(vec![dir.path().to_owned()], 0, Weak::new(), events).unwrap();
        assert!(told.recv().is_err(), "the watcher has let go of its sender and said nothing");
    }
}
