//! Attempts that run: the assignments of their agents, and the sockets of
//! [`shoal_runtime::HostLink`]s. What must survive a restart is its [`Plan`].

mod plan;

use std::{
    collections::{BTreeMap, HashMap},
    fs, io,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, MutexGuard, OnceLock,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

use shoal_launch::{AllocationSpec, Watch};
use shoal_link::{Assignment, Input, Order, Program, ToAgent, Visit};
use shoal_plane::{AttemptId, Host};
use shoal_runtime::{
    ConnId, HostLink, NoVisit,
    host_link::{Event, Io},
};

pub(crate) use self::plan::Plan;
use crate::{agent_stream::AgentSender, clock, keys::AccessKeys};

/// How long what a lost agent had sent may take to be stored.
const LAST_STORED: Duration = Duration::from_secs(10);
/// In an attempt's directory: what its hosts join their network by.
pub(crate) const NETWORK_FILE: &str = "network";

/// An attempt that runs.
pub(crate) struct Attempt {
    pub(crate) plan: Plan,
    pub(crate) allocation: AllocationSpec,
    /// The program's.
    pub(crate) keys: AccessKeys,
    /// The agents' secret.
    pub(crate) token: String,
    /// By host number - 1. Each has a lock of its own: one that does not read delays no other.
    hosts: Vec<Mutex<HostState>>,
    /// The plan's file is durable.
    plan_is_synced: Mutex<bool>,
    /// GPUs of hosts that joined while the attempt ran: their assignments differ from the plan's.
    joined: Mutex<BTreeMap<Host, Vec<u32>>>,
    /// Whether its agents may be lost. Not while a warm instance is to connect: if it does not, the
    /// attempt gets a new one.
    is_watched: AtomicBool,
    /// Reports the ends of its agents once they are ordered to exit.
    pub(crate) exit_watch: OnceLock<Watch>,
}

/// Drives one host's link: the machine and its sockets.
#[derive(Default)]
struct HostState {
    link: HostLink,
    connections: HashMap<ConnId, Connection>,
    waits_for_disk: bool,
    /// Its instance was removed, and no other was added yet.
    is_absent: bool,
    /// To this server, at any time.
    has_connected: bool,
}

struct Connection {
    sender: AgentSender,
    /// Wakes the connection's thread when it is to be served; dropped when it never will be.
    admit: Option<mpsc::SyncSender<()>>,
}

impl HostState {
    fn handle(&mut self, event: Event) {
        let closed = match &event {
            Event::Closed(conn) | Event::MirrorClosed(_, conn) => Some(*conn),
            _ => None,
        };
        for io in self.link.handle(event, clock::now()) {
            let (Io::Admit(conn) | Io::Send(conn, _) | Io::Close(conn)) = &io;
            let Some(connection) = self.connections.get_mut(conn) else { continue };
            match io {
                Io::Admit(_) => drop(connection.admit.take().map(|admit| admit.send(()))),
                // What an unreachable agent misses is sent after its next hello.
                Io::Send(_, message) => drop(connection.sender.send(message)),
                Io::Close(_) => {
                    connection.sender.close();
                    connection.admit = None;
                }
            }
        }
        if let Some(conn) = closed {
            self.connections.remove(&conn);
        }
    }
}

impl Attempt {
    pub(crate) fn new(plan: Plan, allocation: AllocationSpec, owner: &AccessKeys) -> Self {
        let hosts = plan.assignments.iter().map(|_| Mutex::default()).collect();
        let (keys, token) = (owner.of_attempt(&plan.attempt), owner.agent_token(&plan.attempt));
        Self {
            plan,
            allocation,
            keys,
            token,
            hosts,
            plan_is_synced: Mutex::new(false),
            joined: Mutex::default(),
            is_watched: AtomicBool::new(true),
            exit_watch: OnceLock::new(),
        }
    }

    /// What a host's agent is to do; without the endpoint.
    pub(crate) fn assignment(&self, host: Host) -> Assignment {
        let mut assignment = self.plan.assignments[host.0 as usize - 1].clone();
        if let Some(gpus) = self.joined().get(&host) {
            join(&mut assignment, gpus);
        }
        assignment
    }

    /// New instances with these GPUs take the places of hosts. The plan's file has them before they
    /// start.
    ///
    /// # Errors
    /// The plan cannot be written.
    pub(crate) fn add_hosts(&self, hosts: &[(Host, Vec<u32>)]) -> io::Result<()> {
        let mut joined = self.joined();
        joined.extend(hosts.iter().cloned());
        let mut plan = self.plan.clone();
        for (host, gpus) in &*joined {
            join(&mut plan.assignments[host.0 as usize - 1], gpus);
        }
        hosts.iter().for_each(|(host, _)| self.host(*host).is_absent = false);
        // Facts about the attempt are durable already, so the plan must be, too.
        let (dir, mut is_synced) = (self.run_dir(), self.plan_is_synced.lock().expect("no holder of this lock panics"));
        plan.write(&dir)?;
        fs::File::open(dir.join(Plan::FILE))?.sync_all()?;
        fs::File::open(dir)?.sync_all()?;
        *is_synced = true;
        Ok(())
    }

    /// Hosts without an instance.
    pub(crate) fn absent(&self) -> usize {
        self.all_hosts().filter(|host| host.is_absent).count()
    }

    fn joined(&self) -> MutexGuard<'_, BTreeMap<Host, Vec<u32>>> {
        self.joined.lock().expect("no holder of this lock panics")
    }

    /// Closes the connections of a removed instance, waits until what they delivered is stored, and
    /// resets the host for the next instance.
    pub(crate) fn clear_host(&self, host: Host) {
        self.host(host).connections.values().for_each(|connection| connection.sender.close());
        let until = Instant::now() + LAST_STORED;
        while !self.host(host).connections.is_empty() && Instant::now() < until {
            thread::sleep(Duration::from_millis(2));
        }
        *self.host(host) = HostState { is_absent: true, ..HostState::default() };
    }

    /// One that waits for a warm instance.
    pub(crate) fn awaiting_instance(self) -> Self {
        let hosts = self
            .hosts
            .iter()
            .map(|_| Mutex::new(HostState { link: HostLink::awaiting_instance(), ..HostState::default() }))
            .collect();
        Self { hosts, is_watched: AtomicBool::new(false), ..self }
    }

    /// Its warm instance has connected: its agents are served.
    pub(crate) fn instance_connected(&self) {
        self.set_watched(true);
        self.all_hosts().for_each(|mut host| host.handle(Event::InstanceConnected));
    }

    /// Its warm instance has not connected: its agents are served no more.
    pub(crate) fn instance_given_up(&self) {
        self.all_hosts().for_each(|mut host| host.handle(Event::InstanceGivenUp));
    }

    /// Whether its agents may be lost.
    pub(crate) fn is_watched(&self) -> bool {
        self.is_watched.load(Ordering::Acquire)
    }

    pub(crate) fn set_watched(&self, is_watched: bool) {
        self.is_watched.store(is_watched, Ordering::Release);
    }

    /// Where its plan and its artifacts' parts are; the agents' own files are in the allocation's
    /// directory.
    pub(crate) fn run_dir(&self) -> PathBuf {
        self.allocation.dir.with_file_name(&*self.plan.attempt)
    }

    /// The first host's agent has made the job's network: its handle goes to those of the others.
    /// Where the hosts have the network of their machines, each reports an address, and gets those
    /// of all. The next server must know it, too, as it is reported once.
    pub(crate) fn set_network(&self, reporting: Host, handle: &str) -> io::Result<()> {
        let hosts = u32::try_from(self.hosts.len()).unwrap_or(u32::MAX);
        let write = |name: &str, text: &str| {
            let (path, draft) = (self.run_dir().join(name), self.run_dir().join(format!("{name}.new")));
            fs::write(&draft, text)?;
            fs::rename(&draft, &path)
        };
        let address = |host: Host| format!("{NETWORK_FILE}-{}", host.0);
        let (first, handle) = if self.plan.has_machine_network() {
            write(&address(reporting), handle)?;
            let addresses = Host::all(hosts).map(|host| fs::read_to_string(self.run_dir().join(address(host))));
            // The last one to report has all.
            let Ok(addresses) = addresses.collect::<io::Result<Vec<_>>>() else { return Ok(()) };
            (1, addresses.join(","))
        } else {
            (2, handle.to_owned())
        };
        write(NETWORK_FILE, &handle)?;
        for number in first..=hosts {
            let sender = {
                let host = self.host(Host(number));
                host.link
                    .connected()
                    .and_then(|conn| host.connections.get(&conn))
                    .map(|connection| connection.sender.clone())
            };
            // One that is not reached gets it after its next hello.
            let _ = sender.map(|sender| sender.send(ToAgent::Network { handle: handle.clone() }));
        }
        Ok(())
    }

    /// What the first host's agent has reported.
    pub(crate) fn network(&self) -> io::Result<Option<String>> {
        match fs::read_to_string(self.run_dir().join(NETWORK_FILE)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            read => read.map(Some),
        }
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

    /// Announces a connection by this event and waits for its turn to be served.
    ///
    /// # Errors
    /// A newer connection has replaced it.
    pub(crate) fn admit(&self, host: Host, conn: ConnId, sender: &AgentSender, hello: Event) -> io::Result<()> {
        let (admit, admitted) = mpsc::sync_channel(1);
        {
            let mut host = self.host(host);
            host.connections.insert(conn, Connection { sender: sender.clone(), admit: Some(admit) });
            host.has_connected = true;
            host.handle(hello);
        }
        admitted.recv().map_err(|_| io::Error::other("a newer connection of this agent has replaced it"))
    }

    /// Something happened on a connection of a host.
    pub(crate) fn handle(&self, host: Host, event: Event) {
        self.host(host).handle(event);
    }

    /// How many hosts' agents are connected.
    pub(crate) fn connected(&self) -> usize {
        self.all_hosts().filter(|host| host.link.connected().is_some()).count()
    }

    /// Hosts whose agents have never connected to this server.
    pub(crate) fn unconnected(&self) -> Vec<Host> {
        let hosts = Host::numbered().zip(self.all_hosts()).filter(|(_, host)| !host.is_absent && !host.has_connected);
        hosts.map(|(number, _)| number).collect()
    }

    /// Whether the end of a host's process is reported at once.
    pub(crate) fn is_end_news(&self, host: Host) -> bool {
        self.host(host).link.is_end_news()
    }

    /// Notes whether a host's reports cannot be stored; returns whether that is news.
    pub(crate) fn waits_for_disk(&self, host: Host, waits: bool) -> bool {
        std::mem::replace(&mut self.host(host).waits_for_disk, waits) != waits
    }

    /// Whether a host was ordered to stop or may exit.
    pub(crate) fn is_stopping(&self, host: Host) -> bool {
        self.host(host).link.is_stopping()
    }

    /// Time has passed in which the server read: how long each host has been silent, by number.
    pub(crate) fn elapse(&self, time: Duration) -> Vec<(Host, Duration)> {
        let hosts = Host::numbered().zip(self.all_hosts()).filter(|(_, host)| !host.is_absent);
        hosts.map(|(number, mut host)| (number, host.link.elapse(time))).collect()
    }

    /// Whether an agent is still mirroring files.
    pub(crate) fn is_mirroring(&self) -> bool {
        let now = clock::now().mono;
        self.all_hosts().any(|host| host.link.is_mirroring(now))
    }

    /// Gives an order that stands until the attempt is released.
    pub(crate) fn order(&self, host: Host, order: Order) {
        // A number of no host is a fault of the core, and no reason to panic here.
        if host.index().is_some_and(|index| index < self.hosts.len()) {
            self.handle(host, Event::Order(order));
        }
    }

    /// The same to all hosts.
    pub(crate) fn order_all(&self, order: &Order) {
        Host::all(self.allocation.instances).for_each(|host| self.order(host, order.clone()));
    }

    /// Requests once that a host's agent opens a connection for a visit.
    pub(crate) fn visit(&self, host: Host, id: &str, visit: &Visit) -> Result<(), NoVisit> {
        let sender = {
            let host = self.host(host);
            let conn = host.link.visited()?;
            host.connections.get(&conn).ok_or(NoVisit::NotConnected)?.sender.clone()
        };
        sender.send(ToAgent::Visit { id: id.to_owned(), visit: visit.clone() }).map_err(|_| NoVisit::NotConnected)
    }

    fn host(&self, host: Host) -> MutexGuard<'_, HostState> {
        self.hosts[host.0 as usize - 1].lock().expect("no holder of this lock panics")
    }

    fn all_hosts(&self) -> impl Iterator<Item = MutexGuard<'_, HostState>> {
        self.hosts.iter().map(|host| host.lock().expect("no holder of this lock panics"))
    }
}

/// Makes an assignment that of an instance that joins others.
fn join(assignment: &mut Assignment, gpus: &[u32]) {
    gpus.clone_into(&mut assignment.limits.gpus);
    if let Some(elastic) = &mut assignment.elastic {
        elastic.joins = true;
    }
}

/// All attempts that run, by id.
#[derive(Default)]
pub(crate) struct Attempts {
    running: Mutex<HashMap<AttemptId, Arc<Attempt>>>,
}

impl Attempts {
    pub(crate) fn get(&self, attempt: &str) -> Option<Arc<Attempt>> {
        self.lock().get(attempt).cloned()
    }

    /// Takes an attempt in, unless it is there: its agents may be connected already.
    pub(crate) fn insert(&self, attempt: Attempt) {
        self.lock().entry(attempt.plan.attempt.clone()).or_insert_with(|| Arc::new(attempt));
    }

    pub(crate) fn remove(&self, attempt: &AttemptId) {
        self.lock().remove(attempt);
    }

    pub(crate) fn all(&self) -> Vec<Arc<Attempt>> {
        self.lock().values().cloned().collect()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<AttemptId, Arc<Attempt>>> {
        self.running.lock().expect("no holder of this lock panics")
    }
}

/// Where an attempt's files are.
pub(crate) fn run_dir(runs: &Path, attempt: &AttemptId) -> PathBuf {
    runs.join(&**attempt)
}

/// Everything that an assignment's instance reads.
pub(crate) fn inputs_of(assignment: &Assignment) -> impl Iterator<Item = &Input> {
    let source = match &assignment.program {
        Program::Script { source, .. } => source.as_ref(),
        _ => None,
    };
    let checkpoints = assignment.checkpoint.as_ref().and_then(|checkpoint| checkpoint.tree.as_ref());
    let of_rules = assignment.rules.iter().flat_map(|rule| rule.source.iter().chain(&rule.other_runs));
    assignment.channels.iter().map(|channel| &channel.tree).chain(source).chain(checkpoints).chain(of_rules)
}
