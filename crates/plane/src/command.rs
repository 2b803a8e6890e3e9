//! What is asked of the core.

use std::collections::BTreeMap;

use crate::{
    AttemptId, GangSpec, Host, JobName, JobStatus, MetricValue, RankEnd, RuleVerdict, StopCause, StudyRecord,
    TuningName, TuningSpec, TuningStatus,
};

/// A request or a report: [`crate::decide()`] says what follows from it.
#[derive(Debug, Clone, PartialEq)]
pub enum Command {
    /// A validated request to train; or for instances that serve until they are stopped
    /// ([`crate::Form::Serves`]), to which no operation of AWS's leads yet.
    CreateTrainingJob {
        /// Training job's name.
        name: JobName,
        /// Random, from outside; attempts are named `<uid>-<number>`.
        uid: String,
        /// What the core decides on.
        spec: GangSpec,
        /// An ended job of this name exists (the shell knows; live ones the core knows itself).
        name_taken: bool,
    },
    /// `StopTrainingJob`, or the end of a budget.
    StopTrainingJob {
        /// Training job's name.
        name: JobName,
        /// [`StopCause::User`] or [`StopCause::Budget`].
        cause: StopCause,
        /// Status of an ended job of this name that is no longer in the hot state (the shell knows
        /// from its row).
        ended: Option<JobStatus>,
    },
    /// Take the instances of a managed spot training away, as its provider would: its programs have
    /// the grace to save checkpoints, and it goes on from those when it has instances again.
    InterruptTrainingJob {
        /// Training job's name.
        name: JobName,
        /// Take only this number of instances away; the others continue. None: one of a job that
        /// can live with fewer, else all.
        instances: Option<u32>,
        /// As in `StopTrainingJob`.
        ended: Option<JobStatus>,
    },
    /// A validated request to tune.
    CreateTuningJob {
        /// Tuning job's name.
        name: TuningName,
        /// Random, from outside.
        uid: String,
        /// What the core decides on.
        spec: Box<TuningSpec>,
        /// An ended tuning job of this name exists (the shell knows; live ones the core knows
        /// itself).
        name_taken: bool,
    },
    /// `StopHyperParameterTuningJob`.
    StopTuningJob {
        /// Tuning job's name.
        name: TuningName,
        /// Status of an ended tuning job of this name that is no longer in the hot state (the shell
        /// knows from its row).
        ended: Option<TuningStatus>,
    },
    /// Raise or lower how many trials may run at once.
    ChangeParallel {
        /// Tuning job's name.
        name: TuningName,
        /// At least 1.
        max_parallel: u32,
        /// As in `StopTuningJob`.
        ended: Option<TuningStatus>,
    },
    /// The tuner's answer to [`crate::TunerRequest::Ask`]: what its studies recorded. Trials that
    /// it starts or lets go on are read off the records; an [`shoal_tuner::Ask::End`] says that
    /// there will be none of that definition any more. With fewer trials than wanted and no `waits`
    /// it is asked again. An answer that is not awaited, or not any more, changes nothing.
    Suggested {
        /// Tuning job's name.
        tuning: TuningName,
        /// Which request.
        seq: u64,
        /// In order; trials of elsewhere (warm start) before the first answer.
        records: Vec<StudyRecord>,
        /// The training jobs of the new trials; their names must not be taken by ended ones.
        children: Vec<Child>,
        /// Its studies have nothing to do for an idle place until something happens.
        waits: bool,
    },
    /// The tuner has taken [`crate::TunerRequest::Tell`].
    Judged {
        /// Tuning job's name.
        tuning: TuningName,
        /// Which request.
        seq: u64,
        /// What it came to, with verdicts; none if it was no news to the study.
        records: Vec<StudyRecord>,
        /// The best is unlikely to be improved by 1 % or more.
        converged: bool,
    },
    /// The tuner cannot answer, and never will: no training job can be made of what was suggested,
    /// or the study cannot be opened. The tuning job fails. An answer that is not awaited, or not
    /// any more, changes nothing.
    SearchFailed {
        /// Tuning job's name.
        tuning: TuningName,
        /// Which request.
        seq: u64,
        /// For the failure reason: a sentence.
        reason: String,
    },
    /// How much memory attempts use now, and how much nodes lack. Seldom journalled: only what is
    /// decided of it is.
    MemoryMeasured {
        /// By attempt, in bytes; those that are not named are taken to use what they did.
        used: BTreeMap<AttemptId, u64>,
        /// By the names of nodes that lack memory, bytes that must be given back there, or the
        /// kernel will choose what to kill.
        lacking: BTreeMap<String, u64>,
    },
    /// Time has passed: deadlines ([`crate::State::next_deadline`]).
    Tick,
    /// The launcher could not start an attempt's agents.
    LaunchFailed {
        /// Which.
        attempt: AttemptId,
        /// For the failure reason; one that starts with `ClientError: ` or `AlgorithmError: ` keeps
        /// its kind, anything else is an `InternalServerError`.
        reason: String,
    },
    /// An attempt's agents cannot be started yet, through no fault of theirs: the time to report
    /// counts from now on. Said again while that lasts.
    LaunchDelayed {
        /// Which.
        attempt: AttemptId,
        /// For the status message.
        reason: String,
    },
    /// The attempt's agents wait for capacity elsewhere, in the queue of a compute target: that has
    /// no time limit but the job's own.
    LaunchQueued {
        /// Attempt id.
        attempt: AttemptId,
        /// The target's reason; `None`: its agents are being started, and the time to report counts
        /// from now on. The same reason again is no event.
        reason: Option<String>,
    },
    /// An agent says something. Late, repeated and unknown reports are fine: they yield no event.
    InstanceReported {
        /// Which.
        attempt: AttemptId,
        /// Host number, from 1.
        host: Host,
        /// What.
        report: InstanceReport,
    },
    /// Nothing is left of these instances of an attempt that runs.
    InstancesCleared {
        /// Attempt id.
        attempt: AttemptId,
        /// Host numbers, from 1.
        hosts: Vec<Host>,
    },
    /// `model.tar.gz` (and `output.tar.gz`) of an attempt are stored.
    ArtifactsStored {
        /// Which.
        attempt: AttemptId,
    },
    /// They could not be stored.
    ArtifactsFailed {
        /// Which.
        attempt: AttemptId,
        /// For the failure reason.
        reason: String,
    },
    /// No process of the attempt is left; its capacity is free.
    Released {
        /// Which.
        attempt: AttemptId,
    },
}

/// What an agent (or its launcher) reports of one instance.
#[derive(Debug, Clone, PartialEq)]
pub enum InstanceReport {
    /// Channels are being mounted.
    Downloading,
    /// The training program runs.
    Training,
    /// The program of a trial reported a value of its objective, counted within the attempt.
    Objective {
        /// From 1.
        ordinal: u32,
        /// Anything, not a number included.
        value: f64,
    },
    /// The training program is over.
    RankEnded {
        /// How.
        end: RankEnd,
        /// Last value of every metric seen on this host.
        final_metrics: Vec<MetricValue>,
    },
    /// A checkpoint file is durable in the object store. Said again, it is a receipt again.
    CheckpointSaved {
        /// Below the checkpoint directory.
        path: String,
        /// Its length.
        bytes: u64,
        /// SHA-256 of its content, hexadecimal.
        sha256: String,
    },
    /// The evaluation of a rule is over on this instance.
    RuleEvaluated {
        /// `RuleConfigurationName`.
        rule: String,
        /// What it found.
        verdict: RuleVerdict,
        /// For people, at most 1024 characters.
        details: String,
        /// Issues that were found are to stop the job.
        stops: bool,
    },
    /// Artifacts are with the server.
    Uploaded,
    /// Our side failed: the instance could not be made, or its agent died.
    Lost {
        /// For the failure reason.
        reason: String,
    },
}

/// The training job of a new trial.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Child {
    /// Index of its definition.
    pub definition: u32,
    /// Number in the definition's study.
    pub trial: u32,
    /// Its name: the same whenever the same request is answered again.
    pub name: JobName,
    /// Likewise; attempts are named `<uid>-<number>`.
    pub uid: String,
    /// Training job whose checkpoint it begins with.
    pub origin: Option<JobName>,
}
