//! Built-in algorithms that need no tensor engine, as ordinary training programs: they know
//! `/opt/ml`, the environment of a training program and nothing else of Shoal. Each is declared by
//! an [`Algorithm`], from which images, validation, tuning, instances and `shoal setup` take what
//! they need to know of it; [`BUILT_IN`] lists them. To add one, write it here and append its
//! declaration to that list.

mod algorithm;
mod algorithms;
mod hook;
mod images;
mod library;
pub mod xgboost;

pub use algorithm::{
    Algorithm, Channels, HyperparameterError, Hyperparameters, MeasuredOn, Metric, Objective, Resource, Tunable,
};
pub use algorithms::Algorithms;
pub use images::{Image, Repository, UnknownVersion};
pub use library::{Library, LibraryError, LibraryPath, Wheel, cache};
#[cfg(feature = "fuzzing")]
pub use xgboost::read_rows;

/// The algorithms of the product.
pub const BUILT_IN: Algorithms = Algorithms::new(ALGORITHMS);

const ALGORITHMS: &[&Algorithm] = &[&xgboost::ALGORITHM];
