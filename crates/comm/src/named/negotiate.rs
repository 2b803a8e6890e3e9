//! Which operations all ranks have named, in which order they are done, and which cannot be: the same on every rank, as it follows from what all have announced alone.
//!
//! Pure: no clock, no thread, no I/O.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
};

use super::request::{Action, Request, byte, disagreement, number, put, take};

/// One thing that a rank announces.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Item {
    /// The same request as when it last announced what has this number in the cache; with its data where that is little.
    Known(u32, Option<Box<[u8]>>),
    /// A request.
    New(Request, Option<Box<[u8]>>),
}

impl Item {
    /// Appends it to a message.
    pub(super) fn write(request: &Request, known: Option<u32>, data: Option<&[u8]>, out: &mut Vec<u8>) {
        out.push(u8::from(known.is_none()) | u8::from(data.is_some()) << 1);
        match known {
            Some(id) => put(out, id as usize),
            None => request.write(out),
        }
        if let Some(data) = data {
            put(out, data.len());
            out.extend(data);
        }
    }

    /// All that a message has; none where it is not one.
    pub(super) fn read_all(mut bytes: &[u8]) -> Option<Vec<Self>> {
        let mut items = Vec::new();
        while let Some(tag) = byte(&mut bytes) {
            let known = if tag & 1 == 0 { Ok(u32::try_from(number(&mut bytes)?).ok()?) } else { Err(Request::read(&mut bytes)?) };
            let data = if tag & 2 == 0 {
                None
            } else {
                let count = number(&mut bytes)?;
                Some(take(&mut bytes, count)?.into())
            };
            items.push(match known {
                Ok(id) => Self::Known(id, data),
                Err(request) => Self::New(request, data),
            });
        }
        Some(items)
    }
}

/// An operation that all ranks have named.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Ready {
    pub(super) name: Arc<str>,
    /// What each rank asks for; none of those that have joined.
    pub(super) requests: Vec<Option<Arc<Request>>>,
    /// Their data, where it came along.
    pub(super) data: Vec<Option<Box<[u8]>>>,
    /// Why it cannot be.
    pub(super) refused: Option<String>,
    /// The rank that joined last, if this is a join; as the set numbers it.
    pub(super) joined: Option<usize>,
}

impl Ready {
    /// What one of the ranks asks for: the same as the others but for dimension 0 and splits.
    pub(super) fn any(&self) -> Option<&Arc<Request>> {
        self.requests.iter().flatten().next()
    }
}

/// An operation that some ranks have named.
#[derive(Debug)]
struct Open {
    name: Arc<str>,
    requests: Vec<Option<Arc<Request>>>,
    data: Vec<Option<Box<[u8]>>>,
    count: usize,
    /// How many named it by its number, which means that their requests have been compared.
    known: usize,
    id: Option<u32>,
    /// The cycle in which it was looked at last.
    touched: u64,
    /// Counts operations, in the order of their first announcements.
    number: u64,
}

/// An operation that was done before.
#[derive(Debug)]
struct Cached {
    requests: Vec<Arc<Request>>,
    /// Its place among the open ones while it is one.
    open: Option<usize>,
    stamp: u64,
}

/// What all ranks know of what all ranks have announced.
#[derive(Debug)]
pub(super) struct Table {
    members: Vec<usize>,
    capacity: usize,
    open: Vec<Option<Open>>,
    free: Vec<usize>,
    /// Open operations that have no number yet.
    names: HashMap<Arc<str>, usize>,
    cached: Vec<Option<Cached>>,
    unused: Vec<u32>,
    ids: HashMap<Arc<str>, u32>,
    /// Numbers and stamps in the order of use; a number whose stamp is another was used again.
    used: VecDeque<(u32, u64)>,
    stamp: u64,
    joined: Vec<bool>,
    last_joined: usize,
    cycle: u64,
    opened: u64,
}

/// What a rank announced makes no sense: it is not of this program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Nonsense {
    /// Whose, as the set numbers it.
    pub(super) rank: usize,
}

impl Table {
    /// Of a set of these ranks, that remembers so many operations.
    pub(super) fn new(members: &[usize], capacity: usize) -> Self {
        Self {
            members: members.to_vec(),
            capacity,
            open: Vec::new(),
            free: Vec::new(),
            names: HashMap::new(),
            cached: Vec::new(),
            unused: Vec::new(),
            ids: HashMap::new(),
            used: VecDeque::new(),
            stamp: 0,
            joined: vec![false; members.len()],
            last_joined: 0,
            cycle: 0,
            opened: 0,
        }
    }

    /// The number under which this rank may announce this request.
    pub(super) fn known(&self, rank: usize, request: &Request) -> Option<u32> {
        let id = *self.ids.get(&request.name)?;
        let cached = self.cached[id as usize].as_ref()?;
        (*cached.requests[rank] == *request).then_some(id)
    }

    /// What was announced under a number.
    pub(super) fn request(&self, id: u32) -> Option<&Arc<Request>> {
        self.cached.get(id as usize)?.as_ref().map(|cached| &cached.requests[0])
    }

    /// Which ranks of the world have not named this, and the first that has; none if nobody has.
    pub(super) fn missing(&self, name: &str) -> Option<(Vec<usize>, usize)> {
        let by_id = || self.cached[*self.ids.get(name)? as usize].as_ref()?.open;
        let open = self.open[self.names.get(name).copied().or_else(by_id)?].as_ref()?;
        let is_there = |rank: &usize| open.requests[*rank].is_some() || self.joined[*rank];
        let missing = (0..self.members.len()).filter(|rank| !is_there(rank)).map(|rank| self.members[rank]).collect();
        let first = open.requests.iter().position(Option::is_some)?;
        Some((missing, self.members[first]))
    }

    /// Takes what each rank announced, by rank. Answers what can be done now, in the order in which all ranks do it.
    pub(super) fn cycle(&mut self, announced: Vec<Vec<Item>>) -> Result<Vec<Ready>, Nonsense> {
        self.cycle += 1;
        let mut touched = Vec::new();
        let mut has_joined = false;
        for (rank, items) in announced.into_iter().enumerate() {
            for item in items {
                if let Item::New(request, _) = &item
                    && request.action == Action::Join
                {
                    self.joined[rank] = true;
                    self.last_joined = rank;
                    has_joined = true;
                    continue;
                }
                let place = self.place(rank, item).ok_or(Nonsense { rank })?;
                let open = self.open[place].as_mut().ok_or(Nonsense { rank })?;
                if open.touched != self.cycle {
                    open.touched = self.cycle;
                    touched.push(place);
                }
            }
        }
        if has_joined {
            // Others may now have waited for this alone.
            let mut rest: Vec<_> =
                (0..self.open.len()).filter(|it| self.open[*it].as_ref().is_some_and(|it| it.touched != self.cycle)).collect();
            rest.sort_unstable_by_key(|it| self.open[*it].as_ref().map(|it| it.number));
            touched.extend(rest);
        }
        let absent = self.joined.iter().filter(|joined| **joined).count();
        let mut ready = Vec::new();
        for place in touched {
            let is_ready = |open: &Open| {
                open.count == self.members.len()
                    || (absent > 0 && (0..self.members.len()).all(|rank| open.requests[rank].is_some() || self.joined[rank]))
            };
            if self.open[place].as_ref().is_some_and(is_ready) {
                ready.extend(self.close(place));
            }
        }
        if has_joined && absent == self.members.len() {
            self.joined.fill(false);
            let size = self.members.len();
            ready.push(Ready {
                name: JOIN.into(),
                requests: vec![None; size],
                data: vec![None; size],
                refused: None,
                joined: Some(self.last_joined),
            });
        }
        Ok(ready)
    }

    /// Enters one announcement; the operation's place. None if it makes no sense.
    fn place(&mut self, rank: usize, item: Item) -> Option<usize> {
        let (place, request, data) = match item {
            Item::Known(id, data) => {
                let cached = self.cached.get(id as usize)?.as_ref()?;
                let request = Arc::clone(&cached.requests[rank]);
                let place = match cached.open {
                    Some(place) => place,
                    None => self.begin(&request.name, Some(id)),
                };
                self.open[place].as_mut()?.known += 1;
                (place, request, data)
            }
            Item::New(request, data) => {
                let id = self.ids.get(&request.name).copied();
                let there = match id {
                    Some(id) => self.cached[id as usize].as_ref()?.open,
                    None => self.names.get(&request.name).copied(),
                };
                let place = there.unwrap_or_else(|| self.begin(&request.name, id));
                // Ranks mostly ask for the same.
                let same = self.open[place].as_ref()?.requests.iter().flatten().find(|other| ***other == request).cloned();
                (place, same.unwrap_or_else(|| Arc::new(request)), data)
            }
        };
        let open = self.open[place].as_mut()?;
        // Reductions read the data by the request's length.
        if open.requests[rank].is_some() || data.as_ref().is_some_and(|data| data.len() != request.bytes()) {
            return None;
        }
        open.requests[rank] = Some(request);
        open.data[rank] = data;
        open.count += 1;
        Some(place)
    }

    fn begin(&mut self, name: &Arc<str>, id: Option<u32>) -> usize {
        let size = self.members.len();
        self.opened += 1;
        let open = Open {
            name: Arc::clone(name),
            requests: vec![None; size],
            data: vec![None; size],
            count: 0,
            known: 0,
            id,
            touched: 0,
            number: self.opened,
        };
        let place = self.free.pop().unwrap_or_else(|| {
            self.open.push(None);
            self.open.len() - 1
        });
        self.open[place] = Some(open);
        match id.and_then(|id| self.cached[id as usize].as_mut()) {
            Some(cached) => cached.open = Some(place),
            None => drop(self.names.insert(Arc::clone(name), place)),
        }
        place
    }

    fn close(&mut self, place: usize) -> Option<Ready> {
        let open = self.open[place].take()?;
        self.free.push(place);
        match open.id.and_then(|id| self.cached[id as usize].as_mut()) {
            Some(cached) => cached.open = None,
            None => drop(self.names.remove(&open.name)),
        }
        let Open { name, requests, data, count, known, id, .. } = open;
        let size = self.members.len();
        let refused =
            if known == size { None } else { disagreement(&requests, &self.members).or_else(|| self.beside_joined(&requests, count)) };
        if count == size && refused.is_none() {
            self.remember(id, &requests, known == size);
        }
        Some(Ready { name, requests, data, refused, joined: None })
    }

    /// What cannot be done while some ranks have joined.
    fn beside_joined(&self, requests: &[Option<Arc<Request>>], count: usize) -> Option<String> {
        let request = requests.iter().flatten().next().filter(|_| count < self.members.len())?;
        let can = match request.action {
            Action::AllReduce | Action::Barrier => true,
            Action::External => request.root != 0,
            _ => false,
        };
        let joined: Vec<_> = (0..requests.len()).filter(|rank| requests[*rank].is_none()).map(|rank| self.members[rank]).collect();
        (!can).then(|| {
            format!(
                "{} of {:?} is not supported with Join at this time, and {} joined: let all ranks make it before they join, or use an allreduce",
                request.action.name(),
                &*request.name,
                super::error::ranks(&joined)
            )
        })
    }

    /// All ranks remember what was done, so that it can be announced by a number.
    fn remember(&mut self, id: Option<u32>, requests: &[Option<Arc<Request>>], is_same: bool) {
        if self.capacity == 0 {
            return;
        }
        let id = match id {
            Some(id) => id,
            None => self.number(requests),
        };
        self.stamp += 1;
        self.used.push_back((id, self.stamp));
        match &mut self.cached[id as usize] {
            Some(cached) if is_same => cached.stamp = self.stamp,
            slot => *slot = Some(Cached { requests: requests.iter().flatten().cloned().collect(), open: None, stamp: self.stamp }),
        }
        if self.used.len() > 4 * self.capacity.max(16) {
            let cached = &self.cached;
            self.used.retain(|(id, stamp)| cached[*id as usize].as_ref().is_some_and(|it| it.stamp == *stamp));
        }
    }

    /// A number for an operation that has none; that of the one used longest ago when there are no more.
    fn number(&mut self, requests: &[Option<Arc<Request>>]) -> u32 {
        let mut tried = self.used.len();
        while self.ids.len() >= self.capacity && tried > 0 {
            tried -= 1;
            let Some((id, stamp)) = self.used.pop_front() else { break };
            let slot = &mut self.cached[id as usize];
            match slot {
                Some(cached) if cached.stamp == stamp && cached.open.is_some() => self.used.push_back((id, stamp)),
                Some(cached) if cached.stamp == stamp => {
                    self.ids.remove(&cached.requests[0].name);
                    *slot = None;
                    self.unused.push(id);
                }
                _ => {}
            }
        }
        let id = self.unused.pop().unwrap_or_else(|| {
            self.cached.push(None);
            u32::try_from(self.cached.len() - 1).expect("a cache of operations is small")
        });
        if let Some(request) = requests.iter().flatten().next() {
            self.ids.insert(Arc::clone(&request.name), id);
        }
        id
    }
}

/// The name of a join.
pub(super) const JOIN: &str = "join";
