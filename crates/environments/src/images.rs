//! Trees of images: the files of an image of the container engine, read out once, cached by content, shared by all instances.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use tar::{Archive, Entry, EntryType};

use crate::build::now;
use crate::engine::last_line;
use crate::run::run;
use crate::shelf::{Cached, Kept, Shelf, Taken};
use crate::{Engine, EnvironmentError, Inspected, Watcher};

/// Images of this machine whose files are there.
#[derive(Debug, Clone)]
pub struct Images {
    root: PathBuf,
    shelf: Shelf<ImageRecord>,
}

/// Of an image whose files are there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImageRecord {
    /// As it was named when they were read.
    pub name: String,
    /// As the engine has it.
    pub id: String,
    /// Size of the files in bytes.
    pub bytes: u64,
    /// How many entries.
    pub entries: u64,
    /// Seconds since 1970.
    pub made: u64,
}

/// The files of an image, which stay while this lives.
#[derive(Debug)]
pub struct PreparedImage {
    /// What its program needs.
    pub inspected: Inspected,
    taken: Taken<ImageRecord>,
}

impl Kept for ImageRecord {
    fn is_whole(&self, directory: &Path) -> bool {
        directory.is_dir()
    }
}

impl PreparedImage {
    /// The directory that has its files, never to be changed.
    pub fn tree(&self) -> &Path {
        &self.taken.directory
    }

    /// What is known of it.
    pub fn record(&self) -> &ImageRecord {
        &self.taken.record
    }
}

impl Images {
    /// In the directory `root`, which need not be there.
    pub fn new(root: PathBuf) -> Self {
        Self { shelf: Shelf::new(root.clone()), root }
    }

    /// The image's files, pulled by the engine if it has no such image, and read out if that was not done before. If somebody else does it
    /// already, that is waited for.
    ///
    /// # Errors
    /// The engine cannot have it or give its files, and nothing of it is left here; or the watcher waits no more.
    pub fn prepare(&self, engine: &Engine, image: &str, watcher: &mut dyn Watcher) -> Result<PreparedImage, EnvironmentError> {
        let inspected = match engine.inspect(image)? {
            Some(inspected) => inspected,
            None => {
                pull(engine, image, watcher)?;
                engine.inspect(image)?.ok_or_else(|| EnvironmentError::Engine {
                    what: format!("{} pull {image}", engine.name()),
                    said: "the image is not there after it; is it one for another kind of machine?".to_owned(),
                })?
            }
        };
        let name = image.rsplit('/').next().unwrap_or(image);
        // Files of an image are nobody else's business on this machine.
        private(&self.root).map_err(EnvironmentError::io("make", &self.root))?;
        let place = self.shelf.place(name, &inspected.id);
        let taken = self.shelf.obtain(&place, &format!("the image {image}"), watcher, |_, watcher| {
            read_out(engine, image, &inspected, &place.directory, watcher)
        })?;
        Ok(PreparedImage { inspected, taken })
    }

    /// All that are there, by name.
    ///
    /// # Errors
    /// The directory cannot be read.
    pub fn list(&self) -> Result<Vec<Cached<ImageRecord>>, EnvironmentError> {
        self.shelf.list()
    }

    /// Removes what nobody has wanted for so long and nobody uses; gives what was removed.
    ///
    /// # Errors
    /// The operating system refuses.
    pub fn prune(&self, older_than: Duration) -> Result<Vec<Cached<ImageRecord>>, EnvironmentError> {
        self.shelf.prune(older_than)
    }
}

/// A directory that only its user enters.
fn private(directory: &Path) -> io::Result<()> {
    fs::create_dir_all(directory)?;
    fs::set_permissions(directory, fs::Permissions::from_mode(0o700))
}

fn pull(engine: &Engine, image: &str, watcher: &mut dyn Watcher) -> Result<(), EnvironmentError> {
    watcher.line(&format!("{} pulls the image {image}", engine.name()));
    let nothing = File::open("/dev/null").map_err(EnvironmentError::io("open", Path::new("/dev/null")))?;
    run(engine.command(&["pull", image]), "pull", image, &nothing, watcher).map_err(|error| match error {
        EnvironmentError::Failed { said, .. } => EnvironmentError::NotPulled { image: image.to_owned(), program: engine.name(), said },
        other => other,
    })
}

/// Its files, into `directory`, which is not there yet.
fn read_out(
    engine: &Engine,
    image: &str,
    inspected: &Inspected,
    directory: &Path,
    watcher: &mut dyn Watcher,
) -> Result<ImageRecord, EnvironmentError> {
    let begun = Instant::now();
    watcher.line(&format!("reading the image {image}, once for this machine: {} MB from {}", inspected.bytes >> 20, engine.name()));
    let container = engine.create(&inspected.id)?;
    let unpacked = export(engine, image, &container, directory, watcher);
    engine.remove(&container);
    let (entries, bytes) = unpacked?;
    watcher.line(&format!("the image {image} is ready: {entries} files, {} MB in {:.0} s", bytes >> 20, begun.elapsed().as_secs_f64()));
    Ok(ImageRecord { name: image.to_owned(), id: inspected.id.clone(), bytes, entries, made: now() })
}

fn export(
    engine: &Engine,
    image: &str,
    container: &str,
    directory: &Path,
    watcher: &mut dyn Watcher,
) -> Result<(u64, u64), EnvironmentError> {
    fs::create_dir(directory).map_err(EnvironmentError::io("make", directory))?;
    let mut command = engine.command(&["export", container]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().map_err(EnvironmentError::io("run", engine.program()))?;
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let words = thread::spawn(move || {
        let mut text = String::new();
        // What cannot be read cannot be told.
        let _ = stderr.map(|mut pipe| pipe.read_to_string(&mut text));
        text
    });
    let unpacked = match stdout {
        Some(stdout) => unpack(stdout, image, directory, watcher),
        None => Ok((0, 0)),
    };
    if unpacked.is_err() {
        // It may have ended.
        let _ = child.kill();
    }
    let status = child.wait().map_err(EnvironmentError::io("wait for", engine.program()))?;
    let said = words.join().unwrap_or_default();
    let counted = unpacked?;
    match status.success() {
        true => Ok(counted),
        false => Err(EnvironmentError::Engine { what: format!("{} export {image}", engine.name()), said: last_line(&said) }),
    }
}

/// Entries and bytes. Whoever owns a file in the image, here it belongs to this process's user, who can read it; so no program of the image runs as
/// its owner or group (setuid, setgid).
fn unpack(archive: impl Read, image: &str, directory: &Path, watcher: &mut dyn Watcher) -> Result<(u64, u64), EnvironmentError> {
    let failed = || EnvironmentError::io(&format!("unpack the image {image} to"), directory);
    let mut archive = Archive::new(archive);
    archive.set_preserve_permissions(false);
    let (mut entries, mut bytes) = (0, 0);
    for entry in archive.entries().map_err(failed())? {
        let mut entry = entry.map_err(failed())?;
        if unpack_one(&mut entry, directory).map_err(failed())? {
            entries += 1;
            bytes += entry.size();
        }
        if watcher.is_to_stop() {
            return Err(EnvironmentError::Stopped(format!("the image {image}")));
        }
    }
    Ok((entries, bytes))
}

/// Devices are the instance's own.
fn unpack_one(entry: &mut Entry<'_, impl Read>, directory: &Path) -> io::Result<bool> {
    let kind = entry.header().entry_type();
    if matches!(kind, EntryType::Char | EntryType::Block | EntryType::Fifo) || !entry.unpack_in(directory)? {
        return Ok(false);
    }
    if matches!(kind, EntryType::Directory | EntryType::Regular) {
        let path = directory.join(entry.path()?.strip_prefix("/").unwrap_or(&entry.path()?));
        let mode = fs::symlink_metadata(&path)?.permissions().mode();
        let readable = mode | if kind == EntryType::Directory { 0o700 } else { 0o400 };
        if readable != mode {
            fs::set_permissions(&path, fs::Permissions::from_mode(readable))?;
        }
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Nobody;

    impl Watcher for Nobody {
        fn line(&mut self, _: &str) {}

        fn is_to_stop(&mut self) -> bool {
            false
        }
    }

    fn archive(fill: impl FnOnce(&mut tar::Builder<Vec<u8>>)) -> Vec<u8> {
        let mut builder = tar::Builder::new(Vec::new());
        fill(&mut builder);
        builder.into_inner().unwrap()
    }

    fn add(builder: &mut tar::Builder<Vec<u8>>, name: &str, kind: EntryType, mode: u32, content: &str, link: Option<&str>) {
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(kind);
        header.set_mode(mode);
        header.set_size(content.len() as u64);
        header.as_mut_bytes()[..name.len()].copy_from_slice(name.as_bytes());
        if let Some(link) = link {
            header.set_link_name(link).unwrap();
        }
        header.set_cksum();
        builder.append(&header, content.as_bytes()).unwrap();
    }

    #[test]
    fn files_are_unpacked_and_nothing_else_is() {
        let temp = tempfile::tempdir().unwrap();
        let tree = temp.path().join("tree");
        fs::create_dir(&tree).unwrap();
        let bytes = archive(|builder| {
            add(builder, "etc", EntryType::Directory, 0o555, "", None);
            add(builder, "etc/shadow", EntryType::Regular, 0, "x", None);
            add(builder, "lib", EntryType::Symlink, 0o777, "", Some("/usr/lib"));
            add(builder, "bin", EntryType::Directory, 0o3777, "", None);
            add(builder, "bin/su", EntryType::Regular, 0o6755, "", None);
            add(builder, "dev/null", EntryType::Char, 0o666, "", None);
            add(builder, "../outside", EntryType::Regular, 0o644, "x", None);
        });
        assert_eq!(unpack(&*bytes, "x", &tree, &mut Nobody).unwrap(), (5, 1));
        assert_eq!(fs::read_to_string(tree.join("etc/shadow")).unwrap(), "x");
        assert_eq!(fs::read_link(tree.join("lib")).unwrap(), Path::new("/usr/lib"));
        for (name, expected) in [("bin/su", 0o755), ("bin", 0o777), ("etc", 0o755), ("etc/shadow", 0o400)] {
            let mode = fs::metadata(tree.join(name)).unwrap().permissions().mode();
            assert_eq!(mode & 0o7777, expected, "{name}");
        }
        assert!(!tree.join("dev/null").exists() && !temp.path().join("outside").exists());
    }

    #[test]
    fn nothing_is_written_through_a_link() {
        let temp = tempfile::tempdir().unwrap();
        let (tree, outside) = (temp.path().join("tree"), temp.path().join("outside"));
        fs::create_dir(&tree).unwrap();
        fs::create_dir(&outside).unwrap();
        let bytes = archive(|builder| {
            add(builder, "way", EntryType::Symlink, 0o777, "", Some(outside.to_str().unwrap()));
            add(builder, "way/out", EntryType::Regular, 0o644, "x", None);
        });
        assert!(unpack(&*bytes, "x", &tree, &mut Nobody).is_err());
        assert_eq!(fs::read_dir(&outside).unwrap().count(), 0);
    }
}
