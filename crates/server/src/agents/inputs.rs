//! Objects of an attempt's inputs, for agents that do not share this machine's files: each on a
//! connection of the agent's own, so that gigabytes delay no report. Bytes are read from the links
//! that the attempt's trees are, so an object that is replaced meanwhile is sent as it was.

use shoal_plane::Host;
use std::{
    collections::BTreeSet,
    fs::File,
    io::{self, BufRead, BufReader, Read, Seek, SeekFrom},
    os::unix::net::UnixStream,
    path::Path,
    sync::Arc,
    time::Duration,
};

use sha2::{Digest, Sha256};
use shoal_link::{Decoder, Frame, Input, ManifestEntry, ToAgent, ToServer};
use shoal_store::DataDir;

use crate::{
    agent_stream::{AgentSender, read_some},
    attempts::{Attempt, inputs_of},
    channels::Trees,
    error_chain::without_paths,
    hex::hex,
};

/// An agent's disk may be slow; one that takes nothing for so long is as good as gone.
const WRITE_TIMEOUT: Duration = Duration::from_secs(60);
/// Entries of a message.
const MAX_ENTRIES: usize = 5000;
const CHUNK_BYTES: usize = 256 << 10;

/// Where they are.
pub(crate) struct Inputs {
    pub(crate) trees: Arc<Trees>,
    pub(crate) data_dir: Arc<DataDir>,
}

impl Inputs {
    /// Answers what an agent asks for until the connection ends.
    pub(super) fn serve(
        &self,
        attempt: &Attempt,
        host: Host,
        mut stream: UnixStream,
        sender: &AgentSender,
        mut decoder: Decoder,
    ) -> io::Result<()> {
        let assignment = &attempt.plan.assignments[host.0 as usize - 1];
        let trees: BTreeSet<&str> = inputs_of(assignment).filter_map(tree_of).collect();
        stream.set_write_timeout(Some(WRITE_TIMEOUT))?;
        stream.set_read_timeout(None)?;
        sender.send(ToAgent::Ready)?;
        loop {
            while let Some(frame) = decoder.next::<ToServer>().map_err(io::Error::other)? {
                let (tree, answered) = match &frame {
                    Frame::Message(
                        ToServer::List { tree } | ToServer::Fetch { tree, .. } | ToServer::FetchPart { tree, .. },
                    ) if !trees.contains(tree.as_str()) => {
                        (tree, Err(io::Error::other("it is none of the attempt's inputs")))
                    }
                    Frame::Message(ToServer::List { tree }) => (tree, list(&self.trees.manifest(tree), sender)),
                    Frame::Message(ToServer::Fetch { tree, id, elsewhere }) => {
                        (tree, self.object(tree, id, *elsewhere, sender))
                    }
                    Frame::Message(ToServer::FetchPart { tree, id, offset, length }) => {
                        (tree, self.part(tree, id, *offset, *length, sender))
                    }
                    _ => return Err(io::Error::other("only objects are asked for on this connection")),
                };
                if let Err(error) = answered {
                    let reason = without_paths(&self.data_dir, &format!("input {tree}: {error}"));
                    tracing::warn!("attempt {}, {host}: {reason}", attempt.plan.attempt);
                    // After some bytes of an object this is its end, too.
                    sender.send(ToAgent::NoObject { reason })?;
                }
            }
            match read_some(&mut stream, &mut decoder) {
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
                read => read?,
            }
        }
    }
}

impl Inputs {
    /// Answers with an object, or with where it is.
    fn object(&self, tree: &str, id: &str, may_be_elsewhere: bool, sender: &AgentSender) -> io::Result<()> {
        if may_be_elsewhere && let Some(at) = self.trees.address(id).map_err(io::Error::other)? {
            return sender.send(ToAgent::ObjectAt { url: at.url, sha256: at.sha256 });
        }
        self.part(tree, id, 0, u64::MAX, sender)
    }

    fn part(&self, tree: &str, id: &str, offset: u64, length: u64, sender: &AgentSender) -> io::Result<()> {
        fetch(&self.trees.bring(tree, id).map_err(io::Error::other)?, offset, length, sender)
    }
}

fn tree_of(input: &Input) -> Option<&str> {
    match input {
        Input::Local(_) => None,
        Input::Objects(tree) => Some(&tree.tree),
    }
}

fn list(manifest: &Path, sender: &AgentSender) -> io::Result<()> {
    let mut lines = BufReader::new(File::open(manifest)?).lines().peekable();
    loop {
        let mut entries = Vec::new();
        while entries.len() < MAX_ENTRIES
            && let Some(line) = lines.next()
        {
            entries.push(serde_json::from_str::<ManifestEntry>(&line?)?);
        }
        let is_last = lines.peek().is_none();
        sender.send(ToAgent::Manifest { entries, is_last })?;
        if is_last {
            return Ok(());
        }
    }
}

/// Sends a part of an object, and the SHA-256 of what was sent.
fn fetch(object: &Path, offset: u64, length: u64, sender: &AgentSender) -> io::Result<()> {
    let (mut file, mut hash) = (File::open(object)?, Sha256::new());
    file.seek(SeekFrom::Start(offset))?;
    let mut part = file.take(length);
    loop {
        let mut chunk = vec![0; CHUNK_BYTES];
        let count = part.read(&mut chunk)?;
        if count == 0 {
            return sender.send(ToAgent::ObjectEnds { sha256: hex(&hash.finalize()) });
        }
        chunk.truncate(count);
        hash.update(&chunk);
        sender.send_frame(&Frame::Chunk(chunk))?;
    }
}
