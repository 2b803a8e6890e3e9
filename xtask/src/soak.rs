//! `cargo xtask soak`: what CI has a part of. All of torch's own suite and the runs on more ranks,
//! kills for many times as long, and histories of the control core from many seeds.

use std::{env, process::Command};

use anyhow::{Result, bail};

use crate::{
    clients,
    environment::Environments,
    frameworks,
    outcome::Outcome,
    python_package,
    workspace::{Workspace, cargo, succeeds},
};

/// Seeds of histories; CI's tests take some of them.
const SEEDS: &str = "5000";

/// Whether this is the task.
pub(crate) fn is_asked_for() -> bool {
    env::args().nth(1).is_some_and(|task| task == "soak")
}

/// Runs it all, an hour or more, and reports as the tests do.
///
/// # Errors
/// Something cannot be run.
pub(crate) fn run(workspace: &Workspace) -> Result<bool> {
    let environments = Environments::find(workspace)?;
    let Some(package) = environments.package()? else { bail!("the package registry cannot be reached") };
    let clients = environments.clients()?;
    if !succeeds(cargo(workspace).args(["build", "--package", "shoal-cli"]))? {
        bail!("the program does not build");
    }
    let shoal = workspace.target.join("debug/shoal");
    let mut outcome = Outcome::default();
    outcome.count("shoal setup", succeeds(Command::new(&shoal).arg("setup"))?);
    let seeds = ["run", "--quiet", "--package", "shoal-sim", "--example", "seeds", "--", "--seeds", SEEDS];
    outcome.count("histories of the control core", succeeds(cargo(workspace).args(seeds))?);
    let torch = frameworks::prepare(&shoal, workspace, &mut outcome)?;
    python_package::run(workspace, &package, torch.as_deref(), &mut outcome)?;
    clients::soak(workspace, &clients, &shoal, &mut outcome)?;
    Ok(outcome.report())
}
