//! A dataset as XGBoost wants it: numbers only, the label first.

use super::random::shuffle;

/// What is trained on, and how.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Dataset {
    /// Short; part of names.
    pub(crate) name: &'static str,
    /// For people.
    pub(crate) title: &'static str,
    /// The metric that is shown, e.g. `auc`.
    pub(crate) metric: &'static str,
    /// XGBoost's. No sampling of rows or columns: it draws differently for another number of instances.
    pub(crate) hyperparameters: &'static [(&'static str, &'static str)],
    /// Rows to train on.
    pub(crate) train: Vec<Row>,
    /// Rows to validate on.
    pub(crate) validation: Vec<Row>,
}

/// Label first, then features. NaN is a missing value.
pub(crate) type Row = Vec<f32>;

impl Dataset {
    /// How many features a row has.
    pub(crate) fn features(&self) -> usize {
        self.train.first().map_or(0, |row| row.len() - 1)
    }
}

/// Shuffles and cuts: this share to train on, that one to validate on, what is left over unused.
pub(super) fn split(mut rows: Vec<Row>, seed: u64, train: f64, validation: f64) -> (Vec<Row>, Vec<Row>) {
    shuffle(&mut rows, seed);
    let count = |share: f64| (rows.len() as f64 * share).round() as usize;
    let (train, validation) = (count(train), count(validation));
    let mut rest = rows.split_off(train);
    rest.truncate(validation);
    (rows, rest)
}

/// As the built-in XGBoost reads it. `label` is whether the label column is wanted, too.
pub(crate) fn to_csv(rows: &[Row], label: bool) -> String {
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
        let (train, validation) = split(rows, 7, 0.7, 0.2);
        assert_eq!((train.len(), validation.len()), (7, 2));
        assert!(validation.iter().all(|row| !train.contains(row)));
    }
}
