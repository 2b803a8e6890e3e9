//! Visits: somebody looks after the running instance from outside, over a connection of its own.
//! Nothing of the training program waits for it.

use std::fs::File;
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::retry_on_intr;
use shoal_link::{Decoder, Frame, Stream, Terminal, ToAgent, ToServer, Visit, VisitEnd, encode};
use shoal_sandbox::{Control, Guest, SandboxError, SandboxSpec};

use crate::Options;
use crate::causes::with_causes;
use crate::connection::{hello, receive};
use crate::outcome::SIGKILL;
use crate::own_log::say;

/// How long output is waited for after a command's end: what it has started may hold it open.
const LAST_WORDS: Duration = Duration::from_secs(1);
const READ_BYTES: usize = 32 << 10;
/// A pipe that is ready for writing takes so much at once.
const PIPE_PIECE: usize = 4096;
/// How long reading stacks may take.
const LOOK: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(5);
/// A server that does not answer is as good as gone.
const SERVER_TIMEOUT: Duration = Duration::from_secs(60);

/// Serves a visit in a thread of its own, while the program runs as `spec` says.
pub(crate) fn start(options: Arc<Options>, id: String, visit: Visit, control: Control, spec: &SandboxSpec) {
    let spec = spec.clone();
    let serve = move || {
        if let Err(error) = serve(&options, &id, visit, &control, &spec) {
            say(format_args!("a visit broke off: {error}"));
        }
    };
    if let Err(error) = thread::Builder::new().name("visit".into()).spawn(serve) {
        // The server's patience with it ends by itself.
        say(format_args!("no thread for a visit: {error}"));
    }
}

fn serve(options: &Options, id: &str, visit: Visit, control: &Control, spec: &SandboxSpec) -> io::Result<()> {
    let mut stream = options.server.connect()?;
    stream.set_read_timeout(Some(SERVER_TIMEOUT))?;
    stream.set_write_timeout(Some(SERVER_TIMEOUT))?;
    let up = Up(Arc::new(Mutex::new(stream.try_clone()?)));
    up.message(ToServer::Visit { hello: hello(options), id: id.to_owned() })?;
    let mut decoder = Decoder::default();
    match receive(&mut stream, &mut decoder)? {
        ToAgent::Ready => {}
        // Nobody waits for it any more.
        _ => return Ok(()),
    }
    stream.set_read_timeout(None)?;
    // A visitor who reads slowly, or not at all for a while, is the server's affair.
    stream.set_write_timeout(None)?;
    let end = match visit {
        Visit::Command { command, terminal } => run(&up, &stream, decoder, command, terminal.as_ref(), control, spec)?,
        Visit::Stacks { seconds } => look(&up, options, control.first_process(), seconds)?,
    };
    up.message(ToServer::VisitEnded(end))?;
    // The one who reads ends with it; and the server has everything before it sees the end.
    stream.shutdown(Shutdown::Both)
}

fn run(
    up: &Up,
    stream: &UnixStream,
    decoder: Decoder,
    command: Vec<String>,
    terminal: Option<&Terminal>,
    control: &Control,
    spec: &SandboxSpec,
) -> io::Result<VisitEnd> {
    let mut spec = SandboxSpec { command, ..spec.clone() };
    let size = terminal.map(|it| shoal_sandbox::Terminal { rows: it.rows, columns: it.columns });
    if let Some(terminal) = terminal {
        spec.env.retain(|(name, _)| name != "TERM");
        spec.env.push(("TERM".to_owned(), terminal.name.clone()));
    }
    let mut guest = match control.start_guest(&spec, size) {
        Ok(guest) => guest,
        Err(SandboxError::Program { message, code }) => {
            up.chunk(Stream::Stderr, format!("{message}\n").as_bytes())?;
            return Ok(VisitEnd::Exited { code });
        }
        Err(error) => return Ok(VisitEnd::Broken { reason: with_causes(&error) }),
    };
    let end = guest.end()?;
    let (said, all_said) = channel();
    for (from, to) in [(guest.stdout.take(), Stream::Stdout), (guest.stderr.take(), Stream::Stderr)] {
        let Some(from) = from else { continue };
        let (up, said) = (up.clone(), said.clone());
        thread::Builder::new().name("visit output".into()).spawn(move || pass_on(from, to, &up, &said))?;
    }
    drop(said);
    let input = stream.try_clone()?;
    thread::Builder::new().name("visit input".into()).spawn(move || listen(input, decoder, guest))?;
    let exit = end.wait();
    let until = Instant::now() + LAST_WORDS;
    // Ends early when the last of them has let go.
    while all_said.recv_timeout(until.saturating_duration_since(Instant::now())).is_ok() {}
    Ok(match exit.map(|exit| (exit.code, exit.signal)) {
        Some((Some(code), _)) => VisitEnd::Exited { code },
        Some((None, Some(signal))) => VisitEnd::Signaled { signal },
        _ => VisitEnd::Broken { reason: "the training program has ended, and the instance with it".to_owned() },
    })
}

/// Another process looks, since what it reads is a program's memory, and this one must not fail
/// over it, nor wait for it for ever.
fn look(up: &Up, options: &Options, first: u32, seconds: Option<u32>) -> io::Result<VisitEnd> {
    let mut command = Command::new(&options.program);
    command
        .args(["stacks", &first.to_string()])
        .args(seconds.iter().flat_map(|seconds| ["--seconds".to_owned(), seconds.to_string()]))
        .env_clear()
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut looking = command.spawn()?;
    let (stdout, stderr) = (looking.stdout.take(), looking.stderr.take());
    let looking = Arc::new(Mutex::new(looking));
    let (seen, is_seen) = channel::<()>();
    let of_watch = Arc::clone(&looking);
    let longest = LOOK + Duration::from_secs(seconds.unwrap_or(0).into());
    thread::Builder::new().name("visit watch".into()).spawn(move || {
        if is_seen.recv_timeout(longest) == Err(RecvTimeoutError::Timeout) {
            // It fails if it has just ended.
            let _ = of_watch.lock().unwrap_or_else(PoisonError::into_inner).kill();
        }
    })?;
    if let Some(stdout) = stdout {
        // If nobody reads it any more, it ends.
        pass_on(File::from(OwnedFd::from(stdout)), Stream::Stdout, up, &seen);
    }
    let mut said = String::new();
    // What is no text is no reason.
    let _ = stderr.map(|stderr| stderr.take(READ_BYTES as u64).read_to_string(&mut said));
    let status = loop {
        if let Some(status) = looking.lock().unwrap_or_else(PoisonError::into_inner).try_wait()? {
            break status;
        }
        thread::sleep(POLL);
    };
    drop(seen);
    Ok(match (status.code(), status.signal()) {
        (Some(0), _) => VisitEnd::Exited { code: 0 },
        (None, Some(SIGKILL)) => {
            VisitEnd::Broken { reason: format!("reading the stacks took more than {} s", LOOK.as_secs()) }
        }
        _ => VisitEnd::Broken { reason: format!("reading the stacks failed ({status}): {}", said.trim()) },
    })
}

/// What a command writes, until it has ended or nobody wants it. `said` is dropped then.
fn pass_on(mut from: File, to: Stream, up: &Up, said: &Sender<()>) {
    let mut buffer = vec![0; READ_BYTES];
    loop {
        match from.read(&mut buffer) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            // Of a terminal that everybody has left, EIO.
            Ok(0) | Err(_) => break,
            Ok(count) => {
                if up.chunk(to, &buffer[..count]).is_err() {
                    break;
                }
            }
        }
    }
    // Nobody listens any more when the time for last words is over.
    let _ = said.send(());
}

/// What the visitor types, until they go; then the command is killed.
fn listen(mut stream: UnixStream, mut decoder: Decoder, mut guest: Guest) {
    let mut buffer = vec![0; READ_BYTES];
    loop {
        let kept = match decoder.next::<ToAgent>() {
            // A command that has closed its input does not want it.
            Ok(Some(Frame::Chunk(bytes))) => guest.stdin.as_mut().is_none_or(|stdin| write(stdin, &bytes, &stream)),
            Ok(Some(Frame::Message(ToAgent::InputEnds))) => false,
            Ok(Some(Frame::Message(ToAgent::Resized { rows, columns }))) => {
                // The old size stays then.
                let _ = guest.resize(shoal_sandbox::Terminal { rows, columns });
                true
            }
            Ok(Some(_)) | Err(_) => return,
            Ok(None) => match stream.read(&mut buffer) {
                Ok(0) => return,
                Ok(count) => {
                    decoder.push(&buffer[..count]);
                    true
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => true,
                Err(_) => return,
            },
        };
        if !kept {
            guest.stdin = None;
        }
    }
}

/// Writes what is typed, as far as it is read: says whether it was all, and the visitor is still
/// there.
fn write(stdin: &mut File, bytes: &[u8], visitor: &UnixStream) -> bool {
    for piece in bytes.chunks(PIPE_PIECE) {
        let mut waited = [PollFd::new(stdin, PollFlags::OUT), PollFd::new(visitor, PollFlags::RDHUP)];
        let ready = retry_on_intr(|| poll(&mut waited, None)).is_ok()
            && !waited[1].revents().intersects(PollFlags::RDHUP | PollFlags::HUP);
        if !ready || stdin.write_all(piece).is_err() {
            return false;
        }
    }
    true
}

/// The way to the server, shared by those who have something to say.
#[derive(Clone)]
struct Up(Arc<Mutex<UnixStream>>);

impl Up {
    fn message(&self, message: ToServer) -> io::Result<()> {
        self.frame(&Frame::Message(message))
    }

    fn chunk(&self, of: Stream, bytes: &[u8]) -> io::Result<()> {
        self.frame(&Frame::Chunk(of.chunk(bytes)))
    }

    fn frame(&self, frame: &Frame<ToServer>) -> io::Result<()> {
        let bytes = encode(frame).map_err(io::Error::other)?;
        self.0.lock().unwrap_or_else(PoisonError::into_inner).write_all(&bytes)
    }
}
