//! Performs what `shoal_runtime::warm_pool` requests: instances that are retained between attempts.

use shoal_plane::{Placement, TrialLaunch, TuningName};
use shoal_runtime::{
    ConnId, steps,
    warm_pool::{Event, Io, ReusePolicy},
};

use crate::{
    Bug,
    state::{network::Down, server::MachineIo},
    world::{Simulation, Step, broken},
};

/// How long an instance waits for another trial.
const IDLE_TRIALS_S: u64 = 30;

impl Simulation {
    pub(crate) fn perform_for_pool(&mut self, io: Io) -> Step {
        if let Some((attempt, mut steps)) = io.steps() {
            if self.bug == Some(Bug::LateInstance) {
                steps.retain(|step| !matches!(step, steps::Step::EndAllocation { .. }));
            }
            return self.perform_steps(attempt, steps, MachineIo::Pool(io));
        }
        match io {
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
            Io::Serve { attempt, conns } => {
                if self.server().attempts.contains_key(&attempt) {
                    let are_open = conns.iter().all(|conn| self.connections.contains_key(&conn.0));
                    conns.into_iter().for_each(|conn| self.send_down(conn.0, Down::Serve { attempt: attempt.clone() }));
                    if !are_open {
                        self.completes(Event::ServeFailed { attempt });
                    }
                }
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
            Io::Park { .. } | Io::Clear { .. } | Io::Assign { .. } | Io::Unassign { .. } | Io::Lane(_) => {
                return broken("it has steps, or the driver has carried it already");
            }
        }
        Ok(())
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
        Some(ReusePolicy { owner: TuningName::default(), idle_s, key, is_loaded: idle_s % 2 == 0 })
    }
}
