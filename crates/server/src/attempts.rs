//! Attempts that run: what each agent is told, whether it is connected, and what was ordered. The part that must survive a
//! restart is one file in the attempt's run directory, written before the first agent starts.

use std::{
    collections::HashMap,
    fs,
    io::{self, Write},
    net::Shutdown,
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    sync::{
        Arc, Condvar, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use serde::{Deserialize, Serialize};
use shoal_launch::AllocationSpec;
use shoal_link::{Assignment, Frame, Order, ToAgent, Visit, encode};

use crate::{keys::AccessKeys, silence::Ear, warm::Keep};

/// Files that agents bring while their program runs, each kind on a connection of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Brought {
    /// They have receipts.
    Checkpoints,
    /// They have none.
    Intermediate,
}

/// An agent that brings files is not waited for any more after so long without a byte.
const SAVER_PATIENCE: Duration = Duration::from_secs(30);

/// What is kept of an attempt on disk (`attempt.json`, version 1).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Plan {
    pub(crate) version: u32,
    pub(crate) job: String,
    pub(crate) attempt: String,
    /// Log streams, by host number - 1.
    pub(crate) streams: Vec<String>,
    /// S3 buckets and prefixes that the program may read.
    pub(crate) reads: Vec<(String, String)>,
    /// S3 buckets and prefixes that the program may write.
    pub(crate) writes: Vec<(String, String)>,
    /// `EnableNetworkIsolation`: the program gets no endpoint.
    pub(crate) isolated: bool,
    /// S3 bucket and prefix of the checkpoints; the prefix is empty or ends in `/`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) checkpoints: Option<(String, String)>,
    /// The same of the intermediate output.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) intermediate: Option<(String, String)>,
    /// By host number - 1; without the endpoint, which is derived.
    pub(crate) assignments: Vec<Assignment>,
    /// For whom its instance is kept afterwards.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) keep: Option<Keep>,
    /// The attempt for which its instance was started, if it was kept from that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) origin: Option<String>,
}

impl Plan {
    /// Version of the file's form.
    pub(crate) const VERSION: u32 = 1;
    /// Its name.
    pub(crate) const FILE: &str = "attempt.json";

    /// The attempt for which its instance was started.
    pub(crate) fn origin(&self) -> &str {
        self.origin.as_ref().unwrap_or(&self.attempt)
    }

    /// Writes the plan: the server's end does not harm it. The machine's does before [`Attempt::sync_plan`], but that ends the agents, too, and
    /// nobody has heard of them before.
    pub(crate) fn write(&self, run_dir: &Path) -> io::Result<()> {
        let (path, temporary) = (run_dir.join(Self::FILE), run_dir.join("attempt.json.new"));
        fs::write(&temporary, serde_json::to_vec(self)?)?;
        fs::rename(&temporary, &path)
    }

    /// Reads the plan, if there is one. One that the machine's end has kept from the disk is none.
    pub(crate) fn read(run_dir: &Path) -> io::Result<Option<Self>> {
        let bytes = match fs::read(run_dir.join(Self::FILE)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            read => read?,
        };
        let plan: Self = match serde_json::from_slice(&bytes) {
            // Its end is missing, or blocks that were never written read as zeros.
            Err(error) if error.is_eof() || bytes.contains(&0) => return Ok(None),
            read => read?,
        };
        if plan.version != Self::VERSION {
            return Err(io::Error::other(format!("{}: version {} is not known here", run_dir.display(), plan.version)));
        }
        Ok(Some(plan))
    }
}

/// An attempt that runs.
pub(crate) struct Attempt {
    pub(crate) plan: Plan,
    pub(crate) allocation: AllocationSpec,
    /// The program's.
    pub(crate) keys: AccessKeys,
    /// The agents' secret.
    pub(crate) token: String,
    hosts: Mutex<Vec<Host>>,
    /// A host has connected.
    connection: Condvar,
    /// The plan's file is durable.
    plan_is_synced: Mutex<bool>,
    /// A kept instance is called for it; if that does not come it gets another, so that nobody misses it.
    is_called: AtomicBool,
}

/// The way down to an agent. Messages are whole, whoever sends.
#[derive(Clone)]
pub(crate) struct Down(Arc<Mutex<UnixStream>>);

impl Down {
    pub(crate) fn new(stream: UnixStream) -> Self {
        Self(Arc::new(Mutex::new(stream)))
    }

    pub(crate) fn send(&self, message: ToAgent) -> io::Result<()> {
        self.send_frame(&Frame::Message(message))
    }

    pub(crate) fn send_frame(&self, frame: &Frame<ToAgent>) -> io::Result<()> {
        let bytes = encode(frame).map_err(io::Error::other)?;
        self.0.lock().expect("no holder of this lock panics").write_all(&bytes)
    }

    /// Whether both are the same.
    pub(crate) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    pub(crate) fn close(&self) {
        // One that is closed already is what is wanted.
        let _ = self.0.lock().expect("no holder of this lock panics").shutdown(Shutdown::Both);
    }
}

#[derive(Default)]
struct Host {
    /// The connection's number and its way down.
    connection: Option<(u64, Down)>,
    ear: Ear,
    waits_for_disk: bool,
    /// Its agent knows what a visit is.
    takes_visits: bool,
    /// Held by the connection that is served: one at a time.
    turn: Arc<Mutex<()>>,
    orders: Vec<Order>,
    /// The connections that bring files, by [`Brought`].
    savers: [Savers; 2],
}

/// Why a host cannot be visited.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NoVisit {
    /// Its agent comes back by itself, or is about to be given up.
    #[error("its agent is not connected at the moment; try again")]
    NotConnected,
    /// It was started by a server before this one.
    #[error("its agent is of an older version that has no visits; a training job that is created now can be visited")]
    TooOld,
}

/// Connections that bring files of one kind.
#[derive(Default)]
struct Savers {
    present: Option<Saver>,
    /// As `Host::turn`.
    turn: Arc<Mutex<()>>,
}

struct Saver {
    number: u64,
    down: Down,
    heard: Instant,
}

impl Attempt {
    pub(crate) fn new(plan: Plan, allocation: AllocationSpec, owner: &AccessKeys) -> Self {
        let hosts = plan.assignments.iter().map(|_| Host::default()).collect();
        let (keys, token) = (owner.of_attempt(&plan.attempt), owner.agent_token(&plan.attempt));
        Self {
            plan,
            allocation,
            keys,
            token,
            hosts: Mutex::new(hosts),
            connection: Condvar::new(),
            plan_is_synced: Mutex::new(false),
            is_called: AtomicBool::new(false),
        }
    }

    /// One for which a kept instance is called.
    pub(crate) fn called(self) -> Self {
        Self { is_called: AtomicBool::new(true), ..self }
    }

    /// Its instance has come.
    pub(crate) fn has_come(&self) {
        self.is_called.store(false, Ordering::Release);
    }

    /// Whether its instance is still called.
    pub(crate) fn is_called(&self) -> bool {
        self.is_called.load(Ordering::Acquire)
    }

    /// Where its plan and its artifacts' parts are; the agents' own files are in the allocation's directory.
    pub(crate) fn run_dir(&self) -> PathBuf {
        self.allocation.dir.with_file_name(&self.plan.attempt)
    }

    /// Makes the plan durable, unless it is: called before anything that the agents say is.
    pub(crate) fn sync_plan(&self) -> io::Result<()> {
        let mut is_synced = self.plan_is_synced.lock().expect("no holder of this lock panics");
        if !*is_synced {
            let dir = self.run_dir();
            fs::File::open(dir.join(Plan::FILE))?.sync_all()?;
            fs::File::open(dir)?.sync_all()?;
            *is_synced = true;
        }
        Ok(())
    }

    /// Waits until all hosts' agents are connected; says whether they are.
    pub(crate) fn await_connected(&self, patience: Duration) -> bool {
        let lacks = |hosts: &mut Vec<Host>| hosts.iter().any(|host| host.connection.is_none());
        let waited = self.connection.wait_timeout_while(self.lock(), patience, lacks);
        !waited.expect("no holder of this lock panics").1.timed_out()
    }

    /// A host's agent has connected: standing orders go down at once. An older connection is forgotten.
    pub(crate) fn connect(&self, host: u32, connection: u64, down: &Down, takes_visits: bool) -> io::Result<()> {
        let mut hosts = self.lock();
        let host = &mut hosts[host as usize - 1];
        for order in &host.orders {
            down.send(ToAgent::Order(order.clone()))?;
        }
        host.connection = Some((connection, down.clone()));
        host.takes_visits = takes_visits;
        host.ear.connected();
        self.connection.notify_all();
        Ok(())
    }

    /// How many hosts' agents are connected.
    pub(crate) fn connected(&self) -> usize {
        self.lock().iter().filter(|host| host.connection.is_some()).count()
    }

    /// Whether a host's agent has a connection.
    pub(crate) fn is_connected(&self, host: u32) -> bool {
        self.lock()[host as usize - 1].connection.is_some()
    }

    /// What the server hears of a host, on this connection; one that another has replaced says nothing.
    pub(crate) fn hear(&self, host: u32, connection: u64, heard: fn(&mut Ear)) {
        let host = &mut self.lock()[host as usize - 1];
        if host.connection.as_ref().is_some_and(|(number, _)| *number == connection) {
            heard(&mut host.ear);
        }
    }

    /// Notes whether what a host says cannot be stored; says whether that is news.
    pub(crate) fn waits_for_disk(&self, host: u32, waits: bool) -> bool {
        let host = &mut self.lock()[host as usize - 1];
        std::mem::replace(&mut host.waits_for_disk, waits) != waits
    }

    /// Whether a host was ordered to stop or may go.
    pub(crate) fn is_stopping(&self, host: u32) -> bool {
        self.lock()[host as usize - 1].orders.iter().any(|order| matches!(order, Order::Stop { .. } | Order::Release))
    }

    /// Time has passed in which the server listened: how long each host has been silent, by number.
    pub(crate) fn listened(&self, time: Duration) -> Vec<(u32, Duration)> {
        (1..).zip(self.lock().iter_mut().map(|host| host.ear.passes(time))).collect()
    }

    /// Ends the connection that a host has, if it has one: its reader sees the end after what has come already.
    pub(crate) fn hang_up(&self, host: u32) {
        if let Some((_, down)) = &self.lock()[host as usize - 1].connection {
            down.close();
        }
    }

    /// See `Host::turn`.
    pub(crate) fn turn(&self, host: u32) -> Arc<Mutex<()>> {
        self.lock()[host as usize - 1].turn.clone()
    }

    pub(crate) fn disconnect(&self, host: u32, connection: u64) {
        let mut hosts = self.lock();
        let host = &mut hosts[host as usize - 1];
        if host.connection.as_ref().is_some_and(|(number, _)| *number == connection) {
            host.connection = None;
            host.ear.disconnected();
        }
    }

    /// A host's agent will bring such files on this connection. An older one is closed; what it has read is stored first: the lock that is
    /// returned is held until then.
    pub(crate) fn connect_saver(&self, host: u32, what: Brought, number: u64, down: &Down) -> Arc<Mutex<()>> {
        let mut hosts = self.lock();
        let savers = &mut hosts[host as usize - 1].savers[what as usize];
        if let Some(older) = savers.present.replace(Saver { number, down: down.clone(), heard: Instant::now() }) {
            older.down.close();
        }
        savers.turn.clone()
    }

    /// Something came on it.
    pub(crate) fn heard_saver(&self, host: u32, what: Brought, number: u64) {
        let savers = &mut self.lock()[host as usize - 1].savers[what as usize];
        if let Some(saver) = savers.present.as_mut().filter(|saver| saver.number == number) {
            saver.heard = Instant::now();
        }
    }

    pub(crate) fn disconnect_saver(&self, host: u32, what: Brought, number: u64) {
        let saver = &mut self.lock()[host as usize - 1].savers[what as usize].present;
        if saver.as_ref().is_some_and(|saver| saver.number == number) {
            *saver = None;
        }
    }

    /// Whether an agent is still bringing files.
    pub(crate) fn is_saving(&self) -> bool {
        let hosts = self.lock();
        let mut savers = hosts.iter().flat_map(|host| &host.savers).filter_map(|savers| savers.present.as_ref());
        savers.any(|saver| saver.heard.elapsed() < SAVER_PATIENCE)
    }

    /// Gives an order that stands until the attempt is released.
    pub(crate) fn order(&self, host: u32, order: Order) {
        let mut hosts = self.lock();
        let Some(host) = hosts.get_mut(host as usize - 1) else { return };
        if let Some((_, down)) = &host.connection {
            // An agent that cannot be reached gets its orders when it comes back.
            let _ = down.send(ToAgent::Order(order.clone()));
        }
        if matches!(order, Order::Freeze | Order::Thaw { .. }) {
            // The last one stands.
            host.orders.retain(|order| !matches!(order, Order::Freeze | Order::Thaw { .. }));
        }
        if !host.orders.contains(&order) {
            host.orders.push(order);
        }
    }

    /// Asks a host's agent, once, to open a connection for a visit.
    pub(crate) fn visit(&self, host: u32, id: &str, visit: &Visit) -> Result<(), NoVisit> {
        let down = match &self.lock()[host as usize - 1] {
            Host { connection: None, .. } => return Err(NoVisit::NotConnected),
            Host { takes_visits: false, .. } => return Err(NoVisit::TooOld),
            Host { connection: Some((_, down)), .. } => down.clone(),
        };
        down.send(ToAgent::Visit { id: id.to_owned(), visit: visit.clone() }).map_err(|_| NoVisit::NotConnected)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Host>> {
        self.hosts.lock().expect("no holder of this lock panics")
    }
}

/// All attempts that run, by id.
#[derive(Default)]
pub(crate) struct Attempts {
    running: Mutex<HashMap<String, Arc<Attempt>>>,
}

impl Attempts {
    pub(crate) fn get(&self, attempt: &str) -> Option<Arc<Attempt>> {
        self.lock().get(attempt).cloned()
    }

    /// Takes an attempt in, unless it is there: its agents may be connected already.
    pub(crate) fn insert(&self, attempt: Attempt) {
        self.lock().entry(attempt.plan.attempt.clone()).or_insert_with(|| Arc::new(attempt));
    }

    pub(crate) fn remove(&self, attempt: &str) {
        self.lock().remove(attempt);
    }

    pub(crate) fn all(&self) -> Vec<Arc<Attempt>> {
        self.lock().values().cloned().collect()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<String, Arc<Attempt>>> {
        self.running.lock().expect("no holder of this lock panics")
    }
}

/// Where an attempt's files are.
pub(crate) fn run_dir(runs: &Path, attempt: &str) -> PathBuf {
    runs.join(attempt)
}
