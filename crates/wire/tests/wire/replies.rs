//! Replies and errors as the bytes that clients read, and the routing of requests. Pure: no socket.

use http::{Method, Request, StatusCode};
use serde_json::{Map, Value, json};
use shoal_wire::{
    Datapoint, Error, ErrorCode, FinalMetric, LogEvent, LogStream, MetricDefinition, Protocol, Reply, Role, Route,
    S3Uri, SearchResource, Service, Statistic, StatusTransition, Tag, TrainingJobDescription, TrainingJobSummary,
    WarmPool, arn, client, operations, respond, respond_error, route, search_record,
    sigv4::{self, Credentials},
};

const ID: &str = "3f1c0b5e-0000-4000-8000-000000000001";
const CREATED: u64 = 1_795_245_868_250;

/// The body of an operation's reply after its status and headers are checked.
fn body(operation: &str, reply: &Reply, content_type: &str) -> String {
    let protocol = if content_type == "text/xml" { Protocol::Query } else { Protocol::Json };
    let operation = operations().find(|served| served.name == operation).expect("served");
    let response = respond(operation, reply, protocol, ID);
    assert_eq!(response.status(), StatusCode::OK);
    assert_eq!(response.headers()["content-type"], content_type);
    assert_eq!(response.headers()["x-amzn-requestid"], ID);
    String::from_utf8(response.into_body()).expect("UTF-8")
}

fn check_json(operation: &str, reply: &Reply, expected: &Value) {
    let body = body(operation, reply, "application/x-amz-json-1.1");
    assert_eq!(&serde_json::from_str::<Value>(&body).expect("JSON"), expected);
    assert!(!body.contains("null"), "absent members are left out: {body}");
}

fn request() -> Map<String, Value> {
    let request = json!({
        "TrainingJobName": "Titanic-1",
        "RoleArn": "arn:aws:iam::123456789012:role/SageMakerRole",
        "AlgorithmSpecification": {"TrainingImage": "xgboost:1", "TrainingInputMode": "File"},
        "InputDataConfig": [{"ChannelName": "train", "DataSource": {"S3DataSource": {"S3DataType": "S3Prefix", "S3Uri": "s3://my-bucket/train"}}}],
        "OutputDataConfig": {"S3OutputPath": "s3://my-bucket/out"},
        "ResourceConfig": {"InstanceType": "ml.m5.xlarge", "InstanceCount": 1},
        "Tags": [{"Key": "team", "Value": "trees"}],
        "DebugHookConfig": {"S3OutputPath": "s3://my-bucket/out", "CollectionConfigurations": []}
    });
    request.as_object().expect("an object").clone()
}

fn started() -> TrainingJobDescription {
    TrainingJobDescription {
        arn: arn::training_job("us-east-1", "123456789012", "Titanic-1"),
        model_artifacts: "s3://my-bucket/out/Titanic-1/output/model.tar.gz".to_owned(),
        status: "InProgress".to_owned(),
        secondary_status: "Starting".to_owned(),
        transitions: vec![StatusTransition {
            status: "Starting".to_owned(),
            start_ms: CREATED,
            end_ms: None,
            message: "Starting the training job".to_owned(),
        }],
        created_ms: CREATED,
        modified_ms: CREATED + 1000,
        ..TrainingJobDescription::default()
    }
}

/// What Describe says of [`started`].
fn told() -> Value {
    json!({
        "TrainingJobName": "Titanic-1",
        "TrainingJobArn": "arn:aws:sagemaker:us-east-1:123456789012:training-job/titanic-1",
        "RoleArn": "arn:aws:iam::123456789012:role/SageMakerRole",
        "AlgorithmSpecification": {"TrainingImage": "xgboost:1", "TrainingInputMode": "File", "EnableSageMakerMetricsTimeSeries": false},
        "InputDataConfig": [{
            "ChannelName": "train",
            "DataSource": {"S3DataSource": {"S3DataType": "S3Prefix", "S3Uri": "s3://my-bucket/train", "S3DataDistributionType": "FullyReplicated"}},
            "CompressionType": "None",
            "RecordWrapperType": "None"
        }],
        "OutputDataConfig": {"S3OutputPath": "s3://my-bucket/out", "KmsKeyId": "", "CompressionType": "GZIP"},
        "ResourceConfig": {"InstanceType": "ml.m5.xlarge", "InstanceCount": 1, "VolumeSizeInGB": 30},
        "StoppingCondition": {"MaxRuntimeInSeconds": 86400},
        "HyperParameters": {},
        "DebugHookConfig": {"S3OutputPath": "s3://my-bucket/out", "CollectionConfigurations": []},
        "EnableNetworkIsolation": false,
        "EnableInterContainerTrafficEncryption": false,
        "EnableManagedSpotTraining": false,
        "ProfilingStatus": "Disabled",
        "ModelArtifacts": {"S3ModelArtifacts": "s3://my-bucket/out/Titanic-1/output/model.tar.gz"},
        "TrainingJobStatus": "InProgress",
        "SecondaryStatus": "Starting",
        "SecondaryStatusTransitions": [{"Status": "Starting", "StartTime": 1_795_245_868.25, "StatusMessage": "Starting the training job"}],
        "CreationTime": 1_795_245_868.25,
        "LastModifiedTime": 1_795_245_869.25
    })
}

#[test]
fn describe_echoes_the_request_with_the_defaults_that_clients_need() {
    check_json("DescribeTrainingJob", &Reply::describe_training_job(request(), &started()), &told());
}

#[test]
fn a_search_gives_what_describe_says_with_the_tags() {
    let tags = [Tag { key: "team".to_owned(), value: String::new() }];
    let mut expected = told();
    expected["Tags"] = json!([{"Key": "team", "Value": ""}]);
    let records = vec![search_record(request(), &started(), &tags)];
    let page = |records, next_token, total| Reply::search(SearchResource::TrainingJob, records, next_token, total);
    check_json(
        "Search",
        &page(records, Some("t"), 7),
        &json!({"Results": [{"TrainingJob": expected}], "TotalHits": {"Value": 7, "Relation": "EqualTo"}, "NextToken": "t"}),
    );
    check_json(
        "Search",
        &page(vec![], None, 0),
        &json!({"Results": [], "TotalHits": {"Value": 0, "Relation": "EqualTo"}}),
    );
}

#[test]
fn tags_updates_and_deletions_are_answered() {
    let tags = vec![Tag { key: "team".to_owned(), value: "trees".to_owned() }];
    let listed = json!({"Tags": [{"Key": "team", "Value": "trees"}]});
    check_json("AddTags", &Reply::tags(&tags), &listed);
    check_json("ListTags", &Reply::tags(&tags), &listed);
    check_json("ListTags", &Reply::tags(&[]), &json!({"Tags": []}));
    check_json("DeleteTags", &Reply::done(), &json!({}));
    check_json("UpdateTrainingJob", &Reply::training_job_arn("arn:x"), &json!({"TrainingJobArn": "arn:x"}));
    assert_eq!(body("DeleteTrainingJob", &Reply::done(), "application/x-amz-json-1.1"), "");
}

#[test]
fn describe_tells_what_became_of_the_job() {
    let description = TrainingJobDescription {
        status: "Failed".to_owned(),
        secondary_status: "Failed".to_owned(),
        transitions: vec![StatusTransition {
            status: "Failed".to_owned(),
            start_ms: CREATED,
            end_ms: Some(CREATED + 500),
            message: "\"quoted\"".to_owned(),
        }],
        failure_reason: Some("é".repeat(2000)),
        training_start_ms: Some(CREATED),
        training_end_ms: Some(CREATED + 2000),
        training_s: Some(2),
        billable_s: Some(1),
        final_metrics: vec![
            FinalMetric { name: "validation:auc".to_owned(), value: 0.875, at_ms: CREATED },
            FinalMetric { name: "loss".to_owned(), value: f64::NAN, at_ms: CREATED },
        ],
        metric_definitions: vec![MetricDefinition { name: "validation:auc".to_owned(), regex: "auc:(.*)".to_owned() }],
        warm_pool: Some(WarmPool { status: "Available".to_owned(), retained_s: Some(7), reused_by: None }),
        tuning_job_arn: Some("arn:aws:sagemaker:us-east-1:123456789012:hyper-parameter-tuning-job/t".to_owned()),
        ..started()
    };
    let mut expected = told();
    let more = json!({
        "TrainingJobStatus": "Failed",
        "SecondaryStatus": "Failed",
        "SecondaryStatusTransitions": [{"Status": "Failed", "StartTime": 1_795_245_868.25, "EndTime": 1_795_245_868.75, "StatusMessage": "\"quoted\""}],
        "FailureReason": "é".repeat(1024),
        "TrainingStartTime": 1_795_245_868.25,
        "TrainingEndTime": 1_795_245_870.25,
        "TrainingTimeInSeconds": 2,
        "BillableTimeInSeconds": 1,
        "FinalMetricDataList": [{"MetricName": "validation:auc", "Value": 0.875, "Timestamp": 1_795_245_868.25}],
        "WarmPoolStatus": {"Status": "Available", "ResourceRetainedBillableTimeInSeconds": 7},
        "TuningJobArn": "arn:aws:sagemaker:us-east-1:123456789012:hyper-parameter-tuning-job/t"
    });
    expected.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    expected["AlgorithmSpecification"]["MetricDefinitions"] = json!([{"Name": "validation:auc", "Regex": "auc:(.*)"}]);
    check_json("DescribeTrainingJob", &Reply::describe_training_job(request(), &description), &expected);
}

#[test]
fn describe_keeps_what_the_request_says() {
    let mut request = request();
    request["OutputDataConfig"] =
        json!({"S3OutputPath": "s3://my-bucket/out", "KmsKeyId": "key", "CompressionType": "NONE"});
    request["ResourceConfig"] = json!({"InstanceGroups": [{"InstanceType": "ml.m5.large", "InstanceCount": 3, "InstanceGroupName": "all"}], "VolumeSizeInGB": 1});
    let mut expected = told();
    expected["OutputDataConfig"] = request["OutputDataConfig"].clone();
    expected["ResourceConfig"] = request["ResourceConfig"].clone();
    expected["ResourceConfig"]["InstanceType"] = json!("ml.m5.large");
    expected["ResourceConfig"]["InstanceCount"] = json!(3);
    check_json("DescribeTrainingJob", &Reply::describe_training_job(request.clone(), &started()), &expected);
    // Groups of several types have no one type.
    let other = json!({"InstanceType": "ml.c5.xlarge", "InstanceCount": 1, "InstanceGroupName": "other"});
    request["ResourceConfig"]["InstanceGroups"].as_array_mut().unwrap().push(other);
    expected["ResourceConfig"] = request["ResourceConfig"].clone();
    check_json("DescribeTrainingJob", &Reply::describe_training_job(request, &started()), &expected);
}

#[test]
fn json_replies() {
    check_json("CreateTrainingJob", &Reply::training_job_arn("arn:x"), &json!({"TrainingJobArn": "arn:x"}));
    assert_eq!(body("StopTrainingJob", &Reply::done(), "application/x-amz-json-1.1"), "");
    check_json("ListTrainingJobs", &Reply::list_training_jobs(&[], None), &json!({"TrainingJobSummaries": []}));
    let summary = TrainingJobSummary {
        name: "a".to_owned(),
        arn: "arn:a".to_owned(),
        created_ms: CREATED,
        training_end_ms: None,
        modified_ms: CREATED,
        status: "Completed".to_owned(),
        secondary_status: "Completed".to_owned(),
        warm_pool: None,
    };
    let ended = TrainingJobSummary {
        training_end_ms: Some(CREATED),
        warm_pool: Some(WarmPool { status: "Reused".to_owned(), retained_s: None, reused_by: Some("b".to_owned()) }),
        ..summary.clone()
    };
    let line = json!({"TrainingJobName": "a", "TrainingJobArn": "arn:a", "CreationTime": 1_795_245_868.25, "LastModifiedTime": 1_795_245_868.25,
        "TrainingJobStatus": "Completed", "SecondaryStatus": "Completed"});
    let mut longer = line.clone();
    longer["TrainingEndTime"] = json!(1_795_245_868.25);
    longer["WarmPoolStatus"] = json!({"Status": "Reused", "ReusedByJob": "b"});
    let page = Reply::list_training_jobs(&[summary, ended], Some("more"));
    check_json("ListTrainingJobs", &page, &json!({"TrainingJobSummaries": [line, longer], "NextToken": "more"}));
}

#[test]
fn log_replies() {
    let arn = arn::log_stream("us-east-1", "123456789012", "/aws/sagemaker/TrainingJobs", "a/algo-1-1");
    let stream = LogStream {
        name: "a/algo-1-1".to_owned(),
        arn: arn.clone(),
        created_ms: CREATED,
        first_event_ms: Some(CREATED),
        last_event_ms: Some(CREATED + 1),
        last_ingestion_ms: Some(CREATED + 2),
    };
    let empty = LogStream { first_event_ms: None, last_event_ms: None, last_ingestion_ms: None, ..stream.clone() };
    let line = json!({"logStreamName": "a/algo-1-1", "arn": arn, "creationTime": CREATED, "storedBytes": 0});
    let mut full = line.clone();
    full["firstEventTimestamp"] = json!(CREATED);
    full["lastEventTimestamp"] = json!(CREATED + 1);
    full["lastIngestionTime"] = json!(CREATED + 2);
    check_json(
        "DescribeLogStreams",
        &Reply::describe_log_streams(&[stream, empty], None),
        &json!({"logStreams": [full, line]}),
    );
    let events = vec![LogEvent {
        at_ms: CREATED,
        message: "[0]#011train-auc:0.5 \u{1F686}".to_owned(),
        ingested_ms: CREATED + 1,
    }];
    check_json(
        "GetLogEvents",
        &Reply::get_log_events(&events, "f/1", "b/0"),
        &json!({"events": [{"timestamp": CREATED, "message": "[0]#011train-auc:0.5 \u{1F686}", "ingestionTime": CREATED + 1}],
            "nextForwardToken": "f/1", "nextBackwardToken": "b/0"}),
    );
}

#[test]
fn xml_replies() {
    let arn = arn::assumed_role("123456789012", "SageMakerRole", "me");
    let identity = Reply::get_caller_identity("123456789012", &arn, "AROAEXAMPLE:me");
    assert_eq!(
        body("GetCallerIdentity", &identity, "text/xml"),
        format!(
            "<GetCallerIdentityResponse xmlns=\"https://sts.amazonaws.com/doc/2011-06-15/\"><GetCallerIdentityResult>\
             <Arn>arn:aws:sts::123456789012:assumed-role/SageMakerRole/me</Arn><UserId>AROAEXAMPLE:me</UserId><Account>123456789012</Account>\
             </GetCallerIdentityResult><ResponseMetadata><RequestId>{ID}</RequestId></ResponseMetadata></GetCallerIdentityResponse>"
        )
    );
    let role = Role {
        name: "a<&>b".to_owned(),
        id: "AROAEXAMPLE".to_owned(),
        arn: arn::role("123456789012", "a"),
        created_ms: CREATED,
    };
    let body = body("GetRole", &Reply::get_role(&role), "text/xml");
    let parts = [
        "<GetRoleResponse xmlns=\"https://iam.amazonaws.com/doc/2010-05-08/\"><GetRoleResult><Role><Path>/</Path>",
        "<RoleName>a&lt;&amp;&gt;b</RoleName>",
        "<Arn>arn:aws:iam::123456789012:role/a</Arn>",
        "<CreateDate>2026-11-21T07:24:28Z</CreateDate>",
        "</Role></GetRoleResult><ResponseMetadata>",
    ];
    for part in parts {
        assert!(body.contains(part), "{part} in {body}");
    }
}

#[test]
fn metrics_are_told_in_both_protocols() {
    let statistics = [("Sum".to_owned(), Statistic::Sum), ("p50".to_owned(), Statistic::Percentile(50.0))];
    let reply = Reply::get_metric_statistics(
        "loss",
        &statistics,
        &[Datapoint { at_ms: 60_000, unit: "None".to_owned(), values: vec![1.5, 0.25] }],
    );
    assert_eq!(
        serde_json::from_str::<Value>(&body("GetMetricStatistics", &reply, "application/x-amz-json-1.0"))
            .expect("JSON"),
        json!({"Label": "loss", "Datapoints": [{"Timestamp": 60.0, "Unit": "None", "Sum": 1.5, "ExtendedStatistics": {"p50": 0.25}}]})
    );
    let xml = body("GetMetricStatistics", &reply, "text/xml");
    let result = "<GetMetricStatisticsResult><Label>loss</Label><Datapoints><member><Timestamp>1970-01-01T00:01:00Z</Timestamp>\
        <Unit>None</Unit><Sum>1.5</Sum><ExtendedStatistics><entry><key>p50</key><value>0.25</value></entry></ExtendedStatistics></member>\
        </Datapoints></GetMetricStatisticsResult>";
    assert!(xml.contains(result), "{xml}");
    let error = Error::new(ErrorCode::InvalidParameterValue, "why");
    let response = respond_error(Service::CloudWatch, Protocol::Json, &error, ID);
    assert_eq!(response.headers()["x-amzn-query-error"], "InvalidParameterValue;Sender");
    assert_eq!(client::error(400, response.body()).code, "InvalidParameterValueException");
    let response = respond_error(Service::CloudWatch, Protocol::Query, &error, ID);
    assert_eq!(client::error(400, response.body()).code, "InvalidParameterValue");
}

#[test]
fn errors_are_spelled_as_each_service_spells_them() {
    let check = |service: Service, code: ErrorCode, status: u16, name: &str| {
        let protocol = if matches!(service, Service::Sts | Service::Iam) { Protocol::Query } else { Protocol::Json };
        let response = respond_error(service, protocol, &Error::new(code, "why <&> \"so\""), ID);
        assert_eq!(response.status().as_u16(), status, "{service:?} {code:?}");
        assert_eq!(response.headers()["x-amzn-requestid"], ID);
        let read = client::error(status, response.body());
        assert_eq!(
            (read.status, read.code.as_str(), read.message.as_str()),
            (status, name, "why <&> \"so\""),
            "{service:?}"
        );
    };
    use ErrorCode as Code;
    check(Service::SageMaker, Code::ValidationException, 400, "ValidationException");
    check(Service::SageMaker, Code::ResourceInUse, 400, "ResourceInUse");
    check(Service::SageMaker, Code::ResourceNotFound, 400, "ResourceNotFound");
    check(Service::SageMaker, Code::ResourceLimitExceeded, 400, "ResourceLimitExceeded");
    check(Service::SageMaker, Code::UnknownOperationException, 400, "UnknownOperationException");
    check(Service::SageMaker, Code::SerializationException, 400, "SerializationException");
    check(Service::SageMaker, Code::MissingAuthenticationToken, 400, "MissingAuthenticationTokenException");
    check(Service::SageMaker, Code::IncompleteSignature, 400, "IncompleteSignatureException");
    check(Service::SageMaker, Code::UnrecognizedClient, 400, "UnrecognizedClientException");
    check(Service::SageMaker, Code::InvalidSignature, 400, "InvalidSignatureException");
    check(Service::SageMaker, Code::AccessDenied, 400, "AccessDeniedException");
    check(Service::SageMaker, Code::ThrottlingException, 400, "ThrottlingException");
    check(Service::SageMaker, Code::RequestTooLarge, 413, "RequestEntityTooLargeException");
    check(Service::SageMaker, Code::InternalFailure, 500, "InternalFailure");
    check(Service::SageMaker, Code::ServiceUnavailable, 503, "ServiceUnavailable");
    check(Service::Logs, Code::ValidationException, 400, "InvalidParameterException");
    check(Service::Logs, Code::ResourceNotFound, 400, "ResourceNotFoundException");
    check(Service::Sts, Code::InvalidSignature, 403, "SignatureDoesNotMatch");
    check(Service::Sts, Code::UnrecognizedClient, 403, "InvalidClientTokenId");
    check(Service::Sts, Code::ExpiredToken, 403, "ExpiredToken");
    check(Service::SageMaker, Code::ExpiredToken, 400, "ExpiredTokenException");
    check(Service::Sts, Code::UnknownOperationException, 400, "InvalidAction");
    check(Service::Sts, Code::InternalFailure, 500, "InternalFailure");
    check(Service::Iam, Code::ResourceNotFound, 404, "NoSuchEntity");
    check(Service::Iam, Code::ValidationException, 400, "ValidationError");
    check(Service::CloudWatch, Code::ValidationException, 400, "ValidationException");
}

#[test]
fn the_client_reads_what_is_no_error_of_ours() {
    let read = client::error(502, b"<html>Bad Gateway</html>");
    assert_eq!((read.code.as_str(), read.message.as_str()), ("HTTP 502", "<html>Bad Gateway</html>"));
    let read = client::error(400, br#"{"__type": "com.amazonaws#Throttling", "Message": "slow"}"#);
    assert_eq!((read.code.as_str(), read.message.as_str()), ("Throttling", "slow"));
    assert_eq!(client::error(404, b"").code, "HTTP 404");
}

#[test]
fn the_client_signs_what_the_server_verifies() {
    let credentials = Credentials {
        access_key_id: "AK".to_owned(),
        secret_access_key: "secret".to_owned(),
        session_token: Some("token".to_owned()),
    };
    let endpoint = client::Endpoint {
        scheme: client::Scheme::HTTP,
        authority: "127.0.0.1:9777".to_owned(),
        region: "us-east-1".to_owned(),
        credentials: credentials.clone(),
    };
    let request =
        client::call(&endpoint, Service::SageMaker, "StopTrainingJob", &json!({"TrainingJobName": "a"}), CREATED)
            .unwrap();
    let (head, body) = request.into_parts();
    assert_eq!(route(&head), Ok(Route::Api(Service::SageMaker)));
    assert!(sigv4::verify(&head, &body, &credentials, CREATED, 1).is_ok());
    let put = client::s3(&endpoint, Method::PUT, "/bucket/a%20b", b"data".to_vec(), CREATED).unwrap();
    assert_eq!(
        put.headers()["x-amz-content-sha256"],
        "3a6eb0790f39ac87c94f3856b2dd2c5d110e6811602261a9a923d3bb23adc8b7"
    );
    assert_eq!(route(&put.into_parts().0), Ok(Route::S3));
    let bad = client::Endpoint { region: "no\nregion".to_owned(), ..endpoint };
    assert!(client::s3(&bad, Method::GET, "/", Vec::new(), CREATED).is_err());
}

#[test]
fn requests_are_told_apart() {
    let signed = |service: &str| {
        format!(
            "AWS4-HMAC-SHA256 Credential=AK/20261121/us-east-1/{service}/aws4_request, SignedHeaders=host, Signature=00"
        )
    };
    let check = |method: Method, uri: &str, headers: &[(&str, &str)], expected: Result<Route, ErrorCode>| {
        let mut request = Request::builder().method(method).uri(uri);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let (head, ()) = request.body(()).unwrap().into_parts();
        assert_eq!(route(&head).map_err(|error| error.code), expected, "{uri} {headers:?}");
    };
    for (scope, service) in [
        ("sagemaker", Service::SageMaker),
        ("sts", Service::Sts),
        ("iam", Service::Iam),
        ("logs", Service::Logs),
        ("monitoring", Service::CloudWatch),
    ] {
        check(Method::POST, "/", &[("authorization", &signed(scope))], Ok(Route::Api(service)));
    }
    check(Method::PUT, "/bucket/key", &[("authorization", &signed("s3"))], Ok(Route::S3));
    check(Method::POST, "/", &[("authorization", &signed("ec2"))], Err(ErrorCode::UnknownOperationException));
    check(Method::POST, "/", &[("authorization", "Bearer x")], Err(ErrorCode::IncompleteSignature));
    check(Method::GET, "/bucket/key", &[("authorization", "AWS AK:signature")], Ok(Route::S3));
    check(Method::GET, "/bucket/key?AWSAccessKeyId=AK&Signature=x&Expires=1", &[], Ok(Route::S3));
    check(Method::GET, "/bucket/key?X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Signature=x", &[], Ok(Route::S3));
    check(Method::PUT, "/bucket/key", &[], Ok(Route::S3));
    check(Method::OPTIONS, "/bucket/key", &[], Ok(Route::S3));
    for page in ["/", "/console", "/console/jobs?x=1", "/healthz"] {
        check(Method::GET, page, &[], Ok(Route::Console));
        check(Method::HEAD, page, &[], Ok(Route::Console));
    }
    check(Method::GET, "/bucket/key", &[], Ok(Route::S3));
    check(Method::POST, "/console/login", &[], Ok(Route::Console));
    check(Method::POST, "/consoles", &[], Ok(Route::S3));
    check(Method::POST, "/", &[("x-amz-target", "SageMaker.ListTrainingJobs")], Ok(Route::Api(Service::SageMaker)));
    check(Method::POST, "/", &[("x-amz-target", "Logs_20140328.GetLogEvents")], Ok(Route::Api(Service::Logs)));
    check(
        Method::POST,
        "/",
        &[("content-type", "application/x-www-form-urlencoded; charset=utf-8")],
        Ok(Route::Api(Service::Sts)),
    );
}

#[test]
fn outputs_lie_below_their_job() {
    let check = |path: &str, expected: &str| {
        let path: S3Uri = path.parse().expect("an S3 location");
        assert_eq!(arn::output(&path, "job", "model.tar.gz").to_string(), expected);
    };
    check("s3://my-bucket", "s3://my-bucket/job/output/model.tar.gz");
    check("s3://my-bucket/", "s3://my-bucket/job/output/model.tar.gz");
    check("s3://my-bucket/out", "s3://my-bucket/out/job/output/model.tar.gz");
    check("s3://my-bucket/out/", "s3://my-bucket/out/job/output/model.tar.gz");
}
