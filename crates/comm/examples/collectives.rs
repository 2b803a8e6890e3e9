//! How fast collectives are on this machine: processes that share memory (or speak TCP), f32, sum. Prints a row for each operation and size:
//!
//! ```text
//! contender,operation,ranks,bytes,iterations,least us,median us,90th percentile us
//! ```
//!
//! An iteration's time is that of the slowest rank; before each, the source is written anew and all ranks meet. `bytes` are those of the whole vector.
//!
//! ```text
//! cargo run --release -p shoal-comm --example collectives -- --ranks 2 --bytes 4,65536 --ops allreduce,bcast --memory registered --seconds 0.5
//! ```
//!
//! Started again with `RANK` in its environment it is one rank.

use std::{
    env,
    error::Error,
    process::{Child, Command},
    time::Instant,
};

use shoal_comm::{Memory, ProcessGroup, ProcessGroupExt, ReduceOp, join, rendezvous::Config};

type Outcome<T = ()> = Result<T, Box<dyn Error>>;

struct Args {
    ranks: usize,
    bytes: Vec<usize>,
    ops: Vec<String>,
    registered: bool,
    seconds: f64,
    label: String,
    plan: bool,
}

impl Args {
    fn read() -> Outcome<Self> {
        let mut read = Self {
            ranks: 2,
            bytes: vec![4, 1024, 65_536, 1 << 20, 16 << 20, 64 << 20, 256 << 20],
            ops: vec!["allreduce".to_owned()],
            registered: true,
            seconds: 0.35,
            label: String::new(),
            plan: false,
        };
        let mut args = env::args().skip(1);
        while let Some(name) = args.next() {
            let value = args.next().ok_or_else(|| format!("{name} wants a value"))?;
            match name.as_str() {
                "--ranks" => read.ranks = value.parse()?,
                "--bytes" => read.bytes = value.split(',').map(str::parse).collect::<Result<_, _>>()?,
                "--ops" => read.ops = value.split(',').map(str::to_owned).collect(),
                "--memory" => read.registered = value == "registered",
                "--seconds" => read.seconds = value.parse()?,
                "--label" => read.label = value,
                "--plan" => read.plan = value == "yes",
                _ => return Err(format!("{name}: there are --ranks, --bytes, --ops, --memory, --seconds, --label, --plan").into()),
            }
        }
        if read.label.is_empty() {
            read.label = if read.registered { "shoal_registered" } else { "shoal_private" }.to_owned();
        }
        Ok(read)
    }
}

fn main() -> Outcome {
    let args = Args::read()?;
    if env::var_os("RANK").is_some() { rank(&args) } else { start(&args) }
}

/// Starts the ranks and waits for them.
fn start(args: &Args) -> Outcome {
    let meeting = env::temp_dir().join(format!("shoal-collectives-{}", std::process::id()));
    std::fs::create_dir(&meeting)?;
    let one = |rank: usize| {
        let mut command = Command::new(env::current_exe()?);
        command.args(env::args().skip(1)).env("RANK", rank.to_string()).env("WORLD_SIZE", args.ranks.to_string());
        command.env("SHOAL_COMM_DIRECTORY", &meeting).env("SHOAL_COMM_DEADLINE", "60").spawn()
    };
    let ranks: Vec<Child> = (0..args.ranks).map(one).collect::<Result<_, _>>()?;
    let mut failed = 0;
    for mut rank in ranks {
        failed += usize::from(!rank.wait()?.success());
    }
    std::fs::remove_dir_all(&meeting)?;
    if failed > 0 { Err(format!("{failed} ranks failed").into()) } else { Ok(()) }
}

/// A rank with a core to itself, where there are enough, stays on it.
fn stay_on_a_core(rank: usize, ranks: usize) {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    if ranks <= cores {
        #[expect(unsafe_code, reason = "the standard library does not choose cores")]
        // SAFETY: a set of cores of zeros is an empty one, and the call reads it.
        unsafe {
            let mut set: libc::cpu_set_t = std::mem::zeroed();
            libc::CPU_SET(rank, &mut set);
            libc::sched_setaffinity(0, size_of_val(&set), &raw const set);
        }
    }
}

fn rank(args: &Args) -> Outcome {
    let config = Config::from_env()?;
    let group = join(config)?;
    let group = &*group;
    stay_on_a_core(group.rank(), group.size());
    if args.plan && group.rank() == 0 {
        print!("{}", group.plan());
    }
    for bytes in &args.bytes {
        for op in &args.ops {
            let mut times = measure(group, args, op, *bytes)?;
            times.sort_by(f64::total_cmp);
            if group.rank() == 0 {
                let at = |share: f64| times[((times.len() - 1) as f64 * share) as usize] * 1e6;
                let Args { label, ranks, .. } = args;
                println!("{label},{op},{ranks},{bytes},{},{:.2},{:.2},{:.2}", times.len(), at(0.0), at(0.5), at(0.9));
            }
        }
    }
    group.barrier()?;
    Ok(())
}

/// Memory of either kind.
enum Buffer {
    Registered(Memory),
    Private(Vec<f32>),
}

impl Buffer {
    fn new(group: &dyn ProcessGroup, args: &Args, elements: usize) -> Outcome<Self> {
        Ok(if args.registered { Self::Registered(group.alloc(elements * 4)?) } else { Self::Private(vec![0.0; elements]) })
    }

    fn elements(&mut self) -> &mut [f32] {
        match self {
            Self::Registered(memory) => memory.as_mut_slice(),
            Self::Private(vector) => vector,
        }
    }
}

/// Seconds of each iteration, of the slowest rank.
fn measure(group: &dyn ProcessGroup, args: &Args, op: &str, bytes: usize) -> Outcome<Vec<f64>> {
    let (rank, n) = (group.rank(), group.size());
    let elements = bytes / 4;
    let piece = elements / n;
    let mut send = Buffer::new(group, args, elements)?;
    let mut recv = Buffer::new(group, args, elements)?;
    let (send, recv) = (send.elements(), recv.elements());
    let warm = if bytes <= 1 << 16 { 50 } else { 3 };
    let mut times = Vec::new();
    let mut started = Instant::now();
    for iteration in 0.. {
        if iteration == warm {
            started = Instant::now();
        }
        if iteration % 64 == 0 || bytes > 1 << 16 {
            let is_over = iteration >= warm + 6 && started.elapsed().as_secs_f64() > args.seconds || times.len() >= 100_000;
            let mut over = [u8::from(is_over)];
            group.broadcast(&mut over, 0)?;
            if over[0] == 1 {
                break;
            }
        }
        send.fill(rank as f32 + 1.0);
        group.barrier()?;
        let begun = Instant::now();
        match op {
            "allreduce" => group.all_reduce_into(send, recv, ReduceOp::Sum)?,
            "reduce_scatter" => group.reduce_scatter(&send[..piece * n], &mut recv[..piece], ReduceOp::Sum)?,
            "allgather" => group.all_gather(&send[..piece], &mut recv[..piece * n])?,
            "bcast" => group.broadcast(send, 0)?,
            "alltoall" => group.all_to_all(&send[..piece * n], &mut recv[..piece * n])?,
            _ => return Err(format!("{op}: there are allreduce, reduce_scatter, allgather, bcast, alltoall").into()),
        }
        if iteration >= warm {
            times.push(begun.elapsed().as_secs_f64());
        }
    }
    let total = (n * (n + 1) / 2) as f32;
    let (result, expected) = match op {
        "allreduce" => (&*recv, total),
        "reduce_scatter" => (&recv[..piece], total),
        "bcast" => (&*send, 1.0),
        _ => (&recv[..piece], 1.0),
    };
    if result.iter().any(|x| *x != expected) {
        return Err(format!("{op} of {bytes} bytes: a wrong result").into());
    }
    group.all_reduce(&mut times, ReduceOp::Max)?;
    Ok(times)
}
