//! What is told of tuning jobs, as JSON: the echo of the request with what happened since.

use serde_json::{Map, Value, json};

use crate::{MetricDefinition, Reply, Tag, tags, timestamp};

use super::{
    OBJECTIVE_HYPERPARAMETER, ObjectiveCounters, ResourceLimits, TrainingJobCounters, TrialSummary,
    TuningJobDescription, TuningJobSummary,
};

/// `FailureReason`'s limit, in characters.
const LONGEST_REASON: usize = 1024;

/// The body of `DescribeHyperParameterTuningJob`: the request but its tags, what the service adds,
/// and the description.
pub(crate) fn describe(request: &Map<String, Value>, description: &TuningJobDescription) -> Value {
    let mut body = request.clone();
    body.shift_remove("Tags");
    let around = body
        .get("HyperParameterTuningJobConfig")
        .and_then(|config| config["HyperParameterTuningJobObjective"]["MetricName"].as_str())
        .map(str::to_owned);
    if let Some(Value::Object(config)) = body.get_mut("HyperParameterTuningJobConfig") {
        config.entry("TrainingJobEarlyStoppingType").or_insert_with(|| json!("Off"));
        // SDK v2 reads it without looking whether it is there.
        if let Some(Value::Object(ranges)) = config.get_mut("ParameterRanges") {
            fill_ranges(ranges);
        }
    }
    let nothing = Vec::new();
    let metrics = |at: usize| description.metric_definitions.get(at).unwrap_or(&nothing);
    if let Some(Value::Object(definition)) = body.get_mut("TrainingJobDefinition") {
        fill_definition(definition, around.as_deref(), metrics(0));
    }
    for (at, definition) in
        body.get_mut("TrainingJobDefinitions").and_then(Value::as_array_mut).into_iter().flatten().enumerate()
    {
        if let Value::Object(definition) = definition {
            fill_definition(definition, around.as_deref(), metrics(at));
        }
    }
    let mut put = |name: &str, value: Value| body.insert(name.to_owned(), value);
    put("HyperParameterTuningJobArn", json!(description.arn));
    put("HyperParameterTuningJobStatus", json!(description.status));
    put("CreationTime", timestamp::seconds(description.created_ms));
    put("LastModifiedTime", timestamp::seconds(description.modified_ms));
    put("TrainingJobStatusCounters", job_counters(&description.jobs));
    put("ObjectiveStatusCounters", objective_counters(&description.objectives));
    if let Some(end) = description.ended_ms {
        put("HyperParameterTuningEndTime", timestamp::seconds(end));
    }
    if let Some(best) = &description.best {
        put("BestTrainingJob", trial(best));
    }
    if let Some(best) = &description.overall_best {
        put("OverallBestTrainingJob", trial(best));
    }
    if let Some(reason) = &description.failure_reason {
        put("FailureReason", first_characters(reason));
    }
    let mut details = Map::new();
    if let Some(jobs) = description.not_improving {
        details.insert("NumberOfTrainingJobsObjectiveNotImproving".to_owned(), json!(jobs));
    }
    if let Some(at) = description.converged_ms {
        details.insert("ConvergenceDetectedTime".to_owned(), timestamp::seconds(at));
    }
    if !details.is_empty() {
        put("TuningJobCompletionDetails", Value::Object(details));
    }
    if let Some(seconds) = description.runtime_s {
        put("ConsumedResources", json!({"RuntimeInSeconds": seconds}));
    }
    Value::Object(body)
}

fn first_characters(reason: &str) -> Value {
    reason.chars().take(LONGEST_REASON).collect::<String>().into()
}

fn fill_ranges(ranges: &mut Map<String, Value>) {
    for kind in ["IntegerParameterRanges", "ContinuousParameterRanges"] {
        for range in ranges.get_mut(kind).and_then(Value::as_array_mut).into_iter().flatten() {
            if let Value::Object(range) = range {
                range.entry("ScalingType").or_insert_with(|| json!("Auto"));
            }
        }
    }
}

/// Members that the service echoes although nobody sent them; the SDKs fail with a KeyError without
/// some of them.
fn fill_definition(definition: &mut Map<String, Value>, around: Option<&str>, metrics: &[MetricDefinition]) {
    let own =
        definition.get("TuningObjective").and_then(|objective| objective["MetricName"].as_str()).map(str::to_owned);
    if let Some(metric) = own.as_deref().or(around)
        && let Value::Object(statics) = definition.entry("StaticHyperParameters").or_insert_with(|| json!({}))
    {
        statics.insert(OBJECTIVE_HYPERPARAMETER.to_owned(), json!(metric));
    }
    if let Some(Value::Object(ranges)) = definition.get_mut("HyperParameterRanges") {
        fill_ranges(ranges);
    }
    if let Some(Value::Object(algorithm)) = definition.get_mut("AlgorithmSpecification") {
        let entry = |metric: &MetricDefinition| json!({"Name": metric.name, "Regex": metric.regex});
        algorithm.entry("MetricDefinitions").or_insert_with(|| metrics.iter().map(entry).collect());
    }
    if let Some(Value::Object(output)) = definition.get_mut("OutputDataConfig") {
        output.entry("KmsKeyId").or_insert_with(|| json!(""));
    }
    let stopping = definition.entry("StoppingCondition").or_insert_with(|| json!({}));
    if let Value::Object(stopping) = stopping {
        stopping.entry("MaxRuntimeInSeconds").or_insert_with(|| json!(86400));
    }
    for flag in ["EnableNetworkIsolation", "EnableInterContainerTrafficEncryption", "EnableManagedSpotTraining"] {
        definition.entry(flag).or_insert_with(|| json!(false));
    }
    // SDK v2 sends HyperParameterTuningResourceConfig, and `attach` wants ResourceConfig back.
    if let Some(Value::Object(tuning)) = definition.get("HyperParameterTuningResourceConfig").cloned()
        && !definition.contains_key("ResourceConfig")
    {
        let first = tuning
            .get("InstanceConfigs")
            .and_then(|configs| configs.get(0))
            .and_then(Value::as_object)
            .unwrap_or(&tuning);
        let mut config: Map<String, Value> = first.clone();
        config.retain(|name, _| {
            matches!(name.as_str(), "InstanceType" | "InstanceCount" | "VolumeSizeInGB" | "VolumeKmsKeyId")
        });
        definition.insert("ResourceConfig".to_owned(), Value::Object(config));
    }
    if let Some(Value::Object(resources)) = definition.get_mut("ResourceConfig") {
        resources.entry("VolumeSizeInGB").or_insert_with(|| json!(30));
    }
}

fn job_counters(counters: &TrainingJobCounters) -> Value {
    json!({
        "Completed": counters.completed,
        "InProgress": counters.in_progress,
        "RetryableError": counters.retryable_error,
        "NonRetryableError": counters.non_retryable_error,
        "Stopped": counters.stopped,
    })
}

fn objective_counters(counters: &ObjectiveCounters) -> Value {
    json!({"Succeeded": counters.succeeded, "Pending": counters.pending, "Failed": counters.failed})
}

/// One training job summary.
fn trial(summary: &TrialSummary) -> Value {
    let mut entry = Map::new();
    let mut put = |name: &str, value: Value| entry.insert(name.to_owned(), value);
    if let Some(definition) = &summary.definition {
        put("TrainingJobDefinitionName", json!(definition));
    }
    put("TrainingJobName", json!(summary.name));
    put("TrainingJobArn", json!(summary.arn));
    if let Some(name) = &summary.tuning_job {
        put("TuningJobName", json!(name));
    }
    put("CreationTime", timestamp::seconds(summary.created_ms));
    if let Some(start) = summary.training_start_ms {
        put("TrainingStartTime", timestamp::seconds(start));
    }
    if let Some(end) = summary.training_end_ms {
        put("TrainingEndTime", timestamp::seconds(end));
    }
    put("TrainingJobStatus", json!(summary.status));
    let tuned: Map<String, Value> = summary.tuned.iter().map(|(name, value)| (name.clone(), json!(value))).collect();
    put("TunedHyperParameters", Value::Object(tuned));
    if let Some(reason) = &summary.failure_reason {
        put("FailureReason", first_characters(reason));
    }
    if let Some((objective, value)) = summary.objective.as_ref().filter(|(_, value)| value.is_finite()) {
        let metric = json!({"Type": objective.goal.as_str(), "MetricName": objective.metric, "Value": value});
        put("FinalHyperParameterTuningJobObjectiveMetric", metric);
    }
    put("ObjectiveStatus", json!(summary.objective_status));
    Value::Object(entry)
}

impl Reply {
    /// `CreateHyperParameterTuningJob`: [`crate::arn::tuning_job`].
    pub fn create_tuning_job(arn: &str) -> Self {
        Self::of(json!({"HyperParameterTuningJobArn": arn}))
    }

    /// `DescribeHyperParameterTuningJob`: [`crate::CreateTuningJob::raw`], and what became of it.
    pub fn describe_tuning_job(request: &Map<String, Value>, description: &TuningJobDescription) -> Self {
        Self::of(describe(request, description))
    }

    /// `ListTrainingJobsForHyperParameterTuningJob`: one page.
    pub fn list_trials(summaries: &[TrialSummary], next_token: Option<&str>) -> Self {
        Self::page("TrainingJobSummaries", summaries.iter().map(trial), "NextToken", next_token)
    }

    /// `ListHyperParameterTuningJobs`: one page.
    pub fn list_tuning_jobs(summaries: &[TuningJobSummary], next_token: Option<&str>) -> Self {
        let entry = |summary: &TuningJobSummary| {
            let mut entry = json!({
                "HyperParameterTuningJobName": summary.name,
                "HyperParameterTuningJobArn": summary.arn,
                "HyperParameterTuningJobStatus": summary.status,
                "Strategy": summary.strategy.as_str(),
                "CreationTime": timestamp::seconds(summary.created_ms),
                "LastModifiedTime": timestamp::seconds(summary.modified_ms),
                "TrainingJobStatusCounters": job_counters(&summary.jobs),
                "ObjectiveStatusCounters": objective_counters(&summary.objectives),
                "ResourceLimits": limits(&summary.limits),
            });
            if let Some(end) = summary.ended_ms {
                entry["HyperParameterTuningEndTime"] = timestamp::seconds(end);
            }
            entry
        };
        Self::page("HyperParameterTuningJobSummaries", summaries.iter().map(entry), "NextToken", next_token)
    }
}

fn limits(limits: &ResourceLimits) -> Value {
    let mut body = json!({"MaxParallelTrainingJobs": limits.max_parallel});
    if let Some(jobs) = limits.max_jobs {
        body["MaxNumberOfTrainingJobs"] = json!(jobs);
    }
    if let Some(seconds) = limits.max_runtime_s {
        body["MaxRuntimeInSeconds"] = json!(seconds);
    }
    body
}

/// A tuning job as `Search` gives it: what Describe says, and its tags.
pub fn tuning_search_record(request: &Map<String, Value>, description: &TuningJobDescription, tags: &[Tag]) -> Value {
    let mut record = describe(request, description);
    record["Tags"] = tags::to_json(tags);
    record
}
