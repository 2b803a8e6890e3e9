//! `UpdateTrainingJob`: what of a request may change while its job runs.

use std::collections::BTreeSet;

use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::{Call, CreateTrainingJob, Error, Input, RuleConfiguration, call::read};

use super::check;

const PROFILER: &str = "ProfilerConfig";
const RULES: &str = "ProfilerRuleConfigurations";
/// Most profiler rules of a training job.
const MOST_RULES: usize = 20;

/// An `UpdateTrainingJob` that passed every check which needs no state. At least one change is
/// there.
#[derive(Debug, Clone, PartialEq)]
pub struct UpdateTrainingJob {
    /// Training job's name.
    pub name: String,
    /// Members of `ProfilerConfig` that change.
    pub profiler: Option<Map<String, Value>>,
    /// Rules to add; one of the same name is replaced.
    pub profiler_rules: Option<Vec<Value>>,
    /// `ResourceConfig.KeepAlivePeriodInSeconds`.
    pub keep_alive_s: Option<u32>,
    /// `RemoteDebugConfig`.
    pub remote_debug: Option<Value>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct UpdateTrainingJobRequest {
    training_job_name: String,
    profiler_config: Option<Map<String, Value>>,
    profiler_rule_configurations: Option<Vec<Value>>,
    resource_config: Option<ResourceConfigForUpdate>,
    remote_debug_config: Option<Value>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct ResourceConfigForUpdate {
    keep_alive_period_in_seconds: u32,
}

impl Input for UpdateTrainingJob {
    fn read(call: Call) -> Result<Self, Error> {
        let request: UpdateTrainingJobRequest = read(call.input)?;
        let update = Self {
            name: request.training_job_name,
            profiler: request.profiler_config,
            profiler_rules: request.profiler_rule_configurations,
            keep_alive_s: request.resource_config.map(|config| config.keep_alive_period_in_seconds),
            remote_debug: request.remote_debug_config,
        };
        let nothing = update.profiler.is_none()
            && update.profiler_rules.is_none()
            && update.keep_alive_s.is_none()
            && update.remote_debug.is_none();
        if nothing {
            return Err(Error::validation(
                "Nothing to update: give at least one of ProfilerConfig, ProfilerRuleConfigurations, ResourceConfig \
                 and RemoteDebugConfig.",
            ));
        }
        let mut names = BTreeSet::new();
        for rule in update.profiler_rules.iter().flatten() {
            let name = &rule["RuleConfigurationName"];
            if !names.insert(name.to_string()) {
                return Err(Error::validation(format!(
                    "Invalid value at 'profilerRuleConfigurations': the rule {name} is there twice."
                )));
            }
        }
        Ok(update)
    }
}

impl UpdateTrainingJob {
    /// How long the warm pool of an ended job is kept; none if anything else is to change, too.
    pub fn of_warm_pool_alone(&self) -> Option<u32> {
        let has_others = self.profiler.is_some() || self.profiler_rules.is_some() || self.remote_debug.is_some();
        self.keep_alive_s.filter(|_| !has_others)
    }

    /// Makes the changes, and gives the profiler's rules that are added or replaced. Only what
    /// changes is checked: the request passed its checks when it was received.
    ///
    /// # Errors
    /// A member as it would be breaks a rule of creation.
    pub fn apply(&self, job: &mut CreateTrainingJob) -> Result<Vec<RuleConfiguration>, Error> {
        let (mut observers, request) = (Map::new(), &mut job.raw);
        if let Some(changes) = &self.profiler {
            let profiler = request.entry(PROFILER).or_insert_with(|| json!({}));
            profiler.as_object_mut().into_iter().for_each(|profiler| profiler.extend(changes.clone()));
            observers.insert(PROFILER.to_owned(), profiler.clone());
        }
        if let Some(changes) = &self.profiler_rules {
            let rules = request.entry(RULES).or_insert_with(|| json!([]));
            for rule in changes {
                let same = |it: &&mut Value| it["RuleConfigurationName"] == rule["RuleConfigurationName"];
                let Value::Array(rules) = &mut *rules else { continue };
                match rules.iter_mut().find(same) {
                    Some(it) => *it = rule.clone(),
                    None => rules.push(rule.clone()),
                }
            }
            if rules.as_array().is_some_and(|rules| rules.len() > MOST_RULES) {
                return Err(Error::validation(format!(
                    "Invalid value at 'profilerRuleConfigurations': the training job would have more than {MOST_RULES} \
                     rules."
                )));
            }
            observers.insert(RULES.to_owned(), json!(changes));
        }
        if let Some(seconds) = self.keep_alive_s {
            job.resources.keep_alive_s = seconds;
            if let Some(Value::Object(resources)) = request.get_mut("ResourceConfig") {
                resources.insert("KeepAlivePeriodInSeconds".to_owned(), json!(seconds));
            }
        }
        if let Some(remote_debug) = &self.remote_debug {
            request.insert("RemoteDebugConfig".to_owned(), remote_debug.clone());
        }
        let (changed, profiler) =
            check::update(&job.name, observers, job.resources.keep_alive_s, job.enable_managed_spot_training)?;
        if self.profiler.is_some() {
            job.profiler = profiler;
        }
        if let Some(name) = check::twice(&job.debugger.rules, &changed.profiler_rules) {
            return Err(Error::validation(format!(
                "Invalid value at 'profilerRuleConfigurations': a rule of DebugRuleConfigurations is named '{name}', too."
            )));
        }
        let rules = &mut job.debugger.profiler_rules;
        for rule in &changed.profiler_rules {
            match rules.iter_mut().find(|it| it.name == rule.name) {
                Some(it) => *it = rule.clone(),
                None => rules.push(rule.clone()),
            }
        }
        Ok(changed.profiler_rules)
    }
}
