//! Failures: when they show, and what becomes of the other hosts.

use crate::script::{check, laptop};

#[test]
fn one_instance_fails_at_once_with_its_failure_file() {
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
        1500 ua-1/1 exit 3 at=1490 file=no_such_column:_price stderr=Traceback
            a algo-1 ended: exit 3
            a ended Failed/Failed: AlgorithmError: no such column: price, exit code: 3
            a release
            -> release ua-1
        view a
            Failed Failed ended=true created=0 modified=1500
            | Starting 0..10 Preparing the instances for training
            | Downloading 10..10 Downloading input data
            | Training 10..1500 Training image download completed. Training in progress.
            | Failed 1500..1500 AlgorithmError: no such column: price, exit code: 3
            trained 10..1500 = 2 s, billed 2 s
            because AlgorithmError: no such column: price, exit code: 3
        1600 released ua-1
            a released
    ",
    );
}

#[test]
fn the_verdict_waits_for_all_hosts() {
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
        10 ua-1/2 training
            a algo-2 Training
        10 ua-1/3 training
            a algo-3 Training
        1000 ua-1/1 exit 1 at=990 stderr=connection_reset_by_algo-2
            a algo-1 ended: exit 1
        1001 ua-1/3 exit 1 at=991 stderr=connection_reset_by_algo-2
            a algo-3 ended: exit 1
        deadline
            3000
        1200 ua-1/2 oom at=980 stderr=loading
            a algo-2 ended: killed
            a ended Failed/Failed: AlgorithmError: algo-2 ran out of memory (limit 8.0 GiB): loading, exit code: 137
            a release
            -> release ua-1
        view a
            Failed Failed ended=true created=0 modified=1200
            | Starting 0..10 Preparing the instances for training
            | Downloading 10..10 Downloading input data
            | Training 10..1200 Training image download completed. Training in progress.
            | Failed 1200..1200 AlgorithmError: algo-2 ran out of memory (limit 8.0 GiB): loading, exit code: 137
            trained 10..1200 = 2 s, billed 2 s
            because AlgorithmError: algo-2 ran out of memory (limit 8.0 GiB): loading, exit code: 137
    ",
    );
}

#[test]
fn or_for_two_seconds_and_then_stops_who_still_runs() {
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
        10 ua-1/2 training
            a algo-2 Training
        10 ua-1/3 training
            a algo-3 Training
        1000 ua-1/2 exit 7 at=990 file=boom
            a algo-2 ended: exit 7
        2000 ua-1/1 exit 1 at=1990
            a algo-1 ended: exit 1
        deadline
            3000
        2999 tick
        3000 tick
            a ended Failed/Failed: AlgorithmError: algo-2: boom, exit code: 7
            -> stop ua-1 [3] within 5 s: AlgorithmError: algo-2: boom, exit code: 7
        pending
            -> stop ua-1 [3] within 5 s: AlgorithmError: algo-2: boom, exit code: 7
        view a
            Failed Failed ended=true created=0 modified=3000
            | Starting 0..10 Preparing the instances for training
            | Downloading 10..10 Downloading input data
            | Training 10..3000 Training image download completed. Training in progress.
            | Failed 3000..3000 AlgorithmError: algo-2: boom, exit code: 7
            trained 10..3000 = 3 s, billed 3 s
            because AlgorithmError: algo-2: boom, exit code: 7
        deadline
            38000
        3500 ua-1/3 signal 15 auc:0.5@3400
            a algo-3 ended: signal 15 auc=0.5
            a release
            -> release ua-1
        view a
            Failed Failed ended=true created=0 modified=3500
            | Starting 0..10 Preparing the instances for training
            | Downloading 10..10 Downloading input data
            | Training 10..3000 Training image download completed. Training in progress.
            | Failed 3000..3000 AlgorithmError: algo-2: boom, exit code: 7
            trained 10..3000 = 3 s, billed 3 s
            because AlgorithmError: algo-2: boom, exit code: 7
            auc=0.5@3400
    ",
    );
}

#[test]
fn peers_that_do_not_answer_are_released_all_the_same() {
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
        10 ua-1/2 training
            a algo-2 Training
        1000 ua-1/2 exit 7
            a algo-2 ended: exit 7
        3000 tick
            a ended Failed/Failed: AlgorithmError: algo-2: the program left no failure file and wrote nothing to stderr, exit code: 7
            -> stop ua-1 [1] within 5 s: AlgorithmError: algo-2: the program left no failure file and wrote nothing to stderr, exit code: 7
        deadline
            38000
        38000 tick
            a release
            -> release ua-1
        38001 ua-1/1 exit 0
        38002 released ua-1
            a released
    ",
    );
}

#[test]
fn a_launch_that_fails_fails_the_job() {
    check(
        laptop(),
        "
        0 create a m5.large 2
            a created: Starting the training job
            a launched ua-1: 2 x 2 CPUs, 8.0 GiB, GPUs [], lease 90000 s: Preparing the instances for training
            -> launch ua-1 on 2
        10 unlaunched ua-1 no more processes
            a ended Failed/Failed: InternalServerError: no more processes
            a release
            -> release ua-1
        view a
            Failed Failed ended=true created=0 modified=10
            | Starting 0..10 Preparing the instances for training
            | Failed 10..10 InternalServerError: no more processes
            trained -..- = - s, billed - s
            because InternalServerError: no more processes
        11 unlaunched ua-1 no more processes
        19 released ua-1
            a released
        20 create b m5.large 2
            b created: Starting the training job
            b launched ub-1: 2 x 2 CPUs, 8.0 GiB, GPUs [], lease 90000 s: Preparing the instances for training
            -> launch ub-1 on 2
        30 ub-1/1 training
            b algo-1 Training
            b Downloading: Downloading input data
            b Training: Training image download completed. Training in progress.
        40 unlaunched ub-1 ClientError: channel train has no objects
            b ended Failed/Failed: ClientError: channel train has no objects
            -> stop ub-1 [1] within 5 s: ClientError: channel train has no objects
        50 ub-1/1 signal 15
            b algo-1 ended: signal 15
            b release
            -> release ub-1
    ",
    );
}

#[test]
fn a_launch_that_nobody_hears_of_fails_in_the_end() {
    check(
        laptop(),
        "
        0 create a m5.large 2
            a created: Starting the training job
            a launched ua-1: 2 x 2 CPUs, 8.0 GiB, GPUs [], lease 90000 s: Preparing the instances for training
            -> launch ua-1 on 2
        deadline
            600000
        600000 tick
            a ended Failed/Failed: InternalServerError: no instance reported within 600 s of its launch
            a release
            -> release ua-1
    ",
    );
}

#[test]
fn a_launch_that_waits_for_room_has_its_time_afterwards() {
    check(
        laptop(),
        "
        0 create a m5.large 2
            a created: Starting the training job
            a launched ua-1: 2 x 2 CPUs, 8.0 GiB, GPUs [], lease 90000 s: Preparing the instances for training
            -> launch ua-1 on 2
        500000 delayed ua-1 no space left
            a Starting: The launch waits: no space left
        1000000 delayed ua-1 no space left
            a Starting: The launch waits: no space left
        600000 tick
        deadline
            1600000
        view a
            InProgress Starting ended=false created=0 modified=1000000
            | Starting 0..- The launch waits: no space left
            trained -..- = - s, billed - s
        1200000 ua-1/1 downloading
            a algo-1 Downloading
            a Downloading: Downloading input data
        1200001 delayed ua-1 what was said before and comes late
        1200002 delayed ua-0 another's
    ",
    );
}

#[test]
fn a_launch_that_is_queued_elsewhere_waits_without_a_limit_of_its_own() {
    check(
        laptop(),
        "
        0 create a m5.large 2
            a created: Starting the training job
            a launched ua-1: 2 x 2 CPUs, 8.0 GiB, GPUs [], lease 90000 s: Preparing the instances for training
            -> launch ua-1 on 2
        1000 queued ua-1
        1000 queued ua-1 Resources
            a Pending: The launch is queued: Resources
        2000 queued ua-1 Resources
        3000 queued ua-1 Priority
            a Pending: The launch is queued: Priority
        deadline
            none
        view a
            InProgress Pending ended=false created=0 modified=3000
            | Starting 0..1000 Preparing the instances for training
            | Pending 1000..- The launch is queued: Priority
            trained -..- = - s, billed - s
        900000 tick
        900000 queued ua-1
            a Starting: Starting the instances
        deadline
            1500000
        900001 ua-1/1 downloading
            a algo-1 Downloading
            a Downloading: Downloading input data
        900002 queued ua-1 what comes late
        900002 queued ua-0 another's
    ",
    );
}

#[test]
fn a_job_whose_queued_launch_is_told_nothing_more_starts_or_ends() {
    check(
        laptop(),
        "
        0 create a m5.large 1 max_pending=60
            a created: Starting the training job
            a launched ua-1: 1 x 2 CPUs, 8.0 GiB, GPUs [], lease 90000 s: Preparing the instances for training
            -> launch ua-1 on 1
        1000 queued ua-1 Resources
            a Pending: The launch is queued: Resources
        2000 ua-1/1 downloading
            a algo-1 Downloading
            a Starting: Starting the instances
            a Downloading: Downloading input data
        3000 create b m5.large 1 max_pending=60
            b created: Starting the training job
            b launched ub-1: 1 x 2 CPUs, 8.0 GiB, GPUs [], lease 90000 s: Preparing the instances for training
            -> launch ub-1 on 1
        4000 queued ub-1 Resources
            b Pending: The launch is queued: Resources
        deadline
            63000
        63000 tick
            b ended Stopped/MaxWaitTimeExceeded: Training job waited longer than MaxPendingTimeInSeconds provided
            b release
            -> release ub-1
    ",
    );
}

#[test]
fn a_stop_of_a_job_that_has_failed_already_shows_the_failure() {
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
        10 ua-1/2 training
            a algo-2 Training
        1000 ua-1/1 exit 5 file=bad
            a algo-1 ended: exit 5
        1001 stop a
            a ended Failed/Failed: AlgorithmError: algo-1: bad, exit code: 5
            -> stop ua-1 [2] within 5 s: AlgorithmError: algo-1: bad, exit code: 5
        1002 ua-1/2 signal 15
            a algo-2 ended: signal 15
            a release
            -> release ua-1
    ",
    );
}

#[test]
fn artifacts_that_cannot_be_stored_fail_the_job() {
    check(
        laptop(),
        "
        0 create a m5.large 1
            a created: Starting the training job
            a launched ua-1: 1 x 2 CPUs, 8.0 GiB, GPUs [], lease 90000 s: Preparing the instances for training
            -> launch ua-1 on 1
        1 ua-1/1 exit 0
            a algo-1 ended: exit 0
            a Downloading: Downloading input data
            a Training: Training image download completed. Training in progress.
            a Uploading: Uploading generated training model
        2 ua-1/1 uploaded
            a algo-1 uploaded
            a uploads ended
            -> store ua-1 of [1]
        3 unstored ua-1 disk full
            a ended Failed/Failed: InternalServerError: disk full
            a release
            -> release ua-1
    ",
    );
}

#[test]
fn artifacts_are_not_awaited_without_end() {
    check(
        laptop(),
        "
        0 create a m5.large 3
            a created: Starting the training job
            a launched ua-1: 3 x 2 CPUs, 8.0 GiB, GPUs [], lease 90000 s: Preparing the instances for training
            -> launch ua-1 on 3
        10 ua-1/1 exit 0
            a algo-1 ended: exit 0
            a Downloading: Downloading input data
            a Training: Training image download completed. Training in progress.
        20 ua-1/2 exit 0
            a algo-2 ended: exit 0
        30 ua-1/3 exit 0
            a algo-3 ended: exit 0
            a Uploading: Uploading generated training model
        40 ua-1/2 uploaded
            a algo-2 uploaded
        deadline
            3600030
        3600029 tick
        3600030 tick
            a ended Failed/Failed: InternalServerError: algo-1, algo-3 did not upload all artifacts within 3600 s of the end of the programs
            a release
            -> release ua-1
    ",
    );
}
