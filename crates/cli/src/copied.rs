//! A data directory that was copied has the original's id, by which the jobs of both servers are
//! called on compute targets: each would end the other's. So a directory knows its own path: where
//! that is another one's, which has the same id, this one is a copy. One that was moved, with its
//! volume or by hand, has left no other behind.

use std::{
    ffi::OsStr,
    fs, io,
    os::unix::{
        ffi::OsStrExt,
        fs::{MetadataExt, PermissionsExt},
    },
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};
use shoal_store::{DataDir, id_of, make_another};

use crate::exit::UsageError;

/// Its path, in the directory.
const FILE: &str = "place";

/// Refuses a server of a copy, or makes the copy a directory of its own first.
///
/// # Errors
/// It is a copy; or it is none, and is to be made another.
pub(crate) fn check(data_dir: &Path, has_targets: bool, is_to_be_another: bool) -> Result<()> {
    if is_to_be_another {
        return make(data_dir);
    }
    match original(data_dir).filter(|_| has_targets) {
        None => Ok(()),
        Some(original) => Err(UsageError(format!(
            "{} is a copy of {} and has its id: each of the two servers would end the other's jobs on the compute targets. \
             Start this one with --copied, which gives it an id of its own and leaves jobs that run to the other, as `shoal \
             restore` does; or move the original away: then this one replaces it",
            data_dir.display(),
            original.display()
        ))
        .into()),
    }
}

/// Makes a copy a directory of its own. Where it has no note of its place, or one of another, its
/// owner knows best: the original may be of an earlier version, or on another machine.
fn make(data_dir: &Path) -> Result<()> {
    let shown = data_dir.display();
    let Ok(before) = id_of(data_dir) else {
        return Err(UsageError(format!("--copied: there is no data directory at {shown}")).into());
    };
    if recorded(data_dir).is_some_and(|place| inode(&place).is_some() && inode(&place) == inode(data_dir)) {
        return Err(UsageError(format!(
            "--copied: {shown} is no copy: its server started here before, and its id {before} is its own. Start it without \
             --copied. If it was copied from the same path of another machine, remove {shown}/{FILE} first"
        ))
        .into());
    }
    // No server has it meanwhile.
    let _held = DataDir::open(data_dir)?;
    remove_directories(&data_dir.join("runs"))?;
    let id = make_another(data_dir)?;
    note(data_dir)?;
    eprintln!(
        "--copied: {shown} had the id {before} of the directory that it was copied from, and has {id} now; jobs that run are \
         left to the other. Start it without --copied from now on"
    );
    Ok(())
}

/// Those of agents, in which jobs may have closed some to their own user.
fn remove_directories(runs: &Path) -> Result<()> {
    let list = |folder: &Path| fs::read_dir(folder).map(|all| Vec::from_iter(all.flatten())).unwrap_or_default();
    let is_dir = |entry: &fs::DirEntry| entry.file_type().is_ok_and(|it| it.is_dir());
    for run in list(runs).iter().filter(|it| is_dir(it)) {
        for directory in list(&run.path()).iter().filter(|it| is_dir(it)) {
            let path = directory.path();
            shoal_sandbox::remove_tree(&path).with_context(|| format!("could not remove {}", path.display()))?;
        }
    }
    Ok(())
}

/// Notes where the directory is, unless it is a copy whose original is there.
///
/// # Errors
/// I/O.
pub(crate) fn note(data_dir: &Path) -> Result<()> {
    let noted = || -> io::Result<()> {
        let own = data_dir.canonicalize()?;
        let (file, draft) = (own.join(FILE), own.join("place.new"));
        if original(&own).is_some() || recorded(&own).as_ref() == Some(&own) {
            return Ok(());
        }
        fs::write(&draft, own.as_os_str().as_bytes())?;
        fs::set_permissions(&draft, fs::Permissions::from_mode(0o600))?;
        fs::rename(draft, file)
    };
    noted().with_context(|| format!("could not note in {} where it is", data_dir.display()))
}

fn recorded(data_dir: &Path) -> Option<PathBuf> {
    Some(PathBuf::from(OsStr::from_bytes(&fs::read(data_dir.join(FILE)).ok()?)))
}

/// The same may be mounted at two places.
fn inode(path: &Path) -> Option<(u64, u64)> {
    fs::metadata(path).map(|it| (it.dev(), it.ino())).ok()
}

/// The directory that this one is a copy of, if that is still there.
fn original(data_dir: &Path) -> Option<PathBuf> {
    let original = recorded(data_dir)?;
    let is_other = inode(&original)? != inode(data_dir)?;
    (is_other && id_of(&original).ok()? == id_of(data_dir).ok()?).then_some(original)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn directory(path: &Path) {
        drop(DataDir::open(path).unwrap());
        check(path, true, false).unwrap();
        note(path).unwrap();
    }

    fn copy(from: &Path, to: &Path) {
        let copied = std::process::Command::new("cp").arg("-a").args([from, to]).status().unwrap();
        assert!(copied.success());
    }

    #[test]
    fn a_copy_beside_its_original_is_refused_or_gets_an_id_of_its_own() {
        let temp = tempfile::tempdir().unwrap();
        let [one, two] = ["one", "two"].map(|name| temp.path().canonicalize().unwrap().join(name));
        directory(&one);
        fs::create_dir_all(one.join("runs/job-1")).unwrap();
        fs::write(one.join("runs/job-1/slurm.json"), "{}").unwrap();
        // Of a local job that closed a directory.
        fs::create_dir_all(one.join("runs/job-1/algo-1/closed")).unwrap();
        fs::write(one.join("runs/job-1/algo-1/closed/a"), "").unwrap();
        fs::set_permissions(one.join("runs/job-1/algo-1/closed"), fs::Permissions::from_mode(0o500)).unwrap();
        copy(&one, &two);
        // Without targets nothing is refused, and nothing forgotten.
        check(&two, false, false).unwrap();
        note(&two).unwrap();
        let error = check(&two, true, false).unwrap_err().to_string();
        assert!(error.contains(&format!("is a copy of {} and has its id", one.display())), "{error}");
        check(&one, true, false).unwrap();
        let error = check(&one, true, true).unwrap_err().to_string();
        assert!(error.contains("is no copy: its server started here before"), "{error}");

        check(&two, true, true).unwrap();
        assert!(id_of(&two).unwrap() != id_of(&one).unwrap() && !two.join("runs/job-1/slurm.json").exists());
        check(&two, true, false).unwrap();
        assert!(one.join("runs/job-1/slurm.json").exists());
        assert!(one.join("runs/job-1/algo-1").exists() && !two.join("runs/job-1/algo-1").exists());
        once_alone(&two);
    }

    /// It is a directory of its own now.
    fn once_alone(path: &Path) {
        let id = id_of(path).unwrap();
        let error = check(path, true, true).unwrap_err().to_string();
        assert!(error.contains(&format!("its id {id} is its own. Start it without --copied")), "{error}");
        assert_eq!(id_of(path).unwrap(), id);
        check(path, true, false).unwrap();
    }

    #[test]
    fn a_copy_whose_place_is_not_known_gets_an_id_when_it_is_asked_for() {
        let temp = tempfile::tempdir().unwrap();
        let [one, two, three] = ["one", "two", "three"].map(|name| temp.path().canonicalize().unwrap().join(name));
        let error = check(&one, true, true).unwrap_err().to_string();
        assert!(error.contains("there is no data directory at") && !one.exists(), "{error}");
        // No server of this version has started it.
        drop(DataDir::open(&one).unwrap());
        copy(&one, &two);
        check(&two, true, false).unwrap();
        check(&two, true, true).unwrap();
        assert!(id_of(&two).unwrap() != id_of(&one).unwrap());
        once_alone(&two);
        // Its original is on another machine.
        copy(&two, &three);
        fs::rename(&two, temp.path().join("away")).unwrap();
        check(&three, true, true).unwrap();
        once_alone(&three);
    }

    #[test]
    fn a_directory_that_was_moved_or_is_mounted_elsewhere_starts_unasked() {
        let temp = tempfile::tempdir().unwrap();
        let [one, two, link] = ["one", "two", "link"].map(|name| temp.path().canonicalize().unwrap().join(name));
        directory(&one);
        std::os::unix::fs::symlink(&one, &link).unwrap();
        check(&link, true, false).unwrap();
        fs::rename(&one, &two).unwrap();
        check(&two, true, false).unwrap();
        note(&two).unwrap();
        assert_eq!(recorded(&two), Some(two.clone()));
        // Another one where it was is not its original.
        directory(&one);
        check(&two, true, false).unwrap();
    }
}
