//! SageMaker's XGBoost image as a program of ours, in algorithm mode: the same hyperparameters,
//! channels, log lines, metrics and model file, on the current XGBoost library. `declaration` is
//! what others know of it. From the outside in: `instance` is what the process is told,
//! `hyperparameters` and `channels` check what the user gave, `roll` finds out which hosts take
//! part and who was lost, `train` trains.

mod auc;
mod boost;
mod channels;
mod checkpoints;
mod container_metrics;
mod cross_validation;
mod data;
mod declaration;
mod dumped_trees;
mod early_stopping;
mod evaluate;
mod failure;
mod ffi;
mod group;
mod hyperparameters;
mod instance;
mod intercept;
mod judge;
mod labels;
mod log;
mod metric_plan;
mod metrics;
mod model_file;
mod predict;
mod ranges;
mod roll;
mod saved_tensors;
mod termination;
mod together;
mod train;
mod translate;
mod turns;

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

pub use declaration::{ALGORITHM, LIBRARY};
pub use hyperparameters::validate;
pub use predict::{PredictError, predict};

use channels::Rows;
use data::{Format, Source};
use failure::Failure;
use ffi::api::Api;
use group::Group;
use hyperparameters::Hyperparameters;
use instance::Instance;
use termination::Termination;
use train::Channels;

/// Reads the files of a directory as a channel of this content type, and counts the rows.
///
/// # Errors
/// What is wrong with them, and where.
#[cfg(feature = "fuzzing")]
pub fn read_rows(directory: &Path, content_type: &str, weights: bool) -> Result<usize, String> {
    let read = || {
        let format = match data::ContentType::parse(Some(content_type))? {
            data::ContentType::Csv => Format::Csv(data::CsvOptions { weights }),
            data::ContentType::Libsvm => Format::Libsvm,
        };
        Source::scan(data::Files::list(directory)?, format)
    };
    read()
        .map(|source| source.map_or(0, |source| source.labels().len()))
        .map_err(|error: data::DataError| error.to_string())
}

/// Runs the training of this process.
fn run() -> i32 {
    ffi::api::let_threads_sleep();
    let paths = instance::paths();
    match train(paths.clone()) {
        Ok(code) => code,
        Err(failure) => {
            report(&failure, &paths.failure());
            shoal_contract::FAILURE
        }
    }
}

/// Loads the library and reads the data.
fn prepare() {
    ffi::api::let_threads_sleep();
    // Everything here is done again, and its failure told, by the training itself.
    let Ok(instance) = Instance::read(instance::paths()) else { return };
    let Ok((api, _)) = load_library() else { return };
    // Here nobody reads warnings; the training gives its own.
    if api.set_global_config(r#"{"verbosity": 0}"#).is_err() {
        return;
    }
    let Ok(mut hyperparameters) = Hyperparameters::parse(&instance.job.hyperparameters) else { return };
    if translate::translate(&mut hyperparameters.parameters, instance.job.world_size()).is_err() {
        return;
    }
    let Ok(format) = channels::check(&instance, &hyperparameters) else { return };
    channels::prepare(&instance, format, |sources| {
        if instance.job.world_size() == 1 {
            train::prepare(api, &hyperparameters, sources);
        }
    });
}

/// Tells a failure in the log and in the failure file, which is never overwritten.
fn report(failure: &Failure, file: &Path) {
    let text = failure.to_string();
    log::error(&text);
    if file.exists() {
        return;
    }
    let written = file.parent().map_or(Ok(()), std::fs::create_dir_all).and_then(|()| std::fs::write(file, &text));
    if let Err(error) = written {
        eprintln!("{text}\ncannot write {}: {error}", file.display());
    }
}

/// Gives the exit code.
fn train(paths: shoal_contract::Paths) -> Result<i32, Failure> {
    let instance = Instance::read(paths)?;
    let job = &instance.job;
    if job.hyperparameters.contains_key("sagemaker_program") {
        return Err(Failure::User(
            "the XGBoost image's script mode (hyperparameter sagemaker_program) is not supported: train in algorithm \
             mode, or run the script \
             in an image of your own"
                .to_owned(),
        ));
    }
    let mut hyperparameters = Hyperparameters::parse(&job.hyperparameters)?;
    for note in translate::translate(&mut hyperparameters.parameters, job.world_size())? {
        log::info(&note);
    }
    if hyperparameters.kfold.is_some() && job.world_size() > 1 {
        return Err(Failure::User("cross-validation (_kfold) runs on one instance: set InstanceCount to 1".to_owned()));
    }
    let format = channels::check(&instance, &hyperparameters)?;
    let api = open_library()?;
    api.set_global_config(&format!(r#"{{"verbosity": {}}}"#, hyperparameters.parameter("verbosity", "1")))?;

    let termination = Termination::listen(instance.paths.model(), hyperparameters.save_model_on_termination)?;
    if job.world_size() == 1 {
        train_alone(api, &instance, &hyperparameters, format, &termination)?;
    } else {
        match together::train(api, &instance, &hyperparameters, format, &termination) {
            Err(Failure::Lost(loss)) => return termination.requests().explain(&loss).ok_or(Failure::Lost(loss)),
            trained => trained?,
        }
    }
    Ok(termination.exit_code())
}

/// The whole job on this host.
fn train_alone(
    api: &'static Api,
    instance: &Instance,
    hyperparameters: &Hyperparameters,
    format: Format,
    termination: &Termination,
) -> Result<(), Failure> {
    let channels = Rows::read(instance, hyperparameters, format)?;
    log::info("Single node training.");
    let (train, validation) = channels.complete()?;
    let columns = train.columns().max(validation.as_ref().map_or(0, Source::columns));
    if let Some(folds) = hyperparameters.kfold {
        if instance.checkpoints.is_some() {
            log::warning("a cross-validation (_kfold) writes no checkpoints");
        }
        if instance.paths.config().join("debughookconfig.json").exists() {
            log::warning("a cross-validation (_kfold) saves no tensors for the Debugger");
        }
        let channels = Channels { train, validation, columns };
        return cross_validation::train(api, instance, hyperparameters, channels, folds as usize, termination);
    }
    train::train(api, instance, hyperparameters, Channels { train, validation, columns }, &Group::alone(), termination)
}

fn open_library() -> Result<&'static Api, Failure> {
    let (api, file) = load_library()?;
    let (major, minor, patch) = api.version();
    log::info(&format!("XGBoost {major}.{minor}.{patch} from {}", file.display()));
    Ok(api)
}

/// The library, loaded once.
fn load_library() -> Result<(&'static Api, PathBuf), Failure> {
    static LOADED: OnceLock<(&'static Api, PathBuf)> = OnceLock::new();
    let path = LIBRARY.find()?;
    if let Some((api, file)) = LOADED.get()
        && *file == path.file
    {
        return Ok((*api, file.clone()));
    }
    let api = Api::open(&path.file).map_err(|error| LIBRARY.unusable(&path.file, &error))?;
    Ok(LOADED.get_or_init(|| (api, path.file)).clone())
}
