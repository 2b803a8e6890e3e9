//! How far a tuning job lets this training go: it waits after the round that `shoal_resource.json`
//! names until the file says more. What it has in memory stays, so going on costs nothing; and its
//! checkpoint is written before the round is told, so it can as well be ended there.

use std::path::{Path, PathBuf};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use shoal_contract::{Paths, RESOURCE_FILE, Resource};

use super::termination::Termination;

/// Between two looks where the kernel does not tell of changes: 20 ms.
const LOOK: Timespec = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };

/// The turns of a trial on the host that speaks for it.
pub(super) struct Turns {
    file: PathBuf,
    resource: Resource,
    /// Rounds of the checkpoint that it began with beyond what the tuning job counts: a copy's
    /// origin, say, has gone on since.
    ahead: u64,
}

impl Turns {
    /// `None` without a tuning job.
    pub(super) fn read(paths: &Paths) -> Option<Self> {
        let file = paths.base().join(RESOURCE_FILE);
        let resource = read(&file)?;
        Some(Self { file, resource, ahead: 0 })
    }

    /// It begins with a checkpoint after so many rounds. The tuning job counts the values that it
    /// is told from here on, so a newer checkpoint than it knows of must not make the training wait
    /// for leave to tell what the tuning job waits for.
    pub(super) fn begins(&mut self, rounds: u32) {
        self.ahead = u64::from(rounds).saturating_sub(self.resource.from);
    }

    /// Whether the values after so many rounds are known from an earlier attempt, which had gone
    /// beyond its last checkpoint.
    pub(super) fn is_known(&self, rounds: u32) -> bool {
        u64::from(rounds) <= self.resource.from
    }

    /// Whether the training is to wait after so many rounds.
    pub(super) fn is_over(&self, rounds: u32) -> bool {
        self.resource.until.is_some_and(|until| until + self.ahead <= u64::from(rounds))
    }

    /// The number of rounds after which the training is complete: `num_round`, or fewer where the
    /// tuning job's resource ends before.
    pub(super) fn last(&self, num_round: u32) -> u32 {
        let last = self.resource.max.map(|max| u32::try_from(max.saturating_add(self.ahead)).unwrap_or(u32::MAX));
        last.map_or(num_round, |last| last.min(num_round))
    }

    /// After how many rounds it waits next, or is complete after `last`.
    pub(super) fn end(&self, last: u32) -> u32 {
        self.resource.until.map_or(last, |until| u32::try_from(until + self.ahead).unwrap_or(u32::MAX).min(last))
    }

    /// Waits until more rounds than these are wanted, or a stop is requested.
    pub(super) fn wait(&mut self, rounds: u32, termination: &Termination) {
        // Before the first look, so that no change is missed between the two.
        let told = changes(&self.file);
        while let Some(resource) = read(&self.file) {
            self.resource = resource;
            if !self.is_over(rounds) || termination.is_requested() {
                return;
            }
            let mut awaited = vec![PollFd::from_borrowed_fd(termination.wake(), PollFlags::IN)];
            awaited.extend(told.as_ref().map(|told| PollFd::new(told, PollFlags::IN)));
            let is_changed = poll(&mut awaited, told.is_none().then_some(&LOOK)).is_ok()
                && awaited.get(1).is_some_and(|told| !told.revents().is_empty());
            if let Some(told) = told.as_ref().filter(|_| is_changed) {
                // What has changed does not matter.
                let _ = rustix::io::read(told, &mut [0_u8; 1024]);
            }
        }
    }
}

fn read(file: &Path) -> Option<Resource> {
    Resource::parse(&std::fs::read(file).ok()?)
}

/// Something can be read from it when a file has been put beside `file`, or in its place.
fn changes(file: &Path) -> Option<rustix::fd::OwnedFd> {
    let told = inotify::init(CreateFlags::CLOEXEC).ok()?;
    inotify::add_watch(&told, file.parent()?, WatchFlags::MOVED_TO).ok()?;
    Some(told)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_counted_from_the_checkpoint_that_it_began_with() {
        let turns = |done| {
            let mut turns =
                Turns { file: PathBuf::new(), resource: Resource { from: 2, until: Some(4), max: Some(6) }, ahead: 0 };
            turns.begins(done);
            turns
        };
        for (done, known, last) in [(0, 2, 4), (2, 2, 4), (3, 2, 5), (7, 2, 9)] {
            let turns = turns(done);
            assert!(turns.is_known(known) && !turns.is_known(known + 1));
            assert!(!turns.is_over(last - 1) && turns.is_over(last), "begun after {done}");
            assert_eq!([turns.last(100), turns.last(3)], [last + 2, 3]);
            assert_eq!([turns.end(100), turns.end(3)], [last, 3]);
        }
    }
}
