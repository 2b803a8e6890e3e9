//! Negotiation: which operations all ranks have submitted, in which order they are done, and which
//! are refused. Every rank computes the same, since it depends on nothing but all ranks'
//! announcements.
//!
//! Pure: no clock, no thread, no I/O.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
};

use super::request::{Action, Request, byte, disagreement, number, put, take};

/// One announcement.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Item {
    /// The cached request of this number, with its data where that is small.
    Known(u32, Option<Box<[u8]>>),
    /// A request that is not cached, likewise.
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

    /// All announcements of a message; `None` if it is malformed.
    pub(super) fn read_all(mut bytes: &[u8]) -> Option<Vec<Self>> {
        let mut items = Vec::new();
        while let Some(tag) = byte(&mut bytes) {
            let known = if tag & 1 == 0 {
                Ok(u32::try_from(number(&mut bytes)?).ok()?)
            } else {
                Err(Request::read(&mut bytes)?)
            };
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

/// An operation that all ranks have submitted, but for those that have joined.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Ready {
    pub(super) name: Arc<str>,
    /// Each rank's request; `None` for joined ranks.
    pub(super) requests: Vec<Option<Arc<Request>>>,
    /// Their data, where it came with the announcement.
    pub(super) data: Vec<Option<Box<[u8]>>>,
    /// Why it is refused.
    pub(super) refused: Option<String>,
    /// The rank that joined last, if this is a join; as the set numbers it.
    pub(super) joined: Option<usize>,
}

impl Ready {
    /// One of the requests, which differ in dimension 0 and splits only.
    pub(super) fn any(&self) -> Option<&Arc<Request>> {
        self.requests.iter().flatten().next()
    }
}

/// An operation that some ranks have submitted.
#[derive(Debug)]
struct Open {
    name: Arc<str>,
    requests: Vec<Option<Arc<Request>>>,
    data: Vec<Option<Box<[u8]>>>,
    count: usize,
    /// How many ranks announced it by its number: their requests are known to agree.
    known: usize,
    id: Option<u32>,
    /// The last cycle with an announcement of it.
    touched: u64,
    /// Its number in the order of first announcements.
    number: u64,
}

/// An operation that was done before.
#[derive(Debug)]
struct Cached {
    requests: Vec<Arc<Request>>,
    /// Its index in `open` while it is outstanding.
    open: Option<usize>,
    stamp: u64,
}

/// The state of the negotiation, equal on all ranks.
#[derive(Debug)]
pub(super) struct Table {
    members: Vec<usize>,
    capacity: usize,
    open: Vec<Option<Open>>,
    free: Vec<usize>,
    /// Open operations without a number, by name.
    names: HashMap<Arc<str>, usize>,
    cached: Vec<Option<Cached>>,
    unused: Vec<u32>,
    ids: HashMap<Arc<str>, u32>,
    /// Numbers and stamps in the order of use; an entry counts only if its stamp is the number's
    /// latest.
    used: VecDeque<(u32, u64)>,
    stamp: u64,
    joined: Vec<bool>,
    last_joined: usize,
    cycle: u64,
    opened: u64,
}

/// A malformed announcement: its rank runs another program or version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Malformed {
    /// The rank, as the set numbers it.
    pub(super) rank: usize,
}

impl Table {
    /// For a set of these ranks; caches at most `capacity` operations.
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

    /// The number by which this rank may announce this request, if it is cached.
    pub(super) fn known(&self, rank: usize, request: &Request) -> Option<u32> {
        let id = *self.ids.get(&request.name)?;
        let cached = self.cached[id as usize].as_ref()?;
        (*cached.requests[rank] == *request).then_some(id)
    }

    /// The cached request of a number.
    pub(super) fn request(&self, id: u32) -> Option<&Arc<Request>> {
        self.cached.get(id as usize)?.as_ref().map(|cached| &cached.requests[0])
    }

    /// The ranks of the world that have not submitted this operation, and the first that has;
    /// `None` if none has.
    pub(super) fn missing(&self, name: &str) -> Option<(Vec<usize>, usize)> {
        let by_id = || self.cached[*self.ids.get(name)? as usize].as_ref()?.open;
        let open = self.open[self.names.get(name).copied().or_else(by_id)?].as_ref()?;
        let is_there = |rank: &usize| open.requests[*rank].is_some() || self.joined[*rank];
        let missing = (0..self.members.len()).filter(|rank| !is_there(rank)).map(|rank| self.members[rank]).collect();
        let first = open.requests.iter().position(Option::is_some)?;
        Some((missing, self.members[first]))
    }

    /// Takes each rank's announcements, and gives the operations that are ready, in the order in
    /// which all ranks execute them.
    pub(super) fn cycle(&mut self, announced: Vec<Vec<Item>>) -> Result<Vec<Ready>, Malformed> {
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
                let place = self.place(rank, item).ok_or(Malformed { rank })?;
                let open = self.open[place].as_mut().ok_or(Malformed { rank })?;
                if open.touched != self.cycle {
                    open.touched = self.cycle;
                    touched.push(place);
                }
            }
        }
        if has_joined {
            // Other operations may have waited for this rank alone.
            let mut rest: Vec<_> = (0..self.open.len())
                .filter(|it| self.open[*it].as_ref().is_some_and(|it| it.touched != self.cycle))
                .collect();
            rest.sort_unstable_by_key(|it| self.open[*it].as_ref().map(|it| it.number));
            touched.extend(rest);
        }
        let absent = self.joined.iter().filter(|joined| **joined).count();
        let mut ready = Vec::new();
        for place in touched {
            let is_ready = |open: &Open| {
                open.count == self.members.len()
                    || (absent > 0
                        && (0..self.members.len()).all(|rank| open.requests[rank].is_some() || self.joined[rank]))
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

    /// Enters one announcement, and gives the operation's index in `open`; `None` if the
    /// announcement is malformed.
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
                // Ranks mostly submit equal requests: they share one.
                let same =
                    self.open[place].as_ref()?.requests.iter().flatten().find(|other| ***other == request).cloned();
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
        let refused = if known == size {
            None
        } else {
            disagreement(&requests, &self.members).or_else(|| self.beside_joined(&requests, count))
        };
        if count == size && refused.is_none() {
            self.remember(id, &requests, known == size);
        }
        Some(Ready { name, requests, data, refused, joined: None })
    }

    /// Why an operation is refused while some ranks have joined, if it is.
    fn beside_joined(&self, requests: &[Option<Arc<Request>>], count: usize) -> Option<String> {
        let request = requests.iter().flatten().next().filter(|_| count < self.members.len())?;
        let can = match request.action {
            Action::AllReduce | Action::Barrier => true,
            Action::External => request.root != 0,
            _ => false,
        };
        let joined: Vec<_> =
            (0..requests.len()).filter(|rank| requests[*rank].is_none()).map(|rank| self.members[rank]).collect();
        (!can).then(|| {
            format!(
                "{} of {:?} is not supported with Join at this time, and {} joined: let all ranks make it before they \
                 join, or use an allreduce",
                request.action.name(),
                &*request.name,
                super::error::ranks(&joined)
            )
        })
    }

    /// Caches an operation, so that it can be announced by a number.
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
            slot => {
                *slot = Some(Cached {
                    requests: requests.iter().flatten().cloned().collect(),
                    open: None,
                    stamp: self.stamp,
                });
            }
        }
        if self.used.len() > 4 * self.capacity.max(16) {
            let cached = &self.cached;
            self.used.retain(|(id, stamp)| cached[*id as usize].as_ref().is_some_and(|it| it.stamp == *stamp));
        }
    }

    /// A number for an operation that has none: an unused one, or that of the least recently used
    /// operation.
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

#[cfg(test)]
mod tests;
