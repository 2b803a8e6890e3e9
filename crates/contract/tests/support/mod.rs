//! A job that brings a script, as the tests of script mode see it.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use std::collections::BTreeMap;

use shoal_contract::{ChannelFacts, Facts, Paths, Script};

pub(crate) fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

/// What SDK v2 sends for
/// `PyTorch(entry_point="train.py", source_dir=..., instance_count=2, hyperparameters={...})`.
pub(crate) fn facts(host: u32, hosts: u32, more: &[(&str, &str)]) -> Facts {
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
        first_port: None,
        hyperparameters: map(&[&sdk, more].concat()),
        environment: BTreeMap::new(),
        channels: vec![ChannelFacts {
            name: "train".into(),
            content_type: None,
            distribution: "FullyReplicated".into(),
            record_wrapper: "None".into(),
            is_pipe: false,
        }],
        checkpoint: None,
        debug_hook: None,
        tensor_board: None,
        profiler: None,
        cpus: 2,
        gpus: 0,
        endpoint: None,
        proxy: None,
        elastic: None,
        home: "/home/shoal".into(),
        paths: Paths::default(),
    }
}

pub(crate) fn script(facts: &Facts) -> Script {
    Script::of(&facts.hyperparameters, &facts.environment).unwrap()
}
