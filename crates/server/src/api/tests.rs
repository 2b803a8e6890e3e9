//! Calls as clients make them, answered over real storage.

mod experiments;
mod team;
mod telemetry;
mod trials;

use http::Request;
use serde_json::{Value, json};
use shoal_plane::{JobStatus, SecondaryStatus, TuningView};
use shoal_store::{Attributes, LogLines, MetricPoint, ResourceKind, ResourceRow, WarmPoolRow};
use shoal_wire::{CreateTrainingJob, ErrorCode, Protocol, Stored as _, arn, operations, parse, respond};

use super::*;
use crate::{clock::now_ms, serve::tests::Unconnected, sessions::Session};

const REGION: &str = "us-east-1";
const ACCOUNT: &str = "000000000000";
const BUCKET: &str = "sagemaker-us-east-1-000000000000";

impl Unconnected {
    async fn call(&self, name: &str, input: Value) -> Result<Value, Error> {
        self.call_as(Holder::Owner, name, input).await
    }

    /// What a client with these keys reads of the answer.
    async fn call_as(&self, holder: Holder, name: &str, input: Value) -> Result<Value, Error> {
        self.call_by(holder, None, name, input).await
    }

    async fn call_by(
        &self,
        holder: Holder,
        member: Option<Arc<Member>>,
        name: &str,
        input: Value,
    ) -> Result<Value, Error> {
        let operation = operations().find(|it| it.name == name).expect("it is served");
        let mut request = Request::builder().method(operation.http.0).uri(operation.http.1);
        if !operation.target.is_empty() {
            request = request.header("x-amz-target", operation.target);
        }
        let head = request.body(()).unwrap().into_parts().0;
        let call = parse(operation.service, &head, input.to_string().as_bytes())?;
        let caller = Caller { user_agent: String::new(), holder, member };
        self.api.permit(&call, &caller).await?;
        let reply = self.api.answer(read(call)?, &caller).await?;
        let body = respond(operation, &reply, Protocol::Json, "id").into_body();
        Ok(if body.is_empty() { Value::Null } else { serde_json::from_slice(&body).unwrap() })
    }

    async fn code(&self, name: &str, input: Value) -> ErrorCode {
        match self.call(name, input.clone()).await {
            Ok(answer) => panic!("{name} {input}: {answer}"),
            Err(error) => error.code,
        }
    }

    /// All pages of a list.
    async fn pages(&self, name: &str, input: &Value, list: &str, token: &str) -> Vec<Vec<Value>> {
        let (mut pages, mut input) = (Vec::new(), input.clone());
        loop {
            let page = self.call(name, input.clone()).await.unwrap();
            pages.push(page[list].as_array().unwrap().clone());
            assert!(pages.len() < 50, "pages end");
            match page.get(token) {
                Some(next) => input[token] = next.clone(),
                None => return pages,
            }
        }
    }

    async fn put(&self, row: ResourceRow) {
        let (kind, name) = (row.kind, row.name.clone());
        self.core.edit(kind, &name, |_| Ok(Some(row))).await.unwrap();
    }

    /// A training job that is over, or seems to run.
    async fn put_job(&self, name: &str, ended: bool) {
        self.put(job(name, ended)).await;
    }
}

fn job_request(name: &str) -> Value {
    json!({
        "TrainingJobName": name,
        "RoleArn": "arn:aws:iam::000000000000:role/r",
        "AlgorithmSpecification": {
            "TrainingImage": "shoal/host", "TrainingInputMode": "File", "ContainerEntrypoint": ["true"]},
        "OutputDataConfig": {"S3OutputPath": format!("s3://{BUCKET}/out")},
        "ResourceConfig": {"InstanceType": "ml.m5.large", "InstanceCount": 1, "VolumeSizeInGB": 1},
        "StoppingCondition": {"MaxRuntimeInSeconds": 3600},
    })
}

fn job(name: &str, ended: bool) -> ResourceRow {
    let (status, secondary) = match ended {
        true => (JobStatus::Completed, SecondaryStatus::Completed),
        false => (JobStatus::InProgress, SecondaryStatus::Training),
    };
    let view = json!({"status": status, "secondary": secondary, "transitions": [], "failure_reason": null,
        "created": 1000, "modified": 2000, "training_start": null, "training_end": null, "training_s": null,
        "billable_s": null, "final_metrics": [], "pending": null, "attempt": null, "ended": ended});
    let request = CreateTrainingJob::from_raw(job_request(name)).unwrap();
    ResourceRow {
        uid: "0123456789ab".to_owned(),
        arn: arn::training_job(REGION, ACCOUNT, name),
        created_ms: 1000,
        modified_ms: 2000,
        status: status.name().to_owned(),
        ended,
        keys: [Some(secondary.name().into()), None],
        request: serde_json::to_vec(&request.raw).unwrap(),
        spec: request.to_stored(),
        tags: b"[]".to_vec(),
        view: view.to_string().into_bytes(),
        ..ResourceRow::new(ResourceKind::TRAINING_JOB, name)
    }
}

/// What the core knows of a tuning job that is over.
fn tuning_view(best: Option<&Value>) -> Value {
    json!({"status": "Completed", "created": 1000, "modified": 2000, "ended": 3000, "end": null,
        "failure_reason": null, "max_parallel": 1, "started": 1, "active": 0, "best": best,
        "training": shoal_plane::TrainingCounters::default(),
        "objective": shoal_plane::ObjectiveCounters::default(),
        "not_improving": 0, "converged": null, "training_s": 0})
}

fn tags(list: &[(&str, &str)]) -> Value {
    list.iter().map(|(key, value)| json!({"Key": key, "Value": value})).collect()
}

#[tokio::test]
async fn tags_are_of_the_resource_that_an_arn_names() {
    let server = Unconnected::start().await;
    server.put_job("Titanic-1", true).await;
    let own = arn::training_job(REGION, ACCOUNT, "Titanic-1");
    let add = |arn: &str, list: &[(&str, &str)]| json!({"ResourceArn": arn, "Tags": tags(list)});
    let added = server.call("AddTags", add(&own, &[("team", "trees"), ("é", "")])).await.unwrap();
    assert_eq!(added["Tags"], tags(&[("team", "trees"), ("é", "")]));
    server.call("AddTags", add(&own.to_lowercase(), &[("team", "oaks"), ("new", "1")])).await.unwrap();
    let listed = |arn: String| server.call("ListTags", json!({"ResourceArn": arn}));
    assert_eq!(listed(own.clone()).await.unwrap()["Tags"], tags(&[("team", "oaks"), ("é", ""), ("new", "1")]));
    // Fifty is the most; a call that exceeds it changes nothing.
    let many: Vec<String> = (0..48).map(|number| number.to_string()).collect();
    let many: Vec<_> = many.iter().map(|key| (key.as_str(), "x")).collect();
    assert_eq!(server.code("AddTags", add(&own, &many)).await, ErrorCode::ValidationException);
    assert_eq!(listed(own.clone()).await.unwrap()["Tags"].as_array().unwrap().len(), 3);
    server.call("AddTags", add(&own, &many[..47])).await.unwrap();
    let keys = json!({"ResourceArn": own, "TagKeys": ["team", "never there"]});
    server.call("DeleteTags", keys).await.unwrap();
    assert_eq!(listed(own.clone()).await.unwrap()["Tags"].as_array().unwrap().len(), 49);
    server.put_job("TITANIC-1", true).await;
    for (arn, expected) in [
        (arn::training_job(REGION, ACCOUNT, "none"), "Requested resource not found."),
        (arn::tuning_job(REGION, ACCOUNT, "Titanic-1"), "Requested resource not found."),
        (arn::sagemaker(REGION, ACCOUNT, "endpoint", "Titanic-1"), "Shoal has no endpoint"),
        (arn::training_job("eu-west-1", ACCOUNT, "Titanic-1"), "is of region eu-west-1"),
        (arn::training_job(REGION, "111111111111", "Titanic-1"), "and account 111111111111"),
        ("arn:aws:sagemaker:us-east-1:000000000000:x".to_owned(), "is not the ARN of a resource of SageMaker"),
        (own.clone(), "is the ARN of TITANIC-1 and Titanic-1; write the name"),
    ] {
        let error = listed(arn.clone()).await.unwrap_err();
        assert!(error.code == ErrorCode::ValidationException && error.message.contains(expected), "{arn}: {error:?}");
    }
    let exact = own.replace("titanic-1", "Titanic-1");
    assert_eq!(listed(exact.clone()).await.unwrap()["Tags"].as_array().unwrap().len(), 49);
    let paged = json!({"ResourceArn": exact, "NextToken": "x"});
    assert_eq!(server.code("ListTags", paged).await, ErrorCode::ValidationException);
    server.stop().await;
}

#[tokio::test]
async fn only_what_is_over_is_deleted_and_with_all_that_is_its_own() {
    let server = Unconnected::start().await;
    server.put_job("a", false).await;
    server.put_job("a-1", true).await;
    let telemetry = &server.telemetry;
    for job in ["a", "a-1"] {
        let (stream, lines) = (format!("{job}/algo-1-1"), vec![(1, "line".to_owned())]);
        telemetry.append_logs(&[LogLines { stream, lines, ..LogLines::default() }]).unwrap();
        let point = MetricPoint { metric: "loss".to_owned(), at_ms: 1, value: 1.0 };
        telemetry.append_points(job, &[point]).unwrap();
    }
    let named = |name: &str| json!({"TrainingJobName": name});
    assert_eq!(server.code("DeleteTrainingJob", named("a")).await, ErrorCode::ResourceInUse);
    assert_eq!(server.code("DeleteTrainingJob", named("none")).await, ErrorCode::ValidationException);
    server.put_job("a", true).await;
    let pool = WarmPoolRow {
        job: "a".to_owned(),
        status: "Available".to_owned(),
        since_ms: Some(now_ms() - 5000),
        retained_s: None,
        reused_by: None,
    };
    telemetry.put_warm_pools(&[pool]).unwrap();
    let kept = server.call("DescribeTrainingJob", named("a")).await.unwrap();
    assert_eq!(kept["WarmPoolStatus"]["Status"], "Available");
    assert!(kept["WarmPoolStatus"]["ResourceRetainedBillableTimeInSeconds"].as_u64() >= Some(5), "{kept}");
    let error = server.call("DeleteTrainingJob", named("a")).await.unwrap_err();
    assert!(error.code == ErrorCode::ResourceInUse && error.message.contains("warm pool"), "{error:?}");
    let calls = &server;
    let listed = |input: Value| async move {
        let answer = calls.call("ListTrainingJobs", input).await.unwrap();
        let summaries = answer["TrainingJobSummaries"].as_array().unwrap().clone();
        summaries.into_iter().map(|it| it["TrainingJobName"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(listed(json!({"WarmPoolStatusEquals": "Available"})).await, ["a"]);
    assert_eq!(listed(json!({"WarmPoolStatusEquals": "Reused"})).await, [""; 0]);
    let plan = "arn:aws:sagemaker:us-east-1:000000000000:training-plan/p";
    assert_eq!(listed(json!({"TrainingPlanArnEquals": plan})).await, [""; 0], "no job has a plan");
    // The server that had it is over.
    server.pools.end_those_of_before().unwrap();
    let ended = server.call("DescribeTrainingJob", named("a")).await.unwrap();
    assert_eq!(ended["WarmPoolStatus"]["Status"], "Terminated");
    server.call("DeleteTrainingJob", named("a")).await.unwrap();
    assert_eq!(server.code("DescribeTrainingJob", named("a")).await, ErrorCode::ValidationException);
    let streams: Vec<_> = telemetry.streams("", None, 9).unwrap().into_iter().map(|stream| stream.name).collect();
    assert_eq!(streams, ["a-1/algo-1-1"], "those of a job whose name begins the same stay");
    assert_eq!((telemetry.metrics("a").unwrap().len(), telemetry.metrics("a-1").unwrap().len()), (0, 1));
    assert!(telemetry.warm_pool("a").unwrap().is_none());
    assert_eq!(listed(json!({})).await, ["a-1"]);
    server.stop().await;
}

#[tokio::test]
async fn a_tuning_job_is_deleted_when_it_is_over() {
    let server = Unconnected::start().await;
    let row = |ended| ResourceRow {
        status: if ended { "Stopped" } else { "InProgress" }.to_owned(),
        ended,
        ..ResourceRow::new(ResourceKind::TUNING_JOB, "tune")
    };
    let named = json!({"HyperParameterTuningJobName": "tune"});
    let delete = || server.call("DeleteHyperParameterTuningJob", named.clone());
    assert_eq!(delete().await.unwrap_err().code, ErrorCode::ResourceNotFound);
    server.put(row(false)).await;
    let error = delete().await.unwrap_err();
    assert!(error.code == ErrorCode::ValidationException && error.message.contains("stop it first"), "{error:?}");
    server.put(row(true)).await;
    assert_eq!(delete().await, Ok(Value::Null));
    assert_eq!(delete().await.unwrap_err().code, ErrorCode::ResourceNotFound);
    server.stop().await;
}

#[tokio::test]
async fn receipts_of_checkpoints_are_of_a_job_that_is_there() {
    let server = Unconnected::start().await;
    server.put_job("a", true).await;
    let list = |name: &str, token: &str| {
        let mut input = json!({"TrainingJobName": name});
        if !token.is_empty() {
            input["NextToken"] = json!(token);
        }
        server.call("ListCheckpoints", input)
    };
    let none = list("a", "").await.unwrap();
    assert!(none["Checkpoints"].as_array().is_some_and(Vec::is_empty) && none.get("NextToken").is_none(), "{none}");
    assert!(list("a", "1/state").await.is_ok());
    for (name, token) in [("b", ""), ("a", "1"), ("a", "x/state"), ("a", "-1/state"), ("a", "4294967296/state")] {
        let error = list(name, token).await.unwrap_err();
        assert_eq!(error.code, ErrorCode::ValidationException, "{name} {token}");
    }
    server.stop().await;
}

#[tokio::test]
async fn a_role_is_of_this_account_and_its_keys_are_the_owners() {
    let server = Unconnected::start().await;
    let api = &server.api;
    let request = |account: &str| shoal_wire::AssumeRole {
        account: account.to_owned(),
        role: "Trainer".to_owned(),
        session: "me".to_owned(),
        duration_s: 900,
        policy: None,
    };
    let refused = api.assume_role(request("111111111111"), &Caller::owner()).unwrap_err();
    assert!(refused.code == ErrorCode::AccessDenied && refused.message.contains("role/Trainer"), "{refused:?}");
    let before = now_ms() / 1000 * 1000;
    let assumed = format!("{:?}", api.assume_role(request(ACCOUNT), &Caller::owner()).unwrap());
    assert!(assumed.contains("assumed-role/Trainer/me") && assumed.contains("ASIA"), "{assumed}");
    let of_session = |policy: &str, documents: &[&str]| {
        let documents = Vec::from_iter(documents.iter().map(|it| (*it).to_owned()));
        let (role, name) = ("Trainer".to_owned(), "me".to_owned());
        let session = Session { issuer: None, role, name, expires_ms: before + 900_000, documents };
        let policy = Some(policy.to_owned());
        let caller = Caller { holder: Holder::Session(session), ..Caller::owner() };
        api.assume_role(shoal_wire::AssumeRole { policy, ..request(ACCOUNT) }, &caller)
    };
    let reads = "{\"Statement\": {\"Effect\": \"Allow\", \"Action\": \"sagemaker:List*\", \"Resource\": \"*\"}}";
    assert!(format!("{:?}", of_session(reads, &[]).unwrap()).contains("PackedPolicySize\": Number(4)"));
    assert_eq!(of_session("{}", &[]).unwrap_err().code, ErrorCode::InvalidFormat);
    // What narrows the session that opens another one stays with it.
    let long = "x".repeat(2000);
    assert_eq!(of_session(reads, &[&long]).unwrap_err().code, ErrorCode::ResourceLimitExceeded);
    let who = |holder: Holder| format!("{:?}", api.caller_identity(&Caller { holder, ..Caller::owner() }));
    let session = Session {
        issuer: None,
        role: "Trainer".to_owned(),
        name: "me".to_owned(),
        expires_ms: before + 900_000,
        documents: Vec::new(),
    };
    for (holder, expected) in [
        (Holder::Owner, "assumed-role/ShoalRole/shoal"),
        (Holder::Session(session), "assumed-role/Trainer/me"),
        (Holder::Attempt { id: "a-1".into(), job: "a".into() }, "assumed-role/ShoalRole/a-1"),
    ] {
        let shown = who(holder);
        assert!(shown.contains(expected) && shown.contains(ACCOUNT), "{shown}");
    }
    let simulate = |arn: &str| {
        let request = shoal_wire::SimulatePrincipalPolicy {
            source_arn: arn.to_owned(),
            actions: vec!["sagemaker:CreateTrainingJob".to_owned()],
            resources: vec!["*".to_owned()],
            paging: shoal_wire::Paging { marker: None, max_items: 10 },
        };
        api.simulate_policy(&request).err().map(|error| error.code)
    };
    assert_eq!(simulate("arn:aws:iam::000000000000:role/r"), None);
    for others in ["arn:aws:iam::111111111111:role/r", "", "x:iam::000000000000:role/r"] {
        assert_eq!(simulate(others), Some(ErrorCode::ResourceNotFound), "{others}");
    }
    server.stop().await;
}

#[tokio::test]
async fn the_owner_of_a_best_job_without_a_model_is_informed() {
    let server = Unconnected::start().await;
    let view = |best: Option<&str>| -> TuningView {
        let best = best.map(|job| json!({"job": job, "definition": 0, "value": 0.5}));
        serde_json::from_value(tuning_view(best.as_ref())).unwrap()
    };
    let warning = |best: Option<&str>| best_model::warning(&*server.rows, &server.objects, &view(best)).unwrap();
    assert_eq!(warning(None), None);
    assert_eq!(warning(Some("deleted")), None);
    server.put_job("a", true).await;
    let put = |key: &str, bytes: &[u8]| server.objects.put(BUCKET, key, bytes, &Attributes::default()).unwrap();
    assert!(warning(Some("a")).unwrap().contains("it ended without one"));
    put("out/a/output/model.tar.gz", &crate::artifacts::empty_archive());
    assert!(warning(Some("a")).is_some(), "an archive of nothing is no model");
    let stopped = ResourceRow { status: "Stopped".to_owned(), ..job("a", true) };
    server.put(stopped).await;
    assert!(warning(Some("a")).unwrap().contains("it was stopped before"));
    put("out/a/output/model.tar.gz", &[1; 500]);
    assert_eq!(warning(Some("a")), None);
    // Without compression any file is a model.
    let mut raw = job_request("b");
    raw["OutputDataConfig"]["CompressionType"] = json!("NONE");
    let request = CreateTrainingJob::from_raw(raw).unwrap();
    server.put(ResourceRow { spec: request.to_stored(), ..job("b", true) }).await;
    put("out/b/output/model.tar.gz", &[1; 500]);
    assert!(warning(Some("b")).is_some());
    put("out/b/output/model/weights", b"w");
    assert_eq!(warning(Some("b")), None);
    server.stop().await;
}

#[tokio::test]
async fn creation_refuses_what_could_only_fail_later_and_names_the_place() {
    let server = Unconnected::start().await;
    let objects = &server.objects;
    objects.put(BUCKET, "data/train.csv", b"1", &Attributes::default()).unwrap();
    objects.put(BUCKET, "clash/a", b"1", &Attributes::default()).unwrap();
    objects.put(BUCKET, "clash/a/b", b"1", &Attributes::default()).unwrap();
    let s3 = |path: &str| format!("s3://{BUCKET}/{path}");
    let channel = |uri: &str| json!([{"ChannelName": "train", "DataSource": {"S3DataSource": {"S3DataType": "S3Prefix", "S3Uri": uri}}}]);
    for (member, value, expected) in [
        ("RoleArn", json!("arn:aws-cn:iam::000000000000:role/r"), "'roleArn'"),
        (
            "OutputDataConfig",
            json!({"S3OutputPath": "s3://no-such-bucket/out"}),
            "outputDataConfig.s3OutputPath: the S3",
        ),
        ("CheckpointConfig", json!({"S3Uri": "s3://no-such-bucket/c"}), "checkpointConfig.s3Uri: the S3 bucket"),
        ("CheckpointConfig", json!({"S3Uri": s3("clash")}), "checkpointConfig.s3Uri: below"),
        ("InputDataConfig", channel(&s3("none/")), "No S3 objects found under S3 URL"),
        ("InputDataConfig", channel("s3://no-such-bucket/x"), "No S3 objects found under S3 URL"),
        ("InputDataConfig", channel(&s3("clash")), "inputDataConfig.1.dataSource.s3DataSource.s3Uri: below"),
        ("Tags", tags(&[("shoal:network", "host")]), "permits at most \"none\""),
    ] {
        let mut request = job_request("a");
        request[member] = value.clone();
        let error = server.call("CreateTrainingJob", request.clone()).await.unwrap_err();
        assert_eq!(error.code, ErrorCode::ValidationException, "{member} {value}");
        assert!(error.message.contains(expected), "{member} {value}: {}", error.message);
        // The same in a tuning job's definition is named by its path there.
        if member == "Tags" {
            continue;
        }
        let definition: serde_json::Map<String, Value> = request
            .as_object()
            .unwrap()
            .iter()
            .filter(|(member, _)| *member != "TrainingJobName")
            .map(|(member, value)| (member.clone(), value.clone()))
            .collect();
        let mut definition = Value::Object(definition);
        definition["AlgorithmSpecification"] = json!({"TrainingImage": "shoal/host", "TrainingInputMode": "File",
            "MetricDefinitions": [{"Name": "loss", "Regex": "loss=(.*)"}]});
        definition["StaticHyperParameters"] =
            json!({"sagemaker_program": "a.py", "sagemaker_submit_directory": "/code"});
        let mut tuning: Value = serde_json::from_slice(&crate::tuning::tests::request("Random", &json!({}))).unwrap();
        tuning["TrainingJobDefinition"] = definition;
        let error = server.call("CreateHyperParameterTuningJob", tuning).await.unwrap_err();
        let path = expected.split(':').next().unwrap_or_default().trim_matches('\'');
        let is_located =
            expected.starts_with("No S3") || error.message.contains(&format!("trainingJobDefinition.{path}"));
        assert!(is_located, "{member} {value}: {}", error.message);
    }
    // A taken name is the first complaint, and nothing was created meanwhile.
    server.put_job("a", true).await;
    let mut request = job_request("a");
    request["OutputDataConfig"]["S3OutputPath"] = json!("s3://no-such-bucket/out");
    assert_eq!(server.code("CreateTrainingJob", request).await, ErrorCode::ResourceInUse);
    let mut request = job_request("b");
    request["ResourceConfig"]["InstanceType"] = json!("ml.p4d.24xlarge");
    assert_eq!(server.code("CreateTrainingJob", request).await, ErrorCode::ResourceLimitExceeded);
    assert!(server.call("DescribeTrainingJob", json!({"TrainingJobName": "b"})).await.is_err());
    server.stop().await;
}
