//! Trees of images: the files of an image of the container engine, read out once, cached by
//! content, shared by all instances.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::build::now;
use crate::engine::last_line;
use crate::run::{end, run};
use crate::shelf::{Cached, Kept, Shelf, Taken, digest};
use crate::stream::Stream;
use crate::unpack::unpack;
use crate::{Engine, EnvironmentError, Inspected, Watcher, room};

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

    /// The image's files, pulled by the engine if it has no such image, and read out if that was
    /// not done before. If somebody else does it already, that is waited for.
    ///
    /// # Errors
    /// The engine cannot have it or give its files, and nothing of it is left here; or the watcher
    /// waits no more.
    pub fn prepare(
        &self,
        engine: &Engine,
        image: &str,
        watcher: &mut dyn Watcher,
    ) -> Result<PreparedImage, EnvironmentError> {
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
        let taken = self.shelf.obtain(&place, &format!("the image {image}"), watcher, |lock, watcher| {
            read_out(engine, image, &inspected, &self.root, &place.directory, lock, watcher)
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
        EnvironmentError::Failed { said, unreachable, .. } => {
            EnvironmentError::NotPulled { image: image.to_owned(), program: engine.name(), said, unreachable }
        }
        other => other,
    })
}

/// Its files, into `directory` of `shelf`, which is not there yet. Whoever runs this holds the
/// `lock`.
fn read_out(
    engine: &Engine,
    image: &str,
    inspected: &Inspected,
    shelf: &Path,
    directory: &Path,
    lock: &File,
    watcher: &mut dyn Watcher,
) -> Result<ImageRecord, EnvironmentError> {
    let begun = Instant::now();
    let what = format!("the image {image}");
    room::ensure(shelf, inspected.bytes, &what)?;
    watcher.line(&format!(
        "reading the image {image}, once for this machine: {} MB from {}",
        inspected.bytes >> 20,
        engine.name()
    ));
    // Who made one of this name before was killed: the lock says that nobody else does now.
    let container = container(shelf, &inspected.id);
    engine.remove(&container);
    let created =
        run(engine.create(&container, &inspected.id), "create", image, lock, watcher).map_err(|error| match error {
            EnvironmentError::Failed { said, .. } => {
                EnvironmentError::Engine { what: format!("{} create {image}", engine.name()), said }
            }
            other => other,
        });
    let unpacked = created.and_then(|()| export(engine, &what, &container, directory, watcher));
    engine.remove(&container);
    let (entries, bytes) = unpacked?;
    watcher.line(&format!(
        "the image {image} is ready: {entries} files, {} MB in {:.0} s",
        bytes >> 20,
        begun.elapsed().as_secs_f64()
    ));
    Ok(ImageRecord { name: image.to_owned(), id: inspected.id.clone(), bytes, entries, made: now() })
}

/// What the container is called whose files are read out; an engine may serve several machines and
/// directories.
fn container(shelf: &Path, id: &str) -> String {
    // Without a name the machine is one like others.
    let machine = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    format!("shoal-{}", digest(&[&machine, &shelf.to_string_lossy(), id]))
}

fn export(
    engine: &Engine,
    what: &str,
    container: &str,
    directory: &Path,
    watcher: &mut dyn Watcher,
) -> Result<(u64, u64), EnvironmentError> {
    fs::create_dir(directory).map_err(EnvironmentError::io("make", directory))?;
    let mut command = engine.command(&["export", container]);
    command.process_group(0).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(EnvironmentError::io("run", engine.program()))?;
    let (Some(stdout), Some(mut stderr)) = (child.stdout.take(), child.stderr.take()) else {
        unreachable!("both are pipes")
    };
    let words = thread::spawn(move || {
        let mut text = String::new();
        // What cannot be read cannot be told.
        let _ = stderr.read_to_string(&mut text);
        text
    });
    let mut stream = Stream::new(stdout, watcher);
    let unpacked = unpack(&mut stream, what, directory).and_then(|counted| {
        // What pads the archive is taken, too, so that the command ends well.
        io::copy(&mut stream, &mut io::sink()).map_err(EnvironmentError::io("read", engine.program()))?;
        Ok(counted)
    });
    if unpacked.is_err() {
        let is_stopped = stream.is_stopped;
        end(&mut child);
        return if is_stopped { Err(EnvironmentError::Stopped(what.to_owned())) } else { unpacked };
    }
    let status = child.wait().map_err(EnvironmentError::io("wait for", engine.program()))?;
    let said = words.join().unwrap_or_default();
    match status.success() {
        true => unpacked,
        false => Err(EnvironmentError::Engine {
            what: format!("{} export of {what}", engine.name()),
            said: last_line(&said),
        }),
    }
}
