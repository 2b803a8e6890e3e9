//! One process's place among the others: its port, its control connections, and how groups are made
//! of them.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::process;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::reform::{Desk, Formed};
use crate::error::At;
use crate::front::{Front, Options, Parts};
use crate::guard::{Alarm, Fault, Stall, Watch};
use crate::rendezvous::{
    Carrier, Config, Door, FileStore, Meeting, Member, Name, Purpose, Secret, Store, StoreServer, TcpStore, gather,
    host_identity, knock, pid_namespace, rand_word, towards,
};
use crate::transport::hier::{self, Layout};
use crate::transport::{Transport, shm, tcp};
use crate::watch::{Fate, Formation, Mesh};
use crate::{Error, ProcessGroup};

/// How often a wait for a connection looks whether its rank still lives.
const LOOK: Duration = Duration::from_millis(20);

/// Forms a group of the processes that the configuration names: blocks until all have come, or
/// until its patience is over.
///
/// ```no_run
/// use shoal_comm::{ProcessGroupExt, ReduceOp, rendezvous::Config};
///
/// let group = shoal_comm::join(Config::from_env()?)?;
/// let mut gradient = vec![1.0_f32; 1000];
/// group.all_reduce(&mut gradient, ReduceOp::Avg)?;
/// # Ok::<(), shoal_comm::Error>(())
/// ```
///
/// # Errors
/// What is wrong with the configuration, who has not come, or who may not join; each says what to
/// do.
pub fn join(config: Config) -> Result<Arc<dyn ProcessGroup>, Error> {
    config.check()?;
    #[cfg(feature = "nccl")]
    if let Carrier::Nccl { device } = config.carrier {
        crate::transport::nccl::check(device)?;
    }
    let parts = if config.joins {
        super::arrive::arrive(&config)?
    } else if config.replaces {
        super::reform::replace(config)?
    } else {
        Node::meet(config)?.form(0, None)?
    };
    Ok(Arc::new(Front::new(parts)))
}

/// One process's place among the others.
#[derive(Debug)]
pub(crate) struct Node {
    pub(super) config: Config,
    pub(super) secret: Secret,
    pub(crate) me: usize,
    /// Drawn by the first rank 0.
    pub(super) group: u64,
    members: Mutex<Vec<Member>>,
    pub(super) door: Arc<Door>,
    pub(crate) mesh: Arc<Mesh>,
    /// The meeting place of replacements and newcomers, if this rank serves it; kept when the group
    /// grows.
    pub(super) server: Arc<Mutex<Option<StoreServer>>>,
    /// The meeting place as `grow` reaches it.
    pub(super) desk: Mutex<Option<Arc<Desk>>>,
}

/// A store, and the server of it where this rank is that.
pub(super) struct Place {
    pub(super) store: Box<dyn Store>,
    pub(super) server: Option<StoreServer>,
    pub(super) secret: Secret,
    /// The address of this machine on the way to it.
    pub(super) towards: IpAddr,
}

/// Finds the meeting place; `serves` if this rank is to make it where it needs a server.
pub(super) fn find(config: &Config, serves: bool) -> Result<Place, Error> {
    let (store, server, towards): (Box<dyn Store>, _, _) = match &config.meeting {
        Meeting::Tcp { host, port } if serves => {
            let server = StoreServer::serve(host, *port, &config.secret)?;
            let ip = server.address().ip();
            (Box::new(server.local()), Some(server), ip)
        }
        Meeting::Tcp { host, port } => {
            let rank = u32::try_from(config.rank).expect("at most 1024 ranks");
            let store = TcpStore::connect(host, *port, &config.secret, rank, config.patience)?;
            let ip = store.local_address();
            (Box::new(store), None, ip)
        }
        Meeting::Directory(path) => (Box::new(FileStore::open(path)?), None, outward(None)),
        Meeting::Store(store) => (Box::new(Shared(Arc::clone(store))), None, outward(store.server())),
    };
    let mut secret = config.secret.clone();
    if secret.is_empty() && server.is_none() && !matches!(config.meeting, Meeting::Tcp { .. }) {
        // Who reads the store belongs to us: the first rank draws a secret for all.
        let drawn = format!("{:016x}{:016x}", rand_word(), rand_word());
        secret = Secret::new(store.put("secret", drawn.as_bytes())?);
    }
    Ok(Place { store, server, secret, towards: config.address.unwrap_or(towards) })
}

/// A store of the caller's.
struct Shared(Arc<dyn Store>);

impl Store for Shared {
    fn put(&self, key: &str, value: &[u8]) -> Result<Vec<u8>, Error> {
        self.0.put(key, value)
    }

    fn wait(&self, key: &str, timeout: Duration) -> Result<Option<Vec<u8>>, Error> {
        self.0.wait(key, timeout)
    }

    fn place(&self) -> String {
        self.0.place()
    }
}

/// The address that this machine would use towards the outside, or else towards the store's server,
/// as in a network of its own; loopback where it has no such.
fn outward(server: Option<SocketAddr>) -> IpAddr {
    let outside = SocketAddr::from(([192, 0, 2, 1], 9));
    towards(outside).or_else(|| towards(server?)).unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST))
}

/// What this process says of itself.
pub(super) fn introduce(config: &Config, address: SocketAddr) -> Member {
    Member {
        rank: u32::try_from(config.rank).expect("at most 1024 ranks"),
        size: u32::try_from(config.size).expect("at most 1024 ranks"),
        incarnation: rand_word(),
        address,
        host: config.host.clone().unwrap_or_else(host_identity),
        pid: process::id(),
        pid_namespace: pid_namespace(),
        heartbeat: u32::try_from(config.heartbeat.as_millis()).unwrap_or(u32::MAX),
    }
}

impl Node {
    /// Meets the others for the first time and connects to all.
    pub(super) fn meet(config: Config) -> Result<Arc<Self>, Error> {
        let end = Instant::now() + config.patience;
        let Place { store, server, secret, towards } = find(&config, config.rank == 0)?;
        let door = Door::open(towards, &secret)?;
        let me = introduce(&config, door.address());
        let members = gather(&*store, &me, end.saturating_duration_since(Instant::now()))?;
        let group = members[0].incarnation;
        let (rank, size, heartbeat) = (config.rank, config.size, config.heartbeat);
        let mesh = Arc::new(Mesh::new(rank, size, heartbeat)?);
        let node = Self::assemble(config, secret, group, members, Arc::new(door), mesh, Arc::new(Mutex::new(server)));
        let name = Name { purpose: Purpose::Control, group, epoch: 0 };
        for other in (0..size).filter(|other| *other != rank) {
            let stream = node.reach(other, name, None, end)?;
            node.watch(other, stream)?;
        }
        Ok(node)
    }

    pub(super) fn members(&self) -> MutexGuard<'_, Vec<Member>> {
        self.members.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn member(&self, node: usize) -> Member {
        self.members()[node].clone()
    }

    pub(super) fn watch(&self, node: usize, stream: TcpStream) -> Result<(), Error> {
        let (they, we) = (self.member(node), self.member(self.me));
        self.mesh.attach(node, stream, (they.pid_namespace == we.pid_namespace).then_some(they.pid))
    }

    pub(crate) fn config(&self) -> &Config {
        &self.config
    }

    /// The group's number, which its first rank 0 drew.
    pub(crate) fn group(&self) -> u64 {
        self.group
    }

    /// A node that is complete but for its connections.
    pub(super) fn assemble(
        config: Config,
        secret: Secret,
        group: u64,
        members: Vec<Member>,
        door: Arc<Door>,
        mesh: Arc<Mesh>,
        server: Arc<Mutex<Option<StoreServer>>>,
    ) -> Arc<Self> {
        let me = config.rank;
        Arc::new(Self {
            config,
            secret,
            me,
            group,
            members: Mutex::new(members),
            door,
            mesh,
            server,
            desk: Mutex::default(),
        })
    }

    /// The connection of that name that the node makes, whatever its number.
    pub(super) fn admit(&self, node: usize, name: Name, end: Instant) -> Result<TcpStream, Error> {
        loop {
            if let Some(stream) = self.door.take(name, u32::try_from(node).expect("at most 1024 ranks"), LOOK) {
                return Ok(stream);
            }
            if Instant::now() >= end {
                return Err(Error::rendezvous(format!(
                    "rank {node} ({}) did not connect with rank {}: does it run, and can the two hosts reach each other on every port?",
                    self.member(node).text(),
                    self.me
                )));
            }
        }
    }

    /// The connection of that name with that node: the lower number takes, the higher one comes.
    pub(crate) fn reach(
        &self,
        node: usize,
        name: Name,
        alarm: Option<&Alarm>,
        end: Instant,
    ) -> Result<TcpStream, Error> {
        let they = self.member(node);
        let comes = self.me > node;
        loop {
            let failed = if comes {
                let left = end.saturating_duration_since(Instant::now()).max(LOOK);
                let me = u32::try_from(self.me).expect("at most 1024 ranks");
                match knock(they.address, &format!("rank {node}"), &self.secret, name, me, left) {
                    Ok(stream) => return Ok(stream),
                    Err(error @ (Error::Secret { .. } | Error::Version { .. })) => return Err(error),
                    Err(error) => Some(error),
                }
            } else {
                if let Some(stream) = self.door.take(name, u32::try_from(node).expect("at most 1024 ranks"), LOOK) {
                    return Ok(stream);
                }
                None
            };
            self.check(alarm, name.epoch)?;
            if Instant::now() >= end {
                let why = failed.map_or_else(|| "it has not come".to_owned(), |error| error.to_string());
                return Err(Error::rendezvous(format!(
                    "rank {} could not connect with rank {node} ({}): {why}. Can the two hosts reach each other on every port? Set \
                     SHOAL_COMM_ADDRESS where a host has several addresses",
                    self.me,
                    they.text()
                )));
            }
            if comes {
                std::thread::sleep(LOOK);
            }
        }
    }

    /// What an alarm says while connections are made.
    pub(super) fn check(&self, alarm: Option<&Alarm>, epoch: u64) -> Result<(), Error> {
        let at = || At { operation: "forming the group".to_owned(), number: epoch };
        if let Some(why) = self.mesh.expelled() {
            return Err(Error::PeerGaveUp { rank: self.me, why, at: at() });
        }
        match alarm.and_then(Alarm::fault) {
            None => Ok(()),
            Some(Fault::Died { rank, how }) => Err(Error::PeerDied { rank, how, at: at() }),
            Some(Fault::Hung { rank, milliseconds }) => Err(Error::PeerHung { rank, milliseconds, at: at() }),
            Some(Fault::GaveUp { rank, why }) => Err(Error::PeerGaveUp { rank, why, at: at() }),
            Some(Fault::Revoked | Fault::Dispute { .. } | Fault::Within { .. }) => Err(Error::Revoked { epoch }),
        }
    }

    /// An error if that node, for which this one waits to form a group, has ended by itself.
    pub(super) fn still_there(&self, node: usize, epoch: u64) -> Result<(), Error> {
        if self.mesh.fate(node) != Fate::Left {
            return Ok(());
        }
        let why = "it ended before the group was formed; what it wrote says why".to_owned();
        Err(Error::PeerGaveUp { rank: node, why, at: At { operation: "forming the group".to_owned(), number: epoch } })
    }

    /// The group of that epoch, of these nodes (all if not said): connections, transport, and what
    /// watches over it.
    pub(super) fn form(self: &Arc<Self>, epoch: u64, nodes: Option<&[usize]>) -> Result<Parts, Error> {
        let all: Vec<_> = (0..self.config.size).collect();
        let nodes = nodes.unwrap_or(&all);
        let rank = nodes.iter().position(|node| *node == self.me).expect("a rank forms only groups that it is in");
        self.door.forget_before(epoch);
        let watch = Arc::new(Formation::new(&self.mesh, self.me, epoch, nodes));
        let end = Instant::now() + self.config.patience;
        let transport = self.transport(rank, nodes, epoch, &*watch, end)?;
        Ok(Parts {
            rank,
            size: nodes.len(),
            epoch,
            transport,
            watch: Arc::clone(&watch) as Arc<dyn Watch>,
            reform: Arc::new(Formed::new(Arc::clone(self), epoch, nodes.to_vec(), watch)),
            options: Arc::new(self.options(nodes)),
        })
    }

    /// Shared memory where all nodes are on one host, TCP where each is on its own, else both.
    fn transport(
        self: &Arc<Self>,
        rank: usize,
        nodes: &[usize],
        epoch: u64,
        watch: &dyn Watch,
        end: Instant,
    ) -> Result<Arc<dyn Transport>, Error> {
        #[cfg(feature = "nccl")]
        if let Carrier::Nccl { device } = self.config.carrier {
            return Ok(Arc::new(crate::transport::nccl::Nccl::connect(
                self,
                nodes,
                epoch,
                device,
                watch.alarm(),
                end,
            )?));
        }
        let hosts: Vec<_> = nodes.iter().map(|node| self.member(*node).host).collect();
        let layout = Layout::new(&hosts);
        if self.config.carrier == Carrier::Tcp || layout.hosts() == nodes.len() {
            return Ok(Arc::new(tcp::Tcp::connect(self, nodes, epoch, watch, end)?));
        }
        let (host, place) = layout.seat(rank);
        let neighbours: Vec<_> = layout.on(host).iter().map(|rank| nodes[*rank]).collect();
        let within: Option<Arc<dyn Transport>> = if neighbours.len() > 1 {
            let segments = super::memory::exchange(self, &neighbours, epoch, watch, end)?;
            let may_wait = |place: usize| {
                let node = neighbours[place];
                self.check(Some(watch.alarm()), epoch)?;
                self.still_there(node, epoch)?;
                let late = || {
                    let what = "did not take part in measuring the memory that ranks of this host share: does it hang, or is the machine overloaded?";
                    Error::rendezvous(format!("rank {node} {what}"))
                };
                if Instant::now() < end { Ok(()) } else { Err(late()) }
            };
            let patience =
                shm::trial::Patience { alarm: watch.alarm(), limit: end.saturating_duration_since(Instant::now()) };
            Some(Arc::new(shm::Shm::new(place, segments, epoch)?.calibrated(
                self.config.staging,
                patience,
                &may_wait,
            )?))
        } else {
            None
        };
        match within {
            Some(within) if layout.hosts() == 1 => Ok(within),
            within => Ok(Arc::new(hier::Hier::connect(self, nodes, epoch, layout, within, watch.alarm(), end)?)),
        }
    }

    fn options(self: &Arc<Self>, nodes: &[usize]) -> Options {
        let (me, nodes, mesh, members) = (self.me, nodes.to_vec(), Arc::downgrade(&self.mesh), self.members().clone());
        let tell = move |at: &At, waited: Duration, ranks: &[usize]| {
            let Some(mesh) = mesh.upgrade() else { return };
            let text = |rank: &usize| {
                let node = nodes[*rank];
                let fate = match mesh.fate(node) {
                    Fate::Alive => "alive".to_owned(),
                    Fate::Left => "has left".to_owned(),
                    Fate::Absent => "never connected".to_owned(),
                    Fate::Lost { how, .. } => how,
                };
                format!("rank {rank} ({}: {fate})", members[node].text())
            };
            let list: Vec<_> = ranks.iter().map(text).collect();
            eprintln!("shoal-comm: rank {me} has waited {:.0} s in {at} for {}", waited.as_secs_f64(), list.join(", "));
        };
        Options {
            deadline: self.config.deadline,
            stall: Stall { after: self.config.stall, tell: Box::new(tell) },
            keep_input: self.config.keep_input,
        }
    }
}
