//! Performs the core's actions in the steps that [`shoal_runtime::lanes`] requests; every action
//! may be repeated after a crash.

use std::{fs, path::Path, time::Duration};

use serde_json::Value;
use shoal_launch::{AllocationSpec, AllocationStatus, LauncherExt};
use shoal_link::Order;
use shoal_plane::{Action, AttemptId, Command};
use shoal_runtime::{
    host_link,
    lanes::{self, Outcome, Step, WritePolicy},
    recovery::{KnownPlan, Relaunch, relaunch, serves_another},
    warm_pool::Grant,
};
use shoal_store::LogLines;
use shoal_wire::{CreateTrainingJob, Service, no_effect};

use crate::{
    attempts::{Attempt, Plan, inputs_of, run_dir},
    clock::now_ms,
    error_chain::describe,
    launches::{Launch, Prepared},
    parts,
    world::World,
};

impl World {
    /// Performs an action, or its first step.
    pub(crate) fn perform(&self, action: Action, write: WritePolicy) -> Outcome {
        match action {
            Action::Launch { job, attempt, number, placement, instances, hosts, joins, lease_s, trial } => {
                self.launch(&Launch { job, attempt, number, placement, instances, hosts, joins, lease_s, trial })
            }
            Action::ClearInstances { attempt, hosts } => self.clear_instances(attempt, hosts),
            Action::StoreArtifacts { job, attempt, number, hosts } => {
                self.store_artifacts(&job, attempt, number, &hosts, write)
            }
            Action::Release { attempt, .. } => self.release(attempt),
            action => {
                if let Some(running) = self.attempts.get(action.attempt()) {
                    let orders = lanes::orders(&action, running.allocation.instances);
                    orders.into_iter().for_each(|(host, order)| running.order(host, order));
                }
                Outcome::Done
            }
        }
    }

    /// Performs a later step of an action.
    pub(crate) fn go_on(&self, attempt: AttemptId, step: Step) -> Outcome {
        match step {
            Step::Start(grant) => self.start(&attempt, grant),
            Step::Leave => self.leave(&attempt),
            Step::Clear => self.end(attempt),
            Step::Forget => {
                self.forget_reports(&attempt);
                Outcome::Commit(Command::Released { attempt })
            }
        }
    }

    fn launch(&self, launch: &Launch) -> Outcome {
        // A full disk must not fail each job of the queue in turn.
        if let Err(error) = self.data_dir.ensure_room_to_start() {
            return Outcome::NoSpace { reason: self.without_paths(&error.to_string()), has_written: false };
        }
        let prepared = self.request(&launch.job).and_then(|request| self.prepare(&request, launch));
        prepared.unwrap_or_else(|reason| self.launch_failed(&launch.attempt, &reason))
    }

    fn launch_failed(&self, attempt: &AttemptId, reason: &str) -> Outcome {
        if self.trees.is_cancelled(attempt) {
            // Its release follows.
            return Outcome::Done;
        }
        Outcome::Commit(Command::LaunchFailed { attempt: attempt.clone(), reason: self.without_paths(reason) })
    }

    /// Prepares the channels. Repeated after a crash it adopts agents that run.
    fn prepare(&self, request: &CreateTrainingJob, launch: &Launch) -> Result<Outcome, String> {
        let Launch { attempt, placement, .. } = launch;
        let dir = run_dir(&self.runs, attempt);
        let in_dir = |error: std::io::Error| format!("{}: {error}", dir.display());
        let known = Plan::read(&dir).map_err(in_dir)?;
        match (relaunch(known.as_ref().map(|plan| self.known(plan))), known) {
            (Relaunch::Adopt { .. }, Some(plan)) if request.min_instances.is_some() => {
                self.adopt(plan.clone());
                return self.add_instances(&plan, launch).map(|()| Outcome::Done);
            }
            (Relaunch::Adopt { submit }, Some(plan)) => {
                self.adopt(plan.clone());
                return if submit { self.submit(&plan).map(|()| Outcome::Done) } else { Ok(Outcome::Done) };
            }
            (Relaunch::Replace, Some(plan)) => {
                self.end_allocation(plan.allocation_id(), &self.allocation_of(&plan));
                self.attempts.remove(attempt);
            }
            _ if launch.joins => return Err(format!("{}: its plan is gone", dir.display())),
            (Relaunch::New, _) | (_, None) => {}
        }
        fs::create_dir_all(&dir).map_err(in_dir)?;
        let plan = self.plan(request, launch)?;
        let mut notes = Vec::from_iter(placement.capped.clone());
        // Later attempts' streams follow the first one's.
        if launch.number == 1 {
            let fields =
                no_effect::in_input(Service::SageMaker, "CreateTrainingJob", &Value::Object(request.raw.clone()));
            notes.extend(fields.into_iter().map(|field| format!("{} has no effect: {}", field.path, field.reason)));
        }
        let reuse_key = plan.reuse.as_ref().map(|policy| policy.key.clone());
        self.prepared().insert(attempt.clone(), Prepared { plan, notes });
        Ok(Outcome::Prepared { reuse_key })
    }

    /// Starts all agents of a prepared launch or none, unless a warm instance serves it.
    fn start(&self, attempt: &AttemptId, grant: Option<Grant>) -> Outcome {
        let Some(Prepared { plan, notes }) = self.prepared().remove(attempt) else { return Outcome::Done };
        let started = match grant {
            Some(grant) => {
                self.begin_warm(&plan, &grant);
                Ok(())
            }
            None => self.start_agents(&plan),
        };
        if let Err(reason) = started {
            return self.launch_failed(attempt, &reason);
        }
        if !notes.is_empty() {
            let lines = notes.into_iter().map(|note| (now_ms(), format!("[shoal] {note}"))).collect();
            let logs = LogLines { stream: plan.streams[0].clone(), lines, ..LogLines::default() };
            // The job is the same without this note.
            match self.telemetry.append_logs(&[logs]) {
                Ok(()) => self.job_changes.grown(&plan.job, 1, 0),
                Err(error) => tracing::warn!("training job {}: its log lacks the note on its size: {error}", plan.job),
            }
        }
        Outcome::Done
    }

    fn start_agents(&self, plan: &Plan) -> Result<(), String> {
        if self.trees.is_cancelled(&plan.attempt) {
            return Err("cancelled".to_owned());
        }
        let dir = run_dir(&self.runs, &plan.attempt);
        plan.write(&dir).map_err(|error| format!("{}: {error}", dir.display()))?;
        self.attempts.insert(Attempt::new(plan.clone(), self.allocation_of(plan), &self.keys));
        self.pool_is_used(plan, None);
        self.submit(plan)
    }

    fn submit(&self, plan: &Plan) -> Result<(), String> {
        self.launcher.submit(&self.with_token(plan)).map_err(|error| describe(&error))
    }

    /// Starts instances of an attempt that can live with fewer: those that a crash left unstarted,
    /// or others in the places of lost ones.
    fn add_instances(&self, plan: &Plan, launch: &Launch) -> Result<(), String> {
        let Launch { attempt, placement, hosts, joins, .. } = launch;
        if let Some(running) = self.attempts.get(attempt).filter(|_| *joins) {
            let gpus = |host: &u32| (*host, placement.gpus.get(*host as usize - 1).cloned().unwrap_or_default());
            let added: Vec<_> = hosts.iter().map(gpus).collect();
            running.add_hosts(&added).map_err(|error| format!("{}: {error}", running.run_dir().display()))?;
        }
        if let Some(running) = self.attempts.get(attempt) {
            hosts.iter().for_each(|host| running.handle(*host, host_link::Event::Expected));
        }
        let nodes = placement.nodes.clone();
        let spec = AllocationSpec { nodes, ..self.with_token(plan) };
        self.launcher.add(&spec, hosts).map_err(|error| describe(&error))
    }

    /// Ends and removes instances of an attempt whose others continue.
    fn clear_instances(&self, attempt: AttemptId, hosts: Vec<u32>) -> Outcome {
        if let Some(running) = self.attempts.get(&attempt) {
            let dir = &running.allocation.dir;
            if let Err(error) = self.launcher.remove(&running.allocation, &hosts) {
                // Their capacity is not free before nothing of them runs.
                return Outcome::NoSpace { reason: describe(&error), has_written: false };
            }
            let id = |host: &u32| format!("{}-{}-{host}", self.data_id, running.plan.allocation_id());
            // By prefix: of 3 and 30 the sandbox of 30 would be found, too, and is left to the
            // release.
            let is_alone = |host: &&u32| {
                (1..=running.allocation.instances)
                    .all(|it| it == **host || !it.to_string().starts_with(&host.to_string()))
            };
            self.sweeps.clear(hosts.iter().filter(is_alone).map(id));
            for host in &hosts {
                running.clear_host(*host);
                let removed =
                    (self.remove_tree)(&dir.join(format!("algo-{host}"))).and_then(|()| parts::remove(dir, [*host]));
                if let Err(error) = removed {
                    tracing::error!("{}: {error}", dir.display());
                }
                if let Err(error) = self.telemetry.forget_host(&attempt, *host) {
                    tracing::error!("{error}");
                }
            }
        }
        Outcome::Commit(Command::InstancesCleared { attempt, hosts })
    }

    /// What a plan on disk, its agents and their reports say.
    fn known(&self, plan: &Plan) -> KnownPlan {
        let mut hosts = (1..).take(plan.assignments.len());
        KnownPlan {
            is_warm: plan.allocation_id.is_some(),
            is_complete: self.is_complete(&self.allocation_of(plan)),
            has_reports: hosts.any(|host| self.telemetry.acked(&plan.attempt, host).map_or(true, |acked| acked > 0)),
        }
    }

    /// Takes an attempt that runs already into the tables (after a restart).
    pub(crate) fn adopt(&self, plan: Plan) {
        let allocation = self.allocation_of(&plan);
        for assignment in &plan.assignments {
            inputs_of(assignment).for_each(|input| self.trees.claim(&self.trees.path_of(input), &plan.attempt));
        }
        self.attempts.insert(Attempt::new(plan, allocation, &self.keys));
    }

    /// Begins to release an attempt.
    fn release(&self, attempt: AttemptId) -> Outcome {
        self.prepared().remove(&attempt);
        let Some(running) = self.attempts.get(&attempt) else { return self.end(attempt) };
        self.retention(&running).map_or_else(|| self.leave(&attempt), Outcome::Retain)
    }

    /// Has the agents of an attempt exit.
    fn leave(&self, attempt: &AttemptId) -> Outcome {
        if let Some(running) = self.attempts.get(attempt) {
            self.release_claims(running.plan.allocation_id());
            self.pool_ends(running.plan.reuse.as_ref(), &running.plan.job, Duration::ZERO);
            self.attempts.order_all(attempt, &Order::Release);
        }
        Outcome::Leaving
    }

    /// Whether agents of an attempt run, and whether they are still sending files.
    pub(crate) fn exit_of(&self, attempt: &AttemptId) -> (bool, bool) {
        self.attempts.get(attempt).map_or((false, false), |running| {
            let all = running.allocation.instances as usize - running.absent();
            let status = self.launcher.status_of(&running.allocation);
            let is_running = matches!(status, Ok(AllocationStatus::Running { lost }) if lost.len() < all);
            (is_running, running.is_mirroring())
        })
    }

    fn end(&self, attempt: AttemptId) -> Outcome {
        self.clear(&attempt);
        Outcome::Commit(Command::Released { attempt })
    }

    /// Ends an attempt's processes and removes its files, links and what is left of its sandboxes.
    pub(crate) fn clear(&self, attempt: &AttemptId) {
        let running = self.attempts.all();
        // Then its processes and their directory are the other attempt's now.
        let is_shared =
            serves_another(attempt, running.iter().map(|it| (&*it.plan.attempt, &**it.plan.allocation_id())));
        let dir = run_dir(&self.runs, attempt);
        if !is_shared {
            self.end_agents(attempt, &dir);
        }
        self.attempts.remove(attempt);
        self.trees.release(attempt);
        if !is_shared && let Err(error) = (self.remove_tree)(&dir) {
            tracing::error!("{}: {error}", dir.display());
        }
        self.forget_reports(attempt);
    }

    fn end_agents(&self, attempt: &AttemptId, dir: &Path) {
        let plan = Plan::read(dir).ok().flatten();
        // Without a plan no agent was started here, or it is that of a warm instance.
        let started = || (1..).take_while(|host| dir.join(format!("agent-{host}.log")).exists()).count();
        let without_plan = || self.allocation(attempt, u32::try_from(started()).unwrap_or(u32::MAX));
        let allocation = plan.as_ref().map_or_else(without_plan, |plan| self.allocation_of(plan));
        self.end_allocation(plan.as_ref().map_or(attempt, Plan::allocation_id), &allocation);
    }
}
