//! SNS's operations: topics, subscriptions, tags, and what is published.

use std::{collections::BTreeMap, sync::Arc};

use shoal_store::{Cursor, Page, ResourceFilter, ResourceKind, ResourceRow, ResourceSort, RowChange, Rows, SortOrder};
use shoal_wire::{
    ConfirmSubscription, CreateTopic, Error, ErrorCode, ListAll, ListByTopic, ListNotifications, ListTopicTags,
    NamedSubscription, NamedTopic, NotificationLine, Publish, Reply, SetTopicAttributes, Subscribe,
    SubscriptionSummary, Tag, TagTopic, TopicProtocol, UntagTopic, tags,
};

use super::{
    blocking, refused,
    token::{open, question, seal},
};
use crate::{
    clock::now_ms,
    core::{Core, Present},
    hex::random_hex,
    identity::Identity,
    internal::internal,
    notifications::{
        Message, TopicArn, Transport,
        fan_out::{confirmation, subscribed, topic_row},
        message_id,
        rows::{
            Attempts, CONFIRMED, DELIVERY, Delivery, MESSAGE, SUBSCRIPTION, TOPIC, Target, TopicView, UNCONFIRMED,
            restored, stored,
        },
    },
};

/// Items of a page, as AWS has it.
const PAGE: usize = 100;
/// Subscriptions of one topic. They are looked through when one is added or confirmed, and a
/// message becomes its deliveries in one turn of the core.
const MAX_SUBSCRIPTIONS: usize = 200;

/// What answers SNS's operations.
pub(crate) struct Topics {
    pub(crate) core: Core,
    pub(crate) rows: Arc<dyn Rows>,
    pub(crate) transport: Arc<Transport>,
    pub(crate) identity: Identity,
}

impl Topics {
    pub(crate) async fn create(&self, request: CreateTopic) -> Result<Reply, Error> {
        let (identity, arn) = (self.identity.clone(), TopicArn::of(&request.name, &self.identity));
        let name = request.name.clone();
        let edit = move |row: Option<ResourceRow>| {
            // A topic that is there already is returned, unless it would be another one.
            if let Some(row) = row {
                let present = tags_of(&row)?;
                if !request.tags.is_empty() && present != request.tags {
                    return Err(invalid("Tags", "Topic already exists with different tags"));
                }
                let view: TopicView = read(&row.view)?;
                let differs = request.attributes.iter().any(|(name, value)| view.attributes.get(name) != Some(value));
                if differs {
                    return Err(invalid("Attributes", "Topic already exists with different attributes"));
                }
                return Ok(Some(row));
            }
            let mut row = topic_row(&request.name, &identity, now_ms());
            row.view = stored(&TopicView { attributes: request.attributes });
            row.tags = tags::to_json(&request.tags).to_string().into_bytes();
            Ok(Some(row))
        };
        self.core.edit(TOPIC, &name, edit).await.map_err(|refusal| refused(&refusal))?;
        Ok(Reply::create_topic(&arn))
    }

    /// With its subscriptions; a topic that is not there is deleted, too.
    pub(crate) async fn delete(&self, request: NamedTopic) -> Result<Reply, Error> {
        let name = self.topic_name(&request.topic_arn)?;
        let subscriptions = self.subscriptions_now(&name).await?;
        let edit = move |_: &Present<'_>| {
            let rows = subscriptions.into_iter().map(|row| RowChange::Delete(SUBSCRIPTION, row.name));
            Ok(rows.chain([RowChange::Delete(TOPIC, name)]).collect())
        };
        self.edit(format!("topic {}", request.topic_arn), edit).await
    }

    pub(crate) async fn list(&self, request: ListAll) -> Result<Reply, Error> {
        let filter = ResourceFilter { sort: ResourceSort::Name, ..ResourceFilter::new(TOPIC) };
        let (page, next) = self.page(filter, request.next_token.as_deref(), PAGE).await?;
        let arns: Vec<String> = page.into_iter().map(|row| row.arn).collect();
        Ok(Reply::list_topics(&arns, next.as_deref()))
    }

    pub(crate) async fn attributes(&self, request: NamedTopic) -> Result<Reply, Error> {
        let name = self.topic_name(&request.topic_arn)?;
        let row = self.topic(&name).await?;
        let view: TopicView = read(&row.view)?;
        let subscriptions = self.subscriptions_now(&name).await?;
        let count = |status: &str| subscriptions.iter().filter(|row| row.status == status).count().to_string();
        let display_name = view.attributes.get("DisplayName").cloned().unwrap_or_default();
        let account = &self.identity.account;
        let policy = format!(
            r#"{{"Version":"2008-10-17","Id":"__default_policy_ID","Statement":[{{"Sid":"__default_statement_ID","Effect":"Allow","Principal":{{"AWS":"{account}"}},"Action":"SNS:*","Resource":"{}"}}]}}"#,
            row.arn
        );
        Ok(Reply::attributes(&BTreeMap::from([
            ("TopicArn", row.arn),
            ("Owner", account.clone()),
            ("DisplayName", display_name),
            ("Policy", policy),
            ("SubscriptionsConfirmed", count(CONFIRMED)),
            ("SubscriptionsPending", count(UNCONFIRMED)),
            ("SubscriptionsDeleted", "0".to_owned()),
        ])))
    }

    pub(crate) async fn set_attribute(&self, request: SetTopicAttributes) -> Result<Reply, Error> {
        self.change_topic(&request.topic_arn.clone(), move |row| {
            let mut view: TopicView = read(&row.view)?;
            match request.value.is_empty() {
                true => drop(view.attributes.remove(&request.name)),
                false => drop(view.attributes.insert(request.name, request.value)),
            }
            row.view = stored(&view);
            Ok(())
        })
        .await
    }

    pub(crate) async fn subscribe(&self, request: Subscribe) -> Result<Reply, Error> {
        let name = self.topic_name(&request.topic_arn)?;
        self.is_reachable(&request)?;
        let subscriptions = self.subscriptions_now(&name).await?;
        let target =
            Target { protocol: request.protocol, endpoint: request.endpoint, is_raw: request.is_raw, is_owners: false };
        let has_endpoint = |row: &ResourceRow| {
            restored::<Target>(&row.spec)
                .is_ok_and(|it| it.protocol == target.protocol && it.endpoint == target.endpoint)
        };
        let present = subscriptions.iter().find(|row| has_endpoint(row)).cloned();
        if present.is_none() && subscriptions.len() >= MAX_SUBSCRIPTIONS {
            let why = format!("the topic has {MAX_SUBSCRIPTIONS} subscriptions, which is the most that one can have");
            return Err(Error::new(ErrorCode::ResourceLimitExceeded, why));
        }
        let now_ms = now_ms();
        let (row, changes) = match present {
            // It is asked again.
            Some(row) if row.status == UNCONFIRMED => {
                let asked = confirmation(&row, &request.topic_arn, target, now_ms);
                let id = message_id(&["confirm", &row.name, &now_ms.to_string()]);
                let again = ResourceRow { modified_ms: now_ms, ..row.clone() };
                let changes =
                    vec![RowChange::Put(Box::new(asked.into_row(&id, &name, now_ms))), RowChange::Put(Box::new(again))];
                (row, changes)
            }
            Some(row) => (row, Vec::new()),
            None => {
                let uid = message_id(&[&random_hex(16).map_err(|error| internal(&error))?]);
                let changes = subscribed(&name, &request.topic_arn, &uid, target, now_ms);
                let put = changes.iter().find_map(|change| match change {
                    RowChange::Put(row) if row.kind == SUBSCRIPTION => Some((**row).clone()),
                    _ => None,
                });
                (put.ok_or_else(|| Error::validation("no subscription was made"))?, changes)
            }
        };
        let edit = move |present: &Present<'_>| match present.row(TOPIC, &name)? {
            Some(_) => Ok(changes),
            None => Err(no_topic()),
        };
        self.edit(format!("subscription {}", row.arn), edit).await?;
        let is_shown = row.status == CONFIRMED || request.return_arn;
        Ok(Reply::subscription(if is_shown { &row.arn } else { "pending confirmation" }))
    }

    /// Whether this server can deliver to it at all.
    fn is_reachable(&self, request: &Subscribe) -> Result<(), Error> {
        let options = &self.transport.options;
        match request.protocol {
            TopicProtocol::Email | TopicProtocol::EmailJson if options.mail.is_none() => Err(invalid(
                "Protocol",
                "this server sends no mails: set notifications_smtp and notifications_from in shoal.toml",
            )),
            TopicProtocol::Command if !options.commands.contains_key(&request.endpoint) => {
                let known: Vec<&str> = options.commands.keys().map(String::as_str).collect();
                let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
                Err(invalid(
                    "Endpoint",
                    &format!(
                        "notifications_commands in shoal.toml has no command {}; it has: {known}",
                        request.endpoint.escape_debug()
                    ),
                ))
            }
            _ => Ok(()),
        }
    }

    /// `is_signed`: by the owner's keys, not by a link.
    pub(crate) async fn confirm(&self, request: ConfirmSubscription, is_signed: bool) -> Result<Reply, Error> {
        let name = self.topic_name(&request.topic_arn)?;
        self.topic(&name).await?;
        let is_meant = |row: &&ResourceRow| self.transport.keys.equal(&self.transport.token(&row.name), &request.token);
        let subscriptions = self.subscriptions_now(&name).await?;
        let Some(row) = subscriptions.iter().find(is_meant).cloned() else {
            return Err(invalid("Token", "Invalid token"));
        };
        let is_owners = is_signed && request.authenticate_on_unsubscribe;
        let arn = row.arn.clone();
        let edit = move |row: Option<ResourceRow>| {
            let row = row.ok_or_else(no_subscription)?;
            let mut target: Target = read(&row.spec)?;
            target.is_owners |= is_owners;
            let status = CONFIRMED.to_owned();
            Ok(Some(ResourceRow { status, spec: stored(&target), modified_ms: now_ms(), ..row }))
        };
        self.core.edit(SUBSCRIPTION, &row.name, edit).await.map_err(|refusal| refused(&refusal))?;
        Ok(Reply::subscription(&arn))
    }

    /// `is_signed`: by the owner's keys, not by a link. One that is gone is unsubscribed, too.
    pub(crate) async fn unsubscribe(&self, request: NamedSubscription, is_signed: bool) -> Result<Reply, Error> {
        let uid = self.subscription_name(&request.subscription_arn)?;
        let edit = move |row: Option<ResourceRow>| {
            let Some(row) = row else { return Ok(None) };
            let target: Target = read(&row.spec)?;
            if target.is_owners && !is_signed {
                let why = "only the owner of the topic may unsubscribe this endpoint";
                return Err(Error::new(ErrorCode::AccessDenied, why));
            }
            Ok(None)
        };
        self.core.edit(SUBSCRIPTION, &uid, edit).await.map_err(|refusal| refused(&refusal))?;
        Ok(Reply::done())
    }

    pub(crate) async fn subscriptions(&self, request: ListAll) -> Result<Reply, Error> {
        self.list_subscriptions(ResourceFilter::new(SUBSCRIPTION), request.next_token).await
    }

    pub(crate) async fn subscriptions_of(&self, request: ListByTopic) -> Result<Reply, Error> {
        let name = self.topic_name(&request.topic_arn)?;
        self.topic(&name).await?;
        let filter = ResourceFilter { parent: Some(name), ..ResourceFilter::new(SUBSCRIPTION) };
        self.list_subscriptions(filter, request.next_token).await
    }

    async fn list_subscriptions(&self, filter: ResourceFilter, token: Option<String>) -> Result<Reply, Error> {
        let (rows, next) = self.page(filter, token.as_deref(), PAGE).await?;
        let summary = |row: ResourceRow| {
            let target: Target = read(&row.spec)?;
            Ok(SubscriptionSummary {
                topic_arn: TopicArn::of(row.parent.as_deref().unwrap_or_default(), &self.identity),
                arn: if row.status == CONFIRMED { row.arn } else { UNCONFIRMED.to_owned() },
                owner: self.identity.account.clone(),
                protocol: target.protocol,
                endpoint: target.endpoint,
            })
        };
        let summaries = rows.into_iter().map(summary).collect::<Result<Vec<_>, Error>>()?;
        Ok(Reply::list_subscriptions(&summaries, next.as_deref()))
    }

    pub(crate) async fn subscription_attributes(&self, request: NamedSubscription) -> Result<Reply, Error> {
        let uid = self.subscription_name(&request.subscription_arn)?;
        let row = self.row(SUBSCRIPTION, &uid).await?.ok_or_else(no_subscription)?;
        let target: Target = read(&row.spec)?;
        Ok(Reply::attributes(&BTreeMap::from([
            ("SubscriptionArn", row.arn),
            ("TopicArn", TopicArn::of(row.parent.as_deref().unwrap_or_default(), &self.identity)),
            ("Owner", self.identity.account.clone()),
            ("Protocol", target.protocol.name().to_owned()),
            ("Endpoint", target.endpoint),
            ("RawMessageDelivery", target.is_raw.to_string()),
            ("ConfirmationWasAuthenticated", target.is_owners.to_string()),
            ("PendingConfirmation", (row.status == UNCONFIRMED).to_string()),
        ])))
    }

    pub(crate) async fn publish(&self, request: Publish) -> Result<Reply, Error> {
        let name = self.topic_name(&request.topic_arn)?;
        let id = message_id(&[&random_hex(16).map_err(|error| internal(&error))?]);
        let message =
            Message { id: id.clone(), topic_arn: request.topic_arn, message: request.message, subscribe: Vec::new() };
        let edit = move |present: &Present<'_>| match present.row(TOPIC, &name)? {
            Some(_) => Ok(vec![RowChange::Put(Box::new(message.into_row(now_ms())))]),
            None => Err(no_topic()),
        };
        self.edit(format!("message {id}"), edit).await?;
        Ok(Reply::publish(&id))
    }

    pub(crate) async fn tag(&self, request: TagTopic) -> Result<Reply, Error> {
        self.change_topic(&request.resource_arn.clone(), move |row| {
            let mut present = tags_of(row)?;
            tags::add(&mut present, request.tags)?;
            row.tags = tags::to_json(&present).to_string().into_bytes();
            Ok(())
        })
        .await
    }

    pub(crate) async fn untag(&self, request: UntagTopic) -> Result<Reply, Error> {
        self.change_topic(&request.resource_arn.clone(), move |row| {
            let mut present = tags_of(row)?;
            present.retain(|tag| !request.tag_keys.contains(&tag.key));
            row.tags = tags::to_json(&present).to_string().into_bytes();
            Ok(())
        })
        .await
    }

    pub(crate) async fn tags(&self, request: ListTopicTags) -> Result<Reply, Error> {
        let name = self.topic_name(&request.resource_arn)?;
        Ok(Reply::topic_tags(&tags_of(&self.topic(&name).await?)?))
    }

    /// Deliveries, newest first; messages that have none yet are before them.
    pub(crate) async fn notifications(&self, request: ListNotifications) -> Result<Reply, Error> {
        let status = request.status.clone();
        let filter = ResourceFilter { status, order: SortOrder::Descending, ..ResourceFilter::new(DELIVERY) };
        let (rows, next) = self.page(filter, request.next_token.as_deref(), request.limit()).await?;
        let mut lines = Vec::with_capacity(rows.len());
        if request.next_token.is_none() && request.status.as_deref().is_none_or(|it| it == "Pending") {
            let waiting = ResourceFilter { order: SortOrder::Descending, limit: PAGE, ..ResourceFilter::new(MESSAGE) };
            for row in self.rows_of(waiting).await?.rows {
                let message: Message = read(&row.spec)?;
                lines.push(NotificationLine {
                    message_id: message.id,
                    topic_arn: message.topic_arn,
                    protocol: String::new(),
                    endpoint: String::new(),
                    subject: message.message.subject,
                    status: row.status,
                    attempts: 0,
                    at_ms: row.created_ms,
                    modified_ms: row.modified_ms,
                    reason: None,
                });
            }
        }
        for row in rows {
            let (delivery, attempts): (Delivery, Attempts) = (read(&row.spec)?, read(&row.view)?);
            lines.push(NotificationLine {
                message_id: delivery.message_id,
                topic_arn: delivery.topic_arn,
                protocol: delivery.target.protocol.name().to_owned(),
                endpoint: delivery.target.endpoint,
                subject: delivery.message.subject,
                status: row.status,
                attempts: attempts.count,
                at_ms: row.created_ms,
                modified_ms: row.modified_ms,
                reason: attempts.reason,
            });
        }
        Ok(Reply::list_notifications(&lines, next.as_deref()))
    }

    fn topic_name(&self, arn: &str) -> Result<String, Error> {
        match TopicArn::parse(arn, &self.identity)? {
            TopicArn { name, subscription: None } => Ok(name),
            TopicArn { .. } => Err(invalid("TopicArn", "it is the ARN of a subscription; give the topic's")),
        }
    }

    fn subscription_name(&self, arn: &str) -> Result<String, Error> {
        let parsed = TopicArn::parse(arn, &self.identity).ok().and_then(|it| it.subscription);
        parsed.ok_or_else(|| invalid("SubscriptionArn", "it is not the ARN of a subscription of this server"))
    }

    async fn topic(&self, name: &str) -> Result<ResourceRow, Error> {
        self.row(TOPIC, name).await?.ok_or_else(no_topic)
    }

    async fn row(&self, kind: ResourceKind, name: &str) -> Result<Option<ResourceRow>, Error> {
        let (rows, name) = (self.rows.clone(), name.to_owned());
        blocking(move || rows.resource(kind, &name).map_err(|error| internal(&error))).await
    }

    async fn rows_of(&self, filter: ResourceFilter) -> Result<Page, Error> {
        let rows = self.rows.clone();
        blocking(move || rows.list(&filter).map_err(|error| internal(&error))).await
    }

    async fn subscriptions_now(&self, topic: &str) -> Result<Vec<ResourceRow>, Error> {
        let parent = Some(topic.to_owned());
        let limit = MAX_SUBSCRIPTIONS;
        Ok(self.rows_of(ResourceFilter { parent, limit, ..ResourceFilter::new(SUBSCRIPTION) }).await?.rows)
    }

    /// A page and the token of the next one.
    async fn page(
        &self,
        filter: ResourceFilter,
        token: Option<&str>,
        limit: usize,
    ) -> Result<(Vec<ResourceRow>, Option<String>), Error> {
        let question = question(&filter)?;
        let token = token.filter(|token| !token.is_empty());
        let after = token.map(|token| open(&question, token)?.parse::<Cursor>().map_err(|error| internal(&error)));
        let page = self.rows_of(ResourceFilter { after: after.transpose()?, limit, ..filter }).await?;
        Ok((page.rows, page.next.map(|next| seal(&question, &next.to_string()))))
    }

    async fn change_topic(
        &self,
        arn: &str,
        change: impl FnOnce(&mut ResourceRow) -> Result<(), Error> + Send + 'static,
    ) -> Result<Reply, Error> {
        let name = self.topic_name(arn)?;
        let edit = move |row: Option<ResourceRow>| {
            let mut row = row.ok_or_else(no_topic)?;
            change(&mut row)?;
            row.modified_ms = now_ms();
            Ok(Some(row))
        };
        self.core.edit(TOPIC, &name, edit).await.map_err(|refusal| refused(&refusal))?;
        Ok(Reply::done())
    }

    async fn edit(
        &self,
        subject: String,
        change: impl FnOnce(&Present<'_>) -> Result<Vec<RowChange>, Error> + Send + 'static,
    ) -> Result<Reply, Error> {
        self.core.edit_rows(subject, change).await.map_err(|refusal| refused(&refusal))?;
        Ok(Reply::done())
    }
}

fn read<T: serde::de::DeserializeOwned>(bytes: &[u8]) -> Result<T, Error> {
    restored(bytes).map_err(|why| Error::new(ErrorCode::InternalFailure, why))
}

fn tags_of(row: &ResourceRow) -> Result<Vec<Tag>, Error> {
    tags::from_json(&row.tags).map_err(|error| internal(&error))
}

fn no_topic() -> Error {
    Error::new(ErrorCode::ResourceNotFound, "Topic does not exist")
}

fn no_subscription() -> Error {
    Error::new(ErrorCode::ResourceNotFound, "Subscription does not exist")
}

fn invalid(member: &str, why: &str) -> Error {
    Error::validation(format!("Invalid parameter: {member} Reason: {why}."))
}
