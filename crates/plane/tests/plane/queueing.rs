//! Who waits, why, and who starts next.

use shoal_plane::{Capacity, Node, Packing};

use crate::script::{GIB, check, laptop};

#[test]
fn the_second_waits_with_its_reason_until_the_first_is_released() {
    check(
        laptop(),
        "
        0 create a m5.xlarge 1
            a created: Starting the training job
            a launched ua-1: 1 x 4 CPUs, 16.0 GiB, GPUs [], lease 90000 s: Preparing the instances for training
            -> launch ua-1 on 1
        10 create b m5.xlarge 1
            b created: Starting the training job
            b Pending: Waiting for capacity: needs 16.0 GiB of memory, 8.0 GiB free; 1st in the queue
        20 create c m5.xlarge 1
            c created: Starting the training job
            c Pending: Waiting for capacity: needs 16.0 GiB of memory, 8.0 GiB free; 2nd in the queue
        30 ua-1/1 exit 0
            a algo-1 ended: exit 0
            a Downloading: Downloading input data
            a Training: Training image download completed. Training in progress.
            a Uploading: Uploading generated training model
        40 ua-1/1 uploaded
            a algo-1 uploaded
            a uploads ended
            -> store ua-1 of [1]
        50 stored ua-1
            a ended Completed/Completed: Training job completed
            a release
            -> release ua-1
        view c
            InProgress Pending ended=false created=20 modified=20
            | Starting 20..20 Starting the training job
            | Pending 20..- Waiting for capacity: needs 16.0 GiB of memory, 8.0 GiB free; 2nd in the queue
            trained -..- = - s, billed - s
        60 released ua-1
            a released
            b launched ub-1: 1 x 4 CPUs, 16.0 GiB, GPUs [], lease 90000 s: Preparing the instances for training
            -> launch ub-1 on 1
        view b
            InProgress Starting ended=false created=10 modified=60
            | Starting 10..10 Starting the training job
            | Pending 10..60 Waiting for capacity: needs 16.0 GiB of memory, 8.0 GiB free; 1st in the queue
            | Starting 60..- Preparing the instances for training
            trained -..- = - s, billed - s
        view c
            InProgress Pending ended=false created=20 modified=20
            | Starting 20..20 Starting the training job
            | Pending 20..- Waiting for capacity: needs 16.0 GiB of memory, 8.0 GiB free; 1st in the queue
            trained -..- = - s, billed - s
        70 ub-1/1 downloading
            b algo-1 Downloading
            b Downloading: Downloading input data
        view b
            InProgress Downloading ended=false created=10 modified=70
            | Starting 10..10 Starting the training job
            | Pending 10..60 Waiting for capacity: needs 16.0 GiB of memory, 8.0 GiB free; 1st in the queue
            | Starting 60..70 Preparing the instances for training
            | Downloading 70..- Downloading input data
            trained 70..- = - s, billed - s
    ",
    );
}

#[test]
fn all_instances_or_none() {
    check(
        laptop(),
        "
        0 create a m5.large 2
            a created: Starting the training job
            a launched ua-1: 2 x 2 CPUs, 8.0 GiB, GPUs [], lease 90000 s: Preparing the instances for training
            -> launch ua-1 on 2
        10 create b m5.large 2
            b created: Starting the training job
            b Pending: Waiting for capacity: needs 16.0 GiB of memory, 8.0 GiB free; 1st in the queue
        20 stop a
            a ended Stopped/Stopped: Training job stopped
            a release
            -> release ua-1
        30 released ua-1
            a released
            b launched ub-1: 2 x 2 CPUs, 8.0 GiB, GPUs [], lease 90000 s: Preparing the instances for training
            -> launch ub-1 on 2
    ",
    );
}

#[test]
fn several_start_at_once() {
    check(
        laptop(),
        "
        0 create a m5.2xlarge 1
            a created: Starting the training job
            a launched ua-1: 1 x 8 CPUs, 24.0 GiB, GPUs [], lease 90000 s: Preparing the instances for training (ml.m5.2xlarge capped to this machine: each instance has 24.0 GiB of memory instead of 32.0 GiB)
            -> launch ua-1 on 1
        1 create b m5.large 1
            b created: Starting the training job
            b Pending: Waiting for capacity: needs 8.0 GiB of memory, 0.0 GiB free; 1st in the queue
        2 create c m5.large 2
            c created: Starting the training job
            c Pending: Waiting for capacity: needs 16.0 GiB of memory, 0.0 GiB free; 2nd in the queue
        3 create d m5.large 1
            d created: Starting the training job
            d Pending: Waiting for capacity: needs 8.0 GiB of memory, 0.0 GiB free; 3rd in the queue
        4 stop a
            a ended Stopped/Stopped: Training job stopped
            a release
            -> release ua-1
        5 released ua-1
            a released
            b launched ub-1: 1 x 2 CPUs, 8.0 GiB, GPUs [], lease 90000 s: Preparing the instances for training
            -> launch ub-1 on 1
            c launched uc-1: 2 x 2 CPUs, 8.0 GiB, GPUs [], lease 90000 s: Preparing the instances for training
            -> launch uc-1 on 2
    ",
    );
}

#[test]
fn a_short_job_may_pass_a_head_that_waits_longer() {
    check(
        laptop(),
        "
        0 create a m5.xlarge 1 max_runtime=10000
            a created: Starting the training job
            a launched ua-1: 1 x 4 CPUs, 16.0 GiB, GPUs [], lease 13600 s: Preparing the instances for training
            -> launch ua-1 on 1
        1 create b m5.xlarge 1 max_runtime=100 # the head: fits when a is over
            b created: Starting the training job
            b Pending: Waiting for capacity: needs 16.0 GiB of memory, 8.0 GiB free; 1st in the queue
        2 create c m5.large 1 max_runtime=50000 # beside a and b there is room for it
            c created: Starting the training job
            c launched uc-1: 1 x 2 CPUs, 8.0 GiB, GPUs [], lease 53600 s: Preparing the instances for training
            -> launch uc-1 on 1
        3 create d m5.large 1 max_runtime=50000 # and for nobody else, so long
            d created: Starting the training job
            d Pending: Waiting for capacity: needs 8.0 GiB of memory, 0.0 GiB free; 2nd in the queue
    ",
    );
}

#[test]
fn a_long_job_may_not_pass_if_the_head_needs_what_it_would_take() {
    check(
        laptop(),
        "
        0 create a c5.2xlarge 1 max_runtime=10000
            a created: Starting the training job
            a launched ua-1: 1 x 8 CPUs, 16.0 GiB, GPUs [], lease 13600 s: Preparing the instances for training
            -> launch ua-1 on 1
        1 create b m5.2xlarge 1 max_runtime=100
            b created: Starting the training job
            b Pending: Waiting for capacity: needs 24.0 GiB of memory, 8.0 GiB free; 1st in the queue
        2 create c m5.large 1 max_runtime=50000
            c created: Starting the training job
            c Pending: Waiting for capacity: what is free is kept for the training job at the head of the queue; 2nd in the queue
        view c
            InProgress Pending ended=false created=2 modified=2
            | Starting 2..2 Starting the training job
            | Pending 2..- Waiting for capacity: what is free is kept for the training job at the head of the queue; 2nd in the queue
            trained -..- = - s, billed - s
        3 create d m5.large 1 max_runtime=9000
            d created: Starting the training job
            d launched ud-1: 1 x 1 CPUs, 8.0 GiB, GPUs [], lease 12600 s: Preparing the instances for training
            -> launch ud-1 on 1
    ",
    );
}

#[test]
fn gpus_are_placed_one_by_one() {
    let capacity = Capacity::of(
        Node { cpus: 64, memory_bytes: 1024 * GIB, gpus: 4, instances: 16, ..Node::local() },
        Packing::Promise,
    );
    check(
        capacity,
        "
        0 create a g5.xlarge 2
            a created: Starting the training job
            a launched ua-1: 2 x 4 CPUs, 16.0 GiB, GPUs [0, 1], lease 90000 s: Preparing the instances for training
            -> launch ua-1 on 2
        1 create b g5.xlarge 1
            b created: Starting the training job
            b launched ub-1: 1 x 4 CPUs, 16.0 GiB, GPUs [2], lease 90000 s: Preparing the instances for training
            -> launch ub-1 on 1
        2 create c g5.xlarge 2
            c created: Starting the training job
            c Pending: Waiting for capacity: needs 2 GPUs, 1 free; 1st in the queue
        3 create d g5.xlarge 1 max_runtime=60
            d created: Starting the training job
            d launched ud-1: 1 x 4 CPUs, 16.0 GiB, GPUs [3], lease 3660 s: Preparing the instances for training
            -> launch ud-1 on 1
        4 stop a
            a ended Stopped/Stopped: Training job stopped
            a release
            -> release ua-1
        5 released ua-1
            a released
            c launched uc-1: 2 x 4 CPUs, 16.0 GiB, GPUs [0, 1], lease 90000 s: Preparing the instances for training
            -> launch uc-1 on 2
    ",
    );
}

#[test]
fn the_number_of_instances_is_a_limit_too() {
    let capacity = Capacity::of(
        Node { cpus: 64, memory_bytes: 1024 * GIB, gpus: 0, instances: 3, ..Node::local() },
        Packing::Promise,
    );
    check(
        capacity,
        "
        0 create a m5.large 2
            a created: Starting the training job
            a launched ua-1: 2 x 2 CPUs, 8.0 GiB, GPUs [], lease 90000 s: Preparing the instances for training
            -> launch ua-1 on 2
        1 create b m5.large 2
            b created: Starting the training job
            b Pending: Waiting for capacity: needs 2 instances, 1 free; 1st in the queue
        2 create c m5.large 1
            c created: Starting the training job
            c launched uc-1: 1 x 2 CPUs, 8.0 GiB, GPUs [], lease 90000 s: Preparing the instances for training
            -> launch uc-1 on 1
    ",
    );
}

#[test]
fn what_no_longer_fits_after_a_restart_fails_instead_of_blocking_the_queue() {
    let capacity = Capacity::of(
        Node { cpus: 8, memory_bytes: 24 * GIB, gpus: 0, instances: 2, ..Node::local() },
        Packing::Promise,
    );
    check(
        capacity,
        "
        0 create a m5.xlarge 1
            a created: Starting the training job
            a launched ua-1: 1 x 4 CPUs, 16.0 GiB, GPUs [], lease 90000 s: Preparing the instances for training
            -> launch ua-1 on 1
        1 create b m5.large 2
            b created: Starting the training job
            b Pending: Waiting for capacity: needs 16.0 GiB of memory, 8.0 GiB free; 1st in the queue
        capacity 0
        2 tick
            b ended Failed/Failed: CapacityError: the server's capacity or catalogue has changed since the training job was created: 0.0 GiB of memory are too little for 2 instances: ask for fewer instances
            b released
    ",
    );
}

#[test]
fn a_stopped_head_lets_the_next_one_go() {
    check(
        laptop(),
        "
        0 create a m5.xlarge 1 max_runtime=1000
            a created: Starting the training job
            a launched ua-1: 1 x 4 CPUs, 16.0 GiB, GPUs [], lease 4600 s: Preparing the instances for training
            -> launch ua-1 on 1
        1 create b m5.2xlarge 1
            b created: Starting the training job
            b Pending: Waiting for capacity: needs 24.0 GiB of memory, 8.0 GiB free; 1st in the queue
        2 create c m5.large 1 max_runtime=100000
            c created: Starting the training job
            c Pending: Waiting for capacity: what is free is kept for the training job at the head of the queue; 2nd in the queue
        3 stop b
            b ended Stopped/Stopped: Training job stopped
            b released
            c launched uc-1: 1 x 2 CPUs, 8.0 GiB, GPUs [], lease 103600 s: Preparing the instances for training
            -> launch uc-1 on 1
    ",
    );
}

#[test]
fn threads_are_a_share_of_the_cores_by_weight() {
    // As long as there are cores for all, each has those of its type.
    check(
        laptop(),
        "
        0 create a m5.large 2
            a created: Starting the training job
            a launched ua-1: 2 x 2 CPUs, 8.0 GiB, GPUs [], lease 90000 s: Preparing the instances for training
            -> launch ua-1 on 2
        1 create b t3.medium 1
            b created: Starting the training job
            b launched ub-1: 1 x 2 CPUs, 4.0 GiB, GPUs [], lease 90000 s: Preparing the instances for training
            -> launch ub-1 on 1
        2 create c t3.medium 1
            c created: Starting the training job
            c launched uc-1: 1 x 2 CPUs, 4.0 GiB, GPUs [], lease 90000 s: Preparing the instances for training
            -> launch uc-1 on 1
    ",
    );
}
