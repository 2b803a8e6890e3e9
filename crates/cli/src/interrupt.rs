//! Ctrl-C at a command that watches a training job: it ends the watching, not the job, and says so.

use std::{io::IsTerminal, thread};

use anyhow::{Context, Result};
use signal_hook::{
    consts::{SIGINT, SIGTERM},
    iterator::{Handle, Signals},
    low_level::emulate_default_handler,
};

/// While this lives, Ctrl-C and SIGTERM say how to go on before they end the command.
#[derive(Debug)]
pub(crate) struct Farewell(Handle);

impl Farewell {
    /// For a command that watches this job.
    ///
    /// # Errors
    /// Signals cannot be listened for.
    pub(crate) fn about(job: &str) -> Result<Self> {
        Self::saying(&format!("{job} goes on; `shoal jobs logs -f {job}` follows it, `shoal jobs stop {job}` stops it"))
    }

    /// For a command that watches this tuning job.
    ///
    /// # Errors
    /// Signals cannot be listened for.
    pub(crate) fn about_tuning(name: &str) -> Result<Self> {
        Self::saying(&format!(
            "{name} goes on; `shoal tuning show {name}` tells how it stands, `shoal tuning stop {name}` stops it"
        ))
    }

    fn saying(what: &str) -> Result<Self> {
        let mut signals = Signals::new([SIGINT, SIGTERM]).context("could not listen for Ctrl-C")?;
        let handle = signals.handle();
        // On a terminal a line of progress may stand where this goes.
        let clear = if std::io::stderr().is_terminal() { "\r\x1b[K" } else { "" };
        let text = format!("{clear}{what}");
        let listen = move || {
            for signal in &mut signals {
                eprintln!("{text}");
                // It does not come back: both end the process.
                let _ = emulate_default_handler(signal);
            }
        };
        thread::Builder::new().name("interrupt".to_owned()).spawn(listen).context("could not listen for Ctrl-C")?;
        Ok(Self(handle))
    }
}

impl Drop for Farewell {
    fn drop(&mut self) {
        self.0.close();
    }
}
