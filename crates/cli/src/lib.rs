//! The one binary `shoal`: the server, the command line that speaks with it, and (hidden) the agent
//! and the built-in algorithms that a server starts. Commands are thin: what they do for training
//! jobs goes through the server's public API.
//!
//! It is a library because `tools/bench` uses its client, its settings and the demo's data, and so
//! that a program with other built-in algorithms can be made of it.

mod advise;
mod agent;
mod algorithm;
mod audit;
mod backup;
mod budget;
mod chaos;
pub mod client;
mod client_env;
mod config;
mod console;
mod copied;
mod cost;
pub mod demo;
mod doctor;
mod duration;
mod env;
mod env_cache;
pub mod environments;
mod exec;
pub mod exit;
mod image;
mod images;
mod instances;
mod interrupt;
mod jobs;
mod keys;
mod log;
mod mpi;
mod notifications;
pub mod output;
mod patient;
mod quotas;
mod ranks;
mod restore;
mod runs;
pub mod serve;
pub mod settings;
pub mod setup;
mod stacks;
mod targets;
mod tensorboard;
mod timeline;
mod top;
mod train;
mod tune;
mod tuner;
mod tuning;
mod utilization;
mod verify;
pub mod watch;
mod whole_file;

use std::{io, path::PathBuf, process::ExitCode};

use anyhow::Context;
use clap::{CommandFactory, Parser, Subcommand};
use clap_complete::Shell;
use exit::Exit;
use shoal_agent::parameter_server;
use shoal_algos::Algorithms;

/// Trains as SageMaker does, on your own machine: the AWS clients that you have, pointed at a
/// server of your own.
#[derive(Debug, Parser)]
#[command(name = "shoal", version, after_help = exit::HELP, after_long_help = format!("{EXAMPLES}\n\n{}", exit::HELP))]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

/// What `--help` tells beyond `-h`.
const EXAMPLES: &str = "\
Examples:
  shoal demo                          see a distributed training on real data
  shoal serve                         start a server here
  eval \"$(shoal env)\"                 point this shell's AWS clients at it
  shoal exec -- python notebook.py    or only one program
  shoal train train.py --epochs 3     run your script, with its directory, in an environment for what it imports
  shoal train --image xgboost --channel train=train.csv --hp num_round=50
  shoal tune --image xgboost ...      search for its best hyperparameters
  shoal jobs logs -f NAME             follow a training job's log
  shoal console                       watch them in a browser";

/// Subcommands.
#[derive(Debug, Subcommand)]
enum Command {
    /// Start a server and serve until Ctrl-C.
    Serve(serve::ServeArgs),
    /// Print what to set so that AWS clients speak with this server: eval "$(shoal env)".
    Env(env::EnvArgs),
    /// Run a command in that environment: shoal exec -- python notebook.py.
    Exec(exec::ExecArgs),
    /// Fetch the libraries that the built-in algorithms need, once.
    Setup(setup::SetupArgs),
    /// Python environments of this machine, in which scripts on images of frameworks run: list,
    /// prepare ahead, verify, prune.
    #[command(subcommand)]
    EnvCache(env_cache::EnvCacheCommand),
    /// Images that stand for a Python environment: list them, add your own.
    #[command(subcommand)]
    Image(image::ImageCommand),
    /// Look whether this machine has what Shoal needs, and say what to do where not.
    Doctor(doctor::DoctorArgs),
    /// Print every setting, its value, and where it comes from.
    Config(config::ConfigArgs),
    /// Run one training job from flags or a request file and watch it.
    Train(Box<train::TrainArgs>),
    /// Search for the best hyperparameters: run one tuning job from flags or a request file and
    /// watch it.
    Tune(Box<tune::TuneArgs>),
    /// List, show, report, change and stop tuning jobs.
    #[command(subcommand)]
    Tuning(tuning::TuningCommand),
    /// List, show and stop training jobs; read their logs.
    #[command(subcommand)]
    Jobs(jobs::JobsCommand),
    /// What happens to training jobs elsewhere, made to happen here: interruptions of managed spot
    /// training.
    #[command(subcommand)]
    Chaos(chaos::ChaosCommand),
    /// The tuner by itself: ask and tell over stdin and stdout, for a program in any language.
    Tuner(tuner::TunerArgs),
    /// Which layout to train a model with on many ranks: predicted time and memory of each, from
    /// measured costs.
    Advise(advise::AdviseArgs),
    /// Print a link that opens the web console, signed in.
    Console(console::ConsoleArgs),
    /// Watch the training jobs that run and wait, as top(1) watches processes.
    Top(top::TopArgs),
    /// List and compare runs: trial components of experiments.
    #[command(subcommand)]
    Runs(runs::RunsCommand),
    /// What became of notifications: delivered, on their way, given up.
    Notifications(notifications::NotificationsArgs),
    /// Quotas of users and tags: what each uses, and may use.
    Quotas(quotas::QuotasArgs),
    /// Compute targets: where jobs may run, how much is free there, and what is wrong.
    Targets(targets::TargetsArgs),
    /// What training jobs cost: instance hours and money, by tag, tuning job, experiment.
    Cost(cost::CostArgs),
    /// Limits on what training jobs cost or use: who is notified, what is refused or stopped.
    #[command(subcommand)]
    Budget(budget::BudgetCommand),
    /// Keys of a team: add, list, rotate and remove those of owners, users and readers.
    #[command(subcommand)]
    Keys(keys::KeysCommand),
    /// The audit log: who changed what, and whether its lines are as they were written.
    #[command(subcommand)]
    Audit(audit::AuditCommand),
    /// Start TensorBoard over the event files of a training job, while they come.
    Tensorboard(tensorboard::TensorBoardArgs),
    /// Check that the data directory holds what was written into it: databases and every object. A
    /// server may be running in it.
    Verify(verify::VerifyArgs),
    /// Copy the data directory elsewhere while its server runs, once or continuously: databases,
    /// objects, logs, keys, settings.
    Backup(backup::BackupArgs),
    /// Make a data directory of a backup.
    Restore(restore::RestoreArgs),
    /// Train on real data on one and on three instances, and compare.
    Demo(demo::DemoArgs),
    /// What the ranks of a process group did and when.
    #[command(subcommand)]
    Timeline(timeline::TimelineCommand),
    /// Print a shell's completions: source <(shoal completions bash).
    Completions {
        /// Which shell.
        shell: Shell,
    },
    /// Write the man pages of all commands into a directory, as packages need them.
    #[command(hide = true)]
    Man {
        /// Which is there.
        directory: PathBuf,
    },
    /// On an instance: started by the server's launcher.
    #[command(hide = true)]
    Agent(agent::AgentArgs),
    /// Puts this program into a container of another image, whose agent it is then.
    #[command(hide = true)]
    AgentBinary {
        /// The file that it becomes.
        to: PathBuf,
    },
    /// A built-in algorithm as a training program: started by the agent.
    #[command(hide = true)]
    Algorithm(algorithm::AlgorithmArgs),
    /// The stacks of an instance's processes: started by the agent.
    #[command(hide = true)]
    Stacks(stacks::StacksArgs),
    /// A program of MPI: started by the agent.
    #[command(subcommand, hide = true)]
    Mpi(mpi::MpiCommand),
    /// The ranks of an instance: started by the agent.
    #[command(hide = true)]
    Ranks(ranks::RanksArgs),
    /// A script with TensorFlow's parameter server beside it: started by the agent.
    #[command(hide = true)]
    ParameterServer {
        /// The server's number in the cluster.
        #[arg(long)]
        index: usize,
        /// The script, with what starts it.
        #[arg(last = true, required = true)]
        command: Vec<String>,
    },
}

/// The whole program, with these built-in algorithms.
pub fn main(algorithms: Algorithms) -> ExitCode {
    shoal_sandbox::reexec_entry();
    shoal_agent::packer_entry();
    match Cli::parse_from(train::separate(std::env::args_os().collect(), &Cli::command())).command {
        // The last six are programs in their own right with exit codes of their own.
        Command::Agent(args) => agent::run(args, algorithms),
        Command::Algorithm(args) => algorithm::run(&args, algorithms),
        Command::Stacks(args) => stacks::run(&args),
        Command::Mpi(command) => mpi::run(command),
        Command::Ranks(args) => ranks::run(args),
        Command::ParameterServer { index, command } => exit::of_program(parameter_server::beside(index, &command)),
        Command::AgentBinary { to } => agent::copy(&to),
        command => run(command, algorithms).unwrap_or_else(|error| exit::report("shoal", &error)).into(),
    }
}

fn run(command: Command, algorithms: Algorithms) -> anyhow::Result<Exit> {
    match command {
        Command::Serve(args) => serve::run(&args, algorithms),
        Command::Env(args) => env::run(&args),
        Command::Exec(args) => exec::run(&args),
        Command::Setup(args) => setup::run(&args, algorithms),
        Command::EnvCache(command) => env_cache::run(&command, algorithms),
        Command::Image(command) => image::run(&command),
        Command::Doctor(args) => doctor::run(&args, algorithms),
        Command::Config(args) => config::run(&args),
        Command::Train(args) => train::run(*args, algorithms),
        Command::Tune(args) => tune::run(&args, algorithms),
        Command::Tuning(command) => tuning::run(&command),
        Command::Jobs(command) => jobs::run(&command),
        Command::Chaos(command) => chaos::run(&command),
        Command::Tuner(args) => tuner::run(&args),
        Command::Advise(args) => advise::run(&args),
        Command::Console(args) => console::run(&args),
        Command::Top(args) => top::run(&args),
        Command::Runs(command) => runs::run(&command),
        Command::Notifications(args) => notifications::run(&args),
        Command::Quotas(args) => quotas::run(&args),
        Command::Targets(args) => targets::run(&args),
        Command::Cost(args) => cost::run(&args),
        Command::Budget(command) => budget::run(&command),
        Command::Keys(command) => keys::run(&command),
        Command::Audit(command) => audit::run(&command),
        Command::Tensorboard(args) => tensorboard::run(&args),
        Command::Verify(args) => verify::run(&args),
        Command::Backup(args) => backup::run(&args),
        Command::Restore(args) => restore::run(&args),
        Command::Demo(args) => demo::run(&args),
        Command::Timeline(command) => timeline::run(&command),
        Command::Completions { shell } => {
            clap_complete::generate(shell, &mut Cli::command(), "shoal", &mut io::stdout());
            Ok(Exit::Ok)
        }
        Command::Man { directory } => {
            let written = clap_mangen::generate_to(Cli::command(), &directory);
            written.with_context(|| format!("could not write to {}", directory.display()))?;
            Ok(Exit::Ok)
        }
        Command::Agent(_)
        | Command::AgentBinary { .. }
        | Command::Algorithm(_)
        | Command::Stacks(_)
        | Command::Mpi(_)
        | Command::Ranks(_)
        | Command::ParameterServer { .. } => {
            unreachable!("main runs these itself")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_sound() {
        Cli::command().debug_assert();
    }
}
