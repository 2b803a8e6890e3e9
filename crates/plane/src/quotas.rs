//! How much a user, or all jobs with a tag, may hold at once, and who has used how much.
//!
//! - **A quota** bounds instances, GPUs and running jobs. A job that would exceed one waits, and
//!   holds back those behind it that count against the same limit: so quotas starve no job. It is
//!   never the head of the queue, and keeps nothing from others.
//! - **Fair share.** Of equal priority, the user goes first who has used less: instance seconds,
//!   of which half are forgotten after each half-life. What runs counts up to now. (J. Kay and P.
//!   Lauder, "A fair share scheduler", 1988, section 3; Slurm's `PriorityDecayHalfLife`.)
//!
//! What a job that rests frozen holds are its GPUs, no instances.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::{Claim, QuotaLimit, Time, capacity::Resources};

/// What may be held at once; none: any number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Limits {
    /// Instances of running jobs together.
    pub instances: Option<u32>,
    /// GPUs of them.
    pub gpus: Option<u32>,
    /// Jobs on instances; each trial of a tuning job is one.
    pub jobs: Option<u32>,
}

/// All quotas, and how fast use is forgotten.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Quotas {
    /// By user.
    pub users: BTreeMap<String, Limits>,
    /// Of each user who has none by name.
    pub default: Limits,
    /// By tag, as `KEY=VALUE`.
    pub tags: BTreeMap<String, Limits>,
    /// Seconds after which half of what was used is forgotten; none: use gives no precedence.
    pub half_life_s: Option<u64>,
}

/// A quota's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Quota<'a> {
    User(&'a str),
    Tag(&'a str),
}

impl std::fmt::Display for Quota<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Quota::User(name) => write!(f, "user:{name}"),
            Quota::Tag(tag) => write!(f, "tag:{tag}"),
        }
    }
}

/// What is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Counted {
    Jobs,
    Instances,
    Gpus,
}

impl Counted {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Counted::Jobs => "jobs",
            Counted::Instances => "instances",
            Counted::Gpus => "gpus",
        }
    }
}

/// What is held, or would be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Amounts {
    /// Running jobs.
    pub jobs: u64,
    /// Their instances.
    pub instances: u64,
    /// Their GPUs.
    pub gpus: u64,
}

impl Amounts {
    /// Of a job, or of instances that one gets beside those it has.
    pub(crate) fn of(resources: &Resources, jobs: u64) -> Amounts {
        Amounts { jobs, instances: resources.instances.into(), gpus: resources.gpus.into() }
    }

    fn plus(self, other: Amounts) -> Amounts {
        Amounts {
            jobs: self.jobs + other.jobs,
            instances: self.instances + other.instances,
            gpus: self.gpus + other.gpus,
        }
    }

    fn minus(self, other: Amounts) -> Amounts {
        Amounts {
            jobs: self.jobs.saturating_sub(other.jobs),
            instances: self.instances.saturating_sub(other.instances),
            gpus: self.gpus.saturating_sub(other.gpus),
        }
    }
}

/// What is held by user and by tag. None is zero.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Claimed {
    users: BTreeMap<String, Amounts>,
    tags: BTreeMap<String, Amounts>,
}

impl Claimed {
    fn change(&mut self, claim: &Claim, change: impl Fn(Amounts) -> Amounts) {
        let change = |map: &mut BTreeMap<String, Amounts>, name: &String| {
            let amounts = change(map.get(name).copied().unwrap_or_default());
            if amounts == Amounts::default() {
                map.remove(name);
            } else if let Some(held) = map.get_mut(name) {
                *held = amounts;
            } else {
                map.insert(name.clone(), amounts);
            }
        };
        claim.user.iter().for_each(|user| change(&mut self.users, user));
        claim.tags.iter().for_each(|tag| change(&mut self.tags, tag));
    }

    pub(crate) fn add(&mut self, claim: &Claim, amounts: Amounts) {
        self.change(claim, |held| held.plus(amounts));
    }

    pub(crate) fn remove(&mut self, claim: &Claim, amounts: Amounts) {
        self.change(claim, |held| held.minus(amounts));
    }

    /// Instances of a user's running jobs.
    pub(crate) fn instances_of(&self, user: &str) -> u64 {
        self.users.get(user).map_or(0, |held| held.instances)
    }

    pub(crate) fn user(&self, name: &str) -> Amounts {
        self.users.get(name).copied().unwrap_or_default()
    }

    pub(crate) fn tag(&self, tag: &str) -> Amounts {
        self.tags.get(tag).copied().unwrap_or_default()
    }

    pub(crate) fn users(&self) -> impl Iterator<Item = &String> {
        self.users.keys()
    }
}

/// A quota that does not permit what a job needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Excess<'a> {
    quota: Quota<'a>,
    pub(crate) counted: Counted,
    limit: u64,
    pub(crate) needs: u64,
    used: u64,
}

impl Excess<'_> {
    pub(crate) fn limit(&self) -> QuotaLimit {
        QuotaLimit { name: self.quota.to_string(), limit: self.limit }
    }

    pub(crate) fn free(&self) -> u64 {
        self.limit.saturating_sub(self.used)
    }

    /// Of a job that no wait would help.
    pub(crate) fn refusal(&self) -> String {
        let Excess { quota, limit, needs, .. } = self;
        let what = match self.counted {
            Counted::Jobs => "running jobs",
            Counted::Instances => "instances",
            Counted::Gpus => "GPUs",
        };
        format!(
            "The quota '{quota}' is {limit} {what} at once, and a training job of this request needs {needs}. Request \
             less, or have the owner of the server raise the quota in shoal.toml."
        )
    }
}

impl Quotas {
    /// The limits of a user.
    pub fn of_user(&self, user: &str) -> Limits {
        self.users.get(user).copied().unwrap_or(self.default)
    }

    fn of<'a>(&'a self, claim: &'a Claim) -> impl Iterator<Item = (Quota<'a>, Limits)> {
        let user = claim.user.as_deref().map(|user| (Quota::User(user), self.of_user(user)));
        let of_tag = |tag: &'a String| Some((Quota::Tag(tag), *self.tags.get(tag)?));
        user.into_iter().chain(claim.tags.iter().filter_map(of_tag))
    }

    /// The first quota that does not permit this, beside what is held.
    pub(crate) fn excess<'a>(&'a self, claim: &'a Claim, held: &Claimed, needs: Amounts) -> Option<Excess<'a>> {
        self.of(claim).find_map(|(quota, limits)| {
            let held = match quota {
                Quota::User(user) => held.user(user),
                Quota::Tag(tag) => held.tag(tag),
            };
            let counted = [
                (Counted::Jobs, limits.jobs, needs.jobs, held.jobs),
                (Counted::Instances, limits.instances, needs.instances, held.instances),
                (Counted::Gpus, limits.gpus, needs.gpus, held.gpus),
            ];
            counted.into_iter().find_map(|(counted, limit, needs, used)| {
                let limit = u64::from(limit?);
                (needs > 0 && used + needs > limit).then_some(Excess { quota, counted, limit, needs, used })
            })
        })
    }
}

/// What quotas permit during one round of scheduling.
pub(crate) struct Round<'a> {
    quotas: &'a Quotas,
    held: Claimed,
    /// Limits that hold back a job, and so those behind it.
    reached: BTreeSet<(Quota<'a>, Counted)>,
}

impl<'a> Round<'a> {
    pub(crate) fn new(quotas: &'a Quotas, held: &Claimed) -> Self {
        Self { quotas, held: held.clone(), reached: BTreeSet::new() }
    }

    /// What holds a job back that needs this much; those behind it are held back, too.
    pub(crate) fn holds_back(&mut self, claim: &'a Claim, needs: Amounts) -> Option<Counted> {
        if let Some(excess) = self.quotas.excess(claim, &self.held, needs) {
            self.reached.insert((excess.quota, excess.counted));
            return Some(excess.counted);
        }
        if self.reached.is_empty() {
            return None;
        }
        let needed = [(Counted::Jobs, needs.jobs), (Counted::Instances, needs.instances), (Counted::Gpus, needs.gpus)];
        self.quotas.of(claim).find_map(|(quota, _)| {
            let is_reached =
                |(counted, needs): &(Counted, u64)| *needs > 0 && self.reached.contains(&(quota, *counted));
            needed.iter().find(|it| is_reached(it)).map(|(counted, _)| *counted)
        })
    }

    /// A job gets this much.
    pub(crate) fn take(&mut self, claim: &Claim, amounts: Amounts) {
        self.held.add(claim, amounts);
    }
}

/// What users have used, and have not been forgiven yet.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct Usage(BTreeMap<String, Used>);

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
struct Used {
    /// Instance milliseconds.
    instance_ms: f64,
    /// As of then.
    at: Time,
}

/// Use that is forgotten as a whole.
const NOTHING_MS: f64 = 1.0;

impl Usage {
    /// Instance milliseconds of a user who has held this number of instances since the last change.
    pub(crate) fn of(&self, user: &str, instances: u64, now: Time, half_life_s: Option<u64>) -> f64 {
        let Some(half_life_s) = half_life_s.filter(|it| *it > 0) else { return 0.0 };
        let Some(Used { instance_ms, at }) = self.0.get(user).copied() else { return 0.0 };
        let half_life_ms = (half_life_s * 1000) as f64;
        let left = libm::exp2(-(now.ms_since(at) as f64) / half_life_ms);
        // The integral of what has been held since, each moment of it decayed to now.
        let held = instances as f64 * half_life_ms / std::f64::consts::LN_2 * (1.0 - left);
        instance_ms * left + held
    }

    /// A user held `before` instances until now, and another number from now on.
    pub(crate) fn change(&mut self, user: &str, before: u64, after: u64, now: Time, half_life_s: Option<u64>) {
        if half_life_s.is_none() {
            return;
        }
        let instance_ms = self.of(user, before, now, half_life_s);
        if after == 0 && instance_ms < NOTHING_MS {
            self.0.remove(user);
        } else if let Some(used) = self.0.get_mut(user) {
            *used = Used { instance_ms, at: now };
        } else {
            self.0.insert(user.to_owned(), Used { instance_ms, at: now });
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn users(&self) -> impl Iterator<Item = &String> {
        self.0.keys()
    }
}

/// What a user or a tag holds, and may hold.
#[derive(Debug, Clone, PartialEq)]
pub struct QuotaUse {
    /// `user:anna`, `tag:team=vision`.
    pub name: String,
    /// At most.
    pub limits: Limits,
    /// At present.
    pub held: Amounts,
    /// Instance seconds that count in the fair share; of users alone.
    pub used_s: Option<f64>,
}
