//! What goes wrong on one host ends the others, with a clear word on which host and why.

use std::time::{Duration, Instant};

use crate::cluster::{Channel, Cluster, Job, library, start};
use crate::data::Table;

/// Three hosts that would train for a very long time.
fn endless(environment: &[(&str, &str)]) -> Option<Cluster> {
    library()?;
    let parts = Table::wine()?.parts(&[40, 30, 30]);
    let texts: Vec<String> = parts.iter().map(Table::csv).collect();
    let hosts = texts.iter().map(|text| vec![("train", vec![("part", text.as_str())])]);
    let job =
        Job { hyperparameters: &[("num_round", "1000000")], content_type: Some("text/csv"), hosts: hosts.collect() };
    let cluster = start(&job, environment);
    let began = Instant::now();
    while !cluster.instances[0].stdout().contains("[3]\t") {
        assert!(began.elapsed() < Duration::from_secs(240), "{}", cluster.instances[0].stdout());
        std::thread::sleep(Duration::from_millis(10));
    }
    Some(cluster)
}

#[test]
fn a_killed_host_ends_the_others() {
    for victim in [1, 0] {
        let Some(mut cluster) = endless(&[]) else { return };
        cluster.instances[victim].signal("-KILL");
        let name = format!("algo-{}", victim + 1);
        for (index, instance) in cluster.instances.iter_mut().enumerate() {
            let ended = instance.wait();
            if index != victim {
                assert_eq!(ended.code, Some(1), "{ended:?}");
                assert_eq!(
                    ended.failure,
                    Some(format!("{name} was lost: its process ended or its connection broke")),
                    "host {}",
                    index + 1
                );
            }
        }
    }
}

#[test]
fn a_frozen_host_ends_the_others() {
    for victim in [2, 0] {
        let Some(mut cluster) = endless(&[("SHOAL_XGBOOST_SILENCE_SECONDS", "6")]) else { return };
        cluster.instances[victim].signal("-STOP");
        let name = format!("algo-{}", victim + 1);
        for (index, instance) in cluster.instances.iter_mut().enumerate() {
            if index != victim {
                let ended = instance.wait();
                assert_eq!(ended.code, Some(1), "{ended:?}");
                let failure = ended.failure.unwrap();
                assert!(
                    failure.starts_with(&format!("{name} was lost: it said nothing for 6 seconds")),
                    "host {}: {failure}",
                    index + 1
                );
            }
        }
    }
}

#[test]
fn a_bad_line_on_one_host_ends_all() {
    if library().is_none() {
        return;
    }
    let hosts = ["1,2\n0,3\n", "1,2\n0,oops\n"].map(|text| vec![("train", vec![("part.csv", text)])]);
    let job = Job { hyperparameters: &[("num_round", "1")], content_type: Some("text/csv"), hosts: hosts.to_vec() };
    let ended = start(&job, &[]).wait();
    let bad = "ClientError: train/part.csv, line 2, column 2: \"oops\" is not a number";
    assert_eq!(ended[1].failure.as_deref(), Some(bad));
    assert_eq!(ended[0].failure, Some(format!("algo-2 failed: {bad}")));
    assert!(ended.iter().all(|host| host.code == Some(1) && host.model.is_none()));
}

#[test]
fn hosts_with_different_columns_are_told() {
    if library().is_none() {
        return;
    }
    let hosts = ["1,2\n0,3\n", "1,2,3\n0,3,4\n"].map(|text| vec![("train", vec![("part.csv", text)])]);
    let job = Job { hyperparameters: &[("num_round", "1")], content_type: Some("text/csv"), hosts: hosts.to_vec() };
    for host in start(&job, &[]).wait() {
        assert_eq!(host.failure.as_deref(), Some("algo-2 failed: its rows have 2 features, those of algo-1 have 1"));
    }
}

#[test]
fn a_host_without_data_is_left_out() {
    let (Some(_), Some(wine)) = (library(), Table::wine()) else { return };
    let texts: Vec<String> = wine.parts(&[50, 50]).iter().map(Table::csv).collect();
    let whole = wine.csv();
    let without = || vec![("train", vec![])];
    fn with(text: &str) -> Vec<Channel<'_>> {
        vec![("train", vec![("part", text)])]
    }
    let parameters = [("num_round", "3"), ("max_bin", "1024")];
    let model = |hosts: Vec<Vec<Channel<'_>>>, saved_by: usize| {
        let job = Job { hyperparameters: &parameters, content_type: Some("text/csv"), hosts };
        let ended = start(&job, &[]).wait();
        for (index, host) in ended.iter().enumerate() {
            assert_eq!((host.code, host.model.is_some()), (Some(0), index == saved_by), "host {}: {host:?}", index + 1);
        }
        ended[saved_by].model.as_ref().unwrap().predict(&wine.features())
    };
    let alone = model(vec![with(&whole)], 0);
    assert_eq!(alone, model(vec![with(&texts[0]), without(), with(&texts[1])], 0));
    assert_eq!(alone, model(vec![without(), with(&texts[0]), with(&texts[1])], 1));
    assert_eq!(alone, model(vec![without(), with(&whole)], 1));

    let job = Job { hyperparameters: &parameters, content_type: Some("text/csv"), hosts: vec![without(), without()] };
    for host in start(&job, &[]).wait() {
        assert!(
            host.failure.as_deref().is_some_and(|failure| failure.contains("No hosts received training data.")),
            "{host:?}"
        );
    }
}

#[test]
fn hosts_that_stand_still_together_are_not_lost() {
    let Some(mut cluster) = endless(&[("SHOAL_XGBOOST_SILENCE_SECONDS", "4")]) else { return };
    for first in [0, 2] {
        cluster.instances.iter().for_each(|instance| instance.signal("-STOP"));
        std::thread::sleep(Duration::from_secs(7));
        // One wakes before the others, as when a tuning job's trial goes on.
        cluster.instances[first].signal("-CONT");
        std::thread::sleep(Duration::from_millis(1500));
        cluster.instances.iter().for_each(|instance| instance.signal("-CONT"));
        let rounds = |cluster: &Cluster| cluster.instances[0].stdout().lines().count();
        let (before, began) = (rounds(&cluster), Instant::now());
        // Longer than a host has to end after a loss.
        while rounds(&cluster) < before + 10 || began.elapsed() < Duration::from_secs(8) {
            let texts = cluster.instances.iter_mut().map(|instance| (instance.is_running(), instance.stdout()));
            let texts: Vec<_> = texts.collect();
            assert!(texts.iter().all(|(runs, _)| *runs) && began.elapsed() < Duration::from_secs(240), "{texts:?}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}
