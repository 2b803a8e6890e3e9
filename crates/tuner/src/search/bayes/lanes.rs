//! Loops over wide registers, chosen at run time. The code is the same scalar code, compiled once
//! for every machine and once for registers of four and of eight doubles: each element has its own
//! operations in its own order and none are contracted, so all of them give the same bits.

/// Work that [`run`] compiles for the machine's widest registers. `work` must be
/// `#[inline(always)]`, and what it calls, too.
pub(super) trait Task {
    /// What it gives.
    type Out;

    /// Does it.
    fn work(self) -> Self::Out;
}

/// Which registers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Width {
    /// What every machine has.
    Plain,
    /// AVX2.
    #[cfg(target_arch = "x86_64")]
    Four,
    /// AVX-512.
    #[cfg(target_arch = "x86_64")]
    Eight,
}

impl Width {
    /// The widest that this machine has.
    pub(super) fn widest() -> Self {
        Self::all().last().copied().unwrap_or(Self::Plain)
    }

    /// All that this machine has, narrow ones first.
    pub(super) fn all() -> &'static [Self] {
        #[cfg(target_arch = "x86_64")]
        {
            if is_x86_feature_detected!("avx512f")
                && is_x86_feature_detected!("avx512dq")
                && is_x86_feature_detected!("avx512vl")
            {
                return &[Self::Plain, Self::Four, Self::Eight];
            }
            if is_x86_feature_detected!("avx2") {
                return &[Self::Plain, Self::Four];
            }
        }
        &[Self::Plain]
    }
}

#[cfg(test)]
thread_local! {
    static CHOSEN: std::cell::Cell<Option<Width>> = const { std::cell::Cell::new(None) };
}

/// For a test: everything that `work` runs is run with these registers.
#[cfg(test)]
pub(super) fn with_width<R>(width: Width, work: impl FnOnce() -> R) -> R {
    CHOSEN.set(Some(width));
    let result = work();
    CHOSEN.set(None);
    result
}

/// Does it with the widest registers.
pub(super) fn run<T: Task>(task: T) -> T::Out {
    #[cfg(test)]
    if let Some(width) = CHOSEN.get() {
        return run_with(width, task);
    }
    run_with(Width::widest(), task)
}

/// Does it with these registers, which must be of [`Width::all`].
#[cfg_attr(
    target_arch = "x86_64",
    expect(unsafe_code, reason = "calls code compiled for registers whose presence was asked for")
)]
pub(super) fn run_with<T: Task>(width: Width, task: T) -> T::Out {
    match width {
        Width::Plain => task.work(),
        // SAFETY: a Width comes from `all`, which has asked for these features.
        #[cfg(target_arch = "x86_64")]
        Width::Four => unsafe { with_four(task) },
        // SAFETY: as above.
        #[cfg(target_arch = "x86_64")]
        Width::Eight => unsafe { with_eight(task) },
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn with_four<T: Task>(task: T) -> T::Out {
    task.work()
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512dq,avx512vl")]
fn with_eight<T: Task>(task: T) -> T::Out {
    task.work()
}
