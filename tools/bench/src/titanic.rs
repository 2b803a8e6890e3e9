//! The Titanic's passengers as in AWS's course "ML with SageMaker": who survived?

use std::path::Path;

use anyhow::{Context, Result};

use shoal_cli::demo::dataset::{Dataset, Row};

/// Reads `titanic_train.csv` and `titanic_test.csv`.
pub(super) fn load(dir: &Path) -> Result<Dataset> {
    let train = read(&dir.join("titanic_train.csv"))?;
    let ages = median(train.iter().filter_map(|passenger| passenger.age));
    let rows = |passengers: Vec<Passenger>| passengers.into_iter().map(|passenger| passenger.row(ages)).collect();
    let validation = read(&dir.join("titanic_test.csv"))?;
    Ok(Dataset {
        name: "titanic",
        title: "Titanic: who survived",
        metric: "logloss",
        hyperparameters: &[
            ("objective", "binary:logistic"),
            ("eval_metric", "logloss"),
            ("num_round", "100"),
            ("max_depth", "5"),
            ("eta", "0.1"),
            ("tree_method", "hist"),
            // PassengerId stays a feature, as in the course: 712 different values.
            ("max_bin", "1024"),
        ],
        train: rows(train),
        validation: rows(validation),
        test: Vec::new(),
    })
}

/// What the course keeps of a passenger. Name, ticket and cabin are dropped.
#[derive(Debug, Clone, PartialEq)]
struct Passenger {
    survived: f32,
    id: f32,
    class: f32,
    female: f32,
    age: Option<f32>,
    siblings: f32,
    parents: f32,
    fare: f32,
    embarked: f32,
}

impl Passenger {
    fn row(&self, median_age: f32) -> Row {
        let age = self.age.unwrap_or(median_age);
        vec![
            self.survived,
            self.id,
            self.class,
            self.female,
            age,
            self.siblings,
            self.parents,
            self.fare,
            self.embarked,
        ]
    }
}

fn read(path: &Path) -> Result<Vec<Passenger>> {
    let mut reader = csv::Reader::from_path(path).with_context(|| format!("could not read {}", path.display()))?;
    let header = reader.headers()?.clone();
    let column = |name: &str| {
        header.iter().position(|known| known == name).with_context(|| format!("{}: no column {name}", path.display()))
    };
    let names = ["Survived", "PassengerId", "Pclass", "Sex", "Age", "SibSp", "Parch", "Fare", "Embarked"];
    let columns = names.iter().map(|name| column(name)).collect::<Result<Vec<_>>>()?;
    let mut passengers = Vec::new();
    for record in reader.records() {
        let record = record.with_context(|| format!("could not read {}", path.display()))?;
        let cell = |index: usize| record.get(columns[index]).unwrap_or_default();
        let number = |index: usize| {
            cell(index)
                .parse::<f32>()
                .with_context(|| format!("{}: {} is {:?}", path.display(), names[index], cell(index)))
        };
        passengers.push(Passenger {
            survived: number(0)?,
            id: number(1)?,
            class: number(2)?,
            female: if cell(3) == "female" { 1.0 } else { 0.0 },
            age: if cell(4).is_empty() { None } else { Some(number(4)?) },
            siblings: number(5)?,
            parents: number(6)?,
            fare: number(7)?,
            // The two that are unknown boarded where most did, in Southampton.
            embarked: match cell(8) {
                "C" => 1.0,
                "Q" => 2.0,
                _ => 0.0,
            },
        });
    }
    Ok(passengers)
}

/// The middle one, or the mean of the two in the middle.
fn median(values: impl Iterator<Item = f32>) -> f32 {
    let mut sorted: Vec<_> = values.collect();
    sorted.sort_by(f32::total_cmp);
    match sorted.len() {
        0 => 0.0,
        length if length % 2 == 1 => sorted[length / 2],
        length => f32::midpoint(sorted[length / 2 - 1], sorted[length / 2]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passengers_become_rows() {
        let dir = tempfile::tempdir().unwrap();
        let header = "PassengerId,Survived,Pclass,Name,Sex,Age,SibSp,Parch,Ticket,Fare,Cabin,Embarked\n";
        let text = header.to_owned()
            + "693,1,3,\"Lam, Mr. Ali\",male,,0,0,1601,56.4958,,S\n856,1,3,\"Aks, \
               Mrs.\",female,18.0,0,1,392091,9.35,,C\n";
        std::fs::write(dir.path().join("titanic_train.csv"), &text).unwrap();
        std::fs::write(dir.path().join("titanic_test.csv"), header).unwrap();
        let dataset = load(dir.path()).unwrap();
        assert_eq!(
            dataset.train,
            [
                vec![1.0, 693.0, 3.0, 0.0, 18.0, 0.0, 0.0, 56.4958, 0.0],
                vec![1.0, 856.0, 3.0, 1.0, 18.0, 0.0, 1.0, 9.35, 1.0]
            ]
        );
        assert!(dataset.validation.is_empty());
        assert!(load(&dir.path().join("none")).unwrap_err().to_string().starts_with("could not read"));
    }

    #[test]
    fn medians() {
        for (values, expected) in [(&[][..], 0.0), (&[3.0, 1.0, 2.0], 2.0), (&[4.0, 1.0, 2.0, 3.0], 2.5)] {
            assert_eq!(median(values.iter().copied()), expected);
        }
    }
}
