//! `shoal advise --links`: latency and bandwidth between ranks of a process group, as the file of
//! costs has them.

use std::{sync::Arc, thread};

use anyhow::{Context, Result, anyhow, ensure};
use shoal_comm::{
    bench::link,
    cost::Link,
    join,
    rendezvous::{Config, LocalStore, Meeting},
};

/// Between this many ranks of this machine, over shared memory.
///
/// # Errors
/// The ranks cannot form a group.
pub(super) fn of_this_machine(ranks: usize) -> Result<Link> {
    let store = Arc::new(LocalStore::default());
    thread::scope(|scope| {
        let start = |rank| {
            let config = Config::new(rank, ranks, Meeting::Store(Arc::clone(&store) as Arc<_>));
            scope.spawn(|| -> Result<Link> { Ok(link(&*join(config)?)?) })
        };
        let started: Vec<_> = (0..ranks).map(start).collect();
        let measured: Result<Vec<Link>> =
            started.into_iter().map(|rank| rank.join().map_err(|_| anyhow!("a rank panicked"))?).collect();
        measured?.pop().context("at least two ranks have a link")
    })
}

/// Between the ranks of the group that the environment describes (`RANK`, `WORLD_SIZE`,
/// `MASTER_ADDR`, `MASTER_PORT`), of which this process is one. Only rank 0 has the answer, as all
/// ranks have the same.
///
/// # Errors
/// The environment describes no group, or the ranks cannot form it.
pub(super) fn of_the_environment() -> Result<Option<Link>> {
    let group = join(Config::from_env()?)?;
    ensure!(group.size() > 1, "WORLD_SIZE is 1: a link needs two ranks");
    let measured = link(&*group)?;
    Ok((group.rank() == 0).then_some(measured))
}
