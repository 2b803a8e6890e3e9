//! Red wine quality (P. Cortez et al., "Modeling wine preferences by data mining from physicochemical properties", 2009), as it comes with
//! the crate linfa-datasets: 1,359 different wines, eleven measurements each, and a taster's grade from 3 to 8.

use std::collections::BTreeSet;

use super::dataset::{Dataset, Row, split};

/// From the crate; needs no file.
pub(super) fn load() -> Dataset {
    let wines = linfa_datasets::winequality();
    let features = wines.records.outer_iter();
    let row = |(features, grade): (_, &usize)| -> Row { row(*grade, features) };
    let mut seen = BTreeSet::new();
    // Every sixth wine is there twice: a test of rows that were trained on would praise whatever learns by heart.
    let is_new = |row: &Row| seen.insert(row.iter().map(|value| value.to_bits()).collect::<Vec<_>>());
    let rows = features.zip(wines.targets.iter()).map(row).filter(is_new).collect();
    let [train, validation, test] = split(rows, 1729, 0.6, 0.2);
    Dataset {
        name: "wine",
        title: "Red wine quality: a taster's grade from eleven measurements",
        metric: "rmse",
        // 436 different values in one column: with a bin for each, cuts are the same for any number of instances.
        hyperparameters: &[("objective", "reg:squarederror"), ("num_round", "100"), ("max_bin", "512")],
        train,
        validation,
        test,
    }
}

fn row<'a>(grade: usize, features: impl IntoIterator<Item = &'a f64>) -> Row {
    let grade = u8::try_from(grade).unwrap_or(u8::MAX);
    // Measured to four digits; single precision is what XGBoost computes in.
    std::iter::once(f32::from(grade)).chain(features.into_iter().map(|value| *value as f32)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wines_are_all_there() {
        let wine = load();
        assert_eq!((wine.train.len(), wine.validation.len(), wine.test.len(), wine.features()), (815, 272, 272, 11));
        let all = || wine.train.iter().chain(&wine.validation).chain(&wine.test);
        assert!(all().all(|row| (3.0..=8.0).contains(&row[0])));
        let mut values: Vec<_> = (1..=11).map(|column| distinct(all().map(|row| row[column]))).collect();
        values.sort_unstable();
        assert_eq!(values.last(), Some(&436), "max_bin must not be less than the most different values of a column");
    }

    fn distinct(values: impl Iterator<Item = f32>) -> usize {
        values.map(f32::to_bits).collect::<BTreeSet<_>>().len()
    }
}
