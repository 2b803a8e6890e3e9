//! One server's part of the parameters and the workers' clocks: the protocol without threads and
//! messages.
//!
//! A worker's clock counts how often it has advanced. One that is more than the bound ahead of the
//! slowest must wait. Synchronous: the bound is 0, and what is pushed is held back until everybody
//! has advanced, then done in the order of the workers' ranks: the values are the same bits in
//! every run. Otherwise pushes are done as they come, whatever the bound.
//!
//! Source: Ho et al., More Effective Distributed ML via a Stale Synchronous Parallel Parameter
//! Server, 2013, section 2.

use std::collections::{BTreeMap, VecDeque};

use super::{Consistency, Push};

/// What one push does to the values: where it begins, its elements, and how.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Update {
    pub(super) at: usize,
    pub(super) values: Vec<f32>,
    pub(super) how: Push,
}

#[derive(Debug, Default)]
struct Worker {
    clock: u64,
    /// Updates of clocks that not everybody has passed, oldest clock first; the last list is that
    /// of the worker's own clock.
    held: VecDeque<Vec<Update>>,
    /// Has ended well or was lost: nobody waits for it.
    is_gone: bool,
}

/// A part of the flat space and who works on it.
#[derive(Debug)]
pub(super) struct Shard {
    values: Vec<f32>,
    consistency: Consistency,
    workers: BTreeMap<usize, Worker>,
    /// Synchronous: the clock whose updates are done next.
    settled: u64,
    lost: Vec<usize>,
}

impl Shard {
    /// Worked on by these ranks.
    pub(super) fn new(values: Vec<f32>, workers: &[usize], consistency: Consistency) -> Self {
        let workers = workers
            .iter()
            .map(|rank| (*rank, Worker { held: VecDeque::from([Vec::new()]), ..Worker::default() }))
            .collect();
        Self { values, consistency, workers, settled: 0, lost: Vec::new() }
    }

    /// What is there at the end; nothing is there any more.
    pub(super) fn take_values(&mut self) -> Vec<f32> {
        std::mem::take(&mut self.values)
    }

    /// What a pull gives.
    pub(super) fn values(&self) -> &[f32] {
        &self.values
    }

    /// A worker pushes.
    pub(super) fn push(&mut self, worker: usize, update: Update) {
        if self.consistency == Consistency::Synchronous {
            self.worker(worker).held.back_mut().expect("a list for the own clock").push(update);
        } else {
            self.settle(&update);
        }
    }

    /// A worker has done its clock. It may go on when [`Shard::may_go_on`].
    pub(super) fn advance(&mut self, worker: usize) {
        let holds = self.consistency == Consistency::Synchronous;
        let worker = self.worker(worker);
        worker.clock += 1;
        if holds {
            worker.held.push_back(Vec::new());
        }
        self.settle_passed();
    }

    /// Whether a worker is near enough to the slowest.
    pub(super) fn may_go_on(&self, worker: usize) -> bool {
        let ahead = self.workers[&worker].clock - self.slowest().min(self.workers[&worker].clock);
        match self.consistency {
            Consistency::Synchronous => ahead == 0,
            Consistency::Bounded(bound) => ahead <= bound,
            Consistency::Unbounded => true,
        }
    }

    /// The workers that hold the others up: those that live and have the least clock.
    pub(super) fn slowest_workers(&self) -> Vec<usize> {
        let slowest = self.slowest();
        self.living().filter(|(_, worker)| worker.clock == slowest).map(|(rank, _)| *rank).collect()
    }

    /// A worker has ended well: what it pushed counts.
    pub(super) fn end(&mut self, worker: usize) {
        self.worker(worker).is_gone = true;
        self.settle_passed();
    }

    /// A worker was lost: what it pushed since it last advanced does not count if it was held back,
    /// and nobody waits for it.
    pub(super) fn lose(&mut self, rank: usize) {
        let worker = self.worker(rank);
        worker.held.pop_back();
        worker.is_gone = true;
        self.lost.push(rank);
        self.settle_passed();
    }

    /// Who was lost, in that order.
    pub(super) fn lost(&self) -> &[usize] {
        &self.lost
    }

    /// Whether all workers have ended or were lost.
    pub(super) fn is_over(&self) -> bool {
        self.living().next().is_none()
    }

    fn worker(&mut self, rank: usize) -> &mut Worker {
        self.workers.get_mut(&rank).expect("only workers speak to a server")
    }

    fn living(&self) -> impl Iterator<Item = (&usize, &Worker)> {
        self.workers.iter().filter(|(_, worker)| !worker.is_gone)
    }

    /// The least clock of those that live.
    fn slowest(&self) -> u64 {
        self.living().map(|(_, worker)| worker.clock).min().unwrap_or(u64::MAX)
    }

    /// Does the updates of the clocks that everybody has passed, by clock, then by rank.
    fn settle_passed(&mut self) {
        if self.consistency != Consistency::Synchronous {
            return;
        }
        let slowest = self.slowest();
        while self.settled < slowest && self.workers.values().any(|worker| !worker.held.is_empty()) {
            let lists: Vec<_> = self.workers.values_mut().filter_map(|worker| worker.held.pop_front()).collect();
            lists.iter().flatten().for_each(|update| self.settle(update));
            self.settled += 1;
        }
    }

    fn settle(&mut self, update: &Update) {
        let values = &mut self.values[update.at..update.at + update.values.len()];
        match update.how {
            Push::Add => values.iter_mut().zip(&update.values).for_each(|(value, more)| *value += more),
            Push::Assign => values.copy_from_slice(&update.values),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    /// What a worker does, in this order.
    #[derive(Debug, Clone, Copy, PartialEq)]
    enum Step {
        Push(f32),
        Assign(f32),
        Advance,
        End,
        Die,
    }

    /// Plays every order in which the workers' steps can come, each script in its own order and
    /// none past a wait. Gives the different ends.
    fn play_all(consistency: Consistency, scripts: &[Vec<Step>], seen: &mut dyn FnMut(&Shard)) -> HashSet<Vec<u32>> {
        let mut ends = HashSet::new();
        let mut paths = vec![Vec::new()];
        while let Some(path) = paths.pop() {
            // The shard after this path, from the start: states need not be copied.
            let mut shard = Shard::new(vec![0.0], &(0..scripts.len()).collect::<Vec<_>>(), consistency);
            let mut next = vec![0; scripts.len()];
            for worker in path.iter().copied() {
                let worker: usize = worker;
                match scripts[worker][next[worker]] {
                    Step::Push(x) => shard.push(worker, Update { at: 0, values: vec![x], how: Push::Add }),
                    Assign(x) => shard.push(worker, Update { at: 0, values: vec![x], how: Push::Assign }),
                    Advance => shard.advance(worker),
                    End => shard.end(worker),
                    Die => shard.lose(worker),
                }
                next[worker] += 1;
            }
            seen(&shard);
            let unfinished = |worker: usize| next[worker] < scripts[worker].len();
            let mut is_stuck = true;
            for worker in (0..scripts.len()).filter(|worker| unfinished(*worker)) {
                // A worker that waits does nothing, but it can die.
                if shard.may_go_on(worker) || scripts[worker][next[worker]] == Die {
                    is_stuck = false;
                    let mut longer = path.clone();
                    longer.push(worker);
                    paths.push(longer);
                }
            }
            if (0..scripts.len()).any(unfinished) {
                assert!(!is_stuck, "all wait for ever after {path:?}: {shard:?}");
            } else {
                assert!(shard.is_over());
                ends.insert(shard.values().iter().map(|x| x.to_bits()).collect());
            }
        }
        ends
    }

    use Step::{Advance, Assign, Die, End, Push as Add};

    #[test]
    fn in_step_every_order_gives_the_same_bits() {
        // Sums whose order shows.
        let scripts = [
            vec![Add(1.0), Add(1e8), Advance, Add(-1e8), Advance, End],
            vec![Add(0.3), Advance, Assign(0.7), Advance, End],
            vec![Add(-3e7), Advance, Add(0.1), Advance, End],
        ];
        let ends = play_all(Consistency::Synchronous, &scripts, &mut |_| {});
        // The assignment of rank 1 comes after rank 0's and before rank 2's of the same clock.
        assert_eq!(ends, HashSet::from([vec![(0.7_f32 + 0.1).to_bits()]]));
        let sums = [
            vec![Add(1e8), Advance, Add(1.0), End],
            vec![Add(1.0), Advance, Add(-1e8), End],
            vec![Add(0.25), Advance, End],
        ];
        let expected = (((1e8_f32 + 1.0) + 0.25) + 1.0) + -1e8;
        assert_eq!(play_all(Consistency::Synchronous, &sums, &mut |_| {}), HashSet::from([vec![expected.to_bits()]]));
    }

    #[test]
    fn nobody_is_further_ahead_than_the_bound_and_nobody_waits_for_ever() {
        for bound in 0..3 {
            let scripts =
                [vec![Advance, Advance, Advance, Advance, End], vec![Advance, Advance, End], vec![Advance, End]];
            let mut most = 0;
            play_all(Consistency::Bounded(bound), &scripts, &mut |shard| {
                let living: Vec<_> = shard.living().map(|(_, worker)| worker.clock).collect();
                let ahead = living.iter().max().unwrap_or(&0) - living.iter().min().unwrap_or(&0);
                // The one that waits has done the clock that brought it there.
                assert!(ahead <= bound + 1, "{shard:?}");
                most = most.max(ahead);
            });
            assert_eq!(most, bound + 1, "the bound is used");
        }
    }

    #[test]
    fn without_a_bound_nobody_waits() {
        let scripts = [vec![Add(1.0), Advance, Add(2.0), Advance, Advance, End], vec![Add(4.0), End]];
        let ends = play_all(Consistency::Unbounded, &scripts, &mut |shard| {
            assert!((0..2).all(|worker| shard.may_go_on(worker)));
        });
        assert_eq!(ends, HashSet::from([vec![7.0_f32.to_bits()]]));
    }

    #[test]
    fn the_dead_hold_nobody_up_wherever_they_die() {
        for consistency in [Consistency::Synchronous, Consistency::Bounded(0), Consistency::Bounded(1)] {
            let whole = [Add(1.0), Advance, Add(2.0), Advance, Add(4.0), Advance];
            for length in 0..=whole.len() {
                let mut dies: Vec<_> = whole[..length].to_vec();
                dies.push(Die);
                let scripts = [vec![Add(8.0), Advance, Add(16.0), Advance, Advance, End], dies];
                let ends = play_all(consistency, &scripts, &mut |_| {});
                if consistency == Consistency::Synchronous {
                    // What it pushed counts by whole clocks.
                    let counted: f32 = [0.0, 1.0, 3.0, 7.0][length / 2];
                    assert_eq!(ends, HashSet::from([vec![(24.0 + counted).to_bits()]]), "died after {length} steps");
                }
            }
        }
    }

    #[test]
    fn the_slow_are_named() {
        let mut shard = Shard::new(Vec::new(), &[3, 5, 8], Consistency::Bounded(1));
        shard.advance(5);
        assert_eq!(shard.slowest_workers(), [3, 8]);
        shard.advance(5);
        assert!(!shard.may_go_on(5) && shard.may_go_on(3));
        shard.lose(8);
        shard.end(3);
        assert!(shard.may_go_on(5) && !shard.is_over());
        assert_eq!(shard.lost(), [8]);
    }
}
