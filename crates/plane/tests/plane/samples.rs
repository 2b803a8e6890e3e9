//! Histories of single jobs, for golden snapshots.

use shoal_plane::{Event, Fact, Form, GangSpec, InstancePhase, Placement, SecondaryStatus, Time, TrainingSpec};

use crate::{golden::at_a_time, script::GIB};

/// A job in its second attempt, which is failing too.
pub(crate) fn retried() -> Vec<Event> {
    let text = |text: &str| text.to_owned();
    let spec = TrainingSpec {
        instance_type: text("ml.m5.large"),
        instances: 1,
        other_groups: Vec::new(),
        max_runtime_s: 60,
        max_pending_s: None,
        max_wait_s: None,
        grace_s: 9,
        retries: 3,
        min_instances: None,
    };
    let placement = Placement {
        cpus: 1,
        cpu_weight: 100,
        memory_bytes: GIB,
        gpus: vec![vec![]],
        capped: None,
        others: Vec::new(),
        reserve_bytes: None,
    };
    let launched = |attempt: &str| Fact::AttemptLaunched {
        attempt: text(attempt),
        placement: placement.clone(),
        lease_s: 3660,
        message: text("Preparing the instances for training"),
    };
    let failed = |attempt: &str| Fact::AttemptFailed {
        attempt: text(attempt),
        reason: text("InternalServerError: algo-1: no space left on device"),
        message: text("Starting the training job again"),
        replaced: false,
    };
    at_a_time(vec![
        failed("5f1c-1"),
        Fact::JobCreated { uid: text("5f1c"), spec: GangSpec::from(&spec), message: text("Starting the training job"), trial: None },
        launched("5f1c-1"),
        Fact::JobMoved { secondary: SecondaryStatus::Downloading, message: text("Downloading input data") },
        failed("5f1c-1"),
        Fact::ReleaseOrdered { attempt: text("5f1c-1") },
        Fact::Released { attempt: Some(text("5f1c-1")) },
        launched("5f1c-2"),
        Fact::JobMoved { secondary: SecondaryStatus::Downloading, message: text("Downloading input data") },
        failed("5f1c-2"),
    ])
}

/// A managed spot training in its second attempt, which is being interrupted too.
pub(crate) fn interrupted() -> Vec<Event> {
    let text = |text: &str| text.to_owned();
    let spec = TrainingSpec {
        instance_type: text("ml.m5.large"),
        instances: 1,
        other_groups: Vec::new(),
        max_runtime_s: 60,
        max_pending_s: None,
        max_wait_s: Some(90),
        grace_s: 9,
        retries: 0,
        min_instances: None,
    };
    let placement = Placement {
        cpus: 1,
        cpu_weight: 100,
        memory_bytes: GIB,
        gpus: vec![vec![]],
        capped: None,
        others: Vec::new(),
        reserve_bytes: None,
    };
    let launched = |attempt: &str| Fact::AttemptLaunched {
        attempt: text(attempt),
        placement: placement.clone(),
        lease_s: 3660,
        message: text("Preparing the instances for training"),
    };
    let interrupted = |attempt: &str| Fact::AttemptInterrupted { attempt: text(attempt), message: text("Interrupted") };
    at_a_time(vec![
        interrupted("5f1c-1"),
        Fact::JobCreated { uid: text("5f1c"), spec: GangSpec::from(&spec), message: text("Starting the training job"), trial: None },
        launched("5f1c-1"),
        Fact::JobMoved { secondary: SecondaryStatus::Downloading, message: text("Downloading input data") },
        interrupted("5f1c-1"),
        Fact::ReleaseOrdered { attempt: text("5f1c-1") },
        Fact::Released { attempt: Some(text("5f1c-1")) },
        launched("5f1c-2"),
        Fact::JobMoved { secondary: SecondaryStatus::Downloading, message: text("Downloading input data") },
        interrupted("5f1c-2"),
    ])
}

/// A job that holds what it uses, in its second attempt after the machine's memory ran short.
pub(crate) fn evicted() -> Vec<Event> {
    let text = |text: &str| text.to_owned();
    let Some(Fact::JobCreated { spec, .. }) = interrupted().into_iter().map(|event| event.fact).nth(1) else { panic!("it is created") };
    let launched = |attempt: &str, reserve_bytes: u64| Fact::AttemptLaunched {
        attempt: text(attempt),
        placement: Placement {
            cpus: 1,
            cpu_weight: 200,
            memory_bytes: 8 * GIB,
            gpus: vec![vec![]],
            capped: None,
            others: Vec::new(),
            reserve_bytes: Some(reserve_bytes),
        },
        lease_s: 3660,
        message: text("Preparing the instances for training"),
    };
    at_a_time(vec![
        Fact::AttemptEvicted { attempt: text("5f1c-1"), used_bytes: 5 * GIB, message: text("Ended") },
        Fact::JobCreated { uid: text("5f1c"), spec, message: text("Starting the training job"), trial: None },
        launched("5f1c-1", GIB),
        Fact::JobMoved { secondary: SecondaryStatus::Downloading, message: text("Downloading input data") },
        Fact::AttemptEvicted { attempt: text("5f1c-1"), used_bytes: 5 * GIB, message: text("Ended") },
        Fact::ReleaseOrdered { attempt: text("5f1c-1") },
        Fact::Released { attempt: Some(text("5f1c-1")) },
        launched("5f1c-2", 6 * GIB),
        Fact::JobMoved { secondary: SecondaryStatus::Downloading, message: text("Downloading input data") },
        Fact::AttemptEvicted { attempt: text("5f1c-2"), used_bytes: 7 * GIB, message: text("Ended") },
    ])
}

/// A job that can live with two instances of four: of the others one is absent, one starts again.
pub(crate) fn elastic() -> Vec<Event> {
    let text = |text: &str| text.to_owned();
    let attempt = || text("5f1c-1");
    let Some(Fact::JobCreated { spec, .. }) = interrupted().into_iter().map(|event| event.fact).nth(1) else { panic!("it is created") };
    let spec = GangSpec { instances: 4, min_instances: Some(2), ..spec };
    let placement = Placement {
        cpus: 1,
        cpu_weight: 200,
        memory_bytes: 6 * GIB,
        gpus: vec![vec![]; 4],
        capped: None,
        others: Vec::new(),
        reserve_bytes: None,
    };
    let launched = Fact::AttemptLaunched { attempt: attempt(), placement, lease_s: 3660, message: text("Preparing") };
    let training = |host| Fact::InstanceMoved { attempt: attempt(), host, phase: InstancePhase::Training };
    let vacated = |hosts: &[u32]| Fact::InstancesVacated { attempt: attempt(), hosts: hosts.to_vec(), message: None };
    let mut facts = vec![
        Fact::JobCreated { uid: text("5f1c"), spec, message: text("Starting the training job"), trial: None },
        launched,
        Fact::JobMoved { secondary: SecondaryStatus::Downloading, message: text("Downloading input data") },
    ];
    facts.extend((1..=4).map(training));
    facts.extend([
        Fact::InstancesInterrupted { attempt: attempt(), hosts: vec![4], message: text("Training on 3 of 4 instances") },
        vacated(&[4]),
        Fact::InstanceLost { attempt: attempt(), host: 3, reason: text("killed") },
        vacated(&[3]),
        Fact::InstancesCleared { attempt: attempt(), hosts: vec![3], until: Some(Time(1_700_000_001_000)) },
        Fact::InstancesCleared { attempt: attempt(), hosts: vec![4], until: None },
        Fact::ReplacementAllowed { attempt: attempt(), hosts: vec![3] },
        Fact::InstancesAdded {
            attempt: attempt(),
            hosts: vec![4],
            gpus: vec![vec![]],
            message: text("Training on 3 of 4 instances: algo-4 is being added"),
        },
    ]);
    at_a_time(facts)
}

/// A service in its second attempt, which has failed after it had served.
pub(crate) fn served() -> Vec<Event> {
    let text = |text: &str| text.to_owned();
    let spec = GangSpec {
        instance_type: text("ml.m5.large"),
        instances: 1,
        other_groups: Vec::new(),
        form: Form::Serves,
        max_pending_s: None,
        max_wait_s: None,
        grace_s: 9,
        retries: 3,
        min_instances: None,
    };
    let Some(launched) = retried().into_iter().map(|event| event.fact).nth(2) else { panic!("it is launched") };
    let failed = |attempt: &str, replaced| Fact::AttemptFailed {
        attempt: text(attempt),
        reason: text("AlgorithmError, exit code: 0"),
        message: text("Starting again"),
        replaced,
    };
    let mut second = launched.clone();
    if let Fact::AttemptLaunched { attempt, .. } = &mut second {
        *attempt = text("5f1c-2");
    }
    at_a_time(vec![
        Fact::JobCreated { uid: text("5f1c"), spec, message: text("Starting the training job"), trial: None },
        launched,
        Fact::JobMoved { secondary: SecondaryStatus::Downloading, message: text("Downloading input data") },
        failed("5f1c-1", false),
        Fact::ReleaseOrdered { attempt: text("5f1c-1") },
        Fact::Released { attempt: Some(text("5f1c-1")) },
        second,
        Fact::JobMoved { secondary: SecondaryStatus::Downloading, message: text("Downloading input data") },
        failed("5f1c-2", true),
    ])
}
