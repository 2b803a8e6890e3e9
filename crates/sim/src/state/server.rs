//! What a server has in memory; a crash takes it away.

use std::collections::{BTreeMap, VecDeque};

use shoal_link::{Frame, ToServer};
use shoal_plane::{AttemptId, Host, TuningName};
use shoal_runtime::{
    Control, FileReceiver, HostLink, Ingestion, TunerQueue, WarmPool,
    lanes::{self, Lanes},
    tuner_queue, warm_pool,
};
use shoal_tuner::Study;

use super::{disk::Plan, network::Purpose};

pub(crate) struct Server {
    pub(crate) control: Control,
    /// Numbers timeouts, so that one that was set again is known to be stale.
    pub(crate) timer: u64,
    pub(crate) turns: u64,
    /// Turns that had events.
    pub(crate) decisions: u64,
    pub(crate) lanes: Lanes,
    pub(crate) pool: WarmPool,
    /// When they are due, and a number that tells a timer that was set again.
    pub(crate) machines_wake: Option<(u64, u64)>,
    pub(crate) attempts: BTreeMap<AttemptId, Attempt>,
    /// Launches between their preparation and their start, by attempt.
    pub(crate) prepared: BTreeMap<AttemptId, Plan>,
    /// Connections of agents, by number.
    pub(crate) ends: BTreeMap<u64, ServerEnd>,
    pub(crate) tuner: TunerQueue,
    /// As far as they were needed.
    pub(crate) studies: BTreeMap<TuningName, Study>,
}

/// An attempt that runs, as a server has it in memory.
#[derive(Debug)]
pub(crate) struct Attempt {
    pub(crate) plan: Plan,
    /// By host number - 1.
    pub(crate) hosts: Vec<HostLink>,
    /// Whether its agents may be lost.
    pub(crate) is_watched: bool,
}

impl Attempt {
    pub(crate) fn new(plan: Plan) -> Self {
        let hosts = (0..plan.instances).map(|_| HostLink::default()).collect();
        Self { plan, hosts, is_watched: true }
    }

    /// One that waits for a warm instance.
    pub(crate) fn awaiting_instance(plan: Plan) -> Self {
        let hosts = (0..plan.instances).map(|_| HostLink::awaiting_instance()).collect();
        Self { plan, hosts, is_watched: false }
    }

    pub(crate) fn host(&mut self, host: Host) -> Option<&mut HostLink> {
        self.hosts.get_mut(host.index()?)
    }

    pub(crate) fn connected(&self) -> usize {
        self.hosts.iter().filter(|link| link.connected().is_some()).count()
    }
}

/// A connection of an agent that has shown whom it serves.
#[derive(Debug)]
pub(crate) struct ServerEnd {
    pub(crate) purpose: Purpose,
    pub(crate) allocation: AttemptId,
    /// What has arrived and is not handled.
    pub(crate) inbox: VecDeque<Vec<Frame<ToServer>>>,
    /// It is served.
    pub(crate) is_admitted: bool,
    /// Nothing more arrives.
    pub(crate) has_ended: bool,
    /// It is read later.
    pub(crate) is_busy: bool,
    pub(crate) ingestion: Option<Ingestion>,
    pub(crate) files: Option<FileReceiver>,
    /// The file that is arriving.
    pub(crate) incoming: String,
    /// Highest number of a report that arrived.
    pub(crate) last: u64,
}

impl ServerEnd {
    pub(crate) fn new(purpose: Purpose, allocation: AttemptId) -> Self {
        Self {
            purpose,
            allocation,
            inbox: VecDeque::new(),
            is_admitted: false,
            has_ended: false,
            is_busy: false,
            ingestion: None,
            files: None,
            incoming: String::new(),
            last: 0,
        }
    }
}

/// Of one of the machines.
#[derive(Debug)]
pub(crate) enum MachineEvent {
    Lane(lanes::Event),
    Pool(warm_pool::Event),
    Tuner(tuner_queue::Event),
}

impl From<tuner_queue::Event> for MachineEvent {
    fn from(event: tuner_queue::Event) -> Self {
        Self::Tuner(event)
    }
}

impl From<lanes::Event> for MachineEvent {
    fn from(event: lanes::Event) -> Self {
        Self::Lane(event)
    }
}

impl From<warm_pool::Event> for MachineEvent {
    fn from(event: warm_pool::Event) -> Self {
        Self::Pool(event)
    }
}

/// What a machine requests.
#[derive(Debug)]
pub(crate) enum MachineIo {
    Lane(lanes::Io),
    Pool(warm_pool::Io),
    Tuner(tuner_queue::Io),
}
