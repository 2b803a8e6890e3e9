//! Amounts of what must not be over-committed: of a job, of a node, of each node of a capacity.

use std::collections::BTreeMap;

/// What must not be over-committed, of a whole job or of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Resources {
    pub(crate) memory_bytes: u64,
    pub(crate) gpus: u32,
    pub(crate) instances: u32,
}

/// A resource of which there is too little.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Lacking {
    pub(crate) what: &'static str,
    pub(crate) needs: u64,
    pub(crate) free: u64,
    /// Index of the node that has most of it, where there are several.
    pub(crate) node: Option<usize>,
}

impl Resources {
    pub(crate) fn covers(&self, demand: &Resources) -> bool {
        self.lacking(demand).is_none()
    }

    /// The first resource of which there is too little.
    pub(crate) fn lacking(&self, demand: &Resources) -> Option<Lacking> {
        [
            ("gpus", demand.gpus.into(), self.gpus.into()),
            ("memory", demand.memory_bytes, self.memory_bytes),
            ("instances", demand.instances.into(), self.instances.into()),
        ]
        .into_iter()
        .find(|(_, needs, free)| needs > free)
        .map(|(what, needs, free)| Lacking { what, needs, free, node: None })
    }

    pub(crate) fn plus(&self, other: &Resources) -> Resources {
        Resources {
            memory_bytes: self.memory_bytes.saturating_add(other.memory_bytes),
            gpus: self.gpus.saturating_add(other.gpus),
            instances: self.instances.saturating_add(other.instances),
        }
    }

    /// Nothing is ever below zero: a capacity that was lowered under running jobs is simply used
    /// up.
    pub(crate) fn minus(&self, other: &Resources) -> Resources {
        Resources {
            memory_bytes: self.memory_bytes.saturating_sub(other.memory_bytes),
            gpus: self.gpus.saturating_sub(other.gpus),
            instances: self.instances.saturating_sub(other.instances),
        }
    }

    /// Of each resource the smaller amount.
    fn least(&self, other: &Resources) -> Resources {
        Resources {
            memory_bytes: self.memory_bytes.min(other.memory_bytes),
            gpus: self.gpus.min(other.gpus),
            instances: self.instances.min(other.instances),
        }
    }
}

/// An amount for each node of a capacity, in its order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PerNode(pub(crate) Vec<Resources>);

impl PerNode {
    pub(crate) fn plus(&self, other: &PerNode) -> PerNode {
        self.zip(other, Resources::plus)
    }

    pub(crate) fn minus(&self, other: &PerNode) -> PerNode {
        self.zip(other, Resources::minus)
    }

    /// Of each resource of each node the smaller amount.
    pub(crate) fn least(&self, other: &PerNode) -> PerNode {
        self.zip(other, Resources::least)
    }

    /// Of all nodes together.
    pub(crate) fn total(&self) -> Resources {
        self.0.iter().fold(Resources::default(), |all, of_node| all.plus(of_node))
    }

    fn zip(&self, other: &PerNode, with: impl Fn(&Resources, &Resources) -> Resources) -> PerNode {
        PerNode(self.0.iter().zip(&other.0).map(|(one, other)| with(one, other)).collect())
    }
}

/// What is held of each node, by name, though the capacity has no such node any more.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Held(BTreeMap<String, Resources>);

impl Held {
    pub(crate) fn add(&mut self, amounts: &[(&str, Resources)]) {
        for (node, amount) in amounts.iter().filter(|(_, amount)| *amount != Resources::default()) {
            match self.0.get_mut(*node) {
                Some(held) => *held = held.plus(amount),
                None => drop(self.0.insert((*node).to_owned(), *amount)),
            }
        }
    }

    pub(crate) fn remove(&mut self, amounts: &[(&str, Resources)]) {
        for (node, amount) in amounts {
            if let Some(held) = self.0.get_mut(*node) {
                *held = held.minus(amount);
            }
        }
        self.0.retain(|_, held| *held != Resources::default());
    }

    pub(crate) fn of(&self, node: &str) -> Resources {
        self.0.get(node).copied().unwrap_or_default()
    }
}

/// Amounts of instances by the nodes on which they are, in the order of their first ones.
pub(crate) fn by_node<'a>(instances: impl IntoIterator<Item = (&'a str, Resources)>) -> Vec<(&'a str, Resources)> {
    let mut nodes: Vec<(&str, Resources)> = Vec::new();
    for (node, amount) in instances {
        match nodes.iter_mut().find(|(known, _)| *known == node) {
            Some((_, held)) => *held = held.plus(&amount),
            None => nodes.push((node, amount)),
        }
    }
    nodes
}

/// Divides `total` as `weights` are, in whole bytes; what is left over is the first part's.
pub(crate) fn divided(total: u64, weights: &[u64]) -> Vec<u64> {
    let all: u128 = weights.iter().map(|weight| u128::from(*weight)).sum();
    let part = |weight: &u64| {
        u64::try_from((u128::from(total) * u128::from(*weight)).checked_div(all).unwrap_or(0)).unwrap_or(u64::MAX)
    };
    let mut parts = Vec::from_iter(weights.iter().map(part));
    let rest = total - parts.iter().sum::<u64>();
    if let Some(first) = parts.first_mut() {
        *first += rest;
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_lost_in_a_division() {
        for (total, weights, parts) in [
            (10, &[1, 1, 1][..], &[4, 3, 3][..]),
            (10, &[4, 1], &[8, 2]),
            (7, &[0, 0], &[7, 0]),
            (u64::MAX, &[u64::MAX, u64::MAX], &[(u64::MAX >> 1) + 1, u64::MAX >> 1]),
            (3, &[], &[]),
        ] {
            assert_eq!(divided(total, weights), parts, "{total} {weights:?}");
        }
    }
}
