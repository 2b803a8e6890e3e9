//! Interpreters of this machine.

use std::path::{Path, PathBuf};

use crate::{EnvironmentError, Source};

/// An interpreter that environments can be made with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Python {
    /// The file itself, no link to it.
    pub(crate) executable: PathBuf,
    /// `3.11.7`.
    pub(crate) version: String,
    /// Where it is installed.
    pub(crate) prefix: PathBuf,
}

/// Says where the interpreter itself is, also from within a virtual environment; fails without what
/// makes virtual environments.
const PROBE: &str = "import ensurepip, os, sys, venv\n\
                     print(os.path.realpath(getattr(sys, '_base_executable', sys.executable)))\n\
                     print('.'.join(map(str, sys.version_info[:3])))\n\
                     print(os.path.realpath(sys.base_prefix))";

/// The first of these versions that this machine has.
pub(crate) fn find(name: &str, pythons: &[String], source: &Source) -> Result<Python, EnvironmentError> {
    let path = source.path();
    let of_version = |version: &String| {
        let names = [format!("python{version}"), "python3".to_owned(), "python".to_owned()];
        let mut candidates = names.iter().flat_map(|name| on_path(name, &path));
        candidates
            .find_map(|file| probe(&file, source).filter(|python| python.version.starts_with(&format!("{version}."))))
    };
    let found = pythons.iter().find_map(of_version);
    found.ok_or_else(|| EnvironmentError::NoPython { name: name.to_owned(), pythons: pythons.to_vec() })
}

/// Programs of this name, in the order of the path.
pub(crate) fn on_path(name: &str, path: &[PathBuf]) -> impl Iterator<Item = PathBuf> {
    path.iter().map(|directory| directory.join(name)).filter(|file| file.is_file()).collect::<Vec<_>>().into_iter()
}

fn probe(file: &Path, source: &Source) -> Option<Python> {
    let output =
        source.command(file).args(["-I", "-c", PROBE]).output().ok().filter(|output| output.status.success())?;
    let said = String::from_utf8(output.stdout).ok()?;
    let mut lines = said.lines();
    let (executable, version, prefix) = (lines.next()?.into(), lines.next()?.to_owned(), lines.next()?.into());
    Some(Python { executable, version, prefix })
}
