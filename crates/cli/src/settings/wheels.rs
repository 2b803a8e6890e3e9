//! Wheels: a directory of those that environments are made from, and that of Shoal's own package.

use std::path::{Path, PathBuf};

use anyhow::Result;

use super::{Typed, wrong};

pub(super) fn wheel_house(typed: &Typed) -> Result<Option<PathBuf>> {
    let path = Path::new(typed.value("wheel_house"));
    match path {
        _ if path == Path::new("none") => Ok(None),
        _ if path.is_dir() => Ok(Some(std::path::absolute(path)?)),
        _ => Err(wrong(typed, "wheel_house", "a directory that is there, or `none`")),
    }
}

pub(super) fn python_package(typed: &Typed) -> Result<Option<PathBuf>> {
    let path = Path::new(typed.value("python_package"));
    match path {
        _ if path == Path::new("none") => Ok(None),
        _ if path == Path::new("auto") => Ok(std::env::current_exe().ok().and_then(|program| wheel_beside(&program))),
        _ if path.is_file() => Ok(Some(std::path::absolute(path)?)),
        _ => Err(wrong(typed, "python_package", "a file that is there, `auto` or `none`")),
    }
}

/// The wheel of this version in the program's directory, or in `wheels` beside it, where
/// `cargo xtask package` puts it.
fn wheel_beside(program: &Path) -> Option<PathBuf> {
    let directory = program.parent()?;
    let start = concat!("shoal-", env!("CARGO_PKG_VERSION"), "-");
    let is_ours = |name: &str| name.starts_with(start) && name.ends_with(".whl");
    [directory.to_owned(), directory.parent()?.join("wheels")].into_iter().find_map(|place| {
        let files = std::fs::read_dir(place).ok()?.filter_map(|entry| Some(entry.ok()?.path()));
        files.filter(|path| path.file_name().and_then(|name| name.to_str()).is_some_and(is_ours)).max()
    })
}
