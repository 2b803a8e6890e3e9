//! Which tensors a rule reads: by collections and by expressions.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use fancy_regex::Regex;
use shoal_contract::tensors::Collections;

/// Names of which it is remembered whether they are selected; the others are matched each time.
const MAX_REMEMBERED: usize = 65_536;

/// Collections that hooks have without a configuration; whether they are saved is another question.
const OF_FRAMEWORKS: [&str; 18] = [
    "all",
    "average_shap",
    "biases",
    "default",
    "feature_importance",
    "full_shap",
    "gradients",
    "hyperparameters",
    "inputs",
    "labels",
    "layers",
    "losses",
    "metrics",
    "optimizer_variables",
    "outputs",
    "predictions",
    "trees",
    "weights",
];

/// The collections of all workers of a host, compiled.
#[derive(Debug, Default)]
pub struct Groups {
    groups: BTreeMap<String, Group>,
    version: u64,
}

#[derive(Debug, Default)]
struct Group {
    names: BTreeSet<String>,
    expressions: BTreeMap<String, Regex>,
}

impl Groups {
    /// Adds what a worker's collections file has. Expressions that are not valid match nothing.
    pub fn add(&mut self, collections: &Collections) {
        self.version += 1;
        for (name, collection) in &collections.collections {
            let group = self.groups.entry(name.clone()).or_default();
            group.names.extend(collection.tensor_names.iter().cloned());
            for expression in &collection.include_regex {
                if let Ok(regex) = Regex::new(expression) {
                    group.expressions.insert(expression.clone(), regex);
                }
            }
        }
    }

    /// Names of the collections that have members.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.groups.iter().filter(|(_, group)| !group.names.is_empty()).map(|(name, _)| name.as_str())
    }

    fn includes(&self, collection: &str, tensor: &str) -> bool {
        self.groups.get(collection).is_some_and(|group| {
            group.names.contains(tensor) || group.expressions.values().any(|regex| is_match(regex, tensor))
        })
    }
}

/// What a rule reads. A tensor belongs to it if it is in one of the collections or matches one of
/// the expressions; without either, every tensor does.
#[derive(Debug)]
pub(crate) struct Selection {
    collections: Vec<String>,
    expressions: Vec<Regex>,
    /// How frameworks' hooks name what is in the collections, for programs without definitions.
    defaults: Vec<Regex>,
    remembered: RefCell<Remembered>,
}

#[derive(Debug, Default)]
struct Remembered {
    version: u64,
    names: BTreeMap<String, bool>,
}

impl Selection {
    /// Expressions were checked before, or are constants.
    pub(crate) fn new(collections: Vec<String>, expressions: &[String]) -> Self {
        let compile = |text: &str| Regex::new(text).expect("expressions are checked with the parameters");
        let expressions = expressions.iter().map(|text| compile(text)).collect();
        let defaults = collections
            .iter()
            .flat_map(|name| Collections::default_expressions(name))
            .map(|text| compile(text))
            .collect();
        Self { collections, expressions, defaults, remembered: RefCell::default() }
    }

    /// Of one collection.
    pub(crate) fn of_collection(name: &str) -> Self {
        Self::new(vec![name.to_owned()], &[])
    }

    /// Whether a tensor belongs to it.
    pub(crate) fn includes(&self, tensor: &str, groups: &Groups) -> bool {
        let mut remembered = self.remembered.borrow_mut();
        if remembered.version != groups.version {
            *remembered = Remembered { version: groups.version, names: BTreeMap::new() };
        }
        if let Some(is_included) = remembered.names.get(tensor) {
            return *is_included;
        }
        let is_included = self.matches(tensor, groups);
        if remembered.names.len() < MAX_REMEMBERED {
            remembered.names.insert(tensor.to_owned(), is_included);
        }
        is_included
    }

    fn matches(&self, tensor: &str, groups: &Groups) -> bool {
        if self.collections.is_empty() && self.expressions.is_empty() {
            return true;
        }
        self.collections.iter().any(|collection| groups.includes(collection, tensor))
            || self.expressions.iter().chain(&self.defaults).any(|regex| is_match(regex, tensor))
    }

    /// What it selects, for people.
    pub(crate) fn describe(&self) -> String {
        let expressions = Vec::from_iter(self.expressions.iter().map(Regex::as_str));
        match (self.collections.is_empty(), expressions.is_empty()) {
            (true, true) => "tensors".to_owned(),
            (false, true) => format!("tensors of collection {}", self.collections.join(", ")),
            (true, false) => format!("tensors whose names match {}", expressions.join(", ")),
            (false, false) => {
                let (collections, expressions) = (self.collections.join(", "), expressions.join(", "));
                format!("tensors of collection {collections}, or whose names match {expressions}")
            }
        }
    }

    /// What to change in `DebugHookConfig`, or in the rule, so that there are some.
    pub(crate) fn advice(&self, groups: &Groups) -> String {
        match (self.collections.first(), self.expressions.first()) {
            (Some(name), _) if OF_FRAMEWORKS.contains(&name.as_str()) => {
                format!("add {{\"CollectionName\": \"{name}\"}} to CollectionConfigurations")
            }
            (Some(name), _) if groups.groups.contains_key(name) => {
                format!(
                    "the collection {name} is there, and no tensor that was saved is in it: change its include_regex"
                )
            }
            (Some(name), _) => format!(
                "no framework has a collection {name}, nor has CollectionConfigurations: give the rule one that there is \
                 ({}), or add {{\"CollectionName\": \"{name}\", \"CollectionParameters\": {{\"include_regex\": ..}}}}",
                Vec::from_iter(groups.groups.keys().map(String::as_str)).join(", ")
            ),
            (None, Some(regex)) => format!(
                "add a collection with {{\"include_regex\": \"{}\"}} to CollectionConfigurations, or set the rule's \
                 parameter to a name that there is",
                regex.as_str()
            ),
            (None, None) => "add a collection to CollectionConfigurations".to_owned(),
        }
    }
}

/// An expression that runs into its step limit matches nothing.
fn is_match(regex: &Regex, text: &str) -> bool {
    regex.is_match(text).unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use super::*;
    use shoal_contract::tensors::Collection;

    #[test]
    fn tensors_are_selected_by_name_expression_and_habit() {
        let mut groups = Groups::default();
        let chosen = Selection::new(vec!["custom".into(), "gradients".into()], &["^x".into()]);
        assert!(!chosen.includes("relu_1", &groups), "no collections file yet");
        groups.add(&Collections::new(1, [Collection::new("custom", &["relu", "(broken"], &["named"])]));
        for (name, expected) in
            [("relu_1", true), ("named", true), ("gradient/w", true), ("xx", true), ("other", false), ("w", false)]
        {
            for _ in 0..2 {
                assert_eq!(chosen.includes(name, &groups), expected, "{name}");
            }
        }
        assert!(Selection::new(Vec::new(), &[]).includes("anything", &groups));
        assert_eq!(groups.names().collect::<Vec<_>>(), ["custom"]);
    }
}
