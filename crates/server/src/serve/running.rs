//! How a server serves and ends.

use std::{sync::atomic::Ordering, time::Duration};

use tokio::task::JoinSet;

use super::Server;
use crate::{ServerError, agent_stream, listeners};

/// Between two looks at whether the disk still takes what is written.
pub(super) const LOOK: Duration = Duration::from_millis(50);

impl Server {
    /// Serves until `stop` is ready. Running instances are left alone: their agents wait for the
    /// next server.
    ///
    /// # Errors
    /// [`ServerError::Disk`]: the disk has lost what was written. Nothing of that was acknowledged;
    /// the next start continues from what was written.
    /// [`ServerError::Thread`]: a thread panicked.
    pub async fn run(mut self, stop: impl Future<Output = ()>) -> Result<(), ServerError> {
        let mut connections = JoinSet::new();
        // Nothing else waits for a place to become free.
        let mut next = None;
        let mut stop = std::pin::pin!(stop);
        let mut look = tokio::time::interval(LOOK);
        let mut ended = loop {
            tokio::select! {
                () = &mut stop => break Ok(()),
                _ = look.tick() => if let Some(why) = self.failure() {
                    break Err(why);
                },
                connection = self.open.admit(), if next.is_some() => if let Some(caller) = next.take() {
                    let served = listeners::serve(caller, self.front.clone(), connection.clone());
                    connection.is_served_by(connections.spawn(served));
                },
                accepted = self.listeners.accept(), if next.is_none() => match accepted {
                    Ok(accepted) => next = Some(accepted),
                    Err(error) => {
                        tracing::warn!("accept: {error}");
                        tokio::time::sleep(Duration::from_millis(50)).await;
                    }
                },
                Some(_) = connections.join_next(), if !connections.is_empty() => {}
            }
        };
        drop(self.listeners);
        connections.shutdown().await;
        self.background.shutdown().await;
        self.agents_stopping.store(true, Ordering::SeqCst);
        agent_stream::wake(&self.socket);
        self.tuner.stop();
        self.core.stop();
        let audit = self.audit.clone();
        let _ = tokio::task::spawn_blocking(move || audit.end()).await;
        let tuners = self.tuner_threads.into_iter().map(|thread| ("tuner", thread));
        for (name, thread) in [("agents", self.agents_thread), ("core", self.core_thread), ("audit", self.audit_thread)]
            .into_iter()
            .chain(tuners)
        {
            let joined = tokio::task::spawn_blocking(move || thread.join()).await;
            if !matches!(joined, Ok(Ok(()))) {
                ended = ended.and(Err(ServerError::Thread(name)));
            }
        }
        // A socket that nobody answers would keep agents guessing.
        let _ = std::fs::remove_file(&self.socket);
        ended
    }

    /// Why the server cannot go on, if so.
    fn failure(&self) -> Option<ServerError> {
        let failures = [self.journal_rows.failure(), self.telemetry.failure(), self.objects.failure()];
        if let Some(why) = failures.into_iter().flatten().next() {
            return Some(ServerError::Disk(why.to_owned()));
        }
        // These threads end at shutdown, which comes later: one that has ended has panicked.
        let threads = [("core", &self.core_thread), ("agents", &self.agents_thread), ("audit", &self.audit_thread)];
        let tuners = self.tuner_threads.iter().map(|thread| ("tuner", thread));
        threads
            .into_iter()
            .chain(tuners)
            .find(|(_, thread)| thread.is_finished())
            .map(|(name, _)| ServerError::Thread(name))
    }
}
