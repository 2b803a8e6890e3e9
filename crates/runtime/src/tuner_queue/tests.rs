use shoal_plane::{Observation, Time};

use super::*;

fn at(ms: u64) -> Now {
    Now { mono: Mono(Duration::from_millis(ms)), wall: Time(0) }
}

fn ask(tuning: &str, seq: u64) -> TunerRequest {
    TunerRequest::Ask { tuning: tuning.into(), seq, wanted: 1, starts: 1 }
}

fn tell(tuning: &str, seq: u64) -> TunerRequest {
    let what = Observation::Reported { resource: 1, value: Some(0.5) };
    TunerRequest::Tell { tuning: tuning.into(), seq, definition: 0, trial: 1, what }
}

fn answer(requests: &[TunerRequest], reopens: bool) -> Io {
    Io::Answer { tuning: requests[0].tuning().to_owned(), requests: requests.to_vec(), reopens }
}

fn performed(tuning: &str, outcome: Outcome) -> Event {
    Event::Performed { tuning: tuning.into(), outcome }
}

fn done(tuning: &str) -> Event {
    performed(tuning, Outcome::Done { is_quick: false })
}

#[test]
fn tuning_jobs_take_turns_and_judgements_go_together() {
    let mut queue = TunerQueue::new(1);
    let mut handle = |event| queue.handle(event, at(0));
    assert_eq!(handle(Event::Requested(ask("a", 1))), [answer(&[ask("a", 1)], true)]);
    for request in [tell("a", 2), tell("a", 3), ask("a", 4), tell("a", 5), ask("b", 1)] {
        assert_eq!(handle(Event::Requested(request)), [], "one thread");
    }
    assert_eq!(handle(done("a")), [answer(&[ask("b", 1)], true)], "the other one's turn comes before its next");
    assert_eq!(handle(done("b")), [answer(&[tell("a", 2), tell("a", 3)], false)]);
    let quick = performed("a", Outcome::Done { is_quick: true });
    assert_eq!(handle(quick), [answer(&[ask("a", 4)], false)], "nothing goes with a suggestion that comes after it");
    handle(Event::Requested(ask("a", 6)));
    let quick = performed("a", Outcome::Done { is_quick: true });
    assert_eq!(handle(quick), [answer(&[tell("a", 5), ask("a", 6)], false)]);
    assert_eq!(handle(done("a")), []);
    assert_eq!(handle(done("a")), [], "a repeated answer changes nothing");
}

#[test]
fn what_cannot_be_stored_is_answered_again_with_studies_of_what_is_stored() {
    let mut queue = TunerQueue::new(2);
    queue.handle(Event::Requested(tell("a", 1)), at(0));
    queue.handle(done("a"), at(0));
    assert_eq!(queue.handle(Event::Requested(tell("a", 2)), at(0)), [answer(&[tell("a", 2)], false)]);
    assert_eq!(queue.handle(performed("a", Outcome::Again), at(0)), []);
    assert_eq!(queue.handle(Event::Requested(tell("a", 3)), at(1)), [], "not in a tight loop");
    assert_eq!(queue.deadline(), Some(at(200).mono));
    assert_eq!(queue.handle(Event::Timeout, at(200)), [answer(&[tell("a", 2), tell("a", 3)], true)]);
}

#[test]
fn a_search_that_can_never_continue_fails_with_all_its_requests() {
    let mut queue = TunerQueue::new(1);
    for request in [ask("a", 1), tell("a", 2), ask("b", 1)] {
        queue.handle(Event::Requested(request), at(0));
    }
    let never = performed("a", Outcome::Never { reason: "no range".to_owned() });
    let fail =
        Io::Fail { tuning: "a".into(), requests: vec![ask("a", 1), tell("a", 2)], reason: "no range".to_owned() };
    assert_eq!(queue.handle(never, at(0)), [fail], "by the same thread");
    assert_eq!(queue.handle(done("a"), at(0)), [answer(&[ask("b", 1)], true)]);
    assert_eq!(queue.handle(performed("b", Outcome::Over), at(0)), []);
}

#[test]
fn studies_of_a_tuning_job_that_has_ended_are_dropped() {
    let mut queue = TunerQueue::new(1);
    queue.handle(Event::Requested(ask("a", 1)), at(0));
    assert_eq!(queue.handle(Event::Timeout, at(2000)), [], "it is worked at");
    queue.handle(done("a"), at(2000));
    let check = Io::CheckEnd { tuning: "a".into() };
    assert_eq!(queue.handle(Event::Timeout, queue.deadline().map(|mono| Now { mono, ..at(0) }).unwrap()), [check]);
    let ended = || Event::Ended { tuning: "a".into() };
    queue.handle(Event::Requested(ask("a", 2)), at(4001));
    assert_eq!(queue.handle(ended(), at(4001)), [], "another one of its name has requests");
    queue.handle(done("a"), at(4002));
    assert_eq!(queue.handle(ended(), at(4002)), [Io::Close { tuning: "a".into() }]);
    assert_eq!(queue.deadline(), None);
}
