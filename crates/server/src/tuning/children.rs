//! Trials' training jobs: names that are the same whenever they are made again, and requests
//! composed of definition and tuned values.

use shoal_plane::{Child, JobName, TuningName};
use shoal_store::{ResourceKind, Rows};
use shoal_tuner::{Config, Space};
use shoal_wire::{CreateTuningJob, arn};

use super::searches::Trouble;
use crate::{
    core::{NewChild, Opaque},
    hex::sha256_hex,
};

/// Which trial it is.
#[derive(Debug, Clone)]
pub(super) struct Newborn {
    /// Index of its definition.
    pub(super) definition: u32,
    /// Number in the definition's study.
    pub(super) trial: u32,
    /// From 1, in the tuning job.
    pub(super) number: u64,
    /// Training job whose checkpoint it begins with.
    pub(super) origin: Option<JobName>,
    /// See [`super::Design::keeps_checkpoints`].
    pub(super) keeps_checkpoints: bool,
}

/// What children of one tuning job have in common.
#[derive(Debug)]
pub(super) struct Nursery {
    pub(super) tuning: TuningName,
    pub(super) uid: String,
    pub(super) region: String,
    pub(super) account: String,
    /// Of the tuning job, and so of its trials.
    pub(super) creator: Option<String>,
}

impl Nursery {
    /// A trial's training job.
    ///
    /// # Errors
    /// Its request is not valid, or rows cannot be read.
    pub(super) fn child(
        &self,
        rows: &dyn Rows,
        request: &CreateTuningJob,
        trial: Newborn,
        space: &Space,
        config: &Config,
    ) -> Result<NewChild, Trouble> {
        let Newborn { definition, trial, number, origin, keeps_checkpoints } = trial;
        let (name, uid) = self.free_name(rows, number)?;
        let tuned = space.texts(config);
        let own =
            shoal_wire::Child { name: &name, tuned: &tuned, alternative: 0, tags: &request.tags, keeps_checkpoints };
        let request = request.definitions[definition as usize].child(&own).map_err(|error| {
            Trouble::Never(format!(
                "the training job of trial {number} ({name}) could not be created: {}",
                error.message
            ))
        })?;
        let arn = arn::training_job(&self.region, &self.account, &name);
        let opaque = Opaque::new(uid.clone(), arn, &request, self.creator.clone());
        let tuned = serde_json::to_vec(&tuned).expect("texts always serialise");
        Ok(NewChild { child: Child { definition, trial, name, uid, origin }, opaque, tuned })
    }

    /// `<tuning>-<number>-<8 hexadecimal digits>` that no training job has, and its uid.
    fn free_name(&self, rows: &dyn Rows, number: u64) -> Result<(JobName, String), Trouble> {
        for salt in 0_u32.. {
            let digest = sha256_hex(&format!("{}/{number}/{salt}", self.uid));
            let (name, uid) = (format!("{}-{number:03}-{}", self.tuning, &digest[..8]), digest[8..20].to_owned());
            if rows.resource(ResourceKind::TRAINING_JOB, &name)?.is_none() {
                return Ok((name.into(), uid));
            }
        }
        Err(Trouble::Never(format!("all names of trial {number} of {} are taken", self.tuning)))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use shoal_store::{Batch, Journal as _, ResourceRow, RowChange, SqliteJournal};

    use super::*;

    fn nursery(uid: &str) -> Nursery {
        Nursery {
            tuning: "tune".into(),
            uid: uid.to_owned(),
            region: "us-east-1".to_owned(),
            account: "123456789012".to_owned(),
            creator: None,
        }
    }

    #[test]
    fn a_trial_has_the_same_name_whenever_it_is_made_and_no_other_jobs() {
        let dir = tempfile::tempdir().unwrap();
        let mut journal = SqliteJournal::open(&dir.path().join("shoal.db")).unwrap();
        let rows = journal.rows();
        let (mine, other) = (nursery("0123456789ab"), nursery("ba9876543210"));
        let name = |of: &Nursery, number| of.free_name(&rows, number).unwrap();
        let first = name(&mine, 7);
        assert_eq!(first, name(&mine, 7));
        assert!(first.0.starts_with("tune-007-") && first.0.len() == "tune-007-01234567".len(), "{}", first.0);
        // Of one that is deleted and made again, and of another trial.
        let all = [&first, &name(&other, 7), &name(&mine, 8)];
        assert_eq!(all.iter().map(|(name, _)| name.to_string()).collect::<BTreeSet<_>>().len(), 3);
        assert_eq!(all.iter().map(|(_, uid)| uid).collect::<BTreeSet<_>>().len(), 3);
        // The name is taken by a job of an earlier tuning job.
        let taken = ResourceRow::new(ResourceKind::TRAINING_JOB, &first.0);
        journal.append(&Batch { events: Vec::new(), rows: vec![RowChange::Put(Box::new(taken))] }).unwrap();
        let second = name(&mine, 7);
        assert_ne!(second, first);
        assert_eq!(second, name(&mine, 7));
        assert!(name(&mine, 1_000_000).0.starts_with("tune-1000000-"));
    }
}
