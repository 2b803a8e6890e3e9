//! Why a study cannot be made.

/// What is wrong with a search space; the text names the parameter.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("parameter {parameter}: {problem}")]
pub struct SpaceError {
    /// Its name.
    pub parameter: String,
    /// What is wrong with it, and what would be right.
    pub problem: String,
}

/// What is wrong with a study's specification.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SpecError {
    /// The search space.
    #[error(transparent)]
    Space(#[from] SpaceError),
    /// The searcher cannot work on this space or with these options.
    #[error("searcher {searcher}: {problem}")]
    Searcher {
        /// Its name.
        searcher: &'static str,
        /// What is wrong, and what would be right.
        problem: String,
    },
    /// The scheduler cannot work with these options.
    #[error("scheduler {scheduler}: {problem}")]
    Scheduler {
        /// Its name.
        scheduler: &'static str,
        /// What is wrong, and what would be right.
        problem: String,
    },
    /// No strategy of this name, or a specification that is none.
    #[error("{0}")]
    Named(String),
    /// No objective, or more than there is support for.
    #[error("objectives: {0}")]
    Objectives(String),
    /// A record does not belong to this study.
    #[error("record: {0}")]
    Record(String),
}
