//! Live training jobs by name, in a map whose copies share what has not changed since: a snapshot
//! of 100,000 jobs is taken in microseconds, and the first change after it copies a few hundred
//! pointers and one job.

use std::sync::Arc;

use crate::training::TrainingJob;

/// How many parts are shared or copied each as a whole. A copy of the map costs one reference count
/// per shard, the first change of a shard one per job in it.
const SHARDS: usize = 1024;

#[derive(Debug, Clone)]
pub(crate) struct Jobs {
    /// By the name's hash; each in order of names.
    shards: Vec<Arc<Vec<Arc<TrainingJob>>>>,
}

/// FNV-1a (Fowler, Noll, Vo): the same everywhere, and names are not chosen to collide on one's own
/// machine.
fn shard_of(name: &str) -> usize {
    let hash = name
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    usize::try_from((hash ^ (hash >> 32)) % SHARDS as u64).expect("less than the number of shards")
}

impl Jobs {
    pub(crate) fn new() -> Self {
        let empty = Arc::new(Vec::new());
        Self { shards: (0..SHARDS).map(|_| Arc::clone(&empty)).collect() }
    }

    fn place(&self, name: &str) -> (usize, Result<usize, usize>) {
        let shard = shard_of(name);
        (shard, self.shards[shard].binary_search_by(|job| (*job.gang.name).cmp(name)))
    }

    pub(crate) fn get(&self, name: &str) -> Option<&TrainingJob> {
        let (shard, place) = self.place(name);
        place.ok().map(|place| &*self.shards[shard][place])
    }

    pub(crate) fn contains(&self, name: &str) -> bool {
        self.get(name).is_some()
    }

    pub(crate) fn get_mut(&mut self, name: &str) -> Option<&mut TrainingJob> {
        let (shard, place) = self.place(name);
        let place = place.ok()?;
        Some(Arc::make_mut(&mut Arc::make_mut(&mut self.shards[shard])[place]))
    }

    /// In the place of the one of the same name, if there is one.
    pub(crate) fn insert(&mut self, job: TrainingJob) {
        let (shard, place) = self.place(&job.gang.name);
        let shard = Arc::make_mut(&mut self.shards[shard]);
        match place {
            Ok(place) => shard[place] = Arc::new(job),
            Err(place) => shard.insert(place, Arc::new(job)),
        }
    }

    pub(crate) fn remove(&mut self, name: &str) {
        let (shard, place) = self.place(name);
        if let Ok(place) = place {
            Arc::make_mut(&mut self.shards[shard]).remove(place);
        }
    }

    /// In an order that only the names determine.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &TrainingJob> {
        self.shards.iter().flat_map(|shard| shard.iter()).map(|job| &**job)
    }
}

impl PartialEq for Jobs {
    fn eq(&self, other: &Self) -> bool {
        self.shards.iter().zip(&other.shards).all(|(one, other)| Arc::ptr_eq(one, other) || one == other)
    }
}

impl FromIterator<TrainingJob> for Jobs {
    fn from_iter<T: IntoIterator<Item = TrainingJob>>(jobs: T) -> Self {
        let mut all = Self::new();
        jobs.into_iter().for_each(|job| all.insert(job));
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Form, GangSpec, Time};

    fn job(name: &str) -> TrainingJob {
        let spec = GangSpec {
            instance_type: "ml.m5.large".to_owned(),
            instances: 1,
            other_groups: Vec::new(),
            form: Form::Serves,
            max_pending_s: None,
            max_wait_s: None,
            grace_s: 1,
            retries: 0,
            min_instances: None,
            target: None,
            claim: crate::Claim::default(),
        };
        TrainingJob::new(&name.into(), name, spec, 0, Time(0), "")
    }

    #[test]
    fn a_copy_stays_as_it_was() {
        let names: Vec<_> = (0..5000).map(|n| format!("job-{n}")).collect();
        let mut jobs: Jobs = names.iter().map(|name| job(name)).collect();
        assert_eq!(jobs.iter().count(), names.len());
        let before = jobs.clone();
        assert!(jobs == before);
        jobs.get_mut("job-7").expect("it is there").gang.uid = "other".to_owned();
        jobs.remove("job-8");
        jobs.remove("none");
        jobs.insert(job("new"));
        let mut other = job("job-9");
        other.gang.uid = "another".to_owned();
        jobs.insert(other);
        assert!(jobs != before);
        let uid = |jobs: &Jobs, name: &str| jobs.get(name).map(|job| job.gang.uid.clone());
        for (name, now, then) in [
            ("job-7", Some("other"), Some("job-7")),
            ("job-8", None, Some("job-8")),
            ("job-9", Some("another"), Some("job-9")),
            ("new", Some("new"), None),
            ("job-10", Some("job-10"), Some("job-10")),
            ("none", None, None),
        ] {
            assert_eq!((uid(&jobs, name).as_deref(), uid(&before, name).as_deref()), (now, then), "{name}");
        }
        assert!(jobs.contains("new") && !before.contains("new"));
        assert_eq!(before.iter().count(), names.len());
    }
}
