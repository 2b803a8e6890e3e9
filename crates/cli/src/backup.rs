//! `shoal backup`: copies of a data directory elsewhere, while its server runs.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use anyhow::{Context, Result};
use clap::{Args, Subcommand};
use serde_json::{Value, json};
use shoal_backup::{
    BackupError, Directory, Follow, Follower, Head, InBucket, Listed, Listing, Step, Taken, Target, back_up, list,
};
use shoal_store::CaptureSource;
use signal_hook::consts::{SIGINT, SIGTERM};

use crate::{
    exit::{Exit, UsageError},
    output::{Progress, show, show_json, table, time_text},
    settings::{ClientFlags, readable},
};

/// Between two attempts to reach a target that does not answer.
const RETRY_PAUSE: Duration = Duration::from_secs(1);

/// More than this is reported as it happens.
const MOST_LOST: Duration = Duration::from_secs(1);

/// Arguments of `shoal backup`.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct BackupArgs {
    #[command(subcommand)]
    command: Option<BackupCommand>,
    /// Where to: a directory, or s3://bucket/prefix?endpoint=URL. The first backup copies
    /// everything, later ones what is new.
    #[arg(required = true)]
    target: Option<String>,
    /// Continue until Ctrl-C: what is acknowledged is in the target within a second.
    #[arg(long)]
    continuous: bool,
    /// Keep N backups and remove older ones; without it all are kept.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    keep: Option<u32>,
    /// Of --continuous: milliseconds between two looks at what is new.
    #[arg(long, value_name = "MS", default_value_t = 300, requires = "continuous")]
    interval_ms: u64,
    /// One JSON object for each backup that is made.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    settings: ClientFlags,
}

/// Beside making one.
#[derive(Debug, Subcommand)]
pub(crate) enum BackupCommand {
    /// List the whole backups of a target, the newest last.
    List {
        /// Where they are.
        target: String,
        /// A JSON list.
        #[arg(long)]
        json: bool,
    },
}

/// A target as it is typed.
///
/// # Errors
/// It is none.
pub(crate) fn target(typed: &str) -> Result<Arc<dyn Target>> {
    if typed.contains("://") {
        let opened = InBucket::at(typed).map_err(|error| UsageError(error.to_string()))?;
        return Ok(Arc::new(opened));
    }
    Ok(Arc::new(Directory::at(typed.as_ref())))
}

/// Makes a backup, or lists those that there are.
pub(crate) fn run(args: &BackupArgs) -> Result<Exit> {
    if let Some(BackupCommand::List { target: typed, json }) = &args.command {
        return show_list(&*target(typed)?, *json);
    }
    let typed = args.target.as_deref().unwrap_or_default();
    let target = target(typed)?;
    let root = args.settings.settings()?.data_dir;
    let source = CaptureSource::open(&root).with_context(|| format!("cannot back up {}", root.display()))?;
    let keep = args.keep.map(|keep| keep as usize);
    let mut progress = Progress::on_stderr();
    if args.continuous {
        let options = Follow { pause: Duration::from_millis(args.interval_ms), keep, ..Follow::default() };
        return follow(source, target, options, args.json, &mut progress);
    }
    let taken = back_up(&source, &*target, keep, &mut |step| draw(&mut progress, step));
    progress.clear();
    let taken = taken?;
    warn(&mut progress, &taken);
    announce(&taken.head, args.json)?;
    if !taken.removed.is_empty() && !args.json {
        show(&format!("removed {} older: {}\n", taken.removed.len(), taken.removed.join(", ")))?;
    }
    Ok(Exit::Ok)
}

fn follow(
    source: CaptureSource,
    target: Arc<dyn Target>,
    options: Follow,
    json: bool,
    progress: &mut Progress,
) -> Result<Exit> {
    let ends = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        // A second one does not wait.
        signal_hook::flag::register_conditional_default(signal, Arc::clone(&ends))
            .context("could not listen for Ctrl-C")?;
        signal_hook::flag::register(signal, Arc::clone(&ends)).context("could not listen for Ctrl-C")?;
    }
    let begun = Follower::begin(source, target, options, &mut |step| draw(progress, step));
    progress.clear();
    let (mut follower, taken) = begun?;
    warn(progress, &taken);
    announce(&taken.head, json)?;
    progress.line("following; Ctrl-C ends it");
    let (mut failing, mut reported) = (false, MOST_LOST / 2);
    while !ends.load(Ordering::SeqCst) {
        match follower.turn() {
            Ok(made) => {
                if std::mem::take(&mut failing) {
                    progress.line("the target answers again; nothing is missing there");
                }
                if let Some(taken) = made {
                    progress.clear();
                    warn(progress, &taken);
                    announce(&taken.head, json)?;
                }
                let longest = follower.lag().longest;
                if longest >= 2 * reported {
                    reported = longest;
                    let ms = longest.as_millis();
                    progress.line(&format!("slow: for a moment, {ms} ms of work was not in the target"));
                }
                progress.draw(&lag_text(&follower));
            }
            Err(error @ BackupError::Full(_)) => {
                progress.line(&format!("warning: {:#}", anyhow::Error::from(error)));
            }
            // The target may come back, and until then nothing is lost but time.
            Err(error) if may_pass(&error) => {
                if !std::mem::replace(&mut failing, true) {
                    progress.line(&format!("not up to date: {:#}; trying again", anyhow::Error::from(error)));
                }
                thread::sleep(RETRY_PAUSE);
            }
            Err(error) => return Err(error.into()),
        }
    }
    progress.clear();
    let lag = follower.end()?;
    progress.line(&format!(
        "ended; everything is in the target. {} changes ({}) and {} full backups were written; at worst, {} ms of \
         work was not there yet",
        lag.ticks,
        readable(lag.bytes),
        lag.backups,
        lag.longest.as_millis()
    ));
    Ok(Exit::Ok)
}

/// Of one that follows: another process that has the target took it while it could not be reached.
fn may_pass(error: &BackupError) -> bool {
    matches!(
        error,
        BackupError::Io { .. }
            | BackupError::Remote(_)
            | BackupError::Outrun
            | BackupError::LetGo
            | BackupError::Busy { .. }
    )
}

fn lag_text(follower: &Follower) -> String {
    let lag = follower.lag();
    format!(
        "{} changes written ({}); at worst, {} ms of work was not there yet",
        lag.ticks,
        readable(lag.bytes),
        lag.longest.as_millis()
    )
}

/// One step of a backup or a restore.
pub(crate) fn draw(progress: &mut Progress, step: Step<'_>) {
    match step {
        Step::Contents { done, of, bytes } => {
            progress.draw(&format!("{done} of {of} objects and log files, {}", readable(bytes)));
        }
        Step::Database(name) => progress.draw(&format!("copying {name}")),
        Step::Checking(shoal_store::Step::Database(name)) => progress.draw(&format!("checking {name}")),
        Step::Checking(shoal_store::Step::Objects { done, of, .. }) => {
            progress.draw(&format!("checking {done} of {of} objects"));
        }
    }
}

fn warn(progress: &mut Progress, taken: &Taken) {
    taken.warnings.iter().for_each(|warning| progress.line(&format!("warning: {warning}")));
}

fn announce(head: &Head, json: bool) -> Result<()> {
    if json {
        show_json(&described(head))?;
    } else {
        show(&format!(
            "backup {}: databases of {}, {} objects and log files, {} running jobs; {} written\n",
            head.id,
            readable(head.database_bytes),
            head.contents,
            head.jobs_running,
            readable(head.written_bytes)
        ))?;
    }
    Ok(())
}

/// A backup for programs.
pub(crate) fn described(head: &Head) -> Value {
    json!({
        "id": head.id,
        "taken_ms": head.taken_ms,
        "data_dir": head.origin.path,
        "host": head.origin.host,
        "jobs_running": head.jobs_running,
        "database_bytes": head.database_bytes,
        "contents": head.contents,
        "written_bytes": head.written_bytes,
    })
}

/// Milliseconds since the epoch for people.
pub(crate) fn at(ms: u64) -> String {
    time_text(&json!(ms as f64 / 1000.0))
}

fn show_list(target: &dyn Target, as_json: bool) -> Result<Exit> {
    let Listing { whole, skipped } = list(target)?;
    if as_json {
        let entry = |it: &Listed| {
            let mut entry = described(&it.head);
            entry["ticks"] = json!(it.ticks);
            entry["until_ms"] = json!(it.until_ms);
            entry["damage"] = json!(it.damage);
            entry
        };
        let damaged = skipped.iter().map(|it| json!({"id": it.id, "damage": it.why}));
        show_json(&Value::Array(whole.iter().map(entry).chain(damaged).collect()))?;
        return Ok(Exit::Ok);
    }
    let header = ["BACKUP", "TAKEN", "UNTIL", "RUNNING JOBS", "DATABASES", "OBJECTS", "WRITTEN"].map(str::to_owned);
    let row = |it: &Listed| {
        vec![
            it.head.id.clone(),
            at(it.head.taken_ms),
            at(it.until_ms),
            it.head.jobs_running.to_string(),
            readable(it.head.database_bytes),
            it.head.contents.to_string(),
            readable(it.head.written_bytes),
        ]
    };
    show(&table(&[header.to_vec()].into_iter().chain(whole.iter().map(row)).collect::<Vec<_>>()))?;
    let damages = whole.iter().filter_map(|it| {
        let damage = it.damage.as_ref()?;
        Some(format!("damaged after {} changes that follow backup {}: {damage}\n", it.ticks, it.head.id))
    });
    show(&damages.chain(skipped.iter().map(|it| format!("{it}\n"))).collect::<String>())?;
    Ok(Exit::Ok)
}
