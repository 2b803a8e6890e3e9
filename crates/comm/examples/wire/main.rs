//! Measures over real processes.
//!
//! `wire failure ROUNDS [RANKS [ONLY]]`: kills, stops and replaces ranks on this host and prints
//! how long it took to be known and to re-form. ONLY is part of `kill-auto`, `kill-tcp`,
//! `hang-auto` and so on.
//!
//! `wire net HOSTS RANKS MBIT DELAY_US OPS SIZES SECONDS`: measures operations among RANKS ranks on
//! each of so many hosts, which are network namespaces of this machine, with links of that rate and
//! that delay one way between them. `wire net HOSTS RANKS MBIT DELAY_US run COMMAND ...` runs any
//! program as the ranks, with `RANK`, `WORLD_SIZE`, `MASTER_ADDR`, `MASTER_PORT` and `SHF` in its
//! environment; the interface is `link0`. Needs /dev/net/tun, and root or user namespaces.
//!
//! `wire growth MBIT DELAY_US SIZES SECONDS [HOSTS]`: all-reduces of f32 among 2 to 8 hosts of such
//! a network, and among 2 to 8 ranks over TCP on one host, each beside what the cost model says of
//! the links that the ranks measured; then what the model predicts for HOSTS hosts (64) of the
//! network's links. Prints Markdown.
//!
//! `wire rank LABEL OPS SIZES SECONDS`: one rank of a measurement of operations; its group is in
//! the environment (`RANK`, `WORLD_SIZE`, ...), and `SHF` names a file of 4 MiB that all ranks map
//! to start each operation together. Rank 0 prints
//! `label,op,ranks,bytes,iterations,least,median,p90` in microseconds, of the slowest rank each.
//! Operations: allreduce, bcast, reduce_scatter, allgather, and all-reduces by compressors: bf16,
//! int8.

#![allow(clippy::unwrap_used, reason = "a measurement that cannot go on panics")]

mod growth;
mod hosts;
mod links;
#[path = "../../tests/processes/rank.rs"]
mod rank;
#[path = "../../tests/processes/round.rs"]
mod round;

use std::env;
use std::fs::OpenOptions;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use round::{Blow, Round};
use shoal_comm::compress::{Cast, Compressor, Int8};
use shoal_comm::rendezvous::Config;
use shoal_comm::{ProcessGroup, ProcessGroupExt, ReduceOp, join};

fn main() {
    let arguments: Vec<_> = env::args().collect();
    if env::var_os("SHOAL_TEST_RANK").is_some() {
        if let Err(error) = rank::main() {
            eprintln!("rank {}: {error}", env::var("RANK").unwrap_or_default());
            std::process::exit(1);
        }
        return;
    }
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[1..] {
        ["failure", rounds] => failure(rounds.parse().unwrap(), 4, ""),
        ["failure", rounds, ranks] => failure(rounds.parse().unwrap(), ranks.parse().unwrap(), ""),
        ["failure", rounds, ranks, only] => failure(rounds.parse().unwrap(), ranks.parse().unwrap(), only),
        ["net", count, ranks, mbit, delay, "run", ..] => net(count, ranks, mbit, delay, &arguments[7..]),
        ["net", count, ranks, mbit, delay, ops, sizes, seconds] => {
            let program = env::current_exe().unwrap().to_string_lossy().into_owned();
            let label = format!("{count} hosts, {ranks} ranks each, {mbit} Mbit/s, {delay} us");
            net(count, ranks, mbit, delay, &[&program, "rank", &label, ops, sizes, seconds].map(str::to_owned));
        }
        ["host", number, count, ranks, ..] => {
            hosts::host(number.parse().unwrap(), count.parse().unwrap(), ranks.parse().unwrap(), &arguments[5..]);
        }
        ["growth", mbit, delay, sizes, seconds] => growth::run(mbit, delay, sizes, seconds, 64),
        ["growth", mbit, delay, sizes, seconds, hosts] => {
            growth::run(mbit, delay, sizes, seconds, hosts.parse().unwrap());
        }
        ["growth-rank", sizes, seconds] => growth::rank(sizes, seconds.parse().unwrap()),
        ["rank", label, ops, sizes, seconds] => {
            operations(&*join(Config::from_env().unwrap()).unwrap(), label, ops, sizes, seconds.parse().unwrap());
        }
        _ => panic!(
            "usage: wire failure ROUNDS [RANKS [ONLY]] | wire net HOSTS RANKS MBIT DELAY_US OPS SIZES SECONDS | wire net HOSTS RANKS MBIT DELAY_US run COMMAND ... | \
             wire growth MBIT DELAY_US SIZES SECONDS [HOSTS] | wire rank LABEL OPS SIZES SECONDS"
        ),
    }
}

fn net(count: &str, ranks: &str, mbit: &str, delay: &str, command: &[String]) {
    let link = links::Link {
        rate: mbit.parse::<f64>().unwrap() * 125e3,
        delay: Duration::from_micros(delay.parse().unwrap()),
    };
    hosts::run(count.parse().unwrap(), link, ranks.parse().unwrap(), command);
}

fn failure(rounds: usize, ranks: usize, only: &str) {
    let program = env::current_exe().unwrap();
    println!("what,carrier,ranks,rounds,known_median_ms,known_most_ms,formed_median_ms,formed_most_ms");
    for (what, blow, replace, heartbeat) in
        [("kill", Blow::Kill, false, "5"), ("hang", Blow::Stop, false, "0.5"), ("replace", Blow::Kill, true, "5")]
    {
        for carrier in ["auto", "tcp"] {
            if !only.is_empty() && !format!("{what}-{carrier}").contains(only) {
                continue;
            }
            let (mut known, mut formed) = (Vec::new(), Vec::new());
            for number in 0..rounds {
                let after = Duration::from_millis(10 + (number as u64 * 37) % 50);
                let round =
                    Round { ranks, victim: number % ranks, blow, after, length: 4 << 20, replace, carrier, heartbeat };
                let figures = round::play(&program, &round);
                known.push(figures.known);
                formed.push(figures.formed);
            }
            known.sort_by(f64::total_cmp);
            formed.sort_by(f64::total_cmp);
            let (middle, last) = (rounds / 2, rounds - 1);
            println!(
                "{what},{carrier},{ranks},{rounds},{:.1},{:.1},{:.1},{:.1}",
                known[middle], known[last], formed[middle], formed[last]
            );
        }
    }
}

/// Iterations of which times are kept.
const MOST: usize = 2000;

/// Words in a file that all ranks map: where they wait for each other, and leave their times.
struct Board {
    words: &'static [AtomicU64],
    rank: usize,
    size: usize,
    turns: u64,
}

impl Board {
    fn open(rank: usize, size: usize) -> Self {
        let file = OpenOptions::new().read(true).write(true).open(env::var("SHF").unwrap()).unwrap();
        let bytes = 4 << 20;
        #[expect(unsafe_code, reason = "a mapping is reached by address")]
        // SAFETY: the file has that size, and all of it is only reached as atomic words, for as
        // long as the process lives.
        let words = unsafe {
            use rustix::mm::{MapFlags, ProtFlags, mmap};
            let address =
                mmap(std::ptr::null_mut(), bytes, ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED, &file, 0)
                    .unwrap();
            std::slice::from_raw_parts(address.cast::<AtomicU64>(), bytes / 8)
        };
        Self { words, rank, size, turns: 0 }
    }

    fn barrier(&mut self) {
        self.turns += 1;
        self.words[self.rank * 16].store(self.turns, Ordering::SeqCst);
        for other in 0..self.size {
            let mut looks = 0;
            while self.words[other * 16].load(Ordering::SeqCst) < self.turns {
                looks += 1;
                if looks < 2000 { std::thread::yield_now() } else { std::thread::sleep(Duration::from_micros(200)) }
            }
        }
    }

    fn time(&self, rank: usize, iteration: usize) -> &AtomicU64 {
        &self.words[2048 + rank * MOST + iteration]
    }
}

fn operations(group: &dyn ProcessGroup, label: &str, ops: &str, sizes: &str, seconds: f64) {
    let (rank, size) = (group.rank(), group.size());
    let mut board = Board::open(rank, size);
    if rank == 0 {
        eprintln!("{}", group.plan());
    }
    for bytes in sizes.split(',').map(|size| size.parse::<usize>().unwrap()) {
        for op in ops.split(',') {
            let (len, piece) = (bytes / 4, bytes / 4 / size);
            let source = vec![rank as f32 + 1.0; len];
            let mut target = vec![0.0_f32; len];
            let mut compressor: Box<dyn Compressor> =
                if op == "bf16" { Box::new(Cast::<half::bf16>::new()) } else { Box::new(Int8::new(1)) };
            let warm_up = if bytes <= 65_536 { 20 } else { 3 };
            let (mut done, mut begun) = (0, Instant::now());
            for iteration in 0.. {
                target.copy_from_slice(&source);
                if iteration == warm_up {
                    begun = Instant::now();
                }
                board.barrier();
                let start = Instant::now();
                match op {
                    "allreduce" => group.all_reduce(&mut target, ReduceOp::Sum).unwrap(),
                    "bf16" | "int8" => drop(compressor.all_reduce(group, &mut target, ReduceOp::Sum).unwrap()),
                    "bcast" => group.broadcast(&mut target, 0).unwrap(),
                    "reduce_scatter" => {
                        group.reduce_scatter(&source[..piece * size], &mut target[..piece], ReduceOp::Sum).unwrap();
                    }
                    "allgather" => group.all_gather(&source[..piece], &mut target[..piece * size]).unwrap(),
                    other => panic!("no operation {other}"),
                }
                let took = start.elapsed().as_nanos() as u64;
                if iteration >= warm_up {
                    board.time(rank, done).store(took, Ordering::SeqCst);
                    done += 1;
                }
                let stops = done >= 5 && begun.elapsed().as_secs_f64() > seconds || done == MOST;
                if rank == 0 {
                    board.words[1000].store(u64::from(stops), Ordering::SeqCst);
                }
                board.barrier();
                let stop = board.words[1000].load(Ordering::SeqCst) == 1;
                board.barrier();
                if stop {
                    break;
                }
            }
            if matches!(op, "allreduce" | "bf16" | "int8") {
                let (sum, off) = ((size * (size + 1) / 2) as f32, if op == "int8" { 0.02 } else { 0.0 });
                assert!((target[len - 1] - sum).abs() <= off * sum, "{}, not {sum}", target[len - 1]);
            }
            if rank == 0 {
                let slowest =
                    |iteration| (0..size).map(|rank| board.time(rank, iteration).load(Ordering::SeqCst)).max().unwrap();
                let mut times: Vec<_> = (0..done).map(slowest).collect();
                times.sort_unstable();
                let us = |index: usize| times[index] as f64 / 1e3;
                println!(
                    "{label},{op},{size},{bytes},{done},{:.1},{:.1},{:.1}",
                    us(0),
                    us(done / 2),
                    us(done * 9 / 10)
                );
            }
            board.barrier();
        }
    }
}
