//! `shoal algorithm NAME`: a built-in algorithm as an ordinary training program, inside an instance.

use std::process::ExitCode;

use clap::Args;

/// Arguments of `shoal algorithm`.
#[derive(Debug, Args)]
pub(crate) struct AlgorithmArgs {
    /// Which.
    name: String,
}

/// Runs it on this instance's `/opt/ml`.
pub(crate) fn run(args: &AlgorithmArgs) -> ExitCode {
    u8::try_from(shoal_algos::run(&args.name)).map_or(ExitCode::FAILURE, ExitCode::from)
}
