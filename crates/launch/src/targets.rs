//! Several launchers as one: each compute target has its own, this machine another.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::{
    AllocationSpec, AllocationStatus, HostEnd, LaunchError, Launcher, MemoryUse, OnEnd, TargetReport, Wants, Watch,
};

/// Passes each allocation to the launcher of its node: a compute target's by the target's name,
/// this machine's otherwise.
pub struct ByTarget {
    here: Arc<dyn Launcher>,
    targets: BTreeMap<String, Arc<dyn Launcher>>,
}

impl ByTarget {
    /// `here` is this machine's; the others are by the names of targets.
    #[must_use]
    pub fn new(here: Arc<dyn Launcher>, targets: BTreeMap<String, Arc<dyn Launcher>>) -> Self {
        Self { here, targets }
    }

    fn on(&self, nodes: &[String]) -> &dyn Launcher {
        let target = nodes.first().and_then(|node| self.targets.get(node));
        &**target.unwrap_or(&self.here)
    }

    /// The nodes of what was started are not always known, but its directory is.
    fn of(&self, spec: &AllocationSpec) -> &dyn Launcher {
        let started = || self.targets.values().find(|it| it.has_submitted(spec));
        match spec.nodes.is_empty().then(started).flatten() {
            Some(target) => &**target,
            None => self.on(&spec.nodes),
        }
    }

    fn parts<'a>(&self, specs: &[&'a AllocationSpec]) -> Vec<Part<'_, 'a>> {
        let mut parts: Vec<Part<'_, '_>> = Vec::new();
        for (place, spec) in specs.iter().enumerate() {
            let launcher = self.of(spec);
            match parts.iter_mut().find(|part| std::ptr::addr_eq(part.launcher, launcher)) {
                Some(part) => {
                    part.places.push(place);
                    part.specs.push(spec);
                }
                None => parts.push(Part { launcher, places: vec![place], specs: vec![spec] }),
            }
        }
        parts
    }
}

/// The allocations of a launcher, with their places among all.
struct Part<'l, 'a> {
    launcher: &'l dyn Launcher,
    places: Vec<usize>,
    specs: Vec<&'a AllocationSpec>,
}

impl Launcher for ByTarget {
    fn is_remote(&self, nodes: &[String]) -> bool {
        self.on(nodes).is_remote(nodes)
    }

    fn reports_ends(&self) -> bool {
        self.here.reports_ends()
    }

    fn has_submitted(&self, spec: &AllocationSpec) -> bool {
        self.of(spec).has_submitted(spec)
    }

    fn check(&self, nodes: &[String], wants: &Wants) -> Result<(), LaunchError> {
        self.on(nodes).check(nodes, wants)
    }

    fn submit(&self, spec: &AllocationSpec) -> Result<(), LaunchError> {
        self.of(spec).submit(spec)
    }

    fn add(&self, spec: &AllocationSpec, hosts: &[u32]) -> Result<(), LaunchError> {
        self.of(spec).add(spec, hosts)
    }

    fn remove(&self, spec: &AllocationSpec, hosts: &[u32]) -> Result<(), LaunchError> {
        self.of(spec).remove(spec, hosts)
    }

    fn status(&self, specs: &[&AllocationSpec]) -> Vec<Result<AllocationStatus, LaunchError>> {
        let mut all = Vec::from_iter(specs.iter().map(|_| Ok(AllocationStatus::Unknown)));
        for Part { launcher, places, specs } in self.parts(specs) {
            for (place, status) in places.into_iter().zip(launcher.status(&specs)) {
                all[place] = status;
            }
        }
        all
    }

    fn watch(&self, spec: &AllocationSpec, on_end: OnEnd) -> Result<Watch, LaunchError> {
        self.of(spec).watch(spec, on_end)
    }

    fn reports(&self, creators: &[String]) -> Vec<TargetReport> {
        self.targets.values().flat_map(|target| target.reports(creators)).collect()
    }

    fn end_of(&self, spec: &AllocationSpec, host: u32) -> Option<HostEnd> {
        self.of(spec).end_of(spec, host)
    }

    fn finds_lost_machines(&self, spec: &AllocationSpec) -> bool {
        self.of(spec).finds_lost_machines(spec)
    }

    fn machine_of(&self, spec: &AllocationSpec, host: u32) -> Option<String> {
        self.of(spec).machine_of(spec, host)
    }

    fn memory(&self, specs: &[&AllocationSpec]) -> MemoryUse {
        self.parts(specs).iter().flat_map(|part| part.launcher.memory(&part.specs)).collect()
    }

    fn end_first(&self, specs: &[&AllocationSpec]) {
        for part in self.parts(specs) {
            part.launcher.end_first(&part.specs);
        }
    }

    fn end_others(&self, id_prefix: &str, is_known: &dyn Fn(&str) -> bool) -> Result<(), LaunchError> {
        // One that does not answer keeps no other from it.
        self.targets.values().map(|target| target.end_others(id_prefix, is_known)).fold(Ok(()), Result::and)
    }

    fn stop(&self, spec: &AllocationSpec) -> Result<(), LaunchError> {
        self.of(spec).stop(spec)
    }
}
