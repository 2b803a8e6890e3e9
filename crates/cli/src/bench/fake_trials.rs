//! A server whose launcher plays agents: each says one value of the objective, made of the hyperparameters, and ends. What is measured with it is the
//! server alone, with as many instances as are wanted.

use std::{
    collections::HashMap,
    io::{Read, Write},
    os::unix::net::UnixStream,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError, mpsc},
    thread,
};

use anyhow::{Context, Result, bail};
use shoal_launch::{AllocationSpec, AllocationStatus, LaunchError, Launcher};
use shoal_link::{
    Assignment, Decoder, Frame, Hello, MetricPoint, Order, PROTOCOL, Phase, RankEnd, RankOutcome, Report, ReportBody, ToAgent, ToServer,
    encode,
};
use shoal_plane::Capacity;

use crate::{client::now_ms, exit::Exit, serve, settings::ServerFlags};

/// Agents that speak at the same time; others wait for their turn, as starting takes time.
const VOICES: usize = 16;
/// Instances at the same time.
const INSTANCES: u32 = 1000;

/// An agent that is to be played.
struct Part {
    id: String,
    socket: PathBuf,
    attempt: String,
    token: String,
}

/// Whether each allocation is still there.
type Alive = Arc<Mutex<HashMap<String, bool>>>;

struct Stage {
    parts: Mutex<mpsc::Sender<Part>>,
    alive: Alive,
}

impl Launcher for Stage {
    fn submit(&self, spec: &AllocationSpec) -> Result<(), LaunchError> {
        let after = |name: &str| spec.args.iter().skip_while(|arg| *arg != name).nth(1).cloned().unwrap_or_default();
        let token = spec.env.iter().find(|(name, _)| name == "SHOAL_AGENT_TOKEN").map(|(_, value)| value.clone()).unwrap_or_default();
        let part = Part { id: spec.id.clone(), socket: after("--socket").into(), attempt: after("--attempt"), token };
        let is_new = lock(&self.alive).insert(spec.id.clone(), true).is_none();
        if is_new && lock(&self.parts).send(part).is_err() {
            return Err(LaunchError::Io { what: "play an agent".to_owned(), source: std::io::ErrorKind::BrokenPipe.into() });
        }
        Ok(())
    }

    fn status(&self, spec: &AllocationSpec) -> Result<AllocationStatus, LaunchError> {
        Ok(match lock(&self.alive).get(&spec.id) {
            None => AllocationStatus::Unknown,
            Some(true) => AllocationStatus::Running { lost: Vec::new() },
            Some(false) => AllocationStatus::Ended,
        })
    }

    fn stop(&self, spec: &AllocationSpec) -> Result<(), LaunchError> {
        lock(&self.alive).insert(spec.id.clone(), false);
        Ok(())
    }
}

fn lock<T>(shared: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Serves with it until SIGTERM.
pub(crate) fn run(flags: &ServerFlags) -> Result<Exit> {
    let (parts, waiting) = mpsc::channel();
    let (waiting, alive) = (Arc::new(Mutex::new(waiting)), Alive::default());
    for _ in 0..VOICES {
        let (waiting, alive) = (waiting.clone(), alive.clone());
        thread::spawn(move || {
            loop {
                let next = lock(&waiting).recv();
                let Ok(part) = next else { return };
                if let Err(error) = play(&part) {
                    tracing::warn!("a played agent of {} failed: {error}", part.attempt);
                }
                lock(&alive).insert(part.id, false);
            }
        });
    }
    let stage = Arc::new(Stage { parts: Mutex::new(parts), alive });
    let play = move |options: &mut shoal_server::Options| {
        options.launcher = stage;
        options.capacity = Capacity { cpus: INSTANCES, memory_bytes: u64::from(INSTANCES) << 34, gpus: 0, instances: INSTANCES };
    };
    serve::with(flags, play).context("the bench's server failed")
}

/// An agent's life: a value, an end without artifacts, the release.
fn play(part: &Part) -> Result<()> {
    let mut stream = UnixStream::connect(&part.socket)?;
    let (attempt, token) = (part.attempt.clone(), part.token.clone());
    let mut decoder = Decoder::default();
    stream.write_all(&encode(&Frame::Message(ToServer::Hello(Hello {
        protocol: PROTOCOL,
        attempt,
        host: 1,
        token,
        pid: std::process::id(),
    })))?)?;
    let ToAgent::Welcome { assignment, .. } = next(&mut stream, &mut decoder)? else { bail!("no welcome came") };
    let value = value(&assignment);
    let end = RankEnd { outcome: RankOutcome::Exited(0), out_of_memory: false, failure_file: None, stderr_tail: String::new() };
    let point = MetricPoint { name: "loss".to_owned(), value, at_ms: now_ms() };
    let bodies = [
        ReportBody::Phase { phase: Phase::Training },
        ReportBody::Objective { ordinal: 1, value },
        ReportBody::RankEnded { end, final_metrics: vec![point] },
        ReportBody::Uploaded,
    ];
    let mut said = Vec::new();
    for (seq, body) in (1..).zip(bodies) {
        said.extend(encode(&Frame::Message(ToServer::Report(Report { seq, at_ms: now_ms(), body })))?);
    }
    stream.write_all(&said)?;
    while next(&mut stream, &mut decoder)? != ToAgent::Order(Order::Release) {}
    Ok(())
}

/// A bowl over all numbers among the hyperparameters.
fn value(assignment: &Assignment) -> f64 {
    let numbers = assignment.hyperparameters.values().filter_map(|text| text.parse::<f64>().ok());
    numbers.map(|number| (number - 0.3).powi(2)).sum()
}

fn next(stream: &mut UnixStream, decoder: &mut Decoder) -> Result<ToAgent> {
    let mut buffer = [0; 16 << 10];
    loop {
        match decoder.next()? {
            Some(Frame::Message(message)) => return Ok(message),
            Some(Frame::Part { .. } | Frame::Chunk(_)) => bail!("the server sends parts"),
            None => match stream.read(&mut buffer)? {
                0 => bail!("the server hung up"),
                read => decoder.push(&buffer[..read]),
            },
        }
    }
}
