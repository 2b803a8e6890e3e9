//! The resources that a call names.

use serde_json::Value;
use shoal_store::{ResourceKind, TRAINING_JOBS};
use shoal_wire::{
    Call, DescribeLogStreams, Error, FilterLogEvents, GetLogEvents, GetMetricData, GetMetricStatistics, ListMetrics,
    Metric, Service, Streams, arn,
};

use super::{
    EXPERIMENT, TRIAL, TRIAL_COMPONENT,
    resource_types::{artifact_named_by, component_of},
};
use crate::identity::Identity;

const MODEL: ResourceKind = ResourceKind::new("model");
const ACTION: ResourceKind = ResourceKind::new("action");
const ARTIFACT: ResourceKind = ResourceKind::new("artifact");
const CONTEXT: ResourceKind = ResourceKind::new("context");

/// Members that name a resource by its name or ARN.
const NAMES: [(&str, ResourceKind); 9] = [
    ("TrainingJobName", ResourceKind::TRAINING_JOB),
    ("HyperParameterTuningJobName", ResourceKind::TUNING_JOB),
    ("ExperimentName", EXPERIMENT),
    ("TrialName", TRIAL),
    ("TrialComponentName", TRIAL_COMPONENT),
    ("RunName", TRIAL_COMPONENT),
    ("ModelName", MODEL),
    ("ActionName", ACTION),
    ("ContextName", CONTEXT),
];
/// Members that name resources by ARN, of whatever kind.
const ARNS: [&str; 5] = ["ResourceArn", "SourceArn", "DestinationArn", "ArtifactArn", "StartArns"];
/// Members that name what is no resource of SageMaker's.
const OTHERS: [&str; 10] = [
    "TopicArn",
    "SubscriptionArn",
    "BudgetName",
    "ResourceARN",
    "AlarmName",
    "logGroupName",
    "Name",
    "UserName",
    "RoleArn",
    "RoleName",
];
/// Members with more of such members.
const NESTED: [&str; 4] = ["ExperimentConfig", "WarmStartConfig", "ParentHyperParameterTuningJobs", "MetricQueries"];
/// Members of logs and CloudWatch that are read as the answers read them.
#[cfg(test)]
const TELEMETRY: [&str; 6] =
    ["logStreamName", "logStreamNames", "logStreamNamePrefix", "MetricDataQueries", "Dimensions", "Namespace"];
/// How namespaces of metrics begin that are not users' own.
const RESERVED: [&str; 3] = ["/aws/", "AWS/", "Shoal/"];

/// A resource that a call names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Named {
    /// By name, or by an ARN of whatever kind.
    Resource(ResourceKind, String),
    /// All, or some that are not distinguished from others; with what to give instead.
    All(&'static str),
}

/// Members of an operation by which its calls name what they are about.
#[cfg(test)]
pub(crate) fn members_of_names(operation: &shoal_wire::Operation) -> Vec<&'static str> {
    /// Operations of ours, whose inputs are in no table.
    const OURS: [(&str, &str); 7] = [
        ("InterruptTrainingJob", "TrainingJobName"),
        ("ListCheckpoints", "TrainingJobName"),
        ("DescribeProfile", "TrainingJobName"),
        ("DescribeUtilization", "TrainingJobName"),
        ("StartVisit", "TrainingJobName"),
        ("DescribeStudy", "HyperParameterTuningJobName"),
        ("UpdateHyperParameterTuningJob", "HyperParameterTuningJobName"),
    ];
    let ours = OURS.iter().filter(|(name, _)| *name == operation.name).map(|(_, member)| *member);
    let is_name = |member: &&str| {
        NAMES.iter().any(|(name, _)| name == member)
            || [&ARNS[..], &NESTED, &TELEMETRY].iter().any(|known| known.contains(member))
    };
    operation.input_members().filter(is_name).chain(ours).collect()
}

/// What a call names, except what it is about to create.
///
/// # Errors
/// The call cannot be read.
pub(crate) fn named(call: &Call) -> Result<Vec<Named>, Error> {
    match call.operation.service {
        Service::Logs => of_logs(call),
        Service::CloudWatch => of_metrics(call),
        _ => Ok(of_members(call)),
    }
}

/// The ARN that a refusal names: of the first resource, also of one that is about to be created.
pub(crate) fn subject(call: &Call, identity: &Identity) -> String {
    let arn_of = |kind: ResourceKind, name: &str| match name.starts_with("arn:") {
        true => name.to_owned(),
        false => arn::sagemaker(&identity.region, &identity.account, kind.name(), name),
    };
    let name = |member: &str| call.input.get(member).and_then(Value::as_str);
    let created = NAMES.iter().find_map(|(member, kind)| name(member).map(|name| arn_of(*kind, name)));
    let by_arn = || ARNS.iter().find_map(|member| name(member)).map(str::to_owned);
    let other = || OTHERS.iter().find_map(|member| name(member)).map(str::to_owned);
    created.or_else(by_arn).or_else(other).unwrap_or_else(|| "*".to_owned())
}

/// The ARN of what a call is about to create; `None` of other calls.
pub(crate) fn created(call: &Call, identity: &Identity) -> Option<String> {
    let member = name_of_created(call)?;
    let name = call.input.get(&member).and_then(Value::as_str);
    let kind = NAMES.iter().find(|(known, _)| *known == member).map(|(_, kind)| *kind);
    Some(match (name, kind) {
        (Some(name), Some(kind)) => arn::sagemaker(&identity.region, &identity.account, kind.name(), name),
        _ => subject(call, identity),
    })
}

/// The member that names what a call creates.
fn name_of_created(call: &Call) -> Option<String> {
    call.operation.name.strip_prefix("Create").map(|noun| format!("{noun}Name"))
}

fn of_members(call: &Call) -> Vec<Named> {
    let operation = call.operation.name;
    let created = name_of_created(call);
    let mut found = Vec::new();
    collect(&call.input, created.as_deref(), &mut found);
    if matches!(operation, "DescribeArtifact" | "UpdateArtifact" | "DeleteArtifact")
        && let Some(source) = call.input.get("Source")
    {
        found.push(Named::Resource(ARTIFACT, artifact_named_by(source)));
    }
    // A component may be named by its job alone, in any case as in an ARN.
    if operation == "BatchPutMetrics"
        && let Some(job) = call.input.get("TrialComponentName").and_then(Value::as_str)
    {
        let job = job.strip_suffix(&component_of("")).unwrap_or(job);
        found.push(Named::Resource(ARTIFACT, arn::training_job("", "", job)));
    }
    found
}

fn collect(value: &Value, created: Option<&str>, found: &mut Vec<Named>) {
    let Value::Object(members) = value else { return };
    for (member, value) in members {
        if NESTED.contains(&member.as_str()) {
            match value {
                Value::Array(items) => items.iter().for_each(|item| collect(item, None, found)),
                nested => collect(nested, None, found),
            }
        }
        let kind = NAMES.iter().find(|(name, _)| name == member).map(|(_, kind)| *kind);
        let by_arn = ARNS.contains(&member.as_str()).then_some(ARTIFACT);
        let Some(kind) = kind.or(by_arn).filter(|_| created != Some(member.as_str())) else { continue };
        let texts: Vec<&str> = match value {
            Value::String(text) => vec![text],
            Value::Array(items) => items.iter().filter_map(Value::as_str).collect(),
            _ => Vec::new(),
        };
        found.extend(texts.into_iter().map(|text| Named::Resource(kind, text.to_owned())));
    }
}

/// The job of a log stream, or of a prefix that only one job's streams have.
fn job_of_stream(stream: &str) -> Named {
    match stream.split_once('/') {
        Some((job, _)) => Named::Resource(ResourceKind::TRAINING_JOB, job.to_owned()),
        None => Named::All("give logStreamNamePrefix as the training job's name and a slash"),
    }
}

fn of_logs(call: &Call) -> Result<Vec<Named>, Error> {
    let (group, streams) = match call.operation.name {
        "GetLogEvents" => {
            let request: GetLogEvents = call.clone().read()?;
            (request.group, vec![request.stream])
        }
        "DescribeLogStreams" => {
            let request: DescribeLogStreams = call.clone().read()?;
            (request.group, vec![request.prefix.unwrap_or_default()])
        }
        "FilterLogEvents" => {
            let request: FilterLogEvents = call.clone().read()?;
            let streams = match request.streams {
                Streams::Named(names) => names,
                Streams::Prefix(prefix) => vec![prefix],
            };
            (request.group, streams)
        }
        _ => return Ok(vec![]),
    };
    if group != TRAINING_JOBS {
        return Ok(vec![Named::All("users read the log group /aws/sagemaker/TrainingJobs alone")]);
    }
    Ok(streams.iter().map(|stream| job_of_stream(stream)).collect())
}

fn of_metrics(call: &Call) -> Result<Vec<Named>, Error> {
    let metrics: Vec<Metric> = match call.operation.name {
        "GetMetricData" => {
            let request: GetMetricData = call.clone().read()?;
            request.queries.into_iter().map(|query| query.metric).collect()
        }
        "GetMetricStatistics" => vec![call.clone().read::<GetMetricStatistics>()?.metric],
        "ListMetrics" => {
            let request: ListMetrics = call.clone().read()?;
            let dimensions = request.dimensions.into_iter().map(|(name, value)| (name, value.unwrap_or_default()));
            let namespace = request.namespace.unwrap_or_else(|| RESERVED[0].to_owned());
            vec![Metric { namespace, name: String::new(), dimensions: dimensions.collect() }]
        }
        _ => Vec::new(),
    };
    Ok(metrics.iter().flat_map(of_metric).collect())
}

/// The jobs that a metric's dimensions name; of users' own namespaces none.
fn of_metric(metric: &Metric) -> Vec<Named> {
    if !RESERVED.iter().any(|reserved| metric.namespace.starts_with(reserved)) {
        return Vec::new();
    }
    let job = |(name, value): &(String, String)| match name.as_str() {
        "TrainingJobName" if !value.is_empty() => Some(Named::Resource(ResourceKind::TRAINING_JOB, value.clone())),
        "Host" if !value.is_empty() => Some(job_of_stream(value)),
        _ => None,
    };
    let jobs: Vec<_> = metric.dimensions.iter().filter_map(job).collect();
    if jobs.is_empty() {
        vec![Named::All("give the dimension TrainingJobName or Host, or an own namespace")]
    } else {
        jobs
    }
}

#[cfg(test)]
mod tests {
    use http::Request;
    use serde_json::json;
    use shoal_wire::{operations, parse};

    use super::*;
    use crate::team::{Access, access};

    fn call(name: &str, input: &Value) -> Call {
        let operation = operations().find(|it| it.name == name).unwrap();
        let mut request = Request::builder().method(operation.http.0).uri(operation.http.1);
        if !operation.target.is_empty() {
            request = request.header("x-amz-target", operation.target);
        }
        let head = request.body(()).unwrap().into_parts().0;
        parse(operation.service, &head, input.to_string().as_bytes()).unwrap_or_else(|error| panic!("{name}: {error}"))
    }

    fn names(name: &str, input: &Value) -> String {
        let shown = |named: Named| match named {
            Named::Resource(kind, name) => format!("{}/{name}", kind.name()),
            Named::All(_) => "*".to_owned(),
        };
        named(&call(name, input)).unwrap().into_iter().map(shown).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn a_call_names_what_it_is_about() {
        let arn = "arn:aws:sagemaker:us-east-1:000000000000:training-job/a";
        for (name, input, expected) in [
            ("StopTrainingJob", json!({"TrainingJobName": "a"}), "training-job/a"),
            ("StartVisit", json!({"TrainingJobName": "a", "Command": ["id"]}), "training-job/a"),
            ("ListTags", json!({"ResourceArn": arn}), &format!("artifact/{arn}")),
            ("CreateTrial", json!({"TrialName": "t", "ExperimentName": "e"}), "experiment/e"),
            ("CreateExperiment", json!({"ExperimentName": "e"}), ""),
            (
                "AssociateTrialComponent",
                json!({"TrialName": "t", "TrialComponentName": "c"}),
                "experiment-trial/t experiment-trial-component/c",
            ),
            (
                "DeleteArtifact",
                json!({"Source": {"SourceUri": "u"}}),
                &format!("artifact/{}", artifact_named_by(&json!({"SourceUri": "u"}))),
            ),
            ("ListTrainingJobs", json!({}), ""),
            (
                "BatchGetMetrics",
                json!({"MetricQueries": [{"MetricName": "m", "ResourceArn": arn, "MetricStat": "Min",
                    "Period": "OneMinute", "XAxisType": "Timestamp"}]}),
                &format!("artifact/{arn}"),
            ),
        ] {
            assert_eq!(names(name, &input), expected, "{name} {input}");
        }
    }

    #[test]
    fn logs_and_metrics_are_of_jobs() {
        let group = TRAINING_JOBS;
        let metric = |namespace: &str, dimensions: Value| {
            json!({"Namespace": namespace, "MetricName": "m", "Dimensions": dimensions, "StartTime": 1, "EndTime": 2,
                "Period": 60, "Statistics": ["Average"]})
        };
        let dimension = |name: &str, value: &str| json!([{"Name": name, "Value": value}]);
        for (name, input, expected) in [
            ("GetLogEvents", json!({"logGroupName": group, "logStreamName": "a/algo-1-1"}), "training-job/a"),
            ("GetLogEvents", json!({"logGroupName": "mine", "logStreamName": "a/algo-1-1"}), "*"),
            ("DescribeLogStreams", json!({"logGroupName": group, "logStreamNamePrefix": "a/"}), "training-job/a"),
            ("DescribeLogStreams", json!({"logGroupName": group, "logStreamNamePrefix": "a"}), "*"),
            ("DescribeLogStreams", json!({"logGroupName": group}), "*"),
            ("FilterLogEvents", json!({"logGroupName": group}), "*"),
            (
                "FilterLogEvents",
                json!({"logGroupName": group, "logStreamNames": ["a/algo-1-1", "b/algo-1-1"]}),
                "training-job/a training-job/b",
            ),
            (
                "GetMetricStatistics",
                metric("/aws/sagemaker/TrainingJobs", dimension("TrainingJobName", "a")),
                "training-job/a",
            ),
            (
                "GetMetricStatistics",
                metric("/aws/sagemaker/TrainingJobs", dimension("Host", "a/algo-1")),
                "training-job/a",
            ),
            ("GetMetricStatistics", metric("/aws/sagemaker/TrainingJobs", json!([])), "*"),
            ("GetMetricStatistics", metric("mine", dimension("TrainingJobName", "a")), ""),
            ("ListMetrics", json!({}), "*"),
            ("ListMetrics", json!({"Namespace": "mine"}), ""),
            ("ListMetrics", json!({"Namespace": "/aws/sagemaker/TrainingJobs"}), "*"),
            ("ListMetrics", json!({"Dimensions": dimension("TrainingJobName", "a")}), "training-job/a"),
            ("ListMetrics", json!({"Dimensions": [{"Name": "TrainingJobName"}]}), "*"),
        ] {
            assert_eq!(names(name, &input), expected, "{name} {input}");
        }
    }

    /// What a user reads or changes is own only if the call names it, or its list is filtered.
    #[test]
    fn users_calls_name_what_they_are_about() {
        // Lists that the answer filters: `api/tests/team.rs` calls each.
        const FILTERED: [&str; 11] = [
            "ListTrainingJobs",
            "ListHyperParameterTuningJobs",
            "ListModels",
            "ListExperiments",
            "ListTrials",
            "ListTrialComponents",
            "ListActions",
            "ListArtifacts",
            "ListContexts",
            "ListAssociations",
            "Search",
        ];
        // The id of a visit is a secret of 128 bits that its caller alone has.
        const BY_SECRET: [&str; 2] = ["FeedVisit", "ReadVisit"];
        // Namespaces of metrics are shared.
        const SHARED: [&str; 1] = ["PutMetricData"];
        for operation in operations() {
            let name = operation.name;
            let of_user = matches!(access(operation), Access::Reads | Access::Changes);
            let is_excused = FILTERED.contains(&name)
                || BY_SECRET.contains(&name)
                || SHARED.contains(&name)
                || name.starts_with("Create");
            if of_user && !is_excused {
                assert!(!members_of_names(operation).is_empty(), "{name} names nothing");
            }
        }
    }
}
