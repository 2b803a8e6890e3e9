//! A job's hyperparameters: which are the script's, a framework's, the toolkit's and Shoal's, and
//! the arguments that the script gets.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::python::{self, decoded};

/// Hyperparameters that are for the toolkit alone.
const RESERVED: [&str; 9] = [
    PROGRAM,
    SUBMIT_DIRECTORY,
    "sagemaker_enable_cloudwatch_metrics",
    "sagemaker_region",
    "sagemaker_container_log_level",
    "sagemaker_job_name",
    "default_user_module_name",
    "_tuning_objective_metric",
    "sagemaker_s3_output",
];

pub(crate) const PROGRAM: &str = "sagemaker_program";
pub(crate) const SUBMIT_DIRECTORY: &str = "sagemaker_submit_directory";

/// Other hyperparameters that begin so are a framework's: `sagemaker_mpi_enabled`.
const PREFIX: &str = "sagemaker_";

/// Prefix of Shoal's own hyperparameters, such as `shoal_simulate_instances`.
const PREFIX_OF_SHOAL: &str = "shoal_";

/// A hyperparameter of a framework that asks for a launcher.
const TORCHRUN: [&str; 2] = ["sagemaker_torch_distributed_enabled", "sagemaker_pytorch_ddp_enabled"];
pub(crate) const DATAPARALLEL: &str = "sagemaker_distributed_dataparallel_enabled";
pub(crate) const MPI: &str = "sagemaker_mpi_enabled";

/// The framework's parameter that asks for it.
pub(crate) const PARAMETER_SERVER: &str = "sagemaker_parameter_server_enabled";

/// A job's hyperparameters, read as JSON, by whom they are for.
pub(crate) struct Hyperparameters {
    /// The script's.
    pub(crate) own: Map<String, Value>,
    /// A framework's.
    pub(crate) framework: Map<String, Value>,
    /// The toolkit's.
    pub(crate) reserved: Map<String, Value>,
    /// Shoal's.
    pub(crate) of_shoal: Map<String, Value>,
}

impl Hyperparameters {
    pub(crate) fn of(all: &BTreeMap<String, String>) -> Self {
        let [mut own, mut framework, mut reserved, mut of_shoal] = [Map::new(), Map::new(), Map::new(), Map::new()];
        for (name, value) in all {
            let of_whom = match name.as_str() {
                name if RESERVED.contains(&name) => &mut reserved,
                name if name.starts_with(PREFIX) => &mut framework,
                name if name.starts_with(PREFIX_OF_SHOAL) => &mut of_shoal,
                _ => &mut own,
            };
            of_whom.insert(name.clone(), decoded(value));
        }
        Self { own, framework, reserved, of_shoal }
    }

    pub(crate) fn is_on(&self, name: &str) -> bool {
        match self.framework.get(name) {
            Some(Value::Bool(on)) => *on,
            // Of estimators that encode what is text already.
            Some(Value::String(text)) => text.eq_ignore_ascii_case("true"),
            _ => false,
        }
    }

    pub(crate) fn asks_for_torchrun(&self) -> bool {
        TORCHRUN.iter().any(|name| self.is_on(name))
    }

    /// Whether the instances are to be launched as one distributed program.
    pub(crate) fn is_distributed(&self) -> bool {
        const OTHERS: [&str; 5] = [
            MPI,
            DATAPARALLEL,
            PARAMETER_SERVER,
            "sagemaker_pytorch_xla_multi_worker_enabled",
            "sagemaker_multi_worker_mirrored_strategy_enabled",
        ];
        self.asks_for_torchrun() || OTHERS.iter().any(|name| self.is_on(name))
    }
}

/// The command line that the toolkit makes of a script's hyperparameters, in the order of their
/// names: `--name value`, one letter with one dash; an object is `member=value,member=value`, null
/// nothing, everything else as Python's `str()` has it.
pub(crate) fn arguments(hyperparameters: &Map<String, Value>) -> Vec<String> {
    let mut sorted = Vec::from_iter(hyperparameters);
    sorted.sort_by_key(|(name, _)| *name);
    let pairs = sorted.into_iter().map(|(name, value)| {
        let name = if name.chars().count() == 1 { format!("-{name}") } else { format!("--{name}") };
        let value = match value {
            Value::Null => String::new(),
            Value::Object(members) => {
                let mut members =
                    Vec::from_iter(members.iter().map(|(name, value)| format!("{name}={}", python::str(value))));
                members.sort();
                members.join(",")
            }
            other => python::str(other),
        };
        [name, value]
    });
    pairs.flatten().collect()
}
