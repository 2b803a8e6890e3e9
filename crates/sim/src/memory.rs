//! Memory that attempts use: it grows from nothing, and together they may come to use more than the
//! machine has. The same for an attempt's name whatever goes wrong.

use std::collections::{BTreeMap, BTreeSet};

use shoal_plane::{AttemptId, Command, Event, Fact, SecondaryStatus};

use crate::{
    Bug,
    random::Random,
    scenario::{self, GIB},
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
                let instances = placement.gpus.len() as u64;
                memory.launched.push(Launched { attempt: attempt.clone(), at: event.at, since_ms: now, instances });
            }
            Fact::Released { attempt: Some(attempt) } => memory.launched.retain(|it| it.attempt != *attempt),
            Fact::AttemptEvicted { attempt, .. } => {
                let at = memory.launched.iter().find(|it| it.attempt == *attempt).map_or(event.at, |it| it.at);
                let mut others = memory.launched.iter().filter(|it| it.attempt != *attempt && it.at <= at);
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
        let used: BTreeMap<AttemptId, u64> = self
            .memory
            .launched
            .iter()
            .filter(|it| alive.contains(&*it.attempt))
            .map(|it| (it.attempt.clone(), uses(&it.attempt, self.now.saturating_sub(it.since_ms), it.instances)))
            .collect();
        let lacking = used.values().sum::<u64>().saturating_sub(scenario::capacity().memory_bytes);
        let wall = self.wall();
        let is_behind = wall < self.memory.latest;
        self.memory.latest = self.memory.latest.max(wall);
        self.memory.short_ms = if lacking > 0 && !is_behind { self.memory.short_ms + passed_ms } else { 0 };
        if self.memory.short_ms > MAX_SHORT_MS {
            return broken(format!(
                "the machine has lacked {} GiB of memory for {} ms",
                lacking / GIB,
                self.memory.short_ms
            ));
        }
        let command = match self.bug {
            Some(Bug::UseNotMeasured) => Command::MemoryMeasured { used: BTreeMap::new(), lacking: 0 },
            _ => Command::MemoryMeasured { used, lacking },
        };
        self.execute(&command, true).map(drop)
    }
}

/// Memory of an attempt at its age, in bytes: at most 4 GiB for each instance, so that no job alone
/// needs more than the machine has.
fn uses(attempt: &AttemptId, age_ms: u64, instances: u64) -> u64 {
    let seed = attempt.bytes().fold(7, |seed: u64, byte| seed.wrapping_mul(31).wrapping_add(byte.into()));
    let most = Random::new(seed, 5).below(5) * GIB * instances;
    most * age_ms.min(GROWS_MS) / GROWS_MS
}
