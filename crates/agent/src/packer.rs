//! Packs what a program left in another process: one that has the limits of the instance, and that
//! can be ended at any time.
//!
//! Its standard input tells it what to pack once it is within its limits; to its standard output it
//! writes what [`artifacts::send`] hands on, in the frames in which it goes to the server, and as
//! the last of them why it failed, if it did.

use std::io::{self, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::AtomicBool;

use shoal_link::{Decoder, Frame, Report, ReportBody, ToServer, encode};
use shoal_sandbox::{Confined, SandboxSpec, Support};

use crate::artifacts::{self, Item};
use crate::causes::with_causes;
use crate::outbox::{Closed, Outbox};
use crate::pack::PackError;

/// Before the instance's id, in the process list.
const NAME: &str = "shoal-pack:";

/// Arguments of the packer: the directory of `/opt/ml`, and `most` as in [`artifacts::send`].
type Work = (PathBuf, Option<u64>);

/// First thing in `main`, after [`shoal_sandbox::reexec_entry`]: if this process was started to
/// pack, does that and never returns.
pub fn packer_entry() {
    let name = std::env::args_os().next().unwrap_or_default();
    if name.to_string_lossy().starts_with(NAME) {
        // Nobody reads any more, or nobody says what to do: there is nothing to be told to anybody.
        std::process::exit(i32::from(play().is_err()));
    }
}

fn play() -> io::Result<()> {
    let mut text = Vec::new();
    io::stdin().read_to_end(&mut text)?;
    let (ml, most): Work = serde_json::from_slice(&text)?;
    let out = |item: Item| write(item).map_err(|_| Closed);
    match artifacts::send(&ml, most, &AtomicBool::new(false), &out) {
        Err(PackError::Closed(_)) => Err(io::ErrorKind::BrokenPipe.into()),
        Err(error) => write(Item::Report(ReportBody::InstanceFailed { reason: with_causes(&error) })),
        Ok(()) => Ok(()),
    }
}

/// Numbers and times are given where it is read.
fn write(item: Item) -> io::Result<()> {
    let frame: Frame<ToServer> = match item {
        Item::Part(artifact, bytes) => Frame::Part { seq: 0, artifact, bytes },
        Item::Report(body) => Frame::Message(ToServer::Report(Report { seq: 0, at_ms: 0, body })),
    };
    let mut stdout = io::stdout().lock();
    stdout.write_all(&encode(&frame).map_err(io::Error::other)?)?;
    stdout.flush()
}

/// A process that packs, and its limits.
#[derive(Debug)]
pub(crate) struct Packer {
    child: Child,
    /// Last, as it can only be removed when the process is gone.
    _limits: Option<Confined>,
}

impl Packer {
    /// Starts it with the limits of the instance, if that came to be described. `most` is as in
    /// [`artifacts::send`].
    pub(crate) fn start(
        ml: PathBuf,
        most: Option<u64>,
        spec: Option<&SandboxSpec>,
        support: &Support,
    ) -> io::Result<(Self, ChildStdout)> {
        let of_packer = |spec: &SandboxSpec| SandboxSpec { id: format!("{}-pack", spec.id), ..spec.clone() };
        let spec = spec.map(of_packer);
        let limits = spec.as_ref().map(|spec| Confined::make(spec, support)).transpose().map_err(io::Error::other)?;
        let name = format!("{NAME}{}", spec.as_ref().map_or("", |spec| &spec.id));
        let mut command = Command::new("/proc/self/exe");
        command.arg0(name).env_clear().stdin(Stdio::piped()).stdout(Stdio::piped()).current_dir("/");
        let mut packer = Self { child: command.spawn()?, _limits: limits };
        if let Some(limits) = &packer._limits {
            limits.add(packer.child.id()).map_err(io::Error::other)?;
        }
        let (stdin, stdout) = (packer.child.stdin.take(), packer.child.stdout.take());
        let mut stdin = stdin.ok_or(io::ErrorKind::BrokenPipe)?;
        let work: Work = (ml, most);
        stdin.write_all(&serde_json::to_vec(&work)?)?;
        Ok((packer, stdout.ok_or(io::ErrorKind::BrokenPipe)?))
    }

    /// Ends it wherever it is: what it writes ends then.
    pub(crate) fn kill(&mut self) {
        // It fails only if it has ended and was waited for.
        let _ = self.child.kill();
    }

    /// How it ended, after all that it wrote was read.
    pub(crate) fn end(&mut self) -> Result<(), PackError> {
        match self.child.wait() {
            Ok(status) if status.success() => Ok(()),
            Ok(status) => Err(PackError::Failed(format!(
                "the process that packs /opt/ml/model within the instance's limits has ended: {status}"
            ))),
            Err(error) => Err(PackError::Failed(format!("could not wait for the process that packs: {error}"))),
        }
    }
}

impl Drop for Packer {
    fn drop(&mut self) {
        self.kill();
        let _ = self.child.wait();
    }
}

/// Passes on what a packer writes, to its end.
pub(crate) fn pass_on(mut stdout: ChildStdout, outbox: &Outbox) -> Result<(), PackError> {
    let unreadable = |error: &dyn std::fmt::Display| {
        PackError::Failed(format!("the process that packs cannot be understood: {error}"))
    };
    let (mut decoder, mut bytes) = (Decoder::default(), vec![0; 256 << 10]);
    loop {
        while let Some(frame) = decoder.next::<ToServer>().map_err(|error| unreadable(&error))? {
            match frame {
                Frame::Part { artifact, bytes, .. } => Item::Part(artifact, bytes).post(outbox)?,
                Frame::Message(ToServer::Report(Report { body: ReportBody::InstanceFailed { reason }, .. })) => {
                    return Err(PackError::Failed(reason));
                }
                Frame::Message(ToServer::Report(Report { body, .. })) => Item::Report(body).post(outbox)?,
                Frame::Message(_) | Frame::Chunk(_) => return Err(unreadable(&"this is no part of an artifact")),
            }
        }
        match stdout.read(&mut bytes) {
            Ok(0) => return Ok(()),
            Ok(count) => decoder.push(&bytes[..count]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(unreadable(&error)),
        }
    }
}
