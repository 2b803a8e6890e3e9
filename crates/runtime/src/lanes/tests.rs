use std::time::Duration;

use shoal_plane::{Host, Placement, Time};

use super::{lane::first, *};
use crate::{
    steps::{self, Agents, FoundPlan, Instance, KnownPlan, Launch},
    warm_pool::{AllocationId, Retention, ReusePolicy},
};

mod histories;

fn attempt<T: for<'a> From<&'a str>>(name: &str) -> T {
    name.into()
}

fn launch(of: &str) -> Action {
    let placement = Placement {
        cpus: 1,
        cpu_weight: 100,
        memory_bytes: 1,
        gpus: vec![vec![]],
        capped: None,
        others: Vec::new(),
        reserve_bytes: None,
        nodes: Vec::new(),
    };
    Action::Launch {
        job: attempt("job"),
        attempt: attempt(of),
        number: 1,
        placement,
        instances: 1,
        hosts: vec![Host(1)],
        joins: false,
        lease_s: 60,
        trial: None,
    }
}

/// Adds these hosts to others that run.
fn join(of: &str, added: &[Host]) -> Action {
    let Action::Launch { job, attempt, number, placement, lease_s, trial, .. } = launch(of) else {
        unreachable!("it is a launch")
    };
    Action::Launch { job, attempt, number, placement, instances: 4, hosts: added.to_vec(), joins: true, lease_s, trial }
}

fn clear(of: &str, hosts: &[Host]) -> Action {
    Action::ClearInstances { attempt: attempt(of), hosts: hosts.to_vec() }
}

fn stop(of: &str) -> Action {
    Action::StopInstances { attempt: attempt(of), hosts: vec![Host(1)], grace_s: 1, reason: attempt("requested") }
}

fn store(of: &str) -> Action {
    Action::StoreArtifacts { job: attempt("job"), attempt: attempt(of), number: 1, hosts: vec![Host(1)] }
}

fn release(of: &str) -> Action {
    Action::Release { job: attempt("job"), attempt: attempt(of) }
}

/// An action begins.
fn perform(action: &Action) -> Io {
    Io::Perform { attempt: action.attempt().to_owned(), steps: first(action, WritePolicy::IfSpace) }
}

/// The action of attempt `a` continues.
fn then(steps: &[Step]) -> Io {
    Io::Perform { attempt: attempt("a"), steps: steps.to_vec() }
}

fn requested(action: Action) -> Event {
    Event::Requested(action)
}

fn ended(of: &str, outcome: Outcome) -> Event {
    Event::Performed { attempt: attempt(of), outcome }
}

fn done(of: &str) -> Event {
    ended(of, Outcome::Done)
}

fn no_space(of: &str) -> Event {
    ended(of, Outcome::Delayed { reason: attempt("full"), has_written: false })
}

fn commit(of: &str, command: Command) -> Io {
    Io::Commit { attempt: attempt(of), command }
}

fn stored(of: &str) -> Command {
    Command::ArtifactsStored { attempt: attempt(of) }
}

fn released(of: &str) -> Command {
    Command::Released { attempt: attempt(of) }
}

fn at(seconds: u64) -> Now {
    Now { mono: Mono(Duration::from_secs(seconds)), wall: Time(0) }
}

const START: u64 = 100;

/// Lanes at one moment.
struct Still(Lanes);

impl Still {
    fn handle(&mut self, event: Event) -> Vec<Io> {
        let mut io = self.0.handle(event, at(START));
        self.0.check();
        // The pool's part of every release has a test of its own.
        io.retain(|io| !matches!(io, Io::Pool(warm_pool::Event::Releasing { .. } | warm_pool::Event::Left { .. })));
        io
    }
}

fn lanes() -> Still {
    Still(Lanes::default())
}

#[test]
fn actions_of_one_attempt_run_sequentially_and_those_of_others_concurrently() {
    let mut lanes = lanes();
    assert_eq!(lanes.handle(requested(store("a"))), [perform(&store("a"))]);
    assert_eq!(lanes.handle(requested(stop("a"))), []);
    assert_eq!(lanes.handle(requested(release("a"))), []);
    assert_eq!(lanes.handle(requested(launch("b"))), [perform(&launch("b"))]);
    assert_eq!(lanes.handle(done("a")), [commit("a", stored("a"))]);
    assert_eq!(lanes.handle(Event::Committed { attempt: attempt("a") }), [perform(&stop("a"))]);
    assert_eq!(lanes.handle(done("a")), [perform(&release("a"))]);
    assert_eq!(lanes.handle(ended("a", Outcome::Panicked)), []);
    assert_eq!(lanes.handle(done("b")), []);
    assert!(lanes.0.lanes.is_empty(), "attempts that have nothing to do are removed");
}

#[test]
fn a_release_cancels_a_launch_that_is_preparing() {
    let mut lanes = lanes();
    lanes.handle(requested(launch("a")));
    assert_eq!(lanes.handle(requested(release("a"))), [Io::Cancel { attempt: attempt("a") }]);
    assert_eq!(lanes.handle(done("a")), [perform(&release("a"))], "never two actions simultaneously for an attempt");
}

#[test]
fn a_stop_reaches_the_agents_that_a_launch_has_started_and_those_that_it_starts_later() {
    let mut lanes = lanes();
    lanes.handle(requested(launch("a")));
    assert_eq!(lanes.handle(requested(stop("a"))), [Io::Order(stop("a"))]);
    assert_eq!(lanes.handle(done("a")), [perform(&stop("a"))]);
    assert_eq!(lanes.handle(done("a")), []);
}

#[test]
fn a_launch_without_disk_space_checks_every_second_and_is_reported_every_minute() {
    let mut lanes = Lanes::default();
    let report = || Io::ReportDelay { attempt: attempt("a"), reason: attempt("full") };
    lanes.handle(requested(launch("a")), at(0));
    let first = lanes.handle(no_space("a"), at(0));
    assert_eq!(first, [Io::LogDelay { action: launch("a"), reason: attempt("full") }, report()]);
    assert_eq!(lanes.handle(Event::Timeout, at(0)), [], "too early");
    for second in 1..=130 {
        assert_eq!(lanes.deadline(), Some(at(second).mono));
        assert_eq!(lanes.handle(Event::Timeout, at(second)), [perform(&launch("a"))]);
        assert_eq!(lanes.handle(Event::Timeout, at(second)), [], "it is being performed");
        let outputs = lanes.handle(no_space("a"), at(second));
        // The core took no report before the third second.
        let is_due = second <= 3 || second == 63 || second == 123;
        assert_eq!(outputs, if is_due { vec![report()] } else { vec![] }, "second {second}");
        if second == 3 || second == 63 || second == 123 {
            lanes.handle(Event::DelayReported { attempt: attempt("a") }, at(second));
        }
    }
    lanes.handle(Event::Timeout, at(131));
    assert_eq!(lanes.handle(done("a"), at(131)), []);
    assert_eq!(lanes.deadline(), None);
}

#[test]
fn a_launch_that_waits_for_disk_space_delays_neither_stop_nor_release() {
    for ends in [stop, release] {
        let mut lanes = lanes();
        lanes.handle(requested(launch("a")));
        lanes.handle(no_space("a"));
        assert_eq!(lanes.handle(requested(ends("a"))), [perform(&ends("a"))]);
        assert_eq!(lanes.0.deadline(), None, "the launch is not required any more");
        assert_eq!(lanes.handle(ended("a", Outcome::Panicked)), []);

        // It finds no space after the other was requested.
        lanes.handle(requested(launch("b")));
        lanes.handle(requested(ends("b")));
        assert_eq!(lanes.handle(no_space("b")), [perform(&ends("b"))]);
        assert_eq!(lanes.handle(ended("b", Outcome::Panicked)), []);
        assert!(lanes.0.lanes.is_empty());
    }
}

#[test]
fn artifacts_without_disk_space_are_written_ever_more_rarely_for_an_hour() {
    let mut lanes = Lanes::default();
    lanes.handle(requested(store("a")), at(0));
    let (mut now, mut writes) = (0, 1);
    let full = |has_written| ended("a", Outcome::Delayed { reason: attempt("full"), has_written });
    assert_eq!(lanes.handle(full(true), at(0)), [Io::LogDelay { action: store("a"), reason: attempt("full") }]);
    loop {
        assert_eq!(lanes.deadline(), Some(at(now + 1).mono), "a stop of the job is noticed within a second");
        now += 1;
        let io = lanes.handle(Event::Timeout, at(now));
        let [Io::Perform { steps, .. }] = &io[..] else { panic!("one try a second") };
        let [Step::StoreArtifacts { write, .. }] = steps[..] else { panic!("{steps:?}") };
        let has_written = match write {
            WritePolicy::IfStopping => false,
            WritePolicy::IfSpace => true,
            WritePolicy::Always => break,
        };
        writes += u32::from(has_written);
        assert_eq!(lanes.handle(full(has_written), at(now)), [], "logged once");
    }
    assert_eq!((now, writes), (3600, 65), "six that double the pause to a minute, then one a minute");
    let failed = Command::ArtifactsFailed { attempt: attempt("a"), reason: attempt("full") };
    assert_eq!(lanes.handle(ended("a", Outcome::Failed(attempt("full"))), at(now)), [commit("a", failed)]);
}

#[test]
fn a_release_does_not_wait_for_artifacts_that_wait_for_disk_space() {
    let mut lanes = lanes();
    lanes.handle(requested(store("a")));
    lanes.handle(no_space("a"));
    assert_eq!(lanes.handle(requested(stop("a"))), [], "the job's end is in its row, which the next try reads");
    assert_eq!(lanes.handle(requested(release("a"))), [perform(&stop("a"))]);
    assert_eq!(lanes.handle(done("a")), [perform(&release("a"))]);
}

#[test]
fn an_outcome_is_submitted_until_the_journal_has_taken_it() {
    let mut lanes = Lanes::default();
    lanes.handle(requested(store("a")), at(0));
    assert_eq!(lanes.handle(done("a"), at(0)), [commit("a", stored("a"))]);
    for second in 0..5 {
        assert_eq!(lanes.handle(Event::CommitFailed { attempt: attempt("a") }, at(second)), []);
        assert_eq!(lanes.handle(Event::Timeout, at(second)), [], "not in a tight loop");
        assert_eq!(lanes.deadline(), Some(at(second + 1).mono));
        assert_eq!(lanes.handle(Event::Timeout, at(second + 1)), [commit("a", stored("a"))]);
    }
    assert_eq!(lanes.handle(requested(launch("a")), at(5)), [], "what follows waits for it");
    assert_eq!(lanes.handle(Event::Committed { attempt: attempt("a") }, at(5)), [perform(&launch("a"))]);
    assert_eq!(
        lanes.handle(Event::Committed { attempt: attempt("a") }, at(5)),
        [],
        "a repeated answer changes nothing"
    );
}

fn grant() -> Grant {
    Grant { allocation: AllocationId(attempt("older")), from: attempt("job"), idle: Duration::from_secs(1) }
}

fn retention() -> Retention {
    let policy = ReusePolicy { owner: attempt(""), idle_s: 60, key: attempt("key"), is_loaded: false };
    Retention { allocation: AllocationId(attempt("a")), job: attempt("job"), policy, hosts: 1 }
}

fn plan(allocation: &str, is_elastic: bool) -> FoundPlan {
    FoundPlan { allocation: AllocationId(attempt(allocation)), hosts: 1, key: None, is_elastic }
}

/// An attempt that is released: its instance may be retained or not, or no agent is admitted.
fn instance(is_retained: Option<bool>) -> Outcome {
    let agents = is_retained.map(|is_retained| Agents {
        job: attempt("job"),
        policy: is_retained.then(|| retention().policy),
        owner_has_ended: false,
        connected: 1,
        is_complete: true,
    });
    Outcome::Instance(Box::new(Instance { plan: Some(plan("a", false)), is_shared: false, agents }))
}

fn clear_steps() -> Vec<Step> {
    steps::clear(&attempt("a"), Some(&plan("a", false)), false)
}

#[test]
fn a_launch_starts_nothing_twice() {
    let known = |allocation, is_elastic, is_complete, has_reports| KnownPlan {
        plan: plan(allocation, is_elastic),
        is_complete,
        has_reports,
    };
    let prepare = || Step::Prepare(Box::new(Launch::of(&launch("a")).expect("it is one")));
    let end = || Step::EndAllocation { allocation: AllocationId(attempt("older")), hosts: Some(1) };
    let added = || vec![Step::Adopt, Step::Expect(vec![Host(1)]), Step::Add { hosts: vec![Host(1)], nodes: vec![] }];
    for (known, expected) in [
        (known("a", false, false, false), vec![Step::Adopt, Step::Submit]),
        (known("a", false, true, true), vec![Step::Adopt, Step::Submit]),
        (known("older", false, false, false), vec![end(), Step::Withdraw, prepare()]),
        (known("older", false, true, false), vec![Step::Adopt]),
        (known("older", false, false, true), vec![Step::Adopt]),
        (known("a", true, false, true), added()),
    ] {
        let mut lanes = lanes();
        let first = [Step::CheckSpace, Step::FindPlan, prepare()];
        assert_eq!(lanes.handle(requested(launch("a"))), [then(&first)]);
        assert_eq!(lanes.handle(ended("a", Outcome::Found(known.clone()))), [then(&expected)], "{known:?}");
    }
    let mut lanes = lanes();
    let first = [Step::CheckSpace, Step::FindPlan, Step::Adopt];
    assert_eq!(lanes.handle(requested(join("a", &[Host(3)]))), [then(&first)], "its plan was written before");
    let joined = [
        Step::Adopt,
        Step::Join(vec![(Host(3), vec![])]),
        Step::Expect(vec![Host(3)]),
        Step::Add { hosts: vec![Host(3)], nodes: vec![] },
    ];
    assert_eq!(lanes.handle(ended("a", Outcome::Found(known("a", true, false, true)))), [then(&joined)]);
}

#[test]
fn a_launch_gets_a_warm_instance_or_starts_a_new_one() {
    let prepared = |key: Option<&str>| ended("a", Outcome::Prepared { reuse_key: key.map(attempt) });
    let cold = || vec![then(&launching::start(None)), Io::Pool(warm_pool::Event::CapacityNeeded)];
    let mut lanes = lanes();
    lanes.handle(requested(launch("a")));
    assert_eq!(lanes.handle(prepared(None)), cold(), "nothing to reuse");
    lanes.handle(done("a"));
    for (answer, expected) in [
        (Event::Granted { attempt: attempt("a"), grant: grant() }, vec![then(&launching::start(Some(grant())))]),
        (Event::Declined { attempt: attempt("a") }, cold()),
    ] {
        lanes.handle(requested(launch("a")));
        let io = lanes.handle(prepared(Some("key")));
        assert!(matches!(&io[..], [Io::Pool(warm_pool::Event::Requested { key, .. })] if key == "key"), "{io:?}");
        assert_eq!(lanes.handle(requested(stop("a"))), [Io::Order(stop("a"))], "its agents may be connected");
        assert_eq!(lanes.handle(answer), expected);
        assert_eq!(lanes.handle(Event::Declined { attempt: attempt("a") }), [], "a second answer changes nothing");
        assert_eq!(lanes.handle(done("a")), [perform(&stop("a"))]);
        lanes.handle(done("a"));
    }
}

#[test]
fn a_launch_that_fails_is_reported_unless_its_release_follows() {
    for is_released in [false, true] {
        let mut lanes = lanes();
        lanes.handle(requested(launch("a")));
        lanes.handle(ended("a", Outcome::Prepared { reuse_key: None }));
        if is_released {
            lanes.handle(requested(release("a")));
        }
        let failed = Command::LaunchFailed { attempt: attempt("a"), reason: attempt("no program") };
        let expected = if is_released { perform(&release("a")) } else { commit("a", failed) };
        assert_eq!(lanes.handle(ended("a", Outcome::Failed(attempt("no program")))), [expected]);
    }
}

#[test]
fn a_release_ends_a_launch_before_it_has_an_instance() {
    let known = KnownPlan { plan: plan("a", false), is_complete: true, has_reports: true };
    for outcome in [Outcome::Found(known), Outcome::Prepared { reuse_key: None }] {
        let mut lanes = lanes();
        lanes.handle(requested(launch("a")));
        lanes.handle(requested(release("a")));
        assert_eq!(lanes.handle(ended("a", outcome)), [perform(&release("a"))]);
    }
    let mut lanes = lanes();
    lanes.handle(requested(launch("b")));
    lanes.handle(ended("b", Outcome::Prepared { reuse_key: Some(attempt("key")) }));
    assert_eq!(lanes.handle(requested(release("b"))), [Io::Cancel { attempt: attempt("b") }]);
    assert_eq!(lanes.handle(Event::Declined { attempt: attempt("b") }), [perform(&release("b"))]);
}

#[test]
fn a_released_instance_is_retained_or_its_agents_exit() {
    for is_retained in [true, false] {
        let mut lanes = Lanes::default();
        let io = lanes.handle(requested(release("a")), at(0));
        assert!(io.iter().any(|io| matches!(io, Io::Pool(warm_pool::Event::Releasing { .. }))), "{io:?}");
        let io = lanes.handle(ended("a", instance(Some(true))), at(0));
        assert!(
            matches!(&io[..], [Io::Pool(warm_pool::Event::Retain { retention: of, .. })] if *of == retention()),
            "{io:?}"
        );
        if is_retained {
            let io = lanes.handle(Event::Retained { attempt: attempt("a") }, at(0));
            assert_eq!(io, [then(&[Step::ForgetReports])]);
            assert_eq!(lanes.handle(done("a"), at(0)), [commit("a", released("a"))]);
        } else {
            assert_eq!(lanes.handle(Event::NotRetained { attempt: attempt("a") }, at(0)), [then(&[Step::Leave])]);
            assert_eq!(lanes.handle(done("a"), at(0)), [Io::CheckExit { attempt: attempt("a") }]);
        }
    }
    let mut lanes = lanes();
    lanes.handle(requested(release("a")));
    assert_eq!(lanes.handle(ended("a", instance(None))), [then(&clear_steps())], "no agent is to exit");
    assert_eq!(lanes.handle(done("a")), [commit("a", released("a"))]);
}

/// An attempt whose agents were ordered to exit at second 0, and are checked.
fn leaving() -> Lanes {
    let mut lanes = Lanes::default();
    lanes.handle(requested(release("a")), at(0));
    let io = lanes.handle(ended("a", instance(Some(false))), at(0));
    assert_eq!(io[0], then(&[Step::Leave]));
    assert!(matches!(&io[1..], [Io::Pool(warm_pool::Event::Left { .. })]), "{io:?}");
    assert_eq!(lanes.handle(done("a"), at(0)), [Io::CheckExit { attempt: attempt("a") }]);
    lanes
}

fn checked(is_running: bool, is_mirroring: bool) -> Event {
    Event::ExitChecked { attempt: attempt("a"), is_running, is_mirroring }
}

#[test]
fn agents_have_three_seconds_to_exit_and_more_while_they_send_files() {
    for (mirrors_for_s, expected_s) in [(0, 3.0), (60, 60.0)] {
        let mut lanes = leaving();
        lanes.handle(checked(true, true), at(0));
        let mut checks = 1;
        let ended = loop {
            let now = Now { mono: lanes.deadline().expect("a check"), wall: Time(0) };
            assert_eq!(lanes.handle(Event::Timeout, now), [Io::CheckExit { attempt: attempt("a") }]);
            assert_eq!(lanes.deadline(), None, "one check at a time");
            checks += 1;
            if lanes.handle(checked(true, now.mono.0.as_secs() < mirrors_for_s), now) == [then(&clear_steps())] {
                break now.mono.0.as_secs_f64();
            }
        };
        assert!((ended - expected_s).abs() < 0.3, "{ended}");
        assert!(checks < 30 + 4 * mirrors_for_s, "{checks} checks");
    }
}

#[test]
fn agents_that_have_ended_are_checked_immediately() {
    let ended = || Event::AgentEnded { attempt: attempt("a") };
    let check = || [Io::CheckExit { attempt: attempt("a") }];
    let mut lanes = leaving();
    assert_eq!(lanes.handle(ended(), at(0)), [], "a check is under way");
    assert_eq!(lanes.handle(checked(true, false), at(0)), check(), "it may have missed the end");
    assert_eq!(lanes.handle(checked(true, false), at(0)), [], "another host's agent runs");
    assert_eq!(lanes.handle(ended(), at(0)), check());
    assert_eq!(lanes.handle(checked(false, false), at(0)), [then(&clear_steps())]);
    assert_eq!(lanes.handle(checked(false, false), at(0)), [], "a repeated answer changes nothing");
    assert_eq!(lanes.handle(done("a"), at(0)), [commit("a", released("a"))]);
}

#[test]
fn instances_that_cannot_be_added_hold_up_nothing_of_the_others() {
    let mut lanes = Still(Lanes::default());
    assert_eq!(lanes.handle(requested(join("a", &[Host(3), Host(4)]))), [perform(&join("a", &[Host(3), Host(4)]))]);
    lanes.handle(no_space("a"));
    assert_eq!(lanes.handle(requested(clear("a", &[Host(3)]))), [perform(&clear("a", &[Host(3)]))]);
    let cleared = Command::InstancesCleared { attempt: attempt("a"), hosts: vec![Host(3)] };
    assert_eq!(lanes.handle(done("a")), [commit("a", cleared)]);
    let next = lanes.handle(Event::Committed { attempt: attempt("a") });
    assert_eq!(next, [perform(&join("a", &[Host(4)]))], "of those that wait only what was not removed");
    lanes.handle(no_space("a"));
    let members = |hosts: &[Host]| Action::SetMembers { attempt: attempt("a"), hosts: hosts.to_vec() };
    assert_eq!(lanes.handle(requested(members(&[Host(1), Host(2)]))), [perform(&members(&[Host(1), Host(2)]))]);
    assert_eq!(lanes.handle(requested(members(&[Host(1)]))), [], "lists of members do not overtake each other");
    assert_eq!(lanes.handle(done("a")), [perform(&join("a", &[Host(4)]))]);
    lanes.handle(no_space("a"));
    assert_eq!(lanes.handle(requested(store("a"))), [perform(&members(&[Host(1)]))]);
    assert_eq!(lanes.handle(done("a")), [perform(&store("a"))]);
    assert_eq!(lanes.handle(ended("a", Outcome::Panicked)), []);
    // One that cannot be ended is left to the release.
    assert_eq!(lanes.handle(requested(clear("a", &[Host(4)]))), [perform(&clear("a", &[Host(4)]))]);
    lanes.handle(no_space("a"));
    assert_eq!(lanes.handle(requested(store("a"))), [perform(&store("a"))]);
}
