//! The thread that reads steps and has rules judge them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use shoal_contract::tensors::{Collections, Location, Mode, Tensor};
use shoal_rules::{Catalogue, Conclusion, Evaluation, Groups, Step};

use super::RuleEvent;
use super::order::StepOrder;
use super::reader::{MAX_STEP_BYTES, SavedStep, read_small, read_step};
use crate::mirror::changes::{Changes, Step as Next};
use crate::mirror::tree::Tree;

/// Between two looks at the time.
const TICK: Duration = Duration::from_millis(500);
/// No file of saved tensors has this name: it is due when time has passed.
const TICK_PATH: &str = "tick";
/// Different notes that are reported.
const MAX_NOTES: usize = 20;

pub(super) struct Follower {
    tree: Arc<Tree>,
    changes: Arc<Changes>,
    ranks: usize,
    evaluations: Vec<(Evaluation, Vec<PathBuf>)>,
    report: Box<dyn FnMut(RuleEvent) + Send>,
    order: StepOrder,
    groups: Groups,
    catalogue: Catalogue,
    notes: BTreeSet<String>,
    left_out: u64,
    start: Instant,
}

impl Follower {
    pub(super) fn new(
        tree: Arc<Tree>,
        changes: Arc<Changes>,
        ranks: usize,
        evaluations: Vec<(Evaluation, Vec<PathBuf>)>,
        report: Box<dyn FnMut(RuleEvent) + Send>,
    ) -> Self {
        Self {
            tree,
            changes,
            ranks,
            evaluations,
            report,
            order: StepOrder::default(),
            groups: Groups::default(),
            catalogue: Catalogue::default(),
            notes: BTreeSet::new(),
            left_out: 0,
            start: Instant::now(),
        }
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    pub(super) fn run(mut self) {
        self.read_other_runs();
        self.changes.add_later(TICK_PATH.into(), TICK);
        loop {
            match self.changes.next(0, 0) {
                Next::Send(path, _) if path == Path::new(TICK_PATH) => self.pass_time(),
                Next::Send(path, _) => self.add(&path),
                Next::Rescan => self.rescan(),
                Next::Answer(_) => {}
                Next::Finished => return self.finish(),
                Next::GiveUp => return,
            }
            self.judge_due_steps(false);
        }
    }

    fn pass_time(&mut self) {
        let now_ms = self.now_ms();
        self.conclude(|evaluation| evaluation.pass_time(now_ms));
        if !self.changes.has_ended() {
            self.changes.add_later(TICK_PATH.into(), TICK);
        }
    }

    /// A file has got its name.
    fn add(&mut self, path: &Path) {
        match path.to_str().and_then(Location::parse) {
            Some(Location::Index { step, worker }) => {
                self.order.add(step, &worker, self.now_ms());
            }
            Some(Location::Collections { worker }) => self.add_collections(&worker),
            _ => {}
        }
    }

    fn add_collections(&mut self, worker: &str) {
        let path = Location::Collections { worker: worker.to_owned() }.path();
        let read = read_small(&self.tree, &path)
            .and_then(|bytes| Collections::parse(&bytes).map_err(|error| format!("{path}: {error}")));
        match read {
            Ok(collections) => {
                let workers = usize::try_from(collections.workers()).unwrap_or(usize::MAX);
                self.order.add_worker(worker, workers.min(self.ranks));
                self.groups.add(&collections);
            }
            Err(problem) => self.note(&problem),
        }
    }

    /// Looks for files of which no event came. A directory that grows may be listed without a file
    /// that is older than one it is listed with: of the second look, all files up to the latest of
    /// the first are certain. Of those after it events come.
    fn rescan(&mut self) {
        let step = |path: &PathBuf| match path.to_str().and_then(Location::parse)? {
            Location::Index { step, .. } => Some(step),
            _ => None,
        };
        let latest = self.list().iter().filter_map(step).max();
        // Collections first; then steps in their order.
        let mut found = self.list();
        found.sort();
        for path in found.iter().filter(|path| step(path) <= latest) {
            self.add(path);
        }
    }

    /// All collections files, and the index files that may be of steps after the last judged one.
    fn list(&self) -> Vec<PathBuf> {
        let last = self.order.last_judged().unwrap_or(0);
        let last = Location::Index { step: last, worker: String::new() }.path();
        // Names of directories of steps are in the order of the steps.
        let is_over = |directory: &Path| {
            directory.starts_with("index") && Path::new(&last).parent().is_some_and(|last| directory < last)
        };
        let mut found = Vec::new();
        let mut waiting = vec![PathBuf::from("collections"), PathBuf::from("index")];
        while let Some(directory) = waiting.pop() {
            // One that does not exist yet has nothing.
            let _ = self.tree.list(&directory, |path, metadata| match metadata.is_dir() {
                true if is_over(&path) => {}
                true => waiting.push(path),
                false => found.push(path),
            });
        }
        found
    }

    fn judge_due_steps(&mut self, has_ended: bool) {
        while let Some((step, workers)) = self.order.next(self.now_ms(), has_ended) {
            self.judge(step, &workers);
        }
    }

    fn judge(&mut self, number: u64, workers: &BTreeSet<String>) {
        let mut budget = MAX_STEP_BYTES;
        let mut saved = Vec::new();
        let mut problems = Vec::new();
        for worker in workers {
            let (evaluations, groups, catalogue) = (&self.evaluations, &self.groups, &mut self.catalogue);
            let is_needed = |name: &str| {
                catalogue.add(name);
                evaluations.iter().any(|(evaluation, _)| evaluation.reads(number, name, groups))
            };
            match read_step(&self.tree, number, worker, &mut budget, is_needed) {
                Ok(step) => {
                    self.left_out += step.left_out;
                    saved.push((worker.as_str(), step));
                }
                Err(problem) => problems.push(problem),
            }
        }
        let (mode, mode_step, tensors) = tensors(&saved, &mut problems);
        let groups = std::mem::take(&mut self.groups);
        let step = Step::new(&groups, (number, mode, mode_step), tensors);
        self.conclude(|evaluation| evaluation.observe(&step));
        drop(step);
        self.groups = groups;
        for problem in problems {
            self.note(&problem);
        }
    }

    /// Reports what the evaluations conclude.
    fn conclude(&mut self, mut judge: impl FnMut(&mut Evaluation) -> Option<Conclusion>) {
        for (evaluation, _) in &mut self.evaluations {
            if let Some(conclusion) = judge(evaluation) {
                let configuration = evaluation.configuration().to_owned();
                let stops_training = conclusion.finding.is_some() && evaluation.stops_training();
                (self.report)(RuleEvent::Concluded { configuration, conclusion, stops_training });
            }
        }
    }

    /// Tensors of other runs are read once, before those of this one.
    fn read_other_runs(&mut self) {
        let runs = Vec::from_iter(self.evaluations.iter().enumerate().flat_map(|(index, (_, runs))| {
            runs.iter().cloned().enumerate().map(move |(run, path)| (index, run, path))
        }));
        for (index, run, directory) in runs {
            let Ok(tree) = Tree::open(&directory, Path::new("")) else {
                self.note(&format!("the tensors of another run are not in {}", directory.display()));
                continue;
            };
            let mut steps: BTreeMap<u64, BTreeSet<String>> = BTreeMap::new();
            tree.walk(|path, _| {
                if let Some(Location::Index { step, worker }) = path.to_str().and_then(Location::parse) {
                    steps.entry(step).or_default().insert(worker);
                }
            });
            for (number, workers) in steps {
                let mut problems = Vec::new();
                let mut budget = MAX_STEP_BYTES;
                let (evaluation, groups) = (&mut self.evaluations[index].0, Groups::default());
                // As a digest of each is remembered, one worker is enough.
                let worker = workers.first().map_or("", String::as_str);
                let read =
                    read_step(&tree, number, worker, &mut budget, |name| evaluation.reads(number, name, &groups));
                let saved = Vec::from_iter(read.map_err(|problem| problems.push(problem)).ok().map(|it| (worker, it)));
                let (mode, mode_step, tensors) = tensors(&saved, &mut problems);
                evaluation.observe_other(run, &Step::new(&groups, (number, mode, mode_step), tensors));
                for problem in problems {
                    self.note(&problem);
                }
            }
        }
    }

    fn finish(mut self) {
        self.judge_due_steps(true);
        let (groups, catalogue) = (std::mem::take(&mut self.groups), std::mem::take(&mut self.catalogue));
        self.conclude(|evaluation| evaluation.end(&groups, &catalogue));
        for (count, what) in [
            (self.order.thinned, "steps were not judged, as they came faster than they could be"),
            (self.order.late, "files were not judged, as their steps had been before"),
            (self.left_out, "tensors were not judged, as a step had more than 256 MiB"),
        ] {
            if count > 0 {
                (self.report)(RuleEvent::Note(format!("Debugger rules: {count} {what}")));
            }
        }
        (self.report)(RuleEvent::Ended);
    }

    fn note(&mut self, problem: &str) {
        if self.notes.len() < MAX_NOTES && self.notes.insert(problem.to_owned()) {
            (self.report)(RuleEvent::Note(format!("Debugger rules: {problem}")));
        }
    }
}

/// Mode of a step, and all tensors of all its workers.
fn tensors<'a>(
    saved: &'a [(&'a str, SavedStep)],
    problems: &mut Vec<String>,
) -> (Mode, u64, Vec<(&'a str, Tensor<'a>)>) {
    let (mode, mode_step) =
        saved.first().map_or((Mode::Global, 0), |(_, step)| (step.index.mode, step.index.mode_step));
    let mut tensors = Vec::new();
    for (worker, step) in saved {
        let events = step.events(|problem| problems.push(problem));
        tensors.extend(events.into_iter().map(|event| (*worker, event.tensor)));
    }
    (mode, mode_step, tensors)
}
