//! A study of very many trials: time per decision from its first tenth to its last, and pages of
//! its list.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};
use shoal_wire::{Service, client as wire};

use super::{TuningArgs, milliseconds, put_program, request, run_one};
use crate::{
    http::{Connection, head},
    machine,
    report::{Goal, Line, line},
    server::{Kind, Server},
    spread::Spread,
};
use shoal_cli::{client::now_ms, output::Progress};

/// What the server counts.
const SUM: &str = "shoal_tuner_answer_duration_seconds_sum";
const NAME: &str = "large";

pub(super) fn measure(args: &TuningArgs, progress: &mut Progress, lines: &mut Vec<Line>) -> Result<()> {
    let server = Server::start_in(Kind::FakeTrials, None)?;
    put_program(&server, "nothing.sh", "")?;
    let started = Instant::now();
    let tenth = u64::from(args.trials).div_ceil(10).max(1);
    let mut marks: Vec<Mark> = vec![Mark::default()];
    let request = request(NAME, "Random", args.trials, args.parallel, "nothing.sh");
    let end = run_one(&server, &request, Duration::from_millis(200), &mut |it| {
        let ended = it["TrainingJobStatusCounters"]["Completed"].as_u64().unwrap_or_default();
        progress.draw(&format!("the large study: {ended} of {} trials", args.trials));
        if ended >= tenth * marks.len() as u64 {
            let cpu = machine::cpu_s(server.pid()).context("the server's processor time cannot be read")?;
            marks.push(Mark {
                trials: ended,
                seconds: started.elapsed().as_secs_f64(),
                searched: searched(&server)?,
                cpu,
            });
        }
        Ok(())
    })?;
    let counters = &end["TrainingJobStatusCounters"];
    if counters["Completed"].as_u64() != Some(args.trials.into()) {
        bail!(
            "not all trials completed: {counters}; one failed because {}\n{}",
            a_reason(&server)?,
            server.said().unwrap_or_default()
        );
    }
    let whole = started.elapsed().as_secs_f64();
    let decisions = f64::from(args.trials) * 3.0;
    let rates: Vec<_> = marks
        .windows(2)
        .map(|pair| (pair[1].trials - pair[0].trials) as f64 / (pair[1].seconds - pair[0].seconds))
        .collect();
    let each: Vec<_> = marks
        .windows(2)
        .map(|pair| (pair[1].searched - pair[0].searched) * 1e3 / (3.0 * (pair[1].trials - pair[0].trials) as f64))
        .collect();
    lines.push(line(
        format!("{} trials, {} at once: trials per second, by tenth", args.trials, args.parallel),
        rates,
        "/s",
        None,
    ));
    let cpu: Vec<_> = marks
        .windows(2)
        .map(|pair| (pair[1].cpu - pair[0].cpu) * 1e3 / (pair[1].trials - pair[0].trials) as f64)
        .collect();
    for (what, each) in
        [("the tuner's time per decision", each), ("processor time of server and played agents per trial", cpu)]
    {
        lines.push(line(format!("- {what}, by tenth"), each.clone(), "ms", None));
        if let (Some(first), Some(last)) = (each.first(), each.last()) {
            lines.push(line("  - in the first tenth", vec![*first], "ms", None));
            lines.push(line("  - in the last tenth", vec![*last], "ms", None));
            lines.push(line("  - the last against the first", vec![last / first], "times", Some(Goal::AtMost(1.5))));
        }
    }
    lines.push(line("- decisions per second over all, durable", vec![decisions / whole], "/s", None));
    let bytes = machine::resident_bytes(server.pid()).context("the server's memory cannot be read")?;
    lines.push(line("- memory of server and played agents", vec![bytes as f64 / 1e6], "MB", None));
    for (what, sort) in [
        ("name", "Name"),
        ("objective value", "FinalObjectiveMetricValue"),
        ("status", "Status"),
        ("creation", "CreationTime"),
    ] {
        progress.draw(&format!("pages by {what}"));
        let times = pages(&server, args.calls, sort)?;
        lines.push(line(
            format!("- a page of 100 of its trials by {what}, p95 of {}", args.calls),
            vec![times.percentile(95.0)],
            "ms",
            Some(Goal::AtMost(20.0)),
        ));
    }
    Ok(())
}

#[derive(Default)]
struct Mark {
    trials: u64,
    seconds: f64,
    searched: f64,
    cpu: f64,
}

/// Seconds that the tuner has computed so far.
fn searched(server: &Server) -> Result<f64> {
    let mut connection = Connection::open(&server.client().endpoint().authority)?;
    let token = std::fs::read_to_string(server.data_dir().join("metrics-token"))?;
    let host = &server.client().endpoint().authority;
    let head = format!("GET /metrics HTTP/1.1\r\nhost: {host}\r\nauthorization: Bearer {}\r\n\r\n", token.trim());
    let (page, _) = connection.send(head.as_bytes(), &[])?;
    let page = String::from_utf8(page)?;
    let values = page
        .lines()
        .filter(|line| line.starts_with(SUM))
        .filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
    Ok(values.sum())
}

/// Milliseconds of each of so many pages, going on from one to the next.
fn pages(server: &Server, calls: usize, sort: &str) -> Result<Spread> {
    let endpoint = server.client().endpoint();
    let mut connection = Connection::open(&endpoint.authority)?;
    let (mut times, mut token) = (Vec::with_capacity(calls), Value::Null);
    for _ in 0..calls {
        let mut input =
            json!({"HyperParameterTuningJobName": NAME, "MaxResults": 100, "SortBy": sort, "SortOrder": "Descending"});
        if token.is_string() {
            input["NextToken"] = token;
        }
        let request =
            wire::call(endpoint, Service::SageMaker, "ListTrainingJobsForHyperParameterTuningJob", &input, now_ms())?;
        let head = head(&request, request.body().len());
        let began = Instant::now();
        let (answer, _) = connection.send(&head, request.body())?;
        times.push(milliseconds(began));
        let answer: Value = serde_json::from_slice(&answer)?;
        ensure!(
            answer["TrainingJobSummaries"].as_array().is_some_and(|page| !page.is_empty()),
            "a page is empty: {answer}"
        );
        token = answer["NextToken"].clone();
    }
    Ok(Spread(times))
}

/// Why one of the trials failed.
fn a_reason(server: &Server) -> Result<Value> {
    let failed = json!({"HyperParameterTuningJobName": NAME, "StatusEquals": "Failed", "MaxResults": 1});
    let answer = server.client().sagemaker("ListTrainingJobsForHyperParameterTuningJob", &failed)?;
    Ok(answer["TrainingJobSummaries"][0]["FailureReason"].clone())
}
