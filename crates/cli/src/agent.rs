//! `shoal agent`: the process beside an instance's training program. The launcher starts it; its
//! flags are the server's affair.

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
    sync::Arc,
};

use clap::Args;
use rustix::process::{Pid, getppid, setpgid, setsid};
use shoal_agent::{Fingerprint, Libraries, LibraryFinder, ObjectCache, Server, SharedPlace, TOKEN_VARIABLE};
use shoal_algos::Algorithms;

use crate::{
    environments::{self, SHARED_SIZE_VARIABLE, SHARED_VARIABLE},
    exit,
    settings::bytes,
};

/// Arguments of `shoal agent`.
#[derive(Debug, Args)]
pub(crate) struct AgentArgs {
    /// The server's Unix socket, if it is on this machine.
    #[arg(long, required_unless_present = "server", conflicts_with = "server", requires = "run_dir")]
    socket: Option<PathBuf>,
    /// Where a server on another machine takes agents: host and port.
    #[arg(long, requires = "fingerprint")]
    server: Option<String>,
    /// SHA-256 of the certificate that it shows there.
    #[arg(long)]
    fingerprint: Option<Fingerprint>,
    /// Most bytes of objects of such a server that are kept on this machine for the next job.
    #[arg(long, env = "SHOAL_OBJECT_CACHE", default_value = "20GiB", value_parser = size)]
    object_cache: u64,
    /// A directory that all nodes of the cluster see: objects are put there once for all of them.
    #[arg(long, env = SHARED_VARIABLE)]
    shared: Option<PathBuf>,
    /// Most bytes of objects that are kept there for the next job.
    #[arg(long, env = SHARED_SIZE_VARIABLE, default_value = "200GiB", value_parser = size)]
    shared_size: u64,
    /// The attempt that it serves.
    #[arg(long)]
    attempt: String,
    /// Its instance, from 1.
    #[arg(long)]
    host: u32,
    /// The attempt's directory; of a server on another machine, one below the cache if it is not
    /// given.
    #[arg(long)]
    run_dir: Option<PathBuf>,
    /// The data directory's id.
    #[arg(long)]
    data_id: String,
    /// The attempt's secret; never on the command line, where everybody can read it.
    #[arg(env = TOKEN_VARIABLE, hide_env_values = true)]
    token: String,
}

/// Serves the instance to its end.
pub(crate) fn run(args: AgentArgs, algorithms: Algorithms) -> ExitCode {
    begin_session();
    let AgentArgs { socket, server, fingerprint, object_cache, attempt, host, run_dir, data_id, token, .. } = args;
    let shared = args.shared.map(|dir| SharedPlace { dir, max_bytes: args.shared_size });
    let server = match (socket, server, fingerprint) {
        (None, Some(address), Some(fingerprint)) => Server::Tls { address, fingerprint },
        (socket, ..) => Server::Socket(socket.unwrap_or_default()),
    };
    let program = match std::env::current_exe() {
        Ok(program) => program,
        Err(error) => {
            eprintln!("shoal agent: could not find this executable: {error}");
            return ExitCode::FAILURE;
        }
    };
    let code = shoal_agent::main(shoal_agent::Options {
        server,
        run_dir: run_dir.unwrap_or_else(|| environments::below_cache("runs").join(&attempt)),
        objects: ObjectCache::new(environments::below_cache("objects"), object_cache),
        shared,
        libraries: LibraryFinder(Arc::new(move |name| libraries(algorithms, name))),
        attempt,
        host,
        token,
        data_id,
        program,
        environments: environments::of_agent(),
        python_package: environments::package_of_agent(),
        images: environments::images(),
    });
    exit::of_program(code)
}

/// Copies this program.
pub(crate) fn copy(to: &Path) -> ExitCode {
    match std::env::current_exe().and_then(|program| std::fs::copy(program, to)) {
        Ok(_) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("shoal agent-binary: could not copy this executable to {}: {error}", to.display());
            ExitCode::FAILURE
        }
    }
}

/// The libraries of a built-in algorithm on this machine.
fn libraries(algorithms: Algorithms, name: &str) -> Result<Libraries, String> {
    let algorithm = algorithms.iter().find(|algorithm| algorithm.name == name);
    let algorithm = algorithm.ok_or_else(|| {
        format!("this machine's shoal has no built-in algorithm {name}: install the server's version")
    })?;
    let mut found = Libraries::default();
    for library in algorithm.libraries {
        let path = library.find().map_err(|error| format!("{name} cannot run on this machine: {error}"))?;
        found.dirs.push(path.directory.display().to_string());
        found.variables.insert(library.variable.to_owned(), path.file.display().to_string());
    }
    Ok(found)
}

fn size(text: &str) -> Result<u64, String> {
    bytes(text).ok_or_else(|| format!("\"{text}\" is not a size such as 20GiB"))
}

/// Leaves the server's session: in there, the kernel hangs up an agent that is stopped at the
/// moment when its server dies.
fn begin_session() {
    // The launcher made it lead a process group, and a leader cannot begin a session: for a moment
    // it joins its parent's group. If the parent is gone already, so is what this is for. If the
    // server has died meanwhile the parent is the machine's first process, whose group may be none
    // that can be named.
    if let Some(parent) = getppid().filter(|parent| *parent != Pid::INIT)
        && let Some(group) = group_of(parent)
    {
        let _ = setpgid(None, Some(group));
    }
    let _ = setsid();
}

/// A process's group; none if it is outside of our PID namespace, and so has no number here
/// (`unshare --pid --fork` leaves what it starts in its own group). Read as text, since rustix's
/// `getpgid` asserts that there is a number.
fn group_of(process: Pid) -> Option<Pid> {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", process.as_raw_nonzero())).ok()?;
    // The second field is the program's name in parentheses and may contain anything; the group is
    // the third after it.
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
