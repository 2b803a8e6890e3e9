//! Rows of topics, subscriptions, messages and deliveries.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize, de::DeserializeOwned};
use shoal_store::{ResourceKind, ResourceRow};
use shoal_wire::{PublishedMessage, TopicProtocol};

/// Topics; the view has their attributes.
pub(crate) const TOPIC: ResourceKind = ResourceKind::new("sns-topic");
/// Subscriptions; the parent is the topic's name.
pub(crate) const SUBSCRIPTION: ResourceKind = ResourceKind::new("sns-subscription");
/// Messages that are published and have no deliveries yet; the parent is the topic's name.
pub(crate) const MESSAGE: ResourceKind = ResourceKind::new("sns-message");
/// Messages on their way to one subscription; the parent is the topic's name.
pub(crate) const DELIVERY: ResourceKind = ResourceKind::new("sns-delivery");

/// Statuses of subscriptions.
pub(crate) const CONFIRMED: &str = "Confirmed";
pub(crate) const UNCONFIRMED: &str = "PendingConfirmation";
/// Statuses of messages and deliveries.
pub(crate) const PENDING: &str = "Pending";
pub(crate) const DELIVERED: &str = "Delivered";
pub(crate) const FAILED: &str = "Failed";

/// Version of the stored forms below. A member that is added has a default and keeps the version.
const VERSION: u32 = 1;

#[derive(Serialize, Deserialize)]
struct Versioned<T> {
    v: u32,
    it: T,
}

/// The stored form of a value.
pub(crate) fn stored(it: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(&Versioned { v: VERSION, it }).expect("its maps have text keys only")
}

/// Reads a stored form.
///
/// # Errors
/// It is damaged, or of another version.
pub(crate) fn restored<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, String> {
    let Versioned { v, it } = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
    if v == VERSION { Ok(it) } else { Err(format!("version {v} of a stored notification is not known")) }
}

/// Where a subscription's messages go.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Target {
    pub(crate) protocol: TopicProtocol,
    pub(crate) endpoint: String,
    /// Without an envelope.
    #[serde(default)]
    pub(crate) is_raw: bool,
    /// Only the owner may unsubscribe it.
    #[serde(default)]
    pub(crate) is_owners: bool,
}

/// A message on its way to one subscription.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Delivery {
    pub(crate) message_id: String,
    pub(crate) topic_arn: String,
    pub(crate) subscription_arn: String,
    pub(crate) target: Target,
    /// When it was published, in milliseconds since the epoch.
    pub(crate) at_ms: u64,
    pub(crate) message: PublishedMessage,
    /// It asks the endpoint to confirm the subscription.
    #[serde(default)]
    pub(crate) is_confirmation: bool,
}

/// How far a delivery is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Attempts {
    pub(crate) count: u32,
    /// Why the last one failed.
    #[serde(default)]
    pub(crate) reason: Option<String>,
}

/// What a topic's view has.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct TopicView {
    #[serde(default)]
    pub(crate) attributes: BTreeMap<String, String>,
}

impl Delivery {
    /// Its row, before the first attempt.
    pub(crate) fn into_row(self, name: &str, topic: &str, now_ms: u64) -> ResourceRow {
        ResourceRow {
            created_ms: self.at_ms,
            modified_ms: now_ms,
            parent: Some(topic.to_owned()),
            status: PENDING.to_owned(),
            spec: stored(&self),
            view: stored(&Attempts::default()),
            ..ResourceRow::new(DELIVERY, name)
        }
    }

    /// Which deliveries must not be attempted at the same time.
    pub(crate) fn lane(&self) -> String {
        format!("{} {}", self.target.protocol.name(), self.target.endpoint)
    }
}
