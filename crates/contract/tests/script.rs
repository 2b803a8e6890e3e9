//! Script mode: the variables, the command line and the failure of a script, as
//! sagemaker-training-toolkit has them.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use std::collections::BTreeMap;

use shoal_contract::{
    ChannelFacts, ElasticFacts, Facts, GroupFacts, LaunchError, Paths, Script, environment, hosts_file,
    processes_per_instance, program_failure, script_failure,
};

fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

/// What SDK v2 sends for
/// `PyTorch(entry_point="train.py", source_dir=..., instance_count=2, hyperparameters={...})`.
fn facts(host: u32, hosts: u32, more: &[(&str, &str)]) -> Facts {
    let sdk = [
        ("batch-size", "32"),
        ("lr", "1e-05"),
        ("n", "\"a name\""),
        ("sagemaker_container_log_level", "20"),
        ("sagemaker_job_name", "\"job-1\""),
        ("sagemaker_program", "\"train.py\""),
        ("sagemaker_region", "\"us-east-1\""),
        ("sagemaker_submit_directory", "\"s3://bucket/job-1/source/sourcedir.tar.gz\""),
    ];
    Facts {
        job_name: "job-1".into(),
        job_arn: "arn:aws:sagemaker:us-east-1:123456789012:training-job/job-1".into(),
        region: "us-east-1".into(),
        host,
        hosts: (1..=hosts).map(|host| format!("algo-{host}")).collect(),
        addresses: BTreeMap::new(),
        instance_type: "ml.m5.large".into(),
        groups: Vec::new(),
        network_interface: "eth0".into(),
        hyperparameters: map(&[&sdk, more].concat()),
        environment: BTreeMap::new(),
        channels: vec![ChannelFacts {
            name: "train".into(),
            content_type: None,
            distribution: "FullyReplicated".into(),
            record_wrapper: "None".into(),
        }],
        checkpoint: None,
        cpus: 2,
        gpus: 0,
        endpoint: None,
        proxy: None,
        elastic: None,
        home: "/home/shoal".into(),
        paths: Paths::default(),
    }
}

fn script(facts: &Facts) -> Script {
    Script::of(&facts.hyperparameters, &facts.environment).unwrap()
}

/// Every `SM_*` variable of the toolkit's `to_env_vars`, and what is beside them, on the second of
/// two hosts.
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

#[test]
fn a_script_has_the_toolkits_variables() {
    let variables = environment(&facts(2, 2, &[]));
    let group =
        r#"{"hosts":["algo-1","algo-2"],"instance_group_name":"homogeneousCluster","instance_type":"ml.m5.large"}"#;
    let inputs =
        r#"{"train":{"RecordWrapperType":"None","S3DistributionType":"FullyReplicated","TrainingInputMode":"File"}}"#;
    let resources = format!(
        r#"{{"current_group_name":"homogeneousCluster","current_host":"algo-2","current_instance_type":"ml.m5.large","hosts":["algo-1","algo-2"],"instance_groups":[{group}],"network_interface_name":"eth0"}}"#
    );
    let hps = r#"{"batch-size":32,"lr":0.00001,"n":"a name"}"#;
    let groups = format!(r#"{{"homogeneousCluster":{group}}}"#);
    let training_env = format!(
        r#"{{"additional_framework_parameters":{{}},"channel_input_dirs":{{"train":"/opt/ml/input/data/train"}},"current_host":"algo-2","current_instance_group":"homogeneousCluster","current_instance_group_hosts":["algo-1","algo-2"],"current_instance_type":"ml.m5.large","distribution_hosts":[],"distribution_instance_groups":[],"framework_module":null,"hosts":["algo-1","algo-2"],"hyperparameters":{hps},"input_config_dir":"/opt/ml/input/config","input_data_config":{inputs},"input_dir":"/opt/ml/input","instance_groups":["homogeneousCluster"],"instance_groups_dict":{groups},"is_hetero":false,"is_master":false,"is_modelparallel_enabled":null,"is_smddpmprun_installed":false,"is_smddprun_installed":false,"job_name":"job-1","log_level":20,"master_hostname":"algo-1","model_dir":"/opt/ml/model","module_dir":"s3://bucket/job-1/source/sourcedir.tar.gz","module_name":"train","network_interface_name":"eth0","num_cpus":2,"num_gpus":0,"num_neurons":0,"output_data_dir":"/opt/ml/output/data","output_dir":"/opt/ml/output","output_intermediate_dir":"/opt/ml/output/intermediate","resource_config":{resources},"user_entry_point":"train.py"}}"#
    );
    let expected = [
        ("SM_CHANNELS", r#"["train"]"#),
        ("SM_CHANNEL_TRAIN", "/opt/ml/input/data/train"),
        ("SM_CURRENT_HOST", "algo-2"),
        ("SM_CURRENT_INSTANCE_GROUP", "homogeneousCluster"),
        ("SM_CURRENT_INSTANCE_GROUP_HOSTS", r#"["algo-1","algo-2"]"#),
        ("SM_CURRENT_INSTANCE_TYPE", "ml.m5.large"),
        ("SM_DISTRIBUTION_INSTANCE_GROUPS", "[]"),
        ("SM_FRAMEWORK_MODULE", ""),
        ("SM_FRAMEWORK_PARAMS", "{}"),
        ("SM_HOSTS", r#"["algo-1","algo-2"]"#),
        ("SM_HPS", hps),
        ("SM_HP_BATCH-SIZE", "32"),
        ("SM_HP_LR", "1e-05"),
        ("SM_HP_N", "a name"),
        ("SM_INPUT_CONFIG_DIR", "/opt/ml/input/config"),
        ("SM_INPUT_DATA_CONFIG", inputs),
        ("SM_INPUT_DIR", "/opt/ml/input"),
        ("SM_INSTANCE_GROUPS", r#"["homogeneousCluster"]"#),
        ("SM_INSTANCE_GROUPS_DICT", &groups),
        ("SM_IS_HETERO", "false"),
        ("SM_LOG_LEVEL", "20"),
        ("SM_MODEL_DIR", "/opt/ml/model"),
        ("SM_MODULE_DIR", "s3://bucket/job-1/source/sourcedir.tar.gz"),
        ("SM_MODULE_NAME", "train"),
        ("SM_NETWORK_INTERFACE_NAME", "eth0"),
        ("SM_NUM_CPUS", "2"),
        ("SM_NUM_GPUS", "0"),
        ("SM_NUM_NEURONS", "0"),
        ("SM_OUTPUT_DATA_DIR", "/opt/ml/output/data"),
        ("SM_OUTPUT_DIR", "/opt/ml/output"),
        ("SM_OUTPUT_INTERMEDIATE_DIR", "/opt/ml/output/intermediate"),
        ("SM_RESOURCE_CONFIG", &resources),
        ("SM_TRAINING_ENV", &training_env),
        ("SM_USER_ARGS", r#"["--batch-size","32","--lr","1e-05","-n","a name"]"#),
        ("SM_USER_ENTRY_POINT", "train.py"),
    ];
    // Beside them stand those that SDK v3's driver writes.
    let of_v3 = [
        "SM_HOST_COUNT",
        "SM_CURRENT_HOST_RANK",
        "SM_MASTER_ADDR",
        "SM_MASTER_PORT",
        "SM_INPUT_DATA_DIR",
        "SM_OUTPUT_FAILURE",
    ];
    let found = variables.iter().filter(|(name, _)| name.starts_with("SM_") && !of_v3.contains(&name.as_str()));
    let found: Vec<(&str, &str)> = found.map(|(name, value)| (name.as_str(), value.as_str())).collect();
    assert_eq!(found, expected);
    for (name, expected) in [
        ("PYTHONPATH", "/opt/ml/code"),
        ("MASTER_ADDR", "algo-1"),
        ("MASTER_PORT", "7777"),
        ("NCCL_SOCKET_IFNAME", "eth0"),
        ("NCCL_IB_DISABLE", "1"),
        ("NCCL_DEBUG", "WARN"),
        ("SAGEMAKER_JOB_NAME", "job-1"),
        ("CURRENT_HOST", "algo-2"),
        ("SAGEMAKER_REGION", "us-east-1"),
    ] {
        assert_eq!(variables[name], expected, "{name}");
    }
    let own = Facts { environment: map(&[("PYTHONPATH", "/mine"), ("NCCL_DEBUG", "INFO")]), ..facts(1, 1, &[]) };
    let own = environment(&own);
    assert_eq!((own["PYTHONPATH"].as_str(), own["NCCL_DEBUG"].as_str()), ("/opt/ml/code:/mine", "INFO"));
}

#[test]
fn a_job_names_its_script_by_hyperparameters_or_variables() {
    let of = |hyperparameters: &[(&str, &str)], environment: &[(&str, &str)]| {
        Script::of(&map(hyperparameters), &map(environment))
            .map(|script| (script.program, script.source.unwrap_or_default()))
    };
    let said = |program: &str, source: &str| Some((program.to_owned(), source.to_owned()));
    let program = ("sagemaker_program", "\"a.py\"");
    let by_variables = [("SAGEMAKER_PROGRAM", "b.py"), ("SAGEMAKER_SUBMIT_DIRECTORY", "/b")];
    assert_eq!(of(&[], &[]), None);
    assert_eq!(of(&[("sagemaker_program", "\"\"")], &[]), None);
    assert_eq!(of(&[("sagemaker_submit_directory", "\"s3://b/k\"")], &[]), None);
    assert_eq!(of(&[program], &[]), said("a.py", ""));
    // SDK v3 does not encode them.
    assert_eq!(
        of(&[("sagemaker_program", "a.py"), ("sagemaker_submit_directory", "s3://b/k")], &[]),
        said("a.py", "s3://b/k")
    );
    assert_eq!(of(&[], &by_variables), said("b.py", "/b"));
    assert_eq!(of(&[program, ("sagemaker_submit_directory", "\"/a\"")], &by_variables), said("b.py", "/a"));
}

#[test]
fn commands_are_those_of_the_toolkit() {
    let command = |facts: &Facts, is_package| script(facts).command(facts, is_package).map(|words| words.join("|"));
    let plain = facts(
        1,
        1,
        &[("flag", "true"), ("nothing", "null"), ("map", "{\"b\": [1, \"x\"], \"a\": 0.5}"), ("raw", "x y")],
    );
    assert_eq!(
        command(&plain, false).unwrap(),
        "python3|train.py|--batch-size|32|--flag|True|--lr|1e-05|--map|a=0.5,b=[1, 'x']|-n|a name|--nothing||--raw|x y"
    );
    assert_eq!(command(&facts(1, 1, &[]), true).unwrap(), "python3|-m|train|--batch-size|32|--lr|1e-05|-n|a name");
    let shell = facts(1, 1, &[("sagemaker_program", "\"run.sh\""), ("quote", "\"it's\""), ("nothing", "null")]);
    assert_eq!(
        command(&shell, false).unwrap(),
        "/bin/sh|-c|exec ./run.sh --batch-size 32 --lr 1e-05 -n 'a name' --nothing '' --quote 'it'\"'\"'s'"
    );

    let torch = ("sagemaker_torch_distributed_enabled", "true");
    let tail = "train.py|--batch-size|32|--lr|1e-05|-n|a name";
    // The second as an estimator of SDK v2 sends the text "true".
    for torch in [torch, (torch.0, "\"true\"")] {
        assert_eq!(
            command(&facts(1, 1, &[torch]), false).unwrap(),
            format!("torchrun|--nnodes|1|--nproc_per_node|1|{tail}")
        );
    }
    let ddp = ("sagemaker_distributed_dataparallel_enabled", "true");
    let gpus = Facts { gpus: 4, ..facts(2, 3, &[torch]) };
    let expected = |each| {
        format!(
            "torchrun|--nnodes|3|--nproc_per_node|{each}|--master_addr|algo-1|--master_port|7777|--node_rank|1|{tail}"
        )
    };
    assert_eq!(command(&gpus, false).unwrap(), expected(4));
    let eight = Facts { environment: map(&[("SHOAL_PROCESSES_PER_INSTANCE", "8")]), ..gpus };
    assert_eq!(command(&eight, false).unwrap(), expected(8));
    let gpus = Facts { gpus: 4, ..facts(2, 3, &[ddp]) };
    let ours = |each, more| {
        format!(
            "/opt/shoal/bin/shoal|ranks|--names|data-parallel|--hosts|algo-1,algo-2,algo-3|--node|1|--per-host|{each}|{more}--"
        )
    };
    assert_eq!(command(&gpus, false).unwrap(), format!("{}|python3|{tail}", ours(4, "")));
    assert!(command(&gpus, true).unwrap().ends_with("|--|python3|-m|train|--batch-size|32|--lr|1e-05|-n|a name"));
    let options = ("sagemaker_distributed_dataparallel_custom_mpi_options", "\"-verbose -x A='b c'\"");
    let with_options = facts(2, 3, &[ddp, options, ("shoal_processes_per_instance", "\"2\"")]);
    assert_eq!(command(&with_options, false).unwrap(), format!("{}|python3|{tail}", ours(2, "--variable|A=b c|")));
    let none = Facts { environment: map(&[("SHOAL_PROCESSES_PER_INSTANCE", "none")]), ..facts(1, 1, &[ddp]) };
    assert_eq!(command(&none, false), Err(LaunchError::ProcessesNumber("none".into())));
    let variables = environment(&with_options);
    for (name, expected) in [
        ("SMDATAPARALLEL_USE_HOMOGENEOUS", "1"),
        ("SMDATAPARALLEL_SERVER_ADDR", "algo-1"),
        ("SMDATAPARALLEL_SERVER_PORT", "7592"),
        ("SAGEMAKER_INSTANCE_TYPE", "ml.m5.large"),
        ("SHOAL_PROCESSES_PER_INSTANCE", "2"),
        ("SM_HPS", r#"{"batch-size":32,"lr":0.00001,"n":"a name"}"#),
    ] {
        assert_eq!(variables[name], expected, "{name}");
    }
    assert_eq!(environment(&gpus)["SM_DISTRIBUTION_INSTANCE_GROUPS"], r#"["homogeneousCluster"]"#);
    assert_eq!(
        command(&facts(1, 1, &[("sagemaker_torch_distributed_enabled", "false")]), false).unwrap(),
        format!("python3|{tail}")
    );
    assert_eq!(command(&facts(1, 1, &[torch]), true), Err(LaunchError::NoPythonScript("train.py".into())));
}

/// On how many instances a script is to train as if there were so many.
#[test]
fn a_job_says_how_many_instances_are_simulated() {
    let of = |hyperparameters: &[(&str, &str)], variables: &[(&str, &str)]| {
        let facts = Facts { environment: map(variables), ..facts(1, 2, hyperparameters) };
        let command = script(&facts).command(&facts, false).unwrap().join(" ");
        assert_eq!(command, "python3 train.py --batch-size 32 --lr 1e-05 -n a name", "it is no argument of the script");
        environment(&facts).get("SHOAL_SIMULATE_INSTANCES").cloned()
    };
    let [given, encoded] = [("shoal_simulate_instances", "8"), ("shoal_simulate_instances", "\"8\"")];
    assert_eq!(of(&[given], &[]).as_deref(), Some("8"));
    assert_eq!(of(&[encoded], &[]).as_deref(), Some("8"));
    assert_eq!(of(&[given], &[("SHOAL_SIMULATE_INSTANCES", "16"), ("SHOAL_AGENT_TOKEN", "x")]).as_deref(), Some("16"));
    assert_eq!(of(&[], &[("SHOAL_SIMULATE_BATCH_STATISTICS", "worker_0")]), None);
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
fn a_failure_has_the_last_traceback_and_the_command_and_fits() {
    let command = ["python3", "train.py", "--epochs", "1"].map(str::to_owned);
    let traceback = "Traceback (most recent call last):\n  File \"train.py\", line 1\nValueError: bad";
    let cause = "ValueError: bad (train.py, line 1)";
    let stderr =
        format!("warning: x\nTraceback (most recent call last):\n  first\nKeyError\n\nDuring ...:\n\n{traceback}\n");
    let expected = format!(
        "{cause}\nExecuteUserScriptError:\nExitCode 1\nErrorMessage \"{traceback}\"\nCommand \"python3 train.py --epochs 1\""
    );
    assert_eq!(script_failure(1, &stderr, &command, None), expected);
    let hinted = script_failure(1, &stderr, &command, Some("give it"));
    assert_eq!(hinted, expected.replacen(cause, &format!("{cause}\ngive it"), 1));
    assert_eq!(program_failure(&stderr, None), format!("{cause}\n{}", stderr.trim()));
    assert_eq!(
        (program_failure(" one line\n", None).as_str(), program_failure("", Some("a hint")).as_str()),
        ("one line", "")
    );
    assert_eq!(program_failure("sh: no x\n", Some("a hint")), "sh: no x\na hint\nsh: no x");
    assert_eq!(
        script_failure(7, "", &command, None),
        "the script printed nothing, and left no failure file\nExecuteUserScriptError:\nExitCode 7\nErrorMessage \"\"\nCommand \"python3 train.py --epochs 1\""
    );
    let launched =
        [&["/opt/shoal/bin/shoal", "parameter-server", "--index", "0", "--"].map(str::to_owned)[..], &command].concat();
    assert_eq!(
        script_failure(7, "", &launched, None),
        script_failure(7, "", &command, None),
        "what starts the script is no affair of the user's"
    );
    assert!(
        script_failure(7, "no traceback\nbut words", &command, None)
            .contains("ErrorMessage \"no traceback\nbut words\"\n")
    );

    let long = [&command[..], &["\u{fc}".repeat(300)]].concat();
    // Cut where a line begins, if one is near.
    let lines = format!(
        "Traceback (most recent call last):\n{}ValueError: no\n",
        "  File \"train.py\", line 1, in step\n".repeat(100)
    );
    let text = script_failure(1, &lines, &command, None);
    assert!(text.contains("ErrorMessage \"  File \"train.py\"") && text.contains("ValueError: no\"\n"), "{text}");
    let text = script_failure(1, &format!("{}end", "\u{fc}".repeat(5000)), &long, None);
    assert_eq!(text.chars().count(), 960, "what the platform adds must fit into 1024");
    assert!(
        text.contains("...\nExecuteUserScriptError:\nExitCode 1\nErrorMessage \"\u{fc}")
            && text.contains("\u{fc}end\"\nCommand \"python3")
    );
    assert!(text.ends_with("\u{fc}...\""), "{text}");
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
