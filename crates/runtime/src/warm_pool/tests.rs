use shoal_plane::{AttemptId, Host, Time};

use super::*;

fn at(ms: u64) -> Now {
    Now { mono: Mono(Duration::from_millis(ms)), wall: Time(0) }
}

fn text<T: for<'a> From<&'a str>>(text: &str) -> T {
    text.into()
}

fn allocation(name: &str) -> AllocationId {
    AllocationId(text(name))
}

fn retention(of: &str, owner: &str, hosts: u32) -> Retention {
    let policy = ReusePolicy { owner: text(owner), idle_s: 30, key: text("key"), is_loaded: true };
    Retention { allocation: allocation(of), job: format!("job of {of}").into(), policy, hosts }
}

fn requested(attempt: &str) -> Event {
    Event::Requested { attempt: text(attempt), key: text("key") }
}

fn declined(attempt: &str) -> Io {
    Io::Lane(lanes::Event::Declined { attempt: text(attempt) })
}

fn assign(attempt: &str, of: &str) -> Io {
    Io::Assign { attempt: text(attempt), allocation: allocation(of) }
}

/// A pool with an instance of one agent, idle since this moment, that was started for attempt `of`.
fn add_idle(pool: &mut WarmPool, of: &str, conn: u64, ms: u64) {
    pool.handle(Event::Retain { attempt: text(of), retention: retention(of, "tuning", 1) }, at(ms));
    pool.handle(Event::AgentIdle { allocation: allocation(of), host: Host(1), conn: ConnId(conn) }, at(ms));
    let io = pool.handle(Event::Cleared { allocation: allocation(of) }, at(ms));
    assert_eq!(io.first(), Some(&Io::Lane(lanes::Event::Retained { attempt: text(of) })));
    pool.check();
}

#[test]
fn an_instance_is_assigned_when_all_agents_are_idle_and_the_attempt_is_cleared() {
    let mut pool = WarmPool::restore([(text("a"), text("key"))]);
    pool.handle(Event::Releasing { attempt: text("a") }, at(0));
    assert_eq!(pool.handle(requested("b"), at(0)), [], "one is about to be idle");
    let retain = Event::Retain { attempt: text("a"), retention: retention("a", "tuning", 2) };
    assert_eq!(pool.handle(retain, at(0)), [Io::Park { attempt: text("a") }]);
    let idle = |host| Event::AgentIdle { allocation: allocation("a"), host, conn: ConnId(host.0.into()) };
    assert_eq!(pool.handle(idle(Host(2)), at(1)), []);
    assert_eq!(
        pool.handle(idle(Host(1)), at(2)),
        [Io::Clear { attempt: text("a"), retention: retention("a", "tuning", 2) }]
    );
    let io = pool.handle(Event::Cleared { allocation: allocation("a") }, at(3));
    assert_eq!(io, [Io::Lane(lanes::Event::Retained { attempt: text("a") }), assign("b", "a")]);
    let io = pool.handle(Event::Assigned { attempt: text("b") }, at(4));
    assert_eq!(io, [Io::Serve { attempt: text("b"), conns: vec![ConnId(1), ConnId(2)] }]);
    let connected = |host, conn| Event::AgentConnected { attempt: text("b"), host, conn: ConnId(conn) };
    let disconnected = |host, conn| Event::AgentDisconnected { attempt: text("b"), host, conn: ConnId(conn) };
    assert_eq!(pool.handle(connected(Host(2), 3), at(5)), []);
    assert_eq!(pool.handle(connected(Host(2), 4), at(5)), [], "a repeated connection is not the other host's");
    assert_eq!(pool.handle(disconnected(Host(2), 4), at(5)), []);
    assert_eq!(pool.handle(connected(Host(1), 5), at(5)), [], "both hosts must be connected at once");
    assert_eq!(
        pool.handle(disconnected(Host(1), 1), at(5)),
        [],
        "an older connection of an agent that has connected again"
    );
    let grant = Grant { allocation: allocation("a"), from: text("job of a"), idle: Duration::ZERO };
    assert_eq!(
        pool.handle(connected(Host(2), 6), at(6)),
        [Io::Lane(lanes::Event::Granted { attempt: text("b"), grant })]
    );
    assert_eq!(pool.deadline(), None);
}

#[test]
fn a_launch_waits_only_while_an_instance_with_its_key_is_released() {
    let mut pool = WarmPool::restore([(text("a"), text("key")), (text("other"), text("other key"))]);
    pool.handle(Event::Releasing { attempt: text("other") }, at(0));
    assert_eq!(pool.handle(requested("b"), at(0)), [declined("b")]);
    pool.handle(Event::Releasing { attempt: text("a") }, at(0));
    assert_eq!(pool.handle(requested("c"), at(0)), []);
    assert_eq!(pool.handle(Event::Left { attempt: text("a") }, at(50)), [declined("c")], "it is not retained");
    pool.handle(requested("d"), at(50));
    pool.handle(Event::Releasing { attempt: text("d") }, at(50));
    assert_eq!(pool.handle(requested("e"), at(50)), []);
    assert_eq!(pool.deadline(), Some(at(150).mono));
    assert_eq!(pool.handle(Event::Timeout, at(150)), [declined("e")], "a new instance is faster");
}

#[test]
fn agents_that_do_not_become_idle_end_with_their_attempt() {
    for (answers, expected_ms) in [([true, true, true], 10_000), ([true, false, false], 1000)] {
        let mut pool = WarmPool::default();
        pool.handle(Event::Retain { attempt: text("a"), retention: retention("a", "tuning", 1) }, at(0));
        let mut now = 0;
        let ended = loop {
            now = now.max(u64::try_from(pool.deadline().expect("a check").0.as_millis()).expect("small"));
            let io = pool.handle(Event::Timeout, at(now));
            if !io.iter().any(|io| matches!(io, Io::Check { .. })) {
                continue;
            }
            let is_running = answers[usize::from(now > 500)];
            let io =
                pool.handle(Event::Checked { allocation: allocation("a"), is_running, is_mirroring: false }, at(now));
            if io == [Io::Lane(lanes::Event::NotRetained { attempt: text("a") })] {
                break now;
            }
        };
        assert_eq!(ended, expected_ms);
        let late = Event::AgentIdle { allocation: allocation("a"), host: Host(1), conn: ConnId(1) };
        assert_eq!(pool.handle(late, at(now)), [Io::Refuse(ConnId(1))]);
    }
}

#[test]
fn an_agent_that_does_not_connect_costs_a_cold_start() {
    let mut pool = WarmPool::default();
    add_idle(&mut pool, "a", 1, 0);
    assert_eq!(pool.handle(requested("b"), at(1000)), [assign("b", "a")]);
    pool.handle(Event::Assigned { attempt: text("b") }, at(1000));
    assert_eq!(pool.handle(Event::Timeout, at(2999)).iter().find(|io| matches!(io, Io::Retire { .. })), None);
    let io = pool.handle(Event::Timeout, at(3000));
    let retired = Retired { retention: retention("a", "tuning", 1), idle: Duration::from_secs(1) };
    assert!(io.contains(&Io::Retire { conns: vec![ConnId(1)], retired }));
    assert!(io.contains(&Io::Unassign { attempt: text("b"), instance: retention("a", "tuning", 1) }));
    assert_eq!(
        pool.handle(Event::Unassigned { attempt: text("b") }, at(3010)),
        [declined("b")],
        "after the instance is stopped"
    );
}

#[test]
fn the_instance_used_last_is_assigned_and_loaded_ones_make_room() {
    let mut pool = WarmPool::default();
    add_idle(&mut pool, "a", 1, 0);
    add_idle(&mut pool, "b", 2, 1000);
    add_idle(&mut pool, "c", 3, 500);
    assert_eq!(pool.handle(requested("d"), at(1500)), [assign("d", "b")]);
    let retired = |of: &str, conn, idle| Io::Retire {
        conns: vec![ConnId(conn)],
        retired: Retired { retention: retention(of, "tuning", 1), idle: Duration::from_millis(idle) },
    };
    assert_eq!(
        pool.handle(Event::CapacityNeeded, at(2000)),
        [retired("a", 1, 2000)],
        "the other one is idle since a moment ago"
    );
    assert_eq!(pool.handle(Event::OwnerEnded { owner: text("another") }, at(2000)), []);
    assert_eq!(pool.handle(Event::OwnerEnded { owner: text("tuning") }, at(2000)), [retired("c", 3, 1500)]);
    let io = pool.handle(Event::Timeout, at(2500));
    assert!(io.contains(&Io::End(vec![retention("a", "tuning", 1), retention("c", "tuning", 1)])), "{io:?}");
}

/// Pseudo-random numbers of a seed.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).expect("31 bits") % limit
    }
}

/// Errors in the driver that the histories must find.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Planted {
    Nothing,
    /// `Cleared` is answered before the attempt is removed.
    ClearedEarly,
    /// A release is performed again when its instance serves another attempt.
    RetainRepeated,
    /// `KeepAlive` never arrives.
    KeepAliveDropped,
}

/// What an instance is in truth.
#[derive(Debug, Default)]
struct Instance {
    serves: Option<AttemptId>,
    is_clear: bool,
    idle_since: Option<u64>,
    retained: Option<Retention>,
}

/// The pool with a driver, agents and launches, in virtual time.
struct History {
    pool: WarmPool,
    random: Random,
    planted: Planted,
    now: u64,
    instances: BTreeMap<AllocationId, Instance>,
    /// The instance of each attempt that runs.
    running: BTreeMap<AttemptId, AllocationId>,
    waiting: BTreeSet<AttemptId>,
    releasing: BTreeSet<AttemptId>,
    pending: Vec<Io>,
    keep_alive_s: u32,
    attempts: u32,
    conns: u64,
    problem: Option<String>,
}

impl History {
    const JOB: &str = "job";

    fn new(seed: u64, planted: Planted) -> Self {
        Self {
            pool: WarmPool::default(),
            random: Random(seed),
            planted,
            now: 0,
            instances: BTreeMap::new(),
            running: BTreeMap::new(),
            waiting: BTreeSet::new(),
            releasing: BTreeSet::new(),
            pending: Vec::new(),
            keep_alive_s: 2,
            attempts: 0,
            conns: 0,
            problem: None,
        }
    }

    fn violate(&mut self, problem: String) {
        self.problem.get_or_insert(problem);
    }

    fn handle(&mut self, event: Event) {
        for io in self.pool.handle(event, at(self.now)) {
            match io {
                Io::Lane(event) => self.answer(event),
                Io::Retire { retired, .. } => self.retire(&retired.retention.allocation),
                Io::Refuse(_) | Io::End(_) => {}
                other => {
                    if let Io::Assign { allocation, .. } = &other
                        && let Some(instance) = self.instances.get_mut(allocation)
                    {
                        instance.idle_since = None;
                    }
                    self.pending.push(other);
                }
            }
        }
        self.pool.check();
    }

    fn answer(&mut self, event: lanes::Event) {
        match event {
            lanes::Event::Granted { attempt, grant } => {
                if !self.waiting.remove(&attempt) {
                    self.violate(format!("{attempt} is answered twice"));
                }
                self.running.insert(attempt, grant.allocation);
            }
            lanes::Event::Declined { attempt } => {
                if !self.waiting.remove(&attempt) {
                    self.violate(format!("{attempt} is answered twice"));
                }
                // A new instance is started for it.
                let allocation = AllocationId(attempt.clone());
                self.instances
                    .insert(allocation.clone(), Instance { serves: Some(attempt.clone()), ..Instance::default() });
                self.running.insert(attempt, allocation);
            }
            lanes::Event::Retained { attempt } | lanes::Event::NotRetained { attempt } => {
                self.releasing.remove(&attempt);
            }
            other => panic!("{other:?}"),
        }
    }

    fn retire(&mut self, allocation: &AllocationId) {
        if let Some(instance) = self.instances.get_mut(allocation) {
            (instance.retained, instance.idle_since) = (None, None);
        }
    }

    /// Performs one of the outputs that wait, in any order, sometimes in vain.
    fn perform(&mut self) {
        if self.pending.is_empty() {
            return;
        }
        let io = self.pending.swap_remove(self.random.below(self.pending.len()));
        match io {
            Io::Park { attempt } => {
                let hosts = if self.random.below(8) == 0 { 1 } else { 2 };
                let Some(allocation) = self.running.get(&attempt).cloned() else { return };
                (1..=hosts).for_each(|host| self.become_idle(&allocation, Host(host)));
            }
            Io::ReadKeepAlive { .. } => self.keep_alive(),
            Io::Check { allocation, .. } => {
                let is_running = self.random.below(4) > 0;
                self.handle(Event::Checked { allocation, is_running, is_mirroring: false });
            }
            Io::Clear { attempt, retention } => self.clear(&attempt, retention),
            Io::Assign { attempt, allocation } => self.assign(attempt, &allocation),
            Io::Serve { attempt, .. } => {
                let hosts = if self.random.below(8) == 0 { 1 } else { 2 };
                for host in 1..=hosts {
                    self.conns += 1;
                    self.handle(Event::AgentConnected {
                        attempt: attempt.clone(),
                        host: Host(host),
                        conn: ConnId(self.conns),
                    });
                }
            }
            Io::Unassign { attempt, instance } => {
                self.instances.remove(&instance.allocation);
                self.handle(Event::Unassigned { attempt });
            }
            other => panic!("{other:?}"),
        }
    }

    fn become_idle(&mut self, allocation: &AllocationId, host: Host) {
        self.conns += 1;
        let conn = ConnId(self.conns);
        self.handle(Event::AgentIdle { allocation: allocation.clone(), host, conn });
        if self.random.below(20) == 0 {
            self.handle(Event::AgentClosed { allocation: allocation.clone(), conn });
        }
    }

    fn clear(&mut self, attempt: &str, retention: Retention) {
        let allocation = retention.allocation.clone();
        let is_early = self.planted == Planted::ClearedEarly && self.random.below(2) == 0;
        if let Some(instance) = self.instances.get_mut(&allocation) {
            instance.is_clear = !is_early;
            if instance.serves.as_deref() == Some(attempt) {
                instance.serves = None;
            }
            (instance.idle_since, instance.retained) = (Some(self.now), Some(retention));
        }
        self.running.remove(attempt);
        self.handle(Event::Cleared { allocation });
    }

    fn assign(&mut self, attempt: AttemptId, allocation: &AllocationId) {
        let Some(instance) = self.instances.get_mut(allocation) else { return };
        let problem = match (&instance.serves, instance.is_clear) {
            (Some(other), _) => Some(format!("{allocation:?} serves {other} and is assigned to {attempt}")),
            (None, false) => Some(format!("{allocation:?} is assigned to {attempt} before it is cleared")),
            (None, true) => None,
        };
        (instance.serves, instance.is_clear, instance.idle_since) = (Some(attempt.clone()), false, None);
        if let Some(problem) = problem {
            self.violate(problem);
        }
        let event =
            if self.random.below(10) == 0 { Event::AssignFailed { attempt } } else { Event::Assigned { attempt } };
        self.handle(event);
    }

    fn keep_alive(&mut self) {
        if self.planted != Planted::KeepAliveDropped {
            self.handle(Event::KeepAlive { job: text(Self::JOB), seconds: self.keep_alive_s });
        }
    }

    fn launch(&mut self) {
        self.attempts += 1;
        let attempt = AttemptId::from(format!("attempt {}", self.attempts));
        self.waiting.insert(attempt.clone());
        self.handle(Event::Requested { attempt, key: text("key") });
    }

    fn release(&mut self) {
        let free: Vec<_> = self.running.keys().filter(|attempt| !self.releasing.contains(*attempt)).cloned().collect();
        let Some(attempt) = (!free.is_empty()).then(|| free[self.random.below(free.len())].clone()) else { return };
        self.handle(Event::Releasing { attempt: attempt.clone() });
        if self.random.below(6) == 0 {
            self.running.remove(&attempt);
            return self.handle(Event::Left { attempt });
        }
        self.releasing.insert(attempt.clone());
        self.retain(attempt.clone(), self.running[&attempt].clone());
    }

    fn retain(&mut self, attempt: AttemptId, allocation: AllocationId) {
        let policy =
            ReusePolicy { owner: text(""), idle_s: self.keep_alive_s.into(), key: text("key"), is_loaded: false };
        let retention = Retention { allocation, job: text(Self::JOB), policy, hosts: 2 };
        self.handle(Event::Retain { attempt, retention });
    }

    fn advance(&mut self, ms: u64) {
        let until = self.now + ms;
        while let Some(deadline) = self.pool.deadline().filter(|deadline| *deadline <= at(until).mono) {
            self.now = self.now.max(u64::try_from(deadline.0.as_millis()).expect("small"));
            self.handle(Event::Timeout);
        }
        self.now = until;
        let is_late = |instance: &Instance| {
            instance.idle_since.is_some_and(|since| self.now > since + u64::from(self.keep_alive_s) * 1000)
        };
        if let Some((allocation, _)) = self.instances.iter().find(|(_, instance)| is_late(instance)) {
            let problem = format!("{allocation:?} is idle for more than {} s at {} ms", self.keep_alive_s, self.now);
            self.violate(problem);
        }
    }

    fn step(&mut self) {
        match self.random.below(9) {
            0 => self.launch(),
            1 | 2 => self.release(),
            3 => {
                let ms = self.random.below(300);
                self.advance(ms as u64);
            }
            4 if self.random.below(10) == 0 => {
                self.keep_alive_s = u32::try_from(self.random.below(3)).expect("small");
                self.keep_alive();
            }
            5 if self.planted == Planted::RetainRepeated => {
                let served = self.running.iter().find(|(attempt, allocation)| **attempt != allocation.0);
                if let Some((_, allocation)) = served.map(|(attempt, allocation)| (attempt.clone(), allocation.clone()))
                {
                    self.retain(allocation.0.clone(), allocation.clone());
                    (1..=2).for_each(|host| self.become_idle(&allocation, Host(host)));
                }
            }
            _ => self.perform(),
        }
    }

    /// Runs to a state in which nothing is awaited.
    fn run(mut self) -> Result<(), String> {
        (0..200).for_each(|_| self.step());
        for _ in 0..100 {
            while !self.pending.is_empty() {
                self.perform();
            }
            self.advance(500);
        }
        if let Some(attempt) = self.waiting.first() {
            let problem = format!("{attempt} waits for an answer");
            self.violate(problem);
        }
        if let Some(attempt) = self.releasing.first() {
            let problem = format!("the release of {attempt} waits for an answer");
            self.violate(problem);
        }
        self.problem.map_or(Ok(()), Err)
    }
}

#[test]
fn in_every_history_instances_are_clear_serve_one_attempt_and_end_in_time() {
    for seed in 0..1000 {
        History::new(seed, Planted::Nothing).run().unwrap_or_else(|problem| panic!("seed {seed}: {problem}"));
    }
}

#[test]
fn histories_find_planted_errors() {
    for (planted, expected) in [
        (Planted::ClearedEarly, "before it is cleared"),
        (Planted::RetainRepeated, "serves"),
        (Planted::KeepAliveDropped, "is idle for more than"),
    ] {
        let found = (0..100).find_map(|seed| Some((seed, History::new(seed, planted).run().err()?)));
        let (seed, problem) = found.unwrap_or_else(|| panic!("{planted:?} is not found in 100 seeds"));
        println!("{planted:?} found by seed {seed}: {problem}");
        assert!(problem.contains(expected), "{planted:?} of seed {seed}: {problem}");
    }
}
