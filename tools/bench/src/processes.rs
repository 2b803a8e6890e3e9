//! Processes that belong together: all end well, or all are ended.

use std::{
    fs::{self, File},
    os::unix::process::CommandExt,
    path::Path,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process_group};

/// Ends each process that still runs, and its children, when this goes.
struct Family(Vec<Child>);

impl Drop for Family {
    fn drop(&mut self) {
        for child in &mut self.0 {
            if matches!(child.try_wait(), Ok(None)) {
                let group = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
                let _ = group.map(|group| kill_process_group(group, Signal::KILL));
                drop(child.wait());
            }
        }
    }
}

/// Runs all at once and gives what the first wrote to standard output.
///
/// # Errors
/// One failed, with what all wrote to standard error; or they took longer than `limit`.
pub(super) fn together(commands: Vec<Command>, dir: &Path, limit: Duration) -> Result<String> {
    let (told, said) = (dir.join("told"), dir.join("said"));
    let errors = File::create(&said)?;
    let mut family = Family(Vec::new());
    for (number, mut command) in commands.into_iter().enumerate() {
        let stdout = if number == 0 { File::create(&told)?.into() } else { Stdio::null() };
        command.process_group(0).stdin(Stdio::null()).stdout(stdout).stderr(errors.try_clone()?);
        family.0.push(command.spawn().with_context(|| format!("could not run {}", command.get_program().display()))?);
    }
    let end = Instant::now() + limit;
    loop {
        let mut running = 0;
        for child in &mut family.0 {
            match child.try_wait()? {
                None => running += 1,
                Some(status) if status.success() => {}
                Some(status) => bail!("{status}: {}", fs::read_to_string(&said).unwrap_or_default().trim()),
            }
        }
        if running == 0 {
            return Ok(fs::read_to_string(&told)?);
        }
        if Instant::now() >= end {
            bail!(
                "not done after {:.0} s: {}",
                limit.as_secs_f64(),
                fs::read_to_string(&said).unwrap_or_default().trim()
            );
        }
        // Rarely, so that looking takes nothing from those who are measured.
        thread::sleep(Duration::from_millis(20));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_that_fails_ends_all() {
        let dir = tempfile::tempdir().expect("a directory");
        let shell = |script: &str| {
            let mut command = Command::new("sh");
            command.args(["-c", script]);
            command
        };
        let hour = Duration::from_secs(3600);
        assert_eq!(together(vec![shell("echo a"), shell("echo b")], dir.path(), hour).expect("well"), "a\n");
        let error = together(vec![shell("sleep 3600"), shell("echo why >&2; exit 3")], dir.path(), hour)
            .expect_err("one failed");
        assert!(error.to_string().contains("3") && error.to_string().contains("why"), "{error}");
        let error =
            together(vec![shell("sleep 3600 & wait")], dir.path(), Duration::from_millis(50)).expect_err("too long");
        assert!(error.to_string().contains("not done"), "{error}");
    }
}
