//! What is known of rows in memory and is no longer true.

use std::{collections::BTreeSet, mem};

/// Which rows of a kind have changed since they were read.
pub(crate) enum Stale {
    /// All are to be read.
    All,
    /// Those of these names.
    Some(BTreeSet<String>),
}

impl Stale {
    /// A row has changed.
    pub(crate) fn note(&mut self, name: &str) {
        if let Self::Some(names) = self {
            names.insert(name.to_owned());
        }
    }

    /// What is to be read now; nothing is stale then.
    pub(crate) fn take(&mut self) -> Self {
        mem::replace(self, Self::Some(BTreeSet::new()))
    }

    pub(crate) fn is_empty(&self) -> bool {
        matches!(self, Self::Some(names) if names.is_empty())
    }
}
