//! `cargo xtask bench s3`: this server's S3 against s3s-fs and against the bare disk, run after run
//! in turns.

mod disk;
mod load;
mod peer;

use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::Args;

use super::{
    machine,
    report::{self, Goal, cell},
    server::{Kind, Server, temporary_dir},
    spread::Spread,
};
use load::{Load, settle};
use shoal_cli::{
    exit::Exit,
    output::{Progress, show},
};

/// Against the disk's own speed: of the large object's PUTs, and of all else.
const LARGE_PUT_OF_THE_DISK: f64 = 0.9;
const OF_THE_DISK: f64 = 0.7;

/// Arguments of `cargo xtask bench s3`.
#[derive(Debug, Args)]
pub(crate) struct S3Args {
    /// Size of the large object in MB (10^6 bytes).
    #[arg(long, default_value_t = 1000)]
    large: usize,
    /// How many objects of 4 KiB.
    #[arg(long, default_value_t = 10_000)]
    small: usize,
    /// Connections of the client, and threads where the disk is measured.
    #[arg(long, default_value_t = 10)]
    connections: usize,
    /// How often each is measured, in turns.
    #[arg(long, default_value_t = 5)]
    runs: usize,
    /// The peer's executable;
    /// `cargo install s3s-fs --version 0.14.1 --features binary --locked --root ~/.cache/shoal/peers`
    /// makes it.
    #[arg(long, value_name = "PROGRAM")]
    peer: Option<PathBuf>,
    /// Where everything is stored while it is measured; else the system's temporary directory.
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Puts the section in this file, too.
    #[arg(long, value_name = "FILE")]
    write: Option<PathBuf>,
}

/// What is done, its unit, and the goal against the disk.
const WORK: [(&str, &str, f64); 6] = [
    ("PUT, one request", "MB/s", LARGE_PUT_OF_THE_DISK),
    ("PUT, parts of 8 MiB", "MB/s", LARGE_PUT_OF_THE_DISK),
    ("GET, one request", "MB/s", OF_THE_DISK),
    ("GET, ranges of 8 MiB", "MB/s", OF_THE_DISK),
    ("PUT of 4 KiB", "/s", OF_THE_DISK),
    ("GET of 4 KiB", "/s", OF_THE_DISK),
];

/// Values of each piece of work.
type Values = [Spread; WORK.len()];

/// Measures and reports.
pub(crate) fn run(args: &S3Args) -> Result<Exit> {
    let machine = machine::describe();
    let program = peer::find(args.peer.as_deref())?;
    let load = Load::new(args.large * 1_000_000, args.small, args.connections);
    let (mut shoal, mut peer, mut disk) = (Values::default(), Values::default(), Values::default());
    let mut progress = Progress::on_stderr();
    for run in 1..=args.runs {
        let ours = || {
            let server = Server::start_in(Kind::Real, args.dir.as_deref())?;
            load.run(server.client().endpoint(), &server.data_dir().join("objects"))
        };
        let theirs = || match &program {
            Some(program) => {
                let peer = peer::Peer::start(program, args.dir.as_deref())?;
                load.run(peer.endpoint(), peer.dir())
            }
            None => Ok([f64::NAN; WORK.len()]),
        };
        let bare = || disk::run(&load, temporary_dir(args.dir.as_deref())?.path());
        let mut turns: [(_, _, &dyn Fn() -> Result<_>); 3] =
            [("Shoal", &mut shoal, &ours), ("s3s-fs", &mut peer, &theirs), ("the disk", &mut disk, &bare)];
        // Who comes first finds the disk otherwise than who comes last.
        turns.rotate_left(run % 3);
        for (name, values, work) in turns {
            progress.draw(&format!("run {run} of {}: {name}", args.runs));
            settle()?;
            let measured = work().with_context(|| format!("{name} failed"))?;
            values.iter_mut().zip(measured).for_each(|(values, value)| values.0.push(value));
        }
    }
    drop(progress);
    let section = section(args, &machine, program.is_some(), &shoal, &peer, &disk);
    show(&section)?;
    if let Some(path) = &args.write {
        report::put(path, &section).with_context(|| format!("could not write {}", path.display()))?;
    }
    Ok(Exit::Ok)
}

fn section(args: &S3Args, machine: &str, with_peer: bool, shoal: &Values, peer: &Values, disk: &Values) -> String {
    let mut rows = Vec::new();
    for (place, (what, unit, goal)) in WORK.into_iter().enumerate() {
        let (ours, theirs, bare) = (&shoal[place], &peer[place], &disk[place]);
        let what =
            if unit == "/s" { format!("{what}, {} objects", args.small) } else { format!("{what}, {} MB", args.large) };
        let (against, of) = (ours.median() / theirs.median(), ours.median() / bare.median());
        let mut row = vec![
            what,
            cell(ours, unit),
            String::new(),
            cell(bare, unit),
            String::new(),
            Goal::AtLeast(goal).verdict_of(of),
        ];
        if with_peer {
            row[2] = cell(theirs, unit);
            row[4] = Goal::AtLeast(1.0).verdict_of(against);
        }
        rows.push(row);
    }
    let peer = if with_peer {
        "The peer is s3s-fs 0.14.1, which leaves what it wrote to the kernel: a crash of the machine loses it."
    } else {
        "The peer s3s-fs 0.14.1 is not here: `cargo install s3s-fs --version 0.14.1 --features binary --locked --root \
         ~/.cache/shoal/peers`."
    };
    let intro = format!(
        "{machine}.\n\nOne client in Rust, {} connections, bodies signed (SHA-256) and with a CRC32 as boto3 sends \
         them; what is read is \
         compared with what was written. Shoal answers when content and name are durable. {peer} The disk: the same \
         bytes by \
         `write` and `fsync`, the same number of threads. Before they are read the kernel is made to forget all files. \
         Medians of {} run(s) in turns, least and most \
         in brackets.",
        args.connections, args.runs
    );
    let header = [
        "what",
        "Shoal, durable",
        "s3s-fs, not durable",
        "disk, durable",
        "against s3s-fs (goal: more than 1)",
        "against the disk (goal: 0.9 for PUTs of the large object, else 0.7)",
    ];
    report::table("s3", &intro, &header, &rows)
}
