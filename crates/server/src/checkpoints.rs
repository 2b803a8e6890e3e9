//! Files that agents bring while their program runs: checkpoints, the intermediate output,
//! tensors, TensorBoard's event files.
//!
//! Performs what [`FileReceiver`] requests: the object, then (of checkpoints) its receipt, then the
//! agent's answer.

use std::{io, os::unix::net::UnixStream, sync::Arc};

use sha2::{Digest, Sha256};
use shoal_link::{Decoder, Hello, MirrorKind, ToAgent, ToServer};
use shoal_plane::{Command, Host, InstanceReport};
use shoal_runtime::{
    ConnId, FileReceiver,
    file_receiver::{Event, Io},
    host_link,
};
use shoal_store::{Attributes, ObjectWriter, Objects, PutCondition, StoreError};

use crate::{
    agent_stream::{AgentSender, read_some},
    attempts::Attempt,
    core::Core,
    error_chain::describe,
    hex::hex,
};

/// Bytes of the longest key in S3.
const LONGEST_KEY: usize = 1024;

/// Where they go.
pub(crate) struct Mirrors {
    pub(crate) core: Core,
    pub(crate) objects: Arc<Objects>,
}

impl Mirrors {
    /// Receives files of one kind until the connection ends.
    #[expect(clippy::too_many_arguments, reason = "one caller, which has all of them by name")]
    pub(crate) fn receive(
        &self,
        attempt: &Arc<Attempt>,
        hello: &Hello,
        kind: MirrorKind,
        conn: ConnId,
        mut stream: UnixStream,
        sender: &AgentSender,
        mut decoder: Decoder,
    ) -> io::Result<()> {
        let place = match kind {
            MirrorKind::Checkpoints => &attempt.plan.checkpoints,
            MirrorKind::Intermediate => &attempt.plan.intermediate,
            MirrorKind::Tensors => &attempt.plan.tensors,
            MirrorKind::TensorBoard => &attempt.plan.tensor_board,
            MirrorKind::Profiler => &attempt.plan.profiler,
        };
        let Some(place) = place else {
            let reason = format!("attempt {} has no {} files", hello.attempt, kind.file());
            return sender.send(ToAgent::Refused { reason });
        };
        // Whatever ends this, the host's next connection is not kept waiting.
        let _closing = Closing { attempt, host: Host(hello.host), kind, conn };
        (|| {
            attempt.admit(Host(hello.host), conn, sender, host_link::Event::MirrorHello(kind, conn))?;
            let files = FileReceiver::new(kind == MirrorKind::Checkpoints);
            let mut files = Files {
                mirrors: self,
                attempt,
                host: Host(hello.host),
                kind,
                place,
                sender,
                files,
                incoming: None,
                stored: Vec::new(),
            };
            sender.send(ToAgent::Ready)?;
            stream.set_read_timeout(None)?;
            loop {
                while let Some(frame) = decoder.next::<ToServer>().map_err(io::Error::other)? {
                    files.handle(Event::Arrived(frame))?;
                }
                files.handle(Event::Drained)?;
                match read_some(&mut stream, &mut decoder) {
                    Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
                    read => read?,
                }
                attempt.handle(Host(hello.host), host_link::Event::MirrorReceived(kind, conn));
            }
        })()
    }
}

/// Reports the end of a connection when it is dropped.
struct Closing<'a> {
    attempt: &'a Attempt,
    host: Host,
    kind: MirrorKind,
    conn: ConnId,
}

impl Drop for Closing<'_> {
    fn drop(&mut self) {
        self.attempt.handle(self.host, host_link::Event::MirrorClosed(self.kind, self.conn));
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
    mirrors: &'a Mirrors,
    attempt: &'a Attempt,
    host: Host,
    kind: MirrorKind,
    /// S3 bucket and prefix.
    place: &'a (String, String),
    sender: &'a AgentSender,
    files: FileReceiver,
    incoming: Option<Incoming>,
    /// Receipts that are not submitted so far.
    stored: Vec<InstanceReport>,
}

impl Files<'_> {
    /// Performs all that follows from an event.
    fn handle(&mut self, event: Event) -> io::Result<()> {
        let mut next = Some(event);
        while let Some(event) = next.take() {
            for io in self.files.handle(event) {
                match io {
                    Io::Begin { path, is_last } => self.incoming = Some(self.begin(path, is_last)),
                    Io::Append(bytes) => {
                        if let Some(file) = &mut self.incoming {
                            file.append(&bytes);
                        }
                    }
                    Io::Drop => self.incoming = None,
                    Io::Store => {
                        let stored = self.incoming.take().ok_or_else(|| io::Error::other("no file has begun"))?;
                        next = Some(Event::Stored(self.end(stored)));
                    }
                    // The receiver names those files whose receipts are here.
                    Io::Commit(_) => {
                        self.commit()?;
                        next = Some(Event::Committed);
                    }
                    Io::Send(answer) => self.sender.send(answer)?,
                    // The caller reads.
                    Io::Read => {}
                    Io::Refuse => return Err(io::Error::other("this message is not part of a file")),
                }
            }
        }
        Ok(())
    }

    fn begin(&self, path: String, is_last: bool) -> Incoming {
        let key = format!("{}{path}", self.place.1);
        let writer = if key.len() > LONGEST_KEY {
            Err(format!("its key would have {} bytes, and S3 allows {LONGEST_KEY}", key.len()))
        } else {
            let objects = &self.mirrors.objects;
            let writer = if is_last { objects.writer_to_the_last() } else { objects.writer_here() };
            let writer = writer.and_then(|writer| objects.seal(writer, &self.place.0, None));
            writer.map_err(|error| describe(&error))
        };
        Incoming { path, key, writer, digest: Sha256::new(), bytes: 0 }
    }

    fn end(&mut self, file: Incoming) -> Result<(), String> {
        let (path, digest) = (file.path, file.digest.finalize());
        store(&self.mirrors.objects, file.writer?, &self.place.0, &file.key, &digest)?;
        if self.kind == MirrorKind::Checkpoints {
            self.stored.push(InstanceReport::CheckpointSaved { path, bytes: file.bytes, sha256: hex(&digest) });
        }
        Ok(())
    }

    fn commit(&mut self) -> io::Result<()> {
        self.attempt.sync_plan()?;
        let command =
            |report| Command::InstanceReported { attempt: self.attempt.plan.attempt.clone(), host: self.host, report };
        let receipts = std::mem::take(&mut self.stored).into_iter().map(command).collect();
        self.mirrors.core.tell_all(receipts).map_err(io::Error::other)
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
