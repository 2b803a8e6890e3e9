//! Managed spot training: what an interruption does, what goes on, and what limits it.

use crate::script::{check, laptop};

#[test]
fn it_has_the_grace_of_a_stop_and_then_another_attempt() {
    check(
        laptop(),
        "
        0 create a m5.large 2 max_runtime=100 max_wait=1000
            a created: Starting the training job
            a launched ua-1: 2 x 2 CPUs, 8.0 GiB, GPUs [], lease 3700 s: Preparing the instances for training
            -> launch ua-1 on 2
        10 ua-1/1 training
            a algo-1 Training
            a Downloading: Downloading input data
            a Training: Training image download completed. Training in progress.
        20 ua-1/2 downloading
            a algo-2 Downloading
        deadline
            100010
        30000 interrupt a
            a interrupted: The instances were taken away; training goes on from its checkpoints when there are others
            -> stop ua-1 [1, 2] within 120 s: managed spot training is interrupted
        deadline
            180000
        30001 interrupt a
            refused: The training job a cannot be interrupted now, as no program of it runs (its secondary status is Interrupted): try again when it trains
        31000 ua-1/2 signal 15
            a algo-2 ended: signal 15
        31100 ua-1/1 exit 0 loss:1@30500 epoch:7@30500
            a algo-1 ended: exit 0 loss=1 epoch=7
            a release
            -> release ua-1
        31200 ua-1/1 uploaded
        view a
            InProgress Interrupted ended=false created=0 modified=31100
            | Starting 0..10 Preparing the instances for training
            | Downloading 10..10 Downloading input data
            | Training 10..30000 Training image download completed. Training in progress.
            | Interrupted 30000..- The instances were taken away; training goes on from its checkpoints when there are others
            trained 10..- = - s, billed - s
            epoch=7@30500 loss=1@30500
        32000 released ua-1
            a released
            a launched ua-2: 2 x 2 CPUs, 8.0 GiB, GPUs [], lease 3671 s: Preparing the instances for training, after interruption 1
            -> launch ua-2 on 2
        33000 ua-2/1 training
            a algo-1 Training
            a Downloading: Downloading input data
            a Training: Training image download completed. Training in progress.
        33010 ua-2/2 training
            a algo-2 Training
        deadline
            103010
        40000 ua-2/1 exit 0 loss:2@29000
            a algo-1 ended: exit 0 loss=2
        40000 ua-2/2 exit 0
            a algo-2 ended: exit 0
            a Uploading: Uploading generated training model
        40010 ua-2/1 uploaded
            a algo-1 uploaded
        40010 ua-2/2 uploaded
            a algo-2 uploaded
            a uploads ended
            -> store ua-2 of [1, 2]
        40020 stored ua-2
            a ended Completed/Completed: Training job completed
            a release
            -> release ua-2
        view a
            Completed Completed ended=true created=0 modified=40020
            | Starting 0..10 Preparing the instances for training
            | Downloading 10..10 Downloading input data
            | Training 10..30000 Training image download completed. Training in progress.
            | Interrupted 30000..32000 The instances were taken away; training goes on from its checkpoints when there are others
            | Starting 32000..33000 Preparing the instances for training, after interruption 1
            | Downloading 33000..33000 Downloading input data
            | Training 33000..40000 Training image download completed. Training in progress.
            | Uploading 40000..40020 Uploading generated training model
            | Completed 40020..40020 Training job completed
            trained 10..40020 = 41 s, billed 38 s
            epoch=7@30500 loss=2@29000
    ",
    );
}

#[test]
fn who_came_before_goes_first_and_its_time_may_be_up() {
    check(
        laptop(),
        "
        0 create a m5.4xlarge 1 max_runtime=10 max_wait=60
            a created: Starting the training job
            a launched ua-1: 1 x 8 CPUs, 24.0 GiB, GPUs [], lease 3610 s: Preparing the instances for training (ml.m5.4xlarge capped to this machine: each instance has 8 CPUs instead of 16 and 24.0 GiB of memory instead of 64.0 GiB)
            -> launch ua-1 on 1
        10 ua-1/1 training
            a algo-1 Training
            a Downloading: Downloading input data
            a Training: Training image download completed. Training in progress.
        20 create b m5.4xlarge 1 max_runtime=20 max_wait=30
            b created: Starting the training job
            b Pending: Waiting for capacity: needs 24.0 GiB of memory, 0.0 GiB free; 1st in the queue
        1000 interrupt a
            a interrupted: The instances were taken away; training goes on from its checkpoints when there are others
            -> stop ua-1 [1] within 120 s: managed spot training is interrupted
        2000 ua-1/1 signal 15
            a algo-1 ended: signal 15
            a release
            -> release ua-1
        2100 released ua-1
            a released
            a launched ua-2: 1 x 8 CPUs, 24.0 GiB, GPUs [], lease 3610 s: Preparing the instances for training, after interruption 1 (ml.m5.4xlarge capped to this machine: each instance has 8 CPUs instead of 16 and 24.0 GiB of memory instead of 64.0 GiB)
            -> launch ua-2 on 1
        2200 ua-2/1 training
            a algo-1 Training
            a Downloading: Downloading input data
            a Training: Training image download completed. Training in progress.
        3000 interrupt a
            a interrupted: The instances were taken away; training goes on from its checkpoints when there are others
            -> stop ua-2 [1] within 120 s: managed spot training is interrupted
        deadline
            30020
        153000 tick
            b ended Stopped/MaxWaitTimeExceeded: Training job wait time exceeded MaxWaitTimeInSeconds provided
            b released
            a ended Stopped/MaxWaitTimeExceeded: Training job wait time exceeded MaxWaitTimeInSeconds provided
            a release
            -> release ua-2
        153100 released ua-2
            a released
        153110 tick
        153120 stop b ended
            refused: The request was rejected because the training job is in status Completed.
        200000 create c m5.4xlarge 1 max_wait=60 max_runtime=10
            c created: Starting the training job
            c launched uc-1: 1 x 8 CPUs, 24.0 GiB, GPUs [], lease 3610 s: Preparing the instances for training (ml.m5.4xlarge capped to this machine: each instance has 8 CPUs instead of 16 and 24.0 GiB of memory instead of 64.0 GiB)
            -> launch uc-1 on 1
        200010 uc-1/1 training
            c algo-1 Training
            c Downloading: Downloading input data
            c Training: Training image download completed. Training in progress.
        201000 interrupt c
            c interrupted: The instances were taken away; training goes on from its checkpoints when there are others
            -> stop uc-1 [1] within 120 s: managed spot training is interrupted
        202000 stop c
            c ended Stopped/Stopped: Training job stopped
            c release
            -> release uc-1
        202010 released uc-1
            c released
        300000 create d m5.4xlarge 1 max_wait=10 max_runtime=10
            d created: Starting the training job
            d launched ud-1: 1 x 8 CPUs, 24.0 GiB, GPUs [], lease 3610 s: Preparing the instances for training (ml.m5.4xlarge capped to this machine: each instance has 8 CPUs instead of 16 and 24.0 GiB of memory instead of 64.0 GiB)
            -> launch ud-1 on 1
        309000 ud-1/1 training
            d algo-1 Training
            d Downloading: Downloading input data
            d Training: Training image download completed. Training in progress.
        310000 tick
            d stop by MaxWait: Stopping the training job: it reached MaxWaitTimeInSeconds
            -> stop ud-1 [1] within 120 s: the training job reached MaxWaitTimeInSeconds
        310010 ud-1/1 signal 15
            d algo-1 ended: signal 15
            d Uploading: Uploading generated training model
        310020 ud-1/1 uploaded
            d algo-1 uploaded
            d uploads ended
            -> store ud-1 of [1]
        310030 stored ud-1
            d ended Stopped/MaxWaitTimeExceeded: Training job wait time exceeded MaxWaitTimeInSeconds provided
            d release
            -> release ud-1
    ",
    );
}

#[test]
fn only_what_runs_as_managed_spot_training_is_interrupted() {
    check(
        laptop(),
        "
        0 interrupt a
            refused: Requested resource not found.
        0 interrupt a ended
            refused: The request was rejected because the training job is in status Completed.
        0 create a m5.large 1
            a created: Starting the training job
            a launched ua-1: 1 x 2 CPUs, 8.0 GiB, GPUs [], lease 90000 s: Preparing the instances for training
            -> launch ua-1 on 1
        10 ua-1/1 training
            a algo-1 Training
            a Downloading: Downloading input data
            a Training: Training image download completed. Training in progress.
        20 interrupt a
            refused: The training job a is no managed spot training, and only that can be interrupted: set EnableManagedSpotTraining and MaxWaitTimeInSeconds when you create it
        30 stop a
            a stop by User: Stopping the training job
            -> stop ua-1 [1] within 120 s: the training job is being stopped
        40 interrupt a
            refused: The request was rejected because the training job is in status Stopping.
        100 create b m5.large 1 max_wait=86400
            b created: Starting the training job
            b launched ub-1: 1 x 2 CPUs, 8.0 GiB, GPUs [], lease 90000 s: Preparing the instances for training
            -> launch ub-1 on 1
        110 ub-1/1 training
            b algo-1 Training
            b Downloading: Downloading input data
            b Training: Training image download completed. Training in progress.
        120 ub-1/1 exit 0
            b algo-1 ended: exit 0
            b Uploading: Uploading generated training model
        130 interrupt b
            refused: The training job b cannot be interrupted now, as no program of it runs (its secondary status is Uploading): try again when it trains
        200 create c m5.large 1 max_wait=86400
            c created: Starting the training job
            c launched uc-1: 1 x 2 CPUs, 8.0 GiB, GPUs [], lease 90000 s: Preparing the instances for training
            -> launch uc-1 on 1
        210 interrupt c
            c interrupted: The instances were taken away; training goes on from its checkpoints when there are others
            c release
            -> release uc-1
        220 interrupt c
            refused: The training job c cannot be interrupted now, as no program of it runs (its secondary status is Interrupted): try again when it trains
    ",
    );
}
