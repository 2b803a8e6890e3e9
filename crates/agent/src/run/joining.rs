//! The network that the instances of a job have in common: the first one's agent makes it, and the
//! others get its handle by way of the server.

use shoal_link::{Assignment, ReportBody};
use shoal_sandbox::Support;

use super::Agent;
use crate::events::next_event;
use crate::inputs::Failure;
use crate::instance::{self, InstanceError};
use crate::machine_network::{self, Place};
use crate::own_log::say;
use crate::passing::{News, Passing};

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
        self.report_place(None)?;
        let places = loop {
            if self.is_to_stop() {
                return Ok(false);
            }
            if let Some(places) = self.places(assignment) {
                break places;
            }
            if let Some(event) = next_event(&self.arriving, None) {
                self.wishes.note(event);
            }
        };
        let addresses = places.iter().map(|place| place.address).collect();
        self.network = Some(instance::network_of_machines(self.home, addresses, support)?);
        Ok(true)
    }

    /// Reports once where this host is, and where it passes parts of its inputs on.
    fn report_place(&mut self, passes: Option<(u16, String)>) -> Result<(), InstanceError> {
        if !std::mem::replace(&mut self.has_place, true) {
            let address = machine_network::address(&self.options.server).map_err(InstanceError::Address)?;
            // If the outbox is closed, the order to stop is on its way.
            let _ = self.outbox.report(ReportBody::Network { handle: Place { address, passes }.to_string() });
        }
        Ok(())
    }

    /// Where all hosts are, once all have reported it.
    fn places(&self, assignment: &Assignment) -> Option<Vec<Place>> {
        let places = Place::all(self.wishes.network.as_deref()?).ok()?;
        (places.len() == assignment.hosts.len()).then_some(places)
    }

    /// Fills the node's cache together with the other hosts, where they are on other machines. All
    /// hosts report their places, whether they need it or not: some may wait for them.
    pub(super) fn pass_on(&mut self, assignment: &Assignment, has_all: bool) -> Result<(), InstanceError> {
        if assignment.machine_network.is_none() || assignment.hosts.len() < 2 {
            return Ok(());
        }
        let address = machine_network::address(&self.options.server).map_err(InstanceError::Address)?;
        let started = match has_all {
            true => Ok(None),
            false => Passing::start(self.options, assignment, address),
        };
        let passing = match started {
            Ok(passing) => passing,
            Err(Failure::Lost(error)) => {
                say(format_args!("this host fetches all of its inputs from the server: {error}"));
                None
            }
            Err(Failure::Ended(error)) => return Err(error.into()),
        };
        self.report_place(passing.as_ref().map(Passing::passes))?;
        let Some(passing) = passing else { return Ok(()) };
        let options = self.options.clone();
        let mut news = || match self.is_to_stop() {
            true => News::Stop,
            false => self.places(assignment).map_or(News::None, News::Places),
        };
        let note = passing.gather(&options, assignment, &mut news);
        // If the outbox is closed, a wish to stop is on its way.
        let _ = self.tell(&Vec::from_iter(note));
        self.passing = Some(passing);
        Ok(())
    }
}
