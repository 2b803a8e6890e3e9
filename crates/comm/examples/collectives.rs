//! How fast collectives are on this machine: processes that share memory (or speak TCP), f32, sum.
//! Prints a row for each operation and size:
//!
//! ```text
//! contender,operation,ranks,bytes,iterations,least us,median us,90th percentile us
//! ```
//!
//! An iteration's time is that of the slowest rank; before each, the source is written anew and all
//! ranks meet. `bytes` are those of the whole vector. `cargo xtask bench comm` measures the same
//! beside other libraries; this is quicker to build.
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
};

use shoal_comm::{
    bench::{Case, Operation, Summary, measure, stay_on_a_core},
    join,
    rendezvous::Config,
};

type Outcome<T = ()> = Result<T, Box<dyn Error>>;

struct Args {
    ranks: usize,
    bytes: Vec<usize>,
    ops: Vec<Operation>,
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
            ops: vec![Operation::AllReduce],
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
                "--ops" => read.ops = value.split(',').map(str::parse).collect::<Result<_, _>>()?,
                "--memory" => read.registered = value == "registered",
                "--seconds" => read.seconds = value.parse()?,
                "--label" => read.label = value,
                "--plan" => read.plan = value == "yes",
                _ => {
                    return Err(format!(
                        "{name}: there are --ranks, --bytes, --ops, --memory, --seconds, --label, --plan"
                    )
                    .into());
                }
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

fn rank(args: &Args) -> Outcome {
    let group = join(Config::from_env()?)?;
    let Args { label, ranks, registered, seconds, .. } = args;
    stay_on_a_core(group.rank(), group.size());
    if args.plan && group.rank() == 0 {
        print!("{}", group.plan());
    }
    for (bytes, operation) in
        args.bytes.iter().flat_map(|bytes| args.ops.iter().map(move |operation| (*bytes, *operation)))
    {
        let case = Case { operation, bytes, registered: *registered, seconds: *seconds };
        let times = measure(&*group, &mut || shoal_comm::ProcessGroupExt::barrier(&*group), &case)?;
        let iterations = times.len();
        if let Some(Summary { least, median, p90 }) = Summary::of(times)
            && group.rank() == 0
        {
            println!("{label},{},{ranks},{bytes},{iterations},{least:.2},{median:.2},{p90:.2}", operation.name());
        }
    }
    shoal_comm::ProcessGroupExt::barrier(&*group)?;
    Ok(())
}
