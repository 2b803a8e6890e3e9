//! Nouns of a gang: instances that are acquired, started and released together.

use serde::{Deserialize, Serialize};

use super::Claim;

/// What the core decides on; whatever runs on the instances is opaque to it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GangSpec {
    /// `ml.m5.xlarge`; of several groups, the first one's.
    pub instance_type: String,
    /// At least 1; of all groups together.
    pub instances: u32,
    /// Instance groups behind the first, if there are several; their instances are the last ones,
    /// in this order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub other_groups: Vec<InstanceGroup>,
    /// Whether it ends by itself.
    #[serde(flatten)]
    pub form: Form,
    /// Longest wait for instances, in seconds.
    pub max_pending_s: Option<u64>,
    /// Longest time from the creation to the end, waiting and running together, in seconds. Only a
    /// gang that has it may be interrupted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_wait_s: Option<u64>,
    /// Seconds between SIGTERM and SIGKILL of a stop.
    pub grace_s: u32,
    /// How often an attempt that failed is followed by another.
    #[serde(default, skip_serializing_if = "crate::nouns::is_default")]
    pub retries: u32,
    /// It continues with this number of instances, from 1 to `instances`, when it loses others;
    /// none: it needs all. The first instance is never among the others, and there is one group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_instances: Option<u32>,
    /// The compute target whose scheduler places its instances; none: they are placed here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// For whom it uses capacity.
    #[serde(default, skip_serializing_if = "crate::nouns::is_default")]
    pub claim: Claim,
}

/// Whether a gang ends by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "FormFields", into = "FormFields")]
pub enum Form {
    /// Its programs end, and what they leave is stored.
    Ends {
        /// Longest run time in seconds, of all attempts together, from the first report of an
        /// instance.
        max_runtime_s: u64,
    },
    /// Its programs run until they are stopped. One that ends by itself has failed, whatever its
    /// exit code, and leaves nothing.
    Serves,
}

/// The encoding of a [`Form`], among the fields of its specification: those that end had
/// `max_runtime_s` before there were others.
#[derive(Serialize, Deserialize)]
struct FormFields {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    max_runtime_s: Option<u64>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    serves: bool,
}

impl From<Form> for FormFields {
    fn from(form: Form) -> Self {
        match form {
            Form::Ends { max_runtime_s } => Self { max_runtime_s: Some(max_runtime_s), serves: false },
            Form::Serves => Self { max_runtime_s: None, serves: true },
        }
    }
}

impl TryFrom<FormFields> for Form {
    type Error = &'static str;

    fn try_from(fields: FormFields) -> Result<Self, Self::Error> {
        match fields {
            FormFields { max_runtime_s: Some(max_runtime_s), serves: false } => Ok(Form::Ends { max_runtime_s }),
            FormFields { max_runtime_s: None, serves: true } => Ok(Form::Serves),
            _ => Err("either max_runtime_s or serves is set"),
        }
    }
}

/// Instances of one type.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InstanceGroup {
    /// `ml.m5.xlarge`.
    pub instance_type: String,
    /// At least 1.
    pub instances: u32,
}

impl GangSpec {
    /// One that needs all of its instances, waits for them without limit and is not retried.
    pub fn new(instance_type: impl Into<String>, instances: u32, form: Form, grace_s: u32) -> Self {
        Self {
            instance_type: instance_type.into(),
            instances,
            other_groups: Vec::new(),
            form,
            max_pending_s: None,
            max_wait_s: None,
            grace_s,
            retries: 0,
            min_instances: None,
            target: None,
            claim: Claim::default(),
        }
    }

    /// Types of instances and how many of each, in the order of the instances.
    pub(crate) fn groups(&self) -> impl Iterator<Item = (&str, u32)> {
        let others = self.other_groups.iter().map(|group| (&*group.instance_type, group.instances));
        let first = others.clone().fold(self.instances, |left, (_, instances)| left.saturating_sub(instances));
        std::iter::once((&*self.instance_type, first)).chain(others)
    }

    /// Its programs run until they are stopped.
    pub(crate) fn serves(&self) -> bool {
        self.form == Form::Serves
    }
}
