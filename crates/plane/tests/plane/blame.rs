//! Whom a failed job blames, and what it says.

use shoal_plane::{Catalog, Claim, Command, Form, GangSpec, Host, InstanceReport, RankEnd, State, Time, step};

use crate::script::{check, laptop};

#[test]
fn without_a_failure_file_the_end_of_stderr_speaks() {
    check(
        laptop(),
        "
        0 create a m5.large 1
            a created: Starting the training job
            a launched ua-1: 1 x 2 CPUs, 8.0 GiB, GPUs [], lease 90000 s: Preparing the instances for training
            -> launch ua-1 on 1
        10 ua-1/1 exit 1 stderr=ValueError:_bad_input
            a algo-1 ended: exit 1
            a Downloading: Downloading input data
            a Training: Training image download completed. Training in progress.
            a ended Failed/Failed: AlgorithmError: ValueError: bad input, exit code: 1
            a release
            -> release ua-1
        19 released ua-1
            a released
        20 create b m5.large 1
            b created: Starting the training job
            b launched ub-1: 1 x 2 CPUs, 8.0 GiB, GPUs [], lease 90000 s: Preparing the instances for training
            -> launch ub-1 on 1
        30 ub-1/1 exit 2
            b algo-1 ended: exit 2
            b Downloading: Downloading input data
            b Training: Training image download completed. Training in progress.
            b ended Failed/Failed: AlgorithmError: the program left no failure file and wrote nothing to stderr, exit code: 2
            b release
            -> release ub-1
        39 released ub-1
            b released
        40 create c m5.large 1
            c created: Starting the training job
            c launched uc-1: 1 x 2 CPUs, 8.0 GiB, GPUs [], lease 90000 s: Preparing the instances for training
            -> launch uc-1 on 1
        50 uc-1/1 signal 11
            c algo-1 ended: signal 11
            c Downloading: Downloading input data
            c Training: Training image download completed. Training in progress.
            c ended Failed/Failed: AlgorithmError: algo-1 was killed by SIGSEGV, exit code: 139
            c release
            -> release uc-1
        59 released uc-1
            c released
        60 create d m5.large 1
            d created: Starting the training job
            d launched ud-1: 1 x 2 CPUs, 8.0 GiB, GPUs [], lease 90000 s: Preparing the instances for training
            -> launch ud-1 on 1
        70 ud-1/1 signal 62 stderr=what?
            d algo-1 ended: signal 62
            d Downloading: Downloading input data
            d Training: Training image download completed. Training in progress.
            d ended Failed/Failed: AlgorithmError: algo-1 was killed by signal 62: what?, exit code: 190
            d release
            -> release ud-1
    ",
    );
}

#[test]
fn a_killed_rank_is_to_blame_and_not_who_noticed() {
    check(
        laptop(),
        "
        0 create a m5.large 4
            a created: Starting the training job
            a launched ua-1: 4 x 2 CPUs, 6.0 GiB, GPUs [], lease 90000 s: Preparing the instances for training (ml.m5.large capped to this machine: each instance has 6.0 GiB of memory instead of 8.0 GiB)
            -> launch ua-1 on 4
        1000 ua-1/1 exit 1 at=990 file=lost_a_peer
            a algo-1 ended: exit 1
            a Downloading: Downloading input data
            a Training: Training image download completed. Training in progress.
        1000 ua-1/2 signal 6 at=985
            a algo-2 ended: signal 6
        1000 ua-1/3 exit 1 at=980
            a algo-3 ended: exit 1
        1000 ua-1/4 signal 9 at=999
            a algo-4 ended: signal 9
            a ended Failed/Failed: AlgorithmError: algo-4 was killed by SIGKILL, exit code: 137
            a release
            -> release ua-1
    ",
    );
}

#[test]
fn of_equals_the_earliest_by_the_agents_clocks() {
    check(
        laptop(),
        "
        0 create a m5.large 2
            a created: Starting the training job
            a launched ua-1: 2 x 2 CPUs, 8.0 GiB, GPUs [], lease 90000 s: Preparing the instances for training
            -> launch ua-1 on 2
        1000 ua-1/1 exit 1 at=990
            a algo-1 ended: exit 1
            a Downloading: Downloading input data
            a Training: Training image download completed. Training in progress.
        1000 ua-1/2 exit 2 at=980
            a algo-2 ended: exit 2
            a ended Failed/Failed: AlgorithmError: algo-2: the program left no failure file and wrote nothing to stderr, exit code: 2
            a release
            -> release ua-1
        1099 released ua-1
            a released
        1100 create b m5.large 2
            b created: Starting the training job
            b launched ub-1: 2 x 2 CPUs, 8.0 GiB, GPUs [], lease 90000 s: Preparing the instances for training
            -> launch ub-1 on 2
        2000 ub-1/1 exit 1 at=1990 file=second
            b algo-1 ended: exit 1
            b Downloading: Downloading input data
            b Training: Training image download completed. Training in progress.
        2000 ub-1/2 exit 2 at=1980 file=first
            b algo-2 ended: exit 2
            b ended Failed/Failed: AlgorithmError: algo-2: first, exit code: 2
            b release
            -> release ub-1
    ",
    );
}

#[test]
fn a_host_that_succeeded_is_never_to_blame() {
    check(
        laptop(),
        "
        0 create a m5.large 2
            a created: Starting the training job
            a launched ua-1: 2 x 2 CPUs, 8.0 GiB, GPUs [], lease 90000 s: Preparing the instances for training
            -> launch ua-1 on 2
        900 ua-1/1 exit 0 at=900
            a algo-1 ended: exit 0
            a Downloading: Downloading input data
            a Training: Training image download completed. Training in progress.
        901 ua-1/1 uploaded
            a algo-1 uploaded
        1000 ua-1/2 exit 1 at=1000
            a algo-2 ended: exit 1
            a ended Failed/Failed: AlgorithmError: algo-2: the program left no failure file and wrote nothing to stderr, exit code: 1
            a release
            -> release ua-1
    ",
    );
}

#[test]
fn a_lost_agent_is_our_error() {
    check(
        laptop(),
        "
        0 create a m5.large 2
            a created: Starting the training job
            a launched ua-1: 2 x 2 CPUs, 8.0 GiB, GPUs [], lease 90000 s: Preparing the instances for training
            -> launch ua-1 on 2
        10 ua-1/1 training
            a algo-1 Training
            a Downloading: Downloading input data
            a Training: Training image download completed. Training in progress.
        10 ua-1/2 training
            a algo-2 Training
        1000 ua-1/2 exit 1 at=999
            a algo-2 ended: exit 1
        1010 ua-1/1 lost its agent was killed
            a algo-1 lost: its agent was killed
            a ended Failed/Failed: InternalServerError: algo-1: its agent was killed
            a release
            -> release ua-1
        1020 released ua-1
            a released
        2000 create b m5.large 1
            b created: Starting the training job
            b launched ub-1: 1 x 2 CPUs, 8.0 GiB, GPUs [], lease 90000 s: Preparing the instances for training
            -> launch ub-1 on 1
        2010 ub-1/1 exit 0
            b algo-1 ended: exit 0
            b Downloading: Downloading input data
            b Training: Training image download completed. Training in progress.
            b Uploading: Uploading generated training model
        2020 ub-1/1 lost the agent of algo-1 ended without a report
            b algo-1 lost: the agent of algo-1 ended without a report
            b ended Failed/Failed: InternalServerError: the agent of algo-1 ended without a report
            b release
            -> release ub-1
    ",
    );
}

#[test]
fn how_a_program_failed_says_more_than_that_its_agent_is_gone() {
    check(
        laptop(),
        "
        0 create a m5.large 2
            a created: Starting the training job
            a launched ua-1: 2 x 2 CPUs, 8.0 GiB, GPUs [], lease 90000 s: Preparing the instances for training
            -> launch ua-1 on 2
        10 ua-1/1 training
            a algo-1 Training
            a Downloading: Downloading input data
            a Training: Training image download completed. Training in progress.
        10 ua-1/2 training
            a algo-2 Training
        1000 ua-1/1 exit 5 at=999 file=bad
            a algo-1 ended: exit 5
        1010 ua-1/1 lost agent died
        1020 ua-1/2 exit 0
            a algo-2 ended: exit 0
            a ended Failed/Failed: AlgorithmError: algo-1: bad, exit code: 5
            a release
            -> release ua-1
    ",
    );
}

/// The reason of a job of one instance that ended so.
fn reason(end: RankEnd) -> String {
    let mut state = State::new(laptop(), Catalog::default());
    let spec = GangSpec {
        instance_type: "ml.m5.large".into(),
        instances: 1,
        other_groups: Vec::new(),
        form: Form::Ends { max_runtime_s: 60 },
        max_pending_s: None,
        max_wait_s: None,
        grace_s: 120,
        retries: 0,
        min_instances: None,
        target: None,
        claim: Claim::default(),
    };
    let create = Command::CreateTrainingJob { name: "a".into(), uid: "u".into(), spec, name_taken: false };
    let report = InstanceReport::RankEnded { end, final_metrics: Vec::new() };
    let ended = Command::InstanceReported { attempt: "u-1".into(), host: Host(1), report };
    for command in [create, ended] {
        step(&mut state, &command, Time(0), &mut |_, _, _| ()).expect("accepted");
    }
    state.view("a").and_then(|view| view.failure_reason).expect("it failed")
}

#[test]
fn a_reason_keeps_its_beginning_and_exit_code_whatever_the_program_wrote() {
    let exit = |file: Option<&str>, stderr: &str| RankEnd {
        code: Some(4),
        signal: None,
        out_of_memory: false,
        crowded_out: None,
        failure_file: file.map(str::to_owned),
        stderr_tail: stderr.to_owned(),
        at: Time(0),
    };
    let long = format!("first {} last", "ä".repeat(2000));
    let from_file = reason(exit(Some(&long), "unused"));
    assert_eq!(from_file.chars().count(), 1024);
    assert!(from_file.starts_with("AlgorithmError: first ää") && from_file.ends_with("ä, exit code: 4"), "{from_file}");

    let from_stderr = reason(exit(Some(" \n"), &long));
    assert_eq!(from_stderr.chars().count(), 1024);
    assert!(
        from_stderr.starts_with("AlgorithmError: ää") && from_stderr.ends_with("ää last, exit code: 4"),
        "{from_stderr}"
    );

    let killed =
        RankEnd { code: None, signal: Some(9), out_of_memory: true, crowded_out: None, ..exit(Some(&long), "") };
    let killed = reason(killed);
    assert_eq!(killed.chars().count(), 1024);
    assert!(killed.starts_with("AlgorithmError: algo-1 ran out of memory (limit 8.0 GiB): first"), "{killed}");
    assert!(killed.ends_with(", exit code: 137"), "{killed}");
}
