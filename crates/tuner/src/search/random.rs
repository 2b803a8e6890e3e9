//! Random search.

use crate::{Proposal, Rng, Searcher, View};

/// Independent draws, uniform in the scaled space; looks at no results.
#[derive(Debug, Clone, Copy, Default)]
pub struct Random;

impl Searcher for Random {
    fn propose(&mut self, view: &View<'_>, rng: &mut Rng) -> Proposal {
        Proposal::plain(view.space.draw(rng))
    }
}
