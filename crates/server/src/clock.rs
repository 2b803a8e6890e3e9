//! The process's two clocks, as the machines of [`shoal_runtime`] take them.

use std::{
    sync::LazyLock,
    time::{Instant, SystemTime, UNIX_EPOCH},
};

use shoal_plane::Time;
use shoal_runtime::{Mono, Now};

/// Origin of the process's monotonic time: early enough that no machine measures from before it.
static ORIGIN: LazyLock<Instant> = LazyLock::new(Instant::now);

/// Milliseconds since the epoch.
pub(crate) fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

pub(crate) fn now() -> Now {
    Now { mono: Mono(ORIGIN.elapsed()), wall: Time(now_ms()) }
}

/// Waits for a machine's deadline; forever without one.
pub(crate) async fn until(deadline: Option<Mono>) {
    match deadline {
        Some(deadline) => tokio::time::sleep(deadline.since(now().mono)).await,
        None => std::future::pending::<()>().await,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_deadline_is_over_when_it_has_passed() {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().expect("a runtime");
        runtime.block_on(async {
            let begin = now().mono;
            until(Some(begin)).await;
            assert!(
                tokio::time::timeout(Duration::from_secs(3600), until(None)).await.is_err(),
                "no deadline never passes"
            );
        });
    }
}
