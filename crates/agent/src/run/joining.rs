//! The network that the instances of a job have in common: the first one's agent makes it, and the
//! others get its handle by way of the server.

use shoal_link::{Assignment, ReportBody};
use shoal_sandbox::Support;

use super::Agent;
use crate::events::next_event;
use crate::instance::{self, InstanceError};

impl Agent<'_> {
    /// Makes the network or waits for it; `false` if the job is to stop before there is one. An
    /// instance that is kept has it.
    pub(super) fn join_network(&mut self, assignment: &Assignment, support: &Support) -> Result<bool, InstanceError> {
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
}
