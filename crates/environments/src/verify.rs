//! Whether an environment still is what was installed: every file against the digest that its
//! wheel's list of files (`RECORD`) has for it. Nothing of the environment is run: what a job
//! required is the job's code.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Component, Path, PathBuf};

use base64_simd::URL_SAFE_NO_PAD;
use rustix::fs::OFlags;
use sha2::digest::DynDigest;
use sha2::{Sha256, Sha384, Sha512};

use crate::{Cache, Cached, EnvironmentError, Record};

/// How a look at an environment came out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    /// So many files have a digest.
    pub files: u64,
    /// Those that are gone or are others, in sentences.
    pub problems: Vec<String>,
}

impl Cache {
    /// Reads every file of an environment that is whole.
    ///
    /// # Errors
    /// Its packages or a list of their files cannot be read.
    pub fn verify(&self, cached: &Cached<Record>) -> Result<Verdict, EnvironmentError> {
        let Some(record) = &cached.record else {
            return Ok(Verdict { files: 0, problems: vec!["it is not whole".to_owned()] });
        };
        let mut verdict = Verdict { files: 0, problems: Vec::new() };
        for list in lists(&record.site_packages).map_err(EnvironmentError::io("read", &record.site_packages))? {
            let rows = rows(&list).map_err(EnvironmentError::io("read", &list))?;
            for (path, digest) in rows {
                verdict.files += 1;
                if let Err(problem) = check(&cached.directory, &record.site_packages, &path, &digest) {
                    verdict.problems.push(problem);
                }
            }
        }
        Ok(verdict)
    }
}

/// The packages' lists, by name.
fn lists(site_packages: &Path) -> io::Result<Vec<PathBuf>> {
    let mut lists = Vec::new();
    for entry in fs::read_dir(site_packages)? {
        let list = entry?.path().join("RECORD");
        if list.parent().is_some_and(|info| info.extension().is_some_and(|end| end == "dist-info")) && list.is_file() {
            lists.push(list);
        }
    }
    lists.sort();
    Ok(lists)
}

/// Paths with their digests; the list itself and what was compiled have none.
fn rows(list: &Path) -> io::Result<Vec<(PathBuf, String)>> {
    let mut rows = Vec::new();
    for row in csv::ReaderBuilder::new().has_headers(false).flexible(true).from_path(list)?.into_records() {
        let row = row?;
        if let (Some(path), Some(digest)) = (row.get(0), row.get(1).filter(|digest| !digest.is_empty())) {
            rows.push((path.into(), digest.to_owned()));
        }
    }
    Ok(rows)
}

/// Whether the file at `path`, which begins in `from`, has this digest (`sha256=` and base64); what
/// is wrong in a sentence. Nothing outside of `directory` is read.
fn check(directory: &Path, from: &Path, path: &Path, digest: &str) -> Result<(), String> {
    let file = plain(&from.join(path));
    let failed = |why: &str| format!("{}: {why}", file.display());
    if !file.starts_with(directory) {
        return Err(failed("its package's list has it outside of the environment"));
    }
    let (kind, expected) = digest.split_once('=').unwrap_or((digest, ""));
    let mut hash: Box<dyn DynDigest> = match kind {
        "sha256" => Box::<Sha256>::default(),
        "sha384" => Box::<Sha384>::default(),
        "sha512" => Box::<Sha512>::default(),
        other => {
            return Err(failed(&format!(
                "its package's list has a digest of the kind \"{other}\", which is not secure"
            )));
        }
    };
    let mut file = open(&file).map_err(|error| failed(&error.to_string()))?.ok_or_else(|| failed("it is no file"))?;
    let mut buffer = vec![0; 1 << 18];
    loop {
        match file.read(&mut buffer) {
            Ok(0) => break,
            Ok(count) => hash.update(&buffer[..count]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(failed(&error.to_string())),
        }
    }
    match URL_SAFE_NO_PAD.encode_to_string(hash.finalize()) == expected {
        true => Ok(()),
        false => Err(failed("it is not the file that was installed")),
    }
}

/// Without `..`, by its text alone.
fn plain(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for component in path.components() {
        match component {
            Component::ParentDir => drop(plain.pop()),
            component => plain.push(component),
        }
    }
    plain
}

/// An ordinary file, and no link to one.
fn open(path: &Path) -> io::Result<Option<File>> {
    if !fs::symlink_metadata(path)?.is_file() {
        return Ok(None);
    }
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits();
    let file = OpenOptions::new().read(true).custom_flags(flags as i32).open(path)?;
    Ok(file.metadata()?.is_file().then_some(file))
}
