//! The peer: s3s-fs, another S3 server over plain files from the crate registry.

use std::{
    env,
    net::{TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use shoal_wire::{
    client::{Endpoint, Scheme},
    sigv4::Credentials,
};
use tempfile::TempDir;

use crate::server::temporary_dir;

/// How often it is started until it comes up.
const TRIES: usize = 5;
/// How long it may take to come up.
const PATIENCE: Duration = Duration::from_secs(10);

/// Its executable, where `cargo xtask bench` installs it or where the user says.
///
/// # Errors
/// The user names a file that is not there.
pub(super) fn find(named: Option<&Path>) -> Result<Option<PathBuf>> {
    if let Some(path) = named {
        ensure!(path.is_file(), "no program at {}", path.display());
        return Ok(Some(path.to_owned()));
    }
    let home = env::var_os("HOME").map(PathBuf::from).unwrap_or_default();
    Ok(Some(home.join(".cache/shoal/peers/bin/s3s-fs")).filter(|path| path.is_file()))
}

/// A running one, in a temporary directory.
pub(super) struct Peer {
    child: Child,
    endpoint: Endpoint,
    dir: TempDir,
}

impl Peer {
    /// Starts it and waits until it listens.
    ///
    /// # Errors
    /// It does not come up.
    pub(super) fn start(program: &Path, below: Option<&Path>) -> Result<Self> {
        // The port that was free may be taken when the peer comes to it.
        (1..TRIES)
            .find_map(|_| Self::try_start(program, below).ok())
            .map_or_else(|| Self::try_start(program, below), Ok)
    }

    fn try_start(program: &Path, below: Option<&Path>) -> Result<Self> {
        let dir = temporary_dir(below)?;
        // It cannot be asked which free port it took.
        let port =
            TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).context("no port is free")?.port();
        let (id, secret) = ("AKIABENCH", "bench-secret");
        let mut command = Command::new(program);
        command
            .args(["--host", "127.0.0.1", "--port", &port.to_string(), "--access-key", id, "--secret-key", secret])
            .arg(dir.path());
        let mut child = command
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .with_context(|| format!("could not run {}", program.display()))?;
        let authority = format!("127.0.0.1:{port}");
        let started = Instant::now();
        while TcpStream::connect(&authority).is_err() {
            if let Some(status) = child.try_wait()? {
                anyhow::bail!("{} ended: {status}", program.display());
            }
            if started.elapsed() > PATIENCE {
                let _ = child.kill();
                let _ = child.wait();
                anyhow::bail!("{} does not listen", program.display());
            }
            thread::sleep(Duration::from_millis(5));
        }
        let credentials =
            Credentials { access_key_id: id.to_owned(), secret_access_key: secret.to_owned(), session_token: None };
        Ok(Self {
            child,
            endpoint: Endpoint { scheme: Scheme::HTTP, authority, region: "us-east-1".to_owned(), credentials },
            dir,
        })
    }

    /// Where it keeps what it is given.
    pub(super) fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Where it listens, and its keys.
    pub(super) fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
