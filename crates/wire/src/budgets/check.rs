//! What a budget may be: AWS's rules, and sentences for what has no meaning here.

use serde::Deserialize;
use serde_json::Value;

use super::{
    AT_LIMIT_TAG, AtLimit, Budget, MOST_NOTIFICATIONS, MOST_SUBSCRIBERS, NotificationWithSubscribers, OfNotification,
    PutBudget, ROLE_FILTER, Subscriber, SubscriptionType, TAG_FILTER, TimePeriod,
};
use crate::{Call, Error, ErrorCode, Input, Tag, call::read, tags};

/// The end of budgets that say none, as at AWS: 2087-06-15.
const NO_END_S: f64 = 3_706_473_600.0;
/// Unit of [`super::BudgetType::Usage`].
const HOURS: &str = "Hrs";

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Request {
    account_id: String,
    #[serde(alias = "NewBudget")]
    budget: Value,
    #[serde(default)]
    notifications_with_subscribers: Vec<NotificationWithSubscribers>,
    #[serde(default)]
    resource_tags: Vec<Tag>,
}

impl Input for PutBudget {
    fn read(call: Call) -> Result<Self, Error> {
        let request: Request = read(call.input)?;
        at_limit(&request.resource_tags)?;
        let most = request.notifications_with_subscribers.len();
        if most > MOST_NOTIFICATIONS {
            return Err(too_many(&format!("{most} notifications; a budget has at most {MOST_NOTIFICATIONS}")));
        }
        for one in &request.notifications_with_subscribers {
            subscribers(&one.subscribers)?;
        }
        Ok(Self {
            account_id: request.account_id,
            budget: budget(request.budget)?,
            notifications: request.notifications_with_subscribers,
            tags: tags::check(request.resource_tags)?,
        })
    }
}

/// A budget with its defaults; of one that begins at an unknown time the start is 0.
fn budget(mut budget: Value) -> Result<Budget, Error> {
    refuse_others(&budget)?;
    let period = &budget["TimePeriod"];
    let time = |member: &str, default: f64| period[member].as_f64().unwrap_or(default);
    let period = TimePeriod { start: time("Start", 0.0), end: time("End", NO_END_S) };
    if period.start >= period.end {
        return Err(Error::validation("TimePeriod.Start must be earlier than TimePeriod.End."));
    }
    budget["TimePeriod"] = serde_json::to_value(period).unwrap_or_default();
    let budget: Budget = read(budget)?;
    let unit = if budget.budget_type == super::BudgetType::Cost { "USD" } else { HOURS };
    let limit = &budget.budget_limit;
    if limit.unit != unit {
        return Err(Error::validation(format!(
            "BudgetLimit.Unit is \"{}\": costs are in USD, and USAGE counts hours of instances, in {HOURS}.",
            limit.unit.escape_debug()
        )));
    }
    if !budget.limit().is_finite() || budget.limit() <= 0.0 {
        return Err(Error::validation("BudgetLimit.Amount must be greater than 0."));
    }
    for (filter, values) in &budget.cost_filters {
        filter_values(filter, values)?;
    }
    Ok(budget)
}

impl Budget {
    /// The limit of a period, in its unit.
    pub fn limit(&self) -> f64 {
        self.budget_limit.amount.parse().unwrap_or(f64::NAN)
    }

    /// Whether jobs with these tags and this role count.
    pub fn counts(&self, tags: &[Tag], role: &str) -> bool {
        self.cost_filters.iter().all(|(filter, values)| match filter.as_str() {
            ROLE_FILTER => values.iter().any(|value| value == role),
            TAG_FILTER => values
                .iter()
                .filter_map(|value| tag_of(value))
                .any(|(key, value)| tags.iter().any(|tag| tag.key == key && tag.value == value)),
            // Training jobs are SageMaker's, and of this account.
            _ => true,
        })
    }
}

/// Refuses what has no meaning for training jobs, or none here.
fn refuse_others(budget: &Value) -> Result<(), Error> {
    let refusals = [
        ("PlannedBudgetLimits", "limits that change by period are not served; give BudgetLimit and UpdateBudget"),
        ("AutoAdjustData", "budgets that adjust themselves are not served; give BudgetLimit"),
        ("FilterExpression", "use CostFilters"),
        ("Metrics", "costs are what instances cost, without other metrics; leave it out"),
        ("BillingViewArn", "there are no billing views; leave it out"),
    ];
    for (member, why) in refusals {
        if budget.get(member).is_some_and(|value| !value.is_null()) {
            return Err(Error::validation(format!("{member}: {why}.")));
        }
    }
    if !matches!(budget["BudgetType"].as_str(), Some("COST" | "USAGE")) {
        return Err(Error::validation("BudgetType: only COST and USAGE are served; nothing is reserved here."));
    }
    if budget["TimeUnit"] == "CUSTOM" {
        return Err(Error::validation("TimeUnit: CUSTOM is not served; use DAILY, MONTHLY, QUARTERLY or ANNUALLY."));
    }
    if budget["BudgetLimit"].is_null() {
        return Err(Error::validation("BudgetLimit is required."));
    }
    Ok(())
}

fn filter_values(filter: &str, values: &[String]) -> Result<(), Error> {
    let bad = match filter {
        ROLE_FILTER | "LinkedAccount" => None,
        TAG_FILTER => values.iter().find(|value| tag_of(value).is_none()),
        "Service" => values.iter().find(|value| *value != "Amazon SageMaker"),
        _ => {
            return Err(Error::validation(format!(
                "CostFilters: \"{}\" is not served; there are {TAG_FILTER} (user:KEY$VALUE), {ROLE_FILTER} (an ARN), \
                 Service and LinkedAccount.",
                filter.escape_debug()
            )));
        }
    };
    match bad {
        Some(value) if filter == TAG_FILTER => Err(Error::validation(format!(
            "CostFilters: {TAG_FILTER} has values such as user:team$vision, not \"{}\".",
            value.escape_debug()
        ))),
        Some(value) => Err(Error::validation(format!(
            "CostFilters: Service \"{}\" has no costs here, only Amazon SageMaker.",
            value.escape_debug()
        ))),
        None => Ok(()),
    }
}

/// `user:<key>$<value>`.
fn tag_of(value: &str) -> Option<(&str, &str)> {
    value.strip_prefix("user:").unwrap_or(value).split_once('$')
}

/// What happens at a budget's limit by its tags; [`AtLimit::Notify`] without the tag.
///
/// # Errors
/// The tag has another value.
pub fn at_limit(tags: &[Tag]) -> Result<AtLimit, Error> {
    match tags.iter().find(|tag| tag.key == AT_LIMIT_TAG).map(|tag| tag.value.as_str()) {
        None | Some("notify") => Ok(AtLimit::Notify),
        Some("refuse") => Ok(AtLimit::Refuse),
        Some("stop") => Ok(AtLimit::Stop),
        Some(other) => Err(Error::validation(format!(
            "ResourceTags: {AT_LIMIT_TAG} is \"{}\"; it can be notify, refuse (new jobs are refused) or stop (jobs are \
             stopped, too).",
            other.escape_debug()
        ))),
    }
}

/// Refuses addresses that nothing can be sent to, and too many of them.
///
/// # Errors
/// The first that is unfit.
pub fn subscribers(subscribers: &[Subscriber]) -> Result<(), Error> {
    for subscriber in subscribers {
        let is_fit = match subscriber.subscription_type {
            SubscriptionType::Sns => subscriber.address.starts_with("arn:aws:sns:"),
            SubscriptionType::Email => {
                subscriber.address.split_once('@').is_some_and(|(user, host)| !user.is_empty() && !host.is_empty())
            }
        };
        if !is_fit {
            return Err(Error::validation(format!(
                "Subscriber.Address \"{}\" is neither a topic's ARN (SNS) nor an email address (EMAIL).",
                subscriber.address.escape_debug()
            )));
        }
    }
    let topics = subscribers.iter().filter(|one| one.subscription_type == SubscriptionType::Sns).count();
    if topics > 1 || subscribers.len() > MOST_SUBSCRIBERS {
        return Err(too_many("a notification has at most one SNS topic and 10 email addresses"));
    }
    let mut sorted: Vec<_> = subscribers.iter().collect();
    sorted.sort_unstable();
    if sorted.windows(2).any(|pair| pair[0] == pair[1]) {
        return Err(Error::new(ErrorCode::ResourceInUse, "A subscriber is there twice."));
    }
    Ok(())
}

fn too_many(what: &str) -> Error {
    Error::new(ErrorCode::ResourceLimitExceeded, format!("Too many: {what}."))
}

/// A change of the notifications of a budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotificationChange {
    /// `CreateNotification`.
    Create,
    /// `UpdateNotification`.
    Update,
    /// `DeleteNotification`.
    Delete,
    /// `CreateSubscriber`.
    Subscribe,
    /// `UpdateSubscriber`.
    Resubscribe,
    /// `DeleteSubscriber`.
    Unsubscribe,
}

impl OfNotification {
    /// Makes the change.
    ///
    /// # Errors
    /// The notification or subscriber is missing, or there already; there are too many; an address
    /// is unfit.
    pub fn apply(self, change: NotificationChange, all: &mut Vec<NotificationWithSubscribers>) -> Result<(), Error> {
        let duplicate = || Error::new(ErrorCode::ResourceInUse, "The budget has this notification already.");
        let place = all.iter().position(|one| one.notification == self.notification);
        if change == NotificationChange::Create {
            subscribers(&self.subscribers)?;
            if place.is_some() {
                return Err(duplicate());
            }
            if all.len() == MOST_NOTIFICATIONS {
                return Err(too_many(&format!("a budget has at most {MOST_NOTIFICATIONS} notifications")));
            }
            all.push(NotificationWithSubscribers { notification: self.notification, subscribers: self.subscribers });
            return Ok(());
        }
        let place = place.ok_or_else(|| not_found("notification"))?;
        let subscribed = |one: Option<Subscriber>| one.ok_or_else(|| Error::validation("Subscriber is required."));
        match change {
            NotificationChange::Create => {}
            NotificationChange::Update => {
                let new = self.new_notification.ok_or_else(|| Error::validation("NewNotification is required."))?;
                if all.iter().any(|one| one.notification == new) {
                    return Err(duplicate());
                }
                all[place].notification = new;
            }
            NotificationChange::Delete => drop(all.remove(place)),
            NotificationChange::Subscribe => {
                let mut changed = all[place].subscribers.clone();
                changed.push(subscribed(self.subscriber)?);
                subscribers(&changed)?;
                all[place].subscribers = changed;
            }
            NotificationChange::Resubscribe | NotificationChange::Unsubscribe => {
                let (old, mut changed) = (subscribed(self.subscriber)?, all[place].subscribers.clone());
                let at = changed.iter().position(|one| *one == old).ok_or_else(|| not_found("subscriber"))?;
                if change == NotificationChange::Resubscribe {
                    changed[at] = subscribed(self.new_subscriber)?;
                } else {
                    changed.remove(at);
                }
                subscribers(&changed)?;
                all[place].subscribers = changed;
            }
        }
        Ok(())
    }
}

/// There is no such budget, or part of one.
pub fn not_found(what: &str) -> Error {
    Error::new(ErrorCode::ResourceNotFound, format!("There is no such {what}."))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn request(changes: &[(&str, Value)]) -> Result<Budget, Error> {
        let mut request = json!({"BudgetName": "a", "BudgetLimit": {"Amount": "12.5", "Unit": "USD"},
            "TimeUnit": "MONTHLY", "BudgetType": "COST"});
        for (member, value) in changes {
            request[*member] = value.clone();
        }
        budget(request)
    }

    #[test]
    fn defaults_are_those_of_aws() {
        let budget = request(&[]).unwrap();
        assert_eq!(budget.limit(), 12.5);
        assert_eq!(budget.time_period, TimePeriod { start: 0.0, end: NO_END_S });
        let usage = [("BudgetType", json!("USAGE")), ("BudgetLimit", json!({"Amount": ".5", "Unit": "Hrs"}))];
        assert_eq!(request(&usage).unwrap().limit(), 0.5);
        assert!(request(&usage[..1]).unwrap_err().message.contains("Hrs"));
    }

    #[test]
    fn jobs_count_that_have_one_value_of_each_filter() {
        let filters =
            json!({"TagKeyValue": ["user:team$a$b", "user:team$c"], "Role": ["r"], "Service": ["Amazon SageMaker"]});
        let budget = request(&[("CostFilters", filters)]).unwrap();
        let tag = |key: &str, value: &str| Tag { key: key.to_owned(), value: value.to_owned() };
        assert!(budget.counts(&[tag("x", "y"), tag("team", "a$b")], "r"));
        assert!(budget.counts(&[tag("team", "c")], "r"));
        assert!(!budget.counts(&[tag("team", "c")], "s"));
        assert!(!budget.counts(&[tag("team", "a")], "r"));
        assert!(!budget.counts(&[], "r"));
        assert!(request(&[]).unwrap().counts(&[], ""));
        let bad = request(&[("CostFilters", json!({"Service": ["Amazon EC2"]}))]).unwrap_err();
        assert!(bad.message.contains("Amazon EC2"), "{}", bad.message);
    }

    #[test]
    fn subscribers_can_be_reached_and_are_there_once() {
        let mail =
            |address: &str| Subscriber { subscription_type: SubscriptionType::Email, address: address.to_owned() };
        let topic = |name: &str| Subscriber {
            subscription_type: SubscriptionType::Sns,
            address: format!("arn:aws:sns:us-east-1:123456789012:{name}"),
        };
        assert!(subscribers(&[mail("a@b"), mail("c@d"), topic("t")]).is_ok());
        let code = |all: &[Subscriber]| subscribers(all).unwrap_err().code;
        assert_eq!(code(&[mail("ab")]), ErrorCode::ValidationException);
        assert_eq!(code(&[mail("a@b"), mail("a@b")]), ErrorCode::ResourceInUse);
        assert_eq!(code(&[topic("t"), topic("u")]), ErrorCode::ResourceLimitExceeded);
    }
}
