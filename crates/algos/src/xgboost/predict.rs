//! Predictions of a trained model, for those who compare models.

use super::{
    LIBRARY,
    ffi::{
        api::{Api, XGBoostError},
        booster::{Booster, Output},
        matrix::Matrix,
    },
};
use crate::LibraryError;

/// Why nothing was predicted.
#[derive(Debug, thiserror::Error)]
pub enum PredictError {
    /// The XGBoost library is not here.
    #[error(transparent)]
    Library(#[from] LibraryError),
    /// It refused the model or the rows.
    #[error("xgboost cannot predict")]
    XGBoost(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The rows are no table of numbers.
    #[error("row {row}, column {column}: \"{text}\" is not a number")]
    Rows {
        /// From 1.
        row: usize,
        /// From 1.
        column: usize,
        /// As found.
        text: String,
    },
}

impl From<XGBoostError> for PredictError {
    fn from(error: XGBoostError) -> Self {
        Self::XGBoost(error.into())
    }
}

/// What the model (a model file's bytes) predicts for comma-separated rows without a label column:
/// one value per row, or one per class and row, row-major. An empty field is a missing value.
///
/// # Errors
/// See [`PredictError`].
pub fn predict(model: &[u8], rows: &str) -> Result<Vec<f32>, PredictError> {
    let mut values = Vec::new();
    let mut columns = 0;
    for (row, line) in rows.lines().enumerate() {
        let before = values.len();
        for (column, text) in line.split(',').enumerate() {
            let number = |_| PredictError::Rows { row: row + 1, column: column + 1, text: text.to_owned() };
            values.push(if text.trim().is_empty() { f32::NAN } else { text.trim().parse().map_err(number)? });
        }
        columns = values.len() - before;
    }
    let api = Api::open(&LIBRARY.find()?.file).map_err(|error| PredictError::XGBoost(error.into()))?;
    let mut booster = Booster::load(api, model)?;
    let matrix = Matrix::from_dense(api, &values, columns, 1)?;
    Ok(booster.predict(&matrix, Output::Transformed)?.values)
}
