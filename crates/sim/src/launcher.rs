//! A launcher of processes that exist in memory only. Like the real one it knows an allocation by its directory, which outlives the server.

use std::{
    collections::BTreeMap,
    path::PathBuf,
    sync::{Mutex, MutexGuard, PoisonError},
};

use shoal_launch::{AllocationSpec, AllocationStatus, LaunchError, Launcher, MemoryUse};

/// Which process: its allocation and host number.
pub(crate) type Key = (String, u32);

#[derive(Debug, Default)]
pub(crate) struct FakeLauncher {
    /// Whether each that was ever started lives.
    processes: Mutex<BTreeMap<Key, bool>>,
}

pub(crate) fn allocation(attempt: &str, instances: u32) -> AllocationSpec {
    AllocationSpec {
        id: attempt.to_owned(),
        instances,
        program: PathBuf::from("shoal"),
        args: Vec::new(),
        env: Vec::new(),
        dir: PathBuf::from(attempt),
    }
}

impl FakeLauncher {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<Key, bool>> {
        self.processes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn alive(&self) -> Vec<Key> {
        self.lock().iter().filter(|(_, alive)| **alive).map(|(key, _)| key.clone()).collect()
    }

    /// The process has ended.
    pub(crate) fn ended(&self, key: &Key) {
        if let Some(alive) = self.lock().get_mut(key) {
            *alive = false;
        }
    }

    /// The allocation's directory is removed.
    pub(crate) fn forget(&self, attempt: &str) {
        self.lock().retain(|(of, _), _| of != attempt);
    }
}

impl Launcher for FakeLauncher {
    fn submit(&self, spec: &AllocationSpec) -> Result<(), LaunchError> {
        let mut processes = self.lock();
        for host in 1..=spec.instances {
            processes.entry((spec.id.clone(), host)).or_insert(true);
        }
        Ok(())
    }

    fn status(&self, specs: &[&AllocationSpec]) -> Vec<Result<AllocationStatus, LaunchError>> {
        let processes = self.lock();
        specs.iter().map(|spec| Ok(status(&processes, spec))).collect()
    }

    fn memory(&self, _: &[&AllocationSpec]) -> MemoryUse {
        MemoryUse::new()
    }

    fn stop(&self, spec: &AllocationSpec) -> Result<(), LaunchError> {
        let mut processes = self.lock();
        processes.iter_mut().filter(|((of, _), _)| *of == spec.id).for_each(|(_, alive)| *alive = false);
        Ok(())
    }
}

fn status(processes: &BTreeMap<Key, bool>, spec: &AllocationSpec) -> AllocationStatus {
    let of = |host| processes.get(&(spec.id.clone(), host));
    let lost: Vec<u32> = (1..=spec.instances).filter(|host| of(*host) == Some(&false)).collect();
    if (1..=spec.instances).all(|host| of(host).is_none()) {
        AllocationStatus::Unknown
    } else if lost.len() == spec.instances as usize {
        AllocationStatus::Ended
    } else {
        AllocationStatus::Running { lost }
    }
}
