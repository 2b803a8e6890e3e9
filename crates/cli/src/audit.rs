//! `shoal audit`: whether the audit log is as it was written.

use anyhow::{Context as _, Result, bail};
use clap::{Args, Subcommand};
use serde_json::json;

use crate::{
    client::owner_keys,
    exit::Exit,
    output::{show, show_json},
    settings::ClientFlags,
};

/// Subcommands of `shoal audit`.
#[derive(Debug, Subcommand)]
pub(crate) enum AuditCommand {
    /// Read the audit log of the data directory and name each line that was changed, removed or
    /// moved. A server may be running.
    Verify(VerifyArgs),
}

/// Arguments of `shoal audit verify`.
#[derive(Debug, Args)]
pub(crate) struct VerifyArgs {
    /// One JSON object: {"ok": .., "lines": .., "faults": ["line 7 was changed", ..]}.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    settings: ClientFlags,
}

/// Does it; fails if a line is not as it was written.
pub(crate) fn run(command: &AuditCommand) -> Result<Exit> {
    let AuditCommand::Verify(args) = command;
    let settings = args.settings.settings()?;
    let keys = owner_keys(&settings)?;
    if !settings.data_dir.join("audit.log").exists() {
        bail!(
            "there is no audit log in {}: give the server's data directory (--data-dir), on its machine",
            settings.data_dir.display()
        );
    }
    let report = shoal_server::verify_audit(&settings.data_dir, &keys)
        .with_context(|| format!("could not read the audit log in {}", settings.data_dir.display()))?;
    let faults: Vec<String> = report.faults.iter().map(ToString::to_string).collect();
    if args.json {
        show_json(&json!({"ok": faults.is_empty(), "lines": report.lines, "faults": faults}))?;
    } else {
        let outcome = if faults.is_empty() { "each is as it was written" } else { "not as they were written" };
        let named: String = faults.iter().map(|fault| format!("{fault}\n")).collect();
        show(&format!("{named}{} lines: {outcome}\n", report.lines))?;
    }
    Ok(if faults.is_empty() { Exit::Ok } else { Exit::Failed })
}
