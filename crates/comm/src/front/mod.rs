//! A process group over a transport: the order of operations, those that progress by themselves,
//! and what follows from a failure.

mod inbox;
mod kept;
mod lane;
mod options;
mod receive;

use std::{
    collections::BTreeMap,
    fmt,
    sync::{
        Arc, Mutex, OnceLock, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

pub(crate) use options::Options;

use self::{inbox::Inbox, kept::Kept, lane::Lane};
use crate::{
    Call, DType, Error, Kind, Memory, ProcessGroup, Work,
    guard::{Among, Fault, Guard, Terms, Watch},
    reduce::Stores,
    timeline::{Since, Track, Way},
    transport::{
        Transport,
        direct::{self, View},
        wire::Label,
    },
};

/// How long a rank that found a disagreement waits for the others to say what they called.
const HEARING: Duration = Duration::from_secs(2);

/// What a group is made of.
#[derive(Debug, Clone)]
pub(crate) struct Parts {
    pub(crate) rank: usize,
    pub(crate) size: usize,
    pub(crate) epoch: u64,
    pub(crate) transport: Arc<dyn Transport>,
    pub(crate) watch: Arc<dyn Watch>,
    pub(crate) reform: Arc<dyn Reform>,
    pub(crate) options: Arc<Options>,
}

/// Makes the group anew after a failure.
pub(crate) trait Reform: Send + Sync + fmt::Debug {
    /// The living only.
    fn shrink(&self) -> Result<Parts, Error>;

    /// The living and replacements for the dead.
    fn rejoin(&self, patience: Duration) -> Result<Parts, Error>;

    /// The survivors and newcomers behind them, `size` ranks if enough come in time.
    fn grow(&self, _size: usize, _patience: Duration) -> Result<Front, Error> {
        Err(Error::config("this group takes no newcomers: ranks that are processes do, made by `join`".to_owned()))
    }

    /// The number of newcomers.
    fn newcomers(&self) -> Result<usize, Error> {
        Ok(0)
    }
}

/// Groups that were split off are not made anew by themselves.
#[derive(Debug)]
struct Whole;

impl Whole {
    fn refuse() -> Error {
        let problem =
            "a group that was split off cannot be re-formed; re-form the group it came from and split again".to_owned();
        Error::Config { problem }
    }
}

impl Reform for Whole {
    fn shrink(&self) -> Result<Parts, Error> {
        Err(Self::refuse())
    }

    fn rejoin(&self, _patience: Duration) -> Result<Parts, Error> {
        Err(Self::refuse())
    }
}

/// A process group over a transport.
#[derive(Debug)]
pub(crate) struct Front {
    core: Arc<Core>,
    splits: AtomicU64,
}

/// Of messages, by peer (none: any) and whether this rank sends.
type Lanes = BTreeMap<(Option<usize>, bool), Arc<Lane>>;

/// What the group's threads share.
#[derive(Debug)]
struct Core {
    parts: Parts,
    spins: u32,
    /// Collectives, in the order of their calls.
    collectives: Arc<Lane>,
    messages: Mutex<Lanes>,
    /// What comes, where the transport has a wire for it.
    inbox: Inbox,
    /// The first failure.
    broken: OnceLock<Error>,
    /// This rank has made the group anew.
    revoked: AtomicBool,
    track: Track,
}

impl Front {
    pub(crate) fn new(parts: Parts) -> Self {
        let track = Track::of_root(parts.rank);
        Self::with(parts, track)
    }

    /// A group whose operations the timeline knows as those of `track`.
    fn with(parts: Parts, track: Track) -> Self {
        let spins = if parts.size > 1 { parts.transport.spins() } else { 0 };
        let collectives = Arc::new(Lane::default());
        let inbox = Inbox::new(parts.rank, parts.size, inbox::ROOM);
        let (messages, broken, revoked) = (Mutex::default(), OnceLock::new(), AtomicBool::new(false));
        let core = Core { parts, spins, collectives, messages, inbox, broken, revoked, track };
        Self { core: Arc::new(core), splits: AtomicU64::new(0) }
    }
}

impl Drop for Front {
    fn drop(&mut self) {
        self.core.collectives.close();
        self.core.messages().values().for_each(|lane| lane.close());
    }
}

impl Core {
    fn messages(&self) -> std::sync::MutexGuard<'_, Lanes> {
        self.messages.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Refuses what cannot be an operation of this group.
    fn check(&self, call: &Call) -> Result<(), Error> {
        call.check(self.parts.rank, self.parts.size)?;
        self.parts.transport.check(call)
    }

    /// How an operation is watched over that may take so long, or as long as the group's do.
    fn terms(&self, deadline: Option<Duration>) -> Terms<'_> {
        let Parts { epoch, watch, options, .. } = &self.parts;
        let limit = deadline.unwrap_or(options.deadline);
        Terms {
            epoch: *epoch,
            alarm: watch.alarm(),
            limit,
            spins: self.spins,
            stall: &options.stall,
            watch: Some(&**watch),
        }
    }

    /// The lane in which a call waits for its turn.
    fn with_lane<R>(&self, call: &Call, then: impl FnOnce(&Arc<Lane>) -> R) -> R {
        let Some(peer) = call.kind.peer() else { return then(&self.collectives) };
        let lane = Arc::clone(self.messages().entry((Some(peer), matches!(call.kind, Kind::Send { .. }))).or_default());
        then(&lane)
    }

    /// Does the operation whose turn it is; `number` counts those of its lane.
    ///
    /// # Safety
    /// As for [`ProcessGroup::run`].
    #[expect(unsafe_code, reason = "calls are addresses")]
    unsafe fn perform(&self, lane: &Lane, number: u64, call: &Call, since: Since) -> Result<(), Error> {
        let Parts { rank, size, epoch, transport, watch, options, .. } = &self.parts;
        let terms = self.terms(call.deadline);
        let guard = Guard::new(call, *rank, number, &terms);
        if watch.alarm().is_raised() || self.broken.get().is_some() {
            self.track.record(call, number, *epoch, since, Way::Only, true);
            return Err(self.refuse(number, call, &guard));
        }
        if *size == 1 && !transport.serves_one() {
            let view = View { send: call.send, recv: call.recv, mine: 0 };
            // SAFETY: the caller's promise; there is no other rank.
            unsafe { direct::share(call, 0, &[view], Stores::Cached) };
            self.track.record(call, number, *epoch, since, Way::Only, false);
            return Ok(());
        }
        // SAFETY: the caller's promise.
        let kept = options.keep_input.then(|| unsafe { Kept::of(call, *rank, *size) }).flatten();
        // SAFETY: the caller's promise; this is the lane's turn.
        let result = unsafe {
            if let Kind::Send { to, .. } = call.kind
                && let Some(wire) = transport.wire()
            {
                guard.took(wire.way(to));
                wire.send(to, call, Label::of(call, *epoch), &guard)
            } else {
                transport.execute(call, number, &guard)
            }
        };
        self.track.record(call, number, *epoch, since, guard.way(), result.is_err());
        if let (Err(_), Some(kept)) = (&result, &kept) {
            // SAFETY: the caller's promise, which lasts until the operation is over.
            unsafe { kept.put_back(call) };
        }
        match result {
            Ok(()) => {
                if call.can_end_unheard() {
                    lane.remember(number, call);
                }
                Ok(())
            }
            Err(error) => Err(self.fail(error, number, call)),
        }
    }

    /// The group is of the past.
    fn revoke(&self) {
        self.revoked.store(true, Ordering::Relaxed);
        self.parts.watch.alarm().raise(Fault::Revoked);
    }

    /// What an operation of a group gets that cannot go on.
    #[cold]
    fn refuse(&self, number: u64, call: &Call, guard: &Guard<'_>) -> Error {
        if self.revoked.load(Ordering::Relaxed) {
            return Error::Revoked { epoch: self.parts.epoch };
        }
        match (guard.check(), self.broken.get().cloned()) {
            (_, Some(cause)) => Error::Broken { cause: Box::new(cause) },
            (Err(error), None) => self.fail(error, number, call),
            (Ok(()), None) => Error::Revoked { epoch: self.parts.epoch },
        }
    }

    /// What follows from the first failure: the others hear of it, and no operation comes after it.
    #[cold]
    fn fail(&self, error: Error, number: u64, call: &Call) -> Error {
        let watch = &self.parts.watch;
        let error = match error {
            Error::Disagreement { number: disputed, .. } => self.hear(disputed, number, call),
            Error::Deadline { .. } | Error::Io { .. } => {
                watch.tell(&Fault::GaveUp { rank: self.parts.rank, why: error.to_string() });
                error
            }
            other => other,
        };
        if !error.leaves_group_usable() {
            let _ = self.broken.set(error.clone());
        }
        error
    }

    /// Ranks called different things: says what this one called, and gathers what the others did.
    fn hear(&self, disputed: u64, number: u64, call: &Call) -> Error {
        let Parts { rank, watch, .. } = &self.parts;
        let Some(fault @ Fault::Dispute { between, .. }) = watch.alarm().fault() else {
            return Error::Disagreement { number: disputed, calls: vec![(*rank, Some(call.to_string()))] };
        };
        watch.tell(&fault);
        let is_disputed = number == disputed && call.between(*rank) == between;
        // Receives have other numbers than the messages that they get.
        let received = between
            .filter(|(_, receiver)| receiver == rank)
            .and_then(|(sender, _)| self.inbox.recall(sender, disputed));
        let mine = match between {
            _ if received.is_some() => received,
            _ if is_disputed => Some(call.to_string()),
            None => self.collectives.recall(disputed),
            Some((sender, receiver)) => {
                let key = if sender == *rank { (Some(receiver), true) } else { (Some(sender), false) };
                self.messages().get(&key).and_then(|lane| lane.recall(disputed))
            }
        };
        let members: Vec<_> =
            between.map_or_else(|| (0..self.parts.size).collect(), |(sender, receiver)| vec![sender, receiver]);
        let said = watch.calls(&members, mine.as_deref(), HEARING);
        Error::Disagreement { number: disputed, calls: members.into_iter().zip(said).collect() }
    }
}

#[expect(unsafe_code, reason = "the seam takes addresses")]
impl ProcessGroup for Front {
    fn rank(&self) -> usize {
        self.core.parts.rank
    }

    fn size(&self) -> usize {
        self.core.parts.size
    }

    fn epoch(&self) -> u64 {
        self.core.parts.epoch
    }

    unsafe fn run(&self, call: &Call) -> Result<(), Error> {
        let core = &self.core;
        core.check(call)?;
        if inbox::receives(call.kind)
            && let Some(wire) = core.parts.transport.wire()
        {
            // SAFETY: the caller's promise.
            return unsafe { core.receive(call, wire) };
        }
        core.with_lane(call, |lane| {
            let called = core.track.now();
            let turn = lane.next_turn();
            let begun = if turn.has_waited() { core.track.now() } else { called };
            // SAFETY: the caller's promise.
            unsafe { core.perform(lane, turn.number(), call, Since { called, begun }) }
        })
    }

    unsafe fn start(&self, call: Call) -> Result<Work, Error> {
        let core = &self.core;
        core.check(&call)?;
        if inbox::receives(call.kind)
            && let Some(wire) = core.parts.transport.wire()
        {
            // SAFETY: the caller's promise.
            return unsafe { core.start_receive(call, wire) };
        }
        core.with_lane(&call.clone(), |lane| {
            let (core, of_worker) = (Arc::clone(core), Arc::clone(lane));
            let (work, called) = (Work::new(), core.track.now());
            let begun = lane.enqueue(call, work.clone(), move |number, call| {
                let since = Since { called, begun: core.track.now() };
                // SAFETY: who called `start` promised that the addresses are valid until the work
                // is done.
                unsafe { core.perform(&of_worker, number, call, since) }
            });
            begun.map(|()| work)
        })
    }

    fn alloc(&self, bytes: usize) -> Result<Memory, Error> {
        let Parts { size, transport, .. } = &self.core.parts;
        if *size == 1 && !transport.serves_one() { Memory::private(bytes) } else { transport.alloc(bytes) }
    }

    fn split(&self, ranks: &[usize]) -> Result<Option<Arc<dyn ProcessGroup>>, Error> {
        let Parts { rank, size, epoch, transport, watch, options, .. } = &self.core.parts;
        check_members(ranks, *size)?;
        let mut list = vec![0_u64; *size];
        for (place, member) in ranks.iter().enumerate() {
            list[*member] = place as u64 + 1;
        }
        self.agree(&list)?;
        let id = self.splits.fetch_add(1, Ordering::Relaxed) + 1;
        let Some(place) = ranks.iter().position(|member| member == rank) else { return Ok(None) };
        let call = Call::barrier();
        let terms = self.core.terms(None);
        let guard = Guard::new(&call, *rank, id, &terms);
        let alone = ranks.len() == 1 && !transport.serves_one();
        let transport = if alone { Arc::clone(transport) } else { transport.split(ranks, id, &guard)? };
        let parts = Parts {
            rank: place,
            size: ranks.len(),
            epoch: *epoch,
            transport,
            watch: Arc::new(Among::new(watch, ranks)),
            reform: Arc::new(Whole),
            options: Arc::clone(options),
        };
        Ok(Some(Arc::new(Self::with(parts, self.core.track.split(id)))))
    }

    fn shrink(&self) -> Result<Arc<dyn ProcessGroup>, Error> {
        let parts = self.core.parts.reform.shrink()?;
        self.core.revoke();
        Ok(Arc::new(Self::with(parts, self.core.track.clone())))
    }

    fn grow(&self, size: usize, patience: Duration) -> Result<Arc<dyn ProcessGroup>, Error> {
        let grown = self.core.parts.reform.grow(size, patience)?;
        self.core.revoke();
        Ok(Arc::new(grown))
    }

    fn newcomers(&self) -> Result<usize, Error> {
        self.core.parts.reform.newcomers()
    }

    fn rejoin(&self, patience: Duration) -> Result<Arc<dyn ProcessGroup>, Error> {
        let parts = self.core.parts.reform.rejoin(patience)?;
        self.core.revoke();
        Ok(Arc::new(Self::with(parts, self.core.track.clone())))
    }

    fn give_up(&self, why: &str) {
        let Parts { rank, watch, .. } = &self.core.parts;
        if !watch.alarm().is_raised() {
            let fault = Fault::GaveUp { rank: *rank, why: why.to_owned() };
            watch.tell(&fault);
            watch.alarm().raise(fault);
        }
    }

    fn plan(&self) -> String {
        let Parts { rank, size, epoch, transport, .. } = &self.core.parts;
        let how =
            if *size == 1 && !transport.serves_one() { "one rank: copies only\n".to_owned() } else { transport.plan() };
        format!("rank {rank} of {size}, epoch {epoch}\n{how}")
    }
}

impl Front {
    /// Compares a list with all other ranks'.
    #[expect(unsafe_code, reason = "calls are addresses")]
    fn agree(&self, list: &[u64]) -> Result<(), Error> {
        let size = self.core.parts.size;
        let mut all = vec![0_u64; size * size];
        let call = Call::new(Kind::AllGather, DType::I64, list.as_ptr().cast(), all.as_mut_ptr().cast(), size);
        // SAFETY: both vectors live until `run` returns and have the lengths of the call.
        unsafe { self.run(&call)? };
        let text = |list: &[u64]| {
            let mut members: Vec<_> = (0..size).filter(|r| list[*r] > 0).collect();
            members.sort_by_key(|r| list[*r]);
            format!("split {members:?}")
        };
        if all.chunks(size).all(|other| other == list) {
            return Ok(());
        }
        let calls = all.chunks(size).map(|list| Some(text(list))).enumerate().collect();
        let number = self.core.collectives.last_number();
        Err(Error::Disagreement { number, calls })
    }
}

fn check_members(ranks: &[usize], size: usize) -> Result<(), Error> {
    let refuse = |problem: String| Err(Error::Config { problem });
    for (place, member) in ranks.iter().enumerate() {
        if *member >= size {
            return refuse(format!(
                "split {ranks:?}: rank {member} is not in this group; its ranks are 0 to {}",
                size - 1
            ));
        }
        if ranks[..place].contains(member) {
            return refuse(format!("split {ranks:?}: names rank {member} twice"));
        }
    }
    Ok(())
}
