//! AWS Budgets: limits on what training jobs cost or use in each period, and who is notified.

mod check;
mod period;
mod reply;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{Tag, call::plain_inputs};

pub use check::{NotificationChange, at_limit, not_found, subscribers};
pub use period::{Period, TimeUnit};
pub use reply::{AmountsOfPeriod, Spending};

/// The tag of a budget that decides what happens when its limit is reached: an [`AtLimit`].
pub const AT_LIMIT_TAG: &str = "shoal:at-limit";
/// Filter of ours beside AWS's: roles' ARNs.
pub const ROLE_FILTER: &str = "Role";
/// Filter whose values are `user:<key>$<value>`.
pub const TAG_FILTER: &str = "TagKeyValue";
/// Most notifications of a budget, as at AWS.
pub const MOST_NOTIFICATIONS: usize = 10;
/// Most subscribers of a notification, as at AWS.
pub const MOST_SUBSCRIBERS: usize = 11;

/// What happens to the jobs that a budget counts when its limit is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum AtLimit {
    /// Subscribers are notified.
    Notify,
    /// New jobs are refused, too.
    Refuse,
    /// Jobs are stopped, too, and new ones are refused.
    Stop,
}

/// What a budget's limit counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum BudgetType {
    /// US dollars.
    Cost,
    /// Hours of instances.
    Usage,
}

/// An amount as AWS writes it: a decimal number and its unit.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct Spend {
    /// Decimal number.
    pub amount: String,
    /// `USD`, or `Hrs` of [`BudgetType::Usage`].
    pub unit: String,
}

/// A budget, as it was created or updated last. Absent members have their defaults.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct Budget {
    /// Unique in the account.
    pub budget_name: String,
    /// For each period.
    pub budget_limit: Spend,
    /// A job counts if each filter has one of its values.
    #[serde(default)]
    pub cost_filters: BTreeMap<String, Vec<String>>,
    /// Echo alone: training has no taxes, credits or subscriptions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost_types: Option<Value>,
    /// Length of a period.
    pub time_unit: TimeUnit,
    /// First and last time that count.
    pub time_period: TimePeriod,
    /// Unit of the limit.
    pub budget_type: BudgetType,
}

/// Seconds since the epoch.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct TimePeriod {
    /// From here.
    pub start: f64,
    /// Up to, but without, here.
    pub end: f64,
}

/// What is compared with a threshold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum NotificationType {
    /// What the period has cost until now.
    Actual,
    /// What it will have cost if it continues like this.
    Forecasted,
}

/// How it is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum ComparisonOperator {
    /// Above the threshold.
    GreaterThan,
    /// Below it.
    LessThan,
    /// Exactly it.
    EqualTo,
}

/// Unit of a threshold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum ThresholdType {
    /// Percent of the limit.
    #[default]
    Percentage,
    /// Unit of the limit.
    AbsoluteValue,
}

/// When subscribers are notified: once in a period in which the condition is met.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct Notification {
    /// What is compared.
    pub notification_type: NotificationType,
    /// How.
    pub comparison_operator: ComparisonOperator,
    /// With this.
    pub threshold: f64,
    /// In this unit.
    #[serde(default)]
    pub threshold_type: ThresholdType,
}

impl Notification {
    /// Whether the condition is met.
    pub fn is_met(&self, spending: &Spending) -> bool {
        let value = match self.notification_type {
            NotificationType::Actual => spending.actual,
            NotificationType::Forecasted => spending.forecast,
        };
        let threshold = self.amount(spending.limit);
        match self.comparison_operator {
            ComparisonOperator::GreaterThan => value > threshold,
            ComparisonOperator::LessThan => value < threshold,
            ComparisonOperator::EqualTo => value == threshold,
        }
    }

    /// The threshold in the unit of the limit.
    pub fn amount(&self, limit: f64) -> f64 {
        match self.threshold_type {
            ThresholdType::Percentage => limit * self.threshold / 100.0,
            ThresholdType::AbsoluteValue => self.threshold,
        }
    }
}

/// How a subscriber is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum SubscriptionType {
    /// A topic.
    Sns,
    /// A mailbox.
    Email,
}

/// Who is notified.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct Subscriber {
    /// How.
    pub subscription_type: SubscriptionType,
    /// The topic's ARN, or an address.
    pub address: String,
}

/// A notification and who gets it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct NotificationWithSubscribers {
    /// When.
    pub notification: Notification,
    /// Who.
    pub subscribers: Vec<Subscriber>,
}

/// A `CreateBudget`, or an `UpdateBudget`, which has neither notifications nor tags.
#[derive(Debug, Clone, PartialEq)]
pub struct PutBudget {
    /// The account that clients name.
    pub account_id: String,
    /// Checked.
    pub budget: Budget,
    /// At creation.
    pub notifications: Vec<NotificationWithSubscribers>,
    /// At creation.
    pub tags: Vec<Tag>,
}

/// An operation on one budget or all: the members that it has. AWS's shapes require those that it
/// needs.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct OfBudget {
    /// The account that clients name.
    pub account_id: String,
    /// Empty of those on all budgets.
    #[serde(default)]
    pub budget_name: String,
    /// A page's length.
    #[serde(default)]
    pub max_results: Option<usize>,
    /// From the page before.
    #[serde(default)]
    pub next_token: Option<String>,
    /// Of `DescribeBudgetPerformanceHistory`.
    #[serde(default)]
    pub time_period: Option<HistoryPeriod>,
}

/// Seconds since the epoch.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct HistoryPeriod {
    /// A year before the end by default.
    pub start: Option<f64>,
    /// Now by default.
    pub end: Option<f64>,
}

/// An operation on a notification or on one of its subscribers: which, and what becomes of it.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct OfNotification {
    /// The account that clients name.
    pub account_id: String,
    /// Which budget.
    pub budget_name: String,
    /// Which notification.
    #[serde(alias = "OldNotification")]
    pub notification: Notification,
    /// Of `UpdateNotification`.
    #[serde(default)]
    pub new_notification: Option<Notification>,
    /// Of `CreateNotification`.
    #[serde(default)]
    pub subscribers: Vec<Subscriber>,
    /// Of `CreateSubscriber`, `UpdateSubscriber` and `DeleteSubscriber`.
    #[serde(default, alias = "OldSubscriber")]
    pub subscriber: Option<Subscriber>,
    /// Of `UpdateSubscriber`.
    #[serde(default)]
    pub new_subscriber: Option<Subscriber>,
    /// A page's length.
    #[serde(default)]
    pub max_results: Option<usize>,
    /// From the page before.
    #[serde(default)]
    pub next_token: Option<String>,
}

/// `TagResource`, `UntagResource` and `ListTagsForResource` of a budget.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct TagBudget {
    /// `arn:aws:budgets::<account>:budget/<name>`.
    #[serde(rename = "ResourceARN")]
    pub arn: String,
    /// Set.
    #[serde(default)]
    pub resource_tags: Vec<Tag>,
    /// Removed.
    #[serde(default)]
    pub resource_tag_keys: Vec<String>,
}

plain_inputs!(OfBudget, OfNotification, TagBudget);
