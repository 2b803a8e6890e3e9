//! Executes the operations that are ready, in the same order on each rank.

#![expect(unsafe_code, reason = "tensors come as addresses")]

use std::{
    collections::HashMap,
    ptr,
    sync::{Arc, PoisonError},
};

use super::{
    arithmetic::{self, Factor},
    error::Failure,
    handle::Outcome,
    membership::Membership,
    negotiate::Ready,
    reduce::{self, Piece, run},
    request::{Action, Part, Reduction, Request},
    submission::{Completed, Submission},
    timeline::label,
};
use crate::{Call, DType, Kind, Memory, ProcessGroup};

/// Whose operations are executed, by which group, and what takes those that are done.
pub(super) struct Site<'a> {
    pub(super) set: &'a Membership,
    pub(super) group: &'a dyn ProcessGroup,
    pub(super) finish: &'a dyn Fn(Vec<Completed>),
}

/// What is kept between cycles.
#[derive(Default)]
pub(super) struct Pending {
    /// This rank's announced operations that are not done.
    pub(super) mine: HashMap<Arc<str>, Submission>,
    /// The fusion buffer.
    pub(super) fusion: Option<Memory>,
}

/// What tensors must have in common to be fused: type, reduction, and the bits of both factors.
type Key = (DType, Reduction, u64, u64);

/// Operations whose tensors are fused.
struct Batch {
    key: Key,
    pieces: Vec<Piece>,
    members: Vec<(Arc<str>, Outcome)>,
}

/// Data that is small enough to travel with the announcement, multiplied by the factor before the
/// reduction.
pub(super) fn inline_data(set: &Membership, submission: &Submission, most: usize) -> Option<Vec<u8>> {
    let request = &submission.request;
    let gives = match request.action {
        Action::AllReduce | Action::AllGather => true,
        Action::Broadcast => request.root == set.members[set.rank],
        _ => false,
    };
    let bytes = request.bytes();
    if !gives || bytes > most || set.members.len() == 1 {
        return None;
    }
    let mut data = vec![0; bytes];
    let mut at = 0;
    for (part, buffer) in request.parts.iter().zip(&submission.buffers) {
        let factor = Factor::of(if request.action == Action::AllReduce { request.prescale } else { 1.0 });
        // SAFETY: the submitter promised the tensor; `data` has room for all.
        unsafe { arithmetic::scale(part.dtype, data[at..].as_mut_ptr(), buffer.send, part.len(), factor) };
        at += part.bytes();
    }
    Some(data)
}

/// Executes all of these.
pub(super) fn perform(on: &Site<'_>, pending: &mut Pending, ready: Vec<Ready>) -> Result<(), Failure> {
    let mut sorted = Sorted::default();
    let mut failed = None;
    for it in ready {
        if on.set.timeline.is_active()
            && let Some(request) = it.any()
        {
            on.set.timeline.end(
                &label(request.action.name(), &it.name),
                &format!("NEGOTIATE_{}", request.action.name().to_uppercase()),
            );
        }
        if failed.is_none() {
            failed = sort(on.set, pending, it, &mut sorted).err();
        }
    }
    let Sorted { over, batches, others, .. } = sorted;
    (on.finish)(over);
    failed.map_or(Ok(()), Err)?;
    for batch in batches {
        all_reduce(on, pending, batch)?;
    }
    for it in others {
        one(on, pending, &it)?;
    }
    Ok(())
}

/// A cycle's operations by how they are done.
#[derive(Default)]
struct Sorted {
    /// Completed at once: without any, or any further, communication.
    over: Vec<Completed>,
    /// Fused all-reduces, and the batch of each key.
    batches: Vec<Batch>,
    by_key: HashMap<Key, usize>,
    /// Operations that are done by themselves, after the batches.
    others: Vec<Ready>,
}

/// Decides how an operation is done, and completes it if that needs no further communication.
fn sort(set: &Membership, pending: &mut Pending, it: Ready, sorted: &mut Sorted) -> Result<(), Failure> {
    let at_once = it.refused.is_some() || it.joined.is_some() || is_inline(set, &it);
    if at_once {
        let Some(mine) = pending.mine.get(&it.name) else { return Ok(()) };
        let result = if let Some(problem) = &it.refused {
            let tensors = mine.request.names().map(ToString::to_string).collect();
            Err(Failure::Mismatch { tensors, problem: problem.clone() })
        } else if let Some(last) = it.joined {
            Ok(Outcome { last_joined: Some(set.members[last]), ..Outcome::default() })
        } else {
            let outcome = result_of_inline(set, &it, mine)?;
            mark(set, &mine.request, &["QUEUE"]);
            Ok(outcome)
        };
        sorted.over.extend(pending.mine.remove(&it.name).map(|mine| (mine, result)));
        return Ok(());
    }
    match it.any().filter(|it| it.action == Action::AllReduce && it.reduction != Reduction::Adasum).cloned() {
        Some(request) => gather_batches(pending, &it, &request, &mut sorted.batches, &mut sorted.by_key),
        None => {
            sorted.others.push(it);
            Ok(())
        }
    }
}

/// Adds an all-reduce to the batches of its types. An operation of several types completes with the
/// last of its batches.
fn gather_batches(
    pending: &Pending,
    it: &Ready,
    request: &Request,
    batches: &mut Vec<Batch>,
    by_key: &mut HashMap<Key, usize>,
) -> Result<(), Failure> {
    let mine = pending.mine.get(&it.name);
    let mut outcome = Outcome::default();
    let mut last = 0;
    for (place, part) in request.parts.iter().enumerate() {
        let key = (part.dtype, request.reduction, request.prescale.to_bits(), request.postscale.to_bits());
        let batch = *by_key.entry(key).or_insert_with(|| {
            batches.push(Batch { key, pieces: Vec::new(), members: Vec::new() });
            batches.len() - 1
        });
        last = last.max(batch);
        let (send, recv) = match mine {
            Some(mine) => (mine.buffers[place].send, target(mine, place, &part.shape, part, &mut outcome)?),
            None => (ptr::null(), ptr::null_mut()),
        };
        batches[batch].pieces.push(Piece { send, recv, len: part.len() });
    }
    if let Some(batch) = batches.get_mut(last) {
        batch.members.push((Arc::clone(&it.name), outcome));
    }
    Ok(())
}

/// The address that receives a tensor of this shape: the caller's, or memory that the engine
/// allocates.
fn target(
    mine: &Submission,
    place: usize,
    shape: &[usize],
    part: &Part,
    outcome: &mut Outcome,
) -> Result<*mut u8, Failure> {
    let recv = mine.buffers.get(place).map_or(ptr::null_mut(), |it| it.recv);
    let own = matches!(mine.request.action, Action::AllGather | Action::AllToAll) || recv.is_null();
    if !own {
        return Ok(recv);
    }
    let bytes = shape.iter().product::<usize>() * part.dtype.size();
    let mut memory = Memory::private(bytes.max(1))?;
    let recv = memory.as_mut_ptr();
    outcome.outputs.resize(mine.request.parts.len(), None);
    outcome.outputs[place] = Some((Arc::new(memory), shape.to_vec()));
    Ok(recv)
}

/// Whether all data that the operation needs came with the announcements.
fn is_inline(set: &Membership, it: &Ready) -> bool {
    let Some(request) = it.any() else { return false };
    match request.action {
        Action::AllReduce | Action::AllGather => {
            it.requests.iter().zip(&it.data).all(|(request, data)| request.is_none() || data.is_some())
        }
        Action::Broadcast => {
            set.members.iter().position(|it| *it == request.root).is_some_and(|root| it.data[root].is_some())
        }
        _ => false,
    }
}

/// Computes an operation's result from the data that came with the announcements.
fn result_of_inline(set: &Membership, it: &Ready, mine: &Submission) -> Result<Outcome, Failure> {
    let mut outcome = Outcome::default();
    let request = &mine.request;
    let size = it.data.len();
    let root = set.members.iter().position(|it| *it == request.root).unwrap_or(0);
    let mut starts = vec![0; size];
    for (place, part) in request.parts.iter().enumerate() {
        let bytes = part.bytes();
        match request.action {
            Action::AllReduce => {
                let recv = target(mine, place, &part.shape, part, &mut outcome)?;
                let at = starts[0];
                let data: Vec<_> = it.data.iter().map(|data| data.as_deref().map(|data| data[at..].as_ptr())).collect();
                // SAFETY: every rank's data has all tensors of the request; the caller promised the
                // target.
                unsafe { reduce::inline_data(request, part, recv, &data) };
                starts.fill(at + bytes);
            }
            Action::Broadcast => {
                if set.rank != root || mine.buffers[place].send != mine.buffers[place].recv.cast_const() {
                    let recv = target(mine, place, &part.shape, part, &mut outcome)?;
                    let data = it.data[root].as_deref().unwrap_or_default();
                    // SAFETY: as above.
                    unsafe { recv.copy_from_nonoverlapping(data[starts[0]..][..bytes].as_ptr(), bytes) };
                }
                starts[0] += bytes;
            }
            _ => {
                let rows = it
                    .requests
                    .iter()
                    .flatten()
                    .map(|other| other.parts[place].shape.first().copied().unwrap_or(1))
                    .sum();
                let recv = target(mine, place, &with_rows(part, rows), part, &mut outcome)?;
                let mut at = 0;
                for (rank, other) in it.requests.iter().enumerate() {
                    let (Some(other), Some(data)) = (other, &it.data[rank]) else { continue };
                    let bytes = other.parts[place].bytes();
                    // SAFETY: the target has room for all ranks' rows.
                    unsafe { recv.add(at).copy_from_nonoverlapping(data[starts[rank]..][..bytes].as_ptr(), bytes) };
                    starts[rank] += bytes;
                    at += bytes;
                }
            }
        }
    }
    Ok(outcome)
}

/// The tensor's shape with another dimension 0.
fn with_rows(part: &Part, rows: usize) -> Vec<usize> {
    let mut shape = part.shape.clone();
    if let Some(first) = shape.first_mut() {
        *first = rows;
    }
    shape
}

/// Reduces a batch and completes its operations.
fn all_reduce(on: &Site<'_>, pending: &mut Pending, batch: Batch) -> Result<(), Failure> {
    let (dtype, reduction, before, after) = batch.key;
    let scaled =
        reduce::ScaledReduction::new(dtype, reduction, f64::from_bits(before), f64::from_bits(after), on.group.size());
    let labels: Vec<_> = if on.set.timeline.is_active() {
        batch.members.iter().map(|(name, _)| label("allreduce", name)).collect()
    } else {
        Vec::new()
    };
    labels.iter().for_each(|it| on.set.timeline.begin(it, "ALLREDUCE"));
    let phase = |name: &str, begins: bool| {
        for it in &labels {
            if begins { on.set.timeline.begin(it, name) } else { on.set.timeline.end(it, name) }
        }
    };
    // SAFETY: the submitters promised the tensors until they are done.
    unsafe { reduce::all(&scaled, on.group, &on.set.settings, &mut pending.fusion, &batch.pieces, &phase)? };
    labels.iter().for_each(|it| on.set.timeline.end(it, "ALLREDUCE"));
    let over = batch
        .members
        .into_iter()
        .filter_map(|(name, outcome)| pending.mine.remove(&name).map(|mine| (mine, Ok(outcome))));
    (on.finish)(over.collect());
    Ok(())
}

/// Writes an operation that took no time, with its phases, to the timeline.
fn mark(set: &Membership, request: &Request, phases: &[&str]) {
    if set.timeline.is_active() {
        let (name, label) = (request.action.name().to_uppercase(), label(request.action.name(), &request.name));
        set.timeline.begin(&label, &name);
        for phase in phases.iter().copied().chain([&*format!("SHOAL_{name}")]) {
            set.timeline.begin(&label, phase);
            set.timeline.end(&label, phase);
        }
        set.timeline.end(&label, &name);
    }
}

/// Executes an operation that is not fused.
fn one(on: &Site<'_>, pending: &mut Pending, it: &Ready) -> Result<(), Failure> {
    let Some(request) = it.any() else { return Ok(()) };
    let Some(mut mine) = pending.mine.remove(&it.name) else { return beside_joined(on, it, request) };
    let label = on.set.timeline.is_active().then(|| label(request.action.name(), &it.name));
    let name = format!("SHOAL_{}", request.action.name().to_uppercase());
    if let Some(label) = &label {
        on.set.timeline.begin(label, &name[6..]);
        on.set.timeline.begin(label, &name);
    }
    let result = if mine.request.action == Action::External {
        let callback = mine.callback.take();
        let failed = callback.and_then(|callback| callback().err());
        Ok(match failed {
            None => Ok(Outcome::default()),
            Some(problem) => Err(Failure::External { tensor: it.name.to_string(), problem }),
        })
    } else {
        transfer(on, it, &mine).map(Ok)
    };
    if let Some(label) = &label {
        on.set.timeline.end(label, &name);
        on.set.timeline.end(label, &name[6..]);
    }
    match result {
        Ok(result) => (on.finish)(vec![(mine, result)]),
        Err(failure) => {
            // It fails with all other outstanding operations.
            pending.mine.insert(Arc::clone(&it.name), mine);
            return Err(failure);
        }
    }
    Ok(())
}

/// A joined rank's part in an operation of the others.
fn beside_joined(on: &Site<'_>, it: &Ready, request: &Request) -> Result<(), Failure> {
    match request.action {
        Action::External => {
            let then = on.set.on_joined.lock().unwrap_or_else(PoisonError::into_inner).clone();
            if let Some(then) = then {
                then(&it.name, &request.signature)
                    .map_err(|problem| Failure::config(format!("beside joined ranks, {:?}: {problem}", &*it.name)))?;
            }
            Ok(())
        }
        Action::AllReduce => {
            for part in &request.parts {
                let zeros = vec![0_u8; part.bytes()];
                // SAFETY: the zeros have the part's length.
                unsafe { reduce::adaptive(on.group, request, part, zeros.as_ptr(), ptr::null_mut(), &it.requests)? };
            }
            Ok(())
        }
        _ => Ok(()),
    }
}

/// Runs the collective of one operation.
fn transfer(on: &Site<'_>, it: &Ready, mine: &Submission) -> Result<Outcome, Failure> {
    let mut outcome = Outcome::default();
    let request = &mine.request;
    let (rank, size) = (on.group.rank(), on.group.size());
    for (place, part) in request.parts.iter().enumerate() {
        let (send, row) = (mine.buffers[place].send, part.row());
        let others = || it.requests.iter().flatten().map(|other| &other.parts[place]);
        match request.action {
            Action::AllReduce => {
                let recv = target(mine, place, &part.shape, part, &mut outcome)?;
                // SAFETY: the submitter promised the tensors.
                unsafe { reduce::adaptive(on.group, request, part, send, recv, &it.requests)? };
            }
            Action::AllGather => {
                let rows: usize = others().map(|it| it.shape.first().copied().unwrap_or(1)).sum();
                let recv = target(mine, place, &with_rows(part, rows), part, &mut outcome)?;
                let counts: Arc<[usize]> = others().map(Part::len).collect();
                let call = Call::new(Kind::AllGather, part.dtype, send, recv, part.len());
                run(on.group, &Call { counts: Some(counts), ..call }, rows * row)?;
            }
            Action::Broadcast => {
                let root = on.set.members.iter().position(|it| *it == request.root).unwrap_or(0);
                let is_root = root == rank;
                let recv = if is_root && mine.buffers[place].recv.cast_const() == send {
                    ptr::null_mut()
                } else {
                    target(mine, place, &part.shape, part, &mut outcome)?
                };
                let call = if is_root {
                    Call::new(Kind::Broadcast { root }, part.dtype, send, ptr::null_mut(), part.len())
                } else {
                    Call::new(Kind::Broadcast { root }, part.dtype, ptr::null(), recv, part.len())
                };
                run(on.group, &call, part.len())?;
                if is_root && !recv.is_null() {
                    // SAFETY: the target has the shape of the tensor.
                    unsafe { arithmetic::scale(part.dtype, recv, send, part.len(), Factor::of(1.0)) };
                }
            }
            Action::AllToAll => {
                let splits = |other: &Request| {
                    other
                        .splits
                        .clone()
                        .unwrap_or_else(|| vec![other.parts[place].shape.first().copied().unwrap_or(0) / size; size])
                };
                let all: Vec<_> = it.requests.iter().flatten().map(|other| splits(other)).collect();
                let received: Vec<_> = all.iter().map(|splits| splits[rank]).collect();
                let rows = received.iter().sum();
                let recv = target(mine, place, &with_rows(part, rows), part, &mut outcome)?;
                let counts: Arc<[usize]> = all[rank].iter().chain(&received).map(|rows| rows * row).collect();
                let total = all.iter().flatten().sum::<usize>() * row;
                let call = Call::new(Kind::AllToAll, part.dtype, send, recv, 0);
                run(on.group, &Call { counts: Some(counts), ..call }, total)?;
                outcome.received = Some(received);
            }
            Action::ReduceScatter => {
                let all = part.shape.first().copied().unwrap_or(0);
                let rows = |rank: usize| all / size + usize::from(rank < all % size);
                let recv = target(mine, place, &with_rows(part, rows(rank)), part, &mut outcome)?;
                let counts: Arc<[usize]> = (0..size).map(|rank| rows(rank) * row).collect();
                // SAFETY: the submitter promised the tensors.
                unsafe { reduce::scatter(on.group, request, part, send, recv, counts)? };
            }
            Action::Barrier | Action::Join | Action::External => {}
        }
    }
    Ok(outcome)
}
