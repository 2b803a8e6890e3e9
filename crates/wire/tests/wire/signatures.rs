//! Requests that botocore signed (`data/record.py`) verify, and no part of them can be changed.

use http::{HeaderName, HeaderValue, Method, Request, Uri, request::Parts};
use serde_json::Value;
use shoal_wire::{
    ErrorCode, Route, Service, route,
    sigv4::{self, Credentials, Identity},
};

const SKEW_S: u64 = 900;

struct Recorded {
    name: String,
    head: Parts,
    body: Vec<u8>,
    credentials: Credentials,
    now_ms: u64,
}

impl Recorded {
    fn verify(&self) -> Result<Identity, ErrorCode> {
        sigv4::verify(&self.head, &self.body, &self.credentials, self.now_ms, SKEW_S).map_err(|error| error.code)
    }

    fn service(&self) -> Service {
        match route(&self.head) {
            Ok(Route::Api(service)) => service,
            other => panic!("{}: routed to {other:?}", self.name),
        }
    }
}

fn text(value: &Value) -> &str {
    value.as_str().expect("the recorder writes texts")
}

fn recorded() -> Vec<Recorded> {
    let data: Value =
        serde_json::from_str(include_str!("../data/signed_requests.json")).expect("the recorder writes JSON");
    let read = |entry: &Value| {
        let headers = entry["headers"].as_object().expect("headers");
        // A server sees the path and query only, and the host as a header.
        let url: Uri = text(&entry["url"]).parse().expect("a URI");
        let mut request =
            Request::builder().method(text(&entry["method"])).uri(url.path_and_query().expect("a path").as_str());
        if !headers.contains_key("Host") {
            request = request.header("Host", url.authority().expect("a host").as_str());
        }
        for (name, value) in headers {
            request = request.header(name, text(value));
        }
        let (head, ()) = request.body(()).expect("a request").into_parts();
        let token = head.headers.get("x-amz-security-token").map(|_| text(&data["session_token"]).to_owned());
        Recorded {
            name: text(&entry["name"]).to_owned(),
            head,
            body: text(&entry["body"]).as_bytes().to_vec(),
            credentials: Credentials {
                access_key_id: text(&data["access_key_id"]).to_owned(),
                secret_access_key: text(&data["secret_access_key"]).to_owned(),
                session_token: token,
            },
            now_ms: data["now_ms"].as_u64().expect("a time"),
        }
    };
    data["requests"].as_array().expect("requests").iter().map(read).collect()
}

fn named(name: &str) -> Recorded {
    recorded().into_iter().find(|recorded| recorded.name == name).expect("a recorded request of this name")
}

#[test]
fn what_botocore_signed_verifies() {
    let recorded = recorded();
    assert_eq!(recorded.len(), 14, "the recorder makes 14 requests");
    for request in recorded {
        let identity = request.verify().unwrap_or_else(|code| panic!("{}: {code:?}", request.name));
        assert_eq!(identity.access_key_id, request.credentials.access_key_id, "{}", request.name);
        assert_eq!(sigv4::access_key_id(&request.head).as_deref(), Ok("AKIAIOSFODNN7EXAMPLE"), "{}", request.name);
    }
    assert_eq!(named("describe in another region").verify().unwrap().region, "eu-central-1");
}

#[test]
fn the_scope_tells_the_service() {
    let expected = [
        ("create training job", Service::SageMaker),
        ("caller identity", Service::Sts),
        ("role", Service::Iam),
        ("log events", Service::Logs),
        ("query with spaces", Service::Sts),
    ];
    for (name, service) in expected {
        assert_eq!(named(name).service(), service, "{name}");
    }
}

/// A change of a signed request, by name.
type Change = (&'static str, fn(&mut Recorded));

fn set(recorded: &mut Recorded, name: &'static str, value: &'static str) {
    recorded.head.headers.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
}

const CHANGES: &[Change] = &[
    ("the body", |it| it.body.push(b' ')),
    ("the host", |it| set(it, "host", "127.0.0.1:9778")),
    ("the date", |it| set(it, "x-amz-date", "20261121T072429Z")),
    ("the method", |it| it.head.method = Method::PUT),
    ("the path", |it| it.head.uri = "/other?Version=2011-06-15".parse().expect("a URI")),
    ("the query", |it| {
        it.head.uri = format!("{}{}x=1", it.head.uri, if it.head.uri.query().is_some() { "&" } else { "?" })
            .parse()
            .expect("a URI");
    }),
    ("the secret", |it| it.credentials.secret_access_key.push('x')),
    ("an unsigned x-amz header", |it| set(it, "x-amz-added", "1")),
    ("a stated hash of another body", |it| {
        set(it, "x-amz-content-sha256", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    }),
];

#[test]
fn no_part_can_be_changed() {
    for (what, change) in CHANGES {
        for mut request in recorded() {
            change(&mut request);
            assert_eq!(request.verify(), Err(ErrorCode::InvalidSignature), "{}: {what}", request.name);
        }
    }
}

#[test]
fn every_signed_header_counts() {
    for original in recorded() {
        let authorization = original.head.headers["authorization"].to_str().unwrap().to_owned();
        let names = authorization.split("SignedHeaders=").nth(1).unwrap().split(',').next().unwrap();
        for name in names.split(';') {
            let mut changed = named(&original.name);
            let name: HeaderName = name.parse().unwrap();
            changed.head.headers.append(&name, HeaderValue::from_static("more"));
            assert!(changed.verify().is_err(), "{}: a second {name}", original.name);
            changed.head.headers.remove(&name);
            assert!(changed.verify().is_err(), "{}: no {name}", original.name);
        }
    }
}

#[test]
fn a_signature_does_not_leave_its_scope() {
    for (from, to) in [
        ("us-east-1", "us-west-2"),
        ("/sagemaker/", "/logs/"),
        ("20261121/", "20261122/"),
        ("SignedHeaders=content-type;", "SignedHeaders="),
    ] {
        let mut request = named("create training job");
        let authorization = request.head.headers["authorization"].to_str().unwrap().replace(from, to);
        request.head.headers.insert("authorization", authorization.parse().unwrap());
        assert_eq!(request.verify(), Err(ErrorCode::InvalidSignature), "{from} -> {to}");
    }
}

#[test]
fn age_is_bounded_on_both_sides() {
    let at = |offset_s: i64| {
        let mut request = named("create training job");
        request.now_ms = request.now_ms.checked_add_signed(offset_s * 1000).unwrap();
        request.verify().map(|_| ())
    };
    let skew = i64::try_from(SKEW_S).unwrap();
    for (offset, expected) in [
        (0, Ok(())),
        (skew, Ok(())),
        (-skew, Ok(())),
        (skew + 1, Err(ErrorCode::InvalidSignature)),
        (-skew - 1, Err(ErrorCode::InvalidSignature)),
    ] {
        assert_eq!(at(offset), expected, "{offset} s");
    }
}

#[test]
fn session_tokens_belong_to_their_keys() {
    let check = |name: &str, token: Option<&str>, expected: Result<(), ErrorCode>| {
        let mut request = named(name);
        request.credentials.session_token = token.map(str::to_owned);
        assert_eq!(request.verify().map(|_| ()), expected, "{name} with {token:?}");
    };
    check("session token", Some("another"), Err(ErrorCode::UnrecognizedClient));
    check("session token", None, Err(ErrorCode::UnrecognizedClient));
    check("create training job", Some("wanted"), Err(ErrorCode::UnrecognizedClient));
    check("create training job", None, Ok(()));
}

#[test]
fn bad_authorization_headers_are_told() {
    let check = |value: Option<&'static str>, expected: ErrorCode| {
        let mut request = named("create training job");
        request.head.headers.remove("authorization");
        if let Some(value) = value {
            request.head.headers.insert("authorization", HeaderValue::from_static(value));
        }
        assert_eq!(request.verify().unwrap_err(), expected, "{value:?}");
    };
    check(None, ErrorCode::MissingAuthenticationToken);
    for value in [
        "",
        "Basic dXNlcjpwYXNz",
        "AWS4-HMAC-SHA256",
        "AWS4-HMAC-SHA256 Credential=a/b/c",
        "AWS4-HMAC-SHA256 Credential=AK/20261121/us-east-1/sagemaker/aws4_request, Signature=00",
        "AWS4-HMAC-SHA256 Credential=AK/20261121/us-east-1/sagemaker/aws4_request, SignedHeaders=host",
        "AWS4-HMAC-SHA256 Credential=AK/20261121/us-east-1/sagemaker/aws5_request, SignedHeaders=host, Signature=00",
    ] {
        check(Some(value), ErrorCode::IncompleteSignature);
    }
    check(
        Some(
            "AWS4-HMAC-SHA256 Credential=other/20261121/us-east-1/sagemaker/aws4_request, SignedHeaders=host, Signature=00",
        ),
        ErrorCode::UnrecognizedClient,
    );
    check(
        Some(
            "AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20261121/us-east-1/sagemaker/aws4_request, SignedHeaders=content-type;host;x-amz-date;x-amz-target, Signature=no-hex",
        ),
        ErrorCode::InvalidSignature,
    );
}

#[test]
fn our_own_signatures_are_botocores() {
    for original in recorded() {
        let mut signed = named(&original.name);
        signed.head.headers.remove("authorization");
        let service = original.service();
        let region = original.verify().unwrap().region;
        sigv4::sign(&mut signed.head, &signed.body, &signed.credentials, &region, service.scope(), signed.now_ms);
        let signature = |head: &Parts| head.headers["authorization"].to_str().unwrap().to_owned();
        assert_eq!(signature(&signed.head), signature(&original.head), "{}", original.name);
    }
}
