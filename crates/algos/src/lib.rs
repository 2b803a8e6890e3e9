//! Built-in algorithms that need no tensor engine, as ordinary training programs: they know `/opt/ml`, the environment of a training
//! program and nothing else of Shoal. [`images`] maps SageMaker's image names to them; [`run`] is what `shoal algorithm NAME` calls
//! inside an instance. The XGBoost built-in drives the real library, found or fetched by [`library`].

pub mod images;
pub mod xgboost;

pub use xgboost::library;
#[cfg(feature = "fuzzing")]
pub use xgboost::read_rows;

/// Runs the built-in algorithm `name` on this instance, as the process's only job, and returns the process's exit code: 0 for success, 1
/// for a failure (told on standard error and in the instance's failure file), 2 for an unknown `name`.
///
/// Call it from the main thread before others are started: it sets variables that the OpenMP run time reads when the library is loaded.
pub fn run(name: &str) -> i32 {
    if name == images::Algorithm::XGBoost.name() {
        return xgboost::run();
    }
    eprintln!("there is no built-in algorithm {name:?}; the built-in algorithms are: {}", images::Algorithm::XGBoost.name());
    2
}

/// Does what [`run`] would begin with and what is the same for many trainings on this instance's channels: loads the library, reads the data.
/// A [`run`] of this process, or of one that is forked from it, then finds it done. Starts no thread. What goes wrong is left to `run` to tell.
pub fn prepare(name: &str) {
    if name == images::Algorithm::XGBoost.name() {
        xgboost::prepare();
    }
}
