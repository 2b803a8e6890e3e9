//! The requests that real clients made (`protocol/golden_requests.json`, recorded from boto3, SDK
//! v2 and SDK v3) are understood.

use std::{collections::BTreeMap, env, fs, path::PathBuf};

use http::{Request, request::Parts};
use serde_json::{Map, Value};
use shoal_wire::{
    Call, CreateTrainingJob, CreateTuningJob, DescribeLogStreams, Error, ErrorCode, GetLogEvents, GetRole, ListTags,
    ListTrials, NamedTrainingJob, NamedTuningJob, Route, Search, parse, route,
};

/// A recorded request and the test case that made it.
pub(crate) struct Golden {
    pub(crate) case: String,
    head: Parts,
    pub(crate) body: Vec<u8>,
    pub(crate) operation: String,
}

/// All requests that are not S3's; `None`, said aloud, where there is no recording.
pub(crate) fn goldens() -> Option<Vec<Golden>> {
    let beside = || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared");
    let shared = env::var_os("SHOAL_SHARED").map_or_else(beside, PathBuf::from);
    let path = shared.join("protocol/golden_requests.json");
    let Ok(text) = fs::read(&path) else {
        println!(
            "skipped: needs ../shared/data and, beside it, {} (SHOAL_SHARED names another folder)",
            path.display()
        );
        return None;
    };
    let recording: Value = serde_json::from_slice(&text).expect("the recording is JSON");
    let mut goldens = Vec::new();
    collect(&recording, "", &mut goldens);
    Some(goldens)
}

fn collect(value: &Value, case: &str, goldens: &mut Vec<Golden>) {
    match value {
        Value::Object(entry) if entry.contains_key("method") => goldens.extend(golden(value, case)),
        Value::Object(cases) => {
            cases.iter().for_each(|(name, inner)| collect(inner, &format!("{case}/{name}"), goldens));
        }
        Value::Array(entries) => entries.iter().for_each(|entry| collect(entry, case, goldens)),
        _ => {}
    }
}

fn golden(entry: &Value, case: &str) -> Option<Golden> {
    let text = |name: &str| entry[name].as_str();
    let service = text("service").expect("a service");
    if service == "s3" {
        return None;
    }
    let scope = format!(
        "AWS4-HMAC-SHA256 Credential=AK/20261121/us-east-1/{service}/aws4_request, SignedHeaders=host, Signature=00"
    );
    let mut request = Request::builder()
        .method(text("method").expect("a method"))
        .uri(text("path").expect("a path"))
        .header("authorization", scope);
    let named = [("content-type", text("content_type")), ("x-amz-target", text("target"))];
    for (name, value) in named {
        if let Some(value) = value {
            request = request.header(name, value);
        }
    }
    let (head, ()) = request.body(()).expect("a request").into_parts();
    let body = match &entry["body"] {
        Value::String(form) => form.clone(),
        Value::Null => String::new(),
        json => json.to_string(),
    };
    let action = body.split('&').find_map(|pair| pair.strip_prefix("Action=")).unwrap_or_default();
    let operation = text("target").map_or(action, |target| target.rsplit('.').next().unwrap_or_default()).to_owned();
    Some(Golden { case: case.to_owned(), head, body: body.into_bytes(), operation })
}

/// What is served now; the other operations of the recording are other issues' work.
const SERVED: &[&str] = &[
    "CreateHyperParameterTuningJob",
    "CreateTrainingJob",
    "DescribeHyperParameterTuningJob",
    "DescribeTrainingJob",
    "ListTrainingJobs",
    "ListTrainingJobsForHyperParameterTuningJob",
    "StopHyperParameterTuningJob",
    "StopTrainingJob",
    "ListTags",
    "Search",
    "GetCallerIdentity",
    "GetRole",
    "DescribeLogStreams",
    "GetLogEvents",
];

/// Cases that use what Shoal does not have, and the member that is named in the refusal.
const REFUSED: &[(&str, &str)] = &[("/sdk_v2_b/input_options", "compressionType")];

/// Reads the typed input; what is kept of it, of a creation.
fn raw(call: Call) -> Result<Option<Map<String, Value>>, Error> {
    match call.operation.name {
        "CreateHyperParameterTuningJob" => call.read::<CreateTuningJob>().map(|job| Some(job.raw)),
        "CreateTrainingJob" => call.read::<CreateTrainingJob>().map(|job| Some(job.raw)),
        "DescribeHyperParameterTuningJob" | "StopHyperParameterTuningJob" => {
            call.read::<NamedTuningJob>().map(|_| None)
        }
        "DescribeTrainingJob" | "StopTrainingJob" => call.read::<NamedTrainingJob>().map(|_| None),
        "ListTrainingJobs" => Ok(None),
        "ListTrainingJobsForHyperParameterTuningJob" => call.read::<ListTrials>().map(|_| None),
        "ListTags" => call.read::<ListTags>().map(|_| None),
        "Search" => call.read::<Search>().map(|_| None),
        "GetRole" => call.read::<GetRole>().map(|_| None),
        "DescribeLogStreams" => call.read::<DescribeLogStreams>().map(|_| None),
        "GetLogEvents" => call.read::<GetLogEvents>().map(|_| None),
        name => {
            assert_eq!(name, "GetCallerIdentity");
            Ok(None)
        }
    }
}

#[test]
fn every_request_of_a_served_operation_parses() {
    let Some(goldens) = goldens() else { return };
    let mut seen = BTreeMap::new();
    for golden in goldens.iter().filter(|golden| SERVED.contains(&golden.operation.as_str())) {
        let Ok(Route::Api(service)) = route(&golden.head) else {
            panic!("{}: {} is not routed", golden.case, golden.operation)
        };
        let parsed = parse(service, &golden.head, &golden.body).and_then(raw);
        let refused = REFUSED.iter().find(|(case, _)| *case == golden.case && golden.operation == "CreateTrainingJob");
        if let Some((_, member)) = refused {
            let error = parsed.expect_err("what Shoal does not have is refused");
            assert!(
                error.code == ErrorCode::ValidationException && error.message.contains(member),
                "{}: {error}",
                golden.case
            );
            continue;
        }
        let raw = parsed.unwrap_or_else(|error| panic!("{}: {}: {error}", golden.case, golden.operation));
        if let Some(raw) = raw {
            let sent: Value = serde_json::from_slice(&golden.body).expect("JSON");
            assert_eq!(Value::Object(raw), sent, "{}: nothing of the request is lost", golden.case);
        }
        *seen.entry(golden.operation.as_str()).or_insert(0) += 1;
    }
    let missing: Vec<_> = SERVED.iter().filter(|operation| !seen.contains_key(*operation)).collect();
    assert!(missing.is_empty(), "the recording has no {missing:?}");
}
