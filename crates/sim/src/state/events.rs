//! Events of a history.

use shoal_plane::{AttemptId, Command, Host, TuningName};
use shoal_runtime::steps::Step;

use super::{
    disk::AttemptHost,
    network::{Down, Up},
    processes::Process,
    server::{MachineEvent, MachineIo},
};
use crate::{faults::Fault, scenario::tunings::Change};

/// Something that happens at its time.
#[derive(Debug)]
pub(crate) enum SimEvent {
    /// A client asks for a job, or to stop one, unless it has been answered already.
    Create(usize),
    Stop(usize),
    /// The same for tuning jobs.
    CreateTuning(usize),
    StopTuning(usize),
    ChangeTuning(usize, Change),
    Fault(Fault),
    ServerStart,
    /// The loop's timeout; stale if it has been set again since.
    Timeout {
        epoch: u64,
        timer: u64,
    },
    /// A machine's deadline; stale if another one was set since.
    MachinesDue {
        epoch: u64,
        at: u64,
        number: u64,
    },
    /// What a machine has requested is performed.
    Perform {
        epoch: u64,
        io: MachineIo,
    },
    /// Steps that are left of what a machine has requested are performed.
    Continue {
        epoch: u64,
        attempt: AttemptId,
        steps: Vec<Step>,
        of: MachineIo,
    },
    /// And it is notified of that.
    Completed {
        epoch: u64,
        event: MachineEvent,
    },
    /// The tuner's answers are submitted to the core.
    Answered {
        epoch: u64,
        tuning: TuningName,
        answers: Vec<Command>,
    },
    /// The launcher reports the end of a process.
    ProcessEnded {
        epoch: u64,
        allocation: AttemptId,
        host: Host,
    },
    /// The server reads from a connection that it has not read from for a while.
    Served {
        epoch: u64,
        connection: u64,
    },
    /// A checkpoint file is an object at last, by [`crate::bug::Bug::EarlyReceipt`].
    Written {
        epoch: u64,
        file: (AttemptHost, String),
    },
    /// The server checks that agents are alive.
    CheckAgents {
        epoch: u64,
    },
    SnapshotWritten {
        epoch: u64,
        version: usize,
        bytes: Vec<u8>,
    },
    Connect(Process),
    /// An agent has files to send.
    ConnectFiles(Process),
    /// An agent continues what it does; stale if it does something else since.
    AgentStep {
        process: Process,
        step: u64,
    },
    /// An instance is taken away from now on; stale if it is another one since.
    NoticeOver {
        process: Process,
        life: u32,
    },
    /// An agent shows that it lives.
    Sign {
        connection: u64,
    },
    /// An agent's process runs again.
    Continued(Process),
    Up {
        connection: u64,
        message: Up,
    },
    Down {
        connection: u64,
        message: Down,
    },
}
