//! What nodes are given, as the journal has it, and where processes were started.

use std::collections::BTreeMap;

use shoal_plane::{AttemptId, Host, Node, Placement};

use super::processes::Process;

/// An instance's share of its node.
#[derive(Debug, Clone)]
pub(crate) struct Share {
    pub(crate) node: String,
    pub(crate) gpus: Vec<u32>,
    /// Memory that is held for it whatever it uses.
    pub(crate) promised: u64,
    pub(crate) limit: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Nodes {
    /// By host number - 1, of attempts that are not released.
    pub(crate) shares: BTreeMap<AttemptId, Vec<Option<Share>>>,
    /// Of all processes that were ever started.
    pub(crate) started: BTreeMap<Process, String>,
}

impl Nodes {
    pub(crate) fn place(&mut self, attempt: &AttemptId, placement: &Placement) {
        let instances = placement.gpus.len() as u64;
        // All are of one type here.
        let limit = placement.memory_bytes;
        let promised = placement.reserve_bytes.map_or(limit, |reserve| reserve / instances);
        let share = |(host, gpus): (Host, &Vec<u32>)| {
            Some(Share { node: placement.node(host).to_owned(), gpus: gpus.clone(), promised, limit })
        };
        self.shares.insert(attempt.clone(), Host::numbered().zip(&placement.gpus).map(share).collect());
    }

    pub(crate) fn clear(&mut self, attempt: &AttemptId, hosts: &[Host]) {
        let shares = self.shares.entry(attempt.clone()).or_default();
        hosts.iter().for_each(|host| shares[host.0 as usize - 1] = None);
    }

    pub(crate) fn add(&mut self, attempt: &AttemptId, hosts: &[Host], gpus: &[Vec<u32>], nodes: &[String]) {
        let shares = self.shares.entry(attempt.clone()).or_default();
        let Some(first) = shares.first().cloned().flatten() else { return };
        for (place, (host, gpus)) in hosts.iter().zip(gpus).enumerate() {
            let node = nodes.get(place).map_or(Node::LOCAL, String::as_str).to_owned();
            shares[host.0 as usize - 1] = Some(Share { node, gpus: gpus.clone(), ..first.clone() });
        }
    }

    /// Where an instance of an attempt is to be.
    pub(crate) fn of(&self, attempt: &AttemptId, host: Host) -> Option<&Share> {
        self.shares.get(attempt)?.get(host.index()?)?.as_ref()
    }

    /// The instances of an attempt that are there, by node.
    pub(crate) fn instances(&self, attempt: &AttemptId) -> BTreeMap<&str, u64> {
        let mut nodes = BTreeMap::new();
        for share in self.shares.get(attempt).into_iter().flatten().flatten() {
            *nodes.entry(share.node.as_str()).or_default() += 1;
        }
        nodes
    }
}
