//! What must hold of gangs that lose and gain instances while the others run.

use std::collections::BTreeMap;

use shoal_plane::{Action, AttemptId, Event, Fact, Host, InstancePhase, JobStatus};

use crate::{
    state::places::{Place, Places},
    world::{Simulation, Step, broken},
};

/// Until then an order has reached whom it is for.
const QUIET_MS: u64 = 20_000;

impl Simulation {
    pub(crate) fn is_elastic(&self, job: &str) -> bool {
        self.jobs.iter().any(|it| it.name == job && it.spec.min_instances.is_some())
    }

    /// An agent of such a job is killed.
    pub(crate) fn kill_elastic(&mut self) -> Step {
        let alive: Vec<_> =
            self.processes.alive().filter(|(attempt, _)| self.places.contains_key(attempt)).cloned().collect();
        let place = self.faults.random.below(alive.len().max(1) as u64);
        let Some(process) = alive.get(usize::try_from(place).expect("an index")).cloned() else { return Ok(()) };
        self.say(|| format!("agent {process:?} is killed"));
        self.touch_agent(&process);
        self.agent_ends(&process)
    }

    pub(crate) fn check_places_event(&mut self, event: &Event) -> Step {
        if let Fact::AttemptLaunched { attempt, placement, .. } = &event.fact
            && let Some(least) =
                self.jobs.iter().find(|job| *job.name == event.name).and_then(|job| job.spec.min_instances)
        {
            let places = vec![Place::Member { runs: false }; placement.gpus.len()];
            self.places.insert(attempt.clone(), Places { least, places, complete: false, changed_ms: self.now });
        }
        let Some(attempt) = self.places_of(&event.fact) else { return Ok(()) };
        let Some(places) = self.places.get_mut(&attempt) else { return Ok(()) };
        places.changed_ms = self.now;
        match &event.fact {
            Fact::InstanceMoved { host, phase: InstancePhase::Training, .. } => {
                places.set(*host, Place::Member { runs: true });
                places.complete |= places.places.iter().all(|place| *place == Place::Member { runs: true });
            }
            Fact::RankEnded { host, .. } => places.set(*host, Place::Member { runs: false }),
            Fact::InstanceLost { host, .. } => places.set(*host, Place::Lost),
            Fact::InstancesInterrupted { hosts, .. } | Fact::InstancesVacated { hosts, .. } => {
                hosts.iter().for_each(|host| places.set(*host, Place::Away));
            }
            Fact::InstancesAdded { hosts, .. } => {
                hosts.iter().for_each(|host| places.set(*host, Place::Member { runs: false }));
            }
            Fact::InstancesCleared { hosts, .. } => {
                hosts.iter().for_each(|host| places.set(*host, Place::Empty));
                if let Some(host) = hosts.iter().find(|host| self.processes.is_alive(&(attempt.clone(), **host))) {
                    return broken(format!("the capacity of {host} of {attempt} is free, and its process lives"));
                }
            }
            Fact::AttemptFailed { reason, .. } => return self.check_loss(&attempt, reason),
            _ => {}
        }
        Ok(())
    }

    fn places_of(&self, fact: &Fact) -> Option<AttemptId> {
        match fact {
            Fact::InstanceMoved { attempt, .. }
            | Fact::RankEnded { attempt, .. }
            | Fact::InstanceLost { attempt, .. }
            | Fact::InstancesInterrupted { attempt, .. }
            | Fact::InstancesVacated { attempt, .. }
            | Fact::InstancesAdded { attempt, .. }
            | Fact::InstancesCleared { attempt, .. }
            | Fact::AttemptFailed { attempt, .. } => Some(attempt.clone()),
            _ => None,
        }
    }

    /// A job that has failed had a reason to, by what is known of its places.
    pub(crate) fn check_failed_job(&self, event: &Event) -> Step {
        let Fact::JobEnded { status: JobStatus::Failed, failure_reason: Some(reason), .. } = &event.fact else {
            return Ok(());
        };
        let attempt = self.mirror.view(&event.name).and_then(|view| view.attempt);
        attempt.map_or(Ok(()), |attempt| self.check_loss(&attempt, reason))
    }

    fn check_loss(&self, attempt: &AttemptId, reason: &str) -> Step {
        let Some(places) = self.places.get(attempt).filter(|places| places.complete) else { return Ok(()) };
        let is_loss = reason.contains("ended without a report") || reason.contains("was silent");
        let left = places.count(|place| matches!(place, Place::Member { .. }));
        if is_loss && places.places[0] != Place::Lost && left >= places.least as usize {
            return broken(format!("{attempt} has {left} instances, needs {}, and failed: {reason}", places.least));
        }
        Ok(())
    }

    /// A process is about to be started.
    pub(crate) fn check_place(&self, attempt: &AttemptId, host: Host) -> Step {
        let place = self.places.get(attempt).map(|places| places.places[host.0 as usize - 1]);
        if place == Some(Place::Empty) {
            broken(format!("{host} of {attempt} is started, and it was not requested"))
        } else {
            Ok(())
        }
    }

    /// Where nothing has happened for a while each member knows the others.
    pub(crate) fn check_members(&self) -> Step {
        if self.places.is_empty() || self.now < self.served_since + QUIET_MS {
            return Ok(());
        }
        let mut lists = BTreeMap::new();
        for action in self.mirror.pending().actions {
            if let Action::SetMembers { attempt, hosts } = action {
                lists.insert(attempt, hosts);
            }
        }
        for (attempt, hosts) in lists {
            if self.places.get(&attempt).is_none_or(|places| self.now < places.changed_ms + QUIET_MS) {
                continue;
            }
            for host in &hosts {
                let Some(agent) = self.agents.get(&(attempt.clone(), *host)) else { continue };
                if let Some(members) = agent.known_members(self.now.saturating_sub(QUIET_MS))
                    && *members != hosts
                {
                    return broken(format!("{host} of {attempt} knows of {members:?} instead of {hosts:?}"));
                }
            }
        }
        Ok(())
    }
}
