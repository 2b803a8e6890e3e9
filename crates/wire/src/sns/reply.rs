//! Topics and subscriptions as answers show them.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::SubscriptionSummary;
use crate::{Reply, Tag};

impl Reply {
    /// `CreateTopic`.
    pub fn create_topic(arn: &str) -> Self {
        Self::of(json!({"TopicArn": arn}))
    }

    /// `ListTopics`: one page of ARNs.
    pub fn list_topics(arns: &[String], next: Option<&str>) -> Self {
        Self::page("Topics", arns.iter().map(|arn| json!({"TopicArn": arn})), "NextToken", next)
    }

    /// `GetTopicAttributes` or `GetSubscriptionAttributes`.
    pub fn attributes(attributes: &BTreeMap<&str, String>) -> Self {
        Self::of(json!({"Attributes": attributes}))
    }

    /// `Subscribe` or `ConfirmSubscription`.
    pub fn subscription(arn: &str) -> Self {
        Self::of(json!({"SubscriptionArn": arn}))
    }

    /// `ListSubscriptions` or `ListSubscriptionsByTopic`: one page.
    pub fn list_subscriptions(subscriptions: &[SubscriptionSummary], next: Option<&str>) -> Self {
        let entry = |it: &SubscriptionSummary| -> Value {
            json!({
                "SubscriptionArn": it.arn, "Owner": it.owner, "Protocol": it.protocol.name(),
                "Endpoint": it.endpoint, "TopicArn": it.topic_arn,
            })
        };
        Self::page("Subscriptions", subscriptions.iter().map(entry), "NextToken", next)
    }

    /// `Publish`.
    pub fn publish(message_id: &str) -> Self {
        Self::of(json!({"MessageId": message_id}))
    }

    /// `ListTagsForResource`.
    pub fn topic_tags(tags: &[Tag]) -> Self {
        Self::of(json!({"Tags": tags}))
    }
}
