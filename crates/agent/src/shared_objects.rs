//! A directory that all nodes of a cluster see: objects are put there once, by the first agent that
//! needs them, and inputs are trees of links to them. `objects/ID` appears whole, when its SHA-256
//! is that of what was sent; its time of change is then set to one moment long ago, which any write
//! to it changes: so no node reads it again to trust it. The least recently used objects are
//! removed when there are more bytes than the limit; what a job has a link to stays.
//!
//! `trees/NODE/ATTEMPT/algo-K` are the trees of an agent, with a lock beside them
//! ([`crate::leftovers`]): a node removes what its own killed agents have left, as locks may not
//! reach other nodes. What an agent has of an object before that is whole is among its trees, too:
//! a part of a private input must not stay there when the agent is killed.

use std::fs::{self, DirBuilder, File, FileTimes, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, SystemTime};

use shoal_link::PRIVATE_ID;

use crate::leftovers;
use crate::node;
use crate::objects::{Fetch, Keeps, MODE, POLL, PlaceError, digest, entries};

/// As a time of change: the object is as it was put there.
const SEALED: Duration = Duration::from_secs(1_000_000_000);

/// Beside an agent's trees.
const DRAFTS: &str = "drafts";

/// Such a directory, as it is named in the settings.
#[derive(Debug, Clone)]
pub struct SharedPlace {
    /// Absolute; it must be there.
    pub dir: PathBuf,
    /// Most bytes of objects that are kept there for the next job.
    pub max_bytes: u64,
}

/// The same, used by this agent until this is dropped.
#[derive(Debug)]
pub(crate) struct SharedObjects {
    root: PathBuf,
    max_bytes: u64,
    own: PathBuf,
    /// Something went wrong there: it is not used for more inputs, and what it has stays in use.
    pub(crate) is_given_up: bool,
    _lock: File,
}

impl SharedObjects {
    /// Opens it for an agent. The error has what to do.
    pub(crate) fn open(place: &SharedPlace, run: &str, host: u32) -> Result<Self, String> {
        let shown = place.dir.display();
        if !place.dir.is_dir() {
            return Err(format!(
                "the shared directory {shown} is not there on this node: mount it, or correct \"shared\" of the \
                 compute target in shoal.toml"
            ));
        }
        let root = place.dir.join("shoal");
        let node = node::name().map_err(|error| format!("this node has no name: {error}"))?;
        let own = root.join("trees").join(&node).join(run).join(format!("algo-{host}"));
        let made = || -> io::Result<File> {
            for name in ["objects", "locks"] {
                DirBuilder::new().recursive(true).mode(0o700).create(root.join(name))?;
            }
            let lock = leftovers::hold(&own)?;
            fs::create_dir_all(own.join("inputs"))?;
            DirBuilder::new().recursive(true).mode(0o700).create(own.join(DRAFTS))?;
            Ok(lock)
        };
        let lock = made().map_err(|error| {
            format!(
                "the shared directory {shown} cannot be used ({error}): let the user of the jobs write there and have \
                 some space free, or remove \"shared\" from the compute target in shoal.toml"
            )
        })?;
        Ok(Self { root, max_bytes: place.max_bytes, own, is_given_up: false, _lock: lock })
    }

    /// Where this agent makes trees.
    pub(crate) fn trees(&self) -> PathBuf {
        self.own.join("inputs")
    }

    fn object(&self, id: &str) -> PathBuf {
        self.root.join("objects").join(id)
    }

    /// Whether the object is there as it was put there.
    fn is_sound(&self, id: &str, size: u64) -> io::Result<bool> {
        match fs::metadata(self.object(id)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
            Ok(found) => Ok(found.len() == size && found.modified()? == SystemTime::UNIX_EPOCH + SEALED),
        }
    }

    fn bring(&self, id: &str, fetch: &mut Fetch<'_>) -> Result<(), PlaceError> {
        let draft = self.own.join(DRAFTS).join(id);
        let brought = self.bring_to(&draft, id, fetch);
        if brought.is_err() {
            // What is left of it would take space; if it cannot be removed, it does.
            let _ = fs::remove_file(&draft);
        }
        brought
    }

    fn bring_to(&self, draft: &Path, id: &str, fetch: &mut Fetch<'_>) -> Result<(), PlaceError> {
        let mut before = None;
        loop {
            let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(MODE).open(draft)?;
            let sent = fetch(&mut file)?;
            let found = digest(draft)?;
            if found == sent {
                file.sync_data()?;
                file.set_permissions(Permissions::from_mode(MODE))?;
                file.set_times(FileTimes::new().set_modified(SystemTime::UNIX_EPOCH + SEALED))?;
                drop(file);
                return Ok(fs::rename(draft, self.object(id))?);
            }
            if before.replace(()).is_some() {
                return Err(PlaceError::Damaged { id: id.to_owned(), found, expected: sent });
            }
        }
    }

    /// Held by who brings an object; none where the file system has no locks: an object is brought
    /// twice then, and one of the two replaces the other.
    fn wait_for_turn(&self, id: &str, is_to_stop: &mut dyn FnMut() -> bool) -> Result<Option<File>, PlaceError> {
        let path = self.root.join("locks").join(id.get(..2).unwrap_or(id));
        let file = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(path)?;
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(Some(file)),
                Err(fs::TryLockError::Error(_)) => return Ok(None),
                Err(fs::TryLockError::WouldBlock) if is_to_stop() => return Err(PlaceError::Stopped),
                Err(fs::TryLockError::WouldBlock) => thread::sleep(POLL),
            }
        }
    }
}

impl Keeps for SharedObjects {
    fn place(
        &self,
        id: &str,
        size: u64,
        target: &Path,
        fetch: &mut Fetch<'_>,
        is_to_stop: &mut dyn FnMut() -> bool,
    ) -> Result<(), PlaceError> {
        if id.len() < 2 || !id.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
            return Err(io::Error::other(format!("\"{id}\" is no id of an object")).into());
        }
        let mut is_first = true;
        loop {
            if !self.is_sound(id, size)? {
                let _turn = self.wait_for_turn(id, is_to_stop)?;
                if !self.is_sound(id, size)? {
                    self.bring(id, fetch)?;
                }
            }
            match fs::hard_link(self.object(id), target) {
                // Another node has removed it for want of room.
                Err(error) if error.kind() == io::ErrorKind::NotFound && is_first => is_first = false,
                linked => break linked?,
            }
        }
        File::open(target)?.set_times(FileTimes::new().set_accessed(SystemTime::now()))?;
        Ok(())
    }

    fn trim(&self) -> io::Result<()> {
        let mut objects = Vec::new();
        for entry in entries(&self.root.join("objects"))? {
            // One that another node has just removed takes no space.
            let Ok(metadata) = entry.metadata() else { continue };
            objects.push(((metadata.atime(), metadata.atime_nsec()), metadata.len(), metadata.nlink(), entry.path()));
        }
        objects.sort();
        let mut bytes: u64 = objects.iter().map(|(_, size, ..)| size).sum();
        for (_, size, links, path) in objects {
            let is_private = path.file_name().is_some_and(|id| id.to_string_lossy().starts_with(PRIVATE_ID));
            if bytes <= self.max_bytes && !is_private {
                continue;
            }
            if links == 1 {
                match fs::remove_file(&path) {
                    Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                    _ => bytes -= size,
                }
            }
        }
        Ok(())
    }

    /// Its space is other nodes', too: `shared_size` alone decides.
    fn make_room(&self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for SharedObjects {
    fn drop(&mut self) {
        // What is left is removed by the next agent of this node.
        let _ = leftovers::remove(&self.own).and_then(|()| self.trim());
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use hex_simd::AsciiCase;
    use sha2::{Digest, Sha256};

    use std::io::Write as _;

    use super::*;

    fn open(dir: &Path, run: &str, max_bytes: u64) -> Result<SharedObjects, String> {
        SharedObjects::open(&SharedPlace { dir: dir.to_owned(), max_bytes }, run, 1)
    }

    /// Places an object in an agent's tree; gives how often it was fetched.
    fn place(shared: &SharedObjects, id: &str, content: &[u8], name: &str) -> u32 {
        let count = Cell::new(0);
        let mut fetch = |to: &mut File| {
            count.set(count.get() + 1);
            to.write_all(content)?;
            Ok(hex_simd::encode_to_string(Sha256::digest(content), AsciiCase::Lower))
        };
        let target = shared.trees().join(name);
        shared.place(id, content.len() as u64, &target, &mut fetch, &mut || false).unwrap();
        assert_eq!(fs::read(target).unwrap(), content);
        count.get()
    }

    #[test]
    fn nodes_link_to_what_the_first_one_has_put_there() {
        let dir = tempfile::tempdir().unwrap();
        let (one, two) = (open(dir.path(), "a-1", 1 << 20).unwrap(), open(dir.path(), "b-1", 1 << 20).unwrap());
        assert_eq!(place(&one, "aa01", b"content", "x"), 1);
        assert_eq!(place(&two, "aa01", b"content", "x"), 0);
        let object = dir.path().join("shoal/objects/aa01");
        assert_eq!(fs::metadata(&object).unwrap().nlink(), 3, "nothing is copied");
        // When it was written to, it is brought again, and those who have it keep it.
        fs::write(&object, b"CONTENT").unwrap();
        assert_eq!(place(&two, "aa01", b"content", "y"), 1);
        assert_eq!(fs::read(one.trees().join("x")).unwrap(), b"CONTENT");
        drop(two);
        assert_eq!(fs::metadata(&object).unwrap().nlink(), 1, "its trees are removed with an agent");
        assert!(fs::read_dir(one.own.join(DRAFTS)).unwrap().next().is_none());
    }

    #[test]
    fn a_killed_agent_leaves_no_part_of_an_object() {
        let dir = tempfile::tempdir().unwrap();
        let (own, running) = (open(dir.path(), "a-1", 1).unwrap().own.clone(), open(dir.path(), "b-1", 1).unwrap());
        let draft = |own: &Path| own.join(DRAFTS).join("private01");
        // As one leaves it that ends while it brings an object.
        drop(leftovers::hold(&own).unwrap());
        fs::create_dir_all(own.join(DRAFTS)).unwrap();
        fs::write(draft(&own), b"a part").unwrap();
        fs::write(draft(&running.own), b"a part").unwrap();
        let next = open(dir.path(), "c-1", 1).unwrap();
        assert!(!draft(&own).exists() && draft(&running.own).exists());
        let mut brings = |_: &mut File| -> Result<String, PlaceError> {
            assert!(next.own.join(DRAFTS).join("private02").exists(), "that is where it is meanwhile");
            Err(io::Error::other("it is gone").into())
        };
        next.place("private02", 1, &next.trees().join("x"), &mut brings, &mut || false).unwrap_err();
        assert!(fs::read_dir(next.own.join(DRAFTS)).unwrap().next().is_none());
    }

    #[test]
    fn the_least_recently_used_go_first_and_what_a_job_has_stays() {
        let dir = tempfile::tempdir().unwrap();
        let job = open(dir.path(), "a-1", 20).unwrap();
        for (id, name) in [("aa01", "one"), ("bb01", "two"), ("cc01", "three")] {
            assert_eq!(place(&job, id, b"0123456789", name), 1);
        }
        for name in ["one", "two"] {
            fs::remove_file(job.trees().join(name)).unwrap();
        }
        assert_eq!(place(&job, "aa01", b"0123456789", "again"), 0);
        fs::remove_file(job.trees().join("again")).unwrap();
        job.trim().unwrap();
        let is_there = |id: &str| dir.path().join("shoal/objects").join(id).exists();
        assert!(is_there("aa01") && !is_there("bb01") && is_there("cc01"));
        let none = open(dir.path(), "b-1", 0).unwrap();
        none.trim().unwrap();
        assert!(!is_there("aa01") && is_there("cc01"), "a job of another agent has it");
    }

    #[test]
    fn what_is_wrong_with_the_directory_is_explained() {
        let dir = tempfile::tempdir().unwrap();
        let missing = open(&dir.path().join("none"), "a-1", 1).unwrap_err();
        assert!(missing.contains("none is not there on this node: mount it"), "{missing}");
        fs::write(dir.path().join("shoal"), b"").unwrap();
        let unusable = open(dir.path(), "a-1", 1).unwrap_err();
        assert!(unusable.contains("cannot be used (") && unusable.contains("remove \"shared\""), "{unusable}");
    }

    #[test]
    fn what_arrives_damaged_is_not_put_there() {
        let dir = tempfile::tempdir().unwrap();
        let shared = open(dir.path(), "a-1", 1 << 20).unwrap();
        let mut fetch = |to: &mut File| {
            to.write_all(b"damaged")?;
            Ok("0".repeat(64))
        };
        let placed = shared.place("aa01", 7, &shared.trees().join("x"), &mut fetch, &mut || false);
        assert!(matches!(placed, Err(PlaceError::Damaged { .. })), "{placed:?}");
        assert!(!dir.path().join("shoal/objects/aa01").exists());
        assert!(fs::read_dir(shared.own.join(DRAFTS)).unwrap().next().is_none());
        shared.place("../up", 7, &shared.trees().join("x"), &mut fetch, &mut || false).unwrap_err();
    }
}
