//! `shoal mpi`: what starts a program of MPI, inside its instances.

use std::process::ExitCode;

use clap::Subcommand;
use shoal_agent::mpi::{self, Places};

use crate::exit;

/// Subcommands of `shoal mpi`.
#[derive(Debug, Subcommand)]
pub(crate) enum MpiCommand {
    /// On the first instance: run mpirun.
    Run {
        /// All instances, in the order of ranks.
        #[arg(long, value_delimiter = ',', required = true)]
        hosts: Vec<String>,
        /// Ranks on each.
        #[arg(long)]
        per_host: u32,
        /// How many of the last words are what each rank runs.
        #[arg(long)]
        program: usize,
        /// mpirun and its arguments.
        #[arg(last = true, required = true)]
        command: Vec<String>,
    },
    /// On the first instance of a job that loses and gains instances: run Horovod's elastic
    /// launcher.
    Elastic {
        /// All instances, in the order of ranks.
        #[arg(long, value_delimiter = ',', required = true)]
        hosts: Vec<String>,
        /// The launcher and its arguments.
        #[arg(last = true, required = true)]
        command: Vec<String>,
    },
    /// On every other instance: start what the launcher asks for.
    Wait {
        /// Of a job that loses and gains instances.
        #[arg(long)]
        elastic: bool,
    },
    /// On each instance, for SDK v3: what its mpi_driver.py is to do.
    Drive {
        /// What starts the script.
        python: String,
    },
    /// What mpirun starts as each rank: run its program, and note how it ends.
    Rank {
        /// The program and its arguments.
        #[arg(last = true, required = true)]
        program: Vec<String>,
    },
    /// What mpirun has in ssh's place.
    Start {
        /// Where.
        host: String,
        /// What, for a shell.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        command: Vec<String>,
    },
}

/// Runs it to its end, and ends as it does.
pub(crate) fn run(command: MpiCommand) -> ExitCode {
    let code = match command {
        MpiCommand::Run { hosts, per_host, program, command } => {
            mpi::run(&Places { hosts, per_host }, program, &command)
        }
        MpiCommand::Elastic { hosts, command } => mpi::elastic(&hosts, &command),
        MpiCommand::Wait { elastic } => mpi::wait(elastic),
        MpiCommand::Drive { python } => mpi::drive(&python),
        MpiCommand::Rank { program } => mpi::rank(&program),
        MpiCommand::Start { host, command } => mpi::start(&host, &command),
    };
    exit::of_program(code)
}
