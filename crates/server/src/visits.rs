//! Visits to running instances: between a client, who asks and feeds and reads over HTTP, and the
//! connection that an agent has opened for it.
//!
//! A visit is held by its client's asking: when its connection ends while it waits for output, or
//! nobody has asked for [`PATIENCE`], the visit is over, and its command is killed. What is under
//! way is bounded both ways: who puts out more than is read waits, and who feeds more than is taken
//! is told to come again.

use std::{
    collections::{HashMap, VecDeque},
    io,
    net::Shutdown,
    os::unix::net::UnixStream,
    sync::{Arc, Condvar, Mutex, MutexGuard},
    thread,
    time::{Duration, Instant},
};

use shoal_link::{Decoder, Frame, Hello, Stream, ToAgent, ToServer, VisitEnd};
use shoal_plane::AttemptId;
use tokio::sync::Notify;

use crate::agent_stream::{AgentSender, read_some};

/// How long a visit lives without its client.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);
/// How long an agent may take to come for it.
const ARRIVAL: Duration = Duration::from_secs(20);
/// How long a reader waits for output, and a feeder for room.
const HOLD: Duration = Duration::from_secs(3);
/// Bytes that may wait in each direction.
const MOST_BYTES: usize = 1 << 20;
/// How often threads that wait for others look at the time.
const LOOK: Duration = Duration::from_secs(1);

/// All visits that go on.
#[derive(Debug, Default)]
pub(crate) struct Visits(Mutex<HashMap<String, Arc<Session>>>);

/// One of them.
#[derive(Debug)]
pub(crate) struct Session {
    attempt: AttemptId,
    host: u32,
    state: Mutex<State>,
    /// For threads.
    changed: Condvar,
    /// For the client's requests: there is an agent, output, or the end.
    output: Notify,
    /// There is room for input.
    room: Notify,
}

#[derive(Debug)]
struct State {
    arrived: bool,
    output: VecDeque<(Stream, Vec<u8>)>,
    output_bytes: usize,
    input: VecDeque<Frame<ToAgent>>,
    input_bytes: usize,
    end: Option<VisitEnd>,
    asked: Instant,
    /// The client has said that it goes, or its connection has ended while it waited.
    left: bool,
}

/// A request that waits. Its future is dropped when its connection ends.
struct Waits<'a>(Option<&'a Session>);

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        self.0.inspect(|session| session.leave());
    }
}

impl Visits {
    /// A visit that waits for its agent.
    pub(crate) fn open(&self, id: &str, attempt: &AttemptId, host: u32) -> Arc<Session> {
        let state = State {
            arrived: false,
            output: VecDeque::new(),
            output_bytes: 0,
            input: VecDeque::new(),
            input_bytes: 0,
            end: None,
            asked: Instant::now(),
            left: false,
        };
        let (changed, output, room) = (Condvar::new(), Notify::new(), Notify::new());
        let session =
            Arc::new(Session { attempt: attempt.clone(), host, state: Mutex::new(state), changed, output, room });
        let mut all = self.lock();
        // Those whose clients are gone and whose agents never came.
        all.retain(|_, session| session.lock().asked.elapsed() < PATIENCE);
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
        mut stream: UnixStream,
        down: &AgentSender,
        mut decoder: Decoder,
    ) -> io::Result<()> {
        let found = self.get(id).filter(|session| *session.attempt == hello.attempt && session.host == hello.host);
        let Some(session) = found.filter(|session| session.arrive()) else {
            return down.send(ToAgent::Refused { reason: format!("nobody waits for visit {id}") });
        };
        down.send(ToAgent::Ready)?;
        stream.set_read_timeout(Some(LOOK))?;
        // Who does not take its input is waited for: the client is told to come again meanwhile.
        stream.set_write_timeout(None)?;
        let feeder = {
            let (session, down) = (session.clone(), down.clone());
            thread::Builder::new().name("visit".into()).stack_size(128 << 10).spawn(move || session.feed(&down))?
        };
        let end =
            session.take(&mut stream, &mut decoder).unwrap_or_else(|error| VisitEnd::Broken { reason: broken(&error) });
        session.finish(end);
        // Not by way of `down`: who feeds may be held up there. One that is closed already is what
        // is wanted.
        let _ = stream.shutdown(Shutdown::Both);
        // It only ends early by panicking, and then there is no more input.
        let _ = feeder.join();
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Arc<Session>>> {
        self.0.lock().expect("no holder of this lock panics")
    }
}

fn broken(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => "the training program has ended, and the instance with it".to_owned(),
        _ => format!("the agent's connection broke: {error}"),
    }
}

impl Session {
    /// The agent is there; `false` if another was before.
    fn arrive(&self) -> bool {
        let mut state = self.lock();
        let is_first = !std::mem::replace(&mut state.arrived, true);
        drop(state);
        self.output.notify_one();
        is_first
    }

    /// Takes what the agent sends until it says how the visit ended.
    fn take(&self, stream: &mut UnixStream, decoder: &mut Decoder) -> io::Result<VisitEnd> {
        loop {
            match decoder.next::<ToServer>().map_err(io::Error::other)? {
                Some(Frame::Chunk(chunk)) => {
                    let (of, bytes) = Stream::of(&chunk).ok_or_else(|| io::Error::other("a chunk without a stream"))?;
                    self.put_out(of, bytes)?;
                }
                Some(Frame::Message(ToServer::VisitEnded(end))) => return Ok(end),
                Some(_) => return Err(io::Error::other("only output comes on a visit's connection")),
                None => match read_some(stream, decoder) {
                    Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
                        self.is_wanted()?;
                    }
                    read => read?,
                },
            }
        }
    }

    /// Fails when the client has been away for too long.
    fn is_wanted(&self) -> io::Result<()> {
        let state = self.lock();
        let is_left = state.left || state.asked.elapsed() >= PATIENCE;
        if is_left { Err(io::Error::other("nobody waits for its output any more")) } else { Ok(()) }
    }

    /// Nobody wants it any more.
    pub(crate) fn leave(&self) {
        self.lock().left = true;
        self.changed.notify_all();
    }

    fn put_out(&self, of: Stream, bytes: &[u8]) -> io::Result<()> {
        let mut state = self.lock();
        while state.output_bytes >= MOST_BYTES {
            drop(state);
            self.is_wanted()?;
            state = self.changed.wait_timeout(self.lock(), LOOK).expect("no holder of this lock panics").0;
        }
        state.output_bytes += bytes.len();
        state.output.push_back((of, bytes.to_vec()));
        drop(state);
        self.output.notify_one();
        Ok(())
    }

    fn finish(&self, end: VisitEnd) {
        self.lock().end.get_or_insert(end);
        self.changed.notify_all();
        self.output.notify_one();
        self.room.notify_one();
    }

    /// Passes input on until the visit is over.
    fn feed(&self, down: &AgentSender) {
        loop {
            let frame = {
                let mut state = self.lock();
                loop {
                    if state.end.is_some() {
                        return;
                    }
                    if let Some(frame) = state.input.pop_front() {
                        break frame;
                    }
                    state = self.changed.wait(state).expect("no holder of this lock panics");
                }
            };
            // If it cannot be sent the connection is at its end, which its reader sees.
            let sent = down.send_frame(&frame);
            if let Frame::Chunk(bytes) = &frame {
                self.lock().input_bytes -= bytes.len();
            }
            self.room.notify_one();
            if sent.is_err() {
                return;
            }
        }
    }

    /// Waits for the agent; says whether it has come.
    pub(crate) async fn arrived(&self) -> bool {
        let until = tokio::time::Instant::now() + ARRIVAL;
        loop {
            if self.lock().arrived {
                return true;
            }
            if tokio::time::timeout_at(until, self.output.notified()).await.is_err() {
                return self.lock().arrived;
            }
        }
    }

    /// What there is of output, or after a while nothing; the end comes after all of it.
    pub(crate) async fn read(&self) -> (Vec<(Stream, Vec<u8>)>, Option<VisitEnd>) {
        let until = tokio::time::Instant::now() + HOLD;
        let mut waits = Waits(Some(self));
        loop {
            let is_over = {
                let mut state = self.lock();
                state.asked = Instant::now();
                if !state.output.is_empty() {
                    state.output_bytes = 0;
                    let output = state.output.drain(..).collect();
                    let end = state.end.clone();
                    drop(state);
                    self.changed.notify_all();
                    waits.0 = None;
                    return (output, end);
                }
                state.end.clone()
            };
            if is_over.is_some() || tokio::time::timeout_at(until, self.output.notified()).await.is_err() {
                waits.0 = None;
                return (Vec::new(), is_over);
            }
        }
    }

    /// Takes input if there is room for it, or soon will be; says whether it has.
    pub(crate) async fn write(&self, frames: Vec<Frame<ToAgent>>) -> bool {
        let until = tokio::time::Instant::now() + HOLD;
        loop {
            {
                let mut state = self.lock();
                // Nobody reads it any more: that is said to the reader.
                if state.end.is_some() {
                    return true;
                }
                if state.input_bytes < MOST_BYTES {
                    for frame in frames {
                        if let Frame::Chunk(bytes) = &frame {
                            state.input_bytes += bytes.len();
                        }
                        state.input.push_back(frame);
                    }
                    drop(state);
                    self.changed.notify_all();
                    return true;
                }
            }
            if tokio::time::timeout_at(until, self.room.notified()).await.is_err() {
                return false;
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no holder of this lock panics")
    }
}

#[cfg(test)]
mod tests;
