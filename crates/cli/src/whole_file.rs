//! Files that are whole when they are there.

use std::{fs, path::Path};

use anyhow::{Context, Result};

/// Writes a file beside its place first.
///
/// # Errors
/// It cannot be written.
pub(crate) fn write(path: &Path, text: &str) -> Result<()> {
    let beside = path.with_extension("html.part");
    fs::write(&beside, text)
        .and_then(|()| fs::rename(&beside, path))
        .with_context(|| format!("could not write {}", path.display()))
}
