//! A network between hosts: each has a link of a given rate into it and one out of it, and a packet
//! takes a given time on the way.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// Every host's link.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Link {
    /// Bytes per second, each way.
    pub(crate) rate: f64,
    /// One way.
    pub(crate) delay: Duration,
}

/// Bytes that wait for a link before packets are dropped.
const QUEUE: f64 = 8e6;
/// Packets read from one host before the next one's turn.
const BURST: usize = 32;
/// Below this, it looks again instead of sleeping: a sleep is not more exact.
const EXACT: Duration = Duration::from_micros(30);

struct Packet {
    due: Instant,
    bytes: Vec<u8>,
}

/// One direction of a link.
#[derive(Clone, Copy)]
struct Direction {
    free: Instant,
}

impl Direction {
    /// When a packet that comes at `now` has passed; none where too much waits already.
    fn pass(&mut self, now: Instant, bytes: usize, rate: f64) -> Option<Instant> {
        let waits = self.free.saturating_duration_since(now).as_secs_f64() * rate;
        if waits > QUEUE {
            return None;
        }
        self.free = self.free.max(now) + Duration::from_secs_f64(bytes as f64 / rate);
        Some(self.free)
    }
}

/// Forwards for ever. Interface i is that of 10.77.0.(i + 1).
pub(crate) fn forward(interfaces: &[OwnedFd], link: Link) {
    let start = Instant::now();
    let mut out = vec![Direction { free: start }; interfaces.len()];
    let mut into = out.clone();
    let mut queues: Vec<VecDeque<Packet>> = interfaces.iter().map(|_| VecDeque::new()).collect();
    let mut spare: Vec<Vec<u8>> = Vec::new();
    let mut buffer = vec![0; 65_536];
    loop {
        let next = queues.iter().filter_map(|queue| queue.front()).map(|packet| packet.due).min();
        sleep(interfaces, next);
        for (from, interface) in interfaces.iter().enumerate() {
            for _ in 0..BURST {
                let Ok(count) = rustix::io::read(interface, &mut buffer[..]) else { break };
                let Some(to) = destination(&buffer[..count], interfaces.len()) else { continue };
                let now = Instant::now();
                let Some(sent) = out[from].pass(now, count, link.rate) else { continue };
                // The first bit is at the other end when the last but `count` bytes is sent.
                let begins = sent + link.delay - Duration::from_secs_f64(count as f64 / link.rate);
                let Some(due) = into[to].pass(begins, count, link.rate) else { continue };
                let mut bytes = spare.pop().unwrap_or_default();
                bytes.clear();
                bytes.extend_from_slice(&buffer[..count]);
                queues[to].push_back(Packet { due, bytes });
            }
        }
        let now = Instant::now();
        for (queue, interface) in queues.iter_mut().zip(interfaces) {
            while queue.front().is_some_and(|packet| packet.due <= now) {
                let packet = queue.pop_front().expect("looked at");
                // An interface that takes no more drops it, as a network would.
                let _ = rustix::io::write(interface, &packet.bytes);
                spare.push(packet.bytes);
            }
        }
    }
}

/// To which host an IPv4 packet goes.
fn destination(packet: &[u8], hosts: usize) -> Option<usize> {
    let [10, 77, 0, last] = *packet.get(16..20)? else { return None };
    (packet[0] >> 4 == 4).then(|| usize::from(last).wrapping_sub(1)).filter(|host| *host < hosts)
}

/// Until a packet comes or the next one is due.
fn sleep(interfaces: &[OwnedFd], next: Option<Instant>) {
    let left = next.map(|due| due.saturating_duration_since(Instant::now()));
    if left.is_some_and(|left| left < EXACT) {
        return;
    }
    let time = left.map(|left| Timespec { tv_sec: left.as_secs() as i64, tv_nsec: i64::from(left.subsec_nanos()) });
    let mut descriptors: Vec<_> = interfaces.iter().map(|interface| PollFd::new(interface, PollFlags::IN)).collect();
    // Interrupted or not, the caller looks again.
    let _ = poll(&mut descriptors, time.as_ref());
}
