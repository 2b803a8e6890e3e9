//! Red wine quality (P. Cortez et al., "Modeling wine preferences by data mining from
//! physicochemical properties", 2009), 1,359 different wines, eleven measurements each, and a
//! taster's grade from 3 to 8.

use std::collections::BTreeSet;

use anyhow::Result;
use flate2::read::GzDecoder;

use super::dataset::{Dataset, Row, split};

/// See assets/wine/README.md.
const FILE: &[u8] = include_bytes!("../../assets/wine/winequality-red.csv.gz");

/// From this program; needs no file.
///
/// # Errors
/// The data is damaged.
pub(super) fn load() -> Result<Dataset> {
    let mut reader = csv::Reader::from_reader(GzDecoder::new(FILE));
    let mut seen = BTreeSet::new();
    // Every sixth wine is there twice: a test of rows that were trained on would praise whatever
    // learns by heart.
    let is_new = |row: &Row| seen.insert(row.iter().map(|value| value.to_bits()).collect::<Vec<_>>());
    let rows: Vec<Row> = reader.deserialize().map(|row| Ok(label_first(row?))).collect::<Result<_>>()?;
    let rows = rows.into_iter().filter(is_new).collect();
    let [train, validation, test] = split(rows, 1729, 0.6, 0.2);
    Ok(Dataset {
        name: "wine",
        title: "Red wine quality: a taster's grade from eleven measurements",
        metric: "rmse",
        // 436 different values in one column: with a bin for each, cuts are the same for any number
        // of instances.
        hyperparameters: &[("objective", "reg:squarederror"), ("num_round", "100"), ("max_bin", "512")],
        train,
        validation,
        test,
    })
}

/// The file has the grade last.
fn label_first(mut row: Row) -> Row {
    row.rotate_right(1);
    row
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wines_are_all_there() {
        let wine = load().unwrap();
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
