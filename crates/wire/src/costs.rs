//! What training jobs cost: an operation of ours beside SageMaker's, `Shoal.ListCosts`.

use serde::Deserialize;
use serde_json::{Value, json};

use crate::{Reply, call::plain_inputs};

/// The operation's `X-Amz-Target`.
pub const LIST_COSTS: &str = "Shoal.ListCosts";

/// Which costs are asked for.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct ListCosts {
    /// What has one line.
    pub group_by: CostGroup,
    /// Of [`CostGroup::Tag`]: this tag's values alone.
    #[serde(default)]
    pub tag_key: Option<String>,
    /// Seconds since the epoch: what was used from then on.
    #[serde(default)]
    pub after: Option<f64>,
    /// Seconds since the epoch: what was used before.
    #[serde(default)]
    pub before: Option<f64>,
    /// Whether the costs of each day are wanted, too.
    #[serde(default)]
    pub days: bool,
}

/// What jobs are grouped by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub enum CostGroup {
    /// Each training job.
    Job,
    /// Each tuning job with all its trials; other training jobs together.
    TuningJob,
    /// Each experiment of `ExperimentConfig`; other training jobs together.
    Experiment,
    /// Each tag: a job with several counts in each.
    Tag,
    /// Each type of instance.
    InstanceType,
    /// Each `RoleArn`.
    Role,
}

/// A line of the answer.
#[derive(Debug, Clone, PartialEq)]
pub struct CostLine {
    /// What the group's jobs have in common; empty for those without.
    pub key: String,
    /// Number of jobs.
    pub jobs: u64,
    /// Billable seconds of all instances.
    pub instance_s: f64,
    /// Of these, seconds of instances whose type has no price.
    pub unpriced_s: f64,
    /// What the others cost, in US dollars.
    pub usd: f64,
    /// Seconds of managed spot training that interruptions saved.
    pub saved_s: f64,
    /// What these would have cost, in US dollars.
    pub saved_usd: f64,
}

/// What all jobs together cost on a day, in UTC.
#[derive(Debug, Clone, PartialEq)]
pub struct CostDay {
    /// Seconds since the epoch: its beginning.
    pub start: u64,
    /// Billable seconds of all instances.
    pub instance_s: f64,
    /// What those with a price cost, in US dollars.
    pub usd: f64,
}

plain_inputs!(ListCosts);

impl Reply {
    /// `ListCosts`: the groups, the most expensive first, and all jobs together, each counted once;
    /// days on which something was used, if they are wanted.
    pub fn list_costs(groups: &[CostLine], total: &CostLine, days: Option<&[CostDay]>) -> Self {
        let reply = Self::of(json!({"Groups": groups.iter().map(line).collect::<Vec<_>>(), "Total": line(total)}));
        match days {
            Some(days) => reply.with("Days", days.iter().map(day).collect()),
            None => reply,
        }
    }
}

fn day(day: &CostDay) -> Value {
    json!({"Start": day.start, "InstanceSeconds": day.instance_s, "UsDollars": day.usd})
}

fn line(line: &CostLine) -> Value {
    json!({
        "Key": line.key,
        "Jobs": line.jobs,
        "InstanceSeconds": line.instance_s,
        "UnpricedInstanceSeconds": line.unpriced_s,
        "UsDollars": line.usd,
        "SavedInstanceSeconds": line.saved_s,
        "SavedUsDollars": line.saved_usd,
    })
}
