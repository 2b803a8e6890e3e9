//! K-fold cross-validation (`_kfold`, `_num_cv_round`) as the image does it: one model per fold,
//! each evaluated on the channels themselves, the mean of their last metrics, and the predictions
//! for the rows that each model has not seen.

use std::fmt::Write;

use super::boost::{Boost, Keep};
use super::evaluate::{Evaluator, Score, Set};
use super::failure::Failure;
use super::ffi::api::Api;
use super::ffi::booster::{Output, Predictions};
use super::ffi::matrix::{Matrix, MatrixOptions};
use super::group::Group;
use super::hyperparameters::Hyperparameters;
use super::instance::Instance;
use super::metric_plan::MetricPlan;
use super::termination::Termination;
use super::train::{Channels, library_parameters};
use super::{evaluate, log, model_file};

/// Trains `folds` models in each round of cross-validation, on this host alone.
pub(super) fn train(
    api: &'static Api,
    instance: &Instance,
    hyperparameters: &Hyperparameters,
    mut channels: Channels,
    folds: usize,
    termination: &Termination,
) -> Result<(), Failure> {
    let threads = hyperparameters.nthread.unwrap_or(instance.cpus);
    let parameters = library_parameters(hyperparameters, threads);
    let group = Group::alone();
    let plan = MetricPlan::of(hyperparameters, &group, false)?;
    let options = MatrixOptions { columns: channels.columns, threads, max_bin: 0 };

    let mut rows = channels.train.read_whole()?;
    let mut sets = vec![set(api, "train", &mut channels.train, options)?];
    if let Some(validation) = &mut channels.validation {
        rows.append(&validation.read_whole()?);
        sets.push(set(api, "validation", validation, options)?);
    }
    drop(channels);
    let all = Matrix::of_batch(api, &rows, options)?;
    let labels = rows.labels;
    let rounds = hyperparameters.num_cv_round as usize;
    log::info(&format!("Run {rounds}-round of {folds}-fold cross validation with {} rows", labels.len()));
    if labels.len() < folds {
        return Err(Failure::User(format!(
            "Cannot have number of splits n_splits={folds} greater than the number of samples: {}.",
            labels.len()
        )));
    }

    let objective = hyperparameters.parameter("objective", "reg:squarederror");
    let classifies = hyperparameters.parameters.contains_key("num_class") || objective.starts_with("binary:");
    let seed = hyperparameters.parameter("seed", "0").parse::<i64>().unwrap_or(0);
    let mut shuffle = Shuffle { state: seed as u64 };
    let mut unseen = Unseen::new(labels, classifies);
    let directory = instance.paths.model();
    let boost = Boost {
        api,
        hyperparameters,
        parameters: &parameters,
        plan: &plan,
        group: &group,
        directory: &directory,
        termination,
    };
    let mut evaluator = Evaluator::new(&plan, None);
    let mut last_scores: Vec<Vec<Score>> = Vec::new();
    for round in 0..rounds {
        let fold_of = assign(&unseen.labels, folds, classifies, &mut shuffle);
        for fold in 0..folds {
            log::info(&format!("Train cross validation fold {}", fold + 1));
            let rows = |of_fold: bool| -> Vec<i32> {
                fold_of.iter().zip(0..).filter(|(place, _)| (**place == fold) == of_fold).map(|(_, row)| row).collect()
            };
            let (seen, held_out) = (rows(false), rows(true));
            let train = all.slice(&seen)?;
            let name = format!("{}-{}", model_file::NAME, last_scores.len());
            let mut boosted = boost.run(Some(&train), &sets, &mut evaluator, Keep::Fold { name: &name })?;
            termination.save(&boosted.booster, &directory, &name)?;
            unseen.add(&held_out, &boosted.booster.predict(&all.slice(&held_out)?, Output::Transformed)?);
            last_scores.push(boosted.scores);
        }
        log::info(&format!("The metrics of round {} cross validation", round + 1));
        log::print(&evaluate::line(hyperparameters.num_round, &mean(&last_scores[round * folds..])));
    }
    if rounds > 1 {
        log::info(&format!("The overall metrics of {rounds}-round cross validation"));
        log::print(&evaluate::line(hyperparameters.num_round, &mean(&last_scores)));
    }

    let path = instance.paths.output_data().join("predictions.csv");
    log::info(&format!("Storing predictions on validation set(s) in {}", path.display()));
    std::fs::create_dir_all(instance.paths.output_data())
        .and_then(|()| std::fs::write(&path, unseen.csv()))
        .map_err(|source| Failure::File { what: "write", path, source })
}

fn set(
    api: &'static Api,
    name: &'static str,
    source: &mut super::data::Source,
    options: MatrixOptions,
) -> Result<Set, Failure> {
    let matrix = Matrix::plain(api, source, options)?;
    source.forget_rows();
    Ok(Set { name, matrix, labels: source.labels().to_vec() })
}

/// The fold of each row: equally many rows in each, and of a classification equally many of each
/// class.
fn assign(labels: &[f32], folds: usize, stratified: bool, shuffle: &mut Shuffle) -> Vec<usize> {
    let mut order: Vec<usize> = (0..labels.len()).collect();
    shuffle.apply(&mut order);
    if stratified {
        // Stable: within a class the order stays random.
        order.sort_by(|left, right| labels[*left].total_cmp(&labels[*right]));
    }
    let mut fold_of = vec![0; labels.len()];
    for (place, row) in order.into_iter().enumerate() {
        fold_of[row] = place % folds;
    }
    fold_of
}

/// A seeded random order (SplitMix64 by Steele, Lea and Flood 2014, and the shuffle of Fisher and
/// Yates).
struct Shuffle {
    state: u64,
}

impl Shuffle {
    fn apply(&mut self, items: &mut [usize]) {
        for end in (1..items.len()).rev() {
            self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut bits = self.state;
            bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            bits ^= bits >> 31;
            // The bias of the remainder is below 2^-32 for any data that fits in memory.
            items.swap(end, (bits % (end as u64 + 1)) as usize);
        }
    }
}

/// The mean of each metric, set by set within each metric.
fn mean(models: &[Vec<Score>]) -> Vec<Score> {
    let Some(first) = models.first() else { return Vec::new() };
    let mut means: Vec<Score> = Vec::new();
    for metric in first.iter().filter(|score| score.set == "train").map(|score| &score.metric) {
        for score in first.iter().filter(|score| score.metric == *metric) {
            let values = models
                .iter()
                .flatten()
                .filter(|other| other.set == score.set && other.metric == *metric)
                .map(|other| other.value);
            means.push(Score { value: values.sum::<f64>() / models.len() as f64, ..score.clone() });
        }
    }
    means
}

/// Predictions for rows by models that have not seen them, one per round.
struct Unseen {
    labels: Vec<f32>,
    classifies: bool,
    predictions: Vec<Vec<f32>>,
    classes: Vec<Vec<f32>>,
}

impl Unseen {
    fn new(labels: Vec<f32>, classifies: bool) -> Self {
        let rows = labels.len();
        Self { labels, classifies, predictions: vec![Vec::new(); rows], classes: vec![Vec::new(); rows] }
    }

    fn add(&mut self, rows: &[i32], predictions: &Predictions) {
        for (row, values) in rows.iter().zip(predictions.values.chunks_exact(predictions.columns.max(1))) {
            let row = *row as usize;
            // One value is a probability of class 1, or a class (multi:softmax); several are
            // probabilities of each.
            let (class, value) = match values {
                [value] if *value > 1.0 => (*value, *value),
                [value] => (f32::from(u8::from(*value > 0.5)), *value),
                values => values.iter().zip(0_u16..).fold((0.0, f32::NEG_INFINITY), |best, (value, class)| {
                    if *value > best.1 { (f32::from(class), *value) } else { best }
                }),
            };
            self.predictions[row].push(value);
            self.classes[row].push(class);
        }
    }

    /// Label and mean prediction of each row; of a classification also its most frequent class.
    fn csv(&self) -> String {
        let mut text = String::new();
        for (row, label) in self.labels.iter().enumerate() {
            let predictions = &self.predictions[row];
            let mean = predictions.iter().map(|value| f64::from(*value)).sum::<f64>() / predictions.len().max(1) as f64;
            let _ = write!(text, "{label:.6},{mean:.6}");
            if self.classifies {
                let _ = write!(text, ",{:.6}", most_frequent(&self.classes[row]));
            }
            text.push('\n');
        }
        text
    }
}

/// The smallest of the most frequent values.
fn most_frequent(values: &[f32]) -> f32 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f32::total_cmp);
    let runs = sorted.chunk_by(|left, right| left == right);
    runs.fold(&[][..], |best, run| if run.len() > best.len() { run } else { best }).first().copied().unwrap_or(f32::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folds_are_even_and_repeatable() {
        let labels: Vec<f32> = (0..103).map(|row| f32::from(u8::from(row % 5 == 0))).collect();
        for stratified in [false, true] {
            let assigned = |seed| assign(&labels, 4, stratified, &mut Shuffle { state: seed });
            assert_eq!(assigned(1), assigned(1));
            assert_ne!(assigned(1), assigned(2));
            let folds = assigned(1);
            for fold in 0..4 {
                let rows: Vec<usize> = (0..103).filter(|row| folds[*row] == fold).collect();
                assert!((25..=26).contains(&rows.len()));
                let of_class: usize = rows.iter().filter(|row| labels[**row] == 1.0).count();
                assert!(!stratified || (5..=6).contains(&of_class), "{of_class}");
            }
        }
    }

    #[test]
    fn means_go_metric_by_metric() {
        let scores = |add: f64| -> Vec<Score> {
            let score = |set, metric: &str, value| Score { set, metric: metric.to_owned(), value };
            vec![
                score("train", "auc", 0.5 + add),
                score("train", "error", 0.1 + add),
                score("validation", "auc", 0.4 + add),
                score("validation", "error", 0.2 + add),
            ]
        };
        let line = evaluate::line(10, &mean(&[scores(0.0), scores(0.2)]));
        assert_eq!(
            line,
            "[10]\ttrain-auc:0.60000\tvalidation-auc:0.50000\ttrain-error:0.20000\tvalidation-error:0.30000"
        );
    }

    #[test]
    fn the_smallest_of_the_most_frequent_classes_wins() {
        for (values, expected) in [(&[1.0, 2.0, 2.0][..], 2.0), (&[3.0, 1.0, 3.0, 1.0], 1.0), (&[4.0], 4.0)] {
            assert_eq!(most_frequent(values), expected);
        }
    }
}
