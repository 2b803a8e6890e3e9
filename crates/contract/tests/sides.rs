//! The two sides of the contract agree: what the agent writes, a program reads.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use std::collections::BTreeMap;

use shoal_contract::{
    ChannelFacts, CheckpointFacts, ConfigError, EndpointFacts, Facts, Job, Paths, ProfilerFacts, ProxyFacts,
    checkpoint_directory, config_files, environment,
};

fn facts(host: u32, hosts: u32) -> Facts {
    let map =
        |pairs: &[(&str, &str)]| pairs.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect::<BTreeMap<_, _>>();
    Facts {
        job_name: "titanic".into(),
        job_arn: "arn:aws:sagemaker:us-east-1:000000000000:training-job/titanic".into(),
        region: "us-east-1".into(),
        host,
        hosts: (1..=hosts).map(|k| format!("algo-{k}")).collect(),
        addresses: BTreeMap::new(),
        instance_type: "ml.m5.large".into(),
        groups: Vec::new(),
        network_interface: "eth0".into(),
        first_port: None,
        hyperparameters: map(&[
            ("epochs", "3"),
            ("batch-size", "32"),
            ("x=y", "1"),
            ("flag", "true"),
            ("n", "\"quoted\""),
            ("layers", "{\"b\": [1, 2], \"a\": null}"),
            ("name", "plain text"),
            ("sagemaker_program", "\"train.py\""),
            ("sagemaker_container_log_level", "10"),
        ]),
        environment: map(&[("MINE", "1"), ("AWS_REGION", "eu-west-1"), ("NUL", "a\0b")]),
        channels: vec![
            ChannelFacts {
                name: "train".into(),
                content_type: Some("text/csv".into()),
                distribution: "ShardedByS3Key".into(),
                record_wrapper: "None".into(),
                is_pipe: false,
            },
            ChannelFacts {
                name: "my-eval".into(),
                content_type: None,
                distribution: "FullyReplicated".into(),
                record_wrapper: "RecordIO".into(),
                is_pipe: true,
            },
        ],
        checkpoint: None,
        debug_hook: None,
        tensor_board: None,
        profiler: None,
        cpus: 4,
        gpus: 0,
        endpoint: Some(EndpointFacts {
            url: "http://127.0.0.1:9777".into(),
            access_key_id: "AK".into(),
            secret_access_key: "SK".into(),
            session_token: "ST".into(),
        }),
        proxy: None,
        elastic: None,
        home: "/home/shoal".into(),
        paths: Paths::default(),
    }
}

fn files(facts: &Facts) -> BTreeMap<&'static str, String> {
    config_files(facts).into_iter().map(|(path, bytes)| (path, String::from_utf8(bytes).unwrap())).collect()
}

#[test]
fn a_checkpoint_directory_is_named_where_there_is_one() {
    assert!(!files(&facts(1, 1)).contains_key("input/config/checkpointconfig.json"));
    let checkpoint = CheckpointFacts { uri: "s3://b/c".into(), local_path: "/opt/ml/checkpoints".into() };
    let file = &files(&Facts { checkpoint: Some(checkpoint), ..facts(1, 1) })["input/config/checkpointconfig.json"];
    assert_eq!(file, r#"{"S3Uri":"s3://b/c","LocalPath":"/opt/ml/checkpoints"}"#);
    assert_eq!(checkpoint_directory(file.as_bytes()).unwrap(), std::path::Path::new("/opt/ml/checkpoints"));
    assert_eq!(checkpoint_directory(b"{}").unwrap_err().to_string(), "checkpointconfig.json is malformed");
}

#[test]
fn a_profiler_is_described_where_the_request_has_one() {
    assert!(!files(&facts(1, 1)).contains_key("input/config/profilerconfig.json"));
    let parameters = BTreeMap::from([("DataloaderProfilingConfig".to_owned(), "{}".to_owned())]);
    let profiler = ProfilerFacts { interval_ms: 200, parameters, is_disabled: false };
    let file = &files(&Facts { profiler: Some(profiler), ..facts(1, 1) })["input/config/profilerconfig.json"];
    let expected = concat!(
        r#"{"DisableProfiler":false,"ProfilingIntervalInMilliseconds":200,"#,
        r#""ProfilingParameters":{"DataloaderProfilingConfig":"{}"},"LocalPath":"/opt/ml/output/profiler/"}"#
    );
    assert_eq!(file, expected);
}

#[test]
fn config_files_are_exactly_those_of_the_platform() {
    let files = files(&facts(2, 3));
    assert_eq!(
        files["input/config/resourceconfig.json"],
        concat!(
            r#"{"current_host":"algo-2","current_instance_type":"ml.m5.large","current_group_name":"homogeneousCluster","#,
            r#""hosts":["algo-1","algo-2","algo-3"],"instance_groups":[{"instance_group_name":"homogeneousCluster","#,
            r#""instance_type":"ml.m5.large","hosts":["algo-1","algo-2","algo-3"]}],"network_interface_name":"eth0"}"#
        )
    );
    assert_eq!(
        files["input/config/inputdataconfig.json"],
        concat!(
            r#"{"train":{"ContentType":"text/csv","TrainingInputMode":"File","S3DistributionType":"ShardedByS3Key","RecordWrapperType":"None"},"#,
            r#""my-eval":{"TrainingInputMode":"Pipe","S3DistributionType":"FullyReplicated","RecordWrapperType":"RecordIO"}}"#
        )
    );
    let hyperparameters: BTreeMap<String, String> =
        serde_json::from_str(&files["input/config/hyperparameters.json"]).unwrap();
    assert_eq!(hyperparameters, facts(2, 3).hyperparameters);
    assert_eq!(files.len(), 3);
}

#[test]
fn a_program_reads_what_the_agent_wrote() {
    let facts = facts(10, 11);
    let files = files(&facts);
    let [hyperparameters, inputs, resources] = ["hyperparameters", "inputdataconfig", "resourceconfig"]
        .map(|name| files[format!("input/config/{name}.json").as_str()].as_bytes().to_vec());
    let job = Job::parse(&hyperparameters, &resources, &inputs).unwrap();
    assert_eq!(job.hyperparameters, facts.hyperparameters);
    assert_eq!((job.world_size(), job.current_host()), (11, "algo-10"));
    // Ranks follow the sorted names: algo-1, algo-10, algo-11, algo-2, ..
    assert_eq!(job.rank, 1);
    assert_eq!(job.channels["train"].content_type.as_deref(), Some("text/csv"));
    assert_eq!(job.channels["my-eval"].content_type, None);

    let stranger = br#"{"current_host":"algo-9","hosts":["algo-1"]}"#;
    assert!(matches!(Job::parse(b"{}", stranger, b"{}"), Err(ConfigError::UnknownHost(host)) if host == "algo-9"));
    let named = |h, r, i| match Job::parse(h, r, i) {
        Err(ConfigError::Malformed { file, .. }) => file,
        other => panic!("{other:?}"),
    };
    assert_eq!(named(b"{\"a\":1}", &resources, b"{}"), "hyperparameters.json");
    assert_eq!(named(b"{}", b"[]", b"{}"), "resourceconfig.json");
    assert_eq!(named(b"{}", &resources, b""), "inputdataconfig.json");
}

#[test]
fn variables_are_those_of_the_platform_and_of_the_toolkit() {
    let variables = environment(&facts(2, 2));
    let expected = [
        ("TRAINING_JOB_NAME", "titanic"),
        ("AWS_REGION", "eu-west-1"),
        ("AWS_DEFAULT_REGION", "us-east-1"),
        ("AWS_ENDPOINT_URL", "http://127.0.0.1:9777"),
        ("AWS_ACCESS_KEY_ID", "AK"),
        ("AWS_SECRET_ACCESS_KEY", "SK"),
        ("AWS_SESSION_TOKEN", "ST"),
        ("MINE", "1"),
        ("MASTER_ADDR", "algo-1"),
        ("HOME", "/home/shoal"),
        ("SM_HOSTS", r#"["algo-1","algo-2"]"#),
        ("SM_CURRENT_HOST", "algo-2"),
        ("SM_CURRENT_HOST_RANK", "1"),
        ("SM_CHANNELS", r#"["my-eval","train"]"#),
        ("SM_CHANNEL_TRAIN", "/opt/ml/input/data/train"),
        ("SM_CHANNEL_MY-EVAL", "/opt/ml/input/data/my-eval"),
        ("SM_MODEL_DIR", "/opt/ml/model"),
        ("SM_OUTPUT_DATA_DIR", "/opt/ml/output/data"),
        ("SM_NUM_CPUS", "4"),
        ("SM_NUM_GPUS", "0"),
        ("SM_NETWORK_INTERFACE_NAME", "eth0"),
        ("SM_HP_EPOCHS", "3"),
        ("SM_HP_BATCH-SIZE", "32"),
        ("SM_HP_FLAG", "true"),
        ("SM_HP_N", "quoted"),
        ("SM_HP_LAYERS", r#"{"a":null,"b":[1,2]}"#),
        ("SM_HP_NAME", "plain text"),
        (
            "SM_HPS",
            r#"{"batch-size":32,"epochs":3,"flag":true,"layers":{"a":null,"b":[1,2]},"n":"quoted","name":"plain text","x=y":1}"#,
        ),
        ("SM_USER_ENTRY_POINT", "train.py"),
        ("SM_LOG_LEVEL", "10"),
        ("SM_FRAMEWORK_PARAMS", "{}"),
        (
            "SM_USER_ARGS",
            r#"["--batch-size","32","--epochs","3","--flag","True","--layers","a=None,b=[1, 2]","-n","quoted","--name","plain text","--x=y","1"]"#,
        ),
        ("SM_IS_HETERO", "false"),
    ];
    for (name, value) in expected {
        assert_eq!(variables.get(name).map(String::as_str), Some(value), "{name}");
    }
    let env: serde_json::Value = serde_json::from_str(&variables["SM_TRAINING_ENV"]).unwrap();
    assert_eq!((&env["is_master"], &env["hyperparameters"]["epochs"]), (&false.into(), &3.into()));
    for absent in ["SAGEMAKER_BASE_DIR", "NUL", "SM_HP_X=Y", "SM_HP_SAGEMAKER_PROGRAM"] {
        assert_eq!(variables.get(absent), None, "{absent}");
    }
}

#[test]
fn elsewhere_than_in_opt_ml_every_path_follows() {
    let variables = environment(&Facts { paths: Paths::new("/runs/a/ml"), endpoint: None, ..facts(1, 1) });
    assert_eq!(variables["SAGEMAKER_BASE_DIR"], "/runs/a/ml");
    assert_eq!(variables.get("AWS_ENDPOINT_URL"), None);
    let lost: Vec<_> = variables.iter().filter(|(_, value)| value.contains("/opt/ml")).collect();
    assert!(lost.is_empty(), "{lost:?}");
}

#[test]
fn where_names_do_not_resolve_addresses_are_told() {
    let addresses =
        [("algo-1".to_owned(), "127.0.1.1".to_owned()), ("algo-2".to_owned(), "127.0.1.2".to_owned())].into();
    let variables = environment(&Facts { addresses, ..facts(2, 2) });
    assert_eq!(variables["SHOAL_HOST_ADDRESSES"], "algo-1=127.0.1.1,algo-2=127.0.1.2");
    assert_eq!((variables["MASTER_ADDR"].as_str(), variables["SM_MASTER_ADDR"].as_str()), ("127.0.1.1", "127.0.1.1"));
    assert_eq!(environment(&facts(2, 2)).get("SHOAL_HOST_ADDRESSES"), None);
}

#[test]
fn a_proxy_is_named_in_every_form_that_clients_read() {
    let own = [("HTTPS_PROXY".to_owned(), "mine".to_owned())];
    let proxy = ProxyFacts { url: "http://127.0.0.1:9778".into(), bypass: vec!["localhost".into(), "algo-1".into()] };
    let variables = environment(&Facts { proxy: Some(proxy), environment: own.into(), ..facts(1, 1) });
    for (name, expected) in [
        ("http_proxy", "http://127.0.0.1:9778"),
        ("HTTP_PROXY", "http://127.0.0.1:9778"),
        ("https_proxy", "http://127.0.0.1:9778"),
        ("HTTPS_PROXY", "mine"),
        ("no_proxy", "localhost,algo-1"),
        ("NO_PROXY", "localhost,algo-1"),
    ] {
        assert_eq!(variables[name], expected, "{name}");
    }
    assert_eq!(environment(&facts(1, 1)).get("HTTPS_PROXY"), None);
}

#[test]
fn a_request_says_neither_who_a_program_is_nor_half_of_its_keys() {
    let with = |own: &[(&str, &str)]| {
        environment(&Facts {
            environment: own.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect(),
            ..facts(2, 2)
        })
    };
    let plain = with(&[]);
    // What the request says, and whether the program hears it.
    for (name, heard) in [
        ("COLOUR", true),
        ("PATH", true),
        ("AWS_REGION", true),
        ("AWS_ENDPOINT_URL", true),
        ("MASTER_PORT", true),
        ("SM_OF_MY_OWN", true),
        ("SM_CURRENT_HOST", false),
        ("SM_HPS", false),
        ("CURRENT_HOST", false),
        ("TRAINING_JOB_NAME", false),
        ("SHOAL_INSTANCE", false),
        ("SHOAL_COMM_SECRET", false),
        ("SHOAL_COMM_HEARTBEAT", true),
        ("SHOAL_ELASTIC_LEAST", true),
        ("SHOAL_SIMULATE_BATCH_STATISTICS", true),
    ] {
        let expected = if heard { Some("mine") } else { plain.get(name).map(String::as_str) };
        assert_eq!(with(&[(name, "mine")]).get(name).map(String::as_str), expected, "{name}");
    }
    let own = with(&[("AWS_ACCESS_KEY_ID", "mine"), ("AWS_SECRET_ACCESS_KEY", "mine")]);
    assert!(plain.contains_key("AWS_SESSION_TOKEN") && !own.contains_key("AWS_SESSION_TOKEN"));
    assert_eq!(own["AWS_ACCESS_KEY_ID"], "mine");
}
