//! SDK v3's `MPI()`: its `mpi_driver.py` wants an sshd on each instance, paramiko, and to write to
//! `/etc/environment`. In its place lies a driver of ours, which starts this; everything else of
//! SDK v3 runs unchanged.

use std::fs;
use std::path::{Component, Path, PathBuf};

use serde_json::{Map, Value};
use shoal_contract::{FAILURE, LaunchError, Mpirun, Places};
use shoal_link::{Assignment, Program};

use super::{run, say, wait};

/// Where SDK v3's is, in the channel of its drivers.
const DRIVER: &str = "distributed_drivers/mpi_driver.py";

/// What lies there instead.
pub(crate) const OURS: &str = include_str!("mpi_driver.py");

/// Where the driver is in an instance, if the job is a program of MPI by SDK v3.
pub(crate) fn driver(assignment: &Assignment) -> Option<PathBuf> {
    let channel = assignment.channels.iter().find(|channel| channel.name == "sm_drivers")?;
    let tree = channel.tree.directory();
    let told: Value = serde_json::from_slice(&fs::read(tree.join("distributed.json")).ok()?).ok()?;
    let is_mpi = matches!(assignment.program, Program::Host { .. }) && told.get("mpi_additional_options").is_some();
    (is_mpi && tree.join(DRIVER).is_file())
        .then(|| shoal_contract::Paths::default().channel(&channel.name).join(DRIVER))
}

/// What SDK v3's drivers have told this program.
struct Told {
    hosts: Vec<String>,
    current: String,
    entry_script: String,
    distribution: Map<String, Value>,
    hyperparameters: Map<String, Value>,
    gpus: u32,
    interface: String,
}

/// Runs on each instance what `mpi_driver.py` is to do there; `python` starts the script. Gives the
/// exit code.
pub fn drive(python: &str) -> i32 {
    let told = match Told::read(|name| std::env::var(name).ok()) {
        Ok(told) => told,
        Err(error) => {
            say(&error);
            return FAILURE;
        }
    };
    // The variable is set where instances are plain processes: their names do not resolve, and the
    // port that one listens on would be the machine's.
    if told.hosts.len() > 1 && std::env::var_os("SHOAL_HOST_ADDRESSES").is_some() {
        say(LaunchError::MpiNeedsHosts(told.hosts.len()));
        return FAILURE;
    }
    if told.hosts.first() != Some(&told.current) {
        return wait(false);
    }
    let mpirun = told.mpirun(python);
    let command = mpirun.command();
    say(format_args!("executing {}", command.join(" ")));
    run(&Places { hosts: mpirun.hosts, per_host: mpirun.per_host }, mpirun.program.len(), &command)
}

impl Told {
    fn read(variable: impl Fn(&str) -> Option<String>) -> Result<Self, String> {
        let text = |name: &str| {
            variable(name).ok_or_else(|| {
                format!("{name} is not set; SDK v3's environment.py sets it before its mpi_driver.py starts")
            })
        };
        let json = |name: &str| {
            let text = text(name)?;
            serde_json::from_str::<Value>(&text)
                .map_err(|error| format!("{name} is \"{text}\", which is not JSON: {error}"))
        };
        let object = |name: &str| match json(name)? {
            Value::Object(members) => Ok(members),
            other => Err(format!("{name} is {other}, which is no JSON object")),
        };
        let hosts: Vec<String> = serde_json::from_value(json("SM_HOSTS")?)
            .map_err(|error| format!("SM_HOSTS is no list of names: {error}"))?;
        let entry_script = text("SM_ENTRY_SCRIPT")?;
        let leads_out = Path::new(&entry_script).components().any(|part| part == Component::ParentDir);
        if entry_script.is_empty() || leads_out {
            return Err(format!("SM_ENTRY_SCRIPT is \"{entry_script}\"; name a file of source_dir as entry_script"));
        }
        Ok(Self {
            hosts,
            current: text("SM_CURRENT_HOST")?,
            entry_script,
            distribution: object("SM_DISTRIBUTED_CONFIG")?,
            hyperparameters: object("SM_HPS")?,
            gpus: variable("SM_NUM_GPUS").and_then(|number| number.parse().ok()).unwrap_or(0),
            interface: variable("SM_NETWORK_INTERFACE_NAME").unwrap_or_else(|| "eth0".into()),
        })
    }

    /// `process_count_per_node` ranks on each instance, as its documentation has it.
    fn mpirun(self, python: &str) -> Mpirun {
        let count = self
            .distribution
            .get("process_count_per_node")
            .and_then(Value::as_u64)
            .and_then(|count| u32::try_from(count).ok());
        let options = self.distribution.get("mpi_additional_options").and_then(Value::as_array).into_iter().flatten();
        let options = options.map(|option| option.as_str().map_or_else(|| option.to_string(), str::to_owned)).collect();
        let program = [python, "-m", "mpi4py", &self.entry_script].map(str::to_owned);
        let arguments = self.hyperparameters.iter().flat_map(|(name, value)| [format!("--{name}"), argument(value)]);
        Mpirun {
            hosts: self.hosts,
            per_host: count.filter(|count| *count > 0).unwrap_or(self.gpus.max(1)),
            processes: None,
            interface: self.interface,
            options,
            program: program.into_iter().chain(arguments).collect(),
        }
    }
}

/// A hyperparameter as SDK v3's drivers hand it over: a string that is JSON is read, and everything
/// but a string is JSON again.
fn argument(value: &Value) -> String {
    let decoded = value.as_str().and_then(|text| serde_json::from_str::<Value>(text).ok());
    match decoded.as_ref().unwrap_or(value) {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}
