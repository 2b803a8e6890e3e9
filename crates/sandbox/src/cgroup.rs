//! Memory, CPU and process limits of an instance: a control group of its own below ours, version 1
//! or 2, whichever this machine lets us make. Removed with the instance; [`crate::sweep()`] removes
//! what crashes leave.
//!
//! Instances that have a memory limit in common ([`crate::Together`]) have their groups in one that
//! has that limit: none of them can make the kernel look for memory outside of it.

mod dirs;
mod kill_count;
mod out_of_memory;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};

use crate::{OutOfMemory, SandboxError, SandboxSpec};
pub use dirs::{GroupDirs, group_of};
pub(crate) use kill_count::KillCount;
use out_of_memory::Witness;

/// All groups of ours have a parent of this name.
pub(crate) const PARENT: &str = "shoal";
/// Before the name of a group for instances that have a limit in common. No instance's id begins
/// so.
const TOGETHER: &str = "together-";
/// What an instance is limited in.
const CONTROLLERS: [&str; 3] = ["memory", "pids", "cpu"];

/// How the machine arranges control groups.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CgroupLayout {
    /// One hierarchy per controller.
    V1,
    /// One hierarchy.
    V2,
}

/// One instance's group: a directory in every hierarchy.
#[derive(Debug)]
pub(crate) struct Cgroup {
    layout: CgroupLayout,
    /// Controller and directory; with version 2 once, as `memory`.
    directories: Vec<(&'static str, PathBuf)>,
    /// Of version 1.
    witness: Option<Witness>,
}

/// Where groups can be made.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub layout: CgroupLayout,
    /// Controller and the directory that is to hold [`PARENT`].
    parents: Vec<(&'static str, PathBuf)>,
}

impl Place {
    /// Below the group of this process; its limits stay in force. For version 2 the nearest group
    /// above whose children may have limits, as a group with processes of its own cannot have such
    /// children.
    pub(crate) fn find(layout: CgroupLayout) -> Option<Place> {
        let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
        let own = fs::read_to_string("/proc/self/cgroup").ok()?;
        match layout {
            CgroupLayout::V1 => {
                let parents =
                    CONTROLLERS.iter().filter_map(|name| Some((*name, own_directory(&mounts, &own, Some(name))?.0)));
                let parents: Vec<_> = parents.collect();
                parents.iter().any(|(name, _)| *name == "memory").then_some(Place { layout, parents })
            }
            CgroupLayout::V2 => {
                let (own, top) = own_directory(&mounts, &own, None)?;
                let parent =
                    own.ancestors().take_while(|path| path.starts_with(&top)).find(|path| delegate(path).is_ok())?;
                Some(Place { layout, parents: vec![("memory", parent.to_owned())] })
            }
        }
    }
}

/// Where this process's group is, and the top of what is mounted of its hierarchy: that of a
/// version 1 controller, or version 2.
fn own_directory(mounts: &str, own: &str, controller: Option<&str>) -> Option<(PathBuf, PathBuf)> {
    let group = own.lines().find_map(|line| {
        let (names, path) = line.split_once(':')?.1.split_once(':')?;
        let wanted = match controller {
            Some(controller) => names.split(',').any(|name| name == controller),
            None => names.is_empty(),
        };
        wanted.then_some(path)
    })?;
    mounts.lines().find_map(|line| {
        // ID PARENT MAJOR:MINOR ROOT POINT OPTIONS [TAG..] - TYPE SOURCE SUPER-OPTIONS
        let (mount, system) = line.split_once(" - ")?;
        let (mut mount, mut system) = (mount.split(' ').skip(3), system.split(' '));
        let (root, point) = (mount.next()?, mount.next()?);
        let (kind, options) = (system.next()?, system.nth(1)?);
        let wanted = match controller {
            Some(controller) => kind == "cgroup" && options.split(',').any(|name| name == controller),
            None => kind == "cgroup2",
        };
        // In a container the hierarchy's top may be mounted from somewhere below, of which `own`
        // then speaks in full.
        let below = Path::new(group).strip_prefix(root).unwrap_or(Path::new(""));
        wanted.then(|| (Path::new(point).join(below.strip_prefix("/").unwrap_or(below)), PathBuf::from(point)))
    })
}

/// Makes `shoal` below a version 2 group and lets its children have limits.
fn delegate(group: &Path) -> io::Result<()> {
    enable(group)?;
    make_parent(CgroupLayout::V2, &group.join(PARENT))
}

/// Lets the children of a version 2 group have limits.
fn enable(group: &Path) -> io::Result<()> {
    let file = group.join("cgroup.subtree_control");
    let enabled = fs::read_to_string(&file)?;
    let missing = CONTROLLERS.iter().filter(|name| !enabled.split_whitespace().any(|have| have == **name));
    for name in missing {
        match fs::write(&file, format!("+{name}")) {
            // CPU shares are fairness, not safety.
            Err(_) if *name == "cpu" => {}
            done => done?,
        }
    }
    Ok(())
}

/// Makes a group that is to hold others. Fine if it is there already.
fn make_parent(layout: CgroupLayout, directory: &Path) -> io::Result<()> {
    match fs::create_dir(directory) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    match layout {
        CgroupLayout::V2 => enable(directory),
        CgroupLayout::V1 => {
            // Its limit is for its children, too; where that is so anyway, or for other
            // controllers, it cannot be said.
            let _ = fs::write(directory.join("memory.use_hierarchy"), "1");
            Ok(())
        }
    }
}

impl Cgroup {
    /// Makes the group with its limits.
    pub(crate) fn make(place: &Place, spec: &SandboxSpec) -> Result<Cgroup, SandboxError> {
        // Filled as we go, so that a failure removes what was made.
        let mut group = Cgroup { layout: place.layout, directories: Vec::new(), witness: None };
        for (controller, parent) in &place.parents {
            let mut parents = vec![parent.join(PARENT)];
            let together = spec.together.as_ref().filter(|_| *controller == "memory");
            parents.extend(together.map(|together| parent.join(PARENT).join(format!("{TOGETHER}{}", together.name))));
            let directory = parents[parents.len() - 1].join(&spec.id);
            let shown = directory.display().to_string();
            match make_fresh(place.layout, &parents, &directory) {
                // Version 1 hierarchies have each their own permissions; the probe says which
                // limits are missing.
                Err(_) if *controller != "memory" => {}
                made => {
                    made.map_err(SandboxError::io(format!("make control group {shown}")))?;
                    group.directories.push((controller, directory));
                }
            }
        }
        if let Some(directory) = group.directory("memory") {
            limit_memory(place.layout, directory, spec.memory_bytes)?;
            let above = directory.parent().filter(|_| spec.together.is_some());
            if let (Some(above), Some(together)) = (above, &spec.together)
                // Less than what is used would kill somebody who was given it.
                && number(above, usage_file(place.layout), "") < together.memory_bytes
            {
                limit_memory(place.layout, above, together.memory_bytes)?;
            }
            if place.layout == CgroupLayout::V1 {
                group.witness = Witness::of(directory, above).ok();
            }
        }
        let limits: &[(&str, &str, u64)] = match place.layout {
            CgroupLayout::V1 => &[
                // A weight of 100 is what 1024 shares are.
                ("cpu", "cpu.shares", (u64::from(spec.cpu_weight) * 1024 / 100).max(2)),
                ("pids", "pids.max", u64::from(spec.pids)),
            ],
            CgroupLayout::V2 => {
                &[("memory", "pids.max", u64::from(spec.pids)), ("memory", "cpu.weight", u64::from(spec.cpu_weight))]
            }
        };
        for (controller, file, value) in limits {
            let Some(directory) = group.directory(controller) else { continue };
            let path = directory.join(file);
            match fs::write(&path, value.to_string()) {
                Err(_) if file.starts_with("cpu.") => {}
                done => done.map_err(SandboxError::io(format!("write {value} to {}", path.display())))?,
            }
        }
        Ok(group)
    }

    fn directory(&self, controller: &str) -> Option<&Path> {
        self.directories.iter().find(|(name, _)| *name == controller).map(|(_, path)| &**path)
    }

    /// Whether this controller's limit is in force.
    pub(crate) fn limits(&self, controller: &str) -> bool {
        match self.layout {
            CgroupLayout::V1 => self.directory(controller).is_some(),
            CgroupLayout::V2 => {
                let file = if controller == "cpu" { "cpu.weight".to_owned() } else { format!("{controller}.max") };
                self.directory("memory").is_some_and(|directory| directory.join(file).exists())
            }
        }
    }

    /// Moves a process in; its children will be born there.
    pub(crate) fn add(&self, pid: Pid) -> Result<(), SandboxError> {
        self.directories.iter().try_for_each(|(_, directory)| {
            let path = directory.join("cgroup.procs");
            fs::write(&path, pid.to_string()).map_err(SandboxError::io(format!("write {pid} to {}", path.display())))
        })
    }

    /// Whether the kernel has killed something in this group for memory, and whose limit that was.
    pub(crate) fn out_of_memory(&self) -> Option<OutOfMemory> {
        let directory = self.directory("memory")?;
        let (events, peak) = match self.layout {
            CgroupLayout::V1 => ("memory.oom_control", "memory.max_usage_in_bytes"),
            CgroupLayout::V2 => ("memory.events", "memory.peak"),
        };
        if number(directory, events, "oom_kill ") == 0 {
            return None;
        }
        let is_own = match self.layout {
            CgroupLayout::V1 => self.witness.as_ref().is_none_or(Witness::saw_own),
            // Counted where the limit is, and above, but not below.
            CgroupLayout::V2 => number(directory, events, "oom ") > 0,
        };
        Some(if is_own { OutOfMemory::Own } else { OutOfMemory::Together { used_bytes: number(directory, peak, "") } })
    }
}

/// Sets how much memory a group may use.
fn limit_memory(layout: CgroupLayout, directory: &Path, bytes: u64) -> Result<(), SandboxError> {
    let write = |file: &str, value: u64| {
        let path = directory.join(file);
        fs::write(&path, value.to_string()).map_err(SandboxError::io(format!("write {value} to {}", path.display())))
    };
    // Where swap is counted at all: memory that has gone there is over the limit just as well.
    match layout {
        CgroupLayout::V1 => {
            // The sum is never below the first: it goes up before it and down after it.
            let _ = write("memory.memsw.limit_in_bytes", bytes);
            write("memory.limit_in_bytes", bytes)?;
            let _ = write("memory.memsw.limit_in_bytes", bytes);
        }
        CgroupLayout::V2 => {
            write("memory.max", bytes)?;
            let _ = write("memory.swap.max", 0);
        }
    }
    Ok(())
}

fn usage_file(layout: CgroupLayout) -> &'static str {
    match layout {
        CgroupLayout::V1 => "memory.usage_in_bytes",
        CgroupLayout::V2 => "memory.current",
    }
}

/// The number behind `name` in a group's file; 0 if the kernel does not tell.
fn number(directory: &Path, file: &str, name: &str) -> u64 {
    let text = fs::read_to_string(directory.join(file)).unwrap_or_default();
    text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok()).unwrap_or(0)
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        for (_, directory) in &self.directories {
            // What cannot be removed now is found by a sweep.
            let _ = remove(directory);
        }
    }
}

/// A group of this name that a crash has left is replaced; one that is in use is not.
fn make_fresh(layout: CgroupLayout, parents: &[PathBuf], directory: &Path) -> io::Result<()> {
    for _ in 0..100 {
        match parents.iter().try_for_each(|parent| make_parent(layout, parent)).and_then(|()| fs::create_dir(directory))
        {
            // Another instance has ended and taken a parent away as empty.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => fs::remove_dir(directory)?,
            done => return done,
        }
    }
    Err(io::Error::other("its parents are removed again and again"))
}

/// Removes a group and whoever is still in it, and its parents as far as they are ours and empty
/// then.
pub(crate) fn remove(directory: &Path) -> io::Result<()> {
    let mut patience = 200;
    loop {
        match fs::remove_dir(directory) {
            // The dead leave their group a moment after they have been waited for, the living when
            // they are killed.
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy && patience > 0 => {
                kill_members(directory);
                patience -= 1;
                std::thread::sleep(Duration::from_millis(if patience > 150 { 1 } else { 10 }));
            }
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => break,
        }
    }
    for parent in directory.ancestors().skip(1) {
        // It holds other instances, most of the time.
        if fs::remove_dir(parent).is_err() || parent.file_name().is_some_and(|name| name == PARENT) {
            break;
        }
    }
    Ok(())
}

fn kill_members(directory: &Path) {
    let members = fs::read_to_string(directory.join("cgroup.procs")).unwrap_or_default();
    for pid in members.lines().filter_map(|line| line.parse().ok()) {
        // It may be dead already.
        let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
    }
}

/// Every group of ours, anywhere, whose name is meant.
pub(crate) fn named(is_meant: &impl Fn(&str) -> bool) -> Vec<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let mut found = Vec::new();
    for line in mounts.lines() {
        if let Some((mount, system)) = line.split_once(" - ")
            && system.starts_with("cgroup")
            && let Some(point) = mount.split(' ').nth(4)
        {
            search(Path::new(point), false, is_meant, &mut found);
        }
    }
    found.sort();
    found.dedup();
    found
}

/// `ours`: it is below [`PARENT`].
fn search(directory: &Path, ours: bool, is_meant: &impl Fn(&str) -> bool, found: &mut Vec<PathBuf>) {
    let ours = ours || directory.file_name().is_some_and(|name| name == PARENT);
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        if !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            continue;
        }
        if ours && is_meant(&entry.file_name().to_string_lossy()) {
            found.push(entry.path());
        } else {
            search(&entry.path(), ours, is_meant, found);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS: &str = "\
30 24 0:26 / /sys/fs/cgroup ro - tmpfs tmpfs ro
31 30 0:27 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw
32 30 0:28 /docker/abc /sys/fs/cgroup/memory rw shared:9 - cgroup cgroup rw,memory
33 30 0:29 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct";
    const OWN: &str = "4:memory:/docker/abc/x\n3:cpu,cpuacct:/user\n0::/user.slice/a.scope";

    #[test]
    fn our_own_group_is_found_in_every_layout() {
        for (controller, expected) in [
            (Some("memory"), Some("/sys/fs/cgroup/memory/x")),
            (Some("cpu"), Some("/sys/fs/cgroup/cpu,cpuacct/user")),
            (Some("pids"), None),
            (None, Some("/sys/fs/cgroup/unified/user.slice/a.scope")),
        ] {
            let found = own_directory(MOUNTS, OWN, controller).map(|(own, _)| own);
            assert_eq!(found, expected.map(PathBuf::from), "{controller:?}");
        }
    }
}
