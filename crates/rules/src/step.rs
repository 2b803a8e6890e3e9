//! What the workers of a host saved in one step.

use std::cell::OnceCell;
use std::collections::BTreeMap;

use shoal_contract::tensors::{Mode, Reduction, ReductionKind, Tensor};

use crate::selection::Groups;
use crate::statistics::Statistics;

/// A step.
#[derive(Debug)]
pub struct Step<'a> {
    /// Step over all modes.
    pub step: u64,
    /// Phase.
    pub mode: Mode,
    /// Step within the mode.
    pub mode_step: u64,
    /// Which tensors belong to which collections.
    pub groups: &'a Groups,
    saved: Vec<Saved<'a>>,
    has_workers: bool,
}

/// A tensor of a worker, or what was saved in its place.
#[derive(Debug)]
pub struct Saved<'a> {
    /// The tensor's name.
    pub name: String,
    /// Who saved it.
    pub worker: String,
    /// The tensor itself, unless only reductions were saved.
    pub tensor: Option<Tensor<'a>>,
    reductions: BTreeMap<Reduction, f64>,
    statistics: OnceCell<Option<Statistics>>,
}

impl<'a> Step<'a> {
    /// From the tensors of all workers of a host; reductions join the tensor that they are of.
    #[must_use]
    pub fn new(
        groups: &'a Groups,
        (step, mode, mode_step): (u64, Mode, u64),
        tensors: impl IntoIterator<Item = (&'a str, Tensor<'a>)>,
    ) -> Self {
        let mut saved: BTreeMap<(String, &str), Saved<'a>> = BTreeMap::new();
        for (worker, tensor) in tensors {
            let (reduction, name) = match Reduction::parse(&tensor.name) {
                Some((reduction, name)) => (Some(reduction), name.to_owned()),
                None => (None, tensor.name.to_string()),
            };
            let entry = saved.entry((name, worker)).or_insert_with_key(|(name, worker)| Saved {
                name: name.clone(),
                worker: (*worker).to_owned(),
                tensor: None,
                reductions: BTreeMap::new(),
                statistics: OnceCell::new(),
            });
            match reduction {
                None => entry.tensor = Some(tensor),
                Some(reduction) => {
                    if let Some(value) = tensor.scalar() {
                        entry.reductions.insert(reduction, value);
                    }
                }
            }
        }
        let saved = Vec::from_iter(saved.into_values());
        let has_workers = saved.iter().any(|other| other.worker != saved[0].worker);
        Self { step, mode, mode_step, groups, saved, has_workers }
    }

    /// In the order of their names, then of their workers.
    #[must_use]
    pub fn saved(&self) -> &[Saved<'a>] {
        &self.saved
    }

    /// A tensor's name for people, with its worker where several saved the step.
    #[must_use]
    pub fn describe(&self, saved: &Saved<'_>) -> String {
        if self.has_workers { format!("{} of {}", saved.name, saved.worker) } else { saved.name.clone() }
    }
}

impl Saved<'_> {
    /// Statistics of the tensor, if it was saved and has real numbers.
    #[must_use]
    pub fn statistics(&self) -> Option<&Statistics> {
        let compute = || self.tensor.as_ref().and_then(|tensor| Statistics::of(tensor).ok());
        self.statistics.get_or_init(compute).as_ref()
    }

    /// A reduction that was saved, or of the tensor.
    pub(crate) fn reduction(&self, kind: ReductionKind, is_absolute: bool) -> Option<f64> {
        let reduction = Reduction { kind, is_absolute };
        match self.statistics() {
            Some(statistics) => statistics.reduction(reduction),
            None => self.reductions.get(&reduction).copied(),
        }
    }

    /// The mean, of the absolute values or not.
    pub(crate) fn mean(&self, is_absolute: bool) -> Option<f64> {
        self.reduction(ReductionKind::Mean, is_absolute)
    }

    /// Reductions as they were saved.
    pub(crate) fn reductions(&self) -> impl Iterator<Item = (Reduction, f64)> {
        self.reductions.iter().map(|(reduction, value)| (*reduction, *value))
    }

    /// What names the series of this tensor of this worker.
    pub(crate) fn key(&self) -> String {
        format!("{}\n{}", self.worker, self.name)
    }
}
