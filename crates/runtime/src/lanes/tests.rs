use shoal_plane::{Placement, Time};

use super::*;
use crate::warm_pool::{AllocationId, Retention, ReusePolicy};

fn attempt<T: From<String>>(name: &str) -> T {
    name.to_owned().into()
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
        hosts: vec![1],
        joins: false,
        lease_s: 60,
        trial: None,
    }
}

/// Adds these hosts to others that run.
fn join(of: &str, added: &[u32]) -> Action {
    let Action::Launch { job, attempt, number, placement, lease_s, trial, .. } = launch(of) else {
        unreachable!("it is a launch")
    };
    Action::Launch { job, attempt, number, placement, instances: 4, hosts: added.to_vec(), joins: true, lease_s, trial }
}

fn clear(of: &str, hosts: &[u32]) -> Action {
    Action::ClearInstances { attempt: attempt(of), hosts: hosts.to_vec() }
}

fn stop(of: &str) -> Action {
    Action::StopInstances { attempt: attempt(of), hosts: vec![1], grace_s: 1, reason: attempt("requested") }
}

fn store(of: &str) -> Action {
    Action::StoreArtifacts { job: attempt("job"), attempt: attempt(of), number: 1, hosts: vec![1] }
}

fn release(of: &str) -> Action {
    Action::Release { job: attempt("job"), attempt: attempt(of) }
}

fn perform(action: Action) -> Io {
    Io::Perform { action, write: WritePolicy::IfSpace }
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
    ended(of, Outcome::NoSpace { reason: attempt("full"), has_written: false })
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
    assert_eq!(lanes.handle(requested(store("a"))), [perform(store("a"))]);
    assert_eq!(lanes.handle(requested(stop("a"))), []);
    assert_eq!(lanes.handle(requested(release("a"))), []);
    assert_eq!(lanes.handle(requested(launch("b"))), [perform(launch("b"))]);
    assert_eq!(lanes.handle(done("a")), [perform(stop("a"))]);
    assert_eq!(lanes.handle(done("a")), [perform(release("a"))]);
    assert_eq!(lanes.handle(done("a")), []);
    assert_eq!(lanes.handle(done("b")), []);
    assert!(lanes.0.lanes.is_empty(), "attempts that have nothing to do are removed");
}

#[test]
fn a_release_cancels_a_launch_that_is_preparing() {
    let mut lanes = lanes();
    lanes.handle(requested(launch("a")));
    assert_eq!(lanes.handle(requested(release("a"))), [Io::Cancel { attempt: attempt("a") }]);
    assert_eq!(lanes.handle(done("a")), [perform(release("a"))], "never two actions simultaneously for an attempt");
}

#[test]
fn a_stop_reaches_the_agents_that_a_launch_has_started_and_those_that_it_starts_later() {
    let mut lanes = lanes();
    lanes.handle(requested(launch("a")));
    assert_eq!(lanes.handle(requested(stop("a"))), [Io::Order(stop("a"))]);
    assert_eq!(lanes.handle(done("a")), [perform(stop("a"))]);
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
        assert_eq!(lanes.handle(Event::Timeout, at(second)), [perform(launch("a"))]);
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
        assert_eq!(lanes.handle(requested(ends("a"))), [perform(ends("a"))]);
        assert_eq!(lanes.0.deadline(), None, "the launch is not required any more");
        assert_eq!(lanes.handle(done("a")), []);

        // It finds no space after the other was requested.
        lanes.handle(requested(launch("b")));
        lanes.handle(requested(ends("b")));
        assert_eq!(lanes.handle(no_space("b")), [perform(ends("b"))]);
        assert_eq!(lanes.handle(done("b")), []);
        assert!(lanes.0.lanes.is_empty());
    }
}

#[test]
fn artifacts_without_disk_space_are_written_ever_more_rarely_for_an_hour() {
    let mut lanes = Lanes::default();
    lanes.handle(requested(store("a")), at(0));
    let (mut now, mut writes) = (0, 1);
    let full = |has_written| ended("a", Outcome::NoSpace { reason: attempt("full"), has_written });
    assert_eq!(lanes.handle(full(true), at(0)), [Io::LogDelay { action: store("a"), reason: attempt("full") }]);
    loop {
        assert_eq!(lanes.deadline(), Some(at(now + 1).mono), "a stop of the job is noticed within a second");
        now += 1;
        let [Io::Perform { write, .. }] = lanes.handle(Event::Timeout, at(now))[..] else { panic!("one try a second") };
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
    assert_eq!(
        lanes.handle(ended("a", Outcome::Commit(failed.clone())), at(now)),
        [Io::Commit { attempt: attempt("a"), command: failed }]
    );
}

#[test]
fn a_release_does_not_wait_for_artifacts_that_wait_for_disk_space() {
    let mut lanes = lanes();
    lanes.handle(requested(store("a")));
    lanes.handle(no_space("a"));
    assert_eq!(lanes.handle(requested(stop("a"))), [], "the job's end is in its row, which the next try reads");
    assert_eq!(lanes.handle(requested(release("a"))), [perform(stop("a"))]);
    assert_eq!(lanes.handle(done("a")), [perform(release("a"))]);
}

#[test]
fn an_outcome_is_submitted_until_the_journal_has_taken_it() {
    let mut lanes = Lanes::default();
    let commit = || Io::Commit { attempt: attempt("a"), command: released("a") };
    lanes.handle(requested(store("a")), at(0));
    assert_eq!(lanes.handle(ended("a", Outcome::Commit(released("a"))), at(0)), [commit()]);
    for second in 0..5 {
        assert_eq!(lanes.handle(Event::CommitFailed { attempt: attempt("a") }, at(second)), []);
        assert_eq!(lanes.handle(Event::Timeout, at(second)), [], "not in a tight loop");
        assert_eq!(lanes.deadline(), Some(at(second + 1).mono));
        assert_eq!(lanes.handle(Event::Timeout, at(second + 1)), [commit()]);
    }
    assert_eq!(lanes.handle(requested(launch("a")), at(5)), [], "what follows waits for it");
    assert_eq!(lanes.handle(Event::Committed { attempt: attempt("a") }, at(5)), [perform(launch("a"))]);
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
    let policy = ReusePolicy { owner: String::new(), idle_s: 60, key: attempt("key"), is_loaded: false };
    Retention { allocation: AllocationId(attempt("a")), job: attempt("job"), policy, hosts: 1 }
}

fn then(step: Step) -> Io {
    Io::Continue { attempt: attempt("a"), step }
}

#[test]
fn a_launch_gets_a_warm_instance_or_starts_a_new_one() {
    let prepared = |key: Option<&str>| ended("a", Outcome::Prepared { reuse_key: key.map(attempt) });
    let cold = || vec![then(Step::Start(None)), Io::Pool(warm_pool::Event::CapacityNeeded)];
    let mut lanes = lanes();
    lanes.handle(requested(launch("a")));
    assert_eq!(lanes.handle(prepared(None)), cold(), "nothing to reuse");
    lanes.handle(done("a"));
    for (answer, expected) in [
        (Event::Granted { attempt: attempt("a"), grant: grant() }, vec![then(Step::Start(Some(grant())))]),
        (Event::Declined { attempt: attempt("a") }, cold()),
    ] {
        lanes.handle(requested(launch("a")));
        let io = lanes.handle(prepared(Some("key")));
        assert!(matches!(&io[..], [Io::Pool(warm_pool::Event::Requested { key, .. })] if key == "key"), "{io:?}");
        assert_eq!(lanes.handle(requested(stop("a"))), [Io::Order(stop("a"))], "its agents may be connected");
        assert_eq!(lanes.handle(answer), expected);
        assert_eq!(lanes.handle(Event::Declined { attempt: attempt("a") }), [], "a second answer changes nothing");
        assert_eq!(lanes.handle(done("a")), [perform(stop("a"))]);
        lanes.handle(done("a"));
    }
}

#[test]
fn a_release_ends_a_launch_before_it_has_an_instance() {
    let mut lanes = lanes();
    lanes.handle(requested(launch("a")));
    lanes.handle(requested(release("a")));
    assert_eq!(lanes.handle(ended("a", Outcome::Prepared { reuse_key: None })), [perform(release("a"))]);
    lanes.handle(requested(launch("b")));
    lanes.handle(ended("b", Outcome::Prepared { reuse_key: Some(attempt("key")) }));
    assert_eq!(lanes.handle(requested(release("b"))), [Io::Cancel { attempt: attempt("b") }]);
    assert_eq!(lanes.handle(Event::Declined { attempt: attempt("b") }), [perform(release("b"))]);
}

#[test]
fn a_released_instance_is_retained_or_its_agents_exit() {
    for is_retained in [true, false] {
        let mut lanes = Lanes::default();
        let io = lanes.handle(requested(release("a")), at(0));
        assert!(io.iter().any(|io| matches!(io, Io::Pool(warm_pool::Event::Releasing { .. }))), "{io:?}");
        let io = lanes.handle(ended("a", Outcome::Retain(retention())), at(0));
        assert!(
            matches!(&io[..], [Io::Pool(warm_pool::Event::Retain { retention: of, .. })] if *of == retention()),
            "{io:?}"
        );
        if is_retained {
            assert_eq!(lanes.handle(Event::Retained { attempt: attempt("a") }, at(0)), [then(Step::Forget)]);
        } else {
            assert_eq!(lanes.handle(Event::NotRetained { attempt: attempt("a") }, at(0)), [then(Step::Leave)]);
            let io = lanes.handle(ended("a", Outcome::Leaving), at(0));
            assert!(matches!(&io[..], [Io::Pool(warm_pool::Event::Left { .. })]), "{io:?}");
        }
    }
}

/// An attempt whose agents were ordered to exit at second 0.
fn leaving() -> Lanes {
    let mut lanes = Lanes::default();
    lanes.handle(requested(release("a")), at(0));
    lanes.handle(ended("a", Outcome::Leaving), at(0));
    lanes
}

fn checked(is_running: bool, is_mirroring: bool) -> Event {
    Event::ExitChecked { attempt: attempt("a"), is_running, is_mirroring }
}

#[test]
fn agents_have_three_seconds_to_exit_and_more_while_they_send_files() {
    for (mirrors_for_s, expected_s) in [(0, 3.0), (60, 60.0)] {
        let mut lanes = leaving();
        let mut checks = 0;
        let ended = loop {
            let now = Now { mono: lanes.deadline().expect("a check"), wall: Time(0) };
            assert_eq!(lanes.handle(Event::Timeout, now), [Io::CheckExit { attempt: attempt("a") }]);
            assert_eq!(lanes.deadline(), None, "one check at a time");
            checks += 1;
            if lanes.handle(checked(true, now.mono.0.as_secs() < mirrors_for_s), now) == [then(Step::Clear)] {
                break now.mono.0.as_secs_f64();
            }
        };
        assert!((ended - expected_s).abs() < 0.3, "{ended}");
        assert!(checks < 30 + 4 * mirrors_for_s, "{checks} checks");
    }
}

#[test]
fn agents_that_have_disconnected_are_checked_immediately() {
    let mut lanes = leaving();
    let disconnected = || Event::Disconnected { attempt: attempt("a") };
    assert_eq!(lanes.handle(disconnected(), at(0)), [Io::CheckExit { attempt: attempt("a") }]);
    assert_eq!(lanes.handle(disconnected(), at(0)), [], "a check is under way");
    assert_eq!(lanes.handle(checked(false, false), at(0)), [then(Step::Clear)]);
    assert_eq!(lanes.handle(checked(false, false), at(0)), [], "a repeated answer changes nothing");
    assert_eq!(
        lanes.handle(ended("a", Outcome::Commit(released("a"))), at(0))[0],
        Io::Commit { attempt: attempt("a"), command: released("a") }
    );
}

/// Pseudo-random numbers of a seed.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

#[test]
fn in_every_history_an_attempt_has_one_action_at_a_time_and_each_outcome_reaches_the_core() {
    for seed in 0..2000 {
        let mut random = Random(seed);
        let mut lanes = Lanes::default();
        let mut requests = VecDeque::from([launch("a"), stop("a"), store("a"), release("a")]);
        let (mut performing, mut committing): (Option<Action>, Option<Command>) = (None, None);
        let (mut performed, mut committed) = (Vec::new(), Vec::new());
        let mut now = 0;
        let mut answers: Vec<Event> = Vec::new();
        let is_over = |lanes: &Lanes| lanes.lanes.is_empty();
        while !requests.is_empty() || !is_over(&lanes) {
            let event = match (random.below(7), &performing, &committing) {
                (0, Some(Action::Launch { .. } | Action::StoreArtifacts { .. }), _) => {
                    performing = None;
                    ended("a", Outcome::NoSpace { reason: attempt("full"), has_written: random.below(2) == 0 })
                }
                (1, Some(action), _) => {
                    performed.push(action.clone());
                    performing = None;
                    if random.below(2) == 0 { done("a") } else { ended("a", Outcome::Commit(released("a"))) }
                }
                (2, _, Some(_)) => {
                    committing = None;
                    Event::CommitFailed { attempt: attempt("a") }
                }
                (3, _, Some(command)) => {
                    committed.push(command.clone());
                    committing = None;
                    Event::Committed { attempt: attempt("a") }
                }
                (4, ..) => {
                    now += random.below(3);
                    Event::Timeout
                }
                (5, Some(action), _) => {
                    let is_retained = random.below(2) == 0;
                    let outcome = match action {
                        Action::Launch { .. } => Outcome::Prepared { reuse_key: is_retained.then(|| attempt("key")) },
                        Action::Release { .. } if is_retained => Outcome::Retain(retention()),
                        Action::Release { .. } => Outcome::Leaving,
                        _ => continue,
                    };
                    performing = None;
                    ended("a", outcome)
                }
                (6, ..) if !answers.is_empty() => answers.remove(0),
                _ => match requests.pop_front() {
                    Some(action) => Event::Requested(action),
                    None => continue,
                },
            };
            for io in lanes.handle(event, at(now)) {
                match io {
                    Io::Perform { action, .. } => {
                        assert!(
                            committing.is_none() && performing.replace(action).is_none(),
                            "seed {seed}: two simultaneously"
                        );
                    }
                    Io::Continue { step, .. } => {
                        let action = if matches!(step, Step::Start(_)) { launch("a") } else { release("a") };
                        assert!(
                            committing.is_none() && performing.replace(action).is_none(),
                            "seed {seed}: two simultaneously"
                        );
                    }
                    Io::CheckExit { .. } => answers.push(checked(random.below(2) == 0, false)),
                    Io::Pool(warm_pool::Event::Requested { .. }) => answers.push(match random.below(2) {
                        0 => Event::Granted { attempt: attempt("a"), grant: grant() },
                        _ => Event::Declined { attempt: attempt("a") },
                    }),
                    Io::Pool(warm_pool::Event::Retain { .. }) => answers.push(match random.below(2) {
                        0 => Event::Retained { attempt: attempt("a") },
                        _ => Event::NotRetained { attempt: attempt("a") },
                    }),
                    Io::Pool(_) => {}
                    Io::Commit { command, .. } => {
                        assert!(
                            performing.is_none() && committing.replace(command).is_none(),
                            "seed {seed}: two simultaneously"
                        );
                    }
                    Io::Order(_) | Io::Cancel { .. } => {
                        let is_launching = matches!(performing, Some(Action::Launch { .. })) || !answers.is_empty();
                        assert!(is_launching, "seed {seed}: no launch is performed");
                    }
                    Io::LogDelay { .. } | Io::ReportDelay { .. } => {}
                }
            }
            lanes.check();
        }
        // A launch may be dropped for a stop, artifacts for the release; the others are done, in
        // order.
        let left = |action: &Action| matches!(action, Action::StopInstances { .. } | Action::Release { .. });
        performed.retain(left);
        assert_eq!(performed, [stop("a"), release("a")], "seed {seed}");
        assert!(lanes.lanes.is_empty(), "seed {seed}");
    }
}

#[test]
fn instances_that_cannot_be_added_hold_up_nothing_of_the_others() {
    let mut lanes = Still(Lanes::default());
    assert_eq!(lanes.handle(requested(join("a", &[3, 4]))), [perform(join("a", &[3, 4]))]);
    lanes.handle(no_space("a"));
    assert_eq!(lanes.handle(requested(clear("a", &[3]))), [perform(clear("a", &[3]))]);
    assert_eq!(lanes.handle(done("a")), [perform(join("a", &[4]))], "of those that wait only what was not removed");
    lanes.handle(no_space("a"));
    let members = |hosts: &[u32]| Action::SetMembers { attempt: attempt("a"), hosts: hosts.to_vec() };
    assert_eq!(lanes.handle(requested(members(&[1, 2]))), [perform(members(&[1, 2]))]);
    assert_eq!(lanes.handle(requested(members(&[1]))), [], "lists of members do not overtake each other");
    assert_eq!(lanes.handle(done("a")), [perform(join("a", &[4]))]);
    lanes.handle(no_space("a"));
    assert_eq!(lanes.handle(requested(store("a"))), [perform(members(&[1]))]);
    assert_eq!(lanes.handle(done("a")), [perform(store("a"))]);
    assert_eq!(lanes.handle(done("a")), []);
    // One that cannot be ended is left to the release.
    assert_eq!(lanes.handle(requested(clear("a", &[4]))), [perform(clear("a", &[4]))]);
    lanes.handle(no_space("a"));
    assert_eq!(lanes.handle(requested(store("a"))), [perform(store("a"))]);
}
