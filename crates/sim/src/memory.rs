//! Memory that attempts use: it grows from nothing, and together they may come to use more than a
//! node has. The same for an attempt's name whatever goes wrong.

use std::collections::{BTreeMap, BTreeSet};

use shoal_plane::{AttemptId, Command, Event, Fact, SecondaryStatus};

use crate::{
    Bug,
    random::Random,
    scenario::GIB,
    state::memory::Launched,
    world::{Simulation, Step, broken},
};

/// From an attempt's start until it uses most.
const GROWS_MS: u64 = 5000;
/// The machine may lack memory for so long while a server is there: what is ended has 10 s of
/// grace, an agent that does not answer its orders is taken for dead 40 s later, and has 13 s to
/// clear the attempt away or to exit. Not counted while a clock that jumped back has not caught up,
/// since the core's deadlines wait for it.
const MAX_SHORT_MS: u64 = 70_000;

impl Simulation {
    /// An attempt that was ended was not the oldest one.
    pub(crate) fn check_memory_event(&mut self, event: &Event) -> Step {
        let now = self.now;
        let memory = &mut self.memory;
        match &event.fact {
            Fact::AttemptLaunched { attempt, placement, .. } => {
                let limit = placement.memory_bytes;
                memory.launched.push(Launched { attempt: attempt.clone(), at: event.at, since_ms: now, limit });
            }
            Fact::Released { attempt: Some(attempt) } => memory.launched.retain(|it| it.attempt != *attempt),
            Fact::AttemptEvicted { attempt, .. } => {
                let at = memory.launched.iter().find(|it| it.attempt == *attempt).map_or(event.at, |it| it.at);
                let nodes = self.nodes.instances(attempt);
                let is_near = |it: &Launched| self.nodes.instances(&it.attempt).keys().any(|it| nodes.contains_key(it));
                let mut others =
                    memory.launched.iter().filter(|it| it.attempt != *attempt && it.at <= at && is_near(it));
                if !others.any(|it| !memory.leaving.contains(&it.attempt) && !self.frozen.contains(&it.attempt)) {
                    return broken(format!("{attempt} is the oldest attempt, and is ended for want of memory"));
                }
                memory.evicted.push(attempt.clone());
                memory.leaving.push(attempt.clone());
            }
            // Its launch is delayed, and counts from here.
            Fact::JobMoved { secondary: SecondaryStatus::Starting, .. } => {
                let attempt = self.mirror.view(&event.name).and_then(|view| view.attempt);
                memory
                    .launched
                    .iter_mut()
                    .filter(|it| Some(&it.attempt) == attempt.as_ref())
                    .for_each(|it| it.at = event.at);
            }
            Fact::AttemptFailed { attempt, .. }
            | Fact::AttemptInterrupted { attempt, .. }
            | Fact::ReleaseOrdered { attempt } => {
                memory.leaving.push(attempt.clone());
            }
            _ => {}
        }
        Ok(())
    }

    /// The server measures what attempts use, and reports it with what the machine lacks.
    pub(crate) fn measure_memory(&mut self, passed_ms: u64) -> Step {
        let alive: BTreeSet<&str> =
            self.agents.values().filter(|agent| !agent.is_gone()).filter_map(|it| it.attempt.as_deref()).collect();
        let (mut used, mut by_node) = (BTreeMap::new(), BTreeMap::<String, u64>::new());
        for it in self.memory.launched.iter().filter(|it| alive.contains(&*it.attempt)) {
            let each = uses(&it.attempt, self.now.saturating_sub(it.since_ms), it.limit);
            let nodes = self.nodes.instances(&it.attempt);
            used.insert(it.attempt.clone(), each * nodes.values().sum::<u64>());
            nodes.iter().for_each(|(node, here)| *by_node.entry((*node).to_owned()).or_default() += each * here);
        }
        let wall = self.wall();
        let is_behind = wall < self.memory.latest;
        self.memory.latest = self.memory.latest.max(wall);
        let mut lacking = BTreeMap::new();
        for node in &self.capacity.nodes {
            let bytes = by_node.get(&node.name).copied().unwrap_or(0).saturating_sub(node.memory_bytes);
            let short_ms = self.memory.short_ms.entry(node.name.clone()).or_default();
            *short_ms = if bytes > 0 && !is_behind { *short_ms + passed_ms } else { 0 };
            if *short_ms > MAX_SHORT_MS {
                return broken(format!("{} has lacked {} bytes of memory for {short_ms} ms", node.name, bytes));
            }
            lacking.insert(node.name.clone(), bytes);
        }
        let command = match self.bug {
            Some(Bug::UseNotMeasured) => Command::MemoryMeasured { used: BTreeMap::new(), lacking: BTreeMap::new() },
            _ => Command::MemoryMeasured { used, lacking },
        };
        self.execute(&command, true).map(drop)
    }
}

/// Memory of an attempt's instance at its age, in bytes: at most 4 GiB, and no more than its limit,
/// so that no job alone needs more than its nodes have.
fn uses(attempt: &AttemptId, age_ms: u64, limit: u64) -> u64 {
    let seed = attempt.bytes().fold(7, |seed: u64, byte| seed.wrapping_mul(31).wrapping_add(byte.into()));
    let most = (Random::new(seed, 5).below(5) * GIB).min(limit);
    most * age_ms.min(GROWS_MS) / GROWS_MS
}
