//! Checkpoints as SageMaker's image keeps them: the newest five files `xgboost-checkpoint.<round>`
//! in the directory that is mirrored to S3; a training that finds some goes on behind the newest.
//! The model is then byte for byte that of a training that was never interrupted.
//!
//! Where rounds draw random numbers (sampling, dart), the library's generators are no part of a
//! model. So at certain rounds an uninterrupted training builds its updaters (or its whole booster)
//! anew too, with a seed that follows from the round, and only there checkpoints are written: after
//! every one of the first 20 rounds, then whenever a tenth has been added. They depend on nothing
//! but the round, so they are the same whatever the number of rounds asked for, and what an
//! interruption costs is a tenth at most. All other trainings need none of this and write a
//! checkpoint after a round if the last one is a second old. So do trials of tuning jobs, at those
//! of their rounds; but the last before a pause is always written, as they may be ended there.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::early_stopping::EarlyStopping;
use super::failure::Failure;
use super::ffi::api::Api;
use super::ffi::booster::Booster;
use super::group::Group;
use super::hyperparameters::Hyperparameters;
use super::{log, model_file};

const PREFIX: &str = "xgboost-checkpoint.";
/// SageMaker's platform mirrors no file of this ending, and neither do we.
const TEMPORARY: &str = "xgboost-checkpoint.sagemaker-ignore";
const KEPT: usize = 5;
/// Files that are tried when the newest cannot be read.
const TRIED: usize = 5;
const FREE_PACE: Duration = Duration::from_secs(1);
/// The model attribute that keeps how early stopping stands.
const STOPPING: &str = "shoal_early_stopping";
/// Between the seeds of two rounds; odd, so that no two rounds share one.
const SEED_STEP: i64 = 1_000_003;

/// What a training whose rounds draw random numbers makes anew at a checkpoint, to go on as one
/// that begins with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Renewal {
    /// What grows trees: the predictions that it has for its rows stay, which are the most work.
    Updaters,
    /// All.
    Booster,
}

/// Where and when checkpoints are written.
pub(super) struct Checkpoints {
    directory: PathBuf,
    /// Of a training whose rounds draw random numbers.
    renewal: Option<Renewal>,
    /// It is a trial's.
    of_trial: bool,
    /// When the last one was written, or a trial began.
    written: Option<Instant>,
}

/// A training to go on with.
pub(super) struct Resumed {
    /// The model file's bytes.
    pub(super) model: Vec<u8>,
    /// Rounds that it has.
    pub(super) rounds: u32,
}

impl Checkpoints {
    /// `None` where a training cannot go on from a model: the user is told.
    pub(super) fn new(directory: &Path, hyperparameters: &Hyperparameters, of_trial: bool) -> Option<Self> {
        if hyperparameters.parameter("process_type", "default") != "default" {
            log::warning("process_type update grows no rounds: no checkpoints are written");
            return None;
        }
        if hyperparameters.parameter("tree_method", "auto") == "approx"
            && hyperparameters.parameter("subsample", "1").parse() != Ok(1.0)
        {
            log::warning(
                "tree_method approx with subsample draws its bins from the rows of the first round: a training that \
                 goes on from a checkpoint ends with a good model, but not with the same one; tree_method hist does",
            );
        }
        Some(Self {
            directory: directory.to_owned(),
            renewal: renewal(hyperparameters),
            of_trial,
            written: of_trial.then(Instant::now),
        })
    }

    /// The newest checkpoint of at most `num_round` rounds that can be read, the same on all hosts.
    /// A collective call.
    pub(super) fn newest(&self, api: &'static Api, num_round: u32, group: &Group) -> Result<Option<Resumed>, Failure> {
        let found = if group.rank() == 0 { self.find(api, num_round) } else { None };
        let mut rounds = [found.as_ref().map_or(0.0, |found| f64::from(found.rounds))];
        group.broadcast(&mut rounds)?;
        if rounds[0] == 0.0 {
            return Ok(None);
        }
        let mut model = found.map_or_else(Vec::new, |found| found.model);
        group.broadcast_bytes(&mut model)?;
        Ok(Some(Resumed { model, rounds: rounds[0] as u32 }))
    }

    fn find(&self, api: &'static Api, num_round: u32) -> Option<Resumed> {
        let files = files(&self.directory);
        for (round, path) in files.into_iter().rev().filter(|(round, _)| *round < num_round).take(TRIED) {
            let read = || -> Result<Vec<u8>, String> {
                let model = fs::read(&path).map_err(|error| error.to_string())?;
                let rounds = Booster::load(api, &model)
                    .and_then(|booster| booster.rounds())
                    .map_err(|error| error.to_string())?;
                if rounds == round + 1 { Ok(model) } else { Err(format!("it has {rounds} rounds")) }
            };
            match read() {
                Ok(model) => {
                    log::info(&format!("Checkpoint loaded from {}", path.display()));
                    log::info(&format!("Resuming from iteration {}", round + 1));
                    return Some(Resumed { model, rounds: round + 1 });
                }
                Err(why) => log::warning(&format!("checkpoint {} is not used: {why}", path.display())),
            }
        }
        None
    }

    /// Whether a checkpoint is due after this number of rounds. `is_last`: the training ends or
    /// pauses here. `end`: the round at which it next ends or pauses.
    pub(super) fn is_due(&self, rounds: u32, is_last: bool, end: u32) -> bool {
        let is_time = || self.written.is_none_or(|at| at.elapsed() >= FREE_PACE);
        match self.renewal {
            None => is_last || is_time(),
            Some(_) => is_boundary(rounds) && (!self.of_trial || is_last || next_boundary(rounds) > end || is_time()),
        }
    }

    /// What of the booster is rebuilt after this number of rounds.
    pub(super) fn renewal(&self, rounds: u32) -> Option<Renewal> {
        self.renewal.filter(|_| is_boundary(rounds))
    }

    /// Writes the model of so many rounds, and forgets all but the newest.
    pub(super) fn write(
        &mut self,
        booster: &mut Booster,
        rounds: u32,
        stopping: Option<&EarlyStopping>,
    ) -> Result<(), Failure> {
        let model = match stopping {
            None => booster.to_bytes()?,
            Some(stopping) => {
                booster.set_attribute(STOPPING, &stopping.to_text())?;
                let model = booster.to_bytes()?;
                booster.remove_attribute(STOPPING)?;
                model
            }
        };
        model_file::replace(&model, &self.directory, &format!("{PREFIX}{}", rounds - 1), TEMPORARY)?;
        self.written = Some(Instant::now());
        // Those of later rounds are another training's.
        let own: Vec<_> = files(&self.directory).into_iter().filter(|(round, _)| *round < rounds).collect();
        for (_, path) in &own[..own.len().saturating_sub(KEPT)] {
            match fs::remove_file(path) {
                Err(source) if source.kind() != io::ErrorKind::NotFound => {
                    return Err(Failure::File { what: "remove", path: path.clone(), source });
                }
                _ => {}
            }
        }
        Ok(())
    }
}

/// How early stopping stood, taken out of the model that says it.
pub(super) fn take_stopping(booster: &mut Booster, stopping: &mut EarlyStopping) -> Result<(), Failure> {
    if let Some(text) = booster.attribute(STOPPING)? {
        booster.remove_attribute(STOPPING)?;
        stopping.restore(&text);
    }
    Ok(())
}

/// The seed after so many rounds.
pub(super) fn seed(hyperparameters: &Hyperparameters, rounds: u32) -> i64 {
    let base: i64 = hyperparameters.parameter("seed", "0").parse().unwrap_or(0);
    (base + i64::from(rounds) * SEED_STEP) & 0x7fff_ffff
}

/// The checkpoint files there are, by round.
fn files(directory: &Path) -> BTreeMap<u32, PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries
        .filter_map(|entry| Some((entry.file_name().to_str()?.strip_prefix(PREFIX)?.parse().ok()?, entry.path())))
        .collect()
}

fn renewal(hyperparameters: &Hyperparameters) -> Option<Renewal> {
    let is_one = |name: &str| hyperparameters.parameter(name, "1").parse() == Ok(1.0);
    let samples = ["subsample", "colsample_bytree", "colsample_bylevel", "colsample_bynode"]
        .into_iter()
        .any(|name| !is_one(name));
    let is_plain =
        hyperparameters.parameter("booster", "gbtree") != "dart" && !hyperparameters.parameters.contains_key("updater");
    // An objective that draws pairs is no updater.
    let others = !is_plain || hyperparameters.parameter("objective", "").starts_with("rank:");
    if others { Some(Renewal::Booster) } else { samples.then_some(Renewal::Updaters) }
}

/// The first rounds, each; then whenever a tenth has been added.
fn is_boundary(rounds: u32) -> bool {
    let mut boundary = 1;
    while boundary < rounds {
        boundary = next_boundary(boundary);
    }
    boundary == rounds
}

fn next_boundary(boundary: u32) -> u32 {
    boundary + (boundary / 10).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn boundaries_become_rarer_and_cost_a_tenth_at_most() {
        let boundaries: Vec<u32> = (1..=2000).filter(|rounds| is_boundary(*rounds)).collect();
        assert_eq!(
            boundaries[..24],
            [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 22, 24, 26, 28]
        );
        assert!(boundaries.windows(2).all(|pair| pair[1] - pair[0] <= (pair[0] / 10).max(1)));
        assert!(boundaries.len() < 80);
    }

    #[test]
    fn a_trial_writes_the_last_before_its_pause() {
        let of = |of_trial| Checkpoints {
            directory: PathBuf::new(),
            renewal: Some(Renewal::Updaters),
            of_trial,
            written: of_trial.then(Instant::now),
        };
        let due = |checkpoints: &Checkpoints, end: u32| -> Vec<u32> {
            (1..=end).filter(|rounds| checkpoints.is_due(*rounds, *rounds == end, end)).collect()
        };
        let (trial, other) = (of(true), of(false));
        for (end, expected) in [(11, vec![11]), (27, vec![26]), (33, vec![33])] {
            assert_eq!(due(&trial, end), expected, "{end}");
        }
        assert_eq!(due(&other, 24), [Vec::from_iter(1..=20), vec![22, 24]].concat());
        // One that is stopped before its pause.
        assert!(trial.is_due(5, true, 11) && !trial.is_due(5, false, 11));
        assert_eq!(trial.renewal(5), Some(Renewal::Updaters));
        assert_eq!(trial.renewal(21), None);
    }

    #[test]
    fn seeds_of_rounds_differ_and_are_numbers_that_the_library_takes() {
        let given = |seed: &str| {
            let named = [("num_round", "9"), ("seed", seed)].map(|(name, value)| (name.to_owned(), value.to_owned()));
            Hyperparameters::parse(&named.into()).unwrap()
        };
        for base in ["0", "7", "-1", "2147483646"] {
            let mut seeds: Vec<i64> = (1..5000).map(|rounds| seed(&given(base), rounds)).collect();
            assert!(seeds.iter().all(|seed| (0..=i64::from(i32::MAX)).contains(seed)));
            seeds.sort_unstable();
            seeds.dedup();
            assert_eq!(seeds.len(), 4999);
        }
    }
}
