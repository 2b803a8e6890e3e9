//! A message becomes a delivery for each confirmed subscription of its topic. Pure: rows in, rows
//! out.

use shoal_store::{ResourceRow, RowChange};
use shoal_wire::{PublishedMessage, TopicProtocol};

use super::{
    message::{Message, TopicArn, message_id},
    rows::{CONFIRMED, Delivery, SUBSCRIPTION, TOPIC, Target, TopicView, UNCONFIRMED, restored, stored},
};
use crate::identity::Identity;

/// The text that asks an endpoint to confirm, as AWS has it.
const CONFIRM: &str = "You have chosen to subscribe to the topic {topic}.\nTo confirm the subscription, visit the \
                       SubscribeURL included in this message.";

/// What replaces a message's row; with the names of deliveries.
pub(crate) fn fan_out(
    row: &ResourceRow,
    topic: Option<&ResourceRow>,
    subscriptions: &[ResourceRow],
    identity: &Identity,
    now_ms: u64,
) -> Result<Vec<RowChange>, String> {
    let message: Message = restored(&row.spec)?;
    let name = row.parent.clone().unwrap_or_default();
    let mut changes = vec![RowChange::Delete(row.kind, row.name.clone())];
    if topic.is_none() && message.subscribe.is_empty() {
        return Ok(changes);
    }
    if topic.is_none() {
        changes.push(RowChange::Put(Box::new(topic_row(&name, identity, now_ms))));
    }
    for subscription in subscriptions.iter().filter(|it| it.status == CONFIRMED) {
        let delivery = Delivery {
            message_id: message.id.clone(),
            topic_arn: message.topic_arn.clone(),
            subscription_arn: subscription.arn.clone(),
            target: restored(&subscription.spec)?,
            at_ms: row.created_ms,
            message: message.message.clone(),
            is_confirmation: false,
        };
        let id = message_id(&[&message.id, &subscription.name]);
        changes.push(RowChange::Put(Box::new(delivery.into_row(&id, &name, now_ms))));
    }
    for (protocol, endpoint) in message.subscribe {
        let is_there = |it: &ResourceRow| {
            restored::<Target>(&it.spec).is_ok_and(|it| it.protocol == protocol && it.endpoint == endpoint)
        };
        if !subscriptions.iter().any(is_there) {
            let target = Target { protocol, endpoint, is_raw: false, is_owners: false };
            let uid = message_id(&[&message.id, &target.endpoint]);
            changes.extend(subscribed(&name, &message.topic_arn, &uid, target, now_ms));
        }
    }
    Ok(changes)
}

/// A topic without attributes.
pub(crate) fn topic_row(name: &str, identity: &Identity, now_ms: u64) -> ResourceRow {
    ResourceRow {
        arn: TopicArn::of(name, identity),
        created_ms: now_ms,
        modified_ms: now_ms,
        view: stored(&TopicView::default()),
        tags: b"[]".to_vec(),
        ..ResourceRow::new(TOPIC, name)
    }
}

/// A new subscription, and the question to its endpoint. A command is the
/// owner's own, and not asked.
pub(crate) fn subscribed(topic: &str, topic_arn: &str, uid: &str, target: Target, now_ms: u64) -> Vec<RowChange> {
    let is_command = target.protocol == TopicProtocol::Command;
    let row = ResourceRow {
        uid: uid.to_owned(),
        arn: format!("{topic_arn}:{uid}"),
        created_ms: now_ms,
        modified_ms: now_ms,
        parent: Some(topic.to_owned()),
        status: if is_command { CONFIRMED } else { UNCONFIRMED }.to_owned(),
        spec: stored(&target),
        ..ResourceRow::new(SUBSCRIPTION, uid)
    };
    let mut changes = Vec::new();
    if !is_command {
        changes.push(RowChange::Put(Box::new(confirmation(&row, topic_arn, target, now_ms).into_row(
            &message_id(&["confirm", uid, &now_ms.to_string()]),
            topic,
            now_ms,
        ))));
    }
    changes.push(RowChange::Put(Box::new(row)));
    changes
}

/// The question to an endpoint whether it wants a topic's messages.
pub(crate) fn confirmation(subscription: &ResourceRow, topic_arn: &str, target: Target, now_ms: u64) -> Delivery {
    Delivery {
        message_id: message_id(&["confirmation", &subscription.name, &now_ms.to_string()]),
        topic_arn: topic_arn.to_owned(),
        subscription_arn: subscription.arn.clone(),
        target,
        at_ms: now_ms,
        message: PublishedMessage {
            subject: Some("AWS Notification - Subscription Confirmation".to_owned()),
            text: CONFIRM.replace("{topic}", topic_arn),
            ..PublishedMessage::default()
        },
        is_confirmation: true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::notifications::rows::{DELIVERY, MESSAGE};

    fn identity() -> Identity {
        Identity { region: "r".to_owned(), account: "1".to_owned() }
    }

    fn message(subscribe: Vec<(TopicProtocol, String)>) -> ResourceRow {
        let text = PublishedMessage { text: "hello".to_owned(), ..PublishedMessage::default() };
        let topic_arn = TopicArn::of("t", &identity());
        Message { id: "m".to_owned(), topic_arn, message: text, subscribe }.into_row(5)
    }

    fn subscription(name: &str, status: &str) -> ResourceRow {
        let target =
            Target { protocol: TopicProtocol::Email, endpoint: format!("{name}@x"), is_raw: false, is_owners: false };
        ResourceRow { status: status.to_owned(), spec: stored(&target), ..ResourceRow::new(SUBSCRIPTION, name) }
    }

    fn put(changes: &[RowChange], kind: shoal_store::ResourceKind) -> Vec<&ResourceRow> {
        let rows = changes.iter().filter_map(|it| if let RowChange::Put(row) = it { Some(&**row) } else { None });
        rows.filter(|row| row.kind == kind).collect()
    }

    #[test]
    fn confirmed_subscriptions_get_a_message_once() {
        let topic = topic_row("t", &identity(), 1);
        let subscriptions =
            [subscription("a", CONFIRMED), subscription("b", UNCONFIRMED), subscription("c", CONFIRMED)];
        let changes = fan_out(&message(Vec::new()), Some(&topic), &subscriptions, &identity(), 9).unwrap();
        assert_eq!(changes[0], RowChange::Delete(MESSAGE, "m".to_owned()));
        let deliveries = put(&changes, DELIVERY);
        let ends: Vec<String> =
            deliveries.iter().map(|row| restored::<Delivery>(&row.spec).unwrap().target.endpoint).collect();
        assert_eq!(ends, ["a@x", "c@x"]);
        assert_ne!(deliveries[0].name, deliveries[1].name);
        let again = fan_out(&message(Vec::new()), Some(&topic), &subscriptions, &identity(), 9).unwrap();
        assert_eq!(changes, again, "the same names: what is done twice is there once");
        let gone = fan_out(&message(Vec::new()), None, &subscriptions, &identity(), 9).unwrap();
        assert_eq!(gone.len(), 1, "a topic that is gone has no subscribers");
    }

    #[test]
    fn a_message_can_bring_its_topic_and_a_subscriber() {
        let row = message(vec![(TopicProtocol::Email, "me@x".to_owned())]);
        let changes = fan_out(&row, None, &[], &identity(), 9).unwrap();
        assert_eq!(put(&changes, TOPIC)[0].arn, "arn:aws:sns:r:1:t");
        let subscription = put(&changes, SUBSCRIPTION)[0].clone();
        assert_eq!(subscription.status, UNCONFIRMED);
        let asked: Delivery = restored(&put(&changes, DELIVERY)[0].spec).unwrap();
        assert!(asked.is_confirmation && asked.subscription_arn == subscription.arn);
        let changes = fan_out(&row, put(&changes, TOPIC).first().copied(), &[subscription], &identity(), 9).unwrap();
        assert_eq!((put(&changes, SUBSCRIPTION).len(), put(&changes, DELIVERY).len()), (0, 0), "it was asked before");
    }

    #[test]
    fn commands_are_not_asked() {
        let target = |protocol| Target { protocol, endpoint: "e".to_owned(), is_raw: false, is_owners: false };
        let statuses = |protocol| {
            let changes = subscribed("t", "arn", "u", target(protocol), 1);
            (put(&changes, SUBSCRIPTION)[0].status.clone(), put(&changes, DELIVERY).len())
        };
        assert_eq!(statuses(TopicProtocol::Command), (CONFIRMED.to_owned(), 0));
        assert_eq!(statuses(TopicProtocol::Http), (UNCONFIRMED.to_owned(), 1));
    }

    /// Of the first release; what is added later has a default.
    #[test]
    fn the_stored_forms_are_still_read() {
        let delivery = br#"{"v":1,"it":{"message_id":"m","topic_arn":"t","subscription_arn":"s","target":{"protocol":"email-json","endpoint":"a@b"},"at_ms":7,"message":{"subject":null,"text":"x"}}}"#;
        let delivery: Delivery = restored(delivery).unwrap();
        assert_eq!((delivery.target.protocol, delivery.at_ms), (TopicProtocol::EmailJson, 7));
        let message: Message =
            restored(br#"{"v":1,"it":{"id":"m","topic_arn":"t","message":{"subject":"s","text":"x"}}}"#).unwrap();
        assert_eq!(message.message.subject.as_deref(), Some("s"));
        assert!(restored::<Message>(br#"{"v":2,"it":{}}"#).is_err());
    }
}
