//! FeatureImportanceOverweight and TreeDepth: gradient-boosted trees.

use std::collections::BTreeMap;

use super::{Rule, finding, selected};
use crate::declaration::{Declaration, Make};
use crate::finding::{Finding, Short};
use crate::parameters::{COUNT, Kind, Parameter};
use crate::selection::Selection;
use crate::step::{Saved, Step};

pub(crate) static FEATURE_IMPORTANCE_OVERWEIGHT: Declaration = Declaration {
    name: "FeatureImportanceOverweight",
    summary: "A few features have most of the importance.",
    parameters: &[
        Parameter {
            name: "threshold",
            kind: Kind::Number(0.0, 1.0),
            default: Some("0.8"),
            doc: "Highest share of the importance that the most important features have.",
        },
        Parameter { name: "nfeatures", kind: COUNT, default: Some("3"), doc: "How many features these are." },
        Parameter {
            name: "tensor_regex",
            kind: Kind::Expressions,
            default: Some(".*feature_importance/weight"),
            doc: "Expressions for the names of importances.",
        },
    ],
    collections: &["feature_importance"],
    make: Make::Tensors(|parameters| {
        Box::new(FeatureImportance {
            importances: [Selection::new(Vec::new(), &parameters.list("tensor_regex"))],
            threshold: parameters.number("threshold"),
            features: usize::try_from(parameters.integer("nfeatures")).unwrap_or(usize::MAX),
        })
    }),
};

pub(crate) static TREE_DEPTH: Declaration = Declaration {
    name: "TreeDepth",
    summary: "A tree is deeper than a threshold.",
    parameters: &[Parameter { name: "depth", kind: COUNT, default: Some("4"), doc: "Greatest depth of a tree." }],
    collections: &["trees"],
    make: Make::Tensors(|parameters| {
        Box::new(TreeDepth {
            nodes: [Selection::new(Vec::new(), &["^trees/Node".to_owned()])],
            depth: parameters.integer("depth"),
        })
    }),
};

#[derive(Debug)]
struct FeatureImportance {
    importances: [Selection; 1],
    threshold: f64,
    features: usize,
}

/// A feature's importance, and where it was saved.
struct Importance<'a> {
    value: f64,
    feature: &'a str,
    saved: &'a Saved<'a>,
}

impl Rule for FeatureImportance {
    fn needs(&self) -> &[Selection] {
        &self.importances
    }

    fn observe(&mut self, step: &Step<'_>) -> Option<Finding> {
        // Importances by worker and kind, as `feature_importance/weight/f0`.
        let mut kinds: BTreeMap<(&str, &str), Vec<Importance<'_>>> = BTreeMap::new();
        for saved in selected(step, &self.importances[0]) {
            let Some((kind, feature)) = saved.name.rsplit_once('/') else { continue };
            let value = saved.tensor.as_ref().and_then(|tensor| tensor.scalar());
            let Some(value) = value.filter(|value| *value >= 0.0) else { continue };
            kinds.entry((&saved.worker, kind)).or_default().push(Importance { value, feature, saved });
        }
        kinds.into_iter().find_map(|((_, kind), mut features)| {
            features.sort_by(|a, b| b.value.total_cmp(&a.value));
            let total: f64 = features.iter().map(|feature| feature.value).sum();
            // All features have all of the importance.
            if features.len() <= self.features || total <= 0.0 {
                return None;
            }
            let (largest, _) = features.split_at(self.features);
            let share = largest.iter().map(|feature| feature.value).sum::<f64>() / total;
            (share > self.threshold).then(|| {
                let names = Vec::from_iter(largest.iter().map(|feature| feature.feature)).join(", ");
                let text = format!(
                    "{names} have {} of the importance ({kind}) of all {} features, more than {}. Check that they do \
                     not give the label away; try to leave them out or to sample features (colsample_bytree).",
                    Short(share),
                    features.len(),
                    Short(self.threshold)
                );
                finding(step, largest[0].saved, share, text)
            })
        })
    }
}

#[derive(Debug)]
struct TreeDepth {
    nodes: [Selection; 1],
    depth: u64,
}

impl Rule for TreeDepth {
    fn needs(&self) -> &[Selection] {
        &self.nodes
    }

    fn observe(&mut self, step: &Step<'_>) -> Option<Finding> {
        selected(step, &self.nodes[0]).find_map(|saved| {
            let largest = saved.statistics().filter(|it| it.count > it.nans + it.infinities && it.max >= 0.0)?.max;
            // The children of node n are 2n + 1 and 2n + 2.
            let depth = u64::from((largest as u64).saturating_add(1).ilog2());
            (depth > self.depth).then(|| {
                let text = format!(
                    "a tree has node {largest} and so a depth of {depth}, more than {}. Try a lower max_depth, or \
                     max_leaves.",
                    self.depth
                );
                finding(step, saved, depth as f64, text)
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::findings;

    #[test]
    fn features_that_have_most_of_the_importance_are_found() {
        let judge = |last: f32, given: &[(&str, &str)]| {
            let last = [last];
            let tensors: &[(&str, &[f32])] = &[
                ("feature_importance/weight/f0", &[4.0]),
                ("feature_importance/weight/f1", &[4.0]),
                ("feature_importance/weight/f2", &[3.0]),
                ("feature_importance/weight/f3", &last),
                ("feature_importance/gain/f0", &[1000.0]),
            ];
            findings("FeatureImportanceOverweight", given, &[tensors])
        };
        let found = judge(1.0, &[]).unwrap();
        assert!(found.text.starts_with("f0, f1, f2 have 0.9167 of the importance"), "{}", found.text);
        assert_eq!(judge(3.5, &[]), None);
        assert_eq!(judge(3.5, &[("nfeatures", "4")]), None, "that would be all of them");
        assert_eq!(judge(3.5, &[("nfeatures", "1"), ("threshold", "0.2")]).unwrap().value, 4.0 / 14.5);
    }

    #[test]
    fn deep_trees_are_found() {
        for (largest, depth, is_found) in [(31.0, "4", true), (30.0, "4", false), (30.0, "3", true), (0.0, "1", false)]
        {
            let tensors: &[(&str, &[f32])] = &[("trees/Node", &[0.0, 1.0, largest]), ("trees/Gain", &[1e6])];
            let found = findings("TreeDepth", &[("depth", depth)], &[tensors]);
            assert_eq!(found.is_some(), is_found, "{largest} {depth}");
        }
    }
}
