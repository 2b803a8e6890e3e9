//! Control groups that belong to an ordinary user, as a login session or a batch system gives them.

use std::fs;
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Removed at the end.
pub(crate) struct Groups(Vec<PathBuf>);

impl Groups {
    pub(crate) fn none() -> Groups {
        Groups(Vec::new())
    }

    /// Below our own groups of version 1, as far as there are any and we may.
    pub(crate) fn to(user: u32) -> Groups {
        let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let paths = own.lines().filter_map(|line| {
            let (controller, path) = line.split_once(':')?.1.split_once(':')?;
            let parent = Path::new("/sys/fs/cgroup").join(controller).join(path.trim_start_matches('/'));
            ["memory", "pids", "cpu"]
                .contains(&controller)
                .then(|| parent.join(format!("delegated-{}", std::process::id())))
        });
        let made = paths.filter(|path| {
            let given = |name: &str| chown(path.join(name), Some(user), Some(user)).is_ok();
            fs::create_dir(path).is_ok() && given("") && given("cgroup.procs")
        });
        Groups(made.collect())
    }

    /// An executable in these groups, as this user.
    pub(crate) fn command(&self, executable: &Path, user: Option<u32>) -> Command {
        let mut command = Command::new("sh");
        let become_user =
            user.map_or(String::new(), |user| format!("setpriv --reuid={user} --regid={user} --clear-groups"));
        let script = format!(
            "for group in $GROUPS; do echo $$ >$group/cgroup.procs; done; unset GROUPS; exec {become_user} \"$@\""
        );
        let groups: Vec<_> = self.0.iter().map(|path| path.display().to_string()).collect();
        command.args(["-c", &script, "sh"]).arg(executable).env("GROUPS", groups.join(" "));
        command
    }
}

impl Drop for Groups {
    fn drop(&mut self) {
        for path in &self.0 {
            fs::remove_dir(path).unwrap_or_else(|error| eprintln!("{} is not empty: {error}", path.display()));
        }
    }
}
