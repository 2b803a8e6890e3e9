//! A backup that follows: after one backup, a tick for what changed, several times a second.
//!
//! A tick reads what the databases' logs have got since the tick before, and is written after the
//! contents that it names. The captures overlap: one is dropped only when the next one has been
//! read, so no frame of a log is lost. Once in a while the next full backup is made beside the
//! ticks, of the same moment as one of them.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use shoal_store::{Capture, CaptureSource, Content, ContentKey, DatabaseView, IsKnown, LogPosition, StoreError};

use crate::error::io_at;
use crate::files::{SmallFile, read_from, read_open, small_files};
use crate::manifest::{MARKER, Origin, claim, ensure_outside, id_at, now_ms};
use crate::pin::{LOG_BYTES, Loan, LogWatch, Pin};
use crate::run::Run;
use crate::take::{Draft, Taken};
use crate::target::{Guard, Held, Target};
use crate::thin::Thinned;
use crate::tick::{About, Change, Pages, Tick};
use crate::transfer::{Captured, Present};
use crate::{BackupError, Progress};

/// A log of this many frames (8 MiB) is moved into its file: half of what a server lets it have, so
/// that its own commits never do that in vain.
const LONG_LOG: u32 = 2048;

/// The next full backup comes when ticks have these bytes, and as many as half of the databases.
const LEAST_TICK_BYTES: u64 = 64 << 20;

/// Or this time after one that failed.
const AGAIN: Duration = Duration::from_mins(1);

/// Or after this time, if anything has changed.
const LONGEST: Duration = Duration::from_hours(1);

/// How to follow.
#[derive(Debug, Clone, Copy)]
pub struct Follow {
    /// From the end of a tick to the next one.
    pub pause: Duration,
    /// Backups that are kept; `None` is all.
    pub keep: Option<usize>,
    /// What the server's logs may get while the target takes its time; half of the databases, if
    /// that is more. Then what was captured is let go, and a full backup begins everything again.
    pub log_bytes: u64,
}

impl Default for Follow {
    fn default() -> Self {
        Self { pause: Duration::from_millis(300), keep: None, log_bytes: LOG_BYTES }
    }
}

/// How much is lost at most if everything ends now.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Lag {
    /// The longest time from one capture that is in the target to the next one's being there.
    pub longest: Duration,
    /// Ticks that were written.
    pub ticks: u64,
    /// Bytes of them.
    pub bytes: u64,
    /// Full backups that were made.
    pub backups: u64,
}

/// Follows a data directory.
#[derive(Debug)]
pub struct Follower {
    source: CaptureSource,
    watch: LogWatch,
    target: Arc<dyn Target>,
    guard: Arc<dyn Guard>,
    options: Follow,
    origin: Origin,
    run: String,
    number: u64,
    present: Present,
    named: Named,
    files: BTreeMap<String, SmallFile>,
    snapshot: Option<SmallFile>,
    /// The last tick's, until the next one has been read.
    previous: Option<Pin>,
    previous_at: Instant,
    logs: BTreeMap<&'static str, FollowedLog>,
    full: Option<JoinHandle<Result<(Taken, Thinned), BackupError>>>,
    full_capture: Option<Loan>,
    since_full: SinceFull,
    lag: Lag,
}

/// What the last tick named, and those before it.
#[derive(Debug, Default)]
struct Named {
    objects: HashSet<u128>,
    segments: HashSet<String>,
}

/// How far a database's log was read.
#[derive(Debug)]
struct FollowedLog {
    position: LogPosition,
    page_bytes: u32,
    page_count: u32,
    /// Read, and in no tick yet.
    pages: BTreeMap<u32, Vec<u8>>,
}

#[derive(Debug)]
struct SinceFull {
    bytes: u64,
    began: Instant,
    again_at: Option<Instant>,
    database_bytes: u64,
}

impl Follower {
    /// Begins: makes a full backup, and returns when it is there. What is acknowledged from its
    /// moment on is in the ticks that follow.
    ///
    /// # Errors
    /// The data directory's or the target's.
    pub fn begin(
        source: CaptureSource,
        target: Arc<dyn Target>,
        options: Follow,
        progress: &mut Progress<'_>,
    ) -> Result<(Self, Taken), BackupError> {
        ensure_outside(&*target, source.root())?;
        let guard: Arc<dyn Guard> = target.lock()?.into();
        let held = &Held { target: &*target, guard: &*guard };
        let origin = Origin::of(source.root())?;
        claim(held, &origin)?;
        let mut present = Present::of(held)?;
        present.copy_ahead(&source, held, progress)?;
        let (previous_at, run) = (Instant::now(), id_at(now_ms())?);
        let watch = LogWatch::begin(&source, options.log_bytes)?;
        let all: (&dyn Fn(&Capture) -> bool, &IsKnown<'_>) = (&|_| true, &|_| false);
        let Captured { mut captures, contents } = present.capture((&source, &watch), 2, held, progress, all)?;
        let (previous, full) = (captures.pop(), captures.pop().ok_or(BackupError::Outrun)?);
        let mut follower = Self {
            files: small_files(source.root())?,
            snapshot: snapshot_of(&full)?,
            named: Named::of(&contents),
            logs: followed(&full)?,
            since_full: SinceFull::of(&full)?,
            source,
            watch,
            target,
            guard,
            options,
            origin,
            run,
            number: 0,
            present,
            previous,
            previous_at,
            full: None,
            full_capture: None,
            lag: Lag::default(),
        };
        follower.start_full(full)?;
        while follower.full.as_ref().is_some_and(|full| !full.is_finished()) {
            follower.tick()?;
            thread::sleep(follower.options.pause);
        }
        let taken = follower.end_full()?.ok_or(BackupError::Outrun)?;
        // Until the first backup was there, nothing was.
        follower.lag = Lag { backups: 1, ..Lag::default() };
        Ok((follower, taken))
    }

    /// One tick and the pause after it. Returns a full backup that was completed meanwhile.
    ///
    /// # Errors
    /// The data directory's or the target's. A tick that failed may be tried again.
    /// [`BackupError::Full`] when all that failed is a full backup.
    pub fn turn(&mut self) -> Result<Option<Taken>, BackupError> {
        let made = match &self.full {
            Some(full) if full.is_finished() => self.end_full(),
            _ => Ok(None),
        };
        if made.is_err() {
            self.since_full.again_at = Some(Instant::now() + AGAIN);
        }
        self.tick()?;
        thread::sleep(self.options.pause);
        made.map_err(|error| BackupError::Full(Box::new(error)))
    }

    /// What was lost at most until now.
    pub fn lag(&self) -> Lag {
        self.lag
    }

    /// The last tick, and the end.
    ///
    /// # Errors
    /// As [`Follower::turn`].
    pub fn end(mut self) -> Result<Lag, BackupError> {
        if self.full.is_some() {
            self.end_full()?;
        }
        self.tick()?;
        Ok(self.lag)
    }

    fn tick(&mut self) -> Result<(), BackupError> {
        match self.guard.ensure() {
            Err(BackupError::Busy { .. }) => return self.take_again(),
            sure => sure?,
        }
        let is_due = self.full.is_none() && self.since_full.is_due();
        let logs = &self.logs;
        let may_differ = |capture: &Capture| {
            let has_contents = |view: &&DatabaseView| matches!(view.name(), "objects.db" | "telemetry.db");
            let differs = |view: &DatabaseView| {
                logs.get(view.name()).is_none_or(|log| log.position != view.position() || !log.pages.is_empty())
            };
            capture.databases.iter().filter(has_contents).any(differs)
        };
        if !self.previous.as_ref().is_some_and(Pin::is_held) {
            return self.begin_again();
        }
        // What is acknowledged from here on may not be in it.
        let at = Instant::now();
        let copies = if is_due { 2 } else { 1 };
        let (named, held) = (&self.named, Held { target: &*self.target, guard: &*self.guard });
        let asks: (&dyn Fn(&Capture) -> bool, &IsKnown<'_>) = (&may_differ, &|key| named.has(key));
        let source = (&self.source, &self.watch);
        let Captured { mut captures, contents } = self.present.capture(source, copies, &held, &mut |_| {}, asks)?;
        let next = captures.pop().ok_or(BackupError::Outrun)?;
        // Until now it has kept what is read.
        if !self.previous.as_ref().is_some_and(Pin::is_held) {
            return self.begin_again();
        }
        match self.follow_logs(&next) {
            // The logs were begun again without us (the server was started, say).
            Err(BackupError::Store(StoreError::Corrupt { .. })) => return self.begin_again(),
            followed => followed?,
        }
        self.write(&next, &contents)?;
        let lasted = self.previous_at.elapsed();
        self.lag.longest = self.lag.longest.max(lasted);
        (self.previous, self.previous_at) = (Some(next), at);
        if let Some(full) = captures.pop() {
            self.since_full = SinceFull::of(&full)?;
            self.start_full(full)?;
        }
        self.renew()
    }

    fn follow_logs(&mut self, next: &Pin) -> Result<(), BackupError> {
        let logs = &mut self.logs;
        next.with(|next| follow_all(logs, next))
    }

    fn write(&mut self, next: &Pin, contents: &[Content]) -> Result<(), BackupError> {
        let mut tick = Tick { contents: contents.iter().map(Content::name).collect(), ..Tick::default() };
        let (files, snapshot) = (small_files(self.source.root())?, snapshot_of(next)?);
        tick.files = self.changed_files(&files)?;
        if snapshot != self.snapshot {
            tick.files.extend(next.with(snapshot_change)?);
        }
        let jobs_running = next.with(Capture::jobs_running)?;
        // Moved, and back if the tick cannot be written.
        for (name, log) in &mut self.logs {
            let (name, pages) = ((*name).to_owned(), std::mem::take(&mut log.pages));
            tick.databases.push(Pages { name, page_bytes: log.page_bytes, page_count: log.page_count, pages });
        }
        if tick.is_empty() {
            return Ok(());
        }
        let number = self.number + 1;
        tick.about = About { run: self.run.clone(), number, taken_ms: now_ms(), jobs_running };
        let bytes = tick.encode();
        let held = Held { target: &*self.target, guard: &*self.guard };
        if let Err(error) = held.put(&Run::name(&self.run, number), &bytes) {
            for pages in tick.databases {
                if let Some(log) = self.logs.get_mut(&*pages.name) {
                    log.pages = pages.pages;
                }
            }
            return Err(error);
        }
        self.number = number;
        (self.files, self.snapshot) = (files, snapshot);
        self.named.add(contents);
        self.since_full.bytes += bytes.len() as u64;
        self.lag.ticks += 1;
        self.lag.bytes += bytes.len() as u64;
        Ok(())
    }

    fn changed_files(&self, files: &BTreeMap<String, SmallFile>) -> Result<Vec<Change>, BackupError> {
        let mut changes = Vec::new();
        for (path, file) in files {
            let earlier = self.files.get(path);
            if earlier == Some(file) {
                continue;
            }
            let at = earlier.and_then(|earlier| file.appended_to(earlier, path)).unwrap_or(0);
            if let Some((_, bytes)) = read_from(&self.source.root().join(path), at)? {
                // A log grows meanwhile: what is behind its stamp comes next time.
                let mut bytes = bytes;
                bytes.truncate(usize::try_from(file.bytes().saturating_sub(at)).unwrap_or(usize::MAX));
                changes.push(Change::Write { path: path.clone(), mode: file.mode, at, bytes });
            }
        }
        let gone = self.files.keys().filter(|path| !files.contains_key(*path));
        changes.extend(gone.map(|path| Change::Remove { path: path.clone() }));
        Ok(changes)
    }

    /// Logs that have become long are moved into their files.
    fn renew(&mut self) -> Result<(), BackupError> {
        // A full backup keeps them anyway, as long as it reads.
        let is_kept = self.full_capture.as_ref().is_some_and(Loan::is_held);
        if is_kept || self.previous.as_ref().is_none_or(|it| it.longest_log() < LONG_LOG) {
            return Ok(());
        }
        // One that was let go is missed at the next tick.
        let Some(previous) = self.previous.take().and_then(Pin::into_inner) else { return Ok(()) };
        let logs = &mut self.logs;
        let follow = |_: &Capture, last: &Capture| follow_all(logs, last);
        let (next, ()) = self.source.capture_renewed(previous, LONG_LOG / 2, follow)?;
        // What was read under the locks is in no tick yet: the time is counted from the last one.
        self.previous = Some(self.watch.pin(next));
        Ok(())
    }

    fn start_full(&mut self, capture: Pin) -> Result<(), BackupError> {
        let draft = Draft {
            origin: self.origin.clone(),
            taken_ms: now_ms(),
            tick: Some((self.run.clone(), self.number)),
            copied_bytes: std::mem::take(&mut self.present.copied_bytes),
        };
        self.full_capture = Some(capture.loan());
        let (root, keep, contents) = (self.source.root().to_owned(), self.options.keep, self.present.names());
        let (target, guard) = (Arc::clone(&self.target), Arc::clone(&self.guard));
        let make = move || {
            let held = Held { target: &*target, guard: &*guard };
            draft.make(&root, capture, &held, keep, contents, &mut |_| {})
        };
        let started = thread::Builder::new().name("full backup".to_owned()).spawn(make);
        self.full = Some(started.map_err(io_at("start", "a thread"))?);
        Ok(())
    }

    fn end_full(&mut self) -> Result<Option<Taken>, BackupError> {
        let Some(full) = self.full.take() else { return Ok(None) };
        let (taken, thinned) = full.join().map_err(|_| BackupError::Outrun)??;
        self.present.removed(&thinned.contents);
        self.lag.backups += 1;
        Ok(Some(taken))
    }

    /// Another process had the target, as this one did not reach it, and what is there may have
    /// changed: once the lock is free, a full backup follows.
    fn take_again(&mut self) -> Result<(), BackupError> {
        if self.full.is_some() {
            // It has no lock, either.
            let _ = self.end_full();
        }
        self.previous = None;
        self.guard = self.target.lock()?.into();
        self.present = Present::of(&*self.target)?;
        self.begin_again()
    }

    /// Another run, which begins with a full backup.
    fn begin_again(&mut self) -> Result<(), BackupError> {
        if self.full.is_some() {
            self.end_full()?;
        }
        self.previous = None;
        let at = Instant::now();
        // Nothing is captured for a target that does not answer, and the server can begin its logs
        // again.
        self.target.read(MARKER)?;
        self.source.move_logs()?;
        let held = Held { target: &*self.target, guard: &*self.guard };
        let all: (&dyn Fn(&Capture) -> bool, &IsKnown<'_>) = (&|_| true, &|_| false);
        let source = (&self.source, &self.watch);
        let Captured { mut captures, contents } = self.present.capture(source, 2, &held, &mut |_| {}, all)?;
        let (next, full) = (captures.pop(), captures.pop().ok_or(BackupError::Outrun)?);
        (self.run, self.number) = (id_at(now_ms())?, 0);
        self.named = Named::of(&contents);
        self.logs = followed(&full)?;
        self.files = small_files(self.source.root())?;
        self.snapshot = snapshot_of(&full)?;
        self.since_full = SinceFull::of(&full)?;
        self.start_full(full)?;
        // Ticks of this run count from its backup on.
        self.end_full()?;
        let lasted = self.previous_at.elapsed();
        self.lag.longest = self.lag.longest.max(lasted);
        (self.previous, self.previous_at) = (next, at);
        Ok(())
    }
}

impl Named {
    fn of(contents: &[Content]) -> Self {
        let mut named = Self::default();
        named.add(contents);
        named
    }

    fn add(&mut self, contents: &[Content]) {
        for content in contents {
            match content.key() {
                ContentKey::Object(id, _) => drop(self.objects.insert(id)),
                ContentKey::Segment(file) => drop(self.segments.insert(file.to_owned())),
            }
        }
    }

    fn has(&self, key: ContentKey<'_>) -> bool {
        match key {
            ContentKey::Object(id, _) => self.objects.contains(&id),
            ContentKey::Segment(file) => self.segments.contains(file),
        }
    }
}

impl FollowedLog {
    fn at(view: &DatabaseView) -> Self {
        let (page_bytes, page_count) = (view.page_bytes(), view.page_count());
        Self { position: view.position(), page_bytes, page_count, pages: BTreeMap::new() }
    }

    fn follow(&mut self, view: &DatabaseView) -> Result<(), StoreError> {
        self.pages.extend(view.changes(&self.position)?);
        self.pages.retain(|page, _| *page <= view.page_count());
        (self.position, self.page_bytes, self.page_count) = (view.position(), view.page_bytes(), view.page_count());
        Ok(())
    }
}

impl SinceFull {
    fn of(capture: &Pin) -> Result<Self, BackupError> {
        let bytes = |it: &Capture| Ok::<_, StoreError>(it.databases.iter().map(DatabaseView::bytes).sum());
        Ok(Self { bytes: 0, began: Instant::now(), again_at: None, database_bytes: capture.with(bytes)? })
    }

    fn is_due(&self) -> bool {
        let enough = LEAST_TICK_BYTES.max(self.database_bytes / 2);
        let is_again = self.again_at.is_some_and(|at| Instant::now() >= at);
        is_again || self.bytes >= enough || (self.bytes > 0 && self.began.elapsed() >= LONGEST)
    }
}

/// The logs of a capture, read up to it.
fn followed(capture: &Pin) -> Result<BTreeMap<&'static str, FollowedLog>, BackupError> {
    let logs = |it: &Capture| it.databases.iter().map(|view| (view.name(), FollowedLog::at(view))).collect();
    capture.with(|it| Ok::<_, StoreError>(logs(it)))
}

fn follow_all(logs: &mut BTreeMap<&'static str, FollowedLog>, next: &Capture) -> Result<(), StoreError> {
    next.databases.iter().try_for_each(|view| logs.get_mut(view.name()).map_or(Ok(()), |log| log.follow(view)))
}

fn snapshot_of(capture: &Pin) -> Result<Option<SmallFile>, BackupError> {
    let about = capture.with(|it| {
        let about = it.snapshot.as_ref().map(std::fs::File::metadata).transpose();
        about.map_err(io_at("read", "shoal.snapshot"))
    })?;
    Ok(about.map(|about| SmallFile::of(&about)))
}

fn snapshot_change(capture: &Capture) -> Result<Option<Change>, BackupError> {
    let Some(snapshot) = &capture.snapshot else { return Ok(None) };
    let mut file = snapshot.try_clone().map_err(io_at("read", "shoal.snapshot"))?;
    let (about, bytes) = read_open(&mut file, 0).map_err(io_at("read", "shoal.snapshot"))?;
    Ok(Some(Change::Write { path: "shoal.snapshot".to_owned(), mode: about.mode, at: 0, bytes }))
}
