//! Back-filling never delays the head of the queue beyond the time at which it would fit if nobody
//! passed it.

use std::collections::BTreeMap;

use shoal_plane::{
    AttemptId, Capacity, Catalog, Claim, Command, Event, Fact, Form, GangSpec, Host, InstanceReport, JobName, Node,
    Packing, RankEnd, State, Time, step,
};

use crate::{
    random::{Random, with_seeds},
    script::GIB,
};

fn node() -> Node {
    Node { cpus: 8, memory_bytes: 64 * GIB, gpus: 0, instances: 8, ..Node::local() }
}

fn capacity() -> Capacity {
    Capacity::of(node(), Packing::Promise)
}
const GRACE_S: u32 = 20;
/// From launch to release at the worst: 600 s until the first report, MaxRuntimeInSeconds, the
/// grace, and 30 s of silence.
const BEYOND_RUNTIME_MS: u64 = (600 + GRACE_S as u64 + 30) * 1000;

/// A job that runs, as this test sees it.
struct Running {
    attempt: AttemptId,
    memory: u64,
    instances: u64,
    worst_end: Time,
    /// When it really ends.
    end: Time,
}

struct Simulation {
    random: Random,
    catalog: Catalog,
    state: State,
    now: Time,
    specs: BTreeMap<String, GangSpec>,
    running: BTreeMap<String, Running>,
    /// The head of the queue and the time by which it must have started.
    head: Option<(JobName, Time)>,
    passed: u32,
    heads: u32,
}

impl Simulation {
    fn say(&mut self, command: &Command) {
        let head = |state: &State| state.waiting().next().map(|(job, _)| job.to_owned());
        let mut before = head(&self.state);
        let Simulation { state, now, specs, running, passed, random, .. } = self;
        let each = &mut |state: &State, event: Event, _| {
            let waiting = std::mem::replace(&mut before, head(state));
            match &event.fact {
                Fact::AttemptLaunched { attempt, placement, .. } => {
                    *passed += u32::from(waiting.is_some_and(|head| *head != event.name));
                    let Form::Ends { max_runtime_s } = specs[&event.name].form else { unreachable!("none serves") };
                    let worst = max_runtime_s * 1000 + BEYOND_RUNTIME_MS;
                    let new = Running {
                        attempt: attempt.clone(),
                        memory: placement.memory_bytes * placement.gpus.len() as u64,
                        instances: placement.gpus.len() as u64,
                        worst_end: Time(now.0 + worst),
                        // A third of them takes all the time that it may.
                        end: Time(now.0 + if random.below(3) == 0 { worst } else { 1 + random.below(worst) }),
                    };
                    running.insert(event.name.clone(), new);
                }
                Fact::Released { .. } => drop(running.remove(&event.name)),
                _ => {}
            }
        };
        step(state, command, *now, each).expect("nothing here is refused");
        self.look_at_the_head();
    }

    /// Whoever becomes head gets a bound; who stays head must keep it.
    fn look_at_the_head(&mut self) {
        let head = self.state.waiting().next().map(|(job, _)| job.to_owned());
        if let Some((job, bound)) = &self.head {
            let late = head.as_ref() == Some(job) && self.now > *bound;
            assert!(!late, "{job} waits at {:?} and could have started at {bound:?} if nobody had passed it", self.now);
        }
        if head.as_ref() != self.head.as_ref().map(|(job, _)| job) {
            self.heads += u32::from(head.is_some());
            self.head = head.map(|job| {
                let bound = self.fits_by(&self.specs[&*job]);
                (job, bound)
            });
        }
    }

    /// When a job fits if all that run now take as long as they may and nobody else starts.
    fn fits_by(&self, spec: &GangSpec) -> Time {
        let kind = self.catalog.get(&spec.instance_type).expect("known").memory_bytes;
        let instances = u64::from(spec.instances);
        let memory = kind.min(node().memory_bytes / instances) * instances;
        let mut ends: Vec<Time> = self.running.values().map(|running| running.worst_end).collect();
        ends.push(self.now);
        ends.sort_unstable();
        let fits = |at: &Time| {
            let holding = || self.running.values().filter(|running| running.worst_end > *at);
            memory + holding().map(|running| running.memory).sum::<u64>() <= node().memory_bytes
                && instances + holding().map(|running| running.instances).sum::<u64>() <= u64::from(node().instances)
        };
        ends.into_iter().find(fits).expect("it fits when all are over")
    }

    fn create(&mut self, number: u64) {
        let spec = GangSpec {
            instance_type: (*self.random.pick(&["ml.m5.large", "ml.m5.xlarge", "ml.m5.2xlarge"])).to_owned(),
            instances: 1 + u32::try_from(self.random.below(4)).expect("small"),
            other_groups: Vec::new(),
            form: Form::Ends { max_runtime_s: 1 + self.random.below(5000) },
            max_pending_s: None,
            max_wait_s: None,
            grace_s: GRACE_S,
            retries: 0,
            min_instances: None,
            target: None,
            claim: Claim::default(),
        };
        let name = format!("job-{number}");
        self.specs.insert(name.clone(), spec.clone());
        self.say(&Command::CreateTrainingJob { name: name.into(), uid: format!("u{number}"), spec, name_taken: false });
    }

    /// The running job that ends first ends. Its phases fit into any time, so they are reported at
    /// the end.
    fn end_next(&mut self) {
        let Some((name, end)) =
            self.running.iter().map(|(name, running)| (name.clone(), running.end)).min_by_key(|(_, end)| *end)
        else {
            return;
        };
        self.now = end;
        let attempt = self.running[&name].attempt.clone();
        for host in 1..=self.specs[&name].instances {
            let end = RankEnd {
                code: Some(0),
                signal: None,
                out_of_memory: false,
                crowded_out: None,
                failure_file: None,
                stderr_tail: String::new(),
                at: self.now,
            };
            for report in [InstanceReport::RankEnded { end, final_metrics: Vec::new() }, InstanceReport::Uploaded] {
                self.say(&Command::InstanceReported { attempt: attempt.clone(), host: Host(host), report });
            }
        }
        self.say(&Command::ArtifactsStored { attempt: attempt.clone() });
        self.say(&Command::Released { attempt });
    }
}

#[test]
fn the_head_starts_no_later_than_if_nobody_passed_it() {
    let (mut passed, mut heads) = (0, 0);
    with_seeds(100, |seed| {
        let catalog = Catalog::default();
        let state = State::new(capacity(), catalog.clone());
        let (specs, running) = Default::default();
        let mut simulation = Simulation {
            random: Random(seed),
            catalog,
            state,
            now: Time(0),
            specs,
            running,
            head: None,
            passed: 0,
            heads: 0,
        };
        for number in 0..60 {
            simulation.create(number);
            while simulation.random.below(3) == 0 {
                simulation.end_next();
            }
        }
        while !simulation.running.is_empty() {
            simulation.end_next();
        }
        assert_eq!(simulation.state.jobs().count(), 0, "jobs are left");
        passed += simulation.passed;
        heads += simulation.heads;
    });
    assert!(passed > 100 && heads > 100, "{passed} passed {heads} heads: this test sees too little");
}
