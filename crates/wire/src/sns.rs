//! Notifications (SNS): topics, subscriptions and what is published to them.

mod envelope;
mod reply;
mod request;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::Tag;

pub use envelope::{Envelope, EnvelopeKind};

/// A `CreateTopic`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CreateTopic {
    /// Letters, digits, `-` and `_`; at most 256.
    pub name: String,
    /// `DisplayName` and the like.
    pub attributes: BTreeMap<String, String>,
    /// Keys are unique.
    pub tags: Vec<Tag>,
}

/// A `DeleteTopic` or `GetTopicAttributes`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct NamedTopic {
    /// Amazon resource name.
    pub topic_arn: String,
}

/// A `SetTopicAttributes`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SetTopicAttributes {
    /// Amazon resource name.
    pub topic_arn: String,
    /// One that topics have here.
    pub name: String,
    /// Empty is none.
    pub value: String,
}

/// A `ListTopics` or `ListSubscriptions`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct ListAll {
    /// From the page before.
    pub next_token: Option<String>,
}

/// A `ListSubscriptionsByTopic`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct ListByTopic {
    /// Amazon resource name.
    pub topic_arn: String,
    /// From the page before.
    pub next_token: Option<String>,
}

/// How subscribers are reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TopicProtocol {
    /// POST requests.
    Http,
    /// The same over TLS.
    Https,
    /// The message as a mail.
    Email,
    /// The whole envelope as a mail.
    EmailJson,
    /// A command that the owner has configured, by its name. Not of AWS.
    Command,
}

/// A `Subscribe`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subscribe {
    /// Amazon resource name.
    pub topic_arn: String,
    /// How.
    pub protocol: TopicProtocol,
    /// A URL, an address, a command's name.
    pub endpoint: String,
    /// Messages are delivered without an envelope.
    pub is_raw: bool,
    /// The answer has the ARN though the subscription is not confirmed.
    pub return_arn: bool,
}

/// A `ConfirmSubscription`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfirmSubscription {
    /// Amazon resource name.
    pub topic_arn: String,
    /// What the endpoint was sent.
    pub token: String,
    /// Only the owner may unsubscribe it.
    pub authenticate_on_unsubscribe: bool,
}

/// An `Unsubscribe` or `GetSubscriptionAttributes`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct NamedSubscription {
    /// Amazon resource name.
    pub subscription_arn: String,
}

/// A subscription as lists show it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SubscriptionSummary {
    /// Its ARN, or `PendingConfirmation`.
    pub arn: String,
    /// Account.
    pub owner: String,
    /// How.
    pub protocol: TopicProtocol,
    /// Where.
    pub endpoint: String,
    /// Of which topic.
    pub topic_arn: String,
}

/// A `Publish`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Publish {
    /// Amazon resource name.
    pub topic_arn: String,
    /// What is sent.
    pub message: PublishedMessage,
}

/// What is sent to a topic's subscribers.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PublishedMessage {
    /// Of mails, and in envelopes.
    pub subject: Option<String>,
    /// The text, unless there is one of the protocol.
    pub text: String,
    /// Texts of protocols, by their names.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub by_protocol: BTreeMap<String, String>,
    /// By their names.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub attributes: BTreeMap<String, MessageAttribute>,
}

/// A property of a message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct MessageAttribute {
    /// `String`, `String.Array`, `Number` or `Binary`, with a label behind a dot.
    #[serde(rename = "Type")]
    pub kind: String,
    /// A text; base64 of what is binary.
    pub value: String,
}

/// A `TagResource`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct TagTopic {
    /// Of what.
    pub resource_arn: String,
    /// Keys are unique.
    pub tags: Vec<Tag>,
}

/// An `UntagResource`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct UntagTopic {
    /// Of what.
    pub resource_arn: String,
    /// Those that it does not have are left aside.
    pub tag_keys: Vec<String>,
}

/// A `ListTagsForResource`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct ListTopicTags {
    /// Of what.
    pub resource_arn: String,
}

impl TopicProtocol {
    /// All, as requests name them.
    pub const ALL: [(&'static str, Self); 5] = [
        ("http", Self::Http),
        ("https", Self::Https),
        ("email", Self::Email),
        ("email-json", Self::EmailJson),
        ("command", Self::Command),
    ];

    /// As requests name it.
    #[must_use]
    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|(_, it)| *it == self).map_or("", |(name, _)| name)
    }
}

impl PublishedMessage {
    /// What subscribers of a protocol get.
    #[must_use]
    pub fn text_for(&self, protocol: TopicProtocol) -> &str {
        self.by_protocol.get(protocol.name()).unwrap_or(&self.text)
    }
}
