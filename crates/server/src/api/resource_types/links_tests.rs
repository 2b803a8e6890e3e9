//! Experiments, trials, components and lineage: what links them, over a real journal.

use serde_json::json;
use shoal_store::{MetricPoint, RowChange};

use super::{
    tests::{Fixture, arn, sample, tick},
    *,
};
use crate::clock::now_ms;

/// Names in a list's answer.
fn listed(answer: &Value, list: &str, member: &str) -> String {
    let name = |item: &Value| item[member].as_str().unwrap().to_owned();
    answer[list].as_array().unwrap().iter().map(name).collect::<Vec<_>>().join(" ")
}

/// Experiments with trials with components: `titanic` has `forest` (a, b) and `bog` (b), `plants`
/// has `field`; `c` is in no trial.
async fn experiments() -> Fixture {
    let all = Fixture::new();
    for (call, member, names) in [
        ("CreateExperiment", "ExperimentName", ["Titanic", "Plants"].as_slice()),
        ("CreateTrialComponent", "TrialComponentName", &["A", "b", "c"]),
    ] {
        for name in names {
            all.call(call, &json!({member: name})).await.unwrap();
            tick().await;
        }
    }
    for (trial, experiment) in [("Forest", "titanic"), ("bog", "TITANIC"), ("field", "plants")] {
        all.call("CreateTrial", &json!({"TrialName": trial, "ExperimentName": experiment})).await.unwrap();
        tick().await;
    }
    for (component, trial) in [("a", "forest"), ("b", "Forest"), ("B", "bog")] {
        let arns = all.call("AssociateTrialComponent", &ends(component, trial)).await.unwrap();
        assert_eq!(arns["TrialArn"], json!(arn(of_kind(TRIAL), trial)));
        assert_eq!(arns["TrialComponentArn"], json!(arn(of_kind(TRIAL_COMPONENT), component)));
    }
    all
}

fn ends(component: &str, trial: &str) -> Value {
    json!({"TrialComponentName": component, "TrialName": trial})
}

#[tokio::test]
async fn lists_of_trials_and_components_follow_their_links() {
    let all = experiments().await;
    for (question, expected) in [
        (json!({}), "field bog Forest"),
        (json!({"ExperimentName": "TITANIC"}), "bog Forest"),
        (json!({"TrialComponentName": "b"}), "bog Forest"),
        (json!({"TrialComponentName": "a", "ExperimentName": "titanic"}), "Forest"),
        (json!({"TrialComponentName": "a", "ExperimentName": "plants"}), ""),
        (json!({"TrialComponentName": "c"}), ""),
    ] {
        let answer = all.call("ListTrials", &question).await.unwrap();
        assert_eq!(listed(&answer, "TrialSummaries", "TrialName"), expected, "{question}");
    }
    for (question, expected) in [
        (json!({}), "c b A"),
        (json!({"ExperimentName": "Titanic", "SortBy": "Name", "SortOrder": "Ascending"}), "A b"),
        (json!({"ExperimentName": "Titanic", "MaxResults": 1}), "b"),
        (json!({"TrialName": "bog"}), "b"),
        (json!({"TrialName": "field"}), ""),
        (json!({"SourceArn": "arn:aws:sagemaker:us-east-1:123456789012:training-job/none"}), ""),
    ] {
        let answer = all.call("ListTrialComponents", &question).await.unwrap();
        assert_eq!(listed(&answer, "TrialComponentSummaries", "TrialComponentName"), expected, "{question}");
    }
    for (call, question) in [
        ("ListTrials", json!({"ExperimentName": "none"})),
        ("ListTrials", json!({"TrialComponentName": "none"})),
        ("ListTrialComponents", json!({"TrialName": "none"})),
        ("ListTrialComponents", json!({"ExperimentName": "none"})),
    ] {
        assert_eq!(all.call(call, &question).await.unwrap_err().code, ErrorCode::ResourceNotFound, "{question}");
    }
    let both = all.call("ListTrialComponents", &json!({"ExperimentName": "titanic", "TrialName": "bog"})).await;
    assert!(both.unwrap_err().message.contains("alternatives"));
}

#[tokio::test]
async fn what_others_belong_to_is_deleted_last() {
    let all = experiments().await;
    for (call, request, message) in [
        ("DeleteExperiment", json!({"ExperimentName": "titanic"}), "has trials"),
        ("DeleteTrial", json!({"TrialName": "Forest"}), "has trial components"),
        ("DeleteTrialComponent", json!({"TrialComponentName": "b"}), "is associated with trials"),
    ] {
        let refused = all.call(call, &request).await.unwrap_err();
        assert_eq!(
            (refused.code, refused.message.contains(message)),
            (ErrorCode::ValidationException, true),
            "{refused}"
        );
    }
    let again = all.call("AssociateTrialComponent", &ends("A", "FOREST")).await.unwrap_err();
    assert!(again.message.contains("already exists"), "{again}");
    for (component, trial) in [("none", "forest"), ("a", "none"), ("none", "none")] {
        for call in ["AssociateTrialComponent", "DisassociateTrialComponent"] {
            let refused = all.call(call, &ends(component, trial)).await.unwrap_err();
            assert_eq!(refused.code, ErrorCode::ResourceNotFound, "{call} {component} {trial}");
        }
    }
    for (component, trial) in [("a", "forest"), ("b", "forest"), ("b", "bog")] {
        all.call("DisassociateTrialComponent", &ends(component, trial)).await.unwrap();
    }
    let twice = all.call("DisassociateTrialComponent", &ends("a", "forest")).await.unwrap_err();
    assert_eq!(twice.code, ErrorCode::ResourceNotFound);
    for (call, member, names) in [
        ("DeleteTrialComponent", "TrialComponentName", ["a", "b"].as_slice()),
        ("DeleteTrial", "TrialName", &["forest", "bog"]),
        ("DeleteExperiment", "ExperimentName", &["titanic"]),
    ] {
        for name in names {
            all.call(call, &json!({member: name})).await.unwrap();
        }
    }
    let missing = all.call("CreateTrial", &json!({"TrialName": "t", "ExperimentName": "titanic"})).await.unwrap_err();
    assert_eq!(missing, of_kind(EXPERIMENT).missing("titanic", ""));
}

#[tokio::test]
async fn many_who_delete_and_associate_leave_no_loose_ends() {
    for _ in 0..20 {
        let all = experiments().await;
        let (ends, trial, component) =
            (ends("c", "field"), json!({"TrialName": "field"}), json!({"TrialComponentName": "c"}));
        let (linked, trial_deleted, deleted) = tokio::join!(
            all.call("AssociateTrialComponent", &ends),
            all.call("DeleteTrial", &trial),
            all.call("DeleteTrialComponent", &component),
        );
        assert!(linked.is_err() || (trial_deleted.is_err() && deleted.is_err()), "{trial_deleted:?} {deleted:?}");
    }
}

#[tokio::test]
async fn a_component_shows_the_summaries_of_its_metrics_and_a_new_one_has_none() {
    let all = Fixture::new();
    let named = json!({"TrialComponentName": "Run-1"});
    all.call("CreateTrialComponent", &named).await.unwrap();
    let of = of_kind(TRIAL_COMPONENT);
    let row = all.registry.rows.resource(of.kind, "run-1").unwrap().unwrap();
    let points =
        [(2000, 1.0), (1000, 3.0)].map(|(at_ms, value)| MetricPoint { metric: "loss".to_owned(), at_ms, value });
    all.registry.telemetry.append_points(&component_series(&row), &points).unwrap();
    let shown = all.call("DescribeTrialComponent", &json!({"TrialComponentName": arn(of, "Run-1")})).await.unwrap();
    let expected = json!([{"MetricName": "loss", "SourceArn": arn(of, "Run-1"), "TimeStamp": 2.0, "Max": 3.0, "Min": 1.0,
        "Last": 1.0, "Count": 2, "Avg": 2.0, "StdDev": 1.0}]);
    assert_eq!(shown["Metrics"], expected);
    assert_eq!([&shown["Parameters"], &shown["InputArtifacts"], &shown["OutputArtifacts"]], [&json!({}); 3]);
    all.call("DeleteTrialComponent", &named).await.unwrap();
    // A crash between the row's deletion and that of the points.
    all.registry.telemetry.append_points(&component_series(&row), &points).unwrap();
    all.call("CreateTrialComponent", &named).await.unwrap();
    assert_eq!(all.call("DescribeTrialComponent", &named).await.unwrap()["Metrics"], json!([]));
}

/// data -> run -> model, and an action on the model.
async fn lineage() -> (Fixture, [String; 4]) {
    let all = Fixture::new();
    all.call("CreateTrialComponent", &json!({"TrialComponentName": "run"})).await.unwrap();
    for (name, of_type) in [("data", "DataSet"), ("model", "Model")] {
        let mut request = sample(of_kind(kinds::ARTIFACT), name);
        request["ArtifactType"] = json!(of_type);
        all.call("CreateArtifact", &request).await.unwrap();
    }
    all.call("CreateAction", &sample(of_kind(kinds::ACTION), "deploy")).await.unwrap();
    let arns = [
        arn(of_kind(kinds::ARTIFACT), "data"),
        arn(of_kind(TRIAL_COMPONENT), "run"),
        arn(of_kind(kinds::ARTIFACT), "model"),
        arn(of_kind(kinds::ACTION), "deploy"),
    ];
    for (from, to, of_type) in [(0, 1, "ContributedTo"), (1, 2, "Produced"), (2, 3, "AssociatedWith")] {
        tick().await;
        all.call("AddAssociation", &association(&arns[from], &arns[to], of_type)).await.unwrap();
    }
    (all, arns)
}

fn association(from: &str, to: &str, of_type: &str) -> Value {
    json!({"SourceArn": from, "DestinationArn": to, "AssociationType": of_type})
}

#[tokio::test]
async fn associations_are_listed_by_each_end_and_type() {
    let (all, arns) = lineage().await;
    for (question, expected) in [
        (json!({}), "deploy model run"),
        (json!({"SourceArn": arns[0]}), "run"),
        (json!({"DestinationArn": arns[2]}), "model"),
        (json!({"SourceType": "Model"}), "deploy"),
        (json!({"DestinationType": "Model"}), "model"),
        (json!({"AssociationType": "Produced"}), "model"),
        (json!({"AssociationType": "SameAs"}), ""),
        (json!({"SortBy": "SourceType", "SortOrder": "Ascending"}), "run deploy model"),
        (json!({"SortBy": "DestinationType", "SortOrder": "Ascending"}), "model deploy run"),
        (json!({"SortBy": "DestinationArn", "SortOrder": "Ascending", "MaxResults": 1}), "deploy"),
    ] {
        let answer = all.call("ListAssociations", &question).await.unwrap();
        assert_eq!(listed(&answer, "AssociationSummaries", "DestinationName"), expected, "{question}");
    }
    let again = all.call("AddAssociation", &association(&arns[0], &arns[1], "ContributedTo")).await.unwrap_err();
    assert!(again.message.contains("already exists"), "{again}");
    let unknown = arn(of_kind(kinds::ARTIFACT), "unknown");
    let missing = all.call("AddAssociation", &association(&unknown, &arns[1], "Produced")).await.unwrap_err();
    assert_eq!(missing.code, ErrorCode::ResourceNotFound);
    let held = all.call("DeleteArtifact", &json!({"ArtifactArn": arns[0]})).await.unwrap_err();
    assert!(held.message.contains("has associations"), "{held}");
    let pair = json!({"SourceArn": arns[0], "DestinationArn": arns[1]});
    all.call("DeleteAssociation", &pair).await.unwrap();
    assert_eq!(all.call("DeleteAssociation", &pair).await.unwrap_err().code, ErrorCode::ResourceNotFound);
    let source = sample(of_kind(kinds::ARTIFACT), "data")["Source"].clone();
    all.call("DeleteArtifact", &json!({"Source": source})).await.unwrap();
    let neither = all.call("DeleteArtifact", &json!({})).await.unwrap_err();
    assert!(neither.message.contains("ArtifactArn or Source"), "{neither}");
}

#[tokio::test]
async fn artifacts_actions_and_contexts_are_listed_by_source_and_type() {
    let (all, _) = lineage().await;
    for (question, expected) in [
        (json!({"SourceUri": "s3://bucket/data"}), "data"),
        (json!({"ArtifactType": "Model"}), "model"),
        (json!({"ArtifactType": "Model", "SourceUri": "s3://bucket/data"}), ""),
        (json!({"SourceUri": "S3://bucket/data"}), ""),
    ] {
        let answer = all.call("ListArtifacts", &question).await.unwrap();
        assert_eq!(listed(&answer, "ArtifactSummaries", "ArtifactName"), expected, "{question}");
    }
}

#[tokio::test]
async fn lineage_is_followed_both_ways_in_pages() {
    let (all, arns) = lineage().await;
    let names = |answer: &Value| {
        let place = |vertex: &Value| arns.iter().position(|arn| vertex["Arn"] == json!(arn)).unwrap().to_string();
        answer["Vertices"].as_array().unwrap().iter().map(place).collect::<String>()
    };
    for (start, more, expected, edges) in [
        (1, json!({}), "023", 3),
        (1, json!({"Direction": "Ascendants"}), "0", 1),
        (1, json!({"Direction": "Descendants", "MaxDepth": 1}), "2", 1),
        (3, json!({"Direction": "Ascendants", "IncludeEdges": false}), "210", 0),
        (3, json!({"Filters": {"Types": ["DataSet"]}, "IncludeEdges": false}), "0", 0),
        (3, json!({"Filters": {"Types": ["DataSet"]}}), "210", 3),
        (0, json!({"Filters": {"LineageTypes": ["Action", "TrialComponent"]}, "IncludeEdges": false}), "13", 0),
        (0, json!({"Filters": {"Properties": {"by": "captain", "x": "y"}}, "IncludeEdges": false}), "3", 0),
        (0, json!({"Filters": {"CreatedAfter": 4_000_000_000_u64}}), "", 0),
    ] {
        let mut question = json!({"StartArns": [arns[start]], "Direction": "Both"});
        question.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let answer = all.call("QueryLineage", &question).await.unwrap();
        assert_eq!(
            (names(&answer), answer["Edges"].as_array().unwrap().len()),
            (expected.to_owned(), edges),
            "{question}"
        );
        question["MaxResults"] = json!(1);
        let (mut found, mut found_edges) = (String::new(), 0);
        loop {
            let page = all.call("QueryLineage", &question).await.unwrap();
            found += &names(&page);
            found_edges += page["Edges"].as_array().unwrap().len();
            match page.get("NextToken") {
                Some(token) => question["NextToken"] = token.clone(),
                None => break,
            }
        }
        assert_eq!((found, found_edges), (expected.to_owned(), edges), "{question} in pages of one");
    }
    let unknown = all.call("QueryLineage", &json!({"StartArns": [arn(of_kind(kinds::ARTIFACT), "unknown")]})).await;
    assert_eq!(unknown.unwrap_err().code, ErrorCode::ResourceNotFound);
    assert!(all.call("QueryLineage", &json!({})).await.unwrap_err().message.contains("StartArns"));
}

/// What was deleted, in the order of its kinds.
async fn deleted(all: &Fixture, before_ms: u64) -> String {
    let deleted = std::sync::Mutex::new(Vec::new());
    let note = |it: Deleted| {
        let name = it.arn.rsplit('/').next().unwrap().to_owned();
        deleted.lock().unwrap().push(format!("{} {name}", it.operation));
    };
    all.registry.delete_before(before_ms, &note).await.unwrap();
    deleted.into_inner().unwrap().join(", ")
}

/// Later than all that there is, and before what follows.
async fn boundary() -> u64 {
    tick().await;
    let now = now_ms();
    tick().await;
    now
}

#[tokio::test]
async fn old_records_of_experiments_are_deleted_unless_something_later_is_linked_to_them() {
    let all = experiments().await;
    let of_job = ResourceRow { parent: Some("job".to_owned()), ..ResourceRow::new(TRIAL_COMPONENT, "job-1") };
    let target = all.registry.named(of_kind(TRIAL_COMPONENT), "job-1");
    all.registry.change(&target, move |_| Ok(vec![RowChange::Put(Box::new(of_job))])).await.unwrap();
    assert_eq!(deleted(&all, 1).await, "", "its job is there");
    let before_ms = boundary().await;
    // What is in a trial that was changed stays, too.
    all.call("AssociateTrialComponent", &ends("c", "bog")).await.unwrap();
    all.call("UpdateTrial", &json!({"TrialName": "forest", "DisplayName": "Wood"})).await.unwrap();
    assert_eq!(deleted(&all, before_ms).await, "DeleteTrial field, DeleteExperiment plants");
    let before_ms = boundary().await;
    all.call("UpdateTrial", &json!({"TrialName": "bog", "DisplayName": "Marsh"})).await.unwrap();
    assert_eq!(deleted(&all, before_ms).await, "DeleteTrialComponent a");
    let expected = "DeleteTrialComponent b, DeleteTrialComponent c, DeleteTrial bog, DeleteTrial forest, \
                    DeleteExperiment titanic";
    assert_eq!(sorted(&deleted(&all, boundary().await).await), sorted(expected));
    assert_eq!(deleted(&all, boundary().await).await, "");
}

#[tokio::test]
async fn old_entities_of_lineage_are_deleted_with_their_associations() {
    let (all, arns) = lineage().await;
    let before_ms = boundary().await;
    all.call("CreateTrialComponent", &json!({"TrialComponentName": "later"})).await.unwrap();
    let later = arn(of_kind(TRIAL_COMPONENT), "later");
    all.call("AddAssociation", &association(&arns[0], &later, "ContributedTo")).await.unwrap();
    let name = |arn: &str| arn.rsplit('/').next().unwrap().to_owned();
    let expected = format!("DeleteTrialComponent run, DeleteArtifact {}, DeleteAction deploy", name(&arns[2]));
    assert_eq!(deleted(&all, before_ms).await, expected);
    let left = all.call("ListAssociations", &json!({})).await.unwrap();
    assert_eq!(listed(&left, "AssociationSummaries", "DestinationName"), "later");
    let before_ms = boundary().await;
    let later_row = all.registry.rows.resource(TRIAL_COMPONENT, "later").unwrap().unwrap();
    let points = [MetricPoint { metric: "loss".to_owned(), at_ms: now_ms(), value: 1.0 }];
    all.registry.telemetry.append_points(&component_series(&later_row), &points).unwrap();
    assert_eq!(deleted(&all, before_ms).await, format!("DeleteArtifact {}", name(&arns[0])), "the other has a metric");
    assert_eq!(deleted(&all, boundary().await).await, "DeleteTrialComponent later");
}

fn sorted(text: &str) -> Vec<&str> {
    let mut words = Vec::from_iter(text.split(", "));
    words.sort_unstable();
    words
}
