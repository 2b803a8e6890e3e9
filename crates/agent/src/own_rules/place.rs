//! The files of an evaluation, in a directory of the agent's own that the rule's process sees
//! read-only: the rule's source, the program that evaluates it, its description, and views of the
//! tensors.
//!
//! A view is a directory of links to what the tensors' directory has. The mark of a run's end is in
//! the view alone: in the directory itself it would go to S3 before the last tensors do.

use std::fs::{self, File, Permissions};
use std::io;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::source::{self, SourceError};

/// Evaluates a rule.
const PROGRAM: &str = include_str!("../../python/rule/own_rule.py");
/// The files of a run.
const PARTS: [&str; 4] = ["claim.smd", "collections", "events", "index"];
/// The mark of a run that has ended.
const END: &str = "training_job_end.ts";
/// How names of archives end.
const ARCHIVES: [&str; 2] = [".tar.gz", ".tgz"];
/// The view of the job's own tensors.
const OWN: &str = "tensors";

/// Where the files of an evaluation are.
#[derive(Debug, Clone)]
pub(super) struct Place(PathBuf);

impl Place {
    pub(super) fn new(directory: PathBuf) -> Self {
        Self(directory)
    }

    pub(super) fn directory(&self) -> &Path {
        &self.0
    }

    /// The rule's source.
    pub(super) fn source(directory: &Path) -> PathBuf {
        directory.join("source")
    }

    /// The program that evaluates it.
    pub(super) fn program(directory: &Path) -> PathBuf {
        directory.join("own_rule.py")
    }

    /// What it evaluates.
    pub(super) fn description(directory: &Path) -> PathBuf {
        directory.join("rule.json")
    }

    /// The view of the job's own tensors.
    pub(super) fn tensors(directory: &Path) -> PathBuf {
        directory.join(OWN)
    }

    /// The view of the tensors of another training job.
    pub(super) fn other_run(directory: &Path, number: usize) -> PathBuf {
        directory.join(format!("run-{number}"))
    }

    /// Makes all but the views. `tree` has the rule's source, `uri` is for messages.
    pub(super) fn fill(&self, tree: &Path, uri: &str, description: &Value) -> Result<(), SourceError> {
        let unreadable = |source| SourceError::Unreadable { name: uri.to_owned(), source };
        let directory = Self::source(&self.0);
        fs::create_dir_all(&directory).map_err(unreadable)?;
        match archive_in(tree).map_err(unreadable)? {
            Some(archive) => source::unpack(&archive, uri, &directory)?,
            None => source::copy(tree, uri, &directory)?,
        }
        show(&directory).map_err(unreadable)?;
        fs::write(Self::program(&self.0), PROGRAM).map_err(unreadable)?;
        fs::write(Self::description(&self.0), description.to_string()).map_err(unreadable)
    }

    /// Makes a view of the directory `tensors`, as the rule's process names it.
    pub(super) fn view(view: &Path, tensors: &Path) -> io::Result<()> {
        fs::create_dir_all(view)?;
        PARTS.iter().try_for_each(|part| symlink(tensors.join(part), view.join(part)))
    }

    /// Marks the job's own run as ended. Fails where there is no view yet.
    pub(super) fn mark_end(&self) {
        let _ = Self::mark(&Self::tensors(&self.0));
    }

    /// Marks the run of a view as ended.
    pub(super) fn mark(view: &Path) -> io::Result<()> {
        File::create(view.join(END)).map(drop)
    }
}

/// The archive, if that is all that the tree has.
fn archive_in(tree: &Path) -> io::Result<Option<PathBuf>> {
    let mut entries = fs::read_dir(tree)?;
    let (Some(first), None) = (entries.next().transpose()?, entries.next()) else { return Ok(None) };
    let name = first.file_name();
    let is_archive = ARCHIVES.iter().any(|ending| name.to_string_lossy().ends_with(ending));
    Ok(is_archive.then(|| first.path()))
}

/// The process has another user, and archives have modes of their own.
fn show(directory: &Path) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let metadata = entry.metadata()?;
        if metadata.is_dir() {
            show(&entry.path())?;
        } else if metadata.is_file() {
            let mode = metadata.permissions().mode();
            fs::set_permissions(entry.path(), Permissions::from_mode(mode | 0o444))?;
        }
    }
    let mode = fs::metadata(directory)?.permissions().mode();
    fs::set_permissions(directory, Permissions::from_mode(mode | 0o555))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_view_has_the_parts_of_a_run_and_an_end_of_its_own() {
        let directory = tempfile::tempdir().unwrap();
        let (tensors, tree) = (directory.path().join("saved"), directory.path().join("tree"));
        fs::create_dir(&tree).unwrap();
        fs::write(tree.join("mine.py"), "class Mine: pass").unwrap();
        let place = Place::new(directory.path().join("rules/0"));
        place.mark_end();
        assert!(!place.directory().exists(), "nothing is made of a run that has no view");
        place.fill(&tree, "s3://b/mine.py", &serde_json::json!({"rule": "Mine"})).unwrap();
        Place::view(&Place::tensors(place.directory()), &tensors).unwrap();
        let view = Place::tensors(place.directory());
        assert!(fs::read_dir(view.join("index")).is_err(), "nothing was saved yet");
        fs::create_dir_all(tensors.join("index/000000000")).unwrap();
        assert_eq!(fs::read_dir(view.join("index")).unwrap().count(), 1);
        place.mark_end();
        assert!(view.join(END).exists() && !tensors.join(END).exists());
        assert_eq!(fs::read_to_string(Place::source(place.directory()).join("mine.py")).unwrap(), "class Mine: pass");
    }

    #[test]
    fn one_archive_is_unpacked_and_its_files_can_be_read() {
        let directory = tempfile::tempdir().unwrap();
        let tree = directory.path().join("tree");
        fs::create_dir(&tree).unwrap();
        let gzip =
            flate2::write::GzEncoder::new(File::create(tree.join("rule.tar.gz")).unwrap(), flate2::Compression::fast());
        let mut archive = tar::Builder::new(gzip);
        let mut header = tar::Header::new_gnu();
        header.set_size(4);
        header.set_mode(0o600);
        archive.append_data(&mut header, "lib/mine.py", &b"pass"[..]).unwrap();
        archive.into_inner().unwrap().finish().unwrap();
        let place = Place::new(directory.path().join("0"));
        place.fill(&tree, "s3://b/rule.tar.gz", &Value::Null).unwrap();
        let file = Place::source(place.directory()).join("lib/mine.py");
        assert_eq!(file.metadata().unwrap().permissions().mode() & 0o444, 0o444);
        fs::write(tree.join("other.py"), "").unwrap();
        assert_eq!(archive_in(&tree).unwrap(), None);
    }
}
