//! On which nodes a gang is placed.
//!
//! - A gang is placed whole or not at all, on one node if one has room for it: the one that has the
//!   fewest free GPUs, then the least free memory, so that what is left over stays in one piece.
//! - Where gangs may span nodes, the nodes with room for most of its instances are filled one after
//!   another, the largest instances first. So it is on few nodes, and instances of one size are
//!   always placed if there is room for them; of several sizes, that is not certain.
//! - Of equals the first node in the configuration's order is taken: the same capacity and the same
//!   gangs give the same places.

use std::cmp::Reverse;

use super::{
    count,
    resources::{Lacking, PerNode, Resources},
};

/// What a gang needs.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Demand {
    /// Instances that are not placed yet.
    New {
        /// By host number - 1.
        each: Vec<Wanted>,
        /// They may be on several nodes.
        spans: bool,
    },
    /// On the nodes where its instances are already.
    There(PerNode),
}

/// What an instance needs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Wanted {
    /// What is held for it.
    pub(crate) amount: Resources,
    /// The most that it may come to use: a gang alone never needs more than its nodes have.
    pub(crate) limit_bytes: u64,
}

/// Nodes as they are in a decision.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Nodes<'a> {
    /// What is free.
    pub(crate) room: &'a PerNode,
    /// What they have when nothing is held of them.
    pub(crate) all: &'a PerNode,
}

/// Where a gang has room.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Fit {
    /// Indexes of nodes, by host number - 1; none of instances that are placed already.
    pub(crate) nodes: Vec<usize>,
    pub(crate) taken: PerNode,
}

impl Demand {
    /// Of all instances together.
    pub(crate) fn total(&self) -> Resources {
        match self {
            Demand::New { each, .. } => sum(each).amount,
            Demand::There(amounts) => amounts.total(),
        }
    }

    /// Where it has room, if it has.
    pub(crate) fn fit(&self, room: &PerNode, all: &PerNode) -> Option<Fit> {
        let of = Nodes { room, all };
        match self {
            Demand::There(amounts) => {
                let is_covered = room.0.iter().zip(&amounts.0).all(|(room, amount)| room.covers(amount));
                is_covered.then(|| Fit { nodes: Vec::new(), taken: amounts.clone() })
            }
            Demand::New { each, spans } => {
                let nodes = alone(each, &of).or_else(|| spans.then(|| spread(each, &of)).flatten())?;
                let mut taken = PerNode(vec![Resources::default(); room.0.len()]);
                for (node, wanted) in nodes.iter().zip(each) {
                    taken.0[*node] = taken.0[*node].plus(&wanted.amount);
                }
                Some(Fit { nodes, taken })
            }
        }
    }

    /// What keeps it from having room, if something does.
    pub(crate) fn lacking(&self, room: &PerNode, all: &PerNode) -> Option<Lacking> {
        if self.fit(room, all).is_some() {
            return None;
        }
        let of = Nodes { room, all };
        match self {
            Demand::There(amounts) => {
                let of_node = |(node, (room, amount)): (usize, (&Resources, &Resources))| {
                    Some(Lacking { node: several(amounts.0.len(), node), ..room.lacking(amount)? })
                };
                room.0.iter().zip(&amounts.0).enumerate().find_map(of_node)
            }
            Demand::New { each, spans: false } => nearest(&sum(each), &of),
            Demand::New { each, spans: true } => room.total().lacking(&sum(each).amount).or_else(|| {
                let largest = each.iter().max_by_key(|wanted| size(&wanted.amount))?;
                nearest(largest, &of).or_else(|| {
                    let placed = filled(each, &of).iter().filter(|node| node.is_some()).count();
                    let (needs, free) = (count(each.len()).into(), count(placed).into());
                    Some(Lacking { what: "instances", needs, free, node: None })
                })
            }),
        }
    }
}

impl Nodes<'_> {
    /// Whether a node has room.
    fn has_room(&self, node: usize, wanted: &Wanted) -> bool {
        self.room.0[node].covers(&wanted.amount) && self.is_large_enough(node, wanted)
    }

    /// Whether a node would have room if nothing were held of it.
    fn is_large_enough(&self, node: usize, wanted: &Wanted) -> bool {
        self.all.0[node].covers(&Resources { memory_bytes: wanted.limit_bytes, ..wanted.amount })
    }
}

fn sum(each: &[Wanted]) -> Wanted {
    let nothing = Wanted { amount: Resources::default(), limit_bytes: 0 };
    each.iter().fold(nothing, |all, wanted| Wanted {
        amount: all.amount.plus(&wanted.amount),
        limit_bytes: all.limit_bytes.saturating_add(wanted.limit_bytes),
    })
}

fn size(amount: &Resources) -> (u32, u64) {
    (amount.gpus, amount.memory_bytes)
}

fn several(nodes: usize, node: usize) -> Option<usize> {
    (nodes > 1).then_some(node)
}

/// What lacks on the node that comes nearest to having room, if none has: of those that can have
/// it, if some can.
fn nearest(wanted: &Wanted, of: &Nodes<'_>) -> Option<Lacking> {
    let missing = |lacking: &Lacking| u128::from(lacking.needs - lacking.free) * 1_000_000 / u128::from(lacking.needs);
    let lacking = of.room.0.iter().map(|room| room.lacking(&wanted.amount)).enumerate();
    let large = lacking.clone().filter(|(node, _)| of.is_large_enough(*node, wanted));
    let lacking = if large.clone().next().is_some() { Vec::from_iter(large) } else { Vec::from_iter(lacking) };
    let lacking = lacking.into_iter().map(|(node, lacking)| Some((node, lacking?))).collect::<Option<Vec<_>>>()?;
    let (node, lacking) = lacking.into_iter().min_by_key(|(_, lacking)| missing(lacking))?;
    Some(Lacking { node: several(of.room.0.len(), node), ..lacking })
}

/// All on one node.
fn alone(each: &[Wanted], of: &Nodes<'_>) -> Option<Vec<usize>> {
    let all = sum(each);
    let roomy = (0..of.room.0.len()).filter(|node| of.has_room(*node, &all));
    let node = roomy.min_by_key(|node| size(&of.room.0[*node]))?;
    Some(vec![node; each.len()])
}

/// On several nodes.
fn spread(each: &[Wanted], of: &Nodes<'_>) -> Option<Vec<usize>> {
    filled(each, of).into_iter().collect()
}

/// As many as there is room for.
fn filled(each: &[Wanted], of: &Nodes<'_>) -> Vec<Option<usize>> {
    let mut largest_first = Vec::from_iter(0..each.len());
    largest_first.sort_by_key(|index| Reverse(size(&each[*index].amount)));
    let fill = |node: usize, places: &[Option<usize>]| {
        let (mut here, mut hosts) = (Vec::new(), Vec::new());
        for index in largest_first.iter().copied().filter(|index| places[*index].is_none()) {
            here.push(each[index]);
            if of.has_room(node, &sum(&here)) {
                hosts.push(index);
            } else {
                here.pop();
            }
        }
        hosts
    };
    let mut places = vec![None; each.len()];
    let mut nodes = Vec::from_iter(0..of.room.0.len());
    nodes.sort_by_cached_key(|node| (Reverse(fill(*node, &places).len()), size(&of.room.0[*node])));
    for node in nodes {
        for index in fill(node, &places) {
            places[index] = Some(node);
        }
    }
    places
}

#[cfg(test)]
mod tests {
    use super::*;

    fn amount(memory_bytes: u64, gpus: u32, instances: u32) -> Resources {
        Resources { memory_bytes, gpus, instances }
    }

    fn wanted(each: &[(u64, u32)]) -> Vec<Wanted> {
        let of = |(memory, gpus): &(u64, u32)| Wanted { amount: amount(*memory, *gpus, 1), limit_bytes: *memory };
        each.iter().map(of).collect()
    }

    fn fit(each: &[(u64, u32)], spans: bool, room: &[Resources]) -> Option<Vec<usize>> {
        let room = PerNode(room.to_vec());
        Demand::New { each: wanted(each), spans }.fit(&room, &room).map(|fit| fit.nodes)
    }

    #[test]
    fn a_gang_is_on_one_node_if_it_fits_there() {
        let room = [amount(20, 4, 8), amount(30, 0, 8), amount(12, 0, 8)];
        assert_eq!(fit(&[(5, 0), (5, 0)], true, &room), Some(vec![2, 2]), "least is left over");
        assert_eq!(fit(&[(5, 0), (20, 0)], true, &room), Some(vec![1, 1]));
        assert_eq!(fit(&[(5, 1)], true, &room), Some(vec![0]));
        assert_eq!(fit(&[(5, 0)], false, &[amount(9, 0, 1), amount(9, 0, 1)]), Some(vec![0]), "of equals the first");
    }

    #[test]
    fn a_gang_that_may_is_on_few_nodes() {
        let room = [amount(10, 0, 8), amount(40, 0, 8), amount(30, 0, 8)];
        assert_eq!(fit(&[(10, 0); 6], true, &room), Some(vec![1, 1, 1, 1, 2, 2]));
        assert_eq!(fit(&[(10, 0); 8], true, &room), Some(vec![1, 1, 1, 1, 2, 2, 2, 0]));
        assert_eq!(fit(&[(10, 0); 9], true, &room), None, "whole or not at all");
        assert_eq!(fit(&[(10, 0); 6], false, &room), None);
        assert_eq!(fit(&[(5, 0), (30, 0), (40, 0)], true, &room), Some(vec![0, 2, 1]), "the largest first");
        assert_eq!(fit(&[(1, 0); 3], true, &[amount(9, 0, 1), amount(9, 0, 2)]), Some(vec![1, 1, 0]));
    }

    #[test]
    fn a_gang_alone_never_needs_more_than_its_nodes_have() {
        let each = vec![Wanted { amount: amount(2, 0, 1), limit_bytes: 16 }; 3];
        let nodes = |spans, room: &[u64], all: &[u64]| {
            let [room, all] = [room, all].map(|of| PerNode(of.iter().map(|it| amount(*it, 0, 8)).collect()));
            Demand::New { each: each.clone(), spans }.fit(&room, &all).map(|fit| fit.nodes)
        };
        assert_eq!(nodes(false, &[16, 20], &[16, 48]), Some(vec![1; 3]));
        assert_eq!(nodes(true, &[16, 20], &[16, 32]), Some(vec![1, 1, 0]));
        assert_eq!(nodes(false, &[16, 20], &[16, 32]), None);
    }

    #[test]
    fn what_lacks_is_named_with_the_nearest_node() {
        let lacking = |each: &[(u64, u32)], spans, room: &[Resources]| {
            let room = PerNode(room.to_vec());
            let lacking = Demand::New { each: wanted(each), spans }.lacking(&room, &room)?;
            Some((lacking.what, lacking.needs, lacking.free, lacking.node))
        };
        let room = [amount(10, 2, 8), amount(25, 0, 8)];
        assert_eq!(lacking(&[(10, 0)], false, &room), None);
        assert_eq!(lacking(&[(20, 0), (20, 0)], false, &room), Some(("memory", 40, 25, Some(1))));
        assert_eq!(lacking(&[(20, 0), (20, 0)], true, &room), Some(("memory", 40, 35, None)));
        assert_eq!(lacking(&[(30, 0)], true, &room), Some(("memory", 30, 25, Some(1))));
        assert_eq!(lacking(&[(9, 0), (16, 0), (9, 0)], true, &room[1..]), Some(("memory", 34, 25, None)));
        assert_eq!(lacking(&[(6, 0), (13, 0), (13, 0)], true, &room), Some(("instances", 3, 2, None)));
        assert_eq!(lacking(&[(30, 0)], false, &room[..1]), Some(("memory", 30, 10, None)), "there is one node");
    }
}
