//! What instances on a machine can have.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::talk::Mode;
use crate::users::UNPRIVILEGED_ID;
use crate::{CgroupLayout, Mount, plain};

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
    /// Plain processes in a container that has nothing else: its files, its network and its limits
    /// are the instance's.
    Container,
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
    /// What every machine allows.
    #[must_use]
    pub fn processes_only() -> Support {
        Support { isolation: Isolation::Processes, cgroup: None, overlay: false, notes: without_namespaces() }
    }

    /// What a container has that was started for one instance.
    #[must_use]
    pub fn container() -> Support {
        Support { isolation: Isolation::Container, cgroup: None, overlay: false, notes: Vec::new() }
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
            Isolation::Container => (true, "plain processes in a container of their own".to_owned()),
        };
        let limits = match self.cgroup {
            Some(CgroupLayout::V1) => "control groups, version 1",
            Some(CgroupLayout::V2) => "control groups, version 2",
            None => {
                "no control group can be made: memory, processes and CPU time are not limited, and if the machine runs \
                 out of memory the kernel \
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
            Isolation::Full { .. } | Isolation::Container => path.to_owned(),
            Isolation::Processes => plain::path_of(mounts, path),
        }
    }

    pub(crate) fn mode(&self) -> Mode {
        match self.isolation {
            Isolation::Full { rootless: false } => Mode::Root,
            Isolation::Full { rootless: true } => Mode::Rootless,
            Isolation::Processes => Mode::Processes,
            Isolation::Container => Mode::Container,
        }
    }
}

pub(crate) fn without_namespaces() -> Vec<String> {
    [
        "instances are plain processes: they see all that your user sees, and ports are shared by all instances of all \
         jobs",
        "/opt/ml is not at its place: programs must take the base directory from SAGEMAKER_BASE_DIR, and channels are \
         copied",
        "host names algo-1 .. algo-N do not resolve: programs must use the addresses 127.0.1.1 .. 127.0.1.N",
    ]
    .map(str::to_owned)
    .to_vec()
}
