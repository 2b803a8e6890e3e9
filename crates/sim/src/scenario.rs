//! Which training jobs come, and what their programs do. The same for a seed whatever goes wrong.

use shoal_plane::{Capacity, Claim, Form, GangSpec, JobName, Limits, Node, Packing, Quotas};

use crate::random::Random;

pub(crate) mod tunings;

pub(crate) const GIB: u64 = 1 << 30;

/// One GPU, so that one job can keep another waiting; memory that the attempts which run together
/// may use up. On one node, on two that no gang spans, or on three.
pub(crate) fn capacity(seed: u64) -> Capacity {
    let node = |name: &str, cpus, gib, gpus, instances| Node {
        name: name.to_owned(),
        cpus,
        memory_bytes: gib * GIB,
        gpus,
        instances,
        has_scheduler: false,
    };
    let nodes = match seed / 2 % 3 {
        0 => vec![node(Node::LOCAL, 8, 16, 1, 8)],
        1 => vec![node("small", 4, 8, 1, 3), node("large", 8, 16, 0, 6)],
        _ => vec![node("small", 2, 5, 0, 2), node("large", 8, 12, 0, 4), node("gpu", 4, 6, 1, 2)],
    };
    let of_ben = Limits { instances: Some(4), gpus: None, jobs: Some(3) };
    let quotas = Quotas {
        users: [("ben".to_owned(), of_ben)].into(),
        half_life_s: (seed % 2 == 1).then_some(60),
        ..Quotas::default()
    };
    Capacity { spans: nodes.len() > 2, nodes, packing: Packing::Use, quotas }
}

/// Every third job is one of ben's, and one of his is urgent now and then.
fn claim(index: usize) -> Claim {
    let user = if index % 3 == 1 { "ben" } else { "anna" };
    Claim { priority: i32::from(index % 7 == 4), user: Some(user.to_owned()), tags: Vec::new() }
}

/// A training job of the scenario.
#[derive(Debug, Clone)]
pub(crate) struct Job {
    pub(crate) name: JobName,
    pub(crate) uid: String,
    pub(crate) spec: GangSpec,
    pub(crate) kind: Kind,
    /// By host number - 1.
    pub(crate) hosts: Vec<Program>,
    /// When its client asks for it; after the acknowledgement of the job before, if it follows one.
    pub(crate) at_ms: u64,
    pub(crate) follows: Option<usize>,
    /// When its client asks to stop it, from the acknowledgement of its creation on.
    pub(crate) stop_after_ms: Option<u64>,
    /// How long its instances are retained.
    pub(crate) keep_alive_s: Option<u32>,
}

/// What is to become of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Every program ends well.
    Completes,
    /// One program fails, or two.
    Fails,
    /// Runs until its user stops it, or waits until then.
    Stopped,
    /// Runs until MaxRuntimeInSeconds.
    Outruns,
    /// Runs, with interruptions, until MaxWaitTimeInSeconds.
    Overstays,
    /// Ends well, or is stopped before: both happen at about the same time.
    Races,
    /// Waits until MaxPendingTimeInSeconds, since the job before it holds the GPU.
    Starves,
    /// Serves until its user stops it; a program of it ends by itself and is replaced.
    Serves,
}

/// What runs on an instance.
#[derive(Debug, Clone)]
pub(crate) struct Program {
    pub(crate) download_ms: u64,
    /// One line and one metric value each.
    pub(crate) steps: u32,
    pub(crate) step_ms: u64,
    /// Steps between two checkpoints.
    pub(crate) saves_every: u32,
    pub(crate) end: End,
    /// From SIGTERM to the end.
    pub(crate) term_ms: u64,
    /// Of the model.
    pub(crate) parts: u32,
}

/// How a program ends by itself, after its last step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    Exit(i32),
    Signal(i32),
    OutOfMemory,
    Never,
}

/// At least fifteen jobs.
pub(crate) fn jobs(seed: u64) -> Vec<Job> {
    let mut random = Random::new(seed, 1);
    let mut kinds =
        vec![Kind::Completes, Kind::Completes, Kind::Completes, Kind::Completes, Kind::Fails, Kind::Fails, Kind::Fails];
    kinds.extend([Kind::Stopped, Kind::Outruns, Kind::Overstays, Kind::Races, Kind::Stopped, Kind::Starves]);
    for _ in 0..random.between(1, 4) {
        kinds.insert(0, random.pick(&[Kind::Completes, Kind::Fails, Kind::Stopped, Kind::Outruns, Kind::Races]));
    }
    let starving = kinds.len() - 1;
    let mut jobs: Vec<_> = (0..).zip(kinds).map(|(index, kind)| job(&mut random, index, kind, starving)).collect();
    let mut random = Random::new(seed, 7);
    for job in jobs.iter_mut().filter(|_| random.one_in(2)) {
        job.keep_alive_s = Some(u32::try_from(1 + 3 * (job.at_ms % 20)).expect("less than a minute"));
    }
    jobs.push(service(seed, jobs.len()));
    let mut random = Random::new(seed, 8);
    for index in jobs.len()..jobs.len() + random.pick(&[1, 1, 2]) {
        jobs.push(elastic(&mut random, index));
    }
    jobs
}

/// One of its programs runs long enough to have served when it ends.
fn service(seed: u64, index: usize) -> Job {
    let mut random = Random::new(seed, 6);
    let instances = random.pick(&[1, 1, 2]);
    let mut hosts: Vec<_> = (0..instances).map(|_| program(&mut random, Kind::Serves)).collect();
    hosts[0] = Program {
        steps: 40,
        step_ms: random.between(1700, 2500),
        end: random.pick(&[End::Exit(0), End::Exit(1)]),
        ..hosts[0].clone()
    };
    Job {
        name: format!("job-{index}").into(),
        uid: format!("u{index}"),
        spec: GangSpec {
            instance_type: "ml.m5.large".to_owned(),
            instances,
            other_groups: Vec::new(),
            form: Form::Ends { max_runtime_s: 0 },
            max_wait_s: None,
            max_pending_s: None,
            grace_s: 20,
            retries: 3,
            min_instances: None,
            target: None,
            claim: claim(index),
        },
        kind: Kind::Serves,
        hosts,
        at_ms: random.below(30_000),
        follows: None,
        stop_after_ms: Some(random.between(60_000, 240_000)),
        keep_alive_s: None,
    }
}

/// It can lose instances while it runs, but not the first one, whose program is the one that fails,
/// if any does.
fn elastic(random: &mut Random, index: usize) -> Job {
    let kind =
        random.pick(&[Kind::Completes, Kind::Completes, Kind::Completes, Kind::Fails, Kind::Stopped, Kind::Outruns]);
    let instances = random.pick(&[2, 3, 3, 4]);
    let runs = |program: Program, random: &mut Random| Program {
        steps: u32::try_from(random.between(12, 35)).expect("few"),
        step_ms: random.between(300, 1500),
        ..program
    };
    let mut hosts: Vec<_> = (0..instances).map(|_| program(random, kind)).collect();
    hosts = hosts.into_iter().map(|program| runs(program, random)).collect();
    if kind == Kind::Fails {
        hosts[0].end = random.pick(&[End::Exit(1), End::Signal(11), End::OutOfMemory]);
    }
    Job {
        name: format!("job-{index}").into(),
        uid: format!("u{index}"),
        spec: GangSpec {
            instance_type: random.pick(&["ml.m5.large", "ml.m5.xlarge"]).to_owned(),
            instances,
            other_groups: Vec::new(),
            form: Form::Ends { max_runtime_s: if kind == Kind::Outruns { random.between(20, 90) } else { 86_400 } },
            max_wait_s: random.one_in(2).then_some(40 * 86_400),
            max_pending_s: None,
            grace_s: 20,
            retries: random.pick(&[0, 0, 1, 3]),
            min_instances: Some(u32::try_from(random.between(1, u64::from(instances) - 1)).expect("few")),
            target: None,
            claim: claim(index),
        },
        kind,
        hosts,
        at_ms: random.below(30_000),
        follows: None,
        stop_after_ms: (kind == Kind::Stopped).then(|| random.between(10_000, 90_000)),
        keep_alive_s: None,
    }
}

fn job(random: &mut Random, index: usize, kind: Kind, starving: usize) -> Job {
    let holds_gpu = index + 1 == starving;
    let wants_gpu = holds_gpu || kind == Kind::Starves;
    let instances = match kind {
        _ if wants_gpu => 1,
        Kind::Fails => random.pick(&[1, 2, 3, 4]),
        _ => random.pick(&[1, 1, 2, 2, 3, 4]),
    };
    let mut hosts: Vec<_> = (0..instances).map(|_| program(random, kind)).collect();
    if kind == Kind::Fails {
        for _ in 0..random.between(1, 2) {
            let end = random.pick(&[End::Exit(1), End::Exit(3), End::Signal(9), End::Signal(11), End::OutOfMemory]);
            let host = usize::try_from(random.below(u64::from(instances))).expect("few hosts");
            hosts[host].end = end;
        }
    }
    let max_runtime_s = if kind == Kind::Outruns { random.between(5, 40) } else { 86_400 };
    let kinds = ["ml.m5.large", "ml.m5.xlarge", "ml.m5.2xlarge"];
    Job {
        name: format!("job-{index}").into(),
        uid: format!("u{index}"),
        spec: GangSpec {
            instance_type: (if wants_gpu { "ml.g5.xlarge" } else { random.pick(&kinds) }).to_owned(),
            instances,
            other_groups: Vec::new(),
            form: Form::Ends { max_runtime_s },
            max_wait_s: match kind {
                Kind::Overstays => Some(random.between(5, 60)),
                // For as long as any history.
                _ => random.one_in(2).then_some(40 * 86_400),
            },
            max_pending_s: (kind == Kind::Starves).then(|| random.between(5, 30)),
            grace_s: 20,
            retries: random.pick(&[0, 0, 1, 3]),
            min_instances: None,
            target: None,
            claim: claim(index),
        },
        kind,
        hosts,
        at_ms: if holds_gpu { 0 } else { random.below(30_000) },
        follows: (kind == Kind::Starves).then(|| index - 1),
        stop_after_ms: match kind {
            // Whoever waits behind it waits for so long in vain.
            Kind::Stopped if holds_gpu => Some(1_000_000),
            Kind::Stopped => Some(random.between(1, 60_000)),
            Kind::Races => Some(random.between(1, 12_000)),
            Kind::Completes | Kind::Fails | Kind::Outruns | Kind::Overstays | Kind::Starves | Kind::Serves => None,
        },
        keep_alive_s: None,
    }
}

fn program(random: &mut Random, kind: Kind) -> Program {
    Program {
        download_ms: random.between(1, 1500),
        steps: u32::try_from(random.between(2, 8)).expect("few"),
        step_ms: random.between(50, 1500),
        saves_every: u32::try_from(random.between(1, 3)).expect("few"),
        end: if matches!(kind, Kind::Stopped | Kind::Outruns | Kind::Overstays | Kind::Serves) {
            End::Never
        } else {
            End::Exit(0)
        },
        term_ms: random.between(1, 3000),
        parts: u32::try_from(random.between(0, 4)).expect("few"),
    }
}
