//! Who may use how much: an operation of ours beside SageMaker's, `Shoal.ListQuotas`.

use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::{Reply, call::plain_inputs};

/// The operation's `X-Amz-Target`.
pub const LIST_QUOTAS: &str = "Shoal.ListQuotas";

/// Asks for all that the caller sees.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct ListQuotas {}

/// What is used, and at most; none: any amount.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct QuotaAmount {
    /// At present; none: it is not counted, as nothing limits it.
    pub used: Option<u64>,
    /// At most.
    pub limit: Option<u64>,
}

/// A user, or a tag.
#[derive(Debug, Clone, PartialEq)]
pub struct QuotaLine {
    /// `user:anna`, `tag:team=vision`.
    pub name: String,
    /// Running jobs.
    pub jobs: QuotaAmount,
    /// Their instances.
    pub instances: QuotaAmount,
    /// Their GPUs.
    pub gpus: QuotaAmount,
    /// Bytes of objects where the user may write, or where jobs with the tag do.
    pub stored_bytes: QuotaAmount,
    /// Bytes of log lines of the user's jobs, or of those with the tag.
    pub log_bytes: QuotaAmount,
    /// Of users alone.
    pub requests_per_s: Option<u32>,
    /// Largest value of the tag `shoal:priority`; of users alone.
    pub max_priority: Option<i32>,
    /// What counts in the fair share; of users alone.
    pub used_s: Option<f64>,
}

plain_inputs!(ListQuotas);

impl Reply {
    /// `ListQuotas`.
    pub fn list_quotas(lines: &[QuotaLine]) -> Self {
        Self::of(json!({"Quotas": lines.iter().map(line).collect::<Vec<_>>()}))
    }
}

fn line(quota: &QuotaLine) -> Value {
    let mut line = Map::from_iter([("Name".to_owned(), json!(quota.name))]);
    for (name, QuotaAmount { used, limit }) in [
        ("Jobs", quota.jobs),
        ("Instances", quota.instances),
        ("Gpus", quota.gpus),
        ("StoredBytes", quota.stored_bytes),
        ("LogBytes", quota.log_bytes),
    ] {
        let members = [("Used", used), ("Limit", limit)];
        let members = members.into_iter().filter_map(|(name, value)| Some((name.to_owned(), json!(value?))));
        let members = Map::from_iter(members);
        if !members.is_empty() {
            line.insert(name.to_owned(), Value::Object(members));
        }
    }
    let numbers = [
        ("RequestsPerSecond", quota.requests_per_s.map(|it| json!(it))),
        ("MaxPriority", quota.max_priority.map(|it| json!(it))),
        ("UsedInstanceSeconds", quota.used_s.map(|it| json!(it))),
    ];
    line.extend(numbers.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))));
    Value::Object(line)
}
