//! Ranks that `shoal ranks` starts on each instance: those of `smdistributed.dataparallel`, whose
//! own launcher is a closed program, and those of MPI jobs without `mpirun`: Horovod and
//! `smdistributed.modelparallel` read no more of MPI than its launcher's variables.

use std::ops::Range;

use serde_json::Value;

use crate::hyperparameters::Hyperparameters;
use crate::{Facts, LAUNCHER, LaunchError, mpi, python};

const DATAPARALLEL_OPTIONS: &str = "sagemaker_distributed_dataparallel_custom_mpi_options";

/// A job's variable that says how many processes torchrun and `smdistributed.dataparallel` start on
/// each instance.
pub(crate) const PER_INSTANCE: &str = "SHOAL_PROCESSES_PER_INSTANCE";

/// The variables that tell a rank its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RankNames {
    /// `RANK` and its like, as torchrun has them, and `SMDATAPARALLEL_LOCAL_RANK`.
    DataParallel,
    /// `OMPI_COMM_WORLD_RANK` and its like, as Open MPI has them.
    Mpi,
}

impl RankNames {
    /// The word on the command line.
    pub fn word(self) -> &'static str {
        match self {
            Self::DataParallel => "data-parallel",
            Self::Mpi => "mpi",
        }
    }
}

/// The ranks of one instance, and how to start them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ranks {
    /// The variables that tell them their numbers.
    pub names: RankNames,
    /// Names of the instances, in the order of ranks.
    pub hosts: Vec<String>,
    /// This instance's number among them.
    pub node: u32,
    /// Ranks on each instance, at least 1.
    pub per_host: u32,
    /// Ranks in all, if not `per_host` on each.
    pub in_all: Option<u32>,
    /// Variables that the user gives all ranks: `NAME=VALUE`.
    pub variables: Vec<String>,
    /// Program and arguments of each rank.
    pub program: Vec<String>,
}

impl Ranks {
    /// The launcher and its arguments.
    pub fn command(&self) -> Vec<String> {
        let Self { names, hosts, node, per_host, in_all, variables, program } = self;
        let mut words = format!(
            "{LAUNCHER} ranks --names {} --hosts {} --node {node} --per-host {per_host}",
            names.word(),
            hosts.join(",")
        );
        if let Some(in_all) = in_all {
            words.push_str(&format!(" --in-all {in_all}"));
        }
        let words = words.split(' ').map(str::to_owned);
        let variables = variables.iter().flat_map(|variable| ["--variable".to_owned(), variable.clone()]);
        words.chain(variables).chain(["--".to_owned()]).chain(program.iter().cloned()).collect()
    }

    /// The number of ranks in all.
    pub fn world(&self) -> u32 {
        let places = self.per_host.saturating_mul(u32::try_from(self.hosts.len()).unwrap_or(u32::MAX));
        self.in_all.map_or(places, |in_all| in_all.min(places))
    }

    /// The ranks of this instance; none if `in_all` are placed before it.
    pub fn here(&self) -> Range<u32> {
        self.of_node(self.node)
    }

    fn of_node(&self, node: u32) -> Range<u32> {
        let begin = node.saturating_mul(self.per_host).min(self.world());
        begin..begin.saturating_add(self.per_host).min(self.world())
    }

    /// A rank's variables, besides those of its instance.
    pub fn told(&self, rank: u32) -> Vec<(String, String)> {
        let here = self.here();
        let [world, local, on_this] =
            [self.world(), rank - here.start, here.end - here.start].map(|number| number.to_string());
        let [rank, node] = [rank, self.node].map(|number| number.to_string());
        let told: Vec<(&str, String)> = match self.names {
            RankNames::DataParallel => vec![
                ("RANK", rank),
                ("WORLD_SIZE", world),
                ("SMDATAPARALLEL_LOCAL_RANK", local.clone()),
                ("LOCAL_RANK", local),
                ("LOCAL_WORLD_SIZE", on_this),
                ("GROUP_RANK", node),
            ],
            RankNames::Mpi => vec![
                ("OMPI_COMM_WORLD_RANK", rank),
                ("OMPI_COMM_WORLD_SIZE", world.clone()),
                ("OMPI_UNIVERSE_SIZE", world),
                ("OMPI_COMM_WORLD_NODE_RANK", local.clone()),
                ("OMPI_COMM_WORLD_LOCAL_RANK", local),
                ("OMPI_COMM_WORLD_LOCAL_SIZE", on_this),
            ],
        };
        let of_user = self.variables.iter().filter_map(|variable| variable.split_once('='));
        let of_user = of_user.map(|(name, value)| (name.to_owned(), value.to_owned()));
        of_user.chain(told.into_iter().map(|(name, value)| (name.to_owned(), value))).collect()
    }
}

/// The command of this instance, one of `hosts`, for `smdistributed.dataparallel`; `program` is
/// what each rank is to run.
pub(crate) fn of_dataparallel(
    facts: &Facts,
    hosts: &[&str],
    framework: &Hyperparameters,
    program: Vec<String>,
) -> Result<Vec<String>, LaunchError> {
    let said = framework
        .framework
        .get(DATAPARALLEL_OPTIONS)
        .filter(|value| !value.is_null())
        .map(python::str)
        .unwrap_or_default();
    let variables = variables(&mpi::options(&said)?);
    let ranks = Ranks { variables, ..of_torchrun(facts, hosts, program)? };
    Ok(ranks.command())
}

/// The ranks of this instance, one of `hosts`, as torchrun would start them.
pub(crate) fn of_torchrun(facts: &Facts, hosts: &[&str], program: Vec<String>) -> Result<Ranks, LaunchError> {
    let node = hosts.iter().position(|host| *host == facts.current_host()).unwrap_or(0);
    Ok(Ranks {
        names: RankNames::DataParallel,
        hosts: hosts.iter().map(|host| (*host).to_owned()).collect(),
        node: u32::try_from(node).unwrap_or(u32::MAX),
        per_host: per_instance(facts)?,
        in_all: None,
        variables: Vec::new(),
        program,
    })
}

/// The variables among options of `mpirun`: `-x NAME=VALUE`. The others are for MPI alone.
pub fn variables(options: &[String]) -> Vec<String> {
    let pairs = options.iter().zip(options.iter().skip(1));
    pairs.filter(|(name, value)| *name == "-x" && value.contains('=')).map(|(_, value)| value.clone()).collect()
}

/// Processes of torchrun and of `smdistributed.dataparallel` on an instance: as the job's variable
/// says, else one for each GPU, else one.
pub(crate) fn per_instance(facts: &Facts) -> Result<u32, LaunchError> {
    match setting(facts, &Hyperparameters::of(&facts.hyperparameters), PER_INSTANCE) {
        None => Ok(facts.gpus.max(1)),
        Some(text) => match text.parse() {
            Ok(number) if number > 0 => Ok(number),
            _ => Err(LaunchError::ProcessesNumber(text)),
        },
    }
}

/// The variables of `smdistributed.dataparallel`'s launcher; scripts and libraries look whether
/// they are set.
pub(crate) fn told_to_all(facts: &Facts, hosts: &[&str]) -> Vec<(&'static str, String)> {
    let Some(first) = hosts.first() else { return Vec::new() };
    let together = if hosts.len() > 1 { "SMDATAPARALLEL_USE_HOMOGENEOUS" } else { "SMDATAPARALLEL_USE_SINGLENODE" };
    vec![
        (together, "1".to_owned()),
        ("SMDATAPARALLEL_SERVER_ADDR", facts.address(first).to_owned()),
        ("SMDATAPARALLEL_SERVER_PORT", "7592".to_owned()),
        ("SAGEMAKER_INSTANCE_TYPE", facts.instance_type.clone()),
    ]
}

/// A value that the job's variable `name` has, or else its hyperparameter of that name in small
/// letters, which is no argument of its script.
pub(crate) fn setting(facts: &Facts, hyperparameters: &Hyperparameters, name: &str) -> Option<String> {
    let given = facts.environment.get(name).cloned();
    let of_hyperparameter =
        || hyperparameters.of_shoal.get(&name.to_lowercase()).filter(|value| **value != Value::Null).map(python::str);
    given.or_else(of_hyperparameter).filter(|text| !text.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ranks(names: RankNames, node: u32, in_all: Option<u32>) -> Ranks {
        Ranks {
            names,
            hosts: ["algo-1", "algo-2", "algo-3"].map(str::to_owned).to_vec(),
            node,
            per_host: 2,
            in_all,
            variables: vec!["A=b c".to_owned()],
            program: vec!["python3".to_owned(), "train.py".to_owned()],
        }
    }

    #[test]
    fn each_rank_is_told_who_it_is() {
        let told = |ranks: &Ranks, rank| {
            Vec::from_iter(ranks.told(rank).into_iter().map(|(name, value)| format!("{name}={value}"))).join(" ")
        };
        let second = ranks(RankNames::DataParallel, 1, None);
        assert_eq!((second.here(), second.world()), (2..4, 6));
        assert_eq!(
            told(&second, 3),
            "A=b c RANK=3 WORLD_SIZE=6 SMDATAPARALLEL_LOCAL_RANK=1 LOCAL_RANK=1 LOCAL_WORLD_SIZE=2 GROUP_RANK=1"
        );
        // Hosts are filled one after the other, as by mpirun.
        let few = ranks(RankNames::Mpi, 1, Some(3));
        assert_eq!(few.here(), 2..3);
        assert_eq!(
            told(&few, 2),
            "A=b c OMPI_COMM_WORLD_RANK=2 OMPI_COMM_WORLD_SIZE=3 OMPI_UNIVERSE_SIZE=3 OMPI_COMM_WORLD_NODE_RANK=0 \
             OMPI_COMM_WORLD_LOCAL_RANK=0 OMPI_COMM_WORLD_LOCAL_SIZE=1"
        );
        assert!(ranks(RankNames::Mpi, 2, Some(3)).here().is_empty());
        assert_eq!(ranks(RankNames::Mpi, 0, Some(99)).world(), 6);
    }

    #[test]
    fn the_launcher_is_told_all() {
        assert_eq!(
            ranks(RankNames::Mpi, 1, Some(3)).command().join("|"),
            "/opt/shoal/bin/shoal|ranks|--names|mpi|--hosts|algo-1,algo-2,algo-3|--node|1|--per-host|2|--in-all|3|--variable|A=b c|--|python3|train.py"
        );
        let options = ["-x", "NAME", "--verbose", "-x", "A=b", "-x"].map(str::to_owned);
        assert_eq!(variables(&options), ["A=b"]);
    }
}
