//! The JSON files under `/opt/ml/input/config`.

use serde_json::{Map, Value, json};

use crate::{DebugHookFacts, Facts, ProfilerFacts, groups};

/// The files that a program finds: path relative to `/opt/ml` and content. Those of checkpoints, of
/// the hook, of TensorBoard and of the profiler are there only where the request has them.
pub fn config_files(facts: &Facts) -> Vec<(&'static str, Vec<u8>)> {
    let always = [
        ("input/config/hyperparameters.json", json!(facts.hyperparameters)),
        ("input/config/inputdataconfig.json", input_data_config(facts)),
        ("input/config/resourceconfig.json", resource_config(facts)),
    ];
    let checkpoint = facts.checkpoint.as_ref().map(|it| {
        let config = json!({ "S3Uri": it.uri, "LocalPath": it.local_path });
        ("input/config/checkpointconfig.json", config)
    });
    let hook = facts.debug_hook.as_ref().map(|hook| ("input/config/debughookconfig.json", debug_hook_config(hook)));
    let board = facts
        .tensor_board
        .as_ref()
        .map(|local_path| ("input/config/tensorboardoutputconfig.json", json!({ "LocalPath": local_path })));
    let profiler = facts.profiler.as_ref().map(|it| ("input/config/profilerconfig.json", profiler_config(it)));
    always
        .into_iter()
        .chain(checkpoint)
        .chain(hook)
        .chain(board)
        .chain(profiler)
        .map(|(path, value)| (path, value.to_string().into_bytes()))
        .collect()
}

/// All values are strings, as in the request.
fn debug_hook_config(hook: &DebugHookFacts) -> Value {
    let collections = hook.collections.iter().map(|(name, parameters)| {
        let mut config = Map::from_iter([("CollectionName".to_owned(), json!(name))]);
        if !parameters.is_empty() {
            config.insert("CollectionParameters".to_owned(), json!(parameters));
        }
        Value::Object(config)
    });
    let mut config = Map::from_iter([
        ("S3OutputPath".to_owned(), json!(hook.output_path)),
        ("LocalPath".to_owned(), json!(hook.local_path)),
    ]);
    if !hook.parameters.is_empty() {
        config.insert("HookParameters".to_owned(), json!(hook.parameters));
    }
    config.insert("CollectionConfigurations".to_owned(), collections.collect());
    Value::Object(config)
}

/// Where the profilers of SageMaker's libraries write.
const PROFILER_DIRECTORY: &str = "/opt/ml/output/profiler/";

fn profiler_config(profiler: &ProfilerFacts) -> Value {
    json!({
        "DisableProfiler": profiler.is_disabled,
        "ProfilingIntervalInMilliseconds": profiler.interval_ms,
        "ProfilingParameters": profiler.parameters,
        "LocalPath": PROFILER_DIRECTORY,
    })
}

pub(crate) fn input_data_config(facts: &Facts) -> Value {
    let channels = facts.channels.iter().map(|channel| {
        let mut config = Map::new();
        if let Some(content_type) = &channel.content_type {
            config.insert("ContentType".into(), json!(content_type));
        }
        // FastFile mode is files to the program.
        config.insert("TrainingInputMode".into(), json!(if channel.is_pipe { "Pipe" } else { "File" }));
        config.insert("S3DistributionType".into(), json!(channel.distribution));
        config.insert("RecordWrapperType".into(), json!(channel.record_wrapper));
        (channel.name.clone(), Value::Object(config))
    });
    Value::Object(channels.collect())
}

pub(crate) fn resource_config(facts: &Facts) -> Value {
    let (current_group, groups) = groups::of_config(facts);
    json!({
        "current_host": facts.current_host(),
        "current_instance_type": facts.instance_type,
        "current_group_name": current_group,
        "hosts": facts.sorted_hosts(),
        "instance_groups": groups,
        "network_interface_name": facts.network_interface,
    })
}
