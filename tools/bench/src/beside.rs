//! Work on several threads.

use std::{
    sync::atomic::{AtomicUsize, Ordering},
    thread,
};

use anyhow::{Result, anyhow};

/// Does pieces of work, numbered from 0, on threads that each have a tool of their own; results in
/// the order of the numbers.
///
/// # Errors
/// The first of a piece or of a tool.
pub(super) fn beside<T, R: Send>(
    threads: usize,
    pieces: usize,
    tool: &(dyn Fn() -> Result<T> + Sync),
    work: &(dyn Fn(&mut T, usize) -> Result<R> + Sync),
) -> Result<Vec<R>> {
    let next = AtomicUsize::new(0);
    let done = thread::scope(|scope| {
        let worker = || -> Result<Vec<(usize, R)>> {
            let (mut tool, mut done) = (tool()?, Vec::new());
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= pieces {
                    return Ok(done);
                }
                done.push((number, work(&mut tool, number)?));
            }
        };
        let threads: Vec<_> = (0..threads.min(pieces)).map(|_| scope.spawn(worker)).collect();
        let joined = threads.into_iter().map(|thread| thread.join().map_err(|_| anyhow!("a thread panicked"))?);
        joined.collect::<Result<Vec<_>>>()
    })?;
    let mut done: Vec<_> = done.into_iter().flatten().collect();
    done.sort_by_key(|(number, _)| *number);
    Ok(done.into_iter().map(|(_, result)| result).collect())
}
