//! `shoal verify`: whether a data directory holds what was written into it.

use anyhow::Result;
use clap::Args;
use serde_json::json;
use shoal_store::{Report, Step};

use crate::{
    exit::Exit,
    output::{Progress, show, show_json},
    settings::{ClientFlags, readable},
};

/// Arguments of `shoal verify`.
#[derive(Debug, Args)]
pub(crate) struct VerifyArgs {
    /// One JSON object: {"ok": .., "objects": .., "bytes": .., "elsewhere": .., "damaged":
    /// [{"name": .., "detail": ..}, ..]}.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    settings: ClientFlags,
}

/// Checks the databases and all objects; fails if anything is not what was written.
pub(crate) fn run(args: &VerifyArgs) -> Result<Exit> {
    let settings = args.settings.settings()?;
    let mut progress = Progress::on_stderr();
    let report = shoal_store::verify(&settings.data_dir, &mut |step| match step {
        Step::Database(name) => progress.draw(&format!("checking {name}")),
        Step::Objects { done, of, bytes } => progress.draw(&format!("{done} of {of} objects, {}", readable(bytes))),
    });
    progress.clear();
    let report = report?;
    if args.json {
        let damaged: Vec<_> =
            report.damages.iter().map(|damage| json!({"name": damage.name, "detail": damage.detail})).collect();
        show_json(&json!({
            "ok": report.damages.is_empty(),
            "objects": report.objects,
            "bytes": report.bytes,
            "elsewhere": report.elsewhere,
            "damaged": damaged,
        }))?;
    } else {
        show(&text(&report))?;
    }
    Ok(if report.damages.is_empty() { Exit::Ok } else { Exit::Failed })
}

fn text(report: &Report) -> String {
    let mut text: String =
        report.damages.iter().map(|damage| format!("damaged: {}: {}\n", damage.name, damage.detail)).collect();
    let outcome = match report.damages.len() {
        0 => "nothing is damaged".to_owned(),
        1 => "1 is damaged: upload it again or delete it; for a database, restore the data directory from a copy"
            .to_owned(),
        many => format!(
            "{many} are damaged: upload them again or delete them; for a database, restore the data directory from a \
             copy"
        ),
    };
    if report.elsewhere > 0 {
        text.push_str(&format!("{} more objects are in the store elsewhere and were not read\n", report.elsewhere));
    }
    text.push_str(&format!("{} objects checked ({}); {outcome}\n", report.objects, readable(report.bytes)));
    text
}
