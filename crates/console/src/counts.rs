//! How many jobs there are in each group. Counting looks at every job, so an answer serves all who
//! ask in the same moment.

use std::{
    sync::Mutex,
    time::{Duration, Instant},
};

use shoal_plane::SecondaryStatus;
use shoal_store::{Key, KeyTest, ResourceFilter, ResourceKind, Rows, StoreError};

use super::status::{GROUPS, Group};

/// How long an answer serves when no job changes its status: deletions make no event.
const FRESH: Duration = Duration::from_secs(2);
/// And when jobs do.
const RECENT: Duration = Duration::from_millis(500);

/// The last answer.
#[derive(Debug, Default)]
pub(crate) struct Counts(Mutex<Option<Answer>>);

#[derive(Debug, Clone)]
struct Answer {
    search: Option<String>,
    version: u64,
    at: Instant,
    counts: [u64; GROUPS.len()],
}

impl Counts {
    /// Jobs of each of [`GROUPS`] whose name resembles `search`, as of about this version of the
    /// core.
    ///
    /// # Errors
    /// The storage's.
    pub(crate) fn of(
        &self,
        rows: &dyn Rows,
        search: Option<&str>,
        version: u64,
    ) -> Result<[u64; GROUPS.len()], StoreError> {
        let mut last = self.0.lock().expect("counting does not panic");
        if let Some(answer) = &*last {
            let serves = if answer.version == version { FRESH } else { RECENT };
            if answer.search.as_deref() == search && answer.at.elapsed() < serves {
                return Ok(answer.counts);
            }
        }
        let mut counts = [0; GROUPS.len()];
        for (count, group) in counts.iter_mut().zip(GROUPS) {
            *count = rows.count(&group_filter(Some(group), search))?;
        }
        *last = Some(Answer { search: search.map(str::to_owned), version, at: Instant::now(), counts });
        Ok(counts)
    }
}

fn if_waits(waits: bool) -> KeyTest {
    let pending = Key::from(SecondaryStatus::Pending.name());
    if waits { KeyTest::Is(pending) } else { KeyTest::IsNot(pending) }
}

/// The jobs of a group, or of all, whose name resembles `search`.
pub(crate) fn group_filter(group: Option<Group>, search: Option<&str>) -> ResourceFilter {
    ResourceFilter {
        name_resembles: search.map(str::to_owned),
        status: group.map(|group| group.status.to_owned()),
        keys: [group.and_then(|group| group.waits).map(if_waits), None],
        ..ResourceFilter::new(ResourceKind::TRAINING_JOB)
    }
}
