//! Script mode on several instances: who starts the processes of each distribution, and how they
//! find each other.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod support;

use shoal_contract::{ElasticFacts, Facts, GroupFacts, LaunchError, environment, hosts_file, processes_per_instance};
use support::{facts, map, script};

#[test]
fn a_job_that_loses_and_gains_instances_starts_its_ranks_without_a_launcher_that_restarts_them() {
    let elastic = |host: u32, joins: bool, more: &[(&str, &str)]| Facts {
        elastic: Some(ElasticFacts { min_instances: 2, joins }),
        ..facts(host, 3, more)
    };
    let command = |facts: &Facts, is_package| script(facts).command(facts, is_package).map(|words| words.join("|"));
    let torch = ("sagemaker_torch_distributed_enabled", "true");
    let started = command(&elastic(2, false, &[torch]), false).unwrap();
    let begin =
        "shoal|ranks|--names|data-parallel|--hosts|algo-1,algo-2,algo-3|--node|1|--per-host|1|--|python3|train.py|";
    assert!(started.replace("/opt/shoal/bin/", "").contains(begin), "{started}");
    let mpi = [("sagemaker_mpi_enabled", "true"), ("sagemaker_mpi_num_of_processes_per_host", "2")];
    let first = command(&elastic(1, false, &mpi), false).unwrap();
    let horovodrun = "-np|6|--min-np|4|--max-np|6|--blacklist-cooldown-range|1|2|--host-discovery-script|cat /opt/ml/input/config/shoal_hosts|python3|train.py";
    assert!(first.contains(horovodrun), "{first}");
    assert!(command(&elastic(3, true, &mpi), false).unwrap().ends_with("mpi|wait|--elastic"));
    let variable = |facts: &Facts, name: &str| environment(facts).get(name).cloned();
    let joins = elastic(3, true, &[torch]);
    assert_eq!(variable(&joins, "SHOAL_ELASTIC_ROSTER").as_deref(), Some("/opt/ml/input/config/shoal_hosts"));
    assert_eq!(variable(&joins, "SHOAL_ELASTIC_LEAST").as_deref(), Some("2"));
    assert_eq!(variable(&joins, "SHOAL_COMM_JOINS").as_deref(), Some("1"));
    assert_eq!(variable(&elastic(3, false, &[torch]), "SHOAL_COMM_JOINS"), None);
    assert_eq!(
        variable(&elastic(3, true, &mpi), "SHOAL_COMM_JOINS"),
        None,
        "Horovod's launcher decides where its workers meet"
    );
    assert_eq!(variable(&facts(3, 3, &[torch]), "SHOAL_ELASTIC_ROSTER"), None);
    let refused = |more: &[(&str, &str)]| command(&elastic(1, false, more), false).unwrap_err();
    assert!(matches!(
        refused(&[("sagemaker_parameter_server_enabled", "true")]),
        LaunchError::NotElastic("a parameter server")
    ));
    assert!(matches!(refused(&[("sagemaker_distributed_dataparallel_enabled", "true")]), LaunchError::NotElastic(_)));
    let options = [mpi[0], ("sagemaker_mpi_custom_mpi_options", "\"-x A=1\"")];
    assert!(matches!(refused(&options), LaunchError::NotOfHorovod("sagemaker_mpi_custom_mpi_options")));
    assert!(matches!(
        refused(&[mpi[0], ("sagemaker_mpi_num_of_processes_per_host", "\"x\"")]),
        LaunchError::MpiNumber(..)
    ));
    let members = hosts_file(&joins.hosts, &[1, 3], processes_per_instance(&elastic(1, false, &mpi)));
    assert_eq!(String::from_utf8(members).unwrap(), "algo-1:2\nalgo-3:2\n");
}

/// What SDK v2 sends for
/// `distribution={"mpi": {"enabled": True, "processes_per_host": 2, "custom_mpi_options": "-x A='b c'"}}`.
#[test]
fn mpirun_is_started_on_the_first_instance_and_awaited_on_the_others() {
    let mpi = [
        ("sagemaker_mpi_enabled", "true"),
        ("sagemaker_mpi_num_of_processes_per_host", "2"),
        ("sagemaker_mpi_custom_mpi_options", "\"-x A='b c' --NCCL_DEBUG TRACE\""),
    ];
    let command = |facts: &Facts| script(facts).command(facts, false).map(|words| words.join("|"));
    let ours = "--allow-run-as-root|--noprefix|--leave-session-attached|--tag-output|-mca|btl_tcp_if_include|eth0|-mca|oob_tcp_if_include|eth0|\
                --bind-to|none|--map-by|slot|-mca|pml|ob1|-mca|btl|^openib|-mca|orte_abort_on_non_zero_status|1|-mca|\
                btl_vader_single_copy_mechanism|none";
    let tail = "train.py|--batch-size|32|--lr|1e-05|-n|a name";
    assert_eq!(
        command(&facts(1, 3, &mpi)).unwrap(),
        format!(
            "/opt/shoal/bin/shoal|mpi|run|--hosts|algo-1,algo-2,algo-3|--per-host|2|--program|10|--|mpirun|--host|algo-1:2,algo-2:2,algo-3:2|-np|6|{ours}|\
             -x|A=b c|-x|NCCL_DEBUG=TRACE|python3|-m|mpi4py|{tail}"
        )
    );
    assert_eq!(command(&facts(2, 3, &mpi)).unwrap(), "/opt/shoal/bin/shoal|mpi|wait");
    // One rank for each GPU, else one; so many in all as are asked for.
    let gpus = Facts { gpus: 4, ..facts(1, 2, &mpi[..1]) };
    assert!(command(&gpus).unwrap().contains("|--host|algo-1:4,algo-2:4|-np|8|"));
    let some = facts(1, 2, &[mpi[0], ("sagemaker_mpi_num_processes", "1")]);
    assert!(command(&some).unwrap().contains("|--host|algo-1:1,algo-2:1|-np|1|"));
    assert_eq!(environment(&some)["SM_DISTRIBUTION_INSTANCE_GROUPS"], r#"["homogeneousCluster"]"#);
    let shell = facts(1, 1, &[mpi[0], ("sagemaker_program", "\"run.sh\"")]);
    assert!(
        command(&shell).unwrap().ends_with("|none|/bin/sh|-c|exec ./run.sh --batch-size 32 --lr 1e-05 -n 'a name'")
    );

    let [place, own] = [("algo-1", "127.0.1.1"), ("algo-2", "127.0.1.2")];
    let alone = Facts { addresses: map(&[place]), ..facts(1, 1, &mpi) };
    assert!(
        command(&alone)
            .unwrap()
            .contains("--hosts|algo-1|--per-host|2|--program|10|--|mpirun|--host|localhost:2|-np|2|")
    );
    let together = Facts { addresses: map(&[place, own]), ..facts(1, 2, &mpi) };
    assert_eq!(command(&together), Err(LaunchError::MpiNeedsHosts(2)));
    for (name, value, expected) in [
        (
            "sagemaker_mpi_num_of_processes_per_host",
            "\"two\"",
            "sagemaker_mpi_num_of_processes_per_host is \"two\", which is no number",
        ),
        ("sagemaker_mpi_num_of_processes_per_host", "-1", "is \"-1\", which is no number of processes"),
        (
            "sagemaker_mpi_custom_mpi_options",
            "\"-x A='b\"",
            "custom_mpi_options is \"-x A='b\", and a quote in it is not closed",
        ),
    ] {
        let error = command(&facts(1, 1, &[mpi[0], (name, value)])).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn processes_of_tensorflow_are_told_of_each_other() {
    let servers = [("sagemaker_parameter_server_enabled", "true")];
    let told = |facts: &Facts| environment(facts).get("TF_CONFIG").cloned();
    let cluster = r#"{"cluster":{"master":["algo-1:2222"],"ps":["algo-1:2223","algo-2:2223","algo-3:2223"],"worker":["algo-2:2222","algo-3:2222"]},"environment":"cloud","#;
    for (host, task) in [
        (1, r#"{"index":0,"type":"master"}"#),
        (2, r#"{"index":0,"type":"worker"}"#),
        (3, r#"{"index":1,"type":"worker"}"#),
    ] {
        let facts = facts(host, 3, &servers);
        assert_eq!(told(&facts).unwrap(), format!(r#"{cluster}"task":{task}}}"#));
        // Besides the script each one has a server.
        let command = script(&facts).command(&facts, false).unwrap().join("|");
        let server = format!("/opt/shoal/bin/shoal|parameter-server|--index|{}|--", host - 1);
        assert_eq!(command, format!("{server}|python3|train.py|--batch-size|32|--lr|1e-05|-n|a name"));
    }
    // One instance has nobody to serve.
    let alone = facts(1, 1, &servers);
    assert_eq!((told(&alone), script(&alone).command(&alone, false).unwrap()[0].as_str()), (None, "python3"));
    let mirrored = facts(2, 2, &[("sagemaker_multi_worker_mirrored_strategy_enabled", "true")]);
    let expected = r#"{"cluster":{"worker":["algo-1:8890","algo-2:8890"]},"environment":"cloud","task":{"index":1,"type":"worker"}}"#;
    assert_eq!(
        (told(&mirrored).unwrap().as_str(), script(&mirrored).command(&mirrored, false).unwrap()[0].as_str()),
        (expected, "python3")
    );
    // Who brings a cluster of his own starts it, too.
    let own = Facts { environment: map(&[("TF_CONFIG", "{}")]), ..facts(2, 3, &servers) };
    assert_eq!(
        (told(&own).unwrap().as_str(), script(&own).command(&own, false).unwrap()[0].as_str()),
        ("{}", "python3")
    );
    assert_eq!(told(&facts(1, 2, &[])), None);
}

#[test]
fn a_cluster_of_tensorflow_is_made_of_the_groups_of_the_distribution() {
    let groups = [("data", &["algo-1"][..]), ("training", &["algo-3", "algo-2"])].map(|(name, hosts)| GroupFacts {
        name: name.into(),
        instance_type: "ml.m5.large".into(),
        hosts: Vec::from_iter(hosts.iter().map(|host| (*host).into())),
    });
    let of = |host, distribution: &str| {
        let given = [(distribution, "true"), ("sagemaker_distribution_instance_groups", r#"["training"]"#)];
        Facts { groups: groups.to_vec(), ..facts(host, 3, &given) }
    };
    let first = |facts: &Facts| script(facts).command(facts, false).unwrap()[..4].join(" ");
    let told = |facts: &Facts| environment(facts).get("TF_CONFIG").cloned();
    let servers = of(2, "sagemaker_parameter_server_enabled");
    let cluster = r#"{"cluster":{"master":["algo-2:2222"],"ps":["algo-2:2223","algo-3:2223"],"worker":["algo-3:2222"]},"environment":"cloud","task":{"index":0,"type":"master"}}"#;
    assert_eq!(
        (told(&servers).unwrap().as_str(), first(&servers).as_str()),
        (cluster, "/opt/shoal/bin/shoal parameter-server --index 0")
    );
    let mirrored = of(3, "sagemaker_multi_worker_mirrored_strategy_enabled");
    let cluster = r#"{"cluster":{"worker":["algo-2:8890","algo-3:8890"]},"environment":"cloud","task":{"index":1,"type":"worker"}}"#;
    assert_eq!(told(&mirrored).unwrap(), cluster);
    for distribution in ["sagemaker_parameter_server_enabled", "sagemaker_multi_worker_mirrored_strategy_enabled"] {
        let elsewhere = of(1, distribution);
        assert_eq!((told(&elsewhere), first(&elsewhere).as_str()), (None, "python3 train.py --batch-size 32"));
    }
}

#[test]
fn a_distribution_is_for_the_groups_that_it_names() {
    let group = |name: &str, kind: &str, hosts: &[&str]| GroupFacts {
        name: name.into(),
        instance_type: kind.into(),
        hosts: hosts.iter().map(|host| (*host).to_owned()).collect(),
    };
    let of = |host, more: &[(&str, &str)]| Facts {
        groups: vec![
            group("feeders", "ml.c5.xlarge", &["algo-1"]),
            group("trainers", "ml.m5.large", &["algo-2", "algo-3"]),
        ],
        ..facts(host, 3, more)
    };
    let asked =
        [("sagemaker_torch_distributed_enabled", "true"), ("sagemaker_distribution_instance_groups", "[\"trainers\"]")];
    let command = |host| script(&of(host, &asked)).command(&of(host, &asked), false).unwrap().join(" ");
    assert!(command(1).starts_with("python3 train.py --batch-size"), "{}", command(1));
    let torchrun = |rank| {
        format!(
            "torchrun --nnodes 2 --nproc_per_node 1 --master_addr algo-2 --master_port 7777 --node_rank {rank} train.py"
        )
    };
    assert!(command(2).starts_with(&torchrun(0)), "{}", command(2));
    assert!(command(3).starts_with(&torchrun(1)), "{}", command(3));
    let mpi = [("sagemaker_mpi_enabled", "true"), asked[1]];
    let command = |host| script(&of(host, &mpi)).command(&of(host, &mpi), false).unwrap().join(" ");
    assert!(command(1).starts_with("python3 train.py --batch-size"), "{}", command(1));
    assert!(
        command(2).contains("mpi run --hosts algo-2,algo-3 ") && command(3).ends_with(" mpi wait"),
        "{}",
        command(2)
    );
    let variables = environment(&of(3, &asked));
    for (name, expected) in [
        ("SM_CURRENT_INSTANCE_GROUP", "trainers"),
        ("SM_CURRENT_INSTANCE_GROUP_HOSTS", r#"["algo-2","algo-3"]"#),
        ("SM_DISTRIBUTION_INSTANCE_GROUPS", r#"["trainers"]"#),
        ("SM_HOSTS", r#"["algo-1","algo-2","algo-3"]"#),
        ("SM_INSTANCE_GROUPS", r#"["feeders","trainers"]"#),
        ("SM_IS_HETERO", "true"),
        ("MASTER_ADDR", "algo-2"),
        ("SM_MASTER_ADDR", "algo-2"),
        (
            "SM_INSTANCE_GROUPS_DICT",
            r#"{"feeders":{"hosts":["algo-1"],"instance_group_name":"feeders","instance_type":"ml.c5.xlarge"},"trainers":{"hosts":["algo-2","algo-3"],"instance_group_name":"trainers","instance_type":"ml.m5.large"}}"#,
        ),
    ] {
        assert_eq!(variables[name], expected, "{name}");
    }
    assert!(
        variables["SM_RESOURCE_CONFIG"].contains(r#""current_group_name":"trainers""#),
        "{}",
        variables["SM_RESOURCE_CONFIG"]
    );
    assert!(
        variables["SM_TRAINING_ENV"].contains(r#""distribution_hosts":["algo-2","algo-3"]"#),
        "{}",
        variables["SM_TRAINING_ENV"]
    );
    // Without a distribution the first instance of all is the first.
    assert_eq!(environment(&of(3, &[]))["MASTER_ADDR"], "algo-1");
}

/// `distribution={"torch_distributed": .., "smdistributed": {"modelparallel": {"enabled": True, "parameters": {..}}}}`
/// of SDK v2, and DeepSpeed's own launcher, which is a command of the user's like any other.
#[test]
fn parameters_of_model_parallelism_reach_the_script() {
    let more = [
        ("mp_parameters", r#"{"hybrid_shard_degree": 2, "activation_loading_horizon": 4}"#),
        ("sagemaker_distributed_dataparallel_enabled", "false"),
        ("sagemaker_torch_distributed_enabled", "true"),
    ];
    let facts = facts(1, 2, &more);
    let command = script(&facts).command(&facts, false).unwrap();
    assert_eq!(command[0], "torchrun");
    let at = command.iter().position(|word| word == "--mp_parameters").unwrap();
    assert_eq!(command[at + 1], "activation_loading_horizon=4,hybrid_shard_degree=2");
    assert_eq!(
        environment(&facts)["SM_HP_MP_PARAMETERS"],
        r#"{"activation_loading_horizon":4,"hybrid_shard_degree":2}"#
    );
    let own = Facts {
        hyperparameters: map(&[("sagemaker_program", "deepspeed.sh"), ("deepspeed_config", "ds.json")]),
        ..facts
    };
    assert_eq!(
        script(&own).command(&own, false).unwrap(),
        ["/bin/sh", "-c", "exec ./deepspeed.sh --deepspeed_config ds.json"]
    );
}
