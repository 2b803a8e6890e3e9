//! The thread that writes the audit log.

use std::{
    collections::HashMap,
    fs::File,
    io::{self, BufRead, BufReader, Write},
    num::NonZeroU32,
    path::PathBuf,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
        mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use super::{
    chain::{End, Line, Seal},
    files::{Directory, first_of, number_of, time_of},
    record::Record,
};
use crate::{clock::now_ms, hex::sha256_hex, keys::AccessKeys};

/// How long a line may be in the file and not on the disk.
pub(super) const SYNC: Duration = Duration::from_secs(1);
/// A file that has this length is full.
const FULL_BYTES: u64 = 16 << 20;
/// With a limit to their age, lines of more than a day fill a file, too.
const DAY_MS: u64 = 24 * 60 * 60 * 1000;
/// Between two removals of old files.
const EXPIRY: Duration = Duration::from_secs(60 * 60);
/// Letters of a time up to its minute.
const MINUTE: usize = "2026-11-27T00:00".len();
/// Records that may wait for the thread.
const QUEUE: usize = 8192;
/// Bytes that may wait for a disk that takes nothing.
const MAX_PENDING_BYTES: usize = 8 << 20;

/// Refusals of callers that proved nothing that are written in a minute: anyone can make them.
const MAX_STRANGERS: u32 = 100;
/// The same of each key.
const MAX_REFUSALS: u32 = 1000;

/// Where records go. No caller waits.
pub(crate) struct AuditLog {
    queue: SyncSender<Message>,
    lost: Arc<AtomicU64>,
    /// The minute, as times begin, and how often who was refused in it, by ARN.
    refusals: Mutex<(String, HashMap<String, u32>)>,
}

enum Message {
    Record(Box<Record>),
    /// Everything so far is on the disk when this is answered.
    Flush(SyncSender<()>),
    End,
}

impl AuditLog {
    /// Opens the log of a data directory and starts its thread, which ends with [`AuditLog::end`].
    ///
    /// # Errors
    /// The files cannot be read or opened.
    pub(crate) fn open(
        directory: Directory,
        owner: AccessKeys,
        days: Option<NonZeroU32>,
    ) -> io::Result<(Arc<Self>, JoinHandle<()>)> {
        Self::open_with(directory, owner, FULL_BYTES, days)
    }

    fn open_with(
        directory: Directory,
        owner: AccessKeys,
        full: u64,
        days: Option<NonZeroU32>,
    ) -> io::Result<(Arc<Self>, JoinHandle<()>)> {
        let writer = Writer { days, ..Writer::open(directory, owner, full)? };
        let (queue, records) = sync_channel(QUEUE);
        let lost = Arc::new(AtomicU64::new(0));
        let log = Arc::new(Self { queue, lost: lost.clone(), refusals: Mutex::default() });
        let thread = thread::Builder::new().name("audit".to_owned()).spawn(move || writer.run(&records, &lost))?;
        Ok((log, thread))
    }

    /// Writes a record soon. One for which there is no room is counted, and the next one that is
    /// written has how many were lost.
    pub(crate) fn note(&self, record: Record) {
        let is_known = !record.arn.is_empty();
        let is_admitted = is_known && record.error.is_empty() || self.admits_refusal(&record);
        if !is_admitted || self.queue.try_send(Message::Record(Box::new(record))).is_err() {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Whether who was refused has not been refused too often in this minute.
    fn admits_refusal(&self, record: &Record) -> bool {
        let minute = record.time.get(..MINUTE).unwrap_or_default();
        let mut refusals = self.refusals.lock().unwrap_or_else(PoisonError::into_inner);
        if refusals.0 != minute {
            *refusals = (minute.to_owned(), HashMap::new());
        }
        let is_stranger = record.arn.is_empty();
        let count = refusals.1.entry(record.arn.clone()).or_default();
        *count += 1;
        *count <= if is_stranger { MAX_STRANGERS } else { MAX_REFUSALS }
    }

    /// Waits until what was noted is in the file. Blocks.
    pub(crate) fn flush(&self) {
        let (done, wait) = sync_channel(1);
        if self.queue.send(Message::Flush(done)).is_ok() {
            let _ = wait.recv();
        }
    }

    /// Ends the thread once it has written everything. Blocks while the queue is full.
    pub(crate) fn end(&self) {
        let _ = self.queue.send(Message::End);
    }
}

struct Writer {
    directory: Directory,
    owner: AccessKeys,
    file: File,
    length: u64,
    /// Bytes of a full file.
    full: u64,
    /// For how many days lines are kept; `None`: for ever.
    days: Option<NonZeroU32>,
    end: End,
    /// Number of the first line of all files.
    first: u64,
    /// Number of the first line of the file that is written.
    first_of_file: u64,
    pending: Vec<u8>,
    is_synced: bool,
    /// The last write failed, which is logged once.
    failed: bool,
}

impl Writer {
    /// Continues the chain where the files end. A line that a crash cut short is removed: it was
    /// never whole.
    fn open(directory: Directory, owner: AccessKeys, full: u64) -> io::Result<Self> {
        let files = directory.files()?;
        let mut end = End::default();
        let mut first_of_file = None;
        // The end is that of the last file with lines.
        for path in files.iter().rev() {
            let text = std::fs::read(path)?;
            let whole = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
            if *path == directory.current() && whole < text.len() {
                File::options().write(true).open(path)?.set_len(whole as u64)?;
            }
            let text = String::from_utf8_lossy(&text[..whole]);
            if *path == directory.current() {
                first_of_file = text.lines().next().and_then(number_of);
            }
            if let Some(last) = text.lines().last() {
                end = End::after(number_of(last).unwrap_or_default(), last);
                break;
            }
        }
        let first = files.first().and_then(|path| first_of(path)).or(first_of_file);
        let seal = directory.seal().unwrap_or(None).filter(|seal| seal.holds(&owner));
        // Lines that the seal has and the files do not are missing from then on: numbers never come
        // twice.
        match &seal {
            // All lines were too old, and none has come since.
            Some(seal) if seal.first == seal.last + 1 && end.number == 0 => {
                end = End { number: seal.last, hash: seal.hash.clone() };
            }
            Some(seal) if seal.last > end.number => {
                tracing::error!("audit.log has lost lines {} to {}", end.number + 1, seal.last);
                end = End { number: seal.last, hash: seal.hash.clone() };
            }
            // A chain that continues with another hash has a break for `verify` to find.
            Some(seal) if seal.last > 0 && hash_of(&files, seal.last)?.is_none_or(|hash| hash != seal.hash) => {
                tracing::error!("audit.log is not as it was sealed: line {} was changed or removed", seal.last);
                end.hash.clone_from(&seal.hash);
            }
            None if end.number > 0 => {
                tracing::error!("audit.seal is missing or is not of this owner's key: audit.log may have been changed");
                end.hash = sha256_hex("no seal");
            }
            _ => {}
        }
        let file = directory.open()?;
        let length = file.metadata()?.len();
        let next = end.number + 1;
        if seal.is_none() {
            // From now on a missing one means something.
            directory.write_seal(&Seal::new(&owner, first.unwrap_or(next), &end))?;
        }
        Ok(Self {
            directory,
            owner,
            file,
            length,
            full,
            days: None,
            first: seal.map(|seal| seal.first).or(first).unwrap_or(next),
            first_of_file: first_of_file.unwrap_or(next),
            end,
            pending: Vec::new(),
            is_synced: true,
            failed: false,
        })
    }

    fn run(mut self, records: &Receiver<Message>, lost: &AtomicU64) {
        let (mut synced, mut expired) = (Instant::now(), None::<Instant>);
        loop {
            if self.days.is_some() && expired.is_none_or(|expired| expired.elapsed() >= EXPIRY) {
                let outcome = self.expire(now_ms());
                self.report(outcome, "shortened");
                expired = Some(Instant::now());
            }
            let mut message = match self.is_synced && self.pending.is_empty() {
                true if self.days.is_some() => match records.recv_timeout(EXPIRY) {
                    Err(RecvTimeoutError::Timeout) => continue,
                    received => received.ok(),
                },
                true => records.recv().ok(),
                false => match records.recv_timeout(SYNC.saturating_sub(synced.elapsed())) {
                    Ok(message) => Some(message),
                    Err(RecvTimeoutError::Disconnected) => None,
                    Err(RecvTimeoutError::Timeout) => {
                        self.write_and_sync();
                        synced = Instant::now();
                        continue;
                    }
                },
            };
            let (mut flushed, mut is_end) = (Vec::new(), message.is_none());
            // What came meanwhile is written together.
            while let Some(present) = message {
                match present {
                    Message::Record(record) => self.append(*record, lost),
                    Message::Flush(done) => flushed.push(done),
                    Message::End => is_end = true,
                }
                message = records.try_recv().ok();
            }
            self.write();
            if is_end || !flushed.is_empty() || synced.elapsed() >= SYNC {
                self.write_and_sync();
                synced = Instant::now();
            }
            for done in flushed {
                // A caller that does not wait any more has no use for it.
                let _ = done.send(());
            }
            if is_end {
                return;
            }
        }
    }

    fn append(&mut self, record: Record, lost: &AtomicU64) {
        if self.pending.len() > MAX_PENDING_BYTES {
            lost.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let record = Record { lost: lost.swap(0, Ordering::Relaxed), ..record };
        self.pending.extend(self.end.append(record).into_bytes());
    }

    fn write(&mut self) {
        let outcome = self.try_write();
        self.report(outcome, "written");
    }

    fn write_and_sync(&mut self) {
        let outcome = self.try_write().and_then(|()| self.try_sync());
        self.report(outcome, "made durable");
    }

    fn try_write(&mut self) -> io::Result<()> {
        if self.pending.is_empty() {
            return Ok(());
        }
        if self.length >= self.full {
            self.rotate()?;
        }
        if let Err(error) = self.file.write_all(&self.pending) {
            // Part of it may be there: it is written again in whole.
            self.file.set_len(self.length)?;
            return Err(error);
        }
        self.length += self.pending.len() as u64;
        self.pending.clear();
        self.is_synced = false;
        Ok(())
    }

    /// Begins a new file with what is pending.
    fn rotate(&mut self) -> io::Result<()> {
        self.file.sync_data()?;
        self.directory.rotate(self.first_of_file)?;
        self.file = self.directory.open()?;
        self.length = 0;
        self.first_of_file = self.end.number + 1 - self.pending.iter().filter(|byte| **byte == b'\n').count() as u64;
        Ok(())
    }

    /// Removes files with lines that are too old. The seal has the first line that stays before
    /// any goes, so [`super::verify()`] misses none of them.
    fn expire(&mut self, now_ms: u64) -> io::Result<()> {
        let Some(days) = self.days else { return Ok(()) };
        // On a full disk it is this that makes room.
        self.write_and_sync();
        let mut first_line = String::new();
        BufReader::new(File::open(self.directory.current())?).read_line(&mut first_line)?;
        if time_of(Some(&first_line)).is_some_and(|time| time + DAY_MS <= now_ms) {
            self.rotate()?;
        }
        let old = self.directory.older_than(now_ms.saturating_sub(u64::from(days.get()) * DAY_MS))?;
        let Some(last) = old.last() else { return Ok(()) };
        // A new first line would hide what was changed or removed before.
        if let Some(fault) = super::verify(self.directory.root(), &self.owner)?.faults.first() {
            return Err(io::Error::other(format!(
                "`shoal audit verify` has to find nothing before, and finds: {fault}"
            )));
        }
        let next = self.directory.files()?.into_iter().find(|path| path > last && first_of(path).is_some());
        self.first = next.and_then(|path| first_of(&path)).unwrap_or(self.first_of_file);
        self.directory.write_seal(&Seal::new(&self.owner, self.first, &self.end))?;
        old.iter().try_for_each(std::fs::remove_file)
    }

    /// The lines first, then the seal that speaks of them.
    fn try_sync(&mut self) -> io::Result<()> {
        if !self.is_synced {
            self.file.sync_data()?;
            self.directory.write_seal(&Seal::new(&self.owner, self.first, &self.end))?;
            self.is_synced = true;
        }
        Ok(())
    }

    fn report(&mut self, outcome: io::Result<()>, what: &str) {
        match outcome {
            Ok(()) => self.failed = false,
            Err(error) if !self.failed => {
                self.failed = true;
                tracing::error!("audit.log cannot be {what}; it is tried again: {error}");
            }
            Err(_) => {}
        }
    }
}

/// The hash of the line with this number.
fn hash_of(files: &[PathBuf], number: u64) -> io::Result<Option<String>> {
    for path in files.iter().rev() {
        let text = std::fs::read(path)?;
        for line in text.split(|byte| *byte == b'\n').rev() {
            let text = String::from_utf8_lossy(line);
            match serde_json::from_str::<Line>(&text) {
                Ok(line) if line.number == number => return Ok(Some(sha256_hex(&text))),
                Ok(line) if line.number < number => return Ok(None),
                Ok(_) | Err(_) => {}
            }
        }
    }
    Ok(None)
}

#[cfg(test)]
pub(super) mod tests;
