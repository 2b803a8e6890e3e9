//! A training that is killed and goes on from its checkpoints ends with the model, byte for byte,
//! of one that was never interrupted.

use std::path::Path;
use std::time::{Duration, Instant};

use crate::cluster::{Cluster, Ended, Job, library, start_mirrored};
use crate::data::Table;

const ROUNDS: usize = 45;

/// Hyperparameters besides the number of rounds, and over how many hosts.
struct Case {
    parameters: &'static [(&'static str, &'static str)],
    hosts: usize,
}

impl Case {
    /// Starts it on wine, its checkpoints in `directory`.
    fn start(&self, table: &Table, rounds: usize, directory: &Path) -> Cluster {
        let parts = table.parts(&[70, 30]);
        let shares: &[usize] = if self.hosts == 1 { &[100] } else { &[50, 30, 20] };
        let texts = |table: &Table| table.parts(shares).iter().map(Table::csv).collect::<Vec<_>>();
        let (train, validation) = (texts(&parts[0]), texts(&parts[1]));
        let hosts = train.iter().zip(&validation).map(|(train, validation)| {
            vec![("train", vec![("part", train.as_str())]), ("validation", vec![("part", validation.as_str())])]
        });
        let rounds = rounds.to_string();
        let hyperparameters: Vec<_> = self.parameters.iter().copied().chain([("num_round", rounds.as_str())]).collect();
        let job = Job { hyperparameters: &hyperparameters, content_type: Some("text/csv"), hosts: hosts.collect() };
        start_mirrored(&job, &[], Some(directory))
    }

    fn run(&self, table: &Table, rounds: usize, directory: &Path) -> Ended {
        let mut ended = self.start(table, rounds, directory).wait();
        assert!(ended.iter().all(|host| host.code == Some(0)), "{:?}: {ended:#?}", self.parameters);
        ended.remove(0)
    }

    /// Kills it when this round was printed.
    fn run_until(&self, table: &Table, round: usize, directory: &Path) {
        let mut cluster = self.start(table, ROUNDS, directory);
        let began = Instant::now();
        while !cluster.instances[0].stdout().contains(&format!("[{round}]\t")) {
            assert!(began.elapsed() < Duration::from_secs(240), "{}", cluster.instances[0].stdout());
            std::thread::sleep(Duration::from_millis(1));
        }
        for instance in &mut cluster.instances {
            instance.kill();
        }
    }
}

fn checkpoints(directory: &Path) -> Vec<usize> {
    let names = std::fs::read_dir(directory.join("algo-1"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let names = names.filter(|name| !name.ends_with(".sagemaker-ignore"));
    let mut rounds: Vec<usize> =
        names.map(|name| name.strip_prefix("xgboost-checkpoint.").expect(&name).parse().unwrap()).collect();
    rounds.sort_unstable();
    rounds
}

/// Numbers that look random and are the same every time.
fn draw(seed: &mut u64, below: usize) -> usize {
    *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    ((*seed >> 33) % below as u64) as usize
}

fn check(parameters: &'static [(&'static str, &'static str)], hosts: usize, seed: u64) {
    let (Some(_), Some(wine)) = (library(), Table::wine()) else { return };
    let case = Case { parameters, hosts };
    let places: Vec<_> = (0..3).map(|_| tempfile::tempdir().unwrap()).collect();
    let whole = case.run(&wine, ROUNDS, places[0].path());
    let ran = whole.metrics().len();
    let expected = whole.model.expect("a training that ends well has a model").0;
    assert!(checkpoints(places[0].path()).len() <= 5);
    let mut seed = seed;
    // Killed twice at rounds that are drawn.
    let place = places[1].path();
    // The line of a round comes before its checkpoint.
    let first = 1 + draw(&mut seed, ran / 2);
    case.run_until(&wine, first, place);
    let at = *checkpoints(place).last().expect("the first round leaves one");
    let next = (at + 1 + draw(&mut seed, 10)).min(ran - 1);
    if next > at {
        case.run_until(&wine, next, place);
    }
    let resumed = case.run(&wine, ROUNDS, place);
    let told = resumed
        .stdout
        .lines()
        .find(|line| line.contains("Resuming from iteration"))
        .expect("it goes on from a checkpoint");
    println!("{parameters:?} on {hosts}: killed at {first} and {next}: {told}");
    // Not `assert_eq`: nobody reads two models.
    assert!(
        resumed.model.unwrap().0 == expected,
        "{parameters:?} on {hosts} hosts, killed at rounds {first} and {next}"
    );
    // What was asked for before was less, and is gone on from.
    let place = places[2].path();
    case.run(&wine, 1 + draw(&mut seed, ROUNDS - 1), place);
    assert!(
        case.run(&wine, ROUNDS, place).model.unwrap().0 == expected,
        "{parameters:?} on {hosts} hosts, asked for twice"
    );
}

const SAMPLED: &[(&str, &str)] = &[
    ("subsample", "0.6"),
    ("colsample_bytree", "0.7"),
    ("colsample_bylevel", "0.8"),
    ("colsample_bynode", "0.9"),
    ("seed", "7"),
    ("max_depth", "4"),
    ("eval_metric", "rmse,mae,r2"),
];

#[test]
fn sampled_rows_and_columns_on_one_host() {
    check(SAMPLED, 1, 1);
}

#[test]
fn sampled_rows_and_columns_on_three_hosts() {
    check(SAMPLED, 3, 2);
    check(SAMPLED, 3, 3);
}

#[test]
fn nothing_random() {
    check(&[("eval_metric", "rmse"), ("max_depth", "5")], 1, 4);
    check(&[("eval_metric", "rmse"), ("max_depth", "5")], 3, 5);
}

#[test]
fn other_boosters_and_objectives() {
    check(&[("booster", "dart"), ("rate_drop", "0.2"), ("subsample", "0.7"), ("max_depth", "3")], 1, 6);
    check(&[("booster", "gblinear"), ("eta", "0.3")], 1, 7);
    check(&[("objective", "multi:softprob"), ("num_class", "10"), ("subsample", "0.5"), ("max_depth", "2")], 1, 8);
    check(&[("num_parallel_tree", "2"), ("subsample", "0.5"), ("max_depth", "3")], 1, 9);
    check(&[("tree_method", "approx"), ("colsample_bynode", "0.5"), ("max_depth", "3")], 1, 13);
    check(&[("tree_method", "exact"), ("colsample_bytree", "0.5"), ("subsample", "0.7"), ("max_depth", "3")], 1, 10);
}

#[test]
fn early_stopping_stops_where_it_would_have() {
    check(
        &[
            ("eta", "0.4"),
            ("subsample", "0.5"),
            ("max_depth", "4"),
            ("eval_metric", "rmse"),
            ("early_stopping_rounds", "6"),
        ],
        1,
        11,
    );
    check(
        &[
            ("eta", "0.4"),
            ("subsample", "0.5"),
            ("max_depth", "4"),
            ("eval_metric", "mae"),
            ("early_stopping_rounds", "6"),
        ],
        3,
        12,
    );
}

#[test]
fn a_checkpoint_that_cannot_be_read_is_passed_over() {
    let (Some(_), Some(wine)) = (library(), Table::wine()) else { return };
    let case = Case { parameters: SAMPLED, hosts: 1 };
    let place = tempfile::tempdir().unwrap();
    let expected = case.run(&wine, 8, place.path()).model.unwrap().0;
    assert_eq!(checkpoints(place.path()), [3, 4, 5, 6, 7]);
    let file = |round: usize| place.path().join(format!("algo-1/xgboost-checkpoint.{round}"));
    std::fs::write(file(7), "half").unwrap();
    std::fs::copy(file(5), file(6)).unwrap();
    let resumed = case.run(&wine, 8, place.path());
    assert!(resumed.stdout.contains("xgboost-checkpoint.7 is not used"), "{}", resumed.stdout);
    assert!(resumed.stdout.contains("xgboost-checkpoint.6 is not used: it has 6 rounds"), "{}", resumed.stdout);
    assert!(resumed.stdout.contains("Resuming from iteration 6"), "{}", resumed.stdout);
    assert!(resumed.model.unwrap().0 == expected);
}
