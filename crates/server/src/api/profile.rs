//! The profile of a training job.

use shoal_store::ResourceKind;
use shoal_wire::{DescribeProfile, Error, ErrorCode, Reply};

use super::{Api, blocking, resources::missing};
use crate::{clock::now_ms, internal::internal};

impl Api {
    pub(super) async fn describe_profile(&self, request: DescribeProfile) -> Result<Reply, Error> {
        let profiles = self.profiles.clone();
        blocking(move || {
            let job = &request.training_job_name;
            let profile =
                profiles.of(job, now_ms()).map_err(|reason| Error::new(ErrorCode::InternalFailure, reason))?;
            let profile = profile.ok_or_else(|| missing(ResourceKind::TRAINING_JOB, job))?;
            Ok(Reply::describe_profile(&serde_json::to_value(&profile).map_err(|error| internal(&error))?))
        })
        .await
    }
}
