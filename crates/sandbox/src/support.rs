//! What this machine allows: tried, not guessed.

use std::fs::{self, DirBuilder};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use nix::unistd::Uid;
use serde::{Deserialize, Serialize};

use crate::cgroup::{Cgroup, Place};
use crate::talk::Mode;
use crate::users::UNPRIVILEGED_ID;
use crate::{CgroupLayout, Mount, Network, Sandbox, SandboxError, SandboxSpec, plain};

/// `auto` (also when unset), `rootless` or `processes`: the most that may be used.
const VARIABLE: &str = "SHOAL_ISOLATION";

/// How instances are kept apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Isolation {
    /// Namespaces of their own, a network of their own, a root of their own.
    Full {
        /// Made without being root of the machine: the program runs as our own user.
        rootless: bool,
    },
    /// Plain processes of our own user, told to use loopback addresses 127.0.1.K.
    Processes,
}

/// What instances on this machine can have. It can be written down and given to another process of
/// the same user.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Support {
    /// How they are kept apart.
    pub isolation: Isolation,
    /// Whether memory is a limit (and processes, and CPU time by weight), and how.
    pub cgroup: Option<CgroupLayout>,
    /// Whether [`Mount::Overlay`] is writable. Probed in the directory for temporary files; another
    /// file system may differ.
    pub overlay: bool,
    /// What is missing and what it means, in sentences.
    pub notes: Vec<String>,
}

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
                            "programs run as root's own user, without its capabilities: they can read root's files in what is mounted"
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

    /// What every machine allows.
    #[must_use]
    pub fn processes_only() -> Support {
        Support { isolation: Isolation::Processes, cgroup: None, overlay: false, notes: without_namespaces() }
    }

    /// Every check, whether it is well, and what was found; for people to read.
    #[must_use]
    pub fn report(&self) -> Vec<(String, bool, String)> {
        let (isolated, how) = match self.isolation {
            Isolation::Full { rootless: false } => {
                (true, format!("own namespaces, as root; programs run as user {UNPRIVILEGED_ID}"))
            }
            Isolation::Full { rootless: true } => {
                (true, "own namespaces, rootless; programs run as your user".to_owned())
            }
            Isolation::Processes => (false, "plain processes on loopback addresses".to_owned()),
        };
        let limits = match self.cgroup {
            Some(CgroupLayout::V1) => "control groups, version 1",
            Some(CgroupLayout::V2) => "control groups, version 2",
            None => {
                "no control group can be made: memory, processes and CPU time are not limited, and if the machine runs out of memory the kernel \
                     may end any program"
            }
        };
        let layers = if self.overlay {
            "channels are writable, changes are thrown away"
        } else {
            "no overlay: channels are read-only or copied"
        };
        let mut report = vec![
            ("isolation".to_owned(), isolated, how),
            ("limits".to_owned(), self.cgroup.is_some(), limits.to_owned()),
            ("overlay".to_owned(), self.overlay, layers.to_owned()),
        ];
        report.extend(self.notes.iter().map(|note| ("note".to_owned(), false, note.clone())));
        report
    }

    /// Where a path of an instance with these mounts is: itself, unless instances are plain
    /// processes.
    #[must_use]
    pub fn path_of(&self, mounts: &[Mount], path: &Path) -> PathBuf {
        match self.isolation {
            Isolation::Full { .. } => path.to_owned(),
            Isolation::Processes => plain::path_of(mounts, path),
        }
    }

    pub(crate) fn mode(&self) -> Mode {
        match self.isolation {
            Isolation::Full { rootless: false } => Mode::Root,
            Isolation::Full { rootless: true } => Mode::Rootless,
            Isolation::Processes => Mode::Processes,
        }
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

fn without_namespaces() -> Vec<String> {
    [
        "instances are plain processes: they see all that your user sees, and ports are shared by all instances of all jobs",
        "/opt/ml is not at its place: programs must take the base directory from SAGEMAKER_BASE_DIR, and channels are copied",
        "host names algo-1 .. algo-N do not resolve: programs must use the addresses 127.0.1.1 .. 127.0.1.N",
    ]
    .map(str::to_owned)
    .to_vec()
}

struct Trial {
    overlay: bool,
    notes: Vec<String>,
}

/// A directory of this process alone, removed at the end.
struct Scratch(PathBuf);

impl Scratch {
    /// Beside it, what a process left that was killed while it probed.
    fn new(id: &str) -> Scratch {
        let parent = std::env::temp_dir();
        for entry in fs::read_dir(&parent).into_iter().flatten().flatten() {
            let name = entry.file_name();
            let pid =
                name.to_str().and_then(|name| name.strip_prefix("shoal-probe-")?.split_once('-')).map(|(pid, _)| pid);
            if pid.is_some_and(|pid| pid.parse::<u32>().is_ok() && !Path::new("/proc").join(pid).exists()) {
                // Another user's stays.
                let _ = fs::remove_dir_all(entry.path());
            }
        }
        // Nobody can know the name before the directory is there, and it is there for us alone.
        let unique = fs::read_to_string("/proc/sys/kernel/random/uuid").unwrap_or_default();
        let path = parent.join(format!("shoal-{id}-{}", unique.trim()));
        // Where it cannot be made, the trial fails and says why.
        let _ = DirBuilder::new().mode(0o700).create(&path);
        Scratch(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn trial(support: &Support) -> Result<Trial, SandboxError> {
    let id = probe_id();
    let scratch = Scratch::new(&id);
    let (lower, layer) = (scratch.0.join("lower"), scratch.0.join("layer"));
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
