//! Studies that people look at, as their records left them: kept between two looks, so that a look,
//! or a page of one, costs what is new.

use std::{
    error::Error,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use shoal_plane::StudyRecord;
use shoal_store::{ResourceRow, Rows};
use shoal_tuner::{Study, importance};

use super::Design;

/// Tuning jobs whose studies are kept. A long one takes much memory.
const KEPT: usize = 4;
/// Nobody looks any more.
const IDLE: Duration = Duration::from_secs(60);
/// Between two searches for what nobody looks at.
const CHECK_INTERVAL: Duration = Duration::from_millis(500);

/// The studies that are kept.
#[derive(Default)]
pub(crate) struct Looks(Mutex<Vec<Kept>>);

struct Kept {
    uid: String,
    used: Instant,
    seen: Arc<Mutex<Seen>>,
}

/// The studies of one tuning job.
#[derive(Default)]
pub(crate) struct Seen {
    /// By definition; none before the first look.
    studies: Vec<Study>,
    /// The last record that they know.
    last: u64,
    findings: Option<Findings>,
}

/// What takes longer to find out, of all records up to one.
pub(crate) struct Findings {
    last: u64,
    /// By definition and parameter, as [`importance`] gives them; empty where nothing can be said
    /// yet.
    pub(crate) weights: Vec<Vec<f64>>,
    /// By definition: the trials on the Pareto front, sorted; empty with one objective.
    pub(crate) fronts: Vec<Vec<u32>>,
}

impl Looks {
    /// A tuning job's studies, to be [caught up](Seen::catch_up).
    pub(crate) fn of(&self, tuning: &ResourceRow) -> Arc<Mutex<Seen>> {
        let mut kept = self.lock();
        let place = kept.iter().position(|it| it.uid == tuning.uid);
        let seen = place.map_or_else(Arc::default, |place| kept.remove(place).seen);
        kept.truncate(KEPT - 1);
        kept.insert(0, Kept { uid: tuning.uid.clone(), used: Instant::now(), seen: seen.clone() });
        seen
    }

    /// Drops what nobody has looked at for long, as long as the server runs.
    pub(crate) async fn expire(self: Arc<Self>) {
        loop {
            tokio::time::sleep(CHECK_INTERVAL).await;
            let looks = self.clone();
            if let Err(error) = tokio::task::spawn_blocking(move || looks.drop_idle()).await {
                tracing::error!("studies that nobody looks at are kept: {error}");
            }
        }
    }

    fn drop_idle(&self) {
        self.lock().retain(|it| it.used.elapsed() < IDLE);
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Kept>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Seen {
    /// Takes the records that are new, and says how many they were.
    ///
    /// # Errors
    /// They cannot be read, or make no sense. The next look begins with the first record.
    pub(crate) fn catch_up(
        &mut self,
        rows: &dyn Rows,
        tuning: &ResourceRow,
        designs: &[Design],
    ) -> Result<usize, Box<dyn Error>> {
        // What fails, or panics, on the way is not kept.
        let Seen { mut studies, mut last, findings } = std::mem::take(self);
        if studies.is_empty() {
            studies = designs.iter().map(|design| Study::new(design.study.clone())).collect::<Result<_, _>>()?;
        }
        let (mut new, mut failure) = (0, None);
        let read = rows.records(&tuning.name, last, &mut |number, bytes| {
            if failure.is_none() {
                failure = fold(&mut studies, bytes)
                    .err()
                    .map(|error| format!("record {number} of tuning job {}: {error}", tuning.name));
            }
            (new, last) = (new + 1, number);
            Ok(())
        });
        read?;
        if let Some(failure) = failure {
            return Err(failure.into());
        }
        *self = Seen { studies, last, findings };
        Ok(new)
    }

    /// By definition.
    pub(crate) fn studies(&self) -> &[Study] {
        &self.studies
    }

    /// The studies, and what can be found out of their records.
    pub(crate) fn findings(&mut self) -> (&[Study], &Findings) {
        let Seen { studies, last, findings } = self;
        let stale = findings.take_if(|it| it.last != *last);
        drop(stale);
        let found = findings.get_or_insert_with(|| Findings {
            last: *last,
            weights: studies
                .iter()
                .map(|study| importance(study.space(), study.history(), 0).unwrap_or_default())
                .collect(),
            fronts: studies
                .iter()
                .map(|study| if study.spec().objectives.len() > 1 { study.front() } else { Vec::new() })
                .collect(),
        });
        (studies, found)
    }
}

fn fold(studies: &mut [Study], bytes: &[u8]) -> Result<(), String> {
    let StudyRecord { definition, record } = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
    let study = studies.get_mut(definition as usize).ok_or("it is of a definition that is not there")?;
    study.replay(record).map_err(|error| error.to_string())
}
