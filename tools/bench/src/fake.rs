//! A server whose launcher starts nothing: what is measured with it is the server alone. It is a
//! process of its own, so that its memory and its start are a server's; only `bench` starts it, and
//! no setting of `shoal serve` makes one.

use std::{fs, path::Path, sync::Arc};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use shoal_launch::{AllocationSpec, AllocationStatus, LaunchError, Launcher, MemoryUse};

use shoal_cli::{exit::Exit, serve, settings::ServerFlags};

/// What an agent of an allocation would know, in the allocation's directory.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct AgentFile {
    /// The attempt.
    pub(super) attempt: String,
    /// Its secret.
    pub(super) token: String,
}

const AGENT_FILE: &str = "bench-agent.json";

impl AgentFile {
    /// Reads the file that the launcher left, if it has been there.
    pub(super) fn read(run_dir: &Path) -> Option<Self> {
        serde_json::from_slice(&fs::read(run_dir.join(AGENT_FILE)).ok()?).ok()
    }
}

/// Says that everything was started and lives.
struct Nothing;

impl Launcher for Nothing {
    fn submit(&self, spec: &AllocationSpec) -> Result<(), LaunchError> {
        let after = |name: &str| spec.args.iter().skip_while(|arg| *arg != name).nth(1).cloned().unwrap_or_default();
        let token = spec
            .env
            .iter()
            .find(|(name, _)| name == "SHOAL_AGENT_TOKEN")
            .map(|(_, value)| value.clone())
            .unwrap_or_default();
        let file = AgentFile { attempt: after("--attempt"), token };
        let (path, temporary) = (spec.dir.join(AGENT_FILE), spec.dir.join("bench-agent.new"));
        let bytes = serde_json::to_vec(&file).expect("two strings are always JSON");
        let written = fs::write(&temporary, bytes).and_then(|()| fs::rename(&temporary, &path));
        written.map_err(|source| LaunchError::Io { what: format!("write {}", path.display()), source })
    }

    fn add(&self, _: &AllocationSpec, _: &[u32]) -> Result<(), LaunchError> {
        Ok(())
    }

    fn remove(&self, _: &AllocationSpec, _: &[u32]) -> Result<(), LaunchError> {
        Ok(())
    }

    fn status(&self, specs: &[&AllocationSpec]) -> Vec<Result<AllocationStatus, LaunchError>> {
        specs.iter().map(|_| Ok(AllocationStatus::Running { lost: Vec::new() })).collect()
    }

    fn memory(&self, _: &[&AllocationSpec]) -> MemoryUse {
        MemoryUse::new()
    }

    fn stop(&self, _: &AllocationSpec) -> Result<(), LaunchError> {
        Ok(())
    }
}

/// Serves with it until SIGTERM.
pub(crate) fn run(flags: &ServerFlags) -> Result<Exit> {
    serve::with(flags, |options| options.launcher = Arc::new(Nothing)).context("the bench's server failed")
}
