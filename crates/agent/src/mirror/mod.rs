//! A directory and S3: what the program writes is sent to the server while it runs, and a last time
//! when it has ended. That is so of the checkpoint directory, into which is put before what was
//! there (`restore`), of a script's intermediate output, of a hook's tensors, and of TensorBoard's
//! event files.
//!
//! A file counts as saved when the server says so. Until then it is the file on disk that is sent
//! again after a broken connection, so nothing waits in memory or in the spool, and no log line
//! waits for a file.

pub(crate) mod changes;
mod line;
mod restore;
pub(crate) mod tree;
pub(crate) mod watch;

use std::collections::{HashMap, HashSet, VecDeque};
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::thread;
use std::time::{Duration, SystemTime};

use shoal_link::{MirrorKind, ReportBody, ToAgent, ToServer};
use shoal_sandbox::is_being_written;

pub(crate) use restore::restore;

use crate::Options;
use crate::events::Event;
use crate::outbox::Outbox;
use crate::own_log::say;
use changes::{Changes, SETTLE, Step, Why, is_gone};
use line::{Line, Met};
use tree::{Stamp, Tree, is_ignored};
use watch::Watch;

const CHUNK_BYTES: usize = 256 << 10;
const STACK: usize = 256 << 10;
/// Until a file that the server could not store is sent again.
const RETRY: Duration = Duration::from_secs(5);
/// For so long after the program's end.
const LAST_RETRIES: Duration = Duration::from_secs(60);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// A change so soon after the one before may bear the same time.
const CLOCK_STEP: Duration = Duration::from_millis(50);
/// Different complaints that are told in the log.
const MOST_COMPLAINTS: usize = 20;

/// Where the directory is on this machine.
#[derive(Debug, Clone)]
pub(crate) struct Place {
    /// A directory that the program cannot replace.
    pub(crate) base: PathBuf,
    /// The directory below it; empty if it is the base itself.
    pub(crate) root: PathBuf,
    /// An empty directory of the agent's own.
    pub(crate) marks: PathBuf,
}

impl Place {
    /// The directory itself.
    pub(crate) fn directory(&self) -> PathBuf {
        self.base.join(&self.root)
    }
}

/// A mirror at work.
#[derive(Debug)]
pub(crate) struct Mirror {
    changes: Arc<Changes>,
    mark: PathBuf,
}

impl Mirror {
    /// Begins to mirror, but no file of more than `most` bytes, as S3 keeps no holes; what is in
    /// the directory by now is taken to be saved. [`Event::Mirrored`] comes once, after
    /// [`Self::finish`] or [`Self::give_up`].
    pub(crate) fn start(
        options: &Arc<Options>,
        kind: MirrorKind,
        uri: &str,
        place: &Place,
        most: Option<u64>,
        outbox: &Arc<Outbox>,
        events: &Sender<Event>,
    ) -> io::Result<Self> {
        fs::create_dir_all(&place.marks)?;
        let tree = Arc::new(Tree::open(&place.base, &place.root)?);
        let changes = Arc::new(Changes::default());
        let mut saved = HashMap::new();
        tree.walk(|path, stamp| {
            // What was restored was counted when it was first sent.
            saved.insert(path, Saved { stamp, sure: true, holes: 0 });
        });
        match Watch::start(tree.clone(), changes.clone(), &place.marks, |_| true) {
            Ok(watch) => {
                thread::Builder::new().name("file watch".into()).stack_size(STACK).spawn(move || watch.listen())?;
            }
            Err(error) => {
                let text = format!(
                    "changed {} files are looked for every second, since the kernel does not tell of them: {error}",
                    kind.file()
                );
                // If nobody takes notes any more the program is about to be stopped.
                let _ = outbox.report(ReportBody::Note { text });
                changes.poll();
            }
        }
        let sender = Worker {
            options: options.clone(),
            kind,
            uri: uri.to_owned(),
            most: most.unwrap_or(u64::MAX),
            tree,
            changes: changes.clone(),
            outbox: outbox.clone(),
            saved,
            seen: HashMap::new(),
            line: None,
            connections: 0,
            unanswered: VecDeque::new(),
            complaints: HashSet::new(),
            unsaved: Vec::new(),
            files: HashSet::new(),
            bytes: 0,
        };
        let events = events.clone();
        let run = move || {
            sender.run();
            // If nobody listens the agent has ended.
            let _ = events.send(Event::Mirrored);
        };
        thread::Builder::new().name("mirror".into()).stack_size(STACK).spawn(run)?;
        Ok(Self { changes, mark: place.marks.join("end") })
    }

    /// The program has ended: what is not saved yet is, as it is now; but a file that was being
    /// written when the program was killed is not.
    pub(crate) fn finish(&self, was_killed: bool) {
        if self.changes.has_ended() {
            return;
        }
        self.changes.end(was_killed);
        // The kernel tells of this file after all that happened before. Where it tells nothing,
        // nothing is awaited.
        if self.changes.is_polled() || File::create(&self.mark).is_err() {
            self.changes.complete();
        }
    }

    /// Nobody wants the files any more.
    pub(crate) fn give_up(&self) {
        self.changes.give_up();
    }
}

/// What of a file the server has.
struct Saved {
    stamp: Stamp,
    /// Another change would have another stamp.
    sure: bool,
    /// Bytes of it that were never written.
    holes: u64,
}

struct Worker {
    options: Arc<Options>,
    kind: MirrorKind,
    uri: String,
    /// Bytes of a file.
    most: u64,
    tree: Arc<Tree>,
    changes: Arc<Changes>,
    outbox: Arc<Outbox>,
    saved: HashMap<PathBuf, Saved>,
    /// Stamps of the last look, where changes are looked for.
    seen: HashMap<PathBuf, Stamp>,
    line: Option<Line>,
    /// How many there were; the number of the present one.
    connections: u64,
    unanswered: VecDeque<(PathBuf, Saved)>,
    complaints: HashSet<String>,
    unsaved: Vec<PathBuf>,
    files: HashSet<PathBuf>,
    bytes: u64,
}

/// Why a file was not sent to its end.
enum SendError {
    /// It cannot be read.
    File(io::Error),
    /// The connection is lost.
    Line(io::Error),
    /// Nobody wants it any more.
    Unwanted,
}

impl Worker {
    fn run(mut self) {
        loop {
            match self.changes.next(self.connections, self.unanswered.len()) {
                Step::Send(path, why) => match self.send(&path, why) {
                    Ok(()) => {}
                    Err(SendError::File(error)) if is_gone(&error) => {}
                    Err(SendError::File(error)) => {
                        self.complain(&format!("{} {} cannot be read: {error}", self.kind.file(), path.display()));
                        // Who could make it readable has ended.
                        if self.changes.has_ended() { self.unsaved.push(path) } else { self.again(path) }
                    }
                    Err(SendError::Line(error)) => {
                        say(format_args!("the connection for {} files is lost: {error}", self.kind.file()));
                        self.changes.add(path, why);
                        self.lose_line();
                    }
                    Err(SendError::Unwanted) => return,
                },
                Step::Rescan => self.rescan(),
                Step::Answer(Some(answer)) => self.answered(answer),
                Step::Answer(None) => self.lose_line(),
                Step::Finished => return self.sum_up(),
                Step::GiveUp => return,
            }
        }
    }

    /// Sends a file, unless there is nothing new in it or somebody is writing it.
    fn send(&mut self, path: &Path, why: Why) -> Result<(), SendError> {
        let mut file = self.tree.open_inside(path).map_err(SendError::File)?;
        let metadata = file.metadata().map_err(SendError::File)?;
        if !metadata.is_file() {
            return Ok(());
        }
        let stamp = Stamp::of(&metadata);
        if self.sent(path).is_some_and(|sent| sent.sure && sent.stamp == stamp) {
            return Ok(());
        }
        if is_being_written(&file) == Some(true) && !self.changes.has_ended() {
            // The kernel tells when it is closed.
            return Ok(());
        }
        let holes = stamp.size.saturating_sub(metadata.blocks() * 512);
        let others = || self.holes_beside(path).saturating_add(holes);
        if stamp.size > self.most || holes > 0 && others() > self.most {
            let (file, bytes, most) = (self.kind.file(), stamp.size, self.most);
            let text = format!(
                "{file} {} is not saved: it has {bytes} bytes with its holes, which are sent as zeros, and \
                 VolumeSizeInGB allows {most} for all files together",
                path.display()
            );
            self.complain(&text);
            return Ok(());
        }
        let Some(name) = path.to_str() else {
            let file = self.kind.file();
            self.complain(&format!(
                "{file} {} is not saved: a key in S3 is UTF-8, and its name is not",
                path.display()
            ));
            return Ok(());
        };
        let sure = metadata
            .modified()
            .ok()
            .and_then(|at| SystemTime::now().duration_since(at).ok())
            .is_some_and(|age| age > CLOCK_STEP);
        let is_last = self.changes.has_ended();
        let line = self.line()?;
        line.say(ToServer::FileBegins { path: name.to_owned(), is_last }).map_err(SendError::Line)?;
        let changes = self.changes.clone();
        let line = self.line()?;
        let sent = send_content(line, &mut file, stamp.size, &changes);
        let is_whole = match sent {
            Err(SendError::File(error)) => {
                line.say(ToServer::FileDropped).map_err(SendError::Line)?;
                return Err(SendError::File(error));
            }
            Err(other) => return Err(other),
            Ok(bytes) => bytes == stamp.size && file.metadata().is_ok_and(|now| Stamp::of(&now) == stamp),
        };
        // One that has got its final name meanwhile was a temporary one.
        let is_here = matches!(why, Why::Placed) || self.tree.look(path).is_ok_and(|now| Stamp::of(&now) == stamp);
        let line = self.line()?;
        if !(is_whole && is_here) {
            line.say(ToServer::FileDropped).map_err(SendError::Line)?;
            if self.tree.look(path).is_ok() {
                self.changes.add_later(path.to_owned(), SETTLE);
            }
            return Ok(());
        }
        line.say(ToServer::FileEnds { bytes: stamp.size }).map_err(SendError::Line)?;
        self.unanswered.push_back((path.to_owned(), Saved { stamp, sure, holes }));
        Ok(())
    }

    /// What of a file the server has, or will have said when it answers what was sent.
    fn sent(&self, path: &Path) -> Option<&Saved> {
        let unanswered = self.unanswered.iter().rev().find(|(sent, _)| sent == path).map(|(_, sent)| sent);
        unanswered.or_else(|| self.saved.get(path))
    }

    /// Bytes of the holes of all other files that were sent and are still there.
    fn holes_beside(&self, path: &Path) -> u64 {
        let unanswered = self.unanswered.iter().map(|(sent, saved)| (sent, saved));
        let sparse = self.saved.iter().chain(unanswered).filter(|(sent, saved)| saved.holes > 0 && *sent != path);
        sparse
            .filter(|(sent, _)| self.tree.look(sent).is_ok())
            .map(|(_, saved)| saved.holes)
            .fold(0, u64::saturating_add)
    }

    /// The connection; made if there is none, for as long as that takes.
    fn line(&mut self) -> Result<&mut Line, SendError> {
        let mut pause = Duration::from_millis(50);
        while self.line.is_none() {
            let number = self.connections + 1;
            match Line::connect(&self.options, self.kind, number, &self.changes) {
                Ok(Met::Ready(line)) => {
                    self.connections = number;
                    self.line = Some(line);
                }
                Ok(Met::Refused(reason)) => {
                    say(format_args!("the server takes no {} files: {reason}", self.kind.file()));
                    return Err(SendError::Unwanted);
                }
                Err(_) => {
                    if self.changes.pause(pause) {
                        return Err(SendError::Unwanted);
                    }
                    pause = (2 * pause).min(LONGEST_PAUSE);
                }
            }
        }
        Ok(self.line.as_mut().expect("the loop ends with one"))
    }

    /// What was not answered is sent again.
    fn lose_line(&mut self) {
        self.line = None;
        // Its last words do not count any more.
        self.connections += 1;
        for (path, _) in std::mem::take(&mut self.unanswered) {
            self.changes.add(path, Why::Placed);
        }
    }

    fn answered(&mut self, answer: ToAgent) {
        let (path, refusal) = match answer {
            ToAgent::FileSaved { path } => (path, None),
            ToAgent::FileRefused { path, reason } => (path, Some(reason)),
            _ => return,
        };
        let Some((sent, saved)) = self.unanswered.pop_front() else { return };
        if sent != Path::new(&path) {
            say(format_args!("the server answers about {path}, and {} is awaited", sent.display()));
            self.changes.add(sent, Why::Placed);
            return self.lose_line();
        }
        if let Some(reason) = refusal {
            self.complain(&format!("{} {path} is not saved: {reason}", self.kind.file()));
            self.again(sent);
        } else {
            self.bytes += saved.stamp.size;
            self.files.insert(sent.clone());
            self.saved.insert(sent, saved);
        }
    }

    /// Later, if there is a later.
    fn again(&mut self, path: PathBuf) {
        if self.changes.since_end().is_some_and(|since| since > LAST_RETRIES) {
            self.unsaved.push(path);
        } else {
            self.changes.add_later(path, RETRY);
        }
    }

    /// Looks for files of which nothing was heard. While the program runs, only those that stayed
    /// as they were since the last look.
    fn rescan(&mut self) {
        let cut_short: HashSet<_> = self.changes.cut_short().into_iter().collect();
        let has_ended = self.changes.has_ended();
        let only_seen = self.changes.is_polled_and_killed();
        let mut unsure = Vec::new();
        let mut seen = HashMap::new();
        let tree = self.tree.clone();
        tree.walk(|path, stamp| {
            if is_ignored(&path) || cut_short.contains(&path) {
                return;
            }
            let is_new = self.sent(&path).is_none_or(|sent| sent.stamp != stamp);
            let is_trusted = !only_seen && (has_ended || !self.changes.is_polled());
            if is_new && (is_trusted || self.seen.get(&path) == Some(&stamp)) {
                self.changes.add(path.clone(), Why::Placed);
            } else if is_new && only_seen {
                unsure.push(path.clone());
            }
            // A look that finds somebody writing says nothing of what he leaves.
            let is_held = || is_new && tree.open_inside(&path).is_ok_and(|file| is_being_written(&file) == Some(true));
            if self.changes.is_polled() && !has_ended && !is_held() {
                seen.insert(path, stamp);
            }
        });
        // A look that the end overtook does not tell what was before it.
        if !self.changes.has_ended() {
            self.seen = seen;
        }
        if has_ended {
            for path in torn(&self.tree, cut_short).into_iter().chain(unsure) {
                let (file, path) = (self.kind.file(), path.display());
                let text =
                    format!("{file} {path} was being written when the program was killed: it is not saved as it is");
                self.complain(&text);
            }
        }
    }

    /// Tells the user, once and not without end.
    fn complain(&mut self, text: &str) {
        if self.complaints.len() < MOST_COMPLAINTS && self.complaints.insert(text.to_owned()) {
            self.note(text.to_owned());
        }
    }

    fn note(&self, text: String) {
        // If nobody takes notes any more, the main loop hears of that.
        let _ = self.outbox.report(ReportBody::Note { text });
    }

    fn sum_up(&self) {
        let (file, saved) = (self.kind.file(), self.files.len());
        if saved > 0 {
            self.note(format!("{saved} {file} files are saved below {} ({} bytes were sent)", self.uri, self.bytes));
        }
        if let Some(first) = self.unsaved.first() {
            self.note(format!(
                "{} {file} files could not be saved, the first of them {}",
                self.unsaved.len(),
                first.display()
            ));
        }
    }
}

/// Of files that the program's end may have cut short, those that are there: a temporary file that
/// is not has got its final name since it was closed.
fn torn(tree: &Tree, cut_short: HashSet<PathBuf>) -> Vec<PathBuf> {
    cut_short.into_iter().filter(|path| tree.look(path).is_ok()).collect()
}

/// Sends as much as the file was long when it was opened; says how much there was.
fn send_content(line: &mut Line, file: &mut File, size: u64, changes: &Changes) -> Result<u64, SendError> {
    let mut left = size;
    while left > 0 {
        if changes.has_given_up() {
            return Err(SendError::Unwanted);
        }
        let mut chunk = vec![0; usize::try_from(left).unwrap_or(CHUNK_BYTES).min(CHUNK_BYTES)];
        let count = match file.read(&mut chunk) {
            Ok(0) => break,
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(SendError::File(error)),
        };
        chunk.truncate(count);
        left -= count as u64;
        line.chunk(chunk).map_err(SendError::Line)?;
    }
    Ok(size - left)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_temporary_file_that_got_its_name_was_not_cut_short() {
        let directory = tempfile::tempdir().expect("a directory");
        let write = |name: &str| fs::write(directory.path().join(name), "x").expect("a file");
        ["whole.tmp", "torn.tmp"].into_iter().for_each(write);
        fs::rename(directory.path().join("whole.tmp"), directory.path().join("whole")).expect("its name");
        let tree = Tree::open(directory.path(), Path::new("")).expect("the tree");
        let cut_short = ["whole.tmp", "torn.tmp"].map(PathBuf::from).into();
        assert_eq!(torn(&tree, cut_short), [Path::new("torn.tmp")]);
    }
}
