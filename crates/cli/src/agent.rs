//! `shoal agent`: the process beside an instance's training program. The launcher starts it; its flags are the server's affair.

use std::{path::PathBuf, process::ExitCode};

use clap::Args;
use rustix::process::{Pid, getpgid, getppid, setpgid, setsid};
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
        && let Ok(group) = getpgid(Some(parent))
    {
        let _ = setpgid(None, Some(group));
    }
    let _ = setsid();
}
