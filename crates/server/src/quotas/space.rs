//! What users store.

use std::{
    collections::BTreeMap,
    sync::{Arc, PoisonError},
    time::Duration,
};

use shoal_store::{Objects, ResourceFilter, ResourceKind, ResourceSort, Rows, StoreError, Telemetry};

use super::{OWNER, Quotas};
use crate::team::{Member, Team};

/// Between two measurements.
const INTERVAL: Duration = Duration::from_secs(5);
/// Rows that are read at once.
const READ: usize = 1000;

/// What a user stores; none: it is not measured, as nothing limits it.
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
        let options = &self.quotas.options;
        if !options.measures(|quota| quota.stored_bytes.is_some() || quota.log_bytes.is_some()) {
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
        let has_logs = options.measures(|quota| quota.log_bytes.is_some());
        let logs = if has_logs { self.telemetry.log_bytes_by_job()? } else { BTreeMap::new() };
        let members = self.team.all();
        let users = members.iter().map(|member| (member.name.as_str(), Some(&**member)));
        let mut measured = BTreeMap::new();
        for (user, member) in users.chain([(OWNER, None)]) {
            let quota = options.of(user);
            let stored_bytes = match (quota.stored_bytes, member) {
                (Some(_), Some(member)) => Some(self.stored_bytes(member)?),
                _ => None,
            };
            let log_bytes = if quota.log_bytes.is_some() { Some(self.log_bytes(user, &logs)?) } else { None };
            measured.insert(user.to_owned(), Space { stored_bytes, log_bytes });
        }
        *self.quotas.space.write().unwrap_or_else(PoisonError::into_inner) = measured;
        Ok(())
    }

    /// Where several places lie within each other, the outermost counts.
    fn stored_bytes(&self, member: &Member) -> Result<u64, StoreError> {
        let places = &member.write;
        let is_inner = |at: usize| {
            let (bucket, prefix) = &places[at];
            places.iter().enumerate().any(|(other, (of, outer))| {
                other != at && of == bucket && prefix.starts_with(outer) && (prefix != outer || other < at)
            })
        };
        let outer = (0..places.len()).filter(|at| !is_inner(*at)).map(|at| &places[at]);
        outer.map(|(bucket, prefix)| self.objects.stored_bytes(bucket, prefix)).sum()
    }

    fn log_bytes(&self, user: &str, logs: &BTreeMap<String, u64>) -> Result<u64, StoreError> {
        let creator = Some(user.to_owned()).filter(|user| user != OWNER);
        let mut filter = ResourceFilter {
            sort: ResourceSort::Name,
            limit: READ,
            creator: creator.clone(),
            ..ResourceFilter::new(ResourceKind::TRAINING_JOB)
        };
        let mut sum = 0;
        loop {
            let page = self.rows.list(&filter)?;
            let own = page.rows.iter().filter(|row| row.creator == creator);
            sum += own.filter_map(|row| logs.get(&row.name)).sum::<u64>();
            match page.next {
                None => return Ok(sum),
                next => filter.after = next,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use shoal_store::{DataDir, SqliteJournal};
    use shoal_wire::KeyRole;

    use super::*;
    use crate::{
        AccessKeys,
        quotas::{QuotaOptions, UserQuota},
    };

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
        let member = |places: &[(&str, &str)]| Member {
            name: "anna".to_owned(),
            role: KeyRole::User,
            access_key_id: "AKIA1".to_owned(),
            read: None,
            write: places.iter().map(|(bucket, prefix)| ((*bucket).to_owned(), (*prefix).to_owned())).collect(),
            created_ms: 0,
            rotated_ms: 0,
        };
        for (places, bytes) in [
            (&[("out", "anna/")][..], 8),
            (&[("out", "anna/"), ("out", "anna/b/"), ("out", "anna/")], 8),
            (&[("out", "anna/"), ("out", "shared/")], 21),
            (&[("out", "")], 39),
            (&[("none", "")], 0),
        ] {
            assert_eq!(measuring.stored_bytes(&member(places)).unwrap(), bytes, "{places:?}");
        }
    }
}
