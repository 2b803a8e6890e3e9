//! Gangs that serve: no finite end is assumed of them, and what ends by itself is replaced.

use crate::script::{check, laptop};

#[test]
fn a_service_runs_until_it_is_stopped_and_leaves_nothing_to_store() {
    check(
        laptop(),
        "
        0 serve s m5.large 2
            s created: Starting the training job
            s launched us-1: 2 x 2 CPUs, 8.0 GiB, GPUs [], lease 3600 s: Preparing the instances for training
            -> launch us-1 on 2
        deadline
            600000
        10 us-1/1 training
            s algo-1 Training
            s Downloading: Downloading input data
            s Training: Training image download completed. Training in progress.
        11 us-1/2 training
            s algo-2 Training
        deadline
            none
        900000000 tick
        900000000 stop s
            s stop by User: Stopping the training job
            -> stop us-1 [1, 2] within 120 s: the training job is being stopped
        900000000 us-1/1 exit 0
            s algo-1 ended: exit 0
        900001000 us-1/2 signal 15
            s algo-2 ended: signal 15
            s ended Stopped/Stopped: Training job stopped
            s release
            -> release us-1
        900001000 us-1/1 uploaded
        900002000 released us-1
            s released
        ",
    );
}

#[test]
fn a_program_that_ends_by_itself_is_replaced_however_well_it_ended() {
    check(
        laptop(),
        "
        0 serve s m5.large 2
        10 us-1/1 training
        11 us-1/2 training
        then
        60010 us-1/1 exit 0
            s algo-1 ended: exit 0
        60020 us-1/1 uploaded
        60030 us-1/1 lost the agent of algo-1 ended
        deadline
            62010
        62010 tick
            s attempt replaced: Starting again in place of instances that had served: AlgorithmError: algo-1: the program ended by itself, and was to run until it is stopped, exit code: 0
            -> stop us-1 [2] within 5 s: AlgorithmError: algo-1: the program ended by itself, and was to run until it is stopped, exit code: 0
        62020 us-1/2 signal 15
            s algo-2 ended: signal 15
            s release
            -> release us-1
        62030 released us-1
            s released
            s launched us-2: 2 x 2 CPUs, 8.0 GiB, GPUs [], lease 3600 s: Preparing the instances for training, replacement 1 after AlgorithmError: algo-1: the program ended by itself, and was to run until it is stopped, exit code: 0
            -> launch us-2 on 2
        62040 us-2/1 training
            s algo-1 Training
            s Downloading: Downloading input data
            s Training: Training image download completed. Training in progress.
        62041 us-2/2 training
            s algo-2 Training
        200000 us-2/2 signal 11
            s algo-2 ended: signal 11
        202000 tick
            s attempt replaced: Starting again in place of instances that had served: AlgorithmError: algo-2 was killed by SIGSEGV, exit code: 139
            -> stop us-2 [1] within 5 s: AlgorithmError: algo-2 was killed by SIGSEGV, exit code: 139
        202001 us-2/1 signal 15
            s algo-1 ended: signal 15
            s release
            -> release us-2
        202002 released us-2
            s released
            s launched us-3: 2 x 2 CPUs, 8.0 GiB, GPUs [], lease 3600 s: Preparing the instances for training, replacement 2 after AlgorithmError: algo-2 was killed by SIGSEGV, exit code: 139
            -> launch us-3 on 2
                ",
    );
}

#[test]
fn a_program_that_ends_at_once_is_not_started_for_ever() {
    check(
        laptop(),
        "
        0 serve s m5.large 1 retries=1
        10 us-1/1 training
        then
        60009 us-1/1 exit 0
            s algo-1 ended: exit 0
            s attempt failed: Starting the training job again, retry 1 of 1: AlgorithmError: the program ended by itself, and was to run until it is stopped, exit code: 0
            s release
            -> release us-1
        60010 released us-1
            s released
            s launched us-2: 1 x 2 CPUs, 8.0 GiB, GPUs [], lease 3600 s: Preparing the instances for training, retry 1 of 1 after AlgorithmError: the program ended by itself, and was to run until it is stopped, exit code: 0
            -> launch us-2 on 1
        60020 us-2/1 training
            s algo-1 Training
            s Downloading: Downloading input data
            s Training: Training image download completed. Training in progress.
        60030 us-2/1 exit 1
            s algo-1 ended: exit 1
            s ended Failed/Failed: AlgorithmError: the program left no failure file and wrote nothing to stderr, exit code: 1
            s release
            -> release us-2
        ",
    );
}

#[test]
fn nothing_counts_on_what_a_service_holds() {
    check(
        laptop(),
        "
        0 serve s m5.large 1
        0 create a m5.large 1 max_runtime=1000
        0 create head m5.large 3 max_runtime=1000
        then
        1 create later m5.large 1 max_runtime=100000000
            later created: Starting the training job
            later launched ulater-1: 1 x 2 CPUs, 8.0 GiB, GPUs [], lease 100003600 s: Preparing the instances for training
            -> launch ulater-1 on 1
        2 unlaunched ua-1 no space left on device
            a ended Failed/Failed: InternalServerError: no space left on device
            a release
            -> release ua-1
        3 released ua-1
            a released
        4 serve t m5.large 1                  # it would keep from the head what `a` gave back
            t created: Starting the training job
            t Pending: Waiting for capacity: what is free is kept for the training job at the head of the queue; 2nd in the queue
        5 stop s                              # now the head fits as soon as `later` is over
            s ended Stopped/Stopped: Training job stopped
            s release
            -> release us-1
        6 released us-1
            s released
        7 create longer m5.large 1 max_runtime=100000001
            longer created: Starting the training job
            longer Pending: Waiting for capacity: what is free is kept for the training job at the head of the queue; 3rd in the queue
        ",
    );
}

#[test]
fn a_service_does_not_pass_the_head_of_the_queue() {
    check(
        laptop(),
        "
        0 create a m5.large 2 max_runtime=1000
        0 create head m5.large 3 max_runtime=1000
        then
        1 serve s m5.large 1
            s created: Starting the training job
            s Pending: Waiting for capacity: what is free is kept for the training job at the head of the queue; 2nd in the queue
        2 create small m5.large 1 max_runtime=100
            small created: Starting the training job
            small launched usmall-1: 1 x 2 CPUs, 8.0 GiB, GPUs [], lease 3700 s: Preparing the instances for training
            -> launch usmall-1 on 1
        ",
    );
}
