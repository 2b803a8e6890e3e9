//! Experiments with training jobs, metrics and searches, as clients see them.

use super::*;

impl Unconnected {
    /// Names that a search of trial components finds.
    async fn found(&self, filters: Value, more: Value) -> String {
        let mut search = json!({"Resource": "ExperimentTrialComponent", "SearchExpression": {"Filters": filters}});
        search.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let answer = self.call("Search", search).await.unwrap();
        let name = |result: &Value| result["TrialComponent"]["TrialComponentName"].as_str().unwrap().to_owned();
        answer["Results"].as_array().unwrap().iter().map(name).collect::<Vec<_>>().join(" ")
    }

    async fn create_experiment(&self, experiment: &str, trial: &str, run: &str) {
        self.call("CreateExperiment", json!({"ExperimentName": experiment})).await.unwrap();
        self.call("CreateTrial", json!({"TrialName": trial, "ExperimentName": experiment})).await.unwrap();
        self.call("CreateTrialComponent", json!({"TrialComponentName": run})).await.unwrap();
        self.call("AssociateTrialComponent", json!({"TrialComponentName": run, "TrialName": trial})).await.unwrap();
    }
}

fn configured(name: &str, config: Value) -> Value {
    let mut request = job_request(name);
    request["ExperimentConfig"] = config;
    request["HyperParameters"] = json!({"eta": "0.5"});
    request
}

fn component_arn(name: &str) -> String {
    arn::sagemaker(REGION, ACCOUNT, "experiment-trial-component", name)
}

fn is(name: &str, value: &str) -> Value {
    json!([{"Name": name, "Operator": "Equals", "Value": value}])
}

#[tokio::test]
async fn a_job_with_an_experiment_config_has_a_component_in_its_trial() {
    let server = Unconnected::start().await;
    server.create_experiment("Titanic", "Forest", "titanic-run").await;
    server.call("CreateExperiment", json!({"ExperimentName": "Plants"})).await.unwrap();
    for (config, code) in [
        (json!({"ExperimentName": "none"}), ErrorCode::ResourceNotFound),
        (json!({"TrialName": "none"}), ErrorCode::ResourceNotFound),
        (json!({"ExperimentName": "Titanic", "RunName": "none"}), ErrorCode::ResourceNotFound),
        (json!({"ExperimentName": "Plants", "TrialName": "Forest"}), ErrorCode::ValidationException),
    ] {
        assert_eq!(server.code("CreateTrainingJob", configured("Refused", config)).await, code);
        assert!(server.call("DescribeTrainingJob", json!({"TrainingJobName": "Refused"})).await.is_err());
    }
    let config = json!({"ExperimentName": "titanic", "TrialName": "forest", "RunName": "titanic-run",
        "TrialComponentDisplayName": "Shown"});
    let job = server.call("CreateTrainingJob", configured("Job-1", config.clone())).await.unwrap();
    let described = server.call("DescribeTrainingJob", json!({"TrainingJobName": "Job-1"})).await.unwrap();
    assert_eq!(described["ExperimentConfig"], config);
    let component = "job-1-aws-training-job";
    let shown = server.call("DescribeTrialComponent", json!({"TrialComponentName": component})).await.unwrap();
    assert_eq!(shown["DisplayName"], "Shown");
    assert_eq!(shown["Source"], json!({"SourceArn": job["TrainingJobArn"], "SourceType": "SageMakerTrainingJob"}));
    assert_eq!(shown["Parameters"]["eta"], json!({"NumberValue": 0.5}));
    assert_eq!(
        server.found(is("Parents.TrialName", "Forest"), json!({"SortBy": "CreationTime"})).await,
        format!("{component} titanic-run")
    );
    assert_eq!(server.found(is("RunName", "titanic-run"), json!({})).await, component);
    assert_eq!(server.found(is("SourceDetail.TrainingJob.TrainingJobName", "Job-1"), json!({})).await, component);
    // A trial is made where it is missing.
    for (name, trial) in [("Job-2", Some("New-trial")), ("Job-3", None)] {
        let config = json!({"ExperimentName": "Plants", "TrialName": trial});
        server.call("CreateTrainingJob", configured(name, config)).await.unwrap();
    }
    let trials = server.call("ListTrials", json!({"ExperimentName": "plants"})).await.unwrap();
    let names: Vec<_> =
        trials["TrialSummaries"].as_array().unwrap().iter().map(|it| it["TrialName"].as_str().unwrap()).collect();
    assert!(names.contains(&"New-trial") && names.len() == 2, "{names:?}");
    let in_plants = server
        .found(
            is("Parents.ExperimentName", "Plants"),
            json!({"SortBy": "TrialComponentName", "SortOrder": "Ascending"}),
        )
        .await;
    assert_eq!(in_plants, "job-2-aws-training-job job-3-aws-training-job");
    // Names that differ only in case have one component.
    let other = server.call("CreateTrainingJob", configured("JOB-1", json!({}))).await.unwrap_err();
    assert!(other.code == ErrorCode::ValidationException && other.message.contains("Job-1"), "{other}");
    server.stop().await;
}

#[tokio::test]
async fn every_job_has_a_component_and_it_outlives_the_job() {
    let server = Unconnected::start().await;
    server.create_experiment("Titanic", "Forest", "titanic-run").await;
    server.put_job("Old", true).await;
    let named = json!({"TrialComponentName": "old-aws-training-job"});
    let shown = server.call("DescribeTrialComponent", named.clone()).await.unwrap();
    assert_eq!(shown["Status"]["PrimaryStatus"], "Completed");
    assert_eq!(shown["Parameters"]["SageMaker.InstanceCount"], json!({"NumberValue": 1.0}));
    let of_job = json!({"SourceArn": arn::training_job(REGION, ACCOUNT, "Old").to_uppercase().replace("ARN:AWS:SAGEMAKER:US-EAST-1", "arn:aws:sagemaker:us-east-1").replace("TRAINING-JOB", "training-job")});
    let listed = async || {
        let answer = server.call("ListTrialComponents", of_job.clone()).await.unwrap();
        answer["TrialComponentSummaries"].as_array().unwrap().len()
    };
    assert_eq!(listed().await, 1, "though nothing is stored for it");
    let taken = server.call("CreateTrialComponent", named.clone()).await.unwrap_err();
    assert!(taken.message.contains("already exists"), "{taken}");
    let change = json!({"TrialComponentName": "old-aws-training-job", "Parameters": {"own": {"StringValue": "x"}},
        "ParametersToRemove": ["SageMaker.InstanceType"]});
    server.call("UpdateTrialComponent", change).await.unwrap();
    server
        .call("AssociateTrialComponent", json!({"TrialComponentName": "Old-aws-training-job", "TrialName": "forest"}))
        .await
        .unwrap();
    assert_eq!(listed().await, 1);
    let point = json!({"MetricName": "loss", "Timestamp": now_ms() / 1000, "Value": 2.5});
    let put = json!({"TrialComponentName": "old-aws-training-job", "MetricData": [point]});
    assert_eq!(server.call("BatchPutMetrics", put).await.unwrap(), json!({}));
    let before = server.call("DescribeTrialComponent", named.clone()).await.unwrap();
    assert_eq!(before["Metrics"][0]["Max"], 2.5);
    let parameters = before["Parameters"].as_object().unwrap();
    assert!(parameters.contains_key("own") && !parameters.contains_key("SageMaker.InstanceType"), "{parameters:?}");
    server.call("DeleteTrainingJob", json!({"TrainingJobName": "Old"})).await.unwrap();
    let after = server.call("DescribeTrialComponent", named).await.unwrap();
    for member in ["Status", "Parameters", "InputArtifacts", "OutputArtifacts", "Metrics", "Source", "CreationTime"] {
        assert_eq!(after[member], before[member], "{member}");
    }
    assert_eq!(server.found(is("Metrics.loss.Max", "2.5"), json!({})).await, "old-aws-training-job");
    server.stop().await;
}

#[tokio::test]
async fn metrics_of_components_are_found_at_once() {
    let server = Unconnected::start().await;
    server.create_experiment("titanic", "forest", "run-1").await;
    server.call("CreateTrialComponent", json!({"TrialComponentName": "Run-2"})).await.unwrap();
    let sort = json!({"SortBy": "metrics.loss.min", "SortOrder": "Ascending"});
    let all = json!([{"Name": "TrialComponentName", "Operator": "Contains", "Value": "un-"}]);
    let start = now_ms() / 1000 - 100;
    for (step, (run, values)) in (0_u64..).zip([("run-1", [3.0, 2.0]), ("run-2", [1.0, 4.0]), ("run-1", [0.5, 5.0])]) {
        let data: Vec<_> = (0..2).map(|n| json!({"MetricName": "loss", "Timestamp": start + 10 * step + n, "Step": n, "Value": values[n as usize]})).collect();
        let put = json!({"TrialComponentName": run, "MetricData": data});
        assert_eq!(server.call("BatchPutMetrics", put).await.unwrap(), json!({}));
        let expected = ["run-1 Run-2", "Run-2 run-1", "run-1 Run-2"][step as usize];
        assert_eq!(server.found(all.clone(), sort.clone()).await, expected, "after {step}");
    }
    let query = |resource: &str, statistic: &str| {
        json!({"MetricQueries": [{"MetricName": "loss", "ResourceArn": component_arn(resource),
        "MetricStat": statistic, "Period": "IterationNumber", "XAxisType": "IterationNumber"}]})
    };
    let answer = server.call("BatchGetMetrics", query("run-1", "Last")).await.unwrap();
    assert_eq!(answer["MetricQueryResults"][0]["MetricValues"], json!([0.5, 5.0]));
    let answer = server.call("BatchGetMetrics", query("run-9", "Last")).await.unwrap();
    assert_eq!(answer["MetricQueryResults"][0]["Status"], "ValidationError");
    let listed = server.call("ListMetrics", json!({"Namespace": "/aws/sagemaker/TrainingJobs"})).await;
    assert!(!format!("{listed:?}").contains("run-1"), "CloudWatch has training jobs' metrics: {listed:?}");
    assert_eq!(
        server
            .code(
                "BatchPutMetrics",
                json!({"TrialComponentName": "none", "MetricData": [{"MetricName": "m", "Timestamp": 1, "Value": 1}]})
            )
            .await,
        ErrorCode::ResourceNotFound
    );
    server.stop().await;
}

#[tokio::test]
async fn search_shows_parents_tags_and_summaries() {
    let server = Unconnected::start().await;
    server.create_experiment("Titanic", "Forest", "run").await;
    let tag = json!({"ResourceArn": component_arn("run"), "Tags": [{"Key": "team", "Value": "trees"}]});
    server.call("AddTags", tag).await.unwrap();
    let search = async |resource: &str, name: &str, value: &str| {
        let request = json!({"Resource": resource, "SearchExpression": {"Filters": is(name, value)}});
        server.call("Search", request).await.unwrap()["Results"][0].clone()
    };
    let component = search("ExperimentTrialComponent", "Tags.team", "trees").await["TrialComponent"].clone();
    assert_eq!(component["Parents"], json!([{"TrialName": "Forest", "ExperimentName": "Titanic"}]));
    assert_eq!(component["Tags"], json!([{"Key": "team", "Value": "trees"}]));
    assert!(component.get("TrialComponentSource").is_none() && component["TrialComponentArn"].is_string());
    let trial = search("ExperimentTrial", "TrialComponentSummaries.TrialComponentName", "run").await["Trial"].clone();
    assert_eq!((&trial["TrialName"], &trial["ExperimentName"]), (&json!("Forest"), &json!("Titanic")));
    let experiment = search("Experiment", "ExperimentName", "Titanic").await["Experiment"].clone();
    assert_eq!(experiment["DisplayName"], "Titanic");
    let away = json!({"TrialComponentName": "run", "TrialName": "forest"});
    server.call("DisassociateTrialComponent", away).await.unwrap();
    assert!(search("ExperimentTrialComponent", "Parents.TrialName", "Forest").await.is_null());
    assert!(search("ExperimentTrial", "TrialComponentSummaries.TrialComponentName", "run").await.is_null());
    server.stop().await;
}

#[tokio::test]
async fn a_jobs_keys_open_its_own_experiment() {
    let server = Unconnected::start().await;
    server.create_experiment("titanic", "forest", "run-1").await;
    server.create_experiment("plants", "field", "run-2").await;
    let config = json!({"ExperimentName": "Titanic", "RunName": "run-1"});
    server.call("CreateTrainingJob", configured("Inside", config)).await.unwrap();
    server.put_job("Outside", false).await;
    let holder = |job: &str| Holder::Attempt { id: "a".into(), job: job.into() };
    let named = |member: &str, name: &str| json!({member: name});
    let metric = |name: &str| json!({"TrialComponentName": name, "MetricData": [{"MetricName": "m", "Timestamp": now_ms() / 1000, "Value": 1.0}]});
    for (call, input, is_open) in [
        ("DescribeTrainingJob", named("TrainingJobName", "Inside"), true),
        ("DescribeTrainingJob", named("TrainingJobName", "Outside"), false),
        ("DescribeTrialComponent", named("TrialComponentName", "run-1"), true),
        ("UpdateTrialComponent", named("TrialComponentName", "Run-1"), true),
        ("UpdateTrialComponent", named("TrialComponentName", "inside-aws-training-job"), true),
        ("UpdateTrialComponent", named("TrialComponentName", "run-2"), false),
        ("BatchPutMetrics", metric("run-1"), true),
        ("BatchPutMetrics", metric("inside-aws-training-job"), true),
        ("BatchPutMetrics", metric("run-2"), false),
        ("CreateTrial", json!({"TrialName": "more", "ExperimentName": "titanic"}), true),
        ("CreateTrial", json!({"TrialName": "no-more", "ExperimentName": "plants"}), false),
        ("AssociateTrialComponent", json!({"TrialComponentName": "run-2", "TrialName": "field"}), false),
        ("CreateTrialComponent", named("TrialComponentName", "run-3"), true),
        ("UpdateTrialComponent", named("TrialComponentName", "run-3"), false),
        ("AssociateTrialComponent", json!({"TrialComponentName": "run-3", "TrialName": "forest"}), true),
        ("UpdateTrialComponent", named("TrialComponentName", "run-3"), true),
        ("CreateArtifact", json!({"Source": {"SourceUri": "s3://b/k"}, "ArtifactType": "Tracker"}), true),
        ("Search", json!({"Resource": "TrainingJob"}), false),
        ("DeleteTrialComponent", named("TrialComponentName", "run-1"), false),
        ("StopTrainingJob", named("TrainingJobName", "Inside"), false),
    ] {
        let answer = server.call_as(holder("Inside"), call, input.clone()).await;
        let code = answer.as_ref().err().map(|error| error.code);
        assert_eq!(code != Some(ErrorCode::AccessDenied), is_open, "{call} {input}: {answer:?}");
        assert!(!is_open || answer.is_ok(), "{call} {input}: {answer:?}");
    }
    let search = json!({"Resource": "ExperimentTrialComponent", "SearchExpression": {"Filters": is("TrialComponentName", "inside-aws-training-job")}});
    let seen = server.call_as(holder("Inside"), "Search", search.clone()).await.unwrap();
    assert!(seen["Results"][0]["TrialComponent"].get("SourceDetail").is_none(), "its keys open no job's request");
    assert!(
        server.call("Search", search.clone()).await.unwrap()["Results"][0]["TrialComponent"]["SourceDetail"]
            .is_object()
    );
    for (call, input) in [("Search", search), ("CreateArtifact", json!({})), ("DescribeExperiment", json!({}))] {
        let refused = server.call_as(holder("Outside"), call, input).await.unwrap_err();
        assert!(matches!(refused.code, ErrorCode::AccessDenied | ErrorCode::ValidationException), "{call}: {refused}");
    }
    server.stop().await;
}
