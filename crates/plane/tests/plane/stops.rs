//! Stops: by the user, by MaxRuntimeInSeconds, by MaxPendingTimeInSeconds.

use crate::script::{check, laptop};

#[test]
fn a_stop_keeps_the_model_whatever_the_exit_code() {
    check(
        laptop(),
        "
        0 create a m5.large 2
            a created: Starting the training job
            a launched ua-1: 2 x 2 CPUs, 8.0 GiB, GPUs [], lease 90000 s: Preparing the instances for training
            -> launch ua-1 on 2
        10 ua-1/1 training
            a algo-1 Training
            a Downloading: Downloading input data
            a Training: Training image download completed. Training in progress.
        11 ua-1/2 training
            a algo-2 Training
        100 stop a
            a stop by User: Stopping the training job
            -> stop ua-1 [1, 2] within 120 s: the training job is being stopped
        pending
            -> stop ua-1 [1, 2] within 120 s: the training job is being stopped
        101 stop a # repeated
        150 ua-1/1 exit 1
            a algo-1 ended: exit 1
        pending
            -> stop ua-1 [1, 2] within 120 s: the training job is being stopped
        200 ua-1/2 signal 9
            a algo-2 ended: signal 9
            a Uploading: Uploading generated training model
        201 ua-1/1 uploaded
            a algo-1 uploaded
        202 ua-1/2 uploaded
            a algo-2 uploaded
            a uploads ended
            -> store ua-1 of [1, 2]
        300 stored ua-1
            a ended Stopped/Stopped: Training job stopped
            a release
            -> release ua-1
        view a
            Stopped Stopped ended=true created=0 modified=300
            | Starting 0..10 Preparing the instances for training
            | Downloading 10..10 Downloading input data
            | Training 10..100 Training image download completed. Training in progress.
            | Stopping 100..200 Stopping the training job
            | Uploading 200..300 Uploading generated training model
            | Stopped 300..300 Training job stopped
            trained 10..300 = 1 s, billed 1 s
        301 stop a
            refused: The request was rejected because the training job is in status Stopped.
        400 released ua-1
            a released
        401 stop a ended
            refused: The request was rejected because the training job is in status Completed.
        402 stop b
            refused: Requested resource not found.
    ",
    );
}

#[test]
fn a_stop_without_agents_ends_at_once() {
    check(
        laptop(),
        "
        0 create a m5.2xlarge 1
            a created: Starting the training job
            a launched ua-1: 1 x 8 CPUs, 24.0 GiB, GPUs [], lease 90000 s: Preparing the instances for training (ml.m5.2xlarge capped to this machine: each instance has 24.0 GiB of memory instead of 32.0 GiB)
            -> launch ua-1 on 1
        1 create b m5.xlarge 1
            b created: Starting the training job
            b Pending: Waiting for capacity: needs 16.0 GiB of memory, 0.0 GiB free; 1st in the queue
        10 stop b
            b ended Stopped/Stopped: Training job stopped
            b released
        view b
            gone
        20 stop a
            a ended Stopped/Stopped: Training job stopped
            a release
            -> release ua-1
        view a
            Stopped Stopped ended=true created=0 modified=20
            | Starting 0..20 Preparing the instances for training (ml.m5.2xlarge capped to this machine: each instance has 24.0 GiB of memory instead of 32.0 GiB)
            | Stopped 20..20 Training job stopped
            trained -..- = - s, billed - s
        30 ua-1/1 downloading # too late
        40 released ua-1
            a released
    ",
    );
}

#[test]
fn a_stop_that_nobody_answers_ends_without_artifacts() {
    check(
        laptop(),
        "
        0 create a m5.large 2
            a created: Starting the training job
            a launched ua-1: 2 x 2 CPUs, 8.0 GiB, GPUs [], lease 90000 s: Preparing the instances for training
            -> launch ua-1 on 2
        10 ua-1/1 training
            a algo-1 Training
            a Downloading: Downloading input data
            a Training: Training image download completed. Training in progress.
        1000 stop a
            a stop by User: Stopping the training job
            -> stop ua-1 [1, 2] within 120 s: the training job is being stopped
        deadline
            151000
        2000 ua-1/1 exit 0
            a algo-1 ended: exit 0
        2001 ua-1/1 uploaded
            a algo-1 uploaded
        150999 tick
        151000 tick
            a ended Stopped/Stopped: Training job stopped
            a release
            -> release ua-1
        view a
            Stopped Stopped ended=true created=0 modified=151000
            | Starting 0..10 Preparing the instances for training
            | Downloading 10..10 Downloading input data
            | Training 10..1000 Training image download completed. Training in progress.
            | Stopping 1000..151000 Stopping the training job
            | Stopped 151000..151000 Training job stopped
            trained 10..151000 = 151 s, billed 151 s
    ",
    );
}

#[test]
fn instances_lost_in_a_stop_do_not_hold_up_the_others() {
    check(
        laptop(),
        "
        0 create a m5.large 3
            a created: Starting the training job
            a launched ua-1: 3 x 2 CPUs, 8.0 GiB, GPUs [], lease 90000 s: Preparing the instances for training
            -> launch ua-1 on 3
        10 ua-1/1 training
            a algo-1 Training
            a Downloading: Downloading input data
            a Training: Training image download completed. Training in progress.
        100 stop a
            a stop by User: Stopping the training job
            -> stop ua-1 [1, 2, 3] within 120 s: the training job is being stopped
        110 ua-1/2 uploaded # it had started no program
            a algo-2 uploaded
        120 ua-1/3 lost agent died
            a algo-3 lost: agent died
        130 ua-1/1 exit 0
            a algo-1 ended: exit 0
            a Uploading: Uploading generated training model
        140 ua-1/1 lost agent died
            a algo-1 lost: agent died
            a uploads ended
            -> store ua-1 of [2]
        150 stored ua-1
            a ended Stopped/Stopped: Training job stopped
            a release
            -> release ua-1
    ",
    );
}

#[test]
fn a_stop_in_which_all_are_lost_stores_nothing() {
    check(
        laptop(),
        "
        0 create a m5.large 1
            a created: Starting the training job
            a launched ua-1: 1 x 2 CPUs, 8.0 GiB, GPUs [], lease 90000 s: Preparing the instances for training
            -> launch ua-1 on 1
        10 ua-1/1 training
            a algo-1 Training
            a Downloading: Downloading input data
            a Training: Training image download completed. Training in progress.
        100 stop a
            a stop by User: Stopping the training job
            -> stop ua-1 [1] within 120 s: the training job is being stopped
        120 ua-1/1 lost agent died
            a algo-1 lost: agent died
            a ended Stopped/Stopped: Training job stopped
            a release
            -> release ua-1
    ",
    );
}

#[test]
fn a_stop_of_what_is_being_uploaded_or_stored_lets_it_finish() {
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
        20 stop a
            a stop by User: Stopping the training job
            -> stop ua-1 [1] within 120 s: the training job is being stopped
        30 ua-1/1 uploaded
            a algo-1 uploaded
            a uploads ended
            -> store ua-1 of [1]
        40 stored ua-1
            a ended Stopped/Stopped: Training job stopped
            a release
            -> release ua-1
        view a
            Stopped Stopped ended=true created=0 modified=40
            | Starting 0..10 Preparing the instances for training
            | Downloading 10..10 Downloading input data
            | Training 10..10 Training image download completed. Training in progress.
            | Uploading 10..40 Uploading generated training model
            | Stopped 40..40 Training job stopped
            trained 10..40 = 1 s, billed 1 s
        50 create b m5.large 1
            b created: Starting the training job
            b launched ub-1: 1 x 2 CPUs, 8.0 GiB, GPUs [], lease 90000 s: Preparing the instances for training
            -> launch ub-1 on 1
        60 ub-1/1 exit 0
            b algo-1 ended: exit 0
            b Downloading: Downloading input data
            b Training: Training image download completed. Training in progress.
            b Uploading: Uploading generated training model
        70 ub-1/1 uploaded
            b algo-1 uploaded
            b uploads ended
            -> store ub-1 of [1]
        80 stop b
            b stop by User: Stopping the training job
        90 stored ub-1
            b ended Stopped/Stopped: Training job stopped
            b release
            -> release ub-1
    ",
    );
}

#[test]
fn max_runtime_counts_from_the_download_and_stops() {
    check(
        laptop(),
        "
        0 create a m5.large 1 max_runtime=60
            a created: Starting the training job
            a launched ua-1: 1 x 2 CPUs, 8.0 GiB, GPUs [], lease 3660 s: Preparing the instances for training
            -> launch ua-1 on 1
        5000 ua-1/1 downloading
            a algo-1 Downloading
            a Downloading: Downloading input data
        deadline
            65000
        64999 tick
        65000 tick
            a stop by MaxRuntime: Stopping the training job: it reached MaxRuntimeInSeconds
            -> stop ua-1 [1] within 120 s: the training job reached MaxRuntimeInSeconds
        65100 stop a # it stops already
        66000 ua-1/1 exit 143
            a algo-1 ended: exit 143
            a Uploading: Uploading generated training model
        66100 ua-1/1 uploaded
            a algo-1 uploaded
            a uploads ended
            -> store ua-1 of [1]
        66200 stored ua-1
            a ended Stopped/MaxRuntimeExceeded: Training job runtime exceeded MaxRuntimeInSeconds provided
            a release
            -> release ua-1
        view a
            Stopped MaxRuntimeExceeded ended=true created=0 modified=66200
            | Starting 0..5000 Preparing the instances for training
            | Downloading 5000..65000 Downloading input data
            | Stopping 65000..66000 Stopping the training job: it reached MaxRuntimeInSeconds
            | Uploading 66000..66200 Uploading generated training model
            | MaxRuntimeExceeded 66200..66200 Training job runtime exceeded MaxRuntimeInSeconds provided
            trained 5000..66200 = 62 s, billed 62 s
    ",
    );
}

#[test]
fn max_runtime_does_not_cut_the_upload() {
    check(
        laptop(),
        "
        0 create a m5.large 1 max_runtime=60
            a created: Starting the training job
            a launched ua-1: 1 x 2 CPUs, 8.0 GiB, GPUs [], lease 3660 s: Preparing the instances for training
            -> launch ua-1 on 1
        1 ua-1/1 training
            a algo-1 Training
            a Downloading: Downloading input data
            a Training: Training image download completed. Training in progress.
        2 ua-1/1 exit 0
            a algo-1 ended: exit 0
            a Uploading: Uploading generated training model
        deadline
            3600002
        100000 tick
        3600002 tick # a limit of its own does
            a ended Failed/Failed: InternalServerError: algo-1 did not upload all artifacts within 3600 s of the end of the programs
            a release
            -> release ua-1
    ",
    );
}

#[test]
fn max_pending_ends_what_waits() {
    check(
        laptop(),
        "
        0 create a m5.2xlarge 1
            a created: Starting the training job
            a launched ua-1: 1 x 8 CPUs, 24.0 GiB, GPUs [], lease 90000 s: Preparing the instances for training (ml.m5.2xlarge capped to this machine: each instance has 24.0 GiB of memory instead of 32.0 GiB)
            -> launch ua-1 on 1
        0 create b m5.xlarge 1 max_pending=1800
            b created: Starting the training job
            b Pending: Waiting for capacity: needs 16.0 GiB of memory, 0.0 GiB free; 1st in the queue
        deadline
            600000
        1800000 tick
            a ended Failed/Failed: InternalServerError: no instance reported within 600 s of its launch
            a release
            -> release ua-1
            b ended Stopped/MaxWaitTimeExceeded: Training job waited longer than MaxPendingTimeInSeconds provided
            b released
        view b
            gone
    ",
    );
}

#[test]
fn artifacts_that_cannot_be_stored_fail_the_stop() {
    check(
        laptop(),
        "
        0 create a m5.large 1
            a created: Starting the training job
            a launched ua-1: 1 x 2 CPUs, 8.0 GiB, GPUs [], lease 90000 s: Preparing the instances for training
            -> launch ua-1 on 1
        1 ua-1/1 training
            a algo-1 Training
            a Downloading: Downloading input data
            a Training: Training image download completed. Training in progress.
        2 stop a
            a stop by User: Stopping the training job
            -> stop ua-1 [1] within 120 s: the training job is being stopped
        3 ua-1/1 exit 0
            a algo-1 ended: exit 0
            a Uploading: Uploading generated training model
        4 ua-1/1 uploaded
            a algo-1 uploaded
            a uploads ended
            -> store ua-1 of [1]
        5 unstored ua-1 ClientError: the S3 bucket models is gone
            a ended Failed/Failed: ClientError: the S3 bucket models is gone
            a release
            -> release ua-1
        view a
            Failed Failed ended=true created=0 modified=5
            | Starting 0..1 Preparing the instances for training
            | Downloading 1..1 Downloading input data
            | Training 1..2 Training image download completed. Training in progress.
            | Stopping 2..3 Stopping the training job
            | Uploading 3..5 Uploading generated training model
            | Failed 5..5 ClientError: the S3 bucket models is gone
            trained 1..5 = 1 s, billed 1 s
            because ClientError: the S3 bucket models is gone
    ",
    );
}

#[test]
fn artifacts_that_never_come_are_not_awaited_forever() {
    check(
        laptop(),
        "
        0 create a m5.large 2
            a created: Starting the training job
            a launched ua-1: 2 x 2 CPUs, 8.0 GiB, GPUs [], lease 90000 s: Preparing the instances for training
            -> launch ua-1 on 2
        10 ua-1/1 training
            a algo-1 Training
            a Downloading: Downloading input data
            a Training: Training image download completed. Training in progress.
        11 ua-1/2 training
            a algo-2 Training
        100 stop a
            a stop by User: Stopping the training job
            -> stop ua-1 [1, 2] within 120 s: the training job is being stopped
        200 ua-1/1 exit 1
            a algo-1 ended: exit 1
        300 ua-1/2 exit 1
            a algo-2 ended: exit 1
            a Uploading: Uploading generated training model
        400 ua-1/1 uploaded
            a algo-1 uploaded
        deadline
            3600300
        3600300 tick
            a uploads ended
            -> store ua-1 of [1]
    ",
    );
}

#[test]
fn a_stop_ends_even_if_no_artifacts_come_at_all() {
    check(
        laptop(),
        "
        0 create a m5.large 1
            a created: Starting the training job
            a launched ua-1: 1 x 2 CPUs, 8.0 GiB, GPUs [], lease 90000 s: Preparing the instances for training
            -> launch ua-1 on 1
        10 ua-1/1 training
            a algo-1 Training
            a Downloading: Downloading input data
            a Training: Training image download completed. Training in progress.
        100 stop a
            a stop by User: Stopping the training job
            -> stop ua-1 [1] within 120 s: the training job is being stopped
        200 ua-1/1 exit 1
            a algo-1 ended: exit 1
            a Uploading: Uploading generated training model
        3600200 tick
            a ended Stopped/Stopped: Training job stopped
            a release
            -> release ua-1
    ",
    );
}

#[test]
fn a_spent_budget_stops_a_job_and_says_so() {
    check(
        laptop(),
        "
        0 create a m5.large 1
            a created: Starting the training job
            a launched ua-1: 1 x 2 CPUs, 8.0 GiB, GPUs [], lease 90000 s: Preparing the instances for training
            -> launch ua-1 on 1
        10 ua-1/1 training
            a algo-1 Training
            a Downloading: Downloading input data
            a Training: Training image download completed. Training in progress.
        100 stop a budget
            a stop by Budget: Stopping the training job: a budget that it counts for is spent
            -> stop ua-1 [1] within 120 s: a budget is spent
    ",
    );
}
