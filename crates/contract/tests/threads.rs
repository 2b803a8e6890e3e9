//! The variables that set the number of a program's threads.

use std::collections::BTreeMap;

use shoal_contract::{Facts, Paths, Threads};

fn map(text: &str) -> BTreeMap<String, String> {
    text.split_whitespace()
        .filter_map(|pair| pair.split_once('='))
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
}

fn facts(cpus: u32, gpus: u32, hyperparameters: &str, environment: &str) -> Facts {
    Facts {
        job_name: "job".into(),
        job_arn: "arn".into(),
        region: "us-east-1".into(),
        host: 1,
        hosts: vec!["algo-1".into()],
        addresses: BTreeMap::new(),
        instance_type: "ml.m5.large".into(),
        groups: Vec::new(),
        network_interface: "eth0".into(),
        first_port: None,
        hyperparameters: map(hyperparameters),
        environment: map(environment),
        channels: Vec::new(),
        checkpoint: None,
        debug_hook: None,
        tensor_board: None,
        profiler: None,
        cpus,
        gpus,
        endpoint: None,
        proxy: None,
        elastic: None,
        home: "/home/shoal".into(),
        paths: Paths::default(),
    }
}

/// `4 cores of 16`: the share and what libraries see; then the command, hyperparameters and
/// variables of the job.
const ALL: &str = "OMP_NUM_THREADS={n} TF_NUM_INTRAOP_THREADS={n} TF_NUM_INTEROP_THREADS={i} LOKY_MAX_CPU_COUNT={n}";
const WAITS: &str = "GOMP_SPINCOUNT=4000 KMP_BLOCKTIME=1 OPENBLAS_THREAD_TIMEOUT=20";

#[test]
fn threads_are_the_share_of_the_cores() {
    let torchrun = "torchrun --nnodes 2 --nproc_per_node 2 train.py";
    let mpi = "sagemaker_mpi_enabled=true sagemaker_mpi_num_of_processes_per_host=4";
    // Share, cores that are seen, GPUs, command, hyperparameters, variables of the job; threads if
    // told, and what else is set.
    for (cpus, visible, gpus, command, hyperparameters, environment, threads, waits) in [
        // The machine is its own: libraries take what they find, and what starts processes by
        // itself divides that.
        (2, 2, 0, "python3 train.py", "", "", None, WAITS),
        // Beside another, or a type with fewer cores than the machine.
        (1, 2, 0, "python3 train.py", "", "", Some(1), WAITS),
        (4, 16, 0, "python3 train.py", "", "", Some(4), WAITS),
        // Processes divide the share, even where it is the machine.
        (2, 2, 0, torchrun, "", "", Some(1), WAITS),
        (16, 16, 0, torchrun, "", "", Some(8), WAITS),
        (4, 16, 0, "torchrun --nproc-per-node=8 train.py", "", "", Some(1), WAITS),
        (16, 16, 4, "torchrun --nproc_per_node gpu train.py", "", "", Some(4), WAITS),
        (16, 16, 0, "torchrun --nproc_per_node auto train.py", "", "", Some(1), WAITS),
        (8, 16, 0, "shoal mpi wait", mpi, "", Some(2), WAITS),
        (8, 16, 4, "shoal mpi run", "sagemaker_mpi_enabled=true", "", Some(2), WAITS),
        // torchrun with one process needs no division.
        (2, 2, 0, "torchrun --nproc_per_node 1 train.py", "", "", None, WAITS),
        // What the job sets is in force, and what decides the same is left alone.
        (2, 2, 0, "python3 train.py", "", "OMP_WAIT_POLICY=ACTIVE", None, "OPENBLAS_THREAD_TIMEOUT=20"),
        (2, 2, 0, "python3 train.py", "", "GOMP_SPINCOUNT=0 KMP_BLOCKTIME=0 OPENBLAS_THREAD_TIMEOUT=4", None, ""),
        (2, 2, 0, "python3 train.py", "", "KMP_LIBRARY=serial", None, "GOMP_SPINCOUNT=4000 OPENBLAS_THREAD_TIMEOUT=20"),
    ] {
        let case = format!("{cpus} of {visible} cores, {gpus} GPUs: {command} {hyperparameters} {environment}");
        let command: Vec<String> = command.split(' ').map(str::to_owned).collect();
        let told = Threads::of(&facts(cpus, gpus, hyperparameters, environment), &command, visible);
        let counts = threads
            .map(|threads: u32| ALL.replace("{n}", &threads.to_string()).replace("{i}", &threads.max(2).to_string()))
            .unwrap_or_default();
        let found =
            told.variables.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect::<BTreeMap<_, _>>();
        assert_eq!(found, map(&format!("{counts} {waits}")), "{case}");
        assert_eq!(told.note.is_some(), threads.is_some(), "{case}");
        assert!(told.variables.iter().all(|(name, _)| Threads::is_default(name)), "{case}");
    }
}

#[test]
fn what_the_job_sets_is_its_own_and_the_log_names_the_share() {
    let command = ["python3".to_owned(), "train.py".to_owned()];
    let told = Threads::of(&facts(1, 0, "", "OMP_NUM_THREADS=4"), &command, 2);
    assert!(!told.variables.iter().any(|(name, _)| *name == "OMP_NUM_THREADS"));
    assert!(told.variables.contains(&("TF_NUM_INTRAOP_THREADS", "1".to_owned())));
    let told = Threads::of(&facts(1, 0, "", ""), &command, 2);
    assert_eq!(
        told.note.as_deref(),
        Some(
            "1 thread (OMP_NUM_THREADS and others): this instance's share of 2 cores when it started; Environment can set others"
        )
    );
}
