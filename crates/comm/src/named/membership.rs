//! A process set as each of its ranks knows it.

use std::sync::{Arc, Mutex};

use super::{settings::Settings, submission::OnJoined, timeline::Timeline};

/// What stays the same as long as the set is there.
pub(super) struct Membership {
    /// The set's ranks in the world, in order, and the index of this rank among them.
    pub(super) members: Arc<[usize]>,
    pub(super) rank: usize,
    pub(super) settings: Arc<Settings>,
    pub(super) timeline: Arc<Timeline>,
    pub(super) on_joined: Arc<Mutex<Option<OnJoined>>>,
}
