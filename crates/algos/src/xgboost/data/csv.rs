//! Comma-separated values: the label first, then the weight if there is one, then the features; no
//! header; an empty field is a missing one.

use super::{BadField, Batch, Features, number, quoted};

/// What is known about a csv file besides its lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::xgboost) struct CsvOptions {
    /// The second column holds the rows' weights.
    pub(in crate::xgboost) weights: bool,
}

/// The delimiters that are looked for, the likelier first.
const DELIMITERS: [u8; 6] = [b',', b';', b'\t', b'|', b' ', b':'];

/// How the lines of a channel are cut; the first line of its first file decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Layout {
    pub(super) delimiter: u8,
    weights: bool,
    /// Fields per line, label and weight included.
    fields: usize,
}

impl Layout {
    /// Finds the layout from a first line; the error is for its first column.
    pub(super) fn sniff(line: &[u8], options: CsvOptions) -> Result<Self, BadField> {
        let count = |delimiter: u8| line.iter().filter(|byte| **byte == delimiter).count();
        let delimiter = DELIMITERS.into_iter().find(|delimiter| count(*delimiter) > 0).ok_or_else(|| {
            BadField::new(
                1,
                format!(
                    "could not determine the delimiter from {}: a row needs a label and at least one feature",
                    quoted(line)
                ),
            )
        })?;
        let layout = Self { delimiter, weights: options.weights, fields: count(delimiter) + 1 };
        if layout.columns() == 0 {
            return Err(BadField::new(
                2,
                format!("the row {} has no features after its label and weight", quoted(line)),
            ));
        }
        Ok(layout)
    }

    /// Features per line.
    pub(super) fn columns(&self) -> usize {
        self.fields - 1 - usize::from(self.weights)
    }

    /// Adds the row of one line, without its end, to `batch`. The batch is left with half a row on
    /// an error.
    pub(super) fn parse(&self, line: &[u8], batch: &mut Batch) -> Result<(), BadField> {
        let Features::Dense { values, .. } = &mut batch.features else { unreachable!("csv rows are dense") };
        let features_from = 1 + usize::from(self.weights);
        let mut column = 0;
        for field in line.split(|byte| *byte == self.delimiter) {
            column += 1;
            if column > features_from {
                values.push(match field {
                    [] => f32::NAN,
                    field => feature(field, column)?,
                });
            } else if column == 1 {
                batch.labels.push(required(field, column, "label")?);
            } else {
                let weight = required(field, column, "weight")?;
                if weight < 0.0 {
                    return Err(BadField::new(column, format!("the weight {} is negative", quoted(field))));
                }
                batch.weights.push(weight);
            }
        }
        if column != self.fields {
            return Err(BadField::new(
                column,
                format!("the line has {column} columns and the channel's first line has {}", self.fields),
            ));
        }
        Ok(())
    }
}

fn feature(field: &[u8], column: usize) -> Result<f32, BadField> {
    let value = match number::parse(field) {
        Some(value) => value,
        // Rare, so trimmed only now.
        None => match field.trim_ascii() {
            [] => f32::NAN,
            trimmed => number::parse(trimmed).ok_or_else(|| not_a_number(field, column))?,
        },
    };
    if value.is_infinite() {
        return Err(BadField::new(
            column,
            format!("{} is infinite in single precision, which XGBoost does not take", quoted(field)),
        ));
    }
    Ok(value)
}

fn required(field: &[u8], column: usize, what: &str) -> Result<f32, BadField> {
    let field = field.trim_ascii();
    if field.is_empty() {
        return Err(BadField::new(column, format!("the {what} is missing")));
    }
    match number::parse(field) {
        Some(value) if value.is_finite() => Ok(value),
        Some(_) => Err(BadField::new(column, format!("the {what} {} is not a finite number", quoted(field)))),
        None => Err(not_a_number(field, column)),
    }
}

fn not_a_number(field: &[u8], column: usize) -> BadField {
    let hint = match field {
        [quote @ (b'"' | b'\''), inner @ .., last] if quote == last && number::parse(inner.trim_ascii()).is_some() => {
            " (numbers must not be quoted)"
        }
        [b'?'] | b"NA" | b"null" | b"NULL" | b"None" => " (leave the field of a missing value empty)",
        _ => "",
    };
    BadField::new(column, format!("{} is not a number{hint}", quoted(field)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(options: CsvOptions, first: &str, line: &str) -> Result<Batch, BadField> {
        let layout = Layout::sniff(first.as_bytes(), options)?;
        let mut batch = Batch::dense(layout.columns());
        layout.parse(line.as_bytes(), &mut batch)?;
        Ok(batch)
    }

    #[test]
    fn rows_are_cut_by_the_sniffed_delimiter() {
        let plain = CsvOptions { weights: false };
        for line in ["1,2,-3.5", "1;2;-3.5", "1\t2\t-3.5", "1|2|-3.5", "1 2 -3.5", "1, 2 , -3.5"] {
            let batch = check(plain, line, line).expect(line);
            assert_eq!(batch.labels, [1.0], "{line}");
            assert_eq!(batch.features, Features::Dense { values: vec![2.0, -3.5], columns: 2 }, "{line}");
            assert!(batch.weights.is_empty());
        }
        let batch = check(CsvOptions { weights: true }, "0,0.5,7", "0,0.5,7").expect("a weighted row");
        assert_eq!((batch.labels, batch.weights), (vec![0.0], vec![0.5]));
        assert_eq!(batch.features, Features::Dense { values: vec![7.0], columns: 1 });
    }

    #[test]
    fn empty_fields_are_missing_values() {
        let batch = check(CsvOptions { weights: false }, "1,,nan, ,", "1,,nan, ,").expect("a row");
        let Features::Dense { values, columns } = batch.features else { panic!("dense") };
        assert_eq!(columns, 4);
        assert!(values.iter().all(|value| value.is_nan()), "{values:?}");
    }

    #[test]
    fn bad_lines_are_told_by_column_and_text() {
        let cases = [
            (false, "1,2,3", "1,2", 2, "the line has 2 columns and the channel's first line has 3"),
            (false, "1,2,3", "1,2,3,4", 4, "the line has 4 columns and the channel's first line has 3"),
            (false, "1,2,3", "1,x,3", 2, "\"x\" is not a number"),
            (false, "age,sex", "age,sex", 1, "\"age\" is not a number"),
            (false, "1,2", ",2", 1, "the label is missing"),
            (false, "1,2", "nan,2", 1, "the label \"nan\" is not a finite number"),
            (false, "1,2", "1,1e99", 2, "\"1e99\" is infinite in single precision, which XGBoost does not take"),
            (false, "1,2", "1,\"2\"", 2, "\"\\\"2\\\"\" is not a number (numbers must not be quoted)"),
            (false, "1,2", "1,?", 2, "\"?\" is not a number (leave the field of a missing value empty)"),
            (true, "1,2,3", "1,-2,3", 2, "the weight \"-2\" is negative"),
            (true, "1,2", "1,2", 2, "the row \"1,2\" has no features after its label and weight"),
            (
                false,
                "17",
                "17",
                1,
                "could not determine the delimiter from \"17\": a row needs a label and at least one feature",
            ),
        ];
        for (weights, first, line, column, reason) in cases {
            assert_eq!(check(CsvOptions { weights }, first, line), Err(BadField::new(column, reason)), "{line}");
        }
    }
}
