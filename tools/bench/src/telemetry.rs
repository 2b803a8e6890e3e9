//! `cargo xtask bench telemetry`: log lines and metric points on the agents' own way into the
//! server, durable before they count.

use std::{
    fs,
    io::{Read, Write},
    net::TcpStream,
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use serde_json::json;
use shoal_link::{
    Decoder, Frame, Hello, LogLine, MetricPoint, PROTOCOL, Report, ReportBody, ToAgent, ToServer, encode,
};
use shoal_server::AccessKeys;
use shoal_store::{Bounds, DataDir, LogQuery, Telemetry};

use super::{
    beside::beside,
    fake::AgentFile,
    machine,
    report::{self, Goal, line},
    server::{Kind, Server},
};
use shoal_cli::{
    client::now_ms,
    exit::Exit,
    output::{Progress, show},
};

/// Lines or points of one report: what an agent sends at most.
const EACH: usize = 200;

/// Points of the series that a chart is made of.
const CHARTED: u64 = 1_000_000;

/// Arguments of `cargo xtask bench telemetry`.
#[derive(Debug, Args)]
pub(crate) struct TelemetryArgs {
    /// Instances that report at once.
    #[arg(long, default_value_t = 4)]
    agents: usize,
    /// Log lines in all.
    #[arg(long, default_value_t = 1_000_000)]
    lines: usize,
    /// Metric points in all, of eight metrics per job.
    #[arg(long, default_value_t = 500_000)]
    points: usize,
    /// How often each is measured, each time with a server of its own.
    #[arg(long, default_value_t = 5)]
    runs: usize,
    /// Puts the section in this file, too.
    #[arg(long, value_name = "FILE")]
    write: Option<PathBuf>,
}

/// Milliseconds in which the console answers of a job with a long series: what its chart is made
/// of, and its page.
fn console(runs: usize) -> Result<(Vec<f64>, Vec<f64>)> {
    let mut server = Server::start_in(Kind::Fake, None)?;
    server.client().create_bucket("bench")?;
    server.client().sagemaker("CreateTrainingJob", &job(0))?;
    server.kill();
    let telemetry = Telemetry::open(&server.data_dir().join("telemetry.db"))?;
    let point =
        |at_ms: u64| shoal_store::MetricPoint { metric: "loss".to_owned(), at_ms, value: (at_ms % 1_009) as f64 };
    for from in (0..CHARTED).step_by(10_000) {
        telemetry.append_points("job-0", &Vec::from_iter((from..from + 10_000).map(point)))?;
    }
    // As a server does every few seconds.
    let limits = Bounds { bytes: u64::MAX, oldest_ms: 0 };
    let read = || -> Result<usize> {
        Ok(telemetry.read_stretches("job-0", "loss", 1, u64::MAX)?.hosts.values().map(|it| it.stretches.len()).sum())
    };
    while read()? > CHARTED as usize / 100 {
        telemetry.tidy(now_ms(), &limits)?;
    }
    drop(telemetry);
    server.restart()?;
    let authority = server.client().endpoint().authority.clone();
    let token = AccessKeys::read(&server.data_dir().join("keys"))?.console_token(now_ms())?;
    let signed_in = get(&authority, &format!("/console/sign-in?token={token}"), "")?;
    let cookie = signed_in.lines().find_map(|line| line.strip_prefix("set-cookie: ")?.split(';').next());
    let cookie = cookie.context("the console let nobody in")?.to_owned();
    let time = |path: &str| -> Result<Vec<f64>> {
        let mut times = Vec::with_capacity(runs);
        for _ in 0..runs {
            let began = Instant::now();
            let answer = get(&authority, path, &cookie)?;
            times.push(began.elapsed().as_secs_f64() * 1e3);
            ensure!(answer.starts_with("HTTP/1.1 200 "), "{path}: {}", answer.lines().next().unwrap_or_default());
        }
        Ok(times)
    };
    Ok((time("/console/jobs/job-0/series")?, time("/console/jobs/job-0")?))
}

/// The answer to a browser's request, with its head.
fn get(authority: &str, path: &str, cookie: &str) -> Result<String> {
    let mut stream = TcpStream::connect(authority).with_context(|| format!("nobody answers at {authority}"))?;
    write!(stream, "GET {path} HTTP/1.1\r\nhost: {authority}\r\ncookie: {cookie}\r\nconnection: close\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

/// Measures and reports.
pub(crate) fn run(args: &TelemetryArgs) -> Result<Exit> {
    let machine = machine::describe();
    let mut progress = Progress::on_stderr();
    let mut repeat = |what: &str, count: usize, body: fn(usize) -> ReportBody| -> Result<Vec<f64>> {
        let mut rates = Vec::new();
        for run in 1..=args.runs {
            progress.draw(&format!("{what}: run {run} of {}", args.runs));
            rates.push(
                measure(args.agents, count.div_ceil(EACH * args.agents), body)
                    .with_context(|| format!("{what} failed"))?,
            );
        }
        Ok(rates)
    };
    let (chart, page) = console(args.runs)?;
    let lines = [
        line(
            "log lines durable per second",
            repeat("log lines", args.lines, lines_of)?,
            "/s",
            Some(Goal::AtLeast(200_000.0)),
        ),
        line(
            "metric points durable per second",
            repeat("metric points", args.points, points_of)?,
            "/s",
            Some(Goal::AtLeast(50_000.0)),
        ),
        line(format!("console: a chart's data from {CHARTED} points"), chart, "ms", Some(Goal::AtMost(50.0))),
        line(format!("console: the page of a job with {CHARTED} points"), page, "ms", Some(Goal::AtMost(50.0))),
    ];
    drop(progress);
    let intro = format!(
        "{machine}.\n\n{} instances report over the server's agent socket, {EACH} lines (of 77 characters) or points a \
         report, as an agent cuts them; time runs \
         until the server has acknowledged the last. Then the server is killed (SIGKILL), and every line and point is \
         read back from its files",
        args.agents
    );
    let section = report::markdown("telemetry", &intro, &lines);
    show(&section)?;
    if let Some(path) = &args.write {
        report::put(path, &section).with_context(|| format!("could not write {}", path.display()))?;
    }
    Ok(Exit::Ok)
}

fn lines_of(report: usize) -> ReportBody {
    let at_ms = now_ms();
    let text = |line: usize| {
        format!(
            "[{:07}]#011train-logloss:0.{:06}#011validation-logloss:0.{:06}#011 took 0.0213 s",
            report * EACH + line,
            line * 37,
            line * 41
        )
    };
    ReportBody::Logs { lines: (0..EACH).map(|line| LogLine { at_ms, text: text(line) }).collect() }
}

fn points_of(report: usize) -> ReportBody {
    let at_ms = now_ms();
    let point = |number: usize| MetricPoint {
        name: format!("validation:metric-{}", number % 8),
        value: (report * EACH + number) as f64,
        at_ms,
    };
    ReportBody::Metrics { points: (0..EACH).map(point).collect() }
}

/// So many reports of each of so many agents; lines or points per second.
fn measure(agents: usize, reports: usize, body: fn(usize) -> ReportBody) -> Result<f64> {
    let mut server = Server::start_in(Kind::Fake, None)?;
    server.client().create_bucket("bench")?;
    for agent in 0..agents {
        server.client().sagemaker("CreateTrainingJob", &job(agent))?;
    }
    let files = launched(&server.data_dir(), agents)?;
    // Frames are made before the clock runs, as an agent makes them while it waits for its program.
    let frames: Vec<Vec<u8>> = (0..reports)
        .map(|report| {
            let report = Report { seq: report as u64 + 1, at_ms: now_ms(), body: body(report) };
            encode(&Frame::Message(ToServer::Report(report))).context("a report is too long")
        })
        .collect::<Result<_>>()?;
    let socket = server.data_dir().join("link.sock");
    let mut lines = Vec::new();
    for file in &files {
        lines.push(Line::open(&socket, file)?);
    }
    let started = Instant::now();
    let lines: Vec<_> = lines.into_iter().map(std::sync::Mutex::new).collect();
    beside(agents, agents, &|| Ok(()), &|(), number| lines[number].lock().expect("one thread each").send(&frames))?;
    let seconds = started.elapsed().as_secs_f64();
    server.kill();
    let (found_lines, found_points) = found(&server.data_dir(), agents)?;
    let expected = agents * reports * EACH;
    ensure!(
        found_lines + found_points == expected,
        "{found_lines} lines and {found_points} points of {expected} are there"
    );
    Ok(expected as f64 / seconds)
}

fn job(number: usize) -> serde_json::Value {
    json!({
        "TrainingJobName": format!("job-{number}"),
        "RoleArn": "arn:aws:iam::123456789012:role/bench",
        "AlgorithmSpecification": {"TrainingImage": "shoal/host", "TrainingInputMode": "File", "ContainerEntrypoint": ["true"]},
        "OutputDataConfig": {"S3OutputPath": "s3://bench/out"},
        "ResourceConfig": {"InstanceType": "ml.t3.medium", "InstanceCount": 1, "VolumeSizeInGB": 1},
        "StoppingCondition": {"MaxRuntimeInSeconds": 600},
    })
}

/// What the agents of the jobs would know, once the server has started them.
fn launched(data_dir: &Path, agents: usize) -> Result<Vec<AgentFile>> {
    let patience = Instant::now() + Duration::from_secs(10);
    loop {
        let runs = fs::read_dir(data_dir.join("runs"))?.flatten();
        let files: Vec<_> = runs.filter_map(|run| AgentFile::read(&run.path())).collect();
        if files.len() == agents {
            return Ok(files);
        }
        ensure!(Instant::now() < patience, "the server started {} of {agents} instances", files.len());
        thread::sleep(Duration::from_millis(5));
    }
}

/// An agent's connection.
struct Line {
    stream: UnixStream,
    decoder: Decoder,
}

impl Line {
    fn open(socket: &Path, file: &AgentFile) -> Result<Self> {
        let mut stream = UnixStream::connect(socket).context("the server's agent socket does not answer")?;
        let hello = Hello {
            protocol: PROTOCOL,
            attempt: file.attempt.clone(),
            host: 1,
            token: file.token.clone(),
            pid: std::process::id(),
            visits: false,
            sampling: false,
            profiler_rules: false,
        };
        stream.write_all(&encode(&Frame::Message(ToServer::Hello(hello)))?)?;
        let mut line = Self { stream, decoder: Decoder::default() };
        match line.next()? {
            ToAgent::Welcome { .. } => Ok(line),
            other => bail!("the server answers {other:?}"),
        }
    }

    /// Sends all, as an agent does, while another thread hears what is acknowledged; returns at the
    /// last acknowledgement.
    fn send(&mut self, frames: &[Vec<u8>]) -> Result<()> {
        let mut out = self.stream.try_clone()?;
        thread::scope(|scope| {
            let sending = scope.spawn(move || frames.iter().try_for_each(|frame| out.write_all(frame)));
            loop {
                if let ToAgent::Ack { seq } = self.next()?
                    && seq >= frames.len() as u64
                {
                    break;
                }
            }
            sending.join().map_err(|_| anyhow::anyhow!("the sender panicked"))??;
            Ok(())
        })
    }

    fn next(&mut self) -> Result<ToAgent> {
        let mut buffer = [0; 16 << 10];
        loop {
            match self.decoder.next()? {
                Some(Frame::Message(message)) => return Ok(message),
                Some(Frame::Part { .. } | Frame::Chunk(_)) => bail!("the server sends parts"),
                None => match self.stream.read(&mut buffer)? {
                    0 => bail!("the server hung up"),
                    read => self.decoder.push(&buffer[..read]),
                },
            }
        }
    }
}

/// Lines and points that the files hold.
fn found(data_dir: &Path, agents: usize) -> Result<(usize, usize)> {
    let dir = DataDir::open(data_dir)?;
    let telemetry = Telemetry::open(&dir.telemetry_path())?;
    let (mut lines, mut points) = (0, 0);
    for stream in telemetry.streams("", None, usize::MAX)? {
        let mut from = 0;
        loop {
            let query = LogQuery { stream: stream.name.clone(), from: Some(from), ..LogQuery::default() };
            let page = telemetry.read_logs(&query)?.context("a stream has gone")?;
            let reports = page.events.iter().filter(|event| !event.text.starts_with("[shoal]"));
            lines += reports.count();
            if page.events.is_empty() {
                break;
            }
            from = page.forward;
        }
    }
    for agent in 0..agents {
        let job = format!("job-{agent}");
        for metric in telemetry.metrics(&job)? {
            points += telemetry.read_points(&job, &metric, 0, u64::MAX)?.len();
        }
    }
    Ok((lines, points))
}
