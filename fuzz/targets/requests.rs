//! Requests of every service: whatever the body is, the answer is a typed call or a refusal that is
//! the client's fault.
#![no_main]

use http::Request;
use libfuzzer_sys::fuzz_target;
use shoal_wire::{
    AddTags, AssumeRole, CreateTrainingJob, FilterLogEvents, GetLogEvents, GetMetricData, GetMetricStatistics,
    Protocol, Route, Search, Stored as _, UpdateTrainingJob, parse, respond_error, route,
};

const TARGETS: &[(&str, &str)] = &[
    ("sagemaker", "SageMaker.CreateTrainingJob"),
    ("sagemaker", "SageMaker.ListTrainingJobs"),
    ("sagemaker", "SageMaker.Search"),
    ("sagemaker", "SageMaker.AddTags"),
    ("sagemaker", "SageMaker.UpdateTrainingJob"),
    ("logs", "Logs_20140328.GetLogEvents"),
    ("logs", "Logs_20140328.FilterLogEvents"),
    ("monitoring", "GraniteServiceVersion20100801.GetMetricStatistics"),
    ("monitoring", "GraniteServiceVersion20100801.GetMetricData"),
    ("sts", ""),
    ("iam", ""),
];

fuzz_target!(|input: &[u8]| {
    let Some((first, body)) = input.split_first() else { return };
    let (scope, target) = TARGETS[usize::from(*first) % TARGETS.len()];
    let mut request = Request::post("/").header(
        "authorization",
        format!(
            "AWS4-HMAC-SHA256 Credential=A/20261121/us-east-1/{scope}/aws4_request, SignedHeaders=host, Signature=0"
        ),
    );
    if !target.is_empty() {
        request = request.header("x-amz-target", target);
    }
    let (head, ()) = request.body(()).expect("a request").into_parts();
    let Ok(Route::Api(service)) = route(&head) else { panic!("{scope} is not routed") };
    let read = parse(service, &head, body).and_then(|call| match call.operation.name {
        "CreateTrainingJob" => {
            let job: CreateTrainingJob = call.read()?;
            let kept = serde_json::to_vec(&job.raw).expect("a request is JSON");
            assert_eq!(CreateTrainingJob::restore(&job.to_stored(), &kept).expect("what was accepted reads back"), job);
            Ok(())
        }
        "Search" => call.read::<Search>().map(drop),
        "AddTags" => call.read::<AddTags>().map(drop),
        "UpdateTrainingJob" => call.read::<UpdateTrainingJob>().map(drop),
        "GetLogEvents" => call.read::<GetLogEvents>().map(drop),
        "FilterLogEvents" => call.read::<FilterLogEvents>().map(drop),
        "GetMetricStatistics" => call.read::<GetMetricStatistics>().map(drop),
        "GetMetricData" => call.read::<GetMetricData>().map(drop),
        "AssumeRole" => call.read::<AssumeRole>().map(drop),
        _ => Ok(()),
    });
    if let Err(error) = read {
        assert!(!error.code.is_server_fault(), "{error}");
        let response = respond_error(service, Protocol::of(service, &head), &error, "id");
        assert!(response.status().is_client_error());
    }
});
