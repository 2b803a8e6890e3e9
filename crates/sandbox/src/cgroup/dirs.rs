//! Where the kernel counts what an instance uses.

use std::fs;
use std::path::PathBuf;

use super::{PARENT, own_directory};
use crate::CgroupLayout;

/// Directories of an instance's own control group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupDirs {
    /// By which version they are arranged.
    pub layout: CgroupLayout,
    /// Counts memory and lists the processes.
    pub memory: PathBuf,
    /// Counts processor time; version 1 may have it in a hierarchy where instances have no group.
    pub cpu: Option<PathBuf>,
}

/// The control group of the instance that this process is in; none if its instance has none of its
/// own.
#[must_use]
pub fn group_of(pid: u32) -> Option<GroupDirs> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
    let groups = fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()?;
    dirs(&mounts, &groups)
}

fn dirs(mounts: &str, groups: &str) -> Option<GroupDirs> {
    let of = |controller: Option<&str>| {
        let (directory, _) = own_directory(mounts, groups, controller)?;
        directory.iter().any(|name| name == PARENT).then_some(directory)
    };
    if let Some(memory) = of(Some("memory")) {
        return Some(GroupDirs { layout: CgroupLayout::V1, memory, cpu: of(Some("cpuacct")) });
    }
    let memory = of(None)?;
    Some(GroupDirs { layout: CgroupLayout::V2, cpu: Some(memory.clone()), memory })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_group_of_its_own_counts_for_an_instance() {
        let v1 = "32 30 0:28 / /cg/memory rw - cgroup cgroup rw,memory\n33 30 0:29 / /cg/cpu rw - cgroup cgroup \
                  rw,cpu,cpuacct\n31 30 0:27 / /cg/unified rw - cgroup2 cgroup2 rw";
        let v2 = "31 30 0:27 / /cg rw - cgroup2 cgroup2 rw";
        let (layout, path) = (CgroupLayout::V1, |path: &str| PathBuf::from(path));
        for (mounts, groups, expected) in [
            (
                v1,
                "4:memory:/shoal/together-a/i\n3:cpu,cpuacct:/shoal/i\n0::/",
                Some(GroupDirs {
                    layout,
                    memory: path("/cg/memory/shoal/together-a/i"),
                    cpu: Some(path("/cg/cpu/shoal/i")),
                }),
            ),
            (
                v1,
                "4:memory:/shoal/i\n3:cpu,cpuacct:/\n0::/",
                Some(GroupDirs { layout, memory: path("/cg/memory/shoal/i"), cpu: None }),
            ),
            (v1, "4:memory:/\n3:cpu,cpuacct:/\n0::/", None),
            (
                v2,
                "0::/user.slice/shoal/i",
                Some(GroupDirs {
                    layout: CgroupLayout::V2,
                    memory: path("/cg/user.slice/shoal/i"),
                    cpu: Some(path("/cg/user.slice/shoal/i")),
                }),
            ),
            (v2, "0::/user.slice/a.scope", None),
            (v2, "", None),
        ] {
            assert_eq!(dirs(mounts, groups), expected, "{groups}");
        }
    }
}
