//! Instances of an attempt that end, and others that start, while the rest of it runs.

use shoal_plane::{AttemptId, Command, Placement};
use shoal_runtime::{
    HostLink, host_link as link,
    lanes::{Event, Outcome},
};

use crate::{
    Bug,
    coverage::Point,
    state::{
        disk::{Host, Plan},
        events::SimEvent,
        network::Purpose,
    },
    world::{Simulation, Step},
};

/// Until it is looked again whether what an instance had sent is stored.
const STORED_CHECK_MS: u64 = 2;

impl Simulation {
    /// Starts instances of an attempt: those that a crash left unstarted, or others in the places
    /// of lost ones.
    pub(super) fn add_instances(
        &mut self,
        plan: &Plan,
        placement: &Placement,
        hosts: &[u32],
        joins: bool,
    ) -> Step<Outcome> {
        if self.faults.lethal_one_in(9) {
            self.touch(&plan.attempt);
            return Ok(self.launch_failed(&plan.attempt));
        }
        let kind = if joins { "instances_added" } else { "attempt_launched" };
        for host in hosts {
            self.link(&(plan.attempt.clone(), *host), link::Event::Expected)?;
        }
        let all: Vec<u32> = (1..=plan.instances).collect();
        let hosts = if joins && self.bug == Some(Bug::AllStarted) { &all } else { hosts };
        for process in self.processes.start_hosts(&plan.allocation, hosts) {
            self.start_on_node(&process, placement);
            self.agent_starts(process, &plan.attempt)?;
            self.passes(&[kind], Point::MidAction)?;
        }
        self.passes(&[kind], Point::AfterAction)?;
        Ok(Outcome::Done)
    }

    /// Ends and removes instances of an attempt whose others continue.
    pub(super) fn clear_instances(&mut self, attempt: AttemptId, hosts: Vec<u32>) -> Step {
        if self.bug == Some(Bug::EarlyCleared) {
            self.execute(&Command::InstancesCleared { attempt: attempt.clone(), hosts: hosts.clone() }, false)?;
        }
        let allocation = self.server().attempts.get(&attempt).map(|running| running.plan.allocation.clone());
        for host in hosts.iter().filter_map(|host| Some((allocation.clone()?, *host))) {
            self.agent_is_killed(&host)?;
            self.agents.remove(&host);
            self.processes.forget_host(&host);
            self.passes(&["instances_vacated"], Point::MidAction)?;
        }
        for number in self.ends_of(&attempt, &hosts) {
            self.hang_up(number)?;
        }
        self.finish_clearing(attempt, hosts)
    }

    /// Once all that they had sent is stored, nothing is left of them.
    pub(crate) fn finish_clearing(&mut self, attempt: AttemptId, hosts: Vec<u32>) -> Step {
        if !self.ends_of(&attempt, &hosts).is_empty() {
            let epoch = self.epoch;
            self.after(STORED_CHECK_MS, SimEvent::ClearingDue { epoch, attempt, hosts });
            return Ok(());
        }
        for host in &hosts {
            if let Some(link) = self.server().attempts.get_mut(&attempt).and_then(|running| running.host(*host)) {
                *link = HostLink::default();
            }
            let key: Host = (attempt.clone(), *host);
            self.disk.parts.remove(&key);
            if self.bug != Some(Bug::OldNumbersKept) {
                self.disk.acked.remove(&key);
            }
        }
        self.passes(&["instances_vacated"], Point::AfterAction)?;
        let outcome = Outcome::Commit(Command::InstancesCleared { attempt: attempt.clone(), hosts });
        self.completes(Event::Performed { attempt, outcome });
        Ok(())
    }

    /// Connections of these hosts that are not read to their end.
    fn ends_of(&mut self, attempt: &AttemptId, hosts: &[u32]) -> Vec<u64> {
        let is_meant = |purpose: &Purpose| match purpose {
            Purpose::Reports((of, host)) | Purpose::Files((of, host)) => of == attempt && hosts.contains(host),
            Purpose::Idle => false,
        };
        self.server().ends.iter().filter(|(_, end)| is_meant(&end.purpose)).map(|(number, _)| *number).collect()
    }
}
