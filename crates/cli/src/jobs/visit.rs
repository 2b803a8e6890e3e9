//! A visit to a running instance over the public API: what is typed goes there, what comes from
//! there is written here.

use std::{
    io::{self, IsTerminal, Read, Write},
    sync::Arc,
    thread,
};

use anyhow::{Context, Result, anyhow};
use rustix::termios::{OptionalActions, Termios, Winsize, tcgetattr, tcgetwinsize, tcsetattr};
use serde_json::{Value, json};
use shoal_wire::{FEED_VISIT, READ_VISIT, START_VISIT};
use signal_hook::{consts::SIGWINCH, iterator::Signals};

use crate::client::{Client, Noun};

/// Bytes of input that are sent at once.
const INPUT_BYTES: usize = 64 << 10;

/// How a visit ended.
pub(crate) enum End {
    /// As a shell tells it.
    Code(i32),
    /// It did not come to its end.
    Broken(String),
}

/// A visit that has begun.
pub(crate) struct Visit {
    client: Arc<Client>,
    id: String,
}

impl Visit {
    /// Begins one: `what` is the request's rest, beside the training job's name and the rank.
    pub(crate) fn start(client: &Arc<Client>, job: &str, rank: u32, mut what: Value) -> Result<Self> {
        what["TrainingJobName"] = json!(job);
        what["Rank"] = json!(rank);
        let answer = client
            .sagemaker(START_VISIT, &what)
            .map_err(|error| client.explained(error, Noun::TrainingJob, "exec", job))?;
        let id = answer["VisitId"].as_str().ok_or_else(|| client.not_understood("a visit without an id".to_owned()))?;
        Ok(Self { client: client.clone(), id: id.to_owned() })
    }

    /// Takes output until the visit is over. `write` gets it, and whether it is standard error's.
    pub(crate) fn read(&self, mut write: impl FnMut(bool, &[u8]) -> io::Result<()>) -> Result<End> {
        loop {
            let answer =
                self.client.sagemaker(READ_VISIT, &json!({"VisitId": self.id})).context("the visit broke off")?;
            for piece in answer["Output"].as_array().into_iter().flatten() {
                let data = piece["Data"].as_str().unwrap_or_default();
                let bytes = base64_simd::STANDARD
                    .decode_to_vec(data)
                    .map_err(|error| self.client.not_understood(error.to_string()))?;
                write(piece["Stream"] == "stderr", &bytes)?;
            }
            let end = &answer["End"];
            let number = |name: &str| end[name].as_i64().and_then(|number| i32::try_from(number).ok());
            match (end.is_null(), number("ExitCode"), number("Signal")) {
                (true, ..) => {}
                (_, Some(code), _) => return Ok(End::Code(code)),
                (_, _, Some(signal)) => return Ok(End::Code(128 + signal)),
                _ => {
                    return Ok(End::Broken(end["Reason"].as_str().unwrap_or("the server does not say why").to_owned()));
                }
            }
        }
    }

    /// Sends what comes from standard input, in a thread, until that or the visit ends.
    pub(crate) fn feed(&self) -> Result<()> {
        let (client, id) = (self.client.clone(), self.id.clone());
        let feed = move || {
            let (mut stdin, mut buffer) = (io::stdin().lock(), vec![0; INPUT_BYTES]);
            loop {
                let count = match stdin.read(&mut buffer) {
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                    // Input that cannot be read is at its end.
                    Ok(count) => count,
                    Err(_) => 0,
                };
                let input = base64_simd::STANDARD.encode_to_string(&buffer[..count]);
                // The reader hears why a visit is over.
                if !bring(&client, &json!({"VisitId": id, "Input": input, "IsEnd": count == 0})) || count == 0 {
                    return;
                }
            }
        };
        thread::Builder::new().name("input".to_owned()).spawn(feed).context("could not read standard input")?;
        Ok(())
    }

    /// Tells the size of this terminal whenever it changes, in a thread.
    pub(crate) fn follow_size(&self) -> Result<()> {
        let mut signals = Signals::new([SIGWINCH]).context("could not listen for the terminal's size")?;
        let (client, id) = (self.client.clone(), self.id.clone());
        let follow = move || {
            for _ in &mut signals {
                if let Ok(Winsize { ws_row, ws_col, .. }) = tcgetwinsize(io::stdin()) {
                    bring(&client, &json!({"VisitId": id, "Size": [ws_row, ws_col]}));
                }
            }
        };
        thread::Builder::new()
            .name("size".to_owned())
            .spawn(follow)
            .context("could not listen for the terminal's size")?;
        Ok(())
    }
}

impl Drop for Visit {
    /// One that has not ended is not wanted any more.
    fn drop(&mut self) {
        // The server finds it out by itself, a little later.
        let _ = self.client.sagemaker(FEED_VISIT, &json!({"VisitId": self.id, "IsLeft": true}));
    }
}

/// Until it is taken; `false` when the visit is over.
fn bring(client: &Client, what: &Value) -> bool {
    loop {
        match client.sagemaker(FEED_VISIT, what) {
            Ok(answer) if answer["IsTaken"] == false => {}
            done => return done.is_ok(),
        }
    }
}

/// This terminal, handed through: every key goes to the visited command. As it was when this is
/// dropped.
pub(crate) struct Raw(Termios);

impl Raw {
    /// What the server is to know of it; `None` if standard input or output is none.
    pub(crate) fn terminal() -> Result<Option<Value>> {
        if !(io::stdin().is_terminal() && io::stdout().is_terminal()) {
            return Ok(None);
        }
        let size = tcgetwinsize(io::stdin()).context("could not read the terminal's size")?;
        let name = std::env::var("TERM").unwrap_or_else(|_| "dumb".to_owned());
        Ok(Some(json!({"Name": name, "Rows": size.ws_row, "Columns": size.ws_col})))
    }

    pub(crate) fn enter() -> Result<Self> {
        let failed = "could not set the terminal";
        let before = tcgetattr(io::stdin()).context(failed)?;
        let mut raw = before.clone();
        raw.make_raw();
        tcsetattr(io::stdin(), OptionalActions::Now, &raw).context(failed)?;
        Ok(Self(before))
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        // A terminal that is gone needs nothing.
        let _ = tcsetattr(io::stdin(), OptionalActions::Now, &self.0);
    }
}

/// To our own standard output or error.
pub(crate) fn write(is_stderr: bool, bytes: &[u8]) -> io::Result<()> {
    let mut out: Box<dyn Write> = if is_stderr { Box::new(io::stderr().lock()) } else { Box::new(io::stdout().lock()) };
    out.write_all(bytes)?;
    out.flush()
}

/// The error of a visit that broke off.
pub(crate) fn broken(job: &str, rank: u32, reason: &str) -> anyhow::Error {
    anyhow!("algo-{} of training job {job}: {reason}", rank + 1)
}
