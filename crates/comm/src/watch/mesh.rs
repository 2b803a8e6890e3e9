//! Who lives: a control connection to every other rank, and one thread that reads them all.
//!
//! A connection that ends without a goodbye means that the process died; where both are on one host
//! its process descriptor says so too, because children that a process forked keep its connections
//! open. Silence for nine tenths of the heartbeat means that it hangs: so it is known within the
//! heartbeat. Whoever finds a loss tells all, and a rank that was taken for hung is told so, too:
//! it is out.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::calls::Calls;
use super::message::Message;
use crate::Error;
use crate::guard::{Alarm, Fault};
use crate::rendezvous::frame::Decoder;

/// Bytes that may wait for one rank: above that it reads nothing any more.
const MOST_WAITING: usize = 4 << 20;
/// Faults kept for groups that this rank has not formed yet.
const MOST_EARLY: usize = 256;

/// What is known of another rank.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It was never connected.
    Absent,
    /// It gives signs of life.
    Alive,
    /// It said goodbye.
    Left,
    /// It is gone, or was silent for so many milliseconds.
    Lost { silent: Option<u64>, how: String },
}

struct Peer {
    fate: Fate,
    link: Option<Link>,
}

struct Link {
    stream: Arc<TcpStream>,
    /// Readable when the process has ended, where it is on this host.
    process: Option<Arc<OwnedFd>>,
    decoder: Decoder,
    out: Vec<u8>,
    heard: Instant,
}

/// A group that hears of losses.
struct Entry {
    epoch: u64,
    /// Rank to node.
    nodes: Vec<usize>,
    alarm: Weak<Alarm>,
}

pub(super) struct State {
    peers: Vec<Peer>,
    entries: Vec<Entry>,
    early: Vec<(u64, Fault)>,
    pub(super) calls: Calls,
    reform: VecDeque<(usize, Message)>,
    expelled: Option<String>,
    /// Connections to lost ranks.
    graves: Vec<Arc<TcpStream>>,
    closing: bool,
}

pub(super) struct Shared {
    me: usize,
    heartbeat: Duration,
    state: Mutex<State>,
    pub(super) changed: Condvar,
    wake: OwnedFd,
}

/// The control connections of this process.
pub(crate) struct Mesh {
    pub(super) shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl std::fmt::Debug for Mesh {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let fates: Vec<_> = self.shared.lock().peers.iter().map(|peer| peer.fate.clone()).collect();
        write!(f, "Mesh of node {}: {fates:?}", self.shared.me)
    }
}

impl Mesh {
    /// No connection yet, among `size` ranks of which this is `me`.
    pub(crate) fn new(me: usize, size: usize, heartbeat: Duration) -> Result<Self, Error> {
        let wake = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)
            .map_err(|error| Error::io("make an event descriptor for the control connections", error.into()))?;
        let peers = (0..size).map(|_| Peer { fate: Fate::Absent, link: None }).collect();
        let state = State {
            peers,
            entries: Vec::new(),
            early: Vec::new(),
            calls: Calls::default(),
            reform: VecDeque::new(),
            expelled: None,
            graves: Vec::new(),
            closing: false,
        };
        let shared = Arc::new(Shared { me, heartbeat, state: Mutex::new(state), changed: Condvar::new(), wake });
        let thread = thread::Builder::new()
            .name("comm-watch".to_owned())
            .spawn({
                let shared = Arc::clone(&shared);
                move || shared.run()
            })
            .map_err(|error| Error::io("start the thread of the control connections", error))?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// Watches that rank from now on; `pid` if it is on this host.
    pub(crate) fn attach(&self, node: usize, stream: TcpStream, pid: Option<u32>) -> Result<(), Error> {
        stream
            .set_nonblocking(true)
            .and_then(|()| stream.set_nodelay(true))
            .map_err(|error| Error::io(format!("set up the control connection to rank {node}"), error))?;
        let pid = pid.and_then(|pid| Pid::from_raw(i32::try_from(pid).ok()?));
        // A process that has ended since is found out by the connection.
        let process = pid.and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok()).map(Arc::new);
        let link = Link {
            stream: Arc::new(stream),
            process,
            decoder: Decoder::default(),
            out: Vec::new(),
            heard: Instant::now(),
        };
        self.shared.lock().peers[node] = Peer { fate: Fate::Alive, link: Some(link) };
        self.shared.wake();
        Ok(())
    }

    /// That group hears of every loss among its ranks from now on, and of those before.
    pub(crate) fn register(&self, epoch: u64, nodes: &[usize], alarm: &Arc<Alarm>) {
        let mut state = self.shared.lock();
        state.entries.retain(|entry| entry.alarm.strong_count() > 0);
        let entry = Entry { epoch, nodes: nodes.to_vec(), alarm: Arc::downgrade(alarm) };
        for (node, peer) in state.peers.iter().enumerate() {
            entry.hear(node, &peer.fate);
        }
        if let Some(why) = &state.expelled {
            alarm.raise(Fault::GaveUp { rank: entry.place(self.shared.me).unwrap_or_default(), why: why.clone() });
        }
        state.early.retain(|(of, fault)| {
            if *of == epoch {
                alarm.raise(fault.clone());
            }
            *of > epoch
        });
        state.entries.push(entry);
    }

    /// What is known of that rank.
    pub(crate) fn fate(&self, node: usize) -> Fate {
        self.shared.lock().peers[node].fate.clone()
    }

    /// Says something to some ranks.
    pub(crate) fn send(&self, nodes: &[usize], message: &Message) {
        let mut state = self.shared.lock();
        let bytes = message.encode();
        for node in nodes.iter().filter(|node| **node != self.shared.me) {
            if let Some(link) = &mut state.peers[*node].link {
                link.out.extend(&bytes);
            }
        }
        drop(state);
        self.shared.wake();
    }

    /// The next message about forming anew; `None` at `end`, or earlier when a rank was lost.
    pub(crate) fn next_reform(&self, end: Instant) -> Option<(usize, Message)> {
        let mut state = self.shared.lock();
        let lost = |state: &State| state.peers.iter().filter(|peer| !matches!(peer.fate, Fate::Alive)).count();
        let before = lost(&state);
        loop {
            if let Some(message) = state.reform.pop_front() {
                return Some(message);
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() || lost(&state) != before {
                return None;
            }
            state = self.shared.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Why this rank is out, if it is.
    pub(crate) fn expelled(&self) -> Option<String> {
        self.shared.lock().expelled.clone()
    }

    /// Takes that rank for lost, because a data connection to it says so.
    pub(crate) fn lose(&self, node: usize, how: &str) {
        let mut state = self.shared.lock();
        self.shared.lose(&mut state, node, None, how);
        drop(state);
        self.shared.wake();
    }
}

impl Drop for Mesh {
    fn drop(&mut self) {
        let others: Vec<_> = (0..self.shared.lock().peers.len()).collect();
        self.send(&others, &Message::Bye);
        self.shared.lock().closing = true;
        self.shared.wake();
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}

impl Entry {
    fn place(&self, node: usize) -> Option<usize> {
        self.nodes.iter().position(|other| *other == node)
    }

    fn hear(&self, node: usize, fate: &Fate) {
        let (Some(rank), Some(alarm)) = (self.place(node), self.alarm.upgrade()) else { return };
        match fate {
            Fate::Absent | Fate::Alive => {}
            Fate::Left => alarm.leave(rank),
            Fate::Lost { silent: Some(milliseconds), .. } => {
                alarm.raise(Fault::Hung { rank, milliseconds: *milliseconds });
            }
            Fate::Lost { silent: None, how } => alarm.raise(Fault::Died { rank, how: how.clone() }),
        }
    }
}

impl Shared {
    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wake(&self) {
        // Fails only where a wake-up is waiting already.
        let _ = rustix::io::write(&self.wake, &1_u64.to_ne_bytes());
    }

    /// Silence of which one hangs.
    fn limit(&self) -> Duration {
        self.heartbeat * 9 / 10
    }

    fn run(&self) {
        let beat = self.heartbeat / 10;
        let mut next_beat = Instant::now();
        let mut last_turn = Instant::now();
        let mut closing_since = None;
        loop {
            let (watched, streams, processes) = self.descriptors();
            let until = next_beat.saturating_duration_since(Instant::now()).min(beat);
            let ready = self.wait(&watched, &streams, &processes, until);
            let mut state = self.lock();
            let now = Instant::now();
            if now - last_turn > self.limit() / 2 {
                // This process itself was stopped or starved: what the others said meanwhile is
                // unread, so nobody is to blame.
                state.peers.iter_mut().filter_map(|peer| peer.link.as_mut()).for_each(|link| link.heard = now);
            }
            last_turn = now;
            for (node, ended) in ready {
                self.read(&mut state, node);
                if ended {
                    self.lose(&mut state, node, None, "its process ended");
                }
            }
            if now >= next_beat {
                next_beat = now + beat;
                let bytes = Message::Beat.encode();
                state.peers.iter_mut().filter_map(|peer| peer.link.as_mut()).for_each(|link| link.out.extend(&bytes));
                self.find_silent(&mut state, now);
            }
            self.flush(&mut state);
            if state.closing {
                let since = *closing_since.get_or_insert(now);
                let is_said = state.peers.iter().filter_map(|peer| peer.link.as_ref()).all(|link| link.out.is_empty());
                // A rank that does not read gets no goodbye, and finds the connection closed.
                if is_said || now - since > Duration::from_millis(200) {
                    return;
                }
            }
        }
    }

    /// The open connections: nodes, and what to poll for each.
    #[expect(clippy::type_complexity, reason = "three parallel lists that are used in one place")]
    fn descriptors(&self) -> (Vec<(usize, bool)>, Vec<Arc<TcpStream>>, Vec<(usize, Arc<OwnedFd>)>) {
        let state = self.lock();
        let (mut watched, mut streams, mut processes) = (Vec::new(), Vec::new(), Vec::new());
        for (node, peer) in state.peers.iter().enumerate() {
            if let Some(link) = &peer.link {
                watched.push((node, !link.out.is_empty()));
                streams.push(Arc::clone(&link.stream));
                processes.extend(link.process.clone().map(|process| (node, process)));
            }
        }
        (watched, streams, processes)
    }

    /// Sleeps until something is to be done; nodes to read from, and whether their process has
    /// ended.
    fn wait(
        &self,
        watched: &[(usize, bool)],
        streams: &[Arc<TcpStream>],
        processes: &[(usize, Arc<OwnedFd>)],
        until: Duration,
    ) -> Vec<(usize, bool)> {
        let mut descriptors = vec![PollFd::new(&self.wake, PollFlags::IN)];
        descriptors.extend(watched.iter().zip(streams).map(|((_, writes), stream)| {
            PollFd::new(&**stream, if *writes { PollFlags::IN | PollFlags::OUT } else { PollFlags::IN })
        }));
        descriptors.extend(processes.iter().map(|(_, process)| PollFd::new(&**process, PollFlags::IN)));
        let until = Timespec {
            tv_sec: i64::try_from(until.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(until.subsec_nanos()),
        };
        if poll(&mut descriptors, Some(&until)).is_err() {
            // Interrupted by a signal: look again.
            return Vec::new();
        }
        if !descriptors[0].revents().is_empty() {
            let mut count = [0; 8];
            let _ = rustix::io::read(&self.wake, &mut count);
        }
        let readable = PollFlags::IN | PollFlags::HUP | PollFlags::ERR;
        let ended: Vec<_> = processes
            .iter()
            .zip(&descriptors[1 + watched.len()..])
            .filter(|(_, descriptor)| !descriptor.revents().is_empty())
            .map(|((node, _), _)| *node)
            .collect();
        watched
            .iter()
            .zip(&descriptors[1..])
            .map(|((node, _), descriptor)| (*node, descriptor.revents().intersects(readable), ended.contains(node)))
            .filter(|(_, is_readable, ended)| *is_readable || *ended)
            .map(|(node, _, ended)| (node, ended))
            .collect()
    }

    /// Reads what there is from that rank.
    fn read(&self, state: &mut State, node: usize) {
        let mut buffer = [0; 16 * 1024];
        loop {
            let Some(link) = &mut state.peers[node].link else { return };
            match (&*link.stream).read(&mut buffer) {
                Ok(0) => return self.end(state, node, "its connection was closed"),
                Ok(count) => {
                    link.heard = Instant::now();
                    link.decoder.push(&buffer[..count]);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return self.end(state, node, &format!("its connection failed: {error}")),
            }
            loop {
                let Some(link) = &mut state.peers[node].link else { return };
                match link.decoder.next().map(|frame| frame.as_ref().map(Message::decode)) {
                    Ok(None) => break,
                    Ok(Some(Some(message))) => self.handle(state, node, message),
                    Ok(Some(None)) | Err(_) => return self.end(state, node, "it sent what is no control message"),
                }
            }
        }
    }

    /// The connection is over; what that means depends on whether it said goodbye.
    fn end(&self, state: &mut State, node: usize, how: &str) {
        if state.peers[node].fate == Fate::Left {
            state.peers[node].link = None;
        } else {
            self.lose(state, node, None, how);
        }
    }

    fn lose(&self, state: &mut State, node: usize, silent: Option<u64>, how: &str) {
        let peer = &mut state.peers[node];
        // One that left in order is lost, too, when somebody finds out that it is still needed.
        if !matches!(peer.fate, Fate::Alive | Fate::Left) {
            return;
        }
        peer.fate = Fate::Lost { silent, how: how.to_owned() };
        if let Some(link) = peer.link.take() {
            // If it lives after all it learns that it is out, and accuses nobody. It has room for
            // this, or will never read it.
            let _ = (&*link.stream).write(&Message::Expelled { milliseconds: silent.unwrap_or(0) }.encode());
            // Not closed: with something unread in it, that would reset the connection and take our
            // last word away.
            drop(link.stream.shutdown(std::net::Shutdown::Write));
            state.graves.push(link.stream);
        }
        let fate = state.peers[node].fate.clone();
        state.entries.iter().for_each(|entry| entry.hear(node, &fate));
        if state.expelled.is_some() {
            // Whoever is out sees all connections end, and knows nothing of the others.
            self.changed.notify_all();
            return;
        }
        let node = u32::try_from(node).expect("at most 1024 ranks");
        let bytes = Message::Lost { node, silent, how: how.to_owned() }.encode();
        state.peers.iter_mut().filter_map(|peer| peer.link.as_mut()).for_each(|link| link.out.extend(&bytes));
        self.changed.notify_all();
    }

    fn find_silent(&self, state: &mut State, now: Instant) {
        for node in 0..state.peers.len() {
            let peer = &state.peers[node];
            let Some(link) = &peer.link else { continue };
            let silence = now.saturating_duration_since(link.heard);
            if peer.fate == Fate::Alive && (silence > self.limit() || link.out.len() > MOST_WAITING) {
                let milliseconds = u64::try_from(silence.as_millis()).unwrap_or(u64::MAX);
                self.lose(state, node, Some(milliseconds), "no sign of life");
            }
        }
    }

    fn flush(&self, state: &mut State) {
        for node in 0..state.peers.len() {
            let Some(link) = &mut state.peers[node].link else { continue };
            while !link.out.is_empty() {
                match (&*link.stream).write(&link.out) {
                    Ok(count) => drop(link.out.drain(..count)),
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    // Reading says how it ended, and what was said before that.
                    Err(_) => link.out.clear(),
                }
            }
        }
    }

    fn handle(&self, state: &mut State, from: usize, message: Message) {
        match message {
            Message::Beat => {}
            Message::Lost { node, .. } if node as usize == self.me => self.expel(state, from, "no sign of life"),
            Message::Lost { node, silent, how } => {
                if (node as usize) < state.peers.len() {
                    self.lose(state, node as usize, silent, &how);
                }
            }
            Message::Expelled { milliseconds: 0 } => self.expel(state, from, "a connection to it was lost"),
            Message::Expelled { milliseconds } => {
                self.expel(state, from, &format!("{milliseconds} ms without a sign of life"));
            }
            Message::Bye => {
                state.peers[from].fate = Fate::Left;
                state.entries.iter().for_each(|entry| entry.hear(from, &Fate::Left));
            }
            Message::Fault { epoch, fault } => match state.entries.iter().find(|entry| entry.epoch == epoch) {
                Some(entry) => entry.alarm.upgrade().into_iter().for_each(|alarm| alarm.raise(fault.clone())),
                None if state.early.len() < MOST_EARLY => state.early.push((epoch, fault)),
                None => {}
            },
            Message::Call { epoch, members, text } => state.calls.heard(epoch, members, from, text),
            Message::Waits { epoch, waiting } => state.calls.waits(epoch, from, waiting),
            Message::Ready { .. }
            | Message::Newcomer { .. }
            | Message::Form { .. }
            | Message::Formed { .. }
            | Message::Go { .. } => {
                state.reform.push_back((from, message));
            }
        }
        self.changed.notify_all();
    }

    /// The others go on without this rank.
    fn expel(&self, state: &mut State, by: usize, why: &str) {
        let why = format!(
            "the group went on without this rank after {why}; end this process, or start it again as a replacement"
        );
        state.expelled.get_or_insert_with(|| why.clone());
        for entry in &state.entries {
            if let (Some(rank), Some(alarm)) = (entry.place(by), entry.alarm.upgrade()) {
                alarm.raise(Fault::GaveUp { rank, why: why.clone() });
            }
        }
    }
}
