//! Restart recovery: which attempts of a previous server go on, and what is removed.
//!
//! Functions of what is on disk and in the journal: they may run again after a crash in the middle,
//! with the same result.

use std::collections::BTreeSet;

use shoal_plane::AttemptId;

use crate::steps::{self, FoundPlan, Step};

/// A run directory that a start finds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// The attempt that it is named after.
    pub attempt: AttemptId,
    /// The attempt's plan in it, if that can be read.
    pub plan: Option<FoundPlan>,
}

/// What a start does about the run directories.
#[derive(Debug, Default, PartialEq)]
pub struct Recovery {
    /// Attempts whose agents may run: they are admitted.
    pub adopt: Vec<AttemptId>,
    /// For [`crate::WarmPool::restore`].
    pub keys: Vec<(AttemptId, String)>,
    /// The steps by which everything of other attempts is ended and removed, after these are
    /// adopted.
    pub clear: Vec<(AttemptId, Vec<Step>)>,
}

/// Divides run directories into those of attempts that are live by the journal, and the rest.
#[must_use]
pub fn recover(live: &BTreeSet<AttemptId>, found: Vec<Found>) -> Recovery {
    let (mut recovery, mut in_use) = (Recovery::default(), BTreeSet::new());
    for Found { attempt, plan } in found {
        match plan {
            Some(plan) if live.contains(&attempt) => {
                in_use.insert(plan.allocation.0);
                recovery.keys.extend(plan.key.map(|key| (attempt.clone(), key)));
                recovery.adopt.push(attempt);
            }
            // Its launch is requested again.
            None if live.contains(&attempt) => {}
            plan => {
                let steps = steps::clear(&attempt, plan.as_ref(), false);
                recovery.clear.push((attempt, steps));
            }
        }
    }
    // A directory whose attempt is over may be that of an instance that serves another one now.
    recovery.clear.retain(|(attempt, _)| !in_use.contains(attempt));
    recovery
}

/// Whether the instance that was started for an attempt serves another one, by pairs of attempt and
/// allocation of all that run: a crash may have come between the assignment of a warm instance and
/// the release of the attempt for which it was started.
pub fn serves_another<'a>(attempt: &str, running: impl IntoIterator<Item = (&'a str, &'a str)>) -> bool {
    running.into_iter().any(|(other, allocation)| other != attempt && allocation == attempt)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{random::Random, warm_pool::AllocationId};

    fn found(attempt: &str, plan: Option<(&str, Option<&str>)>) -> Found {
        let plan = plan.map(|(allocation, key)| FoundPlan {
            allocation: AllocationId(allocation.into()),
            hosts: 1,
            key: key.map(str::to_owned),
            is_elastic: false,
        });
        Found { attempt: attempt.into(), plan }
    }

    #[test]
    fn live_attempts_are_adopted_and_the_rest_is_removed() {
        let live = ["cold", "warm", "unprepared"].map(AttemptId::from).into();
        let directories = vec![
            found("cold", Some(("cold", None))),
            found("warm", Some(("served", Some("key")))),
            found("unprepared", None),
            found("served", None),
            found("ended", Some(("ended", Some("key")))),
            found("idle", None),
        ];
        let recovery = recover(&live, directories);
        assert_eq!(recovery.adopt, ["cold", "warm"]);
        assert_eq!(recovery.keys, [("warm".into(), "key".to_owned())]);
        let cleared: Vec<&str> = recovery.clear.iter().map(|(attempt, _)| &**attempt).collect();
        assert_eq!(cleared, ["ended", "idle"]);
    }

    #[test]
    fn an_instance_that_serves_another_attempt_is_known() {
        assert!(serves_another("a", [("b", "a")]));
        assert!(!serves_another("a", [("a", "a"), ("b", "c")]));
    }

    #[test]
    fn a_start_that_was_cut_short_is_repeated_with_the_same_outcome() {
        for seed in 0..500 {
            let mut random = Random::new(seed);
            let names: Vec<String> = (0..random.below(8)).map(|number| number.to_string()).collect();
            let live: BTreeSet<AttemptId> =
                names.iter().filter(|_| random.one_in(2)).map(|name| AttemptId::from(name.as_str())).collect();
            let directories: Vec<Found> = names
                .iter()
                .map(|name| {
                    let served = &names[random.below(names.len())];
                    found(name, (!random.one_in(3)).then_some((served.as_str(), random.one_in(2).then_some("key"))))
                })
                .collect();
            let first = recover(&live, directories.clone());
            let serves = |attempt: &AttemptId| {
                directories.iter().any(|it| {
                    let allocation = it.plan.as_ref().map(|plan| &plan.allocation.0);
                    first.adopt.contains(&it.attempt) && allocation == Some(attempt)
                })
            };
            for Found { attempt, plan } in &directories {
                let is_adopted = first.adopt.contains(attempt);
                assert_eq!(is_adopted, live.contains(attempt) && plan.is_some(), "seed {seed}: {attempt}");
                let is_cleared = first.clear.iter().any(|(cleared, _)| cleared == attempt);
                assert_eq!(is_cleared, !live.contains(attempt) && !serves(attempt), "seed {seed}: {attempt}");
            }
            assert!(first.keys.iter().all(|(attempt, _)| first.adopt.contains(attempt)), "seed {seed}");
            // Some were removed before the server ended.
            let removed = random.below(first.clear.len() + 1);
            let left = directories
                .into_iter()
                .filter(|it| first.clear[..removed].iter().all(|(cleared, _)| *cleared != it.attempt))
                .collect();
            let again = recover(&live, left);
            assert_eq!((&again.adopt, &again.keys), (&first.adopt, &first.keys), "seed {seed}");
            assert_eq!(again.clear, first.clear[removed..], "seed {seed}");
        }
    }
}
