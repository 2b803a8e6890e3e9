//! Measures, when a group is made, what its protocols are chosen by: ranks 0 and 1 hand a flag to and fro, and then some memory. Rank 0 tells all others.

#![expect(unsafe_code, reason = "memory of other ranks is reached by address")]

use std::time::{Duration, Instant};

use super::{Shm, control::Control, tuning::Machine};
use crate::{
    Error,
    cost::Link,
    reduce::{self, Stores},
};

/// How often the flag goes to and fro, and how often that is tried.
const ROUNDS: usize = 8;
const TRIES: usize = 4;
/// Rank 0 sleeps so long between tries if a flag takes longer than one that another core waits for: perhaps it wakes up on another core.
const NAP: Duration = Duration::from_micros(300);
const SLOW: f64 = 2e-6;
/// Memory is handed over in so many pieces, three times: first to have the pages, then past the caches, then through them.
const PIECES: usize = 8;
/// Of so many bytes.
const PIECE: usize = 64 << 10;
/// How long a rank looks before it sleeps between looks.
const AWAKE: Duration = Duration::from_millis(1);

/// What a rank asks now and then while it waits for the others: may it wait on?
pub(crate) type MayWait<'a> = &'a dyn Fn() -> Result<(), Error>;

impl Shm {
    /// Measures, with the other ranks, each of which calls this.
    ///
    /// # Errors
    /// What `may_wait` says.
    pub(crate) fn calibrated(self, may_wait: MayWait<'_>) -> Result<Self, Error> {
        let machine = match self.rank {
            0 => self.measure(may_wait)?,
            1 => {
                self.answer(may_wait)?;
                self.hear(may_wait)?
            }
            _ => self.hear(may_wait)?,
        };
        Ok(self.tuned(machine))
    }

    fn measure(&self, may_wait: MayWait<'_>) -> Result<Machine, Error> {
        let (own, other) = (self.own(), self.controls[1]);
        let answered = |step: usize| wait(|| other.probe().has_done(0, step), may_wait);
        // The other is there.
        answered(1)?;
        let mut step = 1;
        let mut delay = f64::INFINITY;
        for _ in 0..TRIES {
            for _ in 0..ROUNDS {
                let begun = Instant::now();
                step += 1;
                own.probe().advance(0, step);
                answered(step)?;
                delay = delay.min(begun.elapsed().as_secs_f64() / 2.0);
            }
            if delay > SLOW {
                std::thread::sleep(NAP);
            }
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
        let link = Link { latency: delay, bandwidth: PIECE as f64 / (seconds - 2.0 * delay).max(1e-7) };
        let machine = Machine { link, measured: true, ..Machine::assumed() };
        let words = [link.latency.to_bits(), link.bandwidth.to_bits(), machine.cores as u64, machine.cache as u64];
        let (flag, told) = own.told();
        // SAFETY: this rank alone writes there, and nobody reads before the flag.
        unsafe { told.write(words) };
        flag.advance(0, 1);
        Ok(machine)
    }

    /// Rank 1's part.
    fn answer(&self, may_wait: MayWait<'_>) -> Result<(), Error> {
        let (own, other) = (self.own(), self.controls[0]);
        own.probe().advance(0, 1);
        let mut target = vec![0_u8; PIECE];
        for step in 2..2 + TRIES * ROUNDS + 3 * PIECES {
            wait(|| other.probe().has_done(0, step), may_wait)?;
            if let Some(piece) = (step - 2).checked_sub(TRIES * ROUNDS) {
                // SAFETY: written before the flag that was seen.
                unsafe { reduce::copy(target.as_mut_ptr(), place(&other, piece), PIECE, Stores::Cached) };
            }
            own.probe().advance(0, step);
        }
        Ok(())
    }

    /// What rank 0 says.
    fn hear(&self, may_wait: MayWait<'_>) -> Result<Machine, Error> {
        let (flag, told) = self.controls[0].told();
        wait(|| flag.has_done(0, 1), may_wait)?;
        // SAFETY: written before the flag that was seen, and never again.
        let [latency, bandwidth, cores, cache] = unsafe { told.read() };
        let link = Link { latency: f64::from_bits(latency), bandwidth: f64::from_bits(bandwidth) };
        Ok(Machine { link, measured: true, cores: cores as usize, cache: cache as usize })
    }
}

/// Where a piece is handed over: among the stages, which no operation uses yet.
fn place(of: &Control, piece: usize) -> *mut u8 {
    of.stage(0, 0, PIECE, false).wrapping_add(piece % PIECES * PIECE)
}

fn wait(ready: impl Fn() -> bool, may_wait: MayWait<'_>) -> Result<(), Error> {
    let begun = Instant::now();
    let mut turns = 0_u32;
    while !ready() {
        turns += 1;
        if turns < 1000 {
            std::hint::spin_loop();
        } else if begun.elapsed() < AWAKE {
            std::thread::yield_now();
        } else {
            may_wait()?;
            std::thread::sleep(AWAKE / 10);
        }
    }
    Ok(())
}
