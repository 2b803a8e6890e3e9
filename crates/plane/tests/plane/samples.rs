//! Histories of single jobs, for golden snapshots.

use shoal_plane::{
    AttemptId, Claim, Event, Fact, Form, GangSpec, Host, InstancePhase, Placement, SecondaryStatus, Time,
};

use crate::{golden::at_a_time, script::GIB};

fn text(text: &str) -> String {
    text.to_owned()
}

/// One instance for a minute.
pub(crate) fn training() -> GangSpec {
    GangSpec {
        instance_type: text("ml.m5.large"),
        instances: 1,
        other_groups: Vec::new(),
        form: Form::Ends { max_runtime_s: 60 },
        max_pending_s: None,
        max_wait_s: None,
        grace_s: 9,
        retries: 3,
        min_instances: None,
        target: None,
        claim: Claim::default(),
    }
}

/// The same as managed spot training.
fn spot() -> GangSpec {
    GangSpec { max_wait_s: Some(90), retries: 0, ..training() }
}

/// One instance with a core and 1 GiB.
pub(crate) fn placement() -> Placement {
    Placement {
        cpus: 1,
        cpu_weight: 100,
        memory_bytes: GIB,
        gpus: vec![vec![]],
        capped: None,
        others: Vec::new(),
        reserve_bytes: None,
        nodes: Vec::new(),
    }
}

fn created(spec: GangSpec) -> Fact {
    Fact::JobCreated { uid: text("5f1c"), spec, message: text("Starting the training job"), trial: None }
}

fn launched(attempt: &str, placement: Placement) -> Fact {
    Fact::AttemptLaunched {
        attempt: attempt.into(),
        placement,
        lease_s: 3660,
        message: text("Preparing the instances for training"),
    }
}

fn downloading() -> Fact {
    Fact::JobMoved { secondary: SecondaryStatus::Downloading, message: text("Downloading input data") }
}

/// A first attempt that begins and ends by this fact, a second one that does, too.
fn twice(spec: GangSpec, launched: impl Fn(u32) -> Fact, ends: impl Fn(u32) -> Fact) -> Vec<Fact> {
    let first = AttemptId::from("5f1c-1");
    let release = [Fact::ReleaseOrdered { attempt: first.clone() }, Fact::Released { attempt: Some(first) }];
    let attempt = |number| [launched(number), downloading(), ends(number)];
    [created(spec)].into_iter().chain(attempt(1)).chain(release).chain(attempt(2)).collect()
}

fn attempt(number: u32) -> AttemptId {
    format!("5f1c-{number}").into()
}

/// A job in its second attempt, which is failing too.
pub(crate) fn retried() -> Vec<Event> {
    let failed = |number| Fact::AttemptFailed {
        attempt: attempt(number),
        reason: text("InternalServerError: algo-1: no space left on device"),
        message: text("Starting the training job again"),
        replaced: false,
    };
    let facts = twice(training(), |number| launched(&attempt(number), placement()), failed);
    at_a_time([failed(1)].into_iter().chain(facts).collect())
}

/// A managed spot training in its second attempt, which is being interrupted too.
pub(crate) fn interrupted() -> Vec<Event> {
    let interrupted = |number| Fact::AttemptInterrupted { attempt: attempt(number), message: text("Interrupted") };
    let facts = twice(spot(), |number| launched(&attempt(number), placement()), interrupted);
    at_a_time([interrupted(1)].into_iter().chain(facts).collect())
}

/// A job that holds what it uses, in its second attempt after the machine's memory ran short.
pub(crate) fn evicted() -> Vec<Event> {
    let launched = |number: u32| {
        let reserve_bytes = Some([GIB, 6 * GIB][number as usize - 1]);
        launched(&attempt(number), Placement { cpu_weight: 200, memory_bytes: 8 * GIB, reserve_bytes, ..placement() })
    };
    let evicted = |number: u32| {
        let used_bytes = [5 * GIB, 7 * GIB][number as usize - 1];
        Fact::AttemptEvicted { attempt: attempt(number), used_bytes, message: text("Ended") }
    };
    at_a_time([evicted(1)].into_iter().chain(twice(spot(), launched, evicted)).collect())
}

/// A job that can live with two instances of four: of the others one is absent, one starts again.
pub(crate) fn elastic() -> Vec<Event> {
    let attempt = || attempt(1);
    let spec = GangSpec { instances: 4, min_instances: Some(2), ..spot() };
    let placement = Placement { cpu_weight: 200, memory_bytes: 6 * GIB, gpus: vec![vec![]; 4], ..placement() };
    let training = |host| Fact::InstanceMoved { attempt: attempt(), host, phase: InstancePhase::Training };
    let vacated = |hosts: &[Host]| Fact::InstancesVacated { attempt: attempt(), hosts: hosts.to_vec(), message: None };
    let launched = Fact::AttemptLaunched { attempt: attempt(), placement, lease_s: 3660, message: text("Preparing") };
    let mut facts = vec![created(spec), launched, downloading()];
    facts.extend(Host::all(4).map(training));
    facts.extend([
        Fact::InstancesInterrupted {
            attempt: attempt(),
            hosts: vec![Host(4)],
            message: text("Training on 3 of 4 instances"),
        },
        vacated(&[Host(4)]),
        Fact::InstanceLost { attempt: attempt(), host: Host(3), reason: text("killed") },
        vacated(&[Host(3)]),
        Fact::InstancesCleared { attempt: attempt(), hosts: vec![Host(3)], until: Some(Time(1_700_000_001_000)) },
        Fact::InstancesCleared { attempt: attempt(), hosts: vec![Host(4)], until: None },
        Fact::ReplacementAllowed { attempt: attempt(), hosts: vec![Host(3)] },
        Fact::InstancesAdded {
            attempt: attempt(),
            hosts: vec![Host(4)],
            gpus: vec![vec![]],
            nodes: Vec::new(),
            message: text("Training on 3 of 4 instances: algo-4 is being added"),
        },
    ]);
    at_a_time(facts)
}

/// The same on two nodes; the instance that starts again is on another one than before.
pub(crate) fn on_nodes() -> Vec<Event> {
    let named = |names: &[&str]| Vec::from_iter(names.iter().map(|name| text(name)));
    let on_nodes = |mut event: Event| {
        match &mut event.fact {
            Fact::AttemptLaunched { placement, .. } => placement.nodes = named(&["a", "a", "b", "b"]),
            Fact::InstancesAdded { nodes, .. } => *nodes = named(&["a"]),
            _ => {}
        }
        event
    };
    elastic().into_iter().map(on_nodes).collect()
}

/// A service in its second attempt, which has failed after it had served.
pub(crate) fn served() -> Vec<Event> {
    let spec = GangSpec { form: Form::Serves, ..training() };
    let failed = |number| Fact::AttemptFailed {
        attempt: attempt(number),
        reason: text("AlgorithmError, exit code: 0"),
        message: text("Starting again"),
        replaced: number == 2,
    };
    at_a_time(twice(spec, |number| launched(&attempt(number), placement()), failed))
}

/// A retried job that counts for a user and a tag.
pub(crate) fn claimed() -> Vec<Event> {
    let mut events = retried();
    for event in &mut events {
        if let Fact::JobCreated { spec, .. } = &mut event.fact {
            spec.claim = Claim { priority: -2, user: Some(text("anna")), tags: vec![text("team=vision")] };
        }
    }
    events
}
