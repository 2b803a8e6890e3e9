//! Attempts that use memory, and what of them the checks need.

use std::collections::BTreeMap;

use shoal_plane::{AttemptId, Time};

/// An attempt that uses memory.
#[derive(Debug)]
pub(crate) struct Launched {
    pub(crate) attempt: AttemptId,
    /// By the journal, whose clock may stand still.
    pub(crate) at: Time,
    /// By the history.
    pub(crate) since_ms: u64,
    /// Of each instance.
    pub(crate) limit: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Memory {
    /// Attempts that are not released.
    pub(crate) launched: Vec<Launched>,
    /// Attempts whose programs are told to end, or are over.
    pub(crate) leaving: Vec<AttemptId>,
    /// Attempts that were ended for want of memory.
    pub(crate) evicted: Vec<AttemptId>,
    /// For how long each node has lacked memory.
    pub(crate) short_ms: BTreeMap<String, u64>,
    /// The latest time that the machine's clock has shown.
    pub(crate) latest: Time,
}
