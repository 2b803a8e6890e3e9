//! The directories whose files go to S3 while the program runs.

use std::time::Instant;

use shoal_link::{Assignment, Checkpoint};

use super::Agent;
use crate::attempt_error::AttemptError;
use crate::events::next_event;
use crate::mirror::{self, Mirror, Place, What};

impl Agent<'_> {
    /// Begins to mirror what the assignment wants mirrored.
    pub(super) fn mirror(&mut self, assignment: &Assignment) -> Result<(), AttemptError> {
        if let Some(checkpoint) = &assignment.checkpoint {
            let place = self.home.checkpoints(&checkpoint.local_path);
            self.restore(checkpoint, &place)?;
            self.start_mirror(
                What::Checkpoints,
                &checkpoint.uri,
                &place,
                &checkpoint.local_path,
                assignment.limits.disk_bytes,
            )?;
        }
        if let Some(uri) = &assignment.intermediate {
            self.start_mirror(
                What::Intermediate,
                uri,
                &self.home.intermediate(),
                "/opt/ml/output/intermediate",
                assignment.limits.disk_bytes,
            )?;
        }
        Ok(())
    }

    /// Puts what was saved before into the checkpoint directory.
    fn restore(&mut self, checkpoint: &Checkpoint, place: &Place) -> Result<(), AttemptError> {
        let Some(tree) = &checkpoint.tree else { return Ok(()) };
        let failed =
            |source| AttemptError::Mirror { what: format!("restore the checkpoints of {}", checkpoint.uri), source };
        let files = mirror::restore(tree.directory(), &place.directory(), &mut || self.is_to_stop()).map_err(failed)?;
        Ok(self.tell(&[format!("{files} checkpoint files from {} are in {}", checkpoint.uri, checkpoint.local_path)])?)
    }

    fn start_mirror(
        &mut self,
        what: What,
        uri: &str,
        place: &Place,
        path: &str,
        most: Option<u64>,
    ) -> Result<(), AttemptError> {
        let mirror = Mirror::start(self.options, what, uri, place, most, self.outbox, &self.events);
        let failed = |source| AttemptError::Mirror { what: format!("mirror {path}"), source };
        self.mirrors.push(mirror.map_err(failed)?);
        Ok(())
    }

    /// Until all files are saved, nobody wants them any more, or the time has come.
    pub(super) fn await_mirrors(&mut self, until: Option<Instant>) {
        while self.is_mirroring() && !self.wishes.released && !self.wishes.abandoned {
            match next_event(&self.arriving, until) {
                Some(event) => self.wishes.note(event),
                None => return,
            }
        }
    }

    pub(super) fn is_mirroring(&self) -> bool {
        self.wishes.mirrored < self.mirrors.len()
    }
}
