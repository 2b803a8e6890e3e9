//! Checks of a request by its rank alone, before it is submitted.

use std::collections::HashSet;

use super::{
    negotiate,
    request::{Action, Part, Reduction, Request},
    submission::Buffer,
};
use crate::DType;

/// Refuses requests that are invalid whatever the other ranks submit.
pub(super) fn check(request: &Request, buffers: &[Buffer], members: &[usize], rank: usize) -> Result<(), String> {
    let Request { action, reduction, parts, .. } = request;
    let size = members.len();
    if parts.len() != buffers.len() {
        return Err(format!("{} tensors and {} buffers", parts.len(), buffers.len()));
    }
    let moves = !matches!(action, Action::Barrier | Action::Join | Action::External);
    if moves == parts.is_empty() {
        return Err(if moves { "no tensors: give at least one".to_owned() } else { "takes no tensors".to_owned() });
    }
    if *action == Action::AllToAll && parts.len() > 1 {
        return Err("takes one tensor; submit each by itself".to_owned());
    }
    if *action == Action::Join && *request.name != *negotiate::JOIN {
        return Err(format!("a join has the name {:?}", negotiate::JOIN));
    }
    if *action != Action::Join
        && (*request.name == *negotiate::JOIN || parts.iter().any(|part| *part.name == *negotiate::JOIN))
    {
        return Err("the name is that of joins: choose another".to_owned());
    }
    if *action == Action::Broadcast && !members.contains(&request.root) {
        return Err(format!(
            "rank {} (of the world) is not in this process set of ranks {members:?}: choose a root from it",
            request.root
        ));
    }
    let mut names = HashSet::new();
    for (part, buffer) in parts.iter().zip(buffers) {
        if !names.insert(&part.name) {
            return Err(format!("two tensors of it are called {:?}: give each its own name", &*part.name));
        }
        check_part(*action, *reduction, part, size)?;
        let elements = part
            .shape
            .iter()
            .try_fold(part.dtype.size(), |all, it| all.checked_mul(*it))
            .filter(|it| isize::try_from(*it).is_ok());
        let bytes = elements.ok_or_else(|| format!("{:?} has more bytes than an address space", part.shape))?;
        // Only the root of a broadcast sends.
        if bytes > 0 && buffer.send.is_null() && *action != Action::Broadcast {
            return Err(format!("{:?} has {bytes} bytes, and its address is null", &*part.name));
        }
        let (send, recv) = (buffer.send.addr(), buffer.recv.addr());
        let received = match (action, part.shape.first()) {
            (Action::ReduceScatter, Some(rows)) => {
                part.row() * part.dtype.size() * (rows / size + usize::from(rank < rows % size))
            }
            _ => bytes,
        };
        if recv != 0 && send != 0 && send != recv && send < recv + received && recv < send + bytes {
            return Err(format!(
                "{:?}: memory to send and memory to receive overlap, and are not the same",
                &*part.name
            ));
        }
    }
    if let Some(splits) = &request.splits {
        let rows = parts.first().and_then(|it| it.shape.first().copied()).unwrap_or(0);
        if splits.len() != size {
            return Err(format!("{} splits for {size} ranks: give each rank's rows", splits.len()));
        }
        if splits.iter().try_fold(0_usize, |all, it| all.checked_add(*it)) != Some(rows) {
            return Err(format!("the splits {splits:?} do not add up to the tensor's {rows} rows"));
        }
    }
    if *action == Action::AllToAll && request.splits.is_none() && !parts[0].shape[0].is_multiple_of(size) {
        return Err(format!("{} rows cannot be shared equally among {size} ranks: give splits", parts[0].shape[0]));
    }
    Ok(())
}

fn check_part(action: Action, reduction: Reduction, part: &Part, size: usize) -> Result<(), String> {
    let name = &*part.name;
    if matches!(action, Action::AllGather | Action::AllToAll | Action::ReduceScatter) && part.shape.is_empty() {
        return Err(format!("{name:?} is a scalar, and dimension 0 is shared among ranks: give it a dimension"));
    }
    if !matches!(action, Action::AllReduce | Action::ReduceScatter) {
        return Ok(());
    }
    if reduction == Reduction::Average && part.dtype == DType::Bool {
        return Err(format!("{name:?}: an average of bool is not defined; use max or min"));
    }
    if reduction == Reduction::Adasum {
        if action == Action::ReduceScatter {
            return Err("adasum is for allreduce only".to_owned());
        }
        if !part.dtype.is_float() {
            return Err(format!("{name:?} is of {}: adasum is for floating point", part.dtype));
        }
        if !size.is_power_of_two() {
            return Err(format!("adasum needs a power of two of ranks, not {size}: use average"));
        }
    }
    Ok(())
}
