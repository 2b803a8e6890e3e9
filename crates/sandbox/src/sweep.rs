//! What crashes leave behind.

use std::fs;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::spawn::{INSTANCE, NETWORK};
use crate::{cgroup, plain};

/// Kills every instance and network whose id begins with one of these, and removes their control
/// groups. For a caller whose own are all ended: those of living ones are killed as well. Says what
/// it did, in sentences; what belongs to other users stays.
pub fn sweep(id_prefixes: &[impl AsRef<str>]) -> Vec<String> {
    let is_meant = |id: &str| id_prefixes.iter().any(|prefix| id.starts_with(prefix.as_ref()));
    let mut done = kill_all(is_meant);
    for group in cgroup::named(&is_meant) {
        match cgroup::remove(&group) {
            Ok(()) => done.push(format!("removed control group {}", group.display())),
            Err(error) => done.push(format!("could not remove control group {}: {error}", group.display())),
        }
    }
    done
}

/// Helpers, with what the kernel ends with them, and plain processes, until there are none.
pub(crate) fn kill_all(mut is_meant: impl FnMut(&str) -> bool) -> Vec<String> {
    let mut done = Vec::new();
    for _ in 0..200 {
        let killed: Vec<_> =
            processes(&mut is_meant).into_iter().filter(|(pid, _)| kill(*pid, Signal::SIGKILL).is_ok()).collect();
        if killed.is_empty() {
            break;
        }
        done.extend(killed.into_iter().map(|(pid, name)| format!("killed {name} (process {pid})")));
        std::thread::sleep(Duration::from_millis(5));
    }
    done.sort();
    done.dedup();
    done
}

/// Helpers by name, plain processes by their mark. The dead who have not been waited for have
/// neither.
fn processes(is_meant: &mut impl FnMut(&str) -> bool) -> Vec<(Pid, String)> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
        let strings = |file: &str| {
            let text = fs::read(entry.path().join(file)).unwrap_or_default();
            text.split(|byte| *byte == 0).map(|part| String::from_utf8_lossy(part).into_owned()).collect::<Vec<_>>()
        };
        if pid == std::process::id() {
            continue;
        }
        let name = strings("cmdline").swap_remove(0);
        let helper = name.strip_prefix(INSTANCE).or_else(|| name.strip_prefix(NETWORK));
        let variables = if helper.is_none() { strings("environ") } else { Vec::new() };
        let mark = variables.iter().find_map(|variable| variable.strip_prefix(plain::MARK)?.strip_prefix('='));
        if helper.or(mark).is_some_and(&mut *is_meant) {
            found.push((Pid::from_raw(pid as i32), name));
        }
    }
    found
}
