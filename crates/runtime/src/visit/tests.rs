use shoal_plane::Time;

use super::*;

const CONN: ConnId = ConnId(7);

fn at(s: u64) -> Now {
    Now { mono: Mono(Duration::from_secs(1000 + s)), wall: Time(0) }
}

fn request(number: u64) -> RequestId {
    RequestId(number)
}

fn exited() -> VisitEnd {
    VisitEnd::Exited { code: 3 }
}

fn broken(reason: &str) -> VisitEnd {
    VisitEnd::Broken { reason: reason.to_owned() }
}

/// One whose agent is there.
fn served() -> Visit {
    let mut visit = Visit::new(at(0));
    assert_eq!(visit.handle(Event::Awaited(request(0)), at(0)), []);
    let io = visit.handle(Event::Arrived(CONN), at(0));
    assert_eq!(io, [Io::Serve(CONN), Io::Read, Io::Started(request(0), true)]);
    visit
}

#[test]
fn output_waits_for_its_reader_and_a_reader_for_output() {
    let mut visit = served();
    assert_eq!(visit.handle(Event::OutputArrived(5), at(1)), [Io::Read]);
    assert_eq!(visit.handle(Event::OutputWanted(request(1)), at(1)), [Io::Deliver(request(1), None)]);
    assert_eq!(visit.handle(Event::OutputWanted(request(2)), at(1)), []);
    assert_eq!(visit.handle(Event::OutputArrived(5), at(2)), [Io::Deliver(request(2), None), Io::Read]);
    assert_eq!(visit.handle(Event::OutputWanted(request(3)), at(2)), []);
    assert_eq!(visit.deadline(), Some(at(5).mono));
    assert_eq!(visit.handle(Event::Timeout, at(4)), []);
    assert_eq!(visit.handle(Event::Timeout, at(5)), [Io::Deliver(request(3), None)]);
    assert_eq!(visit.deadline(), Some(at(35).mono));
}

#[test]
fn a_later_reader_takes_the_place_of_one_that_waits() {
    let mut visit = served();
    assert_eq!(visit.handle(Event::OutputWanted(request(1)), at(0)), []);
    assert_eq!(visit.handle(Event::OutputWanted(request(2)), at(1)), [Io::Deliver(request(1), None)]);
    assert_eq!(visit.handle(Event::Ended(exited()), at(1)), [Io::Close, Io::Deliver(request(2), Some(exited()))]);
}

#[test]
fn the_end_comes_with_the_last_output_and_again_to_whoever_asks_again() {
    let mut visit = served();
    assert_eq!(visit.handle(Event::OutputArrived(5), at(0)), [Io::Read]);
    assert_eq!(visit.handle(Event::Ended(exited()), at(0)), [Io::Close]);
    assert_eq!(visit.handle(Event::Ended(broken("closed")), at(0)), [], "the first end counts");
    for number in 1..3 {
        let io = visit.handle(Event::OutputWanted(request(number)), at(number));
        assert_eq!(io, [Io::Deliver(request(number), Some(exited()))]);
    }
    assert_eq!(visit.deadline(), None);
}

#[test]
fn the_agent_is_read_no_further_while_much_output_waits() {
    let mut visit = served();
    assert_eq!(visit.handle(Event::OutputArrived(MAX_BYTES - 1), at(0)), [Io::Read]);
    assert_eq!(visit.handle(Event::OutputArrived(1), at(0)), []);
    assert_eq!(visit.handle(Event::OutputWanted(request(1)), at(1)), [Io::Deliver(request(1), None), Io::Read]);
}

#[test]
fn input_without_room_is_repeated_by_the_client() {
    let mut visit = served();
    assert_eq!(visit.handle(Event::InputOffered(request(1), 2 * MAX_BYTES), at(0)), [Io::Take(request(1))]);
    assert_eq!(visit.handle(Event::InputOffered(request(2), 1), at(0)), []);
    assert_eq!(visit.handle(Event::InputOffered(request(3), 1), at(1)), []);
    assert_eq!(visit.handle(Event::Timeout, at(3)), [Io::Repeat(request(2))]);
    assert_eq!(visit.handle(Event::InputSent(MAX_BYTES), at(3)), []);
    assert_eq!(visit.handle(Event::InputSent(MAX_BYTES), at(3)), [Io::Take(request(3))]);
    assert_eq!(visit.handle(Event::InputOffered(request(4), MAX_BYTES), at(3)), [Io::Take(request(4))]);
    assert_eq!(visit.handle(Event::InputOffered(request(5), 1), at(3)), []);
    assert_eq!(visit.handle(Event::Ended(exited()), at(3)), [Io::Close, Io::Take(request(5))]);
}

#[test]
fn a_client_that_is_gone_ends_its_visit() {
    let mut visit = served();
    assert_eq!(visit.handle(Event::OutputWanted(request(1)), at(0)), []);
    assert_eq!(visit.handle(Event::Abandoned(request(1)), at(1)), [Io::Close]);

    let mut visit = served();
    assert_eq!(visit.handle(Event::OutputWanted(request(1)), at(0)), []);
    let left = Some(broken("its client has left"));
    assert_eq!(visit.handle(Event::Left, at(1)), [Io::Close, Io::Deliver(request(1), left)]);

    let mut visit = served();
    assert_eq!(visit.handle(Event::InputOffered(request(1), 2 * MAX_BYTES), at(0)), [Io::Take(request(1))]);
    assert_eq!(visit.handle(Event::InputOffered(request(2), 1), at(0)), []);
    assert_eq!(visit.handle(Event::Abandoned(request(2)), at(0)), [], "its reader may be another connection");
    assert!(!visit.is_abandoned(at(29)));
    assert_eq!(visit.handle(Event::Timeout, at(29)), []);
    assert_eq!(visit.handle(Event::Timeout, at(30)), [Io::Close]);
    assert!(visit.is_abandoned(at(30)));
}

#[test]
fn an_agent_that_does_not_come_is_not_waited_for() {
    let mut visit = Visit::new(at(0));
    assert_eq!(visit.handle(Event::Awaited(request(0)), at(0)), []);
    assert_eq!(visit.deadline(), Some(at(20).mono));
    assert_eq!(visit.handle(Event::Timeout, at(20)), [Io::Started(request(0), false)]);
    assert_eq!(visit.handle(Event::Arrived(CONN), at(21)), [Io::Refuse(CONN)], "the client was told that it failed");
}

#[test]
fn one_connection_serves_a_visit() {
    let mut visit = served();
    assert_eq!(visit.handle(Event::Arrived(ConnId(8)), at(0)), [Io::Refuse(ConnId(8))]);
    assert_eq!(visit.handle(Event::Awaited(request(1)), at(0)), [Io::Started(request(1), true)]);
}

/// Every event is legal in every state: no request is answered twice, none is forgotten.
#[test]
fn each_request_has_one_answer_whatever_happens() {
    for seed in 1..2000_u64 {
        let mut random = seed;
        let mut below = move |most: u64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (random >> 33) % most
        };
        let (mut visit, mut open, mut clock, mut reads) = (Visit::new(at(0)), Vec::new(), 0, 0_i32);
        for number in 0..60 {
            let id = request(number);
            clock += below(3);
            let event = match below(9) {
                0 => Event::Awaited(id),
                1 | 2 => Event::OutputWanted(id),
                3 => Event::InputOffered(id, MAX_BYTES / 2),
                4 => Event::InputSent(MAX_BYTES / 2),
                5 => Event::Arrived(ConnId(number)),
                // It arrives only on a connection that is read.
                6 if reads > 0 => Event::OutputArrived(MAX_BYTES),
                7 if below(20) == 0 => Event::Ended(exited()),
                _ => Event::Timeout,
            };
            match event {
                Event::Awaited(_) | Event::OutputWanted(_) | Event::InputOffered(..) => open.push(id),
                Event::OutputArrived(_) => reads -= 1,
                _ => {}
            }
            for io in visit.handle(event, at(clock)) {
                match io {
                    Io::Started(id, _) | Io::Deliver(id, _) | Io::Take(id) | Io::Repeat(id) => {
                        let place = open.iter().position(|it| *it == id);
                        open.remove(place.unwrap_or_else(|| panic!("seed {seed}: {id:?} is answered twice")));
                    }
                    Io::Read => reads += 1,
                    _ => {}
                }
            }
            assert!(reads <= 1, "seed {seed}: the connection is read twice at a time");
        }
        for wait in [60, 120, 180] {
            for io in visit.handle(Event::Timeout, at(clock + wait)) {
                if let Io::Started(id, _) | Io::Deliver(id, _) | Io::Take(id) | Io::Repeat(id) = io {
                    open.retain(|it| *it != id);
                }
            }
        }
        assert_eq!(open, [], "seed {seed}: these are never answered");
        assert_eq!(visit.deadline(), None, "seed {seed}: something is held for ever");
    }
}
