//! The native half of the Python package `shoal`: a study as a Python object (what people use is
//! `shoal.tuner`, py/python/shoal/tuner.py, which speaks Python; spaces and configurations cross as
//! the JSON of the tuner's protocol, numbers as numbers), process groups (`comm`), and plans of
//! distributed training (`parallel`).

mod comm;
mod named;
mod parallel;

use std::sync::Mutex;

use pyo3::{exceptions::PyValueError, prelude::*, types::PyBytes};
use serde::{Deserialize, Serialize};
use shoal_tuner::{Ask, Outcome, Snapshot, Trial, TrialId, TrialState, Verdict, importance, protocol};

/// What an idle worker is to do: its kind, and for a start or a resumption the trial, from where,
/// up to where, and whose checkpoint to begin with.
type Answer = (&'static str, TrialId, u32, Option<u32>, Option<(TrialId, u32)>);
/// Decisions: on which trial, what, and up to where.
type Decisions = Vec<(TrialId, &'static str, Option<u32>)>;
/// A trial: configuration as JSON, state, values and reports as the user sees them, whether it is
/// of elsewhere.
type Known = (String, &'static str, Vec<f64>, Vec<(u32, f64)>, bool);

/// A searcher and a scheduler over one history. Threads may share it: each call waits for the one
/// before, without holding Python's lock.
#[pyclass(frozen)]
struct Study(Mutex<Open>);

/// What `Study` guards.
struct Open {
    study: shoal_tuner::Study,
    space: protocol::JsonSpace,
    /// The request that it was opened with.
    init: String,
}

/// A study as bytes.
#[derive(Serialize, Deserialize)]
struct Stored {
    v: u32,
    init: String,
    snapshot: Snapshot,
}

const FORMAT: u32 = 1;

fn wrong(problem: String) -> PyErr {
    PyValueError::new_err(problem)
}

fn text(error: impl std::error::Error) -> String {
    error.to_string()
}

fn said(verdicts: Vec<(TrialId, Verdict)>) -> Decisions {
    let said = |(trial, verdict)| match verdict {
        Verdict::Continue { to } => (trial, "continue", to),
        Verdict::Stop => (trial, "stop", None),
        Verdict::Pause => (trial, "pause", None),
    };
    verdicts.into_iter().map(said).collect()
}

fn state(trial: &Trial) -> &'static str {
    match trial.state {
        TrialState::Running => "running",
        TrialState::Paused => "paused",
        TrialState::Completed => "completed",
        TrialState::Stopped => "stopped",
        TrialState::Failed => "failed",
    }
}

#[pymethods]
impl Study {
    #[new]
    fn new(init: String, strategy: &str) -> PyResult<Self> {
        let (study, space) = protocol::open(&init, strategy).map_err(wrong)?;
        Ok(Self(Mutex::new(Open { study, space, init })))
    }

    fn ask(&self, py: Python<'_>) -> PyResult<Answer> {
        self.with(py, |open| {
            Ok(match open.study.ask() {
                Ask::Start(start) => {
                    let origin = start.origin.map(|origin| (origin.trial, origin.resource));
                    ("start", start.trial, origin.map_or(0, |(_, resource)| resource), start.to, origin)
                }
                Ask::Resume { trial, from, to } => ("resume", trial, from, to, None),
                Ask::Wait => ("wait", 0, 0, None, None),
                Ask::End => ("end", 0, 0, None, None),
            })
        })
    }

    /// `None`: it failed.
    fn tell(&self, py: Python<'_>, trial: TrialId, values: Option<Vec<f64>>) -> PyResult<Decisions> {
        self.with(py, |open| {
            open.known(trial)?;
            let outcome = open.outcome(values)?;
            Ok(said(open.study.end(trial, outcome)))
        })
    }

    fn stop(&self, py: Python<'_>, trial: TrialId) -> PyResult<Decisions> {
        self.with(py, |open| {
            open.known(trial)?;
            Ok(said(open.study.end(trial, Outcome::Stopped)))
        })
    }

    fn report(&self, py: Python<'_>, trial: TrialId, resource: u32, value: f64) -> PyResult<Decisions> {
        self.with(py, |open| {
            open.known(trial)?;
            Ok(said(open.study.report(trial, resource, &[value])))
        })
    }

    fn inject(&self, py: Python<'_>, config: &str, values: Option<Vec<f64>>) -> PyResult<()> {
        self.with(py, |open| {
            let config = serde_json::from_str(config).map_err(text)?;
            let config = open.space.read(&config).map_err(text)?;
            let outcome = open.outcome(values)?;
            open.study.inject(config, outcome).map_err(text)
        })
    }

    fn trial(&self, py: Python<'_>, trial: TrialId) -> PyResult<Known> {
        self.with(py, |open| {
            let known = open.known(trial)?;
            let mut config = String::new();
            open.space.write(&known.config, &mut config);
            let objectives = &open.study.spec().objectives;
            let values =
                known.values.iter().zip(objectives).map(|(value, objective)| objective.minimised(*value)).collect();
            let reports =
                known.reports.iter().map(|report| (report.resource, objectives[0].minimised(report.value))).collect();
            Ok((config, state(known), values, reports, known.injected))
        })
    }

    fn trials(&self, py: Python<'_>) -> PyResult<usize> {
        self.with(py, |open| Ok(open.study.history().trials().len()))
    }

    fn best(&self, py: Python<'_>) -> PyResult<Option<TrialId>> {
        self.with(py, |open| Ok(open.study.best()))
    }

    fn front(&self, py: Python<'_>) -> PyResult<Vec<TrialId>> {
        self.with(py, |open| Ok(open.study.front()))
    }

    /// Results since the best improved by more than 1 %, and whether it is unlikely to improve by
    /// that any more.
    fn progress(&self, py: Python<'_>) -> PyResult<(u32, bool)> {
        self.with(py, |open| {
            let progress = open.study.progress();
            Ok((progress.not_improving(), progress.has_converged(open.study.space().dimensions())))
        })
    }

    fn importance(&self, py: Python<'_>, objective: usize) -> PyResult<Option<Vec<(String, f64)>>> {
        self.with(py, |open| {
            if objective >= open.study.spec().objectives.len() {
                return Err(format!("there is no objective {objective}"));
            }
            let space = open.study.space();
            let named = |shares: Vec<f64>| space.parameters().iter().map(|it| it.name.clone()).zip(shares).collect();
            Ok(importance(space, open.study.history(), objective).map(named))
        })
    }

    /// The request that it was opened with.
    fn init(&self, py: Python<'_>) -> PyResult<String> {
        self.with(py, |open| Ok(open.init.clone()))
    }

    fn snapshot<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let bytes = self.with(py, |open| {
            let stored = Stored { v: FORMAT, init: open.init.clone(), snapshot: open.study.snapshot() };
            serde_json::to_vec(&stored).map_err(text)
        })?;
        Ok(PyBytes::new(py, &bytes))
    }

    #[staticmethod]
    fn restore(bytes: &[u8]) -> PyResult<Self> {
        let not_ours = |error: serde_json::Error| wrong(format!("these bytes are no snapshot of a study: {error}"));
        let Stored { v, init, snapshot } = serde_json::from_slice(bytes).map_err(not_ours)?;
        if v != FORMAT {
            return Err(wrong(format!(
                "the snapshot's format is {v}, and this version of shoal reads format {FORMAT}"
            )));
        }
        let parameters: Opened = serde_json::from_str(&init).map_err(not_ours)?;
        let space = protocol::JsonSpace::new(&parameters.space).map_err(text).map_err(wrong)?;
        let study = shoal_tuner::Study::restore(snapshot).map_err(text).map_err(wrong)?;
        Ok(Self(Mutex::new(Open { study, space, init })))
    }
}

impl Study {
    fn with<T: Send>(&self, py: Python<'_>, work: impl FnOnce(&mut Open) -> Result<T, String> + Send) -> PyResult<T> {
        // A panic is a bug of ours; the study behind it may be in the middle of something, and says
        // so from then on.
        let run = || {
            work(
                &mut *self
                    .0
                    .lock()
                    .map_err(|_| "the study was left in the middle of a call that panicked".to_owned())?,
            )
        };
        py.detach(run).map_err(wrong)
    }
}

/// Of the request that opened a study: its space.
#[derive(Deserialize)]
struct Opened {
    space: Vec<serde_json::Map<String, serde_json::Value>>,
}

impl Open {
    fn known(&self, trial: TrialId) -> Result<&Trial, String> {
        self.study.history().trial(trial).ok_or_else(|| format!("there is no trial {trial}"))
    }

    /// Of a trial that ended by itself; no values: it failed.
    fn outcome(&self, values: Option<Vec<f64>>) -> Result<Outcome, String> {
        let Some(values) = values else { return Ok(Outcome::Failed) };
        let wanted = self.study.spec().objectives.len();
        if values.len() == wanted {
            Ok(Outcome::Completed { values })
        } else {
            Err(format!("{} values for {wanted} objectives", values.len()))
        }
    }
}

/// The names that a strategy, a searcher or a scheduler may have, each with what it does.
#[pyfunction]
fn names() -> Vec<(&'static str, &'static str)> {
    use shoal_tuner::named::{PAIRS, SCHEDULERS, SEARCHERS};
    let pairs = PAIRS.iter().map(|&(name, _, _, what)| (name, what));
    SEARCHERS.iter().chain(SCHEDULERS).copied().chain(pairs).collect()
}

/// `shoal._native`.
#[pymodule(name = "_native")]
fn native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Study>()?;
    comm::register(module)?;
    named::register(module)?;
    parallel::register(module)?;
    module.add_function(wrap_pyfunction!(names, module)?)
}
