//! What this machine allows: tried, not guessed.

use std::fs::{self, DirBuilder, File};
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

use nix::unistd::Uid;

use crate::cgroup::{Cgroup, Place};
use crate::support::without_namespaces;
use crate::{CgroupLayout, Isolation, Mount, Network, Sandbox, SandboxError, SandboxSpec, Support};

/// `auto` (also when unset), `rootless` or `processes`: the most that may be used.
const VARIABLE: &str = "SHOAL_ISOLATION";

impl Support {
    /// Finds out by making a throw-away instance. What it finds is the same for all processes of
    /// this user on this machine, so once per process is enough.
    #[must_use]
    pub fn probe() -> Support {
        let asked = std::env::var(VARIABLE).unwrap_or_default();
        let candidates: &[bool] = match &*asked {
            "processes" => &[],
            "rootless" => &[true],
            _ if Uid::effective().is_root() => &[false, true],
            _ => &[true],
        };
        let mut notes = Vec::new();
        match &*asked {
            "" | "auto" | "rootless" => {}
            "processes" => notes.push(format!("{VARIABLE}={asked} forbids namespaces")),
            _ => notes.push(format!("{VARIABLE}={asked} is none of auto, rootless and processes: taken as auto")),
        }
        let cgroup = probe_cgroup(&mut notes);
        for rootless in candidates {
            let support = Support {
                isolation: Isolation::Full { rootless: *rootless },
                cgroup: None,
                overlay: false,
                notes: Vec::new(),
            };
            match trial(&support) {
                Ok(trial) => {
                    notes.extend(trial.notes);
                    if *rootless && Uid::effective().is_root() {
                        notes.push(
                            "programs run as root's own user, without its capabilities: they can read root's files in \
                             what is mounted"
                                .to_owned(),
                        );
                    }
                    return Support { cgroup, overlay: trial.overlay, notes, ..support };
                }
                Err(error) => notes.push(refusal(*rootless, &error)),
            }
        }
        notes.extend(without_namespaces());
        Support { cgroup, notes, ..Support::processes_only() }
    }
}

fn refusal(rootless: bool, error: &SandboxError) -> String {
    let how = if rootless { "rootless" } else { "as root" };
    let advice = match fs::read_to_string("/proc/sys/kernel/apparmor_restrict_unprivileged_userns") {
        Ok(text) if rootless && text.trim() == "1" => {
            " (AppArmor forbids it: sysctl kernel.apparmor_restrict_unprivileged_userns=0 allows it)"
        }
        _ => "",
    };
    format!("no namespaces {how}: {}{advice}", error.chain())
}

struct Trial {
    overlay: bool,
    notes: Vec<String>,
}

/// A directory of this process alone, removed at the end.
struct Scratch {
    path: PathBuf,
    /// Held until then. A process id would not do: machines that share the directory for temporary
    /// files do not see each other's.
    _lock: Option<File>,
}

/// In such a directory.
const LOCK: &str = "lock";

impl Scratch {
    /// Beside it, what a process left that was killed while it probed.
    fn new(id: &str) -> Scratch {
        let parent = std::env::temp_dir();
        for entry in fs::read_dir(&parent).into_iter().flatten().flatten() {
            let is_scratch = entry.file_name().to_str().is_some_and(|name| name.starts_with("shoal-probe-"));
            let lock = is_scratch.then(|| File::open(entry.path().join(LOCK)).ok()).flatten();
            if lock.is_some_and(|lock| lock.try_lock().is_ok()) {
                // Another user's stays.
                let _ = fs::remove_dir_all(entry.path());
            }
        }
        // Nobody can know the name before the directory is there, and it is there for us alone.
        let unique = fs::read_to_string("/proc/sys/kernel/random/uuid").unwrap_or_default();
        let path = parent.join(format!("shoal-{id}-{}", unique.trim()));
        // Where it cannot be made, the trial fails and says why.
        let _ = DirBuilder::new().mode(0o700).create(&path);
        // It gets its name when it is locked.
        let (draft, named) = (path.join("draft"), path.join(LOCK));
        let lock = File::create(&draft).ok().filter(|lock| lock.try_lock().is_ok());
        let lock = lock.filter(|_| fs::rename(&draft, &named).is_ok());
        Scratch { path, _lock: lock }
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.path);
    }
}

fn trial(support: &Support) -> Result<Trial, SandboxError> {
    let id = probe_id();
    let scratch = Scratch::new(&id);
    let (lower, layer) = (scratch.path.join("lower"), scratch.path.join("layer"));
    let made = fs::create_dir_all(&lower).and_then(|()| fs::create_dir_all(&layer));
    let mounts = match made {
        Ok(()) => vec![Mount::Overlay { lower, scratch: layer, target: "/opt/ml".into() }],
        Err(_) => Vec::new(),
    };
    let asked = !mounts.is_empty();
    let network = Network::create(&id, 1, support)?;
    let mut sandbox = Sandbox::start(&nothing(id, mounts), &network, support)?;
    let exit = sandbox.wait()?;
    if exit.code != Some(0) {
        let how = match (exit.code, exit.signal) {
            (Some(code), _) => format!("exited with code {code}"),
            (None, Some(signal)) => format!("was killed by signal {signal}"),
            (None, None) => "ended without an exit code".to_owned(),
        };
        return Err(SandboxError::Program { message: format!("`true` {how}"), code: 126 });
    }
    let notes = if asked {
        sandbox.notes().to_vec()
    } else {
        vec!["no directory for temporary files: overlays were not tried".to_owned()]
    };
    Ok(Trial { overlay: asked && !sandbox.overlay_failed(), notes })
}

/// Threads may probe at the same time.
fn probe_id() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("probe-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

/// An instance that ends at once.
fn nothing(id: String, mounts: Vec<Mount>) -> SandboxSpec {
    SandboxSpec {
        id,
        hostname: "algo-1".to_owned(),
        host: 1,
        hosts: vec!["algo-1".to_owned()],
        mounts,
        command: vec!["true".to_owned()],
        env: Vec::new(),
        cwd: "/".into(),
        memory_bytes: 64 << 20,
        together: None,
        cpu_weight: 100,
        pids: 16,
        addresses: Vec::new(),
        has_proxy: false,
    }
}

fn probe_cgroup(notes: &mut Vec<String>) -> Option<CgroupLayout> {
    let spec = nothing(probe_id(), Vec::new());
    let mut refused = Vec::new();
    for layout in [CgroupLayout::V2, CgroupLayout::V1] {
        let Some(place) = Place::find(layout) else { continue };
        match Cgroup::make(&place, &spec) {
            Ok(group) => {
                let missing =
                    [("pids", "processes are"), ("cpu", "CPU time is")].iter().filter(|(what, _)| !group.limits(what));
                notes.extend(
                    missing.map(|(what, are)| {
                        format!("{are} not limited: this machine has no {what} control group for us")
                    }),
                );
                return Some(layout);
            }
            Err(error) => refused.push(error.chain()),
        }
    }
    let why = if refused.is_empty() { String::new() } else { format!(" ({})", refused.join("; ")) };
    notes.push(format!(
        "memory, processes and CPU time of instances are not limited: no control group can be made{why}"
    ));
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_probe_uses_stays_and_what_a_killed_one_left_goes() {
        let used = Scratch::new("probe-1-0");
        let left = Scratch::new("probe-2-0");
        let path = left.path.clone();
        // As a killed process leaves it.
        drop(std::mem::ManuallyDrop::new(left)._lock.take());
        let _next = Scratch::new("probe-3-0");
        assert!(used.path.exists() && !path.exists());
    }
}
