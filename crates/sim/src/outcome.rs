//! What became of a job, and whether that is what would have become of it without faults.

use std::collections::{BTreeMap, BTreeSet};

use shoal_plane::{Host, JobName, JobStatus, SecondaryStatus, StudyRecord};

use crate::{
    Coverage,
    marks::are_whole,
    scenario::{End, Job, Kind},
    world::Simulation,
};

/// A history that came to its end.
#[derive(Debug)]
pub struct SimRun {
    /// By job.
    pub(crate) outcomes: BTreeMap<JobName, Outcome>,
    /// Of the tuning job that runs its trials one after the other.
    pub(crate) sequence: Vec<StudyRecord>,
    /// Events in the journal.
    pub events: usize,
    /// Attempts of services that had served and were replaced.
    pub replaced: u32,
    /// Attempts that a warm instance has served.
    pub reused: u32,
    /// Where it was cut.
    pub coverage: Coverage,
}

/// What a client sees in the end, without its times.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Outcome {
    /// `TrainingJobStatus`; none if there is no row.
    pub(crate) status: Option<JobStatus>,
    /// `SecondaryStatus`.
    pub(crate) secondary: Option<SecondaryStatus>,
    /// `FailureReason`.
    pub(crate) failure_reason: Option<String>,
    /// `FinalMetricDataList`.
    pub(crate) metrics: Vec<(String, f64)>,
    /// Hosts whose model is stored.
    pub(crate) model: Vec<Host>,
    /// Lines of each host in the last attempt.
    pub(crate) lines: Vec<Vec<u32>>,
    kind: Kind,
    /// It can lose instances.
    elastic: bool,
    /// Reasons that its programs' own failures may give: who is blamed depends on what is known
    /// when the verdict falls.
    own_failures: BTreeSet<String>,
    /// Somebody died, or a clock jumped far.
    touched: bool,
    /// It was stopped while it ran, so every host was to send its model.
    ran: bool,
    /// The server was away for longer than a stop may take.
    away: bool,
    /// Every attempt's lines are whole: from the first on, without gaps or repeats.
    whole: bool,
}

pub(crate) fn of(world: &Simulation, job: &Job) -> Outcome {
    let row = world.disk.rows.get(&job.name);
    let attempt = row.and_then(|row| row.attempt.clone()).unwrap_or_default();
    let lines_of = |host| world.disk.lines.get(&(attempt.clone(), host)).cloned().unwrap_or_default();
    let index = world.jobs.iter().position(|other| other.name == job.name).expect("it is one of them");
    let mut ours = world.disk.lines.iter().filter(|((attempt, _), _)| world.owner(attempt) == Some(&job.name));
    let hosts = Host::all(job.spec.instances);
    Outcome {
        status: row.map(|row| row.status),
        secondary: row.map(|row| row.secondary),
        failure_reason: row.and_then(|row| row.failure_reason.clone()),
        metrics: row
            .into_iter()
            .flat_map(|row| &row.final_metrics)
            .map(|metric| (metric.name.clone(), metric.value))
            .collect(),
        model: world
            .disk
            .models
            .get(&job.name)
            .filter(|(of, _)| *of == attempt)
            .map(|(_, hosts)| hosts.clone())
            .unwrap_or_default(),
        lines: hosts.clone().map(lines_of).collect(),
        kind: job.kind,
        elastic: job.spec.min_instances.is_some(),
        own_failures: hosts
            .zip(&job.hosts)
            .filter_map(|(host, program)| own_failure(host, job.spec.instances == 1, program.end))
            .collect(),
        touched: world.clients[index].touched,
        away: world.away,
        ran: row
            .is_some_and(|row| row.transitions.iter().any(|transition| transition.status == SecondaryStatus::Stopping)),
        whole: ours.all(|(_, lines)| are_whole(lines)),
    }
}

/// The beginning of what is said of a host that ends so.
fn own_failure(host: Host, is_alone: bool, end: End) -> Option<String> {
    match end {
        End::Exit(0) | End::Never => None,
        End::Exit(_) if is_alone => Some("AlgorithmError: ".to_owned()),
        End::Exit(_) => Some(format!("AlgorithmError: {host}: ")),
        End::Signal(_) => Some(format!("AlgorithmError: {host} was killed by ")),
        End::OutOfMemory => Some(format!("AlgorithmError: {host} ran out of memory ")),
    }
}

/// What of the history is not as in the same seed's history without faults, and may not differ. May
/// differ:
/// - times, and all that counts them; how long a job waited;
/// - of a job that is stopped, how far it had come: metrics, lines; and models, if the server was
///   away for longer than a stop may take;
/// - of a job that can lose instances, what its other hosts than the first did;
/// - of a job that is stopped about when it ends, which came first;
/// - of a job that fails on several hosts, whom it blames, and how far the others had come;
/// - of a job one of whose agents died, or whose launch or upload failed, or where the clock jumped
///   far: that it fails for an internal error, unless it may be retried; its time may be up before
///   it ends; then whoever waits behind it may start.
pub(crate) fn compare(faulty: &SimRun, undisturbed: &SimRun) -> Vec<String> {
    let anything_died = faulty.outcomes.values().any(|outcome| outcome.touched);
    let mut wrong = Vec::new();
    for (job, expected) in &undisturbed.outcomes {
        match faulty.outcomes.get(job) {
            Some(actual) if !actual.whole => {
                wrong.push(format!("{job}: lines are missing or repeated: {:?}", actual.lines));
            }
            Some(actual) if may_be(actual, expected, anything_died) => {}
            actual => wrong.push(format!("{job}: {actual:?} instead of {expected:?}")),
        }
    }
    wrong
}

fn may_be(actual: &Outcome, expected: &Outcome, anything_died: bool) -> bool {
    let is_same = |other: &Outcome| (actual.status, actual.secondary) == (other.status, other.secondary);
    let is_internal = actual.failure_reason.as_ref().is_some_and(|reason| reason.starts_with("InternalServerError: "));
    if actual.touched && actual.status == Some(JobStatus::Failed) && is_internal {
        return true;
    }
    match expected.kind {
        Kind::Completes => is_complete(actual, expected),
        Kind::Fails => {
            let is_own = |reason: &String| expected.own_failures.iter().any(|own| reason.starts_with(own));
            is_same(expected) && actual.failure_reason.as_ref().is_some_and(is_own) && actual.model.is_empty()
        }
        Kind::Stopped | Kind::Outruns | Kind::Overstays => {
            is_same(expected) && actual.failure_reason.is_none() && is_stored(actual)
        }
        // A clock that jumps makes an attempt that had served count as a retry.
        Kind::Serves if actual.touched && actual.status == Some(JobStatus::Failed) => true,
        Kind::Serves => is_same(expected) && actual.failure_reason.is_none() && actual.model.is_empty(),
        Kind::Races => {
            let is_stopped =
                (actual.status, actual.secondary) == (Some(JobStatus::Stopped), Some(SecondaryStatus::Stopped));
            is_complete(actual, actual) || (is_stopped && is_stored(actual))
        }
        Kind::Starves => is_same(expected) || (anything_died && actual.status == Some(JobStatus::Completed)),
    }
}

/// A job that was stopped while it ran has what its hosts left, unless one of them died or nobody
/// was there to take it.
fn is_stored(actual: &Outcome) -> bool {
    let is_whole =
        if actual.elastic { actual.model.contains(&Host::FIRST) } else { actual.model.len() == actual.lines.len() };
    actual.touched || actual.away || !actual.ran || is_whole
}

fn is_complete(actual: &Outcome, expected: &Outcome) -> bool {
    if actual.elastic {
        // The others may have been lost.
        let seen = |outcome: &Outcome| {
            let metric = outcome.metrics.iter().find(|(name, _)| name == "loss-1").cloned();
            (metric, outcome.lines[0].clone(), outcome.failure_reason.clone())
        };
        return actual.status == Some(JobStatus::Completed)
            && actual.model.contains(&Host::FIRST)
            && seen(actual) == seen(expected);
    }
    let hosts = u32::try_from(actual.lines.len()).expect("few hosts");
    let seen = |outcome: &Outcome| (outcome.metrics.clone(), outcome.lines.clone(), outcome.failure_reason.clone());
    actual.status == Some(JobStatus::Completed)
        && actual.model == Host::all(hosts).collect::<Vec<_>>()
        && seen(actual) == seen(expected)
}
