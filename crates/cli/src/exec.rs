//! `shoal exec -- COMMAND`: a command in the environment of `shoal env`.

use std::{os::unix::process::CommandExt, process::Command};

use anyhow::{Context, Result};
use clap::Args;

use crate::{client_env::prepare, env::no_server, exit::Exit, settings::ClientFlags};

/// Arguments of `shoal exec`.
#[derive(Debug, Args)]
pub(crate) struct ExecArgs {
    #[command(flatten)]
    settings: ClientFlags,
    /// Program and its arguments.
    #[arg(required = true, last = true)]
    command: Vec<String>,
}

/// Becomes the command: its exit code, its signals and its terminal are its own.
pub(crate) fn run(args: &ExecArgs) -> Result<Exit> {
    let settings = args.settings.settings()?;
    let (program, arguments) = args.command.split_first().context("clap asks for at least one word")?;
    let mut command = Command::new(program);
    command.args(arguments);
    for (name, value) in prepare(&settings)? {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    let url = settings.url();
    if !url.answers() {
        eprintln!("{}", no_server(&url));
    }
    Err(command.exec()).with_context(|| format!("could not run {program}"))
}
