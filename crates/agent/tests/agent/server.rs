//! A small server that speaks link over a Unix socket, keeps everything that it is told, and
//! insists on the protocol: numbers without gaps, nothing new under an old number. It can go away
//! and come back, and it can refuse to listen for a while.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread;
use std::time::Duration;

use shoal_link::{
    Artifact, Assignment, Decoder, Frame, Order, PROTOCOL, RankEnd, ReportBody, ToAgent, ToServer, encode,
};

/// Longest time that anything may take; reached only by a failing test.
pub(crate) const LIMIT: Duration = Duration::from_secs(240);

#[derive(Clone)]
pub(crate) struct Server(Arc<Inner>);

struct Inner {
    socket: PathBuf,
    token: String,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    assignments: BTreeMap<u32, Assignment>,
    hosts: BTreeMap<u32, Heard>,
    orders: BTreeMap<u32, Vec<Order>>,
    streams: Vec<(u32, UnixStream)>,
    /// What the first host's agent has reported.
    network: Option<String>,
    generation: u64,
    is_away: bool,
    is_deaf: bool,
    drops_acknowledgements: bool,
    clock_ms: Option<u64>,
}

/// What one agent has said.
#[derive(Default, Clone)]
pub(crate) struct Heard {
    acked: u64,
    pub(crate) reports: Vec<ReportBody>,
    pub(crate) parts: BTreeMap<Artifact, Vec<u8>>,
    /// Frames that came although the server had them, after a reconnection.
    pub(crate) repeated: u64,
    pub(crate) welcomes: u64,
}

impl Heard {
    pub(crate) fn lines(&self) -> Vec<String> {
        let texts = |report: &ReportBody| match report {
            ReportBody::Logs { lines } => lines.iter().map(|line| line.text.clone()).collect(),
            _ => Vec::new(),
        };
        self.reports.iter().flat_map(texts).collect()
    }

    pub(crate) fn notes(&self) -> Vec<String> {
        let texts = self
            .reports
            .iter()
            .filter_map(|report| if let ReportBody::Note { text } = report { Some(text.clone()) } else { None });
        texts.collect()
    }

    pub(crate) fn points(&self) -> Vec<(String, f64)> {
        let points = |report: &ReportBody| match report {
            ReportBody::Metrics { points } => points.iter().map(|point| (point.name.clone(), point.value)).collect(),
            _ => Vec::new(),
        };
        self.reports.iter().flat_map(points).collect()
    }

    pub(crate) fn objectives(&self) -> Vec<(u32, f64)> {
        let values = |report: &ReportBody| {
            if let ReportBody::Objective { ordinal, value } = report { Some((*ordinal, *value)) } else { None }
        };
        self.reports.iter().filter_map(values).collect()
    }

    pub(crate) fn end(&self) -> Option<(RankEnd, Vec<(String, f64)>)> {
        self.reports.iter().find_map(|report| match report {
            ReportBody::RankEnded { end, final_metrics } => {
                Some((end.clone(), final_metrics.iter().map(|point| (point.name.clone(), point.value)).collect()))
            }
            _ => None,
        })
    }

    pub(crate) fn has(&self, report: &ReportBody) -> bool {
        self.reports.contains(report)
    }

    pub(crate) fn failure(&self) -> Option<&str> {
        self.reports.iter().find_map(|report| {
            if let ReportBody::InstanceFailed { reason } = report { Some(reason.as_str()) } else { None }
        })
    }
}

impl Server {
    pub(crate) fn start(dir: &Path, token: &str) -> Self {
        let inner = Inner {
            socket: dir.join("link.sock"),
            token: token.into(),
            state: Mutex::default(),
            changed: Condvar::new(),
        };
        let server = Self(Arc::new(inner));
        server.listen();
        server
    }

    pub(crate) fn socket(&self) -> &Path {
        &self.0.socket
    }

    pub(crate) fn assign(&self, assignment: Assignment) {
        self.state().assignments.insert(assignment.host, assignment);
    }

    /// Gives an order now, and after every welcome from now on.
    pub(crate) fn order(&self, host: u32, order: Order) {
        let mut state = self.state();
        for (_, stream) in state.streams.iter_mut().filter(|(of, _)| *of == host) {
            // A connection that has just been lost is made again, and then the order comes along.
            let _ = stream.write_all(&frame(ToAgent::Order(order.clone())));
        }
        state.orders.entry(host).or_default().push(order);
    }

    /// Closes everything, as a killed server does.
    pub(crate) fn go_away(&self) {
        let mut state = self.state();
        state.is_away = true;
        state.generation += 1;
        std::fs::remove_file(&self.0.socket).unwrap();
        for (_, stream) in state.streams.drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    pub(crate) fn come_back(&self) {
        self.state().is_away = false;
        self.listen();
    }

    /// Stops reading (or goes on); what is sent meanwhile waits in the socket.
    pub(crate) fn be_deaf(&self, is_deaf: bool) {
        self.state().is_deaf = is_deaf;
        self.0.changed.notify_all();
    }

    /// Keeps what comes without saying so, as a server that is killed between its write and its
    /// answer.
    pub(crate) fn drop_acknowledgements(&self, drops: bool) {
        self.state().drops_acknowledgements = drops;
    }

    /// The time that it sends.
    pub(crate) fn set_clock(&self, now_ms: u64) {
        self.state().clock_ms = Some(now_ms);
    }

    /// Waits until what one agent has said is as wanted.
    pub(crate) fn until(&self, host: u32, what: &str, mut is_so: impl FnMut(&Heard) -> bool) -> Heard {
        let mut state = self.state();
        loop {
            let heard = state.hosts.entry(host).or_default();
            if is_so(heard) {
                return heard.clone();
            }
            if let Some(failure) = heard.failure() {
                panic!("waiting for {what}, but the instance failed: {failure}");
            }
            let (next, waited) = self.0.changed.wait_timeout(state, LIMIT).unwrap();
            state = next;
            assert!(
                !waited.timed_out(),
                "{what} did not come; heard: {:#?}",
                state.hosts.get(&host).map(|heard| &heard.reports)
            );
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap()
    }

    fn listen(&self) {
        let listener = UnixListener::bind(&self.0.socket).unwrap();
        let generation = self.state().generation;
        let server = self.clone();
        thread::spawn(move || {
            for stream in listener.incoming() {
                let (server, stream) = (server.clone(), stream.unwrap());
                if server.state().generation != generation {
                    return;
                }
                thread::spawn(move || server.serve(stream, generation));
            }
        });
    }

    fn serve(&self, mut stream: UnixStream, generation: u64) {
        let mut decoder = Decoder::default();
        let Some(Frame::Message(ToServer::Hello(hello))) = next(&mut stream, &mut decoder) else { return };
        assert_eq!(hello.protocol, PROTOCOL);
        {
            let mut state = self.state();
            let assignment = state.assignments.get(&hello.host).filter(|_| hello.token == self.0.token).cloned();
            let Some(assignment) = assignment else {
                let _ = stream.write_all(&frame(ToAgent::Refused { reason: "not wanted".into() }));
                return;
            };
            if state.generation != generation {
                return;
            }
            let now_ms = state.clock_ms;
            let heard = state.hosts.entry(hello.host).or_default();
            heard.welcomes += 1;
            let _ = stream.write_all(&frame(ToAgent::Welcome {
                acked: heard.acked,
                assignment: Box::new(assignment),
                alive_ms: Some(20),
                now_ms,
            }));
            for order in state.orders.get(&hello.host).into_iter().flatten() {
                let _ = stream.write_all(&frame(ToAgent::Order(order.clone())));
            }
            if let Some(handle) = state.network.clone().filter(|_| hello.host > 1) {
                let _ = stream.write_all(&frame(ToAgent::Network { handle }));
            }
            state.streams.push((hello.host, stream.try_clone().unwrap()));
        }
        while let Some(message) = next(&mut stream, &mut decoder) {
            if message == Frame::Message(ToServer::Alive) {
                continue;
            }
            let mut state = self.state();
            while state.is_deaf {
                state = self.0.changed.wait(state).unwrap();
            }
            if state.generation != generation {
                return;
            }
            let silent = state.drops_acknowledgements;
            let host = state.hosts.get_mut(&hello.host).unwrap();
            let seq = match &message {
                Frame::Message(ToServer::Report(report)) => report.seq,
                Frame::Part { seq, .. } => *seq,
                other => panic!("no report and no part: {other:?}"),
            };
            if seq <= host.acked {
                host.repeated += 1;
                continue;
            }
            assert_eq!(seq, host.acked + 1, "a gap in the numbers");
            host.acked = seq;
            if let Frame::Message(ToServer::Report(shoal_link::Report {
                body: ReportBody::Network { handle }, ..
            })) = &message
            {
                state.network = Some(handle.clone());
                for (_, stream) in state.streams.iter_mut().filter(|(of, _)| *of > 1) {
                    let _ = stream.write_all(&frame(ToAgent::Network { handle: handle.clone() }));
                }
            }
            let host = state.hosts.get_mut(&hello.host).unwrap();
            match message {
                Frame::Message(ToServer::Report(report)) => host.reports.push(report.body),
                Frame::Part { artifact, bytes, .. } => {
                    assert!(bytes.len() <= 1 << 20);
                    host.parts.entry(artifact).or_default().extend(bytes);
                }
                _ => {}
            }
            drop(state);
            self.0.changed.notify_all();
            if !silent && stream.write_all(&frame(ToAgent::Ack { seq })).is_err() {
                return;
            }
        }
    }
}

fn frame(message: ToAgent) -> Vec<u8> {
    encode(&Frame::Message(message)).unwrap()
}

fn next(stream: &mut UnixStream, decoder: &mut Decoder) -> Option<Frame<ToServer>> {
    let mut buffer = vec![0; 64 << 10];
    loop {
        if let Some(frame) = decoder.next().unwrap() {
            return Some(frame);
        }
        match stream.read(&mut buffer) {
            Ok(0) | Err(_) => return None,
            Ok(count) => decoder.push(&buffer[..count]),
        }
    }
}
