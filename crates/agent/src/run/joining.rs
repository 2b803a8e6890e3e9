//! The network that the instances of a job have in common: the first one's agent makes it, and the
//! others get its handle by way of the server.

use shoal_link::{Assignment, ReportBody};
use shoal_sandbox::Support;

use super::Agent;
use crate::events::next_event;
use crate::instance::{self, InstanceError};
use crate::machine_network;

impl Agent<'_> {
    /// Makes the network or waits for it; `false` if the job is to stop before there is one. An
    /// instance that is kept has it.
    pub(super) fn join_network(&mut self, assignment: &Assignment, support: &Support) -> Result<bool, InstanceError> {
        if assignment.machine_network.is_some() {
            return self.join_machines(assignment, support);
        }
        while self.network.is_none() {
            if self.is_to_stop() {
                return Ok(false);
            }
            self.network = instance::network(assignment, self.home, support, self.wishes.network.as_deref())?;
            match &self.network {
                Some(network) if assignment.host == 1 && assignment.hosts.len() > 1 => {
                    // If the outbox is closed, the order to stop is on its way.
                    let _ = self.outbox.report(ReportBody::Network { handle: network.handle() });
                }
                Some(_) => {}
                None => {
                    if let Some(event) = next_event(&self.arriving, None) {
                        self.wishes.note(event);
                    }
                }
            }
        }
        Ok(true)
    }

    /// The same where the instances are on several machines: each reports its machine's address,
    /// and gets those of all when the last one is there.
    fn join_machines(&mut self, assignment: &Assignment, support: &Support) -> Result<bool, InstanceError> {
        if self.network.is_some() {
            return Ok(true);
        }
        let own = machine_network::address(&self.options.server).map_err(InstanceError::Address)?;
        let _ = self.outbox.report(ReportBody::Network { handle: own.to_string() });
        let addresses = loop {
            if self.is_to_stop() {
                return Ok(false);
            }
            match self.wishes.network.as_deref().map(machine_network::parse) {
                Some(addresses) if addresses.len() == assignment.hosts.len() => break addresses,
                _ => {}
            }
            if let Some(event) = next_event(&self.arriving, None) {
                self.wishes.note(event);
            }
        };
        self.network = Some(instance::network_of_machines(self.home, addresses, support)?);
        Ok(true)
    }
}
