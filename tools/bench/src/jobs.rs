//! `cargo xtask bench jobs`: how fast training jobs are admitted, and what a server with very many
//! of them answers, weighs and takes to start.

use std::{
    collections::HashSet,
    path::PathBuf,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use clap::Args;
use serde_json::{Value, json};
use shoal_wire::{
    Service,
    client::{self as wire, Endpoint},
};

use super::{
    beside::beside,
    http::{Connection, head},
    machine,
    report::{self, Goal, Line, line},
    server::{Kind, Server},
    spread::Spread,
};
use shoal_cli::{
    client::now_ms,
    exit::Exit,
    output::{Progress, show},
};

/// How often latencies and starts are taken.
const RUNS: usize = 3;

/// Arguments of `cargo xtask bench jobs`.
#[derive(Debug, Args)]
pub(crate) struct JobsArgs {
    /// How many jobs are created; all but the first 64 wait in the queue.
    #[arg(long, default_value_t = 100_000)]
    jobs: usize,
    /// Connections that create them.
    #[arg(long, default_value_t = 8)]
    connections: usize,
    /// How many answers of each kind are timed, on one connection, three times.
    #[arg(long, default_value_t = 2000)]
    calls: usize,
    /// Puts the section in this file, too.
    #[arg(long, value_name = "FILE")]
    write: Option<PathBuf>,
}

/// Measures and reports.
pub(crate) fn run(args: &JobsArgs) -> Result<Exit> {
    let machine = machine::describe();
    let mut progress = Progress::on_stderr();
    let mut server = Server::start_in(Kind::Fake, None)?;
    server.client().create_bucket("bench")?;
    let mut lines =
        vec![line("jobs admitted per second", admit(args, &server, &mut progress)?, "/s", Some(Goal::AtLeast(1000.0)))];
    progress.draw("looking whether all are there");
    ensure!(listed(&server)? == args.jobs, "jobs are missing in the list, or there twice");
    memory(&mut lines, &server, "after they were admitted", None)?;
    let pauses = pauses(&server.said()?);
    if !pauses.is_empty() {
        let longest = pauses.iter().copied().fold(0.0, f64::max);
        let what = format!("longest time that one of {} snapshots held the core up", pauses.len());
        lines.push(line(what, vec![longest], "ms", Some(Goal::AtMost(5.0))));
    }

    let mut starts = Vec::new();
    for run in 1..=RUNS {
        progress.draw(&format!("start {run} of {RUNS}"));
        starts.push(server.restart()?);
    }
    lines.push(line("start, until it answers", starts, "s", Some(Goal::AtMost(2.0))));
    ensure!(listed(&server)? == args.jobs, "jobs are missing after a start");
    for (what, goal, request) in reads(args.jobs) {
        // A search looks at every job; all runs together make as many calls as one of the others.
        let calls = if what.starts_with("Search") { args.calls.div_ceil(RUNS) } else { args.calls };
        let mut p95 = Vec::new();
        for run in 1..=RUNS {
            progress.draw(&format!("{what}: run {run} of {RUNS}"));
            p95.push(latencies(server.client().endpoint(), calls, &*request)?.percentile(95.0));
        }
        lines.push(line(format!("{what}, p95 of {calls}"), p95, "ms", Some(Goal::AtMost(goal))));
    }
    memory(&mut lines, &server, "after a start and these reads", Some(Goal::AtMost(300.0)))?;
    drop(progress);
    let intro = format!(
        "{machine}.\n\nSigned requests on {} connections that stay open, to a server in a process of its own whose \
         launcher starts nothing: the jobs fill \
         the queue, {} of them. Every job is found again in the list, before and after a start. Reads go over one \
         connection",
        args.connections, args.jobs
    );
    let section = report::markdown("jobs", &intro, &lines);
    show(&section)?;
    if let Some(path) = &args.write {
        report::put(path, &section).with_context(|| format!("could not write {}", path.display()))?;
    }
    Ok(Exit::Ok)
}

fn name(number: usize) -> String {
    format!("{}-{number:06}", ["resnet", "forecast", "churn", "ranking"][number % 4])
}

/// As the SDK sends it for a built-in algorithm: channels aside, whose objects would have to be
/// there.
fn request(number: usize) -> Value {
    json!({
        "TrainingJobName": name(number),
        "RoleArn": "arn:aws:iam::123456789012:role/service-role/AmazonSageMaker-ExecutionRole",
        "AlgorithmSpecification": {
            "TrainingImage": "shoal/host", "TrainingInputMode": "File", "ContainerEntrypoint": ["python3", "/opt/ml/code/train.py"],
            "MetricDefinitions": [{"Name": "validation:accuracy", "Regex": "accuracy=([0-9.]+)"}]},
        "HyperParameters": {"learning_rate": format!("{}", 0.001 * (number % 100) as f64), "epochs": "20", "batch_size": "128", "optimizer": "adam"},
        "OutputDataConfig": {"S3OutputPath": "s3://bench/out"},
        "ResourceConfig": {"InstanceType": "ml.m5.large", "InstanceCount": 1, "VolumeSizeInGB": 30},
        "StoppingCondition": {"MaxRuntimeInSeconds": 86400},
        "Tags": [{"Key": "project", "Value": format!("p{}", number % 10)}, {"Key": "owner", "Value": "bench"}],
        "EnableNetworkIsolation": false,
    })
}

/// Creates the jobs, a tenth at a time; the rates of the tenths.
fn admit(args: &JobsArgs, server: &Server, progress: &mut Progress) -> Result<Vec<f64>> {
    let endpoint = server.client().endpoint();
    let tenth = args.jobs.div_ceil(10).max(1);
    let mut rates = Vec::new();
    for first in (0..args.jobs).step_by(tenth) {
        progress.draw(&format!("{first} of {} jobs created", args.jobs));
        let count = tenth.min(args.jobs - first);
        let started = Instant::now();
        beside(args.connections, count, &|| Connection::open(&endpoint.authority), &|connection, number| {
            let created = call(connection, endpoint, "CreateTrainingJob", &request(first + number))?;
            ensure!(created["TrainingJobArn"].is_string(), "no ARN came");
            Ok(())
        })?;
        rates.push(count as f64 / started.elapsed().as_secs_f64());
    }
    Ok(rates)
}

fn call(connection: &mut Connection, to: &Endpoint, operation: &str, input: &Value) -> Result<Value> {
    let request = wire::call(to, Service::SageMaker, operation, input, now_ms())?;
    let (answer, _) = connection.send(&head(&request, request.body().len()), request.body())?;
    Ok(serde_json::from_slice(&answer)?)
}

/// How many different jobs the list has, page by page.
fn listed(server: &Server) -> Result<usize> {
    let endpoint = server.client().endpoint();
    let mut connection = Connection::open(&endpoint.authority)?;
    let (mut names, mut token) = (HashSet::new(), None::<String>);
    loop {
        let mut input = json!({"MaxResults": 100});
        if let Some(token) = &token {
            input["NextToken"] = json!(token);
        }
        let page = call(&mut connection, endpoint, "ListTrainingJobs", &input)?;
        for job in page["TrainingJobSummaries"].as_array().into_iter().flatten() {
            let name = job["TrainingJobName"].as_str().unwrap_or_default();
            ensure!(names.insert(name.to_owned()), "{name} is listed twice");
        }
        token = page["NextToken"].as_str().map(str::to_owned);
        if token.is_none() {
            return Ok(names.len());
        }
    }
}

/// An operation and its input, by the call's number; and what is to be found in the answer.
type Read = (&'static str, Value, &'static str);
type Reads = Vec<(&'static str, f64, Box<dyn Fn(usize) -> Read>)>;

/// What is asked, with the goal in milliseconds.
fn reads(jobs: usize) -> Reads {
    // Spread over all jobs, never the same one twice in a row.
    let any = move |call: usize| (call * 7919 + 13) % jobs;
    let list = |call: usize| match call % 5 {
        0 => json!({"MaxResults": 100}),
        1 => json!({"MaxResults": 100, "StatusEquals": "InProgress", "SortBy": "Name", "SortOrder": "Ascending"}),
        2 => json!({"MaxResults": 100, "NameContains": format!("{:03}", call % 1000), "SortBy": "CreationTime"}),
        3 => json!({"MaxResults": 100, "NameContains": "no-such-job"}),
        _ => json!({"MaxResults": 100, "SortBy": "Status", "SortOrder": "Descending"}),
    };
    let search = |call: usize| {
        let filter =
            |name: &str, operator: &str, value: String| json!({"Name": name, "Operator": operator, "Value": value});
        let filters = match call % 4 {
            0 => json!([filter("TrainingJobStatus", "Equals", "InProgress".to_owned())]),
            1 => json!([filter("TrainingJobName", "Contains", format!("{:03}", call % 1000))]),
            2 => json!([filter("HyperParameters.learning_rate", "GreaterThan", "0.05".to_owned())]),
            _ => json!([
                filter("Tags.project", "Equals", format!("p{}", call % 10)),
                filter("HyperParameters.optimizer", "Equals", "adam".to_owned())
            ]),
        };
        let order = if call.is_multiple_of(2) { "Ascending" } else { "Descending" };
        json!({"Resource": "TrainingJob", "SearchExpression": {"Filters": filters}, "SortBy": "CreationTime", "SortOrder": order, "MaxResults": 100})
    };
    vec![
        (
            "Describe",
            10.0,
            Box::new(move |call| {
                ("DescribeTrainingJob", json!({"TrainingJobName": name(any(call))}), "TrainingJobArn")
            }),
        ),
        (
            "List of 100 by creation, name and status, with filters",
            50.0,
            Box::new(move |call| ("ListTrainingJobs", list(call), "TrainingJobSummaries")),
        ),
        (
            "Search by status, name, hyperparameter and tag, sorted",
            100.0,
            Box::new(move |call| ("Search", search(call), "Results")),
        ),
    ]
}

/// Milliseconds of each call on one connection.
fn latencies(endpoint: &Endpoint, calls: usize, read: &dyn Fn(usize) -> Read) -> Result<Spread> {
    let mut connection = Connection::open(&endpoint.authority)?;
    let mut times = Vec::with_capacity(calls);
    for number in 0..calls {
        let (operation, input, wanted) = read(number);
        let request = wire::call(endpoint, Service::SageMaker, operation, &input, now_ms())?;
        let head = head(&request, request.body().len());
        let started = Instant::now();
        let (answer, _) = connection.send(&head, request.body())?;
        times.push(milliseconds(started.elapsed()));
        let answer: Value = serde_json::from_slice(&answer)?;
        ensure!(answer.get(wanted).is_some(), "{operation} answers {answer}");
    }
    Ok(Spread(times))
}

/// How long snapshots kept the core from its work, in milliseconds, as the server says.
fn pauses(said: &str) -> Vec<f64> {
    let of_line =
        |line: &str| line.split_once("a snapshot held the core up for ")?.1.split(' ').next()?.parse::<f64>().ok();
    said.lines().filter_map(of_line).map(|microseconds| microseconds / 1e3).collect()
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

fn memory(lines: &mut Vec<Line>, server: &Server, when: &str, goal: Option<Goal>) -> Result<()> {
    let bytes = machine::resident_bytes(server.pid()).context("the server's memory cannot be read")?;
    lines.push(line(format!("the server's memory {when}"), vec![bytes as f64 / 1e6], "MB", goal));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_server_says_of_snapshots_is_read() {
        let said = "12:00:00 INFO a snapshot held the core up for 1500 us\nother\n12:00:01 INFO a snapshot held the \
                    core up for 20 us\n";
        assert_eq!(pauses(said), [1.5, 0.02]);
    }
}
