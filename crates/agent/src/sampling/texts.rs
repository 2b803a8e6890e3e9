//! What the kernel's texts about processes, control groups and network interfaces contain. Pure.

use std::time::Duration;

/// What matters of `/proc/PID/stat`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stat {
    /// Clock ticks of the process.
    pub(super) ticks: u64,
    /// Clock ticks of its children that have ended and were waited for.
    pub(super) reaped_ticks: u64,
    /// When it started, in clock ticks since the machine's start: with the pid it names a process.
    pub(super) start: u64,
    /// Pages that are resident.
    pub(super) resident_pages: u64,
    /// It is one that PyTorch's `DataLoader` started, which names them so.
    pub(super) is_data_loader: bool,
}

/// The name of PyTorch's processes that load data.
const DATA_LOADER: &str = "pt_data_worker";

impl Stat {
    /// Reads the text. The name of the program, in parentheses, may contain anything.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (start, fields) = text.rsplit_once(") ")?;
        // The first of them is number 3, the state.
        let fields: Vec<&str> = fields.split_ascii_whitespace().take(22).collect();
        let number = |field: usize| fields.get(field - 3)?.parse::<u64>().ok();
        Some(Self {
            ticks: number(14)? + number(15)?,
            reaped_ticks: number(16)? + number(17)?,
            start: number(22)?,
            resident_pages: number(24)?,
            is_data_loader: start.split_once(" (").is_some_and(|(_, name)| name == DATA_LOADER),
        })
    }
}

/// Bytes that went each way.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Transferred {
    /// Read or received.
    pub(super) inward: u64,
    /// Written or sent.
    pub(super) outward: u64,
}

/// Resident pages that a process has for itself alone, and those that it may share
/// (`/proc/PID/statm`).
pub(super) fn own_and_shared_pages(statm: &str) -> Option<(u64, u64)> {
    let mut numbers = statm.split_ascii_whitespace().skip(1).map(|number| number.parse::<u64>().ok());
    let (resident, shared) = (numbers.next()??, numbers.next()??);
    Some((resident.saturating_sub(shared), shared))
}

/// What a process has read from disks and written (`/proc/PID/io`).
pub(super) fn process_io(text: &str) -> Option<Transferred> {
    Some(Transferred { inward: field(text, "read_bytes: ")?, outward: field(text, "write_bytes: ")? })
}

/// What all interfaces but the loopback have received and sent (`/proc/PID/net/dev`).
pub(super) fn network(text: &str) -> Transferred {
    let mut all = Transferred::default();
    for line in text.lines() {
        let Some((name, numbers)) = line.split_once(':') else { continue };
        let numbers: Vec<u64> = numbers.split_ascii_whitespace().map_while(|it| it.parse().ok()).collect();
        if let (false, Some(received), Some(sent)) = (name.trim() == "lo", numbers.first(), numbers.get(8)) {
            all.inward += received;
            all.outward += sent;
        }
    }
    all
}

/// Processor time of a version 2 group (`cpu.stat`).
pub(super) fn group_cpu(text: &str) -> Option<Duration> {
    field(text, "usage_usec ").map(Duration::from_micros)
}

/// What a version 2 group has read and written (`io.stat`), on all devices.
pub(super) fn group_io(text: &str) -> Transferred {
    let mut all = Transferred::default();
    for word in text.split_ascii_whitespace() {
        match word.split_once('=').map(|(name, number)| (name, number.parse::<u64>().unwrap_or(0))) {
            Some(("rbytes", bytes)) => all.inward += bytes,
            Some(("wbytes", bytes)) => all.outward += bytes,
            _ => {}
        }
    }
    all
}

/// How long some processes of a version 2 group waited for disks (`io.pressure`).
pub(super) fn io_wait(text: &str) -> Option<Duration> {
    let some = text.lines().find_map(|line| line.strip_prefix("some "))?;
    let total = some.split_ascii_whitespace().find_map(|word| word.strip_prefix("total="))?;
    total.parse().ok().map(Duration::from_micros)
}

/// Pages of files in a group's memory that were not used for long, by its `memory.stat`: the kernel
/// takes them back before anything is short of memory.
pub(super) fn inactive_file(text: &str) -> u64 {
    // Version 1 has both names, and the group's sum under this one.
    field(text, "total_inactive_file ").or_else(|| field(text, "inactive_file ")).unwrap_or(0)
}

/// The rank of a process, by its variables (`/proc/PID/environ`).
pub(super) fn rank(environ: &[u8]) -> Option<u32> {
    // As torchrun and `shoal ranks` name it, Open MPI, and Horovod.
    const NAMES: [&[u8]; 3] = [b"RANK", b"OMPI_COMM_WORLD_RANK", b"HOROVOD_RANK"];
    let of = |name: &[u8]| {
        let mut variables = environ.split(|byte| *byte == 0);
        let value = variables.find_map(|it| it.strip_prefix(name)?.strip_prefix(b"="))?;
        std::str::from_utf8(value).ok()?.parse().ok()
    };
    NAMES.into_iter().find_map(of)
}

fn field(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_cannot_name_itself_into_other_numbers() {
        let text = "42 (a) R 9 (b)) S 1 42 42 0 -1 4194560 500 70 0 0 311 22 5 6 20 0 4 0 98765 230000000 2500 1 2 3";
        let expected = Stat { ticks: 333, reaped_ticks: 11, start: 98765, resident_pages: 2500, is_data_loader: false };
        assert_eq!(Stat::parse(text), Some(expected));
        let loader = text.replace("a) R 9 (b)", DATA_LOADER);
        assert_eq!(Stat::parse(&loader), Some(Stat { is_data_loader: true, ..expected }));
        for cut in ["", "42 (a", "42 (a) S 1 2 3", "42 (a) S x x x x x x x x x x x x x x x x x x x x x x"] {
            assert_eq!(Stat::parse(cut), None, "{cut}");
        }
    }

    #[test]
    fn texts_of_the_kernel() {
        let transferred = |inward, outward| Transferred { inward, outward };
        assert_eq!(own_and_shared_pages("900 300 120 1 0 150 0\n"), Some((180, 120)));
        assert_eq!(own_and_shared_pages("900"), None);
        let io =
            "rchar: 1\nwchar: 2\nsyscr: 3\nsyscw: 4\nread_bytes: 4096\nwrite_bytes: 8192\ncancelled_write_bytes: 9\n";
        assert_eq!(process_io(io), Some(transferred(4096, 8192)));
        assert_eq!(process_io("rchar: 1\n"), None);
        let dev = "Inter-|   Receive                          |  Transmit\n face |bytes    packets errs|bytes\n    lo: 99 1 0 0 0 \
                   0 0 0 99 1 0 0 0 0 0 0\n  eth0: 1000 2 0 0 0 0 0 0 300 4 0 0 0 0 0 0\n  ib0:7 2 0 0 0 0 0 0 1 4 0\n";
        assert_eq!(network(dev), transferred(1007, 301));
        assert_eq!(network("").inward, 0);
        assert_eq!(group_cpu("usage_usec 1500000\nuser_usec 9\n"), Some(Duration::from_millis(1500)));
        assert_eq!(group_cpu("user_usec 9\n"), None);
        let pressure = "some avg10=0.12 avg60=0.83 avg300=1.78 total=2500000\nfull avg10=0.00 avg60=0.00 total=99\n";
        assert_eq!((io_wait(pressure), io_wait("full total=9\n")), (Some(Duration::from_millis(2500)), None));
        let stat = "8:0 rbytes=100 wbytes=7 rios=1 wios=1 dbytes=0 dios=0\n8:16 rbytes=1 wbytes=1 rios=0\n";
        assert_eq!(group_io(stat), transferred(101, 8));
        assert_eq!(inactive_file("cache 1\ninactive_file 5\ntotal_inactive_file 8\n"), 8);
        assert_eq!(inactive_file("anon 1\ninactive_file 5\n"), 5);
        assert_eq!(inactive_file(""), 0);
    }

    #[test]
    fn a_rank_is_what_its_launcher_named_it() {
        for (environ, expected) in [
            (&b"PATH=/bin\0RANK=3\0WORLD_SIZE=4\0"[..], Some(3)),
            (b"OMPI_COMM_WORLD_RANK=7\0", Some(7)),
            (b"HOROVOD_RANK=1", Some(1)),
            (b"LOCAL_RANK=1\0GROUP_RANK=2\0", None),
            (b"RANK=\0OMPI_COMM_WORLD_RANK=2\0", Some(2)),
            (b"RANK=-1\0XRANK=2\0", None),
            (b"", None),
        ] {
            assert_eq!(rank(environ), expected, "{}", String::from_utf8_lossy(environ));
        }
    }
}
