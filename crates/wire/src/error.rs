//! Error codes of the services that are served, and how each service spells and numbers them.

use http::StatusCode;

use crate::Service;

/// What went wrong, as AWS classifies it. Services spell some of these differently:
/// [`ErrorCode::name`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ErrorCode {
    /// The request breaks a rule; the message names the member. SageMaker also answers this for an
    /// unknown training job.
    ValidationException,
    /// CloudWatch: a value that a parameter cannot have.
    InvalidParameterValue,
    /// CloudWatch: parameters that do not go together.
    InvalidParameterCombination,
    /// CloudWatch: a parameter that the others need is missing.
    MissingParameter,
    /// CloudWatch: a text that is not of the form that it must have.
    InvalidFormat,
    /// CloudWatch and SNS: a page's token that was not given out.
    InvalidNextToken,
    /// The name is taken, or the resource's state forbids it.
    ResourceInUse,
    /// There is no such resource.
    ResourceNotFound,
    /// More than this account (here: this machine) has.
    ResourceLimitExceeded,
    /// The service has no such operation, or Shoal does not serve it.
    UnknownOperationException,
    /// The body is not what the operation's shape says: bad JSON, a wrong JSON type, a bad form.
    SerializationException,
    /// Nothing is signed.
    MissingAuthenticationToken,
    /// The signature's header lacks a part.
    IncompleteSignature,
    /// The access key or the session token is unknown.
    UnrecognizedClient,
    /// The time of temporary keys is over.
    ExpiredToken,
    /// The signature is wrong or too old.
    InvalidSignature,
    /// These keys may not do that.
    AccessDenied,
    /// Too fast; clients try again.
    ThrottlingException,
    /// The request's body is too large.
    RequestTooLarge,
    /// The request's body came too slowly; clients try again.
    RequestTimeout,
    /// Our fault; clients try again.
    InternalFailure,
    /// Not now (starting, shutting down); clients try again.
    ServiceUnavailable,
}

impl ErrorCode {
    /// The code as this service writes it.
    pub fn name(self, service: Service) -> &'static str {
        let (json, query) = (self.names().0, self.query_name(service));
        match (service, self) {
            (Service::Logs, Self::ValidationException) => "InvalidParameterException",
            (Service::Logs, Self::ResourceNotFound) => "ResourceNotFoundException",
            (Service::Logs, Self::ResourceInUse) => "ResourceAlreadyExistsException",
            (Service::Logs, Self::ResourceLimitExceeded) => "LimitExceededException",
            (Service::Logs, Self::ServiceUnavailable) => "ServiceUnavailableException",
            (Service::Budgets, Self::ValidationException) => "InvalidParameterException",
            (Service::Budgets, Self::ResourceNotFound) => "NotFoundException",
            (Service::Budgets, Self::ResourceInUse) => "DuplicateRecordException",
            (Service::Budgets, Self::ResourceLimitExceeded) => "CreationLimitExceededException",
            (Service::Budgets, Self::InternalFailure) => "InternalErrorException",
            (Service::CloudTrail, Self::InvalidParameterValue) => "InvalidLookupAttributesException",
            (Service::CloudTrail, Self::InvalidParameterCombination) => "InvalidTimeRangeException",
            (Service::CloudTrail, Self::InvalidFormat) => "InvalidEventCategoryException",
            (Service::CloudTrail, Self::InvalidNextToken) => "InvalidNextTokenException",
            (Service::Sts | Service::Iam | Service::S3 | Service::Sns, _) => query,
            (Service::SageMaker | Service::Logs | Service::CloudWatch | Service::Budgets | Service::CloudTrail, _) => {
                json
            }
        }
    }

    /// The code in the query protocol.
    pub(crate) fn query_name(self, service: Service) -> &'static str {
        match (service, self) {
            (Service::CloudWatch, Self::ResourceNotFound) => "ResourceNotFound",
            (Service::CloudWatch, Self::ResourceInUse) => "ResourceConflict",
            (Service::CloudWatch, Self::InternalFailure) => "InternalServiceError",
            (
                Service::Sns,
                Self::ValidationException
                | Self::InvalidParameterValue
                | Self::InvalidParameterCombination
                | Self::MissingParameter
                | Self::InvalidFormat
                | Self::InvalidNextToken,
            ) => "InvalidParameter",
            (Service::Sns, Self::ResourceNotFound) => "NotFound",
            (Service::Sns, Self::AccessDenied) => "AuthorizationError",
            (Service::Sns, Self::ResourceLimitExceeded) => "SubscriptionLimitExceeded",
            (Service::Sns, Self::InternalFailure) => "InternalError",
            (Service::Sts, Self::InvalidFormat) => "MalformedPolicyDocument",
            (Service::Sts, Self::ResourceLimitExceeded) => "PackedPolicyTooLarge",
            _ => self.names().1,
        }
    }

    /// In JSON and in the query protocol.
    fn names(self) -> (&'static str, &'static str) {
        match self {
            Self::ValidationException => ("ValidationException", "ValidationError"),
            Self::InvalidParameterValue => ("InvalidParameterValueException", "InvalidParameterValue"),
            Self::InvalidParameterCombination => {
                ("InvalidParameterCombinationException", "InvalidParameterCombination")
            }
            Self::MissingParameter => ("MissingRequiredParameterException", "MissingParameter"),
            Self::InvalidFormat => ("InvalidFormatFault", "InvalidFormat"),
            Self::InvalidNextToken => ("InvalidNextToken", "InvalidNextToken"),
            Self::ResourceInUse => ("ResourceInUse", "EntityAlreadyExists"),
            Self::ResourceNotFound => ("ResourceNotFound", "NoSuchEntity"),
            Self::ResourceLimitExceeded => ("ResourceLimitExceeded", "LimitExceeded"),
            Self::UnknownOperationException => ("UnknownOperationException", "InvalidAction"),
            Self::SerializationException => ("SerializationException", "MalformedQueryString"),
            Self::MissingAuthenticationToken => ("MissingAuthenticationTokenException", "MissingAuthenticationToken"),
            Self::IncompleteSignature => ("IncompleteSignatureException", "IncompleteSignature"),
            Self::UnrecognizedClient => ("UnrecognizedClientException", "InvalidClientTokenId"),
            Self::ExpiredToken => ("ExpiredTokenException", "ExpiredToken"),
            Self::InvalidSignature => ("InvalidSignatureException", "SignatureDoesNotMatch"),
            Self::AccessDenied => ("AccessDeniedException", "AccessDenied"),
            Self::ThrottlingException => ("ThrottlingException", "Throttling"),
            Self::RequestTooLarge => ("RequestEntityTooLargeException", "RequestEntityTooLarge"),
            Self::RequestTimeout => ("RequestTimeoutException", "RequestTimeout"),
            Self::InternalFailure => ("InternalFailure", "InternalFailure"),
            Self::ServiceUnavailable => ("ServiceUnavailable", "ServiceUnavailable"),
        }
    }

    /// The HTTP status that goes with it.
    pub fn status(self, service: Service) -> StatusCode {
        match self {
            Self::InternalFailure => StatusCode::INTERNAL_SERVER_ERROR,
            Self::ServiceUnavailable => StatusCode::SERVICE_UNAVAILABLE,
            Self::RequestTooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Self::RequestTimeout => StatusCode::REQUEST_TIMEOUT,
            Self::ResourceNotFound if service == Service::CloudWatch => StatusCode::NOT_FOUND,
            _ if service.answers_json() => StatusCode::BAD_REQUEST,
            Self::MissingAuthenticationToken
            | Self::UnrecognizedClient
            | Self::ExpiredToken
            | Self::InvalidSignature
            | Self::AccessDenied => StatusCode::FORBIDDEN,
            Self::ResourceNotFound => StatusCode::NOT_FOUND,
            Self::ResourceInUse | Self::ResourceLimitExceeded => StatusCode::CONFLICT,
            Self::ValidationException
            | Self::InvalidParameterValue
            | Self::InvalidParameterCombination
            | Self::MissingParameter
            | Self::InvalidFormat
            | Self::InvalidNextToken
            | Self::UnknownOperationException
            | Self::SerializationException
            | Self::IncompleteSignature
            | Self::ThrottlingException => StatusCode::BAD_REQUEST,
        }
    }

    /// Whether the server is at fault, and not who asked.
    pub fn is_server_fault(self) -> bool {
        matches!(self, Self::InternalFailure | Self::ServiceUnavailable)
    }
}

/// A refusal: a code for the program and a message for its user.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}: {message}", code.name(Service::SageMaker))]
pub struct Error {
    /// What kind.
    pub code: ErrorCode,
    /// What is wrong, where, and what to do.
    pub message: String,
}

impl Error {
    /// A refusal with its message.
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }

    /// A [`ErrorCode::ValidationException`].
    pub fn validation(message: impl Into<String>) -> Self {
        Self::new(ErrorCode::ValidationException, message)
    }
}
