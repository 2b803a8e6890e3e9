//! Where things are, and how commands are run there.

use std::{
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::lints;

/// The checkout that we are called in.
pub(crate) struct Workspace {
    /// Repository's root.
    pub(crate) root: PathBuf,
    /// Cargo's target directory.
    pub(crate) target: PathBuf,
    /// `cargo metadata`, dependencies resolved.
    pub(crate) metadata: Value,
}

impl Workspace {
    /// Asks cargo. Where this program was compiled does not count: several checkouts may share a
    /// target directory.
    pub(crate) fn find() -> Result<Self> {
        let output = Command::new(env!("CARGO")).args(["metadata", "--format-version", "1"]).output();
        let output = output.context("could not run cargo metadata")?;
        ensure!(output.status.success(), "cargo metadata failed: {}", String::from_utf8_lossy(&output.stderr));
        let metadata: Value = serde_json::from_slice(&output.stdout)?;
        let path = |name: &str| {
            metadata[name].as_str().map(PathBuf::from).with_context(|| format!("cargo metadata names no {name}"))
        };
        Ok(Self { root: path("workspace_root")?, target: path("target_directory")?, metadata })
    }
}

/// The cargo that runs us, at the repository's root.
pub(crate) fn cargo(workspace: &Workspace) -> Command {
    let mut command = Command::new(env!("CARGO"));
    command.current_dir(&workspace.root);
    command
}

/// The same without clippy in its builds (see `lints`): for programs as users get them, and for
/// what is only read.
pub(crate) fn plain_cargo(workspace: &Workspace) -> Command {
    let mut command = cargo(workspace);
    command.env_remove(lints::WRAPPER);
    command
}

/// Cargo's messages for programs, and whether it exited with 0. What it builds is shown meanwhile.
pub(crate) fn messages(command: &mut Command) -> Result<(Vec<Value>, bool)> {
    command.arg("--message-format=json-render-diagnostics").stdout(Stdio::piped());
    eprintln!("$ {}", shown(command));
    let output = command.spawn().and_then(Child::wait_with_output);
    let output = output.with_context(|| format!("could not run {}", shown(command)))?;
    let lines = output.stdout.split(|byte| *byte == b'\n').filter(|line| line.starts_with(b"{"));
    Ok((lines.map(serde_json::from_slice).collect::<Result<_, _>>()?, output.status.success()))
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
