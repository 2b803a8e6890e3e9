//! What expires by the rules of buckets (`shoal_s3::Judge` decides) is removed here. Everything
//! that is counted in days is due at a midnight (UTC), so a bucket is walked once a day, and again
//! when its rules change. Each batch is one transaction, and a walk that is cut short is begun
//! again.

use std::{collections::HashMap, sync::Arc, time::Duration};

use shoal_s3::{Judge, Lifecycle, day_of};
use shoal_store::{Objects, StoreError, VersionPlace};

use crate::clock::now_ms;

/// Between two looks at the buckets' rules.
const INTERVAL: Duration = Duration::from_secs(5);

/// Versions that are read, and at most removed, at once.
const PAGE: usize = 500;

/// Uploads that are ended at once.
const UPLOADS: usize = 50;

/// The day on which a bucket was walked last, and by which rules.
type Walked = HashMap<String, (u64, String)>;

/// Looks until it is aborted.
pub(crate) async fn run(objects: Arc<Objects>) {
    let mut interval = tokio::time::interval(INTERVAL);
    interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut walked = Walked::new();
    loop {
        interval.tick().await;
        if let Err(error) = look(&objects, &mut walked, now_ms()).await {
            tracing::warn!("what expires by the lifecycle of buckets is not removed: {error}");
        }
    }
}

async fn look(objects: &Arc<Objects>, walked: &mut Walked, now_ms: u64) -> Result<(), StoreError> {
    let buckets = blocking(objects, (), |objects, ()| objects.lifecycles()).await?.1;
    walked.retain(|bucket, _| buckets.iter().any(|(name, _)| name == bucket));
    for (bucket, rules) in buckets {
        let now = (day_of(now_ms), rules);
        if walked.get(&bucket) == Some(&now) {
            continue;
        }
        match Walk::new(&bucket, &now.1, now_ms) {
            Ok(walk) => {
                // It is walked again at the next look. The others need not wait for that.
                if let Err(error) = walk.run(objects).await {
                    tracing::warn!("what expires by the lifecycle of bucket {bucket} is not removed: {error}");
                    continue;
                }
            }
            Err(error) => tracing::error!("the lifecycle of bucket {bucket} cannot be read: {error}"),
        }
        walked.insert(bucket, now);
    }
    Ok(())
}

/// One bucket is walked.
struct Walk {
    bucket: String,
    rules: String,
    lifecycle: Lifecycle,
    judge: Judge,
    now_ms: u64,
    after: VersionPlace,
    removed: u64,
}

impl Walk {
    fn new(bucket: &str, rules: &str, now_ms: u64) -> Result<Self, serde_json::Error> {
        let lifecycle = Lifecycle::read(rules)?;
        Ok(Self {
            bucket: bucket.to_owned(),
            rules: rules.to_owned(),
            judge: Judge::new(lifecycle.clone(), now_ms),
            lifecycle,
            now_ms,
            after: VersionPlace::default(),
            removed: 0,
        })
    }

    async fn run(self, objects: &Arc<Objects>) -> Result<(), StoreError> {
        let (mut walk, mut has_more) = (self, true);
        if walk.lifecycle.has_objects() {
            while has_more {
                (walk, has_more) = blocking(objects, walk, |objects, walk| walk.page(objects)).await?;
            }
        }
        if walk.removed > 0 {
            tracing::info!("{} objects of bucket {} have expired by its lifecycle", walk.removed, walk.bucket);
        }
        if walk.lifecycle.has_uploads() {
            let (mut walk, mut due) = blocking(objects, walk, |objects, walk| walk.due_uploads(objects)).await?;
            while !due.is_empty() {
                let some = due.split_off(due.len().saturating_sub(UPLOADS));
                walk = blocking(objects, walk, move |objects, walk| walk.end_uploads(objects, &some)).await?.0;
            }
        }
        Ok(())
    }

    /// Removes what has expired of the next versions; `false`: those were the last ones, or the
    /// bucket has other rules by now.
    fn page(&mut self, objects: &Objects) -> Result<bool, StoreError> {
        let versions = gone(objects.walk_versions(&self.bucket, &self.after, PAGE))?.unwrap_or_default();
        let is_last = versions.len() < PAGE;
        let mut expired: Vec<_> = versions.iter().flat_map(|version| self.judge.take(version)).collect();
        if is_last {
            expired.extend(self.judge.end());
        }
        if let Some(last) = versions.last() {
            self.after = last.into();
        }
        if expired.is_empty() {
            return Ok(!is_last);
        }
        match gone(objects.expire(&self.bucket, &self.rules, &expired))?.flatten() {
            Some(removed) => {
                self.removed += removed;
                Ok(!is_last)
            }
            None => Ok(false),
        }
    }

    fn due_uploads(&self, objects: &Objects) -> Result<Vec<String>, StoreError> {
        let uploads = gone(objects.uploads(&self.bucket, ""))?.unwrap_or_default().into_iter();
        let due = uploads.filter(|upload| self.lifecycle.ends_upload(&upload.key, upload.created_ms, self.now_ms));
        Ok(due.map(|upload| upload.id).collect())
    }

    fn end_uploads(&self, objects: &Objects, uploads: &[String]) -> Result<(), StoreError> {
        if gone(objects.bucket_lifecycle(&self.bucket))?.flatten().as_ref() != Some(&self.rules) {
            return Ok(());
        }
        for upload in uploads {
            match objects.abort_upload(upload) {
                // Its client was first.
                Ok(()) | Err(StoreError::NoSuchUpload(_)) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// Nothing of a bucket that was deleted meanwhile.
fn gone<T>(result: Result<T, StoreError>) -> Result<Option<T>, StoreError> {
    match result {
        Err(StoreError::NoSuchBucket(_)) => Ok(None),
        result => result.map(Some),
    }
}

/// Where it may block; a server that ends waits for one step.
async fn blocking<S: Send + 'static, T: Send + 'static>(
    objects: &Arc<Objects>,
    mut state: S,
    work: impl FnOnce(&Objects, &mut S) -> Result<T, StoreError> + Send + 'static,
) -> Result<(S, T), StoreError> {
    let objects = objects.clone();
    let done = tokio::task::spawn_blocking(move || work(&objects, &mut state).map(|done| (state, done)));
    done.await.unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic()))
}

#[cfg(test)]
mod tests {
    use shoal_store::{Attributes, DataDir, Versioning, verify};

    use super::*;

    const DAY_MS: u64 = 24 * 60 * 60 * 1000;

    fn rules(action: &str) -> String {
        format!(r#"{{"rules":[{{"id":"r","is_enabled":true,"selection":{{"form":"Filter"}},{action}}}]}}"#)
    }

    fn open(dir: &DataDir) -> Arc<Objects> {
        Arc::new(Objects::open(dir).unwrap())
    }

    fn put(objects: &Objects, key: &str) {
        objects.put("b", key, b"content", &Attributes::default()).unwrap();
    }

    /// Versions and delete markers of the bucket.
    fn left(objects: &Objects) -> usize {
        objects.walk_versions("b", &VersionPlace::default(), usize::MAX).unwrap().len()
    }

    #[tokio::test]
    async fn a_bucket_is_walked_once_a_day_and_when_its_rules_change() {
        let temp = tempfile::tempdir().unwrap();
        let objects = open(&DataDir::open(temp.path()).unwrap());
        objects.create_bucket("b").unwrap();
        put(&objects, "a");
        let upload = objects.create_upload("b", "u", &Attributes::default(), None).unwrap();
        let (mut walked, now) = (Walked::new(), now_ms());
        objects.set_bucket_lifecycle("b", Some(&rules(r#""expiration":{"Days":1},"abort_days":3"#))).unwrap();
        look(&objects, &mut walked, now).await.unwrap();
        assert_eq!((left(&objects), walked.len()), (1, 1));
        look(&objects, &mut walked, now + 2 * DAY_MS).await.unwrap();
        assert_eq!((left(&objects), objects.upload(&upload).is_ok()), (0, true));
        look(&objects, &mut walked, now + 4 * DAY_MS).await.unwrap();
        assert!(objects.upload(&upload).is_err());

        put(&objects, "a");
        look(&objects, &mut walked, now + 4 * DAY_MS).await.unwrap();
        assert_eq!(left(&objects), 1, "this day is over");
        objects.set_bucket_lifecycle("b", Some(&rules(r#""expiration":{"Date":0}"#))).unwrap();
        look(&objects, &mut walked, now + 4 * DAY_MS).await.unwrap();
        assert_eq!(left(&objects), 0);
        objects.delete_bucket("b").unwrap();
        look(&objects, &mut walked, now + 4 * DAY_MS).await.unwrap();
        assert!(walked.is_empty());
    }

    /// A walk ends after any number of its pages; the next server walks to the end.
    #[tokio::test]
    async fn a_walk_that_is_cut_short_is_begun_again() {
        let temp = tempfile::tempdir().unwrap();
        let dir = DataDir::open(temp.path()).unwrap();
        let rules = rules(r#""expiration":{"Date":0},"noncurrent":{"days":1}"#);
        let mut objects = open(&dir);
        objects.create_bucket("b").unwrap();
        objects.set_versioning("b", Versioning::Enabled).unwrap();
        objects.set_bucket_lifecycle("b", Some(&rules)).unwrap();
        (0..PAGE).for_each(|number| put(&objects, &format!("k{}", number / 3)));
        let mut before = left(&objects);
        for day in 0..4 {
            let mut walk = Walk::new("b", &rules, now_ms() + day * DAY_MS).unwrap();
            assert!(walk.page(&objects).unwrap() || day > 0, "there is more than a page");
            drop((walk, objects));
            objects = open(&dir);
            assert_eq!(verify(temp.path(), &mut |_| {}).unwrap().damages, []);
            assert!(left(&objects) <= before + PAGE);
            before = left(&objects);
        }
        look(&objects, &mut Walked::new(), now_ms() + 9 * DAY_MS).await.unwrap();
        assert_eq!(left(&objects), 0);
        let files = std::fs::read_dir(dir.objects_path()).unwrap();
        let files = files.flat_map(|shard| std::fs::read_dir(shard.unwrap().path()).unwrap()).count();
        assert_eq!(files, 0);
    }
}
