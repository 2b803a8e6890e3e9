//! Which machine numbers are of.

use std::fs;

use time::OffsetDateTime;

use shoal_cli::settings::readable;

/// Processor, cores, memory, kernel, load and the date, as one line.
pub(super) fn describe() -> String {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let cpu = processor(&read("/proc/cpuinfo"), &|index| {
        cache(&read(&format!("/sys/devices/system/cpu/cpu0/cache/index{index}/size")))
    });
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let memory =
        field(&read("/proc/meminfo"), "MemTotal").and_then(|text| text.strip_suffix(" kB")?.parse::<u64>().ok());
    let memory = memory.map_or_else(|| "unknown memory".to_owned(), |kilobytes| readable(kilobytes << 10));
    let kernel = read("/proc/sys/kernel/osrelease");
    let load = load();
    let build = if cfg!(debug_assertions) { ", a build without optimisation" } else { "" };
    format!(
        "{} on {cpu}, {cores} cores, {memory}, Linux {}, load average {load}{build}",
        OffsetDateTime::now_utc().date(),
        kernel.trim()
    )
}

/// The processor's name; its family and model, as virtual machines call many kinds by one name; and
/// its caches, of which a core has the first two for itself.
fn processor(cpuinfo: &str, cache: &dyn Fn(u32) -> Option<u64>) -> String {
    let name = field(cpuinfo, "model name").unwrap_or_else(|| "unknown processor".to_owned());
    let kind = field(cpuinfo, "cpu family")
        .zip(field(cpuinfo, "model"))
        .map(|(family, model)| format!("family {family}, model {model}"));
    // The second index is the first cache's other half, of instructions.
    let caches: Vec<_> = [0, 2, 3].into_iter().filter_map(cache).map(readable).collect();
    let caches = (!caches.is_empty()).then(|| format!("caches {}", caches.join(", ")));
    let more: Vec<_> = kind.into_iter().chain(caches).collect();
    if more.is_empty() { name } else { format!("{name} ({})", more.join(", ")) }
}

/// Bytes of a cache, as the system writes them.
fn cache(text: &str) -> Option<u64> {
    text.trim().strip_suffix('K')?.parse::<u64>().ok().map(|kilobytes| kilobytes << 10)
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
    // The name before may hold anything; after it, state is the first field and utime, stime,
    // cutime and cstime are the 12th to 15th.
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
        let info = "cpu family\t: 6\nmodel\t\t: 173\nmodel name\t: Intel(R) Xeon(R) 6972P\n";
        let caches = |index| {
            cache([(0, "48K\n"), (2, "2048K\n"), (3, "491520K\n")].into_iter().find(|(number, _)| *number == index)?.1)
        };
        assert_eq!(
            processor(info, &caches),
            "Intel(R) Xeon(R) 6972P (family 6, model 173, caches 48.0 KiB, 2.0 MiB, 480.0 MiB)"
        );
        assert_eq!((processor("", &|_| None), cache("")), ("unknown processor".to_owned(), None));
        assert_eq!(field("MemTotal:       24 kB\n", "MemTotal").as_deref(), Some("24 kB"));
        assert!(cpu_s(std::process::id()).is_some());
        assert!(resident_bytes(std::process::id()).is_some_and(|bytes| bytes > 100 << 10));
    }
}
