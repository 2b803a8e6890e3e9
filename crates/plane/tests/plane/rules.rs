//! Rules that instances evaluate: what a job's view shows of them, and stops by their actions.

use crate::script::{check, laptop};

#[test]
fn a_rule_whose_action_stops_the_job_does_so_once() {
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
        20 ua-1/1 rule loss none stops it fell
            a algo-1 evaluated loss: NoIssuesFound: it fell
        30 ua-1/1 rule nan issues stops w is NaN
            a algo-1 evaluated nan: IssuesFound: w is NaN
            a stop by Rule: Stopping the training job: the condition of a rule was met, whose action stops it
            -> stop ua-1 [1] within 120 s: the condition of a rule was met
        31 ua-1/1 rule nan issues stops w is NaN # repeated
            a algo-1 evaluated nan: IssuesFound: w is NaN
        40 ua-1/1 exit 1
            a algo-1 ended: exit 1
            a Uploading: Uploading generated training model
        50 ua-1/1 uploaded
            a algo-1 uploaded
            a uploads ended
            -> store ua-1 of [1]
        60 stored ua-1
            a ended Stopped/Stopped: Training job stopped
            a release
            -> release ua-1
        61 ua-1/1 rule late error nothing was saved
            a algo-1 evaluated late: Error: nothing was saved
        view a
            Stopped Stopped ended=true created=0 modified=61
            | Starting 0..10 Preparing the instances for training
            | Downloading 10..10 Downloading input data
            | Training 10..30 Training image download completed. Training in progress.
            | Stopping 30..40 Stopping the training job: the condition of a rule was met, whose action stops it
            | Uploading 40..60 Uploading generated training model
            | Stopped 60..60 Training job stopped
            trained 10..60 = 1 s, billed 1 s
            rule late: Error at 61: nothing was saved
            rule loss: NoIssuesFound at 20: it fell
            rule nan: IssuesFound at 30: w is NaN
        70 released ua-1
            a released
        71 ua-1/1 rule later none
    ",
    );
}

#[test]
fn issues_without_an_action_and_those_of_ended_programs_stop_nothing() {
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
        20 ua-1/1 rule loss issues it rose
            a algo-1 evaluated loss: IssuesFound: it rose
        30 ua-1/1 exit 0
            a algo-1 ended: exit 0
            a Uploading: Uploading generated training model
        31 ua-1/1 rule nan issues stops w is NaN
            a algo-1 evaluated nan: IssuesFound: w is NaN
    ",
    );
}
