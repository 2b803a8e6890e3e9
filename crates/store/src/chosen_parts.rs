//! Which of an upload's parts its object is made of, and where each lies in it.

use std::collections::BTreeMap;

use crate::{PartMeta, StoreError};

/// A part that the object has, and where.
pub(crate) type Placed<'a> = (u64, &'a PartMeta);

/// The chosen parts in their order, with the places that they have in the object.
pub(crate) fn placed<'a>(stored: &'a [PartMeta], chosen: &[(u32, String)]) -> Result<Vec<Placed<'a>>, StoreError> {
    let by_number: BTreeMap<u32, &PartMeta> = stored.iter().map(|part| (part.number, part)).collect();
    let (mut parts, mut at, mut last) = (Vec::with_capacity(chosen.len()), 0, 0);
    for (number, etag) in chosen {
        if *number <= last {
            return Err(StoreError::InvalidPartOrder(*number));
        }
        last = *number;
        let part =
            by_number.get(number).copied().filter(|part| part.etag == *etag).ok_or(StoreError::InvalidPart(*number))?;
        parts.push((at, part));
        at += part.size;
    }
    Ok(parts)
}

/// Runs of parts of one length: how many, and bytes each.
pub(crate) fn runs(parts: &[Placed<'_>]) -> Vec<(u32, u64)> {
    let mut runs: Vec<(u32, u64)> = Vec::new();
    for (_, part) in parts {
        match runs.last_mut() {
            Some((count, size)) if *size == part.size => *count += 1,
            _ => runs.push((1, part.size)),
        }
    }
    runs
}
