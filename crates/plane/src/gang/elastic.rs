//! A gang that loses and gains instances while the others run.
//!
//! - It declares with how few it can continue
//!   ([`GangSpec::min_instances`](crate::GangSpec::min_instances)). Until programs have run on all
//!   instances at the same time it needs all of them, and the first one always: ranks meet there.
//! - An instance that is lost, or taken away (by an interruption, or for the head of the queue), is
//!   no *member* any more: its end means nothing, and nothing of it is stored. One that is taken
//!   away has the grace of a stop. What is left of it is removed, and then its capacity is free.
//! - When no job waits for what is free, instances start in the empty places. After a loss that
//!   takes [`REPLACE_PAUSE_S`], and twice as long after each further one, so that a machine that
//!   loses every instance is not kept busy.
//! - An instance that was added while others ran is as good as lost if its program fails: it may
//!   have come too late to take part.
//! - When the first instance's program has ended well the training is done. What was added and has
//!   not started is removed, and what was added and still runs when the output of all others is
//!   stored.
//! - The members are sent their list after each change.

use super::{
    Gang,
    instances::{Attempt, Instance, Stage},
    timers::Timer,
};
use crate::{
    AttemptId, Host, Time,
    capacity::{Resources, by_node, divided},
    limits::{LEAVE_NOTICE_S, MAX_REPLACE_PAUSE_S, REPLACE_PAUSE_S, UNANSWERED_S},
};

/// What is to be done for a gang that loses and gains instances, besides
/// [`Order`](super::orders::Order).
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum ElasticOrder {
    /// Their programs are to end, after a notice.
    Interrupt { hosts: Vec<Host> },
    /// What is left of these instances is to be removed.
    Clear { hosts: Vec<Host> },
    /// The present members, for each of them.
    Members { hosts: Vec<Host> },
}

impl Attempt {
    /// What it holds of each node: of its placement, what its instances that are there hold.
    pub(crate) fn held(&self) -> Vec<(&str, Resources)> {
        // GPUs of absent instances are not in the placement.
        let present =
            Host::numbered().zip(&self.instances).zip(self.placement.holds()).filter(|((_, it), _)| it.is_present());
        by_node(present.map(|((host, _), amount)| (self.placement.node(host), amount)))
    }

    /// Memory that it uses in all as its instances that are there are taken to use it, by node: in
    /// proportion to their limits.
    pub(crate) fn memory_by_node(&self, bytes: u64) -> Vec<(&str, Resources)> {
        let (hosts, limits): (Vec<_>, Vec<_>) = Host::numbered()
            .zip(&self.instances)
            .zip(self.placement.limits())
            .filter(|((_, instance), _)| instance.is_present())
            .map(|((host, _), limit)| (host, limit))
            .unzip();
        let of_host = |(host, memory_bytes): (Host, u64)| {
            (self.placement.node(host), Resources { memory_bytes, ..Resources::default() })
        };
        by_node(hosts.into_iter().zip(divided(bytes, &limits)).map(of_host))
    }

    /// Some of its instances are on this node.
    pub(crate) fn is_on(&self, node: &str) -> bool {
        Host::numbered().zip(&self.instances).any(|(host, it)| it.is_present() && self.placement.node(host) == node)
    }

    /// What each instance holds, where there is one group, with the GPUs of the first.
    pub(crate) fn of_each(&self) -> Resources {
        let holds = self.placement.holds();
        let memory_bytes = holds.last().map_or(0, |it| it.memory_bytes);
        Resources { memory_bytes, gpus: holds.first().map_or(0, |it| it.gpus), instances: 1 }
    }

    /// The same on the nodes of these instances.
    pub(crate) fn of_hosts(&self, hosts: &[Host]) -> Vec<(&str, Resources)> {
        let each = self.of_each();
        by_node(hosts.iter().map(|host| (self.placement.node(*host), each)))
    }

    /// Instances that are added to others that run, and have not reported.
    pub(crate) fn joining(&self) -> Vec<Host> {
        if self.complete { self.hosts(|instance| *instance == Instance::Starting) } else { Vec::new() }
    }

    /// How many instances are there, members or not.
    pub(crate) fn present(&self) -> usize {
        self.hosts(Instance::is_present).len()
    }

    /// Of these instances, those that are being removed and were lost, and those that were taken
    /// away.
    pub(crate) fn cleared(&self, hosts: &[Host]) -> (Vec<Host>, Vec<Host>) {
        let is = |host: Host, lost: bool| self.instance(host) == Some(&Instance::Clearing { is_lost: lost });
        let those = |lost: bool| hosts.iter().copied().filter(|host| is(*host, lost)).collect();
        (those(true), those(false))
    }

    /// Until when the place of a lost instance stays empty.
    pub(crate) fn replaced_after(&self, now: Time) -> Time {
        let doubled = REPLACE_PAUSE_S << self.losses.saturating_sub(1).min(16);
        now.plus_s(doubled.min(MAX_REPLACE_PAUSE_S))
    }

    /// Empty places whose pause is over.
    pub(crate) fn rested_places(&self, now: Time) -> Vec<Host> {
        self.hosts(|instance| matches!(instance, Instance::Absent { until: Some(until) } if *until <= now))
    }

    /// Numbers of the instances that count.
    pub(crate) fn members(&self) -> Vec<Host> {
        self.hosts(Instance::is_member)
    }
}

impl Gang {
    /// How few members it continues with, if it runs so that it can lose others.
    fn least(&self, attempt: &Attempt) -> Option<u32> {
        let runs =
            self.in_progress() && attempt.stage == Stage::Running && attempt.failed.is_none() && attempt.complete;
        self.spec.min_instances.filter(|_| runs)
    }

    /// Members that are lost, if the others are enough.
    pub(crate) fn losses(&self, attempt: &Attempt) -> Vec<Host> {
        let Some(least) = self.least(attempt) else { return Vec::new() };
        let has_failed = |instance: &Instance| matches!(instance, Instance::Ended { end, .. } if self.is_failure(end));
        let mut lost = attempt.hosts(|instance| matches!(instance, Instance::Lost { .. }) || has_failed(instance));
        lost.retain(|host| {
            attempt.joined.contains(host) || matches!(attempt.instance(*host), Some(Instance::Lost { .. }))
        });
        let left = attempt.members().len() - lost.len();
        if lost.contains(&Host::FIRST) || left < least as usize { Vec::new() } else { lost }
    }

    /// Added members of no use any more: the first instance's program has ended well, and theirs
    /// failed, has not started, or is the last to run.
    pub(crate) fn latecomers(&self, attempt: &Attempt) -> Vec<Host> {
        if !self.is_done(attempt) {
            return Vec::new();
        }
        let is_stored =
            |host: &Host| attempt.joined.contains(host) || attempt.instance(*host) == Some(&Instance::Uploaded);
        let are_others_stored = attempt.members().iter().all(is_stored);
        let mut late = attempt.hosts(|instance| match instance {
            Instance::Starting | Instance::Downloading => true,
            Instance::Running => are_others_stored,
            Instance::Ended { end, .. } => self.is_failure(end),
            _ => false,
        });
        late.retain(|host| attempt.joined.contains(host));
        late
    }

    fn is_done(&self, attempt: &Attempt) -> bool {
        let has_ended_well = |instance: &Instance| match instance {
            Instance::Ended { end, .. } => !self.is_failure(end),
            instance => *instance == Instance::Uploaded,
        };
        self.least(attempt).is_some() && attempt.instance(Host::FIRST).is_some_and(has_ended_well)
    }

    /// Whether the gang survives that this instance failed or was lost.
    pub(crate) fn survives(&self, attempt: &Attempt, host: Host) -> bool {
        self.losses(attempt).contains(&host) || self.latecomers(attempt).contains(&host)
    }

    /// Members that can be taken away, the youngest places first: none of them has ended.
    pub(crate) fn dispensable(&self, attempt: &Attempt) -> Vec<Host> {
        let Some(least) = self.least(attempt) else { return Vec::new() };
        let members = attempt.members();
        if attempt.any(|instance| instance.is_member() && instance.over()) {
            return Vec::new();
        }
        let dispensable = members.len().saturating_sub((least as usize).max(1));
        members.into_iter().rev().take(dispensable).collect()
    }

    /// Empty places in which instances may start.
    pub(crate) fn vacancies(&self, attempt: &Attempt) -> Vec<Host> {
        if self.least(attempt).is_none() || attempt.any(|instance| instance.is_member() && instance.over()) {
            return Vec::new();
        }
        attempt.hosts(|instance| *instance == Instance::Absent { until: None })
    }

    /// The next deadline of its places.
    pub(crate) fn place_timer(&self, attempt: &Attempt) -> Option<(Time, Timer)> {
        self.least(attempt)?;
        let of_place = |instance: &Instance| match instance {
            Instance::Leaving { since } => Some((self.leave_deadline(*since), Timer::Leave)),
            Instance::Absent { until: Some(until) } => Some((*until, Timer::Replace)),
            _ => None,
        };
        attempt.instances.iter().filter_map(of_place).min_by_key(|(at, _)| *at)
    }

    fn leave_deadline(&self, since: Time) -> Time {
        since.plus_s(u64::from(LEAVE_NOTICE_S) + u64::from(self.spec.grace_s) + UNANSWERED_S)
    }

    /// Instances that have not left in time.
    pub(crate) fn overdue(&self, attempt: &Attempt, now: Time) -> Vec<Host> {
        attempt.hosts(|instance| matches!(instance, Instance::Leaving { since } if self.leave_deadline(*since) <= now))
    }

    /// Besides [`Gang::order`].
    pub(crate) fn elastic_orders(&self) -> Vec<ElasticOrder> {
        let Some((attempt, _)) = self.attempt.as_ref().and_then(|attempt| Some((attempt, self.least(attempt)?))) else {
            return Vec::new();
        };
        let mut orders = vec![ElasticOrder::Members { hosts: attempt.members() }];
        let leaving = attempt.hosts(|instance| matches!(instance, Instance::Leaving { .. }));
        let clearing = attempt.hosts(|instance| matches!(instance, Instance::Clearing { .. }));
        if !leaving.is_empty() {
            orders.push(ElasticOrder::Interrupt { hosts: leaving });
        }
        if !clearing.is_empty() {
            orders.push(ElasticOrder::Clear { hosts: clearing });
        }
        orders
    }

    /// These instances are to leave. Returns whether any of them was a member.
    pub(crate) fn interrupt_instances(&mut self, at: Time, attempt: &AttemptId, hosts: &[Host]) -> bool {
        self.move_instances(attempt, hosts, |instance| instance.is_member().then_some(Instance::Leaving { since: at }))
    }

    /// What is left of these instances is removed. Returns whether any of them was there.
    pub(crate) fn vacate(&mut self, attempt: &AttemptId, hosts: &[Host]) -> bool {
        let Some(current) = self.current(attempt) else { return false };
        let lost = current.hosts(|instance| matches!(instance, Instance::Lost { .. } | Instance::Ended { .. }));
        let newly_lost = hosts.iter().filter(|host| lost.contains(host)).count();
        current.losses = current.losses.saturating_add(u32::try_from(newly_lost).unwrap_or(u32::MAX));
        self.move_instances(attempt, hosts, |instance| match instance {
            Instance::Lost { .. } | Instance::Ended { .. } => Some(Instance::Clearing { is_lost: true }),
            Instance::Clearing { .. } | Instance::Absent { .. } => None,
            _ => Some(Instance::Clearing { is_lost: false }),
        })
    }

    /// Nothing is left of these instances. Returns whether they were being removed.
    pub(crate) fn empty_places(&mut self, attempt: &AttemptId, hosts: &[Host], until: Option<Time>) -> bool {
        let moved = self.move_instances(attempt, hosts, |instance| match instance {
            Instance::Clearing { .. } => Some(Instance::Absent { until }),
            _ => None,
        });
        if let Some(current) = self.current(attempt) {
            for index in 0..current.instances.len() {
                if matches!(current.instances[index], Instance::Absent { .. }) {
                    current.placement.gpus[index].clear();
                }
            }
        }
        moved
    }

    /// Instances may start in these places from now on.
    pub(crate) fn end_pause(&mut self, attempt: &AttemptId, hosts: &[Host]) -> bool {
        self.move_instances(attempt, hosts, |instance| match instance {
            Instance::Absent { until: Some(_) } => Some(Instance::Absent { until: None }),
            _ => None,
        })
    }

    /// New instances start in these places. `gpus` has a list for each, and so has `nodes`, unless
    /// they are on the nodes of those before them.
    pub(crate) fn fill_places(
        &mut self,
        attempt: &AttemptId,
        hosts: &[Host],
        gpus: &[Vec<u32>],
        nodes: &[String],
    ) -> bool {
        let is_free = |instance: &Instance| matches!(instance, Instance::Absent { .. });
        let Some(current) = self.current(attempt) else { return false };
        for (place, (host, gpus)) in hosts.iter().zip(gpus).enumerate() {
            if current.instance(*host).is_some_and(is_free) {
                if let Some(node) = nodes.get(place) {
                    current.placement.set_node(*host, node);
                }
                if let Some(of_host) = host.index().and_then(|index| current.placement.gpus.get_mut(index)) {
                    of_host.clone_from(gpus);
                }
                current.joined.insert(*host);
            }
        }
        self.move_instances(attempt, hosts, |instance| is_free(instance).then_some(Instance::Starting))
    }

    fn move_instances(
        &mut self,
        attempt: &AttemptId,
        hosts: &[Host],
        next: impl Fn(&Instance) -> Option<Instance>,
    ) -> bool {
        let Some(current) = self.current(attempt) else { return false };
        let mut moved = false;
        for host in hosts {
            if let Some(instance) = current.instance(*host).and_then(&next) {
                moved |= current.set_instance(*host, instance);
            }
        }
        moved
    }
}
