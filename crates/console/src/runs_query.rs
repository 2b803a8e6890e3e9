//! What a table of runs asks the server's index for, and what it gets.

use shoal_wire::{Condition, SortOrder};

/// A page of a table of runs. A column is the paths of its property: the first one that a run has
/// counts.
#[derive(Debug, Clone, PartialEq)]
pub struct RunsQuery {
    /// Which runs.
    pub condition: Condition<String>,
    /// Runs with the same value of this column stand together, before any other order; empty for
    /// none.
    pub group: Vec<String>,
    /// Of the runs of a group. Runs without the property come last.
    pub order: (Vec<String>, SortOrder),
    /// Columns whose values are wanted.
    pub columns: Vec<Vec<String>>,
    /// How many runs are before the page.
    pub from: usize,
    /// Most runs of the page; with 0, only the total and the properties are returned.
    pub limit: usize,
}

/// A value of a run.
#[derive(Debug, Clone, PartialEq)]
pub enum Cell {
    /// A number; seconds since the epoch for times.
    Number(f64),
    /// A text.
    Text(String),
}

/// A page of runs.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RunsPage {
    /// How many runs meet the condition.
    pub total: usize,
    /// The page's runs.
    pub runs: Vec<RunCells>,
    /// All groups, in their order, with the number of their runs; empty without groups.
    pub groups: Vec<(Option<Cell>, usize)>,
    /// Parameters, metrics and tags that some of the runs have, by path.
    pub properties: Vec<RunProperty>,
}

/// A run of a page.
#[derive(Debug, Clone, PartialEq)]
pub struct RunCells {
    /// The trial component's name, as rows have it.
    pub name: String,
    /// What it is grouped by.
    pub group: Option<Cell>,
    /// Its values, in the order of the columns.
    pub cells: Vec<Option<Cell>>,
}

/// A property of the runs.
#[derive(Debug, Clone, PartialEq)]
pub struct RunProperty {
    /// `Parameters.eta.NumberValue`, `Metrics.loss.Last`, `Tags.team`.
    pub path: String,
    /// Not all runs have it with the same value.
    pub varies: bool,
}
