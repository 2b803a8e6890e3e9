//! The rows of a channel, read from its files in bounded memory. [`Source`] gives them in batches,
//! as often as it is asked; [`csv`] and [`libsvm`] parse one line each. Every error names file,
//! line and column.

mod csv;
mod files;
mod libsvm;
mod lines;
mod number;
mod source;

use std::path::PathBuf;

use thiserror::Error;

pub(super) use csv::CsvOptions;
pub(super) use files::{ContentType, Files};
pub(super) use source::{Format, Source};

/// Consecutive rows.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Batch {
    /// The features of each row.
    pub(super) features: Features,
    /// One label per row.
    pub(super) labels: Vec<f32>,
    /// One weight per row, or nothing if the data has none.
    pub(super) weights: Vec<f32>,
    /// One query id per row, or nothing if the data has none.
    pub(super) groups: Vec<u32>,
}

/// Feature values; NaN is a missing one.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Features {
    /// Row-major, `columns` values per row.
    Dense {
        /// `rows * columns` values.
        values: Vec<f32>,
        /// Values per row.
        columns: usize,
    },
    /// Compressed sparse rows: row `r` has the entries `offsets[r]..offsets[r + 1]`; absent entries
    /// are missing.
    Sparse {
        /// `rows + 1` offsets, the first 0.
        offsets: Vec<u64>,
        /// Feature number of each entry.
        indices: Vec<u32>,
        /// Value of each entry.
        values: Vec<f32>,
    },
}

impl Batch {
    fn dense(columns: usize) -> Self {
        Self::of(Features::Dense { values: Vec::new(), columns })
    }

    fn sparse() -> Self {
        Self::of(Features::Sparse { offsets: vec![0], indices: Vec::new(), values: Vec::new() })
    }

    fn of(features: Features) -> Self {
        Self { features, labels: Vec::new(), weights: Vec::new(), groups: Vec::new() }
    }

    /// Number of rows.
    pub(super) fn rows(&self) -> usize {
        self.labels.len()
    }

    /// Bytes that the rows take.
    fn bytes(&self) -> usize {
        let features = match &self.features {
            Features::Dense { values, .. } => values.len() * size_of::<f32>(),
            Features::Sparse { offsets, indices, values } => {
                offsets.len() * size_of::<u64>() + indices.len() * size_of::<u32>() + values.len() * size_of::<f32>()
            }
        };
        features + (self.labels.len() + self.weights.len() + self.groups.len()) * size_of::<f32>()
    }

    /// Forgets the rows and keeps the memory.
    fn clear(&mut self) {
        match &mut self.features {
            Features::Dense { values, .. } => values.clear(),
            Features::Sparse { offsets, indices, values } => {
                offsets.truncate(1);
                indices.clear();
                values.clear();
            }
        }
        self.labels.clear();
        self.weights.clear();
        self.groups.clear();
    }

    /// Adds the rows of `other`, which has the same kind of features.
    pub(super) fn append(&mut self, other: &Self) {
        match (&mut self.features, &other.features) {
            (Features::Dense { values, .. }, Features::Dense { values: more, .. }) => values.extend_from_slice(more),
            (
                Features::Sparse { offsets, indices, values },
                Features::Sparse { offsets: more_offsets, indices: more_indices, values: more_values },
            ) => {
                let base = values.len() as u64;
                offsets.extend(more_offsets.iter().skip(1).map(|offset| base + offset));
                indices.extend_from_slice(more_indices);
                values.extend_from_slice(more_values);
            }
            _ => unreachable!("one source gives one kind of features"),
        }
        if !self.weights.is_empty() || !other.weights.is_empty() {
            // Rows without a weight weigh 1.
            self.weights.resize(self.labels.len(), 1.0);
            self.weights.extend_from_slice(&other.weights);
            self.weights.resize(self.labels.len() + other.labels.len(), 1.0);
        }
        self.labels.extend_from_slice(&other.labels);
        self.groups.extend_from_slice(&other.groups);
    }
}

/// What is wrong with the data.
#[derive(Debug, Error)]
pub(super) enum DataError {
    /// A line that is not of the format.
    #[error("{file}, line {line}, column {column}: {reason}")]
    Line {
        /// The file, from the channel's name on.
        file: String,
        /// Line number, from 1.
        line: u64,
        /// Field number in the line, from 1.
        column: usize,
        /// What is wrong, with the offending text.
        reason: String,
    },
    /// A file that is of another format altogether.
    #[error("{file}: {reason}")]
    File {
        /// The file, from the channel's name on.
        file: String,
        /// What is wrong, and what to do.
        reason: String,
    },
    /// A channel whose settings cannot be served.
    #[error("{0}")]
    Channel(String),
    /// The operating system's refusal.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// What could not be read.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
}

/// What is wrong with a line, before its place is known.
#[derive(Debug, PartialEq, Eq)]
struct BadField {
    /// Field number in the line, from 1.
    column: usize,
    reason: String,
}

impl BadField {
    fn new(column: usize, reason: impl Into<String>) -> Self {
        Self { column, reason: reason.into() }
    }
}

/// A field for an error message: at most 40 characters, quoted.
fn quoted(field: &[u8]) -> String {
    let text = String::from_utf8_lossy(field);
    if text.chars().count() <= 40 {
        return format!("\"{}\"", text.escape_debug());
    }
    let start: String = text.chars().take(40).collect();
    format!("\"{}\"...", start.escape_debug())
}
