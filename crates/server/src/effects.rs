//! Performs the steps that [`shoal_runtime::steps`] names; every one may be repeated after a crash.

use std::{
    collections::HashMap,
    fs, io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use serde_json::Value;
use shoal_console::JobChanges;
use shoal_launch::{AllocationSpec, AllocationStatus, LaunchError, Launcher, LauncherExt};
use shoal_link::{MachineNetwork, Order};
use shoal_plane::{Action, AttemptId, Host};
use shoal_runtime::{
    host_link, lanes,
    recovery::serves_another,
    steps::{Agents, Instance, KnownPlan, Launch, Outcome, Step},
    warm_pool::AllocationId,
};
use shoal_store::{DataDir, LogLines, Rows, Telemetry};
use shoal_wire::{Service, no_effect};

use crate::{
    AccessKeys, RemoveTree,
    admission::debugger,
    allocations::Allocations,
    attempts::{Attempt, Attempts, Plan, inputs_of, run_dir},
    channels::Trees,
    clock::now_ms,
    error_chain::{describe, without_paths},
    job_ports,
    launches::Prepared,
    machines::Machines,
    not_prepared::NotPrepared,
    parts,
    plans::Plans,
    profile::Profiles,
    requests,
    storing::Storing,
    warm,
    warm_status::WarmPools,
};

/// What performs the steps of attempts.
pub(crate) struct Performer {
    pub(crate) attempts: Arc<Attempts>,
    pub(crate) allocations: Arc<Allocations>,
    pub(crate) launcher: Arc<dyn Launcher>,
    pub(crate) plans: Plans,
    pub(crate) artifacts: Storing,
    pub(crate) profiles: Profiles,
    /// Launches between their preparation and their start, by attempt.
    pub(crate) prepared: Mutex<HashMap<AttemptId, Prepared>>,
    pub(crate) pools: WarmPools,
    pub(crate) machines: Machines,
    pub(crate) trees: Arc<Trees>,
    pub(crate) rows: Arc<dyn Rows>,
    pub(crate) telemetry: Arc<Telemetry>,
    pub(crate) job_changes: Arc<JobChanges>,
    pub(crate) keys: AccessKeys,
    /// Locked for as long as anything may still be done in it.
    pub(crate) data_dir: Arc<DataDir>,
    pub(crate) runs: PathBuf,
    pub(crate) remove_tree: RemoveTree,
    /// Rules' mails can be sent.
    pub(crate) has_mail: bool,
}

impl Performer {
    /// Performs steps in order, until one of them has something else to answer than that it is
    /// done.
    pub(crate) fn perform(&self, attempt: &AttemptId, steps: Vec<Step>) -> Outcome {
        for step in steps {
            match self.step(attempt, step) {
                Ok(Outcome::Done) => {}
                Ok(outcome) => return outcome,
                Err(reason) => return Outcome::Failed(without_paths(&self.data_dir, &reason)),
            }
        }
        Outcome::Done
    }

    fn step(&self, attempt: &AttemptId, step: Step) -> Result<Outcome, String> {
        let dir = run_dir(&self.runs, attempt);
        let in_dir = |error: io::Error| format!("{}: {error}", dir.display());
        let running = self.attempts.get(attempt);
        let running = running.as_deref();
        match step {
            Step::CheckSpace => {
                if let Err(error) = self.data_dir.ensure_room_to_start() {
                    let reason = without_paths(&self.data_dir, &error.to_string());
                    return Ok(Outcome::Delayed { reason, has_written: false });
                }
            }
            Step::FindPlan => {
                if let Some(plan) = Plan::read(&dir).map_err(in_dir)? {
                    return Ok(Outcome::Found(self.known(&plan)));
                }
            }
            Step::Prepare(launch) => return self.prepare(&launch),
            Step::WritePlan(allocation) => self.prepared_plan(attempt, allocation)?.write(&dir).map_err(in_dir)?,
            Step::Admit(allocation) => self.admit(self.prepared_plan(attempt, allocation)?),
            Step::Adopt => match Plan::read(&dir).map_err(in_dir)? {
                Some(plan) => self.adopt(plan, true),
                None => return Err(format!("{}: its plan is gone", dir.display())),
            },
            Step::Submit => {
                // Its release follows, and would only end them.
                if self.trees.is_cancelled(attempt) {
                    return Err("cancelled".to_owned());
                }
                if let Some(running) = running {
                    return started(self.launcher.submit(&self.allocations.with_token(&running.plan)));
                }
            }
            Step::Join(hosts) => running.map_or(Ok(()), |running| running.add_hosts(&hosts)).map_err(in_dir)?,
            Step::Expect(hosts) => {
                for host in running.iter().flat_map(|_| &hosts) {
                    running.inspect(|running| running.handle(*host, host_link::Event::Expected));
                }
            }
            Step::Add { hosts, nodes } => {
                if let Some(running) = running {
                    let spec = AllocationSpec { nodes, ..self.allocations.with_token(&running.plan) };
                    return started(self.launcher.add(&spec, &numbers(&hosts)));
                }
            }
            Step::Connect(grant) => {
                if let Some(running) = running {
                    running.instance_connected();
                    warm::release_claims(&self.trees, &grant.allocation);
                    self.pools.is_used(&running.plan, Some((&grant.from, grant.idle)));
                }
            }
            Step::WriteNotes => self.write_notes(attempt),
            Step::Order(action) => self.order(&action),
            Step::StoreArtifacts { job, number, hosts, write } => {
                return self.artifacts.store(&job, attempt, number, &hosts, write);
            }
            Step::EndInstances(hosts) => {
                return Ok(running.map_or(Outcome::Done, |it| self.allocations.end_instances(it, &numbers(&hosts))));
            }
            Step::CloseLinks(hosts) => {
                running.inspect(|running| hosts.iter().for_each(|host| running.clear_host(*host)));
            }
            Step::RemoveInstances(hosts) => {
                running.inspect(|running| self.remove_instances(running, &hosts));
            }
            Step::FindInstance => return Ok(Outcome::Instance(Box::new(self.instance(attempt, running)))),
            Step::Leave => {
                running.inspect(|running| self.leave(running));
            }
            Step::Park => {
                running.inspect(|running| warm::park(&self.trees, running));
            }
            Step::GiveUp => {
                if let Some(running) = running {
                    let allocation = running.plan.allocation_id();
                    tracing::warn!("the warm instance {allocation} does not answer: attempt {attempt} gets a new one");
                    running.instance_given_up();
                }
            }
            Step::EndAllocation { allocation: AllocationId(id), hosts } => {
                let dir = run_dir(&self.runs, &id);
                let started = || (1..).take_while(|host| dir.join(format!("agent-{host}.log")).exists()).count();
                let hosts = hosts.unwrap_or_else(|| u32::try_from(started()).unwrap_or(u32::MAX));
                if let Err(reason) = self.allocations.end_allocations(&[(id, hosts)]) {
                    return Ok(Outcome::Delayed { reason, has_written: false });
                }
            }
            Step::Withdraw => {
                match running.map(|running| running.plan.clone()).map_or_else(|| Plan::read(&dir), |it| Ok(Some(it))) {
                    Ok(Some(plan)) => {
                        self.artifacts.end_tensors(&plan);
                        self.profiles.write_reports(&plan);
                    }
                    Ok(None) => {}
                    Err(error) => tracing::warn!("{}: {error}", dir.display()),
                }
                self.attempts.remove(attempt);
            }
            Step::ReleaseInputs => {
                self.prepared().remove(attempt);
                self.trees.release(attempt);
            }
            Step::RemovePlan(hosts) => logged(&dir, warm::remove_plan(&dir, hosts)),
            Step::RemoveRun => logged(&dir, (self.remove_tree)(&dir)),
            Step::Offer(retention) => self.pools.is_kept(&retention.policy, &retention.job),
            Step::ForgetReports => {
                if let Err(error) = self.telemetry.forget(attempt) {
                    tracing::error!("{error}");
                }
            }
        }
        Ok(Outcome::Done)
    }

    /// What a plan on disk, its agents and their reports say.
    fn known(&self, plan: &Plan) -> KnownPlan {
        let mut hosts = (1..).take(plan.assignments.len());
        KnownPlan {
            is_complete: self.allocations.is_complete(&self.allocations.allocation_of(plan)),
            has_reports: hosts.any(|host| self.telemetry.acked(&plan.attempt, host).map_or(true, |acked| acked > 0)),
            plan: plan.found(),
        }
    }

    fn prepared(&self) -> MutexGuard<'_, HashMap<AttemptId, Prepared>> {
        self.prepared.lock().expect("no holder of this lock panics")
    }

    fn prepare(&self, launch: &Launch) -> Result<Outcome, String> {
        let (request, creator) = requests::with_creator(&*self.rows, &launch.job)?;
        let dir = run_dir(&self.runs, &launch.attempt);
        fs::create_dir_all(&dir).map_err(|error| format!("{}: {error}", dir.display()))?;
        let mut plan = match self.plans.plan(&request, creator, launch) {
            Ok(plan) => plan,
            Err(NotPrepared::Failed(why)) => return Err(why),
            Err(NotPrepared::Delayed(reason)) => {
                let reason = without_paths(&self.data_dir, &reason);
                return Ok(Outcome::Delayed { reason, has_written: false });
            }
        };
        if self.plans.has_machine_network(launch) {
            let first_port = job_ports::for_attempt(&launch.attempt, &self.attempts);
            plan.assignments
                .iter_mut()
                .for_each(|it| it.machine_network = Some(MachineNetwork { first_port, has_sums: true }));
        }
        let mut notes = Vec::from_iter(launch.placement.capped.clone());
        // Later attempts' streams follow the first one's.
        if launch.number == 1 {
            let fields = no_effect::in_input(Service::SageMaker, "CreateTrainingJob", &Value::Object(request.raw));
            notes.extend(debugger::notes(&request.debugger, &request.environment, self.has_mail));
            notes.extend(fields.into_iter().map(|field| format!("{} has no effect: {}", field.path, field.reason)));
        }
        let reuse_key = plan.reuse.as_ref().map(|policy| policy.key.clone());
        self.prepared().insert(launch.attempt.clone(), Prepared { plan, notes });
        Ok(Outcome::Prepared { reuse_key })
    }

    /// The plan that is prepared, for a warm instance or for a new one.
    fn prepared_plan(&self, attempt: &AttemptId, allocation: Option<AllocationId>) -> Result<Plan, String> {
        let prepared = self.prepared();
        let plan = prepared.get(attempt).map(|it| it.plan.clone()).ok_or("its launch is not prepared any more")?;
        Ok(Plan { allocation_id: allocation.map(|it| it.0), ..plan })
    }

    fn admit(&self, plan: Plan) {
        let (allocation, is_warm) = (self.allocations.allocation_of(&plan), plan.allocation_id.is_some());
        let attempt = Attempt::new(plan, allocation, &self.keys);
        if is_warm {
            return self.attempts.insert(attempt.awaiting_instance());
        }
        self.pools.is_used(&attempt.plan, None);
        self.attempts.insert(attempt);
    }

    fn write_notes(&self, attempt: &AttemptId) {
        let Some(Prepared { plan, notes }) = self.prepared().remove(attempt) else { return };
        if !notes.is_empty() {
            let lines = notes.into_iter().map(|note| (now_ms(), format!("[shoal] {note}"))).collect();
            let logs = LogLines { stream: plan.streams[0].clone(), lines, ..LogLines::default() };
            // The job is the same without this note.
            match self.telemetry.append_logs(&[logs]) {
                Ok(()) => self.job_changes.grown(&plan.job, 1, 0),
                Err(error) => tracing::warn!("training job {}: its log lacks the note on its size: {error}", plan.job),
            }
        }
    }

    /// Gives the orders of an action.
    pub(crate) fn order(&self, action: &Action) {
        if let Some(running) = self.attempts.get(action.attempt()) {
            let orders = lanes::orders(action, running.allocation.instances);
            orders.into_iter().for_each(|(host, order)| running.order(host, order));
        }
    }

    fn remove_instances(&self, running: &Attempt, hosts: &[Host]) {
        let dir = &running.allocation.dir;
        for host in hosts {
            let removed = (self.remove_tree)(&dir.join(host.to_string())).and_then(|()| parts::remove(dir, [*host]));
            logged(dir, removed);
            if let Err(error) = self.telemetry.forget_host(&running.plan.attempt, host.0) {
                tracing::error!("{error}");
            }
        }
    }

    /// Takes an attempt that runs already into the tables (after a restart). Until it is known that
    /// its agents run, none of them is missed.
    pub(crate) fn adopt(&self, plan: Plan, is_decided: bool) {
        let allocation = self.allocations.allocation_of(&plan);
        for assignment in &plan.assignments {
            inputs_of(assignment).for_each(|input| self.trees.claim(&self.trees.path_of(input), &plan.attempt));
        }
        let id = plan.attempt.clone();
        self.attempts.insert(Attempt::new(plan, allocation, &self.keys));
        if let Some(running) = self.attempts.get(&id) {
            running.set_watched(is_decided);
        }
    }

    /// What is known of an attempt that is released.
    fn instance(&self, attempt: &AttemptId, running: Option<&Attempt>) -> Instance {
        let all = self.attempts.all();
        let allocations = all.iter().map(|it| (&*it.plan.attempt, &**it.plan.allocation_id()));
        let read = || Plan::read(&run_dir(&self.runs, attempt)).ok().flatten().map(|plan| plan.found());
        Instance {
            plan: running.map(|running| running.plan.found()).or_else(read),
            is_shared: serves_another(attempt, allocations),
            agents: running.map(|running| {
                let policy = warm::policy_now(&*self.rows, &running.plan);
                Agents {
                    job: running.plan.job.clone(),
                    owner_has_ended: policy
                        .as_ref()
                        .is_some_and(|policy| !warm::has_more_trials(&*self.rows, &policy.owner)),
                    policy,
                    connected: u32::try_from(running.connected()).unwrap_or(u32::MAX),
                    is_complete: self.allocations.is_complete(&running.allocation),
                }
            }),
        }
    }

    /// Has the agents of an attempt exit.
    fn leave(&self, running: &Attempt) {
        self.pools.ends(running.plan.reuse.as_ref(), &running.plan.job, Duration::ZERO);
        running.order_all(&Order::Release);
        let (machines, attempt) = (self.machines.clone(), running.plan.attempt.clone());
        let ended = move |_| machines.send(lanes::Event::AgentEnded { attempt: attempt.clone() });
        match self.launcher.watch(&running.allocation, Box::new(ended)) {
            // A repeated release is watched already.
            Ok(watch) => drop(running.exit_watch.set(watch)),
            Err(error) => tracing::warn!("{}", describe(&error)),
        }
    }

    /// Whether agents of an attempt run, and whether they are still sending files.
    pub(crate) fn exit_of(&self, attempt: &AttemptId) -> (bool, bool) {
        self.attempts.get(attempt).map_or((false, false), |running| {
            let all = running.allocation.instances as usize - running.absent();
            let status = self.launcher.status_of(&running.allocation);
            let is_running = match status {
                Ok(AllocationStatus::Running { lost }) => lost.len() < all,
                Ok(AllocationStatus::Paused) => true,
                Ok(_) | Err(_) => false,
            };
            (is_running, running.is_mirroring())
        })
    }
}

/// What cannot be removed fails nothing.
fn logged(dir: &Path, removed: io::Result<()>) {
    if let Err(error) = removed {
        tracing::error!("{}: {error}", dir.display());
    }
}

/// A scheduler that does not answer delays a launch, and fails none.
fn started(result: Result<(), LaunchError>) -> Result<Outcome, String> {
    match result {
        Ok(()) => Ok(Outcome::Done),
        Err(error @ (LaunchError::Unavailable { .. } | LaunchError::Full { .. })) => {
            Ok(Outcome::Delayed { reason: describe(&error), has_written: false })
        }
        Err(error @ (LaunchError::Refused { .. } | LaunchError::NoUser { .. })) => {
            Err(format!("ClientError: {}", describe(&error)))
        }
        Err(error) => Err(describe(&error)),
    }
}

/// As the launcher knows hosts.
fn numbers(hosts: &[Host]) -> Vec<u32> {
    hosts.iter().map(|host| host.0).collect()
}
