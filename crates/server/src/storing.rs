//! Storing a finished job's artifacts, which wait for room on a full disk until somebody stops the job.

use std::{
    thread,
    time::{Duration, Instant},
};

use shoal_plane::Command;
use shoal_store::{RESERVE_STEP_BYTES, ResourceKind};

use crate::{
    artifacts,
    attempts::run_dir,
    core::Refusal,
    effects::{INSIST, World, describe},
};

/// How long a finished job's artifacts wait for room on the disk; as long as the core waits for their upload.
const ROOM_TIMEOUT: Duration = Duration::from_secs(3600);

/// Between two tries to store artifacts that need more than the disk had.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

impl World {
    pub(crate) fn store_artifacts(&self, job: &str, attempt: String, number: u32, hosts: &[u32]) -> Result<(), Refusal> {
        let request = match self.request(job) {
            Ok(request) => request,
            Err(reason) => return self.insist(&Command::ArtifactsFailed { attempt, reason }),
        };
        let dir = run_dir(&self.runs, &attempt);
        let needed = artifacts::sent_bytes(&dir, hosts);
        // One that goes on from a checkpoint, and is stopped before it does, leaves nothing: the job's model is what the attempt before has left.
        let is_kept = needed == 0 && number > 1 && artifacts::has_model(&self.objects, &request.output, job);
        let store = || if is_kept { Ok(()) } else { artifacts::store(&self.objects, &dir, hosts, &request.output, job) };
        let mut wait = RoomWait::new(Instant::now());
        let mut is_waiting = false;
        let stored = loop {
            let is_stopping = self.is_stopping(job);
            let now = Instant::now();
            let is_last = is_stopping || wait.is_over(now);
            if is_last || (wait.is_due(now) && self.data_dir.has_room(needed)) {
                match store() {
                    Err(error) if error.is_full() && !is_last => wait.failed(Instant::now()),
                    // What a job that is stopped leaves may be small.
                    Err(error) if error.is_full() && is_stopping && needed <= RESERVE_STEP_BYTES => break self.data_dir.with_step(store),
                    stored => break stored,
                }
            }
            if !std::mem::replace(&mut is_waiting, true) {
                tracing::error!("training job {job}: its artifacts ({needed} bytes as sent) wait for the disk: no space left");
            }
            thread::sleep(INSIST);
            if matches!(self.core.tell(Command::Tick), Err(Refusal::Stopping)) {
                return Err(Refusal::Stopping);
            }
        };
        match stored.map_err(|error| describe(&error)) {
            Ok(()) => self.insist(&Command::ArtifactsStored { attempt }),
            Err(reason) => {
                let reason = self.without_paths(&reason);
                self.insist(&Command::ArtifactsFailed { attempt, reason })
            }
        }
    }

    /// Whether somebody, or a limit of its time, stops the job: whatever becomes of its instances.
    fn is_stopping(&self, job: &str) -> bool {
        self.rows.resource(ResourceKind::TRAINING_JOB, job).is_ok_and(|row| row.is_none_or(|row| row.status != "InProgress"))
    }
}

/// When to try again to store what the disk had no room for.
struct RoomWait {
    begin: Instant,
    pause: Duration,
    next: Instant,
}

impl RoomWait {
    fn new(now: Instant) -> Self {
        Self { begin: now, pause: INSIST, next: now }
    }

    fn is_over(&self, now: Instant) -> bool {
        now - self.begin >= ROOM_TIMEOUT
    }

    fn is_due(&self, now: Instant) -> bool {
        now >= self.next
    }

    /// It needed more than there seemed to be, and others may have lacked what it took meanwhile.
    fn failed(&mut self, now: Instant) {
        self.next = now + self.pause;
        self.pause = (2 * self.pause).min(LONGEST_PAUSE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lacked_room_is_tried_ever_more_seldom() {
        let begin = Instant::now();
        let mut wait = RoomWait::new(begin);
        let (mut now, mut tries) = (begin, 0);
        while !wait.is_over(now) {
            if wait.is_due(now) {
                tries += 1;
                wait.failed(now);
            }
            now += INSIST;
        }
        assert_eq!(now - begin, ROOM_TIMEOUT);
        assert_eq!(tries, 65, "six that double the pause to a minute, then one a minute");
    }
}
