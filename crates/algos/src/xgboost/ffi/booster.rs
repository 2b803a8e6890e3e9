//! The model under training.

use std::ffi::CStr;
use std::ptr::{null, null_mut};

use super::api::{Api, Handle, XGBoostError, c_string};
use super::matrix::Matrix;

/// Predictions of one matrix: `values.len() == rows * columns`, row-major.
pub(in crate::xgboost) struct Predictions {
    /// Row-major values.
    pub(in crate::xgboost) values: Vec<f32>,
    /// Values per row: 1, or the number of classes.
    pub(in crate::xgboost) columns: usize,
}

/// What to predict.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::xgboost) enum Output {
    /// What the objective calls its prediction: a probability, a class, a mean.
    Transformed,
    /// The raw sum of the trees and of the base score.
    Margin,
}

/// Contributions of features to predictions (SHAP values), row-major: for each row and group
/// (class) one of each feature, and the bias.
pub(in crate::xgboost) struct Contributions {
    values: Vec<f32>,
    pub(in crate::xgboost) rows: usize,
    pub(in crate::xgboost) groups: usize,
    /// Without the bias, which follows them.
    pub(in crate::xgboost) features: usize,
}

impl Contributions {
    /// Those of a feature, or of the bias, for each row and group.
    pub(in crate::xgboost) fn of(&self, feature: usize) -> Vec<f32> {
        self.values.chunks_exact(self.features + 1).filter_map(|row| row.get(feature).copied()).collect()
    }
}

/// What the importance of a feature is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::xgboost) enum Importance {
    Weight,
    Gain,
    Cover,
    TotalGain,
    TotalCover,
}

impl Importance {
    /// The library's name.
    pub(in crate::xgboost) fn name(self) -> &'static str {
        match self {
            Self::Weight => "weight",
            Self::Gain => "gain",
            Self::Cover => "cover",
            Self::TotalGain => "total_gain",
            Self::TotalCover => "total_cover",
        }
    }
}

/// A booster of the library.
pub(in crate::xgboost) struct Booster {
    api: &'static Api,
    handle: Handle,
}

impl Drop for Booster {
    fn drop(&mut self) {
        // SAFETY: the handle is owned and freed once; a failure to free has no remedy.
        unsafe { (self.api.XGBoosterFree)(self.handle) };
    }
}

impl Booster {
    /// A booster with no trees that keeps its predictions of `cached` up to date as it grows.
    pub(in crate::xgboost) fn new(api: &'static Api, cached: &[&Matrix]) -> Result<Self, XGBoostError> {
        let handles: Vec<Handle> = cached.iter().map(|matrix| matrix.handle).collect();
        let mut handle = null_mut();
        // SAFETY: an array of live handles of that length. The library shares ownership of the
        // matrices behind them.
        api.check(unsafe { (api.XGBoosterCreate)(handles.as_ptr(), handles.len() as u64, &raw mut handle) })?;
        Ok(Self { api, handle })
    }

    /// The booster of a model file's bytes (UBJSON or JSON).
    pub(in crate::xgboost) fn load(api: &'static Api, model: &[u8]) -> Result<Self, XGBoostError> {
        let mut booster = Self::new(api, &[])?;
        booster.replace_model(model)?;
        Ok(booster)
    }

    /// Becomes the booster of a model file's bytes; its cached matrices stay. Parameters that no
    /// model keeps are to be set afterwards.
    pub(in crate::xgboost) fn replace_model(&mut self, model: &[u8]) -> Result<(), XGBoostError> {
        // SAFETY: a live handle, and bytes of that length that the library copies.
        self.api.check(unsafe {
            (self.api.XGBoosterLoadModelFromBuffer)(self.handle, model.as_ptr().cast(), model.len() as u64)
        })
    }

    /// Lets go of what grows trees and of its random generators: the next round makes new ones. The
    /// model, its parameters and the predictions of cached matrices stay.
    pub(in crate::xgboost) fn renew_updaters(&mut self) -> Result<(), XGBoostError> {
        let (mut length, mut config) = (0, null());
        // SAFETY: a live handle, and valid addresses for the results.
        self.api.check(unsafe { (self.api.XGBoosterSaveJsonConfig)(self.handle, &raw mut length, &raw mut config) })?;
        // SAFETY: a C string of this booster that lives until its next call.
        let config = unsafe { CStr::from_ptr(config) }.to_owned();
        // SAFETY: a live handle and C string. The library makes new updaters of a configuration
        // that it loads.
        self.api.check(unsafe { (self.api.XGBoosterLoadJsonConfig)(self.handle, config.as_ptr()) })
    }

    /// Rounds that the model has.
    pub(in crate::xgboost) fn rounds(&self) -> Result<u32, XGBoostError> {
        let mut rounds = 0;
        // SAFETY: a live handle and a valid address for the result.
        self.api.check(unsafe { (self.api.XGBoosterBoostedRounds)(self.handle, &raw mut rounds) })?;
        Ok(u32::try_from(rounds).unwrap_or(0))
    }

    /// Sets one parameter. The library reads most of them at the first round only, and tells errors
    /// there.
    pub(in crate::xgboost) fn set(&mut self, name: &str, value: &str) -> Result<(), XGBoostError> {
        let (name, value) = (c_string(name), c_string(value));
        // SAFETY: two live C strings, which the library copies.
        self.api.check(unsafe { (self.api.XGBoosterSetParam)(self.handle, name.as_ptr(), value.as_ptr()) })
    }

    /// Grows the trees of one round. With several hosts this is a collective call.
    pub(in crate::xgboost) fn update(&mut self, round: i32, train: &Matrix) -> Result<(), XGBoostError> {
        // SAFETY: two live handles.
        self.api.check(unsafe { (self.api.XGBoosterUpdateOneIter)(self.handle, round, train.handle) })
    }

    /// Every metric on every set, as the library prints them:
    /// `[0]\ttrain-rmse:1.25\tvalidation-rmse:1.5`. Collective with several hosts.
    pub(in crate::xgboost) fn evaluate(
        &mut self,
        round: i32,
        sets: &[(&str, &Matrix)],
    ) -> Result<String, XGBoostError> {
        let handles: Vec<Handle> = sets.iter().map(|(_, matrix)| matrix.handle).collect();
        let names: Vec<_> = sets.iter().map(|(name, _)| c_string(name)).collect();
        let names: Vec<_> = names.iter().map(|name| name.as_ptr()).collect();
        let mut line = null();
        // SAFETY: two arrays of that length of live handles and C strings (`names` was shadowed,
        // its strings still live).
        self.api.check(unsafe {
            (self.api.XGBoosterEvalOneIter)(
                self.handle,
                round,
                handles.as_ptr(),
                names.as_ptr(),
                handles.len() as u64,
                &raw mut line,
            )
        })?;
        // SAFETY: a C string of this booster that lives until its next call.
        Ok(unsafe { CStr::from_ptr(line) }.to_string_lossy().into_owned())
    }

    /// Predictions for every row of `matrix`; what was predicted before for a cached matrix is not
    /// computed again.
    pub(in crate::xgboost) fn predict(&mut self, matrix: &Matrix, output: Output) -> Result<Predictions, XGBoostError> {
        let (shape, values) = self.predict_kind(matrix, i32::from(output == Output::Margin))?;
        let columns = shape.iter().skip(1).product();
        Ok(Predictions { values, columns })
    }

    /// Contributions of each feature to the prediction of each row.
    pub(in crate::xgboost) fn contributions(&mut self, matrix: &Matrix) -> Result<Contributions, XGBoostError> {
        let (shape, values) = self.predict_kind(matrix, 2)?;
        let (rows, groups, columns) = match shape[..] {
            [rows, columns] => (rows, 1, columns),
            [rows, groups, columns] => (rows, groups, columns),
            _ => return Err(XGBoostError(format!("contributions have {} dimensions", shape.len()))),
        };
        Ok(Contributions { values, rows, groups, features: columns.saturating_sub(1) })
    }

    /// Shape and values of a prediction, of a kind as the library numbers them.
    fn predict_kind(&mut self, matrix: &Matrix, kind: i32) -> Result<(Vec<usize>, Vec<f32>), XGBoostError> {
        let config = c_string(&format!(
            r#"{{"type": {kind}, "training": false, "iteration_begin": 0, "iteration_end": 0, "strict_shape": false}}"#
        ));
        let (mut shape, mut dimensions, mut values) = (null(), 0, null());
        // SAFETY: live handles, and valid addresses for the results.
        self.api.check(unsafe {
            (self.api.XGBoosterPredictFromDMatrix)(
                self.handle,
                matrix.handle,
                config.as_ptr(),
                &raw mut shape,
                &raw mut dimensions,
                &raw mut values,
            )
        })?;
        let dimensions = usize::try_from(dimensions).expect("a prediction has few dimensions");
        // SAFETY: the library returned that many dimensions, in memory that lives until this
        // booster's next call.
        let shape = unsafe { std::slice::from_raw_parts(shape, dimensions) };
        let shape = Vec::from_iter(shape.iter().map(|size| *size as usize));
        if shape.first().is_none_or(|rows| *rows == 0) {
            return Ok((shape, Vec::new()));
        }
        // SAFETY: the values of that shape, in memory that lives until this booster's next call.
        let values = unsafe { std::slice::from_raw_parts(values, shape.iter().product()) };
        Ok((shape, values.to_vec()))
    }

    /// The importance of each feature that the model uses; of a model with several values for a
    /// feature, their mean.
    pub(in crate::xgboost) fn importance(&mut self, kind: Importance) -> Result<Vec<(String, f64)>, XGBoostError> {
        let config = c_string(&format!(r#"{{"importance_type": "{}"}}"#, kind.name()));
        let (mut count, mut names, mut dimensions, mut shape, mut scores) = (0, null(), 0, null(), null());
        // SAFETY: a live handle and C string, and valid addresses for the results.
        self.api.check(unsafe {
            (self.api.XGBoosterFeatureScore)(
                self.handle,
                config.as_ptr(),
                &raw mut count,
                &raw mut names,
                &raw mut dimensions,
                &raw mut shape,
                &raw mut scores,
            )
        })?;
        let names = self.texts(names, count);
        if names.is_empty() {
            return Ok(Vec::new());
        }
        // SAFETY: the library returned that many dimensions, and values of that shape, in memory
        // that lives until this booster's next call.
        let scores = unsafe {
            let shape = std::slice::from_raw_parts(shape, usize::try_from(dimensions).unwrap_or(0));
            std::slice::from_raw_parts(scores, shape.iter().product::<u64>() as usize)
        };
        let of_each = (scores.len() / names.len()).max(1);
        let mean = |scores: &[f32]| scores.iter().map(|it| f64::from(*it)).sum::<f64>() / scores.len() as f64;
        Ok(names.into_iter().zip(scores.chunks_exact(of_each).map(mean)).collect())
    }

    /// The trees of a round as the library writes them, with their statistics.
    pub(in crate::xgboost) fn dump_round(&self, round: i32) -> Result<Vec<String>, XGBoostError> {
        let mut handle = null_mut();
        // SAFETY: a live handle and a valid address for the new one.
        self.api.check(unsafe { (self.api.XGBoosterSlice)(self.handle, round, round + 1, 1, &raw mut handle) })?;
        let sliced = Self { api: self.api, handle };
        let (map, format) = (c_string(""), c_string("text"));
        let (mut count, mut texts) = (0, null());
        // SAFETY: a live handle and C strings, and valid addresses for the results.
        self.api.check(unsafe {
            (self.api.XGBoosterDumpModelEx)(
                sliced.handle,
                map.as_ptr(),
                1,
                format.as_ptr(),
                &raw mut count,
                &raw mut texts,
            )
        })?;
        Ok(sliced.texts(texts, count))
    }

    /// Texts that the library has just returned for this booster.
    fn texts(&self, texts: *const *const std::ffi::c_char, count: u64) -> Vec<String> {
        let count = usize::try_from(count).unwrap_or(0);
        if count == 0 {
            return Vec::new();
        }
        // SAFETY: the library returned that many C strings, which live until this booster's next
        // call.
        let texts = unsafe { std::slice::from_raw_parts(texts, count) };
        // SAFETY: as above.
        texts.iter().map(|text| unsafe { CStr::from_ptr(*text) }.to_string_lossy().into_owned()).collect()
    }

    /// The model of the first `rounds` rounds.
    pub(in crate::xgboost) fn first_rounds(&self, rounds: i32) -> Result<Self, XGBoostError> {
        let mut handle = null_mut();
        // SAFETY: a live handle and a valid address for the new one.
        self.api.check(unsafe { (self.api.XGBoosterSlice)(self.handle, 0, rounds, 1, &raw mut handle) })?;
        Ok(Self { api: self.api, handle })
    }

    /// Stores a text attribute in the model.
    pub(in crate::xgboost) fn set_attribute(&mut self, name: &str, value: &str) -> Result<(), XGBoostError> {
        let (name, value) = (c_string(name), c_string(value));
        // SAFETY: two live C strings, which the library copies.
        self.api.check(unsafe { (self.api.XGBoosterSetAttr)(self.handle, name.as_ptr(), value.as_ptr()) })
    }

    /// A text attribute of the model.
    pub(in crate::xgboost) fn attribute(&self, name: &str) -> Result<Option<String>, XGBoostError> {
        let name = c_string(name);
        let (mut value, mut found) = (null(), 0);
        // SAFETY: a live handle and C string, and valid addresses for the results.
        self.api.check(unsafe {
            (self.api.XGBoosterGetAttr)(self.handle, name.as_ptr(), &raw mut value, &raw mut found)
        })?;
        if found == 0 || value.is_null() {
            return Ok(None);
        }
        // SAFETY: a C string of this booster that lives until its next call.
        Ok(Some(unsafe { CStr::from_ptr(value) }.to_string_lossy().into_owned()))
    }

    /// Removes a text attribute from the model, if it has it.
    pub(in crate::xgboost) fn remove_attribute(&mut self, name: &str) -> Result<(), XGBoostError> {
        let name = c_string(name);
        // SAFETY: a live C string; the header says that a null value deletes.
        self.api.check(unsafe { (self.api.XGBoosterSetAttr)(self.handle, name.as_ptr(), null()) })
    }

    /// The model as a UBJSON file's bytes, the library's own format, which `Booster.load_model`
    /// tells by its first bytes.
    pub(in crate::xgboost) fn to_bytes(&self) -> Result<Vec<u8>, XGBoostError> {
        let config = c_string(r#"{"format": "ubj"}"#);
        let (mut length, mut bytes) = (0, null());
        // SAFETY: a live handle, and valid addresses for the results.
        self.api.check(unsafe {
            (self.api.XGBoosterSaveModelToBuffer)(self.handle, config.as_ptr(), &raw mut length, &raw mut bytes)
        })?;
        let length = usize::try_from(length).expect("the model is in memory");
        // SAFETY: the library returned that many bytes, which live until this booster's next call.
        Ok(unsafe { std::slice::from_raw_parts(bytes.cast::<u8>(), length) }.to_vec())
    }
}
