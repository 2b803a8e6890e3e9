//! Replies and errors as http responses.

use http::{HeaderName, HeaderValue, Response, StatusCode, header::CONTENT_TYPE};
use serde_json::{Map, Value, json};

use crate::{
    AssumedRole, CheckpointReceipt, Datapoint, Error, Evaluation, FilteredLogEvent, LogEvent, LogGroup, LogStream, Metric, MetricResult,
    Protocol, RejectedLogEvents, Role, SearchResource, SeriesResult, Service, Statistic, StudyDescription, Tag, TrainingJobDescription,
    TrainingJobSummary, TrialSummary, TuningJobDescription, TuningJobSummary, VisitOutput, VisitResult, checkpoints, cloudwatch,
    filter_logs, identity, log_changes, logs, search, tags, training_job, trial_metrics, tuning_job, visits, xml,
};

/// A header of ours: what a client that shows things to people should show. AWS's shapes have no place for it.
pub const NOTICE: HeaderName = HeaderName::from_static("x-shoal-notice");
const REQUEST_ID: HeaderName = HeaderName::from_static("x-amzn-requestid");

/// The answer to a [`crate::Call`].
#[derive(Debug, Clone, PartialEq)]
pub enum Reply {
    /// SageMaker.
    CreateTrainingJob {
        /// [`crate::arn::training_job`].
        arn: String,
    },
    /// SageMaker.
    DescribeTrainingJob {
        /// [`crate::CreateTrainingJob::raw`].
        request: Map<String, Value>,
        /// What became of it.
        description: Box<TrainingJobDescription>,
    },
    /// SageMaker.
    ListTrainingJobs {
        /// One page.
        summaries: Vec<TrainingJobSummary>,
        /// If there is more.
        next_token: Option<String>,
    },
    /// SageMaker.
    StopTrainingJob {
        /// What its program has left, for the header [`NOTICE`].
        notice: Option<String>,
    },
    /// SageMaker.
    UpdateTrainingJob {
        /// [`crate::arn::training_job`].
        arn: String,
    },
    /// SageMaker.
    DeleteTrainingJob,
    /// SageMaker.
    CreateTuningJob {
        /// [`crate::arn::tuning_job`].
        arn: String,
        /// What will not be as the request has it, for the header [`NOTICE`].
        notice: Option<String>,
    },
    /// SageMaker.
    DescribeTuningJob {
        /// [`crate::CreateTuningJob::raw`].
        request: Map<String, Value>,
        /// What became of it.
        description: Box<TuningJobDescription>,
    },
    /// SageMaker.
    ListTuningJobs {
        /// One page.
        summaries: Vec<TuningJobSummary>,
        /// If there is more.
        next_token: Option<String>,
    },
    /// SageMaker.
    StopTuningJob,
    /// SageMaker.
    DeleteTuningJob,
    /// SageMaker.
    ListTrials {
        /// One page.
        summaries: Vec<TrialSummary>,
        /// If there is more.
        next_token: Option<String>,
    },
    /// SageMaker.
    Search {
        /// What the records are.
        resource: SearchResource,
        /// One page of [`crate::search_record`]s or [`crate::tuning_search_record`]s.
        records: Vec<Value>,
        /// If there is more.
        next_token: Option<String>,
        /// On all pages.
        total: u64,
    },
    /// SageMaker.
    AddTags {
        /// All that the resource has now.
        tags: Vec<Tag>,
    },
    /// SageMaker.
    ListTags {
        /// All that the resource has.
        tags: Vec<Tag>,
    },
    /// SageMaker.
    DeleteTags,
    /// Ours.
    InterruptTrainingJob,
    /// Ours.
    UpdateTuningJob,
    /// Ours.
    DescribeStudy(Box<StudyDescription>),
    /// Ours.
    ListCheckpoints {
        /// By path and host.
        receipts: Vec<CheckpointReceipt>,
        /// If there is more.
        next_token: Option<String>,
    },
    /// Ours.
    StartVisit {
        /// Names it from now on.
        visit_id: String,
    },
    /// Ours.
    FeedVisit {
        /// Whether the input was taken; if not, nothing reads it now, and it is to be brought again.
        is_taken: bool,
    },
    /// Ours.
    ReadVisit {
        /// In order.
        output: Vec<VisitOutput>,
        /// After all of its output.
        end: Option<VisitResult>,
    },
    /// STS.
    GetCallerIdentity {
        /// Twelve digits.
        account: String,
        /// [`crate::arn::assumed_role`].
        arn: String,
        /// `<role id>:<session>`.
        user_id: String,
    },
    /// STS.
    AssumeRole(AssumedRole),
    /// IAM.
    GetRole(Role),
    /// IAM.
    ListRoles {
        /// One page.
        roles: Vec<Role>,
        /// If there is more.
        marker: Option<String>,
    },
    /// IAM.
    SimulatePrincipalPolicy {
        /// One page.
        evaluations: Vec<Evaluation>,
        /// If there is more.
        marker: Option<String>,
    },
    /// CloudWatch Logs.
    DescribeLogStreams {
        /// In the order asked for.
        streams: Vec<LogStream>,
        /// If there is more.
        next_token: Option<String>,
    },
    /// CloudWatch Logs.
    GetLogEvents {
        /// Oldest first.
        events: Vec<LogEvent>,
        /// Where the next events come; at the end the token that was asked with, which is how clients know.
        forward_token: String,
        /// Where earlier events are.
        backward_token: String,
    },
    /// CloudWatch Logs.
    FilterLogEvents {
        /// By time.
        events: Vec<FilteredLogEvent>,
        /// If there may be more.
        next_token: Option<String>,
    },
    /// CloudWatch Logs: done, and nothing to tell.
    LogsChanged,
    /// CloudWatch Logs.
    PutLogEvents(RejectedLogEvents),
    /// CloudWatch Logs.
    DescribeLogGroups {
        /// By name.
        groups: Vec<LogGroup>,
        /// Where the next page begins, if there is one.
        next_token: Option<String>,
    },
    /// CloudWatch.
    GetMetricStatistics {
        /// The metric's name.
        label: String,
        /// [`crate::GetMetricStatistics::statistics`].
        statistics: Vec<(String, Statistic)>,
        /// Of periods that have values.
        datapoints: Vec<Datapoint>,
    },
    /// CloudWatch.
    GetMetricData {
        /// One page of each query's values.
        results: Vec<MetricResult>,
        /// If there is more.
        next_token: Option<String>,
    },
    /// CloudWatch.
    ListMetrics {
        /// One page.
        metrics: Vec<Metric>,
        /// If there is more.
        next_token: Option<String>,
    },
    /// SageMaker's metrics.
    BatchPutMetrics {
        /// Code and index of each value that was refused.
        errors: Vec<(&'static str, usize)>,
    },
    /// SageMaker's metrics.
    BatchGetMetrics {
        /// Of each query.
        results: Vec<SeriesResult>,
    },
}

/// A reply in its service's protocol; status 200.
///
/// # Panics
/// If the request's id cannot stand in a header: it must be printable ASCII.
pub fn respond(reply: &Reply, protocol: Protocol, request_id: &str) -> Response<Vec<u8>> {
    let (service, operation, body) = document(reply);
    let mut response = match (protocol, body) {
        (Protocol::Query, body) => query(service, operation, &body, request_id),
        (Protocol::Json, Value::Null) => response(StatusCode::OK, content_type(service), Vec::new(), request_id),
        (Protocol::Json, body) => response(StatusCode::OK, content_type(service), body.to_string().into_bytes(), request_id),
    };
    if let Reply::CreateTuningJob { notice: Some(notice), .. } | Reply::StopTrainingJob { notice: Some(notice) } = reply
        && let Ok(notice) = HeaderValue::from_str(notice)
    {
        response.headers_mut().insert(NOTICE, notice);
    }
    response
}

/// A reply's service, operation and members; null for none at all.
fn document(reply: &Reply) -> (Service, &'static str, Value) {
    use Service::{CloudWatch, Iam, Logs, SageMaker, Sts};
    match reply {
        Reply::CreateTrainingJob { arn } => (SageMaker, "CreateTrainingJob", json!({"TrainingJobArn": arn})),
        Reply::DescribeTrainingJob { request, description } => {
            (SageMaker, "DescribeTrainingJob", training_job::describe(request, description))
        }
        Reply::ListTrainingJobs { summaries, next_token } => {
            (SageMaker, "ListTrainingJobs", training_job::list(summaries, next_token.as_deref()))
        }
        Reply::UpdateTrainingJob { arn } => (SageMaker, "UpdateTrainingJob", json!({"TrainingJobArn": arn})),
        Reply::CreateTuningJob { arn, .. } => (SageMaker, "CreateHyperParameterTuningJob", json!({"HyperParameterTuningJobArn": arn})),
        Reply::DescribeTuningJob { request, description } => {
            (SageMaker, "DescribeHyperParameterTuningJob", tuning_job::describe(request, description))
        }
        Reply::ListTuningJobs { summaries, next_token } => {
            (SageMaker, "ListHyperParameterTuningJobs", tuning_job::list(summaries, next_token.as_deref()))
        }
        Reply::StopTuningJob => (SageMaker, "StopHyperParameterTuningJob", Value::Null),
        Reply::DeleteTuningJob => (SageMaker, "DeleteHyperParameterTuningJob", Value::Null),
        Reply::ListTrials { summaries, next_token } => {
            let body = tuning_job::trials(summaries, next_token.as_deref());
            (SageMaker, "ListTrainingJobsForHyperParameterTuningJob", body)
        }
        Reply::Search { resource, records, next_token, total } => {
            (SageMaker, "Search", search::results(*resource, records, next_token.as_deref(), *total))
        }
        Reply::AddTags { tags } => (SageMaker, "AddTags", json!({"Tags": tags::to_json(tags)})),
        Reply::ListTags { tags } => (SageMaker, "ListTags", json!({"Tags": tags::to_json(tags)})),
        Reply::DeleteTags => (SageMaker, "DeleteTags", json!({})),
        Reply::StopTrainingJob { .. } => (SageMaker, "StopTrainingJob", Value::Null),
        Reply::DeleteTrainingJob => (SageMaker, "DeleteTrainingJob", Value::Null),
        Reply::InterruptTrainingJob => (SageMaker, "InterruptTrainingJob", json!({})),
        Reply::UpdateTuningJob => (SageMaker, "UpdateHyperParameterTuningJob", json!({})),
        Reply::DescribeStudy(study) => (SageMaker, "DescribeStudy", json!(study)),
        Reply::ListCheckpoints { receipts, next_token } => {
            (SageMaker, "ListCheckpoints", checkpoints::list(receipts, next_token.as_deref()))
        }
        Reply::StartVisit { visit_id } => (SageMaker, "StartVisit", json!({"VisitId": visit_id})),
        Reply::FeedVisit { is_taken } => (SageMaker, "FeedVisit", json!({"IsTaken": is_taken})),
        Reply::ReadVisit { output, end } => (SageMaker, "ReadVisit", visits::read(output, end.as_ref())),
        Reply::GetCallerIdentity { account, arn, user_id } => {
            (Sts, "GetCallerIdentity", json!({"Arn": arn, "UserId": user_id, "Account": account}))
        }
        Reply::AssumeRole(role) => (Sts, "AssumeRole", identity::assumed(role)),
        Reply::GetRole(role) => (Iam, "GetRole", json!({"Role": identity::role(role)})),
        Reply::ListRoles { roles, marker } => (Iam, "ListRoles", identity::roles(roles, marker.as_deref())),
        Reply::SimulatePrincipalPolicy { evaluations, marker } => {
            (Iam, "SimulatePrincipalPolicy", identity::evaluations(evaluations, marker.as_deref()))
        }
        Reply::DescribeLogStreams { streams, next_token } => (Logs, "DescribeLogStreams", logs::streams(streams, next_token.as_deref())),
        Reply::GetLogEvents { events, forward_token, backward_token } => {
            (Logs, "GetLogEvents", logs::events(events, forward_token, backward_token))
        }
        Reply::FilterLogEvents { events, next_token } => (Logs, "FilterLogEvents", filter_logs::events(events, next_token.as_deref())),
        Reply::LogsChanged => (Logs, "CreateLogGroup", Value::Null),
        Reply::PutLogEvents(rejected) => (Logs, "PutLogEvents", log_changes::put(rejected)),
        Reply::DescribeLogGroups { groups, next_token } => (Logs, "DescribeLogGroups", filter_logs::groups(groups, next_token.as_deref())),
        Reply::GetMetricStatistics { label, statistics, datapoints } => {
            (CloudWatch, "GetMetricStatistics", cloudwatch::statistics(label, statistics, datapoints))
        }
        Reply::GetMetricData { results, next_token } => (CloudWatch, "GetMetricData", cloudwatch::data(results, next_token.as_deref())),
        Reply::ListMetrics { metrics, next_token } => (CloudWatch, "ListMetrics", cloudwatch::metrics(metrics, next_token.as_deref())),
        Reply::BatchPutMetrics { errors } => (SageMaker, "BatchPutMetrics", trial_metrics::put(errors)),
        Reply::BatchGetMetrics { results } => (SageMaker, "BatchGetMetrics", trial_metrics::series(results)),
    }
}

/// An error in a service's protocol.
///
/// # Panics
/// If the request's id cannot stand in a header: it must be printable ASCII.
pub fn respond_error(service: Service, protocol: Protocol, error: &Error, request_id: &str) -> Response<Vec<u8>> {
    let status = error.code.status(service);
    let fault = if error.code.is_server_fault() { "Receiver" } else { "Sender" };
    let mut response = match protocol {
        Protocol::Json => {
            let body = json!({"__type": error.code.name(service), "message": error.message});
            response(status, content_type(service), body.to_string().into_bytes(), request_id)
        }
        Protocol::Query => {
            let code = error.code.query_name();
            let inner = [xml::element("Type", fault), xml::element("Code", code), xml::element("Message", &error.message)].concat();
            let id = xml::element("RequestId", request_id);
            let body = format!("<ErrorResponse xmlns=\"{}\"><Error>{inner}</Error>{id}</ErrorResponse>", namespace(service));
            response(status, "text/xml", body.into_bytes(), request_id)
        }
    };
    if service == Service::CloudWatch && protocol == Protocol::Json {
        // The service once spoke the query protocol; clients then keep its codes.
        let value = HeaderValue::from_str(&format!("{};{fault}", error.code.query_name())).expect("codes are ASCII");
        response.headers_mut().insert("x-amzn-query-error", value);
    }
    response
}

fn content_type(service: Service) -> &'static str {
    match service {
        Service::SageMaker | Service::Logs => "application/x-amz-json-1.1",
        Service::CloudWatch => "application/x-amz-json-1.0",
        Service::Sts | Service::Iam | Service::S3 => "text/xml",
    }
}

fn namespace(service: Service) -> &'static str {
    match service {
        Service::Iam => "https://iam.amazonaws.com/doc/2010-05-08/",
        Service::CloudWatch => "http://monitoring.amazonaws.com/doc/2010-08-01/",
        Service::Sts | Service::SageMaker | Service::Logs | Service::S3 => "https://sts.amazonaws.com/doc/2011-06-15/",
    }
}

fn query(service: Service, operation: &str, body: &Value, request_id: &str) -> Response<Vec<u8>> {
    let result = xml::tree(&format!("{operation}Result"), body);
    let metadata = format!("<ResponseMetadata>{}</ResponseMetadata>", xml::element("RequestId", request_id));
    let body = format!("<{operation}Response xmlns=\"{}\">{result}{metadata}</{operation}Response>", namespace(service));
    response(StatusCode::OK, "text/xml", body.into_bytes(), request_id)
}

fn response(status: StatusCode, content_type: &'static str, body: Vec<u8>, request_id: &str) -> Response<Vec<u8>> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response.headers_mut().insert(REQUEST_ID, HeaderValue::from_str(request_id).expect("request ids are printable ASCII"));
    response
}
