//! The program's environment variables.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use crate::Port;
use crate::config::{input_data_config, resource_config};
use crate::groups::Groups;
use crate::hyperparameters::{DATAPARALLEL, Hyperparameters, arguments};
use crate::python::repr_of_float;
use crate::tf_config::{self, tf_config};
use crate::{Facts, Script, elastic, ranks};

/// What a program is told of itself: the request's `Environment` cannot say otherwise, as
/// SageMaker's toolkit writes its own over it.
const FACTS: [&str; 6] = [
    "TRAINING_JOB_NAME",
    "TRAINING_JOB_ARN",
    "SAGEMAKER_JOB_NAME",
    "SAGEMAKER_BASE_DIR",
    "CURRENT_HOST",
    "SHOAL_HOST_ADDRESSES",
];

/// Shoal's settings that a job gives as a variable, or as a hyperparameter in small letters.
const SETTINGS: [&str; 4] =
    ["SHOAL_SIMULATE_INSTANCES", "SHOAL_SIMULATE_BATCH_STATISTICS", "SHOAL_SIMULATE_RATE", ranks::PER_INSTANCE];

/// Variables of the training library that the request's `Environment` may set. All other names that
/// begin with `SHOAL_` are the platform's: addresses, secrets and ranks, which a request must not
/// replace.
const LIBRARY: [&str; 12] = [
    "SHOAL_COMM_DEADLINE",
    "SHOAL_COMM_HEARTBEAT",
    "SHOAL_COMM_NCCL",
    "SHOAL_COMM_PATIENCE",
    "SHOAL_COMM_STAGING",
    "SHOAL_COMM_STALL",
    "SHOAL_COMM_TIMELINE",
    "SHOAL_COMM_TRANSPORT",
    "SHOAL_ELASTIC_LEAST",
    "SHOAL_ELASTIC_MOST",
    "SHOAL_ELASTIC_PATIENCE",
    "SHOAL_ELASTIC_ROSTER",
];

/// Belong together: a request that brings one of its own brings all that it needs.
const CREDENTIALS: [&str; 3] = ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"];

/// The whole environment of the program: what the platform sets, what SageMaker's images would have
/// set (`PATH`, unbuffered Python, the `SM_*` variables of sagemaker-training-toolkit), and the
/// request's own `Environment`. That wins, but over what the program is told of itself (`SM_*`, the
/// job's name, its host) and names that begin with `SHOAL_`, of which it sets the training
/// library's (`LIBRARY`) alone. Keys of the request's own come without the job's session token.
///
/// A hyperparameter whose name or value cannot be a variable (`=` or NUL) gets no `SM_HP_`
/// variable; it is in `SM_HPS` and in the file all the same.
pub fn environment(facts: &Facts) -> BTreeMap<String, String> {
    let mut variables = platform(facts);
    if CREDENTIALS.iter().any(|name| facts.environment.contains_key(*name)) {
        variables.retain(|name, _| !CREDENTIALS.contains(&name.as_str()));
    }
    let told: Vec<_> = FACTS.iter().filter_map(|name| variables.remove_entry(*name)).collect();
    let is_for_the_program = |name: &str| !name.starts_with("SHOAL_") || LIBRARY.contains(&name);
    variables.extend(facts.environment.clone().into_iter().filter(|(name, _)| is_for_the_program(name)));
    variables.extend(told);
    let hyperparameters = Hyperparameters::of(&facts.hyperparameters);
    let set =
        SETTINGS.iter().filter_map(|name| Some(((*name).to_owned(), ranks::setting(facts, &hyperparameters, name)?)));
    variables.extend(set);
    let script = Script::of(&facts.hyperparameters, &facts.environment);
    if script.is_some() {
        for_scripts(facts, &mut variables);
    }
    variables.extend(toolkit(facts, script.as_ref()));
    variables.retain(|name, value| !name.is_empty() && !name.contains(['=', '\0']) && !value.contains('\0'));
    variables
}

fn platform(facts: &Facts) -> BTreeMap<String, String> {
    let port = |port: Port| port.number(facts.first_port).to_string();
    let mut variables: BTreeMap<String, String> = [
        ("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"),
        ("HOME", &facts.home),
        ("LANG", "C.UTF-8"),
        ("PYTHONUNBUFFERED", "1"),
        ("PYTHONDONTWRITEBYTECODE", "1"),
        ("TRAINING_JOB_NAME", &facts.job_name),
        ("TRAINING_JOB_ARN", &facts.job_arn),
        ("AWS_REGION", &facts.region),
        ("AWS_DEFAULT_REGION", &facts.region),
        ("SAGEMAKER_JOB_NAME", &facts.job_name),
        ("SAGEMAKER_REGION", &facts.region),
        ("CURRENT_HOST", facts.current_host()),
        // Frameworks rendezvous at the first host; the port is the one that SageMaker's images use.
        ("MASTER_ADDR", facts.address(&first_rank(facts))),
        ("MASTER_PORT", &port(Port::Master)),
    ]
    .map(|(name, value)| (name.to_owned(), value.to_owned()))
    .into();
    if facts.first_port.is_some() {
        // Programs of ours that have a port of their own.
        variables.insert("SHOAL_MPI_PORT".to_owned(), port(Port::Mpi));
        variables.insert("SHOAL_ALGORITHM_PORT".to_owned(), port(Port::Algorithm));
    }
    if let Some(endpoint) = &facts.endpoint {
        let of_endpoint = [
            ("AWS_ENDPOINT_URL", &endpoint.url),
            ("AWS_ACCESS_KEY_ID", &endpoint.access_key_id),
            ("AWS_SECRET_ACCESS_KEY", &endpoint.secret_access_key),
            ("AWS_SESSION_TOKEN", &endpoint.session_token),
        ];
        variables.extend(of_endpoint.map(|(name, value)| (name.to_owned(), value.clone())));
        // Without it clients ask the instance metadata service, which nobody answers, before they
        // use the keys above.
        variables.insert("AWS_EC2_METADATA_DISABLED".into(), "true".into());
    }
    if let Some(proxy) = &facts.proxy {
        // Both forms are in use: curl reads `http_proxy` in small letters only, others the capital
        // form.
        let bypass = proxy.bypass.join(",");
        for (name, value) in [("http_proxy", &proxy.url), ("https_proxy", &proxy.url), ("no_proxy", &bypass)] {
            variables.insert(name.to_owned(), value.clone());
            variables.insert(name.to_uppercase(), value.clone());
        }
    }
    variables.extend(elastic::variables(facts).into_iter().map(|(name, value)| (name.to_owned(), value)));
    if !facts.addresses.is_empty() {
        let pairs = facts.addresses.iter().map(|(host, address)| format!("{host}={address}"));
        variables.insert("SHOAL_HOST_ADDRESSES".into(), Vec::from_iter(pairs).join(","));
    }
    if facts.paths.base() != crate::Paths::default().base() {
        variables.insert("SAGEMAKER_BASE_DIR".into(), text(facts.paths.base()));
    }
    variables
}

/// The instance of the first rank: the first of those that the distribution is for.
fn first_rank(facts: &Facts) -> String {
    let groups = Groups::of(facts, &Hyperparameters::of(&facts.hyperparameters));
    groups.hosts_of_distribution().first().copied().unwrap_or(facts.sorted_hosts()[0]).to_owned()
}

/// What the images of frameworks set for a script, besides `SM_*`: modules beside it are found
/// wherever it goes, NCCL finds its way, and processes of TensorFlow find each other.
fn for_scripts(facts: &Facts, variables: &mut BTreeMap<String, String>) {
    let code = text(&facts.paths.code());
    let path = match variables.get("PYTHONPATH").filter(|path| !path.is_empty()) {
        Some(path) => format!("{code}:{path}"),
        None => code,
    };
    variables.insert("PYTHONPATH".into(), path);
    let hyperparameters = Hyperparameters::of(&facts.hyperparameters);
    if hyperparameters.is_on(DATAPARALLEL) {
        let hosts = Groups::of(facts, &hyperparameters);
        for (name, value) in ranks::told_to_all(facts, &hosts.hosts_of_distribution()) {
            variables.entry(name.into()).or_insert(value);
        }
    }
    if let Some(told) = tf_config(facts, &hyperparameters) {
        variables.entry(tf_config::VARIABLE.into()).or_insert_with(|| told.to_string());
    }
    // InfiniBand is in the network of machines, if it is anywhere.
    let no_infiniband = facts.first_port.is_none().then_some(("NCCL_IB_DISABLE", "1"));
    let of_nccl = [("NCCL_SOCKET_IFNAME", facts.network_interface.as_str()), ("NCCL_DEBUG", "WARN")];
    for (name, value) in of_nccl.into_iter().chain(no_infiniband) {
        variables.entry(name.into()).or_insert_with(|| value.into());
    }
}

/// `SM_*` as `to_env_vars` of sagemaker-training-toolkit writes them: strings raw, everything else
/// as compact JSON with sorted keys.
fn toolkit(facts: &Facts, script: Option<&Script>) -> BTreeMap<String, String> {
    let paths = &facts.paths;
    let hosts = facts.sorted_hosts();
    let hyperparameters = Hyperparameters::of(&facts.hyperparameters);
    let groups = Groups::of(facts, &hyperparameters);
    let (distribution_groups, distribution_hosts) = (groups.of_distribution(), groups.hosts_of_distribution());
    let master = distribution_hosts.first().copied().unwrap_or(hosts[0]);
    let Hyperparameters { own, framework, reserved, .. } = hyperparameters;
    let module_dir = script.and_then(|script| script.source.clone()).unwrap_or_else(|| text(&paths.code()));
    let channel_dirs: Map<String, Value> =
        facts.channels.iter().map(|c| (c.name.clone(), json!(paths.channel(&c.name)))).collect();
    let channel_names: Vec<String> = sorted(Value::Object(channel_dirs.clone()))
        .as_object()
        .map(|m| m.keys().cloned().collect())
        .unwrap_or_default();
    let groups_by_name: Map<String, Value> =
        groups.names().into_iter().map(str::to_owned).zip(groups.entries()).collect();
    let current_group = groups.current();

    let values = json!({
        "hosts": hosts,
        "network_interface_name": facts.network_interface,
        "hps": own,
        "framework_params": framework,
        "framework_module": null,
        "user_entry_point": script.map(|script| &script.program),
        "module_name": script.map(Script::module),
        "module_dir": module_dir,
        "resource_config": resource_config(facts),
        "input_data_config": input_data_config(facts),
        "output_data_dir": paths.output_data(),
        "channels": channel_names,
        "current_host": facts.current_host(),
        "current_instance_type": facts.instance_type,
        "current_instance_group": current_group.name,
        "current_instance_group_hosts": current_group.hosts,
        "instance_groups": groups.names(),
        "instance_groups_dict": groups_by_name,
        "distribution_instance_groups": distribution_groups,
        "is_hetero": groups.names().len() > 1,
        "log_level": reserved.get("sagemaker_container_log_level").cloned().unwrap_or(json!(20)),
        "input_dir": paths.input(),
        "input_config_dir": paths.config(),
        "output_dir": paths.output(),
        "output_intermediate_dir": paths.output_intermediate(),
        "model_dir": paths.model(),
        "num_cpus": facts.cpus,
        "num_gpus": facts.gpus,
        "num_neurons": 0,
        // What SDK v3's driver adds.
        "host_count": hosts.len(),
        "current_host_rank": hosts.iter().position(|host| *host == facts.current_host()),
        "master_addr": facts.address(master),
        "master_port": Port::Master.number(facts.first_port).to_string(),
        "input_data_dir": paths.data(),
        "output_failure": paths.failure(),
    });
    let training_env = json!({
        "additional_framework_parameters": framework,
        "channel_input_dirs": channel_dirs,
        "current_host": facts.current_host(),
        "current_instance_group": current_group.name,
        "current_instance_group_hosts": current_group.hosts,
        "current_instance_type": facts.instance_type,
        "distribution_hosts": distribution_hosts,
        "distribution_instance_groups": distribution_groups,
        "framework_module": null,
        "hosts": hosts,
        "hyperparameters": own,
        "input_config_dir": paths.config(),
        "input_data_config": input_data_config(facts),
        "input_dir": paths.input(),
        "instance_groups": groups.names(),
        "instance_groups_dict": groups_by_name,
        "is_hetero": groups.names().len() > 1,
        "is_modelparallel_enabled": null,
        "is_smddpmprun_installed": false,
        "is_smddprun_installed": false,
        "is_master": master == facts.current_host(),
        "job_name": facts.job_name,
        "log_level": values["log_level"],
        "master_hostname": master,
        "model_dir": paths.model(),
        "module_dir": values["module_dir"],
        "module_name": values["module_name"],
        "network_interface_name": facts.network_interface,
        "num_cpus": facts.cpus,
        "num_gpus": facts.gpus,
        "num_neurons": 0,
        "output_data_dir": paths.output_data(),
        "output_dir": paths.output(),
        "output_intermediate_dir": paths.output_intermediate(),
        "resource_config": resource_config(facts),
        "user_entry_point": values["user_entry_point"],
    });

    let named = values
        .as_object()
        .into_iter()
        .flatten()
        .map(|(name, value)| (format!("SM_{}", name.to_uppercase()), as_variable(value)));
    let of_channels =
        channel_dirs.iter().map(|(name, dir)| (format!("SM_CHANNEL_{}", name.to_uppercase()), as_variable(dir)));
    // A dash stays a dash, as in the toolkit: SM_HP_BATCH-SIZE.
    let of_hyperparameters =
        own.iter().map(|(name, value)| (format!("SM_HP_{}", name.to_uppercase()), as_variable(value)));
    let mut variables: BTreeMap<String, String> = named.chain(of_channels).chain(of_hyperparameters).collect();
    variables.insert("SM_TRAINING_ENV".into(), as_variable(&training_env));
    variables.insert("SM_USER_ARGS".into(), as_variable(&json!(arguments(&own))));
    variables
}

fn as_variable(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        Value::Number(number) => match number.as_f64().filter(|_| number.is_f64()) {
            Some(float) => repr_of_float(float),
            None => number.to_string(),
        },
        other => sorted(other.clone()).to_string(),
    }
}

fn sorted(mut value: Value) -> Value {
    value.sort_all_objects();
    value
}

fn text(path: &std::path::Path) -> String {
    path.to_string_lossy().into_owned()
}
