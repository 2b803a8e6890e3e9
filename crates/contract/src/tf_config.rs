//! `TF_CONFIG`: how processes of TensorFlow find each other (sagemaker-tensorflow-training-toolkit,
//! `training.py`). There the first host is called `master`, and every host has a parameter server
//! besides.

use serde_json::{Value, json};

use crate::groups::Groups;
use crate::hyperparameters::{Hyperparameters, PARAMETER_SERVER};
use crate::{Facts, LAUNCHER, Port};

/// The variable's name.
pub(crate) const VARIABLE: &str = "TF_CONFIG";

const MULTI_WORKER_MIRRORED: &str = "sagemaker_multi_worker_mirrored_strategy_enabled";

/// What a script's process on this instance is told; `None` if the distribution is not
/// TensorFlow's, or not for this instance.
pub(crate) fn tf_config(facts: &Facts, hyperparameters: &Hyperparameters) -> Option<Value> {
    let groups = Groups::of(facts, hyperparameters);
    let hosts = groups.hosts_of_distribution();
    let rank = hosts.iter().position(|host| *host == facts.current_host())?;
    let at = |hosts: &[&str], port: Port| {
        let port = port.number(facts.first_port);
        Vec::from_iter(hosts.iter().map(|host| format!("{}:{port}", facts.address(host))))
    };
    // One instance alone needs none.
    if hyperparameters.is_on(PARAMETER_SERVER) && hosts.len() > 1 {
        let (worker, server) = (Port::TensorFlowWorker, Port::TensorFlowServer);
        let cluster =
            json!({ "master": at(&hosts[..1], worker), "ps": at(&hosts, server), "worker": at(&hosts[1..], worker) });
        let (kind, index) = if rank == 0 { ("master", 0) } else { ("worker", rank - 1) };
        return Some(json!({ "cluster": cluster, "environment": "cloud", "task": { "index": index, "type": kind } }));
    }
    hyperparameters.is_on(MULTI_WORKER_MIRRORED).then(|| {
        let task = json!({ "index": rank, "type": "worker" });
        json!({ "cluster": { "worker": at(&hosts, Port::TensorFlowMirrored) }, "environment": "cloud", "task": task })
    })
}

/// The command that starts this instance's parameter server and, beside it, `command`, the
/// script's; `command` itself where the script is not told of servers, or the request brings a
/// cluster of its own.
pub(crate) fn with_server(facts: &Facts, hyperparameters: &Hyperparameters, command: Vec<String>) -> Vec<String> {
    let groups = Groups::of(facts, hyperparameters);
    let hosts = groups.hosts_of_distribution();
    let index = hosts.iter().position(|host| *host == facts.current_host());
    match index {
        Some(index)
            if hyperparameters.is_on(PARAMETER_SERVER)
                && hosts.len() > 1
                && !facts.environment.contains_key(VARIABLE) =>
        {
            let launcher = [LAUNCHER, "parameter-server", "--index", &index.to_string(), "--"].map(str::to_owned);
            launcher.into_iter().chain(command).collect()
        }
        _ => command,
    }
}
