//! A tree of modules in stages (Karakus et al., "Amazon SageMaker Model Parallelism", 2021, section
//! 4.2, arXiv 2111.05972; details that it leaves open are settled here).
//!
//! The cost of a subtree is w times its share of the memory plus 1 - w times its share of the time.
//! From the root on, the children of a module are cut into contiguous segments such that the
//! dearest one is cheapest; a module's stages are dealt to the segments in proportion to their
//! costs (D'Hondt); a segment with one stage is done, one with several is cut again, and one
//! without a stage stays where its parent is. Modules that share a parameter go to one stage: the
//! later ones follow the first.

use serde::{Deserialize, Serialize};

use super::chain::{Layer, chain};
use crate::error::{Invalid, at_least_one, within};

/// A module with its own needs, without those of its children.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Module {
    /// Time of its own work.
    pub time: f64,
    /// Bytes of its activations.
    pub activations: u64,
    /// Its own parameters, by their places in the list of sizes. One that several modules name is
    /// tied.
    pub parameters: Vec<usize>,
    /// In the order of their use.
    pub children: Vec<Module>,
}

/// The stage of each module, in the order of a walk that meets parents before children. `sizes`:
/// bytes of each parameter. `memory_weight`: w, from 0 (time alone) to 1 (memory alone); smp's
/// default is 0.8, or 0.2 when it optimizes speed.
///
/// # Errors
/// No stages, a weight out of bounds, a time that is none, or a parameter without a size.
pub fn tree(root: &Module, sizes: &[u64], stages: usize, memory_weight: f64) -> Result<Vec<usize>, Invalid> {
    at_least_one("stages", stages)?;
    within("memory_weight", memory_weight, 0.0, 1.0)?;
    let mut flat = Flat::default();
    flat.add(root, None, sizes.len())?;
    flat.tie(sizes.len());
    flat.weigh(sizes, memory_weight);
    let mut of = vec![0; flat.nodes.len()];
    flat.assign(0, &(0..stages).collect::<Vec<_>>(), &mut of)?;
    // Leaders come first in the walk.
    for node in 0..of.len() {
        of[node] = of[flat.nodes[node].leader];
    }
    Ok(of)
}

/// A module in the list of a walk.
#[derive(Debug)]
struct Node {
    time: f64,
    activations: u64,
    parameters: Vec<usize>,
    children: Vec<usize>,
    parent: Option<usize>,
    /// Behind the last module in it: a subtree is a range.
    end: usize,
    /// The first of the modules whose stage is this one's; itself where it depends on no other.
    leader: usize,
    /// Of the subtree, with what follows it.
    cost: f64,
}

#[derive(Debug, Default)]
struct Flat {
    nodes: Vec<Node>,
}

impl Flat {
    fn add(&mut self, module: &Module, parent: Option<usize>, parameters: usize) -> Result<usize, Invalid> {
        within("time", module.time, 0.0, f64::MAX)?;
        if let Some(unknown) = module.parameters.iter().find(|parameter| **parameter >= parameters) {
            let problem = format!("a module has parameter {unknown}, and there are sizes of {parameters}");
            return Err(Invalid::new("parameters", problem).nearest(parameters.checked_sub(1)));
        }
        let leader = self.nodes.len();
        let (time, activations, own) = (module.time, module.activations, module.parameters.clone());
        self.nodes.push(Node {
            time,
            activations,
            parameters: own,
            children: Vec::new(),
            parent,
            end: 0,
            leader,
            cost: 0.0,
        });
        for child in &module.children {
            let child = self.add(child, Some(leader), parameters)?;
            self.nodes[leader].children.push(child);
        }
        self.nodes[leader].end = self.nodes.len();
        Ok(leader)
    }

    /// Who follows whom. Whoever follows takes everything in it along; a leader that something in
    /// it is tied to stays whole.
    fn tie(&mut self, parameters: usize) {
        let mut owner = vec![None; parameters];
        for node in 0..self.nodes.len() {
            for parameter in self.nodes[node].parameters.clone() {
                let first = *owner[parameter].get_or_insert(node);
                self.join(first, node);
            }
        }
        let mut settled = false;
        while !settled {
            settled = true;
            for node in 0..self.nodes.len() {
                let leader = self.nodes[node].leader;
                if leader == node {
                    continue;
                }
                let root = if node < self.nodes[leader].end { leader } else { node };
                for inner in root..self.nodes[root].end {
                    settled &= !self.join(node, inner);
                }
            }
        }
    }

    /// The stage of one is the stage of the other from now on; returns whether that is new.
    fn join(&mut self, one: usize, other: usize) -> bool {
        let (one, other) = (self.nodes[one].leader, self.nodes[other].leader);
        let (first, second) = (one.min(other), one.max(other));
        for node in self.nodes.iter_mut().filter(|node| first != second && node.leader == second) {
            node.leader = first;
        }
        first != second
    }

    /// Costs of subtrees; what follows counts where its leader is, and a tied parameter once.
    fn weigh(&mut self, sizes: &[u64], memory_weight: f64) {
        let mut seen = vec![false; sizes.len()];
        let mut bytes_of = |node: &Node| {
            let new = node.parameters.iter().filter(|parameter| !std::mem::replace(&mut seen[**parameter], true));
            new.map(|parameter| sizes[*parameter] as f64).sum::<f64>() + node.activations as f64
        };
        let memory: Vec<f64> = self.nodes.iter().map(&mut bytes_of).collect();
        let share = |part: f64, whole: f64| if whole > 0.0 { part / whole } else { 0.0 };
        let all_memory = memory.iter().sum();
        let all_time = self.nodes.iter().map(|node| node.time).sum();
        for (node, memory) in memory.into_iter().enumerate() {
            let cost = memory_weight * share(memory, all_memory)
                + (1.0 - memory_weight) * share(self.nodes[node].time, all_time);
            let mut above = Some(self.nodes[node].leader);
            while let Some(ancestor) = above {
                self.nodes[ancestor].cost += cost;
                above = self.nodes[ancestor].parent;
            }
        }
    }

    /// Deals the stages to a module and what is in it.
    fn assign(&self, node: usize, stages: &[usize], of: &mut [usize]) -> Result<(), Invalid> {
        of[node..self.nodes[node].end].fill(stages[0]);
        let own: Vec<usize> =
            self.nodes[node].children.iter().copied().filter(|child| self.nodes[*child].leader == *child).collect();
        self.deal(&own, stages, of)
    }

    /// Deals stages to children of one module.
    fn deal(&self, children: &[usize], stages: &[usize], of: &mut [usize]) -> Result<(), Invalid> {
        match children {
            [] => return Ok(()),
            [only] => return self.assign(*only, stages, of),
            several if stages.len() == 1 => {
                return several.iter().try_for_each(|child| self.assign(*child, stages, of));
            }
            _ => {}
        }
        let layers: Vec<Layer> =
            children.iter().map(|child| Layer { cost: self.nodes[*child].cost, memory: 0 }).collect();
        let first = chain(&layers, stages.len().min(children.len()), None)?;
        let ends = first.iter().skip(1).copied().chain([children.len()]);
        let segments: Vec<&[usize]> = first.iter().zip(ends).map(|(&from, to)| &children[from..to]).collect();
        let costs: Vec<f64> =
            segments.iter().map(|segment| segment.iter().map(|child| self.nodes[*child].cost).sum()).collect();
        let mut next = 0;
        for (segment, count) in segments.into_iter().zip(dhondt(&costs, stages.len())) {
            let own = if count == 0 { &stages[..1] } else { &stages[next..next + count] };
            self.deal(segment, own, of)?;
            next += count;
        }
        Ok(())
    }
}

/// Seats in proportion to votes: each seat goes to the highest quotient of votes and seats held
/// plus one; among equals, to the first.
fn dhondt(votes: &[f64], seats: usize) -> Vec<usize> {
    let mut held = vec![0; votes.len()];
    for _ in 0..seats {
        let quotient = |party: usize| votes[party] / (held[party] + 1) as f64;
        let mut best = 0;
        for party in 1..votes.len() {
            // Not by a rounding error: equal segments get equal numbers.
            if quotient(party) > quotient(best) * (1.0 + 1e-9) {
                best = party;
            }
        }
        held[best] += 1;
    }
    held
}

#[cfg(test)]
mod tests;
