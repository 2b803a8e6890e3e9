//! The one port: requests are told apart by their signature's scope, verified, parsed, answered.

use std::{convert::Infallible, sync::Arc};

use bytes::Bytes;
use http::{HeaderValue, Request, Response, header, request::Parts};
use http_body_util::{BodyExt, Full, LengthLimitError, Limited, combinators::BoxBody};
use hyper::body::Incoming;
use shoal_s3::S3Front;
use shoal_wire::{Error, ErrorCode, MAX_REQUEST_BYTES, Route, Service, parse, respond, respond_error, route, sigv4};

use crate::{
    api::{Api, Caller},
    console::Console,
    core::now_ms,
    keys::{KeyRing, random_hex},
};

/// Any response body.
pub(crate) type Body = BoxBody<Bytes, Box<dyn std::error::Error + Send + Sync>>;

/// Everything that answers.
pub(crate) struct Front {
    pub(crate) api: Api,
    pub(crate) console: Console,
    pub(crate) s3: S3Front,
    pub(crate) keys: Arc<KeyRing>,
    pub(crate) max_skew_s: u64,
}

impl Front {
    /// Answers a request; what goes wrong is told in the answer.
    pub(crate) async fn answer(self: Arc<Self>, request: Request<Incoming>) -> Result<Response<Body>, Infallible> {
        let request_id = request_id();
        let (head, body) = request.into_parts();
        let response = match route(&head) {
            Ok(Route::S3) => {
                let mut response = self.s3.call(Request::from_parts(head, body)).await.map(BodyExt::boxed);
                response.headers_mut().insert("x-amz-request-id", HeaderValue::from_str(&request_id).expect("hexadecimal digits"));
                return Ok(response);
            }
            Ok(Route::Console) => return Ok(self.console.answer(&self.api, head, body).await),
            Ok(Route::Api(service)) => {
                let answered = match collect(body).await {
                    Ok(body) => self.call(service, &head, &body).await,
                    Err(error) => Err(error),
                };
                match answered {
                    Ok(reply) => respond(&reply, &request_id),
                    Err(error) => {
                        if error.code.is_server_fault() {
                            tracing::error!("{request_id}: {error}");
                        }
                        respond_error(service, &error, &request_id)
                    }
                }
            }
            Err(error) => respond_error(Service::SageMaker, &error, &request_id),
        };
        Ok(response.map(full))
    }

    async fn call(&self, service: Service, head: &Parts, body: &[u8]) -> Result<shoal_wire::Reply, Error> {
        let key_id = sigv4::access_key_id(head)?;
        let key = self.keys.find(&key_id).ok_or_else(|| {
            Error::new(
                ErrorCode::UnrecognizedClient,
                format!("The security token included in the request is invalid: this server does not know access key {key_id}; `shoal env` prints its keys"),
            )
        })?;
        let credentials = sigv4::Credentials {
            access_key_id: key.keys.access_key_id,
            secret_access_key: key.keys.secret_access_key,
            session_token: key.keys.session_token,
        };
        sigv4::verify(head, body, &credentials, now_ms(), self.max_skew_s)?;
        let call = parse(service, head, body)?;
        let user_agent = head.headers.get(header::USER_AGENT).and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned();
        self.api.call(call, &Caller { user_agent, attempt: key.attempt }).await
    }
}

async fn collect(body: Incoming) -> Result<Bytes, Error> {
    match Limited::new(body, MAX_REQUEST_BYTES).collect().await {
        Ok(collected) => Ok(collected.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => {
            Err(Error::new(ErrorCode::RequestTooLarge, format!("the request is longer than {MAX_REQUEST_BYTES} bytes")))
        }
        Err(error) => Err(Error::new(ErrorCode::SerializationException, format!("the request's body broke off: {error}"))),
    }
}

/// A body that is there already.
pub(crate) fn full(bytes: impl Into<Bytes>) -> Body {
    Full::new(bytes.into()).map_err(|never| match never {}).boxed()
}

fn request_id() -> String {
    let hex = random_hex(16).unwrap_or_else(|_| "0".repeat(32));
    format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
}
