//! Nodes, and what instances get of them. This machine is a target with one node.
//!
//! - **All is counted by node.** An instance is on one node, and so are all instances of a gang,
//!   unless those of one gang reach each other from different nodes ([`Capacity::spans`]). `fit`
//!   chooses the nodes; below, the machine is the instance's node.
//! - **CPUs are over-committed.** An instance competes by the weight of its type's cores, capped to
//!   the machine's. It counts on its share of the cores when it starts
//!   ([`Placement::share_cores`]): threads of one instance wait for each other, and a thread whose
//!   core another instance has holds up all of its own. The share of an instance that runs never
//!   changes, as programs start their threads once.
//! - **Memory is limited by the type.** A type that is too large for the machine is capped, and the
//!   job's status says so: each of N instances gets the smaller of the type's memory and an N-th of
//!   the machine's. So three `ml.m5.xlarge` (16 GiB each) on 24 GiB get 8 GiB each. N counts the
//!   instances of all groups of a job, so one job alone never needs more than the machine has. Of
//!   several nodes, the ones where its instances get most decide: a gang is not capped to a smaller
//!   node, but waits for those.
//! - **What a job holds of the memory** is what it uses and a reserve ([`Packing::Use`]): most
//!   programs use a fraction of what AWS calls their type. Limits may add up to more than the
//!   machine has; if the machine runs short, the attempt that started last is ended and goes back
//!   to the queue ([`crate::pressure`]). Next time it holds what it used then. The oldest attempt
//!   is never ended, so work always gets on.
//! - An owner who wants no such end promises each instance its limit ([`Packing::Promise`]): limits
//!   never add up to more than the machine's memory, and a second training job of one
//!   `ml.m5.xlarge` on 24 GiB waits until the first is over, with the reason in its status.
//! - **GPUs are neither shared nor capped.** A job that wants more than the machine has is refused
//!   at creation.
//! - **A compute target with a scheduler of its own** (Slurm, Kubernetes) is a node as large as
//!   wanted ([`Node::of_scheduler`]): its scheduler decides where and when instances run, and only
//!   how many are submitted at once is counted here. Gangs name it ([`crate::GangSpec::target`]);
//!   those that name none are on the other nodes. Each target has a queue of its own.

mod cut;
mod fit;
mod placement;
mod resources;

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use crate::Quotas;

pub use self::{
    cut::parallel_notice,
    placement::{Placement, Share},
};
pub(crate) use self::{
    cut::{Cut, cut, cut_after},
    fit::{Demand, Fit},
    resources::{Held, Lacking, PerNode, Resources, by_node, divided},
};

/// What a job holds of a machine's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Packing {
    /// What it is measured to use, and a reserve for each instance.
    Use,
    /// The limits of its instances.
    #[default]
    Promise,
}

/// What there is to give.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Capacity {
    /// One at least, each with a name of its own.
    pub nodes: Vec<Node>,
    /// Instances of one gang may be on several nodes: they reach each other from there.
    pub spans: bool,
    /// How memory is given.
    pub packing: Packing,
    /// Who may hold how much of it.
    pub quotas: Quotas,
}

/// A machine that holds instances, or a part of one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// What its launcher knows it by.
    pub name: String,
    /// CPU cores; over-committed by weight, so a size and not a limit on the number of instances.
    pub cpus: u32,
    /// Memory for instances in all; a hard limit.
    pub memory_bytes: u64,
    /// GPUs in all; a hard limit.
    pub gpus: u32,
    /// Most instances at once.
    pub instances: u32,
    /// A scheduler of its own decides where and when they run: a compute target, which holds what
    /// names it and nothing else.
    pub has_scheduler: bool,
}

/// What a node with a scheduler has of everything: more than any gang wants, and little enough to
/// be added up.
const PLENTY: u32 = 1 << 24;

impl Node {
    /// The name of the node where the configuration names none.
    pub const LOCAL: &str = "local";

    /// One of this name, which has nothing yet.
    pub fn local() -> Node {
        Node { name: Node::LOCAL.to_owned(), cpus: 0, memory_bytes: 0, gpus: 0, instances: 0, has_scheduler: false }
    }

    /// A compute target with a scheduler of its own, to which `instances` are submitted at once.
    pub fn of_scheduler(name: impl Into<String>, instances: u32) -> Node {
        let memory_bytes = u64::from(PLENTY) << 30;
        Node { name: name.into(), cpus: PLENTY, memory_bytes, gpus: PLENTY, instances, has_scheduler: true }
    }

    /// Its GPUs, if this server chooses among them.
    pub(crate) fn gpu_indexes(&self) -> Vec<u32> {
        if self.has_scheduler { Vec::new() } else { Vec::from_iter(0..self.gpus) }
    }

    /// Whether gangs with this target may be on it.
    fn is_of(&self, target: Option<&str>) -> bool {
        target.map_or(!self.has_scheduler, |target| self.has_scheduler && self.name == target)
    }

    pub(crate) fn resources(&self) -> Resources {
        Resources { memory_bytes: self.memory_bytes, gpus: self.gpus, instances: self.instances }
    }
}

impl Capacity {
    /// Of one node.
    pub fn of(node: Node, packing: Packing) -> Capacity {
        Capacity { nodes: vec![node], spans: false, packing, quotas: Quotas::default() }
    }

    /// A node by its name.
    pub fn node(&self, name: &str) -> Option<&Node> {
        self.nodes.iter().find(|node| node.name == name)
    }

    /// The part of it that gangs with this target may have.
    pub(crate) fn of_target(&self, target: Option<&str>) -> Cow<'_, Capacity> {
        if self.nodes.iter().all(|node| node.is_of(target)) {
            return Cow::Borrowed(self);
        }
        let nodes = self.nodes.iter().filter(|node| node.is_of(target)).cloned().collect();
        Cow::Owned(Capacity { nodes, spans: self.spans, packing: self.packing, quotas: Quotas::default() })
    }

    /// These amounts, and nothing on nodes that gangs with this target may not have.
    pub(crate) fn only(&self, target: Option<&str>, mut amounts: PerNode) -> PerNode {
        for (_, amount) in self.nodes.iter().zip(&mut amounts.0).filter(|(node, _)| !node.is_of(target)) {
            *amount = Resources::default();
        }
        amounts
    }

    /// A node's name, for texts: they name it only where there are several, and targets where there
    /// is one.
    pub(crate) fn name_of(&self, node: usize) -> Option<&str> {
        let node = self.nodes.get(node)?;
        (node.has_scheduler || self.has_several_nodes()).then_some(node.name.as_str())
    }

    /// Nodes, not compute targets.
    pub(crate) fn has_several_nodes(&self) -> bool {
        self.nodes.iter().filter(|node| !node.has_scheduler).nth(1).is_some()
    }

    /// All that there is, on each node.
    pub(crate) fn all(&self) -> PerNode {
        PerNode(self.nodes.iter().map(Node::resources).collect())
    }

    /// Amounts on nodes by name; what is on nodes that it has no more is left out.
    pub(crate) fn per_node(&self, amounts: &[(&str, Resources)]) -> PerNode {
        let of_node = |node: &Node| amounts.iter().find(|(name, _)| *name == node.name).map(|(_, amount)| *amount);
        PerNode(self.nodes.iter().map(|node| of_node(node).unwrap_or_default()).collect())
    }
}

pub(crate) fn count(length: usize) -> u32 {
    u32::try_from(length).unwrap_or(u32::MAX)
}
