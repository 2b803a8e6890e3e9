//! Restart recovery: which attempts of a previous server go on, what is removed, and how a launch
//! that is requested again continues.
//!
//! Functions of what is on disk and in the journal: they may run again after a crash in the middle,
//! with the same result.

use std::collections::BTreeSet;

use shoal_plane::AttemptId;

use crate::warm_pool::AllocationId;

/// A run directory that a start finds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// The attempt that it is named after.
    pub attempt: AttemptId,
    /// The attempt's plan in it, if that can be read.
    pub plan: Option<FoundPlan>,
}

/// A plan in a run directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundPlan {
    /// The instance that serves the attempt.
    pub allocation: AllocationId,
    /// See [`crate::warm_pool::ReusePolicy::key`]; none if the instance is not retained.
    pub key: Option<String>,
}

/// What a start does about the run directories.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Recovery {
    /// Attempts whose agents may run: they are admitted.
    pub adopt: Vec<AttemptId>,
    /// For [`crate::WarmPool::restore`].
    pub keys: Vec<(AttemptId, String)>,
    /// Attempts of which everything is ended and removed, after the others are adopted.
    pub clear: Vec<AttemptId>,
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
            _ => recovery.clear.push(attempt),
        }
    }
    // A directory whose attempt is over may be that of an instance that serves another one now.
    recovery.clear.retain(|attempt| !in_use.contains(attempt));
    recovery
}

/// What a launch finds of itself when it is requested again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KnownPlan {
    /// It was assigned a warm instance.
    pub is_warm: bool,
    /// All instances of its allocation run.
    pub is_complete: bool,
    /// Reports of its agents are stored.
    pub has_reports: bool,
}

/// How a launch begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Relaunch {
    /// Nothing of it is there.
    New,
    /// Its warm instance has exited with the previous server: what is left of that is ended first.
    Replace,
    /// Its agents run, or have run: they are admitted.
    Adopt {
        /// Agents that a crash in the middle of the first submission left unstarted are started.
        submit: bool,
    },
}

/// How a launch begins whose plan may be on disk.
#[must_use]
pub fn relaunch(known: Option<KnownPlan>) -> Relaunch {
    match known {
        None => Relaunch::New,
        // Agents of a warm instance exit with a server that was killed before it could assign them
        // the attempt.
        Some(plan) if plan.is_warm && !plan.is_complete && !plan.has_reports => Relaunch::Replace,
        Some(plan) => Relaunch::Adopt { submit: !plan.is_warm },
    }
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
    use crate::random::Random;

    fn found(attempt: &str, plan: Option<(&str, Option<&str>)>) -> Found {
        let plan = plan.map(|(allocation, key)| FoundPlan {
            allocation: AllocationId(allocation.into()),
            key: key.map(str::to_owned),
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
        assert_eq!(recovery.clear, ["ended", "idle"]);
    }

    #[test]
    fn a_launch_starts_nothing_twice() {
        let plan = |is_warm, is_complete, has_reports| Some(KnownPlan { is_warm, is_complete, has_reports });
        for (known, expected) in [
            (None, Relaunch::New),
            (plan(false, false, false), Relaunch::Adopt { submit: true }),
            (plan(false, true, true), Relaunch::Adopt { submit: true }),
            (plan(true, false, false), Relaunch::Replace),
            (plan(true, true, false), Relaunch::Adopt { submit: false }),
            (plan(true, false, true), Relaunch::Adopt { submit: false }),
        ] {
            assert_eq!(relaunch(known), expected, "{known:?}");
        }
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
                let is_cleared = first.clear.contains(attempt);
                assert_eq!(is_cleared, !live.contains(attempt) && !serves(attempt), "seed {seed}: {attempt}");
            }
            assert!(first.keys.iter().all(|(attempt, _)| first.adopt.contains(attempt)), "seed {seed}");
            // Some were removed before the server ended.
            let removed = random.below(first.clear.len() + 1);
            let left = directories.into_iter().filter(|it| !first.clear[..removed].contains(&it.attempt)).collect();
            let again = recover(&live, left);
            assert_eq!((&again.adopt, &again.keys), (&first.adopt, &first.keys), "seed {seed}");
            assert_eq!(again.clear, first.clear[removed..], "seed {seed}");
        }
    }
}
