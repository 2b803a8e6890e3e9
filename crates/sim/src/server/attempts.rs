//! Performs what `shoal_runtime::lanes` requests but for steps; the ends of processes.

use shoal_link::Order;
use shoal_plane::{Action, AttemptId, Command, Host, JobStatus, SecondaryStatus};
use shoal_runtime::{
    host_link as link,
    lanes::{Event, Io, orders},
};

use super::Refusal;
use crate::{
    Bug,
    coverage::Point,
    state::{events::SimEvent, processes::Process, server::MachineIo},
    world::{Simulation, Step, broken},
};

impl Simulation {
    pub(crate) fn perform_for_lane(&mut self, io: Io) -> Step {
        match io {
            Io::Perform { attempt, steps } => {
                let of = MachineIo::Lane(Io::Perform { attempt: attempt.clone(), steps: steps.clone() });
                let steps = self.with_bugs(&attempt, steps)?;
                self.perform_steps(attempt, steps, of)?;
            }
            Io::CheckExit { attempt } => {
                let (is_running, is_mirroring) = self.exit_of(&attempt);
                let is_running = is_running && self.bug != Some(Bug::ImpatientRelease);
                self.completes(Event::ExitChecked { attempt, is_running, is_mirroring });
            }
            Io::Order(action) => self.give_orders(&action)?,
            Io::ReportDelay { attempt, reason } => {
                if self.execute(&Command::LaunchDelayed { attempt: attempt.clone(), reason }, true)?.answer.is_ok() {
                    self.completes(Event::DelayReported { attempt });
                }
            }
            Io::Commit { attempt, command } => {
                let is_kept = self.bug == Some(Bug::CapacityKept) && self.now.is_multiple_of(7);
                if is_kept && matches!(command, Command::Released { .. }) {
                    self.completes(Event::Committed { attempt });
                    return Ok(());
                }
                let result = self.execute(&command, true)?;
                let is_refused =
                    matches!(result.answer, Err(Refusal::Journal)) && self.bug != Some(Bug::OutcomeToldOnce);
                self.completes(if is_refused { Event::CommitFailed { attempt } } else { Event::Committed { attempt } });
            }
            Io::Pool(_) | Io::Cancel { .. } | Io::LogDelay { .. } => {
                return broken("the driver has carried it already");
            }
        }
        Ok(())
    }

    pub(crate) fn give_orders(&mut self, action: &Action) -> Step {
        let attempt = action.attempt();
        let kinds = match action {
            Action::Freeze { .. } => vec!["trial_paused"],
            Action::Resume { .. } => vec!["trial_raised", "attempt_thawed"],
            Action::InterruptInstances { .. } => vec!["instances_interrupted"],
            Action::SetMembers { .. } => Vec::new(),
            _ => vec![self.stop_kind(attempt)],
        };
        let instances = self.server().attempts.get(attempt).map_or(0, |running| running.plan.instances);
        for (host, order) in orders(action, instances) {
            self.order(attempt, host, order)?;
            self.passes(&kinds, Point::MidAction)?;
        }
        self.passes(&kinds, Point::AfterAction)
    }

    /// The same event of each host's link.
    pub(crate) fn link_all(&mut self, attempt: &AttemptId, event: impl Fn() -> link::Event) -> Step {
        let instances = self.server().attempts.get(attempt).map_or(0, |running| running.plan.instances);
        Host::all(instances).try_for_each(|host| self.link(&(attempt.clone(), host), event()))
    }

    pub(crate) fn order_all(&mut self, attempt: &AttemptId, order: &Order) -> Step {
        let instances = self.server().attempts.get(attempt).map_or(0, |running| running.plan.instances);
        Host::all(instances).try_for_each(|host| self.order(attempt, host, order.clone()))
    }

    fn stop_kind(&mut self, attempt: &AttemptId) -> &'static str {
        let state = self.server().control.state();
        let view = state.job_of(attempt).and_then(|job| state.view(job));
        match view.map(|view| (view.status, view.secondary)) {
            Some((JobStatus::Stopping, _)) => "stop_requested",
            Some((JobStatus::InProgress, SecondaryStatus::Interrupted))
                if self.memory.evicted.iter().any(|of| of == attempt) =>
            {
                "attempt_evicted"
            }
            Some((JobStatus::InProgress, SecondaryStatus::Interrupted)) => "attempt_interrupted",
            Some((JobStatus::InProgress, _)) => "attempt_failed",
            _ => "job_ended",
        }
    }

    /// Whether agents of an attempt run, and whether they are still sending files.
    fn exit_of(&mut self, attempt: &AttemptId) -> (bool, bool) {
        let now = self.clocks();
        let Some(running) = self.server().attempts.get(attempt) else { return (false, false) };
        let is_mirroring = running.hosts.iter().any(|link| link.is_mirroring(now.mono));
        let (allocation, instances) = (running.plan.allocation.clone(), running.plan.instances);
        (self.processes.is_running(&allocation, instances), is_mirroring)
    }

    /// Ends the processes of an allocation and removes its directory.
    pub(crate) fn end_allocation(&mut self, allocation: &AttemptId) -> Step {
        let left: Vec<_> = self.processes.alive().filter(|(of, _)| of == allocation).cloned().collect();
        for process in left {
            self.agent_is_killed(&process)?;
        }
        self.processes.forget(allocation);
        self.agents.retain(|(of, _), _| of != allocation);
        self.disk.remove_dir(allocation);
        Ok(())
    }

    /// The launcher reports that a process has ended.
    pub(crate) fn process_ended(&mut self, allocation: &AttemptId, host: Host) -> Step {
        if self.processes.is_alive(&(allocation.to_owned(), host))
            || self.processes.is_unknown(&(allocation.to_owned(), host))
        {
            // Another instance has its place since, or none.
            return Ok(());
        }
        let mut attempts = self.server().attempts.values_mut();
        let of = attempts.find(|running| running.plan.allocation == *allocation && running.is_watched);
        let Some(running) = of else { return Ok(()) };
        let (attempt, is_news) = (running.plan.attempt.clone(), running.hosts[host.0 as usize - 1].is_end_news());
        // A launcher may report no ends.
        if !self.faults.one_in(10) {
            self.happens(Event::AgentEnded { attempt: attempt.clone() });
        }
        if !is_news {
            return Ok(());
        }
        self.lose(&attempt, host, format!("the agent of {host} ended without a report"))
    }

    /// A process has ended; the server is notified after what it had sent.
    pub(crate) fn watch_end(&mut self, (allocation, host): &Process) {
        if self.server.is_some() {
            let (ms, epoch) = (20 + self.faults.latency(), self.epoch);
            self.after(ms, SimEvent::ProcessEnded { epoch, allocation: allocation.clone(), host: *host });
        }
    }
}
