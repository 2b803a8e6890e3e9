//! `shoal jobs delete` and `shoal jobs prune`: training jobs, and tuning jobs with their trials,
//! that are over; on request also what they stored in S3. What still runs is never touched. A job
//! goes behind its objects, and a tuning job behind its trials: the same command again finishes
//! what was interrupted.

mod belongings;

use std::{
    collections::{BTreeMap, HashSet},
    io::{self, BufRead, IsTerminal},
    time::Duration,
};

use anyhow::{Context, Result, bail};
use clap::Args;
use serde_json::{Value, json};

use self::belongings::{Belongings, Writers};
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
    /// Remove the jobs' output in S3, too: models and other output below OutputDataConfig's
    /// S3OutputPath/JOB/output/. Inputs, sources, checkpoints and what other jobs wrote stay.
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
    /// Jobs that ended longer ago than this: 30d, 12h, 90m. A tuning job goes with its trials, and
    /// trials stay as long as it does.
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
    /// Of a trial, in lower case.
    tuning_job: Option<String>,
    belongings: Belongings,
}

/// What a job has stored.
#[derive(Default)]
struct Objects {
    /// Bucket and key, with the bytes.
    all: BTreeMap<(String, String), u64>,
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
                let job = client
                    .sagemaker("DescribeHyperParameterTuningJob", &input)
                    .map_err(|error| error.about_a(Noun::Either, name))?;
                doomed.extend(tuning_job(&client, &job)?);
            }
            Err(error) => return Err(error.about(name)),
        }
    }
    if let Some(running) = doomed.iter().find(|job| job.ended.is_null()) {
        let Doomed { noun, name, .. } = running;
        let stop = if *noun == Noun::TuningJob { "tuning" } else { "jobs" };
        return Err(UsageError(format!(
            "{noun} {name} is not over, and nothing was removed; first: shoal {stop} stop {name}"
        ))
        .into());
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
    for summary in
        client.list("ListHyperParameterTuningJobs", "HyperParameterTuningJobSummaries", json!({}), usize::MAX)?
    {
        let jobs = if is_over(&summary, "HyperParameterTuningJobStatus") {
            tuning_job(&client, &summary)?
        } else {
            Vec::new()
        };
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
    let tuning_job = job["TuningJobArn"].as_str().and_then(|arn| arn.rsplit('/').next()).map(str::to_owned);
    Doomed { noun: Noun::TrainingJob, name, ended, tuning_job, belongings: Belongings::of(job) }
}

/// A tuning job, behind its trials: what an interruption leaves can be removed by the same command.
fn tuning_job(client: &Client, job: &Value) -> Result<Vec<Doomed>> {
    let text = |name: &str| job[name].as_str().unwrap_or_default();
    let name = text("HyperParameterTuningJobName");
    let trials =
        training_jobs(client, &[filter("TuningJobArn", "Equals", text("HyperParameterTuningJobArn"))], usize::MAX)?;
    let mut all: Vec<Doomed> = trials.iter().map(training_job).collect();
    let end = [&job["HyperParameterTuningEndTime"], &job["LastModifiedTime"]].into_iter().find(|time| !time.is_null());
    let ended =
        if is_over(job, "HyperParameterTuningJobStatus") { end.cloned().unwrap_or_default() } else { Value::Null };
    all.push(Doomed {
        noun: Noun::TuningJob,
        name: name.to_owned(),
        ended,
        tuning_job: None,
        belongings: Belongings::default(),
    });
    Ok(all)
}

fn remove(client: &Client, doomed: &[Doomed], how: &How) -> Result<Exit> {
    if doomed.is_empty() {
        show("nothing to remove\n")?;
        return Ok(Exit::Ok);
    }
    let found =
        if how.with_objects { objects(client, doomed)? } else { doomed.iter().map(|_| Objects::default()).collect() };
    let mut rows = vec![["NAME", "WHAT", "ENDED", "OBJECTS", "BYTES"].map(str::to_owned).to_vec()];
    for (job, objects) in doomed.iter().zip(&found) {
        let counts = if how.with_objects {
            [objects.all.len().to_string(), readable(objects.bytes())]
        } else {
            ["-", "-"].map(str::to_owned)
        };
        let [count, bytes] = counts;
        rows.push(vec![job.name.clone(), job.noun.to_string(), time_text(&job.ended), count, bytes]);
    }
    show(&table(&rows))?;
    let (count, bytes) =
        (found.iter().map(|objects| objects.all.len()).sum::<usize>(), found.iter().map(Objects::bytes).sum::<u64>());
    let of_s3 =
        if how.with_objects { format!(" and {count} objects ({}) in S3", readable(bytes)) } else { String::new() };
    if how.dry_run {
        show(&format!("would remove {}{of_s3}; without --dry-run it does\n", counted(doomed)))?;
        return Ok(Exit::Ok);
    }
    if count > 0 && !how.yes && !agreed(&format!("Remove {}{of_s3}?", counted(doomed)))? {
        show("nothing was removed\n")?;
        return Ok(Exit::Ok);
    }
    let (mut removed, mut freed) = (Vec::new(), 0);
    let mut failures = 0;
    // Names of tuning jobs with trials that could not be removed, in lower case as in ARNs.
    let mut parents: HashSet<&str> = HashSet::new();
    for (job, objects) in doomed.iter().zip(&found) {
        if job.noun == Noun::TuningJob && parents.contains(job.name.to_lowercase().as_str()) {
            eprintln!("shoal: {} {} stays with the trials that could not be removed", job.noun, job.name);
            continue;
        }
        match remove_one(client, job, objects, &mut freed) {
            Ok(()) => removed.push(job),
            Err(error) => {
                failures += 1;
                parents.extend(job.tuning_job.as_deref());
                eprintln!("shoal: {error:#}");
            }
        }
    }
    let of_s3 = if how.with_objects { format!("; freed {} in S3", readable(freed)) } else { String::new() };
    show(&format!("removed {}, their logs and metrics{of_s3}\n", counted(removed)))?;
    Ok(if failures > 0 { Exit::Failed } else { Exit::Ok })
}

/// Removes a job's objects and then the job; adds what that frees to `freed`, also where it fails.
fn remove_one(client: &Client, job: &Doomed, objects: &Objects, freed: &mut u64) -> Result<()> {
    if !objects.all.is_empty() {
        check(client, job)?;
        let mut failures = Vec::new();
        for (bucket, objects) in objects.by_bucket() {
            let keys = Vec::from_iter(objects.iter().map(|(key, _)| *key));
            let failed = client.delete_objects(bucket, &keys);
            let left: HashSet<&str> = failed.iter().map(|(key, _)| *key).collect();
            *freed += objects.iter().filter(|(key, _)| !left.contains(key)).map(|(_, bytes)| bytes).sum::<u64>();
            failures.extend(failed.into_iter().map(|(key, error)| format!("s3://{bucket}/{key}: {error}")));
        }
        if let [first, rest @ ..] = failures.as_slice() {
            let more = if rest.is_empty() { String::new() } else { format!(", and {} more", rest.len()) };
            bail!(
                "{} {} stays, as not all of its objects could be removed ({first}{more}); try again",
                job.noun,
                job.name
            );
        }
    }
    let (operation, key) = match job.noun {
        Noun::TuningJob => ("DeleteHyperParameterTuningJob", "HyperParameterTuningJobName"),
        Noun::TrainingJob | Noun::Either => ("DeleteTrainingJob", "TrainingJobName"),
    };
    match client.sagemaker(operation, &json!({key: job.name})) {
        // Somebody else was faster.
        Err(error) if error.is_not_found() => Ok(()),
        answer => answer.map(drop).map_err(|error| error.about_a(job.noun, &job.name)),
    }
}

/// Looks whether the server would refuse to delete the training job: then its objects must stay,
/// too.
///
/// # Errors
/// It would.
fn check(client: &Client, job: &Doomed) -> Result<()> {
    match client.sagemaker("DescribeTrainingJob", &json!({"TrainingJobName": job.name})) {
        Ok(found) => {
            refusal(&found).map_or(Ok(()), |why| bail!("{} {} stays with its objects: {why}", job.noun, job.name))
        }
        Err(error) if error.is_not_found() => Ok(()),
        Err(error) => Err(error.about_a(job.noun, &job.name)),
    }
}

/// Why a training job cannot be deleted now.
fn refusal(job: &Value) -> Option<&'static str> {
    if !watch::is_over(job) {
        return Some("it is not over");
    }
    let is_kept = job["WarmPoolStatus"]["Status"] == "Available";
    is_kept.then_some("its instances are kept warm; UpdateTrainingJob with KeepAlivePeriodInSeconds 0 ends that")
}

/// What each of the jobs has stored itself; a bucket that is gone has nothing.
fn objects(client: &Client, doomed: &[Doomed]) -> Result<Vec<Objects>> {
    let mut listed = Vec::new();
    for job in doomed {
        let mut places = Vec::new();
        for place in &job.belongings.output {
            match client.list_objects(&place.bucket, &place.prefix) {
                Err(error) if error.is_not_found() => {}
                found => places.push((place, found.with_context(|| format!("could not list {place}"))?)),
            }
        }
        listed.push(places);
    }
    if listed.iter().flatten().all(|(_, found)| found.is_empty()) {
        return Ok(doomed.iter().map(|_| Objects::default()).collect());
    }
    // After the objects: whoever wrote one of them is there by then.
    let writers = Writers::of(&training_jobs(client, &[], usize::MAX)?);
    Ok(Vec::from_iter(doomed.iter().zip(listed).map(|(job, places)| {
        let mut all = BTreeMap::new();
        for (place, found) in places {
            let spared = writers.spared(place, &job.name, &job.belongings);
            let own = found.into_iter().filter(|(key, _)| !spared.iter().any(|prefix| key.starts_with(prefix)));
            all.extend(own.map(|(key, bytes)| ((place.bucket.clone(), key), bytes)));
        }
        Objects { all }
    })))
}

impl Objects {
    fn bytes(&self) -> u64 {
        self.all.values().sum()
    }

    /// Keys and bytes in each bucket.
    fn by_bucket(&self) -> BTreeMap<&str, Vec<(&str, u64)>> {
        let mut buckets: BTreeMap<&str, Vec<(&str, u64)>> = BTreeMap::new();
        for ((bucket, key), bytes) in &self.all {
            buckets.entry(bucket).or_default().push((key, *bytes));
        }
        buckets
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
        return Err(UsageError(
            "removing objects of S3 needs --yes where nobody can be asked; --dry-run shows them".to_owned(),
        )
        .into());
    }
    eprint!("{question} [y/N] ");
    let mut answer = String::new();
    io::stdin().lock().read_line(&mut answer)?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        io::{BufReader, Read, Write},
        net::TcpListener,
        thread::JoinHandle,
    };

    /// A server that says these answers in their order, and what it was asked: a method, a path and
    /// what a call is of.
    fn said(answers: Vec<&'static str>) -> (Client, JoinHandle<Vec<String>>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = Client::of_test(listener.local_addr().unwrap());
        let serve = move || {
            Vec::from_iter(answers.into_iter().map(|answer| {
                let mut stream = BufReader::new(listener.accept().unwrap().0);
                let (mut asked, mut length) = (String::new(), 0);
                stream.read_line(&mut asked).unwrap();
                let mut asked = asked.replace(" HTTP/1.1", "").trim().to_owned();
                loop {
                    let mut line = String::new();
                    stream.read_line(&mut line).unwrap();
                    match line.to_ascii_lowercase().trim().split_once(": ") {
                        Some(("content-length", value)) => length = value.parse().unwrap(),
                        Some(("x-amz-target", value)) => asked = value.trim_start_matches("sagemaker.").to_owned(),
                        Some(_) => {}
                        None => break,
                    }
                }
                io::copy(&mut stream.by_ref().take(length), &mut io::sink()).unwrap();
                let answer =
                    format!("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{answer}", answer.len());
                stream.get_mut().write_all(answer.as_bytes()).unwrap();
                asked
            }))
        };
        (client, std::thread::spawn(serve))
    }

    #[test]
    fn a_job_goes_behind_its_objects_and_stays_with_those_that_stay() {
        let job = json!({"TrainingJobName": "a", "TrainingJobStatus": "Completed"});
        let objects = || Objects { all: ["a", "b", "c"].map(|key| (("bkt".to_owned(), key.to_owned()), 5)).into() };
        let (ended, stays) = (
            "{\"TrainingJobStatus\": \"Completed\"}",
            "<Error><Key>b</Key><Code>SlowDown</Code><Message>no</Message></Error>",
        );
        let (client, asked) = said(vec![ended, stays]);
        let mut freed = 0;
        let error = remove_one(&client, &training_job(&job), &objects(), &mut freed).unwrap_err().to_string();
        assert!(error.contains("training job a stays") && error.contains("s3://bkt/b: SlowDown: no"), "{error}");
        assert_eq!(
            (asked.join().unwrap(), freed),
            (vec!["describetrainingjob".to_owned(), "POST /bkt?delete=".to_owned()], 10)
        );

        let (client, asked) = said(vec![ended, "<DeleteResult/>", ""]);
        remove_one(&client, &training_job(&job), &objects(), &mut freed).unwrap();
        assert_eq!(asked.join().unwrap(), ["describetrainingjob", "POST /bkt?delete=", "deletetrainingjob"]);

        let (client, asked) =
            said(vec!["{\"TrainingJobStatus\": \"Completed\", \"WarmPoolStatus\": {\"Status\": \"Available\"}}"]);
        assert!(remove_one(&client, &training_job(&job), &objects(), &mut freed).is_err());
        assert_eq!(asked.join().unwrap(), ["describetrainingjob"], "nothing is removed");
    }

    #[test]
    fn what_the_server_would_not_delete_keeps_its_objects() {
        let job = |status: &str, pool: &str| json!({"TrainingJobStatus": status, "WarmPoolStatus": {"Status": pool}});
        assert_eq!(
            [refusal(&job("Completed", "Reused")), refusal(&json!({"TrainingJobStatus": "Failed"}))],
            [None, None]
        );
        assert!(refusal(&job("Completed", "Available")).is_some_and(|why| why.contains("KeepAlivePeriodInSeconds 0")));
        assert_eq!(refusal(&job("InProgress", "")), Some("it is not over"));
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
