//! What is told of training jobs, as JSON: the echo of the request with what happened since.

use serde_json::{Map, Value, json};

use crate::{MetricDefinition, Reply, RuleStatus, TrainingJobDescription, TrainingJobSummary, WarmPool, timestamp};

/// `FailureReason`'s limit, in characters.
const LONGEST_REASON: usize = 1024;

/// Members of the request that `DescribeTrainingJob` does not return.
const NOT_RETURNED: [&str; 2] = ["SessionChainingConfig", "Tags"];

/// Whether system metrics are written to S3 while the job runs.
fn profiling_status(request: &Map<String, Value>) -> &'static str {
    match request.get("ProfilerConfig") {
        Some(config) if config["DisableProfiler"] != json!(true) => "Enabled",
        _ => "Disabled",
    }
}

/// The body of `DescribeTrainingJob`: the request but [`NOT_RETURNED`], the defaults that AWS fills
/// in, and the description.
pub(crate) fn describe(request: Map<String, Value>, description: &TrainingJobDescription) -> Value {
    let mut body = request;
    NOT_RETURNED.iter().for_each(|member| drop(body.shift_remove(*member)));
    fill_defaults(&mut body, &description.metric_definitions);
    let profiling = profiling_status(&body);
    let mut put = |name: &str, value: Value| body.insert(name.to_owned(), value);
    put("TrainingJobArn", json!(description.arn));
    put("ModelArtifacts", json!({"S3ModelArtifacts": description.model_artifacts}));
    put("TrainingJobStatus", json!(description.status));
    put("SecondaryStatus", json!(description.secondary_status));
    put("CreationTime", timestamp::seconds(description.created_ms));
    put("LastModifiedTime", timestamp::seconds(description.modified_ms));
    put("ProfilingStatus", json!(profiling));
    let transitions = description.transitions.iter().map(|transition| {
        let mut entry = json!({
            "Status": transition.status,
            "StartTime": timestamp::seconds(transition.start_ms),
            "StatusMessage": transition.message,
        });
        if let Some(end) = transition.end_ms {
            entry["EndTime"] = timestamp::seconds(end);
        }
        entry
    });
    put("SecondaryStatusTransitions", transitions.collect());
    if let Some(reason) = &description.failure_reason {
        put("FailureReason", reason.chars().take(LONGEST_REASON).collect::<String>().into());
    }
    if let Some(start) = description.training_start_ms {
        put("TrainingStartTime", timestamp::seconds(start));
    }
    if let Some(end) = description.training_end_ms {
        put("TrainingEndTime", timestamp::seconds(end));
    }
    if let Some(seconds) = description.training_s {
        put("TrainingTimeInSeconds", json!(seconds));
    }
    if let Some(seconds) = description.billable_s {
        put("BillableTimeInSeconds", json!(seconds));
    }
    if !description.final_metrics.is_empty() {
        let finite = description.final_metrics.iter().filter(|metric| metric.value.is_finite());
        let entry = |metric: &crate::FinalMetric| json!({"MetricName": metric.name, "Value": metric.value, "Timestamp": timestamp::seconds(metric.at_ms)});
        put("FinalMetricDataList", finite.map(entry).collect());
    }
    if let Some(pool) = &description.warm_pool {
        put("WarmPoolStatus", warm_pool(pool));
    }
    for (member, statuses) in [
        ("DebugRuleEvaluationStatuses", &description.debug_rules),
        ("ProfilerRuleEvaluationStatuses", &description.profiler_rules),
    ] {
        if !statuses.is_empty() {
            put(member, statuses.iter().map(rule_status).collect());
        }
    }
    if let Some(arn) = &description.tuning_job_arn {
        put("TuningJobArn", json!(arn));
    }
    Value::Object(body)
}

fn rule_status(status: &RuleStatus) -> Value {
    let mut body = json!({
        "RuleConfigurationName": status.name,
        "RuleEvaluationJobArn": status.evaluation_arn,
        "RuleEvaluationStatus": status.status,
        "LastModifiedTime": timestamp::seconds(status.modified_ms),
    });
    if let Some(details) = &status.details {
        body["StatusDetails"] = json!(details);
    }
    body
}

/// Members that the service echoes although nobody sent them; SDK v2 fails with a KeyError without
/// some of them.
fn fill_defaults(body: &mut Map<String, Value>, metric_definitions: &[MetricDefinition]) {
    let fill = |object: &mut Map<String, Value>, name: &str, value: Value| {
        object.entry(name).or_insert(value);
    };
    for flag in ["EnableNetworkIsolation", "EnableInterContainerTrafficEncryption", "EnableManagedSpotTraining"] {
        fill(body, flag, json!(false));
    }
    for section in ["HyperParameters", "StoppingCondition"] {
        fill(body, section, json!({}));
    }
    if let Some(Value::Object(stopping)) = body.get_mut("StoppingCondition") {
        fill(stopping, "MaxRuntimeInSeconds", json!(86400));
    }
    if let Some(Value::Object(output)) = body.get_mut("OutputDataConfig") {
        fill(output, "KmsKeyId", json!(""));
        fill(output, "CompressionType", json!("GZIP"));
    }
    if let Some(Value::Object(algorithm)) = body.get_mut("AlgorithmSpecification") {
        fill(algorithm, "EnableSageMakerMetricsTimeSeries", json!(false));
        if !metric_definitions.is_empty() {
            let entry = |metric: &MetricDefinition| json!({"Name": metric.name, "Regex": metric.regex});
            fill(algorithm, "MetricDefinitions", metric_definitions.iter().map(entry).collect());
        }
    }
    if let Some(Value::Object(resources)) = body.get_mut("ResourceConfig") {
        // SDK v2's own default, so that an estimator attached to this job asks for the same again.
        fill(resources, "VolumeSizeInGB", json!(30));
        // The same for a lone group; several have no one type.
        if let Some([group]) = resources.get("InstanceGroups").and_then(Value::as_array).map(Vec::as_slice) {
            let group = group.clone();
            for name in ["InstanceType", "InstanceCount"] {
                fill(resources, name, group[name].clone());
            }
        }
    }
    for channel in body.get_mut("InputDataConfig").and_then(Value::as_array_mut).into_iter().flatten() {
        let Value::Object(channel) = channel else { continue };
        fill(channel, "CompressionType", json!("None"));
        fill(channel, "RecordWrapperType", json!("None"));
        if let Some(Value::Object(source)) =
            channel.get_mut("DataSource").and_then(|source| source.get_mut("S3DataSource"))
        {
            fill(source, "S3DataDistributionType", json!("FullyReplicated"));
        }
    }
}

impl Reply {
    /// `CreateTrainingJob` and `UpdateTrainingJob`: [`crate::arn::training_job`].
    pub fn training_job_arn(arn: &str) -> Self {
        Self::of(json!({"TrainingJobArn": arn}))
    }

    /// `DescribeTrainingJob`: [`crate::CreateTrainingJob::raw`], and what became of it.
    pub fn describe_training_job(request: Map<String, Value>, description: &TrainingJobDescription) -> Self {
        Self::of(describe(request, description))
    }

    /// `ListTrainingJobs`: one page.
    pub fn list_training_jobs(summaries: &[TrainingJobSummary], next_token: Option<&str>) -> Self {
        let entry = |summary: &TrainingJobSummary| {
            let mut entry = json!({
                "TrainingJobName": summary.name,
                "TrainingJobArn": summary.arn,
                "CreationTime": timestamp::seconds(summary.created_ms),
                "LastModifiedTime": timestamp::seconds(summary.modified_ms),
                "TrainingJobStatus": summary.status,
                "SecondaryStatus": summary.secondary_status,
            });
            if let Some(end) = summary.training_end_ms {
                entry["TrainingEndTime"] = timestamp::seconds(end);
            }
            if let Some(pool) = &summary.warm_pool {
                entry["WarmPoolStatus"] = warm_pool(pool);
            }
            entry
        };
        Self::page("TrainingJobSummaries", summaries.iter().map(entry), "NextToken", next_token)
    }
}

fn warm_pool(pool: &WarmPool) -> Value {
    let mut body = json!({"Status": pool.status});
    if let Some(seconds) = pool.retained_s {
        body["ResourceRetainedBillableTimeInSeconds"] = json!(seconds);
    }
    if let Some(job) = &pool.reused_by {
        body["ReusedByJob"] = json!(job);
    }
    body
}
