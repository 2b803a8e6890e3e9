//! A request's body becomes a typed call.

use std::collections::BTreeMap;

use http::{Method, request::Parts};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Map, Value};

use crate::{
    AssumeRole, BatchPutMetrics, CreateTrainingJob, CreateTuningJob, DESCRIBE_STUDY, DescribeLogGroups, DescribeLogStreams, DescribeStudy,
    Error, ErrorCode, FEED_VISIT, FeedVisit, FilterLogEvents, GetLogEvents, GetMetricData, GetMetricStatistics, INTERRUPT_TRAINING_JOB,
    LIST_CHECKPOINTS, ListCheckpoints, ListMetrics, ListTrainingJobs, ListTrials, ListTuningJobs, LogChange, Output, Paging, Protocol,
    READ_VISIT, ReadVisit, START_VISIT, Search, SeriesQuery, Service, SimulatePrincipalPolicy, StartVisit, Tag, TrainingJobGist,
    UPDATE_TUNING_JOB, UpdateTrainingJob, UpdateTuningJob, cloudwatch, constraints, filter_logs, identity, log_changes, logs, query,
    search, semantics, tags, training_job, trial_metrics, tuning_job, validate::validate,
};

/// Bytes of the largest request that is read; the constraint table allows no request near it.
pub const MAX_REQUEST_BYTES: usize = 4 << 20;

/// Operations of our own, which no service model has.
pub(crate) const OURS: [&str; 7] =
    [INTERRUPT_TRAINING_JOB, LIST_CHECKPOINTS, DESCRIBE_STUDY, UPDATE_TUNING_JOB, START_VISIT, FEED_VISIT, READ_VISIT];

/// A call that passed every check which needs no state.
#[derive(Debug, Clone, PartialEq)]
pub enum Call {
    /// SageMaker.
    CreateTrainingJob(Box<CreateTrainingJob>),
    /// SageMaker.
    DescribeTrainingJob {
        /// Training job's name.
        training_job_name: String,
    },
    /// SageMaker.
    ListTrainingJobs(ListTrainingJobs),
    /// SageMaker.
    StopTrainingJob {
        /// Training job's name.
        training_job_name: String,
    },
    /// SageMaker.
    UpdateTrainingJob(UpdateTrainingJob),
    /// SageMaker.
    DeleteTrainingJob {
        /// Training job's name.
        training_job_name: String,
    },
    /// SageMaker.
    CreateTuningJob(Box<CreateTuningJob>),
    /// SageMaker.
    DescribeTuningJob {
        /// Tuning job's name.
        name: String,
    },
    /// SageMaker.
    ListTuningJobs(ListTuningJobs),
    /// SageMaker.
    StopTuningJob {
        /// Tuning job's name.
        name: String,
    },
    /// SageMaker.
    DeleteTuningJob {
        /// Tuning job's name.
        name: String,
    },
    /// SageMaker.
    ListTrials(ListTrials),
    /// SageMaker.
    Search(Box<Search>),
    /// SageMaker.
    AddTags {
        /// Of what.
        resource_arn: String,
        /// Keys are unique.
        tags: Vec<Tag>,
    },
    /// SageMaker.
    ListTags {
        /// Of what.
        resource_arn: String,
        /// From the page before; a resource's tags are one page.
        next_token: Option<String>,
    },
    /// SageMaker.
    DeleteTags {
        /// Of what.
        resource_arn: String,
        /// Those that the resource does not have are left aside.
        tag_keys: Vec<String>,
    },
    /// Ours.
    InterruptTrainingJob {
        /// Training job's name.
        training_job_name: String,
    },
    /// Ours.
    ListCheckpoints(ListCheckpoints),
    /// Ours.
    DescribeStudy(DescribeStudy),
    /// Ours.
    UpdateTuningJob(UpdateTuningJob),
    /// Ours.
    StartVisit(StartVisit),
    /// Ours.
    FeedVisit(FeedVisit),
    /// Ours.
    ReadVisit(ReadVisit),
    /// STS.
    GetCallerIdentity,
    /// STS.
    AssumeRole(AssumeRole),
    /// IAM.
    ListRoles {
        /// What their paths begin with.
        path_prefix: String,
        /// Of the roles.
        paging: Paging,
    },
    /// IAM.
    SimulatePrincipalPolicy(SimulatePrincipalPolicy),
    /// IAM.
    GetRole {
        /// Role's name, without a path.
        role_name: String,
    },
    /// CloudWatch Logs.
    DescribeLogStreams(DescribeLogStreams),
    /// CloudWatch Logs.
    GetLogEvents(GetLogEvents),
    /// CloudWatch Logs.
    FilterLogEvents(FilterLogEvents),
    /// CloudWatch Logs.
    DescribeLogGroups(DescribeLogGroups),
    /// CloudWatch Logs.
    ChangeLogs(LogChange),
    /// CloudWatch.
    GetMetricStatistics(GetMetricStatistics),
    /// CloudWatch.
    GetMetricData(GetMetricData),
    /// CloudWatch.
    ListMetrics(ListMetrics),
    /// SageMaker's metrics.
    BatchPutMetrics(BatchPutMetrics),
    /// SageMaker's metrics.
    BatchGetMetrics(Vec<SeriesQuery>),
}

/// Reads and checks a call of a service. The signature is [`crate::sigv4::verify`]'s business.
///
/// # Errors
/// The operation is not served, the body cannot be read, or the request breaks a rule; all rules that it breaks are told at once as far as
/// the constraint table has them, then the first of the others.
pub fn parse(service: Service, head: &Parts, body: &[u8]) -> Result<Call, Error> {
    if body.len() > MAX_REQUEST_BYTES {
        return Err(Error::new(
            ErrorCode::RequestTooLarge,
            format!("The request has {} bytes; {MAX_REQUEST_BYTES} are allowed.", body.len()),
        ));
    }
    let (operation, input) = match Protocol::of(service, head) {
        Protocol::Query => query_call(service, head, body)?,
        Protocol::Json => json_call(service, head, body)?,
    };
    match (service, operation.as_str()) {
        (Service::SageMaker, "CreateTrainingJob") => semantics::create_training_job(input).map(Box::new).map(Call::CreateTrainingJob),
        (Service::SageMaker, "DescribeTrainingJob") => {
            let Named { training_job_name } = read(input)?;
            Ok(Call::DescribeTrainingJob { training_job_name })
        }
        (Service::SageMaker, "ListTrainingJobs") => read(input).map(training_job::list_training_jobs).map(Call::ListTrainingJobs),
        (Service::SageMaker, "StopTrainingJob") => {
            let Named { training_job_name } = read(input)?;
            Ok(Call::StopTrainingJob { training_job_name })
        }
        (Service::SageMaker, "UpdateTrainingJob") => {
            read::<training_job::UpdateTrainingJobRequest>(input)?.check().map(Call::UpdateTrainingJob)
        }
        (Service::SageMaker, "DeleteTrainingJob") => {
            let Named { training_job_name } = read(input)?;
            Ok(Call::DeleteTrainingJob { training_job_name })
        }
        (Service::SageMaker, operation) if operation.contains("HyperParameterTuningJob") && operation != UPDATE_TUNING_JOB => {
            tuning_call(operation, input)
        }
        (Service::SageMaker, "Search") => read::<search::SearchRequest>(input)?.check().map(Box::new).map(Call::Search),
        (Service::SageMaker, "AddTags") => {
            let tags::AddTagsRequest { resource_arn, tags } = read(input)?;
            Ok(Call::AddTags { resource_arn, tags: tags::check(tags)? })
        }
        (Service::SageMaker, "ListTags") => {
            let tags::ListTagsRequest { resource_arn, next_token } = read(input)?;
            Ok(Call::ListTags { resource_arn, next_token })
        }
        (Service::SageMaker, "DeleteTags") => {
            let tags::DeleteTagsRequest { resource_arn, tag_keys } = read(input)?;
            Ok(Call::DeleteTags { resource_arn, tag_keys: tags::check_keys(tag_keys)? })
        }
        (Service::SageMaker, DESCRIBE_STUDY) => read(input).map(Call::DescribeStudy),
        (Service::SageMaker, UPDATE_TUNING_JOB) => read::<UpdateTuningJob>(input)?.check().map(Call::UpdateTuningJob),
        (Service::SageMaker, INTERRUPT_TRAINING_JOB) => {
            let Named { training_job_name } = read(input)?;
            Ok(Call::InterruptTrainingJob { training_job_name })
        }
        (Service::SageMaker, LIST_CHECKPOINTS) => read(input).map(Call::ListCheckpoints),
        (Service::SageMaker, START_VISIT) => read::<StartVisit>(input)?.check().map(Call::StartVisit),
        (Service::SageMaker, FEED_VISIT) => read(input).map(Call::FeedVisit),
        (Service::SageMaker, READ_VISIT) => read(input).map(Call::ReadVisit),
        (Service::Sts, "GetCallerIdentity") => Ok(Call::GetCallerIdentity),
        (Service::Sts, "AssumeRole") => read::<identity::AssumeRoleRequest>(input)?.check().map(Call::AssumeRole),
        (Service::Iam, "ListRoles") => {
            let (path_prefix, paging) = read::<identity::ListRolesRequest>(input)?.check();
            Ok(Call::ListRoles { path_prefix, paging })
        }
        (Service::Iam, "SimulatePrincipalPolicy") => {
            Ok(Call::SimulatePrincipalPolicy(read::<identity::SimulatePrincipalPolicyRequest>(input)?.check()))
        }
        (Service::Iam, "GetRole") => {
            let Role { role_name } = read(input)?;
            Ok(Call::GetRole { role_name })
        }
        (Service::Logs, "DescribeLogStreams") => read::<logs::DescribeLogStreamsRequest>(input)?.check().map(Call::DescribeLogStreams),
        (Service::Logs, "GetLogEvents") => read::<logs::GetLogEventsRequest>(input)?.check().map(Call::GetLogEvents),
        (Service::Logs, "FilterLogEvents") => read::<filter_logs::FilterLogEventsRequest>(input)?.check().map(Call::FilterLogEvents),
        (Service::Logs, "CreateLogGroup") => read::<log_changes::CreateLogGroupRequest>(input)?.check().map(Call::ChangeLogs),
        (Service::Logs, "DeleteLogGroup") => Ok(Call::ChangeLogs(read::<log_changes::GroupRequest>(input)?.deletion())),
        (Service::Logs, "PutRetentionPolicy") => read::<log_changes::GroupRequest>(input)?.retention().map(Call::ChangeLogs),
        (Service::Logs, "DeleteRetentionPolicy") => Ok(Call::ChangeLogs(read::<log_changes::GroupRequest>(input)?.no_retention())),
        (Service::Logs, "CreateLogStream") => Ok(Call::ChangeLogs(read::<log_changes::StreamRequest>(input)?.creation())),
        (Service::Logs, "DeleteLogStream") => Ok(Call::ChangeLogs(read::<log_changes::StreamRequest>(input)?.deletion())),
        (Service::Logs, "PutLogEvents") => read::<log_changes::StreamRequest>(input)?.events().map(Call::ChangeLogs),
        (Service::Logs, "DescribeLogGroups") => read::<filter_logs::DescribeLogGroupsRequest>(input)?.check().map(Call::DescribeLogGroups),
        (Service::CloudWatch, "GetMetricStatistics") => {
            read::<cloudwatch::GetMetricStatisticsRequest>(input)?.check().map(Call::GetMetricStatistics)
        }
        (Service::CloudWatch, "GetMetricData") => read::<cloudwatch::GetMetricDataRequest>(input)?.check().map(Call::GetMetricData),
        (Service::CloudWatch, "ListMetrics") => Ok(Call::ListMetrics(read::<cloudwatch::ListMetricsRequest>(input)?.check())),
        (Service::SageMaker, "BatchPutMetrics") => Ok(Call::BatchPutMetrics(read::<trial_metrics::BatchPutMetricsRequest>(input)?.check())),
        (Service::SageMaker, "BatchGetMetrics") => read::<trial_metrics::BatchGetMetricsRequest>(input)?.check().map(Call::BatchGetMetrics),
        (_, operation) => Err(unknown(service, operation)),
    }
}

/// The calls about tuning jobs.
fn tuning_call(operation: &str, input: Value) -> Result<Call, Error> {
    let named = |input| read::<tuning_job::request::Named>(input).map(|it| it.hyper_parameter_tuning_job_name);
    match operation {
        "CreateHyperParameterTuningJob" => tuning_job::create_tuning_job(input).map(Box::new).map(Call::CreateTuningJob),
        "DescribeHyperParameterTuningJob" => Ok(Call::DescribeTuningJob { name: named(input)? }),
        "ListHyperParameterTuningJobs" => read(input).map(tuning_job::list_tuning_jobs).map(Call::ListTuningJobs),
        "StopHyperParameterTuningJob" => Ok(Call::StopTuningJob { name: named(input)? }),
        "DeleteHyperParameterTuningJob" => Ok(Call::DeleteTuningJob { name: named(input)? }),
        "ListTrainingJobsForHyperParameterTuningJob" => read(input).map(tuning_job::list_training_jobs_of).map(Call::ListTrials),
        other => Err(unknown(Service::SageMaker, other)),
    }
}

/// The operation that a request asks for, from the closed set of those that are served; `None` for any other.
#[must_use]
pub fn operation(service: Service, head: &Parts, body: &[u8]) -> Option<&'static str> {
    match Protocol::of(service, head) {
        Protocol::Query => constraints::name(service, action(&query_pairs(head, body).ok()?)?),
        Protocol::Json => match json_operation(service, head).ok()? {
            INTERRUPT_TRAINING_JOB => Some("InterruptTrainingJob"),
            LIST_CHECKPOINTS => Some("ListCheckpoints"),
            DESCRIBE_STUDY => Some("DescribeStudy"),
            UPDATE_TUNING_JOB => Some("UpdateHyperParameterTuningJob"),
            START_VISIT => Some("StartVisit"),
            FEED_VISIT => Some("FeedVisit"),
            READ_VISIT => Some("ReadVisit"),
            operation => constraints::name(service, operation),
        },
    }
}

/// The validated input of a request; `None` if [`parse`] refuses it.
pub(crate) fn raw_input(service: Service, head: &Parts, body: &[u8]) -> Option<Value> {
    let (_, input) = match Protocol::of(service, head) {
        Protocol::Query => query_call(service, head, body).ok()?,
        Protocol::Json => json_call(service, head, body).ok()?,
    };
    Some(input)
}

/// A CreateHyperParameterTuningJob request as [`parse`] has it, for clients that want to know before they send it.
///
/// # Errors
/// Those of [`parse`].
pub fn check_tuning_job(mut input: Value) -> Result<CreateTuningJob, Error> {
    let operation = "CreateHyperParameterTuningJob";
    let shape = constraints::input(Service::SageMaker, operation).ok_or_else(|| unknown(Service::SageMaker, operation))?;
    validate(shape, &mut input)?;
    tuning_job::create_tuning_job(input)
}

/// Reads back a request that was kept: [`CreateTrainingJob::raw`] as JSON.
///
/// # Errors
/// The bytes are no JSON, or break a rule that was not there when they were accepted.
pub fn restore(raw: &[u8]) -> Result<CreateTrainingJob, Error> {
    let input = serde_json::from_slice(raw).map_err(|error| Error::new(ErrorCode::InternalFailure, error.to_string()))?;
    semantics::create_training_job(input)
}

/// Reads back a tuning job's request that was kept: [`CreateTuningJob::raw`] as JSON.
///
/// # Errors
/// The bytes are no JSON, or break a rule that was not there when they were accepted.
pub fn restore_tuning_job(raw: &[u8]) -> Result<CreateTuningJob, Error> {
    let input = serde_json::from_slice(raw).map_err(|error| Error::new(ErrorCode::InternalFailure, error.to_string()))?;
    tuning_job::create_tuning_job(input)
}

/// Where the outputs of a request that was kept go.
///
/// # Errors
/// It was not a request that was accepted.
pub fn restore_output(raw: &Map<String, Value>) -> Result<Output, Error> {
    semantics::output(read(raw.get("OutputDataConfig").cloned().unwrap_or_default())?)
}

/// What a kept request runs, and on what, without the cost of [`restore`]: for lists.
///
/// # Errors
/// It was not a request that was accepted.
pub fn restore_gist(raw: &[u8]) -> Result<TrainingJobGist, Error> {
    let request: GistRequest = serde_json::from_slice(raw).map_err(|error| Error::new(ErrorCode::InternalFailure, error.to_string()))?;
    let algorithm = request.algorithm_specification;
    Ok(TrainingJobGist {
        training_image: algorithm.training_image,
        entrypoint: algorithm.container_entrypoint,
        arguments: algorithm.container_arguments,
        script: semantics::script_name(&request.hyper_parameters, &request.environment),
        resources: semantics::resources(request.resource_config)?,
    })
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct GistRequest {
    #[serde(default)]
    algorithm_specification: GistAlgorithm,
    #[serde(default)]
    hyper_parameters: BTreeMap<String, String>,
    #[serde(default)]
    environment: BTreeMap<String, String>,
    resource_config: Option<training_job::request::ResourceConfig>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "PascalCase")]
struct GistAlgorithm {
    training_image: Option<String>,
    #[serde(default)]
    container_entrypoint: Vec<String>,
    #[serde(default)]
    container_arguments: Vec<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Named {
    training_job_name: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Role {
    role_name: String,
}

/// The operation that an awsJson request names in a header; those of SageMaker's metrics are paths.
fn json_operation(service: Service, head: &Parts) -> Result<&str, Error> {
    match head.headers.get("x-amz-target").map(|target| target.to_str().unwrap_or_default()) {
        Some(target) if service == Service::SageMaker && OURS.contains(&target) => Ok(target),
        Some(target) => match target.split_once('.') {
            Some((prefix, operation)) if Some(prefix) == service.target_prefix() => Ok(operation),
            _ => Err(unknown(service, target)),
        },
        None if service == Service::SageMaker && head.uri.path() != "/" => match (&head.method, head.uri.path()) {
            (&Method::PUT, "/BatchPutMetrics") => Ok("BatchPutMetrics"),
            (&Method::POST, "/BatchGetMetrics") => Ok("BatchGetMetrics"),
            (method, path) => Err(unknown(service, &format!("{method} {path}"))),
        },
        None => Err(Error::new(ErrorCode::UnknownOperationException, "The header X-Amz-Target, which names the operation, is missing.")),
    }
}

/// The operation and its validated input, of a request in JSON.
fn json_call(service: Service, head: &Parts, body: &[u8]) -> Result<(String, Value), Error> {
    let operation = json_operation(service, head)?;
    let shape = constraints::input(service, operation);
    if shape.is_none() && !OURS.contains(&operation) {
        return Err(unknown(service, operation));
    }
    let body = if body.is_empty() { b"{}" } else { body };
    let mut input = serde_json::from_slice(body)
        .map_err(|error| Error::new(ErrorCode::SerializationException, format!("The request's body is not valid JSON: {error}")))?;
    if let Some(shape) = shape {
        validate(shape, &mut input)?;
    }
    Ok((operation.to_owned(), input))
}

/// The operation and its validated input, of a query request: a form, or the query string of a GET.
fn query_call(service: Service, head: &Parts, body: &[u8]) -> Result<(String, Value), Error> {
    let pairs = query_pairs(head, body)?;
    let Some(action) = action(&pairs) else {
        return Err(Error::new(ErrorCode::UnknownOperationException, "The parameter Action, which names the operation, is missing."));
    };
    let shape = constraints::input(service, action).ok_or_else(|| unknown(service, action))?;
    let mut input = query::input(shape, &pairs);
    validate(shape, &mut input)?;
    Ok((action.to_owned(), input))
}

fn query_pairs(head: &Parts, body: &[u8]) -> Result<Vec<(String, String)>, Error> {
    query::pairs(if body.is_empty() { head.uri.query().unwrap_or_default().as_bytes() } else { body })
}

fn action(pairs: &[(String, String)]) -> Option<&str> {
    pairs.iter().find(|(name, _)| name == "Action").map(|(_, action)| action.as_str())
}

fn unknown(service: Service, operation: &str) -> Error {
    let shown: String = operation.chars().take(128).collect();
    Error::new(ErrorCode::UnknownOperationException, format!("Shoal does not serve the operation {shown:?} of {}.", service.scope()))
}

/// A validated input as its request's type.
pub(crate) fn read<T: DeserializeOwned>(input: Value) -> Result<T, Error> {
    // The table has checked every type that is read here, so this is about numbers at the edges of their types.
    serde_json::from_value(input).map_err(|error| Error::new(ErrorCode::SerializationException, error.to_string()))
}
