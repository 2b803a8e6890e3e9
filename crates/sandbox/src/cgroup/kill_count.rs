//! How often the kernel has killed something of the container that we are in, for its memory limit.

use std::fs;
use std::path::{Path, PathBuf};

/// Where a container sees its own control group: under version 2 and under version 1.
const FILES: [&str; 2] = ["memory.events", "memory/memory.oom_control"];

/// Counts from its making on.
#[derive(Debug)]
pub(crate) struct KillCount {
    file: PathBuf,
    before: u64,
}

impl KillCount {
    /// `None` if the container does not show it.
    pub(crate) fn here() -> Option<Self> {
        Self::below(Path::new("/sys/fs/cgroup"))
    }

    fn below(root: &Path) -> Option<Self> {
        FILES.iter().map(|file| root.join(file)).find_map(|file| Some(Self { before: count(&file)?, file }))
    }

    /// Whether there were any.
    pub(crate) fn has_grown(&self) -> bool {
        count(&self.file).is_some_and(|now| now > self.before)
    }
}

fn count(file: &Path) -> Option<u64> {
    let text = fs::read_to_string(file).ok()?;
    text.lines().find_map(|line| line.strip_prefix("oom_kill "))?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kills_are_counted_under_both_versions() {
        for (file, others) in [(FILES[0], "low 0\noom 3\n"), (FILES[1], "oom_kill_disable 0\nunder_oom 0\n")] {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join(file);
            assert!(KillCount::below(dir.path()).is_none());
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            let write = |count: u32| fs::write(&path, format!("{others}oom_kill {count}\n")).unwrap();
            write(2);
            let counted = KillCount::below(dir.path()).unwrap();
            assert!(!counted.has_grown());
            write(3);
            assert!(counted.has_grown(), "{file}");
        }
    }
}
