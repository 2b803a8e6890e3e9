//! What happens at its time, and who handles it.

use crate::{
    agent::{Down, Up},
    disk::Host,
    faults::Fault,
    processes::Process,
    server::{MachineEvent, MachineIo},
    tuning::Change,
    world::{Simulation, Step},
};

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
    /// And it is notified of that.
    Completed {
        epoch: u64,
        event: MachineEvent,
    },
    /// The tuner of a tuning job continues.
    TunerDue {
        epoch: u64,
        tuning: String,
    },
    /// The launcher reports the end of a process.
    ProcessEnded {
        epoch: u64,
        allocation: String,
        host: u32,
    },
    /// The server reads from a connection that it has not read from for a while.
    Served {
        epoch: u64,
        connection: u64,
    },
    /// A checkpoint file is an object at last, by [`crate::bug::Bug::EarlyReceipt`].
    Written {
        epoch: u64,
        file: (Host, String),
    },
    /// The server checks that agents are alive.
    CheckAgents {
        epoch: u64,
    },
    /// The server checks that all is stored that instances had sent which are being removed.
    ClearingDue {
        epoch: u64,
        attempt: String,
        hosts: Vec<u32>,
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

impl Simulation {
    pub(crate) fn handle(&mut self, event: SimEvent) -> Step {
        let Some(event) = self.unless_stalled(event) else { return Ok(()) };
        match event {
            SimEvent::Create(index) => self.create_job(index),
            SimEvent::Stop(index) => self.stop_job(index),
            SimEvent::CreateTuning(index) => self.create_tuning(index),
            SimEvent::StopTuning(index) => self.stop_tuning(index),
            SimEvent::ChangeTuning(index, change) => self.change_tuning(index, change),
            SimEvent::Fault(fault) => self.fault(fault),
            SimEvent::ServerStart => self.start_server(),
            SimEvent::Timeout { epoch, timer } if self.serves(epoch) => self.time_out(timer),
            SimEvent::MachinesDue { epoch, at, number } if self.serves(epoch) => {
                self.machines_due(at, number);
                Ok(())
            }
            SimEvent::Perform { epoch, io } if self.serves(epoch) => self.perform(io),
            SimEvent::Completed { epoch, event } if self.serves(epoch) => {
                self.happens(event);
                Ok(())
            }
            SimEvent::TunerDue { epoch, tuning } if self.serves(epoch) => self.run_tuner(tuning),
            SimEvent::CheckAgents { epoch } if self.serves(epoch) => self.watch_agents(),
            SimEvent::ClearingDue { epoch, attempt, hosts } if self.serves(epoch) => {
                self.finish_clearing(attempt, hosts)
            }
            SimEvent::ProcessEnded { epoch, allocation, host } if self.serves(epoch) => {
                self.process_ended(&allocation, host)
            }
            SimEvent::Served { epoch, connection } if self.serves(epoch) => self.serve(connection),
            SimEvent::Written { epoch, file } if self.serves(epoch) => {
                self.disk.objects.insert(file);
                Ok(())
            }
            SimEvent::SnapshotWritten { epoch, version, bytes } if self.serves(epoch) => {
                if self.disk.snapshot.as_ref().is_none_or(|(before, _)| *before <= version) {
                    self.disk.snapshot = Some((version, bytes));
                }
                Ok(())
            }
            // Of a server that has crashed since.
            SimEvent::Timeout { .. }
            | SimEvent::MachinesDue { .. }
            | SimEvent::Perform { .. }
            | SimEvent::Completed { .. }
            | SimEvent::TunerDue { .. }
            | SimEvent::CheckAgents { .. }
            | SimEvent::ClearingDue { .. }
            | SimEvent::ProcessEnded { .. }
            | SimEvent::Served { .. }
            | SimEvent::Written { .. }
            | SimEvent::SnapshotWritten { .. } => Ok(()),
            SimEvent::Connect(process) => self.connects(&process),
            SimEvent::ConnectFiles(process) => {
                self.connects_files(&process);
                Ok(())
            }
            SimEvent::AgentStep { process, step } => self.step_agent(&process, step),
            SimEvent::NoticeOver { process, life } => {
                self.notice_over(&process, life);
                Ok(())
            }
            SimEvent::Sign { connection } => {
                self.signs(connection);
                Ok(())
            }
            SimEvent::Continued(process) => self.continues(&process),
            SimEvent::Up { connection, message } => self.up(connection, message),
            SimEvent::Down { connection, message } => self.down(connection, message),
        }
    }

    fn serves(&self, epoch: u64) -> bool {
        self.server.is_some() && self.epoch == epoch
    }
}
