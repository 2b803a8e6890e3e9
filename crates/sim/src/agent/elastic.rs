//! Agents of attempts that lose and gain instances: they leave after a notice, and know the
//! members.

use crate::{
    state::{events::SimEvent, processes::Process},
    world::Simulation,
};
use shoal_plane::Host;

impl Simulation {
    /// Its instance is taken away.
    pub(super) fn receive_leave(&mut self, process: &Process, notice_s: u32) {
        let Some(agent) = self.agent(process) else { return };
        if !std::mem::replace(&mut agent.leaves, true) {
            let life = agent.life;
            self.after(1000 * u64::from(notice_s), SimEvent::NoticeOver { process: process.clone(), life });
        }
    }

    pub(crate) fn notice_over(&mut self, process: &Process, life: u32) {
        if self.agent(process).is_some_and(|agent| agent.life == life) {
            self.receive_stop(process);
        }
    }

    pub(super) fn receive_members(&mut self, process: &Process, hosts: Vec<Host>) {
        if let Some(agent) = self.agent(process) {
            agent.members = hosts;
        }
    }
}
