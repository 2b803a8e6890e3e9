//! `shoal env-cache`: the Python environments of this machine, and the files of images.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::{Args, Subcommand};
use shoal_algos::Algorithms;
use shoal_environments::{Cache, Cached, Engine, Environment, Images, Source, Table, Watcher};
use shoal_link::Root;
use shoal_server::{Image, Images as _};

use crate::{
    duration::duration,
    environments::{cache, images, table_file},
    exit::{Exit, UsageError},
    images::OurImages,
    output::{Progress, show, table},
    settings::{ServerFlags, Settings, readable},
};

/// Subcommands of `shoal env-cache`.
#[derive(Debug, Subcommand)]
pub(crate) enum EnvCacheCommand {
    /// List what was made, with its size and when a job last wanted it.
    List(ListArgs),
    /// Make environments now, so that no job waits for them: shoal env-cache prepare
    /// scikit-learn-1.4.
    Prepare(PrepareArgs),
    /// Compare every file of environments with what was installed; exit code 1 if one is another.
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
    /// Names of environments or of images (`shoal image list` shows both), or images that the
    /// container engine has or can pull.
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

/// Between two passes of a server.
const PRUNE_INTERVAL: Duration = Duration::from_secs(60 * 60);
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// Arguments of `shoal env-cache prune`.
#[derive(Debug, Args)]
pub(crate) struct PruneArgs {
    /// Only what no job has wanted for this time: 30d, 12h, 90m, 10s.
    #[arg(long, value_name = "TIME", default_value = "0s", value_parser = duration)]
    older_than: Duration,
    #[command(flatten)]
    settings: ServerFlags,
}

/// Runs a subcommand.
pub(crate) fn run(command: &EnvCacheCommand, algorithms: Algorithms) -> Result<Exit> {
    match command {
        EnvCacheCommand::List(args) => list(&cache(&args.settings.settings()?), &images()),
        EnvCacheCommand::Prepare(args) => prepare(args, algorithms),
        EnvCacheCommand::Verify(args) => verify(args),
        EnvCacheCommand::Prune(args) => prune(args),
    }
}

fn list(cache: &Cache, images: &Images) -> Result<Exit> {
    let mut rows = vec![["ENVIRONMENT", "PYTHON", "SIZE", "WANTED", "STATE"].map(str::to_owned).to_vec()];
    rows.extend(cache.list()?.iter().map(|cached| row(cached, |record| (record.python.clone(), record.bytes))));
    for cached in images.list()? {
        let mut row = row(&cached, |record| ("an image".to_owned(), record.bytes));
        row[0] = short(&cached.id).to_owned();
        rows.push(row);
    }
    show(&table(&rows))?;
    Ok(Exit::Ok)
}

fn row<R>(cached: &Cached<R>, told: impl Fn(&R) -> (String, u64)) -> Vec<String> {
    let state = match (&cached.record, cached.in_use) {
        (Some(_), true) => "in use",
        (Some(_), false) => "ready",
        (None, true) => "being made",
        (None, false) => "unfinished",
    };
    let known = cached.record.as_ref().map(told).map(|(python, bytes)| (python, readable(bytes)));
    let (python, size) = known.unwrap_or(("-".to_owned(), "-".to_owned()));
    vec![cached.id.clone(), python, size, ago(cached.last_used.elapsed().unwrap_or_default()), state.to_owned()]
}

/// The name of an image's files with the first digits of its digest, as engines show them.
fn short(id: &str) -> &str {
    let digest = id.rfind('-').map_or(0, |at| at + 1);
    id.get(..digest + 12).unwrap_or(id)
}

fn prepare(args: &PrepareArgs, algorithms: Algorithms) -> Result<Exit> {
    let settings = args.settings.settings()?;
    let wanted = args.names.iter().map(|name| wanted(&settings, name, algorithms)).collect::<Result<Vec<_>>>()?;
    for wanted in wanted {
        let environment = match wanted {
            Wanted::Environment(environment) => environment,
            Wanted::Image(engine, name) => {
                let prepared = images().prepare(&engine, &name, &mut Told(Progress::on_stderr()))?;
                show(&format!("{name}: {}\n", prepared.tree().display()))?;
                continue;
            }
        };
        let prepared = cache(&settings).prepare(&environment, &mut Told(Progress::on_stderr()))?;
        let record = prepared.record();
        show(&format!("{}: Python {}, {}\n", environment.name, record.python, prepared.python().display()))?;
    }
    Ok(Exit::Ok)
}

/// What is to be made ahead.
enum Wanted {
    Environment(Environment),
    /// Of the container engine.
    Image(Engine, String),
}

fn wanted(settings: &Settings, name: &str, algorithms: Algorithms) -> Result<Wanted> {
    let table = Table::read(&table_file(&settings.data_dir))?;
    if let Some(environment) = table.environment(name)? {
        return Ok(Wanted::Environment(environment));
    }
    if let Some(found) = table.find(name)? {
        return Ok(Wanted::Environment(found.environment));
    }
    // Where jobs with this image would get it from.
    let why = match OurImages::of(settings, algorithms).resolve(name) {
        Ok(Image::Root(Root::Engine { program, .. })) => {
            return Ok(Wanted::Image(Engine::at(program.into(), &Source::of_this_process(None)), name.to_owned()));
        }
        Ok(Image::Root(Root::Directory { path })) => {
            format!("it is the tree of files {path}, which jobs have as it is")
        }
        Ok(_) => "what it needs is the server's own".to_owned(),
        Err(error) => {
            let names = table.environments().collect::<Vec<_>>().join(", ");
            return Err(UsageError(format!(
                "{name:?} is neither an environment ({names}) nor an image of one. {error}"
            ))
            .into());
        }
    };
    Err(UsageError(format!("there is nothing to prepare for {name}: {why}")).into())
}

fn verify(args: &VerifyArgs) -> Result<Exit> {
    let cache = cache(&args.settings.settings()?);
    let is_meant = |id: &str| args.names.is_empty() || args.names.iter().any(|name| id.starts_with(name));
    let meant: Vec<_> = cache.list()?.into_iter().filter(|cached| is_meant(&cached.id)).collect();
    let trees: Vec<_> = images().list()?.into_iter().filter(|cached| is_meant(&cached.id)).collect();
    if meant.is_empty() && trees.is_empty() && !args.names.is_empty() {
        return Err(UsageError(format!(
            "nothing in the cache begins with {}; see `shoal env-cache list`",
            args.names.join(" or ")
        ))
        .into());
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
    for tree in trees {
        show(&format!("{}: not compared, as an image has no digests of its files\n", short(&tree.id)))?;
    }
    Ok(exit)
}

fn prune(args: &PruneArgs) -> Result<Exit> {
    let removed = removed(&args.settings.settings()?, args.older_than)?;
    removed.iter().try_for_each(|removed| show(&format!("removed {removed}\n")))?;
    if removed.is_empty() {
        show("nothing to remove\n")?;
    }
    Ok(Exit::Ok)
}

/// Removes what no job has wanted for this time; gives the name and the size of each.
fn removed(settings: &Settings, older_than: Duration) -> Result<Vec<String>> {
    let environments = cache(settings).prune(older_than)?;
    let trees = images().prune(older_than)?;
    let environments =
        environments.iter().map(|cached| (&*cached.id, cached.record.as_ref().map(|record| record.bytes)));
    let trees = trees.iter().map(|cached| (short(&cached.id), cached.record.as_ref().map(|record| record.bytes)));
    let text = |(id, bytes): (&str, Option<u64>)| format!("{id} ({})", bytes.map_or("unfinished".to_owned(), readable));
    Ok(environments.chain(trees).map(text).collect())
}

/// Removes what no job has wanted for `environments_days`, once an hour, until it is aborted.
pub(crate) async fn prune_old(settings: Settings, days: NonZeroU32) {
    let older_than = DAY * days.get();
    let settings = Arc::new(settings);
    let mut interval = tokio::time::interval(PRUNE_INTERVAL);
    interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        interval.tick().await;
        let settings = settings.clone();
        match tokio::task::spawn_blocking(move || removed(&settings, older_than)).await {
            Ok(Ok(removed)) => {
                removed.iter().for_each(|removed| tracing::info!("removed {removed}, by environments_days"));
            }
            Ok(Err(error)) => tracing::warn!("old environments stay, the next pass tries again: {error:#}"),
            Err(error) => tracing::error!("the removal of old environments panicked: {error}"),
        }
    }
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
