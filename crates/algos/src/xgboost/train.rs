//! One model from the channels, once the data is read and the group is formed.

use super::boost::{Boost, Keep};
use super::checkpoints::Checkpoints;
use super::data::Source;
use super::evaluate::{Evaluator, Set};
use super::failure::Failure;
use super::ffi::api::Api;
use super::ffi::matrix::{Matrix, MatrixOptions};
use super::group::Group;
use super::hyperparameters::Hyperparameters;
use super::instance::Instance;
use super::judge::{Judge, JudgeOptions, Own};
use super::metric_plan::MetricPlan;
use super::saved_tensors::SavedTensors;
use super::termination::Termination;
use super::turns::Turns;
use super::{auc, intercept, log, model_file};

/// What is trained on.
pub(super) struct Channels {
    pub(super) train: Source,
    pub(super) validation: Option<Source>,
    /// Feature columns of all hosts.
    pub(super) columns: usize,
}

/// Trains on this host's part of the data, together with the other hosts of `group`; rank 0 writes
/// the model.
pub(super) fn train(
    api: &'static Api,
    instance: &Instance,
    hyperparameters: &Hyperparameters,
    mut channels: Channels,
    group: &Group,
    termination: &Termination,
) -> Result<(), Failure> {
    let threads = hyperparameters.nthread.unwrap_or(instance.cpus);
    let mut parameters = library_parameters(hyperparameters, threads);
    if let Some(mean) = intercept::of_all_hosts(hyperparameters, &channels.train, group)? {
        parameters.push(("base_score".to_owned(), mean.to_string()));
    }
    let own: Vec<Own<'_>> = std::iter::once(&channels.train)
        .chain(&channels.validation)
        .map(|source| Own { labels: source.labels(), weights: source.weights(), groups: source.groups() })
        .collect();
    let mut plan = MetricPlan::of(hyperparameters, group, auc::is_ours(hyperparameters, &own))?;
    let judge = match plan.by_judge.take() {
        Some(metrics) => Some(Judge::new(
            api,
            &own,
            &JudgeOptions { parameters: of_objective(&parameters), metrics, threads },
            group,
        )?),
        None => None,
    };
    let sets = sets(api, hyperparameters, &mut channels, threads, group)?;
    drop(channels);
    let mut evaluator = Evaluator::new(&plan, judge);
    let directory = instance.paths.model();
    let boost =
        Boost { api, hyperparameters, parameters: &parameters, plan: &plan, group, directory: &directory, termination };
    let turns = Turns::read(&instance.paths);
    let checkpoints = instance
        .checkpoints
        .as_ref()
        .and_then(|directory| Checkpoints::new(directory, hyperparameters, turns.is_some()));
    let tensors = SavedTensors::of(instance, group).map(Box::new);
    let boosted = boost.run(None, &sets, &mut evaluator, Keep::Model { checkpoints, turns, tensors })?;
    if group.rank() == 0 {
        termination.save_last(&boosted.booster, &directory, model_file::NAME)?;
        log::info(&format!("Stored trained model at {}", directory.join(model_file::NAME).display()));
    }
    Ok(())
}

/// Everything that the library is told, metrics aside.
pub(super) fn library_parameters(hyperparameters: &Hyperparameters, threads: usize) -> Vec<(String, String)> {
    let own = hyperparameters.parameters.iter().map(|(name, value)| (name.clone(), value.clone()));
    own.chain([("nthread".to_owned(), threads.to_string())]).collect()
}

/// What the objective is told, without what grows trees: the judge has none, and no features that
/// constraints could name.
fn of_objective(parameters: &[(String, String)]) -> Vec<(String, String)> {
    let names = [
        "objective",
        "num_class",
        "scale_pos_weight",
        "tweedie_variance_power",
        "aft_loss_distribution",
        "aft_loss_distribution_scale",
    ];
    parameters.iter().filter(|(name, _)| names.contains(&name.as_str())).cloned().collect()
}

/// The matrices, as they were built ahead or built now; frees each channel's rows once they are in
/// its matrix.
fn sets(
    api: &'static Api,
    hyperparameters: &Hyperparameters,
    channels: &mut Channels,
    threads: usize,
    group: &Group,
) -> Result<Vec<Set>, Failure> {
    let options = options(hyperparameters, channels.columns, threads);
    let quantile = uses_histograms(hyperparameters);
    let ahead =
        if quantile && group.size() == 1 { ahead::take(options, channels.validation.is_some()) } else { Vec::new() };
    let mut ahead = ahead.into_iter();
    let mut sets: Vec<Set> = Vec::new();
    for (name, source) in std::iter::once(("train", &mut channels.train))
        .chain(channels.validation.as_mut().map(|source| ("validation", source)))
    {
        let matrix = match ahead.next() {
            Some(matrix) => matrix,
            None if quantile => Matrix::quantile(api, source, sets.first().map(|train| &train.matrix), options)?,
            None => Matrix::plain(api, source, options)?,
        };
        source.forget_rows();
        sets.push(Set { name, matrix, labels: source.labels().to_vec() });
    }
    Ok(sets)
}

fn options(hyperparameters: &Hyperparameters, columns: usize, threads: usize) -> MatrixOptions {
    // A quantile matrix cannot tell 0 bins; the library refuses the parameter itself.
    let max_bin = hyperparameters.parameter("max_bin", "256").parse().unwrap_or(256);
    MatrixOptions { columns, threads, max_bin }
}

/// Builds the matrices of a training on one host ahead, with this thread alone; for the first kind
/// of them that is asked for.
pub(super) fn prepare(api: &'static Api, hyperparameters: &Hyperparameters, sources: &mut [&mut Source]) {
    let Some(columns) = sources.iter().map(|source| source.columns()).max() else { return };
    if !uses_histograms(hyperparameters) || hyperparameters.kfold.is_some() || ahead::is_filled() {
        return;
    }
    let options = options(hyperparameters, columns, 1);
    let mut matrices: Vec<Matrix> = Vec::new();
    for source in sources {
        let Ok(matrix) = Matrix::quantile(api, source, matrices.first(), options) else { return };
        source.rewind();
        matrices.push(matrix);
    }
    ahead::put(options, matrices);
}

/// Matrices that were built before a training asked for them, of channels whose files never change.
mod ahead {
    use std::cell::RefCell;

    use super::{Matrix, MatrixOptions};

    thread_local! {
        /// The train channel's first, then the validation channel's if there is one.
        static MATRICES: RefCell<Option<(MatrixOptions, Vec<Matrix>)>> = const { RefCell::new(None) };
    }

    pub(super) fn is_filled() -> bool {
        MATRICES.with_borrow(Option::is_some)
    }

    pub(super) fn put(options: MatrixOptions, matrices: Vec<Matrix>) {
        MATRICES.set(Some((options, matrices)));
    }

    /// None if they are of another kind. A forked process takes its own copy.
    pub(super) fn take(wanted: MatrixOptions, validates: bool) -> Vec<Matrix> {
        let fits = |(options, matrices): &mut (MatrixOptions, Vec<Matrix>)| {
            options.columns == wanted.columns
                && options.max_bin == wanted.max_bin
                && matrices.len() == 1 + usize::from(validates)
        };
        MATRICES.with_borrow_mut(|kept| kept.take_if(fits)).map_or_else(Vec::new, |(_, matrices)| matrices)
    }
}

/// Whether trees are grown from histograms alone, so that the values themselves need not be kept.
fn uses_histograms(hyperparameters: &Hyperparameters) -> bool {
    hyperparameters.parameter("booster", "gbtree") != "gblinear"
        && matches!(hyperparameters.parameter("tree_method", "auto"), "auto" | "hist")
        && hyperparameters.parameter("process_type", "default") == "default"
        && !hyperparameters.parameters.contains_key("updater")
}
