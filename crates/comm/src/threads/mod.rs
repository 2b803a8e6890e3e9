//! Groups whose ranks are threads of one process, over any transport.

mod life;

use std::sync::Arc;

use self::life::{Connect, Life};
use crate::{
    Error, ProcessGroup,
    front::{Front, Options},
    transport::{local, shm},
};

/// A world of `size` ranks in this process; each rank is for one thread.
pub fn threads(size: usize) -> Vec<Arc<dyn ProcessGroup>> {
    world(size, |size, epoch| Ok(local::connect(size, epoch))).expect("threads need nothing that could be refused")
}

/// A world of `size` ranks of this process, each of which maps every segment by itself.
///
/// # Errors
/// The system gives no shared memory.
pub fn shared_memory(size: usize) -> Result<Vec<Arc<dyn ProcessGroup>>, Error> {
    world(size, |size, epoch| shm::connect(size, epoch, |shm| shm))
}

/// A world of `size` ranks in this process over any transport.
pub(crate) fn world(size: usize, connect: Connect) -> Result<Vec<Arc<dyn ProcessGroup>>, Error> {
    let life = Life::new(size, 0, connect, &Arc::new(Options::default()))?;
    Ok((0..size).map(|rank| Arc::new(Front::new(life.parts(rank))) as Arc<dyn ProcessGroup>).collect())
}
