//! Programs of MPI, as sagemaker-training-toolkit starts them (`mpi.py`): the first instance runs
//! `mpirun`, which starts its daemon on each of the others; there a program of ours waits to be
//! told (`shoal mpi wait`) where SageMaker's images have sshd.
//!
//! Where there is no `mpirun`, the ranks are started without one ([`crate::Ranks`]).
//!
//! Unlike there, each rank keeps the variables of its own instance: `SM_CURRENT_HOST` is where it
//! runs.

use serde_json::Value;

use crate::hyperparameters::{Hyperparameters, MPI};
use crate::python;
use crate::script::PYTHON;
use crate::{ElasticFacts, Facts, HOSTS_FILE, LAUNCHER, LaunchError};

const PER_HOST: &str = "sagemaker_mpi_num_of_processes_per_host";
const IN_ALL: &str = "sagemaker_mpi_num_processes";
const OPTIONS: &str = "sagemaker_mpi_custom_mpi_options";

/// What `mpirun` is to start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mpirun {
    /// Names of the instances, in the order of ranks.
    pub hosts: Vec<String>,
    /// Places for ranks on each, from 1.
    pub per_host: u32,
    /// Ranks, if not one for each place.
    pub processes: Option<u32>,
    /// The interface that the instances talk over.
    pub interface: String,
    /// The user's, behind ours.
    pub options: Vec<String>,
    /// Program and arguments of each rank.
    pub program: Vec<String>,
}

impl Mpirun {
    /// `mpirun` and its arguments. Its options mean the same to Open MPI 4 and 5.
    pub fn command(&self) -> Vec<String> {
        let Self { hosts, per_host, processes, interface, options, program } = self;
        let in_all = processes.unwrap_or(per_host.saturating_mul(u32::try_from(hosts.len()).unwrap_or(u32::MAX)));
        let places = match &**hosts {
            // A plain process has no host of its own name.
            [_] => format!("localhost:{per_host}"),
            hosts => Vec::from_iter(hosts.iter().map(|host| format!("{host}:{per_host}"))).join(","),
        };
        // Every instance has the same variables and sees the same files, so no prefix comes before
        // theirs; a daemon that goes into the background would seem to have ended.
        let ours = format!(
            "mpirun --host {places} -np {in_all} --allow-run-as-root --noprefix --leave-session-attached --tag-output \
             -mca btl_tcp_if_include \
             {interface} -mca oob_tcp_if_include {interface} --bind-to none --map-by slot -mca pml ob1 -mca btl \
             ^openib -mca \
             orte_abort_on_non_zero_status 1 -mca btl_vader_single_copy_mechanism none"
        );
        ours.split(' ').map(str::to_owned).chain(options.iter().cloned()).chain(program.iter().cloned()).collect()
    }
}

/// The command of this instance, one of `hosts`, the instances of the ranks. `program` is what each
/// rank is to run.
pub(crate) fn command(
    facts: &Facts,
    hosts: &[&str],
    framework: &Hyperparameters,
    program: Vec<String>,
) -> Result<Vec<String>, LaunchError> {
    let hosts = Vec::from_iter(hosts.iter().map(|host| (*host).to_owned()));
    if hosts.len() > 1 && !facts.addresses.is_empty() {
        return Err(LaunchError::MpiNeedsHosts(hosts.len()));
    }
    let is_first = hosts[0] == facts.current_host();
    if let Some(elastic) = facts.elastic {
        let waiting = words_of(&format!("{LAUNCHER} mpi wait --elastic"));
        return if is_first { horovodrun(facts, &hosts, framework, elastic, program) } else { Ok(waiting) };
    }
    if !is_first {
        return Ok(words_of(&format!("{LAUNCHER} mpi wait")));
    }
    let said = framework.framework.get(OPTIONS).filter(|value| !value.is_null()).map(python::str).unwrap_or_default();
    let options = options(&said)?;
    let run = Mpirun {
        hosts,
        per_host: number(framework, PER_HOST)?.unwrap_or(facts.gpus.max(1)),
        processes: number(framework, IN_ALL)?,
        interface: facts.network_interface.clone(),
        options,
        program,
    };
    let launcher = format!(
        "{LAUNCHER} mpi run --hosts {} --per-host {} --program {} --",
        run.hosts.join(","),
        run.per_host,
        run.program.len()
    );
    Ok(words_of(&launcher).into_iter().chain(run.command()).collect())
}

/// Horovod's elastic launcher, in `mpirun`'s place. An instance whose worker was lost is used
/// again: another one may have its name.
fn horovodrun(
    facts: &Facts,
    hosts: &[String],
    framework: &Hyperparameters,
    elastic: ElasticFacts,
    program: Vec<String>,
) -> Result<Vec<String>, LaunchError> {
    let is_set = |name: &&str| {
        framework.framework.get(*name).is_some_and(|value| !value.is_null() && !python::str(value).is_empty())
    };
    if let Some(of_mpirun) = [IN_ALL, OPTIONS].into_iter().find(is_set) {
        return Err(LaunchError::NotOfHorovod(of_mpirun));
    }
    let per_host = number(framework, PER_HOST)?.unwrap_or(facts.gpus.max(1));
    let most = per_host.saturating_mul(u32::try_from(hosts.len()).unwrap_or(u32::MAX));
    let least = per_host.saturating_mul(elastic.min_instances);
    let discovery = format!("cat {}", facts.paths.base().join(HOSTS_FILE).display());
    let launcher = format!(
        "{LAUNCHER} mpi elastic --hosts {} -- {PYTHON} -m horovod.runner.launch -np {most} --min-np {least} --max-np \
         {most} \
         --blacklist-cooldown-range 1 2 --host-discovery-script",
        hosts.join(",")
    );
    Ok(words_of(&launcher).into_iter().chain([discovery]).chain(program).collect())
}

fn words_of(line: &str) -> Vec<String> {
    line.split(' ').map(str::to_owned).collect()
}

/// Options of `mpirun` as the user writes them.
pub(crate) fn options(said: &str) -> Result<Vec<String>, LaunchError> {
    words(said).map(of_user).ok_or_else(|| LaunchError::MpiOptions(said.to_owned()))
}

/// A hyperparameter's number, if it has one.
fn number(framework: &Hyperparameters, name: &str) -> Result<Option<u32>, LaunchError> {
    match framework.framework.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(value) => match value.as_u64().and_then(|number| u32::try_from(number).ok()) {
            Some(0) => Ok(None),
            Some(number) => Ok(Some(number)),
            None => Err(LaunchError::MpiNumber(name.to_owned(), python::str(value))),
        },
    }
}

/// Ranks of an instance, at least 1; 1 without MPI.
pub(crate) fn per_host(facts: &Facts, framework: &Hyperparameters) -> u32 {
    if !framework.is_on(MPI) {
        return 1;
    }
    // A number that cannot be read is reported when the command is made.
    number(framework, PER_HOST).ok().flatten().unwrap_or(facts.gpus).max(1)
}

/// `--NCCL_DEBUG` is the toolkit's own option, for a variable of the ranks.
fn of_user(words: Vec<String>) -> Vec<String> {
    const NCCL_DEBUG: &str = "--NCCL_DEBUG";
    let (mut options, mut words) = (Vec::new(), words.into_iter());
    while let Some(word) = words.next() {
        let value = match word.strip_prefix(NCCL_DEBUG) {
            Some("") => words.next(),
            Some(rest) => rest.strip_prefix('=').map(str::to_owned),
            None => None,
        };
        match value {
            Some(value) => options.extend(["-x".to_owned(), format!("NCCL_DEBUG={value}")]),
            None => options.push(word),
        }
    }
    options
}

/// Words as a shell tells them apart, without its variables and patterns; `None` if a quote is not
/// closed.
fn words(text: &str) -> Option<Vec<String>> {
    let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None);
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        match (character, quote) {
            ('\'' | '"', None) => {
                quote = Some(character);
                word.get_or_insert_default();
            }
            (character, Some(closing)) if character == closing => quote = None,
            ('\\', None | Some('"')) => word.get_or_insert_default().push(characters.next()?),
            (character, None) if character.is_whitespace() => words.extend(word.take()),
            (character, _) => word.get_or_insert_default().push(character),
        }
    }
    words.extend(word);
    quote.is_none().then_some(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What `python3 -c 'import shlex, sys; print(shlex.split(sys.argv[1]))'` prints.
    #[test]
    fn options_are_told_apart_as_a_shell_does() {
        for (text, expected) in [
            ("", &[][..]),
            ("  ", &[]),
            ("-x A=1  --verbose", &["-x", "A=1", "--verbose"]),
            ("-x 'A=b c' \"d e\"f", &["-x", "A=b c", "d ef"]),
            ("'' a\\ b '\\' \"\\\"\"", &["", "a b", "\\", "\""]),
        ] {
            assert_eq!(words(text).unwrap(), expected, "{text}");
        }
        assert_eq!((words("'a"), words("a\\")), (None, None));
        for text in ["-x B --NCCL_DEBUG TRACE", "-x B --NCCL_DEBUG=TRACE"] {
            assert_eq!(of_user(words(text).unwrap()), ["-x", "B", "-x", "NCCL_DEBUG=TRACE"]);
        }
    }
}
