//! `shoal setup`: fetches libxgboost once, so that no training job waits for it.

use anyhow::Result;
use clap::Args;
use shoal_algos::library;

use crate::{
    exit::Exit,
    output::{Progress, show},
};

/// Arguments of `shoal setup`.
#[derive(Debug, Args)]
pub(crate) struct SetupArgs {}

/// Fetches unless it is there.
pub(crate) fn run(_: &SetupArgs) -> Result<Exit> {
    let found = ensure_library()?;
    show(&format!("libxgboost is at {}\n", found.file.display()))?;
    Ok(Exit::Ok)
}

/// The library, fetched with progress shown where it is not there.
///
/// # Errors
/// It can neither be found nor fetched; the text says what to do.
pub fn ensure_library() -> Result<library::LibraryPath> {
    let mut progress = Progress::on_stderr();
    Ok(library::fetch(&mut |step| progress.line(step))?)
}
