//! Gangs that lose and gain instances while the others run.

use crate::script::{check, laptop};

/// Four instances, of which two are enough, have begun to train.
const ALL_TRAIN: &str = "
    0 create a m5.large 4 min=2 max_runtime=1000
    10 ua-1/1 training
    10 ua-1/2 training
    10 ua-1/3 training
    20 ua-1/4 training
";

/// The fourth is lost then, and another one starts in its place.
const FOURTH_STARTS: &str = "
    1000 ua-1/4 lost x
    1000 cleared ua-1 4
    2000 tick
";

#[track_caller]
fn after_all_train(rest: &str) {
    check(laptop(), &format!("{ALL_TRAIN} then\n {rest}"));
}

#[track_caller]
fn while_the_fourth_starts(rest: &str) {
    check(laptop(), &format!("{ALL_TRAIN} {FOURTH_STARTS} then\n {rest}"));
}

#[test]
fn a_lost_instance_is_replaced_after_a_pause_that_doubles() {
    after_all_train(
        "
        1000 ua-1/3 lost the agent was killed
            a algo-3 lost: the agent was killed
            a vacated [3]: Training on 3 of 4 instances: algo-3 was lost (the agent was killed)
            -> members of ua-1 are [1, 2, 4]
            -> clear ua-1 [3]
        1100 ua-1/3 training
        1500 cleared ua-1 3
            a cleared [3], until Some(2500)
        deadline
            2500
        2500 tick
            a replacement of [3]
            a added [3], GPUs [[]]: Training on 3 of 4 instances: algo-3 is being added
            -> launch ua-1 [3] to join
            -> members of ua-1 are [1, 2, 3, 4]
        2600 ua-1/3 training
            a algo-3 Training
        3000 ua-1/3 lost again
            a algo-3 lost: again
            a vacated [3]: Training on 3 of 4 instances: algo-3 was lost (again)
            -> members of ua-1 are [1, 2, 4]
            -> clear ua-1 [3]
        3000 cleared ua-1 3
            a cleared [3], until Some(5000)
        pending
            -> members of ua-1 are [1, 2, 4]
        4000 ua-1/1 exit 0
            a algo-1 ended: exit 0
        4000 ua-1/2 exit 0
            a algo-2 ended: exit 0
        4000 ua-1/4 exit 0
            a algo-4 ended: exit 0
            a Uploading: Uploading generated training model
        4100 ua-1/1 uploaded
            a algo-1 uploaded
        4100 ua-1/2 uploaded
            a algo-2 uploaded
        4100 ua-1/4 uploaded
            a algo-4 uploaded
            a uploads ended
            -> store ua-1 of [1, 2, 4]
        ",
    );
}

#[test]
fn the_head_of_the_queue_gets_what_a_job_can_live_without_and_gives_it_back() {
    check(
        laptop(),
        "
        0 create a m5.xlarge 4 min=2 max_runtime=1000
        0 ua-1/1 training
        0 ua-1/2 training
        0 ua-1/3 training
        0 ua-1/4 training
        then
        1000 create b m5.large 1
            b created: Starting the training job
            a interrupted [3, 4]: Training on 2 of 4 instances: algo-3, algo-4 were needed by the training job at the head of the queue
            -> members of ua-1 are [1, 2]
            -> interrupt ua-1 [3, 4] after 5 s within 120 s
            b Pending: Waiting for capacity: needs 8.0 GiB of memory, 0.0 GiB free; 1st in the queue
        2000 ua-1/4 exit 0
            a vacated [4]: left
            -> clear ua-1 [4]
        deadline
            156000
        2500 ua-1/3 signal 15
            a vacated [3]: left
            -> clear ua-1 [3]
        2600 cleared ua-1 4
            a cleared [4], until None
        2600 cleared ua-1 3 4
            a cleared [3], until None
            b launched ub-1: 1 x 1 CPUs, 8.0 GiB, GPUs [], lease 90000 s: Preparing the instances for training
            -> launch ub-1 on 1
        2700 ua-1/3 downloading
        2800 ub-1/1 lost x
            b algo-1 lost: x
            b ended Failed/Failed: InternalServerError: algo-1: x
            b release
            -> release ub-1
        2900 released ub-1
            b released
            a added [3, 4], GPUs [[], []]: Training on 2 of 4 instances: algo-3, algo-4 are being added
            -> launch ua-1 [3, 4] to join
            -> members of ua-1 are [1, 2, 3, 4]
        ",
    );
}

#[test]
fn it_needs_its_first_instance_and_the_least_number() {
    after_all_train(
        "
        1000 ua-1/1 lost x
            a algo-1 lost: x
        3000 tick
            a ended Failed/Failed: InternalServerError: algo-1: x
            -> stop ua-1 [2, 3, 4] within 5 s: InternalServerError: algo-1: x
        ",
    );
    after_all_train(
        "
        1000 interrupt a 3
            refused: 3 instances of the training job a cannot be interrupted now, only 2: a job keeps the number of instances of its tag shoal:min-instances, all without the tag, and all before each of its programs has run
        1000 interrupt a
            a interrupted [4]: Training on 3 of 4 instances: algo-4 was interrupted
            -> members of ua-1 are [1, 2, 3]
            -> interrupt ua-1 [4] after 5 s within 120 s
        1000 ua-1/3 lost x
            a algo-3 lost: x
            a vacated [3]: Training on 2 of 4 instances: algo-3 was lost (x)
            -> members of ua-1 are [1, 2]
            -> clear ua-1 [3]
        1100 ua-1/2 lost y
            a algo-2 lost: y
        3100 tick
            a ended Failed/Failed: InternalServerError: algo-2: y
            -> stop ua-1 [1] within 5 s: InternalServerError: algo-2: y
        ",
    );
}

#[test]
fn an_instance_that_does_not_leave_is_removed() {
    after_all_train(
        "
        1000 interrupt a
            a interrupted [4]: Training on 3 of 4 instances: algo-4 was interrupted
            -> members of ua-1 are [1, 2, 3]
            -> interrupt ua-1 [4] after 5 s within 120 s
        156000 tick
            a vacated [4]: left
            -> clear ua-1 [4]
        ",
    );
}

#[test]
fn what_joins_when_the_training_is_done_is_no_failure() {
    while_the_fourth_starts(
        "
        2100 ua-1/4 training
            a algo-4 Training
        2200 ua-1/1 exit 0
            a algo-1 ended: exit 0
        2210 ua-1/4 exit 1
            a algo-4 ended: exit 1
            a vacated [4]: Training on 3 of 4 instances: algo-4 was lost (the program that joined the others failed)
            -> members of ua-1 are [1, 2, 3]
            -> clear ua-1 [4]
        2220 ua-1/2 exit 0
            a algo-2 ended: exit 0
        2220 ua-1/3 exit 0
            a algo-3 ended: exit 0
            a Uploading: Uploading generated training model
        2300 stop a
            a stop by User: Stopping the training job
            -> stop ua-1 [1, 2, 3] within 120 s: the training job is being stopped
        ",
    );
}

#[test]
fn an_instance_that_cannot_be_added_is_lost() {
    after_all_train(
        "
        1000 interrupt a
            a interrupted [4]: Training on 3 of 4 instances: algo-4 was interrupted
            -> members of ua-1 are [1, 2, 3]
            -> interrupt ua-1 [4] after 5 s within 120 s
        1001 ua-1/4 exit 0
            a vacated [4]: left
            -> clear ua-1 [4]
        1002 cleared ua-1 4
            a cleared [4], until None
            a added [4], GPUs [[]]: Training on 3 of 4 instances: algo-4 is being added
            -> launch ua-1 [4] to join
            -> members of ua-1 are [1, 2, 3, 4]
        1003 unlaunched ua-1 no such program
            a algo-4 lost: no such program
            a vacated [4]: Training on 3 of 4 instances: algo-4 was lost (no such program)
            -> members of ua-1 are [1, 2, 3]
            -> clear ua-1 [4]
        ",
    );
}

#[test]
fn a_stop_does_not_wait_for_instances_that_are_being_added() {
    while_the_fourth_starts(
        "
        2100 stop a
            a stop by User: Stopping the training job
            -> stop ua-1 [1, 2, 3, 4] within 120 s: the training job is being stopped
            a vacated [4]: left
        2200 ua-1/1 exit 0
            a algo-1 ended: exit 0
        2200 ua-1/2 exit 0
            a algo-2 ended: exit 0
        2200 ua-1/3 exit 0
            a algo-3 ended: exit 0
            a Uploading: Uploading generated training model
        2300 ua-1/4 training
        2300 ua-1/1 uploaded
            a algo-1 uploaded
        2300 ua-1/2 uploaded
            a algo-2 uploaded
        2300 ua-1/3 uploaded
            a algo-3 uploaded
            a uploads ended
            -> store ua-1 of [1, 2, 3]
        ",
    );
}

#[test]
fn a_program_that_fails_fails_the_job() {
    after_all_train(
        "
        1000 ua-1/4 exit 1 stderr=bad
            a algo-4 ended: exit 1
        3000 tick
            a ended Failed/Failed: AlgorithmError: algo-4: bad, exit code: 1
            -> stop ua-1 [1, 2, 3] within 5 s: AlgorithmError: algo-4: bad, exit code: 1
        ",
    );
}
