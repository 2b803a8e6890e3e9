//! What the creator of a job may read of what only a manifest names, which no check of a request
//! sees.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use shoal_policy::Decision;
use shoal_store::{Objects, StoreError};

use crate::team::Member;

/// By bucket and key.
pub(crate) type MayRead = Arc<dyn Fn(&str, &str) -> bool + Send + Sync>;

/// Of a job that was created with a user's key, whose rights a bucket's policy widens or narrows;
/// or with the owner's.
pub(crate) fn may_read(creator: Option<Arc<Member>>, objects: &Arc<Objects>, account: &str) -> MayRead {
    let Some(member) = creator else { return Arc::new(|_, _| true) };
    let (objects, account) = (objects.clone(), account.to_owned());
    // A manifest has a million keys, and few buckets.
    let have_policies = Mutex::new(HashMap::<String, bool>::new());
    let has_policy = move |objects: &Objects, bucket: &str| -> Result<bool, StoreError> {
        let mut known = have_policies.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = known.get(bucket) {
            return Ok(*known);
        }
        let found = match objects.bucket_policy(bucket) {
            Err(StoreError::NoSuchBucket(_)) => false,
            found => found?.is_some(),
        };
        known.insert(bucket.to_owned(), found);
        Ok(found)
    };
    Arc::new(move |bucket, key| {
        let by_key = member.may_read(bucket, key);
        match has_policy(&objects, bucket) {
            Ok(false) => return by_key,
            Ok(true) => {}
            Err(_) => return false,
        }
        by_policy(&objects, &member, &account, (bucket, key), false).unwrap_or(by_key)
    })
}

/// Whether what such a job's own instances write may be there.
pub(crate) fn may_write(creator: &Member, objects: &Objects, account: &str, bucket: &str, key: &str) -> bool {
    let by_policy = by_policy(objects, creator, account, (bucket, key), true);
    by_policy.unwrap_or_else(|| creator.may_write(bucket, key))
}

/// What a bucket's policy decides; `None` is nothing.
fn by_policy(objects: &Objects, member: &Member, account: &str, place: (&str, &str), writes: bool) -> Option<bool> {
    match shoal_s3::bucket_decision(objects, &member.policy_caller(account), account, place, writes) {
        Ok(Decision::Allowed) => Some(!member.is_removed()),
        Ok(Decision::ImplicitDeny) => None,
        // A policy that cannot be read opens nothing.
        Ok(Decision::ExplicitDeny) | Err(_) => Some(false),
    }
}
