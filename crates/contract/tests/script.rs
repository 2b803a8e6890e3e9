//! Script mode: the variables, the command line and the failure of a script, as
//! sagemaker-training-toolkit has them.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod support;

use shoal_contract::{Facts, LaunchError, Script, environment, program_failure, script_failure};
use support::{facts, map, script};

/// Every `SM_*` variable of the toolkit's `to_env_vars`, and what is beside them, on the second of
/// two hosts.
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
