//! What the program left, on its way to the server.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use shoal_link::{Order, Phase, ReportBody};

use super::Agent;
use crate::artifacts;
use crate::events::{Event, next_event};
use crate::trouble::Trouble;

impl Agent<'_> {
    pub(super) fn upload(&mut self) -> Result<(), Trouble> {
        self.has_uploaded = true;
        self.outbox.report(ReportBody::Phase { phase: Phase::Uploading })?;
        self.await_mirrors(None);
        if self.wishes.released {
            // They are wanted no longer: the attempt was interrupted, and another one follows.
            return Ok(());
        }
        self.pack()?;
        Ok(self.outbox.report(ReportBody::Uploaded)?)
    }

    /// Sends what the program left, in another thread. A stop that comes meanwhile leaves it its grace, a release nothing.
    fn pack(&mut self) -> Result<(), Trouble> {
        let (ml, outbox, most) = (self.home.ml(), self.outbox.clone(), self.most_stored);
        let is_stopped = Arc::new(AtomicBool::new(false));
        let (flag, events) = (is_stopped.clone(), self.events.clone());
        let pack = move || {
            let sent = artifacts::send(&ml, &outbox, most, &flag);
            // If nobody listens the agent has ended.
            let _ = events.send(Event::Packed(sent));
        };
        thread::Builder::new().name("pack".into()).spawn(pack).map_err(Trouble::Watch)?;
        // Orders are repeated: one from before the program's end is not about this.
        let was_stopped = self.wishes.stop.is_some();
        let mut until = None;
        loop {
            match next_event(&self.arriving, until) {
                Some(Event::Packed(sent)) => return Ok(sent?),
                Some(event) => {
                    if let Event::Order(Order::Stop { grace_s, .. }) = &event
                        && !was_stopped
                    {
                        until = until.or(Some(Instant::now() + Duration::from_secs((*grace_s).into())));
                    }
                    self.wishes.note(event);
                    if self.wishes.released || self.wishes.abandoned {
                        is_stopped.store(true, Ordering::Relaxed);
                    }
                }
                None => {
                    is_stopped.store(true, Ordering::Relaxed);
                    until = None;
                }
            }
        }
    }
}
