//! Times the operations of a group: what `cargo xtask bench comm` and the programs in `examples`
//! have in common.
//!
//! An iteration takes as long as its slowest rank. Before each, the source is written anew and all
//! ranks meet. Elements are f32, reductions are sums, and the last iteration's result is looked at.

pub mod kernels;

use std::{str::FromStr, time::Instant};

use rustix::thread::{CpuSet, sched_setaffinity};

use crate::{
    Error, Memory, ProcessGroup, ProcessGroupExt, ReduceOp,
    cost::{self, Link},
};

/// What is timed. Names are those of MPI, without its prefix.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Operation {
    /// All-reduce, out of place.
    AllReduce,
    /// Reduce-scatter.
    ReduceScatter,
    /// All-gather.
    AllGather,
    /// Broadcast from rank 0.
    Broadcast,
    /// All-to-all.
    AllToAll,
}

impl Operation {
    /// All there are.
    pub const ALL: [Self; 5] = [Self::AllReduce, Self::ReduceScatter, Self::AllGather, Self::Broadcast, Self::AllToAll];

    /// As it stands in tables and on command lines.
    pub const fn name(self) -> &'static str {
        match self {
            Self::AllReduce => "allreduce",
            Self::ReduceScatter => "reduce_scatter",
            Self::AllGather => "allgather",
            Self::Broadcast => "bcast",
            Self::AllToAll => "alltoall",
        }
    }
}

impl FromStr for Operation {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let known = || Self::ALL.map(Self::name).join(", ");
        Self::ALL
            .into_iter()
            .find(|one| one.name() == name)
            .ok_or_else(|| format!("no operation {name:?}; there are {}", known()))
    }
}

/// One measurement.
#[derive(Debug, Clone, Copy)]
pub struct Case {
    /// Of what.
    pub operation: Operation,
    /// Of the whole vector; pieces are the rank count's share of it.
    pub bytes: usize,
    /// In memory of [`ProcessGroup::alloc`], else in vectors.
    pub registered: bool,
    /// How long to go on after warming up.
    pub seconds: f64,
}

/// Iterations that one measurement has at most.
const MOST: usize = 100_000;
/// Vectors up to so many bytes are short: more warming up, and the end is agreed upon only now and
/// then.
const SHORT: usize = 1 << 16;

/// Seconds of each iteration, of the slowest rank, in the order of measuring; the same on all
/// ranks. `meet` returns when all ranks have called it.
///
/// # Errors
/// What the group says, or `meet`.
///
/// # Panics
/// A result is wrong.
pub fn measure(
    group: &dyn ProcessGroup,
    meet: &mut dyn FnMut() -> Result<(), Error>,
    case: &Case,
) -> Result<Vec<f64>, Error> {
    let (rank, n) = (group.rank(), group.size());
    let elements = case.bytes / 4;
    let piece = elements / n;
    let (mut send, mut recv) = (Buffer::new(group, case, elements)?, Buffer::new(group, case, elements)?);
    let (send, recv) = (send.elements(), recv.elements());
    let warm = if case.bytes <= SHORT { 50 } else { 3 };
    let mut times = Vec::new();
    let mut started = Instant::now();
    for iteration in 0.. {
        if iteration == warm {
            started = Instant::now();
        }
        if iteration % 64 == 0 || case.bytes > SHORT {
            let is_over =
                iteration >= warm + 6 && started.elapsed().as_secs_f64() > case.seconds || times.len() >= MOST;
            let mut over = [u8::from(is_over)];
            group.broadcast(&mut over, 0)?;
            if over[0] == 1 {
                break;
            }
        }
        send.fill(rank as f32 + 1.0);
        meet()?;
        let begun = Instant::now();
        match case.operation {
            Operation::AllReduce => group.all_reduce_into(send, recv, ReduceOp::Sum)?,
            Operation::ReduceScatter => group.reduce_scatter(&send[..piece * n], &mut recv[..piece], ReduceOp::Sum)?,
            Operation::AllGather => group.all_gather(&send[..piece], &mut recv[..piece * n])?,
            Operation::Broadcast => group.broadcast(send, 0)?,
            Operation::AllToAll => group.all_to_all(&send[..piece * n], &mut recv[..piece * n])?,
        }
        if iteration >= warm {
            times.push(begun.elapsed().as_secs_f64());
        }
    }
    let total = (n * (n + 1) / 2) as f32;
    let (result, expected) = match case.operation {
        Operation::AllReduce => (&*recv, total),
        Operation::ReduceScatter => (&recv[..piece], total),
        Operation::Broadcast => (&*send, 1.0),
        // The first piece is rank 0's.
        Operation::AllGather | Operation::AllToAll => (&recv[..piece], 1.0),
    };
    assert!(result.iter().all(|x| *x == expected), "{} of {} bytes: a wrong result", case.operation.name(), case.bytes);
    group.all_reduce(&mut times, ReduceOp::Max)?;
    Ok(times)
}

/// The links of a group of more than one rank, by the same operations from which TCP has its
/// figures when the group is made; the slowest rank's, the same on all.
///
/// # Errors
/// What the group says.
pub fn link(group: &dyn ProcessGroup) -> Result<Link, Error> {
    let timed = |begun: Instant| begun.elapsed().as_secs_f64();
    let mut barrier = || {
        let begun = Instant::now();
        group.barrier().map(|()| timed(begun))
    };
    let mut all_gather = |own: &[u8], all: &mut [u8]| {
        let begun = Instant::now();
        group.all_gather(own, all).map(|()| timed(begun))
    };
    let mut figures = cost::probe(group.size(), &mut barrier, &mut all_gather)?;
    group.all_reduce(&mut figures, ReduceOp::Max)?;
    Ok(Link::of_probes(group.size(), figures))
}

/// Memory of either kind.
enum Buffer {
    Registered(Memory),
    Private(Vec<f32>),
}

impl Buffer {
    fn new(group: &dyn ProcessGroup, case: &Case, elements: usize) -> Result<Self, Error> {
        Ok(if case.registered {
            Self::Registered(group.alloc(elements * 4)?)
        } else {
            Self::Private(vec![0.0; elements])
        })
    }

    fn elements(&mut self) -> &mut [f32] {
        match self {
            Self::Registered(memory) => memory.as_mut_slice(),
            Self::Private(vector) => vector,
        }
    }
}

/// What many iterations come to, in microseconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Summary {
    /// The shortest.
    pub least: f64,
    /// The one in the middle.
    pub median: f64,
    /// The one that nine of ten do not exceed.
    pub p90: f64,
}

impl Summary {
    /// Of seconds in any order; none of no iterations.
    pub fn of(mut seconds: Vec<f64>) -> Option<Self> {
        seconds.sort_by(f64::total_cmp);
        let last = seconds.len().checked_sub(1)?;
        let at = |share: f64| seconds[(last as f64 * share) as usize] * 1e6;
        Some(Self { least: at(0.0), median: at(0.5), p90: at(0.9) })
    }
}

/// Keeps the calling thread of rank `rank` on a core of its own, where there are enough of them and
/// the system lets it.
pub fn stay_on_a_core(rank: usize, ranks: usize) {
    if ranks <= std::thread::available_parallelism().map_or(1, usize::from) {
        let mut cores = CpuSet::new();
        cores.set(rank);
        // A core that this process may not use: then it stays where the scheduler puts it.
        let _ = sched_setaffinity(None, &cores);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_operation_is_timed_with_its_result_looked_at() {
        let ranks: Vec<_> = crate::threads(3)
            .into_iter()
            .map(|group| {
                std::thread::spawn(move || {
                    Operation::ALL.map(|operation| {
                        assert_eq!(operation.name().parse(), Ok(operation));
                        let registered = operation == Operation::AllReduce;
                        let case = Case { operation, bytes: 1 << 17, registered, seconds: 0.0 };
                        measure(&*group, &mut || group.barrier(), &case).expect("all is well")
                    })
                })
            })
            .collect();
        let times: Vec<_> = ranks.into_iter().map(|rank| rank.join().expect("no panic")).collect();
        let links: Vec<_> = crate::threads(3)
            .into_iter()
            .map(|group| std::thread::spawn(move || link(&*group).expect("all is well")))
            .collect();
        let links: Vec<_> = links.into_iter().map(|rank| rank.join().expect("no panic")).collect();
        assert!(links[0].latency > 0.0 && links.iter().all(|other| *other == links[0]), "{links:?}");
        assert!(times[0].iter().all(|times| times.len() >= 6));
        assert!(times.iter().all(|other| *other == times[0]), "the slowest rank's, on all ranks");
    }

    #[test]
    fn a_summary_is_in_microseconds() {
        let summary = Summary::of((1..=101).rev().map(|i| f64::from(i) * 1e-6).collect()).expect("some");
        let close = |a: f64, b: f64| (a - b).abs() < 1e-9;
        assert!(close(summary.least, 1.0) && close(summary.median, 51.0) && close(summary.p90, 91.0), "{summary:?}");
        assert_eq!(Summary::of(Vec::new()), None);
        assert!("scan".parse::<Operation>().is_err_and(|error| error.contains("allreduce")));
    }
}
