//! Directories of agents on a machine where no server removes what killed ones have left: each
//! agent holds a lock on a file beside its directory, and an agent that starts removes the
//! directories whose locks are free.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

use shoal_sandbox::remove_tree;

use crate::fast_file;
use crate::instance::INPUTS;

/// Makes the directory of an agent, `runs/ATTEMPT/algo-K`, and holds it until the lock is dropped.
/// Removes those that no agent holds.
pub(crate) fn hold(own: &Path) -> io::Result<File> {
    let run_dir = own.parent().unwrap_or(own);
    let runs = run_dir.parent().unwrap_or(run_dir);
    DirBuilder::new().recursive(true).mode(0o700).create(runs)?;
    // Held meanwhile, so that no directory is seen that is not locked yet.
    let turn = open(&runs.join("lock"))?;
    turn.lock()?;
    fs::create_dir_all(own)?;
    let lock = open(&own.with_extension("lock"))?;
    lock.try_lock().map_err(|_| io::Error::other("another agent has it"))?;
    for run in fs::read_dir(runs)?.flatten().filter(|run| run.path().is_dir()) {
        for file in fs::read_dir(run.path())?.flatten().map(|file| file.path()) {
            let is_lock = file.extension().is_some_and(|extension| extension == "lock");
            if is_lock && file != own.with_extension("lock") && open(&file)?.try_lock().is_ok() {
                remove(&file.with_extension(""))?;
            }
        }
    }
    Ok(lock)
}

/// Removes such a directory with its lock.
pub(crate) fn remove(own: &Path) -> io::Result<()> {
    for input in fs::read_dir(own.join(INPUTS)).into_iter().flatten().flatten() {
        fast_file::detach(&input.path());
    }
    remove_tree(own)?;
    match fs::remove_file(own.with_extension("lock")) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    // It stays as long as another agent of the attempt has its directory there.
    let _ = own.parent().map(fs::remove_dir);
    Ok(())
}

fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create(true).truncate(false).open(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_killed_agents_have_left_is_removed_and_what_others_hold_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let [killed, running, next] =
            ["a-1/algo-1", "b-1/algo-2", "b-1/algo-1"].map(|name| dir.path().join("runs").join(name));
        drop(hold(&killed).unwrap());
        fs::write(killed.join("spool"), "left").unwrap();
        let _running = hold(&running).unwrap();
        assert!(!killed.parent().unwrap().exists());
        let held = hold(&next).unwrap();
        assert!(running.exists());
        assert!(hold(&next).unwrap_err().to_string().contains("another agent"));
        drop(held);
        remove(&next).unwrap();
        assert!(!next.exists() && running.exists());
        remove(&running).unwrap();
        assert!(!running.parent().unwrap().exists());
    }
}
