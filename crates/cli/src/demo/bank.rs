//! Bank marketing (S. Moro et al., "A data-driven approach to predict the success of bank
//! telemarketing", 2014) with the features of AWS's direct-marketing notebook: will the client
//! sign?

use std::{collections::BTreeSet, fs::File, path::Path};

use anyhow::{Context, Result};
use flate2::read::GzDecoder;

use super::dataset::{Dataset, Row, split};

/// Numbers that the notebook keeps. The call's duration and the five economic indicators are
/// dropped: they are not known before the call, or tell the date.
const NUMBERS: [&str; 4] = ["age", "campaign", "pdays", "previous"];

/// Categories; each of their values becomes a column of 0 and 1.
const CATEGORIES: [&str; 10] =
    ["job", "marital", "education", "default", "housing", "loan", "contact", "month", "day_of_week", "poutcome"];

/// Jobs that are none.
const NOT_WORKING: [&str; 3] = ["student", "retired", "unemployed"];

/// `pdays` of those who were never called before.
const NEVER: &str = "999";

/// Reads `bank-additional-full.csv.gz`.
pub(super) fn load(dir: &Path) -> Result<Dataset> {
    let path = dir.join("bank-additional-full.csv.gz");
    let file = File::open(&path).with_context(|| format!("could not read {}", path.display()))?;
    let rows = rows(GzDecoder::new(file)).with_context(|| format!("could not read {}", path.display()))?;
    // As the notebook cuts. The file is ordered by date, so it must be shuffled.
    let [train, validation, test] = split(rows, 1729, 0.7, 0.2);
    Ok(Dataset {
        name: "bank",
        title: "Bank marketing: who signs",
        metric: "auc",
        hyperparameters: &[("objective", "binary:logistic"), ("eval_metric", "auc"), ("num_round", "100")],
        train,
        validation,
        test,
    })
}

fn rows(text: impl std::io::Read) -> Result<Vec<Row>> {
    let mut reader = csv::ReaderBuilder::new().delimiter(b';').from_reader(text);
    let header = reader.headers()?.clone();
    let column =
        |name: &str| header.iter().position(|known| known == name).with_context(|| format!("no column {name}"));
    let label = column("y")?;
    let (job, pdays) = (column("job")?, column("pdays")?);
    let numbers = NUMBERS.iter().map(|name| column(name)).collect::<Result<Vec<_>>>()?;
    let categories = CATEGORIES.iter().map(|name| column(name)).collect::<Result<Vec<_>>>()?;
    let records = reader.records().collect::<Result<Vec<_>, _>>()?;
    let values: Vec<BTreeSet<&str>> =
        categories.iter().map(|column| records.iter().filter_map(|record| record.get(*column)).collect()).collect();
    let flag = |condition: bool| if condition { 1.0 } else { 0.0 };
    let row = |record: &csv::StringRecord| -> Result<Row> {
        let mut row = vec![flag(&record[label] == "yes")];
        for column in &numbers {
            row.push(
                record[*column].parse().with_context(|| format!("{} is {:?}", &header[*column], &record[*column]))?,
            );
        }
        row.push(flag(&record[pdays] == NEVER));
        row.push(flag(NOT_WORKING.contains(&&record[job])));
        for (column, values) in categories.iter().zip(&values) {
            row.extend(values.iter().map(|value| flag(record[*column] == **value)));
        }
        Ok(row)
    };
    records.iter().map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn categories_become_columns() {
        let header = "age;job;marital;education;default;housing;loan;contact;month;day_of_week;duration;campaign;pdays;previous;poutcome;y\n";
        let text = header.to_owned()
            + "56;\"student\";\"a\";\"a\";\"a\";\"a\";\"a\";\"a\";\"a\";\"a\";261;1;999;0;\"a\";\"no\"\n\
               30;\"admin.\";\"a\";\"a\";\"a\";\"a\";\"a\";\"a\";\"a\";\"a\";9;2;3;1;\"b\";\"yes\"\n";
        let rows = rows(text.as_bytes()).unwrap();
        // Label; age, campaign, pdays, previous; never called, not working; job (2), eight of one
        // value each, poutcome (2).
        let (first, second) = (&rows[0], &rows[1]);
        assert_eq!(first[..7], [0.0, 56.0, 1.0, 999.0, 0.0, 1.0, 1.0]);
        assert_eq!(second[..7], [1.0, 30.0, 2.0, 3.0, 1.0, 0.0, 0.0]);
        assert_eq!(first[7..], [0.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 0.0]);
        assert_eq!(second[7..], [1.0, 0.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 0.0, 1.0]);
    }
}
