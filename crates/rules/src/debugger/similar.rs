//! SimilarAcrossRuns: tensors that are those of another run.

use std::collections::BTreeMap;

use super::unchanged::hash;
use super::{COLLECTION_NAMES, Rule, TENSOR_REGEX, selected, selection};
use crate::declaration::{Declaration, Make};
use crate::finding::Finding;
use crate::parameters::{Kind, Parameter};
use crate::selection::Selection;
use crate::step::{Saved, Step};

/// Tensors of other runs that are remembered.
const MAX_REMEMBERED: usize = 200_000;

/// Relative difference of moments up to which tensors are similar.
const TOLERANCE: f64 = 1e-5;

pub(crate) static SIMILAR_ACROSS_RUNS: Declaration = Declaration {
    name: "SimilarAcrossRuns",
    summary: "All tensors of a step are those that another run saved in it.",
    parameters: &[
        Parameter {
            name: "other_trials",
            kind: Kind::Names,
            default: None,
            doc: "S3 prefixes of the tensors of other runs; `other_trial_0` and so on are the same one by one.",
        },
        COLLECTION_NAMES,
        TENSOR_REGEX,
    ],
    collections: &[],
    make: Make::Tensors(|parameters| {
        Box::new(SimilarAcrossRuns { tensors: [selection(parameters)], others: BTreeMap::new() })
    }),
};

#[derive(Debug)]
struct SimilarAcrossRuns {
    tensors: [Selection; 1],
    /// By run, step and name.
    others: BTreeMap<(usize, u64, String), Digest>,
}

/// What is remembered of a tensor.
#[derive(Debug, Clone, Copy)]
struct Digest {
    hash: u64,
    moments: [f64; 4],
}

impl Digest {
    fn of(saved: &Saved<'_>) -> Option<Self> {
        let statistics = saved.statistics()?;
        let hash = hash(&saved.tensor.as_ref()?.bytes);
        Some(Self { hash, moments: [statistics.mean, statistics.variance, statistics.min, statistics.max] })
    }

    fn is_similar(&self, other: &Self) -> bool {
        let is_close = |(a, b): (&f64, &f64)| (a - b).abs() <= TOLERANCE * a.abs().max(b.abs());
        self.hash == other.hash || self.moments.iter().zip(&other.moments).all(is_close)
    }
}

impl Rule for SimilarAcrossRuns {
    fn needs(&self) -> &[Selection] {
        &self.tensors
    }

    fn observe_other(&mut self, run: usize, step: &Step<'_>) {
        for saved in selected(step, &self.tensors[0]) {
            if self.others.len() < MAX_REMEMBERED
                && let Some(digest) = Digest::of(saved)
            {
                self.others.insert((run, step.step, saved.name.clone()), digest);
            }
        }
    }

    fn observe(&mut self, step: &Step<'_>) -> Option<Finding> {
        let runs = self.others.last_key_value().map_or(0, |((run, ..), _)| run + 1);
        (0..runs).find_map(|run| {
            let mut compared = 0_u32;
            let mut first = None;
            for saved in selected(step, &self.tensors[0]) {
                let Some(other) = self.others.get(&(run, step.step, saved.name.clone())) else { continue };
                if !Digest::of(saved)?.is_similar(other) {
                    return None;
                }
                compared += 1;
                first.get_or_insert_with(|| step.describe(saved));
            }
            let subject = first?;
            let text = format!(
                "all {compared} tensors that other run {run} saved in this step, {subject} among them, are the same \
                 here. Check that the two runs differ in what they should (data, hyperparameters, seed)."
            );
            Some(Finding { step: step.step, subject, value: f64::from(compared), text })
        })
    }

    fn end(&mut self) -> Result<Option<Finding>, String> {
        if self.others.is_empty() {
            return Err("no tensors of another run were found; give their S3 prefix as other_trial_0.".to_owned());
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use crate::selection::Groups;
    use crate::testing::{evaluation, step};
    use crate::{Catalogue, Status};

    #[test]
    fn a_run_that_is_another_one_again_is_found() {
        let groups = Groups::default();
        for (values, is_found) in [([1.0, 2.0], true), ([1.0, 2.000_001], true), ([1.0, 2.1], false)] {
            let mut evaluation = evaluation("SimilarAcrossRuns", &[("other_trial_0", "s3://bucket/run")]);
            evaluation.observe_other(0, &step(&groups, 3, &[("v", &[5.0]), ("w", &[1.0, 2.0])]));
            assert_eq!(evaluation.observe(&step(&groups, 2, &[("w", &[1.0, 2.0])])), None, "another step");
            let conclusion = evaluation.observe(&step(&groups, 3, &[("w", &values), ("own", &[1.0])]));
            assert_eq!(conclusion.is_some(), is_found, "{values:?}");
            if let Some(found) = conclusion {
                assert!(found.details.contains("all 1 tensors that other run 0 saved in this step, w among them"));
            }
        }
    }

    #[test]
    fn without_another_run_it_is_not_evaluated() {
        let groups = Groups::default();
        let mut evaluation = evaluation("SimilarAcrossRuns", &[]);
        assert_eq!(evaluation.observe(&step(&groups, 0, &[("w", &[1.0])])), None);
        let ended = evaluation.end(&groups, &Catalogue::default()).unwrap();
        assert_eq!(ended.status, Status::Error);
        assert!(ended.details.ends_with("give their S3 prefix as other_trial_0."), "{}", ended.details);
    }
}
