//! Looking after agents: whether they live.

use std::{
    fs,
    sync::Arc,
    time::{Duration, Instant},
};

use shoal_launch::AllocationStatus;
use shoal_plane::{Command, InstanceReport};

use crate::{
    attempts::Attempt,
    effects::{World, describe},
};

/// Between two looks.
const WATCH: Duration = Duration::from_millis(500);

impl World {
    /// Looks whether agents have died without saying so, for as long as the server lives.
    pub(crate) async fn watch(self: Arc<Self>) {
        let mut before = Instant::now();
        loop {
            tokio::time::sleep(WATCH).await;
            // A server that was stopped meanwhile has not listened meanwhile.
            let passed = before.elapsed().min(2 * WATCH);
            before = Instant::now();
            let world = self.clone();
            let looked = tokio::task::spawn_blocking(move || {
                world.attempts.all().iter().for_each(|attempt| world.look(attempt, passed));
                world.weigh();
                world.looks.drop_idle();
            })
            .await;
            if let Err(error) = looked {
                tracing::error!("the watch panicked: {error}");
            }
        }
    }

    /// Reports the instances of an attempt whose agent is gone, or has been silent for too long.
    fn look(&self, attempt: &Attempt, passed: Duration) {
        if attempt.is_called() {
            return;
        }
        let lost = match self.launcher.status(&attempt.allocation) {
            Ok(AllocationStatus::Running { lost }) => lost,
            Ok(AllocationStatus::Ended) => (1..=attempt.allocation.instances).collect(),
            Ok(AllocationStatus::Unknown | AllocationStatus::Queued { .. }) => return,
            Err(error) => return tracing::warn!("{}", describe(&error)),
        };
        for (host, silent) in attempt.listened(passed) {
            if lost.contains(&host) {
                let log = attempt.allocation.dir.join(format!("agent-{host}.log"));
                let said = fs::read_to_string(log).unwrap_or_default();
                let last = said
                    .lines()
                    .rev()
                    .find(|line| !line.trim().is_empty() && !line.starts_with("note: run with `RUST_BACKTRACE"))
                    .map_or_else(String::new, |line| format!(": {line}"));
                self.lose(attempt, host, format!("the agent of algo-{host} ended without a report{last}"));
            } else if silent >= self.silence {
                let seconds = silent.as_secs();
                let what = "it was stopped, or its machine hangs, and what runs there is ended";
                self.lose(attempt, host, format!("the agent of algo-{host} was silent for {seconds} s: {what}"));
            }
        }
    }

    fn lose(&self, attempt: &Attempt, host: u32, reason: String) {
        let report = InstanceReport::Lost { reason };
        let command = Command::InstanceReported { attempt: attempt.plan.attempt.clone(), host, report };
        if let Err(refusal) = self.core.tell(command) {
            tracing::warn!("{refusal}");
        }
    }
}
