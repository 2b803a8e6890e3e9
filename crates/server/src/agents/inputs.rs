//! Objects of an attempt's inputs, for agents that do not share this machine's files: each on a
//! connection of the agent's own, so that gigabytes delay no report. Bytes are read from the links
//! that the attempt's trees are, so an object that is replaced meanwhile is sent as it was.

use shoal_plane::Host;
use std::{
    collections::{BTreeSet, HashMap},
    fs::File,
    io::{self, BufRead, BufReader, Read, Seek, SeekFrom},
    os::unix::net::UnixStream,
    path::Path,
    sync::{Arc, Mutex},
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
    exporter::Exporter,
    hex::hex,
};

/// An agent's disk may be slow; one that takes nothing for so long is as good as gone.
const WRITE_TIMEOUT: Duration = Duration::from_secs(60);
/// Entries of a message.
const MAX_ENTRIES: usize = 5000;
/// Bytes of a message's lines at which it ends: each entry of an augmented manifest has a sample's
/// attributes.
const MAX_LIST_BYTES: usize = 8 << 20;
const CHUNK_BYTES: usize = 256 << 10;

/// Where they are.
pub(crate) struct Inputs {
    trees: Arc<Trees>,
    data_dir: Arc<DataDir>,
    exporter: Arc<Exporter>,
    sums: PartSums,
}

/// SHA-256 of parts that were sent or asked for, so that each is read once for all hosts of a job.
/// An object never changes.
#[derive(Default)]
struct PartSums(Mutex<HashMap<(String, u64, u64), String>>);

impl PartSums {
    /// Of 1 MiB each: the sums of about 100 GB.
    const MOST: usize = 100_000;

    fn get(&self, id: &str, offset: u64, length: u64) -> Option<String> {
        self.0.lock().expect("no holder of this lock panics").get(&(id.to_owned(), offset, length)).cloned()
    }

    fn put(&self, id: &str, offset: u64, length: u64, sum: &str) {
        let mut known = self.0.lock().expect("no holder of this lock panics");
        if known.len() >= Self::MOST {
            known.clear();
        }
        known.insert((id.to_owned(), offset, length), sum.to_owned());
    }
}

impl Inputs {
    pub(crate) fn new(trees: &Arc<Trees>, data_dir: &Arc<DataDir>, exporter: &Arc<Exporter>) -> Self {
        let (trees, data_dir, exporter) = (trees.clone(), data_dir.clone(), exporter.clone());
        Self { trees, data_dir, exporter, sums: PartSums::default() }
    }

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
                        ToServer::List { tree }
                        | ToServer::Fetch { tree, .. }
                        | ToServer::FetchPart { tree, .. }
                        | ToServer::PartSum { tree, .. },
                    ) if !trees.contains(tree.as_str()) => {
                        (tree, Err(io::Error::other("it is none of the attempt's inputs")))
                    }
                    Frame::Message(ToServer::List { tree }) => (tree, list(&self.trees.manifest(tree), sender)),
                    Frame::Message(ToServer::Fetch { tree, id, elsewhere }) => {
                        (tree, self.object(tree, id, *elsewhere, sender))
                    }
                    Frame::Message(ToServer::FetchPart { tree, id, offset, length, unsummed: true }) => {
                        (tree, self.send_unsummed(tree, id, *offset, *length, sender))
                    }
                    Frame::Message(ToServer::FetchPart { tree, id, offset, length, unsummed: false }) => {
                        let sent = self.send(tree, id, *offset, *length, sender);
                        (tree, sent.map(|sum| self.sums.put(id, *offset, *length, &sum)))
                    }
                    Frame::Message(ToServer::PartSum { tree, id, offset, length }) => {
                        (tree, self.sum(tree, id, *offset, *length, sender))
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

    /// Sends a part of an object and its SHA-256, which it returns.
    fn send(&self, tree: &str, id: &str, offset: u64, length: u64, sender: &AgentSender) -> io::Result<String> {
        let object = self.trees.bring(tree, id).map_err(io::Error::other)?;
        let mut hash = Sha256::new();
        read(&object, offset, length, &mut |chunk| {
            hash.update(&chunk);
            self.send_chunk(chunk, sender)
        })?;
        let sum = hex(&hash.finalize());
        sender.send(ToAgent::ObjectEnds { sha256: sum.clone() })?;
        Ok(sum)
    }

    /// The same without the SHA-256, which takes as long as all else without a processor's help.
    fn send_unsummed(&self, tree: &str, id: &str, offset: u64, length: u64, sender: &AgentSender) -> io::Result<()> {
        let object = self.trees.bring(tree, id).map_err(io::Error::other)?;
        read(&object, offset, length, &mut |chunk| self.send_chunk(chunk, sender))?;
        sender.send(ToAgent::ObjectEnds { sha256: String::new() })
    }

    fn send_chunk(&self, chunk: Vec<u8>, sender: &AgentSender) -> io::Result<()> {
        self.exporter.sent_input(chunk.len());
        sender.send_frame(&Frame::Chunk(chunk))
    }

    /// Sends the SHA-256 of a part.
    fn sum(&self, tree: &str, id: &str, offset: u64, length: u64, sender: &AgentSender) -> io::Result<()> {
        let sum = match self.sums.get(id, offset, length) {
            Some(sum) => sum,
            None => {
                let object = self.trees.bring(tree, id).map_err(io::Error::other)?;
                let mut hash = Sha256::new();
                read(&object, offset, length, &mut |chunk| {
                    hash.update(&chunk);
                    Ok(())
                })?;
                let sum = hex(&hash.finalize());
                self.sums.put(id, offset, length, &sum);
                sum
            }
        };
        sender.send(ToAgent::ObjectEnds { sha256: sum })
    }
}

impl Inputs {
    /// Answers with an object, or with where it is.
    fn object(&self, tree: &str, id: &str, may_be_elsewhere: bool, sender: &AgentSender) -> io::Result<()> {
        if may_be_elsewhere && let Some(at) = self.trees.address(id).map_err(io::Error::other)? {
            return sender.send(ToAgent::ObjectAt { url: at.url, sha256: at.sha256 });
        }
        self.send(tree, id, 0, u64::MAX, sender).map(drop)
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
        let (mut entries, mut bytes) = (Vec::new(), 0);
        while entries.len() < MAX_ENTRIES
            && bytes < MAX_LIST_BYTES
            && let Some(line) = lines.next()
        {
            let line = line?;
            bytes += line.len();
            entries.push(serde_json::from_str::<ManifestEntry>(&line)?);
        }
        let is_last = lines.peek().is_none();
        sender.send(ToAgent::Manifest { entries, is_last })?;
        if is_last {
            return Ok(());
        }
    }
}

/// Reads a part of an object.
fn read(object: &Path, offset: u64, length: u64, take: &mut dyn FnMut(Vec<u8>) -> io::Result<()>) -> io::Result<()> {
    let mut file = File::open(object)?;
    file.seek(SeekFrom::Start(offset))?;
    let mut part = file.take(length);
    loop {
        let mut chunk = vec![0; CHUNK_BYTES];
        let count = part.read(&mut chunk)?;
        if count == 0 {
            return Ok(());
        }
        chunk.truncate(count);
        take(chunk)?;
    }
}
