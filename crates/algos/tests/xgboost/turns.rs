//! A trial waits where its tuning job says, goes on when it may, and can as well be ended there and
//! go on as another process.

use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::cluster::{Cluster, Ended, Job, library, start_trial};
use crate::data::Table;

/// Rounds draw random numbers, so that checkpoints are written at certain rounds only: 26 and 28,
/// not 27.
const SAMPLED: [(&str, &str); 5] =
    [("num_round", "40"), ("subsample", "0.6"), ("seed", "7"), ("max_depth", "4"), ("eval_metric", "rmse")];

fn start(wine: &Table, checkpoints: &Path, resource: Option<&str>) -> Cluster {
    start_rounds("40", wine, checkpoints, resource)
}

fn start_rounds(rounds: &str, wine: &Table, checkpoints: &Path, resource: Option<&str>) -> Cluster {
    let text = wine.csv();
    let hosts = vec![vec![("train", vec![("part", text.as_str())])]];
    let hyperparameters = SAMPLED.map(|(name, value)| (name, if name == "num_round" { rounds } else { value }));
    let job = Job { hyperparameters: &hyperparameters, content_type: Some("text/csv"), hosts };
    start_trial(&job, &[], Some(checkpoints), resource)
}

/// The model of a training that asks for so many rounds.
fn model_of(rounds: &str, wine: &Table) -> Vec<u8> {
    let place = tempfile::tempdir().unwrap();
    end(start_rounds(rounds, wine, place.path(), None)).model.unwrap().0
}

fn rounds(lines: &str) -> Vec<usize> {
    let numbers = lines
        .lines()
        .filter(|line| line.contains("]\t"))
        .filter_map(|line| line.strip_prefix('[')?.split(']').next()?.parse().ok());
    numbers.collect()
}

/// Waits until the last of so many rounds is told, and looks that no more comes.
fn paused_after(cluster: &Cluster, told: usize) {
    let began = Instant::now();
    while rounds(&cluster.instances[0].stdout()).last() != Some(&(told - 1)) {
        assert!(began.elapsed() < Duration::from_secs(240), "{}", cluster.instances[0].stdout());
        sleep(Duration::from_millis(2));
    }
    sleep(Duration::from_millis(200));
    assert_eq!(rounds(&cluster.instances[0].stdout()).last(), Some(&(told - 1)), "no round too many");
}

/// As an agent does.
fn tell(cluster: &Cluster, resource: &str) {
    let config = cluster.instances[0].base.join("input/config");
    std::fs::write(config.join("new"), resource).unwrap();
    std::fs::rename(config.join("new"), config.join("shoal_resource.json")).unwrap();
}

fn end(cluster: Cluster) -> Ended {
    let ended = cluster.wait().remove(0);
    assert_eq!(ended.code, Some(0), "{}", ended.stdout);
    ended
}

#[test]
fn a_trial_in_turns_is_the_same_training() {
    let (Some(_), Some(wine)) = (library(), Table::wine()) else { return };
    let places: Vec<_> = (0..3).map(|_| tempfile::tempdir().unwrap()).collect();
    let whole = end(start(&wine, places[0].path(), None));
    assert_eq!(rounds(&whole.stdout), Vec::from_iter(0..40));
    let expected = whole.model.unwrap().0;

    // One process, which waits twice, and is told the same again in between.
    let turns = start(&wine, places[1].path(), Some(r#"{"until": 3}"#));
    paused_after(&turns, 3);
    tell(&turns, r#"{"from": 0, "until": 3}"#);
    paused_after(&turns, 3);
    tell(&turns, r#"{"from": 0, "until": 9}"#);
    paused_after(&turns, 9);
    tell(&turns, r#"{"from": 0}"#);
    let ended = end(turns);
    assert_eq!(rounds(&ended.stdout), Vec::from_iter(0..40));
    assert!(ended.model.unwrap().0 == expected);

    // Ended where it waits, and gone on with from the last checkpoint: what was told is not told
    // again.
    let mut first = start(&wine, places[2].path(), Some(r#"{"from": 0, "until": 27}"#));
    paused_after(&first, 27);
    first.instances[0].kill();
    drop(first);
    let second = end(start(&wine, places[2].path(), Some(r#"{"from": 27}"#)));
    assert!(second.stdout.contains("Resuming from iteration 26"), "{}", second.stdout);
    assert_eq!(rounds(&second.stdout), Vec::from_iter(27..40));
    assert!(second.model.unwrap().0 == expected);
    assert_eq!([ended.stdout, second.stdout].map(|lines| last(&lines)), [last(&whole.stdout), last(&whole.stdout)]);
}

#[test]
fn a_trial_ends_with_its_model_where_its_resource_does() {
    let (Some(_), Some(wine)) = (library(), Table::wine()) else { return };
    let places: Vec<_> = (0..2).map(|_| tempfile::tempdir().unwrap()).collect();
    let ended = end(start(&wine, places[0].path(), Some(r#"{"from": 0, "until": 3, "max": 3}"#)));
    assert_eq!(rounds(&ended.stdout), Vec::from_iter(0..3));
    assert!(ended.model.unwrap().0 == model_of("3", &wine));
    // A copy of another trial's checkpoint, of a later round than it counts.
    let mut origin = start(&wine, places[1].path(), Some(r#"{"until": 9}"#));
    paused_after(&origin, 9);
    origin.instances[0].kill();
    drop(origin);
    let copy = end(start(&wine, places[1].path(), Some(r#"{"from": 4, "max": 6}"#)));
    assert_eq!(rounds(&copy.stdout), [9, 10]);
    assert!(copy.model.unwrap().0 == model_of("11", &wine));
}

#[test]
fn a_trial_that_is_stopped_where_it_waits_leaves_its_model() {
    let (Some(_), Some(wine)) = (library(), Table::wine()) else { return };
    let place = tempfile::tempdir().unwrap();
    let waits = start(&wine, place.path(), Some(r#"{"until": 5}"#));
    paused_after(&waits, 5);
    waits.instances[0].signal("-TERM");
    let ended = waits.wait().remove(0);
    // As shells report a stopped process: without a request of its server it is a failure.
    assert_eq!((ended.code, rounds(&ended.stdout)), (Some(143), Vec::from_iter(0..5)), "{ended:?}");
    assert!(ended.model.unwrap().0 == model_of("5", &wine));
}

fn last(lines: &str) -> String {
    lines.lines().rfind(|line| line.contains("]\t")).unwrap_or_default().to_owned()
}
