//! A worker: pushes, pulls and its clock.

use std::{cell::OnceCell, sync::Arc, thread, time::Duration};

use super::{
    Push,
    layout::Layout,
    message::{Ask, Ranks, in_whole, receive, send},
    serve::{Shared, gave_up},
};
use crate::{At, Error, ProcessGroup};

/// One rank that pushes and pulls. Dropped without [`Worker::end`] it ends as well, except in a
/// panic: then it gives up.
#[derive(Debug)]
pub struct Worker {
    me: usize,
    layout: Layout,
    ports: Vec<Port>,
    patience: Duration,
    clock: u64,
    /// The clock has gone on, but the slowest had not come in time.
    waits: bool,
    has_ended: bool,
}

/// The way to one server.
#[derive(Debug)]
pub(super) struct Port {
    server: usize,
    path: Path,
    /// Why it cannot be reached any more.
    failed: OnceCell<Error>,
}

#[derive(Debug)]
pub(super) enum Path {
    /// This rank is the server.
    Here(Arc<Shared>),
    /// A group of the two.
    There(Arc<dyn ProcessGroup>),
}

/// What a worker hears when its clock has gone on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Advanced {
    /// How often this worker has advanced.
    pub clock: u64,
    /// Workers that were lost since the start; nobody waits for them.
    pub lost: Vec<usize>,
}

impl Worker {
    pub(super) fn new(me: usize, layout: Layout, ports: Vec<Port>, patience: Duration) -> Self {
        Self { me, layout, ports, patience, clock: 0, waits: false, has_ended: false }
    }

    /// Changes a tensor. With [`super::Consistency::Synchronous`] it is done when all have
    /// advanced.
    ///
    /// # Errors
    /// [`Error::Config`] for a tensor that does not exist or has another length; else the first
    /// server that could not be reached; what concerns only the others is done.
    pub fn push(&mut self, name: &str, values: &[f32], how: Push) -> Result<(), Error> {
        let mut result = Ok(());
        for (place, at, range) in self.layout.pieces(name, values.len())? {
            let piece = &values[range];
            let len = piece.len();
            let told = self.ports[place].speak(self.me, |path| match path {
                Path::Here(shared) => {
                    shared.push(self.me, at, piece.to_vec(), how);
                    Ok(())
                }
                Path::There(pair) => {
                    let ask = if how == Push::Add { Ask::Add { at, len } } else { Ask::Assign { at, len } };
                    ask.send(&**pair)?;
                    send(&**pair, piece)
                }
            });
            result = result.and(told);
        }
        result
    }

    /// Reads a tensor.
    ///
    /// # Errors
    /// As for [`Worker::push`].
    pub fn pull(&mut self, name: &str, into: &mut [f32]) -> Result<(), Error> {
        let pieces = self.layout.pieces(name, into.len())?;
        // All servers are asked before the first answers; one that cannot be reached says so again
        // below.
        for (place, at, range) in &pieces {
            let _ = self.ports[*place].speak(self.me, |path| match path {
                Path::Here(_) => Ok(()),
                Path::There(pair) => Ask::Pull { at: *at, len: range.len() }.send(&**pair),
            });
        }
        let mut result = Ok(());
        for (place, at, range) in pieces {
            let piece = &mut into[range];
            let heard = self.ports[place].speak(self.me, |path| match path {
                Path::Here(shared) => {
                    shared.pull(at, piece);
                    Ok(())
                }
                Path::There(pair) => receive(&**pair, piece),
            });
            result = result.and(heard);
        }
        result
    }

    /// This worker has done a step: its clock goes on. Waits until the slowest is near enough.
    ///
    /// # Errors
    /// [`Error::Deadline`] with the slowest, when the patience is over; called again it waits on,
    /// and the clock does not go on twice. Else the server that could not be reached.
    pub fn advance(&mut self) -> Result<Advanced, Error> {
        if let Some(error) = self.ports.iter().find_map(|port| port.failed.get()) {
            // Its clock would run away on the others.
            return Err(error.clone());
        }
        let ask = if self.waits { Ask::WaitOn } else { Ask::Advance };
        if ask == Ask::Advance {
            self.clock += 1;
        }
        self.waits = false;
        for port in &self.ports {
            // One that cannot be reached says so again below.
            let _ = port.speak(self.me, |path| match path {
                Path::Here(shared) => {
                    if ask == Ask::Advance {
                        shared.advance(self.me);
                    }
                    Ok(())
                }
                Path::There(pair) => ask.send(&**pair),
            });
        }
        let (mut all, mut result) = (Ranks::default(), Ok(()));
        for port in &self.ports {
            let heard = port.speak(self.me, |path| match path {
                Path::Here(shared) => Ok(shared.wait(self.me)),
                Path::There(pair) => Ranks::receive(&**pair),
            });
            let ranks = heard.unwrap_or_else(|error| {
                result = result.clone().and(Err(error));
                Ranks::default()
            });
            all.lost.extend(ranks.lost);
            all.awaited.extend(ranks.awaited);
        }
        result?;
        for ranks in [&mut all.lost, &mut all.awaited] {
            ranks.sort_unstable();
            ranks.dedup();
        }
        if !all.awaited.is_empty() {
            self.waits = true;
            let at = At { operation: "advance of a worker's clock".to_owned(), number: self.clock };
            let milliseconds = u64::try_from(self.patience.as_millis()).unwrap_or(u64::MAX);
            return Err(Error::Deadline { waiting_for: all.awaited, milliseconds, at });
        }
        Ok(Advanced { clock: self.clock, lost: all.lost })
    }

    /// Whether the last [`Worker::advance`] ended because the slowest had not come in time: then it
    /// can be called again.
    pub fn is_waiting(&self) -> bool {
        self.waits
    }

    /// This worker is done; the others do not wait for it any more.
    ///
    /// # Errors
    /// The server that could not be reached; the others were told.
    pub fn end(mut self) -> Result<(), Error> {
        self.tell_end()
    }

    /// This worker cannot go on: the servers take it for lost, and what it has pushed since it last
    /// advanced does not count where that is held back.
    pub fn give_up(mut self) {
        self.lose();
    }

    fn lose(&mut self) {
        self.has_ended = true;
        for port in &self.ports {
            // A server that cannot be told is gone.
            let _ = port.speak(self.me, |path| match path {
                Path::Here(shared) => {
                    shared.lose(self.me, gave_up(self.me));
                    Ok(())
                }
                Path::There(pair) => Ask::GiveUp.send(&**pair),
            });
        }
    }

    fn tell_end(&mut self) -> Result<(), Error> {
        self.has_ended = true;
        let mut result = Ok(());
        for port in &self.ports {
            let told = port.speak(self.me, |path| match path {
                Path::Here(shared) => {
                    shared.end(self.me);
                    Ok(())
                }
                Path::There(pair) => Ask::End.send(&**pair),
            });
            result = result.and(told);
        }
        result
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        if self.has_ended {
            return;
        }
        if thread::panicking() {
            self.lose();
        } else {
            // Who cannot be told has seen that this rank is gone, or is gone itself.
            let _ = self.tell_end();
        }
    }
}

impl Port {
    pub(super) fn new(server: usize, path: Path) -> Self {
        Self { server, path, failed: OnceCell::new() }
    }

    /// Speaks with the server, unless that has failed before; errors name ranks of the whole group.
    fn speak<R>(&self, me: usize, what: impl FnOnce(&Path) -> Result<R, Error>) -> Result<R, Error> {
        if let Some(error) = self.failed.get() {
            return Err(error.clone());
        }
        what(&self.path).map_err(|error| self.failed.get_or_init(|| in_whole(error, me, self.server)).clone())
    }
}
