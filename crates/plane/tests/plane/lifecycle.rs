//! From creation to success, and what is refused.

use shoal_plane::{Capacity, Node, Packing};

use crate::script::{GIB, check, laptop};

#[test]
fn one_instance_succeeds() {
    check(
        laptop(),
        "
        1000 create a m5.xlarge 1
            a created: Starting the training job
            a launched ua-1: 1 x 4 CPUs, 16.0 GiB, GPUs [], lease 90000 s: Preparing the instances for training
            -> launch ua-1 on 1
        1010 ua-1/1 downloading
            a algo-1 Downloading
            a Downloading: Downloading input data
        1020 ua-1/1 training
            a algo-1 Training
            a Training: Training image download completed. Training in progress.
        3500 ua-1/1 exit 0 rmse:0.5@3400 mae:0.25@3400
            a algo-1 ended: exit 0 rmse=0.5 mae=0.25
            a Uploading: Uploading generated training model
        3501 stored ua-1 # too early: nobody asked
        3600 ua-1/1 uploaded
            a algo-1 uploaded
            a uploads ended
            -> store ua-1 of [1]
        3600 ua-1/1 uploaded # repeated
        3700 stored ua-1
            a ended Completed/Completed: Training job completed
            a release
            -> release ua-1
        view a
            Completed Completed ended=true created=1000 modified=3700
            | Starting 1000..1010 Preparing the instances for training
            | Downloading 1010..1020 Downloading input data
            | Training 1020..3500 Training image download completed. Training in progress.
            | Uploading 3500..3700 Uploading generated training model
            | Completed 3700..3700 Training job completed
            trained 1010..3700 = 3 s, billed 3 s
            mae=0.25@3400 rmse=0.5@3400
        3701 stored ua-1 # repeated
        3800 released ua-1
            a released
        3900 released ua-1 # repeated
        view a
            gone
    ",
    );
}

#[test]
fn status_follows_the_first_instance_forward_and_the_last_one_to_the_upload() {
    check(
        laptop(),
        "
        0 create a m5.large 3
            a created: Starting the training job
            a launched ua-1: 3 x 2 CPUs, 8.0 GiB, GPUs [], lease 90000 s: Preparing the instances for training
            -> launch ua-1 on 3
        10 ua-1/2 downloading
            a algo-2 Downloading
            a Downloading: Downloading input data
        11 ua-1/1 downloading
            a algo-1 Downloading
        20 ua-1/2 training
            a algo-2 Training
            a Training: Training image download completed. Training in progress.
        21 ua-1/2 downloading # late
        30 ua-1/1 training
            a algo-1 Training
        40 ua-1/2 exit 0 rmse:2@35
            a algo-2 ended: exit 0 rmse=2
        41 ua-1/3 downloading
            a algo-3 Downloading
        42 ua-1/3 training
            a algo-3 Training
        50 ua-1/3 exit 0 rmse:3@34 auc:1@34
            a algo-3 ended: exit 0 rmse=3 auc=1
        60 ua-1/2 uploaded
            a algo-2 uploaded
        70 ua-1/1 exit 0 rmse:1@69
            a algo-1 ended: exit 0 rmse=1
            a Uploading: Uploading generated training model
        80 ua-1/1 uploaded
            a algo-1 uploaded
        90 ua-1/3 uploaded
            a algo-3 uploaded
            a uploads ended
            -> store ua-1 of [1, 2, 3]
        1500 stored ua-1
            a ended Completed/Completed: Training job completed
            a release
            -> release ua-1
        view a
            Completed Completed ended=true created=0 modified=1500
            | Starting 0..10 Preparing the instances for training
            | Downloading 10..20 Downloading input data
            | Training 20..70 Training image download completed. Training in progress.
            | Uploading 70..1500 Uploading generated training model
            | Completed 1500..1500 Training job completed
            trained 10..1500 = 2 s, billed 2 s
            auc=1@34 rmse=1@69
    ",
    );
}

#[test]
fn a_report_of_the_end_alone_is_enough() {
    check(
        laptop(),
        "
        0 create a m5.large 1
            a created: Starting the training job
            a launched ua-1: 1 x 2 CPUs, 8.0 GiB, GPUs [], lease 90000 s: Preparing the instances for training
            -> launch ua-1 on 1
        10 ua-1/1 exit 0
            a algo-1 ended: exit 0
            a Downloading: Downloading input data
            a Training: Training image download completed. Training in progress.
            a Uploading: Uploading generated training model
        20 ua-1/1 uploaded
            a algo-1 uploaded
            a uploads ended
            -> store ua-1 of [1]
    ",
    );
}

#[test]
fn unknown_attempts_and_hosts_are_nobody() {
    check(
        laptop(),
        "
        0 create a m5.large 1
            a created: Starting the training job
            a launched ua-1: 1 x 2 CPUs, 8.0 GiB, GPUs [], lease 90000 s: Preparing the instances for training
            -> launch ua-1 on 1
        1 ub-1/1 training
        2 ua-1/0 training
        3 ua-1/2 training
        4 ua-2/1 training
        5 unlaunched ub-1 no
        6 released ua-1
    ",
    );
}

#[test]
fn names_are_unique_among_live_and_ended_jobs() {
    check(
        laptop(),
        "
        0 create a m5.large 1
            a created: Starting the training job
            a launched ua-1: 1 x 2 CPUs, 8.0 GiB, GPUs [], lease 90000 s: Preparing the instances for training
            -> launch ua-1 on 1
        1 create a m5.large 1
            refused: Job name must be unique within an AWS account and region, and a job with this name already exists (a)
        2 create b m5.large 1 taken
            refused: Job name must be unique within an AWS account and region, and a job with this name already exists (b)
    ",
    );
}

#[test]
fn what_can_never_run_is_refused() {
    let capacity = Capacity::of(
        Node { cpus: 8, memory_bytes: 24 * GIB, gpus: 2, instances: 4, ..Node::local() },
        Packing::Promise,
    );
    check(
        capacity,
        "
        0 create a m5.extralarge 1
            refused: Value 'ml.m5.extralarge' at 'resourceConfig.instanceType' failed to satisfy constraint: the instance catalogue has no such type
        0 create a m5.xlage 1
            refused: Value 'ml.m5.xlage' at 'resourceConfig.instanceType' failed to satisfy constraint: the instance catalogue has no such type; did you mean ml.m5.xlarge or ml.c5.xlarge or ml.g5.xlarge?
        0 create a quantum.huge 1
            refused: Value 'ml.quantum.huge' at 'resourceConfig.instanceType' failed to satisfy constraint: the instance catalogue has no such type
        0 create a m5.large 0
            refused: InstanceCount must be at least 1
        0 create a m5.large 5
            refused: InstanceCount is 5 and this server runs at most 4 instances at once: ask for fewer instances
        0 create a g5.xlarge 2
            a created: Starting the training job
            a launched ua-1: 2 x 4 CPUs, 12.0 GiB, GPUs [0, 1], lease 90000 s: Preparing the instances for training (ml.g5.xlarge capped to this machine: each instance has 12.0 GiB of memory instead of 16.0 GiB)
            -> launch ua-1 on 2
        0 create b g5.xlarge 1
            b created: Starting the training job
            b Pending: Waiting for capacity: needs 1 GPU, 0 free; 1st in the queue
        0 create b p3.8xlarge 1
            refused: Job name must be unique within an AWS account and region, and a job with this name already exists (b)
        0 create c p3.8xlarge 1
            refused: 1 of ml.p3.8xlarge needs 4 V100 GPUs and this machine has 2: choose an instance type without GPUs, or give this type none in instance-types.txt and start the server again
    ",
    );
}

#[test]
fn a_machine_without_gpus_says_so() {
    check(
        laptop(),
        "
        0 create a p4d.24xlarge 1
            refused: 1 of ml.p4d.24xlarge needs 8 A100 GPUs and this machine has none: choose an instance type without GPUs, or give this type none in instance-types.txt and start the server again
    ",
    );
}

#[test]
fn sizes_are_capped_to_the_machine_and_this_is_told() {
    check(
        laptop(),
        "
        0 create a m5.xlarge 3
            a created: Starting the training job
            a launched ua-1: 3 x 2 CPUs, 8.0 GiB, GPUs [], lease 90000 s: Preparing the instances for training (ml.m5.xlarge capped to this machine: each instance has 8.0 GiB of memory instead of 16.0 GiB)
            -> launch ua-1 on 3
        view a
            InProgress Starting ended=false created=0 modified=0
            | Starting 0..- Preparing the instances for training (ml.m5.xlarge capped to this machine: each instance has 8.0 GiB of memory instead of 16.0 GiB)
            trained -..- = - s, billed - s
        1 ua-1/1 lost agent died
            a algo-1 lost: agent died
        2 ua-1/2 lost agent died
            a algo-2 lost: agent died
        3 ua-1/3 lost agent died
            a algo-3 lost: agent died
            a ended Failed/Failed: InternalServerError: algo-1: agent died
            a release
            -> release ua-1
        4 released ua-1
            a released
        5 create b m5.24xlarge 1
            b created: Starting the training job
            b launched ub-1: 1 x 8 CPUs, 24.0 GiB, GPUs [], lease 90000 s: Preparing the instances for training (ml.m5.24xlarge capped to this machine: each instance has 8 CPUs instead of 96 and 24.0 GiB of memory instead of 384.0 GiB)
            -> launch ub-1 on 1
    ",
    );
}

#[test]
fn pending_actions_are_those_not_answered_yet() {
    check(
        laptop(),
        "
        0 create a m5.large 2
            a created: Starting the training job
            a launched ua-1: 2 x 2 CPUs, 8.0 GiB, GPUs [], lease 90000 s: Preparing the instances for training
            -> launch ua-1 on 2
        pending
            -> launch ua-1 on 2
        1 ua-1/1 downloading
            a algo-1 Downloading
            a Downloading: Downloading input data
        pending
            -> launch ua-1 [2]
        2 ua-1/2 downloading
            a algo-2 Downloading
        pending
        3 ua-1/1 exit 0
            a algo-1 ended: exit 0
            a Training: Training image download completed. Training in progress.
        4 ua-1/2 exit 0
            a algo-2 ended: exit 0
            a Uploading: Uploading generated training model
        5 ua-1/1 uploaded
            a algo-1 uploaded
        6 ua-1/2 uploaded
            a algo-2 uploaded
            a uploads ended
            -> store ua-1 of [1, 2]
        pending
            -> store ua-1 of [1, 2]
        7 stored ua-1
            a ended Completed/Completed: Training job completed
            a release
            -> release ua-1
        pending
            -> release ua-1
        8 released ua-1
            a released
        pending
    ",
    );
}

#[test]
fn a_clock_that_is_set_back_makes_no_negative_times() {
    check(
        laptop(),
        "
        9000 create a m5.large 1
            a created: Starting the training job
            a launched ua-1: 1 x 2 CPUs, 8.0 GiB, GPUs [], lease 90000 s: Preparing the instances for training
            -> launch ua-1 on 1
        8000 ua-1/1 training
            a algo-1 Training
            a Downloading: Downloading input data
            a Training: Training image download completed. Training in progress.
        7000 ua-1/1 exit 0
            a algo-1 ended: exit 0
            a Uploading: Uploading generated training model
        6000 ua-1/1 uploaded
            a algo-1 uploaded
            a uploads ended
            -> store ua-1 of [1]
        5000 stored ua-1
            a ended Completed/Completed: Training job completed
            a release
            -> release ua-1
        view a
            Completed Completed ended=true created=9000 modified=9000
            | Starting 9000..9000 Preparing the instances for training
            | Downloading 9000..9000 Downloading input data
            | Training 9000..9000 Training image download completed. Training in progress.
            | Uploading 9000..9000 Uploading generated training model
            | Completed 9000..9000 Training job completed
            trained 9000..9000 = 1 s, billed 1 s
    ",
    );
}
