//! `shoal jobs delete` and `shoal jobs prune`: training jobs, and tuning jobs with their trials, that are over; on request also what they
//! stored in S3. What still runs is never touched.

use std::{
    collections::HashSet,
    io::{self, BufRead, IsTerminal},
    time::Duration,
};

use anyhow::{Context, Result};
use clap::Args;
use serde_json::{Value, json};

use super::search::{filter, training_jobs};
use crate::{
    client::{Client, Noun, now_ms},
    duration::duration,
    exit::{Exit, UsageError},
    output::{show, table, time_text},
    settings::{ClientFlags, readable},
    watch,
};

/// What both do with what they find.
#[derive(Debug, Args)]
struct How {
    /// Remove the jobs' output in S3, too: models and other output below OutputDataConfig's S3OutputPath/JOB/. Checkpoints and inputs
    /// stay.
    #[arg(long)]
    with_objects: bool,
    /// Only show what would be removed.
    #[arg(long)]
    dry_run: bool,
    /// Do not ask before objects are removed.
    #[arg(long, short)]
    yes: bool,
    #[command(flatten)]
    settings: ClientFlags,
}

/// Arguments of `shoal jobs delete`.
#[derive(Debug, Args)]
pub(crate) struct DeleteArgs {
    /// Names of training jobs and of tuning jobs, which go with their trials.
    #[arg(required = true, value_name = "NAME")]
    names: Vec<String>,
    #[command(flatten)]
    how: How,
}

/// Arguments of `shoal jobs prune`.
#[derive(Debug, Args)]
pub(crate) struct PruneArgs {
    /// Jobs that ended longer ago than this: 30d, 12h, 90m. A tuning job goes with its trials, and trials stay as long as it does.
    #[arg(long, value_name = "TIME", value_parser = duration)]
    older_than: Duration,
    #[command(flatten)]
    how: How,
}

/// One job to remove.
struct Doomed {
    noun: Noun,
    name: String,
    /// Seconds since the epoch.
    ended: Value,
    /// Objects below this prefix are its output: bucket and key.
    output: Option<(String, String)>,
}

/// What was found there.
#[derive(Default)]
struct Objects {
    /// Bucket, key, bytes.
    all: Vec<(String, String, u64)>,
}

/// Removes those that are named.
pub(crate) fn delete(args: &DeleteArgs) -> Result<Exit> {
    let client = Client::connect(&args.how.settings)?;
    let mut doomed = Vec::new();
    for name in &args.names {
        match client.sagemaker("DescribeTrainingJob", &json!({"TrainingJobName": name})) {
            Ok(job) => doomed.push(training_job(&job)),
            Err(error) if error.is_not_found() => {
                let input = json!({"HyperParameterTuningJobName": name});
                let job = client.sagemaker("DescribeHyperParameterTuningJob", &input).map_err(|error| error.about_a(Noun::Either, name))?;
                doomed.extend(tuning_job(&client, &job)?);
            }
            Err(error) => return Err(error.about(name)),
        }
    }
    if let Some(running) = doomed.iter().find(|job| job.ended.is_null()) {
        let Doomed { noun, name, .. } = running;
        let stop = if *noun == Noun::TuningJob { "tuning" } else { "jobs" };
        return Err(UsageError(format!("{noun} {name} is not over, and nothing was removed; first: shoal {stop} stop {name}")).into());
    }
    remove(&client, &doomed, &args.how)
}

/// Removes what is old.
pub(crate) fn prune(args: &PruneArgs) -> Result<Exit> {
    let client = Client::connect(&args.how.settings)?;
    let before_s = (now_ms() as f64 / 1000.0) - args.older_than.as_secs_f64();
    let is_old = |job: &Doomed| job.ended.as_f64().is_some_and(|ended| ended < before_s);
    let mut doomed = Vec::new();
    let mut staying = HashSet::new();
    for summary in client.list("ListHyperParameterTuningJobs", "HyperParameterTuningJobSummaries", json!({}), usize::MAX)? {
        let jobs = if is_over(&summary, "HyperParameterTuningJobStatus") { tuning_job(&client, &summary)? } else { Vec::new() };
        if jobs.iter().all(is_old) && !jobs.is_empty() {
            doomed.extend(jobs);
        } else {
            staying.insert(summary["HyperParameterTuningJobArn"].as_str().unwrap_or_default().to_owned());
        }
    }
    let known: HashSet<String> = doomed.iter().map(|job| job.name.clone()).collect();
    let before = time_text(&json!(before_s.max(0.0) + 1.0)).replace(' ', "T");
    for job in training_jobs(&client, &[filter("CreationTime", "LessThan", &before)], usize::MAX)? {
        let is_kept = job["TuningJobArn"].as_str().is_some_and(|arn| staying.contains(arn));
        let job = training_job(&job);
        if !is_kept && is_old(&job) && !known.contains(&job.name) {
            doomed.push(job);
        }
    }
    remove(&client, &doomed, &args.how)
}

fn is_over(job: &Value, status: &str) -> bool {
    matches!(job[status].as_str(), Some("Completed" | "Failed" | "Stopped"))
}

fn training_job(job: &Value) -> Doomed {
    let name = job["TrainingJobName"].as_str().unwrap_or_default().to_owned();
    // A job that was stopped before it had instances has no end of its own.
    let ended = [&job["TrainingEndTime"], &job["LastModifiedTime"]].into_iter().find(|time| !time.is_null());
    let ended = if watch::is_over(job) { ended.cloned().unwrap_or_default() } else { Value::Null };
    let output = job["OutputDataConfig"]["S3OutputPath"].as_str().and_then(|path| path.strip_prefix("s3://"));
    let output = output.map(|path| {
        let (bucket, prefix) = path.split_once('/').unwrap_or((path, ""));
        let prefix = prefix.trim_matches('/');
        let below = if prefix.is_empty() { String::new() } else { format!("{prefix}/") };
        (bucket.to_owned(), format!("{below}{name}/"))
    });
    Doomed { noun: Noun::TrainingJob, name, ended, output }
}

/// A tuning job, behind its trials: what an interruption leaves can be removed by the same command.
fn tuning_job(client: &Client, job: &Value) -> Result<Vec<Doomed>> {
    let text = |name: &str| job[name].as_str().unwrap_or_default();
    let name = text("HyperParameterTuningJobName");
    let trials = training_jobs(client, &[filter("TuningJobArn", "Equals", text("HyperParameterTuningJobArn"))], usize::MAX)?;
    let mut all: Vec<Doomed> = trials.iter().map(training_job).collect();
    let end = [&job["HyperParameterTuningEndTime"], &job["LastModifiedTime"]].into_iter().find(|time| !time.is_null());
    let ended = if is_over(job, "HyperParameterTuningJobStatus") { end.cloned().unwrap_or_default() } else { Value::Null };
    all.push(Doomed { noun: Noun::TuningJob, name: name.to_owned(), ended, output: None });
    Ok(all)
}

fn remove(client: &Client, doomed: &[Doomed], how: &How) -> Result<Exit> {
    if doomed.is_empty() {
        show("nothing to remove\n")?;
        return Ok(Exit::Ok);
    }
    let mut found = Vec::new();
    for job in doomed {
        found.push(if how.with_objects { objects(client, job)? } else { Objects::default() });
    }
    let mut rows = vec![["NAME", "WHAT", "ENDED", "OBJECTS", "BYTES"].map(str::to_owned).to_vec()];
    for (job, objects) in doomed.iter().zip(&found) {
        let counts =
            if how.with_objects { [objects.all.len().to_string(), readable(objects.bytes())] } else { ["-", "-"].map(str::to_owned) };
        let [count, bytes] = counts;
        rows.push(vec![job.name.clone(), job.noun.to_string(), time_text(&job.ended), count, bytes]);
    }
    show(&table(&rows))?;
    let (count, bytes) = (found.iter().map(|objects| objects.all.len()).sum::<usize>(), found.iter().map(Objects::bytes).sum::<u64>());
    let of_s3 = if how.with_objects { format!(" and {count} objects ({}) in S3", readable(bytes)) } else { String::new() };
    if how.dry_run {
        show(&format!("would remove {}{of_s3}; without --dry-run it does\n", counted(doomed)))?;
        return Ok(Exit::Ok);
    }
    if count > 0 && !how.yes && !agreed(&format!("Remove {}{of_s3}?", counted(doomed)))? {
        show("nothing was removed\n")?;
        return Ok(Exit::Ok);
    }
    let (mut removed, mut freed, mut failures) = (Vec::new(), 0, 0);
    for (job, objects) in doomed.iter().zip(&found) {
        // Objects last: a job that is refused keeps its model.
        match remove_one(client, job, objects) {
            Ok(()) => {
                freed += objects.bytes();
                removed.push(job);
            }
            Err(error) => {
                failures += 1;
                eprintln!("shoal: {error:#}");
            }
        }
    }
    let of_s3 = if how.with_objects { format!("; freed {} in S3", readable(freed)) } else { String::new() };
    show(&format!("removed {}, their logs and metrics{of_s3}\n", counted(removed)))?;
    Ok(if failures > 0 { Exit::Failed } else { Exit::Ok })
}

fn remove_one(client: &Client, job: &Doomed, objects: &Objects) -> Result<()> {
    let (operation, key) = match job.noun {
        Noun::TuningJob => ("DeleteHyperParameterTuningJob", "HyperParameterTuningJobName"),
        Noun::TrainingJob | Noun::Either => ("DeleteTrainingJob", "TrainingJobName"),
    };
    match client.sagemaker(operation, &json!({key: job.name})) {
        // Somebody else was faster.
        Err(error) if error.is_not_found() => {}
        answer => drop(answer.map_err(|error| error.about_a(job.noun, &job.name))?),
    }
    for (bucket, key, _) in &objects.all {
        client.delete_object(bucket, key).with_context(|| format!("could not remove s3://{bucket}/{key}"))?;
    }
    Ok(())
}

/// What a job has stored; a bucket that is gone has nothing.
fn objects(client: &Client, job: &Doomed) -> Result<Objects> {
    let Some((bucket, prefix)) = &job.output else { return Ok(Objects::default()) };
    match client.list_objects(bucket, prefix) {
        Err(error) if error.is_not_found() => Ok(Objects::default()),
        found => {
            let found = found.with_context(|| format!("could not list s3://{bucket}/{prefix}"))?;
            Ok(Objects { all: found.into_iter().map(|(key, bytes)| (bucket.clone(), key, bytes)).collect() })
        }
    }
}

impl Objects {
    fn bytes(&self) -> u64 {
        self.all.iter().map(|(_, _, bytes)| bytes).sum()
    }
}

/// `12 training jobs and 1 tuning job`.
fn counted<'a>(jobs: impl IntoIterator<Item = &'a Doomed>) -> String {
    let (tunings, trainings): (Vec<_>, Vec<_>) = jobs.into_iter().partition(|job| job.noun == Noun::TuningJob);
    let number = |count: usize, noun: &str| format!("{count} {noun} job{}", if count == 1 { "" } else { "s" });
    let training = number(trainings.len(), "training");
    if tunings.is_empty() { training } else { format!("{training} and {}", number(tunings.len(), "tuning")) }
}

/// Asks a person; nobody else can be asked.
fn agreed(question: &str) -> Result<bool> {
    if !io::stdin().is_terminal() {
        return Err(UsageError("removing objects of S3 needs --yes where nobody can be asked; --dry-run shows them".to_owned()).into());
    }
    eprint!("{question} [y/N] ");
    let mut answer = String::new();
    io::stdin().lock().read_line(&mut answer)?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_output_of_a_job_is_what_lies_below_its_own_name() {
        for (path, expected) in [("s3://b", ("b", "a/")), ("s3://b/", ("b", "a/")), ("s3://b/out/deep/", ("b", "out/deep/a/"))] {
            let job = training_job(&json!({"TrainingJobName": "a", "OutputDataConfig": {"S3OutputPath": path}}));
            assert_eq!(job.output, Some((expected.0.to_owned(), expected.1.to_owned())), "{path}");
        }
    }

    #[test]
    fn only_jobs_that_are_over_have_an_end() {
        let ended = |status: &str, end: Value| {
            training_job(&json!({"TrainingJobName": "a", "TrainingJobStatus": status, "TrainingEndTime": end, "LastModifiedTime": 9.0}))
                .ended
        };
        assert_eq!([ended("Completed", json!(5.0)), ended("Stopped", Value::Null)], [json!(5.0), json!(9.0)]);
        assert_eq!([ended("InProgress", Value::Null), ended("Stopping", json!(5.0))], [Value::Null, Value::Null]);
    }
}
