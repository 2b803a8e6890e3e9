//! The Debugger's hook of built-in algorithms: what of a training is saved at which steps, in AWS's
//! layout ([`shoal_contract::tensors`]).
//!
//! An algorithm asks for each step ([`Hook::step`]) and saves what of it is due. An error here
//! never ends a training: it is reported once in the log, and nothing is saved from then on.

mod config;
mod files;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use shoal_contract::tensors::Tensor;

pub(crate) use config::Defaults;
use config::{ALL, HookConfig};
use files::{Claim, StepFiles};

/// Names of tensors that a warning lists.
const LISTED: usize = 20;

/// Saves tensors of this process.
#[derive(Debug)]
pub(crate) struct Hook {
    config: HookConfig,
    worker: String,
    workers: u64,
    claim: Claim,
    /// Names of tensors that are in the collections file.
    exported: usize,
    has_warned: bool,
}

/// A step whose tensors are saved.
#[derive(Debug)]
pub(crate) struct Step<'a> {
    hook: &'a mut Hook,
    due: BTreeSet<String>,
    files: StepFiles,
}

impl Hook {
    /// The hook of a training job that has `DebugHookConfig`, on a rank that saves tensors; the
    /// lines are for the log.
    pub(crate) fn start(
        file: &Path,
        defaults: &'static Defaults,
        rank: usize,
        size: usize,
    ) -> (Option<Self>, Vec<String>) {
        let text = match std::fs::read(file) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return (None, Vec::new()),
            Err(error) => return (None, vec![off(&format!("{} cannot be read: {error}", file.display()))]),
        };
        let config = match HookConfig::parse(&text, defaults) {
            Ok(config) => config,
            Err(problem) => return (None, vec![off(&problem)]),
        };
        if rank > 0 && !config.saves_all_workers {
            return (None, Vec::new());
        }
        let workers = if config.saves_all_workers { size as u64 } else { 1 };
        // Ranks of one directory are those of one process each.
        let claim = match Claim::take(&config.directory, size == 1) {
            Ok(claim) => claim,
            Err(problem) => return (None, vec![off(&problem)]),
        };
        let lines = config.notes.clone();
        let worker = format!("worker_{rank}");
        (Some(Self { config, worker, workers, claim, exported: 0, has_warned: false }), lines)
    }

    /// A step in which something is saved; `None` for others.
    pub(crate) fn step(&mut self, number: u64) -> Option<Step<'_>> {
        let due = self.config.due(number);
        if due.is_empty() {
            return None;
        }
        let files = StepFiles::new(number, &self.worker);
        Some(Step { hook: self, due, files })
    }

    /// The training is over: what of the configuration has saved nothing in all of it, for the log.
    pub(crate) fn end(&self) -> Vec<String> {
        if self.has_warned { self.unmatched() } else { Vec::new() }
    }

    fn directory(&self) -> PathBuf {
        self.claim.directory().to_owned()
    }

    /// What of the configuration has saved nothing, for the log.
    fn unmatched(&self) -> Vec<String> {
        let names = Vec::from_iter(self.config.names());
        let listed = Vec::from_iter(names.iter().take(LISTED).copied()).join(", ");
        let more = names.len().saturating_sub(LISTED);
        let listed = if more == 0 { listed } else { format!("{listed} and {more} more") };
        self.config.unmatched(&listed)
    }
}

impl Step<'_> {
    /// Whether tensors of a collection of the algorithm are to be computed.
    pub(crate) fn wants(&self, collection: &str) -> bool {
        self.due.contains(collection) || self.due.contains(ALL)
    }

    /// Saves a tensor, which belongs to these collections of the algorithm, if one of its
    /// collections is due.
    pub(crate) fn save(&mut self, tensor: &Tensor<'_>, collections: &[&str]) {
        if self.hook.config.add(&tensor.name, collections, &self.due) {
            self.files.add(tensor);
        }
    }

    /// Writes the step; lines are for the log.
    pub(crate) fn finish(self) -> Result<Vec<String>, String> {
        let Self { hook, files, .. } = self;
        let directory = hook.directory();
        let count = hook.config.names().count();
        if hook.exported != count {
            // Before the index, as rules judge a step by its collections.
            let collections = hook.config.collections_file(hook.workers);
            files::write_collections(&directory, &hook.worker, &collections).map_err(|problem| off(&problem))?;
            hook.exported = count;
        }
        files.write(&directory).map_err(|problem| off(&problem))?;
        Ok(if std::mem::replace(&mut hook.has_warned, true) { Vec::new() } else { hook.unmatched() })
    }
}

fn off(problem: &str) -> String {
    format!("Debugger saves no tensors from here on, the training continues: {problem}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use shoal_contract::tensors::{Collections, Event, Index, Location, Mode, Records};

    static DEFAULTS: Defaults = Defaults {
        collections: &[("metrics", &["^train-"]), ("losses", &["^train-loss"]), ("labels", &["^labels$"])],
        saved: &["metrics"],
        interval: 10,
    };

    fn start(config: &str, rank: usize) -> (tempfile::TempDir, Option<Hook>, Vec<String>) {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("debughookconfig.json");
        let tensors = directory.path().join("tensors").display().to_string();
        std::fs::write(&file, config.replace("TENSORS", &tensors)).unwrap();
        let (hook, lines) = Hook::start(&file, &DEFAULTS, rank, 2);
        (directory, hook, lines)
    }

    fn save(hook: &mut Hook, number: u64) -> Option<Vec<String>> {
        let mut step = hook.step(number)?;
        step.save(&Tensor::of_f32("train-loss", &[], &[0.5]), &["metrics", "losses"]);
        step.save(&Tensor::of_f32("train-auc", &[], &[0.7]), &["metrics"]);
        if step.wants("labels") {
            step.save(&Tensor::of_f32("labels", &[2], &[0.0, 1.0]), &["labels"]);
        }
        Some(step.finish().unwrap())
    }

    #[test]
    fn readers_find_what_is_due() {
        let config = r#"{"LocalPath": "TENSORS", "HookParameters": {"save_interval": "5"}, "CollectionConfigurations": [
            {"CollectionName": "labels", "CollectionParameters": {"save_steps": "7"}},
            {"CollectionName": "mine", "CollectionParameters": {"include_regex": "auc$,never"}},
            {"CollectionName": "lost"}]}"#;
        let (directory, hook, lines) = start(config, 0);
        let mut hook = hook.expect("a hook");
        assert!(lines.is_empty(), "{lines:?}");
        let warnings = save(&mut hook, 0).unwrap();
        assert_eq!(
            warnings,
            [
                "The collection lost is none of the algorithm's (labels, losses, metrics) and has no include_regex: \
                 nothing is in it",
                "No tensor has a name that never (collection mine) fits. There are: labels, train-auc, train-loss",
            ]
        );
        assert_eq!(save(&mut hook, 1), None);
        assert_eq!(save(&mut hook, 7), Some(Vec::new()));
        assert_eq!(hook.end(), warnings);
        let tensors = directory.path().join("tensors");
        let read = |location: Location| std::fs::read(tensors.join(location.path())).unwrap();
        let worker = || "worker_0".to_owned();
        let index = Index::parse(&read(Location::Index { step: 7, worker: worker() })).unwrap();
        assert_eq!((index.mode, index.mode_step, index.tensors.len()), (Mode::Global, 7, 1));
        let index = Index::parse(&read(Location::Index { step: 0, worker: worker() })).unwrap();
        let names = Vec::from_iter(index.tensors.iter().map(|it| it.name.as_str()));
        assert_eq!(names, ["train-loss", "train-auc", "labels"]);
        let events = read(Location::Events { step: 0, worker: worker() });
        for (entry, expected) in index.tensors.iter().zip([vec![0.5], vec![0.7_f32.into()], vec![0.0, 1.0]]) {
            let record = &events[entry.start as usize..(entry.start + entry.length) as usize];
            let event = Event::parse(Records::new(record).next().unwrap().unwrap()).unwrap().unwrap();
            assert_eq!(event.tensor.values().unwrap(), expected, "{}", entry.name);
        }
        let collections = Collections::parse(&read(Location::Collections { worker: worker() })).unwrap();
        assert_eq!(collections.workers(), 1);
        assert_eq!(collections.collections["mine"].tensor_names, ["train-auc"]);
        assert!(collections.collections["losses"].tensor_names.is_empty(), "it is not saved by itself");
        assert_eq!(collections.save_steps("labels", Mode::Global).unwrap().save_steps, [7]);
        assert_eq!(collections.save_steps("metrics", Mode::Global).unwrap().save_interval, 5);
    }

    #[test]
    fn other_ranks_save_where_that_is_requested() {
        assert!(start(r#"{"LocalPath": "TENSORS"}"#, 1).1.is_none());
        let all = r#"{"LocalPath": "TENSORS", "HookParameters": {"include_workers": "all"}}"#;
        let (directory, hook, _) = start(all, 1);
        save(&mut hook.expect("a hook"), 10).expect("a step that is due");
        let file = directory.path().join("tensors/collections/000000000/worker_1_collections.json");
        assert_eq!(Collections::parse(&std::fs::read(file).unwrap()).unwrap().workers(), 2);
    }

    #[test]
    fn a_mistake_switches_the_hook_off() {
        for (config, hint) in [
            ("{", "is not JSON"),
            (r#"{"LocalPath": "TENSORS", "HookParameters": {"save_interval": "often"}}"#, "save_interval=often"),
            (r#"{"LocalPath": "TENSORS", "HookParameters": {"include_regex": "("}}"#, "is not a regular expression"),
        ] {
            let (_, hook, lines) = start(config, 0);
            assert!(hook.is_none() && lines[0].contains(hint), "{lines:?}");
        }
        let missing = Hook::start(Path::new("/nonexistent/debughookconfig.json"), &DEFAULTS, 0, 1);
        assert!(missing.0.is_none() && missing.1.is_empty());
    }
}
