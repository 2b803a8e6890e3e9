//! One cycle: new announcements go to all ranks in one all-gather, then operations that are ready
//! are executed.

use std::{
    cell::Cell,
    collections::HashMap,
    rc::Rc,
    sync::Arc,
    time::{Duration, Instant},
};

use super::{
    error::{Failure, quoted, ranks},
    execute::{self, Pending, Site},
    membership::Membership,
    negotiate::{Item, Table},
    request::Action,
    settings::Settings,
    submission::Submission,
    timeline::label,
};
use crate::{Call, DType, Error, Kind, ProcessGroup, observer};

/// Bytes per rank of a cycle's first all-gather: as many as shared memory carries in the cache line
/// that announces a call. The first four are the announcement's length.
const SLOT: usize = 56;
const HEAD: usize = 4;
/// Most bytes of data that travel with an announcement, and with all of a rank's announcements of a
/// cycle.
const INLINE: usize = 1024;
const INLINE_IN_ALL: usize = 8192;
/// Most bytes of all ranks' announcements of a cycle.
const MOST_ANNOUNCED: usize = 256 << 20;
/// How often a rank with outstanding operations looks for stalled ones.
const LOOK: Duration = Duration::from_secs(1);

/// State that is kept between cycles.
pub(super) struct Driver {
    table: Table,
    pending: Pending,
    out: Vec<u8>,
    all: Vec<u8>,
    rest: Vec<u8>,
    looked: Instant,
    /// When an operation was last reported as stalled.
    said: HashMap<Arc<str>, Instant>,
}

impl Driver {
    pub(super) fn new(set: &Membership) -> Self {
        Self {
            table: Table::new(&set.members, set.settings.cache),
            pending: Pending::default(),
            out: Vec::new(),
            all: vec![0; SLOT * set.members.len()],
            rest: Vec::new(),
            looked: Instant::now(),
            said: HashMap::new(),
        }
    }

    /// Takes all operations that are not done, after the engine has failed.
    pub(super) fn abandon(&mut self) -> Vec<Submission> {
        self.pending.mine.drain().map(|(_, it)| it).collect()
    }

    /// Gives memory back.
    pub(super) fn forget(&mut self) {
        self.pending.fusion = None;
    }

    /// Runs one cycle. True if no rank announced anything.
    pub(super) fn cycle(&mut self, on: &Site<'_>, new: Vec<Submission>) -> Result<bool, Failure> {
        let Site { set, group, .. } = *on;
        let timeline = set.timeline.is_active();
        if timeline {
            set.timeline.cycle();
        }
        self.out.clear();
        let mut left = INLINE_IN_ALL;
        for submission in new {
            let known = self.table.known(set.rank, &submission.request);
            let data = execute::inline_data(set, &submission, left.min(INLINE));
            left -= data.as_ref().map_or(0, Vec::len);
            Item::write(&submission.request, known, data.as_deref(), &mut self.out);
            self.pending.mine.insert(Arc::clone(&submission.request.name), submission);
        }
        let announced = self.exchange(set, group)?;
        let is_empty = announced.iter().all(Vec::is_empty);
        if timeline {
            self.announce_in_timeline(set, &announced);
        }
        let ready = self.table.cycle(announced).map_err(|malformed| {
            let problem = format!(
                "rank {} announced what this rank does not know: use the same Shoal on all ranks",
                set.members[malformed.rank]
            );
            group.give_up(&problem);
            Failure::config(problem)
        })?;
        execute::perform(on, &mut self.pending, ready)?;
        self.look(set, group)?;
        Ok(is_empty)
    }

    /// What each rank has announced, by rank.
    fn exchange(&mut self, set: &Membership, group: &dyn ProcessGroup) -> Result<Vec<Vec<Item>>, Failure> {
        let size = group.size();
        let mut slot = [0_u8; SLOT];
        let length = u32::try_from(self.out.len())
            .map_err(|_| Failure::config("an announcement of more than 4 GiB: submit less at once"))?;
        slot[..HEAD].copy_from_slice(&length.to_le_bytes());
        let first = self.out.len().min(SLOT - HEAD);
        slot[HEAD..HEAD + first].copy_from_slice(&self.out[..first]);
        let call = Call::new(Kind::AllGather, DType::U8, slot.as_ptr(), self.all.as_mut_ptr(), SLOT);
        let watch = Rc::new(Watch::new(set, self));
        // The set outlives the call, which is why the watch may look at it.
        let told = Rc::clone(&watch);
        run(group, &call, told)?;
        let lengths: Vec<_> = self
            .all
            .chunks(SLOT)
            .map(|slot| u32::from_le_bytes([slot[0], slot[1], slot[2], slot[3]]) as usize)
            .collect();
        let counts: Vec<_> = lengths.iter().map(|length| length.saturating_sub(SLOT - HEAD)).collect();
        let more: usize = counts.iter().sum();
        if more > MOST_ANNOUNCED {
            return Err(Failure::config(format!(
                "announcements of {more} bytes at once, {MOST_ANNOUNCED} at most: submit less at once"
            )));
        }
        if more > 0 {
            self.rest.resize(more, 0);
            let mine = &self.out[first..];
            let call = Call::new(Kind::AllGather, DType::U8, mine.as_ptr(), self.rest.as_mut_ptr(), mine.len());
            run(group, &Call { counts: Some(counts.clone().into()), ..call }, watch)?;
        }
        let (mut at, mut announced) = (0, Vec::with_capacity(size));
        let mut whole = Vec::new();
        for (rank, length) in lengths.iter().enumerate() {
            let head = &self.all[rank * SLOT + HEAD..][..(*length).min(SLOT - HEAD)];
            let items = if counts[rank] == 0 {
                Item::read_all(head)
            } else {
                whole.clear();
                whole.extend(head);
                whole.extend(&self.rest[at..at + counts[rank]]);
                at += counts[rank];
                Item::read_all(&whole)
            };
            announced.push(items.ok_or_else(|| {
                let problem =
                    format!("rank {} sent no announcement: use the same Shoal on all ranks", set.members[rank]);
                group.give_up(&problem);
                Failure::config(problem)
            })?);
        }
        Ok(announced)
    }

    fn announce_in_timeline(&self, set: &Membership, announced: &[Vec<Item>]) {
        for (rank, items) in announced.iter().enumerate() {
            for item in items {
                let (name, action) = match item {
                    Item::New(request, _) => (&request.name, request.action),
                    Item::Known(id, _) => match self.table.request(*id) {
                        Some(request) => (&request.name, request.action),
                        None => continue,
                    },
                };
                let label = label(action.name(), name);
                if self.table.missing(name).is_none()
                    && announced[..rank].iter().flatten().all(|item| self.is_other(item, name))
                {
                    set.timeline.begin(&label, &format!("NEGOTIATE_{}", action.name().to_uppercase()));
                }
                set.timeline.tick(&label, set.members[rank]);
            }
        }
    }

    fn is_other(&self, item: &Item, name: &str) -> bool {
        match item {
            Item::New(request, _) => &*request.name != name,
            Item::Known(id, _) => self.table.request(*id).is_none_or(|request| &*request.name != name),
        }
    }

    /// Reports stalled operations, which only some ranks have submitted while all go on with
    /// others.
    fn look(&mut self, set: &Membership, group: &dyn ProcessGroup) -> Result<(), Failure> {
        if self.pending.mine.is_empty() {
            self.said.clear();
            return Ok(());
        }
        if self.looked.elapsed() < LOOK {
            return Ok(());
        }
        self.looked = Instant::now();
        let mut stalled = Vec::new();
        for (name, submission) in &self.pending.mine {
            let age = submission.since.elapsed();
            // The table has no joins.
            let Some((missing, first)) = self.table.missing(name) else { continue };
            if let Some(limit) = set.settings.stall_shutdown
                && age >= limit
            {
                let milliseconds = u64::try_from(age.as_millis()).unwrap_or(u64::MAX);
                let at = crate::At { operation: format!("{} {:?}", submission.request, &**name), number: 0 };
                // Ranks as the set numbers them, as in the group's own errors.
                let place = |it: usize| set.members.iter().position(|member| *member == it);
                let waiting_for = missing.into_iter().filter_map(place).collect();
                let error = Error::Deadline { waiting_for, milliseconds, at };
                group.give_up(&error.to_string());
                return Err(error.into());
            }
            let is_due =
                |every: Duration| age >= every && self.said.get(name).is_none_or(|said| said.elapsed() >= every);
            if first == set.members[set.rank] && set.settings.stall.is_some_and(is_due) {
                stalled.push((Arc::clone(name), missing));
            }
        }
        if let (Some(every), false) = (set.settings.stall, stalled.is_empty()) {
            stalled.sort_unstable();
            let lines: Vec<_> = stalled.iter().map(|(name, missing)| (name.to_string(), missing.clone())).collect();
            say(every, &lines);
            for (name, _) in stalled {
                self.said.insert(name, Instant::now());
            }
        }
        Ok(())
    }
}

/// Prints which ranks have not submitted these operations.
fn say(every: Duration, stalled: &[(String, Vec<usize>)]) {
    let mut text = format!(
        "shoal: one or more tensors were submitted to be reduced, gathered or broadcasted by a subset of ranks and are \
         waiting for the remainder of ranks for more than {:.0} seconds. This may indicate that different ranks submit \
         different tensors, or that a rank is late.\nMissing ranks:",
        every.as_secs_f64()
    );
    for (name, missing) in stalled {
        text += &format!("\n  {name}: {}", ranks(missing));
    }
    eprintln!("{text}");
}

/// Runs a collective of the cycle on the caller's memory.
#[expect(unsafe_code, reason = "calls are addresses")]
fn run(group: &dyn ProcessGroup, call: &Call, watch: Rc<Watch>) -> Result<(), Failure> {
    // SAFETY: both buffers belong to the caller, have the lengths of the call, and are untouched
    // until it returns.
    observer::observed(watch, || unsafe { group.run(call) }).map_err(Failure::from)
}

/// Reports ranks that do not come to a cycle's all-gather.
struct Watch {
    members: Arc<[usize]>,
    settings: Arc<Settings>,
    /// Outstanding operations: since when, and which ranks have not submitted them, where that is
    /// known.
    open: Vec<(Arc<str>, Instant, Option<Vec<usize>>)>,
    next: Cell<Duration>,
    rank: usize,
}

impl Watch {
    fn new(set: &Membership, driver: &Driver) -> Self {
        let settings = Arc::clone(&set.settings);
        let next =
            settings.stall.unwrap_or(Duration::MAX).min(settings.stall_shutdown.unwrap_or(Duration::MAX)).min(LOOK);
        let wanted = settings.stall.is_some() || settings.stall_shutdown.is_some();
        // The list is of a few, as a thousand would help no reader.
        let open = if wanted {
            let one = |(name, it): (&Arc<str>, &Submission)| {
                (Arc::clone(name), it.since, driver.table.missing(name).map(|it| it.0))
            };
            // A joined rank may wait as long as the others have data.
            driver
                .pending
                .mine
                .iter()
                .filter(|(_, it)| it.request.action != Action::Join)
                .take(MOST_LISTED)
                .map(one)
                .collect()
        } else {
            Vec::new()
        };
        Self { members: Arc::clone(&set.members), settings, open, next: Cell::new(next), rank: set.rank }
    }
}

const MOST_LISTED: usize = 16;

impl observer::Observer for Watch {
    fn after(&self) -> Duration {
        self.next.get()
    }

    fn waits(&self, waited: Duration, missing: &[usize]) -> bool {
        self.next.set(waited + LOOK);
        let absent: Vec<_> = missing.iter().map(|rank| self.members[*rank]).collect();
        let oldest = self.open.iter().map(|(_, since, _)| since.elapsed()).max().unwrap_or_default();
        if self.settings.stall_shutdown.is_some_and(|limit| oldest >= limit) {
            let names: Vec<_> = self.open.iter().map(|(name, ..)| name.to_string()).collect();
            eprintln!(
                "shoal: rank {} gives up after {:.0} s: {} still wait for {}",
                self.members[self.rank],
                oldest.as_secs_f64(),
                quoted(&names),
                ranks(&absent)
            );
            return true;
        }
        // Of the ranks that wait, only the first reports.
        let speaks = (0..self.members.len()).find(|rank| !missing.contains(rank)) == Some(self.rank);
        if let Some(every) = self.settings.stall
            && speaks
            && oldest >= every
        {
            let stalled: Vec<_> = self
                .open
                .iter()
                .filter(|(_, since, _)| since.elapsed() >= every)
                .map(|(name, _, known)| (name.to_string(), known.clone().unwrap_or_else(|| absent.clone())))
                .collect();
            say(every, &stalled);
            self.next.set(waited + every);
        }
        false
    }
}
