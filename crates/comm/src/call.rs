//! One rank's part in one operation.

use std::{fmt, ptr, sync::Arc, time::Duration};

use crate::{DType, Error, Kind, ReduceOp};

/// One rank's part in one operation: what is done, and on which memory. Lengths are counted in
/// elements.
///
/// | kind | `send` | `recv` | `len` |
/// |---|---|---|---|
/// | all-reduce, reduce | the vector | the result (reduce: root only) | of the vector |
/// | reduce-scatter | all pieces | own piece of the result | of own piece |
/// | all-gather | own piece | all pieces | of own piece |
/// | broadcast | the vector (root) | the vector (others) | of the vector |
/// | gather | own piece | all pieces (root only) | of a piece |
/// | scatter | all pieces (root only) | own piece | of a piece |
/// | all-to-all | a piece for each | a piece from each | of a piece |
/// | send, recv | the message | the message | of the message |
///
/// In place means: `send == recv` for all-reduce, reduce and broadcast; `send` is own piece within
/// `recv` for all-gather and gather; `recv` is own piece within `send` for reduce-scatter and
/// scatter. Otherwise the two must not overlap. Addresses need no alignment.
#[derive(Debug, Clone)]
pub struct Call {
    /// What is done.
    pub kind: Kind,
    /// Type of the elements.
    pub dtype: DType,
    /// What this rank gives; may be null where it gives nothing.
    pub send: *const u8,
    /// What this rank gets; may be null where it gets nothing.
    pub recv: *mut u8,
    /// Elements, as the table says.
    pub len: usize,
    /// Where pieces are unequal. All-gather, reduce-scatter: elements of each rank's piece, the
    /// same on all ranks. All-to-all: elements for each rank, then elements from each rank; `len`
    /// means nothing then.
    pub counts: Option<Arc<[usize]>>,
    /// How long it may take; the group's own limit if there is none.
    pub deadline: Option<Duration>,
}

// SAFETY: a call is a description; whoever hands it to `ProcessGroup::run` or `start` promises that
// the memory stays valid and untouched.
#[expect(unsafe_code, reason = "a call goes to the thread that progresses it, with its addresses")]
unsafe impl Send for Call {}

impl Call {
    /// A barrier.
    pub const fn barrier() -> Self {
        Self::new(Kind::Barrier, DType::U8, ptr::null(), ptr::null_mut(), 0)
    }

    /// A call with equal pieces and the group's own deadline.
    pub const fn new(kind: Kind, dtype: DType, send: *const u8, recv: *mut u8, len: usize) -> Self {
        Self { kind, dtype, send, recv, len, counts: None, deadline: None }
    }

    /// Elements of the r-th piece (of the vector for kinds without pieces).
    pub fn piece(&self, r: usize) -> usize {
        match (&self.counts, self.kind) {
            (Some(counts), Kind::AllGather | Kind::ReduceScatter(_) | Kind::AllToAll) => counts[r],
            _ => self.len,
        }
    }

    /// Where the r-th piece begins, in elements.
    pub fn offset(&self, r: usize) -> usize {
        match &self.counts {
            Some(counts) => counts[..r].iter().sum(),
            None => r * self.len,
        }
    }

    /// Elements of the piece that comes from rank `from` of `size` in an all-to-all.
    pub(crate) fn piece_from(&self, from: usize, size: usize) -> usize {
        self.counts.as_ref().map_or(self.len, |counts| counts[size + from])
    }

    /// Where in `recv` the piece from rank `from` of `size` begins in an all-to-all, in elements.
    pub(crate) fn offset_from(&self, from: usize, size: usize) -> usize {
        self.counts.as_ref().map_or(from * self.len, |counts| counts[size..size + from].iter().sum())
    }

    /// Bytes of `send` and of `recv` that rank `rank` of `size` touches.
    pub fn extent(&self, rank: usize, size: usize) -> (usize, usize) {
        let one = self.len * self.dtype.size();
        let is_root = self.kind.root() == Some(rank);
        let all = || match &self.counts {
            Some(counts) => counts[..size].iter().sum::<usize>() * self.dtype.size(),
            None => one * size,
        };
        match self.kind {
            Kind::AllReduce(_) => (one, one),
            Kind::Reduce { .. } => (one, if is_root { one } else { 0 }),
            Kind::ReduceScatter(_) => (all(), one),
            Kind::AllGather => (one, all()),
            Kind::Broadcast { .. } => {
                if is_root {
                    (one, 0)
                } else {
                    (0, one)
                }
            }
            Kind::Gather { .. } => (one, if is_root { all() } else { 0 }),
            Kind::Scatter { .. } => (if is_root { all() } else { 0 }, one),
            Kind::AllToAll => match &self.counts {
                Some(counts) => (all(), counts[size..].iter().sum::<usize>() * self.dtype.size()),
                None => (all(), all()),
            },
            Kind::Send { .. } => (one, 0),
            Kind::Recv { .. } | Kind::RecvAny { .. } => (0, one),
            Kind::Barrier => (0, 0),
        }
    }

    /// Sender and receiver, if this is a message of rank `rank` with one that is named.
    pub(crate) const fn between(&self, rank: usize) -> Option<(usize, usize)> {
        match self.kind {
            Kind::Send { to, .. } => Some((rank, to)),
            Kind::Recv { from, .. } => Some((from, rank)),
            _ => None,
        }
    }

    /// Whether this may end on a rank before that rank has heard of every other.
    pub(crate) const fn can_end_unheard(&self) -> bool {
        matches!(
            self.kind,
            Kind::Broadcast { .. }
                | Kind::Gather { .. }
                | Kind::Scatter { .. }
                | Kind::Reduce { .. }
                | Kind::Send { .. }
        )
    }

    /// What every rank must agree on, as 64 bits: kind, operation, root, element type, lengths, and
    /// the group's epoch. The two sides of a message agree on its type, length and tag.
    pub fn signature(&self, epoch: u64) -> u64 {
        let (code, extra) = match self.kind {
            Kind::AllReduce(op) => (1 + op as u64, 0),
            Kind::ReduceScatter(op) => (6 + op as u64, 0),
            Kind::Reduce { op, root } => (11 + op as u64, root as u64),
            Kind::Broadcast { root } => (16, root as u64),
            Kind::Gather { root } => (17, root as u64),
            Kind::Scatter { root } => (18, root as u64),
            Kind::AllGather => (19, 0),
            Kind::AllToAll => (20, 0),
            Kind::Barrier => (21, 0),
            Kind::Send { tag, .. } | Kind::Recv { tag, .. } | Kind::RecvAny { tag } => (22, u64::from(tag)),
        };
        let mut hash = mix(code | (self.dtype as u64) << 8 | epoch << 16, extra);
        match (&self.counts, self.kind) {
            (None, _) => hash = mix(hash, self.len as u64),
            // Each pair has its own length; every rank knows only its own.
            (Some(_), Kind::AllToAll) => hash = mix(hash, u64::MAX),
            (Some(counts), _) => counts.iter().for_each(|count| hash = mix(hash, *count as u64)),
        }
        hash
    }

    /// Refuses what cannot be an operation of rank `rank` in a group of `size`.
    ///
    /// # Errors
    /// [`Error::Config`]: ranks, counts, lengths or addresses that cannot be, an average of whole
    /// numbers, or memory that overlaps otherwise than in place.
    pub fn check(&self, rank: usize, size: usize) -> Result<(), Error> {
        let refuse = |why: String| Err(Error::Config { problem: format!("{self}: {why}") });
        if let Some(other) = self.kind.root().or(self.kind.peer()) {
            if other >= size {
                return refuse(format!("rank {other} is not in this group; its ranks are 0 to {}", size - 1));
            }
            if self.kind.peer() == Some(rank) {
                return refuse(
                    "a rank cannot send to itself or receive from itself; copy the memory instead".to_owned(),
                );
            }
        }
        if matches!(self.kind, Kind::RecvAny { .. }) && size == 1 {
            return refuse("there is no other rank in this group".to_owned());
        }
        if self.kind.op() == Some(ReduceOp::Avg) && !self.dtype.is_float() {
            return refuse(format!("an average of {} is not defined; use sum and divide", self.dtype));
        }
        if let Some(counts) = &self.counts {
            let wanted = match self.kind {
                Kind::AllGather | Kind::ReduceScatter(_) => size,
                Kind::AllToAll => 2 * size,
                _ => return refuse("takes no counts; all its pieces are equal".to_owned()),
            };
            if counts.len() != wanted {
                return refuse(format!("{} counts where {wanted} are needed for {size} ranks", counts.len()));
            }
            if !matches!(self.kind, Kind::AllToAll) && counts[rank] != self.len {
                return refuse(format!("this rank's length is {}, but its count {}", self.len, counts[rank]));
            }
        }
        let elements = match &self.counts {
            Some(counts) => counts.iter().try_fold(0_usize, |sum, count| sum.checked_add(*count)),
            None => self.len.checked_mul(size),
        };
        if elements
            .and_then(|elements| elements.checked_mul(self.dtype.size()))
            .is_none_or(|bytes| isize::try_from(bytes).is_err())
        {
            return refuse("more bytes than an address space has".to_owned());
        }
        let (gives, gets) = self.extent(rank, size);
        if (gives > 0 && self.send.is_null()) || (gets > 0 && self.recv.is_null()) {
            return refuse(format!("needs {gives} bytes to send and {gets} to receive, and one address is null"));
        }
        self.check_overlap(rank, gives, gets).or_else(refuse)
    }

    /// Memory to send and memory to receive are apart, or exactly in place.
    fn check_overlap(&self, rank: usize, gives: usize, gets: usize) -> Result<(), String> {
        let (send, recv) = (self.send.addr(), self.recv.addr());
        if gives == 0 || gets == 0 || send + gives <= recv || recv + gets <= send {
            return Ok(());
        }
        let own = self.offset(rank) * self.dtype.size();
        let in_place = match self.kind {
            Kind::AllGather | Kind::Gather { .. } => send == recv + own,
            Kind::ReduceScatter(_) | Kind::Scatter { .. } => recv == send + own,
            Kind::AllToAll => false,
            _ => send == recv,
        };
        if in_place {
            Ok(())
        } else {
            Err("memory to send and memory to receive overlap, and not as in place means it".to_owned())
        }
    }
}

/// Mixes a word into a hash (the finalizer of MurmurHash3 on a sum with the golden ratio).
const fn mix(hash: u64, word: u64) -> u64 {
    let mut x = hash.rotate_left(23).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ word;
    x = (x ^ (x >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    x ^ (x >> 33)
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if matches!(self.kind, Kind::Barrier) {
            return f.write_str("barrier");
        }
        match &self.counts {
            Some(counts) => write!(f, "{} of {counts:?} {}", self.kind, self.dtype),
            None => write!(f, "{} of {} {}", self.kind, self.len, self.dtype),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(kind: Kind, len: usize) -> Call {
        Call::new(kind, DType::F32, ptr::without_provenance(4096), ptr::without_provenance_mut(1 << 20), len)
    }

    #[test]
    fn signatures_differ_where_ranks_must_agree() {
        let base = call(Kind::AllReduce(ReduceOp::Sum), 10);
        let mut others = vec![
            call(Kind::AllReduce(ReduceOp::Max), 10),
            call(Kind::AllReduce(ReduceOp::Sum), 11),
            call(Kind::Barrier, 10),
        ];
        others.push(Call { dtype: DType::I32, ..base.clone() });
        for other in &others {
            assert_ne!(base.signature(0), other.signature(0), "{base} and {other}");
        }
        assert_ne!(base.signature(0), base.signature(1), "epochs");
        let (send, recv) = (call(Kind::Send { to: 1, tag: 3 }, 5), call(Kind::Recv { from: 0, tag: 3 }, 5));
        assert_eq!(send.signature(0), recv.signature(0), "two sides of one message");
    }

    #[test]
    fn impossible_calls_are_refused() {
        let refused = |call: &Call| call.check(0, 4).expect_err("refused").to_string();
        assert!(refused(&call(Kind::Broadcast { root: 4 }, 1)).contains("rank 4 is not in this group"));
        assert!(refused(&call(Kind::Send { to: 0, tag: 0 }, 1)).contains("to itself"));
        assert!(
            call(Kind::RecvAny { tag: 0 }, 1).check(0, 1).expect_err("refused").to_string().contains("no other rank")
        );
        assert!(
            refused(&Call { dtype: DType::I8, ..call(Kind::AllReduce(ReduceOp::Avg), 1) }).contains("average of i8")
        );
        assert!(
            refused(&Call { counts: Some([1, 2].into()), ..call(Kind::AllGather, 1) }).contains("2 counts where 4")
        );
        assert!(
            refused(&Call { counts: Some([1, 2, 3, 4].into()), ..call(Kind::AllGather, 2) })
                .contains("length is 2, but its count 1")
        );
        assert!(refused(&call(Kind::AllReduce(ReduceOp::Sum), usize::MAX / 2)).contains("address space"));
        assert!(refused(&Call { send: ptr::null(), ..call(Kind::AllReduce(ReduceOp::Sum), 1) }).contains("null"));
        assert!(
            refused(&Call { recv: ptr::without_provenance_mut(4100), ..call(Kind::AllReduce(ReduceOp::Sum), 9) })
                .contains("overlap")
        );
        assert!(call(Kind::AllReduce(ReduceOp::Sum), 9).check(0, 4).is_ok());
    }
}
