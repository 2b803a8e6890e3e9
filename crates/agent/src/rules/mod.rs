//! The Debugger's rules at work: follows the directory of saved tensors of this host, and judges
//! each step when its workers have saved it.
//!
//! A finding is reported within milliseconds of the index file's rename. Files are read once, of
//! event files only what a rule that has no conclusion yet reads, and memory is bounded: steps that
//! come faster than they are judged, and tensors that are too large, are left out and reported.

mod follow;
mod order;
mod reader;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;

use shoal_rules::{Conclusion, Evaluation, ParameterError};

use crate::mirror::Place;
use crate::mirror::changes::Changes;
use crate::mirror::tree::Tree;
use crate::mirror::watch::Watch;
use crate::own_log::say;
use follow::Follower;

const STACK: usize = 1 << 20;

/// A rule of the request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RuleConfiguration {
    /// `RuleConfigurationName`.
    pub(crate) name: String,
    /// `RuleParameters`.
    pub(crate) parameters: BTreeMap<String, String>,
    /// Directories with the tensors of other runs, for `SimilarAcrossRuns`.
    pub(crate) other_runs: Vec<PathBuf>,
}

/// What comes of the rules.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum RuleEvent {
    /// An evaluation has ended.
    Concluded {
        /// `RuleConfigurationName`.
        configuration: String,
        /// Status and details.
        conclusion: Conclusion,
        /// The rule asks for the training job's end.
        stops_training: bool,
    },
    /// Something about the files, for the training job's log.
    Note(String),
    /// All evaluations have ended after [`Rules::finish`]; nothing follows.
    Ended,
}

/// Rules at work.
#[derive(Debug)]
pub(crate) struct Rules {
    changes: Arc<Changes>,
    mark: PathBuf,
}

impl Rules {
    /// Begins to follow the directory of saved tensors, which need not exist yet; `ranks` is the
    /// number of workers of this host. Events come in their order, from a thread.
    pub(crate) fn start(
        place: &Place,
        ranks: usize,
        configurations: Vec<RuleConfiguration>,
        report: impl FnMut(RuleEvent) + Send + 'static,
    ) -> io::Result<Self> {
        let evaluate = |rule: RuleConfiguration| -> Result<_, ParameterError> {
            Ok((Evaluation::new(&rule.name, &rule.parameters)?, rule.other_runs))
        };
        // The server has checked them.
        let evaluations: Vec<_> =
            configurations.into_iter().map(evaluate).collect::<Result<_, _>>().map_err(io::Error::other)?;
        fs::create_dir_all(&place.marks)?;
        let tree = Arc::new(Tree::open(&place.base, &place.root)?);
        let changes = Arc::new(Changes::ordered());
        match Watch::start(tree.clone(), changes.clone(), &place.marks, is_followed) {
            Ok(watch) => {
                thread::Builder::new().name("tensor watch".into()).stack_size(STACK).spawn(move || watch.listen())?;
            }
            Err(error) => {
                say(format_args!("saved tensors are looked for every second: {error}"));
                changes.poll();
            }
        }
        // What was saved before the watch.
        changes.rescan();
        let follower = Follower::new(tree, changes.clone(), ranks, evaluations, Box::new(report));
        thread::Builder::new().name("rules".into()).stack_size(STACK).spawn(move || follower.run())?;
        Ok(Self { changes, mark: place.marks.join("end") })
    }

    /// The program has ended: what it saved is judged, then every evaluation ends.
    pub(crate) fn finish(&self) {
        if self.changes.has_ended() {
            return;
        }
        // Files that were placed are complete, however the program ended.
        self.changes.end(false);
        if self.changes.is_polled() || File::create(&self.mark).is_err() {
            self.changes.complete();
        }
    }

    /// No conclusion is needed any more.
    pub(crate) fn give_up(&self) {
        self.changes.give_up();
    }
}

/// Event files are found by their index, so that a step costs no watch of its own.
fn is_followed(directory: &Path) -> bool {
    directory.as_os_str().is_empty() || directory.starts_with("index") || directory.starts_with("collections")
}

#[cfg(test)]
mod tests;
