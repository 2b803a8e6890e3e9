//! Hears from the kernel (inotify) which files of the directory were written and closed, moved in
//! or linked. A file that is only being written is never told of.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};

use crate::mirror::changes::{Changes, Why};
use crate::mirror::tree::{Tree, at, is_ignored};
use crate::own_log::say;

/// What is watched.
enum Watched {
    /// A directory of the tree.
    Inside(PathBuf),
    /// A directory above it: only the next one on the way matters.
    Above { next: PathBuf },
    /// The agent's own directory: a file in it is a mark in the stream of events.
    Marks,
}

/// Watches all directories of the tree.
pub(crate) struct Watch {
    inotify: OwnedFd,
    tree: Arc<Tree>,
    changes: Arc<Changes>,
    watched: HashMap<i32, Watched>,
    /// Whether a directory of the tree is watched.
    includes: fn(&Path) -> bool,
    broken: bool,
}

impl Watch {
    /// Starts watching the directories that are included. Files that are there by then are not
    /// reported.
    pub(crate) fn start(
        tree: Arc<Tree>,
        changes: Arc<Changes>,
        marks: &Path,
        includes: fn(&Path) -> bool,
    ) -> io::Result<Self> {
        let inotify = inotify::init(CreateFlags::CLOEXEC)?;
        let mut watch = Self { inotify, tree, changes, watched: HashMap::new(), includes, broken: false };
        watch.watch(&File::open(marks)?, Watched::Marks, WatchFlags::CREATE)?;
        watch.find_tree(false)?;
        if watch.broken {
            return Err(io::Error::other("the kernel watches no more directories"));
        }
        Ok(watch)
    }

    /// Listens for as long as the process lives.
    pub(crate) fn listen(mut self) {
        let mut buffer = vec![MaybeUninit::uninit(); 64 << 10];
        loop {
            if let Err(error) = self.read(&mut buffer) {
                say(format_args!("the kernel does not tell of changed files any more ({error}): they are looked for"));
                self.changes.poll();
                self.changes.complete();
                return;
            }
        }
    }

    /// Takes in what has happened; waits for something.
    fn read(&mut self, buffer: &mut [MaybeUninit<u8>]) -> io::Result<()> {
        let mut happened = Vec::new();
        let mut reader = inotify::Reader::new(&self.inotify, buffer);
        loop {
            let event = reader.next()?;
            let name = event.file_name().map(|name| OsStr::from_bytes(name.to_bytes()).to_owned());
            happened.push((event.wd(), event.events(), name));
            if reader.is_buffer_empty() {
                break;
            }
        }
        for (number, events, name) in happened {
            if events.contains(ReadFlags::QUEUE_OVERFLOW) {
                self.find_tree(true)?;
                self.changes.rescan();
                // The mark of the end may be among what the kernel dropped.
                if self.changes.has_ended() {
                    self.changes.complete();
                }
            } else if events.contains(ReadFlags::IGNORED) {
                self.watched.remove(&number);
            } else if let Some(name) = name {
                self.happened(number, events, Path::new(&name))?;
            }
        }
        Ok(())
    }

    fn happened(&mut self, number: i32, events: ReadFlags, name: &Path) -> io::Result<()> {
        match self.watched.get(&number) {
            None => Ok(()),
            Some(Watched::Marks) => {
                self.changes.complete();
                Ok(())
            }
            Some(Watched::Above { next }) if next == name => self.find_tree(true),
            Some(Watched::Above { .. }) => Ok(()),
            Some(Watched::Inside(directory)) => {
                let path = directory.join(name);
                if events.contains(ReadFlags::ISDIR) {
                    self.directory(path, true);
                } else if !is_ignored(&path) {
                    self.file(path, events);
                }
                Ok(())
            }
        }
    }

    fn file(&self, path: PathBuf, events: ReadFlags) {
        if events.contains(ReadFlags::CLOSE_WRITE) {
            self.changes.add(path, Why::Closed(Instant::now()));
        } else if events.contains(ReadFlags::MOVED_TO)
            || self.tree.look(&path).is_ok_and(|metadata| metadata.nlink() > 1)
        {
            // What was linked to its place is whole; what was only created will be closed.
            self.changes.add(path, Why::Placed);
        }
    }

    /// The way to the tree and the tree itself; again when something on the way is another
    /// directory than before.
    fn find_tree(&mut self, tell: bool) -> io::Result<()> {
        let tree = self.tree.clone();
        let mut way = PathBuf::new();
        for next in tree.way() {
            match tree.open_below_base(&way) {
                Ok(directory) => {
                    let flags = WatchFlags::CREATE | WatchFlags::MOVED_TO;
                    self.watch(&directory, Watched::Above { next: next.clone() }, flags)?;
                }
                // It is told of when it comes back.
                Err(_) => return Ok(()),
            }
            way.push(next);
        }
        self.directory(PathBuf::new(), tell);
        Ok(())
    }

    /// Watches a directory and all in it, and tells of the files that were there before that.
    fn directory(&mut self, path: PathBuf, tell: bool) {
        let mut waiting = vec![path];
        while let Some(path) = waiting.pop() {
            if !(self.includes)(&path) {
                continue;
            }
            let Ok(directory) = self.tree.open_inside(&path) else { continue };
            let flags = WatchFlags::CLOSE_WRITE | WatchFlags::MOVED_TO | WatchFlags::CREATE;
            match self.watch(&directory, Watched::Inside(path.clone()), flags) {
                Ok(()) => {}
                Err(error) if matches!(error.kind(), io::ErrorKind::NotADirectory | io::ErrorKind::NotFound) => {
                    continue;
                }
                Err(error) => {
                    // Most often fs.inotify.max_user_watches.
                    if !std::mem::replace(&mut self.broken, true) {
                        say(format_args!(
                            "{} cannot be watched ({error}): changed files are looked for",
                            path.display()
                        ));
                    }
                    self.changes.poll();
                }
            }
            let changes = self.changes.clone();
            let _ = self.tree.list(&path, |path, metadata| {
                if metadata.is_dir() {
                    waiting.push(path);
                } else if tell && metadata.is_file() && !is_ignored(&path) {
                    changes.add_found(path);
                }
            });
        }
    }

    fn watch(&mut self, directory: &File, what: Watched, flags: WatchFlags) -> io::Result<()> {
        let number = inotify::add_watch(&self.inotify, at(directory), flags | WatchFlags::ONLYDIR)?;
        self.watched.insert(number, what);
        Ok(())
    }
}
