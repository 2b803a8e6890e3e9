//! The hyperparameters that SageMaker tunes, with the ranges that it recommends (its developer guide, "Tune an XGBoost Model"), all linear.

/// A hyperparameter and its recommended range; both ends belong to it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Tunable {
    /// Its name.
    pub name: &'static str,
    /// Whole numbers only.
    pub is_whole: bool,
    /// Least.
    pub min: f64,
    /// Greatest.
    pub max: f64,
}

const fn whole(name: &'static str, min: u32, max: u32) -> Tunable {
    Tunable { name, is_whole: true, min: min as f64, max: max as f64 }
}

const fn real(name: &'static str, min: f64, max: f64) -> Tunable {
    Tunable { name, is_whole: false, min, max }
}

/// All of them.
pub(crate) const TUNABLE: [Tunable; 12] = [
    whole("num_round", 1, 4000),
    real("eta", 0.1, 0.5),
    real("gamma", 0.0, 5.0),
    whole("max_depth", 0, 10),
    real("min_child_weight", 0.0, 120.0),
    whole("max_delta_step", 0, 10),
    real("subsample", 0.5, 1.0),
    real("colsample_bytree", 0.5, 1.0),
    real("colsample_bylevel", 0.1, 1.0),
    real("colsample_bynode", 0.1, 1.0),
    real("lambda", 0.0, 1000.0),
    real("alpha", 0.0, 1000.0),
];
