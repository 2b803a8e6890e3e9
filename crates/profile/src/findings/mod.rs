//! What matters in a profile, in plain sentences, each with what to try; the costliest come first.

mod stacks;
mod steps;
mod system;

pub(crate) use steps::slowest;

use crate::model::Profile;

/// Findings of a profile.
const MOST: usize = 10;

/// Something that costs time, or is about to.
#[derive(Debug, Clone, PartialEq)]
pub struct Finding {
    /// A few words.
    pub title: String,
    /// What was seen, with values.
    pub text: String,
    /// What to try.
    pub advice: String,
    /// Share of the training's time that it costs, as far as that can be known: an order.
    pub share: f64,
}

/// The ten findings that matter most.
#[must_use]
pub fn findings(profile: &Profile) -> Vec<Finding> {
    let mut found = steps::findings(profile);
    found.extend(system::findings(profile));
    found.extend(stacks::findings(profile));
    found.sort_by(|a, b| b.share.total_cmp(&a.share));
    found.truncate(MOST);
    found
}

/// Where the steps' time goes, of all ranks; none without steps.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Shares {
    pub(crate) waiting: f64,
    pub(crate) communicating: f64,
    /// Whether waits for other ranks are seen at all: those of Gloo and NCCL are not.
    pub(crate) sees_communication: bool,
}

impl Shares {
    pub(crate) fn of(profile: &Profile) -> Option<Self> {
        let sum = |of: fn(&crate::RankSteps) -> f64| profile.ranks.iter().map(of).sum::<f64>();
        let total = sum(|it| it.total_s);
        let share = |seconds: f64| (seconds / total).clamp(0.0, 1.0);
        (total > 0.0).then(|| Self {
            waiting: share(sum(|it| it.waiting_s)),
            communicating: share(sum(|it| it.communicating_s)),
            sees_communication: profile.ranks.len() < 2 || profile.ranks.iter().any(|it| it.communicating_s > 0.0),
        })
    }

    pub(crate) fn computing(self) -> f64 {
        (1.0 - self.waiting - self.communicating).max(0.0)
    }
}

/// `12 %`, of a share.
pub(crate) fn percent(share: f64) -> String {
    let percent = 100.0 * share;
    if percent < 9.95 { format!("{percent:.1} %") } else { format!("{percent:.0} %") }
}

/// Milliseconds as people read them.
pub(crate) fn time(ms: f64) -> String {
    match ms {
        ms if ms < 0.0995 => format!("{:.0} us", 1000.0 * ms),
        ms if ms < 9.95 => format!("{ms:.1} ms"),
        ms if ms < 999.5 => format!("{ms:.0} ms"),
        ms if ms < 119_500.0 => format!("{:.1} s", ms / 1000.0),
        ms if ms < 7_170_000.0 => format!("{:.0} min", ms / 60_000.0),
        ms => format!("{:.1} h", ms / 3_600_000.0),
    }
}

#[cfg(test)]
mod tests;
