//! State from one layout to another: from any degrees of data, tensor and pipeline parallelism with
//! or without ZeRO's shards to any other, as copies of ranges of bytes between ranks. The ideas are
//! those of PyTorch's distributed checkpoints and of universal checkpoints (Lian et al., 2024):
//! both layouts are described by where each piece of a whole tensor lies, and what is common to two
//! pieces is a copy.

use std::{collections::BTreeMap, ops::Range};

use serde::{Deserialize, Serialize};

use crate::{
    error::Invalid,
    mesh::{Axis, Mesh},
    shard::{Flat, Tensor},
};

/// Where ranks keep the tensors of a model: one flat memory each, with the parts that are its own,
/// in the order of the tensors.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    /// The ranks.
    pub mesh: Mesh,
    /// Of each tensor, its pipeline stage.
    pub stages: Vec<usize>,
    /// Of each tensor, the dimension that tensor ranks share; `None`: each has all of it.
    pub splits: Vec<Option<usize>>,
    /// Ranks along the shard axis have a shard each of the flat memory, instead of all of it.
    pub sharded: bool,
    /// Tensors and shards begin at multiples of this many bytes.
    pub align: u64,
}

/// A part of a tensor in a rank's memory, in one piece in both.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Piece {
    /// Which tensor.
    pub tensor: usize,
    /// Where it begins in the whole tensor.
    pub from: u64,
    /// Where it begins in the rank's memory.
    pub at: u64,
    /// How long it is.
    pub bytes: u64,
}

/// Bytes from the memory of a rank of the old layout to that of a rank of the new one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Transfer {
    /// Old rank.
    pub from_rank: usize,
    /// Where in its memory.
    pub from_at: u64,
    /// New rank.
    pub to_rank: usize,
    /// Where in its memory.
    pub to_at: u64,
    /// How many.
    pub bytes: u64,
}

/// Who of the old ranks is there still.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Change {
    /// Old ranks that cannot be read any more.
    pub lost: Vec<usize>,
    /// Of each new rank, its number in the old layout, so that it keeps what it has; `None`: it is
    /// new. Ranks behind the list's end keep their numbers.
    pub was: Vec<Option<usize>>,
}

/// A piece that ranks have: how long it is, and where in whose memory.
type Held = (u64, Vec<(usize, u64)>);

/// A rank's memory before it is sharded.
struct Own {
    flat: Flat,
    /// Which tensors are in it.
    tensors: Vec<usize>,
    /// What of each, in the whole tensor.
    parts: Vec<Vec<Range<u64>>>,
}

impl Layout {
    /// How many bytes a rank keeps.
    ///
    /// # Errors
    /// Lists of other lengths than the tensors', a stage that does not exist, or a split that is
    /// none.
    pub fn bytes(&self, tensors: &[Tensor], rank: usize) -> Result<u64, Invalid> {
        let Own { flat, .. } = self.own(tensors, rank)?;
        let own = flat.shard(self.mesh.coordinates(rank)[Axis::Shard as usize] % flat.shards);
        Ok(own.end - own.start)
    }

    /// What a rank keeps, in the order of its memory.
    ///
    /// # Errors
    /// As [`Layout::bytes`].
    pub fn pieces(&self, tensors: &[Tensor], rank: usize) -> Result<Vec<Piece>, Invalid> {
        let Own { flat, tensors: own, parts } = self.own(tensors, rank)?;
        let shard = flat.shard(self.mesh.coordinates(rank)[Axis::Shard as usize] % flat.shards);
        let mut pieces: Vec<Piece> = Vec::new();
        for (number, range, mut at) in flat.within(shard) {
            // How far the runs before reach in the tensor's part.
            let mut behind = 0;
            for run in &parts[number] {
                let (begin, end) = (behind, behind + run.end - run.start);
                behind = end;
                let (from, to) = (range.start.max(begin), range.end.min(end));
                if from < to {
                    pieces.push(Piece { tensor: own[number], from: run.start + from - begin, at, bytes: to - from });
                    at += to - from;
                }
            }
        }
        Ok(pieces)
    }

    fn own(&self, tensors: &[Tensor], rank: usize) -> Result<Own, Invalid> {
        for (field, length) in [("stages", self.stages.len()), ("splits", self.splits.len())] {
            if length != tensors.len() {
                return Err(Invalid::new(field, format!("{length} for {} tensors", tensors.len())));
            }
        }
        let pipeline = self.mesh.degree(Axis::Pipeline);
        if let Some(wrong) = self.stages.iter().find(|stage| **stage >= pipeline) {
            return Err(
                Invalid::new("stages", format!("there is no stage {wrong} of {pipeline}")).nearest([pipeline - 1])
            );
        }
        if let Some(wrong) = tensors.iter().find(|tensor| !self.align.is_multiple_of(tensor.element.max(1))) {
            let problem = format!("{} would cut elements of {} bytes", self.align, wrong.element);
            return Err(Invalid::new("align", problem));
        }
        let at = self.mesh.coordinates(rank);
        let own: Vec<usize> =
            (0..tensors.len()).filter(|tensor| self.stages[*tensor] == at[Axis::Pipeline as usize]).collect();
        let part = |tensor: &usize| {
            tensors[*tensor].part(self.splits[*tensor], self.mesh.degree(Axis::Tensor), at[Axis::Tensor as usize])
        };
        let parts = own.iter().map(part).collect::<Result<Vec<_>, _>>()?;
        let sizes: Vec<u64> = parts.iter().map(|runs| runs.iter().map(|run| run.end - run.start).sum()).collect();
        let shards = if self.sharded { self.mesh.degree(Axis::Shard) } else { 1 };
        Ok(Own { flat: Flat::new(&sizes, self.align, shards)?, tensors: own, parts })
    }
}

/// The copies that make the new layout's memories of the old one's. Every byte of a tensor in the
/// new layout is written once; bytes that fill a shard up are not. Where several old ranks have a
/// byte, a rank takes its own, otherwise the ranks take turns.
///
/// # Errors
/// As [`Layout::bytes`], and if all ranks with some part of a tensor are lost.
pub fn reshard(tensors: &[Tensor], from: &Layout, to: &Layout, change: &Change) -> Result<Vec<Transfer>, Invalid> {
    // Pieces of the old layout by tensor and place; those of several ranks are the same or do not
    // touch, as their memories are cut in the same way.
    let mut sources: BTreeMap<(usize, u64), Held> = BTreeMap::new();
    for rank in (0..from.mesh.world()).filter(|rank| !change.lost.contains(rank)) {
        for piece in from.pieces(tensors, rank)? {
            sources
                .entry((piece.tensor, piece.from))
                .or_insert_with(|| (piece.bytes, Vec::new()))
                .1
                .push((rank, piece.at));
        }
    }
    let mut copies: Vec<Transfer> = Vec::new();
    for to_rank in 0..to.mesh.world() {
        let was = change.was.get(to_rank).copied().unwrap_or(Some(to_rank));
        for piece in to.pieces(tensors, to_rank)? {
            let (mut next, end) = (piece.from, piece.from + piece.bytes);
            while next < end {
                let source = sources.range(..=(piece.tensor, next)).next_back();
                let Some((&(_, begin), (bytes, holders))) =
                    source.filter(|((tensor, begin), (bytes, _))| *tensor == piece.tensor && begin + bytes > next)
                else {
                    let problem = format!("no rank that is left has byte {next} of tensor {}", piece.tensor);
                    return Err(Invalid::new("lost", problem));
                };
                let own = holders.iter().find(|(rank, _)| Some(*rank) == was);
                let (from_rank, at) = *own.unwrap_or(&holders[to_rank % holders.len()]);
                let upto = end.min(begin + bytes);
                let copy = Transfer {
                    from_rank,
                    from_at: at + next - begin,
                    to_rank,
                    to_at: piece.at + next - piece.from,
                    bytes: upto - next,
                };
                next = upto;
                match copies.last_mut() {
                    Some(last) if last.continues(&copy) => last.bytes += copy.bytes,
                    _ => copies.push(copy),
                }
            }
        }
    }
    Ok(copies)
}

impl Transfer {
    fn continues(&self, next: &Self) -> bool {
        (self.from_rank, self.to_rank) == (next.from_rank, next.to_rank)
            && (self.from_at + self.bytes, self.to_at + self.bytes) == (next.from_at, next.to_at)
    }
}

#[cfg(test)]
mod tests;
