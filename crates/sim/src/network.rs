//! What lies between the two ends of a connection, which keeps the order of what goes over it and
//! loses nothing but by breaking.

use crate::{
    state::{
        events::SimEvent,
        network::{Connection, Down, Purpose, Up},
        processes::Process,
    },
    world::{Simulation, Step},
};

impl Simulation {
    /// An agent calls; gives the connection's number.
    pub(crate) fn open(&mut self, process: &Process, purpose: Purpose) -> u64 {
        self.called += 1;
        let number = self.called;
        self.connections.insert(number, Connection { process: process.clone(), purpose, up_at: 0, down_at: 0 });
        self.send_up(number, Up::Hello);
        number
    }

    /// The connection is gone with all that was on its way. Each end notices.
    pub(crate) fn cut(&mut self, number: u64) -> Step {
        let Some(connection) = self.connections.remove(&number) else { return Ok(()) };
        self.agent_loses(&connection.process, number)?;
        if self.server.is_some() { self.end_of_stream(number) } else { Ok(()) }
    }

    pub(crate) fn send_up(&mut self, number: u64, message: Up) {
        let at = self.now + self.faults.latency();
        let Some(connection) = self.connections.get_mut(&number) else { return };
        connection.up_at = connection.up_at.max(at);
        let at = connection.up_at;
        // A report that comes twice is nothing new to the server.
        let is_reports = matches!(message, Up::Frames(_)) && matches!(connection.purpose, Purpose::Reports(_));
        if is_reports && self.faults.one_in(15) {
            self.at(at, SimEvent::Up { connection: number, message: message.clone() });
        }
        self.at(at, SimEvent::Up { connection: number, message });
    }

    pub(crate) fn send_down(&mut self, number: u64, message: Down) {
        let at = self.now + self.faults.latency();
        let Some(connection) = self.connections.get_mut(&number) else { return };
        connection.down_at = connection.down_at.max(at);
        let at = connection.down_at;
        self.at(at, SimEvent::Down { connection: number, message });
    }

    /// The server closes it after what it has sent.
    pub(crate) fn close_when_sent(&mut self, number: u64) {
        self.send_down(number, Down::Closed);
    }
}
