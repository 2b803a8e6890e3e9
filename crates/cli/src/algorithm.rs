//! `shoal algorithm NAME`: a built-in algorithm as an ordinary training program, inside an instance.

use std::process::ExitCode;

use clap::Args;

use crate::exit;

/// Arguments of `shoal algorithm`.
#[derive(Debug, Args)]
pub(crate) struct AlgorithmArgs {
    /// Which.
    name: String,
}

/// Runs it on this instance's `/opt/ml`; as a zygote, once for each training job that the agent has for it.
pub(crate) fn run(args: &AlgorithmArgs) -> ExitCode {
    let code = match shoal_sandbox::line_of_zygote() {
        Some(line) => shoal_sandbox::serve_as_zygote(&line, || shoal_algos::prepare(&args.name), || shoal_algos::run(&args.name)),
        None => shoal_algos::run(&args.name),
    };
    exit::of_program(code)
}
