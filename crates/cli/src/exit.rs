//! Exit codes, documented in `shoal --help`, and which error has which.

use std::{io, process::ExitCode};

use crate::client::ClientError;

/// How a command ended; the numbers are part of the interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// All is well.
    Ok = 0,
    /// The job failed, or something else did.
    Failed = 1,
    /// The command line or a setting makes no sense (2 is clap's own code for it, too).
    Usage = 2,
    /// No server answers.
    Unreachable = 3,
    /// The job was stopped.
    Stopped = 4,
    /// There is no such job.
    NotFound = 5,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

/// Of a subcommand that is a program in its own right.
pub(crate) fn of_program(code: i32) -> ExitCode {
    u8::try_from(code).map_or(ExitCode::FAILURE, ExitCode::from)
}

/// A mistake in what the user typed that clap cannot see.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct UsageError(pub String);

/// Prints what went wrong, behind the program's name, and finds the exit code for it.
pub fn report(program: &str, error: &anyhow::Error) -> Exit {
    let broken_pipe = |error: &io::Error| error.kind() == io::ErrorKind::BrokenPipe;
    if error.downcast_ref::<io::Error>().is_some_and(broken_pipe) {
        // Whoever read our output has seen enough.
        return Exit::Ok;
    }
    eprintln!("{program}: {error:#}");
    if error.is::<UsageError>() {
        return Exit::Usage;
    }
    match error.downcast_ref::<ClientError>() {
        Some(ClientError::Unreachable { .. } | ClientError::NeverStarted { .. }) => Exit::Unreachable,
        Some(error) if error.is_not_found() => Exit::NotFound,
        _ => Exit::Failed,
    }
}

/// For the end of `shoal --help`.
pub(crate) const HELP: &str = "\
Exit codes:
  0  all is well
  1  the training job failed, or another error
  2  wrong usage
  3  no server answers
  4  the training job was stopped
  5  no such training job";
