//! The profile of a training job: an operation of ours beside SageMaker's, `Shoal.DescribeProfile`,
//! from which `shoal jobs profile` makes its page.

use serde::Deserialize;
use serde_json::{Value, json};

use crate::{Reply, call::plain_inputs};

/// Value of `X-Amz-Target`.
pub const DESCRIBE_PROFILE: &str = "Shoal.DescribeProfile";

/// Whose profile is requested.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct DescribeProfile {
    /// Training job's name.
    pub training_job_name: String,
}

plain_inputs!(DescribeProfile);

impl Reply {
    /// `DescribeProfile`: the profile as `shoal_profile::Profile` writes it.
    pub fn describe_profile(profile: &Value) -> Self {
        Self::of(json!({ "Profile": profile }))
    }
}
