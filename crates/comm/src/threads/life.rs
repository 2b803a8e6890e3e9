//! Who lives among the threads of one process: a rank dies when its group is dropped.

use std::{
    collections::BTreeMap,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use crate::{
    Error,
    front::{Options, Parts, Reform},
    guard::{Alarm, Fault, Watch},
    transport::Transport,
};

/// How long the living wait for each other when they make their group anew.
const PATIENCE: Duration = Duration::from_secs(30);

/// Makes the transports of so many ranks, in this epoch.
pub(super) type Connect = fn(usize, u64) -> Result<Vec<Arc<dyn Transport>>, Error>;

/// What the ranks of one group, of one epoch, know of each other.
#[derive(Debug)]
pub(super) struct Life {
    epoch: u64,
    options: Arc<Options>,
    /// By rank.
    transports: Vec<Arc<dyn Transport>>,
    connect: Connect,
    alarms: Vec<Arc<Alarm>>,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    dead: Vec<usize>,
    /// What each rank called in a dispute, by the members of the group that had it.
    calls: BTreeMap<(Vec<usize>, usize), Option<String>>,
    /// Who wants the group made anew.
    reforming: Vec<usize>,
    next: Option<(Vec<usize>, Arc<Life>)>,
}

impl Life {
    pub(super) fn new(size: usize, epoch: u64, connect: Connect, options: &Arc<Options>) -> Result<Arc<Self>, Error> {
        Ok(Arc::new(Self {
            epoch,
            options: Arc::clone(options),
            transports: connect(size, epoch)?,
            connect,
            alarms: (0..size).map(|_| Arc::default()).collect(),
            state: Mutex::default(),
            changed: Condvar::new(),
        }))
    }

    /// What rank `rank`'s group is made of.
    pub(super) fn parts(self: &Arc<Self>, rank: usize) -> Parts {
        let member = Arc::new(Member { rank, life: Arc::clone(self) });
        Parts {
            rank,
            size: self.alarms.len(),
            epoch: self.epoch,
            transport: Arc::clone(&self.transports[rank]),
            watch: Arc::clone(&member) as Arc<dyn Watch>,
            reform: member,
            options: Arc::clone(&self.options),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn raise(&self, fault: &Fault) {
        self.alarms.iter().for_each(|alarm| alarm.raise(fault.clone()));
        self.changed.notify_all();
    }

    /// Waits until `ready` says so of the state, or until `end`.
    fn wait<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        end: Instant,
        ready: impl Fn(&State) -> bool,
    ) -> MutexGuard<'a, State> {
        while !ready(&state) {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            state = self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        state
    }
}

/// One rank's place in it; the rank is dead when nothing holds it any more.
#[derive(Debug)]
struct Member {
    rank: usize,
    life: Arc<Life>,
}

impl Drop for Member {
    fn drop(&mut self) {
        let mut state = self.life.lock();
        state.dead.push(self.rank);
        let was_reformed = state.next.is_some();
        drop(state);
        if !was_reformed {
            let fault = Fault::Died { rank: self.rank, how: "its group was dropped".to_owned() };
            self.life.raise(&fault);
        }
    }
}

impl Watch for Member {
    fn alarm(&self) -> &Arc<Alarm> {
        &self.life.alarms[self.rank]
    }

    fn tell(&self, fault: &Fault) {
        self.life.raise(fault);
    }

    fn calls(&self, members: &[usize], mine: Option<&str>, patience: Duration) -> Vec<Option<String>> {
        let mut state = self.life.lock();
        state.calls.entry((members.to_vec(), self.rank)).or_insert_with(|| mine.map(str::to_owned));
        self.life.changed.notify_all();
        let said = |state: &State, rank: usize| state.calls.get(&(members.to_vec(), rank)).cloned();
        let all = |state: &State| members.iter().all(|rank| said(state, *rank).is_some());
        let state = self.life.wait(state, Instant::now() + patience, all);
        members.iter().map(|rank| said(&state, *rank).flatten()).collect()
    }
}

impl Reform for Member {
    fn shrink(&self) -> Result<Parts, Error> {
        let life = &self.life;
        self.revoke();
        let mut state = life.lock();
        state.reforming.push(self.rank);
        life.changed.notify_all();
        let size = life.alarms.len();
        let everybody =
            |state: &State| (0..size).all(|rank| state.dead.contains(&rank) || state.reforming.contains(&rank));
        let mut state = life.wait(state, Instant::now() + PATIENCE, |state| state.next.is_some() || everybody(state));
        if state.next.is_none() {
            if !everybody(&state) {
                let missing: Vec<_> =
                    (0..size).filter(|rank| !state.dead.contains(rank) && !state.reforming.contains(rank)).collect();
                let problem =
                    format!("shrink: ranks {missing:?} live but did not call shrink within {} s", PATIENCE.as_secs());
                return Err(Error::Rendezvous { problem });
            }
            let mut living = state.reforming.clone();
            living.sort_unstable();
            let next = Life::new(living.len(), life.epoch + 1, life.connect, &life.options)?;
            state.next = Some((living, next));
        }
        let next = state.next.clone();
        drop(state);
        let (living, next) = next.expect("made above");
        let place = living.iter().position(|rank| *rank == self.rank).expect("this rank is among those that re-form");
        Ok(next.parts(place))
    }

    fn rejoin(&self, _patience: Duration) -> Result<Parts, Error> {
        let problem = "threads of one process have no replacements; use shrink".to_owned();
        Err(Error::Rendezvous { problem })
    }
}
