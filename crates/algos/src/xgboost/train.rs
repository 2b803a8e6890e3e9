//! The training itself, once the data is read and the group is formed: matrices, rounds, early stopping, the model file.

use super::container_metrics::{ContainerMetric, ContainerMetrics};
use super::data::Source;
use super::early_stopping::EarlyStopping;
use super::evaluate::{self, Evaluator, Set};
use super::failure::Failure;
use super::ffi::api::Api;
use super::ffi::booster::Booster;
use super::ffi::matrix::{Matrix, MatrixOptions};
use super::group::Group;
use super::hyperparameters::Hyperparameters;
use super::instance::Instance;
use super::judge::{Judge, JudgeOptions, Own};
use super::{log, metrics, model_file};

/// What is trained on.
pub(super) struct Channels {
    pub(super) train: Source,
    pub(super) validation: Option<Source>,
    /// Feature columns of all hosts.
    pub(super) columns: usize,
}

/// Trains on this host's part of the data, together with the other hosts of `group`; rank 0 writes the model.
pub(super) fn train(
    api: &'static Api,
    instance: &Instance,
    hyperparameters: &Hyperparameters,
    mut channels: Channels,
    group: &Group,
) -> Result<(), Failure> {
    let threads = hyperparameters.nthread.unwrap_or(instance.cpus);
    let parameters = library_parameters(hyperparameters, threads);
    let mut plan = MetricPlan::of(hyperparameters, group)?;
    let judge = match plan.by_judge.take() {
        Some(metrics) => {
            let own: Vec<Own<'_>> = std::iter::once(&channels.train)
                .chain(&channels.validation)
                .map(|source| Own { labels: source.labels(), weights: source.weights(), groups: source.groups() })
                .collect();
            Some(Judge::new(api, &own, &JudgeOptions { parameters: parameters.clone(), metrics, threads }, group)?)
        }
        None => None,
    };
    let sets = sets(api, hyperparameters, &mut channels, threads)?;
    drop(channels);

    let matrices: Vec<&Matrix> = sets.iter().map(|set| &set.matrix).collect();
    let mut booster = Booster::new(api, &matrices)?;
    for (name, value) in &parameters {
        booster.set(name, value)?;
    }
    for metric in &plan.by_library {
        booster.set("eval_metric", metric)?;
    }
    let by_library = !plan.by_library.is_empty() || plan.default_by_library;
    if !plan.default_by_library {
        booster.set("disable_default_eval_metric", "1")?;
    }
    let mut evaluator = Evaluator::new(by_library, judge, plan.by_us, plan.judged);

    // As in the image: only with a validation channel, and only for a metric that was asked for.
    let (_, watched) = hyperparameters.metrics();
    let mut stopping = match (hyperparameters.early_stopping_rounds, watched) {
        (Some(rounds), Some(metric)) if sets.len() > 1 => Some((metric, EarlyStopping::new(rounds, metrics::is_maximized(metric)))),
        (Some(_), _) => {
            log::warning("early_stopping_rounds has no effect without a validation channel and an eval_metric");
            None
        }
        _ => None,
    };

    for round in 0..hyperparameters.num_round {
        booster.update(round as i32, &sets[0].matrix)?;
        let scores = evaluator.evaluate(&mut booster, round, &sets, group)?;
        if group.rank() == 0 {
            log::print(&evaluate::line(round, &scores));
            if hyperparameters.save_model_on_termination {
                model_file::save(&booster, &instance.paths.model(), model_file::NAME)?;
            }
        }
        if let Some((metric, stopping)) = &mut stopping {
            // Rank 0 alone has all scores.
            let mut stop = [0.0];
            if group.rank() == 0 {
                let score = scores.iter().rev().find(|score| score.set == "validation" && metrics::is_same(&score.metric, metric));
                let score = score.ok_or_else(|| Failure::User(format!("early stopping cannot watch {metric}: it is not evaluated")))?;
                stop[0] = f64::from(u8::from(stopping.observe(round, score.value)));
            }
            group.broadcast(&mut stop)?;
            if stop[0] > 0.0 {
                break;
            }
        }
    }
    if group.rank() > 0 {
        return Ok(());
    }
    let best = stopping.and_then(|(_, stopping)| stopping.best());
    save(booster, hyperparameters, best, instance)
}

/// Writes the model of the best round, or of all rounds.
fn save(mut booster: Booster, hyperparameters: &Hyperparameters, best: Option<(u32, f64)>, instance: &Instance) -> Result<(), Failure> {
    if let Some((round, score)) = best {
        if hyperparameters.parameter("booster", "gbtree") == "gblinear" {
            log::warning(&format!("the best round was {round}; a linear model keeps no earlier rounds, so the last one is saved"));
        } else {
            booster = booster.first_rounds(round as i32 + 1)?;
            log::info(&format!("the best round was {round}: saving the model of {} rounds", round + 1));
        }
        booster.set_attribute("best_iteration", &round.to_string())?;
        booster.set_attribute("best_score", &score.to_string())?;
    }
    let directory = instance.paths.model();
    model_file::save(&booster, &directory, model_file::NAME)?;
    log::info(&format!("Stored trained model at {}", directory.join(model_file::NAME).display()));
    Ok(())
}

/// Everything that the library is told, metrics aside.
fn library_parameters(hyperparameters: &Hyperparameters, threads: usize) -> Vec<(String, String)> {
    let own = hyperparameters.parameters.iter().map(|(name, value)| (name.clone(), value.clone()));
    own.chain([("nthread".to_owned(), threads.to_string())]).collect()
}

/// Builds the matrices; frees each channel's rows once they are in its matrix.
fn sets(api: &'static Api, hyperparameters: &Hyperparameters, channels: &mut Channels, threads: usize) -> Result<Vec<Set>, Failure> {
    // A quantile matrix cannot tell 0 bins; the library refuses the parameter itself.
    let max_bin = hyperparameters.parameter("max_bin", "256").parse().unwrap_or(256);
    let options = MatrixOptions { columns: channels.columns, threads, max_bin };
    let quantile = uses_histograms(hyperparameters);
    let mut sets: Vec<Set> = Vec::new();
    for (name, source) in
        std::iter::once(("train", &mut channels.train)).chain(channels.validation.as_mut().map(|source| ("validation", source)))
    {
        let matrix = if quantile {
            Matrix::quantile(api, source, sets.first().map(|train| &train.matrix), options)?
        } else {
            Matrix::plain(api, source, options)?
        };
        source.forget_rows();
        sets.push(Set { name, matrix, labels: source.labels().to_vec() });
    }
    Ok(sets)
}

/// Whether trees are grown from histograms alone, so that the values themselves need not be kept.
fn uses_histograms(hyperparameters: &Hyperparameters) -> bool {
    hyperparameters.parameter("booster", "gbtree") != "gblinear"
        && matches!(hyperparameters.parameter("tree_method", "auto"), "auto" | "hist")
        && hyperparameters.parameter("process_type", "default") == "default"
        && !hyperparameters.parameters.contains_key("updater")
}

/// Who computes which metric.
struct MetricPlan {
    /// The booster under training.
    by_library: Vec<String>,
    /// It also prints the objective's default metric.
    default_by_library: bool,
    /// The judge, from all hosts' rows; none for the default.
    by_judge: Option<Vec<String>>,
    /// For each metric of the library, in the order asked for: whether the judge has it.
    judged: Vec<bool>,
    by_us: ContainerMetrics,
}

impl MetricPlan {
    fn of(hyperparameters: &Hyperparameters, group: &Group) -> Result<Self, Failure> {
        let (asked, _) = hyperparameters.metrics();
        let objective = hyperparameters.parameter("objective", "reg:squarederror");
        let classes = match objective {
            "multi:softmax" | "multi:softprob" => hyperparameters.parameter("num_class", "2").parse().ok(),
            "binary:logistic" | "binary:logitraw" | "binary:hinge" => Some(2),
            _ => None,
        };
        let by_us = ContainerMetrics::of(&asked, classes)?;
        let of_library: Vec<String> = asked.into_iter().filter(|metric| ContainerMetric::named(metric).is_none()).collect();
        let default = of_library.is_empty();
        let apart = |metric: &str| group.size() > 1 && metrics::needs_all_rows(metric);
        let default_apart = default && apart(metrics::default_of(objective));
        let judged: Vec<bool> = of_library.iter().map(|metric| apart(metric)).collect();
        let (of_judge, by_library): (Vec<String>, Vec<String>) = of_library.into_iter().partition(|metric| apart(metric));
        let by_judge = (default_apart || !of_judge.is_empty()).then_some(of_judge);
        Ok(Self { by_library, default_by_library: default && !default_apart, by_judge, judged, by_us })
    }
}
