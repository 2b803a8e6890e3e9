//! `cargo xtask bench comm`: process groups on this machine, and what other libraries take for the
//! same, in turns.

mod contender;
mod goals;
pub(super) mod rank;

use std::{path::PathBuf, time::Duration};

use anyhow::{Context, Result, ensure};
use clap::{Args, ValueEnum};
use shoal_comm::bench::Operation;

use super::{
    machine,
    report::{self, Goal},
    server::temporary_dir,
    spread::Spread,
};
use contender::{Contender, Row};
use shoal_cli::{
    exit::Exit,
    output::{Progress, show},
};

/// Load for each core above which times say more of other work than of ours: ratios are told then,
/// and not held to goals.
const BUSY: f64 = 2.0;

/// Sizes at which the operations other than all-reduce are measured where none are named.
const OTHERS: [usize; 2] = [1 << 20, 16 << 20];

/// What carries the data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Medium {
    /// Shared memory.
    #[value(name = "shm")]
    SharedMemory,
    /// TCP over loopback.
    Tcp,
}

impl Medium {
    /// For `SHOAL_COMM_TRANSPORT`.
    const fn carrier(self) -> &'static str {
        match self {
            Self::SharedMemory => "auto",
            Self::Tcp => "tcp",
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::SharedMemory => "shared memory",
            Self::Tcp => "TCP over loopback",
        }
    }
}

/// Arguments of `cargo xtask bench comm`.
#[derive(Debug, Args)]
pub(crate) struct CommArgs {
    /// How many ranks, each a process.
    #[arg(long, value_name = "N", value_delimiter = ',', default_values_t = [2, 4])]
    ranks: Vec<usize>,
    /// What carries the data.
    #[arg(long, value_name = "MEDIUM", value_delimiter = ',', default_values = ["shm", "tcp"])]
    over: Vec<Medium>,
    /// Bytes of the whole vector, f32.
    #[arg(long, value_name = "BYTES", value_delimiter = ',', default_values_t = [4, 1024, 1 << 16, 1 << 20, 16 << 20, 64 << 20])]
    bytes: Vec<usize>,
    /// Operations (allreduce, reduce_scatter, allgather, bcast, alltoall), each with all sizes; if
    /// not named: allreduce with all sizes, and reduce_scatter, allgather and bcast with 1 MiB and
    /// 16 MiB.
    #[arg(long, value_name = "OPERATION", value_delimiter = ',')]
    ops: Vec<Operation>,
    /// Seconds for each operation and size, beside warming up.
    #[arg(long, default_value_t = 0.2)]
    seconds: f64,
    /// How often everybody has a turn.
    #[arg(long, default_value_t = 3)]
    turns: usize,
    /// Another library, NAME=PATH, as often as there are: a Python with torch (Gloo;
    /// gloo=venv/bin/python), or a directory with mpicc and mpirun (OpenMPI=/usr/bin,
    /// IntelMPI=venv/bin after `pip install impi-rt impi-devel`), which needs a C compiler, too.
    #[arg(long = "peer", value_name = "NAME=PATH")]
    peers: Vec<String>,
    /// Puts the section in this file, too.
    #[arg(long, value_name = "FILE")]
    write: Option<PathBuf>,
}

impl CommArgs {
    fn cases(&self) -> Vec<(Operation, usize)> {
        let all = |operation| self.bytes.iter().map(move |bytes| (operation, *bytes));
        if !self.ops.is_empty() {
            return self.ops.iter().copied().flat_map(all).collect();
        }
        let others = [Operation::ReduceScatter, Operation::AllGather, Operation::Broadcast];
        let others =
            others.into_iter().flat_map(|operation| all(operation).filter(|(_, bytes)| OTHERS.contains(bytes)));
        all(Operation::AllReduce).chain(others).collect()
    }
}

/// What one contender took for one case: the least and the median of each turn, in microseconds.
#[derive(Debug, Default, Clone)]
struct Times {
    least: Spread,
    median: Spread,
}

impl Times {
    fn least(&self) -> f64 {
        self.least.bounds().0
    }

    fn cell(&self) -> String {
        if self.least.0.is_empty() {
            "-".to_owned()
        } else {
            format!("{} / {}", time(self.least()), time(self.median.median()))
        }
    }
}

/// Measures and reports.
pub(crate) fn run(args: &CommArgs) -> Result<Exit> {
    let machine = machine::describe();
    ensure!(args.ranks.iter().all(|ranks| *ranks > 0) && args.turns > 0, "--ranks and --turns count from 1");
    let dir = temporary_dir(None)?;
    let peers = args.peers.iter().map(|text| Contender::peer(text, dir.path())).collect::<Result<Vec<_>>>()?;
    let mut contenders = vec![Contender::Shoal { registered: true }, Contender::Shoal { registered: false }];
    contenders.extend(peers);
    let cases = args.cases();
    let (mut rows, mut troubles) = (Vec::new(), Vec::new());
    let mut progress = Progress::on_stderr();
    let is_quiet = is_idle(machine::load().parse().ok());
    for (medium, ranks) in args.over.iter().flat_map(|medium| args.ranks.iter().map(move |ranks| (*medium, *ranks))) {
        let mut all = vec![vec![Times::default(); cases.len()]; contenders.len()];
        for turn in 0..args.turns {
            // Every second turn in the other order, so that nobody always comes after the same one.
            let mut order: Vec<_> = contenders.iter().enumerate().collect();
            if turn % 2 == 1 {
                order.reverse();
            }
            for (number, contender) in order.into_iter().filter(|(_, contender)| contender.has(medium)) {
                progress.draw(&format!(
                    "{}, {ranks} ranks, turn {} of {}: {}",
                    medium.name(),
                    turn + 1,
                    args.turns,
                    contender.name()
                ));
                // Warming up and writing sources anew takes longer than what is timed, and others'
                // machines may be slow.
                let limit = Duration::from_secs_f64(60.0 + 20.0 * args.seconds * cases.len() as f64);
                match contender.run(medium, ranks, &cases, args.seconds, limit) {
                    Ok(measured) => add(&mut all[number], &measured),
                    Err(error) if contender.family().is_some() => {
                        troubles.push(format!(
                            "{}, {}, {ranks} ranks: {}",
                            contender.name(),
                            medium.name(),
                            first_line(&error.to_string())
                        ));
                    }
                    Err(error) => {
                        return Err(error.context(format!(
                            "{}, {} with {ranks} ranks",
                            contender.name(),
                            medium.name()
                        )));
                    }
                }
            }
        }
        // The ranks are a part of the load themselves.
        let judged = is_quiet && is_idle(machine::load().parse().ok().map(|load: f64| load - ranks as f64));
        rows.extend(
            cases.iter().enumerate().map(|(case, what)| row((medium, ranks, judged), *what, &contenders, &all, case)),
        );
    }
    drop(progress);
    let section = section(args, &machine, &contenders, &rows, &troubles);
    show(&section)?;
    if let Some(path) = &args.write {
        report::put(path, &section).with_context(|| format!("could not write {}", path.display()))?;
    }
    Ok(Exit::Ok)
}

fn add(times: &mut [Times], measured: &[Row]) {
    for (times, row) in times.iter_mut().zip(measured) {
        times.least.0.push(row.least);
        times.median.0.push(row.median);
    }
}

/// Whether others' load leaves the cores to those who are measured.
fn is_idle(load: Option<f64>) -> bool {
    let cores = std::thread::available_parallelism().map_or(1, usize::from) as f64;
    load.is_none_or(|load| load <= BUSY * cores)
}

fn row(
    (medium, ranks, judged): (Medium, usize, bool),
    (operation, bytes): (Operation, usize),
    contenders: &[Contender],
    all: &[Vec<Times>],
    case: usize,
) -> Vec<String> {
    let mut row = vec![format!("{}, {ranks} ranks, {} {}", medium.name(), operation.name(), size(bytes))];
    row.extend(all.iter().map(|times| times[case].cell()));
    for (number, registered) in [(0, true), (1, false)] {
        let ours = all[number][case].least();
        let peers = contenders.iter().zip(all).filter_map(|(peer, times)| Some((peer.family()?, &times[case])));
        let ratios: Vec<_> = peers
            .map(|(peer, times)| {
                if times.least.0.is_empty() {
                    return "-".to_owned();
                }
                let ratio = times.least() / ours;
                let verdict = goals::goal(medium, ranks, (operation, bytes), registered, peer)
                    .filter(|_| judged)
                    .map(|goal| Goal::AtLeast(goal).verdict(ratio, ""));
                let text = if ratio < 10.0 { format!("{ratio:.2}") } else { format!("{ratio:.0}") };
                verdict.map_or(text.clone(), |verdict| format!("{text} ({})", verdict.replace(" :", ":")))
            })
            .collect();
        if !ratios.is_empty() {
            row.push(ratios.join("; "));
        }
    }
    row
}

fn section(
    args: &CommArgs,
    machine: &str,
    contenders: &[Contender],
    rows: &[Vec<String>],
    troubles: &[String],
) -> String {
    let mut header = vec!["what"];
    header.extend(contenders.iter().map(Contender::name));
    let names = contenders
        .iter()
        .filter(|contender| contender.family().is_some())
        .map(Contender::name)
        .collect::<Vec<_>>()
        .join("; ");
    let (registered, private) = (format!("{names}: least over registered"), format!("{names}: least over private"));
    if !names.is_empty() {
        header.extend([registered.as_str(), private.as_str()]);
    }
    let versions: Vec<_> =
        contenders.iter().filter_map(|peer| Some(format!("{}: {}", peer.name(), peer.version()?))).collect();
    let versions =
        if versions.is_empty() { String::new() } else { format!(" Beside them, in turns: {}.", versions.join("; ")) };
    let intro = format!(
        "{machine}; load average {} at the end.\n\nProcesses; f32, sums, out of place; microseconds, least / median: \
         of each iteration the slowest rank's time, of {} turns \
         of {} s the least of all and the median of their medians. Before each iteration the source is written anew \
         and all ranks meet. Over TCP there is no \
         registered memory. Gloo is always TCP over loopback.{versions} Goals are judged where others' load is at most \
         {BUSY} for each core, before and after.",
        machine::load(),
        args.turns,
        args.seconds,
    );
    let mut section = report::table("comm", &intro, &header, rows);
    for trouble in troubles {
        section.push_str(&format!("\nNot measured: {trouble}.\n"));
    }
    section
}

fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or_default()
}

/// Microseconds with as many digits as are worth reading.
fn time(us: f64) -> String {
    let digits = match us {
        ..10.0 => 2,
        ..100.0 => 1,
        _ => 0,
    };
    format!("{us:.digits$}")
}

/// Bytes in the unit that makes them shortest.
fn size(bytes: usize) -> String {
    match bytes {
        _ if bytes > 0 && bytes.is_multiple_of(1 << 20) => format!("{} MiB", bytes >> 20),
        _ if bytes > 0 && bytes.is_multiple_of(1 << 10) => format!("{} KiB", bytes >> 10),
        _ => format!("{bytes} B"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_tells_ratios_and_goals() {
        let contenders = [
            Contender::Shoal { registered: true },
            Contender::Shoal { registered: false },
            Contender::Gloo { name: "Gloo".into(), version: "1".into(), python: "p".into(), script: "s".into() },
        ];
        let times = |least: &[f64]| {
            vec![Times { least: Spread(least.to_vec()), median: Spread(least.iter().map(|it| it * 2.0).collect()) }]
        };
        let all = [times(&[2.0, 1.64]), times(&[100.0]), times(&[318.0, 400.0, 500.0])];
        let what = (Operation::AllReduce, 1 << 16);
        let made = row((Medium::SharedMemory, 2, true), what, &contenders, &all, 0);
        assert_eq!(
            made,
            [
                "shared memory, 2 ranks, allreduce 64 KiB",
                "1.64 / 3.64",
                "100 / 200",
                "318 / 800",
                "194 (at least 15: kept)",
                "3.18 (at least 4.5: missed)"
            ]
        );
        let busy = row((Medium::SharedMemory, 2, false), what, &contenders, &all, 0);
        assert_eq!(busy[4..], ["194", "3.18"], "nothing is judged on a busy machine");
        assert!(is_idle(Some(0.5)) && !is_idle(Some(1e6)));
        assert_eq!((size(4), size(1024), time(12.34)), ("4 B".to_owned(), "1 KiB".to_owned(), "12.3".to_owned()));
    }
}
