//! Performs the steps that `shoal_runtime::steps` names: on the simulated disk, processes and
//! links. Between two of them the server may crash, and other things happen.

use std::collections::VecDeque;

use shoal_link::Order;
use shoal_plane::{AttemptId, Command, Host, JobName, Placement};
use shoal_runtime::{
    HostLink, host_link as link, lanes,
    recovery::serves_another,
    steps::{Agents, FoundPlan, Instance, KnownPlan, Launch, Outcome, Step, WritePolicy},
    warm_pool::AllocationId,
};

use crate::{
    Bug,
    coverage::Point,
    marks::part_of,
    state::{
        disk::{AttemptHost, Plan},
        events::SimEvent,
        network::Purpose,
        processes::Process,
        server::{Attempt, MachineIo},
    },
    world::{Halt, Simulation, Step as Handled, broken},
};

/// Until it is checked again whether what an instance had sent is stored.
const STORED_CHECK_MS: u64 = 2;
/// So that every step is cut off in some histories, whatever its action.
const STEPS_PER_CRASH: u64 = 600;

/// The event whose action these steps are part of; none for what only reads, and for orders, which
/// count for themselves.
fn fact_of(of: &MachineIo) -> Option<&'static str> {
    let steps = match of {
        MachineIo::Lane(lanes::Io::Perform { steps, .. }) => steps.clone(),
        MachineIo::Lane(_) | MachineIo::Tuner(_) => return None,
        MachineIo::Pool(io) => io.steps()?.1,
    };
    let is_launch = |step: &Step| {
        matches!(step, Step::Prepare(_) | Step::Submit | Step::Add { .. } | Step::Connect(_) | Step::Admit(_))
            || matches!(step, Step::Adopt | Step::GiveUp | Step::WriteNotes)
    };
    let has = |is_meant: fn(&Step) -> bool| steps.iter().any(is_meant);
    if has(|step| matches!(step, Step::Order(_) | Step::FindInstance)) {
        None
    } else if has(|step| matches!(step, Step::Join(_))) {
        Some("instances_added")
    } else if steps.iter().any(is_launch) {
        Some("attempt_launched")
    } else if has(|step| matches!(step, Step::CloseLinks(_) | Step::RemoveInstances(_))) {
        Some("instances_vacated")
    } else if has(|step| matches!(step, Step::StoreArtifacts { .. })) {
        Some("uploads_ended")
    } else {
        Some("release_ordered")
    }
}

impl Simulation {
    /// The steps as a driver with the planted error performs them.
    pub(super) fn with_bugs(&mut self, attempt: &AttemptId, mut steps: Vec<Step>) -> Handled<Vec<Step>> {
        match self.bug {
            Some(Bug::DoubleLaunch) if steps[..] == [Step::Adopt, Step::Submit] => self.processes.forget(attempt),
            Some(Bug::LeftRunning) => steps.retain(|step| !matches!(step, Step::EndAllocation { .. })),
            Some(Bug::EarlyRelease) if steps[..] == [Step::Leave] => {
                self.execute(&Command::Released { attempt: attempt.clone() }, false)?;
            }
            Some(Bug::EarlyCleared) => {
                if let Some(Step::EndInstances(hosts)) = steps.first() {
                    let cleared = Command::InstancesCleared { attempt: attempt.clone(), hosts: hosts.clone() };
                    self.execute(&cleared, false)?;
                }
            }
            _ => {}
        }
        Ok(steps)
    }

    /// Performs steps in order, until one of them has something else to answer than that it is
    /// done. `of`: what requested them.
    pub(crate) fn perform_steps(&mut self, attempt: AttemptId, steps: Vec<Step>, of: MachineIo) -> Handled {
        let mut steps = VecDeque::from(steps);
        let fact = fact_of(&of);
        let mut outcome = Outcome::Done;
        while let Some(step) = steps.pop_front() {
            if self.faults.one_in(STEPS_PER_CRASH) {
                return Err(Halt::Crash);
            }
            // A submission is cut in its middle.
            if step != Step::Submit {
                self.passes(fact.as_slice(), Point::MidAction)?;
            }
            let pause = match &step {
                Step::CloseLinks(hosts) if !self.close_links(&attempt, hosts)? => Some(STORED_CHECK_MS),
                _ if self.faults.one_in(20) => Some(self.faults.latency()),
                _ => None,
            };
            if let Some(ms) = pause {
                steps.push_front(step);
                let (epoch, steps) = (self.epoch, steps.into());
                self.after(ms, SimEvent::Continue { epoch, attempt, steps, of });
                return Ok(());
            }
            outcome = self.step(&attempt, step, fact)?;
            if outcome != Outcome::Done {
                break;
            }
        }
        if outcome == Outcome::Done {
            self.passes(fact.as_slice(), Point::AfterAction)?;
        }
        match of {
            MachineIo::Lane(_) => self.completes(lanes::Event::Performed { attempt, outcome }),
            MachineIo::Pool(io) => {
                let answer = if outcome == Outcome::Done { io.done() } else { io.failed() };
                answer.into_iter().for_each(|event| self.completes(event));
            }
            MachineIo::Tuner(_) => {}
        }
        Ok(())
    }

    /// `fact`: where a crash in the middle of the step counts.
    pub(crate) fn step(&mut self, attempt: &AttemptId, step: Step, fact: Option<&'static str>) -> Handled<Outcome> {
        match step {
            Step::CheckSpace => {
                if self.faults.one_in(25) {
                    return Ok(no_space(false));
                }
            }
            Step::FindPlan => return Ok(self.known(attempt).map_or(Outcome::Done, Outcome::Found)),
            Step::Prepare(launch) => return Ok(self.prepare(*launch)),
            Step::WritePlan(allocation) => {
                let Some(plan) = self.prepared_plan(attempt, allocation.clone()) else { return Ok(failed()) };
                if allocation.is_some() && self.faults.one_in(30) {
                    return Ok(failed());
                }
                self.disk.plans.insert(attempt.clone(), plan);
            }
            Step::Admit(allocation) => {
                let is_warm = allocation.is_some();
                let Some(plan) = self.prepared_plan(attempt, allocation) else { return Ok(failed()) };
                let admitted = if is_warm { Attempt::awaiting_instance(plan) } else { Attempt::new(plan) };
                self.insert_attempt(admitted);
            }
            Step::Adopt => match self.disk.plans.get(attempt).cloned() {
                Some(plan) => {
                    self.insert_attempt(Attempt::new(plan));
                    self.watch_attempt(attempt);
                }
                None => return broken(format!("the plan of {attempt} is gone")),
            },
            Step::Submit => return self.submit(attempt, fact),
            Step::Join(_) => {}
            Step::Expect(hosts) => {
                hosts.iter().try_for_each(|host| self.link(&(attempt.clone(), *host), link::Event::Expected))?;
            }
            Step::Add { hosts, nodes } => return self.add(attempt, hosts, nodes, fact),
            Step::Connect(_) => {
                self.watch_attempt(attempt);
                self.link_all(attempt, || link::Event::InstanceConnected)?;
                self.reused += 1;
            }
            Step::WriteNotes => drop(self.server().prepared.remove(attempt)),
            Step::Order(action) => self.give_orders(&action)?,
            Step::StoreArtifacts { job, hosts, write, .. } => return self.store(job, attempt, hosts, write),
            Step::EndInstances(hosts) => self.end_instances(attempt, &hosts)?,
            Step::CloseLinks(hosts) => {
                for host in hosts {
                    let running = self.server().attempts.get_mut(attempt);
                    if let Some(link) = running.and_then(|running| running.host(host)) {
                        *link = HostLink::default();
                    }
                }
            }
            Step::RemoveInstances(hosts) => {
                for key in hosts.iter().map(|host| -> AttemptHost { (attempt.clone(), *host) }) {
                    self.disk.parts.remove(&key);
                    if self.bug != Some(Bug::OldNumbersKept) {
                        self.disk.acked.remove(&key);
                    }
                }
            }
            Step::FindInstance => return Ok(Outcome::Instance(Box::new(self.instance(attempt)))),
            Step::Leave => self.order_all(attempt, &Order::Release)?,
            Step::Park => self.order_all(attempt, &Order::Park)?,
            Step::GiveUp => self.link_all(attempt, || link::Event::InstanceGivenUp)?,
            Step::EndAllocation { allocation: AllocationId(allocation), .. } => self.end_allocation(&allocation)?,
            Step::Withdraw => drop(self.server().attempts.remove(attempt)),
            Step::ReleaseInputs => drop(self.server().prepared.remove(attempt)),
            // The agents' own directory stays.
            Step::RemovePlan(_) => self.disk.remove_plan(attempt),
            Step::RemoveRun => self.disk.remove_dir(attempt),
            Step::Offer(_) => {}
            Step::ForgetReports => self.disk.forget_reports(attempt),
        }
        Ok(Outcome::Done)
    }

    fn found(&self, plan: &Plan) -> FoundPlan {
        FoundPlan {
            allocation: AllocationId(plan.allocation.clone()),
            hosts: plan.instances,
            key: plan.reuse.as_ref().map(|policy| policy.key.clone()),
            is_elastic: self.is_elastic(&plan.job),
        }
    }

    pub(super) fn found_plan(&self, attempt: &AttemptId) -> Option<FoundPlan> {
        self.disk.plans.get(attempt).map(|plan| self.found(plan))
    }

    fn known(&self, attempt: &AttemptId) -> Option<KnownPlan> {
        let plan = self.disk.plans.get(attempt)?;
        Some(KnownPlan {
            plan: self.found(plan),
            is_complete: self.processes.is_complete(&plan.allocation, plan.instances),
            has_reports: self.disk.acked.iter().any(|((of, _), acked)| of == attempt && *acked > 0),
        })
    }

    fn prepare(&mut self, launch: Launch) -> Outcome {
        let Launch { job, attempt, instances, placement, trial, .. } = launch;
        if self.faults.lethal_one_in(9) {
            self.touch(&attempt);
            return failed();
        }
        self.disk.dirs.insert(attempt.clone());
        let reuse = self.reuse_policy(&job, &placement, trial.as_ref());
        let reuse_key = reuse.as_ref().map(|policy| policy.key.clone());
        let plan = Plan { job, attempt: attempt.clone(), instances, placement, allocation: attempt.clone(), reuse };
        self.server().prepared.insert(attempt, plan);
        Outcome::Prepared { reuse_key }
    }

    fn prepared_plan(&mut self, attempt: &AttemptId, allocation: Option<AllocationId>) -> Option<Plan> {
        let plan = self.server().prepared.get(attempt).cloned()?;
        let allocation = allocation.map_or_else(|| plan.allocation.clone(), |it| it.0);
        Some(Plan { allocation, ..plan })
    }

    /// Takes an attempt in, unless it is there: its agents may be connected already.
    pub(crate) fn insert_attempt(&mut self, attempt: Attempt) {
        self.server().attempts.entry(attempt.plan.attempt.clone()).or_insert(attempt);
    }

    /// Agents that end are lost from now on.
    fn watch_attempt(&mut self, attempt: &AttemptId) {
        if let Some(running) = self.server().attempts.get_mut(attempt) {
            running.is_watched = true;
        }
    }

    /// Starts what was not started yet.
    fn submit(&mut self, attempt: &AttemptId, fact: Option<&'static str>) -> Handled<Outcome> {
        let Some(plan) = self.server().attempts.get(attempt).map(|it| it.plan.clone()) else {
            return Ok(Outcome::Done);
        };
        let is_cut = self.strikes(fact.as_slice(), Point::MidAction);
        let instances = if is_cut { plan.instances / 2 } else { plan.instances };
        for process in self.processes.start(&plan.allocation, instances) {
            self.start_on_node(&process, &plan.placement);
            self.agent_starts(process, attempt)?;
        }
        if is_cut { Err(Halt::Crash) } else { Ok(Outcome::Done) }
    }

    /// A process is started where it was placed.
    fn start_on_node(&mut self, process: &Process, placement: &Placement) {
        let placed = match self.bug {
            Some(Bug::NodeIgnored) => &self.capacity.nodes[0].name,
            _ => placement.node(process.1),
        };
        self.nodes.started.insert(process.clone(), placed.to_owned());
    }

    fn add(
        &mut self,
        attempt: &AttemptId,
        hosts: Vec<Host>,
        nodes: Vec<String>,
        fact: Option<&'static str>,
    ) -> Handled<Outcome> {
        if self.faults.lethal_one_in(9) {
            self.touch(attempt);
            return Ok(failed());
        }
        let Some(plan) = self.server().attempts.get(attempt).map(|it| it.plan.clone()) else {
            return Ok(Outcome::Done);
        };
        let hosts = if self.bug == Some(Bug::AllStarted) { Host::all(plan.instances).collect() } else { hosts };
        let placement = Placement { nodes, ..plan.placement };
        for process in self.processes.start_hosts(&plan.allocation, &hosts) {
            self.start_on_node(&process, &placement);
            self.agent_starts(process, attempt)?;
            self.passes(fact.as_slice(), Point::MidAction)?;
        }
        Ok(Outcome::Done)
    }

    fn store(&mut self, job: JobName, attempt: &AttemptId, hosts: Vec<Host>, write: WritePolicy) -> Handled<Outcome> {
        if write == WritePolicy::IfSpace && self.faults.one_in(25) {
            return Ok(no_space(self.faults.one_in(2)));
        }
        for host in &hosts {
            let has = self.disk.parts.get(&(attempt.clone(), *host)).cloned().unwrap_or_default();
            let sent = self.program_of(attempt, *host).map_or(0, |(program, _)| program.parts);
            let life = self.processes.lives(&(attempt.clone(), *host)).max(1);
            let sent = (0..sent).map(|part| part_of(life, part).into()).collect();
            if has != sent {
                return broken(format!("{host} of {attempt} has sent the parts {sent:?}, and {has:?} are here"));
            }
        }
        if self.faults.lethal_one_in(15) {
            self.touch(attempt);
            return Ok(failed());
        }
        self.disk.models.insert(job, (attempt.clone(), hosts));
        Ok(Outcome::Done)
    }

    fn end_instances(&mut self, attempt: &AttemptId, hosts: &[Host]) -> Handled {
        let allocation = self.server().attempts.get(attempt).map(|running| running.plan.allocation.clone());
        for host in hosts.iter().filter_map(|host| Some((allocation.clone()?, *host))) {
            self.agent_is_killed(&host)?;
            self.agents.remove(&host);
            self.processes.forget_host(&host);
            self.passes(&["instances_vacated"], Point::MidAction)?;
        }
        Ok(())
    }

    /// Closes the connections of these hosts; whether all are read to their end.
    fn close_links(&mut self, attempt: &AttemptId, hosts: &[Host]) -> Handled<bool> {
        let ends = |server: &Self| -> Vec<u64> {
            let is_meant = |purpose: &Purpose| match purpose {
                Purpose::Reports((of, host)) | Purpose::Files((of, host)) => of == attempt && hosts.contains(host),
                Purpose::Idle => false,
            };
            let ends = server.server.iter().flat_map(|server| &server.ends);
            ends.filter(|(_, end)| is_meant(&end.purpose)).map(|(number, _)| *number).collect()
        };
        ends(self).into_iter().try_for_each(|number| self.hang_up(number))?;
        Ok(ends(self).is_empty())
    }

    /// What is known of an attempt that is released.
    fn instance(&mut self, attempt: &AttemptId) -> Instance {
        let server = self.server();
        let running = server.attempts.values().map(|it| (&*it.plan.attempt, &*it.plan.allocation));
        let is_shared = serves_another(attempt, running) && self.bug != Some(Bug::SharedInstanceCleared);
        let running = self.server().attempts.get(attempt).map(|it| (it.plan.clone(), it.connected()));
        let agents = running.map(|(Plan { job, instances, allocation, reuse, .. }, connected)| Agents {
            job,
            owner_has_ended: reuse.as_ref().is_some_and(|policy| !self.has_more_trials(&policy.owner)),
            policy: reuse,
            connected: u32::try_from(connected).expect("few hosts"),
            is_complete: self.processes.is_complete(&allocation, instances),
        });
        Instance { plan: self.found_plan(attempt), is_shared, agents }
    }
}

fn no_space(has_written: bool) -> Outcome {
    Outcome::Delayed { reason: "no space left on device".to_owned(), has_written }
}

fn failed() -> Outcome {
    Outcome::Failed("no space left on device".to_owned())
}
