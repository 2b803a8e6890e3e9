//! Where things are, and how commands are run there.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

/// The checkout that this xtask was built from.
pub(crate) struct Workspace {
    /// Repository's root.
    pub(crate) root: PathBuf,
    /// Cargo's target directory.
    pub(crate) target: PathBuf,
    /// `cargo metadata`, dependencies resolved.
    pub(crate) metadata: Value,
}

impl Workspace {
    /// Asks cargo.
    pub(crate) fn find() -> Result<Self> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("xtask lies in the repository")?.to_owned();
        let output = Command::new(env!("CARGO"))
            .args(["metadata", "--format-version", "1"])
            .current_dir(&root)
            .output()
            .context("could not run cargo metadata")?;
        ensure!(output.status.success(), "cargo metadata failed: {}", String::from_utf8_lossy(&output.stderr));
        let metadata: Value = serde_json::from_slice(&output.stdout)?;
        let target = metadata["target_directory"].as_str().context("cargo metadata names its target directory")?.into();
        Ok(Self { root, target, metadata })
    }
}

/// The cargo that runs us, at the repository's root.
pub(crate) fn cargo(workspace: &Workspace) -> Command {
    let mut command = Command::new(env!("CARGO"));
    command.current_dir(&workspace.root);
    command
}

/// Runs a command to its end, output passed through, and says whether it exited with 0.
pub(crate) fn succeeds(command: &mut Command) -> Result<bool> {
    eprintln!("$ {}", shown(command));
    let status = command.status().with_context(|| format!("could not run {}", shown(command)))?;
    Ok(status.success())
}

/// A command as a person would type it.
pub(crate) fn shown(command: &Command) -> String {
    let program = Path::new(command.get_program()).file_name().unwrap_or(command.get_program());
    let words = std::iter::once(program).chain(command.get_args());
    words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
}
