//! A server of its own for a measurement: another process, so that its memory is a server's and nothing else's.

use std::{
    collections::BTreeMap,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::{
    client::Client,
    serve,
    settings::{Settings, Typed},
};

/// How long a server may take to come up.
const PATIENCE: Duration = Duration::from_secs(30);

/// A child process in a temporary directory; ended and removed when this goes.
#[derive(Debug)]
pub(super) struct Server {
    child: Child,
    client: Client,
    dir: TempDir,
}

impl Server {
    /// Starts one and waits until it listens.
    ///
    /// # Errors
    /// It does not come up.
    pub(super) fn start() -> Result<Self> {
        let dir = tempfile::Builder::new().prefix("shoal-bench-").tempdir().context("could not make a temporary directory")?;
        let program = std::env::current_exe().context("could not find this executable")?;
        let mut command = Command::new(program);
        command.args(["serve", "--listen", "127.0.0.1:0", "--lease-s", "5", "--grace-s", "2", "--data-dir"]).arg(dir.path());
        let mut child = command.stdout(Stdio::null()).spawn().context("could not start a server")?;
        let flags = [("data_dir", dir.path().to_str().context("the temporary directory's name is not UTF-8")?)];
        let flags = flags.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let settings = Settings::of(&Typed::gather(&BTreeMap::from(flags), &|name| std::env::var(name).ok(), &|_| Ok(None))?)?;
        let started = Instant::now();
        while !settings.address_file().exists() {
            if let Some(status) = child.try_wait()? {
                bail!("the server ended: {status}");
            }
            if started.elapsed() > PATIENCE {
                let _ = child.kill();
                bail!("the server did not come up within {PATIENCE:?}");
            }
            thread::sleep(Duration::from_millis(5));
        }
        Ok(Self { client: Client::local(&settings)?, child, dir })
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
    pub(super) fn data_dir(&self) -> &std::path::Path {
        self.dir.path()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        serve::wait_for_release(self.dir.path());
        // It is our child and not yet waited for, so the id is its own.
        let _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
        let _ = self.child.wait();
    }
}
