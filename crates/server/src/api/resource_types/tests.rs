//! Every type of plain resource, over a real journal: each rule is tested on the sample request of
//! each.

use std::{sync::Arc, time::Duration};

use http::Request;
use serde_json::json;
use shoal_plane::{Capacity, Catalog, Node, Packing};
use shoal_store::{Rows, SqliteJournal, Telemetry};
use shoal_wire::{Protocol, Service, operations, parse, respond};

use super::*;
use crate::{
    api::{Caller, listing::LIST_MEMBERS},
    core::{recover, start},
    identity::Identity,
};

/// A registry on a journal of its own, and what keeps it.
pub(super) struct Fixture {
    pub(super) registry: Registry,
    _directory: tempfile::TempDir,
}

impl Fixture {
    pub(super) fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let journal = SqliteJournal::open(&directory.path().join("shoal.db")).unwrap();
        let rows: Arc<dyn Rows> = Arc::new(journal.rows());
        let capacity = Capacity::of(
            Node { cpus: 2, memory_bytes: 64 << 30, gpus: 0, instances: 8, ..Node::local() },
            Packing::Promise,
        );
        let recovered = recover(&journal, &capacity, &Catalog::default()).unwrap();
        let started = start(Box::new(journal), rows.clone(), recovered, capacity, Catalog::default(), Box::new(|_| {}));
        let identity = Identity { region: "us-east-1".to_owned(), account: "123456789012".to_owned() };
        let telemetry = Arc::new(Telemetry::open(&directory.path().join("telemetry.db")).unwrap());
        Self { registry: Registry::new(started.unwrap().0, rows, telemetry, identity), _directory: directory }
    }

    /// What resources of this type belong to.
    async fn with_owners(self, of: &ResourceType) -> Self {
        if let Some(owner) = &of.belongs_to {
            let request: Value = serde_json::from_str(of.sample).unwrap();
            let name = request[owner.member].as_str().unwrap();
            self.call(operation_of(of_kind(owner.of), Verb::Create).unwrap().name, &sample(of_kind(owner.of), name))
                .await
                .unwrap();
        }
        self
    }

    /// What a client reads of the answer to a call.
    pub(super) async fn call(&self, name: &str, input: &Value) -> Result<Value, Error> {
        let head =
            Request::post("/").header("x-amz-target", format!("SageMaker.{name}")).body(()).unwrap().into_parts().0;
        let call = parse(Service::SageMaker, &head, input.to_string().as_bytes())?;
        let (operation, registry) = (call.operation, &self.registry);
        let reply = match (super::operation(operation), name) {
            (Some((of, verb)), _) => registry.answer(of, verb, call, &Caller::owner()).await?,
            (None, "AssociateTrialComponent") => registry.associate(call).await?,
            (None, "DisassociateTrialComponent") => registry.disassociate(call).await?,
            (None, "AddAssociation") => registry.add_association(call, None).await?,
            (None, "DeleteAssociation") => registry.delete_association(call).await?,
            (None, "ListAssociations") => registry.list_associations(call).await?,
            (None, _) => registry.query_lineage(call).await?,
        };
        let body = respond(operation, &reply, Protocol::Json, "id").into_body();
        Ok(if body.is_empty() { Value::Null } else { serde_json::from_slice(&body).unwrap() })
    }
}

pub(super) fn operation_of(of: &ResourceType, verb: Verb) -> Option<&'static Operation> {
    operations().find(|it| of.operations.contains(&it.name) && Verb::of(it.name) == Some(verb))
}

pub(super) fn sample(of: &ResourceType, name: &str) -> Value {
    let mut sample: Value = serde_json::from_str(of.sample).expect("JSON");
    sample[of.name_member()] = json!(name);
    if of.named_by == NamedBy::Source {
        sample["Source"]["SourceUri"] = json!(format!("s3://bucket/{name}"));
    }
    sample
}

/// The row's name of the sample of this name.
fn key(of: &ResourceType, name: &str) -> String {
    match of.named_by {
        NamedBy::Name => of.key(name),
        NamedBy::Source => artifact::name_of(&sample(of, name)["Source"]),
    }
}

pub(super) fn arn(of: &ResourceType, name: &str) -> String {
    let name = if of.named_by == NamedBy::Source { key(of, name) } else { name.to_lowercase() };
    format!("arn:aws:sagemaker:us-east-1:123456789012:{}/{name}", of.kind.name())
}

/// A request that names the sample of this name and nothing else.
fn named(of: &ResourceType, name: &str) -> Value {
    match of.named_by {
        NamedBy::Name => json!({of.name_member(): name}),
        NamedBy::Source => json!({of.arn_member(): arn(of, name)}),
    }
}

/// The refusal of a name that is not there.
fn missing(of: &ResourceType, name: &str) -> Error {
    match of.named_by {
        NamedBy::Name => of.missing(name, &arn(of, name)),
        NamedBy::Source => of.missing(&key(of, name), &arn(of, name)),
    }
}

/// Rows have times in milliseconds: what comes next is later.
pub(super) async fn tick() {
    tokio::time::sleep(Duration::from_millis(2)).await;
}

#[test]
fn the_declarations_agree_with_the_model() {
    for of in TYPES {
        assert_eq!(
            of.operations.len(),
            of.operations.iter().filter(|name| operations().any(|it| it.name == **name)).count()
        );
        let create = operation_of(of, Verb::Create).expect("one creates it");
        let identity = if of.named_by == NamedBy::Name { of.name_member() } else { "Source".to_owned() };
        assert!(create.requires(&identity), "{}", create.name);
        assert!(create.output_member(&of.arn_member()).is_some(), "{}", create.name);
        let describe = operation_of(of, Verb::Describe).expect("one describes it");
        let identity = if of.named_by == NamedBy::Name { of.name_member() } else { of.arn_member() };
        assert!(
            describe.requires(&identity) && describe.output_member(&of.arn_member()).is_some(),
            "{}",
            describe.name
        );
        for member in create.input_members().filter(|member| !["Tags"].contains(member)) {
            assert!(describe.output_member(member).is_some(), "{} does not echo {member}", describe.name);
        }
        let list = operation_of(of, Verb::List).expect("one lists it");
        for member in list.input_members() {
            let is_filter = of.filters.iter().any(|filter| filter.member == member);
            assert!(is_filter || LIST_MEMBERS.contains(&member), "nothing follows {member} of {}", list.name);
        }
        for filter in of.filters {
            assert!(list.input_members().any(|it| it == filter.member), "{} has no {}", list.name, filter.member);
        }
        let (_, summary) = list.output_list().expect("a list");
        assert!(
            summary.contains(&of.name_member().as_str()) && summary.contains(&of.arn_member().as_str()),
            "{}",
            list.name
        );
        if let Some(update) = operation_of(of, Verb::Update) {
            for member in update.input_members() {
                let member = member.strip_suffix("ToRemove").unwrap_or(member);
                assert!(describe.output_member(member).is_some(), "{} does not show {member}", describe.name);
            }
        }
        let has_not_found = describe.errors.contains(&"ResourceNotFound");
        assert_eq!(
            of.missing.0 == ErrorCode::ResourceNotFound,
            has_not_found,
            "{}: as the model declares",
            describe.name
        );
    }
}

#[tokio::test]
async fn a_resource_is_created_once_described_as_requested_and_deleted() {
    for of in TYPES {
        let all = Fixture::new().with_owners(of).await;
        let name = |verb| operation_of(of, verb).expect("served").name;
        let (request, named, arn) = (sample(of, "Sample-1"), named(of, "Sample-1"), arn(of, "Sample-1"));
        let absent = all.call(name(Verb::Describe), &named).await.expect_err("nothing is there");
        assert_eq!(absent, missing(of, "Sample-1"));
        assert_eq!(all.call(name(Verb::Create), &request).await, Ok(json!({of.arn_member(): arn})));
        let is_named = of.named_by == NamedBy::Name;
        let other = if of.ignores_case && is_named { "SAMPLE-1" } else { "Sample-1" };
        let again = all.call(name(Verb::Create), &sample(of, other)).await.expect_err("the name is taken");
        assert_eq!(again, of.duplicate.of(other, &arn));
        let shown = all.call(name(Verb::Describe), &named).await.unwrap();
        for (member, value) in request.as_object().unwrap() {
            assert_eq!(shown.get(member), Some(value).filter(|_| member != "Tags"), "{member} of {}", of.noun);
        }
        assert!(shown[of.arn_member()] == json!(arn) && shown["CreationTime"].is_f64(), "{shown}");
        let row = all.registry.rows.resource(of.kind, &key(of, "Sample-1")).unwrap().unwrap();
        assert_eq!(serde_json::from_slice::<Value>(&row.tags).unwrap(), request["Tags"]);
        let mut refused = sample(of, "Sample-2");
        refused["Tags"] = json!([{"Key": "a", "Value": "1"}, {"Key": "a", "Value": "2"}]);
        assert!(all.call(name(Verb::Create), &refused).await.expect_err("tags").message.contains("there twice"));
        let deleted = all.call(name(Verb::Delete), &named).await.unwrap();
        assert!(deleted.is_null() || deleted == json!({of.arn_member(): arn}), "{deleted}");
        assert_eq!(all.call(name(Verb::Delete), &named).await, Err(missing(of, "Sample-1")));
        assert!(all.call(name(Verb::Create), &request).await.is_ok(), "the name is free again");
    }
}

#[tokio::test]
async fn an_update_replaces_what_it_names() {
    for (of, update) in TYPES.iter().copied().filter_map(|of| Some((of, operation_of(of, Verb::Update)?))) {
        let all = Fixture::new().with_owners(of).await;
        let describe = operation_of(of, Verb::Describe).unwrap().name;
        let named = named(of, "Sample-1");
        assert!(all.call(update.name, &named).await.is_err(), "nothing is there");
        all.call(operation_of(of, Verb::Create).unwrap().name, &sample(of, "Sample-1")).await.unwrap();
        let before = all.call(describe, &named).await.unwrap();
        tick().await;
        let identity = |member: &str| named.get(member).is_some();
        let member = update.input_members().find(|member| !identity(member)).expect("something to update");
        let mut change = named.clone();
        change[member] = json!("changed");
        let answer = all.call(update.name, &change).await.unwrap();
        assert_eq!(answer[of.arn_member()], before[of.arn_member()]);
        let mut after = all.call(describe, &named).await.unwrap();
        assert!(
            after["LastModifiedTime"].as_f64() > before["LastModifiedTime"].as_f64() && after[member] == "changed",
            "{after}"
        );
        for member in [member, "LastModifiedTime"] {
            after[member] = before[member].clone();
        }
        assert_eq!(after, before, "nothing else");
    }
}

#[tokio::test]
async fn lists_follow_order_filters_and_pages() {
    for of in TYPES {
        let all = Fixture::new().with_owners(of).await;
        let (create, list) = (operation_of(of, Verb::Create).unwrap().name, operation_of(of, Verb::List).unwrap());
        let member = list.output_list().unwrap().0;
        // The order of creation is not that of the names.
        let created = ["c-1", "a-2", "b-1"];
        let mut times = Vec::new();
        for name in created {
            tick().await;
            all.call(create, &sample(of, name)).await.unwrap();
            let row = all.registry.rows.resource(of.kind, &key(of, name)).unwrap().unwrap();
            times.push(row.created_ms as f64 / 1000.0);
        }
        let names = |page: &Value| -> Vec<String> {
            let name = |item: &Value| item[of.name_member()].as_str().unwrap().to_owned();
            page[member].as_array().unwrap().iter().map(name).collect()
        };
        let (after, before) = match list.input_members().any(|member| member == "CreatedAfter") {
            true => ("CreatedAfter", "CreatedBefore"),
            false => ("CreationTimeAfter", "CreationTimeBefore"),
        };
        let mut cases = vec![
            (json!({}), vec!["b-1", "a-2", "c-1"]),
            (json!({"SortOrder": "Ascending"}), created.to_vec()),
            (json!({after: times[0]}), vec!["b-1", "a-2"]),
            (json!({before: times[2], "SortBy": "CreationTime"}), vec!["a-2", "c-1"]),
        ];
        let by_name = json!({"SortBy": "Name"});
        let is_sorted_by_name = of.named_by == NamedBy::Name;
        if is_sorted_by_name {
            cases.push((json!({"SortBy": "Name", "SortOrder": "Ascending"}), vec!["a-2", "b-1", "c-1"]));
            cases.push((by_name.clone(), vec!["c-1", "b-1", "a-2"]));
        }
        if list.input_members().any(|member| member == "NameContains") {
            cases.push((json!({"NameContains": "-1"}), vec!["b-1", "c-1"]));
        }
        for (question, expected) in cases {
            assert_eq!(names(&all.call(list.name, &question).await.unwrap()), expected, "{} {question}", list.name);
            let mut paged = question.clone();
            paged["MaxResults"] = json!(1);
            let mut found = Vec::new();
            loop {
                let page = all.call(list.name, &paged).await.unwrap();
                found.extend(names(&page));
                match page.get("NextToken") {
                    Some(token) => paged["NextToken"] = token.clone(),
                    None => break,
                }
                assert!(found.len() < 4, "pages end");
            }
            assert_eq!(found, expected, "{} {question} in pages of one", list.name);
        }
        let token = all.call(list.name, &json!({"MaxResults": 1})).await.unwrap()["NextToken"].clone();
        let other = json!({"NextToken": token, "SortOrder": "Ascending"});
        assert!(all.call(list.name, &other).await.is_err(), "a token belongs to its question");
    }
}
