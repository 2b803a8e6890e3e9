//! A rank's request: what it asks for under a name, its wire format, and what the ranks must agree
//! on.

use std::{collections::BTreeMap, fmt, sync::Arc};

use super::error::ranks;
use crate::{DType, ReduceOp};

/// The kind of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Action {
    /// All ranks get the reduction of all.
    AllReduce,
    /// All ranks get all tensors, one after the other along dimension 0.
    AllGather,
    /// All ranks get the root's tensor.
    Broadcast,
    /// Rows of dimension 0 go to each rank.
    AllToAll,
    /// Each rank gets its rows of the reduction.
    ReduceScatter,
    /// No rank goes on before all have come.
    Barrier,
    /// This rank has no more data; until all have joined it gives zeros to all-reduces.
    Join,
    /// The caller's own function.
    External,
}

impl Action {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::AllReduce,
        Self::AllGather,
        Self::Broadcast,
        Self::AllToAll,
        Self::ReduceScatter,
        Self::Barrier,
        Self::Join,
        Self::External,
    ];

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::AllReduce => "allreduce",
            Self::AllGather => "allgather",
            Self::Broadcast => "broadcast",
            Self::AllToAll => "alltoall",
            Self::ReduceScatter => "reducescatter",
            Self::Barrier => "barrier",
            Self::Join => "join",
            Self::External => "external",
        }
    }
}

/// How elements are reduced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Reduction {
    /// Sum.
    Sum,
    /// Sum, divided by the size of the set; of whole numbers truncated toward zero.
    Average,
    /// The least.
    Min,
    /// The greatest.
    Max,
    /// Product.
    Product,
    /// Adaptive sum, pair by pair.
    Adasum,
}

impl Reduction {
    /// All of them.
    pub const ALL: [Self; 6] = [Self::Sum, Self::Average, Self::Min, Self::Max, Self::Product, Self::Adasum];

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sum => "sum",
            Self::Average => "average",
            Self::Min => "min",
            Self::Max => "max",
            Self::Product => "product",
            Self::Adasum => "adasum",
        }
    }

    /// The group's operation; an average of whole numbers is a sum that is divided afterwards.
    pub(super) const fn op(self, dtype: DType) -> ReduceOp {
        match self {
            Self::Average if dtype.is_float() => ReduceOp::Avg,
            Self::Sum | Self::Average | Self::Adasum => ReduceOp::Sum,
            Self::Min => ReduceOp::Min,
            Self::Max => ReduceOp::Max,
            Self::Product => ReduceOp::Product,
        }
    }
}

/// One tensor of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// Its name.
    pub name: Arc<str>,
    /// Type of its elements.
    pub dtype: DType,
    /// Its dimensions.
    pub shape: Vec<usize>,
}

impl Part {
    /// How many elements.
    pub fn len(&self) -> usize {
        self.shape.iter().product()
    }

    /// Whether it has no element.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Elements of one row of dimension 0.
    pub(super) fn row(&self) -> usize {
        self.shape.get(1..).unwrap_or_default().iter().product()
    }

    /// How many bytes.
    pub(super) fn bytes(&self) -> usize {
        self.len() * self.dtype.size()
    }
}

/// What a rank asks for.
#[derive(Debug, Clone, PartialEq)]
pub struct Request {
    /// The name by which ranks match requests: that of the first tensor.
    pub name: Arc<str>,
    /// The kind of the operation.
    pub action: Action,
    /// The reduction, if it is one.
    pub reduction: Reduction,
    /// Factor before the reduction.
    pub prescale: f64,
    /// Factor after it.
    pub postscale: f64,
    /// The root of a broadcast, as the world numbers it.
    pub root: usize,
    /// Tensors: all or nothing.
    pub parts: Vec<Part>,
    /// Of an all-to-all: rows for each rank of the set; equal shares if empty.
    pub splits: Option<Vec<usize>>,
    /// What else the ranks must agree on.
    pub signature: String,
}

impl Request {
    /// Nothing but a name.
    pub fn new(action: Action, name: impl Into<Arc<str>>) -> Self {
        Self {
            name: name.into(),
            action,
            reduction: Reduction::Sum,
            prescale: 1.0,
            postscale: 1.0,
            root: 0,
            parts: Vec::new(),
            splits: None,
            signature: String::new(),
        }
    }

    /// All names: of its tensors, or its own.
    pub fn names(&self) -> impl Iterator<Item = &Arc<str>> {
        let own = self.parts.is_empty().then_some(&self.name);
        self.parts.iter().map(|part| &part.name).chain(own)
    }

    /// Bytes of all tensors.
    pub(super) fn bytes(&self) -> usize {
        self.parts.iter().map(Part::bytes).sum()
    }

    /// Appends it to a message.
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        let has = u8::from(self.prescale != 1.0 || self.postscale != 1.0)
            | u8::from(self.root != 0) << 1
            | u8::from(self.splits.is_some()) << 2
            | u8::from(!self.signature.is_empty()) << 3;
        out.extend([self.action as u8 | (self.reduction as u8) << 4, has]);
        put_text(out, &self.name);
        if has & 1 != 0 {
            out.extend(self.prescale.to_le_bytes());
            out.extend(self.postscale.to_le_bytes());
        }
        if has & 2 != 0 {
            put(out, self.root);
        }
        if let Some(splits) = &self.splits {
            put(out, splits.len());
            splits.iter().for_each(|it| put(out, *it));
        }
        if has & 8 != 0 {
            put_text(out, &self.signature);
        }
        put(out, self.parts.len());
        for (place, part) in self.parts.iter().enumerate() {
            if place > 0 {
                put_text(out, &part.name);
            }
            out.push(part.dtype as u8);
            put(out, part.shape.len());
            part.shape.iter().for_each(|it| put(out, *it));
        }
    }

    /// Takes one off the front of a message; `None` if it is malformed.
    pub(super) fn read(bytes: &mut &[u8]) -> Option<Self> {
        let (code, has) = (byte(bytes)?, byte(bytes)?);
        let name: Arc<str> = text(bytes)?.into();
        let mut it = Self::new(*Action::ALL.get(usize::from(code & 15))?, name);
        it.reduction = *Reduction::ALL.get(usize::from(code >> 4))?;
        if has & 1 != 0 {
            it.prescale = f64::from_le_bytes(take(bytes, 8)?.try_into().ok()?);
            it.postscale = f64::from_le_bytes(take(bytes, 8)?.try_into().ok()?);
        }
        if has & 2 != 0 {
            it.root = number(bytes)?;
        }
        if has & 4 != 0 {
            let count = number(bytes)?;
            it.splits = Some((0..count).map(|_| number(bytes)).collect::<Option<_>>()?);
        }
        if has & 8 != 0 {
            text(bytes)?.clone_into(&mut it.signature);
        }
        for place in 0..number(bytes)? {
            let name = if place > 0 { text(bytes)?.into() } else { Arc::clone(&it.name) };
            let dtype = *DType::ALL.iter().find(|dtype| **dtype as u8 == bytes.first().copied().unwrap_or(u8::MAX))?;
            byte(bytes)?;
            let dimensions = number(bytes)?;
            let shape = (0..dimensions).map(|_| number(bytes)).collect::<Option<Vec<usize>>>()?;
            let size = shape.iter().try_fold(dtype.size(), |all, it| all.checked_mul(*it))?;
            isize::try_from(size).ok()?;
            it.parts.push(Part { name, dtype, shape });
        }
        Some(it)
    }

    /// Whether another rank's request is for the same operation. In an all-gather dimension 0 may
    /// differ.
    fn agrees(&self, other: &Self) -> bool {
        let same = |one: &Part, two: &Part| {
            let free = matches!(self.action, Action::AllGather | Action::AllToAll);
            let shapes = if free {
                one.shape.len() == two.shape.len() && one.shape.get(1..) == two.shape.get(1..)
            } else {
                one.shape == two.shape
            };
            one.name == two.name && one.dtype == two.dtype && shapes
        };
        self.action == other.action
            && self.reduction == other.reduction
            && (self.prescale.to_bits(), self.postscale.to_bits())
                == (other.prescale.to_bits(), other.postscale.to_bits())
            && (self.action != Action::Broadcast || self.root == other.root)
            && self.signature == other.signature
            && self.parts.len() == other.parts.len()
            && self.parts.iter().zip(&other.parts).all(|(one, two)| same(one, two))
    }
}

/// Why requests of one name, by rank of the set, are not for the same operation; `None` if they
/// are. `members`: their ranks in the world.
pub(super) fn disagreement(requests: &[Option<Arc<Request>>], members: &[usize]) -> Option<String> {
    let mut there = requests.iter().flatten();
    let first = there.next()?;
    if there.all(|other| first.agrees(other)) {
        return None;
    }
    let said = |describe: &dyn Fn(&Request) -> String| {
        let mut said: BTreeMap<String, Vec<usize>> = BTreeMap::new();
        for (request, member) in requests.iter().zip(members) {
            if let Some(request) = request {
                said.entry(describe(request)).or_default().push(*member);
            }
        }
        let mut said: Vec<_> = said.into_iter().collect();
        said.sort_by_key(|(_, who)| who[0]);
        said
    };
    let mut list = said(&|request| request.to_string());
    if list.len() == 1 {
        // Groups whose first tensors are alike: the first that is not.
        let place = (0..first.parts.len()).find(|place| said(&|request| request.part(*place)).len() > 1)?;
        list = said(&|request| request.part(place));
    }
    let list: Vec<_> = list.into_iter().map(|(text, who)| format!("{}: {text}", ranks(&who))).collect();
    Some(format!(
        "the ranks mean different operations by the name {:?}: {}; submit the same on all ranks",
        &*first.name,
        list.join("; ")
    ))
}

impl Request {
    fn part(&self, place: usize) -> String {
        self.parts.get(place).map_or_else(
            || "no such tensor".to_owned(),
            |part| format!("{:?} of {} {:?}", &*part.name, part.dtype, part.shape),
        )
    }
}

impl fmt::Display for Request {
    /// What the ranks must agree on, for messages.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.action.name())?;
        match self.action {
            Action::AllReduce | Action::ReduceScatter => write!(f, " ({})", self.reduction.name())?,
            Action::Broadcast => write!(f, " (root {})", self.root)?,
            _ => {}
        }
        if let [part] = &*self.parts {
            write!(f, " of {} {:?}", part.dtype, part.shape)?;
        } else if !self.parts.is_empty() {
            write!(f, " of {} tensors, {} in all", self.parts.len(), Bytes(self.bytes()))?;
        }
        if self.prescale != 1.0 || self.postscale != 1.0 {
            write!(f, " with factors {} and {}", self.prescale, self.postscale)?;
        }
        if !self.signature.is_empty() {
            write!(f, " ({})", self.signature)?;
        }
        Ok(())
    }
}

struct Bytes(usize);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.0)
    }
}

/// Appends a number: seven bits a byte, the lowest first.
pub(super) fn put(out: &mut Vec<u8>, mut number: usize) {
    while number >= 0x80 {
        out.push((number & 0x7f) as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// Takes a number off the front.
pub(super) fn number(bytes: &mut &[u8]) -> Option<usize> {
    let mut all = 0_usize;
    for shift in (0..usize::BITS).step_by(7) {
        let next = byte(bytes)?;
        all |= usize::from(next & 0x7f).checked_shl(shift)?;
        if next & 0x80 == 0 {
            return Some(all);
        }
    }
    None
}

/// Takes bytes off the front.
pub(super) fn take<'a>(bytes: &mut &'a [u8], count: usize) -> Option<&'a [u8]> {
    let (head, rest) = bytes.split_at_checked(count)?;
    *bytes = rest;
    Some(head)
}

/// Takes a byte off the front.
pub(super) fn byte(bytes: &mut &[u8]) -> Option<u8> {
    take(bytes, 1).map(|it| it[0])
}

pub(super) fn put_text(out: &mut Vec<u8>, text: &str) {
    put(out, text.len());
    out.extend(text.as_bytes());
}

pub(super) fn text<'a>(bytes: &mut &'a [u8]) -> Option<&'a str> {
    let count = number(bytes)?;
    std::str::from_utf8(take(bytes, count)?).ok()
}
