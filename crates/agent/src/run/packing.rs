//! What the program left, on its way to the server.

use std::thread;
use std::time::{Duration, Instant};

use shoal_link::{Order, Phase, ReportBody};
use shoal_sandbox::Support;

use super::Agent;
use crate::attempt_error::AttemptError;
use crate::events::{Event, next_event};
use crate::pack::PackError;
use crate::packer::{Packer, pass_on};

/// What a program left that was stopped is packed for so long at least, however short the grace of
/// the stop: it is what the stop was to save.
const LEAST_AFTER_STOP: Duration = Duration::from_secs(10);

impl Agent<'_> {
    pub(super) fn upload(&mut self) -> Result<(), AttemptError> {
        self.has_uploaded = true;
        self.outbox.report(ReportBody::Phase { phase: Phase::Uploading })?;
        self.await_mirrors(None);
        if self.wishes.released || self.wishes.abandoned {
            // They are wanted no longer: the attempt was interrupted, and another one follows; or
            // there is nobody to have them.
            return Ok(());
        }
        self.pack()?;
        Ok(self.outbox.report(ReportBody::Uploaded)?)
    }

    /// Sends what the program left. A stop leaves it its grace: one that comes meanwhile from then
    /// on, one from before the program's end from now on. A release, and the end of the lease,
    /// leave it nothing.
    fn pack(&mut self) -> Result<(), AttemptError> {
        let support = self.support.clone().unwrap_or_else(Support::processes_only);
        let (mut packer, stdout) = Packer::start(self.home.ml(), self.most_stored, self.spec.as_ref(), &support)
            .map_err(AttemptError::Packer)?;
        let (outbox, events) = (self.outbox.clone(), self.events.clone());
        let pass_on = move || {
            let sent = pass_on(stdout, &outbox);
            // If nobody listens the agent has ended.
            let _ = events.send(Event::Packed(sent));
        };
        thread::Builder::new().name("pack".into()).spawn(pass_on).map_err(AttemptError::Watch)?;
        // Orders are repeated: one from before the program's end counts once.
        let was_stopped = self.wishes.stop;
        let mut until = was_stopped.map(|grace| Instant::now() + grace.max(LEAST_AFTER_STOP));
        let mut is_stopped = false;
        loop {
            match next_event(&self.arriving, until) {
                Some(Event::Packed(_)) if is_stopped => return Err(PackError::Stopped.into()),
                Some(Event::Packed(sent)) => return Ok(sent.and_then(|()| packer.end())?),
                Some(event) => {
                    if let Event::Order(Order::Stop { grace_s, .. }) = &event
                        && was_stopped.is_none()
                    {
                        until = until.or(Some(Instant::now() + Duration::from_secs((*grace_s).into())));
                    }
                    self.wishes.note(event);
                    if self.wishes.released || self.wishes.abandoned {
                        until = Some(Instant::now());
                    }
                }
                None => {
                    is_stopped = true;
                    packer.kill();
                    until = None;
                }
            }
        }
    }
}
