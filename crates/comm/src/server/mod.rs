//! A parameter server: named f32 tensors that workers push to and pull from, on the send and recv
//! of a process group.
//!
//! The tensors lie in one flat space that is cut into parts of equal bytes, one for each server, so
//! no server has more to do than another because a tensor is large. Any rank may be a server, a
//! worker, or both. Each worker has a clock that it advances when it has done a step
//! ([`Worker::advance`]); [`Consistency`] says how far ahead of the slowest it may be.
//!
//! A worker that dies holds nobody up: its clock is dropped, the others' next [`Worker::advance`]
//! names it, and [`Server::join`] has the error. A server that dies takes its part with it: whoever
//! asks it gets an error that names it. Each pair of worker and server is a group of its own, so
//! neither breaks the other pairs.
//!
//! ```
//! use shoal_comm::server::{Consistency, Push, Spec, start};
//!
//! let spec = Spec::new([("weights".to_owned(), 3)], [0], [0, 1], Consistency::Synchronous);
//! let ranks: Vec<_> = shoal_comm::threads(2)
//!     .into_iter()
//!     .map(|group| (group, spec.clone()))
//!     .map(|(group, spec)| {
//!         std::thread::spawn(move || {
//!             let role = start(&*group, &spec)?;
//!             let mut worker = role.worker.expect("both ranks work");
//!             worker.push("weights", &[1.0, 2.0, 3.0], Push::Add)?;
//!             worker.advance()?;
//!             let mut weights = [0.0; 3];
//!             worker.pull("weights", &mut weights)?;
//!             worker.end()?;
//!             role.server.map(|server| server.join());
//!             Ok::<_, shoal_comm::Error>(weights)
//!         })
//!     })
//!     .collect();
//! for rank in ranks {
//!     assert_eq!(rank.join().expect("no panic")?, [2.0, 4.0, 6.0]);
//! }
//! # Ok::<(), shoal_comm::Error>(())
//! ```

mod layout;
mod message;
mod serve;
mod shard;
mod worker;

use std::{sync::Arc, time::Duration};

use sha2::{Digest, Sha256};

use self::{
    layout::Layout,
    serve::Shared,
    worker::{Path, Port},
};
pub use self::{
    serve::{Outcome, Server},
    worker::{Advanced, Worker},
};
use crate::{Error, ProcessGroup, ProcessGroupExt};

/// How far a worker may be ahead of the slowest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Consistency {
    /// All in step. What is pushed is held back until everybody has advanced, then done in rank
    /// order: the same bits in every run.
    Synchronous,
    /// At most so many clocks; pushes are done as they come.
    Bounded(u64),
    /// However far; pushes are done as they come.
    Unbounded,
}

/// What a push does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Push {
    /// Adds to the tensor.
    Add,
    /// Replaces it.
    Assign,
}

/// What a parameter server is made of; the same on all ranks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Spec {
    /// Tensors by name and number of elements; they begin as zeros.
    pub tensors: Vec<(String, usize)>,
    /// Ranks that have a part each.
    pub servers: Vec<usize>,
    /// Ranks that push and pull.
    pub workers: Vec<usize>,
    /// How far a worker may be ahead.
    pub consistency: Consistency,
    /// How long [`Worker::advance`] waits for the slowest.
    pub patience: Duration,
}

impl Spec {
    /// With a patience of 300 s.
    pub fn new(
        tensors: impl Into<Vec<(String, usize)>>,
        servers: impl Into<Vec<usize>>,
        workers: impl Into<Vec<usize>>,
        consistency: Consistency,
    ) -> Self {
        let (tensors, servers, workers) = (tensors.into(), servers.into(), workers.into());
        Self { tensors, servers, workers, consistency, patience: Duration::from_secs(300) }
    }
}

/// What this rank is.
#[derive(Debug)]
pub struct Role {
    /// If it pushes and pulls.
    pub worker: Option<Worker>,
    /// If it has a part. It serves in threads of its own, until all workers have ended.
    pub server: Option<Server>,
}

/// Starts a parameter server; all ranks of the group call it.
///
/// # Errors
/// [`Error::Config`] for a specification that cannot be, or that is not the same on all ranks; as
/// for [`ProcessGroup::split`].
pub fn start(group: &dyn ProcessGroup, spec: &Spec) -> Result<Role, Error> {
    let me = group.rank();
    let place = spec.servers.iter().position(|server| *server == me);
    let prepared = check(spec, group.size()).and_then(|()| {
        let layout = Layout::new(&spec.tensors, spec.servers.len())?;
        let shared = place.map(|place| Shared::new(layout.part(place).len(), spec)).transpose()?;
        Ok((layout, shared))
    });
    // Also if it cannot be: so all hear of it.
    let agreed = agree(group, spec, prepared.is_ok());
    let (layout, shared) = prepared?;
    agreed?;
    let (mut ports, mut pairs) = (Vec::new(), Vec::new());
    for server in &spec.servers {
        for worker in &spec.workers {
            if server == worker {
                if let (true, Some(shared)) = (*server == me, &shared) {
                    ports.push(Port::new(me, Path::Here(Arc::clone(shared))));
                }
                continue;
            }
            if let Some(pair) = group.split(&[*worker, *server])? {
                if *worker == me {
                    ports.push(Port::new(*server, Path::There(pair)));
                } else {
                    pairs.push((*worker, pair));
                }
            }
        }
    }
    let worker = spec.workers.contains(&me).then(|| Worker::new(me, layout.clone(), ports, spec.patience));
    let server = match (place, shared) {
        (Some(place), Some(shared)) => Some(Server::start(me, layout.part(place), shared, pairs)?),
        _ => None,
    };
    Ok(Role { worker, server })
}

fn check(spec: &Spec, size: usize) -> Result<(), Error> {
    let refuse = |problem: String| Err(Error::Config { problem: format!("parameter server: {problem}") });
    for (what, ranks) in [("server", &spec.servers), ("worker", &spec.workers)] {
        if ranks.is_empty() {
            return refuse(format!("there is no {what}; name at least one rank"));
        }
        for (place, rank) in ranks.iter().enumerate() {
            if *rank >= size {
                return refuse(format!("{what} {rank} is not in this group; its ranks are 0 to {}", size - 1));
            }
            if ranks[..place].contains(rank) {
                return refuse(format!("rank {rank} is named twice as {what}"));
            }
        }
    }
    Ok(())
}

/// All ranks gave the same specification, and none found that it cannot be.
fn agree(group: &dyn ProcessGroup, spec: &Spec, can_be: bool) -> Result<(), Error> {
    const LEN: usize = 33;
    let mut own = [0_u8; LEN];
    own[0] = u8::from(can_be);
    own[1..].copy_from_slice(&Sha256::digest(format!("{spec:?}")));
    let mut all = vec![0; LEN * group.size()];
    group.all_gather(&own, &mut all)?;
    let all: Vec<_> = all.chunks(LEN).collect();
    let those = |is: &dyn Fn(&[u8]) -> bool| Vec::from_iter((0..all.len()).filter(|rank| is(all[*rank])));
    let (refused, different) = (those(&|given| given[0] == 0), those(&|given| given[1..] != all[0][1..]));
    let problem = if !different.is_empty() {
        format!(
            "ranks {different:?} gave another specification than rank 0; all must give the same tensors, servers, \
             workers and consistency"
        )
    } else if !refused.is_empty() {
        format!("ranks {refused:?} found that it cannot be, and say why")
    } else {
        return Ok(());
    };
    Err(Error::Config { problem: format!("parameter server: {problem}") })
}
