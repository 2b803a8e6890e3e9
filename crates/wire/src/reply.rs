//! Replies and errors as http responses.

use http::{HeaderName, HeaderValue, Response, StatusCode, header::CONTENT_TYPE};
use serde_json::{Map, Value, json};

use crate::{Error, Operation, Protocol, Service, xml};

/// A header of ours: what a client that shows things to people should show. AWS's shapes have no
/// place for it.
pub const NOTICE: HeaderName = HeaderName::from_static("x-shoal-notice");
const REQUEST_ID: HeaderName = HeaderName::from_static("x-amzn-requestid");

/// The answer to a [`crate::Call`]: the operation's output. Its constructors are beside the shapes
/// that they write.
#[derive(Debug, Clone, PartialEq)]
pub struct Reply {
    body: Value,
    notice: Option<String>,
}

impl Reply {
    /// An output with these members, a JSON object.
    pub fn of(body: Value) -> Self {
        Self { body, notice: None }
    }

    /// Done, and nothing to report.
    pub fn done() -> Self {
        Self::of(json!({}))
    }

    /// One page of a list, and the token of the next one if there is more.
    pub fn page(list: &str, items: impl Iterator<Item = Value>, token: &str, next: Option<&str>) -> Self {
        let page = Self::of(object(list, items.collect()));
        match next {
            Some(next) => page.with(token, json!(next)),
            None => page,
        }
    }

    pub(crate) fn with(mut self, member: &str, value: Value) -> Self {
        self.body[member] = value;
        self
    }

    /// The members of the output.
    #[must_use]
    pub fn into_body(self) -> Value {
        self.body
    }

    /// With a text for the header [`NOTICE`].
    #[must_use]
    pub fn with_notice(self, notice: Option<String>) -> Self {
        Self { notice, ..self }
    }
}

/// An object of one member, which `json!` would copy.
pub(crate) fn object(member: &str, value: Value) -> Value {
    Value::Object(Map::from_iter([(member.to_owned(), value)]))
}

/// An operation's reply in its service's protocol; status 200.
///
/// # Panics
/// If the request's id cannot stand in a header: it must be printable ASCII.
pub fn respond(operation: &Operation, reply: &Reply, protocol: Protocol, request_id: &str) -> Response<Vec<u8>> {
    debug_assert_eq!(
        stray_members(operation, &reply.body),
        Vec::<String>::new(),
        "{} has no such members",
        operation.name
    );
    let kind = content_type(operation.service);
    let mut response = match (protocol, operation.output) {
        (Protocol::Query, _) => query(operation, &reply.body, request_id),
        (Protocol::Json, None) => response(StatusCode::OK, kind, Vec::new(), request_id),
        (Protocol::Json, Some(_)) => response(StatusCode::OK, kind, reply.body.to_string().into_bytes(), request_id),
    };
    if let Some(notice) = reply.notice.as_ref().and_then(|notice| HeaderValue::from_str(notice).ok()) {
        response.headers_mut().insert(NOTICE, notice);
    }
    response
}

/// Members that the operation's output, or the items of its lists, do not have. Clients would drop
/// them silently.
fn stray_members(operation: &Operation, body: &Value) -> Vec<String> {
    let mut strays = Vec::new();
    for (name, value) in body.as_object().into_iter().flatten() {
        let Some((_, members)) = operation.output_member(name) else {
            strays.push(name.clone());
            continue;
        };
        let items = value.as_array().filter(|_| !members.is_empty()).into_iter().flatten().filter_map(Value::as_object);
        let unknown = items.flat_map(Map::keys).filter(|key| !members.contains(&key.as_str()));
        strays.extend(unknown.map(|key| format!("{name}.{key}")));
    }
    strays
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
            let code = error.code.query_name(service);
            let inner =
                [xml::element("Type", fault), xml::element("Code", code), xml::element("Message", &error.message)]
                    .concat();
            let id = xml::element("RequestId", request_id);
            let body =
                format!("<ErrorResponse xmlns=\"{}\"><Error>{inner}</Error>{id}</ErrorResponse>", namespace(service));
            response(status, "text/xml", body.into_bytes(), request_id)
        }
    };
    if service == Service::CloudWatch && protocol == Protocol::Json {
        // The service once spoke the query protocol; clients then keep its codes.
        let value =
            HeaderValue::from_str(&format!("{};{fault}", error.code.query_name(service))).expect("codes are ASCII");
        response.headers_mut().insert("x-amzn-query-error", value);
    }
    response
}

fn content_type(service: Service) -> &'static str {
    match service {
        Service::SageMaker | Service::Logs | Service::Budgets | Service::CloudTrail => "application/x-amz-json-1.1",
        Service::CloudWatch => "application/x-amz-json-1.0",
        Service::Sts | Service::Iam | Service::S3 | Service::Sns => "text/xml",
    }
}

fn namespace(service: Service) -> &'static str {
    match service {
        Service::Iam => "https://iam.amazonaws.com/doc/2010-05-08/",
        Service::Sns => "http://sns.amazonaws.com/doc/2010-03-31/",
        Service::CloudWatch => "http://monitoring.amazonaws.com/doc/2010-08-01/",
        // Those that speak JSON have none.
        Service::Sts | Service::SageMaker | Service::Logs | Service::Budgets | Service::S3 | Service::CloudTrail => {
            "https://sts.amazonaws.com/doc/2011-06-15/"
        }
    }
}

fn query(operation: &Operation, body: &Value, request_id: &str) -> Response<Vec<u8>> {
    let (name, namespace) = (operation.name, namespace(operation.service));
    let result = xml::tree(&format!("{name}Result"), body);
    let metadata = format!("<ResponseMetadata>{}</ResponseMetadata>", xml::element("RequestId", request_id));
    let body = format!("<{name}Response xmlns=\"{namespace}\">{result}{metadata}</{name}Response>");
    response(StatusCode::OK, "text/xml", body.into_bytes(), request_id)
}

fn response(status: StatusCode, content_type: &'static str, body: Vec<u8>, request_id: &str) -> Response<Vec<u8>> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
        .headers_mut()
        .insert(REQUEST_ID, HeaderValue::from_str(request_id).expect("request ids are printable ASCII"));
    response
}
