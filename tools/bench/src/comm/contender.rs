//! Who is measured: our groups in either kind of memory, Gloo of a PyTorch, and any MPI. Each runs
//! as processes of its own that print rows.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use shoal_comm::bench::Operation;
use tempfile::TempDir;

use super::Medium;
use crate::{
    processes,
    server::{temporary_dir, this_program},
};

/// Which library a peer is: goals differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Family {
    Gloo,
    IntelMpi,
    OpenMpi,
    /// An MPI without a goal.
    Mpi,
}

/// One of those who take turns.
#[derive(Debug)]
pub(super) enum Contender {
    Shoal { registered: bool },
    Gloo { name: String, version: String, python: PathBuf, script: PathBuf },
    Mpi { name: String, version: String, family: Family, bin: PathBuf, program: PathBuf },
}

/// The least and the median time of one operation and size, in microseconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Row {
    pub(super) operation: Operation,
    pub(super) bytes: usize,
    pub(super) least: f64,
    pub(super) median: f64,
}

impl Contender {
    /// From `NAME=PATH`: a Python with torch where the path is a file, an MPI where it is a
    /// directory with `mpicc` and `mpirun`. What has to be written or compiled goes into `dir`.
    ///
    /// # Errors
    /// What the peer lacks.
    pub(super) fn peer(text: &str, dir: &Path) -> Result<Self> {
        let (name, path) = text
            .split_once('=')
            .context("--peer wants NAME=PATH, such as gloo=/usr/bin/python3 or OpenMPI=/usr/bin")?;
        let path = PathBuf::from(path);
        if path.is_file() {
            let asked = Command::new(&path).args(["-c", "import torch; print(torch.__version__)"]).output();
            let output = asked.with_context(|| format!("could not run {}", path.display()))?;
            let lacks = || format!("{} has no torch: {}", path.display(), String::from_utf8_lossy(&output.stderr));
            ensure!(output.status.success(), "{}", lacks());
            let script = dir.join("bench_gloo.py");
            fs::write(&script, include_str!("../../programs/bench_gloo.py"))?;
            let version = format!("torch {}", String::from_utf8_lossy(&output.stdout).trim());
            return Ok(Self::Gloo { name: name.to_owned(), version, python: path, script });
        }
        let (mpicc, mpirun) = (path.join("mpicc"), path.join("mpirun"));
        ensure!(
            mpicc.is_file() && mpirun.is_file(),
            "--peer {text}: {} is neither a Python nor a directory with mpicc and mpirun in it",
            path.display()
        );
        let said = mpi(&mpirun, &path)
            .arg("--version")
            .output()
            .with_context(|| format!("could not run {}", mpirun.display()))?;
        let said = String::from_utf8_lossy(&said.stdout).into_owned();
        let family = match &said {
            it if it.contains("Open MPI") => Family::OpenMpi,
            it if it.contains("Intel") => Family::IntelMpi,
            _ => Family::Mpi,
        };
        let (source, program) = (dir.join("bench_mpi.c"), dir.join(format!("bench_{name}")));
        fs::write(&source, include_str!("../../programs/bench_mpi.c"))?;
        let mut compile = mpi(&mpicc, &path);
        if family == Family::IntelMpi {
            compile.arg("-cc=cc");
        }
        let output = compile.args(["-O3", "-march=native", "-o"]).arg(&program).arg(&source).output()?;
        ensure!(
            output.status.success(),
            "{} could not compile: {}",
            mpicc.display(),
            String::from_utf8_lossy(&output.stderr)
        );
        let version = said.lines().next().unwrap_or_default().trim().to_owned();
        Ok(Self::Mpi { name: name.to_owned(), version, family, bin: path, program })
    }

    /// For headings.
    pub(super) fn name(&self) -> &str {
        match self {
            Self::Shoal { registered: true } => "Shoal, registered",
            Self::Shoal { registered: false } => "Shoal, private",
            Self::Gloo { name, .. } | Self::Mpi { name, .. } => name,
        }
    }

    /// What says of itself which version it is; none of ours.
    pub(super) fn version(&self) -> Option<&str> {
        match self {
            Self::Shoal { .. } => None,
            Self::Gloo { version, .. } | Self::Mpi { version, .. } => Some(version),
        }
    }

    /// Whether it can be made to use that medium: only of OpenMPI is it known how to keep it from
    /// shared memory.
    pub(super) fn has(&self, medium: Medium) -> bool {
        medium == Medium::SharedMemory || !matches!(self, Self::Mpi { family: Family::IntelMpi | Family::Mpi, .. })
    }

    /// Which peer it is; none of ours.
    pub(super) fn family(&self) -> Option<Family> {
        match self {
            Self::Shoal { .. } => None,
            Self::Gloo { .. } => Some(Family::Gloo),
            Self::Mpi { family, .. } => Some(*family),
        }
    }

    /// One turn: all cases once.
    ///
    /// # Errors
    /// A process failed, or took more than `limit`.
    pub(super) fn run(
        &self,
        medium: Medium,
        ranks: usize,
        cases: &[(Operation, usize)],
        seconds: f64,
        limit: Duration,
    ) -> Result<Vec<Row>> {
        let dir = temporary_dir(None)?;
        let cases: Vec<_> = cases.iter().map(|(operation, bytes)| format!("{}:{bytes}", operation.name())).collect();
        let commands = match self {
            Self::Shoal { registered } => own(medium, ranks, *registered, &cases, seconds, &dir)?,
            Self::Gloo { python, script, .. } => {
                let mut command = Command::new(python);
                command
                    .arg(script)
                    .arg(ranks.to_string())
                    .arg(seconds.to_string())
                    .args(&cases)
                    .env("GLOO_SOCKET_IFNAME", "lo");
                vec![command]
            }
            Self::Mpi { family, bin, program, .. } => {
                let mut command = mpi(&bin.join("mpirun"), bin);
                started_by(&mut command, *family, medium, ranks);
                command.args(["-n", &ranks.to_string()]).arg(program).arg(seconds.to_string()).args(&cases);
                vec![command]
            }
        };
        let said = processes::together(commands, dir.path(), limit)?;
        let rows: Vec<_> = said.lines().filter_map(parse).collect();
        ensure!(rows.len() == cases.len(), "{} rows for {} cases:\n{said}", rows.len(), cases.len());
        Ok(rows)
    }
}

/// Our ranks: this program again.
fn own(
    medium: Medium,
    ranks: usize,
    registered: bool,
    cases: &[String],
    seconds: f64,
    dir: &TempDir,
) -> Result<Vec<Command>> {
    let program = this_program()?;
    let one = |rank: usize| {
        let mut command = Command::new(&program);
        command.args(["comm-rank", "--seconds", &seconds.to_string()]).args(registered.then_some("--registered"));
        command
            .args(cases)
            .env("RANK", rank.to_string())
            .env("WORLD_SIZE", ranks.to_string())
            .env("SHOAL_COMM_DIRECTORY", dir.path());
        command.env("SHOAL_COMM_ADDRESS", "127.0.0.1").env("SHOAL_COMM_TRANSPORT", medium.carrier());
        command
    };
    Ok((0..ranks).map(one).collect())
}

/// A program of an MPI, with what it needs around it.
fn mpi(program: &Path, bin: &Path) -> Command {
    let mut command = Command::new(program);
    let path = env::var("PATH").unwrap_or_default();
    command.env("PATH", format!("{}:{path}", bin.display())).env("I_MPI_ROOT", bin.parent().unwrap_or(bin));
    command.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
    command
}

fn started_by(command: &mut Command, family: Family, medium: Medium, ranks: usize) {
    let has_cores = ranks <= std::thread::available_parallelism().map_or(1, usize::from);
    match family {
        Family::OpenMpi => {
            command.args(if has_cores {
                &["--bind-to", "core"][..]
            } else {
                &["--bind-to", "none", "--oversubscribe"]
            });
            if medium == Medium::Tcp {
                command.args(["--mca", "pml", "ob1", "--mca", "btl", "tcp,self", "--mca", "btl_tcp_if_include", "lo"]);
            }
        }
        Family::IntelMpi => {
            command.env("I_MPI_FABRICS", "shm");
        }
        Family::Mpi | Family::Gloo => {}
    }
}

/// A row as all contenders print it.
fn parse(line: &str) -> Option<Row> {
    let fields: Vec<_> = line.trim().split(',').collect();
    let [operation, _ranks, bytes, _iterations, least, median, _p90] = fields[..] else { return None };
    Some(Row {
        operation: operation.parse().ok()?,
        bytes: bytes.parse().ok()?,
        least: least.parse().ok()?,
        median: median.parse().ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_read() {
        let row = Row { operation: Operation::AllReduce, bytes: 4, least: 0.13, median: 0.27 };
        assert_eq!(parse("allreduce,2,4,100000,0.13,0.27,0.30"), Some(row));
        assert_eq!(parse("[host:1] mpirun has something to say, to you"), None);
    }

    #[test]
    fn a_peer_that_is_none_is_told_what_it_lacks() {
        let dir = tempfile::tempdir().expect("a directory");
        let refused = |text: &str| Contender::peer(text, dir.path()).expect_err("no peer").to_string();
        assert!(refused("gloo").contains("NAME=PATH"));
        assert!(refused(&format!("mpi={}", dir.path().display())).contains("mpicc and mpirun"));
        assert!(refused("gloo=/bin/false").contains("has no torch"));
    }
}
