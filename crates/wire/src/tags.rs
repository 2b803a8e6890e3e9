//! Tags: `AddTags`, `ListTags` and `DeleteTags`, and the rules that creation shares with them.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::{
    Call, Error, Input, Reply,
    call::{plain_inputs, read},
};

/// Most tags of a resource.
pub const MOST_TAGS: usize = 50;

/// By which a job requests how far its network reaches: `none`, `allow-list` or `host`.
pub const NETWORK_TAG: &str = "shoal:network";

/// By which a job chooses the compute target that runs its instances.
pub const TARGET_TAG: &str = "shoal:target";

/// With how many instances a training job continues when it loses others: a number from 1 to
/// `InstanceCount`.
pub const MIN_INSTANCES_TAG: &str = "shoal:min-instances";

/// How urgent a job is: a whole number; those of a higher one start first.
pub const PRIORITY_TAG: &str = "shoal:priority";

/// Largest priority; the least is its negative.
const MOST_PRIORITY: i32 = 1000;

/// A label of the user's.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct Tag {
    /// Unique among a resource's tags.
    pub key: String,
    /// May be empty.
    pub value: String,
}

/// An `AddTags`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct AddTags {
    /// Of what.
    pub resource_arn: String,
    /// Keys are unique.
    pub tags: Vec<Tag>,
}

/// A `ListTags`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct ListTags {
    /// Of what.
    pub resource_arn: String,
    /// From the page before; a resource's tags are one page.
    pub next_token: Option<String>,
}

/// A `DeleteTags`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct DeleteTags {
    /// Of what.
    pub resource_arn: String,
    /// Those that the resource does not have are left aside.
    pub tag_keys: Vec<String>,
}

impl Input for AddTags {
    fn read(call: Call) -> Result<Self, Error> {
        let Self { resource_arn, tags } = read(call.input)?;
        Ok(Self { resource_arn, tags: check(tags)? })
    }
}

plain_inputs!(ListTags);

impl Input for DeleteTags {
    fn read(call: Call) -> Result<Self, Error> {
        let request: Self = read(call.input)?;
        for (at, key) in request.tag_keys.iter().enumerate() {
            reserved(&format!("tagKeys.{}.member", at + 1), key)?;
        }
        Ok(request)
    }
}

impl Reply {
    /// `AddTags` and `ListTags`: all that the resource has.
    pub fn tags(tags: &[Tag]) -> Self {
        Self::of(json!({"Tags": to_json(tags)}))
    }
}

/// Refuses keys that are there twice, and AWS's own.
///
/// # Errors
/// The first tag that breaks a rule.
pub fn check(tags: Vec<Tag>) -> Result<Vec<Tag>, Error> {
    let mut keys = BTreeSet::new();
    for (at, Tag { key, .. }) in tags.iter().enumerate() {
        reserved(&format!("tags.{}.member.key", at + 1), key)?;
        if !keys.insert(key.as_str()) {
            return Err(Error::validation(format!(
                "Invalid value at 'tags': the tag key '{key}' is there twice; keys are unique."
            )));
        }
    }
    Ok(tags)
}

/// The value of [`MIN_INSTANCES_TAG`], for a training job on this number of instances; none if
/// there is no such tag.
///
/// # Errors
/// It is no number of them.
pub(crate) fn min_instances(tags: &[Tag], instances: u32) -> Result<Option<u32>, Error> {
    let Some(Tag { value, .. }) = tags.iter().find(|tag| tag.key == MIN_INSTANCES_TAG) else { return Ok(None) };
    match value.parse() {
        Ok(number) if (1..=instances).contains(&number) => Ok(Some(number)),
        _ => Err(Error::validation(format!(
            "Invalid value '{}' of the tag '{MIN_INSTANCES_TAG}': give a number from 1 to the InstanceCount, which is \
             {instances}.",
            value.escape_debug()
        ))),
    }
}

/// The value of [`PRIORITY_TAG`]; none if there is no such tag.
///
/// # Errors
/// It is no such number.
pub fn priority(tags: &[Tag]) -> Result<Option<i32>, Error> {
    let Some(Tag { value, .. }) = tags.iter().find(|tag| tag.key == PRIORITY_TAG) else { return Ok(None) };
    match value.parse() {
        Ok(number) if (-MOST_PRIORITY..=MOST_PRIORITY).contains(&number) => Ok(Some(number)),
        _ => Err(Error::validation(format!(
            "Invalid value '{}' of the tag '{PRIORITY_TAG}': give a whole number from -{MOST_PRIORITY} to \
             {MOST_PRIORITY}.",
            value.escape_debug()
        ))),
    }
}

fn reserved(path: &str, key: &str) -> Result<(), Error> {
    if key.to_lowercase().starts_with("aws:") {
        return Err(Error::validation(format!(
            "Invalid value at '{path}': the tag key '{key}' begins with 'aws:', which is reserved; choose another key."
        )));
    }
    Ok(())
}

/// Adds tags to those that a resource has; one of the same key is overwritten.
///
/// # Errors
/// The resource would have too many.
pub fn add(present: &mut Vec<Tag>, tags: Vec<Tag>) -> Result<(), Error> {
    for tag in tags {
        match present.iter_mut().find(|it| it.key == tag.key) {
            Some(it) => it.value = tag.value,
            None => present.push(tag),
        }
    }
    if present.len() > MOST_TAGS {
        return Err(Error::validation(format!(
            "Invalid value at 'tags': the resource would have {} tags, and {MOST_TAGS} are allowed; delete some first \
             (DeleteTags).",
            present.len()
        )));
    }
    Ok(())
}

/// The tags as AWS writes them.
pub fn to_json(tags: &[Tag]) -> Value {
    tags.iter().map(|tag| json!({"Key": tag.key, "Value": tag.value})).collect()
}

/// Tags that [`to_json`] wrote; none if there are none.
///
/// # Errors
/// The bytes are something else.
pub fn from_json(bytes: &[u8]) -> Result<Vec<Tag>, serde_json::Error> {
    serde_json::from_slice::<Option<Vec<Tag>>>(bytes).map(Option::unwrap_or_default)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tags(text: &str) -> Vec<Tag> {
        let pair =
            |pair: &str| pair.split_once('=').map(|(key, value)| Tag { key: key.to_owned(), value: value.to_owned() });
        text.split_whitespace().filter_map(pair).collect()
    }

    #[test]
    fn the_same_key_is_overwritten_and_there_is_a_limit() {
        let check = |present: &str, added: &str, expected: Option<&str>| {
            let mut all = tags(present);
            let outcome = add(&mut all, tags(added));
            assert_eq!(outcome.is_ok().then_some(all), expected.map(tags), "{present} and {added}");
        };
        let many = |count: usize| (0..count).map(|at| format!("k{at}=v ")).collect::<String>();
        check("", "a=1", Some("a=1"));
        check("a=1 b=2", "b=3 c=", Some("a=1 b=3 c="));
        check("a=1", "A=2", Some("a=1 A=2"));
        check(&many(50), "k7=other", Some(&many(50).replace("k7=v", "k7=other")));
        check(&many(50), "more=v", None);
    }

    #[test]
    fn rows_hold_tags_or_nothing() {
        assert_eq!(from_json(b"null").expect("none"), []);
        assert_eq!(from_json(to_json(&tags("a=1 b=")).to_string().as_bytes()).expect("two"), tags("a=1 b="));
        assert!(from_json(b"{}").is_err());
    }
}
