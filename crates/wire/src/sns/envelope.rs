//! What HTTP endpoints are sent: AWS's JSON. It has no `Signature`: that would be Amazon's.

use http::{HeaderMap, HeaderName, HeaderValue};
use serde_json::{Value, json};

use super::{PublishedMessage, TopicProtocol};
use crate::{sigv4::percent_encoded, timestamp};

/// What an envelope is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EnvelopeKind {
    /// A published message.
    Notification,
    /// The endpoint is asked whether it wants messages.
    SubscriptionConfirmation,
}

/// A message on its way to one subscription.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Envelope<'a> {
    /// What for.
    pub kind: EnvelopeKind,
    /// Of the message; the same for all subscriptions and attempts.
    pub message_id: &'a str,
    /// Amazon resource name.
    pub topic_arn: &'a str,
    /// Amazon resource name.
    pub subscription_arn: &'a str,
    /// What was published, in milliseconds since the epoch.
    pub at_ms: u64,
    /// What.
    pub message: &'a PublishedMessage,
    /// How it is sent.
    pub protocol: TopicProtocol,
    /// Where this server is found, without a slash at the end.
    pub server: &'a str,
    /// Confirms the subscription.
    pub token: &'a str,
}

impl Envelope<'_> {
    /// `POST`'s body.
    #[must_use]
    pub fn json(&self) -> Value {
        let (text, time) = (self.message.text_for(self.protocol), timestamp::iso8601_ms(self.at_ms));
        match self.kind {
            EnvelopeKind::SubscriptionConfirmation => json!({
                "Type": self.type_name(), "MessageId": self.message_id, "Token": self.token,
                "TopicArn": self.topic_arn, "Message": text, "SubscribeURL": self.subscribe_url(), "Timestamp": time,
            }),
            EnvelopeKind::Notification => {
                let mut body =
                    json!({"Type": self.type_name(), "MessageId": self.message_id, "TopicArn": self.topic_arn});
                if let Some(subject) = &self.message.subject {
                    body["Subject"] = json!(subject);
                }
                body["Message"] = json!(text);
                body["Timestamp"] = json!(time);
                body["UnsubscribeURL"] = json!(self.unsubscribe_url());
                if !self.message.attributes.is_empty() {
                    body["MessageAttributes"] = json!(self.message.attributes);
                }
                body
            }
        }
    }

    /// `POST`'s headers, as AWS sends them.
    #[must_use]
    pub fn headers(&self, is_raw: bool) -> HeaderMap {
        let texts = [
            ("x-amz-sns-message-type", self.type_name()),
            ("x-amz-sns-message-id", self.message_id),
            ("x-amz-sns-topic-arn", self.topic_arn),
            ("x-amz-sns-subscription-arn", self.subscription_arn),
            ("x-amz-sns-rawdelivery", if is_raw { "true" } else { "" }),
            ("content-type", "text/plain; charset=UTF-8"),
            ("user-agent", "Amazon Simple Notification Service Agent (Shoal)"),
        ];
        let texts = texts.into_iter().filter(|(_, text)| !text.is_empty());
        texts
            .filter_map(|(name, text)| Some((HeaderName::from_static(name), HeaderValue::from_str(text).ok()?)))
            .collect()
    }

    /// Confirms the subscription when it is got.
    #[must_use]
    pub fn subscribe_url(&self) -> String {
        let (server, topic, token) =
            (self.server, percent_encoded(self.topic_arn.as_bytes()), percent_encoded(self.token.as_bytes()));
        format!("{server}/?Action=ConfirmSubscription&TopicArn={topic}&Token={token}")
    }

    /// Ends the subscription when it is got.
    #[must_use]
    pub fn unsubscribe_url(&self) -> String {
        format!(
            "{}/?Action=Unsubscribe&SubscriptionArn={}",
            self.server,
            percent_encoded(self.subscription_arn.as_bytes())
        )
    }

    fn type_name(&self) -> &'static str {
        match self.kind {
            EnvelopeKind::Notification => "Notification",
            EnvelopeKind::SubscriptionConfirmation => "SubscriptionConfirmation",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sns::MessageAttribute;

    #[test]
    fn envelopes_are_as_aws_has_them_without_a_signature() {
        let attribute = MessageAttribute { kind: "String".to_owned(), value: "v".to_owned() };
        let message = PublishedMessage {
            subject: Some("Hi".to_owned()),
            text: "all".to_owned(),
            by_protocol: [("http".to_owned(), "short".to_owned())].into(),
            attributes: [("a".to_owned(), attribute)].into(),
        };
        let envelope = Envelope {
            kind: EnvelopeKind::Notification,
            message_id: "id",
            topic_arn: "arn:aws:sns:r:1:t",
            subscription_arn: "arn:aws:sns:r:1:t:s",
            at_ms: 1_795_245_868_250,
            message: &message,
            protocol: TopicProtocol::Http,
            server: "http://here",
            token: "tok",
        };
        assert_eq!(
            envelope.json(),
            json!({
                "Type": "Notification", "MessageId": "id", "TopicArn": "arn:aws:sns:r:1:t", "Subject": "Hi",
                "Message": "short", "Timestamp": "2026-11-21T07:24:28.250Z",
                "UnsubscribeURL": "http://here/?Action=Unsubscribe&SubscriptionArn=arn%3Aaws%3Asns%3Ar%3A1%3At%3As",
                "MessageAttributes": {"a": {"Type": "String", "Value": "v"}},
            })
        );
        let headers = envelope.headers(false);
        assert_eq!(headers["x-amz-sns-message-type"], "Notification");
        assert!(!headers.contains_key("x-amz-sns-rawdelivery") && envelope.headers(true).len() == headers.len() + 1);
        let asked =
            Envelope { kind: EnvelopeKind::SubscriptionConfirmation, protocol: TopicProtocol::Email, ..envelope };
        let body = asked.json();
        assert_eq!(body["Message"], "all");
        let url = "http://here/?Action=ConfirmSubscription&TopicArn=arn%3Aaws%3Asns%3Ar%3A1%3At&Token=tok";
        assert_eq!((body["SubscribeURL"].as_str(), body["Token"].as_str()), (Some(url), Some("tok")));
    }
}
