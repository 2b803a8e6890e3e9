//! Replies and errors as http responses.

use http::{HeaderName, HeaderValue, Response, StatusCode, header::CONTENT_TYPE};
use serde_json::{Map, Value, json};

use crate::{
    CheckpointReceipt, Error, LogEvent, LogStream, Service, Tag, TrainingJobDescription, TrainingJobSummary, checkpoints, logs, search,
    tags, timestamp, training_job, xml,
};

const REQUEST_ID: HeaderName = HeaderName::from_static("x-amzn-requestid");
const STS_NAMESPACE: &str = "https://sts.amazonaws.com/doc/2011-06-15/";
const IAM_NAMESPACE: &str = "https://iam.amazonaws.com/doc/2010-05-08/";
/// What `GetRole` says of who may take a role: SageMaker. Percent-encoded as IAM does.
const TRUST_POLICY: &str = "%7B%22Version%22%3A%222012-10-17%22%2C%22Statement%22%3A%5B%7B%22Effect%22%3A%22Allow%22%2C%22Principal%22%3A%7B%22Service%22%3A%22\
                            sagemaker.amazonaws.com%22%7D%2C%22Action%22%3A%22sts%3AAssumeRole%22%7D%5D%7D";

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
    StopTrainingJob,
    /// SageMaker.
    UpdateTrainingJob {
        /// [`crate::arn::training_job`].
        arn: String,
    },
    /// SageMaker.
    DeleteTrainingJob,
    /// SageMaker.
    Search {
        /// One page of [`crate::search_record`]s.
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
    ListCheckpoints {
        /// By path and host.
        receipts: Vec<CheckpointReceipt>,
        /// If there is more.
        next_token: Option<String>,
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
    /// IAM.
    GetRole {
        /// Role's name.
        role_name: String,
        /// `AROA` and 17 letters or digits.
        role_id: String,
        /// [`crate::arn::role`].
        arn: String,
        /// Milliseconds since the epoch.
        created_ms: u64,
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
}

/// A reply in its service's protocol; status 200.
///
/// # Panics
/// If the request's id cannot stand in a header: it must be printable ASCII.
pub fn respond(reply: &Reply, request_id: &str) -> Response<Vec<u8>> {
    match reply {
        Reply::CreateTrainingJob { arn } => json(Service::SageMaker, &json!({"TrainingJobArn": arn}), request_id),
        Reply::DescribeTrainingJob { request, description } => {
            json(Service::SageMaker, &training_job::describe(request, description), request_id)
        }
        Reply::ListTrainingJobs { summaries, next_token } => {
            json(Service::SageMaker, &training_job::list(summaries, next_token.as_deref()), request_id)
        }
        Reply::UpdateTrainingJob { arn } => json(Service::SageMaker, &json!({"TrainingJobArn": arn}), request_id),
        Reply::Search { records, next_token, total } => {
            json(Service::SageMaker, &search::results(records, next_token.as_deref(), *total), request_id)
        }
        Reply::AddTags { tags } | Reply::ListTags { tags } => json(Service::SageMaker, &json!({"Tags": tags::to_json(tags)}), request_id),
        Reply::DeleteTags => json(Service::SageMaker, &json!({}), request_id),
        Reply::StopTrainingJob | Reply::DeleteTrainingJob => {
            response(StatusCode::OK, content_type(Service::SageMaker), Vec::new(), request_id)
        }
        Reply::ListCheckpoints { receipts, next_token } => {
            json(Service::SageMaker, &checkpoints::list(receipts, next_token.as_deref()), request_id)
        }
        Reply::GetCallerIdentity { account, arn, user_id } => {
            let result = [xml::element("Arn", arn), xml::element("UserId", user_id), xml::element("Account", account)].concat();
            query(STS_NAMESPACE, "GetCallerIdentity", &result, request_id)
        }
        Reply::GetRole { role_name, role_id, arn, created_ms } => {
            let role = [
                xml::element("Path", "/"),
                xml::element("RoleName", role_name),
                xml::element("RoleId", role_id),
                xml::element("Arn", arn),
                xml::element("CreateDate", &timestamp::iso8601(*created_ms)),
                xml::element("AssumeRolePolicyDocument", TRUST_POLICY),
                xml::element("MaxSessionDuration", "3600"),
            ];
            query(IAM_NAMESPACE, "GetRole", &format!("<Role>{}</Role>", role.concat()), request_id)
        }
        Reply::DescribeLogStreams { streams, next_token } => {
            json(Service::Logs, &logs::streams(streams, next_token.as_deref()), request_id)
        }
        Reply::GetLogEvents { events, forward_token, backward_token } => {
            json(Service::Logs, &logs::events(events, forward_token, backward_token), request_id)
        }
    }
}

/// An error in a service's protocol.
///
/// # Panics
/// If the request's id cannot stand in a header: it must be printable ASCII.
pub fn respond_error(service: Service, error: &Error, request_id: &str) -> Response<Vec<u8>> {
    let status = error.code.status(service);
    let code = error.code.name(service);
    let fault = if error.code.is_server_fault() { "Receiver" } else { "Sender" };
    let mut response = if service.answers_json() {
        let body = json!({"__type": code, "message": error.message});
        response(status, content_type(service), body.to_string().into_bytes(), request_id)
    } else {
        let namespace = match service {
            Service::Iam => IAM_NAMESPACE,
            _ => STS_NAMESPACE,
        };
        let inner = [xml::element("Type", fault), xml::element("Code", code), xml::element("Message", &error.message)].concat();
        let id = xml::element("RequestId", request_id);
        let body = format!("<ErrorResponse xmlns=\"{namespace}\"><Error>{inner}</Error>{id}</ErrorResponse>");
        response(status, content_type(service), body.into_bytes(), request_id)
    };
    if service == Service::CloudWatch {
        // The service once spoke the query protocol; clients then keep its codes.
        let value = HeaderValue::from_str(&format!("{code};{fault}")).expect("codes are ASCII");
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

fn json(service: Service, body: &Value, request_id: &str) -> Response<Vec<u8>> {
    response(StatusCode::OK, content_type(service), body.to_string().into_bytes(), request_id)
}

fn query(namespace: &str, operation: &str, result: &str, request_id: &str) -> Response<Vec<u8>> {
    let metadata = format!("<ResponseMetadata>{}</ResponseMetadata>", xml::element("RequestId", request_id));
    let result = format!("<{operation}Result>{result}</{operation}Result>");
    let body = format!("<{operation}Response xmlns=\"{namespace}\">{result}{metadata}</{operation}Response>");
    response(StatusCode::OK, "text/xml", body.into_bytes(), request_id)
}

fn response(status: StatusCode, content_type: &'static str, body: Vec<u8>, request_id: &str) -> Response<Vec<u8>> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response.headers_mut().insert(REQUEST_ID, HeaderValue::from_str(request_id).expect("request ids are printable ASCII"));
    response
}
