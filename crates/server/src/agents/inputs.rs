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
use shoal_link::{Decoder, FRAME_HEADER_BYTES, Frame, FrameHeader, Input, ManifestEntry, ToAgent, ToServer};
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
/// A part that an agent asks for, so that it need not join pieces.
const CHUNK_BYTES: usize = 1 << 20;

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
        let mut line = Line { inputs: self, sender, frame: Vec::new() };
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
                        (tree, line.object(tree, id, *elsewhere))
                    }
                    Frame::Message(ToServer::FetchPart { tree, id, offset, length, unsummed: true }) => {
                        (tree, line.send_unsummed(tree, id, *offset, *length))
                    }
                    Frame::Message(ToServer::FetchPart { tree, id, offset, length, unsummed: false }) => {
                        let sent = line.send(tree, id, *offset, *length);
                        (tree, sent.map(|sum| self.sums.put(id, *offset, *length, &sum)))
                    }
                    Frame::Message(ToServer::PartSum { tree, id, offset, length }) => {
                        (tree, line.sum(tree, id, *offset, *length))
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
            // Agents keep connections for later.
            line.frame = Vec::new();
            match read_some(&mut stream, &mut decoder) {
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
                read => read?,
            }
        }
    }
}

/// A connection on which objects are sent.
struct Line<'a> {
    inputs: &'a Inputs,
    sender: &'a AgentSender,
    /// A chunk of an object is read to where it is sent from.
    frame: Vec<u8>,
}

impl Line<'_> {
    /// Answers with an object, or with where it is.
    fn object(&mut self, tree: &str, id: &str, may_be_elsewhere: bool) -> io::Result<()> {
        if may_be_elsewhere && let Some(at) = self.inputs.trees.address(id).map_err(io::Error::other)? {
            return self.sender.send(ToAgent::ObjectAt { url: at.url, sha256: at.sha256 });
        }
        self.send(tree, id, 0, u64::MAX).map(drop)
    }

    /// Sends a part of an object and its SHA-256, which it returns.
    fn send(&mut self, tree: &str, id: &str, offset: u64, length: u64) -> io::Result<String> {
        let mut hash = Sha256::new();
        let mut see = |chunk: &[u8]| hash.update(chunk);
        self.read(tree, id, offset, length, &mut see, true)?;
        let sum = hex(&hash.finalize());
        self.sender.send(ToAgent::ObjectEnds { sha256: sum.clone() })?;
        Ok(sum)
    }

    /// The same without the SHA-256, which takes as long as all else without a processor's help.
    fn send_unsummed(&mut self, tree: &str, id: &str, offset: u64, length: u64) -> io::Result<()> {
        self.read(tree, id, offset, length, &mut |_| (), true)?;
        self.sender.send(ToAgent::ObjectEnds { sha256: String::new() })
    }

    /// Sends the SHA-256 of a part.
    fn sum(&mut self, tree: &str, id: &str, offset: u64, length: u64) -> io::Result<()> {
        let sum = match self.inputs.sums.get(id, offset, length) {
            Some(sum) => sum,
            None => {
                let mut hash = Sha256::new();
                self.read(tree, id, offset, length, &mut |chunk| hash.update(chunk), false)?;
                let sum = hex(&hash.finalize());
                self.inputs.sums.put(id, offset, length, &sum);
                sum
            }
        };
        self.sender.send(ToAgent::ObjectEnds { sha256: sum })
    }

    /// Reads a part of an object: `see` gets each chunk, and the agent, if it is to be sent.
    fn read(
        &mut self,
        tree: &str,
        id: &str,
        offset: u64,
        length: u64,
        see: &mut dyn FnMut(&[u8]),
        is_sent: bool,
    ) -> io::Result<()> {
        let mut file = File::open(self.inputs.trees.bring(tree, id).map_err(io::Error::other)?)?;
        file.seek(SeekFrom::Start(offset))?;
        let length = length.min(file.metadata()?.len().saturating_sub(offset));
        let mut part = file.take(length);
        let most = usize::try_from(length).map_or(CHUNK_BYTES, |length| length.min(CHUNK_BYTES));
        self.frame.resize(FRAME_HEADER_BYTES + most, 0);
        loop {
            let (header, chunk) = self.frame.split_at_mut(FRAME_HEADER_BYTES);
            let count = part.read(chunk)?;
            if count == 0 {
                return Ok(());
            }
            see(&chunk[..count]);
            if is_sent {
                header.copy_from_slice(&FrameHeader::of_chunk(count).map_err(io::Error::other)?);
                self.inputs.exporter.sent_input(count);
                self.sender.send_encoded(&self.frame[..FRAME_HEADER_BYTES + count])?;
            }
        }
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
