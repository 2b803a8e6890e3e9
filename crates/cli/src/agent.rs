//! `shoal agent`: the process beside an instance's training program. The launcher starts it; its flags are the server's affair.

use std::{path::PathBuf, process::ExitCode};

use clap::Args;
use rustix::process::{Pid, getppid, setpgid, setsid};
use shoal_agent::TOKEN_VARIABLE;

use crate::{environments, exit};

/// Arguments of `shoal agent`.
#[derive(Debug, Args)]
pub(crate) struct AgentArgs {
    /// The server's Unix socket.
    #[arg(long)]
    socket: PathBuf,
    /// The attempt that it serves.
    #[arg(long)]
    attempt: String,
    /// Its instance, from 1.
    #[arg(long)]
    host: u32,
    /// The attempt's directory.
    #[arg(long)]
    run_dir: PathBuf,
    /// The data directory's id.
    #[arg(long)]
    data_id: String,
    /// The attempt's secret; never on the command line, where everybody can read it.
    #[arg(env = TOKEN_VARIABLE, hide_env_values = true)]
    token: String,
}

/// Serves the instance to its end.
pub(crate) fn run(args: AgentArgs) -> ExitCode {
    begin_session();
    let AgentArgs { socket, attempt, host, run_dir, data_id, token } = args;
    let program = match std::env::current_exe() {
        Ok(program) => program,
        Err(error) => {
            eprintln!("shoal agent: could not find this executable: {error}");
            return ExitCode::FAILURE;
        }
    };
    let code = shoal_agent::main(shoal_agent::Options {
        socket,
        attempt,
        host,
        token,
        run_dir,
        data_id,
        program,
        environments: environments::of_agent(),
        python_package: environments::package_of_agent(),
        images: environments::images(),
    });
    exit::of_program(code)
}

/// Leaves the server's session: in there, the kernel hangs up an agent that is stopped at the moment when its server dies.
fn begin_session() {
    // The launcher made it lead a process group, and a leader cannot begin a session: for a moment it joins its parent's group. If
    // the parent is gone already, so is what this is for.
    // If the server has died meanwhile the parent is the machine's first process, whose group may be none that can be named.
    if let Some(parent) = getppid().filter(|parent| *parent != Pid::INIT)
        && let Some(group) = group_of(parent)
    {
        let _ = setpgid(None, Some(group));
    }
    let _ = setsid();
}

/// A process's group; none if it is outside of our PID namespace, and so has no number here (`unshare --pid --fork` leaves what it starts in its own
/// group). Read as text, since rustix's `getpgid` asserts that there is a number.
fn group_of(process: Pid) -> Option<Pid> {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", process.as_raw_nonzero())).ok()?;
    // The second field is the program's name in parentheses and may contain anything; the group is the third after it.
    Pid::from_raw(stat.rsplit_once(')')?.1.split_whitespace().nth(2)?.parse().ok()?)
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::CommandExt;

    use super::*;

    #[test]
    fn a_group_has_a_number_or_is_none() {
        let mut leader = std::process::Command::new("sleep").arg("1000").process_group(0).spawn().expect("a process");
        let pid = Pid::from_child(&leader);
        let group = group_of(pid);
        leader.kill().and_then(|()| leader.wait()).expect("its end");
        assert_eq!(group, Some(pid));
        assert_eq!(group_of(Pid::from_raw(i32::MAX).expect("a number")), None);
    }
}
