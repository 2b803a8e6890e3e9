//! `cargo xtask bench NAME`: measurements on this machine, through the public API, beside other
//! programs, with what came out checked. It is a tool of the repository; `shoal` itself has no part
//! of it.

mod beside;
mod cached;
mod comm;
mod ddp;
mod fake;
mod fake_trials;
mod http;
mod jobs;
mod machine;
mod processes;
mod report;
mod s3;
mod server;
mod spread;
mod start;
mod telemetry;
mod threads;
mod titanic;
mod trials;
mod tuning;
mod waits;
mod xgboost;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};
use shoal_cli::{
    exit::{self, Exit},
    settings::ServerFlags,
};

/// Measurements on this machine, beside other programs.
#[derive(Debug, Parser)]
#[command(name = "shoal-bench", bin_name = "cargo xtask bench")]
struct Bench {
    #[command(subcommand)]
    command: BenchCommand,
}

/// What is measured.
#[derive(Debug, Subcommand)]
enum BenchCommand {
    /// How fast a training job starts and ends, and what an idle server costs.
    Start(start::StartArgs),
    /// How long after a job's end the calls of each client return that wait for it.
    Waits(waits::WaitsArgs),
    /// S3: one large object and many small ones, against s3s-fs and against the disk.
    S3(s3::S3Args),
    /// How fast jobs are admitted, and what a server with 100,000 of them answers, weighs and takes
    /// to start.
    Jobs(jobs::JobsArgs),
    /// Log lines and metric points per second, durable.
    Telemetry(telemetry::TelemetryArgs),
    /// What a trial costs beside its training, cold and warm, and what it costs that trials take
    /// turns.
    Trials(trials::TrialsArgs),
    /// Distributed XGBoost against xgboost.dask with the same library.
    Xgboost(xgboost::XgboostArgs),
    /// Tuning jobs: a study of 100,000 trials, how fast a scheduler hears and is obeyed, and trials
    /// that do nothing against Ray Tune.
    Tuning(tuning::TuningArgs),
    /// Collectives of process groups in shared memory and over TCP, against Gloo and MPI where they
    /// are installed.
    Comm(comm::CommArgs),
    /// The time of a training step by DistributedDataParallel, against the same torchrun started by
    /// hand.
    Ddp(ddp::DdpArgs),
    /// Scripts of frameworks on instances that share the cores, against the same by hand with the
    /// best settings.
    Threads(threads::ThreadsArgs),
    /// One rank of `comm`.
    #[command(hide = true)]
    CommRank(comm::rank::RankArgs),
    /// A server whose launcher starts nothing; the other benches run it.
    #[command(hide = true)]
    FakeServer(ServerFlags),
    /// A server whose launcher plays trials that say one value and end; the tuning bench runs it.
    #[command(hide = true)]
    FakeTrials(ServerFlags),
}

fn main() -> ExitCode {
    // A server in this process (`fake-server`) asks what the machine allows in a copy of it.
    shoal_sandbox::reexec_entry();
    run(&Bench::parse().command).unwrap_or_else(|error| exit::report("shoal-bench", &error)).into()
}

fn run(command: &BenchCommand) -> Result<Exit> {
    match command {
        BenchCommand::Start(args) => start::run(args),
        BenchCommand::Waits(args) => waits::run(args),
        BenchCommand::S3(args) => s3::run(args),
        BenchCommand::Jobs(args) => jobs::run(args),
        BenchCommand::Telemetry(args) => telemetry::run(args),
        BenchCommand::Trials(args) => trials::run(args),
        BenchCommand::Xgboost(args) => xgboost::run(args),
        BenchCommand::Tuning(args) => tuning::run(args),
        BenchCommand::Comm(args) => comm::run(args),
        BenchCommand::Ddp(args) => ddp::run(args),
        BenchCommand::Threads(args) => threads::run(args),
        BenchCommand::CommRank(args) => comm::rank::run(args),
        BenchCommand::FakeTrials(flags) => fake_trials::run(flags),
        BenchCommand::FakeServer(flags) => fake::run(flags),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_sound() {
        Bench::command().debug_assert();
    }
}
