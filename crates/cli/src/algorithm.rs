//! `shoal algorithm NAME`: a built-in algorithm as an ordinary training program, inside an
//! instance.

use std::process::ExitCode;

use clap::Args;
use shoal_algos::Algorithms;

use crate::exit;

/// Arguments of `shoal algorithm`.
#[derive(Debug, Args)]
pub(crate) struct AlgorithmArgs {
    /// As the algorithm declares it.
    name: String,
}

/// Runs it on this instance's `/opt/ml`; as a zygote, once for each training job that the agent has
/// for it.
pub(crate) fn run(args: &AlgorithmArgs, algorithms: Algorithms) -> ExitCode {
    let code = match shoal_sandbox::line_of_zygote() {
        Some(line) => {
            shoal_sandbox::serve_as_zygote(&line, || algorithms.prepare(&args.name), || algorithms.run(&args.name))
        }
        None => algorithms.run(&args.name),
    };
    exit::of_program(code)
}
