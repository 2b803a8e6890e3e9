//! The demo's server: in this process, in a temporary directory, on a free port. It goes without
//! leaving anything behind.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use anyhow::{Context, Result, anyhow};
use shoal_server::Server;
use tempfile::TempDir;
use tokio::{
    runtime::Runtime,
    signal::unix::{Signal, SignalKind, signal},
    sync::Notify,
};

use super::leftovers;
use crate::{client::Client, serve, settings::Settings};

/// A server that lives as long as this.
pub(super) struct House {
    client: Client,
    settings: Settings,
    stop: Arc<Notify>,
    interrupted: Arc<AtomicBool>,
    thread: JoinHandle<()>,
    dir: TempDir,
}

impl House {
    /// Starts it, and listens for Ctrl-C from now on.
    ///
    /// # Errors
    /// It cannot be started.
    pub(super) fn open() -> Result<Self> {
        leftovers::sweep(&std::env::temp_dir());
        let dir = tempfile::Builder::new()
            .prefix(leftovers::PREFIX)
            .tempdir()
            .context("could not make a temporary directory")?;
        let settings = settings(&dir)?;
        let options = serve::options(&settings, shoal_algos::BUILT_IN, &shoal_sandbox::Support::probe())?;
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .enable_all()
            .build()
            .context("could not start the server's threads")?;
        let stop = Arc::new(Notify::new());
        let (tell, told) = mpsc::channel();
        let (told_stop, told_settings) = (stop.clone(), settings.clone());
        let thread = thread::Builder::new()
            .name("server".to_owned())
            .spawn(move || live(&runtime, options, &told_settings, &told_stop, &tell))
            .context("could not start the server's thread")?;
        told.recv().map_err(|_| anyhow!("the server's thread is gone"))??;
        let client = Client::local(&settings)?;
        let interrupted = Arc::new(AtomicBool::new(false));
        on_interrupt(interrupted.clone())?;
        Ok(Self { client, settings, stop, interrupted, thread, dir })
    }

    /// Speaks with it.
    pub(super) fn client(&self) -> &Client {
        &self.client
    }

    /// Whether Ctrl-C was pressed.
    pub(super) fn is_interrupted(&self) -> bool {
        self.interrupted.load(Ordering::SeqCst)
    }

    /// How to go on with a server that is kept.
    pub(super) fn invitation(&self) -> String {
        let dir = self.settings.data_dir.display();
        format!(
            "\nThe server stays up at {} until Ctrl-C. In another terminal:\n  export SHOAL_DATA_DIR={dir}\n  shoal \
             jobs list\n  eval \"$(shoal env)\"\n",
            self.client.url()
        )
    }

    /// Until Ctrl-C.
    pub(super) fn wait(&self) {
        while !self.is_interrupted() {
            thread::sleep(Duration::from_millis(50));
        }
    }

    /// Ends it and removes its directory.
    pub(super) fn close(self) {
        serve::wait_for_release(self.dir.path());
        self.stop.notify_one();
        // A server that panicked has said so.
        let _ = self.thread.join();
        drop(self.dir);
    }
}

fn settings(dir: &TempDir) -> Result<Settings> {
    let data_dir = dir.path().to_str().context("the temporary directory's name is not UTF-8")?;
    // Agents give up soon without a server: this one does not come back.
    Settings::of_flags(&[
        ("data_dir", data_dir),
        ("listen", "127.0.0.1:0"),
        ("lease_s", "5"),
        ("grace_s", "2"),
        ("log", "warn"),
    ])
}

/// The server's thread: tells whether it could be started, then serves until told to stop.
fn live(
    runtime: &Runtime,
    options: shoal_server::Options,
    settings: &Settings,
    stop: &Notify,
    tell: &mpsc::Sender<Result<()>>,
) {
    runtime.block_on(async {
        let started = Server::start(options).await.context("could not start the demo's server");
        let server = match started {
            Ok(server) => server,
            Err(error) => {
                let _ = tell.send(Err(error));
                return;
            }
        };
        serve::announce(settings, &server);
        let _ = tell.send(Ok(()));
        if let Err(error) = server.run(stop.notified()).await {
            tracing::error!("{error}");
        }
    });
}

/// Notes the first Ctrl-C, SIGTERM or closed terminal; the demo then stops what trains and leaves,
/// so that nothing outlives it.
fn on_interrupt(interrupted: Arc<AtomicBool>) -> Result<()> {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().context("could not listen for Ctrl-C")?;
    let kinds = [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()];
    let signals: io::Result<Vec<Signal>> = runtime.block_on(async { kinds.into_iter().map(signal).collect() });
    let mut signals = signals.context("could not listen for Ctrl-C")?;
    let listen = move || {
        runtime.block_on(async {
            let [interrupt, terminate, hangup] = &mut signals[..] else { return };
            tokio::select! { _ = interrupt.recv() => {} _ = terminate.recv() => {} _ = hangup.recv() => {} }
        });
        interrupted.store(true, Ordering::SeqCst);
    };
    thread::Builder::new().name("interrupt".to_owned()).spawn(listen).context("could not listen for Ctrl-C")?;
    Ok(())
}
