//! Scenarios of tuning jobs.

use shoal_plane::{
    AttemptId, Catalog, Command, Event, Fact, Host, InstanceReport, RankEnd, State, Time, TunerRequest, TuningEnd,
    TuningSpec, step,
};

use crate::{
    script::{check, laptop},
    tuning_script::{command, spec},
};

#[test]
fn trials_are_suggested_run_and_told_until_all_have_ended() {
    check(
        laptop(),
        "
        0 tune t jobs=2
            t tuning created: 1 in parallel
            t wish 1: 1 trials, 1 new
            -> t suggest 1: 1, 1 new
        1 suggest t 1 0
            t wish 1 answered: 1 records
            t-0 created: Starting the training job
            t-0 launched ut-0-1: 1 x 2 CPUs, 8.0 GiB, GPUs [], lease 4200 s: Preparing the instances for training
            -> launch ut-0-1 on 1
        2 suggest t 1 1                              # it is answered already
        3 ut-0-1/1 training
            t-0 algo-1 Training
            t-0 Downloading: Downloading input data
            t-0 Training: Training image download completed. Training in progress.
        4 ut-0-1/1 objective 1 0.5
            t-0 reported 0.5 after 1
            -> t observe 2: 0 reported 0.5 after 1
        5 ut-0-1/1 objective 1 0.5                   # it comes again
        pending
            -> t observe 2: 0 reported 0.5 after 1
        6 judge t 2
            t wish 2 judged: 1 records
        10 ut-0-1/1 exit 0
            t-0 algo-1 ended: exit 0
            t-0 Uploading: Uploading generated training model
        11 ut-0-1/1 uploaded
            t-0 algo-1 uploaded
            t-0 uploads ended
            -> store ut-0-1 of [1]
        12 stored ut-0-1
            t-0 ended Completed/Completed: Training job completed
            t-0 release
            -> release ut-0-1
            t trial 0 ended Completed with 0.5, the best; 0 not improving
            -> t observe 3: 0 ended Completed { values: [0.5] }
            t wish 4: 1 trials, 1 new
            -> t suggest 4: 1, 1 new
        13 released ut-0-1
            t-0 released
        14 judge t 3
            t wish 3 judged: 1 records
        15 suggest t 4 1
            t wish 4 answered: 1 records
            t-1 created: Starting the training job
            t-1 launched ut-1-1: 1 x 2 CPUs, 8.0 GiB, GPUs [], lease 4200 s: Preparing the instances for training
            -> launch ut-1-1 on 1
        16 unlaunched ut-1-1 ClientError: no
            t-1 ended Failed/Failed: ClientError: no
            t-1 release
            -> release ut-1-1
            t trial 1 ended NonRetryableError with no number; 0 not improving
            -> t observe 5: 1 ended Failed
        17 judge t 5
            t wish 5 judged: 1 records
            t tuning ended Completed: Finished
        18 released ut-1-1
            t-1 released
            t tuning released
        ",
    );
}

/// A trial that runs and has reported once; its report is wish 2.
pub(crate) const RUNS: &str = "
        0 tune t jobs=9 checkpoints
            t tuning created: 1 in parallel
            t wish 1: 1 trials, 1 new
            -> t suggest 1: 1, 1 new
        1 suggest t 1 0:1
            t wish 1 answered: 1 records
            t-0 created: Starting the training job
            t-0 launched ut-0-1: 1 x 2 CPUs, 8.0 GiB, GPUs [], lease 4200 s: Preparing the instances for training
            -> launch ut-0-1 on 1
        3 ut-0-1/1 training
            t-0 algo-1 Training
            t-0 Downloading: Downloading input data
            t-0 Training: Training image download completed. Training in progress.
        4 ut-0-1/1 objective 1 0.5
            t-0 reported 0.5 after 1
            -> t observe 2: 0 reported 0.5 after 1
";

pub(crate) fn check_from_running(then: &str) {
    check(laptop(), &format!("{RUNS}{then}"));
}

#[test]
fn a_verdict_stops_a_trial_early() {
    check_from_running(
        "
        5 judge t 2 0:stop
            t wish 2 judged: 1 records
            t-0 stop by Early: Stopping the training job early: others of its tuning job are more promising
            -> stop ut-0-1 [1] within 120 s: others are more promising
        6 ut-0-1/1 signal 15
            t-0 algo-1 ended: signal 15
            t-0 Uploading: Uploading generated training model
        7 ut-0-1/1 uploaded
            t-0 algo-1 uploaded
            t-0 uploads ended
            -> store ut-0-1 of [1]
        8 stored ut-0-1
            t-0 ended Stopped/Stopped: Training job stopped
            t-0 release
            -> release ut-0-1
            t trial 0 ended Stopped with 0.5, the best; 0 not improving
            -> t observe 3: 0 ended Stopped
            t wish 4: 1 trials, 1 new
            -> t suggest 4: 1, 1 new
        ",
    );
}

#[test]
fn a_trial_that_is_not_named_at_its_limit_goes_on() {
    check_from_running(
        "
        5 judge t 2
            t wish 2 judged: 1 records
            t-0 raised
            -> resume ut-0-1
        6 ut-0-1/1 objective 2 nan
            t-0 reported no number after 2
            -> t observe 3: 0 reported no number after 2
        7 judge t 3 0:go:4
            t wish 3 judged: 1 records
            t-0 raised up to 4
            -> resume ut-0-1 up to 4
        pending
            -> resume ut-0-1 up to 4
        ",
    );
}

#[test]
fn a_paused_trial_rests_frozen_makes_room_and_goes_on() {
    check_from_running(
        "
        5 judge t 2 0:pause
            t wish 2 judged: 1 records
            t-0 paused frozen: Paused after 1 units of resource, to make room for other training jobs
            -> freeze ut-0-1
            t wish 3: 1 trials, 1 new
            -> t suggest 3: 1, 1 new
        6 ut-0-1/1 objective 2 0.4                   # it ran a little further: its own, and no news
            t-0 reported 0.4 after 2
        1000 suggest t 3 resume:0:3
            t wish 3 answered: 1 records
            t-0 resumed up to 3: Resuming the training job
            t-0 thawed: Training resumed where it had paused
            -> resume ut-0-1 up to 3
        1001 ut-0-1/1 objective 3 0.3
            t-0 reported 0.3 after 3
            -> t observe 4: 0 reported 0.3 after 3
        deadline
            600998                                   # the pause is no run time
        1002 judge t 4 0:pause
            t wish 4 judged: 1 records
            t-0 paused frozen: Paused after 3 units of resource, to make room for other training jobs
            -> freeze ut-0-1
            t wish 5: 1 trials, 1 new
            -> t suggest 5: 1, 1 new
        1003 create a m5.2xlarge 1                   # all of the memory
            a created: Starting the training job
            t-0 parked: Paused; its memory is wanted, and it will go on from its checkpoint
            -> stop ut-0-1 [1] within 5 s: the trial is paused
            a Pending: Waiting for capacity: needs 24.0 GiB of memory, 16.0 GiB free; 1st in the queue
        1004 ut-0-1/1 signal 15
            t-0 algo-1 ended: signal 15
        1004 ut-0-1/1 uploaded                       # it may never be resumed: what it left is stored
            t-0 algo-1 uploaded
            t-0 uploads ended
            -> store ut-0-1 of [1]
        1005 suggest t 5 resume:0
            t wish 5 answered: 1 records
            t-0 resumed: Resuming the training job
        1005 stored ut-0-1
            t-0 release
            -> release ut-0-1
        1006 released ut-0-1
            t-0 released
            a launched ua-1: 1 x 8 CPUs, 24.0 GiB, GPUs [], lease 90000 s: Preparing the instances for training (ml.m5.2xlarge capped to this machine: each instance has 24.0 GiB of memory instead of 32.0 GiB)
            -> launch ua-1 on 1
            t-0 Pending: Waiting for capacity: needs 8.0 GiB of memory, 0.0 GiB free; 1st in the queue
        1007 unlaunched ua-1 ClientError: no
            a ended Failed/Failed: ClientError: no
            a release
            -> release ua-1
        1008 released ua-1
            a released
            t-0 launched ut-0-2: 1 x 2 CPUs, 8.0 GiB, GPUs [], lease 4200 s: Preparing the instances for training
            -> launch ut-0-2 on 1
        1009 ut-0-2/1 training
            t-0 algo-1 Training
            t-0 Downloading: Downloading input data
            t-0 Training: Training image download completed. Training in progress.
        1010 ut-0-2/1 objective 1 0.2
            t-0 reported 0.2 after 4
            -> t observe 6: 0 reported 0.2 after 4
        ",
    );
}

#[test]
fn a_tuning_job_that_is_stopped_stops_its_trials_and_asks_nothing_more() {
    check_from_running(
        "
        5 untune t
            t stopping: User
            t-0 stop by Tuning: Stopping the training job: its tuning job ends
            -> stop ut-0-1 [1] within 120 s: the tuning job ends
        pending
            -> stop ut-0-1 [1] within 120 s: the tuning job ends
        6 untune t
        7 judge t 2 0:pause                          # nobody awaits it any more
        8 ut-0-1/1 objective 2 0.4
            t-0 reported 0.4 after 2
        9 ut-0-1/1 signal 15
            t-0 algo-1 ended: signal 15
            t-0 Uploading: Uploading generated training model
        10 ut-0-1/1 uploaded
            t-0 algo-1 uploaded
            t-0 uploads ended
            -> store ut-0-1 of [1]
        11 stored ut-0-1
            t-0 ended Stopped/Stopped: Training job stopped
            t-0 release
            -> release ut-0-1
            t trial 0 ended Stopped with 0.4, the best; 0 not improving
            t tuning ended Stopped: User
        12 untune t
            refused: The request was rejected because the hyperparameter tuning job is in status Stopped.
        13 released ut-0-1
            t-0 released
            t tuning released
        14 untune t
            refused: Amazon SageMaker can't find a tuning job called t. Type another name.
        ",
    );
}

#[test]
fn an_objective_that_never_appears_fails_the_tuning_job_after_the_first_trial() {
    check(
        laptop(),
        "
        0 tune t jobs=9 parallel=2
            t tuning created: 2 in parallel
            t wish 1: 2 trials, 2 new
            -> t suggest 1: 2, 2 new
        1 suggest t 1 0
            t wish 1 answered: 1 records
            t-0 created: Starting the training job
            t wish 2: 1 trials, 1 new
            -> t suggest 2: 1, 1 new
            t-0 launched ut-0-1: 1 x 2 CPUs, 8.0 GiB, GPUs [], lease 4200 s: Preparing the instances for training
            -> launch ut-0-1 on 1
        2 suggest t 2 wait
            t wish 2 answered: 0 records, waits
        3 ut-0-1/1 exit 0
            t-0 algo-1 ended: exit 0
            t-0 Downloading: Downloading input data
            t-0 Training: Training image download completed. Training in progress.
            t-0 Uploading: Uploading generated training model
        4 ut-0-1/1 uploaded
            t-0 algo-1 uploaded
            t-0 uploads ended
            -> store ut-0-1 of [1]
        5 stored ut-0-1
            t-0 ended Completed/Completed: Training job completed
            t-0 release
            -> release ut-0-1
            t trial 0 ended Completed with no number; 0 not improving
            -> t observe 3: 0 ended Failed
            t tuning ended Failed: NoObjective: No objective metrics found after running 1 training job: the objective metric loss never appeared in the output of the first training job that completed. Check that its metric definition's regular expression matches what the program prints.
        ",
    );
}

#[test]
fn a_search_that_cannot_go_on_fails_the_tuning_job() {
    check(
        laptop(),
        "
        0 tune t jobs=2
            t tuning created: 1 in parallel
            t wish 1: 1 trials, 1 new
            -> t suggest 1: 1, 1 new
        1 unable t 9                                 # nobody waits for that
        2 unable t 1
            t tuning ended Failed: Search: The search for hyperparameters cannot go on: no training job can be made.
            t tuning released
        3 unable t 1                                 # it is over already
        ",
    );
    check(
        laptop(),
        "
        0 tune t jobs=3 parallel=2
            t tuning created: 2 in parallel
            t wish 1: 2 trials, 2 new
            -> t suggest 1: 2, 2 new
        1 suggest t 1 0
            t wish 1 answered: 1 records
            t-0 created: Starting the training job
            t wish 2: 1 trials, 1 new
            -> t suggest 2: 1, 1 new
            t-0 launched ut-0-1: 1 x 2 CPUs, 8.0 GiB, GPUs [], lease 4200 s: Preparing the instances for training
            -> launch ut-0-1 on 1
        2 unable t 2
            t stopping: Search: The search for hyperparameters cannot go on: no training job can be made.
            t-0 ended Stopped/Stopped: Training job stopped
            t-0 release
            -> release ut-0-1
            t trial 0 ended Stopped with no number; 0 not improving
            t tuning ended Failed: Search: The search for hyperparameters cannot go on: no training job can be made.
        ",
    );
}

/// What ends a tuning job whose trials report these values and complete, one after the other.
fn end_of(options: &[&str], values: &[f64]) -> (u32, Option<TuningEnd>) {
    let mut state = State::new(laptop(), Catalog::default());
    let say = |state: &mut State, command: &Command| {
        let sane = |state: &State, _: Event, _| state.sanity_check().expect("sane");
        step(state, command, Time(1000), &mut |state, event, effects| sane(state, event, effects))
            .expect("not refused");
    };
    say(&mut state, &command(&[&["tune", "t"], options].concat()).expect("a command"));
    for (trial, value) in values.iter().enumerate() {
        let asked = |state: &State| {
            state.pending().requests.into_iter().find_map(|request| match request {
                TunerRequest::Ask { seq, .. } => Some(seq),
                TunerRequest::Tell { .. } => None,
            })
        };
        while let Some(TunerRequest::Tell { seq, .. }) = state.pending().requests.first() {
            say(&mut state, &Command::Judged { tuning: "t".into(), seq: *seq, records: vec![], converged: false });
        }
        let Some(seq) = asked(&state) else { break };
        say(&mut state, &command(&["suggest", "t", &seq.to_string(), &trial.to_string()]).expect("a command"));
        let attempt = AttemptId::from(format!("ut-{trial}-1"));
        let reports = [
            InstanceReport::Training,
            InstanceReport::Objective { ordinal: 1, value: *value },
            InstanceReport::RankEnded {
                end: RankEnd {
                    code: Some(0),
                    signal: None,
                    out_of_memory: false,
                    crowded_out: None,
                    failure_file: None,
                    stderr_tail: String::new(),
                    at: Time(1000),
                },
                final_metrics: vec![],
            },
            InstanceReport::Uploaded,
        ];
        for report in reports {
            say(&mut state, &Command::InstanceReported { attempt: attempt.clone(), host: Host(1), report });
        }
        say(&mut state, &Command::ArtifactsStored { attempt: attempt.clone() });
        say(&mut state, &Command::Released { attempt });
    }
    state.tuning("t").map_or((u32::try_from(values.len()).expect("few"), None), |view| (view.started, view.end))
}

#[test]
fn completion_criteria_end_it() {
    // It is gone once its last training job is released: the trials are counted by what is left to
    // try.
    assert_eq!(end_of(&["jobs=9"], &[3.0, 2.0]), (2, None));
    let best_by_much = [100.0, 90.0, 89.9, 89.8, 89.7];
    let (started, _) = end_of(&["jobs=9", "not_improving=3"], &best_by_much);
    assert_eq!(started, 5);
    // Steps of less than 1 % add up.
    let by_steps = [100.0, 99.4, 98.8, 98.2, 97.6, 97.0];
    assert_eq!(end_of(&["jobs=9", "not_improving=3"], &by_steps), (6, None));
}

#[test]
fn two_tuning_jobs_share_the_machine_and_a_training_job_comes_first() {
    // Each trial takes a third of the memory. Trials of one have filled the machine and the queue
    // when the other comes.
    let mut state = State::new(laptop(), Catalog::default());
    let mut launched = Vec::new();
    let mut say = |state: &mut State, command: &Command| {
        step(state, command, Time(1000), &mut |state, event, _| {
            state.sanity_check().expect("sane");
            if matches!(event.fact, Fact::AttemptLaunched { .. }) {
                launched.push(event.name);
            }
        })
        .expect("not refused");
    };
    let script = |words: &str| command(&words.split(' ').collect::<Vec<_>>()).expect("a command");
    for name in ["a", "b"] {
        say(&mut state, &script(&format!("tune {name} jobs=6 parallel=6")));
        say(&mut state, &script(&format!("suggest {name} 1 0 1 2 3 4 5")));
    }
    let TuningSpec { definitions, .. } = spec(&[]);
    let training = Command::CreateTrainingJob {
        name: "alone".into(),
        uid: "ualone".to_owned(),
        spec: definitions[0].training.clone(),
        name_taken: false,
    };
    say(&mut state, &training);
    for trial in 0..3 {
        let attempt = AttemptId::from(format!("ua-{trial}-1"));
        say(&mut state, &Command::LaunchFailed { attempt: attempt.clone(), reason: "ClientError: no".to_owned() });
        say(&mut state, &Command::Released { attempt });
    }
    assert_eq!(launched, ["a-0", "a-1", "a-2", "b-0", "alone", "a-3"]);
}
