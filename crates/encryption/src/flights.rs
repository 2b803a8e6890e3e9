//! What commands have answered, by what they were asked. One run at a time for each question: who
//! asks the same meanwhile gets that run's answer, and waits for no other answer.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::KeyError;

/// For how long an answer counts.
const LIFETIME: Duration = Duration::from_secs(300);
/// The same of a failure: so that all who wait for a command that fails do not run it one by one.
const FAILURE_LIFETIME: Duration = Duration::from_secs(3);
/// Answers that are kept at most.
const MAX_KEPT: usize = 10_000;

#[derive(Debug)]
pub(crate) struct Flights<K, V> {
    answers: Mutex<HashMap<K, Arc<Slot<V>>>>,
}

/// Locked while the command runs; without an answer before its first run has ended.
#[derive(Debug)]
struct Slot<V>(Mutex<Option<Answer<V>>>);

#[derive(Debug)]
struct Answer<V> {
    at: Instant,
    found: Result<V, KeyError>,
}

impl<K, V> Default for Flights<K, V> {
    fn default() -> Self {
        Self { answers: Mutex::default() }
    }
}

impl<V> Answer<V> {
    fn counts(&self) -> bool {
        self.at.elapsed() < if self.found.is_ok() { LIFETIME } else { FAILURE_LIFETIME }
    }
}

impl<K: Eq + Hash, V: Clone> Flights<K, V> {
    /// The answer that there is, or what `run` gives.
    pub(crate) fn get(&self, question: K, run: impl FnOnce() -> Result<V, KeyError>) -> Result<V, KeyError> {
        let slot = self.slot(question);
        let mut answer = lock(&slot.0);
        if let Some(answer) = answer.as_ref().filter(|answer| answer.counts()) {
            return answer.found.clone();
        }
        let found = run();
        *answer = Some(Answer { at: Instant::now(), found: found.clone() });
        found
    }

    /// Keeps an answer that is known.
    pub(crate) fn keep(&self, question: K, value: V) {
        *lock(&self.slot(question).0) = Some(Answer { at: Instant::now(), found: Ok(value) });
    }

    fn slot(&self, question: K) -> Arc<Slot<V>> {
        let mut answers = lock(&self.answers);
        if let Some(slot) = answers.get(&question) {
            return slot.clone();
        }
        // Those that cannot be locked are being answered.
        answers.retain(|_, slot| slot.0.try_lock().map_or(true, |it| it.as_ref().is_none_or(Answer::counts)));
        if answers.len() >= MAX_KEPT {
            answers.clear();
        }
        let slot = Arc::new(Slot(Mutex::new(None)));
        answers.insert(question, slot.clone());
        slot
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::thread;

    use super::*;

    #[test]
    fn who_asks_the_same_at_once_gets_one_answer() {
        let (flights, runs, all) = (Flights::<&str, u32>::default(), AtomicU32::new(0), Barrier::new(8));
        let ask = || {
            all.wait();
            flights.get("slow", || {
                thread::sleep(Duration::from_millis(200));
                runs.fetch_add(1, Ordering::Relaxed);
                Err(KeyError::Unavailable("down".to_owned()))
            })
        };
        thread::scope(|scope| {
            let asked = Vec::from_iter((0..8).map(|_| scope.spawn(ask)));
            for answer in asked {
                assert_eq!(answer.join().unwrap(), Err(KeyError::Unavailable("down".to_owned())));
            }
        });
        assert_eq!(runs.load(Ordering::Relaxed), 1, "a failure is everybody's");
        // It counts for a moment only.
        let slot = flights.slot("slow");
        lock(&slot.0).as_mut().unwrap().at -= FAILURE_LIFETIME;
        assert_eq!(flights.get("slow", || Ok(7)), Ok(7));
        assert_eq!(flights.get("slow", || panic!("it is known")), Ok(7));
    }

    #[test]
    fn a_slow_command_keeps_nobody_else_waiting() {
        let flights = Flights::<&str, u32>::default();
        let (begun, answered) = (Barrier::new(2), Barrier::new(2));
        thread::scope(|scope| {
            let slow = scope.spawn(|| {
                flights.get("slow", || {
                    begun.wait();
                    answered.wait();
                    Ok(1)
                })
            });
            begun.wait();
            assert_eq!(flights.get("other", || Ok(2)), Ok(2));
            flights.keep("known", 3);
            assert_eq!(flights.get("known", || panic!("it is known")), Ok(3));
            answered.wait();
            assert_eq!(slow.join().unwrap(), Ok(1));
        });
    }
}
