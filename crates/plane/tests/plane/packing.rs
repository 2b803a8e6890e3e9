//! Jobs that hold the memory they use, and what is ended when the machine runs short of it.

use shoal_plane::{Capacity, Packing};

use crate::script::{check, laptop, packed};

#[test]
fn small_jobs_run_side_by_side_whatever_their_type_is_called() {
    // Two by their types' names: the machine has 24 GiB.
    check(
        packed(),
        "
        0 create a m5.large 2
        0 create b m5.xlarge 1
        0 create c m5.xlarge 1
        then
        10 create d m5.4xlarge 1
            d created: Starting the training job
            d launched ud-1: 1 x 3 CPUs, 24.0 GiB, GPUs [], lease 90000 s: Preparing the instances for training (ml.m5.4xlarge capped to this machine: each instance has 8 CPUs instead of 16 and 24.0 GiB of memory instead of 64.0 GiB)
            -> launch ud-1 on 1
    ",
    );
}

#[test]
fn what_jobs_use_is_no_longer_there_for_others() {
    check(
        packed(),
        "
        0 create a m5.xlarge 1
        0 create b m5.2xlarge 1
        20 measured 0 ua-1=14 ub-1=3
        # It has used it, and may do so again.
        30 measured 0 ua-1=1
        then
        40 create c m5.2xlarge 1
            c created: Starting the training job
            c Pending: Waiting for capacity: needs 3.0 GiB of memory, 2.0 GiB free; 1st in the queue
        50 create d m5.large 1
            d created: Starting the training job
            d launched ud-1: 1 x 1 CPUs, 8.0 GiB, GPUs [], lease 90000 s: Preparing the instances for training
            -> launch ud-1 on 1
        60 create e m5.xlarge 1
            e created: Starting the training job
            e Pending: Waiting for capacity: needs 2.0 GiB of memory, 1.0 GiB free; 2nd in the queue
    ",
    );
}

#[test]
fn the_last_to_start_is_ended_for_want_of_memory_and_comes_back() {
    check(
        packed(),
        "
        0 create a m5.2xlarge 1
        1 create b m5.2xlarge 1
        2 create c m5.2xlarge 1
        10 ua-1/1 training
        11 ub-1/1 training
        12 uc-1/1 training
        then
        20 measured 2 ua-1=10 ub-1=9 uc-1=4
            c evicted, using 4 GiB
            -> stop uc-1 [1] within 10 s: the machine's memory ran short, and it started after others that run
        # What is about to be given back is enough.
        25 measured 3 ua-1=10 ub-1=9 uc-1=4
        # It is not, and the oldest is not ended whatever happens.
        30 measured 20 ua-1=14 ub-1=9 uc-1=4
            b evicted, using 9 GiB
            -> stop ub-1 [1] within 10 s: the machine's memory ran short, and it started after others that run
        31 measured 20 ua-1=24
        40 uc-1/1 signal 15
            c algo-1 ended: signal 15
            c release
            -> release uc-1
        41 released uc-1
            c released
            c Pending: Waiting for capacity: needs 7.0 GiB of memory, 0.0 GiB free; 1st in the queue
        50 ub-1/1 signal 15
            b algo-1 ended: signal 15
            b release
            -> release ub-1
        51 released ub-1
            b released
            b Pending: Waiting for capacity: needs 12.0 GiB of memory, 0.0 GiB free; 1st in the queue
        60 ua-1/1 exit 0
            a algo-1 ended: exit 0
            a Uploading: Uploading generated training model
        61 ua-1/1 uploaded
            a algo-1 uploaded
            a uploads ended
            -> store ua-1 of [1]
        62 stored ua-1
            a ended Completed/Completed: Training job completed
            a release
            -> release ua-1
        # Now both have room for what they used.
        63 released ua-1
            a released
            b launched ub-2: 1 x 4 CPUs, 24.0 GiB, GPUs [], lease 90000 s: Preparing the instances for training, after it was ended for want of memory (ml.m5.2xlarge capped to this machine: each instance has 24.0 GiB of memory instead of 32.0 GiB)
            -> launch ub-2 on 1
            c launched uc-2: 1 x 4 CPUs, 24.0 GiB, GPUs [], lease 90000 s: Preparing the instances for training, after it was ended for want of memory (ml.m5.2xlarge capped to this machine: each instance has 24.0 GiB of memory instead of 32.0 GiB)
            -> launch uc-2 on 1
    ",
    );
}

#[test]
fn whom_the_kernel_ends_for_memory_comes_back_unless_it_was_alone() {
    check(
        packed(),
        "
        0 create a m5.2xlarge 1
        1 create b m5.2xlarge 2
        10 ua-1/1 training
        11 ub-1/1 training
        12 ub-1/2 training
        13 measured 0 ua-1=9 ub-1=6
        then
        20 ub-1/2 signal 9 used=8
            b algo-2 ended: signal 9
            b evicted, using 8 GiB
            -> stop ub-1 [1] within 10 s: the machine's memory ran short, and it started after others that run
        # What dies of the first one's end is no news.
        21 ub-1/1 exit 1 used=1
            b algo-1 ended: exit 1
            b release
            -> release ub-1
        22 released ub-1
            b released
            b launched ub-2: 2 x 2 CPUs, 12.0 GiB, GPUs [], lease 90000 s: Preparing the instances for training, after it was ended for want of memory (ml.m5.2xlarge capped to this machine: each instance has 12.0 GiB of memory instead of 32.0 GiB)
            -> launch ub-2 on 2
        # A program that went on without what was killed has not failed.
        30 ua-1/1 exit 0 used=3
            a algo-1 ended: exit 0
            a Uploading: Uploading generated training model
        31 ua-1/1 uploaded
            a algo-1 uploaded
            a uploads ended
            -> store ua-1 of [1]
        32 stored ua-1
            a ended Completed/Completed: Training job completed
            a release
            -> release ua-1
        33 released ua-1
            a released
        40 ub-2/1 signal 9 used=11
            b algo-1 ended: signal 9
            b Downloading: Downloading input data
            b Training: Training image download completed. Training in progress.
        41 ub-2/2 exit 1
            b algo-2 ended: exit 1
            b ended Failed/Failed: AlgorithmError: algo-1 ran out of memory (limit 12.0 GiB), exit code: 137
            b release
            -> release ub-2
    ",
    );
}

#[test]
fn the_oldest_that_holds_nearly_all_memory_fails_of_it_and_one_that_does_not_comes_back() {
    check(
        packed(),
        "
        0 create a m5.2xlarge 1
        1 create b m5.large 1
        2 create c m5.large 1
        10 ua-1/1 training
        11 ub-1/1 training
        12 uc-1/1 training
        then
        20 ua-1/1 signal 9 used=22
            a algo-1 ended: signal 9
            a ended Failed/Failed: AlgorithmError: algo-1 ran out of memory (limit 24.0 GiB), exit code: 137
            a release
            -> release ua-1
        21 ub-1/1 signal 9 used=2
            b algo-1 ended: signal 9
            b evicted, using 2 GiB
            b release
            -> release ub-1
    ",
    );
}

#[test]
fn nothing_is_ended_that_is_stopped_or_alone() {
    check(
        packed(),
        "
        0 create a m5.large 1
        10 ua-1/1 training
        then
        20 measured 5 ua-1=8
        30 create b m5.large 1
            b created: Starting the training job
            b launched ub-1: 1 x 2 CPUs, 8.0 GiB, GPUs [], lease 90000 s: Preparing the instances for training
            -> launch ub-1 on 1
        31 ub-1/1 training
            b algo-1 Training
            b Downloading: Downloading input data
            b Training: Training image download completed. Training in progress.
        40 stop b
            b stop by User: Stopping the training job
            -> stop ub-1 [1] within 120 s: the training job is being stopped
        41 measured 5 ua-1=8 ub-1=4
    ",
    );
}

#[test]
fn a_job_of_many_instances_never_needs_more_than_the_machine() {
    let capacity = Capacity { packing: Packing::Use, ..laptop() };
    check(
        capacity,
        "
        0 create a m5.4xlarge 3
            a created: Starting the training job
            a launched ua-1: 3 x 2 CPUs, 8.0 GiB, GPUs [], lease 90000 s: Preparing the instances for training (ml.m5.4xlarge capped to this machine: each instance has 8 CPUs instead of 16 and 8.0 GiB of memory instead of 64.0 GiB)
            -> launch ua-1 on 3
        # All that it may use is held once it has used it.
        10 measured 0 ua-1=40
        20 create b t3.medium 1
            b created: Starting the training job
            b Pending: Waiting for capacity: needs 0.5 GiB of memory, 0.0 GiB free; 1st in the queue
    ",
    );
}

#[test]
fn threads_of_more_instances_than_cores_are_one_each() {
    check(
        packed(),
        "
        0 create a m5.2xlarge 1
            a created: Starting the training job
            a launched ua-1: 1 x 8 CPUs, 24.0 GiB, GPUs [], lease 90000 s: Preparing the instances for training (ml.m5.2xlarge capped to this machine: each instance has 24.0 GiB of memory instead of 32.0 GiB)
            -> launch ua-1 on 1
        1 create b m5.large 4
            b created: Starting the training job
            b launched ub-1: 4 x 1 CPUs, 6.0 GiB, GPUs [], lease 90000 s: Preparing the instances for training (ml.m5.large capped to this machine: each instance has 6.0 GiB of memory instead of 8.0 GiB)
            -> launch ub-1 on 4
        2 create c t3.medium 4
            c created: Starting the training job
            c launched uc-1: 4 x 1 CPUs, 4.0 GiB, GPUs [], lease 90000 s: Preparing the instances for training
            -> launch uc-1 on 4
    ",
    );
}
