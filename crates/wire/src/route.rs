//! Which service a request is for. One port serves all: requests are told apart by their
//! signature's scope.

use http::{Method, header::AUTHORIZATION, request::Parts};

use crate::{Error, ErrorCode, sigv4};

/// A service whose requests are understood.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Service {
    /// Control plane; awsJson 1.1.
    SageMaker,
    /// Served elsewhere.
    S3,
    /// Who am I; query and XML.
    Sts,
    /// Roles; query and XML.
    Iam,
    /// CloudWatch Logs; awsJson 1.1.
    Logs,
    /// CloudWatch metrics and alarms; awsJson 1.0.
    CloudWatch,
    /// Limits on costs; awsJson 1.1.
    Budgets,
    /// Notifications; query and XML.
    Sns,
    /// Who called what; awsJson 1.1.
    CloudTrail,
}

impl Service {
    /// The service's name in a signature's scope.
    pub fn scope(self) -> &'static str {
        match self {
            Self::SageMaker => "sagemaker",
            Self::S3 => "s3",
            Self::Sts => "sts",
            Self::Iam => "iam",
            Self::Logs => "logs",
            Self::CloudWatch => "monitoring",
            Self::Budgets => "budgets",
            Self::Sns => "sns",
            Self::CloudTrail => "cloudtrail",
        }
    }

    /// The service whose operations are called by such an `X-Amz-Target`.
    pub fn of_target(target: &str) -> Option<Self> {
        let (prefix, _) = target.rsplit_once('.').unwrap_or((target, ""));
        [Self::SageMaker, Self::Logs, Self::CloudWatch, Self::Budgets, Self::CloudTrail]
            .into_iter()
            .find(|service| service.target_prefix() == Some(prefix))
    }

    fn from_scope(scope: &str) -> Option<Self> {
        [
            Self::SageMaker,
            Self::S3,
            Self::Sts,
            Self::Iam,
            Self::Logs,
            Self::CloudWatch,
            Self::Budgets,
            Self::Sns,
            Self::CloudTrail,
        ]
        .into_iter()
        .find(|service| service.scope() == scope)
    }

    /// What stands before the operation in `X-Amz-Target`; `None` for services that do not use it.
    pub(crate) fn target_prefix(self) -> Option<&'static str> {
        match self {
            Self::SageMaker => Some("SageMaker"),
            Self::Logs => Some("Logs_20140328"),
            Self::CloudWatch => Some("GraniteServiceVersion20100801"),
            Self::Budgets => Some("AWSBudgetServiceGateway"),
            Self::CloudTrail => Some("com.amazonaws.cloudtrail.v20131101.CloudTrail_20131101"),
            Self::S3 | Self::Sts | Self::Iam | Self::Sns => None,
        }
    }

    pub(crate) fn answers_json(self) -> bool {
        self.target_prefix().is_some()
    }
}

/// What requests and replies are written in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// awsJson or rest-json.
    Json,
    /// A form, answered by XML.
    Query,
}

impl Protocol {
    /// Forms are what STS and IAM always get, and CloudWatch from older clients: then no header
    /// names the operation.
    pub fn of(service: Service, head: &Parts) -> Self {
        let form =
            !service.answers_json() || (service == Service::CloudWatch && !head.headers.contains_key("x-amz-target"));
        if form { Self::Query } else { Self::Json }
    }
}

/// Who serves a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Route {
    /// The S3 front: signed for S3, pre-signed, or unsigned without being a page's GET.
    S3,
    /// A service with operations: verify the signature, then [`crate::parse()`].
    Api(Service),
    /// An unsigned GET or HEAD of `/` or `/healthz`, as browsers and probes send, or anything below
    /// `/console`.
    Console,
}

/// Tells who serves a request. It looks at the head only and trusts nothing: signatures are checked
/// afterwards.
///
/// # Errors
/// The `Authorization` header cannot be read, or names a service that Shoal does not have.
pub fn route(head: &Parts) -> Result<Route, Error> {
    if let Some(authorization) = head.headers.get(AUTHORIZATION) {
        // Signature version 2 is S3's business: no other service's client of today sends it.
        if authorization.as_bytes().starts_with(b"AWS ") {
            return Ok(Route::S3);
        }
        let scope = sigv4::scope_service(head)?;
        return match Service::from_scope(scope) {
            Some(Service::S3) => Ok(Route::S3),
            Some(service) => Ok(Route::Api(service)),
            None => Err(Error::new(
                ErrorCode::UnknownOperationException,
                format!(
                    "this server has no service \"{}\"; it serves SageMaker training, S3, STS, IAM, SNS, \
                     CloudWatch, CloudWatch Logs, Budgets and CloudTrail",
                    scope.escape_debug()
                ),
            )),
        };
    }
    let names: Vec<&str> =
        head.uri.query().unwrap_or_default().split('&').filter_map(|pair| pair.split('=').next()).collect();
    if names.contains(&"X-Amz-Signature") || (names.contains(&"AWSAccessKeyId") && names.contains(&"Signature")) {
        return Ok(Route::S3);
    }
    let path = head.uri.path();
    let ours = matches!(path, "/" | "/healthz" | "/favicon.ico") && matches!(head.method, Method::GET | Method::HEAD);
    if ours || path == "/console" || path.starts_with("/console/") {
        return Ok(Route::Console);
    }
    // Unsigned calls of operations go to their service, which says in its own words that the
    // signature is missing.
    if head.headers.contains_key("x-amz-target") {
        let target = head.headers.get("x-amz-target").and_then(|target| target.to_str().ok()).unwrap_or_default();
        return Ok(Route::Api(Service::of_target(target).unwrap_or(Service::SageMaker)));
    }
    let form = head
        .headers
        .get(http::header::CONTENT_TYPE)
        .is_some_and(|kind| kind.as_bytes().starts_with(b"application/x-www-form-urlencoded"));
    if head.method == Method::POST && path == "/" && form {
        return Ok(Route::Api(Service::Sts));
    }
    Ok(Route::S3)
}
