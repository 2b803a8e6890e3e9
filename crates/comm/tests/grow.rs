//! Groups that grew, against the conformance suite, and what happens on the way: newcomers that are
//! gone, more than are wanted, ranks that are lost meanwhile.

use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use rustix::net::{AddressFamily, SocketType, bind, getsockname, socket, sockopt};
use shoal_comm::rendezvous::{Carrier, Config, LocalStore, Meeting};
use shoal_comm::{Error, ProcessGroup, ProcessGroupExt, ReduceOp, conformance, join};

type Group = Arc<dyn ProcessGroup>;

/// Nothing here takes so long, on the busiest machine.
const PATIENCE: Duration = Duration::from_secs(60);

fn config(rank: usize, size: usize, meeting: &Meeting) -> Config {
    let config = Config::new(rank, size, meeting.clone()).patience(PATIENCE).heartbeat(PATIENCE);
    config.address([127, 0, 0, 1].into()).carrier(Carrier::Tcp)
}

fn store() -> Meeting {
    Meeting::Store(Arc::new(LocalStore::default()))
}

/// Runs each in a thread; all results, in order.
fn together<T: Send>(parts: Vec<Box<dyn FnOnce() -> T + Send + '_>>) -> Vec<T> {
    thread::scope(|scope| {
        let threads: Vec<_> = parts.into_iter().map(|part| scope.spawn(part)).collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
    })
}

fn first(size: usize, meeting: &Meeting) -> Vec<Group> {
    let part = |rank| -> Box<dyn FnOnce() -> Group + Send + '_> {
        Box::new(move || join(config(rank, size, meeting)).expect("all come"))
    };
    together((0..size).map(part).collect())
}

/// These ranks grow to `size` with as many newcomers as lack; all, by rank.
fn grown(ranks: Vec<Group>, size: usize, meeting: &Meeting) -> Vec<Group> {
    let lacking = size - ranks.len();
    let mut parts: Vec<Box<dyn FnOnce() -> Group + Send + '_>> = Vec::new();
    for rank in ranks {
        parts.push(Box::new(move || rank.grow(size, PATIENCE).expect("they live")));
    }
    for _ in 0..lacking {
        parts.push(Box::new(|| join(config(0, 1, meeting).joins(true)).expect("it is taken in")));
    }
    let mut groups = together(parts);
    groups.sort_by_key(|group| group.rank());
    groups
}

/// A world of that size which began with half of its ranks.
fn world(size: usize) -> Vec<Group> {
    let meeting = store();
    grown(first(size.div_ceil(2), &meeting), size, &meeting)
}

/// The sum over the ranks of 1, 10, 100.
fn sums(ranks: &[Group]) -> Vec<i64> {
    let part = |group: &Group| -> Box<dyn FnOnce() -> i64 + Send> {
        let group = Arc::clone(group);
        Box::new(move || {
            let mut one = [10_i64.pow(u32::try_from(group.rank()).expect("few"))];
            group.all_reduce(&mut one, ReduceOp::Sum).expect("they live");
            one[0]
        })
    };
    together(ranks.iter().map(part).collect())
}

#[test]
fn results() {
    for size in [2, 3, 5] {
        conformance::results(&world, size);
    }
}

#[test]
fn order_and_failures() {
    conformance::order_in(&world, 4);
    conformance::failures(&world);
}

#[test]
fn ranks_keep_their_order_and_newcomers_stand_behind_them() {
    let meeting = store();
    let two = first(2, &meeting);
    let four = grown(two.clone(), 4, &meeting);
    assert!(four.iter().all(|group| (group.size(), group.epoch()) == (4, 2)), "an epoch to agree, one to grow");
    assert_eq!(sums(&four), [1111; 4]);
    assert!(matches!(two[0].barrier(), Err(Error::Revoked { .. })), "the old group is of the past");
    // One of the first goes; the next oldest leads, and two come.
    drop(two);
    let mut four = four;
    drop(four.remove(0));
    let five = grown(four, 5, &meeting);
    assert_eq!(sums(&five), [11_111; 5]);
    assert_eq!(five.iter().map(|group| group.rank()).collect::<Vec<_>>(), [0, 1, 2, 3, 4]);
}

/// A port that the kernel gives to nobody else, listened at or not, as long as the socket is there:
/// it is bound to it and does not listen.
fn own_port() -> (OwnedFd, u16) {
    let held = socket(AddressFamily::INET, SocketType::STREAM, None).expect("a socket");
    sockopt::set_socket_reuseaddr(&held, true).expect("so that a listener may be bound beside it");
    bind(&held, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let port = SocketAddr::try_from(getsockname(&held).expect("its address")).expect("of IPv4").port();
    (held, port)
}

#[test]
fn the_meeting_place_is_served_anew_when_the_first_rank_is_lost() {
    let (_held, port) = own_port();
    let meeting = Meeting::Tcp { host: "127.0.0.1".to_owned(), port };
    let mut two = first(2, &meeting);
    drop(two.remove(0));
    let three = grown(two, 3, &meeting);
    assert_eq!(sums(&three), [111; 3]);
    let four = grown(three, 4, &meeting);
    assert_eq!(sums(&four), [1111; 4]);
}

#[test]
fn nobody_is_waited_for_longer_than_said() {
    let meeting = store();
    let alone = first(1, &meeting).remove(0);
    assert_eq!(alone.newcomers().expect("the store is there"), 0);
    let begun = Instant::now();
    let still = alone.grow(3, Duration::from_millis(100)).expect("it goes on alone");
    assert!(begun.elapsed() >= Duration::from_millis(100));
    assert_eq!((still.rank(), still.size()), (0, 1));
    assert_eq!(sums(&[still]), [1]);
}

#[test]
fn more_newcomers_than_are_wanted_wait_and_those_that_are_gone_are_passed_over() {
    let meeting = store();
    let alone = first(1, &meeting).remove(0);
    // Gives up at once: what it wrote stays, and nobody listens there.
    let short = config(0, 1, &meeting).joins(true).patience(Duration::from_millis(1));
    let error = join(short).expect_err("nobody takes it in");
    assert!(error.to_string().contains("no group took it in"), "{error}");
    let (meeting, alone) = (&meeting, &alone);
    let comes = |heartbeat: u64| -> Box<dyn FnOnce() -> Result<Group, Error> + Send + '_> {
        Box::new(move || {
            // In this order, whatever the machine does: the one with the other heartbeat comes
            // first.
            while alone.newcomers()? < 1 + usize::from(heartbeat == 60) {
                thread::sleep(Duration::from_millis(1));
            }
            join(
                config(0, 1, meeting)
                    .joins(true)
                    .heartbeat(Duration::from_secs(heartbeat))
                    .patience(Duration::from_secs(10)),
            )
        })
    };
    let grows: Box<dyn FnOnce() -> Result<Group, Error> + Send + '_> = Box::new(|| {
        while alone.newcomers()? < 3 {
            thread::sleep(Duration::from_millis(1));
        }
        alone.grow(2, PATIENCE)
    });
    let mut results = together(vec![grows, comes(60), comes(59)]);
    let refused = results.pop().expect("three").expect_err("its heartbeat is another");
    assert!(refused.to_string().contains("SHOAL_COMM_HEARTBEAT"), "{refused}");
    let mut two: Vec<_> = results.into_iter().map(|group| group.expect("taken in")).collect();
    assert_eq!(sums(&two), [11; 2]);
    // Nobody is taken in beyond the size that is wanted, and whoever waits is taken in later.
    let late = |_| -> Box<dyn FnOnce() -> Group + Send + '_> {
        Box::new(|| join(config(0, 1, meeting).joins(true)).expect("taken in"))
    };
    let mut parts: Vec<_> = (0..2).map(late).collect();
    for group in two.drain(..) {
        parts.push(Box::new(move || {
            let group = group.grow(3, PATIENCE).expect("one comes");
            assert_eq!(group.size(), 3);
            group
        }));
    }
    let third = thread::scope(|scope| {
        let threads: Vec<_> = parts.into_iter().map(|part| scope.spawn(part)).collect();
        let mut threads = threads.into_iter();
        let (one, other) = (threads.next().expect("two"), threads.next().expect("two"));
        let mut three: Vec<_> = threads.map(|thread| thread.join().expect("no panic")).collect();
        // The one of the two that was taken in is done; the other is, when they grow again.
        while !one.is_finished() && !other.is_finished() {
            thread::sleep(Duration::from_millis(1));
        }
        let (early, waits) = if one.is_finished() { (one, other) } else { (other, one) };
        three.push(early.join().expect("no panic"));
        let again: Vec<_> =
            three.into_iter().map(|group| scope.spawn(move || group.grow(4, PATIENCE).expect("one waits"))).collect();
        let mut four: Vec<_> = again.into_iter().map(|thread| thread.join().expect("no panic")).collect();
        four.push(waits.join().expect("no panic"));
        four
    });
    assert_eq!(sums(&third), [1111; 4]);
}
