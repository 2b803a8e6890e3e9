//! Visits to running instances: carries bytes between a client, who writes and reads over HTTP, and
//! the connection that an agent has opened for it, as [`shoal_runtime::visit`] decides.

use std::{
    collections::HashMap,
    io,
    net::Shutdown,
    os::unix::net::UnixStream,
    sync::{Arc, Condvar, Mutex, MutexGuard, mpsc},
    thread,
    time::Duration,
};

use shoal_link::{Decoder, Frame, Hello, Stream, ToAgent, ToServer, VisitEnd};
use shoal_plane::{AttemptId, Host};
use shoal_runtime::{
    ConnId, Visit,
    visit::{Event, Io, RequestId},
};
use tokio::sync::oneshot;

use crate::{
    agent_stream::{AgentSender, read_some},
    clock,
};

/// How often threads that wait for others have the machine's timers checked.
const TIMER_CHECK: Duration = Duration::from_secs(1);

/// All visits that go on.
#[derive(Debug, Default)]
pub(crate) struct Visits(Mutex<HashMap<String, Arc<Session>>>);

/// One of them.
#[derive(Debug)]
pub(crate) struct Session {
    attempt: AttemptId,
    host: Host,
    state: Mutex<State>,
    /// For the thread that reads the agent's connection.
    changed: Condvar,
}

/// Pieces of output, and the end behind the last ones.
type Output = (Vec<(Stream, Vec<u8>)>, Option<VisitEnd>);

#[derive(Debug)]
struct State {
    machine: Visit,
    last_request: u64,
    held: HashMap<RequestId, Held>,
    output: Vec<(Stream, Vec<u8>)>,
    agent: Option<Agent>,
    refused: Option<ConnId>,
}

/// A client's request that is not answered yet.
#[derive(Debug)]
enum Held {
    Start(oneshot::Sender<bool>),
    Read(oneshot::Sender<Output>),
    Write(Vec<Frame<ToAgent>>, oneshot::Sender<bool>),
}

#[derive(Debug)]
struct Agent {
    stream: UnixStream,
    input: mpsc::Sender<Frame<ToAgent>>,
    may_read: bool,
}

/// A request that is held. Its future is dropped when its connection ends.
struct Request<'a> {
    session: &'a Session,
    id: RequestId,
    /// Its answer is output, which is lost with it.
    is_read: bool,
    is_answered: bool,
}

impl Drop for Request<'_> {
    fn drop(&mut self) {
        if !self.is_answered {
            let mut state = self.session.lock();
            if state.held.remove(&self.id).is_some() {
                self.session.handle_in(&mut state, Event::Abandoned(self.id));
            } else if self.is_read {
                self.session.handle_in(&mut state, Event::Left);
            }
        }
    }
}

impl Visits {
    /// A visit that waits for its agent.
    pub(crate) fn open(&self, id: &str, attempt: &AttemptId, host: Host) -> Arc<Session> {
        let now = clock::now();
        let state = State {
            machine: Visit::new(now),
            last_request: 0,
            held: HashMap::new(),
            output: Vec::new(),
            agent: None,
            refused: None,
        };
        let session =
            Arc::new(Session { attempt: attempt.clone(), host, state: Mutex::new(state), changed: Condvar::new() });
        let mut all = self.lock();
        all.retain(|_, session| !session.lock().machine.is_abandoned(now));
        all.insert(id.to_owned(), session.clone());
        session
    }

    pub(crate) fn get(&self, id: &str) -> Option<Arc<Session>> {
        self.lock().get(id).cloned()
    }

    pub(crate) fn close(&self, id: &str) {
        self.lock().remove(id);
    }

    /// Serves the agent's side to its end.
    pub(crate) fn receive(
        &self,
        hello: &Hello,
        id: &str,
        conn: ConnId,
        stream: UnixStream,
        down: &AgentSender,
        decoder: Decoder,
    ) -> io::Result<()> {
        let found =
            self.get(id).filter(|session| *session.attempt == hello.attempt && session.host == Host(hello.host));
        let refused = || down.send(ToAgent::Refused { reason: format!("nobody waits for visit {id}") });
        let Some(session) = found else { return refused() };
        // Who does not take its input is waited for: the client is told to come again meanwhile.
        stream.set_write_timeout(None)?;
        let (input, frames) = mpsc::channel();
        if !session.serve(conn, stream.try_clone()?, input) {
            return refused();
        }
        // Before any input, which may have come by now.
        let feeder = down.send(ToAgent::Ready).and_then(|()| {
            let (session, down) = (session.clone(), down.clone());
            let feed = move || session.feed(&frames, &down);
            thread::Builder::new().name("visit".into()).stack_size(128 << 10).spawn(feed)
        });
        let end = match &feeder {
            Ok(_) => session.take(stream, decoder).unwrap_or_else(|error| broken(&error)),
            Err(error) => broken(error),
        };
        session.handle(Event::Ended(end));
        // It only ends early by panicking, and then there is no more input.
        feeder.map(|feeder| drop(feeder.join()))
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Arc<Session>>> {
        self.0.lock().expect("no holder of this lock panics")
    }
}

fn broken(error: &io::Error) -> VisitEnd {
    let reason = match error.kind() {
        io::ErrorKind::UnexpectedEof => "the training program has ended, and the instance with it".to_owned(),
        _ => format!("the agent's connection broke: {error}"),
    };
    VisitEnd::Broken { reason }
}

impl Session {
    /// Whether the agent has come in time.
    pub(crate) async fn started(&self) -> bool {
        self.ask(Held::Start, Event::Awaited).await.unwrap_or_default()
    }

    /// The output that has arrived, or nothing if none arrives within a few seconds. The end comes
    /// after all output.
    pub(crate) async fn read(&self) -> Output {
        self.ask(Held::Read, Event::OutputWanted).await.unwrap_or_default()
    }

    /// Takes input if there is room for it, or soon will be; says whether it has.
    pub(crate) async fn write(&self, frames: Vec<Frame<ToAgent>>) -> bool {
        let bytes = frames.iter().map(length).sum();
        let held = |answer| Held::Write(frames, answer);
        self.ask(held, |request| Event::InputOffered(request, bytes)).await.unwrap_or_default()
    }

    /// Nobody wants it any more.
    pub(crate) fn leave(&self) {
        self.handle(Event::Left);
    }

    /// Waits for the machine's answer to a request. `None`: another answered in its place.
    async fn ask<T>(
        &self,
        held: impl FnOnce(oneshot::Sender<T>) -> Held,
        event: impl FnOnce(RequestId) -> Event,
    ) -> Option<T> {
        let (sender, mut answer) = oneshot::channel();
        let mut request = {
            let mut state = self.lock();
            state.last_request += 1;
            let (id, held) = (RequestId(state.last_request), held(sender));
            let is_read = matches!(held, Held::Read(_));
            state.held.insert(id, held);
            Request { session: self, id, is_read, is_answered: false }
        };
        let id = request.id;
        self.handle(event(id));
        loop {
            let deadline = self.lock().machine.deadline();
            tokio::select! {
                answer = &mut answer => {
                    request.is_answered = true;
                    return answer.ok();
                }
                () = clock::until(deadline) => self.handle(Event::Timeout),
            }
        }
    }

    /// Whether the connection is the visit's.
    fn serve(&self, conn: ConnId, stream: UnixStream, input: mpsc::Sender<Frame<ToAgent>>) -> bool {
        let mut state = self.lock();
        let before = state.agent.replace(Agent { stream, input, may_read: false });
        state.refused = None;
        self.handle_in(&mut state, Event::Arrived(conn));
        if state.refused == Some(conn) {
            state.agent = before;
            return false;
        }
        true
    }

    /// Takes what the agent sends until it says how the visit ended.
    fn take(&self, mut stream: UnixStream, mut decoder: Decoder) -> io::Result<VisitEnd> {
        stream.set_read_timeout(Some(TIMER_CHECK))?;
        loop {
            self.await_room()?;
            match decoder.next::<ToServer>().map_err(io::Error::other)? {
                Some(Frame::Chunk(chunk)) => {
                    let (of, bytes) = Stream::of(&chunk).ok_or_else(|| io::Error::other("a chunk without a stream"))?;
                    let mut state = self.lock();
                    state.output.push((of, bytes.to_vec()));
                    state.agent.iter_mut().for_each(|agent| agent.may_read = false);
                    self.handle_in(&mut state, Event::OutputArrived(bytes.len()));
                }
                Some(Frame::Message(ToServer::VisitEnded(end))) => return Ok(end),
                Some(_) => return Err(io::Error::other("only output comes on a visit's connection")),
                None => match read_some(&mut stream, &mut decoder) {
                    Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
                        self.handle(Event::Timeout);
                    }
                    read => read?,
                },
            }
        }
    }

    /// Waits until the agent may be read; fails once its connection is closed.
    fn await_room(&self) -> io::Result<()> {
        let mut state = self.lock();
        loop {
            match &state.agent {
                None => return Err(io::ErrorKind::ConnectionAborted.into()),
                Some(agent) if agent.may_read => return Ok(()),
                Some(_) => {}
            }
            state = self.changed.wait_timeout(state, TIMER_CHECK).expect("no holder of this lock panics").0;
            self.handle_in(&mut state, Event::Timeout);
        }
    }

    /// Sends the agent what the client has written, until its connection is closed.
    fn feed(&self, frames: &mpsc::Receiver<Frame<ToAgent>>, down: &AgentSender) {
        for frame in frames {
            // If it cannot be sent the connection is at its end, which its reader sees.
            if down.send_frame(&frame).is_err() {
                return;
            }
            self.handle(Event::InputSent(length(&frame)));
        }
    }

    fn handle(&self, event: Event) {
        self.handle_in(&mut self.lock(), event);
    }

    fn handle_in(&self, state: &mut State, event: Event) {
        for io in state.machine.handle(event, clock::now()) {
            self.perform(state, io);
        }
    }

    /// A client that does not wait for its answer any more has its connection closed, which ends
    /// the visit.
    fn perform(&self, state: &mut State, io: Io) {
        match io {
            Io::Started(request, has_agent) => {
                if let Some(Held::Start(answer)) = state.held.remove(&request) {
                    let _ = answer.send(has_agent);
                }
            }
            Io::Deliver(request, end) => {
                if let Some(Held::Read(answer)) = state.held.remove(&request) {
                    let _ = answer.send((std::mem::take(&mut state.output), end));
                }
            }
            Io::Take(request) => {
                if let Some(Held::Write(frames, answer)) = state.held.remove(&request) {
                    if let Some(agent) = &state.agent {
                        // Its feeder ends with the connection.
                        frames.into_iter().for_each(|frame| drop(agent.input.send(frame)));
                    }
                    let _ = answer.send(true);
                }
            }
            Io::Repeat(request) => {
                if let Some(Held::Write(_, answer)) = state.held.remove(&request) {
                    let _ = answer.send(false);
                }
            }
            Io::Serve(_) => {}
            Io::Refuse(conn) => state.refused = Some(conn),
            Io::Read => {
                state.agent.iter_mut().for_each(|agent| agent.may_read = true);
                self.changed.notify_all();
            }
            Io::Close => {
                if let Some(agent) = state.agent.take() {
                    // Who writes to it may be held up and has the sender: not by way of that. One
                    // that is closed already is what is wanted.
                    let _ = agent.stream.shutdown(Shutdown::Both);
                }
                self.changed.notify_all();
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no holder of this lock panics")
    }
}

/// Bytes of input in a frame.
fn length(frame: &Frame<ToAgent>) -> usize {
    match frame {
        Frame::Chunk(bytes) => bytes.len(),
        _ => 0,
    }
}

#[cfg(test)]
mod tests;
