//! What a training job has saved so far, for the sentence of a rule that lacks its tensors.

use std::collections::BTreeSet;

use crate::selection::Groups;

/// Names that are remembered; the others are counted.
const MAX_NAMES: usize = 10_000;
/// Names in a sentence.
const MAX_SHOWN: usize = 5;

/// Names of saved tensors, as many as fit.
#[derive(Debug, Default)]
pub struct Catalogue {
    names: BTreeSet<String>,
    has_more: bool,
}

impl Catalogue {
    /// A tensor was saved.
    pub fn add(&mut self, name: &str) {
        if self.names.contains(name) {
            return;
        }
        if self.names.len() < MAX_NAMES {
            self.names.insert(name.to_owned());
        } else {
            self.has_more = true;
        }
    }

    pub(crate) fn describe(&self, groups: &Groups) -> String {
        if self.names.is_empty() {
            return "the training job saved no tensors".to_owned();
        }
        let shown = Vec::from_iter(self.names.iter().take(MAX_SHOWN).map(String::as_str)).join(", ");
        let more = if self.names.len() > MAX_SHOWN { ", .." } else { "" };
        let count = if self.has_more { format!("more than {MAX_NAMES}") } else { self.names.len().to_string() };
        let collections = Vec::from_iter(groups.names()).join(", ");
        let collections = if collections.is_empty() { String::new() } else { format!(" in collections {collections}") };
        format!("the training job saved {count} tensors{collections} ({shown}{more})")
    }
}
