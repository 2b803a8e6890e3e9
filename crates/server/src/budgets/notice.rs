//! What the subscribers of a budget's notification are sent. Pure.

use shoal_store::RowChange;
use shoal_wire::{
    PublishedMessage, TopicProtocol,
    budgets::{Budget, ComparisonOperator, Notification, NotificationType, Spending, SubscriptionType},
};

use super::StoredNotification;
use crate::{
    identity::Identity,
    notifications::{
        Message, TopicArn, message_id,
        rows::{Delivery, Target},
    },
};

/// What mails are listed under, beside topics.
const MAILS: &str = "Budgets";

/// A notification that is met for the first time in a period, which begins at this time.
pub(super) struct Met<'a> {
    pub(super) budget: &'a Budget,
    pub(super) notification: &'a StoredNotification,
    pub(super) spending: &'a Spending,
    pub(super) period_ms: u64,
    /// Of the budget's last change: what is met again after one is another message.
    pub(super) changed: &'a str,
}

impl Met<'_> {
    /// A row for each subscriber. Decided again after a crash, they have the same names.
    pub(super) fn rows(&self, identity: &Identity, now_ms: u64) -> Vec<RowChange> {
        let stored = &self.notification.notification;
        let threshold = serde_json::to_string(&stored.notification).unwrap_or_default();
        let rows = stored.subscribers.iter().map(|subscriber| {
            let period = self.period_ms.to_string();
            let parts = [MAILS, &self.budget.budget_name, self.changed, &period, &threshold, &subscriber.address];
            let (id, message) = (message_id(&parts), self.message(&stored.notification));
            match subscriber.subscription_type {
                SubscriptionType::Sns => {
                    let topic_arn = subscriber.address.clone();
                    Message { id, topic_arn, message, subscribe: Vec::new() }.into_row(now_ms)
                }
                SubscriptionType::Email => {
                    let endpoint = subscriber.address.clone();
                    let target = Target { protocol: TopicProtocol::Email, endpoint, is_raw: false, is_owners: true };
                    let delivery = Delivery {
                        message_id: id.clone(),
                        topic_arn: TopicArn::of(MAILS, identity),
                        // The budget's owner named the address: DeleteSubscriber ends it.
                        subscription_arn: String::new(),
                        target,
                        at_ms: now_ms,
                        message,
                        is_confirmation: false,
                    };
                    delivery.into_row(&id, MAILS, now_ms)
                }
            }
        });
        rows.map(|row| RowChange::Put(Box::new(row))).collect()
    }

    fn message(&self, notification: &Notification) -> PublishedMessage {
        let Budget { budget_name, budget_limit, time_unit, .. } = self.budget;
        let (unit, period) = (&budget_limit.unit, time_unit.noun());
        let (what, amount) = match notification.notification_type {
            NotificationType::Actual => ("are spent in", self.spending.actual),
            NotificationType::Forecasted => ("are the forecast for", self.spending.forecast),
        };
        let than = match notification.comparison_operator {
            ComparisonOperator::GreaterThan => "more than",
            ComparisonOperator::LessThan => "less than",
            ComparisonOperator::EqualTo => "equal to",
        };
        let threshold = notification.amount(self.spending.limit);
        let text = format!(
            "Budget \"{budget_name}\": {amount:.2} {unit} {what} this {period}, {than} {threshold:.2} {unit}. Its limit is \
             {} {unit} per {period}.",
            budget_limit.amount
        );
        let subject = format!("Budget \"{budget_name}\": {amount:.2} {unit} of {} {unit}", budget_limit.amount);
        // Subjects are plain and short, as SNS has them.
        let plain = subject.chars().map(|letter| if letter == ' ' || letter.is_ascii_graphic() { letter } else { ' ' });
        PublishedMessage { subject: Some(plain.take(100).collect()), text, ..PublishedMessage::default() }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::notifications::rows::{DELIVERY, MESSAGE, restored};

    #[test]
    fn each_subscriber_gets_one_row_a_period() {
        let budget: Budget = serde_json::from_value(json!({
            "BudgetName": "vision", "BudgetLimit": {"Amount": "10", "Unit": "USD"}, "TimeUnit": "MONTHLY",
            "TimePeriod": {"Start": 0.0, "End": 9e9}, "BudgetType": "COST"}))
        .unwrap();
        let notification: StoredNotification = serde_json::from_value(json!({
            "Notification": {"NotificationType": "ACTUAL", "ComparisonOperator": "GREATER_THAN", "Threshold": 80.0},
            "Subscribers": [{"SubscriptionType": "EMAIL", "Address": "a@b"},
                {"SubscriptionType": "SNS", "Address": "arn:aws:sns:r:1:t"}]}))
        .unwrap();
        let spending = Spending { limit: 10.0, actual: 8.5, forecast: 12.0 };
        let rows = |period_ms| {
            let (notification, spending, changed) = (&notification, &spending, "u 1");
            let met = Met { budget: &budget, notification, spending, period_ms, changed };
            let identity = Identity { region: "r".to_owned(), account: "1".to_owned() };
            let put = |change| if let RowChange::Put(row) = change { *row } else { panic!("a row") };
            met.rows(&identity, 7).into_iter().map(put).collect::<Vec<_>>()
        };
        let (first, next) = (rows(1), rows(2));
        assert_eq!((first[0].kind, first[1].kind), (DELIVERY, MESSAGE));
        assert_eq!(
            first.iter().map(|row| &row.name).collect::<Vec<_>>(),
            rows(1).iter().map(|row| &row.name).collect::<Vec<_>>()
        );
        assert!(first.iter().zip(&next).all(|(one, other)| one.name != other.name));
        let mail: Delivery = restored(&first[0].spec).unwrap();
        assert_eq!(
            mail.message.text,
            "Budget \"vision\": 8.50 USD are spent in this month, more than 8.00 USD. Its limit is 10 USD per month."
        );
        assert_eq!(mail.message.subject.as_deref(), Some("Budget \"vision\": 8.50 USD of 10 USD"));
    }
}
