//! `shoal jobs exec`: a command, or a shell, beside a running training program.

use std::{io, process, sync::Arc};

use anyhow::Result;
use clap::Args;
use serde_json::json;

use super::visit::{End, Raw, Visit, broken, write};
use crate::{client::Client, exit::Exit, settings::ClientFlags};

/// What is run when nothing is named.
const SHELL: [&str; 3] = ["/bin/sh", "-c", "command -v bash > /dev/null && exec bash; exec sh"];

/// Arguments of `shoal jobs exec`.
#[derive(Debug, Args)]
pub(crate) struct ExecArgs {
    /// Training job's name.
    name: String,
    /// Rank of the instance, from 0: that of algo-1.
    #[arg(long, default_value_t = 0)]
    rank: u32,
    #[command(flatten)]
    settings: ClientFlags,
    /// Program and its arguments; a shell if there is none.
    #[arg(last = true)]
    command: Vec<String>,
}

/// Runs it; the exit code is the command's.
pub(crate) fn run(args: &ExecArgs) -> Result<Exit> {
    let client = Arc::new(Client::connect(&args.settings)?);
    let command = if args.command.is_empty() { SHELL.map(str::to_owned).to_vec() } else { args.command.clone() };
    let terminal = Raw::terminal()?;
    let visit = Visit::start(&client, &args.name, args.rank, json!({"Command": command, "Terminal": terminal}))?;
    let raw = terminal.map(|_| Raw::enter()).transpose()?;
    if raw.is_some() {
        visit.follow_size()?;
    }
    visit.feed()?;
    let end = visit.read(write);
    drop(raw);
    match end {
        Ok(End::Code(code)) => process::exit(code),
        Ok(End::Broken(reason)) => Err(broken(&args.name, args.rank, &reason)),
        // Whoever reads has seen enough; the server ends the command when nobody asks for it any
        // more.
        Err(error)
            if error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe) =>
        {
            Ok(Exit::Ok)
        }
        Err(error) => Err(error),
    }
}
