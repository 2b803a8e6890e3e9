//! One attempt of a delivery, by the means of its protocol.

use std::{sync::Arc, time::Duration};

use shoal_runtime::outbox::Outcome;
use shoal_wire::{Envelope, EnvelopeKind, TopicProtocol};

use super::{mail, post::Poster, program, rows::Delivery};
use crate::{AccessKeys, NotificationOptions};

/// For all of an attempt.
pub(crate) const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(15);

/// What attempts are made with.
pub(crate) struct Transport {
    pub(crate) options: NotificationOptions,
    /// Where receivers find this server.
    pub(crate) url: String,
    pub(crate) keys: AccessKeys,
    poster: Poster,
}

impl Transport {
    pub(crate) fn new(options: NotificationOptions, url: String, keys: AccessKeys) -> Arc<Self> {
        let url = options.url.clone().unwrap_or(url);
        Arc::new(Self { options, url, keys, poster: Poster::default() })
    }

    /// What confirms a subscription; only its endpoint is sent it.
    pub(crate) fn token(&self, subscription: &str) -> String {
        self.keys.derive("sns:", subscription)
    }

    /// Makes an attempt, on a thread that may wait.
    pub(crate) fn attempt(&self, delivery: &Delivery) -> Outcome {
        let subscription = delivery.subscription_arn.rsplit(':').next().unwrap_or_default();
        let token = self.token(subscription);
        let envelope = Envelope {
            kind: if delivery.is_confirmation {
                EnvelopeKind::SubscriptionConfirmation
            } else {
                EnvelopeKind::Notification
            },
            message_id: &delivery.message_id,
            topic_arn: &delivery.topic_arn,
            subscription_arn: &delivery.subscription_arn,
            at_ms: delivery.at_ms,
            message: &delivery.message,
            protocol: delivery.target.protocol,
            server: &self.url,
            token: &token,
        };
        let target = &delivery.target;
        match target.protocol {
            TopicProtocol::Http | TopicProtocol::Https => {
                let is_raw = target.is_raw && !delivery.is_confirmation;
                let body = match is_raw {
                    true => envelope.message.text_for(envelope.protocol).to_owned(),
                    false => envelope.json().to_string(),
                };
                self.poster.post(&target.endpoint, &envelope.headers(is_raw), body)
            }
            TopicProtocol::Email | TopicProtocol::EmailJson => match &self.options.mail {
                Some(server) => mail::send(server, &target.endpoint, &envelope),
                None => Outcome::Failed("shoal.toml has no mail server: set notifications_smtp".to_owned()),
            },
            TopicProtocol::Command => match self.options.commands.get(&target.endpoint) {
                Some(command) => program::run(command, &envelope.json().to_string(), ATTEMPT_TIMEOUT),
                None => Outcome::Failed(format!("shoal.toml's notifications_commands has no {}", target.endpoint)),
            },
        }
    }
}
