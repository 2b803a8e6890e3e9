//! Deliveries by mail, through the owner's SMTP server.

use std::fs;

use lettre::{
    Message, Transport as _,
    message::{Mailbox, header::ContentType},
};
use shoal_runtime::outbox::Outcome;
use shoal_wire::{Envelope, EnvelopeKind, TopicProtocol};

use super::delivery::ATTEMPT_TIMEOUT;
use crate::MailServer;

/// Of mails whose message has none.
const SUBJECT: &str = "AWS Notification Message";

/// Sends a mail. What the server refuses with 5xx is final.
pub(super) fn send(server: &MailServer, to: &str, envelope: &Envelope<'_>) -> Outcome {
    let mail = match mail(&server.from, to, envelope) {
        Ok(mail) => mail,
        Err(why) => return Outcome::Refused(why),
    };
    let password = match server.password_file.as_ref().map(fs::read_to_string).transpose() {
        Ok(password) => password,
        Err(error) => return Outcome::Failed(format!("notifications_smtp_password_file cannot be read: {error}")),
    };
    let connection = server.connection(password.as_deref().map(str::trim_end), ATTEMPT_TIMEOUT);
    let sent = connection.map(|transport| transport.send(&mail));
    match sent {
        Ok(Ok(_)) => Outcome::Delivered,
        Ok(Err(error)) if error.is_permanent() => Outcome::Refused(error.to_string()),
        Ok(Err(error)) => Outcome::Failed(error.to_string()),
        Err(why) => Outcome::Failed(why),
    }
}

fn mail(from: &str, to: &str, envelope: &Envelope<'_>) -> Result<Message, String> {
    let mailbox = |text: &str| text.parse::<Mailbox>().map_err(|error| format!("{text} is no address: {error}"));
    let subject = envelope.message.subject.as_deref().unwrap_or(SUBJECT);
    Message::builder()
        .from(mailbox(from)?)
        .to(mailbox(to)?)
        .subject(subject)
        // The same for all attempts: programs that read mail show it once.
        .message_id(Some(format!("<{}@shoal>", envelope.message_id)))
        .header(ContentType::TEXT_PLAIN)
        .body(text(envelope))
        .map_err(|error| error.to_string())
}

fn text(envelope: &Envelope<'_>) -> String {
    let message = envelope.message.text_for(envelope.protocol);
    match (envelope.protocol, envelope.kind) {
        (TopicProtocol::EmailJson, _) => format!("{:#}\n", envelope.json()),
        (_, EnvelopeKind::SubscriptionConfirmation) => {
            format!("{message}\n\nSubscribeURL: {}\n\nDo nothing if you do not want it.\n", envelope.subscribe_url())
        }
        // There is no subscription: a budget's owner has named the address.
        (_, EnvelopeKind::Notification) if envelope.subscription_arn.is_empty() => format!("{message}\n"),
        (_, EnvelopeKind::Notification) => format!(
            "{message}\n\n--\nTo stop receiving notifications of this topic, visit\n{}\n",
            envelope.unsubscribe_url()
        ),
    }
}

#[cfg(test)]
mod tests {
    use shoal_wire::PublishedMessage;

    use super::*;

    #[test]
    fn mails_have_the_message_and_a_way_out() {
        let message = PublishedMessage { text: "hello".to_owned(), ..PublishedMessage::default() };
        let envelope = Envelope {
            kind: EnvelopeKind::Notification,
            message_id: "id",
            topic_arn: "t",
            subscription_arn: "t:s",
            at_ms: 0,
            message: &message,
            protocol: TopicProtocol::Email,
            server: "http://here",
            token: "tok",
        };
        let sent = |envelope: &Envelope<'_>| {
            String::from_utf8(mail("shoal@x.org", "me@y.org", envelope).unwrap().formatted()).unwrap()
        };
        let text = sent(&envelope);
        for part in ["To: me@y.org", "From: shoal@x.org", SUBJECT, "<id@shoal>", "hello", "Action=Unsubscribe"] {
            assert!(text.contains(part), "{part} in {text}");
        }
        let asked = Envelope { kind: EnvelopeKind::SubscriptionConfirmation, ..envelope.clone() };
        assert!(sent(&asked).contains("ConfirmSubscription"));
        assert!(mail("shoal@x.org", "me", &envelope).is_err());
    }
}
