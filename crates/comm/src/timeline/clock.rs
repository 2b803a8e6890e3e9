//! A clock that is cheap to read, and how its ticks become the time of day.

use std::{
    sync::OnceLock,
    time::{Instant, SystemTime, UNIX_EPOCH},
};

/// The time in ticks: the processor's own counter where it runs evenly, else nanoseconds.
#[inline]
pub(super) fn ticks() -> u64 {
    #[cfg(target_arch = "x86_64")]
    {
        if counts_evenly() {
            return counter();
        }
    }
    nanoseconds()
}

fn nanoseconds() -> u64 {
    static FIRST: OnceLock<Instant> = OnceLock::new();
    FIRST.get_or_init(Instant::now).elapsed().as_nanos() as u64
}

#[cfg(target_arch = "x86_64")]
#[expect(unsafe_code, reason = "an instruction")]
#[inline]
fn counter() -> u64 {
    // SAFETY: every x86-64 processor has it, and Linux lets programs use it.
    unsafe { std::arch::x86_64::_rdtsc() }
}

/// Whether the processor's counter has one rate whatever the core's clock and sleep (CPUID
/// 8000_0007h, EDX bit 8).
#[cfg(target_arch = "x86_64")]
fn counts_evenly() -> bool {
    static EVENLY: OnceLock<bool> = OnceLock::new();
    *EVENLY.get_or_init(|| {
        let last = std::arch::x86_64::__cpuid(0x8000_0000).eax;
        last >= 0x8000_0007 && std::arch::x86_64::__cpuid(0x8000_0007).edx & (1 << 8) != 0
    })
}

/// Ticks, nanoseconds and the time of day at one moment.
#[derive(Debug, Clone, Copy)]
struct Moment {
    ticks: u64,
    instant: Instant,
}

impl Moment {
    fn now() -> Self {
        Self { ticks: ticks(), instant: Instant::now() }
    }
}

/// Turns ticks into the time of day.
#[derive(Debug)]
pub(super) struct Clock {
    start: Moment,
    /// Nanoseconds since 1970 at the start.
    wall: u128,
}

impl Clock {
    pub(super) fn start() -> Self {
        Self {
            start: Moment::now(),
            wall: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_nanos()),
        }
    }

    /// From ticks until now to nanoseconds since 1970.
    pub(super) fn scale(&self) -> impl Fn(u64) -> i64 + use<> {
        let now = Moment::now();
        let (first, wall) = (self.start.ticks, self.wall as f64);
        let (ticks, time) = ((now.ticks - first).max(1), (now.instant - self.start.instant).as_nanos());
        let rate = time as f64 / ticks as f64;
        let whole = wall as i64;
        move |at: u64| whole + ((at as f64 - first as f64) * rate) as i64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_time() {
        let clock = Clock::start();
        let begun = (ticks(), Instant::now());
        std::thread::sleep(std::time::Duration::from_millis(20));
        let ended = (ticks(), Instant::now());
        let scale = clock.scale();
        let (measured, slept) = ((scale(ended.0) - scale(begun.0)) as f64, (ended.1 - begun.1).as_nanos() as f64);
        // The reads of the two clocks may be apart by a time slice on a busy machine.
        assert!((measured - slept).abs() < 0.2 * slept + 2e7, "{measured} ns by ticks, {slept} ns by the system");
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_nanos() as f64;
        assert!((scale(ticks()) as f64 - wall).abs() < 1e9, "the time of day");
    }
}
