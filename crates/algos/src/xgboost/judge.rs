//! Metrics that need all rows at once (auc, aucpr, map, ndcg, cox-nloglik), over several hosts. The
//! library would average each host's own value. Here the margins of all rows are gathered, and the
//! library itself evaluates them on rank 0: on a booster without trees, whose base margins are
//! those margins, on a thread of its own that is in no group and so counts as one host.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

use super::evaluate::parse;
use super::failure::Failure;
use super::ffi::api::{Api, XGBoostError};
use super::ffi::booster::{Booster, Predictions};
use super::ffi::matrix::Matrix;
use super::group::Group;

/// What the judge's sets are called in its own lines.
const SET: &str = "judge";

/// What the judge must know of this host's rows of a set.
pub(super) struct Own<'a> {
    /// One label per row.
    pub(super) labels: &'a [f32],
    /// One weight per row, or nothing.
    pub(super) weights: &'a [f32],
    /// One query id per row, or nothing.
    pub(super) groups: &'a [u32],
}

/// All hosts' rows of a set, without their features.
struct Rows {
    labels: Vec<f32>,
    weights: Vec<f32>,
    groups: Vec<u32>,
}

/// How the judge evaluates.
#[derive(Debug, Clone)]
pub(super) struct JudgeOptions {
    /// The objective and its parameters.
    pub(super) parameters: Vec<(String, String)>,
    /// Metrics; none for the objective's default.
    pub(super) metrics: Vec<String>,
    /// Threads of one evaluation.
    pub(super) threads: usize,
}

/// This host's part in it.
pub(super) struct Judge {
    /// Rows of each rank, for each set.
    counts: Vec<Vec<usize>>,
    bench: Option<Bench>,
}

/// The thread on rank 0.
struct Bench {
    cases: Option<SyncSender<(usize, Predictions)>>,
    verdicts: Receiver<Result<String, XGBoostError>>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Bench {
    fn drop(&mut self) {
        // The thread ends when no more cases can come.
        self.cases = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Judge {
    /// Gathers labels, weights and groups of every set. A collective call.
    pub(super) fn new(
        api: &'static Api,
        own: &[Own<'_>],
        options: &JudgeOptions,
        group: &Group,
    ) -> Result<Self, Failure> {
        let mut counts = Vec::new();
        let mut sets = Vec::new();
        for own in own {
            let mut of_rank = vec![0.0; 3 * group.size()];
            // Query ids of hosts may clash, so groups travel as the sizes of runs.
            let runs = runs(own.groups);
            let kinds = &mut of_rank[3 * group.rank()..][..3];
            kinds.copy_from_slice(&[own.labels.len() as f64, own.weights.len() as f64, runs.len() as f64]);
            group.sum(&mut of_rank)?;
            let part =
                |kind: usize| of_rank.iter().skip(kind).step_by(3).map(|count| *count as usize).collect::<Vec<_>>();
            let (rows, weighted, grouped) = (part(0), part(1), part(2));

            let labels = group.gather(own.labels, &rows)?;
            let weights = if weighted.iter().sum::<usize>() == 0 {
                Vec::new()
            } else if own.weights.is_empty() {
                group.gather(&vec![1.0; own.labels.len()], &rows)?
            } else {
                group.gather(own.weights, &rows)?
            };
            // Sizes below 2^24 are exact as singles; a run of more rows on one host is not a query.
            let sizes: Vec<f32> = runs.iter().map(|size| *size as f32).collect();
            let groups = group.gather(&sizes, &grouped)?.into_iter().map(|size| size as u32).collect();
            sets.push(Rows { labels, weights, groups });
            counts.push(rows);
        }
        let bench = (group.rank() == 0).then(|| Bench::open(api, sets, options.clone()));
        Ok(Self { counts, bench })
    }

    /// The values of the metrics on set number `set`, by name, on rank 0; nothing elsewhere. A
    /// collective call.
    pub(super) fn evaluate(
        &mut self,
        set: usize,
        margins: &Predictions,
        group: &Group,
    ) -> Result<Vec<(String, f64)>, Failure> {
        let counts: Vec<usize> = self.counts[set].iter().map(|rows| rows * margins.columns).collect();
        let all = group.gather(&margins.values, &counts)?;
        let Some(bench) = &self.bench else { return Ok(Vec::new()) };
        Ok(parse(&bench.judge(set, Predictions { values: all, columns: margins.columns })?, SET))
    }
}

impl Bench {
    fn open(api: &'static Api, sets: Vec<Rows>, options: JudgeOptions) -> Self {
        let (cases, waiting) = sync_channel::<(usize, Predictions)>(1);
        let (tell, verdicts) = sync_channel(1);
        let thread = std::thread::spawn(move || {
            let mut evaluations: Vec<Option<Evaluation>> = sets.iter().map(|_| None).collect();
            for (set, margins) in waiting {
                let evaluation = &mut evaluations[set];
                let verdict = match evaluation {
                    Some(evaluation) => evaluation.run(&margins),
                    None => {
                        Evaluation::new(api, &sets[set], &options).and_then(|new| evaluation.insert(new).run(&margins))
                    }
                };
                if tell.send(verdict).is_err() {
                    return;
                }
            }
        });
        Self { cases: Some(cases), verdicts, thread: Some(thread) }
    }

    fn judge(&self, set: usize, margins: Predictions) -> Result<String, XGBoostError> {
        let gone = |_| XGBoostError("the thread that evaluates metrics ended".to_owned());
        let cases = self.cases.as_ref().expect("the sender lives as long as the bench");
        cases.send((set, margins)).map_err(|_| gone(()))?;
        self.verdicts.recv().map_err(|_| gone(()))?
    }
}

/// One set with its booster without trees.
struct Evaluation {
    matrix: Matrix,
    booster: Booster,
}

impl Evaluation {
    fn new(api: &'static Api, rows: &Rows, options: &JudgeOptions) -> Result<Self, XGBoostError> {
        let mut matrix = Matrix::zeros(api, rows.labels.len(), options.threads)?;
        matrix.set_floats("label", &rows.labels, 1)?;
        if !rows.weights.is_empty() {
            matrix.set_floats("weight", &rows.weights, 1)?;
        }
        if !rows.groups.is_empty() {
            matrix.set_groups(&rows.groups)?;
        }
        // Not cached: the base margins change from round to round.
        let mut booster = Booster::new(api, &[])?;
        for (name, value) in &options.parameters {
            booster.set(name, value)?;
        }
        booster.set("num_feature", "1")?;
        booster.set("nthread", &options.threads.to_string())?;
        for metric in &options.metrics {
            booster.set("eval_metric", metric)?;
        }
        Ok(Self { matrix, booster })
    }

    fn run(&mut self, margins: &Predictions) -> Result<String, XGBoostError> {
        self.matrix.set_floats("base_margin", &margins.values, margins.columns)?;
        self.booster.evaluate(0, &[(SET, &self.matrix)])
    }
}

/// Lengths of the runs of equal ids.
fn runs(ids: &[u32]) -> Vec<u32> {
    ids.chunk_by(|left, right| left == right).map(|run| run.len() as u32).collect()
}
