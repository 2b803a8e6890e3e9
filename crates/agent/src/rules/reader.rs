//! Reads saved tensors of a step: the index whole, of the events what rules need.

use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::Path;

use shoal_contract::tensors::{Event, Index, Location, Records};

use crate::mirror::tree::Tree;

/// Longest index or collections file.
const MAX_JSON_BYTES: u64 = 64 << 20;
/// Event files up to this length are read whole, in one call.
const WHOLE_BYTES: u64 = 1 << 20;
/// Bytes of tensors of a step.
pub(super) const MAX_STEP_BYTES: u64 = 256 << 20;

/// A small file; an error has its name.
pub(super) fn read_small(tree: &Tree, path: &str) -> Result<Vec<u8>, String> {
    let read = || -> io::Result<Vec<u8>> {
        let file = tree.open_inside(Path::new(path))?;
        let metadata = file.metadata()?;
        if !metadata.is_file() || metadata.len() > MAX_JSON_BYTES {
            return Err(io::Error::other(format!("it is not a file of at most {MAX_JSON_BYTES} bytes")));
        }
        let mut bytes = Vec::new();
        file.take(MAX_JSON_BYTES).read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    read().map_err(|error| format!("{path} cannot be read: {error}"))
}

/// Records of a worker's tensors.
pub(super) struct SavedStep {
    pub(super) index: Index,
    /// Each with one event.
    records: Vec<Vec<u8>>,
    path: String,
    /// Tensors that did not fit.
    pub(super) left_out: u64,
}

/// Reads what a worker saved in a step: of its tensors those that are needed, as far as they fit
/// into the budget of the step.
pub(super) fn read_step(
    tree: &Tree,
    step: u64,
    worker: &str,
    budget: &mut u64,
    mut is_needed: impl FnMut(&str) -> bool,
) -> Result<SavedStep, String> {
    let path = Location::Index { step, worker: worker.to_owned() }.path();
    let index = Index::parse(&read_small(tree, &path)?).map_err(|error| format!("{path}: {error}"))?;
    let mut needed = Vec::from_iter(index.tensors.iter().filter(|entry| is_needed(&entry.name)));
    let all = needed.len();
    needed.retain(|entry| {
        let fits = entry.length <= *budget;
        *budget -= if fits { entry.length } else { 0 };
        fits
    });
    let left_out = (all - needed.len()) as u64;
    let ranges = Vec::from_iter(needed.iter().map(|entry| (entry.start, entry.length)));
    let mut saved = SavedStep { index, records: Vec::new(), path: String::new(), left_out };
    if let (false, Some(path)) = (ranges.is_empty(), &saved.index.event_file) {
        // A program may write any path.
        if Location::parse(path).is_none_or(|location| location.path() != *path) {
            return Err(format!("{path} is not the name of an event file"));
        }
        saved.records = read_ranges(tree, path, &ranges).map_err(|error| format!("{path} cannot be read: {error}"))?;
        saved.path.clone_from(path);
    }
    Ok(saved)
}

fn read_ranges(tree: &Tree, path: &str, ranges: &[(u64, u64)]) -> io::Result<Vec<Vec<u8>>> {
    let file = tree.open_inside(Path::new(path))?;
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    let size = metadata.len();
    let outside = |(start, length): &(u64, u64)| start.checked_add(*length).is_none_or(|end| end > size);
    if let Some((start, length)) = ranges.iter().find(|range| outside(range)) {
        let problem = format!("the index has a record of {length} bytes at {start}, and the file {size} bytes");
        return Err(io::Error::other(problem));
    }
    if size <= WHOLE_BYTES {
        let mut whole = Vec::new();
        (&file).take(size).read_to_end(&mut whole)?;
        let part = |(start, length): &(u64, u64)| whole.get(*start as usize..(start + length) as usize);
        let cut = || io::Error::other("it was cut while it was read");
        return ranges.iter().map(|range| part(range).map(<[u8]>::to_vec).ok_or_else(cut)).collect();
    }
    let read = |(start, length): &(u64, u64)| {
        let mut record = vec![0; *length as usize];
        file.read_exact_at(&mut record, *start).map(|()| record)
    };
    ranges.iter().map(read).collect()
}

impl SavedStep {
    /// The events; what is damaged is reported once and left out.
    pub(super) fn events(&self, mut complain: impl FnMut(String)) -> Vec<Event<'_>> {
        let mut events = Vec::with_capacity(self.records.len());
        for record in &self.records {
            let parsed = Records::new(record).next().and_then(|content| content.and_then(Event::parse).transpose());
            match parsed {
                Some(Ok(event)) => events.push(event),
                Some(Err(error)) => complain(format!("{}: {error}", self.path)),
                None => {}
            }
        }
        events
    }
}
