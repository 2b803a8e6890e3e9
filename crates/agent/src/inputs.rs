//! What a job reads, where the server shares no files with this machine: trees of objects become
//! directories, whose files the node's cache has.

use std::fs::{self, File};
use std::io::{self, Seek, Write};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use hex_simd::AsciiCase;
use sha2::{Digest, Sha256};
use shoal_elsewhere::download;
use shoal_link::{Frame, Input, ManifestEntry, ObjectTree, ToAgent, ToServer};

use crate::asking::{Asking, Handle};
use crate::connection::hello;
use crate::objects::{Keeps, PlaceError};
use crate::own_log::say;
use crate::server::CONNECT_TIMEOUT;
use crate::{Options, source};

/// A server that sends nothing meanwhile counts as unreachable.
const TIMEOUT: Duration = Duration::from_secs(60);
pub(crate) const PAUSE: Duration = Duration::from_millis(300);

/// Why there is no directory.
#[derive(Debug, thiserror::Error)]
pub(crate) enum InputError {
    /// The server does not give it.
    #[error("the server does not send the objects of an input: {0}")]
    Refused(String),
    /// The job is being stopped.
    #[error("stopped")]
    Stopped,
    /// An object arrives damaged, or this machine cannot take it.
    #[error("could not make a directory of the objects of an input")]
    Place(#[source] PlaceError),
    /// The same, on a node that is not the server's.
    #[error("could not keep an input on node {node} in {}{}", cache.display(), advice(source))]
    Node {
        /// By its host name.
        node: String,
        /// The node's cache.
        cache: PathBuf,
        /// Why not.
        #[source]
        source: PlaceError,
    },
}

impl InputError {
    /// The same with the node that cannot take an input.
    pub(crate) fn on_node(self, node: &str, cache: &Path) -> Self {
        match self {
            Self::Place(source @ PlaceError::Io(_)) => {
                Self::Node { node: node.to_owned(), cache: cache.to_owned(), source }
            }
            other => other,
        }
    }
}

fn advice(error: &PlaceError) -> &'static str {
    match error.is_full() {
        true => " (free some space there, or set `cache` of the compute target in shoal.toml to a larger disk)",
        false => "",
    }
}

/// Whether the server is to be asked again.
pub(crate) enum Failure {
    /// It may answer on another connection.
    Lost(io::Error),
    /// It will not.
    Ended(InputError),
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Lost(error)
    }
}

/// Puts directories in the place of trees of objects. `dir` is where they are made, of what `keeps`
/// has.
pub(crate) fn localise(
    options: &Options,
    keeps: &dyn Keeps,
    dir: &Path,
    input: &mut Input,
    is_to_stop: &mut dyn FnMut() -> bool,
) -> Result<(), InputError> {
    let Input::Objects(tree) = input else { return Ok(()) };
    let place = place_of(dir, tree).ok_or_else(|| InputError::Refused(format!("\"{}\" names no tree", tree.tree)))?;
    let draft = place.with_extension("draft");
    let (mut is_reported, mut has_made_room) = (false, false);
    while !place.exists() {
        if is_to_stop() {
            return Err(InputError::Stopped);
        }
        match make(options, keeps, tree, &draft, is_to_stop) {
            Ok(()) => fs::rename(&draft, &place).map_err(|error| InputError::Place(error.into()))?,
            // Another server comes, or the lease ends.
            Err(Failure::Lost(error)) => {
                if !std::mem::replace(&mut is_reported, true) {
                    say(format_args!("objects are asked for again until the server answers: {error}"));
                }
                thread::sleep(PAUSE);
            }
            // What other jobs have left makes room.
            Err(Failure::Ended(InputError::Place(error)))
                if error.is_full() && !std::mem::replace(&mut has_made_room, true) =>
            {
                say(format_args!("the disk is full: what no job has of the cache is removed"));
                keeps.make_room().map_err(|error| InputError::Place(error.into()))?;
            }
            Err(Failure::Ended(error)) => return Err(error),
        }
    }
    *input = Input::Local(place.display().to_string());
    Ok(())
}

/// Where a tree's directory is below `dir`; `None` if its name is no name.
pub(crate) fn place_of(dir: &Path, tree: &ObjectTree) -> Option<PathBuf> {
    let is_name = !tree.tree.is_empty() && tree.tree.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
    is_name.then(|| dir.join(&tree.tree))
}

/// Makes the directory, or what is missing of it.
fn make(
    options: &Options,
    keeps: &dyn Keeps,
    tree: &ObjectTree,
    draft: &Path,
    is_to_stop: &mut dyn FnMut() -> bool,
) -> Result<(), Failure> {
    let own = |error: io::Error| Failure::Ended(InputError::Place(error.into()));
    let mut line = Line::connect(options)?;
    let mut entries = line.list(tree)?;
    // Hosts that fill the same place begin with different files.
    let begin = (entries.len() / 8) * (options.host as usize % 8);
    entries.rotate_left(begin);
    fs::create_dir_all(draft).map_err(own)?;
    for ManifestEntry { path, id, size, .. } in entries {
        let relative = source::relative(Path::new(&path)).filter(|path| !path.as_os_str().is_empty());
        let relative = relative.ok_or_else(|| own(io::Error::other(format!("\"{path}\" leads out of the input"))))?;
        let target = draft.join(relative);
        if target.exists() {
            continue;
        }
        target.parent().map_or(Ok(()), fs::create_dir_all).map_err(own)?;
        // A failure of the connection is followed by another attempt, one of this machine is not.
        let mut lost = None;
        let mut fetch = |to: &mut File| match line.fetch(tree, &id, to) {
            Ok(digest) => Ok(digest),
            Err(failure) => {
                lost = Some(failure);
                Err(io::Error::other("not fetched").into())
            }
        };
        let placed = keeps.place(&id, size, &target, &mut fetch, is_to_stop);
        match (placed, lost) {
            (Ok(()), _) => {}
            (Err(_), Some(failure)) => return Err(failure),
            (Err(PlaceError::Stopped), None) => return Err(Failure::Ended(InputError::Stopped)),
            (Err(error), None) => return Err(Failure::Ended(InputError::Place(error))),
        }
    }
    // The limit is for what is left behind; what could not be removed is tried again by the next
    // one.
    keeps.trim().map_err(own)
}

/// What the server answers where an object is asked for.
enum Answer {
    /// Its bytes have come.
    Object { sha256: String },
    /// They are at this address.
    At { url: String, sha256: String },
}

/// A part of an object of an input.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Part<'a> {
    pub(crate) tree: &'a ObjectTree,
    pub(crate) id: &'a str,
    pub(crate) offset: u64,
    pub(crate) length: u64,
}

/// Takes the pieces of an object.
type Taker<'a> = dyn FnMut(Vec<u8>) -> io::Result<()> + 'a;

/// A connection that brings objects.
pub(crate) struct Line {
    asking: Asking,
    /// Objects may be read from the store elsewhere: it has not failed since.
    reads_elsewhere: bool,
}

impl Line {
    pub(crate) fn connect(options: &Options) -> Result<Self, Failure> {
        let mut asking = Asking::new(options.server.connect_to_ask(CONNECT_TIMEOUT)?, TIMEOUT)?;
        asking.ask(ToServer::Objects(hello(options)))?;
        match asking.next()? {
            Frame::Message(ToAgent::Ready) => Ok(Self { asking, reads_elsewhere: true }),
            Frame::Message(ToAgent::Refused { reason }) => Err(Failure::Ended(InputError::Refused(reason))),
            _ => Err(io::Error::other("the server does not send objects").into()),
        }
    }

    /// What is in a tree.
    pub(crate) fn list(&mut self, tree: &ObjectTree) -> Result<Vec<ManifestEntry>, Failure> {
        self.asking.ask(ToServer::List { tree: tree.tree.clone() })?;
        let mut all = Vec::new();
        loop {
            match self.asking.next()? {
                Frame::Message(ToAgent::Manifest { entries, is_last }) => {
                    all.extend(entries);
                    if is_last {
                        return Ok(all);
                    }
                }
                Frame::Message(ToAgent::NoObject { reason }) => {
                    return Err(Failure::Ended(InputError::Refused(reason)));
                }
                _ => return Err(io::Error::other("the server answers with something else than a manifest").into()),
            }
        }
    }

    /// Writes the object's content; gives its SHA-256 as the server has it.
    fn fetch(&mut self, tree: &ObjectTree, id: &str, to: &mut File) -> Result<String, Failure> {
        loop {
            let elsewhere = self.reads_elsewhere;
            self.asking.ask(ToServer::Fetch { tree: tree.tree.clone(), id: id.to_owned(), elsewhere })?;
            let (url, sha256) = match self.take(&mut |bytes| to.write_all(&bytes))? {
                Answer::Object { sha256 } => return Ok(sha256),
                Answer::At { url, sha256 } => (url, sha256),
            };
            match download(&url, &mut |bytes| to.write_all(bytes)) {
                Ok(()) => return Ok(sha256),
                Err(error) => {
                    say(format_args!("the server sends the objects of an input, as their store does not: {error}"));
                    self.reads_elsewhere = false;
                    to.set_len(0)
                        .and_then(|()| to.rewind())
                        .map_err(|error| Failure::Ended(InputError::Place(error.into())))?;
                }
            }
        }
    }

    /// A part of an object, compared with the SHA-256 that the server sends with it.
    pub(crate) fn fetch_part(&mut self, part: Part<'_>) -> Result<Vec<u8>, Failure> {
        let (content, sent) = self.ask_part(part, false)?;
        if sent != hex_simd::encode_to_string(Sha256::digest(&content), AsciiCase::Lower) {
            return Err(io::Error::other("a part of an object arrived damaged").into());
        }
        Ok(content)
    }

    /// The same without a SHA-256, for a part that is not passed on: TLS finds what is damaged on
    /// the way.
    pub(crate) fn fetch_part_unsummed(&mut self, part: Part<'_>) -> Result<Vec<u8>, Failure> {
        self.ask_part(part, true).map(|(content, _)| content)
    }

    fn ask_part(&mut self, part: Part<'_>, unsummed: bool) -> Result<(Vec<u8>, String), Failure> {
        let Part { tree, id, offset, length } = part;
        let mut content = Vec::new();
        self.asking.ask(ToServer::FetchPart {
            tree: tree.tree.clone(),
            id: id.to_owned(),
            offset,
            length,
            unsummed,
        })?;
        let sum = self.take_object(&mut |bytes| {
            // As a rule it comes in one piece.
            match content.is_empty() {
                true => content = bytes,
                false => content.extend_from_slice(&bytes),
            }
            Ok(())
        })?;
        match content.len() as u64 == length {
            true => Ok((content, sum)),
            false => Err(Failure::Ended(InputError::Refused(format!("object {id} ends before {offset}+{length}")))),
        }
    }

    /// The SHA-256 of a part of an object.
    pub(crate) fn part_sum(&mut self, part: Part<'_>) -> Result<String, Failure> {
        let Part { tree, id, offset, length } = part;
        self.asking.ask(ToServer::PartSum { tree: tree.tree.clone(), id: id.to_owned(), offset, length })?;
        self.take_object(&mut |_| Ok(()))
    }

    /// Ends it from elsewhere.
    pub(crate) fn handle(&self) -> Handle {
        self.asking.handle()
    }

    /// The same where an address was not asked for; the SHA-256 of what was sent.
    fn take_object(&mut self, to: &mut Taker<'_>) -> Result<String, Failure> {
        match self.take(to)? {
            Answer::Object { sha256 } => Ok(sha256),
            Answer::At { .. } => {
                Err(io::Error::other("the server answers with an address that was not asked for").into())
            }
        }
    }

    fn take(&mut self, to: &mut Taker<'_>) -> Result<Answer, Failure> {
        loop {
            match self.asking.next()? {
                Frame::Chunk(bytes) => {
                    to(bytes).map_err(|error| Failure::Ended(InputError::Place(error.into())))?;
                }
                Frame::Message(ToAgent::ObjectEnds { sha256 }) => return Ok(Answer::Object { sha256 }),
                Frame::Message(ToAgent::ObjectAt { url, sha256 }) => return Ok(Answer::At { url, sha256 }),
                Frame::Message(ToAgent::NoObject { reason }) => {
                    return Err(Failure::Ended(InputError::Refused(reason)));
                }
                _ => return Err(io::Error::other("the server answers with something else than an object").into()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::causes::with_causes;

    #[test]
    fn the_node_that_cannot_take_an_input_is_named() {
        let of = |error: PlaceError| with_causes(&InputError::Place(error).on_node("n3", Path::new("/scratch/cache")));
        assert_eq!(
            of(io::Error::from_raw_os_error(28).into()),
            "could not keep an input on node n3 in /scratch/cache (free some space there, or set `cache` of the compute \
             target in shoal.toml to a larger disk): No space left on device (os error 28)"
        );
        let other = of(io::Error::from_raw_os_error(13).into());
        assert_eq!(other, "could not keep an input on node n3 in /scratch/cache: Permission denied (os error 13)");
        assert_eq!(with_causes(&InputError::Stopped.on_node("n3", Path::new("/"))), "stopped");
    }
}
