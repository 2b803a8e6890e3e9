//! The machine's processes. An allocation is known by its directory, which outlives the server:
//! nothing of it is started twice.

use std::collections::BTreeMap;

use shoal_plane::{AttemptId, Host};

/// Which process: its allocation and host number.
pub(crate) type Process = (AttemptId, Host);

#[derive(Debug, Default)]
pub(crate) struct Processes {
    /// Whether each that was ever started lives.
    started: BTreeMap<Process, bool>,
    /// How often each was started.
    lives: BTreeMap<Process, u32>,
}

impl Processes {
    pub(crate) fn alive(&self) -> impl Iterator<Item = &Process> {
        self.started.iter().filter(|(_, alive)| **alive).map(|(process, _)| process)
    }

    pub(crate) fn is_alive(&self, process: &Process) -> bool {
        self.started.get(process).copied().unwrap_or(false)
    }

    pub(crate) fn is_unknown(&self, process: &Process) -> bool {
        !self.started.contains_key(process)
    }

    /// Starts what was not started yet; returns that.
    pub(crate) fn start(&mut self, allocation: &AttemptId, instances: u32) -> Vec<Process> {
        self.start_hosts(allocation, &Host::all(instances).collect::<Vec<_>>())
    }

    /// The same of these hosts.
    pub(crate) fn start_hosts(&mut self, allocation: &AttemptId, hosts: &[Host]) -> Vec<Process> {
        let all = hosts.iter().map(|host| (allocation.to_owned(), *host));
        let new: Vec<_> = all.filter(|process| !self.started.contains_key(process)).collect();
        self.started.extend(new.iter().map(|process| (process.clone(), true)));
        for process in &new {
            *self.lives.entry(process.clone()).or_default() += 1;
        }
        new
    }

    /// How often it was started.
    pub(crate) fn lives(&self, process: &Process) -> u32 {
        self.lives.get(process).copied().unwrap_or(0)
    }

    /// It is removed, and may be started again.
    pub(crate) fn forget_host(&mut self, process: &Process) {
        self.started.remove(process);
    }

    pub(crate) fn ended(&mut self, process: &Process) {
        if let Some(alive) = self.started.get_mut(process) {
            *alive = false;
        }
    }

    /// The allocation's directory is removed.
    pub(crate) fn forget(&mut self, allocation: &AttemptId) {
        self.started.retain(|(of, _), _| of != allocation);
    }

    /// Hosts whose process has ended; none if nothing was started.
    pub(crate) fn lost(&self, allocation: &AttemptId, instances: u32) -> Option<Vec<Host>> {
        let of = |host: Host| self.started.get(&(allocation.to_owned(), host)).copied();
        let is_known = Host::all(instances).any(|host| of(host).is_some());
        is_known.then(|| Host::all(instances).filter(|host| of(*host) == Some(false)).collect())
    }

    pub(crate) fn is_running(&self, allocation: &AttemptId, instances: u32) -> bool {
        Host::all(instances).any(|host| self.is_alive(&(allocation.to_owned(), host)))
    }

    pub(crate) fn is_complete(&self, allocation: &AttemptId, instances: u32) -> bool {
        Host::all(instances).all(|host| self.is_alive(&(allocation.to_owned(), host)))
    }
}
