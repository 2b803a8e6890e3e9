//! Ranks that are threads of one process: for tests and as a reference. Correct first: a mutex and
//! a condition variable.

mod meeting;
mod pipes;

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use self::{meeting::Meeting, pipes::Pipes};
use crate::{
    Call, Error, Memory,
    guard::Guard,
    reduce::Stores,
    timeline::Way,
    transport::{Transport, direct, wire::Wire},
};

/// All ranks' parts.
pub(crate) fn connect(size: usize, epoch: u64) -> Vec<Arc<dyn Transport>> {
    let world = Arc::new(World::new(size, epoch));
    (0..size).map(|rank| Arc::new(Local { rank, world: Arc::clone(&world) }) as Arc<dyn Transport>).collect()
}

/// The number of a split, and who is in it.
type Split = (u64, Vec<usize>);

/// What the ranks of one group share.
#[derive(Debug)]
struct World {
    epoch: u64,
    collectives: Meeting,
    messages: Pipes,
    /// Groups that were split off.
    parts: Mutex<HashMap<Split, Arc<World>>>,
}

impl World {
    fn new(size: usize, epoch: u64) -> Self {
        Self { epoch, collectives: Meeting::new(size), messages: Pipes::default(), parts: Mutex::default() }
    }
}

/// One rank of a world of threads.
#[derive(Debug)]
struct Local {
    rank: usize,
    world: Arc<World>,
}

#[expect(unsafe_code, reason = "calls are addresses")]
impl Transport for Local {
    unsafe fn execute(&self, call: &Call, seq: u64, guard: &Guard<'_>) -> Result<(), Error> {
        guard.took(Way::Direct);
        let views = self.world.collectives.enter(self.rank, seq, call.signature(self.world.epoch), call, guard)?;
        // SAFETY: every rank has entered with the same signature, and none leaves before all have
        // done their share.
        unsafe { direct::share(call, self.rank, &views, Stores::Cached) };
        self.world.collectives.leave(self.rank, seq, guard)
    }

    fn wire(&self) -> Option<&dyn Wire> {
        Some(self)
    }

    fn alloc(&self, bytes: usize) -> Result<Memory, Error> {
        Memory::private(bytes)
    }

    fn split(&self, members: &[usize], id: u64, _guard: &Guard<'_>) -> Result<Arc<dyn Transport>, Error> {
        let mut parts = self.world.parts.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (id, members.to_vec());
        let world = parts.entry(key).or_insert_with(|| Arc::new(World::new(members.len(), self.world.epoch)));
        let rank = members.iter().position(|member| *member == self.rank).expect("only members split");
        Ok(Arc::new(Self { rank, world: Arc::clone(world) }))
    }

    fn plan(&self) -> String {
        "threads of one process: every operation directly, between two barriers\n".to_owned()
    }

    fn spins(&self) -> u32 {
        0
    }
}
