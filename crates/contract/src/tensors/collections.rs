//! The collections file of a worker: tensors by the names of their groups.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{Mode, TensorError};

const FILE: &str = "the collections file";

/// The collections of a training program.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Collections {
    /// By name.
    pub collections: BTreeMap<String, Collection>,
    #[serde(rename = "_meta", default)]
    meta: CollectionsMeta,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct CollectionsMeta {
    num_workers: u64,
    #[serde(flatten)]
    others: serde_json::Map<String, serde_json::Value>,
}

impl Default for CollectionsMeta {
    fn default() -> Self {
        Self { num_workers: 1, others: serde_json::Map::new() }
    }
}

/// A group of tensors.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Collection {
    /// Its name.
    pub name: String,
    /// Tensors whose names match any of these belong to it.
    #[serde(default, deserialize_with = "none_as_default")]
    pub include_regex: Vec<String>,
    /// Tensors that belong to it by name.
    #[serde(default, deserialize_with = "none_as_default")]
    pub tensor_names: Vec<String>,
    #[serde(default)]
    reduction_config: Option<serde_json::Value>,
    /// Steps at which it is saved, by mode.
    #[serde(default)]
    pub save_config: Option<BTreeMap<String, SaveSteps>>,
    /// Whether TensorBoard gets histograms.
    #[serde(default = "yes")]
    pub save_histogram: bool,
}

/// Steps at which a collection is saved.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SaveSteps {
    /// Steps from one to the next.
    pub save_interval: u64,
    /// And at these.
    #[serde(default)]
    pub save_steps: Vec<u64>,
    /// From this step on.
    pub start_step: u64,
    /// Before this one.
    pub end_step: Option<u64>,
}

/// Some writers have `null` and `false` in place of an empty list.
fn none_as_default<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    match serde_json::Value::deserialize(deserializer)? {
        serde_json::Value::Null | serde_json::Value::Bool(false) => Ok(Vec::new()),
        value => serde_json::from_value(value).map_err(serde::de::Error::custom),
    }
}

impl Collection {
    /// With tensors by expressions and by name.
    #[must_use]
    pub fn new(name: &str, expressions: &[&str], tensors: &[&str]) -> Self {
        let owned = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
        let (include_regex, tensor_names) = (owned(expressions), owned(tensors));
        Self { name: name.to_owned(), include_regex, tensor_names, save_histogram: true, ..Self::default() }
    }
}

fn yes() -> bool {
    true
}

impl Collections {
    /// Of workers in the whole job, with these collections.
    #[must_use]
    pub fn new(workers: u64, collections: impl IntoIterator<Item = Collection>) -> Self {
        let collections = collections.into_iter().map(|collection| (collection.name.clone(), collection)).collect();
        Self { collections, meta: CollectionsMeta { num_workers: workers, ..CollectionsMeta::default() } }
    }

    /// Reads the file.
    pub fn parse(bytes: &[u8]) -> Result<Self, TensorError> {
        serde_json::from_slice(bytes).map_err(|error| TensorError::Json { file: FILE, reason: error.to_string() })
    }

    /// The file's bytes.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("numbers and text are JSON")
    }

    /// Workers of the whole job.
    #[must_use]
    pub fn workers(&self) -> u64 {
        self.meta.num_workers
    }

    /// The expressions by which frameworks' hooks fill a collection where its definition has none.
    #[must_use]
    pub fn default_expressions(name: &str) -> &'static [&'static str] {
        match name {
            "all" => &["."],
            "weights" => &["^(?!gradient).*weight", "^(?!gradient).*kernel"],
            "biases" => &["^(?!gradient).*bias"],
            "gradients" => &["^gradient"],
            "losses" => &["[Ll]oss_(?!input).*output", "^(val_)?loss$"],
            "metrics" => &["^(train|validation|test|eval)[-_]"],
            "predictions" => &["^predictions$"],
            "labels" => &["^labels$"],
            "hyperparameters" => &["^hyperparameters/"],
            "feature_importance" => &["^feature_importance/"],
            "trees" => &["^trees/"],
            _ => &[],
        }
    }

    /// The steps at which a collection is saved in a mode.
    #[must_use]
    pub fn save_steps(&self, name: &str, mode: Mode) -> Option<&SaveSteps> {
        self.collections.get(name)?.save_config.as_ref()?.get(mode.name())
    }
}
