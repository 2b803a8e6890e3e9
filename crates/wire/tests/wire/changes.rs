//! Every member of a request changed in turn: whatever comes, the answer is a refusal of the
//! client's or a job, and never a panic.

use serde_json::{Value, json};
use shoal_wire::{Error, Service};

use crate::{
    calls::{create, sound},
    golden::goldens,
};

/// A request with the member at a JSON pointer replaced, or removed.
pub(crate) fn changed(request: &Value, pointer: &str, value: Option<&Value>) -> Value {
    let mut request = request.clone();
    let (parent, name) = pointer.rsplit_once('/').expect("a pointer");
    let name = name.replace("~1", "/").replace("~0", "~");
    let parent = request.pointer_mut(parent).expect("a parent that is there");
    match (value, parent) {
        (Some(value), Value::Array(items)) => items[name.parse::<usize>().expect("an index")] = value.clone(),
        (Some(value), parent) => parent[name] = value.clone(),
        (None, Value::Object(parent)) => assert!(parent.remove(&name).is_some(), "{pointer} is there"),
        (None, parent) => panic!("{parent} is no object"),
    }
    request
}

/// Every member of every object in a request, by its JSON pointer.
fn members(value: &Value, at: &str, found: &mut Vec<String>) {
    match value {
        Value::Object(entries) => {
            for (name, inner) in entries {
                let pointer = format!("{at}/{}", name.replace('~', "~0").replace('/', "~1"));
                members(inner, &pointer, found);
                found.push(pointer);
            }
        }
        Value::Array(items) => {
            items.iter().enumerate().for_each(|(index, item)| members(item, &format!("{at}/{index}"), found));
        }
        _ => {}
    }
}

/// Whether a request is refused, and how.
type Refusal<'a> = &'a dyn Fn(&Value) -> Option<Error>;

fn check(case: &str, request: &Value) {
    check_with(case, request, &|request| create(request).err());
}

pub(crate) fn check_with(case: &str, request: &Value, refusal: Refusal<'_>) {
    let values = [
        Value::Null,
        json!(true),
        json!(-1),
        json!(1e300),
        json!(u64::MAX),
        json!(""),
        json!("x".repeat(100_000)),
        json!("\u{0}\n\u{1F686}"),
        json!([]),
        json!([null]),
        json!({}),
        json!({"": ""}),
        json!([[[[]]]]),
    ];
    let changes = || values.iter().map(Some).chain([None]);
    let mut pointers = Vec::new();
    members(request, "", &mut pointers);
    let mut refused = 0;
    for pointer in &pointers {
        for value in changes() {
            let Some(error) = refusal(&changed(request, pointer, value)) else { continue };
            refused += 1;
            assert!(error.code.status(Service::SageMaker).is_client_error(), "{case}{pointer} = {value:?}: {error}");
            assert!(error.message.len() < 10_000, "{case}{pointer}: {} bytes of message", error.message.len());
        }
    }
    assert!(
        refused > pointers.len() * 5,
        "{case}: only {refused} of {} changes are refused",
        pointers.len() * changes().count()
    );
}

#[test]
fn any_change_of_a_sound_request_is_survived() {
    check("sound", &sound());
}

#[test]
fn any_change_of_a_real_request_is_survived() {
    let Some(goldens) = goldens() else { return };
    for golden in goldens.iter().filter(|golden| golden.operation == "CreateTrainingJob") {
        check(&golden.case, &serde_json::from_slice(&golden.body).expect("JSON"));
    }
}
