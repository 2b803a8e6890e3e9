//! Deliveries of notifications.

use std::sync::atomic::{AtomicU64, Ordering};

use super::format::Text;

/// What became of deliveries.
#[derive(Default)]
pub(crate) struct Counts {
    pub(crate) pending: AtomicU64,
    pub(crate) delivered: AtomicU64,
    pub(crate) failed: AtomicU64,
    pub(crate) attempts: AtomicU64,
}

impl Counts {
    pub(crate) fn add(counter: &AtomicU64) {
        counter.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn write(&self, text: &mut Text) {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed) as f64;
        let help = "Deliveries of notifications that are not at their end.";
        text.gauge("shoal_notifications_pending", help, of(&self.pending));
        let help = "Attempts to deliver a notification.";
        text.counter("shoal_notification_attempts_total", help, of(&self.attempts));
        text.counter("shoal_notifications_delivered_total", "Notifications that arrived.", of(&self.delivered));
        text.counter("shoal_notifications_failed_total", "Notifications that were given up.", of(&self.failed));
    }
}
