//! A list that was one optional value in earlier versions, and is still written as such while it
//! has at most one.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum OneOrMany {
    One(Option<String>),
    Many(Vec<String>),
}

pub(crate) fn serialize<S: Serializer>(values: &[String], serializer: S) -> Result<S::Ok, S::Error> {
    let written = match values {
        [] => OneOrMany::One(None),
        [one] => OneOrMany::One(Some(one.clone())),
        many => OneOrMany::Many(many.to_vec()),
    };
    written.serialize(serializer)
}

pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    Ok(match OneOrMany::deserialize(deserializer)? {
        OneOrMany::One(one) => one.into_iter().collect(),
        OneOrMany::Many(many) => many,
    })
}
