//! What searches may ask and what they mean, as data.

use serde_json::{Value, json};

use super::*;

fn search(request: Value) -> Result<Search, Error> {
    serde_json::from_value::<SearchRequest>(request).expect("the table's shape").check()
}

fn record() -> Value {
    json!({
        "TrainingJobName": "titanic-1",
        "TrainingJobStatus": "Completed",
        "CreationTime": 1_795_245_868.25,
        "HyperParameters": {"eta": "0.5", "depth": "6", "booster": "dart", "a.b": "c"},
        "EnableManagedSpotTraining": false,
        "ResourceConfig": {"InstanceType": "ml.m5.xlarge", "InstanceCount": 2},
        "InputDataConfig": [
            {"ChannelName": "train", "DataSource": {"S3DataSource": {"S3Uri": "s3://b/one", "AttributeNames": ["x", "y"]}}},
            {"ChannelName": "validation", "DataSource": {"S3DataSource": {"S3Uri": "s3://b/two"}}}
        ],
        "Environment": {},
        "FinalMetricDataList": [{"MetricName": "validation:auc", "Value": 0.875, "Timestamp": 1_795_245_900.0}],
        "Tags": [{"Key": "team", "Value": "trees"}]
    })
}

/// Evaluation as simple as can be, over the record's properties.
fn holds(condition: &Condition<String>, record: &[(String, usize, Value)]) -> bool {
    let passes = |path: &str, item: Option<usize>, test: &Test| {
        let ours = |of: &str| if path.ends_with('.') { of.starts_with(path) } else { of == path };
        let values = record.iter().filter(|(of, at, _)| ours(of) && item.is_none_or(|item| *at == item));
        let value = |value: &Value| match value {
            Value::String(text) => test.wanted.passes(PropertyValue::Text(text)),
            other => test.wanted.passes(PropertyValue::Number(other.as_f64().expect("a number"))),
        };
        test.negated != values.into_iter().any(|(_, _, it)| value(it))
    };
    match condition {
        Condition::All(parts) => parts.iter().all(|part| holds(part, record)),
        Condition::Any(parts) => parts.iter().any(|part| holds(part, record)),
        Condition::Property(path, test) => passes(path, None, test),
        Condition::Item(tests) => (1..9).any(|item| tests.iter().all(|(path, test)| passes(path, Some(item), test))),
    }
}

fn finds(expression: &Value) -> bool {
    let search = search(json!({"Resource": "TrainingJob", "SearchExpression": expression})).expect("a sound search");
    let mut found = Vec::new();
    properties(&record(), &mut |path, item, value| {
        let value = match value {
            PropertyValue::Text(text) => json!(text),
            PropertyValue::Number(number) => json!(number),
        };
        found.push((path.to_owned(), item, value));
    });
    holds(&search.condition, &found)
}

#[test]
fn operators_mean_what_aws_says() {
    let check = |name: &str, operator: &str, value: &str, expected: bool| {
        let filter = json!({"Filters": [{"Name": name, "Operator": operator, "Value": value}]});
        assert_eq!(finds(&filter), expected, "{name} {operator} {value}");
    };
    check("TrainingJobName", "Equals", "titanic-1", true);
    check("TrainingJobName", "Equals", "titanic", false);
    check("TrainingJobName", "NotEquals", "titanic", true);
    check("TrainingJobName", "Contains", "tan", true);
    check("TrainingJobName", "Contains", "TAN", false);
    check("TrainingJobStatus", "In", "Failed, Completed", true);
    check("TrainingJobStatus", "In", "Failed,Stopped", false);
    check("FailureReason", "Equals", "x", false);
    check("FailureReason", "NotEquals", "x", true);
    check("FailureReason", "NotExists", "-", true);
    check("HyperParameters.booster", "Exists", "-", true);
    check("HyperParameters.booster", "Equals", "dart", true);
    check("HyperParameters.a.b", "Equals", "c", true);
    check("HyperParameters.depth", "Equals", "6.0", true);
    check("HyperParameters.depth", "GreaterThan", "5", true);
    check("HyperParameters.depth", "LessThanOrEqualTo", "5.5", false);
    check("HyperParameters.eta", "LessThan", "0.6", true);
    check("HyperParameters.eta", "GreaterThan", "0", false);
    check("HyperParameters.eta", "Equals", "0", true);
    check("HyperParameters.booster", "GreaterThan", "1", false);
    check("Metrics.validation:auc", "GreaterThanOrEqualTo", "0.875", true);
    check("Metrics.validation:auc", "LessThan", "0.875", false);
    check("Metrics.none", "LessThan", "1", false);
    check("Tags.team", "Equals", "trees", true);
    check("Tags.none", "Exists", "-", false);
    check("Tags", "Exists", "-", true);
    check("HyperParameters.a", "Exists", "-", false);
    check("InputDataConfig", "Exists", "-", true);
    check("Environment", "Exists", "-", false);
    check("CheckpointConfig", "NotExists", "-", true);
    check("ResourceConfig.InstanceType", "Equals", "ml.m5.xlarge", true);
    check("ResourceConfig.InstanceCount", "Equals", "2", true);
    check("ResourceConfig.InstanceCount", "NotEquals", "2", false);
    check("EnableManagedSpotTraining", "Equals", "False", true);
    check("CreationTime", "Equals", "2026-11-21T07:24:28", true);
    check("CreationTime", "GreaterThan", "2026-11-21T07:24:28", true);
    check("CreationTime", "LessThan", "2026-11-21T08:24:28+01:00", false);
    check("InputDataConfig.ChannelName", "Equals", "validation", true);
    check("InputDataConfig.ChannelName", "NotEquals", "validation", false);
    check("InputDataConfig.DataSource.S3DataSource.AttributeNames", "Equals", "y", true);
    check("FinalMetricDataList.Value", "GreaterThan", "0.5", true);
}

#[test]
fn expressions_nest() {
    let filter = |name: &str, value: &str| json!({"Name": name, "Value": value});
    let (yes, no) = (filter("TrainingJobStatus", "Completed"), filter("TrainingJobStatus", "Failed"));
    let check = |expression: Value, expected: bool| assert_eq!(finds(&expression), expected, "{expression}");
    check(json!({"Filters": [yes, no]}), false);
    check(json!({"Filters": [yes, no], "Operator": "Or"}), true);
    check(json!({"Filters": [yes], "SubExpressions": [{"Filters": [no, yes], "Operator": "Or"}]}), true);
    check(json!({"Filters": [no], "SubExpressions": [{"Filters": [yes]}], "Operator": "Or"}), true);
    let nested = |channel: &str, uri: &str| {
        json!({"NestedFilters": [{"NestedPropertyName": "InputDataConfig", "Filters": [filter("InputDataConfig.ChannelName", channel),
            filter("InputDataConfig.DataSource.S3DataSource.S3Uri", uri)]}]})
    };
    check(nested("train", "s3://b/one"), true);
    check(nested("train", "s3://b/two"), false);
    check(nested("validation", "s3://b/two"), true);
}

#[test]
fn what_cannot_be_asked_is_named() {
    let check = |expression: Value, path: &str, hint: &str| {
        let error = search(json!({"Resource": "TrainingJob", "SearchExpression": expression})).expect_err(hint);
        assert!(error.message.contains(path) && error.message.contains(hint), "{expression}: {error}");
    };
    let filter = |name: &str, operator: &str, value: &str| json!({"Filters": [{"Name": name, "Operator": operator, "Value": value}]});
    let first = "searchExpression.filters.1.member";
    check(json!({}), "'searchExpression'", "at least one");
    check(json!({"SubExpressions": [{}]}), "'searchExpression.subExpressions.1.member'", "at least one");
    check(filter("Colour", "Equals", "red"), &format!("{first}.name"), "'Colour'");
    for name in [
        "SecondaryStatusTransitions.Status",
        "Metrics.",
        "Tags.",
        "ResourceConfig.Colour",
        "TrainingJobName.x",
        "InputDataConfig..ChannelName",
        ".",
    ] {
        check(filter(name, "Exists", "-"), &format!("{first}.name"), name);
    }
    check(filter("TrainingJobName", "GreaterThan", "a"), first, "text property");
    check(filter("ResourceConfig.InstanceCount", "Contains", "2"), first, "text properties only");
    check(filter("ResourceConfig.InstanceCount", "Equals", "two"), first, "not a number");
    check(filter("Metrics.loss", "LessThan", "NaN"), first, "not a number");
    check(filter("HyperParameters.eta", "LessThan", "x"), first, "not a number");
    check(filter("CreationTime", "LessThan", "yesterday"), first, "ISO 8601");
    check(filter("EnableNetworkIsolation", "Equals", "1"), first, "true or false");
    check(filter("EnableNetworkIsolation", "LessThan", "true"), first, "Boolean");
    check(filter("ResourceConfig", "Equals", "x"), first, "Exists");
    check(
        json!({"Filters": [{"Name": "TrainingJobName", "Operator": "Equals"}]}),
        &format!("{first}.value"),
        "needs a value",
    );
    check(json!({"Filters": [{"Name": "TrainingJobName"}]}), first, "needs an Operator");
    let contains = json!({"Name": "TrainingJobName", "Operator": "Contains", "Value": "a"});
    check(json!({"Filters": [contains, contains]}), "'CONTAINS' operator usage limit of 1 exceeded.", "");
    let nested = |list: &str, name: &str| json!({"NestedFilters": [{"NestedPropertyName": list, "Filters": [{"Name": name, "Value": "x"}]}]});
    check(
        nested("InputDataConfig", "TrainingJobName"),
        "searchExpression.nestedFilters.1.member.filters.1.member.name",
        "InputDataConfig",
    );
    check(nested("ResourceConfig", "ResourceConfig.InstanceType"), "filters.1.member.name", "ResourceConfig");
    let exists = json!({"Name": "TrainingJobName", "Operator": "Exists"});
    let sub = json!({"Filters": vec![exists; 20]});
    check(json!({"SubExpressions": [sub, sub, sub]}), "searchExpression", "more than 50");
    for sort_by in ["Colour", "ResourceConfig"] {
        let error = search(json!({"Resource": "TrainingJob", "SortBy": sort_by})).expect_err(sort_by);
        assert!(error.message.contains("'sortBy'") && error.message.contains(sort_by), "{error}");
    }
    let visible = json!({"Resource": "TrainingJob", "VisibilityConditions": [{"Key": "team", "Value": "x"}]});
    assert!(search(visible).expect_err("no tag").message.contains("visibilityConditions.1.member.key"));
}

#[test]
fn absent_members_have_defaults() {
    let plain = search(json!({"Resource": "TrainingJob"})).expect("a sound search");
    assert_eq!(
        (plain.sort_by.as_str(), plain.sort_order, plain.max_results),
        ("LastModifiedTime", SortOrder::Descending, 10)
    );
    assert_eq!(plain.condition, Condition::All(Vec::new()));
    let other = search(json!({"Resource": "Endpoint", "SearchExpression": {"Filters": [{"Name": "Any"}]}}))
        .expect("nothing to find");
    assert_eq!(other.resource, SearchResource::Other);
}

fn component() -> Value {
    json!({
        "TrialComponentName": "titanic-run-1",
        "Status": {"PrimaryStatus": "Completed"},
        "Parameters": {"lr": {"NumberValue": 0.5}, "SageMaker.InstanceType": {"StringValue": "ml.m5.large"}},
        "InputArtifacts": {"train": {"MediaType": "text/csv", "Value": "s3://b/train"}},
        "Metrics": [
            {"MetricName": "val:loss", "Max": 3.0, "Min": 1.0, "Last": 2.0, "Count": 7, "Avg": 2.0, "StdDev": 0.5, "TimeStamp": 1_795_245_900.0},
            {"MetricName": "auc.x", "Max": 0.75}],
        "Parents": [
            {"TrialName": "forest", "ExperimentName": "titanic"}, {"TrialName": "bog", "ExperimentName": "plants"}],
        "SourceDetail": {"TrainingJob": {"TrainingJobName": "job-1", "HyperParameters": {"eta": "0.5"}}},
        "Tags": [{"Key": "team", "Value": "trees"}]
    })
}

#[test]
fn trial_components_are_searched_by_what_they_consist_of() {
    let mut values = Vec::new();
    properties(&component(), &mut |path, item, value| {
        let value = match value {
            PropertyValue::Text(text) => json!(text),
            PropertyValue::Number(number) => json!(number),
        };
        values.push((path.to_owned(), item, value));
    });
    let meets = |expression: Value| {
        let request = json!({"Resource": "ExperimentTrialComponent", "SearchExpression": expression});
        search(request).map(|search| holds(&search.condition, &values))
    };
    let check = |name: &str, operator: &str, value: &str, expected: bool| {
        let filter = match operator {
            "Exists" | "NotExists" => json!({"Name": name, "Operator": operator}),
            _ => json!({"Name": name, "Operator": operator, "Value": value}),
        };
        assert_eq!(meets(json!({"Filters": [filter]})).expect(name), expected, "{name} {operator} {value}");
    };
    for (name, operator, value, expected) in [
        ("TrialComponentName", "Equals", "titanic-run-1", true),
        ("trialComponentName", "Contains", "run", true),
        ("TrialComponentName", "Equals", "Titanic-RUN-1", true),
        ("Parents.ExperimentName", "Equals", "TITANIC", true),
        ("Status.PrimaryStatus", "Equals", "completed", false),
        ("Status.PrimaryStatus", "Equals", "Failed", false),
        ("Parents.TrialName", "Equals", "bog", true),
        ("Parents.ExperimentName", "In", "other, titanic", true),
        ("Parameters.lr.NumberValue", "LessThan", "0.6", true),
        ("parameters.lr.numberValue", "GreaterThan", "0.6", false),
        ("Parameters.SageMaker.InstanceType.StringValue", "Equals", "ml.m5.large", true),
        ("Parameters.lr", "Exists", "", true),
        ("Parameters.depth", "Exists", "", false),
        ("Metrics.val:loss.Max", "GreaterThanOrEqualTo", "3", true),
        ("metrics.val:loss.min", "LessThan", "1", false),
        ("Metrics.val:loss.Count", "Equals", "7", true),
        ("Metrics.auc.x.Max", "GreaterThan", "0.5", true),
        ("Metrics.auc.x.TimeStamp", "NotExists", "", true),
        ("Metrics.val:loss.TimeStamp", "GreaterThan", "2020-01-01T00:00:00", true),
        ("InputArtifacts.train.Value", "Contains", "s3://b", true),
        ("OutputArtifacts.model.MediaType", "Exists", "", false),
        ("SourceDetail.TrainingJob.TrainingJobName", "Equals", "job-1", true),
        ("SourceDetail.TrainingJob.HyperParameters.eta", "Equals", "0.5", true),
        ("Tags.team", "Equals", "trees", true),
    ] {
        check(name, operator, value, expected);
    }
    let nested = |trial: &str, experiment: &str| {
        let filters = [("Parents.TrialName", trial), ("Parents.ExperimentName", experiment)];
        let filters: Value = filters.iter().map(|(name, value)| json!({"Name": name, "Value": value})).collect();
        meets(json!({"NestedFilters": [{"NestedPropertyName": "Parents", "Filters": filters}]})).expect("sound")
    };
    assert!(nested("forest", "titanic") && !nested("forest", "plants"), "one parent is both");
    for (name, operator, value) in [
        ("Colour", "Equals", "x"),
        ("Metrics.val:loss", "GreaterThan", "1"),
        ("Parameters.lr.NumberValue", "Equals", "many"),
        ("Parameters.lr.StringValue", "LessThan", "1"),
    ] {
        let filter = json!({"Name": name, "Operator": operator, "Value": value});
        assert!(meets(json!({"Filters": [filter]})).is_err(), "{name} {operator} {value}");
    }
    let refused = |name: &str| {
        let filter = json!({"Name": name, "Operator": "GreaterThan", "Value": "1"});
        meets(json!({"Filters": [filter]})).expect_err(name).message
    };
    let (parameter, metric) = (refused("Parameters.lr"), refused("Metrics.val:loss"));
    assert!(parameter.contains("(Parameters.lr.NumberValue, Parameters.lr.StringValue)"), "{parameter}");
    assert!(metric.contains("Metrics.val:loss.Last"), "{metric}");
    let by = |sort_by: &str| search(json!({"Resource": "ExperimentTrialComponent", "SortBy": sort_by}));
    assert_eq!(by("metrics.val:loss.max").expect("sound").sort_by, "Metrics.val:loss.Max");
    assert!(by("Metrics.val:loss").is_err(), "a metric has several values");
    for (resource, property) in
        [("Experiment", "ExperimentName"), ("ExperimentTrial", "TrialComponentSummaries.TrialComponentName")]
    {
        let filter = json!({"Name": property, "Value": "x"});
        let found = search(json!({"Resource": resource, "SearchExpression": {"Filters": [filter]}})).expect(resource);
        assert_ne!(found.resource, SearchResource::Other);
    }
}
