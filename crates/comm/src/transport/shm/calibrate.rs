//! Measures, when a group is made, what its protocols are chosen by: ranks 0 and 1 hand a flag to
//! and fro, and then some memory. Rank 0 tells all others.

#![expect(unsafe_code, reason = "memory of other ranks is reached by address")]

use std::time::{Duration, Instant};

use super::{
    Shm,
    choice::Choice,
    control::{CORE_WORDS, Control},
    cores::{self, OnOneCore},
    processor::processor,
    trial::Patience,
    tuning::Machine,
};
use crate::{
    Error,
    cost::Link,
    reduce::{self, Stores},
    staging::Order,
};

/// How often the flag goes to and fro.
const ROUNDS: usize = 32;
/// A flag that takes longer, in seconds, waits until its rank has a core: that is no property of
/// the machine.
const SLOW: f64 = 2e-6;
/// Memory is handed over in so many pieces, three times: first to have the pages, then past the
/// caches, then through them.
const PIECES: usize = 8;
/// Of so many bytes.
const PIECE: usize = 64 << 10;
/// How long a rank looks before it sleeps between looks.
const AWAKE: Duration = Duration::from_millis(1);

/// What rank 0 says.
#[derive(Debug, Clone, Copy)]
struct Word {
    machine: Machine,
    choice: Choice,
    /// Bytes of the second cache, if the ranks are to try.
    tries: Option<usize>,
}

/// What a rank asks now and then while it waits for that rank of this host: may it wait on?
pub(crate) type MayWait<'a> = &'a dyn Fn(usize) -> Result<(), Error>;

impl Shm {
    /// Measures, with the other ranks, each of which calls this. Ranks 0 and 1 are on cores of
    /// their own meanwhile, if they may use several.
    ///
    /// Then all try what else there is, if rank 0's order and processor say so.
    ///
    /// # Errors
    /// What `may_wait` says.
    pub(crate) fn calibrated(self, order: Order, patience: Patience<'_>, may_wait: MayWait<'_>) -> Result<Self, Error> {
        let (flag, place) = self.own().cores();
        // SAFETY: this rank alone writes there, and nobody reads before the flag.
        unsafe { place.write(cores::allowed()) };
        flag.advance(0, 1);
        let Word { machine, choice, tries } = match self.rank {
            0 => self.measure(order, may_wait)?,
            1 => {
                self.answer(may_wait)?;
                self.hear(may_wait)?
            }
            _ => self.hear(may_wait)?,
        };
        let tuned = self.tuned(machine, choice);
        match tries {
            Some(second) if tuned.tuning.turns => tuned.tried(second, patience),
            _ => Ok(tuned),
        }
    }

    fn measure(&self, order: Order, may_wait: MayWait<'_>) -> Result<Word, Error> {
        let machine = Machine { cores: self.count_cores(may_wait)?, ..Machine::assumed() };
        let link = self.measure_link(may_wait)?;
        let machine = Machine { link: link.unwrap_or(machine.link), measured: link.is_some(), ..machine };
        let processor = processor();
        let (choice, tries) = Choice::begin(order, processor);
        let [short, long, large] = choice.words();
        let words = [
            machine.link.latency.to_bits(),
            machine.link.bandwidth.to_bits(),
            u64::from(machine.measured),
            machine.cores as u64,
            machine.cache as u64,
            short,
            long,
            large,
            u64::from(tries),
            processor.second as u64,
        ];
        let (flag, told) = self.own().told();
        // SAFETY: this rank alone writes there, and nobody reads before the flag.
        unsafe { told.write(words) };
        flag.advance(0, 1);
        Ok(Word { machine, choice, tries: tries.then_some(processor.second) })
    }

    /// How many of the ranks can run at the same time.
    fn count_cores(&self, may_wait: MayWait<'_>) -> Result<usize, Error> {
        let mut all = [0; CORE_WORDS];
        for (rank, control) in self.controls.iter().enumerate() {
            let (flag, place) = control.cores();
            wait(|| flag.has_done(0, 1), rank, may_wait)?;
            // SAFETY: written before the flag that was seen, and never again.
            let theirs = unsafe { place.read() };
            all.iter_mut().zip(theirs).for_each(|(all, theirs)| *all |= theirs);
        }
        Ok(cores::together(&cores::allowed(), &all))
    }

    /// What it takes from this rank to rank 1; none where they could not run at the same time.
    fn measure_link(&self, may_wait: MayWait<'_>) -> Result<Option<Link>, Error> {
        let _core = OnOneCore::new(true);
        let (own, other) = (self.own(), self.controls[1]);
        let answered = |step: usize| wait(|| other.probe().has_done(0, step), 1, may_wait);
        // The other is there.
        answered(1)?;
        let mut step = 1;
        let mut delay = f64::INFINITY;
        for _ in 0..ROUNDS {
            let begun = Instant::now();
            step += 1;
            own.probe().advance(0, step);
            answered(step)?;
            delay = delay.min(begun.elapsed().as_secs_f64() / 2.0);
        }
        let source = vec![1_u8; PIECE];
        let mut seconds = f64::INFINITY;
        for piece in 0..3 * PIECES {
            let stores = if piece < 2 * PIECES { Stores::Streaming } else { Stores::Cached };
            let begun = Instant::now();
            // SAFETY: nobody reads there before the flag.
            unsafe { reduce::copy(place(own, piece), source.as_ptr(), PIECE, stores) };
            step += 1;
            own.probe().advance(0, step);
            answered(step)?;
            seconds = seconds.min(begun.elapsed().as_secs_f64());
        }
        Ok(link(delay, seconds))
    }

    /// Rank 1's part.
    fn answer(&self, may_wait: MayWait<'_>) -> Result<(), Error> {
        let _core = OnOneCore::new(false);
        let (own, other) = (self.own(), self.controls[0]);
        own.probe().advance(0, 1);
        let mut target = vec![0_u8; PIECE];
        for step in 2..2 + ROUNDS + 3 * PIECES {
            wait(|| other.probe().has_done(0, step), 0, may_wait)?;
            if let Some(piece) = (step - 2).checked_sub(ROUNDS) {
                // SAFETY: written before the flag that was seen.
                unsafe { reduce::copy(target.as_mut_ptr(), place(&other, piece), PIECE, Stores::Cached) };
            }
            own.probe().advance(0, step);
        }
        Ok(())
    }

    /// What rank 0 says.
    fn hear(&self, may_wait: MayWait<'_>) -> Result<Word, Error> {
        let (flag, told) = self.controls[0].told();
        wait(|| flag.has_done(0, 1), 0, may_wait)?;
        // SAFETY: written before the flag that was seen, and never again.
        let [latency, bandwidth, measured, cores, cache, short, long, large, tries, second] = unsafe { told.read() };
        let link = Link { latency: f64::from_bits(latency), bandwidth: f64::from_bits(bandwidth) };
        Ok(Word {
            machine: Machine { link, measured: measured != 0, cores: cores as usize, cache: cache as usize },
            choice: Choice::of_words([short, long, large]),
            tries: (tries != 0).then_some(second as usize),
        })
    }
}

/// From the delay of a flag, and the seconds of a piece with two flags; none where these say
/// nothing of the machine.
fn link(delay: f64, seconds: f64) -> Option<Link> {
    let moved = seconds - 2.0 * delay;
    (delay <= SLOW && moved > seconds / 4.0).then(|| Link { latency: delay, bandwidth: PIECE as f64 / moved })
}

/// Where a piece is handed over: among the stages, which no operation uses yet.
fn place(of: &Control, piece: usize) -> *mut u8 {
    of.stage(0, 0, PIECE, false, 0).wrapping_add(piece % PIECES * PIECE)
}

fn wait(ready: impl Fn() -> bool, rank: usize, may_wait: MayWait<'_>) -> Result<(), Error> {
    let begun = Instant::now();
    let mut turns = 0_u32;
    while !ready() {
        turns += 1;
        if turns < 1000 {
            std::hint::spin_loop();
        } else if begun.elapsed() < AWAKE {
            std::thread::yield_now();
        } else {
            may_wait(rank)?;
            std::thread::sleep(AWAKE / 10);
        }
    }
    Ok(())
}
