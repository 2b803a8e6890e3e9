//! What must hold of nodes: none is given more than it has, gangs are placed whole, and what runs
//! on a node is what was placed there.

use std::collections::BTreeSet;

use shoal_plane::{Event, Fact, Node};

use crate::world::{Simulation, Step, broken};

impl Simulation {
    pub(crate) fn check_nodes_event(&mut self, event: &Event) -> Step {
        match &event.fact {
            Fact::AttemptLaunched { attempt, placement, .. } => {
                let wanted = self.jobs.iter().find(|job| *job.name == event.name).map_or(1, |job| job.spec.instances);
                if placement.gpus.len() != wanted as usize {
                    return broken(format!("{} of {wanted} instances of {attempt} are placed", placement.gpus.len()));
                }
                self.nodes.place(attempt, placement);
                if !self.capacity.spans && self.nodes.instances(attempt).len() > 1 {
                    return broken(format!("{attempt} is on several nodes"));
                }
            }
            Fact::InstancesCleared { attempt, hosts, .. } => self.nodes.clear(attempt, hosts),
            Fact::InstancesAdded { attempt, hosts, gpus, nodes, .. } => self.nodes.add(attempt, hosts, gpus, nodes),
            Fact::Released { attempt: Some(attempt) } => drop(self.nodes.shares.remove(attempt)),
            Fact::AttemptThawed { .. } => {}
            _ => return Ok(()),
        }
        self.capacity.nodes.iter().try_for_each(|node| self.check_node(node)).or_else(broken)
    }

    fn check_node(&self, node: &Node) -> Result<(), String> {
        let (mut gpus, mut promised, mut instances) = (BTreeSet::new(), 0, 0);
        for (attempt, shares) in &self.nodes.shares {
            let here = || shares.iter().flatten().filter(|share| share.node == node.name);
            promised += here().map(|share| share.promised).sum::<u64>();
            instances += if self.frozen.contains(attempt) { 0 } else { here().count() };
            if here().map(|share| share.limit).sum::<u64>() > node.memory_bytes {
                return Err(format!("{attempt} alone may need more memory than {} has", node.name));
            }
            for gpu in here().flat_map(|share| &share.gpus) {
                if *gpu >= node.gpus || !gpus.insert(*gpu) {
                    return Err(format!("GPU {gpu} of {} is not there for {attempt}", node.name));
                }
            }
        }
        if promised > node.memory_bytes || instances > node.instances as usize {
            return Err(format!("{} is given {promised} bytes and {instances} instances too many", node.name));
        }
        Ok(())
    }

    /// What runs is where it was placed.
    pub(crate) fn check_running(&self) -> Result<(), String> {
        for node in &self.capacity.nodes {
            let mut running = 0;
            for (process, agent) in self.agents.iter().filter(|(process, _)| self.nodes.started[*process] == node.name)
            {
                let Some(attempt) = agent.attempt.as_ref().filter(|_| !agent.is_gone()) else { continue };
                running += usize::from(!self.frozen.contains(attempt));
                let placed = self.nodes.of(attempt, process.1).filter(|share| share.node != node.name);
                if let Some(placed) = placed {
                    return Err(format!("{process:?} runs {attempt} on {}, and not on {}", node.name, placed.node));
                }
            }
            let room = node.instances as usize;
            if running > room {
                return Err(format!("{running} instances run on {}, and there is room for {room}", node.name));
            }
        }
        Ok(())
    }
}
