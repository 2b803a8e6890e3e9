//! Telemetry within the owner's settings: every few seconds the store removes what is beyond them.

use std::{
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use shoal_store::{Bounds, StoreError, Telemetry};

use crate::TelemetryLimits;

/// Between two passes.
const INTERVAL: Duration = Duration::from_secs(10);

/// Milliseconds of a day.
const DAY_MS: u64 = 24 * 60 * 60 * 1000;

/// Runs passes until it is aborted.
pub(crate) async fn run(telemetry: Arc<Telemetry>, limits: TelemetryLimits) {
    let mut interval = tokio::time::interval(INTERVAL);
    interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        interval.tick().await;
        let telemetry = telemetry.clone();
        let pass = tokio::task::spawn_blocking(move || {
            let now_ms = SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .map_or(0, |now| u64::try_from(now.as_millis()).unwrap_or(u64::MAX));
            let oldest_ms = limits.days.map_or(0, |days| now_ms.saturating_sub(u64::from(days) * DAY_MS));
            telemetry.tidy(now_ms, &Bounds { bytes: limits.total_bytes, oldest_ms })
        });
        match pass.await {
            Ok(Ok(())) => {}
            // Nothing is lost, and the next pass tries again.
            Ok(Err(StoreError::Full(_))) => tracing::debug!("old log lines are not compressed: the disk is full"),
            Ok(Err(error)) => tracing::warn!("old log lines and metric points are not removed: {error}"),
            Err(error) => tracing::error!("the removal of old log lines panicked: {error}"),
        }
    }
}
