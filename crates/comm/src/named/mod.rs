//! Operations by name: ranks submit operations in any order, and each is done once all ranks have
//! submitted it.
//!
//! There is no coordinator. A cycle is one all-gather of each rank's new announcements; from these
//! all ranks compute the same list of operations that are ready, in the same order (`negotiate`),
//! and execute it, small tensors of one type fused. An operation that was done before is announced
//! by its number in a cache, and small data travels with the announcement, so that a small
//! all-reduce is one all-gather of 56 bytes. A rank takes part in cycles while it has outstanding
//! operations; without any it uses no core, and the others wait for it in the all-gather.
//!
//! Each process set has a group, a thread and a table of its own. A mismatch fails the operation on
//! all ranks that submitted it, and no other; an error of the group fails all outstanding
//! operations, and names their tensors and the ranks at fault.

mod arithmetic;
mod check;
mod driver;
mod error;
mod execute;
mod handle;
mod meeting;
mod membership;
mod negotiate;
mod place;
mod process_set;
mod reduce;
mod request;
mod settings;
mod submission;
#[cfg(test)]
mod tests;
mod timeline;

use std::{
    any::Any,
    collections::BTreeMap,
    fmt,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
};

use self::{
    check::check,
    membership::Membership,
    place::agree,
    process_set::{ProcessSet, lock},
    timeline::Timeline,
};
pub use self::{
    error::Failure,
    handle::{Handle, Outcome},
    meeting::join,
    place::Place,
    request::{Action, Part, Reduction, Request},
    settings::Settings,
    submission::{Buffer, Callback, OnJoined},
};
use crate::{Error, ProcessGroup};

/// A process set as this rank sees it.
enum Set {
    /// One that this rank is in, and its thread.
    Inside(Arc<ProcessSet>, Option<thread::JoinHandle<()>>),
    /// One of other ranks.
    Outside(Vec<usize>),
}

/// Does operations by name among the ranks of a world and of its process sets.
pub struct Engine {
    world: Mutex<Option<Arc<dyn ProcessGroup>>>,
    rank: usize,
    size: usize,
    place: Place,
    settings: Arc<Settings>,
    sets: Mutex<BTreeMap<u32, Set>>,
    /// Number of sets made so far, and of orders to add or remove one.
    made: AtomicU64,
    orders: AtomicU64,
    /// One order at a time.
    ordering: Mutex<()>,
    timeline: Arc<Timeline>,
    on_joined: Arc<Mutex<Option<OnJoined>>>,
    down: AtomicBool,
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Engine of rank {} of {}", self.rank, self.size)
    }
}

impl Engine {
    /// Starts an engine on a world, which it owns from then on. `lookup`: variables as
    /// [`Settings::read`] names them; `LOCAL_RANK`, `LOCAL_WORLD_SIZE`, `CROSS_RANK`, `CROSS_SIZE`
    /// for this rank's place, which otherwise follows from the ranks' hosts; `SHOAL_COMM_HOST`; and
    /// `HOROVOD_TIMELINE`, the file of rank 0's timeline (`DYNAMIC`: later), with
    /// `HOROVOD_TIMELINE_MARK_CYCLES`. All ranks call this.
    ///
    /// # Errors
    /// A variable is invalid; or as for [`ProcessGroup::run`].
    pub fn start(world: Arc<dyn ProcessGroup>, lookup: &dyn Fn(&str) -> Option<String>) -> Result<Self, Error> {
        let (rank, size) = (world.rank(), world.size());
        let settings = Settings::read(lookup)?;
        let (settings, place) = agree(&*world, settings, lookup)?;
        let timeline = Arc::new(Timeline::default());
        let text = |name: &str| lookup(name).filter(|it| !it.trim().is_empty());
        if let Some(path) = text("HOROVOD_TIMELINE").filter(|path| path != "DYNAMIC" && rank == 0) {
            timeline.start(&path, text("HOROVOD_TIMELINE_MARK_CYCLES").is_some_and(|it| it != "0"))?;
        }
        let engine = Self {
            world: Mutex::new(Some(world)),
            rank,
            size,
            place,
            settings: Arc::new(settings),
            sets: Mutex::default(),
            made: AtomicU64::new(0),
            orders: AtomicU64::new(0),
            ordering: Mutex::default(),
            timeline,
            on_joined: Arc::default(),
            down: AtomicBool::new(false),
        };
        engine.make(&(0..size).collect::<Vec<_>>())?;
        Ok(engine)
    }

    /// This rank's number in the world.
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// Ranks of the world.
    pub fn size(&self) -> usize {
        self.size
    }

    /// This rank's place among the hosts.
    pub fn place(&self) -> Place {
        self.place
    }

    /// Ranks of each set.
    pub fn sets(&self) -> BTreeMap<u32, Vec<usize>> {
        let ranks = |set: &Set| match set {
            Set::Inside(process_set, _) => process_set.membership.members.to_vec(),
            Set::Outside(members) => members.clone(),
        };
        lock(&self.sets).iter().map(|(id, set)| (*id, ranks(set))).collect()
    }

    fn process_set(&self, set: u32) -> Result<Arc<ProcessSet>, Failure> {
        match lock(&self.sets).get(&set) {
            Some(Set::Inside(process_set, _)) => Ok(Arc::clone(process_set)),
            Some(Set::Outside(members)) => Err(Failure::config(format!(
                "rank {} is not in process set {set} of ranks {members:?}: only its ranks do operations there",
                self.rank
            ))),
            None if self.down.load(Ordering::Relaxed) => Err(Failure::ShutDown { tensors: Vec::new() }),
            None => Err(Failure::config(format!("there is no process set {set}: add it on all ranks first"))),
        }
    }

    /// Submits an operation to a set. `drives`: the caller waits for it next, and runs the cycles
    /// meanwhile.
    ///
    /// # Safety
    /// Each buffer's `send` is valid for its part's elements and `recv`, if not null, for the
    /// result's, until the operation is done; nothing else accesses them until then.
    ///
    /// # Errors
    /// The request is invalid, an operation of its name is outstanding, or the engine has failed.
    #[expect(unsafe_code, reason = "tensors come as addresses")]
    pub unsafe fn submit(
        &self,
        set: u32,
        request: Request,
        buffers: Vec<Buffer>,
        callback: Option<Callback>,
        keeps: Option<Box<dyn Any + Send>>,
        drives: bool,
    ) -> Result<Handle, Failure> {
        let process_set = self.process_set(set)?;
        let Membership { members, rank, .. } = &process_set.membership;
        check(&request, &buffers, members, *rank)
            .map_err(|problem| Failure::config(format!("{} {:?}: {problem}", request.action.name(), &*request.name)))?;
        process_set.submit(request, buffers, callback, keeps, drives)
    }

    /// Sets the function that this rank calls for the others' external operations while it has
    /// joined.
    pub fn on_joined(&self, then: Option<OnJoined>) {
        *lock(&self.on_joined) = then;
    }

    /// Adds a process set of these ranks of the world, numbered in ascending order, and gives the
    /// set's number. All ranks of the world call this in the same order.
    ///
    /// # Errors
    /// The ranks are invalid or differ between callers; or as for [`ProcessGroup::split`].
    pub fn add_set(&self, ranks: &[usize]) -> Result<u32, Failure> {
        let mut members = ranks.to_vec();
        members.sort_unstable();
        members.dedup();
        let refuse = |why: String| Err(Failure::config(format!("a process set of ranks {ranks:?}: {why}")));
        if members.len() != ranks.len() {
            return refuse("name each rank once".to_owned());
        }
        match members.last() {
            None => return refuse("name at least one".to_owned()),
            Some(last) if *last >= self.size => {
                return refuse(format!("rank {last} is not in the world; its ranks are 0 to {}", self.size - 1));
            }
            Some(_) => {}
        }
        let _turn = lock(&self.ordering);
        self.order(format!("add ranks {members:?}"))?;
        Ok(self.make(&members)?)
    }

    /// Removes a set; all ranks of the world call this in the same order.
    ///
    /// # Errors
    /// It does not exist, is the world, or differs between callers.
    pub fn remove_set(&self, set: u32) -> Result<(), Failure> {
        if set == 0 || !lock(&self.sets).contains_key(&set) {
            return Err(Failure::config(format!(
                "process set {set} cannot be removed: {}",
                if set == 0 { "it is the world" } else { "there is none" }
            )));
        }
        let _turn = lock(&self.ordering);
        self.order(format!("remove {set}"))?;
        let removed = lock(&self.sets).remove(&set);
        removed.into_iter().for_each(Set::close);
        Ok(())
    }

    /// Makes sure that all ranks give the same order about sets.
    fn order(&self, signature: String) -> Result<(), Failure> {
        let number = self.orders.fetch_add(1, Ordering::Relaxed);
        let request = Request { signature, ..Request::new(Action::Barrier, format!("process_set.{number}")) };
        self.process_set(0)?.submit(request, Vec::new(), None, None, true)?.wait(None).map(drop)
    }

    fn make(&self, members: &[usize]) -> Result<u32, Error> {
        let id = u32::try_from(self.made.fetch_add(1, Ordering::Relaxed))
            .map_err(|_| Error::config("too many process sets: start the engine anew"))?;
        let Some(world) = lock(&self.world).clone() else {
            return Err(Error::config("the engine was shut down: start another"));
        };
        let set = match world.split(members)? {
            None => Set::Outside(members.to_vec()),
            Some(group) => {
                let membership = Membership {
                    members: members.into(),
                    rank: group.rank(),
                    settings: Arc::clone(&self.settings),
                    timeline: Arc::clone(&self.timeline),
                    on_joined: Arc::clone(&self.on_joined),
                };
                let process_set = ProcessSet::new(membership, group);
                let of_thread = Arc::clone(&process_set);
                let thread = thread::Builder::new()
                    .name(format!("shoal-named-{id}"))
                    .spawn(move || of_thread.serve())
                    .map_err(|error| Error::io("start a thread for operations by name", error))?;
                Set::Inside(process_set, Some(thread))
            }
        };
        lock(&self.sets).insert(id, set);
        Ok(id)
    }

    /// Begins a timeline; on rank 0, nothing elsewhere.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn timeline_start(&self, path: &str, mark_cycles: bool) -> Result<(), Error> {
        if self.rank == 0 { self.timeline.start(path, mark_cycles) } else { Ok(()) }
    }

    /// Ends the timeline, if there is one.
    pub fn timeline_stop(&self) {
        self.timeline.stop();
    }

    /// Cycles of the world's set so far.
    pub fn cycles(&self) -> u64 {
        self.process_set(0).map_or(0, |process_set| process_set.cycles.load(Ordering::Relaxed))
    }

    /// Leaves the world: outstanding operations fail.
    pub fn shutdown(&self) {
        if self.down.swap(true, Ordering::Relaxed) {
            return;
        }
        let sets = std::mem::take(&mut *lock(&self.sets));
        sets.into_values().rev().for_each(Set::close);
        self.timeline.stop();
        *lock(&self.world) = None;
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.shutdown();
    }
}

impl Set {
    fn close(self) {
        if let Self::Inside(process_set, thread) = self {
            process_set.close();
            // A callback of the caller's may have ended the engine from this very thread.
            if let Some(thread) =
                thread.filter(|it| it.thread().id() != thread::current().id() && !process_set.is_driven())
            {
                let _ = thread.join();
            }
        }
    }
}
