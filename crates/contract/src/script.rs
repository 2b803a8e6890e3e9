//! Script mode: which script a job brings, and how SageMaker's framework images start it
//! (sagemaker-training-toolkit, `entry_point.py`, `process.py`, `torch_distributed.py`).

use std::collections::BTreeMap;

use crate::failure::TRACEBACK;
use crate::groups::Groups;
use crate::headline::headline;
use crate::hyperparameters::{
    DATAPARALLEL, Hyperparameters, MPI, PARAMETER_SERVER, PROGRAM, SUBMIT_DIRECTORY, arguments,
};
use crate::python::{self, decoded};
use crate::{Facts, LAUNCHER, LaunchError, MAX_CHARACTERS, Port, mpi, ranks, tf_config};

/// Python of the image.
pub(crate) const PYTHON: &str = "python3";

/// Bytes of a line whose beginning there is no room for, which are left out with it.
const MOST_DROPPED: usize = 200;

/// Room for a failure's text beside what the platform adds to it, in characters.
const MOST_FAILURE: usize = MAX_CHARACTERS - 64;
/// And for the command in it.
const MOST_COMMAND: usize = 200;

/// The cause of a failure of which nothing was said.
const SILENT: &str = "the script printed nothing, and left no failure file";

/// A script that a job brings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Script {
    /// The file in `/opt/ml/code`: `train.py`.
    pub program: String,
    /// Where its files come from: an S3 URI of a `sourcedir.tar.gz`, or a path in the instance;
    /// `None` if nothing says so.
    pub source: Option<String>,
    /// Behind those that its hyperparameters are: the request's `ContainerArguments`.
    pub arguments: Vec<String>,
}

impl Script {
    /// The script that hyperparameters or variables of the request name: `sagemaker_program` and
    /// `sagemaker_submit_directory`, the former rather by the variable, the latter rather by the
    /// hyperparameter, as the toolkit has it. `None`: the job brings no script.
    pub fn of(hyperparameters: &BTreeMap<String, String>, environment: &BTreeMap<String, String>) -> Option<Self> {
        let hyperparameter = |name: &str| hyperparameters.get(name).map(|value| python::str(&decoded(value)));
        let variable = |name: &str| environment.get(&name.to_uppercase()).cloned();
        let said = |text: &String| !text.is_empty();
        let program = variable(PROGRAM).filter(said).or_else(|| hyperparameter(PROGRAM)).filter(said)?;
        let source = hyperparameter(SUBMIT_DIRECTORY).filter(said).or_else(|| variable(SUBMIT_DIRECTORY)).filter(said);
        Some(Self { program, source, arguments: Vec::new() })
    }

    /// Whether it is written for `smdistributed.dataparallel`.
    pub fn is_for_dataparallel(hyperparameters: &BTreeMap<String, String>) -> bool {
        Hyperparameters::of(hyperparameters).is_on(DATAPARALLEL)
    }

    /// Whether its instances are to be launched as one distributed program.
    pub fn is_distributed(hyperparameters: &BTreeMap<String, String>) -> bool {
        Hyperparameters::of(hyperparameters).is_distributed()
    }

    /// Whether its instances are to have parameter servers.
    pub fn has_parameter_servers(hyperparameters: &BTreeMap<String, String>) -> bool {
        Hyperparameters::of(hyperparameters).is_on(PARAMETER_SERVER)
    }

    /// Its name as a Python module.
    pub(crate) fn module(&self) -> &str {
        self.program.strip_suffix(".py").unwrap_or(&self.program)
    }

    /// Whether it is run as it is, by a shell: no Python file.
    pub fn is_command(&self, is_package: bool) -> bool {
        !is_package && !self.program.ends_with(".py")
    }

    /// Program and arguments of one instance, to be started in `/opt/ml/code`. `is_package`: there
    /// is a `setup.py` beside the script.
    ///
    /// # Errors
    /// [`LaunchError`].
    pub fn command(&self, facts: &Facts, is_package: bool) -> Result<Vec<String>, LaunchError> {
        let hyperparameters = Hyperparameters::of(&facts.hyperparameters);
        let arguments =
            Vec::from_iter(arguments(&hyperparameters.own).into_iter().chain(self.arguments.iter().cloned()));
        let program = self.program.clone();
        let groups = Groups::of(facts, &hyperparameters);
        let needs_all = [(PARAMETER_SERVER, "a parameter server"), (DATAPARALLEL, "smdistributed.dataparallel")];
        if let Some((_, what)) =
            needs_all.into_iter().find(|(name, _)| facts.elastic.is_some() && hyperparameters.is_on(name))
        {
            return Err(LaunchError::NotElastic(what));
        }
        let is_mpi = hyperparameters.is_on(MPI) && groups.is_launched();
        // mpi4py's launcher ends all ranks when one raises.
        let python: &[&str] = if is_mpi && facts.elastic.is_none() { &[PYTHON, "-m", "mpi4py"] } else { &[PYTHON] };
        let python = python.iter().map(|word| (*word).to_owned());
        let is_torchrun = hyperparameters.asks_for_torchrun() && groups.is_launched() && !is_mpi;
        let is_dataparallel = hyperparameters.is_on(DATAPARALLEL) && groups.is_launched() && !is_mpi && !is_torchrun;
        let command = if is_torchrun {
            if is_package || self.is_command(is_package) {
                return Err(LaunchError::NoPythonScript(program));
            }
            torchrun(facts, &groups.hosts_of_distribution())?.into_iter().chain([program]).chain(arguments).collect()
        } else if is_package {
            python.chain(["-m".to_owned(), self.module().to_owned()]).chain(arguments).collect()
        } else if self.is_command(is_package) {
            let words = std::iter::once(format!("./{program}")).chain(arguments).map(|word| quoted(&word));
            // In the shell's place, so that signals reach it.
            let line = format!("exec {}", Vec::from_iter(words).join(" "));
            vec!["/bin/sh".to_owned(), "-c".to_owned(), line]
        } else {
            python.chain([program]).chain(arguments).collect()
        };
        if is_mpi {
            mpi::command(facts, &groups.hosts_of_distribution(), &hyperparameters, command)
        } else if is_dataparallel {
            ranks::of_dataparallel(facts, &groups.hosts_of_distribution(), &hyperparameters, command)
        } else {
            Ok(tf_config::with_server(facts, &hyperparameters, command))
        }
    }
}

/// torchrun on every instance.
fn torchrun(facts: &Facts, hosts: &[&str]) -> Result<Vec<String>, LaunchError> {
    if facts.elastic.is_some() {
        // torchrun's agent would restart all ranks when an instance comes or goes: without it they
        // continue in place.
        return Ok(ranks::of_torchrun(facts, hosts, vec![PYTHON.to_owned()])?.command());
    }
    let rank = hosts.iter().position(|host| *host == facts.current_host()).unwrap_or(0);
    let mut words = vec![
        "torchrun".to_owned(),
        "--nnodes".to_owned(),
        hosts.len().to_string(),
        "--nproc_per_node".to_owned(),
        ranks::per_instance(facts)?.to_string(),
    ];
    if hosts.len() > 1 {
        let [address, rank] = [facts.address(hosts[0]).to_owned(), rank.to_string()];
        words.extend([
            "--master_addr".to_owned(),
            address,
            "--master_port".to_owned(),
            Port::Master.number(facts.first_port).to_string(),
        ]);
        words.extend(["--node_rank".to_owned(), rank]);
    }
    Ok(words)
}

/// The toolkit's failure file for a script that has ended with `code`, behind its cause in one line
/// and a `hint` of what to do about it. `stderr` is the end of what it said there (or on stdout,
/// where it said nothing there); its last traceback counts if there is one, else all of it.
pub fn script_failure(code: i32, stderr: &str, command: &[String], hint: Option<&str>) -> String {
    let said = stderr.trim();
    let said = said.rfind(TRACEBACK).map_or(said, |at| &said[at..]);
    // As the user knows it: without what of ours starts it.
    let ours = command
        .first()
        .filter(|program| *program == LAUNCHER)
        .and_then(|_| command.iter().position(|word| word == "--"));
    let mut command: String = command[ours.map_or(0, |at| at + 1)..].join(" ");
    if let Some((end, _)) = command.char_indices().nth(MOST_COMMAND) {
        command.truncate(end);
        command.push_str("...");
    }
    let cause = cause(said, hint).map_or_else(|| format!("{SILENT}\n"), |cause| format!("{cause}\n"));
    let before = format!("{cause}ExecuteUserScriptError:\nExitCode {code}\nErrorMessage \"");
    let after = format!("\"\nCommand \"{command}\"");
    let room = MOST_FAILURE.saturating_sub(before.chars().count() + after.chars().count());
    format!("{before}{}{after}", ending(said, room))
}

/// What a program of the user's own has said at the end of its `stderr`, behind its cause in one
/// line and a `hint` of what to do about it. One line is its own cause.
pub fn program_failure(stderr: &str, hint: Option<&str>) -> String {
    let said = stderr.trim();
    match cause(said, hint) {
        Some(cause) if said.contains('\n') || hint.is_some() => {
            let room = MOST_FAILURE.saturating_sub(cause.chars().count() + 1);
            format!("{cause}\n{}", ending(said, room)).trim_end().to_owned()
        }
        _ => said.to_owned(),
    }
}

fn cause(said: &str, hint: Option<&str>) -> Option<String> {
    let headline = headline(said)?;
    Some(hint.map_or(headline.clone(), |hint| format!("{headline}\n{hint}")))
}

/// The last characters, as many as there is room for.
fn ending(said: &str, room: usize) -> &str {
    let start = said.char_indices().rev().take(room).last().map_or(said.len(), |(at, _)| at);
    from_a_line(said, start)
}

/// What is behind `start`: from the beginning of a line, if that is near.
fn from_a_line(said: &str, start: usize) -> &str {
    let rest = &said[start..];
    let is_cut = start > 0 && !said[..start].ends_with('\n');
    let line = rest.find('\n').map(|at| at + 1).filter(|at| is_cut && *at <= MOST_DROPPED);
    &rest[line.unwrap_or(0)..]
}

/// A word for a shell.
fn quoted(word: &str) -> String {
    let is_plain = |character: char| character.is_ascii_alphanumeric() || "@%_-+=:,./".contains(character);
    match word {
        "" => "''".to_owned(),
        word if word.chars().all(is_plain) => word.to_owned(),
        word => format!("'{}'", word.replace('\'', "'\"'\"'")),
    }
}
