//! The reasons for which a test may be skipped in CI: each holds only where the machine really
//! lacks the thing.

use std::{path::Path, process::Command};

use crate::frameworks;

/// Whether a test of the repository at `root` that says this reason was right not to run here.
pub(crate) fn is_honest(root: &Path, reason: &str) -> bool {
    REASONS.iter().any(|(prefix, lacks)| reason.starts_with(prefix) && lacks(root))
}

/// Looks whether this machine lacks a thing.
type Lacks = fn(&Path) -> bool;

/// How a reason begins, and whether it holds here. Network is not among them: CI has its
/// registries.
const REASONS: &[(&str, Lacks)] = &[
    ("needs root", |_| !says("id -u", "0")),
    ("needs an ordinary user", |_| says("id -u", "0")),
    ("needs user namespaces", no_user_namespaces),
    // As root it is installed where it lacks.
    ("needs chromium", |_| !(runs("command -v chromium") || installs_packages())),
    ("needs docker's command and podman", |_| !(runs("command -v docker") && runs("command -v podman"))),
    // Likewise.
    ("needs Slurm", |_| !(runs("command -v slurmctld && command -v slurmrestd") || installs_packages())),
    ("needs runuser and", |_| !runs("command -v runuser && id games && id mail")),
    // `cargo xtask kubernetes` builds it of Debian's source.
    ("needs Kubernetes' API server", |_| !installs_packages()),
    ("needs docker's registry", |_| !(runs("command -v docker-registry") || installs_packages())),
    ("needs etcd", |_| !(runs("command -v etcd") || installs_packages())),
    ("needs openssl", |_| !runs("command -v openssl")),
    ("needs strace", |_| !runs("strace -o /dev/null true")),
    ("needs the right to mount", |_| !runs("unshare --mount mount -t tmpfs tmpfs /mnt")),
    // The sandbox's own tests, told by its probe.
    ("this machine allows", no_user_namespaces),
    // Those run once for each way of isolation, and not every test means something for every way.
    ("plain processes do not promise this", |_| true),
    ("only root gives files away", |_| true),
    ("needs root to have secrets", |_| true),
    ("without root nothing is shown as another user's", |_| true),
    // Programs that another test starts, and what only measures.
    ("run by the other test", |_| true),
    ("a measurement: ", |_| true),
    // `cargo xtask bench s3` installs it.
    ("needs s3s-fs", |_| !runs("command -v s3s-fs || ls \"$HOME/.cache/shoal/peers/bin/s3s-fs\"")),
    ("needs mpirun", |_| !runs("command -v mpirun")),
    ("needs promtool", |_| !runs("command -v promtool")),
    // Instructions are counted where the bounds hold: with AVX2, which valgrind knows.
    ("needs valgrind", |_| !runs("command -v valgrind")),
    ("needs a processor whose kernels are Avx2", |_| !runs("grep -qw avx2 /proc/cpuinfo")),
    ("needs the standard library of aarch64", |_| {
        !runs("test -d \"$(rustc --print target-libdir --target aarch64-unknown-linux-gnu)\"")
    }),
    ("needs IPv6", |_| !runs("test -e /proc/net/if_inet6")),
    ("needs an address beside loopback", |_| says("hostname -I", "")),
    // 1.8 GB: `cargo xtask test --all` creates it; CI uses one that is there.
    ("needs the TensorFlow environment", |_| !has_environment("tensorflow")),
    // 5.9 GiB, likewise.
    ("needs the Hugging Face environment", |_| !has_environment("huggingface")),
    // Jobs of libraries whose other jobs run always.
    ("needs `cargo xtask test --all`", |_| !frameworks::all_are_wanted()),
    // Built of its source, likewise.
    ("needs a wheel of DeepSpeed 0.19.8", |_| {
        !runs("ls \"${SHOAL_CACHE:-$HOME/.cache/shoal}\"/wheels/deepspeed-0.19.8-cp*.whl")
    }),
    ("needs the wheel of the Python package", |root| {
        !runs(&format!("ls \"${{CARGO_TARGET_DIR:-{}/target}}\"/wheels/shoal-*.whl", root.display()))
    }),
    ("needs a GPU and NCCL", |_| !(runs("ls /dev/nvidia0") && runs("ls ${SHOAL_COMM_NCCL:-/usr/lib/*/libnccl.so.2}"))),
    ("needs a GPU: ", |_| !runs("ls /dev/nvidia0")),
    ("needs 2 GPUs", |_| !runs("ls /dev/nvidia1")),
    ("needs 4 GPUs", |_| !runs("ls /dev/nvidia3")),
    ("needs ../shared/data", |root| !root.join("../shared/data").is_dir()),
];

fn installs_packages() -> bool {
    runs("test $(id -u) = 0 && command -v apt-get")
}

fn no_user_namespaces(_: &Path) -> bool {
    !runs("unshare --user --map-root-user --net true")
}

/// What jobs required on top of an environment has `job-` before its digest.
fn has_environment(name: &str) -> bool {
    runs(&format!("ls \"${{SHOAL_CACHE:-$HOME/.cache/shoal}}\"/environments/{name}-????????????????.json"))
}

fn runs(script: &str) -> bool {
    Command::new("sh").args(["-c", script]).output().is_ok_and(|output| output.status.success())
}

fn says(script: &str, answer: &str) -> bool {
    Command::new("sh").args(["-c", script]).output().is_ok_and(|output| output.stdout.trim_ascii() == answer.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_must_be_known_and_true() {
        let empty = Path::new("/proc/self/fd");
        assert!(!is_honest(empty, "too slow"));
        // CI creates PyTorch's environment.
        assert!(!is_honest(empty, "needs torch: x") && !is_honest(empty, "needs the PyTorch environment: x"));
        assert!(
            is_honest(empty, "needs root") != is_honest(empty, "needs an ordinary user"),
            "exactly one of them holds on any machine"
        );
        assert!(is_honest(empty, "needs ../shared/data: no wine"));
    }
}
