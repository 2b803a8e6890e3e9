//! Which machine numbers are of.

use std::fs;

use time::OffsetDateTime;

use crate::settings::readable;

/// Processor, cores, memory, kernel, load and the date, as one line.
pub(super) fn describe() -> String {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let cpu = field(&read("/proc/cpuinfo"), "model name").unwrap_or_else(|| "unknown processor".to_owned());
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let memory = field(&read("/proc/meminfo"), "MemTotal").and_then(|text| text.strip_suffix(" kB")?.parse::<u64>().ok());
    let memory = memory.map_or_else(|| "unknown memory".to_owned(), |kilobytes| readable(kilobytes << 10));
    let kernel = read("/proc/sys/kernel/osrelease");
    let load = load();
    let build = if cfg!(debug_assertions) { ", a build without optimisation" } else { "" };
    format!("{} on {cpu}, {cores} cores, {memory}, Linux {}, load average {load}{build}", OffsetDateTime::now_utc().date(), kernel.trim())
}

/// The load average of the last minute: others' work on the machine is in the numbers.
pub(super) fn load() -> String {
    fs::read_to_string("/proc/loadavg").unwrap_or_default().split(' ').next().unwrap_or_default().to_owned()
}

/// The value of the first `name : value` line.
fn field(text: &str, name: &str) -> Option<String> {
    text.lines().find_map(|line| Some(line.strip_prefix(name)?.trim_start().strip_prefix(':')?.trim().to_owned()))
}

/// Memory that a process holds now, in bytes.
pub(super) fn resident_bytes(pid: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    field(&status, "VmRSS")?.strip_suffix(" kB")?.parse::<u64>().ok().map(|kilobytes| kilobytes << 10)
}

/// Processor time of a process and of all its descendants that were waited for, in seconds.
pub(super) fn cpu_s(pid: u32) -> Option<f64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name before may hold anything; after it, state is the first field and utime, stime, cutime and cstime are the 12th to 15th.
    let (_, fields) = stat.rsplit_once(')')?;
    let ticks: Vec<u64> = fields.split_whitespace().skip(11).take(4).filter_map(|field| field.parse().ok()).collect();
    // Linux tells them in hundredths on every architecture.
    (ticks.len() == 4).then(|| ticks.iter().sum::<u64>() as f64 / 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_of_proc_files() {
        assert_eq!(field("a: 1\nmodel name\t: Fast 3000\n", "model name").as_deref(), Some("Fast 3000"));
        assert_eq!(field("MemTotal:       24 kB\n", "MemTotal").as_deref(), Some("24 kB"));
        assert!(cpu_s(std::process::id()).is_some());
        assert!(resident_bytes(std::process::id()).is_some_and(|bytes| bytes > 100 << 10));
    }
}
