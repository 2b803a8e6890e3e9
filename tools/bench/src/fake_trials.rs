//! A server whose launcher plays agents: each says one value of the objective, made of the
//! hyperparameters, and ends; as the real ones do, it is kept for the next trial. What is measured
//! with it is the server alone, with as many instances as are wanted.

use std::{
    collections::HashMap,
    io::{Read, Write},
    os::unix::net::UnixStream,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
    thread,
};

use anyhow::{Context, Result, bail};
use shoal_launch::{AllocationSpec, AllocationStatus, LaunchError, Launcher, MemoryUse};
use shoal_link::{
    Assignment, Decoder, Frame, Hello, MetricPoint, Order, PROTOCOL, Phase, RankEnd, RankOutcome, Report, ReportBody,
    ToAgent, ToServer, encode,
};
use shoal_plane::{Capacity, Node, Packing};

use shoal_cli::{client::now_ms, exit::Exit, serve, settings::ServerFlags};

/// Instances at the same time.
const INSTANCES: u32 = 1000;
/// An agent that is played needs little.
const STACK_BYTES: usize = 256 << 10;

/// An agent that is to be played.
struct Part {
    socket: PathBuf,
    attempt: String,
    token: String,
}

/// Whether each allocation is still there.
type Alive = Arc<Mutex<HashMap<String, bool>>>;

#[derive(Default)]
struct Stage {
    alive: Alive,
}

impl Launcher for Stage {
    fn submit(&self, spec: &AllocationSpec) -> Result<(), LaunchError> {
        let after = |name: &str| spec.args.iter().skip_while(|arg| *arg != name).nth(1).cloned().unwrap_or_default();
        let token = spec
            .env
            .iter()
            .find(|(name, _)| name == "SHOAL_AGENT_TOKEN")
            .map(|(_, value)| value.clone())
            .unwrap_or_default();
        let part = Part { socket: after("--socket").into(), attempt: after("--attempt"), token };
        if lock(&self.alive).insert(spec.id.clone(), true).is_some() {
            return Ok(());
        }
        let (id, alive) = (spec.id.clone(), self.alive.clone());
        let started = thread::Builder::new().name("played agent".to_owned()).stack_size(STACK_BYTES).spawn(move || {
            if let Err(error) = play(&part) {
                tracing::warn!("a played agent that began with {} failed: {error}", part.attempt);
            }
            lock(&alive).insert(id, false);
        });
        started.map(drop).map_err(|source| LaunchError::Io { what: "play an agent".to_owned(), source })
    }

    fn add(&self, _: &AllocationSpec, _: &[u32]) -> Result<(), LaunchError> {
        Ok(())
    }

    fn remove(&self, _: &AllocationSpec, _: &[u32]) -> Result<(), LaunchError> {
        Ok(())
    }

    fn status(&self, specs: &[&AllocationSpec]) -> Vec<Result<AllocationStatus, LaunchError>> {
        let alive = lock(&self.alive);
        let status = |spec: &&AllocationSpec| match alive.get(&spec.id) {
            None => AllocationStatus::Unknown,
            Some(true) => AllocationStatus::Running { lost: Vec::new() },
            Some(false) => AllocationStatus::Ended,
        };
        specs.iter().map(|spec| Ok(status(spec))).collect()
    }

    fn memory(&self, _: &[&AllocationSpec]) -> MemoryUse {
        MemoryUse::new()
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
    let play = |options: &mut shoal_server::Options| {
        options.launcher = Arc::new(Stage::default());
        let memory_bytes = u64::from(INSTANCES) << 34;
        let node = Node { cpus: INSTANCES, memory_bytes, instances: INSTANCES, ..Node::local() };
        options.capacity = Capacity::of(node, Packing::Promise);
    };
    serve::with(flags, play).context("the bench's server failed")
}

/// An agent's life: one attempt after the other, until the server has no use for it.
fn play(part: &Part) -> Result<()> {
    let (mut attempt, mut token) = (part.attempt.clone(), part.token.clone());
    while serve_attempt(part, &attempt, &token)? {
        let mut stream = UnixStream::connect(&part.socket)?;
        say(&mut stream, &ToServer::Idle(hello(&part.attempt, &part.token)))?;
        // The server closes the connections of those that it needs no longer.
        let Ok(ToAgent::Serve { attempt: its, token: its_token }) = next(&mut stream, &mut Decoder::default()) else {
            break;
        };
        (attempt, token) = (its, its_token);
    }
    Ok(())
}

fn hello(attempt: &str, token: &str) -> Hello {
    Hello {
        protocol: PROTOCOL,
        attempt: attempt.to_owned(),
        host: 1,
        token: token.to_owned(),
        pid: std::process::id(),
        visits: false,
        sampling: false,
        profiler_rules: false,
    }
}

fn say(stream: &mut UnixStream, message: &ToServer) -> Result<()> {
    Ok(stream.write_all(&encode(&Frame::Message(message.clone()))?)?)
}

/// A value, an end without artifacts; says whether the instance is to be kept.
fn serve_attempt(part: &Part, attempt: &str, token: &str) -> Result<bool> {
    let mut stream = UnixStream::connect(&part.socket)?;
    let mut decoder = Decoder::default();
    say(&mut stream, &ToServer::Hello(hello(attempt, token)))?;
    let ToAgent::Welcome { assignment, .. } = next(&mut stream, &mut decoder)? else { bail!("no welcome came") };
    let value = value(&assignment);
    let end = RankEnd {
        outcome: RankOutcome::Exited(0),
        out_of_memory: false,
        crowded_out: None,
        failure_file: None,
        stderr_tail: String::new(),
    };
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
    loop {
        match next(&mut stream, &mut decoder)? {
            ToAgent::Order(Order::Park) => return Ok(true),
            ToAgent::Order(Order::Release) => return Ok(false),
            _ => {}
        }
    }
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
