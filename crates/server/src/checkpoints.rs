//! Files that agents bring while their program runs: checkpoints, and the intermediate output.
//!
//! A file becomes an object first, then (of checkpoints) its receipt an event and a row, then the agent hears that it is saved. Whatever
//! dies in between, the agent sends what it did not hear of again: the object is replaced by an equal one, and there is a receipt for it.

use std::{io, os::unix::net::UnixStream, sync::Arc};

use sha2::{Digest, Sha256};
use shoal_link::{Decoder, Frame, Hello, ToAgent, ToServer};
use shoal_plane::{Command, InstanceReport};
use shoal_runtime::{ConnId, MirrorKind, host_link::Event};
use shoal_store::{Attributes, ObjectWriter, Objects, PutCondition, StoreError};
use shoal_wire::S3Uri;

use crate::{
    agents::read_some,
    attempts::{AgentSender, Attempt},
    effects::{World, describe},
    keys::hex,
};

/// Bytes of the longest key in S3.
const LONGEST_KEY: usize = 1024;

/// S3 bucket and prefix of a checkpoint location: what lies in a folder, whether or not it was written with a `/` at its end.
pub(crate) fn place(uri: &S3Uri) -> (String, String) {
    (uri.bucket.clone(), uri.folder())
}

/// Receives files of one kind until the connection ends.
#[expect(clippy::too_many_arguments, reason = "one caller, which has all of them by name")]
pub(crate) fn receive(
    world: &World,
    attempt: &Arc<Attempt>,
    hello: &Hello,
    kind: MirrorKind,
    conn: ConnId,
    mut stream: UnixStream,
    sender: &AgentSender,
    mut decoder: Decoder,
) -> io::Result<()> {
    let (place, name) = match kind {
        MirrorKind::Checkpoints => (&attempt.plan.checkpoints, "checkpoints"),
        MirrorKind::Intermediate => (&attempt.plan.intermediate, "intermediate output"),
    };
    let Some(place) = place else {
        return sender.send(ToAgent::Refused { reason: format!("attempt {} has no {name}", hello.attempt) });
    };
    // Whatever ends this, the host's next connection is not kept waiting.
    let _closing = Closing { attempt, host: hello.host, kind, conn };
    (|| {
        attempt.admit(hello.host, conn, sender, Event::MirrorHello(kind, conn))?;
        let mut files = Files { world, attempt, host: hello.host, kind, place, incoming: None, saved: Vec::new() };
        sender.send(ToAgent::Ready)?;
        stream.set_read_timeout(None)?;
        loop {
            while let Some(frame) = decoder.next::<ToServer>().map_err(io::Error::other)? {
                if let Some(refusal) = files.take(frame)? {
                    // Answers come in the order of the files.
                    files.acknowledge(sender)?;
                    sender.send(refusal)?;
                }
            }
            files.acknowledge(sender)?;
            match read_some(&mut stream, &mut decoder) {
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
                read => read?,
            }
            attempt.handle(hello.host, Event::MirrorReceived(kind, conn));
        }
    })()
}

/// Reports the end of a connection when it is dropped.
struct Closing<'a> {
    attempt: &'a Attempt,
    host: u32,
    kind: MirrorKind,
    conn: ConnId,
}

impl Drop for Closing<'_> {
    fn drop(&mut self) {
        self.attempt.handle(self.host, Event::MirrorClosed(self.kind, self.conn));
    }
}

/// A file on its way.
struct Incoming {
    path: String,
    key: String,
    /// What is written so far, or why nothing is.
    writer: Result<ObjectWriter, String>,
    digest: Sha256,
    bytes: u64,
}

struct Files<'a> {
    world: &'a World,
    attempt: &'a Attempt,
    host: u32,
    kind: MirrorKind,
    /// S3 bucket and prefix.
    place: &'a (String, String),
    incoming: Option<Incoming>,
    /// Stored, and not answered so far.
    saved: Vec<InstanceReport>,
}

impl Files<'_> {
    /// Takes the next frame; what is returned is to be answered.
    fn take(&mut self, frame: Frame<ToServer>) -> io::Result<Option<ToAgent>> {
        match (frame, &mut self.incoming) {
            (Frame::Message(ToServer::FileBegins { path, is_last }), None) => {
                self.incoming = Some(self.begin(path, is_last));
                Ok(None)
            }
            (Frame::Chunk(bytes), Some(file)) => {
                file.append(&bytes);
                Ok(None)
            }
            (Frame::Message(ToServer::FileDropped), incoming) => {
                *incoming = None;
                Ok(None)
            }
            (Frame::Message(ToServer::FileEnds { bytes }), incoming) => match incoming.take() {
                Some(file) if file.bytes == bytes || file.writer.is_err() => Ok(self.end(file)),
                Some(_) | None => Err(io::Error::other("FileEnds without FileBegins, or with the wrong length")),
            },
            _ => Err(io::Error::other("this message is not part of a file")),
        }
    }

    fn begin(&self, path: String, is_last: bool) -> Incoming {
        let key = format!("{}{path}", self.place.1);
        let writer = if key.len() > LONGEST_KEY {
            Err(format!("its key would have {} bytes, and S3 allows {LONGEST_KEY}", key.len()))
        } else {
            let objects = &self.world.objects;
            let writer = if is_last { objects.writer_to_the_last() } else { objects.writer() };
            writer.map_err(|error| describe(&error))
        };
        Incoming { path, key, writer, digest: Sha256::new(), bytes: 0 }
    }

    fn end(&mut self, file: Incoming) -> Option<ToAgent> {
        let (path, digest) = (file.path, file.digest.finalize());
        let stored = file.writer.and_then(|writer| store(&self.world.objects, writer, &self.place.0, &file.key, &digest));
        match stored {
            Ok(()) => {
                self.saved.push(InstanceReport::CheckpointSaved { path, bytes: file.bytes, sha256: hex(&digest) });
                None
            }
            Err(reason) => Some(ToAgent::FileRefused { path, reason }),
        }
    }

    /// Commits the receipts, then acknowledges the files.
    fn acknowledge(&mut self, sender: &AgentSender) -> io::Result<()> {
        if self.saved.is_empty() {
            return Ok(());
        }
        self.attempt.sync_plan()?;
        let saved = std::mem::take(&mut self.saved);
        let command = |report| Command::InstanceReported { attempt: self.attempt.plan.attempt.clone(), host: self.host, report };
        if self.kind == MirrorKind::Checkpoints {
            self.world.core.tell_all(saved.iter().cloned().map(command).collect()).map_err(io::Error::other)?;
        }
        for report in saved {
            if let InstanceReport::CheckpointSaved { path, .. } = report {
                sender.send(ToAgent::FileSaved { path })?;
            }
        }
        Ok(())
    }
}

impl Incoming {
    fn append(&mut self, bytes: &[u8]) {
        let Ok(writer) = &mut self.writer else { return };
        match writer.append(bytes) {
            Ok(()) => {
                self.digest.update(bytes);
                self.bytes += bytes.len() as u64;
            }
            // The half of a file would only hold space that is needed.
            Err(error) => self.writer = Err(describe(&error)),
        }
    }
}

/// Clients can ask S3 for the digest too.
fn store(objects: &Objects, writer: ObjectWriter, bucket: &str, key: &str, digest: &[u8]) -> Result<(), String> {
    let sha256 = base64_simd::STANDARD.encode_to_string(digest);
    let attributes = Attributes { checksums: [("sha256".to_owned(), sha256)].into(), ..Attributes::default() };
    match objects.commit(writer, bucket, key, &attributes, &PutCondition::Always) {
        Ok(_) => Ok(()),
        Err(StoreError::NoSuchBucket(_)) => {
            Err(format!("the S3 bucket \"{bucket}\" is not there any more; create it again (aws s3 mb s3://{bucket})"))
        }
        Err(error) => Err(describe(&error)),
    }
}
