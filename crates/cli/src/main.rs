//! The binary `shoal`; the library beside this file is all of it.

use std::process::ExitCode;

fn main() -> ExitCode {
    shoal_cli::main(shoal_algos::BUILT_IN)
}
