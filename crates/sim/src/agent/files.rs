//! Files that an agent mirrors: sent on a connection of their own, again and again until they are
//! answered.

use shoal_link::{Frame, ToServer};

use crate::{
    state::{
        agent::{Doing, Mirror},
        disk::AttemptHost,
        events::SimEvent,
        network::{Down, Purpose, Up},
        processes::Process,
    },
    world::{Simulation, Step, broken},
};

impl Simulation {
    /// A program has written a checkpoint.
    pub(super) fn saves(&mut self, process: &Process, path: String) {
        let Some(agent) = self.agent(process) else { return };
        agent.files.push_back(path);
        if agent.mirror.is_some() {
            self.send_files(process);
        } else if agent.files.len() == 1 {
            self.after(1, SimEvent::ConnectFiles(process.clone()));
        }
    }

    pub(crate) fn connects_files(&mut self, process: &Process) {
        let is_served = self.server.is_some();
        let Some(agent) = self.agent(process).filter(|agent| agent.mirror.is_none() && !agent.files.is_empty()) else {
            return;
        };
        let Some(attempt) = agent.attempt.clone() else { return };
        if !is_served {
            let pause = self.faults.random.between(50, 1000);
            return self.after(pause, SimEvent::ConnectFiles(process.clone()));
        }
        let connection = self.open(process, Purpose::Files((attempt, process.1)));
        if let Some(agent) = self.agent(process) {
            agent.mirror = Some(Mirror { connection, ready_at: None, sent: 0, sent_at: 0 });
        }
    }

    /// Sends files that were not sent on this connection.
    fn send_files(&mut self, process: &Process) {
        let now = self.now;
        let Some(agent) = self.agent(process) else { return };
        let Some(mirror) = agent.mirror.as_mut().filter(|mirror| mirror.ready_at.is_some()) else { return };
        let new: Vec<_> = agent.files.iter().skip(mirror.sent).cloned().collect();
        mirror.sent = agent.files.len();
        mirror.sent_at = now;
        let connection = mirror.connection;
        for path in new {
            let begins = Frame::Message(ToServer::FileBegins { path, is_last: false });
            let ends = Frame::Message(ToServer::FileEnds { bytes: 1 });
            self.send_up(connection, Up::Frames(vec![begins, Frame::Chunk(vec![0])]));
            self.send_up(connection, Up::Frames(vec![ends]));
        }
    }

    pub(super) fn receive_answer(&mut self, process: &Process, answer: Down) -> Step {
        let now = self.now;
        let Some(agent) = self.agent(process) else { return Ok(()) };
        let (Some(attempt), Some(mirror)) = (agent.attempt.clone(), &mut agent.mirror) else { return Ok(()) };
        if let Down::Ready = answer {
            mirror.ready_at = Some(now);
            self.send_files(process);
            return Ok(());
        }
        let file = agent.files.pop_front();
        mirror.sent = mirror.sent.saturating_sub(1);
        if let Down::FileSaved(path) = answer {
            if file.as_ref() != Some(&path) {
                return broken(format!("{process:?} is answered about {path} instead of {file:?}"));
            }
            let receipt: (AttemptHost, String) = ((attempt, process.1), path);
            if !self.receipts.contains(&receipt) {
                return broken(format!("{process:?} is informed that {} is saved, and there is no receipt", receipt.1));
            }
        }
        self.settle_files(process)
    }

    /// Once all files of a program that has ended are answered, their connection is closed, and an
    /// agent that waits for that leaves.
    pub(super) fn settle_files(&mut self, process: &Process) -> Step {
        let Some(agent) = self.agent(process) else { return Ok(()) };
        if !agent.files.is_empty() || !agent.is_over() {
            return Ok(());
        }
        let doing = agent.doing;
        if let Some(mirror) = agent.mirror.take() {
            self.cut(mirror.connection)?;
            if let (Doing::Leaving { parks }, Some(agent)) = (doing, self.agent(process)) {
                let step = agent.next_step(Doing::Leaving { parks });
                self.after(1, SimEvent::AgentStep { process: process.clone(), step });
            }
        }
        Ok(())
    }
}
