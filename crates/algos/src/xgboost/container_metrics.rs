//! The metrics that SageMaker's image adds to those of the library, as scikit-learn defines them
//! (unweighted): from the confusion matrix or from sums of errors, so that their values over
//! several hosts are exact.

use super::failure::Failure;
use super::ffi::booster::{Booster, Output, Predictions};
use super::ffi::matrix::Matrix;
use super::group::Group;

/// One of the image's own metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ContainerMetric {
    Accuracy,
    BalancedAccuracy,
    F1Macro,
    F1Binary,
    PrecisionBinary,
    PrecisionMacro,
    PrecisionMicro,
    RecallBinary,
    RecallMacro,
    RecallMicro,
    Mae,
    Mse,
    Rmse,
    R2,
}

use ContainerMetric::{
    Accuracy, BalancedAccuracy, F1Binary, F1Macro, Mae, Mse, PrecisionBinary, PrecisionMacro, PrecisionMicro, R2,
    RecallBinary, RecallMacro, RecallMicro, Rmse,
};

const NAMES: [(&str, ContainerMetric); 15] = [
    ("accuracy", Accuracy),
    ("balanced_accuracy", BalancedAccuracy),
    ("f1", F1Macro),
    ("f1_binary", F1Binary),
    ("f1_macro", F1Macro),
    ("mae", Mae),
    ("mse", Mse),
    ("precision", PrecisionBinary),
    ("precision_macro", PrecisionMacro),
    ("precision_micro", PrecisionMicro),
    ("r2", R2),
    ("recall", RecallBinary),
    ("recall_macro", RecallMacro),
    ("recall_micro", RecallMicro),
    ("rmse", Rmse),
];

impl ContainerMetric {
    /// The image's metric of that name, if it is one.
    pub(super) fn named(name: &str) -> Option<Self> {
        NAMES.iter().find(|(known, _)| *known == name).map(|(_, metric)| *metric)
    }

    fn is_regression(self) -> bool {
        matches!(self, Mae | Mse | Rmse | R2)
    }

    /// Needs exactly two classes.
    fn is_binary(self) -> bool {
        matches!(self, F1Binary | PrecisionBinary | RecallBinary)
    }
}

/// Computes some of the image's metrics.
#[derive(Debug, Clone)]
pub(super) struct ContainerMetrics {
    metrics: Vec<(String, ContainerMetric)>,
    classes: usize,
}

impl ContainerMetrics {
    /// Takes those of `asked` that are the image's. `classes` is the number of classes of a
    /// classification.
    pub(super) fn of(asked: &[String], classes: Option<usize>) -> Result<Self, Failure> {
        let metrics: Vec<_> =
            asked.iter().filter_map(|name| ContainerMetric::named(name).map(|metric| (name.clone(), metric))).collect();
        for (name, metric) in &metrics {
            match classes {
                None if !metric.is_regression() => {
                    return Err(Failure::User(format!(
                        "Metric '{name}' can only be applied for classification problems."
                    )));
                }
                Some(3..) if metric.is_binary() => {
                    return Err(Failure::User(format!(
                        "Target is multiclass but average='binary': choose {}_macro instead of metric '{name}'.",
                        name.trim_end_matches("_binary")
                    )));
                }
                _ => {}
            }
        }
        Ok(Self { metrics, classes: classes.unwrap_or(0) })
    }

    pub(super) fn is_empty(&self) -> bool {
        self.metrics.is_empty()
    }

    /// Whether `name` is computed here.
    pub(super) fn contains(&self, name: &str) -> bool {
        self.metrics.iter().any(|(known, _)| known == name)
    }

    /// Every metric of one set over all hosts, by name.
    pub(super) fn evaluate(
        &self,
        booster: &mut Booster,
        matrix: &Matrix,
        labels: &[f32],
        group: &Group,
    ) -> Result<Vec<(String, f64)>, Failure> {
        let wants = |regression| self.metrics.iter().any(|(_, metric)| metric.is_regression() == regression);
        let confusion = if wants(false) {
            let margins = booster.predict(matrix, Output::Margin)?;
            let mut confusion = Confusion::count(labels, &margins, self.classes)?;
            group.sum(&mut confusion.counts)?;
            Some(confusion)
        } else {
            None
        };
        let errors = if wants(true) {
            let predictions = booster.predict(matrix, Output::Transformed)?;
            Some(Errors::measure(labels, &predictions, group)?)
        } else {
            None
        };
        let value = |metric: ContainerMetric| match (&confusion, &errors) {
            (_, Some(errors)) if metric.is_regression() => errors.value(metric),
            (Some(confusion), _) => confusion.value(metric),
            _ => f64::NAN,
        };
        Ok(self.metrics.iter().map(|(name, metric)| (name.clone(), value(*metric))).collect())
    }
}

/// How many rows of each class were predicted as each class:
/// `counts[truth * classes + prediction]`.
#[derive(Debug)]
struct Confusion {
    counts: Vec<f64>,
    classes: usize,
}

impl Confusion {
    fn count(labels: &[f32], margins: &Predictions, classes: usize) -> Result<Self, Failure> {
        let mut confusion = Self { counts: vec![0.0; classes * classes], classes };
        for (label, margins) in labels.iter().zip(margins.values.chunks_exact(margins.columns.max(1))) {
            let prediction = match margins {
                // A margin above 0 is a probability above a half.
                [margin] => usize::from(*margin > 0.0),
                margins => argmax(margins),
            };
            let truth = *label as usize;
            if truth as f32 != *label || truth >= classes {
                return Err(Failure::User(format!("label {label} is not a class from 0 to {}", classes - 1)));
            }
            confusion.counts[truth * classes + prediction] += 1.0;
        }
        Ok(confusion)
    }

    fn hits(&self, class: usize) -> f64 {
        self.counts[class * self.classes + class]
    }

    fn labelled(&self, class: usize) -> f64 {
        self.counts[class * self.classes..][..self.classes].iter().sum()
    }

    fn predicted(&self, class: usize) -> f64 {
        (0..self.classes).map(|truth| self.counts[truth * self.classes + class]).sum()
    }

    fn precision(&self, class: usize) -> f64 {
        ratio(self.hits(class), self.predicted(class))
    }

    fn recall(&self, class: usize) -> f64 {
        ratio(self.hits(class), self.labelled(class))
    }

    fn f1(&self, class: usize) -> f64 {
        ratio(2.0 * self.hits(class), self.labelled(class) + self.predicted(class))
    }

    /// The mean over the classes that occur as label or prediction.
    fn macro_mean(&self, of: impl Fn(usize) -> f64) -> f64 {
        let present: Vec<usize> =
            (0..self.classes).filter(|class| self.labelled(*class) + self.predicted(*class) > 0.0).collect();
        ratio(present.iter().map(|class| of(*class)).sum(), present.len() as f64)
    }

    fn value(&self, metric: ContainerMetric) -> f64 {
        match metric {
            // Over all rows, every wrong prediction is one false positive and one false negative.
            Accuracy | PrecisionMicro | RecallMicro => {
                ratio((0..self.classes).map(|class| self.hits(class)).sum(), self.counts.iter().sum())
            }
            BalancedAccuracy => {
                let labelled: Vec<usize> = (0..self.classes).filter(|class| self.labelled(*class) > 0.0).collect();
                ratio(labelled.iter().map(|class| self.recall(*class)).sum(), labelled.len() as f64)
            }
            F1Macro => self.macro_mean(|class| self.f1(class)),
            F1Binary => self.f1(1),
            PrecisionBinary => self.precision(1),
            PrecisionMacro => self.macro_mean(|class| self.precision(class)),
            RecallBinary => self.recall(1),
            RecallMacro => self.macro_mean(|class| self.recall(class)),
            Mae | Mse | Rmse | R2 => f64::NAN,
        }
    }
}

/// Sums of a regression's errors.
#[derive(Debug)]
struct Errors {
    rows: f64,
    absolute: f64,
    squared: f64,
    /// Sum of the squared distances of the labels from their mean.
    spread: f64,
}

impl Errors {
    fn measure(labels: &[f32], predictions: &Predictions, group: &Group) -> Result<Self, Failure> {
        if predictions.columns > 1 {
            return Err(Failure::User(
                "Metrics mae, mse, rmse and r2 need one prediction per row, which objective multi:softprob does not \
                 give."
                    .into(),
            ));
        }
        let mut sums = [labels.len() as f64, 0.0, 0.0, 0.0];
        for (label, prediction) in labels.iter().zip(&predictions.values) {
            let error = f64::from(*label) - f64::from(*prediction);
            sums[1] += f64::from(*label);
            sums[2] += error.abs();
            sums[3] += error * error;
        }
        group.sum(&mut sums)?;
        let [rows, label_sum, absolute, squared] = sums;
        // A second sum around the mean, since sums of squares cancel.
        let mean = label_sum / rows;
        let mut spread = [labels.iter().map(|label| (f64::from(*label) - mean).powi(2)).sum::<f64>()];
        group.sum(&mut spread)?;
        Ok(Self { rows, absolute, squared, spread: spread[0] })
    }

    fn value(&self, metric: ContainerMetric) -> f64 {
        match metric {
            Mae => self.absolute / self.rows,
            Mse => self.squared / self.rows,
            Rmse => (self.squared / self.rows).sqrt(),
            R2 if self.spread > 0.0 => 1.0 - self.squared / self.spread,
            // scikit-learn: a constant label is predicted perfectly or not at all.
            R2 => f64::from(u8::from(self.squared == 0.0)),
            _ => f64::NAN,
        }
    }
}

fn ratio(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part / whole } else { 0.0 }
}

/// The first of the greatest values.
fn argmax(values: &[f32]) -> usize {
    values
        .iter()
        .enumerate()
        .fold((0, f32::NEG_INFINITY), |best, (index, value)| if *value > best.1 { (index, *value) } else { best })
        .0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn predictions(values: &[f32], columns: usize) -> Predictions {
        Predictions { values: values.to_vec(), columns }
    }

    #[test]
    fn binary_values_are_scikit_learns() {
        let labels = [1.0, 1.0, 1.0, 0.0, 0.0, 1.0];
        let confusion =
            Confusion::count(&labels, &predictions(&[2.0, 0.5, -1.0, 3.0, -2.0, 0.1], 1), 2).expect("classes");
        // sklearn.metrics of [1, 1, 1, 0, 0, 1] and [1, 1, 0, 1, 0, 1].
        let expected = [
            (Accuracy, 4.0 / 6.0),
            (BalancedAccuracy, 0.625),
            (F1Binary, 0.75),
            (F1Macro, 0.625),
            (PrecisionBinary, 0.75),
            (PrecisionMacro, 0.625),
            (PrecisionMicro, 4.0 / 6.0),
            (RecallBinary, 0.75),
            (RecallMacro, 0.625),
            (RecallMicro, 4.0 / 6.0),
        ];
        for (metric, value) in expected {
            assert!((confusion.value(metric) - value).abs() < 1e-12, "{metric:?}: {}", confusion.value(metric));
        }
    }

    #[test]
    fn absent_classes_do_not_count() {
        // Class 2 of 4 is never predicted nor labelled; class 3 is only predicted.
        let margins = [[9.0, 0.0, 0.0, 0.0], [0.0, 9.0, 0.0, 0.0], [0.0, 0.0, 0.0, 9.0], [9.0, 9.0, 0.0, 0.0]].concat();
        let confusion = Confusion::count(&[0.0, 1.0, 1.0, 0.0], &predictions(&margins, 4), 4).expect("classes");
        // sklearn.metrics of [0, 1, 1, 0] and [0, 1, 3, 0].
        let expected = [
            (Accuracy, 0.75),
            (BalancedAccuracy, 0.75),
            (F1Macro, (1.0 + 2.0 / 3.0) / 3.0),
            (PrecisionMacro, 2.0 / 3.0),
            (RecallMacro, 0.5),
        ];
        for (metric, value) in expected {
            assert!((confusion.value(metric) - value).abs() < 1e-12, "{metric:?}: {}", confusion.value(metric));
        }
    }

    #[test]
    fn regression_values_are_scikit_learns() {
        let errors = Errors::measure(&[3.0, -0.5, 2.0, 7.0], &predictions(&[2.5, 0.0, 2.0, 8.0], 1), &Group::alone())
            .expect("errors");
        for (metric, value) in [(Mae, 0.5), (Mse, 0.375), (Rmse, 0.375_f64.sqrt()), (R2, 0.948_608_137_044_967_9)] {
            assert!((errors.value(metric) - value).abs() < 1e-12, "{metric:?}: {}", errors.value(metric));
        }
    }

    #[test]
    fn metrics_that_do_not_fit_the_objective_are_refused() {
        let of = |name: &str, classes| ContainerMetrics::of(&[name.to_owned()], classes);
        assert!(
            of("accuracy", None).is_err() && of("f1_binary", Some(3)).is_err() && of("precision", Some(3)).is_err()
        );
        assert!(of("accuracy", Some(3)).is_ok() && of("f1_binary", Some(2)).is_ok() && of("r2", None).is_ok());
        let wrong = Confusion::count(&[0.5], &predictions(&[1.0], 1), 2).expect_err("no class").to_string();
        assert_eq!(wrong, "ClientError: label 0.5 is not a class from 0 to 1");
    }
}
