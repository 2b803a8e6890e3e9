//! What each role may do, over all operations that are served.

use shoal_wire::KeyRole;

use super::*;
use crate::team::{Access, access};

/// Keys of two users, a reader and another owner.
fn member(name: &str, role: KeyRole) -> Arc<Member> {
    Arc::new(Member {
        name: name.to_owned(),
        role,
        access_key_id: format!("AKIA{name:0>16}"),
        read: None,
        write: vec![(BUCKET.to_owned(), format!("{name}/"))],
        created_ms: 1,
        rotated_ms: 1,
    })
}

async fn by(server: &Unconnected, member: &Arc<Member>, name: &str, input: Value) -> Result<Value, Error> {
    server.call_by(Holder::Member, Some(member.clone()), name, input).await
}

/// The same of services that speak XML: the answer as it is before.
async fn read_by(server: &Unconnected, caller: &Caller, name: &str, input: Value) -> Result<Value, Error> {
    let operation = operations().find(|it| it.name == name).unwrap();
    let call = shoal_wire::Call { operation, input };
    server.api.permit(&call, caller).await?;
    Ok(server.api.answer(read(call)?, caller).await?.into_body())
}

fn job_of(name: &str, creator: Option<&str>, ended: bool) -> ResourceRow {
    ResourceRow { creator: creator.map(str::to_owned), ..job(name, ended) }
}

/// The refusal's text; anything else panics.
fn denied(what: &str, answer: Result<Value, Error>) -> String {
    match answer {
        Err(Error { code: ErrorCode::AccessDenied, message }) => message,
        other => panic!("{what}: {other:?}"),
    }
}

#[tokio::test]
async fn a_reader_changes_nothing_and_only_owners_do_what_is_not_declared() {
    let server = Unconnected::start().await;
    let (anna, rita) = (member("anna", KeyRole::User), member("rita", KeyRole::Reader));
    let mut refused = 0;
    for operation in operations() {
        for caller in [&anna, &rita] {
            if access(operation).permits(caller.role) {
                continue;
            }
            refused += 1;
            let call = shoal_wire::Call { operation, input: json!({}) };
            let caller = Caller { holder: Holder::Member, member: Some(caller.clone()), ..Caller::owner() };
            let error = server.api.permit(&call, &caller).await.unwrap_err();
            assert_eq!(error.code, ErrorCode::AccessDenied, "{}", operation.name);
            let user = format!("User: arn:aws:iam::{ACCOUNT}:user/{}", caller.creator().unwrap());
            let text = format!("{user} is not authorized to perform: ");
            assert!(error.message.starts_with(&text), "{}", error.message);
            assert!(error.message.contains(&format!(":{} on resource: ", operation.name)), "{}", error.message);
        }
    }
    assert!(refused > 100, "{refused}");
    server.stop().await;
}

#[tokio::test]
async fn a_user_sees_stops_and_changes_own_jobs_alone() {
    let server = Unconnected::start().await;
    for row in [
        job_of("annas", Some("anna"), true),
        job_of("bens", Some("ben"), true),
        job_of("Bens2", Some("ben"), true),
        job_of("owners", None, true),
    ] {
        server.put(row).await;
    }
    let (anna, rita) = (member("anna", KeyRole::User), member("rita", KeyRole::Reader));
    let names = |answer: Value| {
        let listed = answer["TrainingJobSummaries"].as_array().unwrap();
        let mut names: Vec<_> = listed.iter().map(|job| job["TrainingJobName"].as_str().unwrap().to_owned()).collect();
        names.sort();
        names
    };
    assert_eq!(names(by(&server, &anna, "ListTrainingJobs", json!({})).await.unwrap()), ["annas"]);
    let filtered = json!({"NameContains": "bens"});
    assert_eq!(names(by(&server, &anna, "ListTrainingJobs", filtered).await.unwrap()), [""; 0]);
    let all = ["Bens2", "annas", "bens", "owners"];
    assert_eq!(names(by(&server, &rita, "ListTrainingJobs", json!({})).await.unwrap()), all);
    let found = by(&server, &anna, "Search", json!({"Resource": "TrainingJob"})).await.unwrap();
    assert_eq!(found["Results"].as_array().unwrap().len(), 1, "{found}");
    assert_eq!(found["Results"][0]["TrainingJob"]["TrainingJobName"], "annas");
    let found = by(&server, &rita, "Search", json!({"Resource": "TrainingJob"})).await.unwrap();
    assert_eq!(found["Results"].as_array().unwrap().len(), 4);

    let arn = |name: &str| arn::training_job(REGION, ACCOUNT, name);
    let group = shoal_store::TRAINING_JOBS;
    for other in ["bens", "owners"] {
        for (name, input) in [
            ("DescribeTrainingJob", json!({"TrainingJobName": other})),
            ("StopTrainingJob", json!({"TrainingJobName": other})),
            ("DeleteTrainingJob", json!({"TrainingJobName": other})),
            (
                "UpdateTrainingJob",
                json!({"TrainingJobName": other, "ResourceConfig": {"KeepAlivePeriodInSeconds": 60}}),
            ),
            ("InterruptTrainingJob", json!({"TrainingJobName": other})),
            ("StartVisit", json!({"TrainingJobName": other, "Command": ["id"]})),
            ("ListCheckpoints", json!({"TrainingJobName": other})),
            ("DescribeUtilization", json!({"TrainingJobName": other})),
            ("DescribeProfile", json!({"TrainingJobName": other})),
            ("ListTags", json!({"ResourceArn": arn(other)})),
            ("ListTags", json!({"ResourceArn": arn(&other.to_uppercase())})),
            ("AddTags", json!({"ResourceArn": arn(other), "Tags": [{"Key": "a", "Value": "b"}]})),
            ("DeleteTags", json!({"ResourceArn": arn(other), "TagKeys": ["a"]})),
            ("DescribeTrialComponent", json!({"TrialComponentName": format!("{other}-aws-training-job")})),
            ("UpdateTrialComponent", json!({"TrialComponentName": format!("{other}-AWS-training-job")})),
            ("ListTrialComponents", json!({"SourceArn": arn(other)})),
            (
                "BatchPutMetrics",
                json!({"TrialComponentName": format!("{other}-aws-training-job"),
                "MetricData": [{"MetricName": "m", "Timestamp": 1, "Value": 1.0}]}),
            ),
            (
                "BatchPutMetrics",
                json!({"TrialComponentName": other,
                "MetricData": [{"MetricName": "m", "Timestamp": 1, "Value": 1.0}]}),
            ),
            (
                "BatchGetMetrics",
                json!({"MetricQueries": [{"MetricName": "m", "ResourceArn": arn(other),
                "MetricStat": "Min", "Period": "OneMinute", "XAxisType": "Timestamp"}]}),
            ),
            ("GetLogEvents", json!({"logGroupName": group, "logStreamName": format!("{other}/algo-1-1")})),
            ("DescribeLogStreams", json!({"logGroupName": group, "logStreamNamePrefix": format!("{other}/")})),
            ("DescribeLogStreams", json!({"logGroupName": group})),
            ("FilterLogEvents", json!({"logGroupName": group})),
            ("FilterLogEvents", json!({"logGroupName": group, "logStreamNames": ["annas/x", format!("{other}/x")]})),
            (
                "GetMetricStatistics",
                json!({"Namespace": "/aws/sagemaker/TrainingJobs", "MetricName": "m",
                "Dimensions": [{"Name": "TrainingJobName", "Value": other}], "StartTime": 1, "EndTime": 2, "Period": 60,
                "Statistics": ["Average"]}),
            ),
            ("ListMetrics", json!({})),
            (
                "ListAssociations",
                json!({"SourceArn": format!(
                "arn:aws:sagemaker:{REGION}:{ACCOUNT}:experiment-trial-component/{other}-aws-training-job")}),
            ),
        ] {
            let message = denied(&format!("{name} {input}"), by(&server, &anna, name, input.clone()).await);
            assert!(message.starts_with(&format!("User: arn:aws:iam::{ACCOUNT}:user/anna is not")), "{message}");
        }
    }
    let stop = json!({"TrainingJobName": "bens"});
    let message = denied("stop", by(&server, &anna, "StopTrainingJob", stop.clone()).await);
    assert_eq!(
        message,
        format!(
            "User: arn:aws:iam::{ACCOUNT}:user/anna is not authorized to perform: sagemaker:StopTrainingJob on resource: \
             {} because it was created with another key",
            arn("bens")
        )
    );
    denied("reader", by(&server, &rita, "StopTrainingJob", stop.clone()).await);
    let otto = member("otto", KeyRole::Owner);
    assert!(by(&server, &otto, "DescribeTrainingJob", stop).await.is_ok());
    // Own, and such as are not there: answered as ever.
    let own = json!({"TrainingJobName": "annas"});
    assert!(by(&server, &anna, "DescribeTrainingJob", own.clone()).await.is_ok());
    let absent = by(&server, &anna, "DescribeTrainingJob", json!({"TrainingJobName": "absent"})).await;
    assert_eq!(absent.unwrap_err().code, ErrorCode::ValidationException);
    // The creator's job has its rights, and no more.
    let program = |job: &str| Holder::Attempt { id: "a-1".into(), job: job.into() };
    let described = server.call_by(program("annas"), Some(anna.clone()), "DescribeTrainingJob", own).await;
    assert!(described.is_ok(), "{described:?}");
    server.stop().await;
}

/// Every plain resource: only own ones are listed, shown, changed and deleted.
#[tokio::test]
async fn a_user_sees_and_changes_own_experiments_alone() {
    let server = Unconnected::start().await;
    let (anna, ben) = (member("anna", KeyRole::User), member("ben", KeyRole::User));
    let creations = |of: &str| {
        [
            ("CreateExperiment", json!({"ExperimentName": format!("exp-{of}")})),
            ("CreateTrial", json!({"TrialName": format!("trial-{of}"), "ExperimentName": format!("exp-{of}")})),
            ("CreateTrialComponent", json!({"TrialComponentName": format!("comp-{of}")})),
            (
                "AssociateTrialComponent",
                json!({"TrialName": format!("trial-{of}"), "TrialComponentName": format!("comp-{of}")}),
            ),
            (
                "CreateModel",
                json!({"ModelName": format!("model-{of}"), "ExecutionRoleArn": "arn:aws:iam::000000000000:role/r", "PrimaryContainer": {"Image": "i"}}),
            ),
            (
                "CreateAction",
                json!({"ActionName": format!("action-{of}"), "ActionType": "t", "Source": {"SourceUri": of}}),
            ),
            (
                "CreateContext",
                json!({"ContextName": format!("context-{of}"), "ContextType": "t", "Source": {"SourceUri": of}}),
            ),
            ("CreateArtifact", json!({"ArtifactType": "t", "Source": {"SourceUri": of}})),
        ]
    };
    for caller in [&anna, &ben] {
        for (name, input) in creations(&caller.name) {
            by(&server, caller, name, input).await.unwrap_or_else(|error| panic!("{name}: {error}"));
        }
    }
    let lists = ["Experiments", "Trials", "TrialComponents", "Models", "Actions", "Contexts", "Artifacts"];
    for list in lists {
        let answer = by(&server, &anna, &format!("List{list}"), json!({})).await.unwrap();
        let items = answer.as_object().unwrap().values().next().unwrap().as_array().unwrap();
        assert_eq!(items.len(), 1, "{list}: {answer}");
        assert!(!items[0].to_string().contains("-ben"), "{list}: {answer}");
        assert_eq!(server.pages(&format!("List{list}"), &json!({}), list_member(list), "NextToken").await[0].len(), 2);
    }
    let shown = by(&server, &anna, "DescribeExperiment", json!({"ExperimentName": "exp-anna"})).await.unwrap();
    assert_eq!(shown["CreatedBy"]["IamIdentity"]["Arn"], format!("arn:aws:iam::{ACCOUNT}:user/anna"));
    for resource in ["Experiment", "ExperimentTrial", "ExperimentTrialComponent"] {
        let found = by(&server, &anna, "Search", json!({"Resource": resource})).await.unwrap();
        assert_eq!(found["Results"].as_array().unwrap().len(), 1, "{found}");
    }
    let artifact = |of: &str| json!({"Source": {"SourceUri": of}});
    let entity = |kind: &str, name: &str| format!("arn:aws:sagemaker:{REGION}:{ACCOUNT}:{kind}/{name}");
    for (name, input) in [
        ("DescribeExperiment", json!({"ExperimentName": "EXP-ben"})),
        ("UpdateExperiment", json!({"ExperimentName": "exp-ben", "Description": "mine"})),
        ("DeleteExperiment", json!({"ExperimentName": "exp-ben"})),
        ("CreateTrial", json!({"TrialName": "new", "ExperimentName": "exp-ben"})),
        ("ListTrials", json!({"ExperimentName": "exp-ben"})),
        ("ListTrialComponents", json!({"TrialName": "trial-ben"})),
        ("DescribeTrial", json!({"TrialName": "trial-ben"})),
        ("AssociateTrialComponent", json!({"TrialName": "trial-ben", "TrialComponentName": "comp-anna"})),
        ("DisassociateTrialComponent", json!({"TrialName": "trial-ben", "TrialComponentName": "comp-ben"})),
        ("UpdateTrialComponent", json!({"TrialComponentName": "comp-ben"})),
        ("DescribeModel", json!({"ModelName": "model-ben"})),
        ("DeleteModel", json!({"ModelName": "model-ben"})),
        ("DescribeAction", json!({"ActionName": "action-ben"})),
        ("DeleteContext", json!({"ContextName": "context-ben"})),
        ("DeleteArtifact", artifact("ben")),
        ("ListTags", json!({"ResourceArn": entity("experiment", "exp-ben")})),
        (
            "AddAssociation",
            json!({"SourceArn": entity("action", "action-anna"), "DestinationArn": entity("context", "context-ben")}),
        ),
        ("QueryLineage", json!({"StartArns": [entity("action", "action-ben")]})),
    ] {
        denied(&format!("{name} {input}"), by(&server, &anna, name, input.clone()).await);
    }
    // An owner links resources of both; a query of one user ends at what is the other's.
    let own =
        json!({"SourceArn": entity("action", "action-anna"), "DestinationArn": entity("context", "context-anna")});
    by(&server, &anna, "AddAssociation", own).await.unwrap();
    let both =
        json!({"SourceArn": entity("action", "action-anna"), "DestinationArn": entity("context", "context-ben")});
    server.call("AddAssociation", both).await.unwrap();
    let query = json!({"StartArns": [entity("action", "action-anna")]});
    let found = by(&server, &anna, "QueryLineage", query).await.unwrap();
    assert!(found.to_string().contains("context-anna") && !found.to_string().contains("context-ben"), "{found}");
    server.stop().await;
}

fn list_member(list: &str) -> &'static str {
    match list {
        "Experiments" => "ExperimentSummaries",
        "Trials" => "TrialSummaries",
        "TrialComponents" => "TrialComponentSummaries",
        "Models" => "Models",
        "Actions" => "ActionSummaries",
        "Contexts" => "ContextSummaries",
        _ => "ArtifactSummaries",
    }
}

/// What a job reads and writes is what its creator may read and write.
#[tokio::test]
async fn a_users_jobs_name_what_the_user_may_read_and_write() {
    let server = Unconnected::start().await;
    let anna = Arc::new(Member {
        read: Some(vec![("shared".to_owned(), "data/".to_owned())]),
        ..(*member("anna", KeyRole::User)).clone()
    });
    let with = |members: Value| {
        let mut request = job_request("new");
        request["OutputDataConfig"]["S3OutputPath"] = json!(format!("s3://{BUCKET}/anna/out"));
        for (member, value) in members.as_object().unwrap() {
            request[member] = value.clone();
        }
        request
    };
    let channel = |uri: &str| json!([{"ChannelName": "train", "DataSource": {"S3DataSource": {"S3DataType": "S3Prefix", "S3Uri": uri}}}]);
    for members in [
        json!({"OutputDataConfig": {"S3OutputPath": format!("s3://{BUCKET}/out")}}),
        json!({"OutputDataConfig": {"S3OutputPath": format!("s3://{BUCKET}/annabel")}}),
        json!({"InputDataConfig": channel("s3://shared/other/")}),
        json!({"InputDataConfig": channel("s3://shared/dat")}),
        json!({"CheckpointConfig": {"S3Uri": "s3://shared/data/"}}),
        json!({"HyperParameters": {"sagemaker_program": "a.py",
            "sagemaker_submit_directory": "\"s3:\\/\\/private\\/source.tar.gz\""}}),
        json!({"Environment": {"SAGEMAKER_SUBMIT_DIRECTORY": "s3://private/source.tar.gz"}}),
        json!({"DebugHookConfig": {"S3OutputPath": "s3://shared/data/"}}),
        json!({"ExperimentConfig": {"ExperimentName": "bens"}}),
    ] {
        let experiment = json!({"ExperimentName": "bens"});
        let _ = server.call("CreateExperiment", experiment).await;
        denied(&members.to_string(), by(&server, &anna, "CreateTrainingJob", with(members.clone())).await);
    }
    let own = json!({"InputDataConfig": channel("s3://shared/data/x")});
    let answer = by(&server, &anna, "CreateTrainingJob", with(own)).await;
    assert!(!matches!(&answer, Err(Error { code: ErrorCode::AccessDenied, .. })), "{answer:?}");
    // The row of what was created has its creator, and the name is taken for everyone.
    by(&server, &anna, "CreateTrainingJob", with(json!({}))).await.unwrap();
    let row = server.rows.resource(ResourceKind::TRAINING_JOB, "new").unwrap().unwrap();
    assert_eq!(row.creator.as_deref(), Some("anna"));
    let ben = member("ben", KeyRole::User);
    let mut again = job_request("new");
    again["OutputDataConfig"]["S3OutputPath"] = json!(format!("s3://{BUCKET}/ben/out"));
    assert_eq!(by(&server, &ben, "CreateTrainingJob", again).await.unwrap_err().code, ErrorCode::ResourceInUse);
    server.stop().await;
}

#[tokio::test]
async fn keys_are_added_listed_rotated_and_removed() {
    let server = Unconnected::start().await;
    let added = server.call("AddKey", json!({"Name": "anna", "Role": "user"})).await.unwrap();
    let id = |answer: &Value| answer["AccessKeyId"].as_str().unwrap().to_owned();
    assert_eq!(added["Write"], json!([format!("s3://{BUCKET}/anna/")]));
    assert_eq!(added["Arn"], format!("arn:aws:iam::{ACCOUNT}:user/anna"));
    let keys = &server.front.keys;
    let known = keys.find(&id(&added), None).unwrap();
    assert_eq!(Some(known.keys.secret_access_key.as_str()), added["SecretAccessKey"].as_str());
    for taken in ["anna", "Anna"] {
        assert_eq!(server.code("AddKey", json!({"Name": taken, "Role": "owner"})).await, ErrorCode::ResourceInUse);
    }
    let listed = server.call("ListKeys", json!({})).await.unwrap();
    let names: Vec<_> = listed["Keys"].as_array().unwrap().iter().map(|key| key["Name"].as_str().unwrap()).collect();
    assert_eq!(names, ["owner", "anna"]);
    assert!(!listed.to_string().contains("Secret"), "{listed}");
    let row = server.rows.resource(crate::team::KEY, "anna").unwrap().unwrap();
    let secret = added["SecretAccessKey"].as_str().unwrap();
    assert!(!format!("{row:?}").contains(secret) && !String::from_utf8_lossy(&row.spec).contains(secret));

    let rotated = server.call("RotateKey", json!({"Name": "anna"})).await.unwrap();
    assert_ne!(id(&rotated), id(&added));
    assert!(keys.find(&id(&added), None).is_err() && keys.find(&id(&rotated), None).is_ok());
    assert_eq!(rotated["Write"], added["Write"]);

    let anna = keys.find(&id(&rotated), None).unwrap().member.unwrap();
    let as_anna = Caller { holder: Holder::Member, member: Some(anna.clone()), ..Caller::owner() };
    let who = read_by(&server, &as_anna, "GetCallerIdentity", json!({})).await.unwrap();
    assert_eq!(who["Arn"], format!("arn:aws:iam::{ACCOUNT}:user/anna"));
    let user = read_by(&server, &as_anna, "GetUser", json!({})).await.unwrap();
    assert_eq!((&user["User"]["UserName"], &user["User"]["UserId"]), (&json!("anna"), &who["UserId"]));
    let owner = read_by(&server, &Caller::owner(), "GetUser", json!({})).await.unwrap();
    assert_eq!(owner["User"]["UserName"], "owner");
    let unknown = read_by(&server, &Caller::owner(), "GetUser", json!({"UserName": "absent"})).await.unwrap_err();
    assert_eq!(unknown.code, ErrorCode::ResourceNotFound);
    for (name, input) in [
        ("AddKey", json!({"Name": "mine", "Role": "owner"})),
        ("RotateKey", json!({"Name": "anna"})),
        ("RemoveKey", json!({"Name": "anna"})),
        ("ListKeys", json!({})),
    ] {
        denied(name, by(&server, &anna, name, input).await);
    }
    server.call("RemoveKey", json!({"Name": "anna"})).await.unwrap();
    assert!(keys.find(&id(&rotated), None).is_err());
    for gone in ["RotateKey", "RemoveKey"] {
        assert_eq!(server.code(gone, json!({"Name": "anna"})).await, ErrorCode::ResourceNotFound);
        assert_eq!(server.code(gone, json!({"Name": "owner"})).await, ErrorCode::ValidationException);
    }
    server.stop().await;
}

/// Access of a call is that of its operation, also in a session.
#[tokio::test]
async fn a_role_that_is_assumed_narrows_nothing_and_widens_nothing() {
    let server = Unconnected::start().await;
    let rita = member("rita", KeyRole::Reader);
    let session = Session {
        issuer: None,
        role: "Admin".to_owned(),
        name: "me".to_owned(),
        expires_ms: u64::MAX,
        documents: Vec::new(),
    };
    let stop = json!({"TrainingJobName": "a"});
    let answer = server.call_by(Holder::Session(session), Some(rita), "StopTrainingJob", stop).await;
    let message = denied("session", answer);
    assert!(message.contains(&format!("User: arn:aws:sts::{ACCOUNT}:assumed-role/Admin/me is not")), "{message}");
    let stop = operations().find(|it| it.name == "StopTrainingJob").unwrap();
    assert_eq!(access(stop), Access::Changes);
    server.stop().await;
}
