//! A server of its own for a measurement: another process, so that its memory is a server's and
//! nothing else's.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use tempfile::TempDir;

use shoal_cli::{client::Client, serve, settings::Settings};

/// Below the temporary directory: the server's data directory and its own log.
const DATA: &str = "data";
const SAID: &str = "said";
/// How long a server may take to come up.
const PATIENCE: Duration = Duration::from_secs(60);

/// Which server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// As users start it.
    Real,
    /// Its launcher starts nothing ([`super::fake`]).
    Fake,
    /// Its launcher plays trials ([`super::fake_trials`]).
    FakeTrials,
}

/// A child process in a temporary directory; ended and removed when this goes.
#[derive(Debug)]
pub(super) struct Server {
    kind: Kind,
    child: Child,
    client: Client,
    dir: TempDir,
}

impl Server {
    /// Starts one as users do and waits until it listens.
    ///
    /// # Errors
    /// It does not come up.
    pub(super) fn start() -> Result<Self> {
        Self::start_in(Kind::Real, None)
    }

    /// Starts one below `dir`, or in the system's temporary directory.
    ///
    /// # Errors
    /// It does not come up.
    pub(super) fn start_in(kind: Kind, dir: Option<&Path>) -> Result<Self> {
        Self::start_with(kind, dir, &[])
    }

    /// The same with variables set in its environment.
    ///
    /// # Errors
    /// It does not come up.
    pub(super) fn start_with(kind: Kind, dir: Option<&Path>, variables: &[(&str, &str)]) -> Result<Self> {
        let dir = temporary_dir(dir)?;
        let (child, client) = come_up(kind, &dir.path().join(DATA), variables)?;
        Ok(Self { kind, child, client, dir })
    }

    /// Ends it as SIGTERM does and starts it anew on the same data; says how long the second start
    /// took, in seconds, until it answers.
    ///
    /// # Errors
    /// It does not come up.
    pub(super) fn restart(&mut self) -> Result<f64> {
        self.terminate();
        let started = Instant::now();
        (self.child, self.client) = come_up(self.kind, &self.dir.path().join(DATA), &[])?;
        Ok(started.elapsed().as_secs_f64())
    }

    /// Speaks with it.
    pub(super) fn client(&self) -> &Client {
        &self.client
    }

    /// Its process id.
    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Its data directory.
    pub(super) fn data_dir(&self) -> PathBuf {
        self.dir.path().join(DATA)
    }

    /// What it has written to its own log.
    ///
    /// # Errors
    /// It cannot be read.
    pub(super) fn said(&self) -> Result<String> {
        fs::read_to_string(self.dir.path().join(SAID)).context("the server's log cannot be read")
    }

    /// Kills it, as a crash does.
    pub(super) fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    fn terminate(&mut self) {
        // It is our child and not yet waited for, so the id is its own.
        if matches!(self.child.try_wait(), Ok(None)) {
            let _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
            let _ = self.child.wait();
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if self.kind == Kind::Real {
            serve::wait_for_release(&self.data_dir());
        }
        self.terminate();
    }
}

/// A directory that goes when this does.
///
/// # Errors
/// It cannot be made.
pub(super) fn temporary_dir(below: Option<&Path>) -> Result<TempDir> {
    let mut builder = tempfile::Builder::new();
    builder.prefix("shoal-bench-");
    let dir = below.map_or_else(|| builder.tempdir(), |below| builder.tempdir_in(below));
    dir.context("could not make a temporary directory")
}

/// The program that users run: the one that `SHOAL_BIN` names, else the one beside this program.
///
/// # Errors
/// There is none.
pub(super) fn shoal() -> Result<PathBuf> {
    let named = std::env::var_os("SHOAL_BIN").map(PathBuf::from);
    let path = named.map_or_else(|| Ok(this_program()?.with_file_name("shoal")), anyhow::Ok)?;
    ensure!(
        path.is_file(),
        "there is no program {}: `cargo xtask bench` builds it, as `cargo build --package shoal-cli` does",
        path.display()
    );
    Ok(path)
}

/// This program.
///
/// # Errors
/// The system does not say where it is.
pub(super) fn this_program() -> Result<PathBuf> {
    std::env::current_exe().context("could not find this executable")
}

/// Until it listens, and the listener has answered.
fn come_up(kind: Kind, dir: &Path, variables: &[(&str, &str)]) -> Result<(Child, Client)> {
    let (program, subcommand) = match kind {
        Kind::Real => (shoal()?, "serve"),
        Kind::Fake => (this_program()?, "fake-server"),
        Kind::FakeTrials => (this_program()?, "fake-trials"),
    };
    let mut command = Command::new(program);
    command.args([subcommand, "--listen", "127.0.0.1:0", "--lease-s", "5", "--grace-s", "2", "--data-dir"]).arg(dir);
    let settings =
        Settings::of_flags(&[("data_dir", dir.to_str().context("the temporary directory's name is not UTF-8")?)])?;
    let said = dir.with_file_name(SAID);
    command.stderr(File::options().create(true).append(true).open(&said).context("could not make a file")?);
    if kind != Kind::Real {
        // What it says of itself is measured, too.
        command.args(["--log", "info"]);
    }
    command.envs(variables.iter().copied());
    // A server that was killed has left it.
    let _ = fs::remove_file(settings.address_file());
    let started = Instant::now();
    let mut child = command.stdout(Stdio::null()).spawn().context("could not start a server")?;
    while !settings.address_file().exists() {
        if let Some(status) = child.try_wait()? {
            bail!("the server ended: {status}\n{}", fs::read_to_string(said).unwrap_or_default());
        }
        if started.elapsed() > PATIENCE {
            let _ = child.kill();
            let _ = child.wait();
            bail!("the server did not come up within {PATIENCE:?}");
        }
        thread::sleep(Duration::from_millis(1));
    }
    let client = Client::local(&settings)?;
    client.sagemaker("ListTrainingJobs", &json!({"MaxResults": 1}))?;
    Ok((child, client))
}
