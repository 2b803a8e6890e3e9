//! Hosts of a job on several machines fetch different parts of the inputs and pass them on to each
//! other, so that the server sends each about once. What comes from a host is compared with the
//! SHA-256 that the server has of it. All of this only fills the node's cache: what is missing
//! there afterwards is fetched from the server.

mod holding;
mod peer;
mod plan;
mod served;

use std::io;
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use hex_simd::AsciiCase;
use sha2::{Digest, Sha256};
use shoal_link::{Assignment, Delivery, Input, ObjectTree, Program};

use self::holding::Holding;
use self::peer::{Given, Peer};
use self::plan::Plan;
use self::served::Served;
use crate::Options;
use crate::asking::Handle;
use crate::inputs::{Failure, Line, PAUSE};
use crate::machine_network::Place;
use crate::own_log::say;

/// With less than that, each host fetches all of it sooner than it has met the others.
const WORTH_IT: u64 = 16 << 20;
/// Connections to the server.
const FROM_SERVER: usize = 2;
/// Hosts that are asked at the same time.
const FROM_HOSTS: usize = 3;
/// A host that has given nothing for this time, though it was asked, is not asked any more.
const HOST_TIMEOUT: Duration = Duration::from_secs(10);
const LOOK: Duration = Duration::from_millis(20);

/// What the caller has found out meanwhile.
pub(crate) enum News {
    /// The job is being stopped.
    Stop,
    /// Nothing that matters.
    None,
    /// Where all hosts are, by number - 1.
    Places(Vec<Place>),
}

/// What a host passes on, until this is dropped.
#[derive(Debug)]
pub(crate) struct Passing {
    holding: Arc<Holding>,
    served: Served,
}

impl Drop for Passing {
    fn drop(&mut self) {
        self.holding.end();
    }
}

/// Trees that all hosts of a job get alike, as far as one can know.
fn trees(assignment: &Assignment) -> Vec<ObjectTree> {
    let is_alike = |distribution: &str| distribution != "ShardedByS3Key";
    let channels = assignment.channels.iter().filter(|it| it.delivery == Delivery::Files && is_alike(&it.distribution));
    let source = match &assignment.program {
        Program::Script { source, .. } => source.as_ref(),
        _ => None,
    };
    let checkpoints = assignment.checkpoint.as_ref().and_then(|it| it.tree.as_ref());
    let inputs = channels.map(|channel| &channel.tree).chain(source).chain(checkpoints);
    let tree = |input: &Input| match input {
        Input::Objects(tree) => Some(tree.clone()),
        Input::Local(_) => None,
    };
    inputs.filter_map(tree).collect()
}

impl Passing {
    /// Listens for the other hosts; `None` where there is nothing to pass on.
    pub(crate) fn start(options: &Options, assignment: &Assignment, at: Ipv4Addr) -> Result<Option<Self>, Failure> {
        let (trees, hosts) = (trees(assignment), assignment.hosts.len());
        if trees.is_empty() || hosts < 2 || !assignment.machine_network.is_some_and(|network| network.has_sums) {
            return Ok(None);
        }
        let mut line = Line::connect(options)?;
        let listed = trees.into_iter().map(|tree| Ok((tree.clone(), line.list(&tree)?)));
        let holding = Arc::new(Holding::new(&options.objects, listed.collect::<Result<_, Failure>>()?)?);
        if holding.bytes() < WORTH_IT {
            return Ok(None);
        }
        Ok(Some(Self { served: Served::start(options, at, hosts, &holding)?, holding }))
    }

    /// As in [`Place::passes`].
    pub(crate) fn passes(&self) -> (u16, String) {
        self.served.passes()
    }

    /// Fills the cache, as far as that succeeds. Gives a line for the job's log.
    pub(crate) fn gather(
        &self,
        options: &Options,
        assignment: &Assignment,
        news: &mut dyn FnMut() -> News,
    ) -> Option<String> {
        let plan = Plan::new(assignment.host as usize - 1, assignment.hosts.len(), self.holding.missing());
        let work = Work {
            options,
            holding: &self.holding,
            names: &assignment.hosts,
            plan: Mutex::new(plan),
            changed: Condvar::new(),
            places: OnceLock::new(),
            is_over: AtomicBool::default(),
            handles: Mutex::default(),
            counts: Mutex::default(),
        };
        thread::scope(|scope| {
            for _ in 0..FROM_SERVER {
                scope.spawn(|| work.ask_server());
            }
            for _ in 0..FROM_HOSTS {
                scope.spawn(|| work.ask_hosts());
            }
            while !work.is_over() && !work.plan().is_complete() {
                match news() {
                    News::Stop => work.end(),
                    News::Places(places) => work.meet(places),
                    News::None => {}
                }
                thread::sleep(LOOK);
            }
            work.end();
        });
        let (server, hosts) = *work.counts.lock().expect("no holder of this lock panics");
        let note = || format!("inputs: {server} bytes came from the server and {hosts} from other hosts of the job");
        (server + hosts > 0).then(note)
    }
}

/// What the threads of one host share.
struct Work<'a> {
    options: &'a Options,
    holding: &'a Holding,
    names: &'a [String],
    plan: Mutex<Plan>,
    changed: Condvar,
    places: OnceLock<Vec<Place>>,
    is_over: AtomicBool,
    /// Of connections, which end with the work.
    handles: Mutex<Vec<Handle>>,
    /// Bytes from the server, and from hosts.
    counts: Mutex<(u64, u64)>,
}

/// Why a thread does not go on.
enum Halt {
    /// The work is over, or cannot be done: the server refuses, or the disk is full.
    Over,
    /// The host is of no use any more.
    Host(String),
}

impl Work<'_> {
    fn plan(&self) -> MutexGuard<'_, Plan> {
        self.plan.lock().expect("no holder of this lock panics")
    }

    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Acquire)
    }

    fn end(&self) {
        if !self.is_over.swap(true, Ordering::AcqRel) {
            for handle in self.handles.lock().expect("no holder of this lock panics").drain(..) {
                handle.end();
            }
        }
        self.changed.notify_all();
    }

    /// From now on the hosts that pass parts on are asked.
    fn meet(&self, places: Vec<Place>) {
        if self.places.get().is_none() {
            let without = (0..places.len()).filter(|host| places[*host].passes.is_none());
            without.for_each(|host| self.plan().leave_out(host));
            let _ = self.places.set(places);
        }
    }

    /// The next thing to do, when there is one; `None` when all is done.
    fn next<T>(&self, take: impl Fn(&mut Plan) -> Option<T>) -> Option<T> {
        let mut plan = self.plan();
        loop {
            if self.is_over() || plan.is_complete() {
                return None;
            }
            if let Some(taken) = take(&mut plan) {
                return Some(taken);
            }
            plan = self.changed.wait_timeout(plan, LOOK).expect("no holder of this lock panics").0;
        }
    }

    fn ask_server(&self) {
        let mut line = None;
        while let Some(number) = self.next(Plan::next_of_server) {
            let fetched = self.take_from_server(number, &mut line);
            match fetched {
                Ok(count) => self.count(None, count),
                Err(Failure::Lost(_)) => {
                    // Another server comes, or the lease ends.
                    line = None;
                    self.plan().again(number, None);
                    thread::sleep(PAUSE);
                }
                Err(Failure::Ended(error)) => {
                    say(format_args!("inputs are not passed on between hosts any more: {error}"));
                    return self.end();
                }
            }
        }
    }

    /// Bytes that were fetched.
    fn take_from_server(&self, number: usize, line: &mut Option<Line>) -> Result<u64, Failure> {
        if self.holding.find(number).map_err(own)? {
            return Ok(0);
        }
        let part = self.holding.part(number);
        let content = self.line(line)?.fetch_part(part)?;
        self.holding.store(number, &content).map_err(own)?;
        Ok(part.length)
    }

    fn line<'l>(&self, line: &'l mut Option<Line>) -> Result<&'l mut Line, Failure> {
        if line.is_none() {
            let new = Line::connect(self.options)?;
            self.end_with(new.handle())?;
            *line = Some(new);
        }
        Ok(line.as_mut().expect("it is there now"))
    }

    /// Notes a connection that is to end with the work.
    fn end_with(&self, handle: Handle) -> io::Result<()> {
        self.handles.lock().expect("no holder of this lock panics").push(handle);
        match self.is_over() {
            true => Err(io::Error::other("it is over")),
            false => Ok(()),
        }
    }

    fn count(&self, host: Option<usize>, bytes: u64) {
        {
            let mut counts = self.counts.lock().expect("no holder of this lock panics");
            *(if host.is_some() { &mut counts.1 } else { &mut counts.0 }) += bytes;
        }
        self.plan().got(host);
        self.changed.notify_all();
    }

    fn ask_hosts(&self) {
        let mut line = None;
        while let Some(host) = self.next(|plan| self.places.get().and_then(|_| plan.ask())) {
            let halt = self.ask(host, &mut line);
            if let Err(Halt::Host(reason)) = &halt
                && !self.is_over()
            {
                say(format_args!("{} passes nothing on: {reason}; others, or the server, do", self.names[host]));
                self.plan().drop_host(host);
            }
            self.plan().leave(host);
            self.changed.notify_all();
            if matches!(halt, Err(Halt::Over)) {
                return self.end();
            }
        }
    }

    /// Gets everything from a host that is to come from there.
    fn ask(&self, host: usize, line: &mut Option<Line>) -> Result<(), Halt> {
        let place = self.places.get().and_then(|places| places.get(host));
        let place = place.ok_or_else(|| Halt::Host("it has no place".to_owned()))?;
        let mut peer = Peer::connect(self.options, place).map_err(|error| Halt::Host(error.to_string()))?;
        self.end_with(peer.handle()).map_err(|_| Halt::Over)?;
        let mut last = Instant::now();
        while let Some(number) = { self.plan().next_of_host(host) } {
            let taken = self.take_from(&mut peer, number, line);
            if !matches!(taken, Ok(Taken::Here(_) | Taken::Absent)) {
                self.plan().again(number, Some(host));
            }
            match taken? {
                Taken::Here(bytes) => {
                    self.count(Some(host), bytes);
                    last = Instant::now();
                }
                Taken::Absent => self.plan().lacks(number, host),
                Taken::Later if last.elapsed() > HOST_TIMEOUT => {
                    return Err(Halt::Host(format!("nothing came for {} s", HOST_TIMEOUT.as_secs())));
                }
                Taken::Later => {}
            }
            if self.is_over() {
                return Ok(());
            }
        }
        Ok(())
    }

    fn take_from(&self, peer: &mut Peer, number: usize, line: &mut Option<Line>) -> Result<Taken, Halt> {
        if self.holding.find(number).map_err(|error| full(&error))? {
            return Ok(Taken::Here(0));
        }
        let part = self.holding.part(number);
        let content = match peer.part(part).map_err(|error| Halt::Host(error.to_string()))? {
            Given::Later => return Ok(Taken::Later),
            Given::Absent => return Ok(Taken::Absent),
            Given::Part(content) => content,
        };
        let sum = loop {
            match self.line(line).and_then(|line| line.part_sum(part)) {
                Ok(sum) => break sum,
                Err(Failure::Lost(_)) if !self.is_over() => {
                    *line = None;
                    thread::sleep(PAUSE);
                }
                Err(_) => return Err(Halt::Over),
            }
        };
        if sum != hex_simd::encode_to_string(Sha256::digest(&content), AsciiCase::Lower) {
            return Err(Halt::Host(format!("object {} came damaged from there", part.id)));
        }
        self.holding.store(number, &content).map_err(|error| full(&error))?;
        Ok(Taken::Here(part.length))
    }
}

/// What became of a part that a host was asked for.
enum Taken {
    /// It is here; the number of bytes that came.
    Here(u64),
    Later,
    Absent,
}

fn own(error: io::Error) -> Failure {
    Failure::Ended(crate::inputs::InputError::Place(error.into()))
}

fn full(error: &io::Error) -> Halt {
    say(format_args!("inputs are not passed on between hosts any more: {error}"));
    Halt::Over
}

#[cfg(test)]
mod tests;
