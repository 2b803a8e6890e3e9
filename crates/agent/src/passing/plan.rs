//! From where a host gets each part of its inputs, without I/O. Each part has an owner among the
//! hosts, in turns by its number: the owner gets it from the server, the others from the owner.
//! Where a host is not to be asked, the next one takes its place, as seen by all, so that even then
//! the server sends a part about once.

use std::collections::VecDeque;

/// After this number of hosts that gave nothing no host is asked any more, as where a firewall is
/// between them.
const HOPELESS: usize = 3;

/// What is missing on this host, and whom it asks for what. Hosts are counted from 0.
#[derive(Debug)]
pub(super) struct Plan {
    me: usize,
    hosts: Vec<Host>,
    /// Parts that are missing, those that are being fetched included.
    missing: usize,
    /// Hosts that were dropped before they gave anything.
    in_vain: usize,
}

#[derive(Debug, Default)]
struct Host {
    /// Parts that are to come from there; for this host itself: from the server.
    queue: VecDeque<usize>,
    /// One worker asks it, no more.
    is_asked: bool,
    is_out: bool,
    has_given: bool,
}

impl Plan {
    /// Where these parts are missing.
    pub(super) fn new(me: usize, hosts: usize, missing: impl IntoIterator<Item = usize>) -> Self {
        let mut plan = Self { me, hosts: Vec::from_iter((0..hosts).map(|_| Host::default())), missing: 0, in_vain: 0 };
        for part in missing {
            plan.hosts[part % hosts].queue.push_back(part);
            plan.missing += 1;
        }
        plan
    }

    /// Nothing is missing.
    pub(super) fn is_complete(&self) -> bool {
        self.missing == 0
    }

    /// The next part to get from the server.
    pub(super) fn next_of_server(&mut self) -> Option<usize> {
        self.hosts[self.me].queue.pop_front()
    }

    /// A host that has something to give and is not asked; from now on it is.
    pub(super) fn ask(&mut self) -> Option<usize> {
        let count = self.hosts.len();
        let others = (1..count).map(|step| (self.me + step) % count);
        let host =
            others.into_iter().find(|host| !self.hosts[*host].is_asked && !self.hosts[*host].queue.is_empty())?;
        self.hosts[host].is_asked = true;
        Some(host)
    }

    /// The next part to get from a host.
    pub(super) fn next_of_host(&mut self, host: usize) -> Option<usize> {
        self.hosts[host].queue.pop_front()
    }

    /// It is not asked now.
    pub(super) fn leave(&mut self, host: usize) {
        self.hosts[host].is_asked = false;
    }

    /// A part is here; from that host, if it is from none else.
    pub(super) fn got(&mut self, from: Option<usize>) {
        self.missing -= 1;
        if let Some(host) = from {
            self.hosts[host].has_given = true;
        }
    }

    /// A part has not come: the server (`None`) or the host, if it is still asked, is asked again.
    pub(super) fn again(&mut self, part: usize, from: Option<usize>) {
        let from = from.filter(|host| !self.hosts[*host].is_out).unwrap_or(self.me);
        self.hosts[from].queue.push_front(part);
    }

    /// A host does not have a part, and will not.
    pub(super) fn lacks(&mut self, part: usize, host: usize) {
        let next = self.after(host);
        self.hosts[next].queue.push_back(part);
    }

    /// A host has nothing to give, as it has reported: it is not asked.
    pub(super) fn leave_out(&mut self, host: usize) {
        self.hosts[host].is_out = true;
        self.pass_on(host);
    }

    /// A host is not asked any more: it did not give what it has.
    pub(super) fn drop_host(&mut self, host: usize) {
        self.leave_out(host);
        self.in_vain += usize::from(!self.hosts[host].has_given);
        if self.in_vain >= HOPELESS && !self.hosts.iter().any(|host| host.has_given) {
            self.drop_all();
        }
    }

    /// Everything else comes from the server.
    fn drop_all(&mut self) {
        let others = Vec::from_iter((0..self.hosts.len()).filter(|host| *host != self.me));
        others.iter().for_each(|host| self.hosts[*host].is_out = true);
        others.into_iter().for_each(|host| self.pass_on(host));
    }

    fn pass_on(&mut self, host: usize) {
        let parts = std::mem::take(&mut self.hosts[host].queue);
        let next = self.after(host);
        self.hosts[next].queue.extend(parts);
    }

    /// The host that takes the place of another: the next one that is asked, or this one.
    fn after(&self, host: usize) -> usize {
        let count = self.hosts.len();
        let next =
            (1..count).map(|step| (host + step) % count).find(|next| *next == self.me || !self.hosts[*next].is_out);
        next.unwrap_or(self.me)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Hosts of a job, which do one thing after another in an order by chance.
    struct Job {
        plans: Vec<Plan>,
        here: Vec<Vec<bool>>,
        dead: Vec<usize>,
        from_server: Vec<usize>,
    }

    impl Job {
        fn new(hosts: usize, parts: usize, dead: &[usize]) -> Self {
            Self {
                plans: (0..hosts).map(|host| Plan::new(host, hosts, 0..parts)).collect(),
                here: vec![vec![false; parts]; hosts],
                dead: dead.to_vec(),
                from_server: vec![0; parts],
            }
        }

        /// A host gets a part from the server, or asks another one.
        fn step(&mut self, host: usize, is_server: bool) {
            if is_server {
                let Some(part) = self.plans[host].next_of_server() else { return };
                self.from_server[part] += 1;
                self.here[host][part] = true;
                return self.plans[host].got(None);
            }
            let Some(other) = self.plans[host].ask() else { return };
            match self.plans[host].next_of_host(other) {
                Some(part) if self.dead.contains(&other) => {
                    self.plans[host].again(part, Some(other));
                    self.plans[host].drop_host(other);
                }
                Some(part) if self.here[other][part] => {
                    self.here[host][part] = true;
                    self.plans[host].got(Some(other));
                }
                Some(part) => self.plans[host].again(part, Some(other)),
                None => {}
            }
            self.plans[host].leave(other);
        }

        /// How often the server sent a part, on the average.
        fn run(mut self, seed: u64) -> f64 {
            let mut state = seed;
            for _ in 0..200_000 {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                let host = (state >> 33) as usize % self.plans.len();
                if !self.dead.contains(&host) {
                    self.step(host, state >> 62 == 0);
                }
            }
            for (host, plan) in self.plans.iter().enumerate().filter(|(host, _)| !self.dead.contains(host)) {
                assert!(plan.is_complete() && self.here[host].iter().all(|it| *it), "host {host}, seed {seed}");
            }
            self.from_server.iter().sum::<usize>() as f64 / self.from_server.len() as f64
        }
    }

    #[test]
    fn the_server_sends_each_part_once() {
        for (hosts, parts, seed) in [(1, 10, 1), (2, 1, 2), (4, 100, 3), (7, 50, 4), (16, 200, 5)] {
            assert!((Job::new(hosts, parts, &[]).run(seed) - 1.0).abs() < f64::EPSILON, "{hosts} hosts");
        }
    }

    #[test]
    fn of_a_host_that_is_dead_the_next_one_takes_the_parts() {
        for seed in 1..20 {
            let sent = Job::new(4, 100, &[2]).run(seed);
            assert!((1.0..1.1).contains(&sent), "seed {seed}: {sent}");
        }
    }

    #[test]
    fn where_no_host_answers_the_server_sends_all() {
        let mut plan = Plan::new(1, 6, 0..60);
        for _ in 0..HOPELESS {
            let host = plan.ask().unwrap();
            let part = plan.next_of_host(host).unwrap();
            plan.again(part, Some(host));
            plan.drop_host(host);
            plan.leave(host);
        }
        assert_eq!(plan.ask(), None, "three of them were in vain");
        let from_server = std::iter::from_fn(|| plan.next_of_server()).count();
        assert_eq!(from_server, 60);
    }

    #[test]
    fn hosts_that_have_nothing_are_no_sign_of_a_firewall() {
        let mut plan = Plan::new(0, 6, 0..60);
        (1..5).for_each(|host| plan.leave_out(host));
        assert_eq!(plan.ask(), Some(5), "it takes the place of all of them");
        assert_eq!(std::iter::from_fn(|| plan.next_of_host(5)).count(), 50);
    }

    #[test]
    fn what_one_host_lacks_the_next_one_has() {
        // Hosts of another instance group do not get the channel.
        let mut plan = Plan::new(0, 3, [1, 2]);
        assert_eq!((plan.ask(), plan.next_of_host(1)), (Some(1), Some(1)));
        plan.lacks(1, 1);
        plan.leave(1);
        assert_eq!(plan.ask(), Some(2));
        assert_eq!((plan.next_of_host(2), plan.next_of_host(2)), (Some(2), Some(1)));
        plan.lacks(1, 2);
        assert_eq!(plan.next_of_server(), Some(1), "after the last one comes the server");
    }
}
