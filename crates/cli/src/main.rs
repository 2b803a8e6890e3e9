//! The program `shoal`.

use std::process::ExitCode;

fn main() -> ExitCode {
    shoal_cli::main(shoal_algos::BUILT_IN)
}
