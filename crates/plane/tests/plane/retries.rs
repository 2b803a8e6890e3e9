//! `RetryStrategy`: what is tried again, when, and what counts.

use crate::script::{check, laptop};

#[test]
fn a_lost_instance_is_followed_by_another_attempt_when_the_first_is_released() {
    check(
        laptop(),
        "
        0 create a m5.large 2 max_runtime=100 retries=1
            a created: Starting the training job
            a launched ua-1: 2 x 2 CPUs, 8.0 GiB, GPUs [], lease 3700 s: Preparing the instances for training
            -> launch ua-1 on 2
        10 ua-1/1 training
            a algo-1 Training
            a Downloading: Downloading input data
            a Training: Training image download completed. Training in progress.
        10 ua-1/2 training
            a algo-2 Training
        5000 ua-1/2 lost the agent of algo-2 ended without a report
            a algo-2 lost: the agent of algo-2 ended without a report
        deadline
            7000
        7000 tick
            a attempt failed: Starting the training job again, retry 1 of 1: InternalServerError: the agent of algo-2 ended without a report
            -> stop ua-1 [1] within 5 s: InternalServerError: the agent of algo-2 ended without a report
        view a
            InProgress Starting ended=false created=0 modified=7000
            | Starting 0..10 Preparing the instances for training
            | Downloading 10..10 Downloading input data
            | Training 10..7000 Training image download completed. Training in progress.
            | Starting 7000..- Starting the training job again, retry 1 of 1: InternalServerError: the agent of algo-2 ended without a report
            trained 10..- = - s, billed - s
        7100 ua-1/1 signal 15
            a algo-1 ended: signal 15
            a release
            -> release ua-1
        7200 released ua-1
            a released
            a launched ua-2: 2 x 2 CPUs, 8.0 GiB, GPUs [], lease 3694 s: Preparing the instances for training, retry 1 of 1 after InternalServerError: the agent of algo-2 ended without a report
            -> launch ua-2 on 2
        8000 ua-2/1 training
            a algo-1 Training
            a Downloading: Downloading input data
            a Training: Training image download completed. Training in progress.
        8001 ua-2/2 training
            a algo-2 Training
        deadline
            101010
        9000 ua-2/1 lost the agent of algo-1 ended without a report
            a algo-1 lost: the agent of algo-1 ended without a report
        9100 ua-2/2 exit 0
            a algo-2 ended: exit 0
            a ended Failed/Failed: InternalServerError: the agent of algo-1 ended without a report
            a release
            -> release ua-2
        view a
            Failed Failed ended=true created=0 modified=9100
            | Starting 0..10 Preparing the instances for training
            | Downloading 10..10 Downloading input data
            | Training 10..7000 Training image download completed. Training in progress.
            | Starting 7000..8000 Preparing the instances for training, retry 1 of 1 after InternalServerError: the agent of algo-2 ended without a report
            | Downloading 8000..8000 Downloading input data
            | Training 8000..9100 Training image download completed. Training in progress.
            | Failed 9100..9100 InternalServerError: the agent of algo-1 ended without a report
            trained 10..9100 = 10 s, billed 9 s
            because InternalServerError: the agent of algo-1 ended without a report
    ",
    );
}

#[test]
fn the_job_comes_back_to_its_old_place_and_may_have_to_wait() {
    check(
        laptop(),
        "
        0 create a m5.xlarge 1 max_runtime=9000
            a created: Starting the training job
            a launched ua-1: 1 x 4 CPUs, 16.0 GiB, GPUs [], lease 12600 s: Preparing the instances for training
            -> launch ua-1 on 1
        1 create b m5.4xlarge 1
            b created: Starting the training job
            b Pending: Waiting for capacity: needs 24.0 GiB of memory, 8.0 GiB free; 1st in the queue
        2 create c m5.large 1 max_runtime=10 retries=30 max_pending=60
            c created: Starting the training job
            c launched uc-1: 1 x 2 CPUs, 8.0 GiB, GPUs [], lease 3610 s: Preparing the instances for training
            -> launch uc-1 on 1
        3 create d m5.large 1
            d created: Starting the training job
            d Pending: Waiting for capacity: needs 8.0 GiB of memory, 0.0 GiB free; 2nd in the queue
        1000 unlaunched uc-1 no space left on device
            c attempt failed: Starting the training job again, retry 1 of 30: InternalServerError: no space left on device
            c release
            -> release uc-1
        1010 unlaunched ua-1 ClientError: no such object
            a ended Failed/Failed: ClientError: no such object
            a release
            -> release ua-1
        1020 released ua-1
            a released
        1030 released uc-1
            c released
            b launched ub-1: 1 x 8 CPUs, 24.0 GiB, GPUs [], lease 90000 s: Preparing the instances for training (ml.m5.4xlarge capped to this machine: each instance has 8 CPUs instead of 16 and 24.0 GiB of memory instead of 64.0 GiB)
            -> launch ub-1 on 1
            c Pending: Waiting for capacity: needs 8.0 GiB of memory, 0.0 GiB free; 1st in the queue
        view c
            InProgress Pending ended=false created=2 modified=1030
            | Starting 2..1030 Starting the training job again, retry 1 of 30: InternalServerError: no space left on device
            | Pending 1030..- Waiting for capacity: needs 8.0 GiB of memory, 0.0 GiB free; 1st in the queue
            trained -..- = - s, billed - s
        deadline
            61030
        61030 tick
            c ended Stopped/MaxWaitTimeExceeded: Training job waited longer than MaxPendingTimeInSeconds provided
            c released
    ",
    );
}

#[test]
fn the_users_errors_are_not_tried_again() {
    check(
        laptop(),
        "
        0 create a m5.large 1 retries=3
            a created: Starting the training job
            a launched ua-1: 1 x 2 CPUs, 8.0 GiB, GPUs [], lease 90000 s: Preparing the instances for training
            -> launch ua-1 on 1
        10 ua-1/1 training
            a algo-1 Training
            a Downloading: Downloading input data
            a Training: Training image download completed. Training in progress.
        20 ua-1/1 signal 9 at=15
            a algo-1 ended: signal 9
            a ended Failed/Failed: AlgorithmError: algo-1 was killed by SIGKILL, exit code: 137
            a release
            -> release ua-1
        30 released ua-1
            a released
        100 create b m5.large 1 retries=3
            b created: Starting the training job
            b launched ub-1: 1 x 2 CPUs, 8.0 GiB, GPUs [], lease 90000 s: Preparing the instances for training
            -> launch ub-1 on 1
        110 unlaunched ub-1 ClientError: no such object
            b ended Failed/Failed: ClientError: no such object
            b release
            -> release ub-1
    ",
    );
}

#[test]
fn artifacts_that_could_not_be_stored_are_made_again() {
    check(
        laptop(),
        "
        0 create a m5.large 1 retries=1
            a created: Starting the training job
            a launched ua-1: 1 x 2 CPUs, 8.0 GiB, GPUs [], lease 90000 s: Preparing the instances for training
            -> launch ua-1 on 1
        10 ua-1/1 training
            a algo-1 Training
            a Downloading: Downloading input data
            a Training: Training image download completed. Training in progress.
        20 ua-1/1 exit 0 at=15 loss:1@14 only_once:1@14
            a algo-1 ended: exit 0 loss=1 only_once=1
            a Uploading: Uploading generated training model
        30 ua-1/1 uploaded
            a algo-1 uploaded
            a uploads ended
            -> store ua-1 of [1]
        40 unstored ua-1 disk full
            a attempt failed: Starting the training job again, retry 1 of 1: InternalServerError: disk full
            a release
            -> release ua-1
        50 released ua-1
            a released
            a launched ua-2: 1 x 2 CPUs, 8.0 GiB, GPUs [], lease 90000 s: Preparing the instances for training, retry 1 of 1 after InternalServerError: disk full
            -> launch ua-2 on 1
        55 delayed ua-2 no space left
            a Starting: The launch waits: no space left, retry 1 of 1 after InternalServerError: disk full
        60 ua-2/1 training
            a algo-1 Training
            a Downloading: Downloading input data
            a Training: Training image download completed. Training in progress.
        70 ua-2/1 exit 0 at=65 loss:2@9
            a algo-1 ended: exit 0 loss=2
            a Uploading: Uploading generated training model
        80 ua-2/1 uploaded
            a algo-1 uploaded
            a uploads ended
            -> store ua-2 of [1]
        90 stored ua-2
            a ended Completed/Completed: Training job completed
            a release
            -> release ua-2
        view a
            Completed Completed ended=true created=0 modified=90
            | Starting 0..10 Preparing the instances for training
            | Downloading 10..10 Downloading input data
            | Training 10..20 Training image download completed. Training in progress.
            | Uploading 20..40 Uploading generated training model
            | Starting 40..60 The launch waits: no space left, retry 1 of 1 after InternalServerError: disk full
            | Downloading 60..60 Downloading input data
            | Training 60..70 Training image download completed. Training in progress.
            | Uploading 70..90 Uploading generated training model
            | Completed 90..90 Training job completed
            trained 10..90 = 1 s, billed 1 s
            loss=2@9
    ",
    );
}

#[test]
fn a_stop_ends_the_retries() {
    check(
        laptop(),
        "
        0 create a m5.large 1 retries=3
            a created: Starting the training job
            a launched ua-1: 1 x 2 CPUs, 8.0 GiB, GPUs [], lease 90000 s: Preparing the instances for training
            -> launch ua-1 on 1
        10 unlaunched ua-1 no space left on device
            a attempt failed: Starting the training job again, retry 1 of 3: InternalServerError: no space left on device
            a release
            -> release ua-1
        20 stop a
            a ended Stopped/Stopped: Training job stopped
        30 released ua-1
            a released
        40 create b m5.large 2 retries=3
            b created: Starting the training job
            b launched ub-1: 2 x 2 CPUs, 8.0 GiB, GPUs [], lease 90000 s: Preparing the instances for training
            -> launch ub-1 on 2
        50 ub-1/1 training
            b algo-1 Training
            b Downloading: Downloading input data
            b Training: Training image download completed. Training in progress.
        60 ub-1/1 lost the agent of algo-1 ended without a report
            b algo-1 lost: the agent of algo-1 ended without a report
        70 stop b
            b ended Stopped/Stopped: Training job stopped
            b release
            -> release ub-1
        80 released ub-1
            b released
        100 create c m5.4xlarge 1 retries=3
            c created: Starting the training job
            c launched uc-1: 1 x 8 CPUs, 24.0 GiB, GPUs [], lease 90000 s: Preparing the instances for training (ml.m5.4xlarge capped to this machine: each instance has 8 CPUs instead of 16 and 24.0 GiB of memory instead of 64.0 GiB)
            -> launch uc-1 on 1
        110 create d m5.4xlarge 1
            d created: Starting the training job
            d Pending: Waiting for capacity: needs 24.0 GiB of memory, 0.0 GiB free; 1st in the queue
        120 unlaunched uc-1 no space left on device
            c attempt failed: Starting the training job again, retry 1 of 3: InternalServerError: no space left on device
            c release
            -> release uc-1
        130 released uc-1
            c released
            c launched uc-2: 1 x 8 CPUs, 24.0 GiB, GPUs [], lease 90000 s: Preparing the instances for training, retry 1 of 3 after InternalServerError: no space left on device (ml.m5.4xlarge capped to this machine: each instance has 8 CPUs instead of 16 and 24.0 GiB of memory instead of 64.0 GiB)
            -> launch uc-2 on 1
        140 stop c
            c ended Stopped/Stopped: Training job stopped
            c release
            -> release uc-2
    ",
    );
}

#[test]
fn no_runtime_left_means_no_other_attempt() {
    check(
        laptop(),
        "
        0 create a m5.large 1 retries=3 max_runtime=10
            a created: Starting the training job
            a launched ua-1: 1 x 2 CPUs, 8.0 GiB, GPUs [], lease 3610 s: Preparing the instances for training
            -> launch ua-1 on 1
        10 ua-1/1 training
            a algo-1 Training
            a Downloading: Downloading input data
            a Training: Training image download completed. Training in progress.
        6000 ua-1/1 lost the agent of algo-1 ended without a report
            a algo-1 lost: the agent of algo-1 ended without a report
            a attempt failed: Starting the training job again, retry 1 of 3: InternalServerError: the agent of algo-1 ended without a report
            a release
            -> release ua-1
        6010 released ua-1
            a released
            a launched ua-2: 1 x 2 CPUs, 8.0 GiB, GPUs [], lease 3605 s: Preparing the instances for training, retry 1 of 3 after InternalServerError: the agent of algo-1 ended without a report
            -> launch ua-2 on 1
        7000 ua-2/1 training
            a algo-1 Training
            a Downloading: Downloading input data
            a Training: Training image download completed. Training in progress.
        deadline
            11010
        12000 ua-2/1 lost the agent of algo-1 ended without a report
            a algo-1 lost: the agent of algo-1 ended without a report
            a ended Failed/Failed: InternalServerError: the agent of algo-1 ended without a report
            a release
            -> release ua-2
    ",
    );
}

#[test]
fn hosts_that_do_not_end_hold_a_retry_up_for_a_while_only() {
    check(
        laptop(),
        "
        0 create a m5.large 2 retries=3
            a created: Starting the training job
            a launched ua-1: 2 x 2 CPUs, 8.0 GiB, GPUs [], lease 90000 s: Preparing the instances for training
            -> launch ua-1 on 2
        10 ua-1/1 training
            a algo-1 Training
            a Downloading: Downloading input data
            a Training: Training image download completed. Training in progress.
        20 ua-1/2 training
            a algo-2 Training
        30 ua-1/1 lost no space left on device
            a algo-1 lost: no space left on device
        2030 tick
            a attempt failed: Starting the training job again, retry 1 of 3: InternalServerError: algo-1: no space left on device
            -> stop ua-1 [2] within 5 s: InternalServerError: algo-1: no space left on device
        deadline
            37030
        37030 tick
            a release
            -> release ua-1
        37040 ua-1/2 exit 0
        pending
            -> release ua-1
        37050 released ua-1
            a released
            a launched ua-2: 2 x 2 CPUs, 8.0 GiB, GPUs [], lease 89998 s: Preparing the instances for training, retry 1 of 3 after InternalServerError: algo-1: no space left on device
            -> launch ua-2 on 2
    ",
    );
}
