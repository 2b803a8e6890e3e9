//! How much a user, or all jobs with a tag, may use. What runs is bounded by the core
//! ([`shoal_plane::Quotas`]); here is what is stored, and how often is asked.
//!
//! What is stored is measured every few seconds, so a user exceeds a quota by what is written in
//! between. Results of jobs are stored all the same: a model is never lost to a quota.

mod rates;
mod space;

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError, RwLock},
};

use shoal_plane::{Claim, Limits};
use shoal_tuner::near;
use shoal_wire::{Error, ErrorCode, KeyRole, PRIORITY_TAG, Tag, tags};

use crate::team::Member;
use rates::Bucket;
pub(crate) use space::{Measuring, Space};

/// The name of the key in the data directory.
pub(crate) const OWNER: &str = "owner";

/// What a user may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct UserQuota {
    /// What may run at once.
    pub limits: Limits,
    /// Bytes of objects where the user may write.
    pub stored_bytes: Option<u64>,
    /// Bytes of log lines of the user's jobs.
    pub log_bytes: Option<u64>,
    /// API and S3 together.
    pub requests_per_s: Option<u32>,
    /// Largest priority of a job; none: 0 for keys of role user, any for owners.
    pub max_priority: Option<i32>,
}

/// What all jobs with a tag may use together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TagQuota {
    /// What may run at once.
    pub limits: Limits,
    /// Bytes of objects where these jobs write: output, checkpoints, intermediate output.
    pub stored_bytes: Option<u64>,
    /// Bytes of log lines of these jobs.
    pub log_bytes: Option<u64>,
}

/// All quotas.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct QuotaOptions {
    /// By name of the key.
    pub users: BTreeMap<String, UserQuota>,
    /// Of each key that the owner has added and that has none by name.
    pub default: UserQuota,
    /// By tag, as `KEY=VALUE`.
    pub tags: BTreeMap<String, TagQuota>,
    /// Seconds after which half of what was used is forgotten; none: there is no fair share.
    pub half_life_s: Option<u64>,
}

impl QuotaOptions {
    /// The core's part.
    #[must_use]
    pub fn of_core(&self) -> shoal_plane::Quotas {
        let mut users: BTreeMap<_, _> = self.users.iter().map(|(name, quota)| (name.clone(), quota.limits)).collect();
        // The default is not for the owner of the server.
        users.entry(OWNER.to_owned()).or_default();
        shoal_plane::Quotas {
            users,
            default: self.default.limits,
            tags: self.tags.iter().map(|(tag, quota)| (tag.clone(), quota.limits)).collect(),
            half_life_s: self.half_life_s,
        }
    }

    pub(crate) fn of(&self, user: &str) -> UserQuota {
        let default = if user == OWNER { UserQuota::default() } else { self.default };
        self.users.get(user).copied().unwrap_or(default)
    }

    /// The most bytes of objects and of log lines, of `user:anna` or `tag:team=vision`.
    pub(crate) fn space(&self, name: &str) -> Space {
        if let Some(user) = name.strip_prefix("user:") {
            let UserQuota { stored_bytes, log_bytes, .. } = self.of(user);
            return Space { stored_bytes, log_bytes };
        }
        let quota = name.strip_prefix("tag:").and_then(|tag| self.tags.get(tag)).copied().unwrap_or_default();
        Space { stored_bytes: quota.stored_bytes, log_bytes: quota.log_bytes }
    }

    /// Quotas of users who have no key, given the names of all keys but the owner's.
    pub(crate) fn doubts(&self, keys: &[String]) -> Vec<String> {
        let without = self.users.keys().filter(|name| *name != OWNER && !keys.contains(name));
        let doubt = |name: &String| {
            let hint = near(name, keys.iter().map(String::as_str));
            format!("[quota.\"user:{name}\"] has no effect as long as there is no key {name}{hint}")
        };
        without.map(doubt).collect()
    }

    /// What of users' quotas, and of tags', is to be measured.
    fn measured(&self) -> [Measured; 2] {
        let users = self.users.values().chain([&self.default]).map(|it| (it.stored_bytes, it.log_bytes));
        let tags = self.tags.values().map(|it| (it.stored_bytes, it.log_bytes));
        let of = |all: &mut dyn Iterator<Item = (Option<u64>, Option<u64>)>| {
            all.fold(Measured::default(), |found, (stored, logs)| Measured {
                stored: found.stored || stored.is_some(),
                logs: found.logs || logs.is_some(),
            })
        };
        [of(&mut { users }), of(&mut { tags })]
    }
}

/// Something limits it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Measured {
    stored: bool,
    logs: bool,
}

/// The quotas, and what counts against them beside what runs.
#[derive(Default)]
pub(crate) struct Quotas {
    pub(crate) options: QuotaOptions,
    buckets: Mutex<BTreeMap<String, Bucket>>,
    /// By name of the quota.
    space: RwLock<BTreeMap<String, Space>>,
}

/// Under which name a key's holder has a quota.
pub(crate) fn user_of(member: Option<&Member>) -> &str {
    member.map_or(OWNER, |member| member.name.as_str())
}

impl Quotas {
    pub(crate) fn new(options: QuotaOptions) -> Self {
        Self { options, ..Self::default() }
    }

    /// Counts a request; `false`: the user makes too many.
    pub(crate) fn admits_request(&self, user: &str, now_ms: u64) -> bool {
        let Some(per_s) = self.options.of(user).requests_per_s else { return true };
        let mut buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        if !buckets.contains_key(user) {
            buckets.insert(user.to_owned(), Bucket::full(per_s, now_ms));
        }
        buckets.get_mut(user).is_none_or(|bucket| bucket.take(per_s, now_ms))
    }

    /// What was measured of a user or a tag, by the quota's name.
    pub(crate) fn space(&self, name: &str) -> Space {
        self.space.read().unwrap_or_else(PoisonError::into_inner).get(name).copied().unwrap_or_default()
    }

    /// Why a user may store no more objects, if so.
    pub(crate) fn full(&self, user: &str) -> Option<String> {
        self.options.of(user).stored_bytes?;
        self.beyond(&format!("user:{user}"), |space| space.stored_bytes, "of objects", "some")
    }

    /// Why new jobs that count against a quota are refused, if so.
    fn refusal(&self, name: &str) -> Option<String> {
        let whose = if name.starts_with("tag:") { "what jobs with this tag have stored" } else { "some" };
        let stored = self.beyond(name, |space| space.stored_bytes, "of objects", whose);
        stored.or_else(|| {
            self.beyond(name, |space| space.log_bytes, "of log lines", "training jobs that are over and count for it")
        })
    }

    fn beyond(&self, name: &str, of: fn(Space) -> Option<u64>, what: &str, delete: &str) -> Option<String> {
        let (limit, used) = (of(self.options.space(name))?, of(self.space(name))?);
        (used >= limit).then(|| {
            format!(
                "The quota '{name}' is {limit} bytes {what}, and {used} are stored: delete {delete}, or have the owner of \
                 the server raise it in shoal.toml."
            )
        })
    }

    /// For whom a new job uses capacity.
    ///
    /// # Errors
    /// `ResourceLimitExceeded`: no more may be stored for its user or one of its tags.
    /// `ValidationException`: its priority is none, or higher than the user may give.
    pub(crate) fn claim(&self, tags: &[Tag], member: Option<&Member>) -> Result<Claim, Error> {
        let user = user_of(member);
        let quota = self.options.of(user);
        let names = tags.iter().map(|tag| format!("{}={}", tag.key, tag.value));
        let names = Vec::from_iter(names.filter(|tag| self.options.tags.contains_key(tag)));
        let mut all = std::iter::once(format!("user:{user}")).chain(names.iter().map(|tag| format!("tag:{tag}")));
        if let Some(why) = all.find_map(|name| self.refusal(&name)) {
            return Err(Error::new(ErrorCode::ResourceLimitExceeded, why));
        }
        let priority = tags::priority(tags)?.unwrap_or(0);
        let is_bound = member.is_some_and(|member| member.role == KeyRole::User);
        if let Some(most) = quota.max_priority.or_else(|| is_bound.then_some(0)).filter(|most| priority > *most) {
            return Err(Error::validation(format!(
                "Invalid value '{priority}' of the tag '{PRIORITY_TAG}': the quota 'user:{user}' permits at most {most}."
            )));
        }
        Ok(Claim { priority, user: Some(user.to_owned()), tags: names })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn anna(role: KeyRole) -> Member {
        Member {
            name: "anna".to_owned(),
            role,
            access_key_id: "AKIA0".to_owned(),
            read: None,
            write: Vec::new(),
            created_ms: 0,
            rotated_ms: 0,
        }
    }

    fn tag(key: &str, value: &str) -> Tag {
        Tag { key: key.to_owned(), value: value.to_owned() }
    }

    #[test]
    fn a_job_counts_for_its_user_and_for_tags_that_have_a_quota() {
        let options = QuotaOptions {
            users: [("anna".to_owned(), UserQuota { max_priority: Some(5), ..UserQuota::default() })].into(),
            tags: [("team=vision".to_owned(), TagQuota::default())].into(),
            ..QuotaOptions::default()
        };
        let quotas = Quotas::new(options);
        let tags = [tag("team", "vision"), tag("stage", "dev"), tag(PRIORITY_TAG, "5")];
        let claim = quotas.claim(&tags, Some(&anna(KeyRole::User))).unwrap();
        assert_eq!(claim.user.as_deref(), Some("anna"));
        assert_eq!((claim.priority, claim.tags), (5, vec!["team=vision".to_owned()]));
        assert_eq!(quotas.claim(&tags, None).unwrap().user.as_deref(), Some(OWNER));
    }

    #[test]
    fn a_quota_without_a_key_is_doubted() {
        let users = ["anna", "bobb", OWNER].map(|name| (name.to_owned(), UserQuota::default()));
        let options = QuotaOptions { users: users.into(), ..QuotaOptions::default() };
        let doubts = options.doubts(&["anna", "bob"].map(str::to_owned));
        let expected = "[quota.\"user:bobb\"] has no effect as long as there is no key bobb; did you mean bob?";
        assert_eq!(doubts, [expected]);
    }

    #[test]
    fn priorities_are_bounded_by_role_and_quota() {
        let quotas = |max_priority| {
            let anna = UserQuota { max_priority, ..UserQuota::default() };
            Quotas::new(QuotaOptions { users: [("anna".to_owned(), anna)].into(), ..QuotaOptions::default() })
        };
        for (role, most, value, expected) in [
            (Some(KeyRole::User), None, "0", Ok(0)),
            (Some(KeyRole::User), None, "-7", Ok(-7)),
            (Some(KeyRole::User), None, "1", Err("permits at most 0")),
            (Some(KeyRole::User), Some(3), "3", Ok(3)),
            (Some(KeyRole::User), Some(3), "4", Err("permits at most 3")),
            (Some(KeyRole::Owner), None, "1000", Ok(1000)),
            (Some(KeyRole::Owner), Some(3), "4", Err("permits at most 3")),
            (None, Some(3), "4", Ok(4)),
            (None, None, "1001", Err("a whole number from -1000 to 1000")),
            (None, None, "high", Err("a whole number from -1000 to 1000")),
        ] {
            let claim = quotas(most).claim(&[tag(PRIORITY_TAG, value)], role.map(anna).as_ref());
            match (claim, expected) {
                (Ok(claim), Ok(priority)) => assert_eq!(claim.priority, priority),
                (Err(error), Err(why)) => assert!(error.message.contains(why), "{}", error.message),
                (claim, expected) => panic!("{role:?} {most:?} {value}: {claim:?}, not {expected:?}"),
            }
        }
    }

    #[test]
    fn what_is_full_takes_no_more() {
        let default = UserQuota { stored_bytes: Some(100), log_bytes: Some(10), ..UserQuota::default() };
        let quotas = Quotas::new(QuotaOptions { default, ..QuotaOptions::default() });
        let measured = |stored, logs| {
            let space = Space { stored_bytes: Some(stored), log_bytes: Some(logs) };
            *quotas.space.write().unwrap() = [("user:anna".to_owned(), space)].into();
            let refused = quotas.claim(&[], Some(&anna(KeyRole::User))).map_err(|error| (error.code, error.message));
            (quotas.full("anna").is_some(), refused)
        };
        assert!(matches!(measured(99, 9), (false, Ok(_))));
        let (is_full, refused) = measured(100, 0);
        assert!(
            is_full && matches!(refused, Err((ErrorCode::ResourceLimitExceeded, why)) if why.contains("of objects"))
        );
        let (is_full, refused) = measured(0, 10);
        assert!(!is_full && matches!(refused, Err((ErrorCode::ResourceLimitExceeded, why)) if why.contains("of log")));
        assert!(quotas.claim(&[], None).is_ok(), "the default is not the owner's");
    }

    #[test]
    fn a_tag_that_is_full_takes_no_more_jobs() {
        let vision = TagQuota { stored_bytes: Some(100), log_bytes: Some(10), ..TagQuota::default() };
        let tags = [("team=vision".to_owned(), vision)].into();
        let quotas = Quotas::new(QuotaOptions { tags, ..QuotaOptions::default() });
        let refused = |stored, logs, value: &str| {
            let space = Space { stored_bytes: Some(stored), log_bytes: Some(logs) };
            *quotas.space.write().unwrap() = [("tag:team=vision".to_owned(), space)].into();
            quotas.claim(&[tag("team", value)], Some(&anna(KeyRole::User))).err().map(|error| error.message)
        };
        assert_eq!(refused(99, 9, "vision"), None);
        assert_eq!(refused(100, 10, "speech"), None, "another tag");
        let why = refused(100, 0, "vision").unwrap();
        assert!(why.starts_with("The quota 'tag:team=vision' is 100 bytes of objects, and 100 are stored"), "{why}");
        assert!(refused(0, 10, "vision").unwrap().contains("10 bytes of log lines"));
        assert_eq!(quotas.full("anna"), None, "an object that is put has no tags");
    }
}
