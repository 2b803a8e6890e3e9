//! The operations of AWS Budgets.

use shoal_store::ResourceRow;
use shoal_wire::{
    Error, ErrorCode, Reply, Tag,
    budgets::{
        AmountsOfPeriod, NotificationChange, NotificationWithSubscribers, OfBudget, OfNotification, PutBudget,
        Subscriber, SubscriptionType, TagBudget, at_limit, not_found,
    },
    tags,
};

use super::{BUDGET, Budgets, MOST_BUDGETS, StoredBudget, StoredNotification};
use crate::{
    clock::now_ms,
    core::refused,
    hex::random_hex,
    internal::{blocking, internal},
    notifications::TopicArn,
    token,
};

/// Milliseconds of the history that is shown by default.
const HISTORY_MS: u64 = 366 * 24 * 3600 * 1000;

impl Budgets {
    pub(crate) async fn create(&self, request: PutBudget) -> Result<Reply, Error> {
        self.account(&request.account_id)?;
        let PutBudget { mut budget, notifications, tags, .. } = request;
        let now = now_ms();
        if budget.time_period.start == 0.0 {
            budget.time_period.start = budget.time_unit.period(now).start as f64 / 1000.0;
        }
        self.reachable(notifications.iter().flat_map(|one| &one.subscribers))?;
        let rows = self.rows.clone();
        if blocking(move || Budgets::all_of(&*rows)).await?.len() >= MOST_BUDGETS {
            return Err(Error::new(ErrorCode::ResourceLimitExceeded, format!("There are {MOST_BUDGETS} budgets.")));
        }
        let notifications: Vec<_> = notifications.into_iter().map(stored).collect();
        let name = budget.budget_name.clone();
        let row = ResourceRow {
            uid: random_hex(6).map_err(|error| internal(&error))?,
            arn: self.arn(&name),
            created_ms: now,
            modified_ms: now,
            request: serde_json::to_vec(&budget).map_err(|error| internal(&error))?,
            view: serde_json::to_vec(&notifications).map_err(|error| internal(&error))?,
            tags: tags::to_json(&tags).to_string().into_bytes(),
            ..ResourceRow::new(BUDGET, &name)
        };
        let create = move |present: Option<ResourceRow>| match present {
            Some(_) => {
                Err(Error::new(ErrorCode::ResourceInUse, format!("The budget \"{}\" exists already.", row.name)))
            }
            None => Ok(Some(row)),
        };
        self.core.edit(BUDGET, &name, create).await.map_err(|refusal| refused(&refusal))?;
        Ok(Reply::done())
    }

    pub(crate) async fn update(&self, request: PutBudget) -> Result<Reply, Error> {
        let name = request.budget.budget_name.clone();
        let mut budget = request.budget;
        self.change(&request.account_id, &name, move |row| {
            let stored = StoredBudget::read(row)?;
            if budget.time_period.start == 0.0 {
                budget.time_period.start = stored.budget.time_period.start;
            }
            row.request = serde_json::to_vec(&budget).map_err(|error| internal(&error))?;
            // What was met was met of another limit.
            set_notifications(
                row,
                stored.notifications.into_iter().map(|one| StoredNotification { met_in_ms: None, ..one }),
            )
        })
        .await
    }

    pub(crate) async fn delete(&self, request: OfBudget) -> Result<Reply, Error> {
        self.account(&request.account_id)?;
        let delete = |row: Option<ResourceRow>| row.map(|_| None).ok_or_else(|| not_found("budget"));
        self.core.edit(BUDGET, &request.budget_name, delete).await.map_err(|refusal| refused(&refusal))?;
        Ok(Reply::done())
    }

    pub(crate) fn describe(&self, request: &OfBudget) -> Result<Reply, Error> {
        let stored = self.named(&request.account_id, &request.budget_name)?;
        Ok(Reply::budget(&stored.budget, &self.spending(&stored, now_ms())?, stored.updated_ms))
    }

    pub(crate) fn list(&self, request: &OfBudget) -> Result<Reply, Error> {
        self.account(&request.account_id)?;
        let (page, next) = page("budgets", self.all()?, request.max_results, request.next_token.as_deref())?;
        let (jobs, now) = (self.jobs()?, now_ms());
        let shown: Vec<_> = page
            .into_iter()
            .map(|one| {
                let spending = one.spending(&jobs, &self.catalog, &one.period(now), now);
                (one.budget, spending, one.updated_ms)
            })
            .collect();
        Ok(Reply::budgets(&shown, next.as_deref()))
    }

    /// The periods from the budget's start, the newest last.
    pub(crate) fn history(&self, request: &OfBudget) -> Result<Reply, Error> {
        let stored = self.named(&request.account_id, &request.budget_name)?;
        let (jobs, now) = (self.jobs()?, now_ms());
        let asked = request.time_period.as_ref();
        let ms = |seconds: f64| (seconds * 1000.0).max(0.0) as u64;
        let end = asked.and_then(|period| period.end).map_or(now, ms).min(now);
        let start = asked.and_then(|period| period.start).map_or(end.saturating_sub(HISTORY_MS), ms);
        let mut at = start.max(ms(stored.budget.time_period.start));
        let mut periods = Vec::new();
        while at < end {
            let period = stored.period(at);
            let actual = stored.spending(&jobs, &self.catalog, &period, now).actual;
            at = period.end;
            periods.push(AmountsOfPeriod { period, actual });
        }
        let (page, next) = page("periods", periods, request.max_results, request.next_token.as_deref())?;
        Ok(Reply::budget_history(&stored.budget, &page, next.as_deref()))
    }

    pub(crate) fn notifications(&self, request: &OfBudget) -> Result<Reply, Error> {
        let stored = self.named(&request.account_id, &request.budget_name)?;
        let (page, next) = page("notifications", shown(&stored), request.max_results, request.next_token.as_deref())?;
        Ok(Reply::budget_notifications(&page, next.as_deref()))
    }

    pub(crate) fn all_notifications(&self, request: &OfBudget) -> Result<Reply, Error> {
        self.account(&request.account_id)?;
        let (page, next) = page("budgets", self.all()?, request.max_results, request.next_token.as_deref())?;
        let all: Vec<_> = page.iter().map(|one| (one.budget.budget_name.clone(), shown(one))).collect();
        Ok(Reply::account_notifications(&all, next.as_deref()))
    }

    pub(crate) fn subscribers(&self, request: &OfNotification) -> Result<Reply, Error> {
        let stored = self.named(&request.account_id, &request.budget_name)?;
        let mut all = stored.notifications.into_iter().map(|one| one.notification);
        let found =
            all.find(|one| one.notification == request.notification).ok_or_else(|| not_found("notification"))?;
        let (page, next) = page("subscribers", found.subscribers, request.max_results, request.next_token.as_deref())?;
        Ok(Reply::subscribers(&page, next.as_deref()))
    }

    pub(crate) async fn change_notifications(
        &self,
        request: OfNotification,
        change: NotificationChange,
    ) -> Result<Reply, Error> {
        let (account, name) = (request.account_id.clone(), request.budget_name.clone());
        let added = request.subscriber.as_ref().filter(|_| change == NotificationChange::Subscribe);
        self.reachable(request.subscribers.iter().chain(added).chain(&request.new_subscriber))?;
        self.change(&account, &name, move |row| {
            let before = StoredBudget::read(row)?.notifications;
            let mut all: Vec<_> = before.iter().map(|one| one.notification.clone()).collect();
            request.apply(change, &mut all)?;
            let met = |after: &NotificationWithSubscribers| {
                let same = before.iter().find(|one| one.notification.notification == after.notification);
                same.and_then(|one| one.met_in_ms)
            };
            let all: Vec<_> = all
                .into_iter()
                .map(|notification| StoredNotification { met_in_ms: met(&notification), notification })
                .collect();
            set_notifications(row, all)
        })
        .await
    }

    pub(crate) async fn tag(&self, request: TagBudget) -> Result<Reply, Error> {
        self.change_tags(&request.arn, move |present| tags::add(present, request.resource_tags)).await
    }

    pub(crate) async fn untag(&self, request: TagBudget) -> Result<Reply, Error> {
        let keys = request.resource_tag_keys;
        self.change_tags(&request.arn, move |present| {
            present.retain(|tag| !keys.contains(&tag.key));
            Ok(())
        })
        .await
    }

    pub(crate) fn tags(&self, request: &TagBudget) -> Result<Reply, Error> {
        let row = self.row(self.of_arn(&request.arn)?)?;
        Ok(Reply::budget_tags(&tags::from_json(&row.tags).map_err(|error| internal(&error))?))
    }

    async fn change_tags(
        &self,
        arn: &str,
        change: impl FnOnce(&mut Vec<Tag>) -> Result<(), Error> + Send + 'static,
    ) -> Result<Reply, Error> {
        let account = self.identity.account.clone();
        self.change(&account, self.of_arn(arn)?, move |row| {
            let mut present = tags::from_json(&row.tags).map_err(|error| internal(&error))?;
            change(&mut present)?;
            at_limit(&present)?;
            row.tags = tags::to_json(&present).to_string().into_bytes();
            Ok(())
        })
        .await
    }

    /// Changes a budget's row as it is now.
    async fn change(
        &self,
        account: &str,
        name: &str,
        change: impl FnOnce(&mut ResourceRow) -> Result<(), Error> + Send + 'static,
    ) -> Result<Reply, Error> {
        self.account(account)?;
        let edit = move |row: Option<ResourceRow>| {
            let mut row = row.ok_or_else(|| not_found("budget"))?;
            change(&mut row)?;
            // Each change has a time of its own: messages are named by it.
            row.modified_ms = now_ms().max(row.modified_ms + 1);
            Ok(Some(row))
        };
        self.core.edit(BUDGET, name, edit).await.map_err(|refusal| refused(&refusal))?;
        Ok(Reply::done())
    }

    /// Refuses topics of elsewhere, and addresses where no mails are sent.
    fn reachable<'a>(&self, subscribers: impl Iterator<Item = &'a Subscriber>) -> Result<(), Error> {
        for subscriber in subscribers {
            match subscriber.subscription_type {
                SubscriptionType::Sns => drop(TopicArn::parse(&subscriber.address, &self.identity)?),
                SubscriptionType::Email if !self.sends_mails => {
                    return Err(Error::validation(
                        "Subscriber: this server sends no mails: set notifications_smtp and notifications_from in \
                         shoal.toml, or use an SNS topic.",
                    ));
                }
                SubscriptionType::Email => {}
            }
        }
        Ok(())
    }

    fn named(&self, account: &str, name: &str) -> Result<StoredBudget, Error> {
        self.account(account)?;
        StoredBudget::read(&self.row(name)?)
    }

    fn row(&self, name: &str) -> Result<ResourceRow, Error> {
        self.rows.resource(BUDGET, name).map_err(|error| internal(&error))?.ok_or_else(|| not_found("budget"))
    }

    fn arn(&self, name: &str) -> String {
        format!("arn:aws:budgets::{}:budget/{name}", self.identity.account)
    }

    fn of_arn<'a>(&self, arn: &'a str) -> Result<&'a str, Error> {
        arn.strip_prefix(&self.arn("")).ok_or_else(|| not_found("budget"))
    }

    fn account(&self, account: &str) -> Result<(), Error> {
        if account == self.identity.account {
            return Ok(());
        }
        Err(Error::new(
            ErrorCode::AccessDenied,
            format!("Account {account} is not served here; AccountId is {}.", self.identity.account),
        ))
    }
}

fn stored(notification: NotificationWithSubscribers) -> StoredNotification {
    StoredNotification { notification, met_in_ms: None }
}

/// Each with whether it is met in this period.
fn shown(stored: &StoredBudget) -> Vec<(NotificationWithSubscribers, bool)> {
    let period = stored.period(now_ms()).start;
    stored.notifications.iter().map(|one| (one.notification.clone(), one.met_in_ms == Some(period))).collect()
}

fn set_notifications(row: &mut ResourceRow, all: impl IntoIterator<Item = StoredNotification>) -> Result<(), Error> {
    let all: Vec<_> = all.into_iter().collect();
    row.view = serde_json::to_vec(&all).map_err(|error| internal(&error))?;
    Ok(())
}

/// A page of `list`, and the token of the next one.
fn page<T>(
    list: &str,
    all: Vec<T>,
    length: Option<usize>,
    token: Option<&str>,
) -> Result<(Vec<T>, Option<String>), Error> {
    let place = token.map(|token| token::open(list, token)).transpose()?;
    let place: usize = place.map_or(Ok(0), |place| place.parse()).map_err(|error| internal(&error))?;
    let (length, total) = (length.unwrap_or(100), all.len());
    let next = place.saturating_add(length);
    let token = (next < total).then(|| token::seal(list, &next.to_string()));
    Ok((all.into_iter().skip(place).take(length).collect(), token))
}
