//! Sweeps that are asked for while one is under way share the next: it looks through all processes
//! and control groups of the machine, which costs the same for one prefix as for hundreds.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use crate::options::Sweep;

pub(crate) struct Sweeps {
    sweep: Sweep,
    state: Mutex<State>,
    ended: Condvar,
}

#[derive(Default)]
struct State {
    /// What the next sweep is to look for.
    wanted: Vec<String>,
    begun: u64,
    ended: u64,
}

impl Sweeps {
    pub(crate) fn new(sweep: Sweep) -> Self {
        Self { sweep, state: Mutex::default(), ended: Condvar::new() }
    }

    /// Blocks until nothing is left on this machine of the instances whose sandbox ids begin so.
    pub(crate) fn clear(&self, id_prefixes: impl IntoIterator<Item = String>) {
        let mut state = self.lock();
        let before = state.wanted.len();
        state.wanted.extend(id_prefixes);
        if state.wanted.len() == before {
            return;
        }
        // One that is under way may have passed by what this one is to find.
        let mine = state.begun + 1;
        while state.ended < mine {
            if state.begun > state.ended {
                state = self.ended.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            state.begun += 1;
            let wanted = std::mem::take(&mut state.wanted);
            drop(state);
            let ending = Ending(self);
            for removed in (self.sweep)(&wanted) {
                tracing::info!("{removed}");
            }
            drop(ending);
            state = self.lock();
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Lets the others go on, though the sweep may have panicked.
struct Ending<'a>(&'a Sweeps);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.ended = state.begun;
        self.0.ended.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::Arc, thread, time::Duration};

    use super::*;

    #[test]
    fn those_who_come_meanwhile_share_the_next() {
        let (said, rounds): (_, Arc<Mutex<Vec<Vec<String>>>>) = (Arc::new(Condvar::new()), Arc::default());
        let may_end = Arc::new(Mutex::new(false));
        let sweep: Sweep = {
            let (said, rounds, may_end) = (said.clone(), rounds.clone(), may_end.clone());
            Arc::new(move |prefixes| {
                let mut prefixes = prefixes.to_vec();
                prefixes.sort();
                rounds.lock().unwrap().push(prefixes);
                said.notify_all();
                drop(said.wait_while(may_end.lock().unwrap(), |may| !*may).unwrap());
                Vec::new()
            })
        };
        let sweeps = Arc::new(Sweeps::new(sweep));
        let clear = |name: &str| {
            let (sweeps, name) = (sweeps.clone(), name.to_owned());
            thread::spawn(move || sweeps.clear([name]))
        };
        let first = clear("a");
        while rounds.lock().unwrap().is_empty() {
            thread::sleep(Duration::from_millis(1));
        }
        let others = [clear("b"), clear("c")];
        while sweeps.lock().wanted.len() < 2 {
            thread::sleep(Duration::from_millis(1));
        }
        *may_end.lock().unwrap() = true;
        said.notify_all();
        first.join().unwrap();
        others.into_iter().for_each(|other| other.join().unwrap());
        assert_eq!(*rounds.lock().unwrap(), [vec!["a".to_owned()], vec!["b".to_owned(), "c".to_owned()]]);
    }

    #[test]
    fn one_that_panics_holds_up_nobody() {
        let sweeps = Arc::new(Sweeps::new(Arc::new(
            |prefixes: &[String]| if prefixes == ["a"] { panic!("meant") } else { Vec::new() },
        )));
        let first = sweeps.clone();
        assert!(thread::spawn(move || first.clear(["a".to_owned()])).join().is_err());
        sweeps.clear(["b".to_owned()]);
    }
}
