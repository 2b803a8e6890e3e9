//! What the rest of Shoal knows of XGBoost.

use super::{hyperparameters, metrics, prepare, run};
use crate::{Algorithm, Channels, Hyperparameters, Library, Repository, Resource, Tunable, Wheel};

/// SageMaker's XGBoost image in algorithm mode.
pub static ALGORITHM: Algorithm = Algorithm {
    name: "xgboost",
    title: "XGBoost",
    repositories: &[
        Repository { name: "sagemaker-xgboost", versions: &VERSIONS, other_tags: &[] },
        Repository { name: "xgboost", versions: &VERSIONS, other_tags: &[("1", "1"), ("latest", "1"), ("", "1")] },
    ],
    hyperparameters: Hyperparameters {
        names: hyperparameters::names,
        required: &[("num_round", "100")],
        check: hyperparameters::validate_one,
        tunable: &TUNABLE,
        resource: Some(Resource { name: "num_round", unit: "boosting rounds" }),
    },
    channels: Channels { required: "train", optional: &["validation", "code"] },
    metrics: metrics::all,
    resumes: true,
    libraries: &[&LIBRARY],
    prepare,
    run,
};

/// The XGBoost library.
pub static LIBRARY: Library = Library {
    name: "xgboost",
    title: "XGBoost",
    variable: "XGB_LIB",
    oldest: "3.0",
    wheel: Wheel {
        package: "xgboost-cpu",
        version: "3.4.1",
        // xgboost_cpu-3.4.1-py3-none-manylinux_2_28_x86_64.whl; it is the same file for every
        // Python.
        sha256: "1f16331f5c6beb2b40fbd4bf2834333062d93c9eb38b76186a5c206841dc1809",
        platform: "manylinux_2_28_x86_64",
        size: "6 MB",
        file: "xgboost/lib/libxgboost.so",
        // The library finds its OpenMP run time relative to itself.
        directories: &["xgboost/lib/", "xgboost_cpu.libs/"],
    },
};

/// The versions of the images as the SageMaker SDK 2.257 lists them.
const VERSIONS: [&str; 9] = ["0.90-1", "0.90-2", "1.0-1", "1.2-1", "1.2-2", "1.3-1", "1.5-1", "1.7-1", "3.0-5"];

/// What SageMaker tunes, and the ranges that it recommends (its developer guide, "Tune an XGBoost
/// Model").
const TUNABLE: [Tunable; 12] = [
    Tunable::whole("num_round", 1, 4000),
    Tunable::real("eta", 0.1, 0.5),
    Tunable::real("gamma", 0.0, 5.0),
    Tunable::whole("max_depth", 0, 10),
    Tunable::real("min_child_weight", 0.0, 120.0),
    Tunable::whole("max_delta_step", 0, 10),
    Tunable::real("subsample", 0.5, 1.0),
    Tunable::real("colsample_bytree", 0.5, 1.0),
    Tunable::real("colsample_bylevel", 0.1, 1.0),
    Tunable::real("colsample_bynode", 0.1, 1.0),
    Tunable::real("lambda", 0.0, 1000.0),
    Tunable::real("alpha", 0.0, 1000.0),
];
