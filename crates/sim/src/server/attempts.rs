//! Performs what `shoal_runtime::lanes` requests: attempts, their processes and files.

use shoal_link::Order;
use shoal_plane::{Action, AttemptId, Command, JobStatus, Placement, SecondaryStatus, TrialLaunch};
use shoal_runtime::{
    host_link as link,
    lanes::{Event, Io, Outcome, Step as LaneStep, WritePolicy, orders},
    recovery::{KnownPlan, Relaunch, relaunch, serves_another},
    warm_pool::{AllocationId, Grant, Retention},
};

use super::Refusal;
use crate::{
    Bug,
    coverage::Point,
    marks::part_of,
    state::{disk::Plan, events::SimEvent, processes::Process, server::Attempt},
    world::{Halt, Simulation, Step, broken},
};

struct Launch {
    job: String,
    attempt: AttemptId,
    instances: u32,
    hosts: Vec<u32>,
    joins: bool,
    placement: Placement,
    trial: Option<TrialLaunch>,
}

impl Simulation {
    pub(crate) fn perform_for_lane(&mut self, io: Io) -> Step {
        match io {
            Io::Perform { action: Action::ClearInstances { attempt, hosts }, .. } => {
                self.clear_instances(attempt, hosts)?;
            }
            Io::Perform { action, write } => {
                let attempt = action.attempt().to_owned();
                let outcome = self.act(action, write)?;
                self.completes(Event::Performed { attempt, outcome });
            }
            Io::Continue { attempt, step } => {
                let outcome = self.go_on(&attempt, step)?;
                self.completes(Event::Performed { attempt, outcome });
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

    fn act(&mut self, action: Action, write: WritePolicy) -> Step<Outcome> {
        match action {
            Action::Launch { job, attempt, instances, hosts, joins, placement, trial, .. } => {
                self.launch(&Launch { job, attempt, instances, hosts, joins, placement, trial })
            }
            Action::StoreArtifacts { job, attempt, hosts, .. } => self.store(job, attempt, hosts, write),
            Action::Release { attempt, .. } => self.release(&attempt),
            action => self.give_orders(&action).map(|()| Outcome::Done),
        }
    }

    fn give_orders(&mut self, action: &Action) -> Step {
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
        (1..=instances).try_for_each(|host| self.link(&(attempt.clone(), host), event()))
    }

    pub(crate) fn order_all(&mut self, attempt: &AttemptId, order: &Order) -> Step {
        let instances = self.server().attempts.get(attempt).map_or(0, |running| running.plan.instances);
        (1..=instances).try_for_each(|host| self.order(attempt, host, order.clone()))
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

    /// Performs a later step of an action.
    fn go_on(&mut self, attempt: &AttemptId, step: LaneStep) -> Step<Outcome> {
        match step {
            LaneStep::Start(grant) => self.start(attempt, grant.as_ref()),
            LaneStep::Leave => self.leave(attempt),
            LaneStep::Clear => self.end(attempt),
            LaneStep::Forget => {
                self.disk.forget_reports(attempt);
                Ok(Outcome::Commit(Command::Released { attempt: attempt.clone() }))
            }
        }
    }

    fn launch(&mut self, launch: &Launch) -> Step<Outcome> {
        let (attempt, instances) = (launch.attempt.clone(), launch.instances);
        if self.faults.one_in(25) {
            return Ok(Outcome::NoSpace { reason: "no space left on device".to_owned(), has_written: false });
        }
        let known = self.disk.plans.get(&attempt).cloned();
        let facts = known.as_ref().map(|plan| KnownPlan {
            is_warm: plan.allocation != attempt,
            is_complete: self.processes.is_complete(&plan.allocation, instances),
            has_reports: self.disk.acked.iter().any(|((of, _), acked)| *of == attempt && *acked > 0),
        });
        match (relaunch(facts), known) {
            (Relaunch::Adopt { submit }, Some(plan)) => {
                self.insert_attempt(Attempt::new(plan.clone()));
                if self.is_elastic(&launch.job) {
                    return self.add_instances(&plan, &launch.placement, &launch.hosts, launch.joins);
                }
                if submit {
                    if self.bug == Some(Bug::DoubleLaunch) {
                        self.processes.forget(&attempt);
                    }
                    self.submit(&plan)?;
                }
                return Ok(Outcome::Done);
            }
            (Relaunch::Replace, Some(plan)) => {
                self.end_allocation(&plan.allocation)?;
                self.server().attempts.remove(&attempt);
            }
            _ if launch.joins => return broken(format!("instances join {attempt}, and its plan is gone")),
            (Relaunch::New, _) | (_, None) => {}
        }
        if self.faults.lethal_one_in(9) {
            self.touch(&attempt);
            return Ok(self.launch_failed(&attempt));
        }
        self.disk.dirs.insert(attempt.clone());
        let reuse = self.reuse_policy(&launch.job, &launch.placement, launch.trial.as_ref());
        let reuse_key = reuse.as_ref().map(|policy| policy.key.clone());
        let (job, placement, allocation) = (launch.job.clone(), launch.placement.clone(), attempt.clone());
        let plan = Plan { job, attempt: attempt.clone(), instances, placement, allocation, reuse };
        self.server().prepared.insert(attempt, plan);
        Ok(Outcome::Prepared { reuse_key })
    }

    pub(super) fn launch_failed(&mut self, attempt: &AttemptId) -> Outcome {
        if self.server().cancelled.contains(attempt) {
            return Outcome::Done;
        }
        Outcome::Commit(Command::LaunchFailed {
            attempt: attempt.clone(),
            reason: "no space left on device".to_owned(),
        })
    }

    /// Starts the agents of a prepared launch, unless a warm instance serves it.
    fn start(&mut self, attempt: &AttemptId, grant: Option<&Grant>) -> Step<Outcome> {
        let Some(plan) = self.server().prepared.remove(attempt) else { return Ok(Outcome::Done) };
        if grant.is_some() {
            if let Some(running) = self.server().attempts.get_mut(attempt) {
                running.awaits_instance = false;
            }
            self.link_all(attempt, || link::Event::InstanceConnected)?;
            self.reused += 1;
        } else if self.server().cancelled.contains(attempt) {
            return Ok(Outcome::Done);
        } else {
            self.disk.plans.insert(attempt.clone(), plan.clone());
            self.insert_attempt(Attempt::new(plan.clone()));
            if self.strikes(&["attempt_launched"], Point::MidAction) {
                self.submit(&Plan { instances: plan.instances / 2, ..plan })?;
                return Err(Halt::Crash);
            }
            self.submit(&plan)?;
        }
        self.passes(&["attempt_launched"], Point::AfterAction)?;
        Ok(Outcome::Done)
    }

    /// Takes an attempt in, unless it is there: its agents may be connected already.
    pub(crate) fn insert_attempt(&mut self, attempt: Attempt) {
        self.server().attempts.entry(attempt.plan.attempt.clone()).or_insert(attempt);
    }

    /// Starts what was not started yet.
    fn submit(&mut self, plan: &Plan) -> Step {
        for process in self.processes.start(&plan.allocation, plan.instances) {
            self.start_on_node(&process, &plan.placement);
            self.agent_starts(process, &plan.attempt)?;
        }
        Ok(())
    }

    /// A process is started where it was placed.
    pub(super) fn start_on_node(&mut self, process: &Process, placement: &Placement) {
        let placed = match self.bug {
            Some(Bug::NodeIgnored) => &self.capacity.nodes[0].name,
            _ => placement.node(process.1),
        };
        self.nodes.started.insert(process.clone(), placed.to_owned());
    }

    fn store(&mut self, job: String, attempt: AttemptId, hosts: Vec<u32>, write: WritePolicy) -> Step<Outcome> {
        if write == WritePolicy::IfSpace && self.faults.one_in(25) {
            return Ok(Outcome::NoSpace {
                reason: "no space left on device".to_owned(),
                has_written: self.faults.one_in(2),
            });
        }
        for host in &hosts {
            let has = self.disk.parts.get(&(attempt.clone(), *host)).cloned().unwrap_or_default();
            let sent = self.program_of(&attempt, *host).map_or(0, |(program, _)| program.parts);
            let life = self.processes.lives(&(attempt.clone(), *host)).max(1);
            let sent = (0..sent).map(|part| part_of(life, part).into()).collect();
            if has != sent {
                return broken(format!("host {host} of {attempt} has sent the parts {sent:?}, and {has:?} are here"));
            }
        }
        if self.faults.lethal_one_in(15) {
            self.touch(&attempt);
            return Ok(Outcome::Commit(Command::ArtifactsFailed {
                attempt,
                reason: "no space left on device".to_owned(),
            }));
        }
        self.passes(&["uploads_ended"], Point::MidAction)?;
        self.disk.models.insert(job, (attempt.clone(), hosts));
        self.passes(&["uploads_ended"], Point::AfterAction)?;
        Ok(Outcome::Commit(Command::ArtifactsStored { attempt }))
    }

    /// Begins to release an attempt.
    fn release(&mut self, attempt: &AttemptId) -> Step<Outcome> {
        self.passes(&["release_ordered"], Point::MidAction)?;
        let server = self.server();
        server.prepared.remove(attempt);
        if !server.attempts.contains_key(attempt) {
            return self.end(attempt);
        }
        match self.retention(attempt) {
            Some(retention) => Ok(Outcome::Retain(retention)),
            None => self.leave(attempt),
        }
    }

    /// An attempt's instance as it could be retained.
    fn retention(&mut self, attempt: &AttemptId) -> Option<Retention> {
        let running = self.server().attempts.get(attempt)?;
        let (plan, connected) = (running.plan.clone(), running.connected());
        let policy = plan.reuse.filter(|policy| policy.owner.is_empty() || self.has_more_trials(&policy.owner))?;
        if connected < plan.instances as usize || !self.processes.is_complete(&plan.allocation, plan.instances) {
            return None;
        }
        Some(Retention { allocation: AllocationId(plan.allocation), job: plan.job, policy, hosts: plan.instances })
    }

    fn leave(&mut self, attempt: &AttemptId) -> Step<Outcome> {
        self.order_all(attempt, &Order::Release)?;
        if self.bug == Some(Bug::EarlyRelease) {
            self.execute(&Command::Released { attempt: attempt.clone() }, false)?;
        }
        Ok(Outcome::Leaving)
    }

    /// Whether agents of an attempt run, and whether they are still sending files.
    fn exit_of(&mut self, attempt: &AttemptId) -> (bool, bool) {
        let now = self.clocks();
        let Some(running) = self.server().attempts.get(attempt) else { return (false, false) };
        let is_mirroring = running.hosts.iter().any(|link| link.is_mirroring(now.mono));
        let (allocation, instances) = (running.plan.allocation.clone(), running.plan.instances);
        (self.processes.is_running(&allocation, instances), is_mirroring)
    }

    fn end(&mut self, attempt: &AttemptId) -> Step<Outcome> {
        self.clear(attempt)?;
        self.passes(&["release_ordered"], Point::AfterAction)?;
        Ok(Outcome::Commit(Command::Released { attempt: attempt.clone() }))
    }

    /// Ends an attempt's processes and removes its files.
    pub(crate) fn clear(&mut self, attempt: &AttemptId) -> Step {
        let running = self.server().attempts.values().map(|it| (&*it.plan.attempt, &*it.plan.allocation));
        let is_shared = serves_another(attempt, running) && self.bug != Some(Bug::SharedInstanceCleared);
        if !is_shared && self.bug != Some(Bug::LeftRunning) {
            let allocation = self.disk.plans.get(attempt).map_or(attempt, |plan| &plan.allocation).to_owned();
            self.end_allocation(&allocation)?;
        }
        self.server().attempts.remove(attempt);
        self.server().cancelled.remove(attempt);
        if !is_shared {
            self.disk.remove_dir(attempt);
        }
        self.disk.forget_reports(attempt);
        Ok(())
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
    pub(crate) fn process_ended(&mut self, allocation: &AttemptId, host: u32) -> Step {
        if self.processes.is_alive(&(allocation.to_owned(), host))
            || self.processes.is_unknown(&(allocation.to_owned(), host))
        {
            // Another instance has its place since, or none.
            return Ok(());
        }
        let mut attempts = self.server().attempts.values_mut();
        let of = attempts.find(|running| running.plan.allocation == *allocation && !running.awaits_instance);
        let Some(attempt) = of
            .filter(|running| running.hosts[host as usize - 1].is_end_news())
            .map(|running| running.plan.attempt.clone())
        else {
            return Ok(());
        };
        self.lose(&attempt, host, format!("the agent of algo-{host} ended without a report"))
    }

    /// A process has ended; the server is notified after what it had sent.
    pub(crate) fn watch_end(&mut self, (allocation, host): &Process) {
        if self.server.is_some() {
            let (ms, epoch) = (20 + self.faults.latency(), self.epoch);
            self.after(ms, SimEvent::ProcessEnded { epoch, allocation: allocation.clone(), host: *host });
        }
    }
}
