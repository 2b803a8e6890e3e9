//! The process itself, under the names that every exporter has for it.

use std::fs;

use rustix::{
    param::{clock_ticks_per_second, page_size},
    process::{Resource, getrlimit},
};

use super::format::Text;

/// What is asked of the system.
pub(crate) struct Process {
    cpu_s: f64,
    started_s: f64,
    virtual_bytes: f64,
    resident_bytes: f64,
    threads: f64,
    open_files: f64,
    most_files: f64,
}

impl Process {
    /// Reads `/proc`; `None` where there is none.
    pub(crate) fn read() -> Option<Self> {
        let stat = fs::read_to_string("/proc/self/stat").ok()?;
        // The name of the program, in parentheses, may hold anything.
        let fields: Vec<f64> =
            stat.rsplit_once(')')?.1.split_whitespace().map(|field| field.parse().unwrap_or_default()).collect();
        // proc(5) counts from 1 and the name is number 2.
        let field = |number: usize| fields.get(number - 3).copied().unwrap_or_default();
        let ticks = clock_ticks_per_second() as f64;
        let uptime = fs::read_to_string("/proc/stat").ok()?;
        let booted: f64 = uptime.lines().find_map(|line| line.strip_prefix("btime ")?.trim().parse().ok())?;
        Some(Self {
            cpu_s: (field(14) + field(15)) / ticks,
            started_s: booted + field(22) / ticks,
            virtual_bytes: field(23),
            resident_bytes: field(24) * page_size() as f64,
            threads: field(20),
            open_files: fs::read_dir("/proc/self/fd").ok()?.count() as f64,
            most_files: getrlimit(Resource::Nofile).current.map_or(f64::INFINITY, |most| most as f64),
        })
    }

    pub(super) fn write(&self, text: &mut Text) {
        text.counter("process_cpu_seconds_total", "Total user and system CPU time spent in seconds.", self.cpu_s);
        for (name, help, value) in [
            ("process_start_time_seconds", "Start time of the process since unix epoch in seconds.", self.started_s),
            ("process_virtual_memory_bytes", "Virtual memory size in bytes.", self.virtual_bytes),
            ("process_resident_memory_bytes", "Resident memory size in bytes.", self.resident_bytes),
            ("process_threads", "Number of OS threads in the process.", self.threads),
            ("process_open_fds", "Number of open file descriptors.", self.open_files),
            ("process_max_fds", "Maximum number of open file descriptors.", self.most_files),
        ] {
            text.gauge(name, help, value);
        }
    }
}
