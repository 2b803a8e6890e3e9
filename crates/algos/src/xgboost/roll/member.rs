//! Every host's side: a thread that listens and one that says that the host is alive, beside the
//! thread that trains.

use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::{Answer, Call, HEARTBEAT_SECONDS, Loss, Meeting, Plan, Report, encode};

/// How long a host tries to reach the caller.
const ARRIVAL: Duration = Duration::from_secs(300);

/// How long the caller has to answer a hello.
const GREETING: Duration = Duration::from_secs(10);

/// How long this host listens at a time. If it stands still itself, it is told of one such time
/// only, however long that was.
const LISTENS: Duration = Duration::from_secs(HEARTBEAT_SECONDS);

/// How long the training thread gets to end by itself after a loss. Usually XGBoost has told it by
/// then; in a collective call with a frozen host it would wait for many minutes.
const GRACE: Duration = Duration::from_secs(5);

/// How long to wait for the caller's word on who was lost, when XGBoost noticed first.
const WORD: Duration = Duration::from_secs(3);

/// This host's part in the roll.
pub(in crate::xgboost) struct Member {
    shared: Arc<Shared>,
}

struct Shared {
    writer: Mutex<TcpStream>,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    plan: Option<Plan>,
    loss: Option<Loss>,
    /// This host needs the others no more.
    done: bool,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn say(&self, answer: &Answer) -> std::io::Result<()> {
        self.writer.lock().unwrap_or_else(PoisonError::into_inner).write_all(&encode(answer))
    }
}

impl Member {
    /// Answers the roll as `host`; `resolve` gives the caller's address once its name resolves. If
    /// a host is lost later, `end` is called some seconds after, unless the process has ended by
    /// then.
    pub(in crate::xgboost) fn join(
        host: &str,
        meeting: &Meeting,
        resolve: impl Fn() -> Option<IpAddr>,
        end: impl FnOnce(Loss) + Send + 'static,
    ) -> Result<Self, Loss> {
        let (stream, reader) = connect(host, meeting, resolve)?;
        let refused =
            |error: std::io::Error| Loss { host: meeting.caller().to_owned(), how: format!("was lost: {error}") };
        let silence = meeting.silence;
        stream.set_write_timeout(Some(silence)).map_err(refused)?;
        reader.get_ref().set_read_timeout(Some(LISTENS)).map_err(refused)?;
        let shared = Arc::new(Shared { writer: Mutex::new(stream), state: Mutex::default(), changed: Condvar::new() });

        let beating = Arc::clone(&shared);
        std::thread::spawn(move || {
            while beating.say(&Answer::Alive).is_ok() {
                std::thread::sleep(Duration::from_secs(HEARTBEAT_SECONDS));
            }
        });
        let listening = Arc::clone(&shared);
        let caller = meeting.caller().to_owned();
        std::thread::spawn(move || {
            let Some(loss) = listen(&listening, reader, &caller, silence) else { return };
            listening.state().loss = Some(loss.clone());
            listening.changed.notify_all();
            std::thread::sleep(GRACE);
            if !listening.state().done {
                end(loss);
            }
        });
        Ok(Self { shared })
    }

    /// Reports what this host has, and waits for the plan.
    pub(in crate::xgboost) fn report(&self, report: Report) -> Result<Plan, Loss> {
        // If the caller is gone the listening thread knows how.
        let _ = self.shared.say(&Answer::Ready(report));
        let mut state = self.shared.state();
        loop {
            match (&state.loss, &state.plan) {
                (Some(loss), _) => return Err(loss.clone()),
                (None, Some(plan)) => return Ok(plan.clone()),
                (None, None) => state = self.shared.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
            }
        }
    }

    /// Who was lost, if XGBoost failed for that reason; the caller may need a moment to notice.
    pub(in crate::xgboost) fn loss(&self) -> Option<Loss> {
        let state = self.shared.state();
        let (state, _) = self
            .shared
            .changed
            .wait_timeout_while(state, WORD, |state| state.loss.is_none())
            .unwrap_or_else(PoisonError::into_inner);
        state.loss.clone()
    }

    /// Tells the other hosts that this one failed.
    pub(in crate::xgboost) fn fail(&self, how: &str) {
        let how: String = how.chars().take(1024).collect();
        if self.shared.say(&Answer::Failed { how }).is_ok() {
            // The caller repeats it to everyone, this host included: then it is safe to end, even
            // for the caller's own process.
            self.loss();
        }
    }

    /// This host needs the others no more.
    pub(in crate::xgboost) fn done(&self) {
        self.shared.state().done = true;
        let _ = self.shared.say(&Answer::Done);
    }
}

/// Finds the caller, which may not be up yet, among the ports where it may listen.
fn connect(
    host: &str,
    meeting: &Meeting,
    resolve: impl Fn() -> Option<IpAddr>,
) -> Result<(TcpStream, BufReader<TcpStream>), Loss> {
    let began = Instant::now();
    let mut pause = Duration::from_millis(2);
    loop {
        let mut error = "its name does not resolve".to_owned();
        if let Some(address) = resolve() {
            for port in meeting.ports() {
                match greet(host, meeting, (address, port).into()) {
                    Ok(connection) => return Ok(connection),
                    Err(refusal) => error = format!("port {}: {refusal}", meeting.port),
                }
            }
        }
        if began.elapsed() > ARRIVAL {
            let how = format!("could not be reached within {} seconds: {error}", ARRIVAL.as_secs());
            return Err(Loss { host: meeting.caller().to_owned(), how });
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_secs(1));
    }
}

/// Says hello on one port; the caller of the same job answers.
fn greet(host: &str, meeting: &Meeting, address: SocketAddr) -> std::io::Result<(TcpStream, BufReader<TcpStream>)> {
    let mut stream = TcpStream::connect_timeout(&address, GREETING)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(GREETING))?;
    stream.write_all(&encode(&Answer::Hello { job: meeting.job.clone(), host: host.to_owned() }))?;
    let mut reader = BufReader::new(stream.try_clone()?);
    // Looked at, not taken: a loss may be the first that the caller has to say.
    if reader.fill_buf()?.is_empty() {
        return Err(std::io::Error::new(ErrorKind::ConnectionRefused, "another job's"));
    }
    Ok((stream, reader))
}

/// Listens to the caller until someone is lost; `None` if this host was done before.
fn listen(shared: &Shared, mut lines: BufReader<TcpStream>, caller: &str, silence: Duration) -> Option<Loss> {
    let is_pause = |error: &std::io::Error| matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut);
    loop {
        let mut line = Vec::new();
        let mut quiet = Duration::ZERO;
        let read = loop {
            match lines.read_until(b'\n', &mut line) {
                Err(error) if is_pause(&error) && quiet < silence => quiet += LISTENS,
                read => break read,
            }
        };
        let how = match read {
            Ok(_) if !line.ends_with(b"\n") => "was lost: its process ended or its connection broke".to_owned(),
            Ok(_) => match serde_json::from_slice(&line) {
                Ok(Call::Alive) => continue,
                Ok(Call::Plan(plan)) => {
                    shared.state().plan = Some(plan);
                    shared.changed.notify_all();
                    continue;
                }
                Ok(Call::Lost(loss)) => return Some(loss),
                Err(error) => format!("sent what is no message of the roll: {error}"),
            },
            Err(error) if is_pause(&error) => {
                format!(
                    "was lost: it said nothing for {} seconds (frozen, or cut off from the network)",
                    silence.as_secs()
                )
            }
            Err(error) => format!("was lost: {error}"),
        };
        let done = shared.state().done;
        return (!done).then(|| Loss { host: caller.to_owned(), how });
    }
}
