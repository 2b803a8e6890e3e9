//! A job's own script: its files put into `/opt/ml/code`, and the command that runs it.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use shoal_contract::{Facts, LaunchError, Paths, Script, headline, program_failure, script_failure};
use shoal_link::{Assignment, Program};

use crate::hints::Hints;
use crate::source::{self, SourceError};
use crate::{inside, package};

/// Why a script cannot be started. All of it is for the user.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ScriptError {
    /// The job names none.
    #[error(
        "there is no script: neither the hyperparameter sagemaker_program nor the variable SAGEMAKER_PROGRAM names one"
    )]
    None,
    /// Its files are nowhere.
    #[error(
        "sagemaker_submit_directory is \"{0}\", and there is nothing; give the S3 URI of a sourcedir.tar.gz, or a path \
         below /opt/ml/input/data/<channel>"
    )]
    NoSource(String),
    /// Its files cannot be used.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// It is written for a library that our Python package stands for.
    #[error(
        "smdistributed.dataparallel is served by Shoal's Python package, and this server has none: build its wheel \
         (cargo xtask package in a \
         checkout), name it as python_package in shoal.toml or put it beside the program shoal, and start the server \
         again"
    )]
    NoPackage,
    /// It cannot be launched as it asks to.
    #[error(transparent)]
    Launch(#[from] LaunchError),
    /// A script that is a command cannot be made executable.
    #[error("{program} cannot be made executable")]
    Mode {
        /// As the user named it.
        program: String,
        /// Why not.
        source: io::Error,
    },
}

/// Puts the script's files into `code`, an empty directory, and gives the command for this
/// instance, to be run there, with these `arguments` behind its own. `tree` holds the object that
/// an S3 URI names.
pub(crate) fn prepare(
    assignment: &Assignment,
    facts: &Facts,
    tree: Option<&Path>,
    arguments: &[String],
    code: &Path,
) -> Result<Vec<String>, ScriptError> {
    let mut script = Script::of(&facts.hyperparameters, &facts.environment).ok_or(ScriptError::None)?;
    script.arguments = arguments.to_vec();
    if let Some(name) = &script.source {
        place(assignment, facts, tree, name, code)?;
    }
    let is_package = package::is_one(code);
    // A path that leads out of the directory, by itself or through a link, is a file of this
    // machine.
    let program =
        source::relative(Path::new(&script.program)).and_then(|program| inside::resolve(code, &program).ok().flatten());
    if script.is_command(is_package)
        && let Some(program) = program.filter(|program| program.is_file())
    {
        let failed = |source| ScriptError::Mode { program: script.program.clone(), source };
        fs::set_permissions(program, fs::Permissions::from_mode(0o755)).map_err(failed)?;
    }
    Ok(script.command(facts, is_package)?)
}

/// What is said of a program that has failed by itself, after what it said last on stderr.
pub(crate) fn failure(assignment: &Assignment, code: i32, command: &[String], stderr: &str, hints: &Hints) -> String {
    let hint = headline(stderr).and_then(|line| hints.of(&line));
    match &assignment.program {
        Program::Script { .. } => script_failure(code, stderr, command, hint.as_deref()),
        Program::Builtin { .. } => stderr.to_owned(),
        Program::Host { .. } | Program::Image { .. } => program_failure(stderr, hint.as_deref()),
    }
}

/// In scripts that share out their work among instances by themselves.
const TOGETHER: [&str; 9] = [
    "SM_HOSTS",
    "SM_CURRENT_HOST",
    "SM_NUM_HOSTS",
    "SM_RESOURCE_CONFIG",
    "resourceconfig.json",
    "init_process_group",
    "MASTER_ADDR",
    "TF_CONFIG",
    "mpi4py",
];

/// Bytes of a script that are looked at.
const MOST_OF_SCRIPT: u64 = 1 << 20;

/// What the log says where several instances run one script, and nothing makes one program of them.
pub(crate) fn apart(assignment: &Assignment, code: &Path) -> Option<String> {
    let instances = assignment.hosts.len();
    let is_script = matches!(assignment.program, Program::Script { .. });
    if !is_script || assignment.host != 1 || instances < 2 || Script::is_distributed(&assignment.hyperparameters) {
        return None;
    }
    let script = Script::of(&assignment.hyperparameters, &assignment.environment)?;
    let text =
        inside::read_start(code, &source::relative(Path::new(&script.program))?, MOST_OF_SCRIPT).ok().flatten()?;
    let text = String::from_utf8_lossy(&text);
    if TOGETHER.iter().any(|word| text.contains(word)) {
        return None;
    }
    let name = &script.program;
    Some(format!(
        "{instances} instances run {name}, each all of it by itself, and it does not ask who the others are: that is \
         the same training {instances} times, unless their \
         channels are sharded. A distribution makes one training of them: shoal train --distribution torchrun, or an \
         estimator's \
         distribution={{\"torch_distributed\": {{\"enabled\": True}}}} (docs/distributions.md)"
    ))
}

fn place(
    assignment: &Assignment,
    facts: &Facts,
    tree: Option<&Path>,
    name: &str,
    code: &Path,
) -> Result<(), ScriptError> {
    if [facts.paths.code(), Paths::default().code()].iter().any(|code| Path::new(name) == code) {
        return Ok(());
    }
    let found = match tree {
        Some(tree) => name.rsplit('/').next().and_then(|file| inside::resolve(tree, Path::new(file)).ok().flatten()),
        None => of_channel(assignment, facts, name),
    };
    let found = found.filter(|path| path.exists()).ok_or_else(|| ScriptError::NoSource(name.to_owned()))?;
    let done = if found.is_dir() { source::copy(&found, name, code) } else { source::unpack(&found, name, code) };
    Ok(done?)
}

/// What lies at a path below the channels, which the program sees and the agent has elsewhere.
fn of_channel(assignment: &Assignment, facts: &Facts, name: &str) -> Option<PathBuf> {
    let data = [facts.paths.data(), Paths::default().data()];
    let below = data.iter().find_map(|data| Path::new(name).strip_prefix(data).ok())?;
    let mut parts = below.components();
    let channel = parts.next()?;
    let channel = assignment.channels.iter().find(|it| Path::new(&it.name).components().eq([channel]))?;
    let is_below = parts.clone().all(|part| matches!(part, std::path::Component::Normal(_)));
    is_below.then(|| channel.tree.directory().join(parts.as_path()))
}
