//! ClassImbalance and Confusion: labels and predictions of classes.

use std::collections::BTreeMap;

use shoal_contract::tensors::Tensor;

use super::Rule;
use crate::declaration::{Declaration, Make};
use crate::finding::{Finding, Short};
use crate::parameters::{COUNT, Kind, POSITIVE, Parameter};
use crate::selection::Selection;
use crate::step::Step;

/// Classes that are distinguished.
const MAX_CLASSES: u64 = 1000;

const SHARE: Kind = Kind::Number(0.0, 1.0);

pub(crate) static CLASS_IMBALANCE: Declaration = Declaration {
    name: "ClassImbalance",
    summary: "A class has many more samples than another, or is mispredicted too often.",
    parameters: &[
        Parameter {
            name: "threshold_imbalance",
            kind: POSITIVE,
            default: Some("10"),
            doc: "Highest ratio of the samples of the largest to those of the smallest class.",
        },
        Parameter {
            name: "threshold_misprediction",
            kind: SHARE,
            default: Some("0.7"),
            doc: "Highest share of a class that is mispredicted.",
        },
        Parameter { name: "samples", kind: COUNT, default: Some("500"), doc: "Labels before anything is judged." },
        Parameter {
            name: "argmax",
            kind: Kind::Flag,
            default: Some("False"),
            doc: "Whether predictions are a score for each class.",
        },
        Parameter { name: "labels_regex", kind: Kind::Expressions, default: Some(".*labels"), doc: "Names of labels." },
        Parameter {
            name: "predictions_regex",
            kind: Kind::Expressions,
            default: Some(".*predictions"),
            doc: "Names of predictions.",
        },
    ],
    collections: &["labels", "predictions"],
    make: Make::Tensors(|parameters| {
        let named = |name| Selection::new(Vec::new(), &parameters.list(name));
        Box::new(ClassImbalance {
            pairs: Pairs { of: [named("labels_regex"), named("predictions_regex")] },
            imbalance: parameters.number("threshold_imbalance"),
            misprediction: parameters.number("threshold_misprediction"),
            samples: parameters.integer("samples"),
            classes: BTreeMap::new(),
            seen: 0,
        })
    }),
};

pub(crate) static CONFUSION: Declaration = Declaration {
    name: "Confusion",
    summary: "The confusion matrix of a step has too little on its diagonal, or too much off it.",
    parameters: &[
        Parameter {
            name: "category_no",
            kind: Kind::Integer(2, MAX_CLASSES),
            default: None,
            doc: "Number of classes; without it as many as the labels have.",
        },
        Parameter { name: "labels", kind: Kind::Text, default: Some("labels"), doc: "Tensor or collection of labels." },
        Parameter {
            name: "predictions",
            kind: Kind::Text,
            default: Some("predictions"),
            doc: "Tensor or collection of predictions.",
        },
        Parameter {
            name: "labels_collection",
            kind: Kind::Text,
            default: Some("labels"),
            doc: "Collection of labels.",
        },
        Parameter {
            name: "predictions_collection",
            kind: Kind::Text,
            default: Some("predictions"),
            doc: "Collection of predictions.",
        },
        Parameter {
            name: "min_diag",
            kind: SHARE,
            default: Some("0.9"),
            doc: "Least share of the samples with a label that are predicted as it.",
        },
        Parameter {
            name: "max_off_diag",
            kind: SHARE,
            default: Some("0.1"),
            doc: "Highest share of the samples with a label that are predicted as a certain other.",
        },
    ],
    collections: &["labels", "predictions"],
    make: Make::Tensors(|parameters| {
        let named = |name: &str| {
            let collections =
                vec![parameters.text(name).to_owned(), parameters.text(&format!("{name}_collection")).to_owned()];
            let exactly = format!("^{}$", fancy_regex::escape(parameters.text(name)));
            Selection::new(collections, &[exactly])
        };
        Box::new(Confusion {
            pairs: Pairs { of: [named("labels"), named("predictions")] },
            classes: parameters.optional_integer("category_no"),
            least: parameters.number("min_diag"),
            most: parameters.number("max_off_diag"),
        })
    }),
};

/// Labels and the predictions of the same samples.
#[derive(Debug)]
struct Pairs {
    of: [Selection; 2],
}

impl Pairs {
    /// Label and prediction of each sample of a step; `None` for a prediction that is no class.
    fn read(&self, step: &Step<'_>) -> Vec<(u64, Option<u64>)> {
        let [labels, predictions] = &self.of;
        let find = |selection: &Selection, worker: Option<&str>| {
            step.saved().iter().find(|saved| {
                worker.is_none_or(|worker| worker == saved.worker) && selection.includes(&saved.name, step.groups)
            })
        };
        let mut pairs = Vec::new();
        let mut workers = Vec::from_iter(step.saved().iter().map(|saved| saved.worker.as_str()));
        workers.sort_unstable();
        workers.dedup();
        for worker in workers {
            let (Some(label), Some(prediction)) = (find(labels, Some(worker)), find(predictions, Some(worker))) else {
                continue;
            };
            let (Some(label), Some(prediction)) = (&label.tensor, &prediction.tensor) else { continue };
            let (Some(label), Some(prediction)) = (classes(label, None), classes(prediction, Some(label.len()))) else {
                continue;
            };
            if label.len() == prediction.len() {
                pairs.extend(
                    label.into_iter().zip(prediction).filter_map(|(label, prediction)| Some((label?, prediction))),
                );
            }
        }
        pairs
    }
}

/// The class of each sample. Scores of several classes give the highest, and a probability gives
/// class 1 from one half on.
fn classes(tensor: &Tensor<'_>, samples: Option<usize>) -> Option<Vec<Option<u64>>> {
    let values = tensor.values().ok()?;
    let rows = samples.or_else(|| tensor.shape.first().and_then(|size| usize::try_from(*size).ok())).unwrap_or(1);
    if rows == 0 || values.is_empty() || values.len() % rows != 0 {
        return None;
    }
    let class = |row: &[f64]| match row {
        [value] => {
            let class = value.round();
            (class >= 0.0 && class < MAX_CLASSES as f64).then_some(class as u64)
        }
        scores => {
            let best = scores.iter().enumerate().max_by(|(_, a), (_, b)| a.total_cmp(b)).map(|(index, _)| index as u64);
            best.filter(|class| *class < MAX_CLASSES)
        }
    };
    Some(values.chunks_exact(values.len() / rows).map(class).collect())
}

#[derive(Debug)]
struct ClassImbalance {
    pairs: Pairs,
    imbalance: f64,
    misprediction: f64,
    samples: u64,
    /// Samples and mispredictions of each.
    classes: BTreeMap<u64, (u64, u64)>,
    seen: u64,
}

impl Rule for ClassImbalance {
    fn needs(&self) -> &[Selection] {
        &self.pairs.of
    }

    fn observe(&mut self, step: &Step<'_>) -> Option<Finding> {
        for (label, prediction) in self.pairs.read(step) {
            let (samples, wrong) = self.classes.entry(label).or_default();
            *samples += 1;
            *wrong += u64::from(prediction != Some(label));
            self.seen += 1;
        }
        if self.seen < self.samples {
            return None;
        }
        let (smallest, (few, _)) = self.classes.iter().min_by_key(|(_, (samples, _))| *samples)?;
        let (largest, (many, _)) = self.classes.iter().max_by_key(|(_, (samples, _))| *samples)?;
        let ratio = *many as f64 / *few as f64;
        if ratio > self.imbalance {
            let text = format!(
                "class {largest} has {many} labels and class {smallest} {few}: a ratio of {}, above the threshold {}. \
                 Try weights for classes, or sample them evenly.",
                Short(ratio),
                Short(self.imbalance)
            );
            return Some(Finding { step: step.step, subject: format!("class {smallest}"), value: ratio, text });
        }
        self.classes.iter().find_map(|(class, (samples, wrong))| {
            let share = *wrong as f64 / *samples as f64;
            (share > self.misprediction).then(|| {
                let text = format!(
                    "{wrong} of {samples} samples of class {class} were mispredicted: a share of {}, above the \
                     threshold {}. Try weights for classes or more samples of this one.",
                    Short(share),
                    Short(self.misprediction)
                );
                Finding { step: step.step, subject: format!("class {class}"), value: share, text }
            })
        })
    }
}

#[derive(Debug)]
struct Confusion {
    pairs: Pairs,
    classes: Option<u64>,
    least: f64,
    most: f64,
}

impl Rule for Confusion {
    fn needs(&self) -> &[Selection] {
        &self.pairs.of
    }

    fn observe(&mut self, step: &Step<'_>) -> Option<Finding> {
        let mut matrix: BTreeMap<u64, BTreeMap<Option<u64>, u64>> = BTreeMap::new();
        for (label, prediction) in self.pairs.read(step) {
            if self.classes.is_none_or(|classes| label < classes) {
                *matrix.entry(label).or_default().entry(prediction).or_default() += 1;
            }
        }
        matrix.iter().find_map(|(label, row)| {
            let samples: u64 = row.values().sum();
            let share = |count: u64| count as f64 / samples as f64;
            let right = share(row.get(&Some(*label)).copied().unwrap_or(0));
            let wrong =
                row.iter().filter(|(prediction, _)| **prediction != Some(*label)).max_by_key(|(_, count)| **count);
            let subject = format!("class {label}");
            if right < self.least {
                let text = format!(
                    "{} of the {samples} samples of class {label} are predicted as it, less than min_diag {}. The \
                     model does not tell this class from the others yet.",
                    Short(right),
                    Short(self.least)
                );
                return Some(Finding { step: step.step, subject, value: right, text });
            }
            let (other, share) =
                wrong.map(|(other, count)| (*other, share(*count))).filter(|(_, it)| *it > self.most)?;
            let other = other.map_or("no class".to_owned(), |other| format!("class {other}"));
            let text = format!(
                "{} of the {samples} samples of class {label} are predicted as {other}, more than max_off_diag {}. \
                 Try more samples of these classes.",
                Short(share),
                Short(self.most)
            );
            Some(Finding { step: step.step, subject, value: share, text })
        })
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::{evaluation, findings, train};
    use crate::training::{Activation, Network};

    #[test]
    fn a_rare_class_and_one_that_is_mispredicted_are_found() {
        let labels = Vec::from_iter((0..600).map(|index| f32::from(u8::from(index % 50 == 0))));
        let right: &[(&str, &[f32])] = &[("labels", &labels), ("predictions", &labels)];
        let found = findings("ClassImbalance", &[], &[right]).unwrap();
        assert_eq!((found.subject.as_str(), found.value), ("class 1", 49.0));
        assert!(found.text.starts_with("class 0 has 588 labels and class 1 12: a ratio of 49"), "{}", found.text);
        assert_eq!(findings("ClassImbalance", &[("samples", "601")], &[right]), None);
        let wrong: &[(&str, &[f32])] = &[("labels", &labels), ("predictions", &[0.0; 600])];
        let found = findings("ClassImbalance", &[("threshold_imbalance", "50")], &[wrong]).unwrap();
        assert!(found.text.starts_with("12 of 12 samples of class 1 were mispredicted"), "{}", found.text);
    }

    #[test]
    fn a_real_training_is_balanced_and_soon_not_confused() {
        let network = || Network::new(&[4, 16, 2], Activation::Tanh, 1.0, 8);
        let argmax = [("argmax", "True")];
        assert_eq!(train(network(), 0.2, 60, &mut evaluation("ClassImbalance", &argmax)), None);
        let found = train(network(), 0.0, 60, &mut evaluation("Confusion", &[])).unwrap();
        assert!(found.text.contains("less than min_diag 0.9"), "{}", found.text);
        let later = [("start_step", "50"), ("min_diag", "0.8"), ("max_off_diag", "0.2")];
        assert_eq!(train(network(), 0.2, 60, &mut evaluation("Confusion", &later)), None);
    }

    #[test]
    fn probabilities_and_class_numbers_are_classes() {
        let labels: &[f32] = &[0.0, 1.0, 1.0, 0.0];
        let judge = |predictions: &[f32], given: &[(&str, &str)]| {
            findings("Confusion", given, &[&[("labels", labels), ("predictions", predictions)]])
        };
        assert_eq!(judge(&[0.1, 0.9, 0.6, 0.4], &[]), None);
        let found = judge(&[0.1, 0.9, 0.1, 0.4], &[]).unwrap();
        assert_eq!((found.subject.as_str(), found.value), ("class 1", 0.5));
        let found = judge(&[0.1, 0.9, 0.1, 0.4], &[("min_diag", "0.5")]).unwrap();
        assert!(found.text.contains("are predicted as class 0, more than max_off_diag 0.1"), "{}", found.text);
        assert_eq!(judge(&[f32::NAN, 1.0, 1.0, 0.0], &[("min_diag", "0.5"), ("max_off_diag", "0.5")]), None);
        let scores = [0.9, 0.1, 0.2, 0.8, 0.3, 0.7, 0.6, 0.4];
        assert_eq!(judge(&scores, &[]), None, "two scores for each label");
    }
}
