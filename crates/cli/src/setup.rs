//! `shoal setup`: fetches the libraries of built-in algorithms once, so that no training job waits
//! for them.

use anyhow::Result;
use clap::Args;
use shoal_algos::{Algorithms, Library, LibraryPath};

use crate::{
    exit::Exit,
    output::{Progress, show},
};

/// Arguments of `shoal setup`.
#[derive(Debug, Args)]
pub(crate) struct SetupArgs {}

/// Fetches those that are not there.
pub(crate) fn run(_: &SetupArgs, algorithms: Algorithms) -> Result<Exit> {
    for library in algorithms.libraries() {
        let found = fetch(library)?;
        show(&format!("{} is at {}\n", library.file_stem(), found.file.display()))?;
    }
    Ok(Exit::Ok)
}

/// A library, fetched with progress shown where it is not there.
///
/// # Errors
/// It can neither be found nor fetched; the text says what to do.
pub fn fetch(library: &'static Library) -> Result<LibraryPath> {
    let mut progress = Progress::on_stderr();
    Ok(library.fetch(&mut |step| progress.line(step))?)
}
