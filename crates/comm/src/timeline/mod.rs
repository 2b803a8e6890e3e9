//! What each rank did and when: every operation with its wait, begin, end, bytes and algorithm, as
//! a Chrome trace (Perfetto reads it, too).
//!
//! With `SHOAL_COMM_TIMELINE=DIR` in the environment each rank writes `DIR/rank-N.json` when its
//! group goes and when the process ends. [`merge()`] (and `shoal timeline merge`) makes one trace
//! of the ranks' files, on one clock. The last 16,383 operations of each thread are kept; how many
//! more there were is in the file (`lost`). An operation costs two looks at the clock and a line of
//! memory; no lock is taken. A process that is killed writes nothing.

mod clock;
mod merge;
mod ring;
mod trace;

use std::{
    cell::RefCell,
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, OnceLock, PoisonError},
};

pub use self::merge::{files_of, merge, merge_files};
use self::{clock::Clock, ring::Ring};
use crate::{Call, DType, Kind, ReduceOp};

/// How an operation went through its transport.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(u8)]
pub(crate) enum Way {
    /// The transport has only one, or did not say.
    #[default]
    Only,
    /// In the line of the flag that announces it.
    Inline,
    /// Everything to everybody.
    Flat,
    /// From memory to memory, each rank its share.
    Direct,
    /// Through stages of memory that all reach.
    Staged,
    /// Reduce-scatter, then all-gather.
    Halves,
    /// From each rank to the next.
    Chain,
    /// Each pair by itself.
    Pairs,
    /// Reduce-scatter, then all-gather, each from every rank to the next.
    Ring,
    /// Within hosts, across, and within again.
    Levels,
}

impl Way {
    const ALL: [Self; 10] = [
        Self::Only,
        Self::Inline,
        Self::Flat,
        Self::Direct,
        Self::Staged,
        Self::Halves,
        Self::Chain,
        Self::Pairs,
        Self::Ring,
        Self::Levels,
    ];

    const fn name(self) -> &'static str {
        match self {
            Self::Only => "only",
            Self::Inline => "inline",
            Self::Flat => "flat",
            Self::Direct => "direct",
            Self::Staged => "staged",
            Self::Halves => "halves",
            Self::Chain => "chain",
            Self::Pairs => "pairs",
            Self::Ring => "ring",
            Self::Levels => "levels",
        }
    }
}

/// One operation. Times are ticks of the [`clock`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Event {
    called: u64,
    begun: u64,
    ended: u64,
    number: u64,
    epoch: u64,
    bytes: u64,
    kind: Kind,
    dtype: DType,
    way: Way,
    failed: bool,
    /// Which of the rank's groups, as an index into its names.
    group: u32,
}

/// Everything that one rank did in this process.
#[derive(Debug)]
struct Recorder {
    rank: usize,
    directory: PathBuf,
    clock: Clock,
    groups: Mutex<Vec<String>>,
    rings: Mutex<Vec<Arc<Ring>>>,
}

thread_local! {
    /// The rings of this thread, by their recorder's address. Recorders live as long as the
    /// process.
    static RINGS: RefCell<Vec<(usize, Arc<Ring>)>> = const { RefCell::new(Vec::new()) };
}

/// All recorders of this process, by rank. Threads as ranks have one each; groups of one rank share
/// it.
static RECORDERS: Mutex<BTreeMap<usize, Arc<Recorder>>> = Mutex::new(BTreeMap::new());

/// Where files go, if the environment says so.
fn directory() -> Option<&'static Path> {
    static DIRECTORY: OnceLock<Option<PathBuf>> = OnceLock::new();
    DIRECTORY
        .get_or_init(|| std::env::var_os("SHOAL_COMM_TIMELINE").filter(|value| !value.is_empty()).map(PathBuf::from))
        .as_deref()
}

/// What one group records, if anything.
#[derive(Debug, Clone)]
pub(crate) struct Track {
    recorder: Option<Arc<Recorder>>,
    group: u32,
    is_root: bool,
}

/// When an operation was called, and when its turn came.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Since {
    pub(crate) called: u64,
    pub(crate) begun: u64,
}

impl Track {
    /// Of a group that was not split off another: records if the environment says so.
    pub(crate) fn of_root(rank: usize) -> Self {
        directory()
            .map_or(Self { recorder: None, group: 0, is_root: true }, |directory| Self::in_directory(directory, rank))
    }

    #[expect(unsafe_code, reason = "the C library's list of what is done at the end")]
    fn in_directory(directory: &Path, rank: usize) -> Self {
        static AT_EXIT: OnceLock<()> = OnceLock::new();
        extern "C" fn at_exit() {
            write_all();
        }
        AT_EXIT.get_or_init(|| {
            // SAFETY: the function takes nothing, unwinds nowhere (files that cannot be written are
            // said so on standard error), and lives as long as the process.
            unsafe { libc::atexit(at_exit) };
        });
        let mut recorders = RECORDERS.lock().unwrap_or_else(PoisonError::into_inner);
        let recorder = recorders.entry(rank).or_insert_with(|| Arc::new(Recorder::new(directory, rank)));
        let (group, _) = recorder.name(|groups| groups.iter().filter(|name| !name.contains('/')).count().to_string());
        Self { recorder: Some(Arc::clone(recorder)), group, is_root: true }
    }

    /// Of the group that its `number`-th split made; the same number on all members.
    pub(crate) fn split(&self, number: u64) -> Self {
        let group = self
            .recorder
            .as_ref()
            .map_or(0, |recorder| recorder.name(|groups| format!("{}/{number}", groups[self.group as usize])).0);
        Self { recorder: self.recorder.clone(), group, is_root: false }
    }

    /// The time, for [`Since`]; anything where nothing is recorded.
    #[inline]
    pub(crate) fn now(&self) -> u64 {
        if self.recorder.is_some() { clock::ticks() } else { 0 }
    }

    /// An operation is over.
    #[inline]
    pub(crate) fn record(&self, call: &Call, number: u64, epoch: u64, since: Since, way: Way, failed: bool) {
        let Some(recorder) = &self.recorder else { return };
        let ended = clock::ticks();
        let bytes = (call.len * call.dtype.size()) as u64;
        let (kind, dtype, Since { called, begun }, group) = (call.kind, call.dtype, since, self.group);
        recorder.keep(&Event { called, begun, ended, number, epoch, bytes, kind, dtype, way, failed, group });
    }
}

/// For measurements.
#[cfg(any(test, feature = "bench"))]
impl Track {
    /// Records what is never written.
    pub(crate) fn unwritten() -> Self {
        let recorder = Arc::new(Recorder::new(Path::new("/nowhere"), 0));
        // Threads know it by its address, so it stays.
        std::mem::forget(Arc::clone(&recorder));
        Self { recorder: Some(recorder), group: 0, is_root: false }
    }

    /// Records so many operations of no length.
    pub(crate) fn record_many(&self, operations: u64) {
        let call = Call::new(Kind::AllReduce(ReduceOp::Sum), DType::F32, std::ptr::null(), std::ptr::null_mut(), 1);
        for number in 0..operations {
            let called = std::hint::black_box(self).now();
            self.record(&call, number, 0, Since { called, begun: called }, Way::Direct, false);
        }
    }
}

impl Recorder {
    fn new(directory: &Path, rank: usize) -> Self {
        Self {
            rank,
            directory: directory.to_owned(),
            clock: Clock::start(),
            groups: Mutex::default(),
            rings: Mutex::default(),
        }
    }

    /// A new group's index and name.
    fn name(&self, name: impl FnOnce(&[String]) -> String) -> (u32, String) {
        let mut groups = self.groups.lock().unwrap_or_else(PoisonError::into_inner);
        let name = name(&groups);
        groups.push(name.clone());
        (groups.len() as u32 - 1, name)
    }

    #[inline]
    fn keep(&self, event: &Event) {
        let me = std::ptr::from_ref(self).addr();
        // A thread that is just ending has no rings any more; what it does then is not recorded.
        let _ = RINGS.try_with(|rings| {
            let mut rings = rings.borrow_mut();
            match rings.iter().find(|(recorder, _)| *recorder == me) {
                Some((_, ring)) => ring.push(event),
                None => {
                    let ring = self.ring();
                    ring.push(event);
                    rings.push((me, ring));
                }
            }
        });
    }

    /// A ring for a thread that has none: that of a thread that has ended, or a new one.
    #[cold]
    fn ring(&self) -> Arc<Ring> {
        let mut rings = self.rings.lock().unwrap_or_else(PoisonError::into_inner);
        let free = rings.iter_mut().find_map(|ring| {
            // Nobody else has it: no thread writes to it.
            Arc::get_mut(ring).is_some().then(|| Arc::clone(ring))
        });
        free.unwrap_or_else(|| {
            let ring = Arc::new(Ring::new());
            rings.push(Arc::clone(&ring));
            ring
        })
    }

    fn write(&self) {
        let rings = self.rings.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let groups = self.groups.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let text = trace::text(self.rank, &groups, &rings, &self.clock);
        let path = self.directory.join(format!("rank-{}.json", self.rank));
        if let Err(error) = fs::create_dir_all(&self.directory).and_then(|()| fs::write(&path, text)) {
            eprintln!(
                "shoal-comm: cannot write the timeline {}: {error}; set SHOAL_COMM_TIMELINE to a directory that can be \
                 written",
                path.display()
            );
        }
    }
}

/// Writes the files of all ranks of this process, with what is recorded until now.
pub fn write_all() {
    let recorders: Vec<_> = RECORDERS.lock().unwrap_or_else(PoisonError::into_inner).values().cloned().collect();
    recorders.iter().for_each(|recorder| recorder.write());
}

impl Drop for Track {
    fn drop(&mut self) {
        if let (true, Some(recorder)) = (self.is_root, &self.recorder) {
            recorder.write();
        }
    }
}

/// The number of a reduction, for an event's word.
fn op_code(op: Option<ReduceOp>) -> u64 {
    op.map_or(0, |op| op as u64 + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ring_is_used_again_when_its_thread_has_ended() {
        let recorder = Arc::new(Recorder::new(Path::new("/nowhere"), 0));
        let event = Event {
            called: 1,
            begun: 2,
            ended: 3,
            number: 4,
            epoch: 5,
            bytes: 6,
            kind: Kind::Send { to: 7, tag: 8 },
            dtype: DType::BF16,
            way: Way::Chain,
            failed: true,
            group: 9,
        };
        for _ in 0..3 {
            let of_thread = Arc::clone(&recorder);
            std::thread::spawn(move || of_thread.keep(&event)).join().expect("no panic");
        }
        let rings = recorder.rings.lock().expect("no panic");
        let (events, lost) = rings[0].events();
        assert_eq!((rings.len(), events, lost), (1, vec![event; 3], 0));
    }

    #[test]
    #[ignore = "a measurement: cargo test --release -p shoal-comm --lib -- --ignored --nocapture what_recording_costs"]
    fn what_recording_costs() {
        let none = Track { recorder: None, group: 0, is_root: false };
        for (name, track) in [("recording", &Track::unwritten()), ("not recording", &none)] {
            let mut times: Vec<_> = (0..50)
                .map(|_| {
                    let started = std::time::Instant::now();
                    track.record_many(20_000);
                    started.elapsed().as_secs_f64() / 20_000.0 * 1e9
                })
                .collect();
            times.sort_by(f64::total_cmp);
            println!("{name}: {:.1} ns an operation at best, {:.1} ns median", times[0], times[25]);
        }
    }
}
