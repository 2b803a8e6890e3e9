//! The data sets, as csv and libsvm channels.

use std::fmt::Write;

use crate::cluster::data_file;

/// Rows of numbers with the label first; an empty field is a missing value.
pub(crate) struct Table {
    rows: Vec<Vec<String>>,
    /// Parts have a multiple of so many rows.
    unit: usize,
}

impl Table {
    /// White wines: their quality from eleven measurements.
    pub(crate) fn wine() -> Option<Self> {
        let text = data_file("wine/winequality-white.csv")?;
        let rows = text.lines().skip(1).map(|line| line.split(';').map(str::to_owned).collect::<Vec<_>>());
        Some(Self::shuffled(rows.map(|mut row| {
            row.rotate_right(1);
            row
        })))
    }

    /// Passengers of the Titanic: who survived. Ages are missing here and there.
    pub(crate) fn titanic() -> Option<Self> {
        let text = data_file("titanic/titanic_train.csv")?;
        let mut lines = text.lines();
        let header: Vec<&str> = lines.next()?.split(',').collect();
        let place = |name: &str| header.iter().position(|column| *column == name).unwrap();
        let (survived, class, sex, age, fare) =
            (place("Survived"), place("Pclass"), place("Sex"), place("Age"), place("Fare"));
        // The name is quoted and holds one comma.
        let after_name = |column: usize| if column > place("Name") { column + 1 } else { column };
        Some(Self::shuffled(lines.map(|line| {
            let fields: Vec<&str> = line.split(',').collect();
            let sex = if fields[after_name(sex)] == "male" { "1" } else { "0" };
            [fields[survived], fields[class], sex, fields[after_name(age)], fields[after_name(fare)]]
                .map(str::to_owned)
                .to_vec()
        })))
    }

    /// A fixed order that is not the file's.
    fn shuffled(rows: impl Iterator<Item = Vec<String>>) -> Self {
        let mut keyed: Vec<(u64, Vec<String>)> =
            rows.enumerate().map(|(index, row)| ((index as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15), row)).collect();
        keyed.sort();
        Self { rows: keyed.into_iter().map(|(_, row)| row).collect(), unit: 1 }
    }

    /// Cuts the rows in consecutive parts of the given shares, which sum to 100.
    pub(crate) fn parts(&self, shares: &[usize]) -> Vec<Self> {
        let mut begin = 0;
        let mut sum = 0;
        let cut = shares.iter().map(|share| {
            sum += share;
            let end = self.rows.len() / self.unit * sum / 100 * self.unit;
            let part = self.rows[begin..end].to_vec();
            begin = end;
            Self { rows: part, unit: self.unit }
        });
        cut.collect()
    }

    /// Adds a weight to each row, after the label.
    pub(crate) fn weighted(mut self) -> Self {
        for (index, row) in self.rows.iter_mut().enumerate() {
            row.insert(1, format!("{}", 0.25 + (index * 7 % 10) as f64 / 4.0));
        }
        self
    }

    pub(crate) fn csv(&self) -> String {
        self.rows.iter().map(|row| row.join(",") + "\n").collect()
    }

    /// The features alone.
    pub(crate) fn features(&self) -> String {
        self.rows.iter().map(|row| row[1..].join(",") + "\n").collect()
    }

    /// Makes queries of so many rows each, which are never cut.
    pub(crate) fn in_queries_of(mut self, rows: usize) -> Self {
        self.unit = rows;
        self
    }

    /// The same as libsvm, with its queries if it has some; a zero is left out.
    pub(crate) fn libsvm(&self) -> String {
        let mut text = String::new();
        for (index, row) in self.rows.iter().enumerate() {
            text.push_str(&row[0]);
            if self.unit > 1 {
                write!(text, " qid:{}", index / self.unit).unwrap();
            }
            for (feature, value) in row[1..].iter().enumerate().filter(|(_, value)| !value.is_empty() && *value != "0")
            {
                write!(text, " {feature}:{value}").unwrap();
            }
            text.push('\n');
        }
        text
    }
}
