//! Compute targets with schedulers of their own, beside this machine.

use shoal_plane::{Capacity, Node, Packing, Quotas};

use crate::script::{GIB, check};

fn with_slurm() -> Capacity {
    let local = Node { cpus: 4, memory_bytes: 16 * GIB, gpus: 1, instances: 2, ..Node::local() };
    Capacity {
        nodes: vec![local, Node::of_scheduler("slurm", 3)],
        spans: false,
        packing: Packing::Use,
        quotas: Quotas::default(),
    }
}

#[test]
fn a_gang_is_on_its_target_at_its_whole_size() {
    check(
        with_slurm(),
        "
        0 create a g5.12xlarge 2 on=slurm
            a created: Starting the training job
            a launched ua-1: 2 x 48 CPUs, 192.0 GiB, GPUs [0, 1, 2, 3, 0, 1, 2, 3], on slurm slurm, lease 90000 s: Preparing the instances for training (on compute target slurm)
            -> launch ua-1 on 2
        1 create b m5.4xlarge 1
            b created: Starting the training job
            b launched ub-1: 1 x 4 CPUs, 16.0 GiB, GPUs [], on local, lease 90000 s: Preparing the instances for training (ml.m5.4xlarge capped to this machine: each instance has 4 CPUs instead of 16 and 16.0 GiB of memory instead of 64.0 GiB)
            -> launch ub-1 on 1
        2 create c m5.large 4 on=slurm
            refused: InstanceCount is 4 and the compute target slurm gets at most 3 instances at once: ask for fewer instances
        3 create c m5.large 1 on=k8s
            refused: this server has no compute target k8s: choose one that `shoal targets` lists, or add [target.k8s] to shoal.toml and start the server again
    ",
    );
}

#[test]
fn the_head_of_one_target_delays_no_job_of_another() {
    check(
        with_slurm(),
        "
        0 create a m5.large 2 on=slurm
            a created: Starting the training job
            a launched ua-1: 2 x 2 CPUs, 8.0 GiB, GPUs [], on slurm slurm, lease 90000 s: Preparing the instances for training (on compute target slurm)
            -> launch ua-1 on 2
        1 create b m5.large 2 on=slurm
            b created: Starting the training job
            b Pending: Waiting for capacity: needs 2 instances, 1 free on node slurm; 1st in the queue
        2 create c m5.large 2
            c created: Starting the training job
            c launched uc-1: 2 x 2 CPUs, 8.0 GiB, GPUs [], on local local, lease 90000 s: Preparing the instances for training
            -> launch uc-1 on 2
        # The head leaves one place.
        3 create d m5.large 1 on=slurm
            d created: Starting the training job
            d launched ud-1: 1 x 2 CPUs, 8.0 GiB, GPUs [], on slurm, lease 90000 s: Preparing the instances for training (on compute target slurm)
            -> launch ud-1 on 1
        4 stop a
            a ended Stopped/Stopped: Training job stopped
            a release
            -> release ua-1
        5 released ua-1
            a released
            b launched ub-1: 2 x 2 CPUs, 8.0 GiB, GPUs [], on slurm slurm, lease 90000 s: Preparing the instances for training (on compute target slurm)
            -> launch ub-1 on 2
    ",
    );
}
