//! Objects of a server on another machine, read in parts where they are needed: each part is
//! fetched once into the node's cache, compared with its checksum when a mount first reads it
//! there, and the next ones are fetched ahead of a reader that goes through an object in order.

use std::collections::{HashMap, VecDeque};
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, Weak};
use std::thread;

use shoal_link::{ManifestEntry, ObjectTree};

use crate::Options;
use crate::asking::Handle;
use crate::inputs::{self, Failure, InputError, Line, PAUSE};
use crate::objects::ObjectCache;
use crate::own_log::say;
use crate::part_files::{PART, PartFiles};

/// Parts that are fetched ahead.
const AHEAD: u64 = 16;
/// Connections that fetch ahead, one thread each.
const FETCHERS: usize = 3;
/// Parts in memory: those that are not read to their end yet, and those for which the cache has
/// no room.
const IN_MEMORY: usize = 24;
/// Objects whose two files are open.
const MAX_OPEN: usize = 128;

/// Where parts come from.
pub(crate) trait Origin: Send + Sync {
    /// Bytes of an object.
    ///
    /// # Errors
    /// They cannot be had, or the reader has given up.
    fn fetch(&self, id: &str, offset: u64, length: u64) -> io::Result<Vec<u8>>;

    /// Ends what is being fetched, and lets nothing begin.
    fn give_up(&self);
}

/// Reads objects in parts.
pub(crate) struct Parts {
    origin: Box<dyn Origin>,
    cache: ObjectCache,
    open: Mutex<OpenObjects>,
    /// Parts that are in memory, the oldest first.
    in_memory: Mutex<VecDeque<(Weak<Object>, usize)>>,
    most_in_memory: usize,
    /// Bytes that went into the cache, of all channels of the job.
    stored: Arc<AtomicU64>,
    /// Bytes that were fetched.
    fetched: AtomicU64,
    ahead: Mutex<Option<Sender<Wanted>>>,
}

/// Objects that are read, or were until others needed their places.
#[derive(Default)]
struct OpenObjects {
    by_id: HashMap<String, Arc<Object>>,
    /// The oldest first.
    order: VecDeque<String>,
}

impl OpenObjects {
    /// Closes the oldest that is not being read; what the cache has of it is compared again when
    /// it is opened next.
    fn make_room(&mut self) {
        if self.by_id.len() < MAX_OPEN {
            return;
        }
        let is_idle = |id: &String| self.by_id.get(id).is_none_or(|object| Arc::strong_count(object) == 1);
        if let Some(id) = self.order.iter().position(is_idle).and_then(|at| self.order.remove(at)) {
            self.by_id.remove(&id);
        }
    }
}

/// A part of an object that is to be fetched ahead.
type Wanted = (Arc<Object>, usize);

/// An object that is read.
struct Object {
    id: String,
    files: PartFiles,
    parts: Mutex<Vec<Part>>,
    changed: Condvar,
    /// Where the reader of this object was last.
    last: AtomicU64,
}

#[derive(Clone, Default)]
enum Part {
    /// Perhaps in the cache.
    #[default]
    Unknown,
    /// A thread brings it.
    Coming,
    /// In the cache, and as it was sent.
    Cached,
    /// In memory, and perhaps in the cache, too.
    Here { content: Arc<Vec<u8>>, is_cached: bool },
}

impl Part {
    fn leave_memory(&mut self) {
        *self = if matches!(self, Self::Here { is_cached: true, .. }) { Self::Cached } else { Self::Unknown };
    }
}

impl Object {
    fn parts(&self) -> MutexGuard<'_, Vec<Part>> {
        self.parts.lock().expect("no holder of this lock panics")
    }
}

impl Parts {
    /// Parts of an origin, kept in the node's cache, in which `stored` counts their bytes.
    ///
    /// # Errors
    /// There are no threads.
    pub(crate) fn new(origin: Box<dyn Origin>, cache: ObjectCache, stored: Arc<AtomicU64>) -> io::Result<Arc<Self>> {
        Self::holding(IN_MEMORY, origin, cache, stored)
    }

    /// With at most `most_in_memory` parts in memory.
    fn holding(
        most_in_memory: usize,
        origin: Box<dyn Origin>,
        cache: ObjectCache,
        stored: Arc<AtomicU64>,
    ) -> io::Result<Arc<Self>> {
        let (ahead, requested) = channel();
        let parts = Arc::new(Self {
            origin,
            cache,
            open: Mutex::default(),
            in_memory: Mutex::default(),
            most_in_memory,
            stored,
            fetched: AtomicU64::default(),
            ahead: Mutex::new(Some(ahead)),
        });
        let requested = Arc::new(Mutex::new(requested));
        for _ in 0..FETCHERS {
            let (requested, parts) = (requested.clone(), Arc::downgrade(&parts));
            thread::Builder::new().name("fetch".to_owned()).spawn(move || fetch_ahead(&requested, &parts))?;
        }
        Ok(parts)
    }

    /// Reads from an object, and hands the bytes to `take`; fewer only at its end.
    ///
    /// # Errors
    /// They cannot be had.
    pub(crate) fn read_at<T>(
        &self,
        entry: &ManifestEntry,
        offset: u64,
        length: u64,
        take: impl FnOnce(&[u8]) -> T,
    ) -> io::Result<T> {
        let end = offset.saturating_add(length).min(entry.size);
        if offset >= end {
            return Ok(take(&[]));
        }
        let object = self.object(entry)?;
        let (part, begin) = place(offset)?;
        let part_end = offset - begin as u64 + object.files.length(part);
        // As a rule the kernel asks for one part, or for less.
        if end <= part_end
            && let Some(here) = self.look(&object, part)?
        {
            let taken = take(&here[begin..][..usize::try_from(end - offset).unwrap_or_default()]);
            if end == part_end {
                self.is_read(&object, part);
            }
            return Ok(taken);
        }
        let mut content = vec![0; usize::try_from(end - offset).map_err(io::Error::other)?];
        if end <= part_end {
            object.files.data().read_exact_at(&mut content, offset)?;
            return Ok(take(&content));
        }
        let (mut at, mut rest) = (offset, &mut content[..]);
        while !rest.is_empty() {
            let (part, begin) = place(at)?;
            let left = object.files.length(part) - begin as u64;
            let count = usize::try_from(left.min(rest.len() as u64)).unwrap_or(rest.len());
            let (now, later) = rest.split_at_mut(count);
            match self.look(&object, part)? {
                Some(here) => now.copy_from_slice(&here[begin..][..count]),
                None => object.files.data().read_exact_at(now, at)?,
            }
            if count as u64 == left {
                self.is_read(&object, part);
            }
            (at, rest) = (at + count as u64, later);
        }
        Ok(take(&content))
    }

    /// Reads an object from its start.
    pub(crate) fn stream(self: &Arc<Self>, entry: &ManifestEntry) -> Stream {
        Stream { parts: self.clone(), entry: entry.clone(), at: 0 }
    }

    /// Bytes that were fetched.
    pub(crate) fn fetched(&self) -> u64 {
        self.fetched.load(Ordering::Relaxed)
    }

    /// Readers that wait are answered with an error.
    pub(crate) fn give_up(&self) {
        self.ahead.lock().expect("no holder of this lock panics").take();
        self.origin.give_up();
    }

    fn object(&self, entry: &ManifestEntry) -> io::Result<Arc<Object>> {
        let mut open = self.open.lock().expect("no holder of this lock panics");
        if let Some(object) = open.by_id.get(&entry.id) {
            return Ok(object.clone());
        }
        open.make_room();
        let files = PartFiles::open(&self.cache, &entry.id, entry.size)?;
        let count = PartFiles::count(entry.size)?;
        let object = Arc::new(Object {
            id: entry.id.clone(),
            files,
            parts: Mutex::new(vec![Part::default(); count]),
            changed: Condvar::new(),
            last: AtomicU64::default(),
        });
        open.by_id.insert(entry.id.clone(), object.clone());
        open.order.push_back(entry.id.clone());
        Ok(object)
    }

    /// Fetches the next parts for a sequential reader.
    fn look_ahead(&self, object: &Arc<Object>, part: usize) {
        let last = object.last.swap(part as u64, Ordering::Relaxed);
        // Of what is read by one part after another, only the first read of a part moves on.
        let is_next = part as u64 == last + 1;
        let is_start = part == 0 && last == 0;
        if !is_next && !is_start {
            return;
        }
        let sender = self.ahead.lock().expect("no holder of this lock panics");
        let Some(sender) = &*sender else { return };
        let known = object.parts();
        let ahead = (part + 1..known.len()).take(if is_start { 2 } else { AHEAD as usize });
        for part in ahead.filter(|part| matches!(known[*part], Part::Unknown)) {
            // The threads that take them may have ended.
            let _ = sender.send((object.clone(), part));
        }
    }

    /// Brings a part, and the next ones of a reader in order.
    fn look(&self, object: &Arc<Object>, part: usize) -> io::Result<Option<Arc<Vec<u8>>>> {
        self.look_ahead(object, part);
        self.part(object, part)
    }

    /// Brings a part: into memory, or into the cache.
    fn part(&self, object: &Arc<Object>, part: usize) -> io::Result<Option<Arc<Vec<u8>>>> {
        let mut parts = object.parts();
        loop {
            match &parts[part] {
                Part::Cached => return Ok(None),
                Part::Here { content, .. } => return Ok(Some(content.clone())),
                Part::Coming => parts = object.changed.wait(parts).expect("no holder of this lock panics"),
                Part::Unknown => break,
            }
        }
        parts[part] = Part::Coming;
        drop(parts);
        let brought = self.bring(object, part);
        let mut parts = object.parts();
        parts[part] = brought.as_ref().map_or(Part::Unknown, Part::clone);
        drop(parts);
        object.changed.notify_all();
        match brought? {
            Part::Here { content, .. } => {
                self.remember(object, part);
                Ok(Some(content))
            }
            _ => Ok(None),
        }
    }

    fn bring(&self, object: &Object, part: usize) -> io::Result<Part> {
        if let Some(content) = object.files.sound(part)? {
            return Ok(Part::Here { content: Arc::new(content), is_cached: true });
        }
        let length = object.files.length(part);
        let content = self.origin.fetch(&object.id, part as u64 * PART, length)?;
        self.fetched.fetch_add(length, Ordering::Relaxed);
        let stored = self.stored.fetch_add(length, Ordering::Relaxed) + length;
        let is_cached = stored <= self.cache.max_bytes() && object.files.store(part, &content).is_ok();
        Ok(Part::Here { content: Arc::new(content), is_cached })
    }

    /// The oldest part in memory makes room.
    fn remember(&self, object: &Arc<Object>, part: usize) {
        let mut all = self.in_memory.lock().expect("no holder of this lock panics");
        all.push_back((Arc::downgrade(object), part));
        if all.len() > self.most_in_memory
            && let Some((object, part)) = all.pop_front()
            && let Some(object) = object.upgrade()
        {
            object.parts()[part].leave_memory();
        }
    }

    /// Its last byte was read: what is read of it again comes from the cache.
    fn is_read(&self, object: &Arc<Object>, part: usize) {
        let mut all = self.in_memory.lock().expect("no holder of this lock panics");
        let mut parts = object.parts();
        if matches!(parts[part], Part::Here { is_cached: true, .. }) {
            all.retain(|(other, number)| *number != part || other.as_ptr() != Arc::as_ptr(object));
            parts[part].leave_memory();
        }
    }
}

/// The part in which a byte of an object is, and where in the part.
fn place(at: u64) -> io::Result<(usize, usize)> {
    let part = usize::try_from(at / PART).map_err(io::Error::other)?;
    Ok((part, usize::try_from(at % PART).map_err(io::Error::other)?))
}

fn fetch_ahead(requested: &Mutex<Receiver<Wanted>>, parts: &Weak<Parts>) {
    loop {
        let next = requested.lock().expect("no holder of this lock panics").recv();
        let (Ok((object, part)), Some(parts)) = (next, parts.upgrade()) else { return };
        // A reader that needs it gets the error itself.
        let _ = parts.part(&object, part);
    }
}

/// An object from its start to its end.
pub(crate) struct Stream {
    parts: Arc<Parts>,
    entry: ManifestEntry,
    at: u64,
}

impl Read for Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.parts.read_at(&self.entry, self.at, buffer.len() as u64, |content| {
            buffer[..content.len()].copy_from_slice(content);
            content.len()
        })?;
        self.at += read as u64;
        Ok(read)
    }
}

/// The server, over a few connections.
pub(crate) struct FromServer {
    options: Arc<Options>,
    tree: ObjectTree,
    idle: Mutex<Vec<Line>>,
    /// Ends all of them.
    handles: Mutex<Vec<Handle>>,
    is_over: AtomicBool,
}

impl FromServer {
    pub(crate) fn new(options: &Arc<Options>, tree: &ObjectTree) -> Self {
        Self {
            options: options.clone(),
            tree: tree.clone(),
            idle: Mutex::default(),
            handles: Mutex::default(),
            is_over: AtomicBool::default(),
        }
    }

    fn line(&self) -> Result<Line, Failure> {
        if let Some(line) = self.idle.lock().expect("no holder of this lock panics").pop() {
            return Ok(line);
        }
        let line = Line::connect(&self.options)?;
        let mut handles = self.handles.lock().expect("no holder of this lock panics");
        handles.retain(Handle::is_open);
        handles.push(line.handle());
        drop(handles);
        Ok(line)
    }

    fn try_fetch(&self, id: &str, offset: u64, length: u64) -> Result<Vec<u8>, Failure> {
        let mut line = self.line()?;
        let part = line.fetch_part_unsummed(inputs::Part { tree: &self.tree, id, offset, length });
        if !matches!(part, Err(Failure::Lost(_))) {
            self.idle.lock().expect("no holder of this lock panics").push(line);
        }
        part
    }
}

impl Origin for FromServer {
    fn fetch(&self, id: &str, offset: u64, length: u64) -> io::Result<Vec<u8>> {
        let mut is_reported = false;
        loop {
            if self.is_over.load(Ordering::Relaxed) {
                return Err(io::Error::other("the program has ended"));
            }
            match self.try_fetch(id, offset, length) {
                Ok(part) => return Ok(part),
                // Another server comes, or the lease ends.
                Err(Failure::Lost(error)) => {
                    if !std::mem::replace(&mut is_reported, true) {
                        say(format_args!("a part of an object is asked for again until the server answers: {error}"));
                    }
                    thread::sleep(PAUSE);
                }
                Err(Failure::Ended(error @ InputError::Refused(_))) => {
                    say(format_args!("a part of object {id}: {error}"));
                    return Err(io::Error::other(error));
                }
                Err(Failure::Ended(error)) => return Err(io::Error::other(error)),
            }
        }
    }

    fn give_up(&self) {
        self.is_over.store(true, Ordering::Relaxed);
        for handle in self.handles.lock().expect("no holder of this lock panics").drain(..) {
            handle.end();
        }
    }
}

#[cfg(test)]
mod tests;
