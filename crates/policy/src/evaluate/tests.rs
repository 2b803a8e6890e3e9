use serde_json::{Value, json};

use super::*;

const ARN: &str = "arn:aws:s3:::data/train/a";

fn request() -> Request<'static> {
    Request {
        account: "123456789012",
        principals: vec!["arn:aws:iam::123456789012:user/anna".to_owned()],
        action: "s3:GetObject",
        resource: ARN,
        keys: vec![
            ("aws:username".to_owned(), "anna".to_owned()),
            ("aws:principalarn".to_owned(), "arn:aws:iam::123456789012:user/anna".to_owned()),
            ("aws:requesttag/team".to_owned(), "vision".to_owned()),
            ("aws:tagkeys".to_owned(), "team".to_owned()),
            ("aws:tagkeys".to_owned(), "stage".to_owned()),
        ],
    }
}

fn document(statements: &[Value]) -> String {
    json!({"Version": "2012-10-17", "Statement": statements}).to_string()
}

fn identity(statement: Value) -> Policy {
    Policy::of_identity(&document(&[statement])).unwrap()
}

/// IAM's documented logic, over all lists of up to three statements in an identity's document and
/// up to two in a resource's: what forbids and what permits, and what is about something else.
#[test]
fn a_deny_goes_before_an_allow_and_an_allow_before_nothing() {
    let about = |effect: &str, action: &str, resource: &str, team: &str| {
        json!({"Effect": effect, "Action": action, "Resource": resource,
            "Condition": {"StringEquals": {"aws:RequestTag/team": team}}})
    };
    let mut kinds = Vec::new();
    for effect in ["Allow", "Deny"] {
        kinds.push((effect, true, about(effect, "s3:Get*", "arn:aws:s3:::data/*", "vision")));
        kinds.push((effect, false, about(effect, "s3:Put*", "arn:aws:s3:::data/*", "vision")));
        kinds.push((effect, false, about(effect, "s3:Get*", "arn:aws:s3:::other/*", "vision")));
        kinds.push((effect, false, about(effect, "s3:Get*", "arn:aws:s3:::data/*", "speech")));
    }
    let lists = |longest: u32| {
        let mut all: Vec<Vec<usize>> = vec![Vec::new()];
        let mut last = all.clone();
        for _ in 0..longest {
            last = last
                .iter()
                .flat_map(|list| (0..kinds.len()).map(|kind| list.iter().copied().chain([kind]).collect()))
                .collect();
            all.extend(last.clone());
        }
        all
    };
    let of_resource = |kind: usize| {
        let mut statement = kinds[kind].2.clone();
        statement["Principal"] = json!({"AWS": "arn:aws:iam::123456789012:user/anna"});
        statement
    };
    let resources: Vec<_> = lists(2)
        .into_iter()
        .map(|list| {
            let statements: Vec<_> = list.iter().map(|kind| of_resource(*kind)).collect();
            let policy = (!list.is_empty()).then(|| Policy::of_resource(&document(&statements)).unwrap());
            (list, policy)
        })
        .collect();
    let mut seen = [0; 3];
    for list in lists(3) {
        let statements: Vec<_> = list.iter().map(|kind| kinds[*kind].2.clone()).collect();
        let own = (!list.is_empty()).then(|| Policy::of_identity(&document(&statements)).unwrap());
        for (of_resource, policy) in &resources {
            let all = || list.iter().chain(of_resource).map(|kind| &kinds[*kind]);
            let has = |effect: &str| all().any(|(of, fits, _)| *of == effect && *fits);
            let expected = match (has("Deny"), has("Allow")) {
                (true, _) => Decision::ExplicitDeny,
                (false, true) => Decision::Allowed,
                (false, false) => Decision::ImplicitDeny,
            };
            assert_eq!(decide(own.iter().chain(policy), &request()), expected, "{list:?} {of_resource:?}");
            assert_eq!(decide(policy.iter().chain(&own), &request()), expected, "the order does not matter");
            seen[expected as usize] += 1;
        }
    }
    assert!(seen.iter().all(|count| *count > 1000), "{seen:?}");
}

#[test]
fn actions_and_resources_have_wildcards_and_exceptions() {
    for (statement, expected) in [
        (json!({"Action": "*", "Resource": "*"}), true),
        (json!({"Action": "S3:getobject", "Resource": "*"}), true),
        (json!({"Action": "s3:GetObjec?", "Resource": ARN}), true),
        (
            json!({"Action": ["sagemaker:*", "s3:Get*"], "Resource": ["arn:aws:s3:::x", "arn:aws:s3:::data/train/*"]}),
            true,
        ),
        (json!({"Action": "s3:Get", "Resource": "*"}), false),
        (json!({"Action": "s3:*", "Resource": "arn:aws:s3:::DATA/*"}), false),
        (json!({"Action": "s3:*", "Resource": "arn:aws:s3:::data"}), false),
        (json!({"NotAction": "s3:Put*", "Resource": "*"}), true),
        (json!({"NotAction": ["s3:Put*", "s3:Get*"], "Resource": "*"}), false),
        (json!({"Action": "s3:*", "NotResource": "arn:aws:s3:::data/test/*"}), true),
        (json!({"Action": "s3:*", "NotResource": "arn:aws:s3:::data/*"}), false),
    ] {
        let mut statement = statement;
        statement["Effect"] = json!("Allow");
        let allowed = decide([&identity(statement.clone())], &request()) == Decision::Allowed;
        assert_eq!(allowed, expected, "{statement}");
    }
}

#[test]
fn conditions_are_met_as_iam_documents_them() {
    for (condition, expected) in [
        (json!({"StringEquals": {"aws:RequestTag/team": "vision"}}), true),
        (json!({"StringEquals": {"AWS:requesttag/team": ["speech", "vision"]}}), true),
        (json!({"StringEquals": {"aws:RequestTag/Team": "vision"}}), false),
        (json!({"StringEquals": {"aws:RequestTag/team": "vis*"}}), false),
        (json!({"StringLike": {"aws:RequestTag/team": "vis*"}}), true),
        (json!({"StringNotLike": {"aws:RequestTag/team": "vis*"}}), false),
        (json!({"StringEqualsIgnoreCase": {"aws:RequestTag/team": "VISION"}}), true),
        (json!({"StringNotEqualsIgnoreCase": {"aws:RequestTag/team": "VISION"}}), false),
        (json!({"StringNotEquals": {"aws:RequestTag/team": "speech"}}), true),
        (json!({"StringNotEquals": {"aws:RequestTag/team": ["speech", "vision"]}}), false),
        // Without the key, what is asked for is not met, and what is ruled out is.
        (json!({"StringEquals": {"aws:ResourceTag/team": "vision"}}), false),
        (json!({"StringNotEquals": {"aws:ResourceTag/team": "vision"}}), true),
        (json!({"StringEqualsIfExists": {"aws:ResourceTag/team": "vision"}}), true),
        (json!({"StringEqualsIfExists": {"aws:RequestTag/team": "speech"}}), false),
        (json!({"Null": {"aws:ResourceTag/team": "true"}}), true),
        (json!({"Null": {"aws:ResourceTag/team": false}}), false),
        (json!({"Null": {"aws:RequestTag/team": "false"}}), true),
        (json!({"ForAnyValue:StringEquals": {"aws:TagKeys": ["team"]}}), true),
        (json!({"ForAllValues:StringEquals": {"aws:TagKeys": ["team"]}}), false),
        (json!({"ForAllValues:StringEquals": {"aws:TagKeys": ["team", "stage", "cost"]}}), true),
        (json!({"ForAllValues:StringEquals": {"aws:ResourceTag/a": ["x"]}}), true),
        (json!({"ForAnyValue:StringEquals": {"aws:ResourceTag/a": ["x"]}}), false),
        (json!({"ArnLike": {"aws:PrincipalArn": "arn:aws:iam::*:user/*"}}), true),
        (json!({"ArnNotLike": {"aws:PrincipalArn": "arn:aws:iam::*:user/*"}}), false),
        (json!({"StringEquals": {"aws:username": "${aws:username}"}}), true),
        // All lines of a condition hold.
        (json!({"StringEquals": {"aws:RequestTag/team": "vision", "aws:username": "ben"}}), false),
        (json!({"StringEquals": {"aws:RequestTag/team": "vision"}, "Null": {"s3:prefix": "false"}}), false),
    ] {
        let statement = json!({"Effect": "Allow", "Action": "*", "Resource": "*", "Condition": condition});
        let allowed = decide([&identity(statement)], &request()) == Decision::Allowed;
        assert_eq!(allowed, expected, "{condition}");
    }
}

#[test]
fn a_resources_policy_is_about_whom_it_names() {
    let fits = |effect: &str, principal: Value| {
        let statement = json!({"Effect": effect, "Principal": principal, "Action": "*", "Resource": "*"});
        decide([&Policy::of_resource(&document(&[statement])).unwrap()], &request()) != Decision::ImplicitDeny
    };
    for (principal, allows, denies) in [
        (json!("*"), true, true),
        (json!({"AWS": "*"}), true, true),
        (json!({"AWS": ["arn:aws:iam::123456789012:user/ben", "arn:aws:iam::123456789012:user/anna"]}), true, true),
        (json!({"AWS": "arn:aws:iam::123456789012:user/ben"}), false, false),
        // Leaves it to the account's own policies.
        (json!({"AWS": "123456789012"}), false, true),
        (json!({"AWS": "arn:aws:iam::123456789012:root"}), false, true),
        (json!({"AWS": "999999999999"}), false, false),
        (json!({"Service": "sagemaker.amazonaws.com"}), false, false),
    ] {
        assert_eq!(
            (fits("Allow", principal.clone()), fits("Deny", principal.clone())),
            (allows, denies),
            "{principal}"
        );
    }
    let not = json!({"Effect": "Deny", "NotPrincipal": {"AWS": "arn:aws:iam::123456789012:user/anna"}, "Action": "*",
        "Resource": "*"});
    assert_eq!(decide([&Policy::of_resource(&document(&[not])).unwrap()], &request()), Decision::ImplicitDeny);
}

#[test]
fn a_policy_for_everyone_is_public() {
    let is_public = |principal: Value, condition: Option<Value>| {
        let mut statement = json!({"Effect": "Allow", "Principal": principal, "Action": "*", "Resource": "*"});
        if let Some(condition) = condition {
            statement["Condition"] = condition;
        }
        Policy::of_resource(&document(&[statement])).unwrap().is_public()
    };
    assert!(is_public(json!("*"), None));
    assert!(is_public(json!({"AWS": ["*"]}), Some(json!({"StringEquals": {"s3:prefix": "a"}}))));
    assert!(is_public(json!("*"), Some(json!({"StringLike": {"aws:username": "a*"}}))));
    assert!(!is_public(json!("*"), Some(json!({"StringEquals": {"aws:username": ["anna", "ben"]}}))));
    assert!(!is_public(json!({"AWS": "arn:aws:iam::123456789012:user/anna"}), None));
    let deny = json!({"Effect": "Deny", "Principal": "*", "Action": "*", "Resource": "*"});
    assert!(!Policy::of_resource(&document(&[deny])).unwrap().is_public());
}

#[test]
fn a_buckets_policy_is_about_the_bucket() {
    let outside = |resource: &str| {
        let statement = json!({"Effect": "Deny", "Principal": "*", "Action": "*", "Resource": resource});
        Policy::of_resource(&document(&[statement])).unwrap().resource_outside(&["arn:aws:s3:::data".to_owned()])
    };
    for (resource, expected) in [
        ("arn:aws:s3:::data", false),
        ("arn:aws:s3:::data/*", false),
        ("arn:aws:s3:::data2/*", true),
        ("arn:aws:s3:::dat*", true),
        ("*", true),
    ] {
        assert_eq!(outside(resource), expected, "{resource}");
    }
}

#[test]
fn what_is_not_evaluated_is_refused() {
    let allow = |more: Value| {
        let mut statement = json!({"Effect": "Allow", "Action": "s3:*", "Resource": "*"});
        for (name, value) in more.as_object().unwrap() {
            match value {
                Value::Null => drop(statement.as_object_mut().unwrap().remove(name)),
                value => statement[name] = value.clone(),
            }
        }
        document(&[statement])
    };
    for (json, why) in [
        (String::new(), "no JSON object"),
        ("[]".to_owned(), "no JSON object"),
        ("{}".to_owned(), "Statement is missing"),
        (json!({"Version": "2020-01-01", "Statement": []}).to_string(), "Version is"),
        (json!({"Statement": []}).to_string(), "Statement is empty"),
        (json!({"Statements": []}).to_string(), "no element 'Statements'"),
        (allow(json!({"Effect": "allow"})), "Effect is"),
        (allow(json!({"Action": null})), "Action is missing"),
        (allow(json!({"Action": "GetObject"})), "no action"),
        (allow(json!({"Action": []})), "not empty"),
        (allow(json!({"NotAction": "s3:*"})), "not both"),
        (allow(json!({"Resource": null})), "Resource is missing"),
        (allow(json!({"Resource": "data/*"})), "no resource"),
        (allow(json!({"Resource": "arn:aws:s3:::${aws:SourceIp}"})), "there is aws:username alone"),
        (allow(json!({"Principal": "*"})), "has no Principal"),
        (allow(json!({"Condition": []})), "Condition is an object"),
        (allow(json!({"Condition": {"IpAddress": {"aws:SourceIp": "10.0.0.0/8"}}})), "'IpAddress' is not evaluated"),
        (allow(json!({"Condition": {"StringEquals": {"aws:SourceVpc": "v"}}})), "'aws:sourcevpc' is not evaluated"),
        (allow(json!({"Condition": {"StringEquals": {"aws:TagKeys": "a"}}})), "ForAnyValue:"),
        (allow(json!({"Condition": {"StringEquals": {"aws:username": []}}})), "compared with nothing"),
        (allow(json!({"Condition": {"StringEquals": {"aws:username": 7}}})), "are texts"),
        (allow(json!({"Condition": {"Null": {"aws:username": "maybe"}}})), "true or false"),
        (allow(json!({"Sid": "x".repeat(21_000)})), "longer than"),
    ] {
        let refused = Policy::of_identity(&json).unwrap_err().to_string();
        assert!(refused.contains(why), "{json}: {refused}");
    }
    let of_resource = |principal: Value, effect: &str, name: &str| {
        let mut statement = json!({"Effect": effect, "Action": "s3:*", "Resource": "*"});
        statement[name] = principal;
        Policy::of_resource(&document(&[statement])).unwrap_err().to_string()
    };
    assert!(Policy::of_resource(&allow(json!({}))).unwrap_err().to_string().contains("has a Principal"));
    assert!(of_resource(json!("anna"), "Allow", "Principal").contains("Principal is"));
    assert!(of_resource(json!({"AWS": "anna"}), "Allow", "Principal").contains("no principal"));
    assert!(of_resource(json!({"AWS": "arn:aws:iam::1:user/*"}), "Allow", "Principal").contains("no principal"));
    assert!(of_resource(json!({"AWS": "123456789012"}), "Allow", "NotPrincipal").contains("name them"));
}
