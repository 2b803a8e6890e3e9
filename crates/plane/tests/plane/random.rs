//! Random histories: a shell and agents that crash, repeat themselves, come late and fail, driven
//! by a seed.

use std::collections::{BTreeMap, BTreeSet};

use shoal_plane::{
    Action, AttemptId, Capacity, Catalog, Claim, Command, Event, Fact, Form, GangSpec, Host, InstanceGroup,
    InstanceReport, JobStatus, Limits, MetricValue, Node, Packing, Quotas, RankEnd, Rejection, RuleVerdict, State,
    StopCause, Time, apply, decide, step,
};

pub(crate) use crate::seeds::{Random, with_seeds};
use crate::{
    golden::{golden, kind},
    script::GIB,
};

fn capacity() -> Capacity {
    let node = Node { cpus: 8, memory_bytes: 40 * GIB, gpus: 3, instances: 7, ..Node::local() };
    Capacity { quotas: quotas(), ..Capacity::of(node, Packing::Promise) }
}

fn quotas() -> Quotas {
    Quotas {
        users: [("anna".to_owned(), Limits { instances: Some(4), gpus: Some(1), jobs: None })].into(),
        default: Limits { instances: None, gpus: None, jobs: Some(2) },
        tags: [("team=vision".to_owned(), Limits { instances: Some(3), gpus: None, jobs: Some(1) })].into(),
        half_life_s: Some(60),
    }
}

/// The same on three nodes of different size.
fn nodes(spans: bool) -> Capacity {
    let node = |name: &str, cpus, gib, gpus, instances| Node {
        name: name.to_owned(),
        cpus,
        memory_bytes: gib * GIB,
        gpus,
        instances,
        has_scheduler: false,
    };
    let nodes = vec![node("small", 2, 6, 0, 2), node("large", 8, 24, 1, 4), node("gpus", 4, 20, 2, 3)];
    Capacity { nodes, spans, packing: Packing::Promise, quotas: quotas() }
}

/// How far an agent is; what it says next.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Agent {
    Starting,
    Downloading,
    Training,
    Ended,
    Silent,
}

struct World {
    random: Random,
    now: Time,
    state: State,
    capacity: Capacity,
    journal: Vec<Event>,
    agents: BTreeMap<(AttemptId, Host), Agent>,
    /// Asked for and not done.
    todo: Vec<Action>,
    stored: BTreeSet<AttemptId>,
    /// Memory, GPUs and node of each instance, from launch to release, by job.
    held: BTreeMap<String, BTreeMap<Host, (u64, usize, String)>>,
    created: u32,
    /// For whom each job is, by its name.
    claims: BTreeMap<String, Claim>,
    /// Few jobs at the same time.
    calm: bool,
    /// Names of those that serve: nothing but a stop ends them.
    services: BTreeSet<String>,
}

impl World {
    fn new(seed: u64, capacity: Capacity) -> World {
        let state = State::new(capacity.clone(), Catalog::default());
        let (journal, agents, todo, stored, held, claims, services) = Default::default();
        World {
            random: Random(seed),
            now: Time(1_000_000),
            state,
            capacity,
            journal,
            agents,
            todo,
            stored,
            held,
            claims,
            created: 0,
            calm: seed.is_multiple_of(3),
            services,
        }
    }

    fn say(&mut self, command: &Command) -> Result<(), Rejection> {
        let World { state, now, todo, held, claims, journal, .. } = self;
        step(state, command, *now, &mut |state, event, effects| {
            state.sanity_check().unwrap_or_else(|broken| panic!("{broken}, after {command:?} -> {event:?}"));
            assert!(effects.requests.is_empty(), "there is no tuning job");
            todo.extend(effects.actions);
            match &event.fact {
                Fact::JobCreated { spec, .. } => drop(claims.insert(event.name.clone(), spec.claim.clone())),
                Fact::AttemptLaunched { placement, .. } => {
                    let of_host = |host| (placement.share(host).memory_bytes, placement.node(host).to_owned());
                    let all = Host::numbered().zip(&placement.gpus).map(|(host, gpus)| {
                        let (memory, node) = of_host(host);
                        (host, (memory, gpus.len(), node))
                    });
                    held.insert(event.name.clone(), all.collect());
                }
                Fact::InstancesCleared { hosts, .. } => {
                    let of_job = held.get_mut(&event.name).expect("it was launched");
                    of_job.retain(|host, _| !hosts.contains(host));
                }
                Fact::InstancesAdded { hosts, gpus, nodes, .. } => {
                    let of_job = held.get_mut(&event.name).expect("it was launched");
                    let memory = of_job.values().next().expect("one at least").0;
                    let node = |place| nodes.get(place).map_or(Node::LOCAL, String::as_str).to_owned();
                    let added = hosts.iter().zip(gpus).enumerate();
                    of_job.extend(added.map(|(place, (host, gpus))| (*host, (memory, gpus.len(), node(place)))));
                }
                Fact::Released { .. } => drop(held.remove(&event.name)),
                _ => {}
            }
            journal.push(event);
        })?;
        self.check();
        Ok(())
    }

    fn check(&self) {
        let pending = self.state.pending().actions;
        for action in &self.todo {
            if let Action::StoreArtifacts { attempt, .. } | Action::Release { attempt, .. } = action
                && self.state.job_of(attempt).is_some()
            {
                let answerable = pending.contains(action) || self.stored.contains(attempt);
                assert!(answerable, "{action:?} was asked for, is not done, and is forgotten");
            }
        }
        for Node { name, memory_bytes, gpus, instances, .. } in &self.capacity.nodes {
            let mut held = (0, 0, 0_u64);
            for (memory, of_host, _) in self.held.values().flatten().map(|(_, it)| it).filter(|it| it.2 == *name) {
                held = (held.0 + memory, held.1 + of_host, held.2 + 1);
            }
            assert!(
                held.0 <= *memory_bytes && held.1 <= *gpus as usize && held.2 <= u64::from(*instances),
                "{held:?} are held of {name}"
            );
        }
        self.check_quotas();
        for (job, instances) in &self.held {
            let nodes = BTreeSet::from_iter(instances.values().map(|(.., node)| node));
            assert!(nodes.len() <= 1 || self.capacity.spans, "{job} is on {nodes:?}");
            let is_known = |node: &&String| self.capacity.node(node).is_some();
            assert!(nodes.iter().all(is_known), "{job} is on {nodes:?}");
        }
    }

    fn check_quotas(&self) {
        let Quotas { users, default, tags, .. } = &self.capacity.quotas;
        let of_user = |name: &str| users.get(name).unwrap_or(default);
        let mut held: BTreeMap<String, (&Limits, [u32; 3])> = BTreeMap::new();
        for (job, instances) in &self.held {
            let claim = &self.claims[job];
            let count = |length: usize| u32::try_from(length).expect("few");
            let used = [count(instances.len()), count(instances.values().map(|it| it.1).sum()), 1];
            let user = claim.user.iter().map(|name| (format!("user:{name}"), of_user(name)));
            let tag = claim.tags.iter().map(|tag| (format!("tag:{tag}"), &tags[tag]));
            for (name, limits) in user.chain(tag) {
                let sum = &mut held.entry(name).or_insert((limits, [0; 3])).1;
                sum.iter_mut().zip(used).for_each(|(sum, used)| *sum += used);
            }
        }
        for (name, (limits, used)) in held {
            let all = [limits.instances, limits.gpus, limits.jobs];
            let is_kept = all.iter().zip(used).all(|(limit, used)| limit.is_none_or(|limit| used <= limit));
            assert!(is_kept, "{name} has {used:?} of {limits:?}");
        }
    }

    fn step(&mut self) {
        self.now = Time(self.now.0 + self.random.below(400));
        match self.random.below(20) {
            0..=3 => self.create(),
            4 => self.stop(),
            5 => self.now = Time(self.now.0 + self.random.below(60_000)),
            6 => self.crash(),
            7 if self.random.one_in(2) => self.interrupt(),
            7 => self.say(&Command::Tick).expect("a tick is never refused"),
            8..=12 => self.act(),
            _ => self.report(),
        }
        if self.state.next_deadline().is_some_and(|deadline| deadline <= self.now) {
            self.say(&Command::Tick).expect("a tick is never refused");
            assert!(
                self.state.next_deadline().is_none_or(|deadline| deadline > self.now),
                "a tick leaves a deadline behind"
            );
        }
    }

    /// Of one of two users, some with a tag or a priority; or of no user.
    fn claim(&mut self) -> Claim {
        if self.random.one_in(4) {
            return Claim::default();
        }
        let user = Some((*self.random.pick(&["anna", "ben"])).to_owned());
        let tags = if self.random.one_in(3) { vec!["team=vision".to_owned()] } else { Vec::new() };
        let priority = if self.random.one_in(5) { 1 } else { 0 };
        Claim { priority, user, tags }
    }

    fn create(&mut self) {
        // With a short queue, and while programs run for long, jobs that lost instances get others.
        if self.calm && self.state.jobs().count() > 1 {
            return;
        }
        self.created += 1;
        let kinds = ["ml.m5.large", "ml.m5.xlarge", "ml.m5.4xlarge", "ml.g5.xlarge", "ml.p3.8xlarge", "ml.none"];
        let instances = u32::try_from(self.random.below(9)).expect("small");
        let mut other_groups = Vec::new();
        if instances > 1 && self.random.one_in(4) {
            let of_group = 1 + u32::try_from(self.random.below(u64::from(instances) - 1)).expect("small");
            other_groups
                .push(InstanceGroup { instance_type: (*self.random.pick(&kinds)).to_owned(), instances: of_group });
        }
        let is_elastic = instances > 1 && other_groups.is_empty() && self.random.one_in(2);
        let min_instances =
            is_elastic.then(|| 1 + u32::try_from(self.random.below(u64::from(instances))).expect("small"));
        let spec = GangSpec {
            instance_type: (*self.random.pick(&kinds)).to_owned(),
            instances,
            other_groups,
            form: Form::Ends { max_runtime_s: 1 + self.random.below(600) },
            max_pending_s: self.random.one_in(3).then_some(self.random.below(300)),
            max_wait_s: self.random.one_in(2).then_some(self.random.below(3000)),
            grace_s: 20,
            retries: [0, 0, 1, 3][self.random.below(4) as usize],
            min_instances,
            target: None,
            claim: self.claim(),
        };
        let name = format!("job-{}", self.created - u32::from(self.random.one_in(10)));
        let (uid, name_taken) = (format!("u{}", self.created), self.random.one_in(20));
        let spec = if self.random.one_in(6) {
            self.services.insert(name.clone());
            GangSpec { form: Form::Serves, min_instances: None, ..spec }
        } else {
            spec
        };
        let create = Command::CreateTrainingJob { name: name.into(), uid, spec, name_taken };
        // A refusal is as good an answer.
        let _ = self.say(&create);
    }

    fn stop(&mut self) {
        let name = format!("job-{}", self.random.below(u64::from(self.created) + 2));
        let _ = self.say(&Command::StopTrainingJob {
            name: name.into(),
            cause: StopCause::User,
            ended: Some(JobStatus::Stopped),
        });
    }

    fn interrupt(&mut self) {
        let name = format!("job-{}", self.random.below(u64::from(self.created) + 2));
        let instances = [None, None, Some(1), Some(2)][self.random.below(4) as usize];
        let _ =
            self.say(&Command::InterruptTrainingJob { name: name.into(), instances, ended: Some(JobStatus::Stopped) });
    }

    /// All that is not durable is gone: what was asked for and not done is asked for again.
    fn crash(&mut self) {
        let snapshot = self.state.snapshot();
        let restored =
            State::from_snapshot(&snapshot, self.capacity.clone(), Catalog::default()).expect("just written");
        assert_eq!(restored, self.state, "a snapshot gives another state");
        self.state = restored;
        self.todo = self.state.pending().actions;
    }

    fn replay(&self) {
        let mut replayed = State::new(self.capacity.clone(), Catalog::default());
        for event in &self.journal {
            apply(&mut replayed, &Event::decode(&event.encode()).expect("just encoded"));
        }
        assert_eq!(replayed, self.state, "a replay gives another state");
    }

    fn act(&mut self) {
        if self.todo.is_empty() {
            return;
        }
        let index = self.random.below(self.todo.len() as u64) as usize;
        let action = self.todo.swap_remove(index);
        match action {
            Action::Launch { attempt, .. }
                if self.random.one_in(12) && !self.agents.contains_key(&(attempt.clone(), Host(1))) =>
            {
                self.say(&Command::LaunchFailed { attempt, reason: "no".to_owned() }).expect("never refused");
            }
            Action::Launch { attempt, hosts, .. } => {
                // Launches are done once, and not after the release.
                if self.state.job_of(&attempt).is_some() {
                    for host in hosts {
                        self.agents.entry((attempt.clone(), host)).or_insert(Agent::Starting);
                    }
                }
            }
            Action::StopInstances { .. }
            | Action::InterruptInstances { .. }
            | Action::SetMembers { .. }
            | Action::Freeze { .. }
            | Action::Resume { .. } => {}
            Action::ClearInstances { attempt, hosts } => {
                self.agents.retain(|(of, host), _| *of != attempt || !hosts.contains(host));
                self.say(&Command::InstancesCleared { attempt, hosts }).expect("never refused");
            }
            Action::StoreArtifacts { attempt, .. } => {
                self.stored.insert(attempt.clone());
                let command = if self.random.one_in(8) {
                    Command::ArtifactsFailed { attempt, reason: "disk full".to_owned() }
                } else {
                    Command::ArtifactsStored { attempt }
                };
                self.say(&command).expect("never refused");
            }
            Action::Release { attempt, .. } => {
                self.agents.retain(|(of, _), _| *of != attempt);
                self.say(&Command::Released { attempt }).expect("never refused");
            }
        }
    }

    fn report(&mut self) {
        let speaking: Vec<_> =
            self.agents.iter().filter(|(_, agent)| **agent != Agent::Silent).map(|(key, _)| key.clone()).collect();
        if speaking.is_empty() {
            return;
        }
        let (attempt, host) = self.random.pick(&speaking).clone();
        let agent = self.agents[&(attempt.clone(), host)];
        let (next, report) = match agent {
            _ if self.random.one_in(25) => (Agent::Silent, InstanceReport::Lost { reason: "agent died".to_owned() }),
            Agent::Training if self.random.one_in(3) || self.calm && !self.random.one_in(40) => (
                agent,
                InstanceReport::CheckpointSaved {
                    path: "a/b".to_owned(),
                    bytes: self.random.below(9),
                    sha256: "0".repeat(64),
                },
            ),
            Agent::Training if self.random.one_in(12) => (
                agent,
                InstanceReport::RuleEvaluated {
                    rule: self.random.pick(&["nan", "loss"]).to_string(),
                    verdict: *self.random.pick(&[
                        RuleVerdict::IssuesFound,
                        RuleVerdict::NoIssuesFound,
                        RuleVerdict::Error,
                        RuleVerdict::Unobserved,
                    ]),
                    details: String::new(),
                    stops: self.random.one_in(4),
                },
            ),
            Agent::Starting => (Agent::Downloading, InstanceReport::Downloading),
            Agent::Downloading => (Agent::Training, InstanceReport::Training),
            Agent::Training => (Agent::Ended, self.end()),
            Agent::Ended | Agent::Silent => (Agent::Silent, InstanceReport::Uploaded),
        };
        self.agents.insert((attempt.clone(), host), next);
        let repeats = 1 + self.random.below(2);
        let late = Command::InstanceReported { attempt: attempt.clone(), host, report: InstanceReport::Downloading };
        let command = Command::InstanceReported { attempt, host, report };
        for _ in 0..repeats {
            self.say(&command).expect("reports are never refused");
        }
        assert_eq!(
            decide(&self.state, &late, self.now).map(|events| events.len()),
            Ok(0),
            "a late report yields events"
        );
    }

    fn end(&mut self) -> InstanceReport {
        let how = self.random.below(12);
        let end = RankEnd {
            code: (how != 1 && how != 2).then_some(i32::from(how == 0)),
            signal: (how == 1).then_some(9),
            out_of_memory: how == 2,
            crowded_out: None,
            failure_file: self.random.one_in(3).then(|| "failed".repeat(300)),
            stderr_tail: "Traceback".to_owned(),
            at: Time(self.now.0 - self.random.below(100)),
        };
        let value = *self.random.pick(&[0.1, 1.0, 1e-300, f64::NAN, 1.0 / 3.0]);
        let final_metrics = vec![MetricValue { name: "auc".to_owned(), value, at: self.now }];
        InstanceReport::RankEnded { end, final_metrics }
    }

    /// All that was asked for is done and all agents say all; no time passes but for what settles
    /// failures. Services are stopped.
    fn drain(&mut self) {
        for name in std::mem::take(&mut self.services) {
            // It may be over.
            let _ = self.say(&Command::StopTrainingJob {
                name: name.into(),
                cause: StopCause::User,
                ended: Some(JobStatus::Stopped),
            });
        }
        for _ in 0..20_000 {
            if self.state.jobs().next().is_none() {
                return;
            }
            self.act();
            self.report();
            if self.todo.is_empty() && self.agents.values().all(|agent| *agent == Agent::Silent) {
                break;
            }
        }
        let left: Vec<_> = self.state.jobs().map(|job| (job, self.state.view(job))).collect();
        assert!(left.is_empty(), "all was said and done, and these have not ended: {left:#?}");
    }
}

#[test]
fn every_history_keeps_the_invariants_and_every_job_ends() {
    let mut kinds = BTreeSet::new();
    with_seeds(150, |seed| {
        let mut world = World::new(seed, capacity());
        for _ in 0..300 {
            world.step();
        }
        world.replay();
        world.drain();
        for event in &world.journal {
            if kinds.insert(kind(event)) {
                golden(&kind(event), &event.encode());
            }
        }
    });
    assert_eq!(kinds.len(), 21, "the histories show only {kinds:?}");
}

#[test]
fn no_node_is_given_more_than_it_has() {
    let mut on_several = 0;
    with_seeds(150, |seed| {
        let mut world = World::new(seed, nodes(seed.is_multiple_of(2)));
        for _ in 0..300 {
            world.step();
        }
        world.replay();
        world.drain();
        on_several += world.journal.iter().filter(|event| is_on_several(event)).count();
    });
    assert!(on_several > 100, "gangs span nodes in {on_several} attempts only");
}

fn is_on_several(event: &Event) -> bool {
    let Fact::AttemptLaunched { placement, .. } = &event.fact else { return false };
    placement.nodes.iter().any(|node| *node != placement.nodes[0])
}

#[test]
fn no_order_of_events_panics() {
    with_seeds(50, |seed| {
        let mut world = World::new(seed, if seed.is_multiple_of(2) { capacity() } else { nodes(seed % 4 == 1) });
        for _ in 0..200 {
            world.step();
        }
        let mut state = State::new(world.capacity.clone(), Catalog::default());
        for _ in 0..world.journal.len() * 2 {
            let event = world.random.pick(&world.journal).clone();
            apply(&mut state, &event);
            state.next_deadline();
            state.pending();
            for job in state.jobs() {
                state.view(job);
            }
            // Whatever state that is, deciding in it does not panic either.
            let _ = decide(&state, &Command::Tick, Time(event.at.0 + 1_000_000));
        }
    });
}
