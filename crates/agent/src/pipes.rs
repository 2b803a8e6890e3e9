//! Pipe mode: a named pipe for each epoch of a channel, `NAME_0`, `NAME_1`, .., beside the
//! directories of other channels, fed while the program reads.
//!
//! The pipe of the epoch that is read and the next one exist; earlier ones are removed. An epoch is
//! over when all of it was read, or when the program closes its pipe: the next begins at the start.
//! What the program does not read is not read here either, beyond the pipe's buffer.

mod fifo;
mod stream;

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::{self, JoinHandle};

use shoal_contract::pipe_name;
use shoal_link::{Channel, Delivery, ManifestEntry, Pipe};

use crate::events::Event;
use crate::fetched::Fetched;
use crate::own_log::say;
use crate::parts::Parts;
use fifo::{Directory, Fifo, Writer};
use stream::Broken;

/// In the tree of a pipe's channel: a [`ManifestEntry`] in each line.
const MANIFEST: &str = "manifest";

/// The pipes of an instance's channels, fed until this is dropped.
pub(crate) struct Pipes {
    feeders: Vec<Feeder>,
}

struct Feeder {
    channel: String,
    shared: Arc<Shared>,
    /// What the feeder may be waiting for, beside a reader.
    parts: Option<Arc<Parts>>,
    thread: Option<JoinHandle<Count>>,
}

/// What was read of a channel.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Count {
    whole: u64,
    part: u64,
    bytes: u64,
}

#[derive(Default)]
struct Shared {
    is_over: AtomicBool,
    /// For whose reader the feeder waits.
    waits_at: Mutex<Option<Arc<Fifo>>>,
}

impl Shared {
    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    fn waits_at(&self) -> MutexGuard<'_, Option<Arc<Fifo>>> {
        self.waits_at.lock().expect("no holder of this lock panics")
    }
}

impl Pipes {
    /// Makes the first pipes of all channels that come so, in the directory `data`, and feeds them.
    ///
    /// # Errors
    /// The operating system makes no pipe or thread, or a manifest cannot be read.
    pub(crate) fn start(
        data: &Path,
        channels: &[Channel],
        fetched: &Fetched,
        events: &Sender<Event>,
    ) -> io::Result<Self> {
        let mut pipes = Self { feeders: Vec::new() };
        for channel in channels {
            if let Delivery::Pipe(pipe) = channel.delivery {
                let source = match fetched.pipe(&channel.name)? {
                    Some((entries, parts)) => Source { entries, place: Place::Server(parts) },
                    None => Source::local(channel.tree.directory())?,
                };
                pipes.feeders.push(Feeder::start(data, &channel.name, pipe, source, events.clone())?);
            }
        }
        Ok(pipes)
    }

    /// Ends all feeders; gives what was read, in sentences.
    pub(crate) fn finish(mut self) -> Vec<String> {
        self.feeders.drain(..).filter_map(|mut feeder| Some(feeder.stop()?.text(&feeder.channel))).collect()
    }
}

impl Feeder {
    fn start(data: &Path, channel: &str, pipe: Pipe, source: Source, events: Sender<Event>) -> io::Result<Self> {
        let shared = Arc::<Shared>::default();
        let directory = Directory::open(data)?;
        let next = Arc::new(directory.make(&pipe_name(channel, 0))?);
        let parts = match &source.place {
            Place::Tree(_) => None,
            Place::Server(parts) => Some(parts.clone()),
        };
        let feeding = Feeding {
            after: Arc::new(directory.make(&pipe_name(channel, 1))?),
            next,
            directory,
            channel: channel.to_owned(),
            source,
            pipe,
            shared: shared.clone(),
            count: Count::default(),
        };
        let thread = thread::Builder::new().name("pipe".to_owned()).spawn(move || feeding.run(&events))?;
        Ok(Self { channel: channel.to_owned(), shared, parts, thread: Some(thread) })
    }

    fn stop(&mut self) -> Option<Count> {
        let thread = self.thread.take()?;
        // The feeder sees the flag, or has said where it waits.
        let reader = {
            let waits_at = self.shared.waits_at();
            self.shared.is_over.store(true, Ordering::Relaxed);
            waits_at.as_ref().map(|fifo| fifo.reader())
        };
        self.parts.iter().for_each(|parts| parts.give_up());
        let count = thread.join().ok();
        drop(reader);
        count
    }
}

impl Drop for Feeder {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Count {
    fn text(self, channel: &str) -> String {
        let Self { whole, part, bytes } = self;
        match (whole, part) {
            (0, 0) => format!("channel {channel}: no pipe of it was opened"),
            (_, 0) => format!("channel {channel}: {bytes} bytes were read through pipes in {whole} epochs"),
            _ => format!(
                "channel {channel}: {bytes} bytes were read through pipes in {whole} epochs, and in {part} that the \
                 program closed before their end"
            ),
        }
    }
}

/// The work of a feeder's thread.
struct Feeding {
    directory: Directory,
    channel: String,
    source: Source,
    pipe: Pipe,
    next: Arc<Fifo>,
    after: Arc<Fifo>,
    shared: Arc<Shared>,
    count: Count,
}

impl Feeding {
    fn run(mut self, events: &Sender<Event>) -> Count {
        for epoch in 0.. {
            match self.epoch(epoch, events) {
                Ok(true) => {}
                Ok(false) | Err(Broken::Data(_)) => break,
                // The program has removed the directory, or put something else there.
                Err(Broken::Sink(error)) => {
                    say(format_args!("the pipes of {} are not fed any more: {error}", self.channel));
                    break;
                }
            }
        }
        self.count
    }

    /// Feeds the pipe of an epoch; gives whether there is a next one.
    fn epoch(&mut self, epoch: u64, events: &Sender<Event>) -> Result<bool, Broken> {
        let Some(mut writer) = self.wait().map_err(Broken::Sink)? else { return Ok(false) };
        let fed = self.feed(epoch, &mut writer);
        // Before the program can take the end of the pipe for the end of its data.
        if let Err(Broken::Data(why)) = &fed
            && !self.shared.is_over()
        {
            // Without a listener the agent has ended, and with it the program.
            let _ = events.send(Event::Unfed { reason: format!("channel {}: {why}", self.channel) });
        }
        let fifo = self.turn(epoch);
        drop(writer);
        if let Ok(fifo) = &fifo {
            fifo.release_readers();
        }
        let is_whole = match fed {
            Ok(is_whole) => is_whole,
            Err(Broken::Sink(error)) if error.kind() == io::ErrorKind::BrokenPipe => false,
            Err(broken) => return Err(broken),
        };
        if self.shared.is_over() && !is_whole {
            // Whether the program closed it or ended does not matter any more.
            self.count.part += 1;
            return Ok(false);
        }
        *(if is_whole { &mut self.count.whole } else { &mut self.count.part }) += 1;
        fifo.map(|_| true).map_err(Broken::Sink)
    }

    /// The writer of the next pipe once it has a reader; none when the program has ended.
    fn wait(&self) -> io::Result<Option<Writer>> {
        {
            let mut waits_at = self.shared.waits_at();
            if self.shared.is_over() {
                return Ok(None);
            }
            *waits_at = Some(self.next.clone());
        }
        let writer = self.next.writer();
        *self.shared.waits_at() = None;
        if self.shared.is_over() { Ok(None) } else { writer.map(Some) }
    }

    fn feed(&mut self, epoch: u64, writer: &mut Writer) -> Result<bool, Broken> {
        let (place, shared, bytes) = (&self.source.place, &self.shared, &mut self.count.bytes);
        stream::epoch(&self.source.entries, self.pipe, epoch, &|entry| place.open(entry), &mut |part| {
            let is_written = writer.write(part, &|| shared.is_over())?;
            *bytes += part.len() as u64;
            Ok(is_written)
        })
    }

    /// Removes the name of the epoch's pipe while it has a writer yet, and makes the one after the
    /// next.
    fn turn(&mut self, epoch: u64) -> io::Result<Arc<Fifo>> {
        self.directory.remove(&pipe_name(&self.channel, epoch))?;
        let after = Arc::new(self.directory.make(&pipe_name(&self.channel, epoch + 2))?);
        Ok(std::mem::replace(&mut self.next, std::mem::replace(&mut self.after, after)))
    }
}

/// What the channel has, in order, and where.
struct Source {
    entries: Vec<ManifestEntry>,
    place: Place,
}

enum Place {
    /// A tree on this machine, by id.
    Tree(PathBuf),
    /// The server's machine.
    Server(Arc<Parts>),
}

impl Source {
    fn local(tree: &Path) -> io::Result<Self> {
        let lines = BufReader::new(File::open(tree.join(MANIFEST))?).lines();
        let entries = lines.map(|line| serde_json::from_str(&line?).map_err(io::Error::other));
        Ok(Self { entries: entries.collect::<io::Result<_>>()?, place: Place::Tree(tree.to_owned()) })
    }
}

impl Place {
    fn open(&self, entry: &ManifestEntry) -> io::Result<Box<dyn Read>> {
        Ok(match self {
            Self::Tree(tree) => Box::new(File::open(tree.join(&entry.id))?),
            Self::Server(parts) => Box::new(parts.stream(entry)),
        })
    }
}

#[cfg(test)]
mod tests;
