//! What a client hears that speaks plain HTTP where only TLS is spoken: the reason, in the form
//! that it understands, or for a browser the way.

use http::{HeaderValue, Method, Response, StatusCode, header, request::Parts, uri::Authority};
use http_body_util::BodyExt;
use shoal_console::Body;
use shoal_wire::{Error, ErrorCode, Protocol, Route, respond_error, route};

use crate::{
    http::{full, guessed},
    request_id::request_id,
};

/// The answer to any request over plain HTTP.
pub(crate) fn refuse(head: &Parts) -> Response<Body> {
    let host = head
        .headers
        .get(header::HOST)
        .and_then(|host| host.to_str().ok())
        .filter(|host| host.parse::<Authority>().is_ok());
    let there = host.map_or_else(|| "https://".to_owned(), |host| format!("https://{host}"));
    let message = format!("This server speaks HTTPS only: use {there}. `shoal env` prints what to set for clients.");
    let denied = Error::new(ErrorCode::AccessDenied, message.clone());
    let mut response = match route(head) {
        Ok(Route::Console) if matches!(head.method, Method::GET | Method::HEAD) && host.is_some() => {
            moved(head, &there, message)
        }
        Ok(Route::Console) => Response::new(full(message + "\n")),
        Ok(Route::S3) => shoal_s3::tls_only(&message).map(BodyExt::boxed),
        Ok(Route::Api(service)) => {
            respond_error(service, Protocol::of(service, head), &denied, &request_id()).map(full)
        }
        Err(_) => {
            let (service, protocol) = guessed(head);
            respond_error(service, protocol, &denied, &request_id()).map(full)
        }
    };
    if response.status().is_success() {
        *response.status_mut() = StatusCode::FORBIDDEN;
    }
    // Whatever comes next on this connection would be sent in the open, too.
    response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    response
}

fn moved(head: &Parts, there: &str, message: String) -> Response<Body> {
    let path = head.uri.path_and_query().map_or("/", |path| path.as_str());
    let mut response = Response::new(full(message + "\n"));
    *response.status_mut() = StatusCode::TEMPORARY_REDIRECT;
    if let Ok(location) = HeaderValue::from_str(&format!("{there}{path}")) {
        response.headers_mut().insert(header::LOCATION, location);
    }
    response
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    async fn refused(method: &str, path: &str, headers: &[(&str, &str)]) -> (u16, Option<String>, String) {
        let request = headers
            .iter()
            .fold(Request::builder().method(method).uri(path), |request, (name, value)| request.header(*name, *value));
        let response = refuse(&request.body(()).unwrap().into_parts().0);
        let location = response.headers().get("location").map(|value| value.to_str().unwrap().to_owned());
        let status = response.status().as_u16();
        assert_eq!(response.headers()["connection"], "close");
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (status, location, String::from_utf8(body.to_vec()).unwrap())
    }

    #[tokio::test]
    async fn everybody_is_told_in_their_own_form() {
        let scope = |service: &str| {
            format!(
                "AWS4-HMAC-SHA256 Credential=AKIA/20260101/us-east-1/{service}/aws4_request, SignedHeaders=host, \
                 Signature=0"
            )
        };
        let host = ("host", "train-box:9777");
        for (method, path, service, expected) in [
            ("POST", "/", "sagemaker", "\"__type\":\"AccessDenied"),
            ("POST", "/", "sts", "<Code>AccessDenied</Code>"),
            ("PUT", "/bucket/key", "s3", "<Code>AccessDenied</Code>"),
            ("POST", "/", "braket", "AccessDenied"),
        ] {
            let (status, _, text) = refused(
                method,
                path,
                &[host, ("authorization", &scope(service)), ("x-amz-target", "SageMaker.ListTrainingJobs")],
            )
            .await;
            assert!(text.contains(expected) && text.contains("use https://train-box:9777."), "{service}: {text}");
            assert!((400..500).contains(&status), "{service}: {status}");
        }
    }

    #[tokio::test]
    async fn browsers_are_shown_the_way() {
        let (status, location, _) = refused("GET", "/console/jobs/a?b=c", &[("host", "train-box:9777")]).await;
        assert_eq!((status, location.as_deref()), (307, Some("https://train-box:9777/console/jobs/a?b=c")));
        for host in [None, Some("a b")] {
            let headers: Vec<_> = host.map(|host| ("host", host)).into_iter().collect();
            let (status, location, text) = refused("GET", "/console", &headers).await;
            assert_eq!((status, location), (403, None));
            assert!(text.starts_with("This server speaks HTTPS only"), "{text}");
        }
    }
}
