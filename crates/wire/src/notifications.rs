//! `ListNotifications`: what became of notifications. Not of AWS, which shows it nowhere.

use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::{Call, Error, Input, Reply, call::read, timestamp};

/// The operation's target.
pub const LIST_NOTIFICATIONS: &str = "Shoal.ListNotifications";

/// Notifications on a page at most, and by default.
const MAX_RESULTS: usize = 100;
/// What a notification can be.
const STATUSES: [&str; 3] = ["Pending", "Delivered", "Failed"];

/// A `ListNotifications`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
pub struct ListNotifications {
    /// Only `Pending`, `Delivered` or `Failed` ones.
    pub status: Option<String>,
    /// 1 to 100.
    pub max_results: Option<usize>,
    /// From the page before.
    #[serde(skip_serializing)]
    pub next_token: Option<String>,
}

/// A message on its way to one subscription.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotificationLine {
    /// Of the message.
    pub message_id: String,
    /// Amazon resource name.
    pub topic_arn: String,
    /// How; empty of a message that no subscription got yet.
    pub protocol: String,
    /// Where.
    pub endpoint: String,
    /// Of the message.
    pub subject: Option<String>,
    /// `Pending`, `Delivered` or `Failed`.
    pub status: String,
    /// How often it was attempted.
    pub attempts: u32,
    /// When it was published, in milliseconds since the epoch.
    pub at_ms: u64,
    /// When its status was recorded last.
    pub modified_ms: u64,
    /// Why the last attempt failed.
    pub reason: Option<String>,
}

impl ListNotifications {
    /// How many are wanted.
    #[must_use]
    pub fn limit(&self) -> usize {
        self.max_results.unwrap_or(MAX_RESULTS)
    }
}

impl Input for ListNotifications {
    fn read(call: Call) -> Result<Self, Error> {
        let request: Self = read(call.input)?;
        if let Some(status) = request.status.as_ref().filter(|status| !STATUSES.contains(&status.as_str())) {
            let known = STATUSES.join(", ");
            return Err(Error::validation(format!("Invalid value '{status}' at 'Status': it is one of {known}.")));
        }
        if !(1..=MAX_RESULTS).contains(&request.limit()) {
            return Err(Error::validation(format!("Invalid value at 'MaxResults': it is 1 to {MAX_RESULTS}.")));
        }
        Ok(request)
    }
}

impl Reply {
    /// `ListNotifications`: one page.
    pub fn list_notifications(lines: &[NotificationLine], next: Option<&str>) -> Self {
        let entry = |line: &NotificationLine| {
            json!({
                "MessageId": line.message_id,
                "TopicArn": line.topic_arn,
                "Protocol": line.protocol,
                "Endpoint": line.endpoint,
                "Subject": line.subject,
                "Status": line.status,
                "Attempts": line.attempts,
                "Time": timestamp::seconds(line.at_ms),
                "ModifiedTime": timestamp::seconds(line.modified_ms),
                "Reason": line.reason,
            })
        };
        Self::page("Notifications", lines.iter().map(entry), "NextToken", next)
    }
}
