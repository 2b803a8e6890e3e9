//! What is published to a topic, before it is on its way to anybody.

use serde::{Deserialize, Serialize};
use shoal_store::ResourceRow;
use shoal_wire::{Error, ErrorCode, PublishedMessage, TopicProtocol};

use super::rows::{MESSAGE, PENDING, stored};
use crate::{hex::sha256_hex, identity::Identity};

/// A message to a topic.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Message {
    /// [`message_id`].
    pub(crate) id: String,
    pub(crate) topic_arn: String,
    pub(crate) message: PublishedMessage,
    /// What the topic gets as subscribers if it does not have them; with these, it is created
    /// if it is not there.
    #[serde(default)]
    pub(crate) subscribe: Vec<(TopicProtocol, String)>,
}

impl Message {
    /// Its row, until it is on its way.
    pub(crate) fn into_row(self, now_ms: u64) -> ResourceRow {
        let topic = self.topic_arn.rsplit(':').next().unwrap_or_default().to_owned();
        ResourceRow {
            created_ms: now_ms,
            modified_ms: now_ms,
            parent: Some(topic),
            status: PENDING.to_owned(),
            spec: stored(&self),
            ..ResourceRow::new(MESSAGE, &self.id)
        }
    }
}

/// The id of the message that these parts name: the same parts have the same id, so what is decided
/// again after a crash is the same message.
pub(crate) fn message_id(parts: &[&str]) -> String {
    let hex = sha256_hex(&parts.join("\0"));
    format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..32])
}

/// `arn:aws:sns:<region>:<account>:<topic>[:<subscription>]`
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TopicArn {
    /// The topic's name.
    pub(crate) name: String,
    /// Of the subscription, if it is one's.
    pub(crate) subscription: Option<String>,
}

impl TopicArn {
    /// Reads an ARN of this server.
    ///
    /// # Errors
    /// It is none.
    pub(crate) fn parse(arn: &str, identity: &Identity) -> Result<Self, Error> {
        let Identity { region, account } = identity;
        let of_here = format!(":sns:{region}:{account}:");
        let rest = arn.strip_prefix("arn:aws").and_then(|rest| rest.split_once(&of_here));
        let parts: Vec<&str> = rest.map_or_else(Vec::new, |(_, rest)| rest.split(':').collect());
        match parts.as_slice() {
            [name] if !name.is_empty() => Ok(Self { name: (*name).to_owned(), subscription: None }),
            [name, subscription] if !name.is_empty() => {
                Ok(Self { name: (*name).to_owned(), subscription: Some((*subscription).to_owned()) })
            }
            _ => Err(Error::new(
                ErrorCode::ValidationException,
                format!(
                    "Invalid parameter: TopicArn Reason: '{}' is not the ARN of a topic of this server, which is of \
                     the form arn:aws:sns:{region}:{account}:NAME.",
                    arn.escape_debug()
                ),
            )),
        }
    }

    /// The ARN of a topic.
    pub(crate) fn of(name: &str, identity: &Identity) -> String {
        format!("arn:aws:sns:{}:{}:{name}", identity.region, identity.account)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn topics_are_those_of_this_server() {
        let identity = Identity { region: "eu-west-1".to_owned(), account: "123456789012".to_owned() };
        let parse = |arn: &str| TopicArn::parse(arn, &identity).ok().map(|it| (it.name, it.subscription));
        assert_eq!(parse(&TopicArn::of("t", &identity)), Some(("t".to_owned(), None)));
        let subscription = "arn:aws:sns:eu-west-1:123456789012:t:s";
        assert_eq!(parse(subscription), Some(("t".to_owned(), Some("s".to_owned()))));
        for other in [
            "",
            "t",
            "arn:aws:sns:eu-west-1:123456789012:",
            "arn:aws:sns:us-east-1:123456789012:t",
            "arn:aws:sqs:eu-west-1:123456789012:t",
            "arn:aws:sns:eu-west-1:123456789012:t:s:u",
        ] {
            assert_eq!(parse(other), None, "{other}");
        }
    }

    #[test]
    fn ids_follow_from_what_they_name() {
        let id = message_id(&["a", "1"]);
        assert_eq!(id, message_id(&["a", "1"]));
        assert_ne!(id, message_id(&["a1", ""]));
        assert_eq!(id.split('-').map(str::len).collect::<Vec<_>>(), [8, 4, 4, 4, 12]);
    }
}
