//! clippy. It reads what the compiler reads, so where `RUSTC_WORKSPACE_WRAPPER` names it, as in
//! `.ci/run`, the build looks for its findings on the way. Elsewhere `cargo clippy` does, which
//! compiles everything foreign once more.

use std::{env, path::Path};

use anyhow::Result;

use crate::workspace::{Workspace, cargo, messages, succeeds};

/// What cargo starts in place of rustc for the workspace's own crates.
pub(crate) const WRAPPER: &str = "RUSTC_WORKSPACE_WRAPPER";

/// Whether clippy and rustc find nothing in these targets. Cargo repeats what it has compiled
/// before.
pub(crate) fn find_nothing(workspace: &Workspace, targets: &[&str]) -> Result<bool> {
    if !are_found_by_builds() {
        return succeeds(cargo(workspace).arg("clippy").args(targets).args(["--", "-D", "warnings"]));
    }
    let (messages, succeeded) = messages(cargo(workspace).args(["test", "--no-run"]).args(targets))?;
    let is_finding = |level: &str| level == "warning" || level == "error";
    let found = messages.iter().filter(|it| it["message"]["level"].as_str().is_some_and(is_finding)).count();
    eprintln!("clippy: {found} findings");
    Ok(succeeded && found == 0)
}

fn are_found_by_builds() -> bool {
    env::var_os(WRAPPER).is_some_and(|wrapper| Path::new(&wrapper).file_name().is_some_and(|it| it == "clippy-driver"))
}
