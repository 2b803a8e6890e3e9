//! Memory, CPU and process limits of an instance: a control group of its own below ours, version 1 or 2, whichever this machine lets
//! us make. Removed with the instance; [`crate::sweep()`] removes what crashes leave.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};

use crate::{SandboxError, SandboxSpec};

/// All groups of ours have a parent of this name.
pub(crate) const PARENT: &str = "shoal";
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
}

/// Where groups can be made.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub layout: CgroupLayout,
    /// Controller and the directory that is to hold [`PARENT`].
    parents: Vec<(&'static str, PathBuf)>,
}

impl Place {
    /// Below the group of this process; its limits stay in force. For version 2 the nearest group above whose children may have limits, as a
    /// group with processes of its own cannot have such children.
    pub(crate) fn find(layout: CgroupLayout) -> Option<Place> {
        let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
        let own = fs::read_to_string("/proc/self/cgroup").ok()?;
        match layout {
            CgroupLayout::V1 => {
                let parents = CONTROLLERS.iter().filter_map(|name| Some((*name, own_directory(&mounts, &own, Some(name))?.0)));
                let parents: Vec<_> = parents.collect();
                parents.iter().any(|(name, _)| *name == "memory").then_some(Place { layout, parents })
            }
            CgroupLayout::V2 => {
                let (own, top) = own_directory(&mounts, &own, None)?;
                let parent = own.ancestors().take_while(|path| path.starts_with(&top)).find(|path| delegate(path).is_ok())?;
                Some(Place { layout, parents: vec![("memory", parent.to_owned())] })
            }
        }
    }
}

/// Where this process's group is, and the top of what is mounted of its hierarchy: that of a version 1 controller, or version 2.
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
        // In a container the hierarchy's top may be mounted from somewhere below, of which `own` then speaks in full.
        let below = Path::new(group).strip_prefix(root).unwrap_or(Path::new(""));
        wanted.then(|| (Path::new(point).join(below.strip_prefix("/").unwrap_or(below)), PathBuf::from(point)))
    })
}

/// Makes `shoal` below a version 2 group and lets its children have limits.
fn delegate(group: &Path) -> io::Result<()> {
    let enable = |group: &Path| {
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
        Ok::<_, io::Error>(())
    };
    enable(group)?;
    let ours = group.join(PARENT);
    create(&ours)?;
    enable(&ours)
}

/// Fine if it is there already.
fn create(directory: &Path) -> io::Result<()> {
    match fs::create_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        done => done,
    }
}

impl Cgroup {
    /// Makes the group with its limits.
    pub(crate) fn make(place: &Place, spec: &SandboxSpec) -> Result<Cgroup, SandboxError> {
        // Filled as we go, so that a failure removes what was made.
        let mut group = Cgroup { layout: place.layout, directories: Vec::new() };
        for (controller, parent) in &place.parents {
            let directory = parent.join(PARENT).join(&spec.id);
            let shown = directory.display().to_string();
            match make_fresh(parent, &directory) {
                // Version 1 hierarchies have each their own permissions; the probe says which limits are missing.
                Err(_) if *controller != "memory" => {}
                made => {
                    made.map_err(SandboxError::io(format!("make control group {shown}")))?;
                    group.directories.push((controller, directory));
                }
            }
        }
        let limits: &[(&str, &str, u64)] = match place.layout {
            CgroupLayout::V1 => &[
                ("memory", "memory.limit_in_bytes", spec.memory_bytes),
                // A weight of 100 is what 1024 shares are.
                ("cpu", "cpu.shares", (u64::from(spec.cpu_weight) * 1024 / 100).max(2)),
                ("pids", "pids.max", u64::from(spec.pids)),
            ],
            CgroupLayout::V2 => &[
                ("memory", "memory.max", spec.memory_bytes),
                ("memory", "pids.max", u64::from(spec.pids)),
                ("memory", "cpu.weight", u64::from(spec.cpu_weight)),
            ],
        };
        for (controller, file, value) in limits {
            let Some(directory) = group.directory(controller) else { continue };
            let path = directory.join(file);
            match fs::write(&path, value.to_string()) {
                Err(_) if file.starts_with("cpu.") => {}
                done => done.map_err(SandboxError::io(format!("write {value} to {}", path.display())))?,
            }
        }
        // Where swap is counted at all: memory that has gone there is over the limit just as well.
        let (file, value) = match place.layout {
            CgroupLayout::V1 => ("memory.memsw.limit_in_bytes", spec.memory_bytes),
            CgroupLayout::V2 => ("memory.swap.max", 0),
        };
        let _ = group.directory("memory").map(|directory| fs::write(directory.join(file), value.to_string()));
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

    /// Whether the kernel has killed something in this group for memory.
    pub(crate) fn out_of_memory(&self) -> bool {
        let file = match self.layout {
            CgroupLayout::V1 => "memory.oom_control",
            CgroupLayout::V2 => "memory.events",
        };
        let text = self.directory("memory").and_then(|directory| fs::read_to_string(directory.join(file)).ok()).unwrap_or_default();
        text.lines().filter_map(|line| line.strip_prefix("oom_kill ")).any(|count| count.trim() != "0")
    }
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
fn make_fresh(parent: &Path, directory: &Path) -> io::Result<()> {
    for _ in 0..100 {
        create(&parent.join(PARENT))?;
        match fs::create_dir(directory) {
            // Another instance has ended and taken the parent away as empty.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => fs::remove_dir(directory)?,
            done => return done,
        }
    }
    Err(io::Error::other("its parent is removed again and again"))
}

/// Removes a group and whoever is still in it, and its parent if that is empty then.
pub(crate) fn remove(directory: &Path) -> io::Result<()> {
    let mut patience = 200;
    loop {
        match fs::remove_dir(directory) {
            // The dead leave their group a moment after they have been waited for, the living when they are killed.
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy && patience > 0 => {
                kill_members(directory);
                patience -= 1;
                std::thread::sleep(Duration::from_millis(if patience > 150 { 1 } else { 10 }));
            }
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => break,
        }
    }
    // It holds other instances, most of the time.
    let _ = directory.parent().map(fs::remove_dir);
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
            search(Path::new(point), is_meant, &mut found);
        }
    }
    found.sort();
    found.dedup();
    found
}

fn search(directory: &Path, is_meant: &impl Fn(&str) -> bool, found: &mut Vec<PathBuf>) {
    let ours = directory.file_name().is_some_and(|name| name == PARENT);
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        if !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            continue;
        }
        if ours && is_meant(&entry.file_name().to_string_lossy()) {
            found.push(entry.path());
        } else {
            search(&entry.path(), is_meant, found);
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
