//! Rules of what watches a training job: debugger, profiler, TensorBoard.

use std::collections::BTreeSet;

use crate::{
    Error, Profiler,
    refusal::{refuse, s3_uri},
    training_job::request,
};

/// `ProfilingIntervalInMilliseconds` that there are.
const INTERVALS_MS: [i64; 6] = [100, 200, 500, 1000, 5000, 60_000];

/// `ProfilingIntervalInMilliseconds` without one.
const DEFAULT_INTERVAL_MS: u32 = 500;

/// Checks all of them; returns the profiler.
///
/// # Errors
/// The first rule that is broken.
pub(super) fn check(request: &request::Observers) -> Result<Option<Profiler>, Error> {
    if let Some(hook) = &request.debug_hook_config {
        place("debugHookConfig", Some(&hook.s3_output_path), hook.local_path.as_deref())?;
    } else if !request.debug_rule_configurations.is_empty() {
        return refuse(
            "debugHookConfig",
            "DebugRuleConfigurations evaluate what the hook saves; give DebugHookConfig with them",
        );
    }
    rules("debugRuleConfigurations", &request.debug_rule_configurations)?;
    rules("profilerRuleConfigurations", &request.profiler_rule_configurations)?;
    if let Some(board) = &request.tensor_board_output_config {
        place("tensorBoardOutputConfig", Some(&board.s3_output_path), board.local_path.as_deref())?;
    }
    request.profiler_config.as_ref().map(profiler).transpose()
}

fn profiler(config: &request::ProfilerConfig) -> Result<Profiler, Error> {
    let path = "profilerConfig";
    if config.s3_output_path.is_none() && !config.disable_profiler {
        return refuse(&format!("{path}.s3OutputPath"), "it is required unless DisableProfiler is true");
    }
    let output = config.s3_output_path.as_deref().map(|uri| s3_uri(&format!("{path}.s3OutputPath"), uri));
    let output = output.transpose()?;
    let interval_ms = match config.profiling_interval_in_milliseconds {
        Some(interval) if !INTERVALS_MS.contains(&interval) => {
            let intervals = INTERVALS_MS.map(|ms| ms.to_string()).join(", ");
            let path = format!("{path}.profilingIntervalInMilliseconds");
            return refuse(&path, &format!("{interval} is none of [{intervals}]"));
        }
        given => given.and_then(|ms| u32::try_from(ms).ok()).unwrap_or(DEFAULT_INTERVAL_MS),
    };
    let parameters = config.profiling_parameters.clone();
    Ok(Profiler { output, interval_ms, parameters, is_disabled: config.disable_profiler })
}

fn rules(path: &str, rules: &[request::RuleConfiguration]) -> Result<(), Error> {
    let mut names = BTreeSet::new();
    for (at, rule) in rules.iter().enumerate() {
        let path = format!("{path}.{}.member", at + 1);
        if !names.insert(rule.rule_configuration_name.as_str()) {
            return refuse(
                &format!("{path}.ruleConfigurationName"),
                &format!("the rule '{}' is there twice", rule.rule_configuration_name),
            );
        }
        place(&path, rule.s3_output_path.as_deref(), rule.local_path.as_deref())?;
    }
    Ok(())
}

/// Where something is written, here and there.
fn place(path: &str, s3: Option<&str>, local: Option<&str>) -> Result<(), Error> {
    if let Some(s3) = s3 {
        s3_uri(&format!("{path}.s3OutputPath"), s3)?;
    }
    match local {
        Some(local) if !local.starts_with('/') => refuse(&format!("{path}.localPath"), "it must be an absolute path"),
        _ => Ok(()),
    }
}
