//! Performs what `shoal_runtime::warm_pool` requests: instances that are retained between attempts.

use shoal_link::Order;
use shoal_plane::{AttemptId, Placement, TrialLaunch};
use shoal_runtime::{
    ConnId, host_link,
    warm_pool::{AllocationId, Event, Io, ReusePolicy},
};

use crate::{
    Bug,
    state::{disk::Plan, network::Down, server::Attempt},
    world::{Simulation, Step, broken},
};

/// How long an instance waits for another trial.
const IDLE_TRIALS_S: u64 = 30;

impl Simulation {
    pub(crate) fn perform_for_pool(&mut self, io: Io) -> Step {
        match io {
            Io::Park { attempt } => self.order_all(&attempt, &Order::Park)?,
            Io::ReadKeepAlive { job } => {
                let seconds = self.jobs.iter().find(|it| it.name == job).and_then(|it| it.keep_alive_s).unwrap_or(0);
                self.completes(Event::KeepAlive { job, seconds });
            }
            Io::CheckOwner { owner } => {
                if !self.has_more_trials(&owner) {
                    self.completes(Event::OwnerEnded { owner });
                }
            }
            Io::Check { allocation, attempt } => {
                let now = self.clocks();
                let running = self.server().attempts.get(&attempt);
                let is_mirroring = running.is_some_and(|it| it.hosts.iter().any(|link| link.is_mirroring(now.mono)));
                let instances = running.map_or(0, |it| it.plan.instances);
                let is_running = instances > 0 && self.processes.is_complete(&allocation.0, instances);
                self.completes(Event::Checked { allocation, is_running, is_mirroring });
            }
            Io::Clear { attempt, retention } => {
                let is_own = self.disk.plans.get(&attempt).is_some_and(|plan| plan.allocation == attempt);
                self.server().attempts.remove(&attempt);
                self.server().cancelled.remove(&attempt);
                // The agents' own directory stays.
                if is_own {
                    self.disk.remove_plan(&attempt);
                } else {
                    self.disk.remove_dir(&attempt);
                }
                self.completes(Event::Cleared { allocation: retention.allocation });
            }
            Io::Assign { attempt, allocation } => {
                let assigned = self.assign(&attempt, allocation);
                self.completes(if assigned { Event::Assigned { attempt } } else { Event::AssignFailed { attempt } });
            }
            Io::Serve { attempt, conns } => {
                if self.server().attempts.contains_key(&attempt) {
                    let are_open = conns.iter().all(|conn| self.connections.contains_key(&conn.0));
                    conns.into_iter().for_each(|conn| self.send_down(conn.0, Down::Serve { attempt: attempt.clone() }));
                    if !are_open {
                        self.completes(Event::ServeFailed { attempt });
                    }
                }
            }
            Io::Unassign { attempt, instance } => {
                self.link_all(&attempt, || host_link::Event::InstanceGivenUp)?;
                self.server().attempts.remove(&attempt);
                if self.bug != Some(Bug::LateInstance) {
                    self.end_allocation(&instance.allocation.0)?;
                }
                self.disk.forget_reports(&attempt);
                self.completes(Event::Unassigned { attempt });
            }
            Io::Refuse(conn) => {
                self.send_down(conn.0, Down::Refused);
                self.close_when_sent(conn.0);
            }
            Io::Retire { conns, .. } => {
                for ConnId(conn) in conns {
                    self.hang_up(conn)?;
                }
            }
            Io::End(instances) => {
                for instance in instances {
                    if self.bug != Some(Bug::WarmInstanceLeft) {
                        self.end_allocation(&instance.allocation.0)?;
                    }
                }
            }
            Io::Lane(_) => return broken("the driver has carried it already"),
        }
        Ok(())
    }

    /// Writes an attempt's plan for a warm instance, and admits its agents from now on.
    fn assign(&mut self, attempt: &AttemptId, AllocationId(allocation): AllocationId) -> bool {
        let Some(plan) = self.server().prepared.get(attempt).cloned() else { return false };
        if self.faults.one_in(30) {
            return false;
        }
        let plan = Plan { allocation, ..plan };
        self.disk.plans.insert(attempt.clone(), plan.clone());
        self.insert_attempt(Attempt::awaiting_instance(plan));
        true
    }

    /// Whether a tuning job may start more trials.
    pub(crate) fn has_more_trials(&self, tuning: &str) -> bool {
        self.disk.tunings.get(tuning).is_some_and(|view| view.ended.is_none())
    }

    /// Which attempts may have the instance afterwards.
    pub(crate) fn reuse_policy(
        &self,
        job: &str,
        placement: &Placement,
        trial: Option<&TrialLaunch>,
    ) -> Option<ReusePolicy> {
        let nodes = if self.bug == Some(Bug::WarmElsewhere) { String::new() } else { placement.nodes.join(" ") };
        if trial.is_some() {
            let owner = self.mirror.view(job)?.trial?.tuning;
            let key = format!("{owner} {nodes}");
            return Some(ReusePolicy { key, owner, idle_s: IDLE_TRIALS_S, is_loaded: true });
        }
        let job = self.jobs.iter().find(|it| it.name == job)?;
        let key = format!("{} {} {nodes}", job.spec.instance_type, placement.gpus.len());
        let idle_s = job.keep_alive_s?.into();
        Some(ReusePolicy { owner: String::new(), idle_s, key, is_loaded: idle_s % 2 == 0 })
    }
}
