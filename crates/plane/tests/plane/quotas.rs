//! Who may hold how much, and whose turn it is between users.

use shoal_plane::{Capacity, Limits, Node, Packing, Quotas, State};

use crate::script::{GIB, check};

/// Room for four jobs of `m5.large`, and for `anna`'s and `team=vision`'s quotas.
fn shared(half_life_s: Option<u64>) -> Capacity {
    let node = Node { cpus: 8, memory_bytes: 32 * GIB, gpus: 2, instances: 4, ..Node::local() };
    let quotas = Quotas {
        users: [("anna".to_owned(), Limits { jobs: Some(1), instances: Some(2), gpus: None })].into(),
        default: Limits { gpus: Some(1), ..Limits::default() },
        tags: [("team=vision".to_owned(), Limits { instances: Some(1), ..Limits::default() })].into(),
        half_life_s,
    };
    Capacity { quotas, ..Capacity::of(node, Packing::Promise) }
}

#[test]
fn a_job_beyond_a_quota_waits_with_the_quotas_name_and_delays_nobody_else() {
    check(
        shared(None),
        "
        0 create a m5.large 1 user=anna
            a created: Starting the training job
            a launched ua-1: 1 x 2 CPUs, 8.0 GiB, GPUs [], lease 90000 s: Preparing the instances for training
            -> launch ua-1 on 1
        10 create b m5.large 1 user=anna
            b created: Starting the training job
            b Pending: Waiting for the quota user:anna: needs 1 running job, 0 of 1 left; 1st in the queue
        20 create c m5.large 1 user=ben
            c created: Starting the training job
            c launched uc-1: 1 x 2 CPUs, 8.0 GiB, GPUs [], lease 90000 s: Preparing the instances for training
            -> launch uc-1 on 1
        30 create d m5.large 1 user=ben tag=team=vision
            d created: Starting the training job
            d launched ud-1: 1 x 2 CPUs, 8.0 GiB, GPUs [], lease 90000 s: Preparing the instances for training
            -> launch ud-1 on 1
        40 create e m5.large 1 user=cora tag=team=vision
            e created: Starting the training job
            e Pending: Waiting for the quota tag:team=vision: needs 1 instance, 0 of 1 left; 2nd in the queue
        50 create f m5.large 1
            f created: Starting the training job
            f launched uf-1: 1 x 2 CPUs, 8.0 GiB, GPUs [], lease 90000 s: Preparing the instances for training
            -> launch uf-1 on 1
        60 stop a
            a ended Stopped/Stopped: Training job stopped
            a release
            -> release ua-1
        70 released ua-1
            a released
            b launched ub-1: 1 x 2 CPUs, 8.0 GiB, GPUs [], lease 90000 s: Preparing the instances for training
            -> launch ub-1 on 1
    ",
    );
}

#[test]
fn what_no_wait_would_help_is_refused() {
    check(
        shared(None),
        "
        0 create a m5.large 3 user=anna
            refused: The quota 'user:anna' is 2 instances at once, and a training job of this request needs 3. Request less, or have the owner of the server raise the quota in shoal.toml.
        0 create b g5.xlarge 2 user=ben
            refused: The quota 'user:ben' is 1 GPUs at once, and a training job of this request needs 2. Request less, or have the owner of the server raise the quota in shoal.toml.
    ",
    );
}

#[test]
fn a_job_that_waits_for_gpus_lets_those_pass_that_need_none() {
    check(
        shared(None),
        "
        0 create a g5.xlarge 1 user=ben
            a created: Starting the training job
            a launched ua-1: 1 x 4 CPUs, 16.0 GiB, GPUs [0], lease 90000 s: Preparing the instances for training
            -> launch ua-1 on 1
        10 create b g5.xlarge 1 user=ben
            b created: Starting the training job
            b Pending: Waiting for the quota user:ben: needs 1 GPU, 0 of 1 left; 1st in the queue
        20 create c m5.large 1 user=ben
            c created: Starting the training job
            c launched uc-1: 1 x 2 CPUs, 8.0 GiB, GPUs [], lease 90000 s: Preparing the instances for training
            -> launch uc-1 on 1
        30 create d g5.xlarge 1 user=ben
            d created: Starting the training job
            d Pending: Waiting for the quota user:ben: needs 1 GPU, 0 of 1 left; 2nd in the queue
    ",
    );
}

/// Two instances, and four jobs that want both.
fn turns(half_life_s: Option<u64>, script: &str) {
    let node = Node { cpus: 8, memory_bytes: 16 * GIB, gpus: 0, instances: 1, ..Node::local() };
    let quotas = Quotas { half_life_s, ..Quotas::default() };
    check(Capacity { quotas, ..Capacity::of(node, Packing::Promise) }, script);
}

#[test]
fn higher_priority_goes_first() {
    turns(
        None,
        "
        0 create a m5.large 1
            a created: Starting the training job
            a launched ua-1: 1 x 2 CPUs, 8.0 GiB, GPUs [], lease 90000 s: Preparing the instances for training
            -> launch ua-1 on 1
        10 create b m5.large 1
            b created: Starting the training job
            b Pending: Waiting for capacity: needs 1 instance, 0 free; 1st in the queue
        20 create c m5.large 1 priority=-1
            c created: Starting the training job
            c Pending: Waiting for capacity: needs 1 instance, 0 free; 2nd in the queue
        30 create d m5.large 1 priority=2
            d created: Starting the training job
            d Pending: Waiting for capacity: needs 1 instance, 0 free; 1st in the queue
        40 stop a
            a ended Stopped/Stopped: Training job stopped
            a release
            -> release ua-1
        50 released ua-1
            a released
            d launched ud-1: 1 x 2 CPUs, 8.0 GiB, GPUs [], lease 90000 s: Preparing the instances for training
            -> launch ud-1 on 1
    ",
    );
}

const SHARED: &str = "
        0 create a m5.large 1 user=anna
            a created: Starting the training job
            a launched ua-1: 1 x 2 CPUs, 8.0 GiB, GPUs [], lease 90000 s: Preparing the instances for training
            -> launch ua-1 on 1
        10 create b m5.large 1 user=anna
            b created: Starting the training job
            b Pending: Waiting for capacity: needs 1 instance, 0 free; 1st in the queue
        20 create c m5.large 1 user=ben
            c created: Starting the training job
            c Pending: Waiting for capacity: needs 1 instance, 0 free; {place} in the queue
        30 stop a
            a ended Stopped/Stopped: Training job stopped
            a release
            -> release ua-1
        40 released ua-1
            a released
            {next} launched u{next}-1: 1 x 2 CPUs, 8.0 GiB, GPUs [], lease 90000 s: Preparing the instances for training
            -> launch u{next}-1 on 1
    ";

#[test]
fn who_has_used_less_goes_first() {
    turns(Some(3600), &SHARED.replace("{place}", "1st").replace("{next}", "c"));
    turns(None, &SHARED.replace("{place}", "2nd").replace("{next}", "b"));
}

#[test]
fn use_is_forgotten_by_half_after_each_half_life() {
    use shoal_plane::{Catalog, Claim, Command, Form, GangSpec, Time, step};
    let mut state = State::new(shared(Some(100)), Catalog::default());
    let act = |state: &mut State, command: &Command, at: u64| {
        step(state, command, Time(at), &mut |_, _, _| {}).expect("granted");
    };
    let claim = Claim { user: Some("anna".to_owned()), ..Claim::default() };
    let spec = GangSpec { claim, ..GangSpec::new("ml.m5.large", 2, Form::Ends { max_runtime_s: 3600 }, 9) };
    let create = Command::CreateTrainingJob { name: "a".into(), uid: "ua".to_owned(), spec, name_taken: false };
    act(&mut state, &create, 1000);
    let used = |state: &State, at: u64| {
        let of_anna = |it: &shoal_plane::QuotaUse| it.name == "user:anna";
        state.quota_use(Time(at)).into_iter().find(of_anna).and_then(|it| it.used_s).expect("a share")
    };
    // Two instances for one half-life: 2 * 100 / ln 2 * (1 - 1/2).
    let after = used(&state, 101_000);
    assert!((after - 144.27).abs() < 0.01, "{after}");
    let stop = Command::StopTrainingJob { name: "a".into(), cause: shoal_plane::StopCause::User, ended: None };
    act(&mut state, &stop, 101_000);
    act(&mut state, &Command::Released { attempt: "ua-1".into() }, 101_000);
    assert!((used(&state, 101_000) - after).abs() < 1e-9);
    assert!((used(&state, 201_000) - after / 2.0).abs() < 1e-9);
    assert!((used(&state, 401_000) - after / 8.0).abs() < 1e-9);
    let restored = State::from_snapshot(&state.snapshot(), shared(Some(100)), Catalog::default()).expect("it is one");
    assert_eq!(restored, state);
}
