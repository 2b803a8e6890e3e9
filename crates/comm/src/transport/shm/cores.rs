//! Which cores a rank may use, as the system says: a launcher may have bound each rank to one of
//! its own.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use super::control::CORE_WORDS;

/// A bit for each core that this thread may use. Cores beyond the words are left out.
pub(super) fn allowed() -> [u64; CORE_WORDS] {
    let mut words = [0; CORE_WORDS];
    if let Ok(set) = sched_getaffinity(None) {
        (0..64 * CORE_WORDS).filter(|core| set.is_set(*core)).for_each(|core| words[core / 64] |= 1 << (core % 64));
    }
    words
}

/// How many ranks can run at the same time: the cores that any of them may use, or fewer where a
/// quota says so.
pub(super) fn together(own: &[u64; CORE_WORDS], all: &[u64; CORE_WORDS]) -> usize {
    let count = |words: &[u64; CORE_WORDS]| words.iter().map(|word| word.count_ones() as usize).sum::<usize>();
    let granted = std::thread::available_parallelism().map_or(1, usize::from);
    // The library's figure is the least of this rank's cores and its quota.
    if granted < count(own) { granted } else { count(all).max(1) }
}

/// This thread on one core, until this goes.
#[derive(Debug)]
pub(super) struct OnOneCore(Option<CpuSet>);

impl OnOneCore {
    /// On the first of its cores, or the last: two ranks with the same cores, of which there are
    /// several, take different ones.
    pub(super) fn new(first: bool) -> Self {
        let Ok(before) = sched_getaffinity(None) else { return Self(None) };
        let mut cores = (0..CpuSet::MAX_CPU).filter(|core| before.is_set(*core));
        let Some(core) = (if first { cores.next() } else { cores.next_back() }) else { return Self(None) };
        let mut one = CpuSet::new();
        one.set(core);
        Self(sched_setaffinity(None, &one).is_ok().then_some(before))
    }
}

impl Drop for OnOneCore {
    fn drop(&mut self) {
        if let Some(before) = &self.0 {
            // What was allowed before is allowed again, unless somebody took it away meanwhile:
            // then the system keeps what it can.
            let _ = sched_setaffinity(None, before);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_comes_back_from_its_one_core() {
        let before = allowed();
        {
            let _one = OnOneCore::new(false);
            assert_eq!(allowed().iter().map(|word| word.count_ones()).sum::<u32>(), 1);
        }
        assert_eq!(allowed(), before);
        let granted = std::thread::available_parallelism().map_or(1, usize::from);
        assert_eq!(together(&before, &before), granted);
    }

    #[test]
    fn ranks_with_a_core_each_run_together() {
        let (mut own, mut all) = ([0; CORE_WORDS], [0; CORE_WORDS]);
        own[0] = 1;
        all[0] = 0b101;
        all[2] = 1;
        assert_eq!(together(&own, &all), 3);
    }
}
