//! Several hosts give what one host gives: the same model where the bins are exact, and metrics of
//! all rows.

use crate::cluster::{Ended, Job, library, start};
use crate::data::Table;

/// Trains on one host and on three with unequal shares of the same rows, and returns how the first
/// host of each ended.
fn one_and_three(
    hyperparameters: &[(&str, &str)],
    content_type: &str,
    text: impl Fn(&Table) -> String,
    table: &Table,
) -> (Ended, Ended) {
    let parts = table.parts(&[70, 30]);
    let (train, validation) = (&parts[0], &parts[1]);
    let shares = |table: &Table, shares: &[usize]| table.parts(shares).iter().map(&text).collect::<Vec<_>>();
    let mut ended = [(&[100][..], &[100][..]), (&[60, 30, 10], &[5, 15, 80])].map(|(of_train, of_validation)| {
        let (train, validation) = (shares(train, of_train), shares(validation, of_validation));
        let hosts = train.iter().zip(&validation).map(|(train, validation)| {
            vec![("train", vec![("part", train.as_str())]), ("validation", vec![("part", validation.as_str())])]
        });
        let job = Job { hyperparameters, content_type: Some(content_type), hosts: hosts.collect() };
        let mut ended = start(&job, &[]).wait();
        assert!(ended.iter().all(|host| host.code == Some(0) && host.failure.is_none()), "{ended:#?}");
        assert!(
            ended[1..].iter().all(|host| host.metrics().is_empty() && host.model.is_none()),
            "only the first host prints and saves: {ended:#?}"
        );
        ended.remove(0)
    });
    let three =
        std::mem::replace(&mut ended[1], Ended { code: None, stdout: String::new(), failure: None, model: None });
    let [one, _] = ended;
    (one, three)
}

/// Equal but for the last bits.
pub(crate) fn same(one: &[f32], other: &[f32]) {
    assert_eq!(one.len(), other.len());
    for (row, (one, other)) in one.iter().zip(other).enumerate() {
        assert!((one - other).abs() <= 1e-6 * one.abs().max(1.0), "row {row}: {one} and {other}");
    }
}

fn check(hyperparameters: &[(&str, &str)], table: &Table, features: &Table) {
    let (one, three) = one_and_three(hyperparameters, "text/csv", Table::csv, table);
    assert_eq!(one.metrics(), three.metrics(), "{one:#?}");
    assert!(!one.metrics().is_empty());
    let features = features.features();
    assert_eq!(one.model.unwrap().predict(&features), three.model.unwrap().predict(&features));
}

#[test]
fn three_hosts_train_the_model_of_one() {
    let (Some(_), Some(wine)) = (library(), Table::wine()) else { return };
    let parameters = [("num_round", "12"), ("max_bin", "1024"), ("eval_metric", "rmse,mae,r2,mse,rmsle,mape")];
    check(&parameters, &wine, &wine);
}

#[test]
fn metrics_over_hosts_are_those_of_all_rows() {
    let (Some(_), Some(titanic)) = (library(), Table::titanic()) else { return };
    let metrics = "logloss,auc,error@0.7,aucpr,accuracy,balanced_accuracy,f1,f1_binary,f1_macro,precision,precision_macro,\
                   precision_micro,recall,recall_macro,recall_micro,rmse,mae,r2";
    let parameters = [
        ("num_round", "8"),
        ("objective", "binary:logistic"),
        ("max_bin", "1024"),
        ("csv_weights", "1"),
        ("eval_metric", metrics),
        ("early_stopping_rounds", "100"),
    ];
    let features = Table::titanic().unwrap();
    check(&parameters, &titanic.weighted(), &features);
}

#[test]
fn hosts_that_are_stopped_end_after_the_same_round() {
    let (Some(_), Some(wine)) = (library(), Table::wine()) else { return };
    let parts: Vec<String> = wine.parts(&[50, 50]).iter().map(Table::csv).collect();
    let hosts = parts.iter().map(|part| vec![("train", vec![("part", part.as_str())])]).collect();
    let job = Job { hyperparameters: &[("num_round", "1000000")], content_type: Some("csv"), hosts };
    let cluster = start(&job, &[]);
    let began = std::time::Instant::now();
    while !cluster.instances[0].stdout().contains("[5]\t") {
        assert!(began.elapsed() < std::time::Duration::from_secs(240), "{}", cluster.instances[0].stdout());
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    // The first host is notified last.
    cluster.instances[1].signal("-TERM");
    std::thread::sleep(std::time::Duration::from_millis(50));
    cluster.instances[0].signal("-TERM");
    let ended = cluster.wait();
    assert!(ended.iter().all(|host| host.code == Some(143) && host.failure.is_none()), "{ended:#?}");
    let rounds = |host: &Ended| {
        host.stdout.split("Stopped on request after ").nth(1).and_then(|text| text.split(' ').next()).map(str::to_owned)
    };
    assert!(rounds(&ended[0]).is_some() && rounds(&ended[0]) == rounds(&ended[1]), "{ended:#?}");
    assert_eq!(ended[0].model.as_ref().unwrap().predict(&wine.features()).len(), wine.csv().lines().count());
}

#[test]
fn several_classes_are_judged_together() {
    let (Some(_), Some(wine)) = (library(), Table::wine()) else { return };
    for objective in ["multi:softprob", "multi:softmax"] {
        let parameters = [
            ("num_round", "3"),
            ("objective", objective),
            ("num_class", "10"),
            ("max_bin", "1024"),
            ("eval_metric", "mlogloss,merror,accuracy,f1,precision_macro"),
        ];
        check(&parameters, &wine, &wine);
    }
}

#[test]
fn queries_are_ranked_as_on_one_host() {
    let (Some(_), Some(titanic)) = (library(), Table::titanic()) else { return };
    let titanic = titanic.in_queries_of(7);
    for eval_metric in [&[("eval_metric", "ndcg@3,map,auc")][..], &[]] {
        let parameters = [&[("num_round", "6"), ("objective", "rank:ndcg"), ("max_bin", "1024")], eval_metric].concat();
        let (one, three) = one_and_three(&parameters, "text/libsvm", Table::libsvm, &titanic);
        assert_eq!(one.metrics(), three.metrics());
        assert!(one.metrics()[5].contains("validation-ndcg"), "{one:?}");
    }
}

#[test]
fn rows_without_queries_are_one_list() {
    let (Some(_), Some(titanic)) = (library(), Table::titanic()) else { return };
    let parameters = [
        ("num_round", "4"),
        ("objective", "binary:logistic"),
        ("max_bin", "1024"),
        ("eval_metric", "map,ndcg,ndcg@50,auc"),
    ];
    let (one, three) = one_and_three(&parameters, "text/libsvm", Table::libsvm, &titanic);
    assert_eq!(one.metrics(), three.metrics());
}

#[test]
fn early_stopping_ends_all_hosts_in_the_same_round() {
    let (Some(_), Some(titanic)) = (library(), Table::titanic()) else { return };
    for watched in ["auc", "logloss", "f1"] {
        let metrics = format!("error,{watched}");
        let parameters = [
            ("num_round", "200"),
            ("objective", "binary:logistic"),
            ("max_bin", "1024"),
            ("eval_metric", metrics.as_str()),
            ("early_stopping_rounds", "3"),
        ];
        check(&parameters, &titanic, &titanic);
    }
}

#[test]
fn every_booster_is_judged() {
    let (Some(_), Some(titanic)) = (library(), Table::titanic()) else { return };
    let common =
        [("num_round", "3"), ("objective", "binary:logistic"), ("max_bin", "1024"), ("eval_metric", "auc,logloss,f1")];
    for particular in [
        &[
            ("tree_method", "hist"),
            ("monotone_constraints", "(-1,-1,0,1)"),
            ("interaction_constraints", "[[0,1],[2,3]]"),
        ][..],
        &[("booster", "dart"), ("rate_drop", "0.5"), ("one_drop", "1")],
        &[("tree_method", "approx"), ("grow_policy", "lossguide")],
    ] {
        check(&[&common, particular].concat(), &titanic, &titanic);
    }
}

#[test]
fn jobs_without_networks_of_their_own_do_not_mix() {
    let (Some(_), Some(wine)) = (library(), Table::wine()) else { return };
    // As plain processes find each other: at 127.0.1.K, on ports that both jobs want.
    let texts: Vec<String> = wine.parts(&[50, 50]).iter().map(Table::csv).collect();
    let rounds = ["3", "5"];
    let running = rounds.map(|num_round| {
        let hosts = texts.iter().map(|text| vec![("train", vec![("part", text.as_str())])]).collect();
        let hyperparameters = [("num_round", num_round)];
        let job = Job { hyperparameters: &hyperparameters, content_type: Some("text/csv"), hosts };
        let name = format!("job-{num_round}");
        start(
            &job,
            &[
                ("SHOAL_INSTANCE", "x"),
                ("SHOAL_HOST_ADDRESSES", ""),
                ("SHOAL_ALGORITHM_PORT", "19099"),
                ("TRAINING_JOB_NAME", &name),
            ],
        )
    });
    for (cluster, num_round) in running.into_iter().zip(rounds) {
        let ended = cluster.wait();
        assert!(ended.iter().all(|host| host.code == Some(0)), "{ended:#?}");
        assert_eq!(ended[0].metrics().len().to_string(), num_round);
    }
}
