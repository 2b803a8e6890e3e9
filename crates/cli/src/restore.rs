//! `shoal restore`: a data directory from a backup.

use std::path::PathBuf;

use anyhow::Result;
use clap::Args;
use serde_json::json;
use shoal_backup::{Restore, Restored, restore};

use crate::{
    backup::{at, described, draw, target},
    exit::Exit,
    output::{Progress, show, show_json},
    settings::readable,
};

/// Arguments of `shoal restore`.
#[derive(Debug, Args)]
pub(crate) struct RestoreArgs {
    /// Where the backups are.
    target: String,
    /// The new data directory; it must be empty or missing.
    #[arg(long, value_name = "PATH")]
    data_dir: PathBuf,
    /// A backup by its name (see `shoal backup list`); otherwise the newest.
    #[arg(long, value_name = "NAME")]
    backup: Option<String>,
    /// Of a continuous backup: not beyond this change.
    #[arg(long, value_name = "N")]
    until_tick: Option<u64>,
    /// Keep what is sound, and list what is not.
    #[arg(long)]
    accept_damage: bool,
    /// Take the original's place; its server must be gone. Its jobs on clusters are taken up, and
    /// those newer than the backup are ended.
    #[arg(long)]
    take_over: bool,
    /// One JSON object.
    #[arg(long)]
    json: bool,
}

/// Restores and checks; fails, with nothing left behind, if anything is damaged.
pub(crate) fn run(args: &RestoreArgs) -> Result<Exit> {
    let options = Restore {
        backup: args.backup.clone(),
        until_tick: args.until_tick,
        accept_damage: args.accept_damage,
        take_over: args.take_over,
    };
    let mut progress = Progress::on_stderr();
    let restored = restore(&*target(&args.target)?, &args.data_dir, &options, &mut |step| draw(&mut progress, step));
    progress.clear();
    let restored = restored?;
    if args.json {
        let mut entry = described(&restored.head);
        entry["until_ms"] = json!(restored.until_ms);
        entry["ticks"] = json!(restored.ticks);
        entry["jobs_running"] = json!(restored.jobs_running);
        entry["skipped"] = restored.skipped.iter().map(|it| json!({"id": it.id, "damage": it.why})).collect();
        entry["new_id"] = json!(restored.is_another);
        entry["damaged"] =
            restored.damages.iter().map(|damage| json!({"name": damage.name, "detail": damage.detail})).collect();
        show_json(&entry)?;
    } else {
        show(&text(&restored, args))?;
    }
    Ok(if restored.damages.is_empty() { Exit::Ok } else { Exit::Failed })
}

fn text(restored: &Restored, args: &RestoreArgs) -> String {
    let Restored { head, skipped, ticks, until_ms, jobs_running, objects, bytes, damages, is_another } = restored;
    let mut text: String =
        damages.iter().map(|damage| format!("damaged: {}: {}\n", damage.name, damage.detail)).collect();
    text.extend(skipped.iter().map(|it| format!("{it}\n")));
    text.push_str(&format!(
        "restored {} of {}:{} into {}\nas of {} (backup {} and {ticks} changes after it)\n{objects} objects and log \
         files ({}), all compared with what was written\n",
        readable(head.database_bytes),
        head.origin.host,
        head.origin.path,
        args.data_dir.display(),
        at(*until_ms),
        head.id,
        readable(*bytes),
    ));
    text.push_str(&match (jobs_running, is_another) {
        (0, _) => "no training job was running\n".to_owned(),
        (_, true) => format!(
            "{jobs_running} training jobs had not ended: a server that starts here takes up those that wait; those that \
             ran count as lost attempts and are retried or fail\n"
        ),
        (_, false) => format!(
            "{jobs_running} training jobs had not ended: a server that starts here takes up those that wait and those \
             that run on compute targets; those that ran on its machine count as lost attempts and are retried or fail\n"
        ),
    });
    text.push_str(&match is_another {
        true => "this is a copy with an id of its own: its server touches nothing of the original's, and backs up to \
                 another target. To take the original's place, restore with --take-over\n"
            .to_owned(),
        false => format!(
            "this takes the place of {}:{}, whose server must have ended and must not start again: either would end \
             the other's jobs. Jobs on compute targets that are newer than the backup are ended\n",
            head.origin.host, head.origin.path
        ),
    });
    text
}
