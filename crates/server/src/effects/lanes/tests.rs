use shoal_plane::Placement;

use super::*;

fn attempt(name: &str) -> String {
    name.to_owned()
}

fn launch(of: &str) -> Action {
    let placement =
        Placement { cpus: 1, cpu_weight: 100, memory_bytes: 1, gpus: vec![vec![]], capped: None, others: Vec::new(), reserve_bytes: None };
    Action::Launch { job: attempt("job"), attempt: attempt(of), number: 1, placement, instances: 1, lease_s: 60, trial: None }
}

fn stop(of: &str) -> Action {
    Action::StopInstances { attempt: attempt(of), hosts: vec![1], grace_s: 1, reason: attempt("wanted") }
}

fn store(of: &str) -> Action {
    Action::StoreArtifacts { job: attempt("job"), attempt: attempt(of), number: 1, hosts: vec![1] }
}

fn release(of: &str) -> Action {
    Action::Release { job: attempt("job"), attempt: attempt(of) }
}

/// Lanes whose driver counts a launch's tries.
fn lanes() -> Lanes<u32> {
    Lanes::default()
}

fn done(of: &str) -> Event<u32> {
    Event::Done { attempt: attempt(of) }
}

#[test]
fn actions_of_one_attempt_run_one_after_the_other_and_others_beside_them() {
    let mut lanes = lanes();
    assert_eq!(lanes.handle(Event::Asked(store("a"))), [Io::Perform(store("a"), 0)]);
    assert_eq!(lanes.handle(Event::Asked(stop("a"))), []);
    assert_eq!(lanes.handle(Event::Asked(release("a"))), []);
    assert_eq!(lanes.handle(Event::Asked(launch("b"))), [Io::Perform(launch("b"), 0)]);
    assert_eq!(lanes.handle(done("a")), [Io::Perform(stop("a"), 0)]);
    assert_eq!(lanes.handle(done("a")), [Io::Perform(release("a"), 0)]);
    assert_eq!(lanes.handle(done("a")), []);
    assert_eq!(lanes.handle(done("b")), []);
    assert!(lanes.lanes.is_empty(), "attempts that have nothing to do are forgotten");
}

#[test]
fn a_release_cancels_a_launch_that_is_preparing() {
    let mut lanes = lanes();
    lanes.handle(Event::Asked(launch("a")));
    assert_eq!(lanes.handle(Event::Asked(release("a"))), [Io::Cancel { attempt: attempt("a") }]);
    assert_eq!(lanes.handle(done("a")), [Io::Perform(release("a"), 0)], "never two things at once for an attempt");
}

#[test]
fn a_stop_reaches_the_agents_that_a_launch_has_started_and_those_that_it_starts_yet() {
    let mut lanes = lanes();
    lanes.handle(Event::Asked(launch("a")));
    assert_eq!(lanes.handle(Event::Asked(stop("a"))), [Io::Order(stop("a"))]);
    assert_eq!(lanes.handle(done("a")), [Io::Perform(stop("a"), 0)]);
    assert_eq!(lanes.handle(done("a")), []);
}

#[test]
fn a_launch_without_room_is_tried_again_when_its_wait_is_over() {
    let mut lanes = lanes();
    lanes.handle(Event::Asked(launch("a")));
    assert_eq!(lanes.handle(Event::NoRoom { launch: launch("a"), delay: 1 }), [Io::Wait { attempt: attempt("a"), wait: 1 }]);
    assert_eq!(lanes.handle(Event::Due { attempt: attempt("a"), wait: 1 }), [Io::Perform(launch("a"), 1)]);
    assert_eq!(lanes.handle(Event::NoRoom { launch: launch("a"), delay: 2 }), [Io::Wait { attempt: attempt("a"), wait: 2 }]);
    assert_eq!(lanes.handle(Event::Due { attempt: attempt("a"), wait: 1 }), [], "a wait of before");
    assert_eq!(lanes.handle(Event::Due { attempt: attempt("a"), wait: 2 }), [Io::Perform(launch("a"), 2)]);
    assert_eq!(lanes.handle(Event::Due { attempt: attempt("a"), wait: 2 }), [], "it is performed already");
    assert_eq!(lanes.handle(done("a")), []);
}

#[test]
fn a_stop_and_a_release_wait_for_no_launch_that_waits_for_room() {
    for ends in [stop, release] {
        let mut lanes = lanes();
        lanes.handle(Event::Asked(launch("a")));
        lanes.handle(Event::NoRoom { launch: launch("a"), delay: 1 });
        assert_eq!(lanes.handle(Event::Asked(ends("a"))), [Io::Perform(ends("a"), 0)]);
        assert_eq!(lanes.handle(Event::Due { attempt: attempt("a"), wait: 1 }), [], "the launch is not wanted any more");
        assert_eq!(lanes.handle(done("a")), []);
        assert_eq!(lanes.handle(Event::Due { attempt: attempt("a"), wait: 1 }), [], "nor afterwards");

        // It finds no room while the other is asked for.
        lanes.handle(Event::Asked(launch("b")));
        lanes.handle(Event::Asked(ends("b")));
        assert_eq!(lanes.handle(Event::NoRoom { launch: launch("b"), delay: 1 }), [Io::Perform(ends("b"), 0)]);
        assert_eq!(lanes.handle(done("b")), []);
        assert!(lanes.lanes.is_empty());
    }
}

#[test]
fn whatever_comes_when_an_attempt_is_never_worked_at_twice_at_once() {
    let mut seed = 7_u64;
    let mut random = |below: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % below
    };
    for _ in 0..2000 {
        let mut lanes = lanes();
        let mut asked = VecDeque::from([launch("a"), stop("a"), store("a"), release("a")]);
        let (mut performing, mut waiting, mut performed): (Option<Action>, Option<u64>, Vec<Action>) = (None, None, Vec::new());
        while !asked.is_empty() || performing.is_some() || waiting.is_some() {
            let event = match (random(3), &performing, waiting) {
                (0, Some(launch @ Action::Launch { .. }), _) => Event::NoRoom { launch: launch.clone(), delay: 1 },
                (1, Some(action), _) => {
                    performed.push(action.clone());
                    done("a")
                }
                (2, _, Some(wait)) => {
                    waiting = None;
                    Event::Due { attempt: attempt("a"), wait }
                }
                _ => match asked.pop_front() {
                    Some(action) => Event::Asked(action),
                    None => continue,
                },
            };
            if matches!(event, Event::Done { .. } | Event::NoRoom { .. }) {
                performing = None;
            }
            for io in lanes.handle(event) {
                match io {
                    Io::Perform(action, _) => assert!(performing.replace(action).is_none(), "two at once"),
                    Io::Wait { wait, .. } => waiting = Some(wait),
                    Io::Order(_) | Io::Cancel { .. } => {
                        assert!(matches!(performing, Some(Action::Launch { .. })), "there is a launch to speak of");
                    }
                }
            }
        }
        performed.retain(|action| !matches!(action, Action::Launch { .. }));
        assert_eq!(performed, [stop("a"), store("a"), release("a")], "all else is done in order");
        assert!(lanes.lanes.is_empty());
    }
}
