//! What each instance of a job gets, and on which node it is.

use crate::Host;
use serde::{Deserialize, Serialize};

use super::{
    Node, count,
    resources::{Resources, divided},
};

/// What each instance of a job gets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Placement {
    /// Cores that it counts on: the type's, capped to its node's and to its share of them when it
    /// starts.
    pub cpus: u32,
    /// cgroup v2 weight (100 per core).
    pub cpu_weight: u32,
    /// Limit: the type's memory, capped.
    pub memory_bytes: u64,
    /// GPU indexes of each instance, by host number - 1.
    pub gpus: Vec<Vec<u32>>,
    /// What was capped, as a sentence for the status message and the log.
    pub capped: Option<String>,
    /// Of several instance groups, what those behind the first get; the members above are the first
    /// one's then.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub others: Vec<Share>,
    /// Memory that the job holds beyond what it is measured to use; none: it holds the limits of
    /// its instances.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reserve_bytes: Option<u64>,
    /// Names of the nodes on which the instances are, by host number - 1; none: all are on
    /// [`Node::LOCAL`](super::Node::LOCAL).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nodes: Vec<String>,
}

/// What each instance of a group gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Share {
    /// How many they are.
    pub instances: u32,
    /// As [`Placement::cpus`].
    pub cpus: u32,
    /// As [`Placement::cpu_weight`].
    pub cpu_weight: u32,
    /// As [`Placement::memory_bytes`].
    pub memory_bytes: u64,
}

impl Placement {
    /// What the instances of each group get, in the order of the instances.
    pub fn shares(&self) -> impl Iterator<Item = Share> {
        let Self { cpus, cpu_weight, memory_bytes, .. } = *self;
        let instances =
            self.others.iter().fold(count(self.gpus.len()), |left, share| left.saturating_sub(share.instances));
        let first = Share { instances, cpus, cpu_weight, memory_bytes };
        std::iter::once(first).chain(self.others.iter().copied())
    }

    /// What an instance gets.
    pub fn share(&self, host: Host) -> Share {
        let mut last = 0;
        let of_host = self.shares().find(|share| {
            last += share.instances;
            host.0 <= last
        });
        of_host.unwrap_or_else(|| self.shares().last().expect("the first group is always there"))
    }

    /// The name of the node on which an instance is.
    pub fn node(&self, host: Host) -> &str {
        let name = host.index().and_then(|index| self.nodes.get(index));
        name.map_or(Node::LOCAL, String::as_str)
    }

    /// All instances, in order.
    pub(crate) fn hosts(&self) -> impl Iterator<Item = Host> + use<> {
        Host::all(count(self.gpus.len()))
    }

    /// An instance is on a node.
    pub(crate) fn set_node(&mut self, host: Host, node: &str) {
        if let Some(name) = host.index().and_then(|index| self.nodes.get_mut(index)) {
            node.clone_into(name);
        }
    }

    /// For people: `on node a`, or how many of its instances are on which.
    pub(crate) fn whereabouts(&self) -> String {
        let mut nodes: Vec<(&str, u32)> = Vec::new();
        for host in self.hosts() {
            match nodes.iter_mut().find(|(name, _)| *name == self.node(host)) {
                Some((_, instances)) => *instances += 1,
                None => nodes.push((self.node(host), 1)),
            }
        }
        match &nodes[..] {
            [(node, _)] => format!("on node {node}"),
            several => {
                let of_node = |(node, instances): &(&str, u32)| {
                    format!("{instances} instance{} on node {node}", if *instances == 1 { "" } else { "s" })
                };
                Vec::from_iter(several.iter().map(of_node)).join(", ")
            }
        }
    }

    /// The weights of the instances on a node together.
    pub(crate) fn weight_on(&self, node: &str) -> u64 {
        self.hosts().filter(|host| self.node(*host) == node).map(|host| u64::from(self.share(host).cpu_weight)).sum()
    }

    /// Caps the cores of each instance to its share of its node's, where `node` has a node's cores
    /// and the weight of all instances that run there, these included. Whole cores, rounded down,
    /// so that the instances that start together never count on more than there are; one at least.
    /// Instances of a group count on the same number, though they are on several nodes.
    pub(crate) fn share_cores(&mut self, node: impl Fn(&str) -> (u32, u64)) {
        let mut hosts = self.hosts();
        let shares = Vec::from_iter(self.shares());
        let capped = Vec::from_iter(shares.iter().map(|share| {
            let of_group = hosts.by_ref().take(share.instances as usize);
            let of_host = |host: Host| {
                let (cpus, weight) = node(self.node(host));
                let part = u64::from(cpus) * u64::from(share.cpu_weight) / weight.max(1);
                u32::try_from(part.max(1)).unwrap_or(u32::MAX)
            };
            of_group.map(of_host).fold(share.cpus, u32::min)
        }));
        let mut capped = capped.into_iter();
        self.cpus = capped.next().expect("the first group is always there");
        self.others.iter_mut().zip(capped).for_each(|(of_group, cpus)| of_group.cpus = cpus);
    }

    /// The limits of the instances, by host number - 1.
    pub(crate) fn limits(&self) -> Vec<u64> {
        let of_group = |share: Share| std::iter::repeat_n(share.memory_bytes, share.instances as usize);
        self.shares().flat_map(of_group).collect()
    }

    /// The limits of all instances together.
    pub(crate) fn limit_bytes(&self) -> u64 {
        let of_group = |share: Share| share.memory_bytes.saturating_mul(share.instances.into());
        self.shares().map(of_group).fold(0, u64::saturating_add)
    }

    /// What each instance holds until it is released, besides the memory that it is measured to
    /// use; by host number - 1.
    pub(crate) fn holds(&self) -> Vec<Resources> {
        let memory = divided(self.reserve_bytes.unwrap_or_else(|| self.limit_bytes()), &self.limits());
        let of_host =
            |(memory_bytes, gpus): (u64, &Vec<u32>)| Resources { memory_bytes, gpus: count(gpus.len()), instances: 1 };
        memory.into_iter().zip(&self.gpus).map(of_host).collect()
    }
}
