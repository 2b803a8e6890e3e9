//! The directories whose files go to S3 while the program runs.

use std::time::Instant;

use shoal_link::{Assignment, Checkpoint, MirrorKind};

use super::Agent;
use crate::attempt_error::AttemptError;
use crate::events::next_event;
use crate::mirror::{self, Mirror, Place};

impl Agent<'_> {
    /// Begins to mirror what the assignment wants mirrored.
    pub(super) fn mirror(&mut self, assignment: &Assignment) -> Result<(), AttemptError> {
        if let Some(checkpoint) = &assignment.checkpoint {
            self.restore(checkpoint, &self.home.mirrored(MirrorKind::Checkpoints, &checkpoint.local_path))?;
        }
        for (kind, mirrored) in assignment.mirrored() {
            let place = self.home.mirrored(kind, mirrored.local_path);
            let most = assignment.limits.disk_bytes;
            let mirror = Mirror::start(self.options, kind, mirrored.uri, &place, most, self.outbox, &self.events);
            let failed = |source| AttemptError::Mirror { what: format!("mirror {}", mirrored.local_path), source };
            self.mirrors.push(mirror.map_err(failed)?);
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
