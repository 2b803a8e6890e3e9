//! What a study is made of.

use serde::{Deserialize, Serialize};

use crate::{Direction, SchedulerSpec, SearcherSpec, Space};

/// All that determines a study, but for what its trials report.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StudySpec {
    /// What may be tried.
    pub space: Space,
    /// At least one; schedulers look at the first.
    #[serde(default = "one_objective")]
    pub objectives: Vec<Direction>,
    /// What proposes configurations.
    pub searcher: SearcherSpec,
    /// What decides who goes on.
    #[serde(default)]
    pub scheduler: SchedulerSpec,
    /// Of all that is random.
    pub seed: u64,
    /// No more trials than this are started.
    #[serde(default)]
    pub max_trials: Option<u32>,
}

fn one_objective() -> Vec<Direction> {
    vec![Direction::Minimize]
}

impl StudySpec {
    /// Random search for a minimum, each trial to its end.
    pub fn random(space: Space, seed: u64) -> Self {
        Self {
            space,
            objectives: one_objective(),
            searcher: SearcherSpec::Random,
            scheduler: SchedulerSpec::None,
            seed,
            max_trials: None,
        }
    }
}
