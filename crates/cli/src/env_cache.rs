//! `shoal env-cache`: the Python environments of this machine.

use std::time::Duration;

use anyhow::{Context, Result};
use clap::{Args, Subcommand};
use shoal_environments::{Cache, Cached, Environment, Table, Watcher};

use crate::{
    duration::duration,
    environments::{cache, table_file},
    exit::{Exit, UsageError},
    output::{Progress, show, table},
    settings::{ServerFlags, Settings, readable},
};

/// Subcommands of `shoal env-cache`.
#[derive(Debug, Subcommand)]
pub(crate) enum EnvCacheCommand {
    /// List what was made, with its size and when a job last wanted it.
    List(ListArgs),
    /// Make environments now, so that no job waits for them: shoal env-cache prepare scikit-learn-1.4.
    Prepare(PrepareArgs),
    /// Compare every file with what was installed; exit code 1 if one is another.
    Verify(VerifyArgs),
    /// Remove what no job uses.
    Prune(PruneArgs),
}

/// Arguments of `shoal env-cache list`.
#[derive(Debug, Args)]
pub(crate) struct ListArgs {
    #[command(flatten)]
    settings: ServerFlags,
}

/// Arguments of `shoal env-cache prepare`.
#[derive(Debug, Args)]
pub(crate) struct PrepareArgs {
    /// Names of environments or of images (`shoal image list` shows both).
    #[arg(required = true, value_name = "NAME|IMAGE")]
    names: Vec<String>,
    #[command(flatten)]
    settings: ServerFlags,
}

/// Arguments of `shoal env-cache verify`.
#[derive(Debug, Args)]
pub(crate) struct VerifyArgs {
    /// Those whose names begin so; without any, all.
    #[arg(value_name = "NAME")]
    names: Vec<String>,
    #[command(flatten)]
    settings: ServerFlags,
}

/// Arguments of `shoal env-cache prune`.
#[derive(Debug, Args)]
pub(crate) struct PruneArgs {
    /// Only what no job has wanted for so long: 30d, 12h, 90m, 10s.
    #[arg(long, value_name = "TIME", default_value = "0s", value_parser = duration)]
    older_than: Duration,
    #[command(flatten)]
    settings: ServerFlags,
}

/// Runs a subcommand.
pub(crate) fn run(command: &EnvCacheCommand) -> Result<Exit> {
    match command {
        EnvCacheCommand::List(args) => list(&cache(&args.settings.settings()?)),
        EnvCacheCommand::Prepare(args) => prepare(args),
        EnvCacheCommand::Verify(args) => verify(args),
        EnvCacheCommand::Prune(args) => prune(args),
    }
}

fn list(cache: &Cache) -> Result<Exit> {
    let mut rows = vec![["ENVIRONMENT", "PYTHON", "SIZE", "WANTED", "STATE"].map(str::to_owned).to_vec()];
    rows.extend(cache.list()?.into_iter().map(|cached| {
        let state = match (&cached.record, cached.in_use) {
            (Some(_), true) => "in use",
            (Some(_), false) => "ready",
            (None, true) => "being made",
            (None, false) => "unfinished",
        };
        let (python, size) = cached.record.as_ref().map_or(("-".to_owned(), "-".to_owned()), |it| (it.python.clone(), readable(it.bytes)));
        vec![cached.id.clone(), python, size, ago(cached.last_used.elapsed().unwrap_or_default()), state.to_owned()]
    }));
    show(&table(&rows))?;
    Ok(Exit::Ok)
}

fn prepare(args: &PrepareArgs) -> Result<Exit> {
    let settings = args.settings.settings()?;
    let wanted = args.names.iter().map(|name| environment(&settings, name)).collect::<Result<Vec<_>>>()?;
    for environment in wanted {
        let prepared = cache(&settings).prepare(&environment, &mut Told(Progress::new()))?;
        let record = prepared.record();
        show(&format!("{}: Python {}, {}\n", environment.name, record.python, prepared.python().display()))?;
    }
    Ok(Exit::Ok)
}

fn environment(settings: &Settings, name: &str) -> Result<Environment> {
    let table = Table::read(&table_file(&settings.data_dir))?;
    let of_image = || Ok(table.find(name)?.map(|found| found.environment));
    let found = table.environment(name)?.map_or_else(of_image, |found| Ok::<_, anyhow::Error>(Some(found)))?;
    let names = || table.environments().collect::<Vec<_>>().join(", ");
    Ok(found.ok_or_else(|| UsageError(format!("{name:?} is neither an environment ({}) nor an image of one", names())))?)
}

fn verify(args: &VerifyArgs) -> Result<Exit> {
    let cache = cache(&args.settings.settings()?);
    let is_meant = |cached: &Cached| args.names.is_empty() || args.names.iter().any(|name| cached.id.starts_with(name));
    let meant: Vec<_> = cache.list()?.into_iter().filter(is_meant).collect();
    if meant.is_empty() && !args.names.is_empty() {
        return Err(UsageError(format!("nothing in the cache begins with {}; see `shoal env-cache list`", args.names.join(" or "))).into());
    }
    let mut exit = Exit::Ok;
    for cached in meant {
        let verdict = cache.verify(&cached).with_context(|| format!("could not verify {}", cached.id))?;
        if verdict.problems.is_empty() {
            show(&format!("{}: {} files are as installed\n", cached.id, verdict.files))?;
            continue;
        }
        exit = Exit::Failed;
        for problem in verdict.problems {
            show(&format!("{}: {problem}\n", cached.id))?;
        }
        show("  remove it with `shoal env-cache prune` when no job uses it; it is made anew when it is wanted\n")?;
    }
    Ok(exit)
}

fn prune(args: &PruneArgs) -> Result<Exit> {
    let removed = cache(&args.settings.settings()?).prune(args.older_than)?;
    for cached in &removed {
        let size = cached.record.as_ref().map_or("unfinished".to_owned(), |record| readable(record.bytes));
        show(&format!("removed {} ({size})\n", cached.id))?;
    }
    if removed.is_empty() {
        show("nothing to remove\n")?;
    }
    Ok(Exit::Ok)
}

/// Shows progress on a terminal and elsewhere.
struct Told(Progress);

impl Watcher for Told {
    fn line(&mut self, line: &str) {
        self.0.line(line);
    }

    fn is_to_stop(&mut self) -> bool {
        // Ctrl-C ends us, and what was begun is made anew next time.
        false
    }
}

/// How long ago, in the largest unit.
fn ago(time: Duration) -> String {
    match time.as_secs() {
        seconds @ 0..60 => format!("{seconds} s ago"),
        seconds @ 60..3_600 => format!("{} min ago", seconds / 60),
        seconds @ 3_600..86_400 => format!("{} h ago", seconds / 3_600),
        seconds => format!("{} d ago", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_told() {
        assert_eq!(
            [59, 61, 7_300, 200_000].map(|seconds| ago(Duration::from_secs(seconds))),
            ["59 s ago", "1 min ago", "2 h ago", "2 d ago"]
        );
    }
}
