//! What users store, and jobs with a tag.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, PoisonError},
    time::Duration,
};

use shoal_store::{Objects, ResourceFilter, ResourceKind, ResourceRow, ResourceSort, Rows, StoreError, Telemetry};
use shoal_wire::{CreateTrainingJob, Stored, tags};

use super::{Measured, OWNER, Quotas, TagQuota};
use crate::{places::writes, team::Team};

/// Between two measurements.
const INTERVAL: Duration = Duration::from_secs(5);
/// Rows that are read at once.
const READ: usize = 1000;

/// What a user or a tag stores; none: it is not measured, as nothing limits it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Space {
    pub(crate) stored_bytes: Option<u64>,
    pub(crate) log_bytes: Option<u64>,
}

/// What measures.
pub(crate) struct Measuring {
    pub(crate) quotas: Arc<Quotas>,
    pub(crate) team: Arc<Team>,
    pub(crate) objects: Arc<Objects>,
    pub(crate) rows: Arc<dyn Rows>,
    pub(crate) telemetry: Arc<Telemetry>,
}

impl Measuring {
    /// Measures until it is aborted, if any quota needs that.
    pub(crate) async fn run(self: Arc<Self>) {
        if self.quotas.options.measured() == [Measured::default(); 2] {
            return;
        }
        let mut interval = tokio::time::interval(INTERVAL);
        interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            interval.tick().await;
            let measuring = self.clone();
            match tokio::task::spawn_blocking(move || measuring.measure()).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => tracing::warn!("what users store is not measured: {error}"),
                Err(error) => tracing::error!("measuring what users store panicked: {error}"),
            }
        }
    }

    fn measure(&self) -> Result<(), StoreError> {
        let options = &self.quotas.options;
        let [of_users, of_tags] = options.measured();
        let has_logs = of_users.logs || of_tags.logs;
        let logs = if has_logs { self.telemetry.log_bytes_by_job()? } else { BTreeMap::new() };
        let members = self.team.all();
        let users = members.iter().map(|member| (member.name.as_str(), Some(&**member)));
        let mut measured = if of_tags == Measured::default() { BTreeMap::new() } else { self.of_tags(&logs)? };
        for (user, member) in users.chain([(OWNER, None)]) {
            let quota = options.of(user);
            let stored_bytes = match (quota.stored_bytes, member) {
                (Some(_), Some(member)) => Some(self.stored_bytes(member.write.iter().cloned().collect())?),
                _ => None,
            };
            let log_bytes = if quota.log_bytes.is_some() { Some(self.log_bytes(user, &logs)?) } else { None };
            measured.insert(format!("user:{user}"), Space { stored_bytes, log_bytes });
        }
        *self.quotas.space.write().unwrap_or_else(PoisonError::into_inner) = measured;
        Ok(())
    }

    /// What jobs with each tag of a quota have stored, by the quota's name.
    fn of_tags(&self, logs: &BTreeMap<String, u64>) -> Result<BTreeMap<String, Space>, StoreError> {
        let quotas = &self.quotas.options.tags;
        let mut found: BTreeMap<&str, (&TagQuota, BTreeSet<Place>, u64)> =
            quotas.iter().map(|(tag, quota)| (tag.as_str(), (quota, BTreeSet::new(), 0))).collect();
        self.each_job(None, |row| {
            for tag in tags::from_json(&row.tags).unwrap_or_default() {
                let Some((quota, places, sum)) = found.get_mut(&*format!("{}={}", tag.key, tag.value)) else {
                    continue;
                };
                *sum += logs.get(&row.name).copied().unwrap_or_default();
                if quota.stored_bytes.is_some() {
                    places.extend(CreateTrainingJob::restore(&row.spec, &row.request).iter().flat_map(writes));
                }
            }
        })?;
        let measured = found.into_iter().map(|(tag, (quota, places, sum))| {
            let stored_bytes = quota.stored_bytes.map(|_| self.stored_bytes(places)).transpose()?;
            let space = Space { stored_bytes, log_bytes: quota.log_bytes.map(|_| sum) };
            Ok((format!("tag:{tag}"), space))
        });
        measured.collect()
    }

    /// Where several places lie within each other, the outermost counts.
    fn stored_bytes(&self, places: BTreeSet<Place>) -> Result<u64, StoreError> {
        let mut outer: Vec<Place> = Vec::new();
        // An outer one comes before those within it.
        for (bucket, prefix) in places {
            if outer.last().is_none_or(|(of, last)| *of != bucket || !prefix.starts_with(last)) {
                outer.push((bucket, prefix));
            }
        }
        outer.iter().map(|(bucket, prefix)| self.objects.stored_bytes(bucket, prefix)).sum()
    }

    fn log_bytes(&self, user: &str, logs: &BTreeMap<String, u64>) -> Result<u64, StoreError> {
        let creator = Some(user.to_owned()).filter(|user| user != OWNER);
        let mut sum = 0;
        self.each_job(creator.clone(), |row| {
            if row.creator == creator {
                sum += logs.get(&row.name).copied().unwrap_or_default();
            }
        })?;
        Ok(sum)
    }

    /// Reads all training jobs, or a creator's.
    fn each_job(&self, creator: Option<String>, mut take: impl FnMut(&ResourceRow)) -> Result<(), StoreError> {
        let mut filter = ResourceFilter {
            sort: ResourceSort::Name,
            limit: READ,
            creator,
            ..ResourceFilter::new(ResourceKind::TRAINING_JOB)
        };
        loop {
            let page = self.rows.list(&filter)?;
            page.rows.iter().for_each(&mut take);
            match page.next {
                None => return Ok(()),
                next => filter.after = next,
            }
        }
    }
}

/// A bucket and a prefix.
type Place = (String, String);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        AccessKeys,
        quotas::{QuotaOptions, UserQuota},
    };
    use shoal_store::{DataDir, SqliteJournal};

    #[test]
    fn what_lies_in_a_users_places_is_counted_once() {
        let dir = tempfile::tempdir().unwrap();
        let data_dir = DataDir::open(dir.path()).unwrap();
        let objects = Arc::new(Objects::open(&data_dir).unwrap());
        objects.create_bucket("out").unwrap();
        for (key, bytes) in [("anna/a", 3), ("anna/b/c", 5), ("annab", 7), ("ben/a", 11), ("shared/x", 13)] {
            objects.put("out", key, &vec![0; bytes], &Default::default()).unwrap();
        }
        let journal = SqliteJournal::open(&data_dir.journal_path()).unwrap();
        let rows: Arc<dyn Rows> = Arc::new(journal.rows());
        let owner =
            AccessKeys { access_key_id: "AKIA0".to_owned(), secret_access_key: "s".to_owned(), session_token: None };
        let default = UserQuota { stored_bytes: Some(1), ..UserQuota::default() };
        let measuring = Measuring {
            quotas: Arc::new(Quotas::new(QuotaOptions { default, ..QuotaOptions::default() })),
            team: Arc::new(Team::open(owner, rows.clone()).unwrap()),
            objects,
            rows,
            telemetry: Arc::new(Telemetry::open(&data_dir.telemetry_path()).unwrap()),
        };
        let of = |places: &[(&str, &str)]| {
            places.iter().map(|(bucket, prefix)| ((*bucket).to_owned(), (*prefix).to_owned())).collect()
        };
        for (places, bytes) in [
            (&[("out", "anna/")][..], 8),
            (&[("out", "anna/"), ("out", "anna/b/"), ("out", "anna/")], 8),
            (&[("out", "anna/"), ("out", "shared/")], 21),
            (&[("out", "anna/"), ("out", "anna/b/"), ("out", "ann")], 15),
            (&[("out", "")], 39),
            (&[("none", "")], 0),
        ] {
            assert_eq!(measuring.stored_bytes(of(places)).unwrap(), bytes, "{places:?}");
        }
    }
}
