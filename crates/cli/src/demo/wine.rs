//! Red wine quality (P. Cortez et al., "Modeling wine preferences by data mining from physicochemical properties", 2009), as it comes with
//! the crate linfa-datasets: 1,599 wines, eleven measurements each, and a taster's grade from 3 to 8.

use super::dataset::{Dataset, Row, split};

/// From the crate; needs no file.
pub(super) fn load() -> Dataset {
    let wines = linfa_datasets::winequality();
    let features = wines.records.outer_iter();
    let row = |(features, grade): (_, &usize)| -> Row { row(*grade, features) };
    let rows = features.zip(wines.targets.iter()).map(row).collect();
    let (train, validation) = split(rows, 1729, 0.8, 0.2);
    Dataset {
        name: "wine",
        title: "Red wine quality: a taster's grade from eleven measurements",
        metric: "rmse",
        // 436 different values in one column: with a bin for each, cuts are the same for any number of instances.
        hyperparameters: &[
            ("objective", "reg:squarederror"),
            ("num_round", "80"),
            ("max_depth", "6"),
            ("eta", "0.1"),
            ("min_child_weight", "3"),
            ("tree_method", "hist"),
            ("max_bin", "512"),
        ],
        train,
        validation,
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
        assert_eq!((wine.train.len(), wine.validation.len(), wine.features()), (1279, 320, 11));
        assert!(wine.train.iter().all(|row| (3.0..=8.0).contains(&row[0])));
        let mut values: Vec<_> =
            (1..=11).map(|column| distinct(wine.train.iter().chain(&wine.validation).map(|row| row[column]))).collect();
        values.sort_unstable();
        assert_eq!(values.last(), Some(&436), "max_bin must not be less than the most different values of a column");
    }

    fn distinct(values: impl Iterator<Item = f32>) -> usize {
        values.map(f32::to_bits).collect::<std::collections::BTreeSet<_>>().len()
    }
}
