//! Reductions: small tensors in the fusion buffer, which all ranks of a host share, large ones in
//! place.

#![expect(unsafe_code, reason = "tensors come as addresses")]

use std::{ptr, sync::Arc};

use super::{
    Settings,
    arithmetic::{Factor, adasum, scale},
    error::Failure,
    request::{Part, Reduction, Request},
};
use crate::{
    Call, DType, Error, Kind, Memory, ProcessGroup, ReduceOp,
    reduce::{self, Stores},
};

/// Tensors of this many bytes or more are reduced in place.
const LARGE: usize = 256 << 10;
/// Most bytes that are fused: few enough to be in the CPU's cache still when they are unpacked.
const TOGETHER: usize = 512 << 10;

/// One tensor of a reduction: where it is sent from and received at.
pub(super) struct Piece {
    /// Null: zeros.
    pub(super) send: *const u8,
    /// Null: nowhere.
    pub(super) recv: *mut u8,
    pub(super) len: usize,
}

/// Type, operation, and the factors before and after it.
#[derive(Debug, Clone, Copy)]
pub(super) struct ScaledReduction {
    dtype: DType,
    op: ReduceOp,
    before: Factor,
    after: Factor,
}

impl ScaledReduction {
    pub(super) fn new(dtype: DType, reduction: Reduction, before: f64, after: f64, size: usize) -> Self {
        let divisor = if reduction == Reduction::Average && !dtype.is_float() { size } else { 1 };
        Self { dtype, op: reduction.op(dtype), before: Factor::of(before), after: Factor { divisor, times: after } }
    }
}

/// Called when a phase begins (`true`) or ends.
type Phase<'a> = dyn Fn(&str, bool) + 'a;

/// Reduces all these tensors.
///
/// # Safety
/// Addresses that are not null are valid for the pieces' elements. Memory to send from and to
/// receive at is the same or does not overlap.
pub(super) unsafe fn all(
    scaled: &ScaledReduction,
    group: &dyn ProcessGroup,
    settings: &Settings,
    fusion: &mut Option<Memory>,
    pieces: &[Piece],
    phase: &Phase<'_>,
) -> Result<(), Failure> {
    let element = scaled.dtype.size();
    let together = settings.fusion.min(TOGETHER);
    // Equal on all ranks, as lengths are.
    let is_large = |piece: &&Piece| piece.len * element >= LARGE.min(together.max(1));
    for piece in pieces.iter().filter(is_large) {
        phase("SHOAL_ALLREDUCE", true);
        // SAFETY: the caller's promise.
        unsafe { alone(scaled, group, piece)? };
        phase("SHOAL_ALLREDUCE", false);
    }
    let small: Vec<_> = pieces.iter().filter(|piece| !is_large(piece) && piece.len > 0).collect();
    if small.is_empty() {
        return Ok(());
    }
    if fusion.is_none() {
        *fusion = Some(group.alloc(TOGETHER)?);
    }
    let Some(memory) = fusion else { return Ok(()) };
    let base = memory.as_mut_ptr();
    let room = together / element;
    let mut held: Vec<(*mut u8, usize)> = Vec::new();
    let mut used = 0;
    let flush = |held: &mut Vec<(*mut u8, usize)>, used: &mut usize| -> Result<(), Failure> {
        phase("MEMCPY_IN_FUSION_BUFFER", false);
        phase("SHOAL_ALLREDUCE", true);
        run(group, &Call::new(Kind::AllReduce(scaled.op), scaled.dtype, base, base, *used), *used)?;
        phase("SHOAL_ALLREDUCE", false);
        phase("MEMCPY_OUT_FUSION_BUFFER", true);
        let mut at = 0;
        for (recv, len) in held.drain(..) {
            if !recv.is_null() {
                // SAFETY: the caller's promise; within the fusion buffer.
                unsafe { scale(scaled.dtype, recv, base.add(at * element), len, scaled.after) };
            }
            at += len;
        }
        *used = 0;
        phase("MEMCPY_OUT_FUSION_BUFFER", false);
        Ok(())
    };
    phase("MEMCPY_IN_FUSION_BUFFER", true);
    for piece in small {
        if used + piece.len > room {
            flush(&mut held, &mut used)?;
            phase("MEMCPY_IN_FUSION_BUFFER", true);
        }
        // SAFETY: it fits, as small pieces do; the caller's promise.
        unsafe {
            let to = base.add(used * element);
            if piece.send.is_null() {
                to.write_bytes(0, piece.len * element);
            } else {
                scale(scaled.dtype, to, piece.send, piece.len, scaled.before);
            }
        }
        held.push((piece.recv, piece.len));
        used += piece.len;
    }
    flush(&mut held, &mut used)
}

/// Reduces one tensor in place.
unsafe fn alone(scaled: &ScaledReduction, group: &dyn ProcessGroup, piece: &Piece) -> Result<(), Failure> {
    let &Piece { mut send, mut recv, len } = piece;
    let mut zeros = None;
    if send.is_null() {
        let zeros = zeros.insert(Memory::private(len * scaled.dtype.size())?);
        (send, recv) = (zeros.as_ptr(), zeros.as_mut_ptr());
    } else if !scaled.before.is_one() {
        // SAFETY: the caller's promise.
        unsafe { scale(scaled.dtype, recv, send, len, scaled.before) };
        send = recv;
    }
    run(group, &Call::new(Kind::AllReduce(scaled.op), scaled.dtype, send, recv, len), len)?;
    if zeros.is_none() && !scaled.after.is_one() {
        // SAFETY: the caller's promise.
        unsafe { scale(scaled.dtype, recv, recv, len, scaled.after) };
    }
    Ok(())
}

/// Reduces a tensor from all ranks' data (`None`: zeros), in the order of the ranks.
///
/// # Safety
/// All addresses are valid for the part's elements.
pub(super) unsafe fn inline_data(request: &Request, part: &Part, recv: *mut u8, data: &[Option<*const u8>]) {
    let (dtype, len) = (part.dtype, part.len());
    if request.reduction == Reduction::Adasum {
        // SAFETY: the caller's promise.
        return unsafe { adasum(dtype, recv, data, len, request.postscale) };
    }
    let scaled = ScaledReduction::new(dtype, request.reduction, 1.0, request.postscale, data.len());
    let zeros = if data.contains(&None) { vec![0_u8; part.bytes()] } else { Vec::new() };
    let sources: Vec<_> = data.iter().map(|data| data.unwrap_or(zeros.as_ptr())).collect();
    let reduction = reduce::Reduction { op: scaled.op, dtype, ranks: data.len() };
    // SAFETY: the caller's promise; the target is apart from the data, which came in messages.
    unsafe {
        reduce::reduce(&reduction, &[recv], &sources, len, Stores::Cached);
        if !scaled.after.is_one() {
            scale(dtype, recv, recv, len, scaled.after);
        }
    }
}

/// The adaptive sum of a tensor; `recv` may be null where the result is not wanted.
///
/// # Safety
/// Addresses that are not null are valid for the part's elements.
pub(super) unsafe fn adaptive(
    group: &dyn ProcessGroup,
    request: &Request,
    part: &Part,
    send: *const u8,
    recv: *mut u8,
    requests: &[Option<Arc<Request>>],
) -> Result<(), Failure> {
    let (dtype, len, bytes) = (part.dtype, part.len(), part.bytes());
    let mut all = Memory::private(bytes * group.size())?;
    let base = all.as_mut_ptr();
    // SAFETY: own piece of memory that was just allocated, and the caller's promise.
    unsafe {
        let mine = base.add(group.rank() * bytes);
        scale(dtype, mine, send, len, Factor::of(request.prescale));
        run(group, &Call::new(Kind::AllGather, dtype, mine, base, len), len)?;
        if !recv.is_null() {
            let there = |rank: usize| requests[rank].is_some().then(|| base.add(rank * bytes).cast_const());
            let sources: Vec<_> = (0..group.size()).map(there).collect();
            adasum(dtype, recv, &sources, len, request.postscale);
        }
    }
    Ok(())
}

/// Each rank gets its rows of the reduction; `counts`: elements of each.
///
/// # Safety
/// `send` is valid for the part's elements, `recv` for this rank's count.
pub(super) unsafe fn scatter(
    group: &dyn ProcessGroup,
    request: &Request,
    part: &Part,
    mut send: *const u8,
    recv: *mut u8,
    counts: Arc<[usize]>,
) -> Result<(), Failure> {
    let (dtype, own) = (part.dtype, counts[group.rank()]);
    let scaled = ScaledReduction::new(dtype, request.reduction, request.prescale, request.postscale, group.size());
    let mut prescaled = None;
    if !scaled.before.is_one() {
        let memory = prescaled.insert(Memory::private(part.bytes().max(1))?);
        // SAFETY: the caller's promise; the copy has the same length.
        unsafe { scale(dtype, memory.as_mut_ptr(), send, part.len(), scaled.before) };
        send = memory.as_ptr();
    }
    let call =
        Call::new(Kind::ReduceScatter(scaled.op), dtype, send, if own == 0 { ptr::null_mut() } else { recv }, own);
    run(group, &Call { counts: Some(counts), ..call }, part.len())?;
    if !scaled.after.is_one() {
        // SAFETY: the caller's promise.
        unsafe { scale(dtype, recv, recv, own, scaled.after) };
    }
    Ok(())
}

/// Runs a call, unless all ranks together have no `elements`.
pub(super) fn run(group: &dyn ProcessGroup, call: &Call, elements: usize) -> Result<(), Error> {
    if elements == 0 {
        return Ok(());
    }
    // SAFETY: the engine's calls have tensors that the submitter promised, or memory of its own.
    unsafe { group.run(call) }
}
