//! What crashes leave behind.

use std::fs;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::{cgroup, plain, reexec};

/// Kills every instance and network whose id begins so, and removes their control groups. For a caller whose own are all ended: those of
/// living ones are killed as well. Says what it did, in sentences; what belongs to other users stays.
pub fn sweep(id_prefix: &str) -> Vec<String> {
    let mut done = Vec::new();
    // The first round takes the helpers and, with them, what the kernel ends; the next ones whoever was being born.
    let mut patience = 100;
    loop {
        let mut left = false;
        for (pid, name) in processes(id_prefix) {
            if kill(pid, Signal::SIGKILL).is_ok() {
                left = true;
                let line = format!("killed {name} (process {pid})");
                if !done.contains(&line) {
                    done.push(line);
                }
            }
        }
        patience -= 1;
        if !left || patience == 0 {
            break;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    for group in cgroup::named(id_prefix) {
        match cgroup::remove(&group) {
            Ok(()) => done.push(format!("removed control group {}", group.display())),
            Err(error) => done.push(format!("could not remove control group {}: {error}", group.display())),
        }
    }
    done
}

/// Helpers by name, plain processes by their mark.
fn processes(id_prefix: &str) -> Vec<(Pid, String)> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok()) else { continue };
        if pid == std::process::id() as i32 {
            continue;
        }
        let first = |file: &str, starts: &[String]| {
            let text = fs::read(entry.path().join(file)).unwrap_or_default();
            let mut parts = text.split(|byte| *byte == 0).map(String::from_utf8_lossy);
            parts.find(|part| starts.iter().any(|start| part.starts_with(start))).map(std::borrow::Cow::into_owned)
        };
        let helpers = [format!("{}{id_prefix}", reexec::INSTANCE), format!("{}{id_prefix}", reexec::NETWORK)];
        let name = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let name = String::from_utf8_lossy(name.split(|byte| *byte == 0).next().unwrap_or_default()).into_owned();
        if helpers.iter().any(|helper| name.starts_with(helper)) {
            found.push((Pid::from_raw(pid), name));
        } else if let Some(mark) = first("environ", &[format!("{}={id_prefix}", plain::MARK)]) {
            found.push((Pid::from_raw(pid), format!("{name} ({mark})")));
        }
    }
    found
}
