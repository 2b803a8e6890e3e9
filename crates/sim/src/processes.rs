//! The machine's processes. An allocation is known by its directory, which outlives the server: nothing of it is
//! started twice.

use std::collections::BTreeMap;

/// Which process: its allocation and host number.
pub(crate) type Process = (String, u32);

#[derive(Debug, Default)]
pub(crate) struct Processes {
    /// Whether each that was ever started lives.
    started: BTreeMap<Process, bool>,
}

impl Processes {
    pub(crate) fn alive(&self) -> impl Iterator<Item = &Process> {
        self.started.iter().filter(|(_, alive)| **alive).map(|(process, _)| process)
    }

    pub(crate) fn is_alive(&self, process: &Process) -> bool {
        self.started.get(process).copied().unwrap_or(false)
    }

    /// Starts what was not started yet; returns that.
    pub(crate) fn start(&mut self, allocation: &str, instances: u32) -> Vec<Process> {
        let all = (1..=instances).map(|host| (allocation.to_owned(), host));
        let new: Vec<_> = all.filter(|process| !self.started.contains_key(process)).collect();
        self.started.extend(new.iter().map(|process| (process.clone(), true)));
        new
    }

    pub(crate) fn ended(&mut self, process: &Process) {
        if let Some(alive) = self.started.get_mut(process) {
            *alive = false;
        }
    }

    /// The allocation's directory is removed.
    pub(crate) fn forget(&mut self, allocation: &str) {
        self.started.retain(|(of, _), _| of != allocation);
    }

    /// Hosts whose process has ended; none if nothing was started.
    pub(crate) fn lost(&self, allocation: &str, instances: u32) -> Option<Vec<u32>> {
        let of = |host: u32| self.started.get(&(allocation.to_owned(), host)).copied();
        let is_known = (1..=instances).any(|host| of(host).is_some());
        is_known.then(|| (1..=instances).filter(|host| of(*host) == Some(false)).collect())
    }

    pub(crate) fn is_running(&self, allocation: &str, instances: u32) -> bool {
        (1..=instances).any(|host| self.is_alive(&(allocation.to_owned(), host)))
    }

    pub(crate) fn is_complete(&self, allocation: &str, instances: u32) -> bool {
        (1..=instances).all(|host| self.is_alive(&(allocation.to_owned(), host)))
    }
}
