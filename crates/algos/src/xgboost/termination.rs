//! What a stop request (SIGTERM) does when the model is saved after each round: the process ends at once and well, since the model file is
//! whole at any time. Without `save_model_on_termination` a stop request ends the process as it ends any other.

use std::path::PathBuf;

use signal_hook::consts::SIGTERM;
use signal_hook::iterator::Signals;

use super::{log, model_file};

/// Ends the process without running destructors: other threads may be in the library.
pub(super) fn end_process(code: i32) -> ! {
    signal_hook::low_level::exit(code)
}

/// Ends the process with code 0 on SIGTERM, after removing a half-written file from the model directory.
pub(super) fn keep_model(directory: PathBuf) -> std::io::Result<()> {
    let mut signals = Signals::new([SIGTERM])?;
    std::thread::spawn(move || {
        if signals.forever().next().is_some() {
            model_file::clean(&directory);
            log::info("Stopped on request; the model of the last finished round is kept");
            end_process(shoal_contract::SUCCESS);
        }
    });
    Ok(())
}
