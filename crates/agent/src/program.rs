//! The training program on its instance: in a sandbox of its own, or as a run of a zygote that
//! earlier attempts had before.

use std::fs::File;
use std::io;
use std::net::TcpListener;
use std::sync::mpsc::Sender;
use std::thread;

use shoal_sandbox::{Control, Exit, Network, Ran, Sandbox, SandboxError, SandboxSpec, Support, Zygote};

use crate::causes::with_causes;
use crate::events::Event;
use crate::outcome::SIGTERM;
use crate::own_log::say;

/// A program that runs.
pub(crate) struct Program {
    kind: Kind,
    pub(crate) control: Control,
    pub(crate) stdout: Option<File>,
    pub(crate) stderr: Option<File>,
    /// Of a new instance; a kept one's is served already.
    pub(crate) listener: Option<TcpListener>,
    /// Accepts what goes to hosts outside.
    pub(crate) proxy_listener: Option<TcpListener>,
    /// What is not as it was asked for.
    pub(crate) notes: Vec<String>,
}

enum Kind {
    Sandbox(Sandbox),
    Zygote(Zygote),
}

/// How a program ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) exit: Result<Exit, SandboxError>,
    /// Ready for another run.
    pub(crate) zygote: Option<Zygote>,
    /// The zygote has ended before it began, and the program has never run.
    pub(crate) unborn: bool,
}

impl Program {
    /// Starts it in an instance of its own.
    pub(crate) fn start(spec: &SandboxSpec, network: &Network, support: &Support) -> Result<Self, SandboxError> {
        let mut sandbox = Sandbox::start(spec, network, support)?;
        Ok(Self {
            control: sandbox.control(),
            stdout: sandbox.stdout(),
            stderr: sandbox.stderr(),
            listener: sandbox.listener(),
            proxy_listener: sandbox.proxy_listener(),
            notes: sandbox.notes().to_vec(),
            kind: Kind::Sandbox(sandbox),
        })
    }

    /// Makes an instance whose program is a zygote, and starts the program as its first run.
    pub(crate) fn start_zygote(spec: &SandboxSpec, network: &Network, support: &Support) -> Result<Self, SandboxError> {
        let mut zygote = Zygote::start(spec, network, support)?;
        let (listener, notes) = (zygote.sandbox().listener(), zygote.sandbox().notes().to_vec());
        let (stdout, stderr) = zygote.run(&spec.env)?;
        let control = zygote.control();
        let proxy_listener = zygote.sandbox().proxy_listener();
        Ok(Self {
            kind: Kind::Zygote(zygote),
            control,
            stdout: Some(stdout),
            stderr: Some(stderr),
            listener,
            proxy_listener,
            notes,
        })
    }

    /// Starts it as another run of a zygote; `None` if that cannot run any more.
    pub(crate) fn run(mut zygote: Zygote, spec: &SandboxSpec) -> Option<Self> {
        match zygote.run(&spec.env) {
            Ok((stdout, stderr)) => {
                let control = zygote.control();
                let (stdout, stderr) = (Some(stdout), Some(stderr));
                Some(Self {
                    kind: Kind::Zygote(zygote),
                    control,
                    stdout,
                    stderr,
                    listener: None,
                    proxy_listener: None,
                    notes: Vec::new(),
                })
            }
            Err(error) => {
                say(format_args!("a new instance is made: {}", with_causes(&error)));
                None
            }
        }
    }

    /// Waits for its end in a thread.
    pub(crate) fn watch(self, events: Sender<Event>) -> io::Result<()> {
        let waiter = thread::Builder::new().name("wait".into());
        let kind = self.kind;
        // If nobody listens the agent has ended.
        waiter.spawn(move || drop(events.send(Event::Exited(wait(kind))))).map(drop)
    }
}

fn wait(kind: Kind) -> Ended {
    match kind {
        Kind::Sandbox(mut sandbox) => {
            let exit = sandbox.wait();
            // Also if it could not be waited for, nothing of it is left when this is heard.
            drop(sandbox);
            Ended { exit, zygote: None, unborn: false }
        }
        Kind::Zygote(mut zygote) => match zygote.wait() {
            Ok(Ran::Over(exit)) => Ended { exit: Ok(exit), zygote: may_be_kept(exit).then_some(zygote), unborn: false },
            Ok(Ran::Gone { exit, began }) => {
                Ended { exit: Ok(exit), zygote: None, unborn: !began && exit.out_of_memory.is_none() }
            }
            Err(error) => {
                drop(zygote);
                Ended { exit: Err(error), zygote: None, unborn: false }
            }
        },
    }
}

/// Whether nothing odd happened.
fn may_be_kept(exit: Exit) -> bool {
    exit.out_of_memory.is_none() && exit.signal.is_none_or(|signal| signal == SIGTERM)
}
