//! Scenarios of tuning jobs: what ends them, and what their users change while they run.

use crate::script::{check, laptop};

#[test]
fn its_time_is_over() {
    check(
        laptop(),
        "
        0 tune t jobs=9 runtime=10
        1 suggest t 1 0
        2 ut-0-1/1 training
        3 ut-0-1/1 objective 1 0.5
        4 judge t 2
        then
        deadline
            10000
        9999 tick
        10000 tick
            t stopping: MaxRuntime
            t-0 stop by Tuning: Stopping the training job: its tuning job ends
            -> stop ut-0-1 [1] within 120 s: the tuning job ends
        deadline
            160000
        10001 ut-0-1/1 signal 15
            t-0 algo-1 ended: signal 15
            t-0 Uploading: Uploading generated training model
        10002 ut-0-1/1 uploaded
            t-0 algo-1 uploaded
            t-0 uploads ended
            -> store ut-0-1 of [1]
        10003 stored ut-0-1
            t-0 ended Stopped/Stopped: Training job stopped
            t-0 release
            -> release ut-0-1
            t trial 0 ended Stopped with 0.5, the best; 0 not improving
            t tuning ended Completed: MaxRuntime
        10004 released ut-0-1
            t-0 released
            t tuning released
        ",
    );
}

#[test]
fn the_target_is_reached() {
    check(
        laptop(),
        "
        0 tune t jobs=9 parallel=2 target=1
        1 suggest t 1 0 1
        2 ut-0-1/1 training
        3 ut-1-1/1 training
        4 ut-0-1/1 objective 1 0.5
        5 judge t 2
        6 ut-0-1/1 exit 0
        7 ut-0-1/1 uploaded
        then
        8 stored ut-0-1
            t-0 ended Completed/Completed: Training job completed
            t-0 release
            -> release ut-0-1
            t trial 0 ended Completed with 0.5, the best; 0 not improving
            -> t observe 3: 0 ended Completed { values: [0.5] }
            t stopping: Target
            t-1 stop by Tuning: Stopping the training job: its tuning job ends
            -> stop ut-1-1 [1] within 120 s: the tuning job ends
        9 released ut-0-1
            t-0 released
        10 ut-1-1/1 signal 15
            t-1 algo-1 ended: signal 15
            t-1 Uploading: Uploading generated training model
        11 ut-1-1/1 uploaded
            t-1 algo-1 uploaded
            t-1 uploads ended
            -> store ut-1-1 of [1]
        12 stored ut-1-1
            t-1 ended Stopped/Stopped: Training job stopped
            t-1 release
            -> release ut-1-1
            t trial 1 ended Stopped with no number; 0 not improving
            t tuning ended Completed: Target
        13 released ut-1-1
            t-1 released
            t tuning released
        ",
    );
}

#[test]
fn the_tuner_has_converged() {
    check(
        laptop(),
        "
        0 tune t jobs=9 converge
        1 suggest t 1 0
        2 ut-0-1/1 training
        3 ut-0-1/1 objective 1 0.5
        then
        4 judge t 2 converged
            t wish 2 judged: 1 records, converged
            t stopping: Converged
            t-0 stop by Tuning: Stopping the training job: its tuning job ends
            -> stop ut-0-1 [1] within 120 s: the tuning job ends
        5 ut-0-1/1 signal 15
            t-0 algo-1 ended: signal 15
            t-0 Uploading: Uploading generated training model
        6 ut-0-1/1 uploaded
            t-0 algo-1 uploaded
            t-0 uploads ended
            -> store ut-0-1 of [1]
        7 stored ut-0-1
            t-0 ended Stopped/Stopped: Training job stopped
            t-0 release
            -> release ut-0-1
            t trial 0 ended Stopped with 0.5, the best; 0 not improving
            t tuning ended Completed: Converged
        8 released ut-0-1
            t-0 released
            t tuning released
        ",
    );
}

#[test]
fn that_the_tuner_has_converged_ends_nothing_by_itself() {
    check(
        laptop(),
        "
        0 tune t jobs=9
        1 suggest t 1 0
        2 ut-0-1/1 training
        3 ut-0-1/1 objective 1 0.5
        then
        4 judge t 2 converged
            t wish 2 judged: 1 records, converged
        5 ut-0-1/1 objective 2 0.4
            t-0 reported 0.4 after 2
            -> t observe 3: 0 reported 0.4 after 2
        6 judge t 3 converged
            t wish 3 judged: 1 records
        ",
    );
}

#[test]
fn its_first_trials_all_fail() {
    check(
        laptop(),
        "
        0 tune t jobs=9 parallel=5
            t tuning created: 5 in parallel
            t wish 1: 5 trials, 5 new
            -> t suggest 1: 5, 5 new
        1 suggest t 1 0 1 2 wait
            t wish 1 answered: 3 records, waits
            t-0 created: Starting the training job
            t-1 created: Starting the training job
            t-2 created: Starting the training job
            t-0 launched ut-0-1: 1 x 2 CPUs, 8.0 GiB, GPUs [], lease 4200 s: Preparing the instances for training (5 training jobs in parallel are requested, 3 fit here: each needs 8.0 GiB of memory, and there is 24.0 GiB in all; packing = \"use\" in shoal.toml counts what they use instead)
            -> launch ut-0-1 on 1
            t-1 launched ut-1-1: 1 x 2 CPUs, 8.0 GiB, GPUs [], lease 4200 s: Preparing the instances for training (5 training jobs in parallel are requested, 3 fit here: each needs 8.0 GiB of memory, and there is 24.0 GiB in all; packing = \"use\" in shoal.toml counts what they use instead)
            -> launch ut-1-1 on 1
            t-2 launched ut-2-1: 1 x 2 CPUs, 8.0 GiB, GPUs [], lease 4200 s: Preparing the instances for training (5 training jobs in parallel are requested, 3 fit here: each needs 8.0 GiB of memory, and there is 24.0 GiB in all; packing = \"use\" in shoal.toml counts what they use instead)
            -> launch ut-2-1 on 1
        2 unlaunched ut-0-1 ClientError: no image
            t-0 ended Failed/Failed: ClientError: no image
            t-0 release
            -> release ut-0-1
            t trial 0 ended NonRetryableError with no number; 0 not improving
            -> t observe 2: 0 ended Failed
            t wish 3: 3 trials, 3 new
            -> t suggest 3: 3, 3 new
        3 unlaunched ut-1-1 ClientError: no image
            t-1 ended Failed/Failed: ClientError: no image
            t-1 release
            -> release ut-1-1
            t trial 1 ended NonRetryableError with no number; 0 not improving
            -> t observe 4: 1 ended Failed
        4 suggest t 3 3 4 wait
            t wish 3 answered: 2 records, waits
            t-3 created: Starting the training job
            t-4 created: Starting the training job
            t wish 5: 2 trials, 2 new
            -> t suggest 5: 2, 2 new
            t-3 Pending: Waiting for capacity: needs 8.0 GiB of memory, 0.0 GiB free; 1st in the queue
            t-4 Pending: Waiting for capacity: needs 8.0 GiB of memory, 0.0 GiB free; 2nd in the queue
        5 released ut-0-1
            t-0 released
            t-3 launched ut-3-1: 1 x 2 CPUs, 8.0 GiB, GPUs [], lease 4200 s: Preparing the instances for training (5 training jobs in parallel are requested, 3 fit here: each needs 8.0 GiB of memory, and there is 24.0 GiB in all; packing = \"use\" in shoal.toml counts what they use instead)
            -> launch ut-3-1 on 1
        6 released ut-1-1
            t-1 released
            t-4 launched ut-4-1: 1 x 2 CPUs, 8.0 GiB, GPUs [], lease 4200 s: Preparing the instances for training (5 training jobs in parallel are requested, 3 fit here: each needs 8.0 GiB of memory, and there is 24.0 GiB in all; packing = \"use\" in shoal.toml counts what they use instead)
            -> launch ut-4-1 on 1
        7 unlaunched ut-2-1 ClientError: no image
            t-2 ended Failed/Failed: ClientError: no image
            t-2 release
            -> release ut-2-1
            t trial 2 ended NonRetryableError with no number; 0 not improving
            -> t observe 6: 2 ended Failed
        8 unlaunched ut-3-1 ClientError: no image
            t-3 ended Failed/Failed: ClientError: no image
            t-3 release
            -> release ut-3-1
            t trial 3 ended NonRetryableError with no number; 0 not improving
            -> t observe 7: 3 ended Failed
        9 unlaunched ut-4-1 ClientError: no data
            t-4 ended Failed/Failed: ClientError: no data
            t-4 release
            -> release ut-4-1
            t trial 4 ended NonRetryableError with no number; 0 not improving
            -> t observe 8: 4 ended Failed
            t tuning ended Failed: Failures: No training job succeeded after 5 attempts. The last one failed with: ClientError: no data. List the training jobs of the hyperparameter tuning job for the others.
        10 released ut-2-1
            t-2 released
        11 released ut-3-1
            t-3 released
        12 released ut-4-1
            t-4 released
            t tuning released
        ",
    );
}

#[test]
fn more_trials_may_run_and_then_fewer() {
    check(
        laptop(),
        "
        0 tune t jobs=9 parallel=1
        1 suggest t 1 0
        2 ut-0-1/1 training
        then
        3 parallel t 3
            t 3 in parallel
            t wish 2: 2 trials, 2 new
            -> t suggest 2: 2, 2 new
        4 suggest t 2 1 2
            t wish 2 answered: 2 records
            t-1 created: Starting the training job
            t-2 created: Starting the training job
            t-1 launched ut-1-1: 1 x 2 CPUs, 8.0 GiB, GPUs [], lease 4200 s: Preparing the instances for training
            -> launch ut-1-1 on 1
            t-2 launched ut-2-1: 1 x 2 CPUs, 8.0 GiB, GPUs [], lease 4200 s: Preparing the instances for training
            -> launch ut-2-1 on 1
        5 ut-1-1/1 training
            t-1 algo-1 Training
            t-1 Downloading: Downloading input data
            t-1 Training: Training image download completed. Training in progress.
        6 ut-2-1/1 training
            t-2 algo-1 Training
            t-2 Downloading: Downloading input data
            t-2 Training: Training image download completed. Training in progress.
        7 parallel t 1
            t 1 in parallel
        8 parallel t 1
        9 parallel t 0
            refused: MaxParallelTrainingJobs must be at least 1: to run no more trials, stop the hyperparameter tuning job
        10 ut-1-1/1 exit 1
            t-1 algo-1 ended: exit 1
            t-1 ended Failed/Failed: AlgorithmError: the program left no failure file and wrote nothing to stderr, exit code: 1
            t-1 release
            -> release ut-1-1
            t trial 1 ended NonRetryableError with no number; 0 not improving
            -> t observe 3: 1 ended Failed
        12 released ut-1-1
            t-1 released
        13 judge t 3
            t wish 3 judged: 1 records
        14 ut-2-1/1 exit 1
            t-2 algo-1 ended: exit 1
            t-2 ended Failed/Failed: AlgorithmError: the program left no failure file and wrote nothing to stderr, exit code: 1
            t-2 release
            -> release ut-2-1
            t trial 2 ended NonRetryableError with no number; 0 not improving
            -> t observe 4: 2 ended Failed
        15 released ut-2-1
            t-2 released
        16 judge t 4
            t wish 4 judged: 1 records
        17 ut-0-1/1 exit 1
            t-0 algo-1 ended: exit 1
            t-0 ended Failed/Failed: AlgorithmError: the program left no failure file and wrote nothing to stderr, exit code: 1
            t-0 release
            -> release ut-0-1
            t trial 0 ended NonRetryableError with no number; 0 not improving
            -> t observe 5: 0 ended Failed
            t wish 6: 1 trials, 1 new
            -> t suggest 6: 1, 1 new
        18 released ut-0-1
            t-0 released
        ",
    );
}

#[test]
fn its_user_stops_a_trial() {
    check(
        laptop(),
        "
        0 tune t jobs=9
        1 suggest t 1 0
        2 ut-0-1/1 training
        3 ut-0-1/1 objective 1 0.5
        then
        4 stop t-0
            t-0 stop by User: Stopping the training job
            -> stop ut-0-1 [1] within 120 s: the training job is being stopped
        5 ut-0-1/1 signal 15
            t-0 algo-1 ended: signal 15
            t-0 Uploading: Uploading generated training model
        6 ut-0-1/1 uploaded
            t-0 algo-1 uploaded
            t-0 uploads ended
            -> store ut-0-1 of [1]
        7 stored ut-0-1
            t-0 ended Stopped/Stopped: Training job stopped
            t-0 release
            -> release ut-0-1
            t trial 0 ended Stopped with 0.5, the best; 0 not improving
            -> t observe 3: 0 ended Stopped
            t wish 4: 1 trials, 1 new
            -> t suggest 4: 1, 1 new
        8 released ut-0-1
            t-0 released
        9 judge t 2
            t wish 2 judged: 1 records
        10 judge t 3
            t wish 3 judged: 1 records
        11 suggest t 4 1:1
            t wish 4 answered: 1 records
            t-1 created: Starting the training job
            t-1 launched ut-1-1: 1 x 2 CPUs, 8.0 GiB, GPUs [], lease 4200 s: Preparing the instances for training
            -> launch ut-1-1 on 1
        12 ut-1-1/1 training
            t-1 algo-1 Training
            t-1 Downloading: Downloading input data
            t-1 Training: Training image download completed. Training in progress.
        13 ut-1-1/1 objective 1 0.4
            t-1 reported 0.4 after 1
            -> t observe 5: 1 reported 0.4 after 1
        14 judge t 5 1:pause
            t wish 5 judged: 1 records
            t-1 paused frozen: Paused after 1 units of resource, to make room for other training jobs
            -> freeze ut-1-1
            t wish 6: 1 trials, 1 new
            -> t suggest 6: 1, 1 new
        15 stop t-1
            t-1 stop by User: Stopping the training job
            -> stop ut-1-1 [1] within 120 s: the training job is being stopped
        16 ut-1-1/1 signal 15
            t-1 algo-1 ended: signal 15
            t-1 Uploading: Uploading generated training model
        17 ut-1-1/1 uploaded
            t-1 algo-1 uploaded
            t-1 uploads ended
            -> store ut-1-1 of [1]
        18 stored ut-1-1
            t-1 ended Stopped/Stopped: Training job stopped
            t-1 release
            -> release ut-1-1
            t trial 1 ended Stopped with 0.4, the best; 0 not improving
            -> t observe 7: 1 ended Stopped
        19 released ut-1-1
            t-1 released
        ",
    );
}

#[test]
fn a_trial_whose_objective_is_no_number_at_last_has_none() {
    check(
        laptop(),
        "
        0 tune t jobs=1
            t tuning created: 1 in parallel
            t wish 1: 1 trials, 1 new
            -> t suggest 1: 1, 1 new
        1 suggest t 1 0
            t wish 1 answered: 1 records
            t-0 created: Starting the training job
            t-0 launched ut-0-1: 1 x 2 CPUs, 8.0 GiB, GPUs [], lease 4200 s: Preparing the instances for training
            -> launch ut-0-1 on 1
        2 ut-0-1/1 objective 1 0.5
            t-0 reported 0.5 after 1
            -> t observe 2: 0 reported 0.5 after 1
        3 ut-0-1/1 objective 2 nan
            t-0 reported no number after 2
            -> t observe 3: 0 reported no number after 2
        4 ut-0-1/1 exit 0 loss:0.5@2
            t-0 algo-1 ended: exit 0 loss=0.5
            t-0 Downloading: Downloading input data
            t-0 Training: Training image download completed. Training in progress.
            t-0 Uploading: Uploading generated training model
        5 ut-0-1/1 uploaded
            t-0 algo-1 uploaded
            t-0 uploads ended
            -> store ut-0-1 of [1]
        6 stored ut-0-1
            t-0 ended Completed/Completed: Training job completed
            t-0 release
            -> release ut-0-1
            t trial 0 ended Completed with no number; 0 not improving
            -> t observe 4: 0 ended Failed
        ",
    );
}
