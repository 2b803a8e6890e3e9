//! A dataset as XGBoost wants it: numbers only, the label first.

use super::random::shuffle;

/// What is trained on, and how.
#[derive(Debug, Clone, PartialEq)]
pub struct Dataset {
    /// Short; part of names.
    pub name: &'static str,
    /// For people.
    pub title: &'static str,
    /// The metric that is shown, e.g. `auc`.
    pub metric: &'static str,
    /// Beside XGBoost's defaults. No sampling of rows or columns: it draws differently for another
    /// number of instances.
    pub hyperparameters: &'static [(&'static str, &'static str)],
    /// Rows to train on.
    pub train: Vec<Row>,
    /// Rows to validate on.
    pub validation: Vec<Row>,
    /// Rows that are held out: neither a training nor a search sees them before it is over.
    pub test: Vec<Row>,
}

/// Label first, then features. NaN is a missing value.
pub type Row = Vec<f32>;

impl Dataset {
    /// How many features a row has.
    pub(crate) fn features(&self) -> usize {
        self.train.first().map_or(0, |row| row.len() - 1)
    }

    /// Boosting rounds of every training.
    pub(crate) fn rounds(&self) -> u32 {
        self.hyperparameters
            .iter()
            .find(|(name, _)| *name == "num_round")
            .and_then(|(_, value)| value.parse().ok())
            .unwrap_or_default()
    }

    /// Which way the metric is better.
    pub(crate) fn more_is_better(&self) -> bool {
        self.metric == "auc"
    }
}

/// Shuffles and cuts: this share to train on, that one to validate on, what is left over to test.
pub(super) fn split(mut rows: Vec<Row>, seed: u64, train: f64, validation: f64) -> [Vec<Row>; 3] {
    shuffle(&mut rows, seed);
    let count = |share: f64| (rows.len() as f64 * share).round() as usize;
    let (train, validation) = (count(train), count(validation));
    let test = rows.split_off(train + validation);
    let validation = rows.split_off(train);
    [rows, validation, test]
}

/// As the built-in XGBoost reads it. `label` is whether the label column is wanted, too.
pub fn to_csv(rows: &[Row], label: bool) -> String {
    let cell = |value: &f32| if value.is_nan() { String::new() } else { value.to_string() };
    let line = |row: &Row| row[usize::from(!label)..].iter().map(cell).collect::<Vec<_>>().join(",") + "\n";
    rows.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_become_csv() {
        let rows = [vec![1.0, 0.25, f32::NAN, 3.0]];
        assert_eq!(to_csv(&rows, true), "1,0.25,,3\n");
        assert_eq!(to_csv(&rows, false), "0.25,,3\n");
    }

    #[test]
    fn splits_do_not_overlap() {
        let rows: Vec<Row> = (0..10_u8).map(|number| vec![f32::from(number)]).collect();
        let parts = split(rows.clone(), 7, 0.7, 0.2);
        assert_eq!(parts.each_ref().map(Vec::len), [7, 2, 1]);
        assert!(rows.iter().all(|row| parts.iter().filter(|part| part.contains(row)).count() == 1));
    }
}
