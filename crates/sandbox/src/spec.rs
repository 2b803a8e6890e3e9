//! What an instance is made of.

use std::io;
use std::net::Ipv4Addr;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use nix::fcntl::{OFlag, OpenHow, ResolveFlag, open, openat2};
use nix::sys::stat::Mode;
use serde::{Deserialize, Serialize};

/// One instance.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SandboxSpec {
    /// Unique on this machine: names cgroups and processes, e.g. `<data dir id>-<attempt>-<host>`.
    pub id: String,
    /// `algo-1`.
    pub hostname: String,
    /// This instance's number, from 1 (its address on the job's network ends in it).
    pub host: u32,
    /// All host names, in order; resolved by `/etc/hosts` inside.
    pub hosts: Vec<String>,
    /// The addresses of their machines, where instances are on several of them: the instance has
    /// its machine's network then, and no listeners. None: it has a network of its own.
    #[serde(default)]
    pub addresses: Vec<Ipv4Addr>,
    /// What is mounted on top of the minimal root (`/usr`, `/lib*`, chosen `/etc`, private `/tmp`,
    /// `/dev/shm`, `/proc`, `/sys`). What has the target `/` takes the place of the machine's own
    /// files in it: the tree of an image.
    pub mounts: Vec<Mount>,
    /// Program and arguments; looked up in the given `PATH`.
    pub command: Vec<String>,
    /// The whole environment.
    pub env: Vec<(String, String)>,
    /// Working directory inside.
    pub cwd: PathBuf,
    /// Memory limit of the whole instance.
    pub memory_bytes: u64,
    /// The instances with which it has a memory limit in common besides that.
    pub together: Option<Together>,
    /// cgroup v2 weight, 1 to 10000.
    pub cpu_weight: u32,
    /// Most processes and threads.
    pub pids: u32,
    /// Whether there is a listener at [`crate::PROXY_PORT`], too.
    pub has_proxy: bool,
}

/// Instances that have a memory limit in common: when they reach it together, the kernel looks for
/// what to kill among them and nowhere else.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Together {
    /// The same for all of them; no other instances' on this machine.
    pub name: String,
    /// Their limit. The last one to start sets it for all.
    pub memory_bytes: u64,
}

/// Something of the machine that the instance sees.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mount {
    /// Writable, and owned by the program's user (the sandbox sees to that).
    Bind {
        /// On the machine.
        source: PathBuf,
        /// Inside.
        target: PathBuf,
    },
    /// Read-only.
    ReadOnly {
        /// On the machine.
        source: PathBuf,
        /// Inside.
        target: PathBuf,
    },
    /// `lower` with a throw-away writable layer; read-only where no overlay can be had.
    Overlay {
        /// On the machine; never changed.
        lower: PathBuf,
        /// An existing empty directory on the machine for the layer.
        scratch: PathBuf,
        /// Inside.
        target: PathBuf,
    },
    /// A directory whose files others own and may change: its owners and modes are what they are.
    Shared {
        /// On the machine.
        root: PathBuf,
        /// The directory below it, reached without symbolic links; empty for the root itself.
        below: PathBuf,
        /// Inside.
        target: PathBuf,
        /// The program may change what its user may.
        is_writable: bool,
    },
}

impl Mount {
    /// What of the machine is shown.
    pub(crate) fn source(&self) -> &Path {
        match self {
            Mount::Bind { source, .. } | Mount::ReadOnly { source, .. } => source,
            Mount::Overlay { lower, .. } => lower,
            Mount::Shared { root, .. } => root,
        }
    }

    /// Of a shared directory: the directory itself, which stays the same one while this is open.
    pub(crate) fn open_shared(&self) -> io::Result<Option<OwnedFd>> {
        let Mount::Shared { root, below, .. } = self else { return Ok(None) };
        let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let root = open(root, flags, Mode::empty())?;
        if below.as_os_str().is_empty() {
            return Ok(Some(root));
        }
        let resolve = ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_SYMLINKS;
        Ok(Some(openat2(root, below, OpenHow::new().flags(flags).resolve(resolve))?))
    }

    /// Whether it is the tree of an image, in the place of the minimal root.
    pub(crate) fn is_root(&self) -> bool {
        self.target() == Path::new("/")
    }

    /// Where the instance sees it.
    pub(crate) fn target(&self) -> &Path {
        match self {
            Mount::Bind { target, .. }
            | Mount::ReadOnly { target, .. }
            | Mount::Overlay { target, .. }
            | Mount::Shared { target, .. } => target,
        }
    }
}

/// How an instance's program ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exit {
    /// Exit code, if it exited.
    pub code: Option<i32>,
    /// Signal, if it was killed.
    pub signal: Option<i32>,
    /// The kernel killed something of the instance for memory.
    pub out_of_memory: Option<OutOfMemory>,
}

/// Why the kernel killed something of an instance for memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OutOfMemory {
    /// The instance had reached its own limit.
    Own,
    /// It had not: all instances together had reached theirs ([`Together`]), or the machine had no
    /// memory left.
    Together {
        /// What the instance held at most, files that it had read among it; 0 if the kernel does
        /// not tell.
        used_bytes: u64,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shared_directory_is_reached_without_links() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("a/b")).unwrap();
        std::os::unix::fs::symlink("b", dir.path().join("a/within")).unwrap();
        std::os::unix::fs::symlink("/etc", dir.path().join("a/out")).unwrap();
        std::fs::write(dir.path().join("file"), "").unwrap();
        let open = |below: &str| {
            let root = dir.path().to_owned();
            Mount::Shared { root, below: below.into(), target: "/d".into(), is_writable: false }.open_shared()
        };
        for below in ["", "a", "a/b"] {
            assert!(open(below).unwrap().is_some(), "{below}");
        }
        for below in ["a/within", "a/out", "..", "a/../..", "file", "none"] {
            assert!(open(below).is_err(), "{below}");
        }
    }
}
