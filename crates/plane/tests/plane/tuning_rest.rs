//! Trials that make room, that use up their resource, and how long they ran.

use crate::{
    script::{check, laptop},
    tuning::{RUNS, check_from_running},
};

/// A trial that rests and whose memory is needed.
const PARKED: &str = "
        5 judge t 2 0:pause
            t wish 2 judged: 1 records
            t-0 paused frozen: Paused after 1 units of resource, to make room for other training jobs
            -> freeze ut-0-1
            t wish 3: 1 trials, 1 new
            -> t suggest 3: 1, 1 new
        6 create a m5.2xlarge 1
            a created: Starting the training job
            t-0 parked: Paused; its memory is wanted, and it will go on from its checkpoint
            -> stop ut-0-1 [1] within 5 s: the trial is paused
            a Pending: Waiting for capacity: needs 24.0 GiB of memory, 16.0 GiB free; 1st in the queue
";

#[test]
fn a_trial_that_is_stopped_while_it_makes_room_leaves_its_model() {
    check_from_running(&format!(
        "{PARKED}
        7 untune t
            t stopping: User
            t-0 stop by Tuning: Stopping the training job: its tuning job ends
        8 ut-0-1/1 signal 15                         # the end of a program that was told to end is no failure
            t-0 algo-1 ended: signal 15
            t-0 Uploading: Uploading generated training model
        9 ut-0-1/1 uploaded
            t-0 algo-1 uploaded
            t-0 uploads ended
            -> store ut-0-1 of [1]
        10 stored ut-0-1
            t-0 ended Stopped/Stopped: Training job stopped
            t-0 release
            -> release ut-0-1
            t trial 0 ended Stopped with 0.5, the best; 0 not improving
            t tuning ended Stopped: User
        "
    ));
    // Where its artifacts are being stored already, they are what it leaves.
    check_from_running(&format!(
        "{PARKED}
        8 ut-0-1/1 signal 15
            t-0 algo-1 ended: signal 15
        9 ut-0-1/1 uploaded
            t-0 algo-1 uploaded
            t-0 uploads ended
            -> store ut-0-1 of [1]
        10 untune t
            t stopping: User
            t-0 stop by Tuning: Stopping the training job: its tuning job ends
        11 stored ut-0-1
            t-0 ended Stopped/Stopped: Training job stopped
            t-0 release
            -> release ut-0-1
            t trial 0 ended Stopped with 0.5, the best; 0 not improving
            t tuning ended Stopped: User
        "
    ));
}

#[test]
fn a_trial_that_makes_room_is_waited_for_only_so_long() {
    // Its upload does not come.
    check_from_running(&format!(
        "{PARKED}
        1000 ut-0-1/1 signal 15
            t-0 algo-1 ended: signal 15
        301000 tick
            t-0 release
            -> release ut-0-1
        "
    ));
    // It cannot be stored.
    check_from_running(&format!(
        "{PARKED}
        8 ut-0-1/1 signal 15
            t-0 algo-1 ended: signal 15
        9 ut-0-1/1 uploaded
            t-0 algo-1 uploaded
            t-0 uploads ended
            -> store ut-0-1 of [1]
        10 unstored ut-0-1 no bucket
            t-0 release
            -> release ut-0-1
        "
    ));
}

#[test]
fn a_trial_that_goes_on_behind_its_last_unit_is_stopped_for_that() {
    let runs = RUNS.replace("checkpoints", "checkpoints max-resource=1");
    let then = "
        5 ut-0-1/1 objective 2 0.4
            t-0 reported 0.4 after 2
            -> t observe 3: 0 reported 0.4 after 2
        6 judge t 2
            t wish 2 judged: 1 records
            t-0 raised
            -> resume ut-0-1
        7 judge t 3 0:stop
            t wish 3 judged: 1 records
            t-0 stop by MaxResource: Stopping the training job: it reached MaxResource of its tuning job
            -> stop ut-0-1 [1] within 120 s: the trial reached MaxResource
    ";
    check(laptop(), &format!("{runs}{then}"));
}

#[test]
fn a_trial_that_has_gone_on_by_the_time_of_a_verdict_is_stopped_for_what_it_has_used() {
    let runs = RUNS.replace("checkpoints", "checkpoints max-resource=1");
    // Its report at its last unit is judged only after it has reported another.
    let then = "
        5 ut-0-1/1 objective 2 0.4
            t-0 reported 0.4 after 2
            -> t observe 3: 0 reported 0.4 after 2
        6 judge t 2 0:stop
            t wish 2 judged: 1 records
            t-0 stop by MaxResource: Stopping the training job: it reached MaxResource of its tuning job
            -> stop ut-0-1 [1] within 120 s: the trial reached MaxResource
    ";
    check(laptop(), &format!("{runs}{then}"));
}

#[test]
fn the_time_of_a_trial_is_the_time_that_it_ran() {
    check_from_running(
        "
        10003 judge t 2 0:pause                      # it ran for 10 s
            t wish 2 judged: 1 records
            t-0 paused frozen: Paused after 1 units of resource, to make room for other training jobs
            -> freeze ut-0-1
            t wish 3: 1 trials, 1 new
            -> t suggest 3: 1, 1 new
        400003 suggest t 3 resume:0
            t wish 3 answered: 1 records
            t-0 resumed: Resuming the training job
            t-0 thawed: Training resumed where it had paused
            -> resume ut-0-1
        405003 ut-0-1/1 exit 0
            t-0 algo-1 ended: exit 0
            t-0 Uploading: Uploading generated training model
        405003 ut-0-1/1 uploaded
            t-0 algo-1 uploaded
            t-0 uploads ended
            -> store ut-0-1 of [1]
        405003 stored ut-0-1
            t-0 ended Completed/Completed: Training job completed
            t-0 release
            -> release ut-0-1
            t trial 0 ended Completed with 0.5, the best; 0 not improving
            -> t observe 4: 0 ended Completed { values: [0.5] }
            t wish 5: 1 trials, 1 new
            -> t suggest 5: 1, 1 new
        view t-0
            Completed Completed ended=true created=1 modified=405003
            | Starting 1..3 Preparing the instances for training
            | Downloading 3..3 Downloading input data
            | Training 3..405003 Training resumed where it had paused
            | Uploading 405003..405003 Uploading generated training model
            | Completed 405003..405003 Training job completed
            trained 390003..405003 = 15 s, billed 15 s
        ",
    );
    // One that rests to the search's end has ended when it was paused.
    check_from_running(
        "
        10003 judge t 2 0:pause
            t wish 2 judged: 1 records
            t-0 paused frozen: Paused after 1 units of resource, to make room for other training jobs
            -> freeze ut-0-1
            t wish 3: 1 trials, 1 new
            -> t suggest 3: 1, 1 new
        400003 untune t
            t stopping: User
            t-0 stop by Tuning: Stopping the training job: its tuning job ends
            -> stop ut-0-1 [1] within 120 s: the tuning job ends
        400004 ut-0-1/1 signal 15
            t-0 algo-1 ended: signal 15
            t-0 Uploading: Uploading generated training model
        400005 ut-0-1/1 uploaded
            t-0 algo-1 uploaded
            t-0 uploads ended
            -> store ut-0-1 of [1]
        400006 stored ut-0-1
            t-0 ended Stopped/Stopped: Training job stopped
            t-0 release
            -> release ut-0-1
            t trial 0 ended Stopped with 0.5, the best; 0 not improving
            t tuning ended Stopped: User
        view t-0
            Stopped Stopped ended=true created=1 modified=400006
            | Starting 1..3 Preparing the instances for training
            | Downloading 3..3 Downloading input data
            | Training 3..400003 Paused after 1 units of resource, to make room for other training jobs
            | Stopping 400003..400004 Stopping the training job: its tuning job ends
            | Uploading 400004..400006 Uploading generated training model
            | Stopped 400006..400006 Training job stopped
            trained 3..10003 = 10 s, billed 10 s
        ",
    );
    // One whose memory was wanted meanwhile does not run until then.
    check_from_running(
        "
        10003 judge t 2 0:pause
            t wish 2 judged: 1 records
            t-0 paused frozen: Paused after 1 units of resource, to make room for other training jobs
            -> freeze ut-0-1
            t wish 3: 1 trials, 1 new
            -> t suggest 3: 1, 1 new
        400003 create a m5.2xlarge 1
            a created: Starting the training job
            t-0 parked: Paused; its memory is wanted, and it will go on from its checkpoint
            -> stop ut-0-1 [1] within 5 s: the trial is paused
            a Pending: Waiting for capacity: needs 24.0 GiB of memory, 16.0 GiB free; 1st in the queue
        400004 ut-0-1/1 signal 15
            t-0 algo-1 ended: signal 15
        400005 ut-0-1/1 uploaded
            t-0 algo-1 uploaded
            t-0 uploads ended
            -> store ut-0-1 of [1]
        400006 untune t
            t stopping: User
            t-0 stop by Tuning: Stopping the training job: its tuning job ends
        400007 stored ut-0-1
            t-0 ended Stopped/Stopped: Training job stopped
            t-0 release
            -> release ut-0-1
            t trial 0 ended Stopped with 0.5, the best; 0 not improving
            t tuning ended Stopped: User
        view t-0
            Stopped Stopped ended=true created=1 modified=400007
            | Starting 1..3 Preparing the instances for training
            | Downloading 3..3 Downloading input data
            | Training 3..400003 Paused after 1 units of resource, to make room for other training jobs
            | Starting 400003..400006 Paused; its memory is wanted, and it will go on from its checkpoint
            | Stopping 400006..400007 Stopping the training job: its tuning job ends
            | Stopped 400007..400007 Training job stopped
            trained 3..10003 = 10 s, billed 10 s
        ",
    );
}

/// A trial that runs and has reported once, of a definition whose trials are ended where they
/// pause.
fn parks(then: &str) {
    check(laptop(), &format!("{}{then}", RUNS.replace("checkpoints", "checkpoints parks")));
}

/// It has made room for the next, and its model is stored.
const RESTS: &str = "
        10003 judge t 2 0:pause                      # it ran for 10 s
            t wish 2 judged: 1 records
            t-0 paused unseen: Paused after 1 units of resource, to make room for other training jobs
            -> stop ut-0-1 [1] within 5 s: the trial is paused
        10004 ut-0-1/1 signal 15
            t-0 algo-1 ended: signal 15
        10005 ut-0-1/1 uploaded                      # it may never be resumed: what it left is stored
            t-0 algo-1 uploaded
            t-0 uploads ended
            -> store ut-0-1 of [1]
        10006 stored ut-0-1
            t-0 release
            -> release ut-0-1
        10007 released ut-0-1
            t-0 released
            t wish 3: 1 trials, 1 new
            -> t suggest 3: 1, 1 new
";

#[test]
fn a_trial_that_is_ended_where_it_pauses_has_the_statuses_of_a_frozen_one() {
    parks(&format!(
        "{RESTS}
        400003 suggest t 3 resume:0
            t wish 3 answered: 1 records
            t-0 resumed: Resuming the training job
            t-0 launched ut-0-2: 1 x 2 CPUs, 8.0 GiB, GPUs [], lease 4190 s: Training resumed where it had paused
            -> launch ut-0-2 on 1
        deadline
            1000003                                  # its instances are waited for
        400004 ut-0-2/1 downloading
            t-0 algo-1 Downloading
        deadline
            990004                                   # the pause is no run time
        400005 ut-0-2/1 training
            t-0 algo-1 Training
        400006 ut-0-2/1 objective 1 0.4
            t-0 reported 0.4 after 2
            -> t observe 4: 0 reported 0.4 after 2
        405004 ut-0-2/1 exit 0
            t-0 algo-1 ended: exit 0
            t-0 Uploading: Uploading generated training model
        405004 ut-0-2/1 uploaded
            t-0 algo-1 uploaded
            t-0 uploads ended
            -> store ut-0-2 of [1]
        405004 stored ut-0-2
            t-0 ended Completed/Completed: Training job completed
            t-0 release
            -> release ut-0-2
            t trial 0 ended Completed with 0.4, the best; 0 not improving
            -> t observe 5: 0 ended Completed {{ values: [0.4] }}
            t wish 6: 1 trials, 1 new
            -> t suggest 6: 1, 1 new
        view t-0
            Completed Completed ended=true created=1 modified=405004
            | Starting 1..3 Preparing the instances for training
            | Downloading 3..3 Downloading input data
            | Training 3..405004 Training resumed where it had paused
            | Uploading 405004..405004 Uploading generated training model
            | Completed 405004..405004 Training job completed
            trained 390004..405004 = 15 s, billed 15 s
        "
    ));
    // One that rests to the search's end has ended when it was paused, and its model is there.
    parks(&format!(
        "{RESTS}
        400003 untune t
            t stopping: User
            t-0 ended Stopped/Stopped: Training job stopped
            t-0 released
            t trial 0 ended Stopped with 0.5, the best; 0 not improving
            t tuning ended Stopped: User
            t tuning released
        "
    ));
}

#[test]
fn a_trial_that_goes_on_after_it_was_ended_may_have_to_wait() {
    parks(&format!(
        "{RESTS}
        20000 create a m5.2xlarge 1
            a created: Starting the training job
            a launched ua-1: 1 x 8 CPUs, 24.0 GiB, GPUs [], lease 90000 s: Preparing the instances for training (ml.m5.2xlarge capped to this machine: each instance has 24.0 GiB of memory instead of 32.0 GiB)
            -> launch ua-1 on 1
        20001 suggest t 3 resume:0
            t wish 3 answered: 1 records
            t-0 resumed: Resuming the training job
            t-0 Pending: Waiting for capacity: needs 8.0 GiB of memory, 0.0 GiB free; 1st in the queue
        20002 unlaunched ua-1 ClientError: no
            a ended Failed/Failed: ClientError: no
            a release
            -> release ua-1
        20003 released ua-1
            a released
            t-0 launched ut-0-2: 1 x 2 CPUs, 8.0 GiB, GPUs [], lease 4190 s: Preparing the instances for training
            -> launch ut-0-2 on 1
        20004 ut-0-2/1 training
            t-0 algo-1 Training
            t-0 Downloading: Downloading input data
            t-0 Training: Training image download completed. Training in progress.
        "
    ));
}

#[test]
fn a_trial_that_fails_where_it_goes_on_begins_with_starting() {
    parks(&format!(
        "{RESTS}
        20000 suggest t 3 resume:0
            t wish 3 answered: 1 records
            t-0 resumed: Resuming the training job
            t-0 launched ut-0-2: 1 x 2 CPUs, 8.0 GiB, GPUs [], lease 4190 s: Training resumed where it had paused
            -> launch ut-0-2 on 1
        620000 tick
            t-0 attempt failed: Starting the training job again, retry 1 of 1: InternalServerError: no instance reported within 600 s of its launch
            t-0 release
            -> release ut-0-2
        "
    ));
}
