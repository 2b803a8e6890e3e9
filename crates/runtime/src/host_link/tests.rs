use shoal_plane::Time;

use super::*;

fn at(seconds: u64) -> Now {
    Now { mono: Mono(Duration::from_secs(seconds)), wall: Time(0) }
}

fn link(events: impl IntoIterator<Item = Event>) -> HostLink {
    let mut link = HostLink::default();
    events.into_iter().for_each(|event| drop(link.handle(event, at(0))));
    link
}

const OLD: ConnId = ConnId(1);
const NEW: ConnId = ConnId(2);
const NEWEST: ConnId = ConnId(3);

fn welcomed(conn: ConnId) -> Event {
    Event::Welcomed { conn, has_visits: true, has_sampling: true, has_rules: true }
}

#[test]
fn a_new_connection_is_served_when_what_the_older_one_delivered_is_stored() {
    let mut link = HostLink::default();
    assert_eq!(link.handle(Event::Hello(OLD), at(0)), [Io::Admit(OLD)]);
    assert_eq!(link.handle(welcomed(OLD), at(0)), []);
    assert_eq!(link.handle(Event::Hello(NEW), at(0)), [Io::Close(OLD)]);
    assert_eq!(link.handle(Event::Hello(NEWEST), at(0)), [Io::Close(NEW)], "only the newest one waits");
    assert_eq!(link.handle(Event::Closed(NEW), at(0)), []);
    assert_eq!(link.handle(Event::Closed(OLD), at(0)), [Io::Admit(NEWEST)]);
    assert_eq!(link.connected(), None, "not before its Welcome");
    assert_eq!(link.handle(welcomed(OLD), at(0)), [], "an older connection is nobody's any more");
    link.handle(welcomed(NEWEST), at(0));
    assert_eq!(link.connected(), Some(NEWEST));
    assert_eq!(link.handle(Event::Closed(OLD), at(0)), [], "a repeated end changes nothing");
    assert_eq!(link.connected(), Some(NEWEST));
}

#[test]
fn no_agent_of_a_warm_instance_is_served_before_all_are_connected() {
    let mut link = HostLink::awaiting_instance();
    assert_eq!(link.handle(Event::Hello(OLD), at(0)), []);
    assert_eq!(link.handle(Event::Hello(NEW), at(0)), [Io::Close(OLD)]);
    assert_eq!(link.handle(Event::Closed(OLD), at(0)), []);
    assert_eq!(link.handle(Event::InstanceConnected, at(1)), [Io::Admit(NEW)]);
    assert_eq!(link.handle(Event::InstanceConnected, at(1)), []);
    assert_eq!(link.handle(Event::Hello(NEWEST), at(2)), [Io::Close(NEW)]);
    assert_eq!(link.handle(Event::Closed(NEW), at(2)), [Io::Admit(NEWEST)]);

    let mut link = HostLink::awaiting_instance();
    link.handle(Event::Hello(OLD), at(0));
    assert_eq!(link.handle(Event::InstanceGivenUp, at(2)), [Io::Close(OLD)]);
}

#[test]
fn standing_orders_are_sent_to_each_new_connection_and_only_the_latest_pace() {
    let stop = || Order::Stop { grace_s: 1, reason: "requested".to_owned() };
    let mut link = link([Event::Hello(OLD), welcomed(OLD)]);
    for order in [stop(), Order::Freeze, Order::Thaw { until: Some(3) }, stop(), Order::Thaw { until: None }] {
        assert_eq!(link.handle(Event::Order(order.clone()), at(0)), [Io::Send(OLD, ToAgent::Order(order))]);
    }
    link.handle(Event::Closed(OLD), at(0));
    assert_eq!(link.handle(Event::Order(Order::Release), at(0)), [], "nobody is connected");
    assert_eq!(link.handle(Event::Hello(NEW), at(0)), [Io::Admit(NEW)]);
    let sent = [stop(), Order::Thaw { until: None }, Order::Release].map(|order| Io::Send(NEW, ToAgent::Order(order)));
    assert_eq!(link.handle(welcomed(NEW), at(0)), sent);
    assert!(link.is_stopping());
}

#[test]
fn an_agent_is_not_sent_orders_that_it_does_not_know() {
    let order = |ms| Order::Sample(shoal_link::Sampling { interval_ms: Some(ms), profile_ms: None });
    let mut link = link([
        Event::Hello(OLD),
        Event::Welcomed { conn: OLD, has_visits: true, has_sampling: false, has_rules: false },
    ]);
    assert_eq!(link.handle(Event::Order(order(1)), at(0)), []);
    assert_eq!(link.handle(Event::Order(Order::Freeze), at(0)), [Io::Send(OLD, ToAgent::Order(Order::Freeze))]);
    // The instance is replaced: the next agent is of this version.
    link.handle(Event::Closed(OLD), at(0));
    link.handle(Event::Order(order(2)), at(0));
    link.handle(Event::Hello(NEW), at(0));
    let rules = |name: &str| Order::ProfilerRules {
        rules: vec![shoal_link::Rule { name: name.to_owned(), ..shoal_link::Rule::default() }],
    };
    assert_eq!(link.handle(Event::Order(rules("one")), at(0)), []);
    assert_eq!(link.handle(Event::Order(rules("two")), at(0)), []);
    let sent = [Order::Freeze, order(2), rules("two")].map(|order| Io::Send(NEW, ToAgent::Order(order)));
    assert_eq!(link.handle(welcomed(NEW), at(0)), sent, "the latest of each kind");
}

#[test]
fn only_the_connection_that_counts_shows_that_the_agent_lives() {
    let second = Duration::from_secs(1);
    let mut link =
        link([Event::Hello(OLD), welcomed(OLD), Event::Received(OLD), Event::SignReceived(OLD), Event::Processed(OLD)]);
    assert_eq!([link.elapse(second), link.elapse(second)], [second, 2 * second]);
    for event in [Event::Hello(NEW), Event::Received(NEW), Event::SignReceived(NEW), Event::Processed(NEW)] {
        link.handle(event, at(0));
    }
    assert_eq!(link.elapse(second), 3 * second, "it is not welcomed");
    link.handle(Event::Received(OLD), at(0));
    assert_eq!(link.elapse(second), Duration::ZERO, "what the older one delivered is being stored");
    link.handle(Event::Closed(OLD), at(0));
    assert_eq!(link.elapse(second), second);
}

#[test]
fn a_mirror_is_waited_for_while_bytes_arrive() {
    let kind = MirrorKind::Checkpoints;
    let mut link = HostLink::default();
    assert_eq!(link.handle(Event::MirrorHello(kind, OLD), at(0)), [Io::Admit(OLD)]);
    assert_eq!(
        link.handle(Event::MirrorHello(MirrorKind::Intermediate, NEWEST), at(0)),
        [Io::Admit(NEWEST)],
        "each kind has its own"
    );
    link.handle(Event::MirrorClosed(MirrorKind::Intermediate, NEWEST), at(0));
    link.handle(Event::MirrorReceived(kind, OLD), at(25));
    assert!(link.is_mirroring(at(54).mono) && !link.is_mirroring(at(55).mono));
    assert_eq!(link.handle(Event::MirrorHello(kind, NEW), at(60)), [Io::Close(OLD)]);
    link.handle(Event::MirrorReceived(kind, OLD), at(80));
    assert!(link.is_mirroring(at(89).mono) && !link.is_mirroring(at(90).mono), "the newest one counts");
    assert_eq!(link.handle(Event::MirrorClosed(kind, OLD), at(90)), [Io::Admit(NEW)]);
    link.handle(Event::MirrorReceived(kind, NEW), at(90));
    assert!(link.is_mirroring(at(91).mono));
    link.handle(Event::MirrorClosed(kind, NEW), at(91));
    assert!(!link.is_mirroring(at(91).mono));
}

#[test]
fn visits_need_a_connected_agent_that_has_them() {
    for (events, expected) in [
        (vec![], Err(NoVisit::NotConnected)),
        (vec![Event::Hello(OLD)], Err(NoVisit::NotConnected)),
        (
            vec![
                Event::Hello(OLD),
                Event::Welcomed { conn: OLD, has_visits: false, has_sampling: false, has_rules: false },
            ],
            Err(NoVisit::TooOld),
        ),
        (vec![Event::Hello(OLD), welcomed(OLD)], Ok(OLD)),
        (vec![Event::Hello(OLD), welcomed(OLD), Event::Closed(OLD)], Err(NoVisit::NotConnected)),
    ] {
        assert_eq!(link(events).visited(), expected);
    }
}

/// Pseudo-random numbers of a seed.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

/// Connections break, agents reconnect before the server has stored everything, and orders come
/// meanwhile. Returns what is wrong; `is_hasty` admits a connection at its Hello, as a driver
/// without turns would.
fn history(seed: u64, is_hasty: bool) -> Result<(), String> {
    let mut random = Random(seed);
    let mut link = HostLink::default();
    // Connections that are open for the agent or whose bytes are being stored, those that are
    // served, and orders that each received.
    let (mut open, mut served, mut received) = (Vec::new(), Vec::new(), Vec::<(ConnId, Order)>::new());
    let mut ordered = Vec::new();
    let mut conns = 0;
    let perform = |ios: Vec<Io>, served: &mut Vec<ConnId>, received: &mut Vec<(ConnId, Order)>| {
        for io in ios {
            match io {
                Io::Admit(conn) if !served.contains(&conn) => served.push(conn),
                Io::Send(conn, ToAgent::Order(order)) => received.push((conn, order)),
                Io::Admit(_) | Io::Send(..) | Io::Close(_) => {}
            }
        }
    };
    for _ in 0..60 {
        let event = match random.below(4) {
            0 => {
                conns += 1;
                open.push(ConnId(conns));
                if is_hasty {
                    served.push(ConnId(conns));
                }
                Event::Hello(ConnId(conns))
            }
            1 => match served.last() {
                Some(conn) => welcomed(*conn),
                None => continue,
            },
            2 if !open.is_empty() => {
                let conn = open.remove(usize::try_from(random.below(open.len() as u64)).expect("small"));
                served.retain(|it| *it != conn);
                Event::Closed(conn)
            }
            _ => {
                let order =
                    if random.below(2) == 0 { Order::Freeze } else { Order::Thaw { until: Some(random.below(9)) } };
                ordered.push(order.clone());
                Event::Order(order)
            }
        };
        perform(link.handle(event, at(0)), &mut served, &mut received);
        if served.len() > 1 {
            return Err(format!("seed {seed}: connections {served:?} are served simultaneously"));
        }
    }
    // The agent connects once more, and everything older ends.
    let last = ConnId(conns + 1);
    perform(link.handle(Event::Hello(last), at(0)), &mut served, &mut received);
    for conn in open {
        served.retain(|it| *it != conn);
        perform(link.handle(Event::Closed(conn), at(0)), &mut served, &mut received);
    }
    if served != [last] {
        return Err(format!("seed {seed}: the last connection is not served, but {served:?}"));
    }
    perform(link.handle(welcomed(last), at(0)), &mut served, &mut received);
    let has = received.iter().rev().find(|(conn, _)| *conn == last).map(|(_, order)| order);
    if has != ordered.last() {
        return Err(format!("seed {seed}: the agent has {has:?} of {:?}", ordered.last()));
    }
    Ok(())
}

#[test]
fn in_every_history_one_connection_is_served_and_the_latest_pace_arrives() {
    for seed in 0..2000 {
        history(seed, false).unwrap_or_else(|problem| panic!("{problem}"));
    }
    assert!((0..20).any(|seed| history(seed, true).is_err()), "a driver that does not wait for its turn is found");
}
