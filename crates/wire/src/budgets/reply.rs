//! Answers about budgets.

use serde_json::{Value, json};

use super::{Budget, NotificationWithSubscribers, Period, Subscriber};
use crate::{Reply, Tag, timestamp::seconds};

/// A period of a budget, in the unit of its limit.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Spending {
    /// What it may be.
    pub limit: f64,
    /// What it is until now.
    pub actual: f64,
    /// What it will be at the end of the period if it continues like this.
    pub forecast: f64,
}

impl Spending {
    /// The spending of a period of which the share until `now_ms` is known.
    pub fn of(limit: f64, actual: f64, period: &Period, now_ms: u64) -> Self {
        let (length, gone) = (period.end - period.start, now_ms.clamp(period.start, period.end) - period.start);
        // Nothing can be said of a period's first moments.
        let forecast = if gone * 100 < length { actual } else { actual * length as f64 / gone as f64 };
        Self { limit, actual, forecast }
    }
}

/// A period of a budget's history.
#[derive(Debug, Clone, PartialEq)]
pub struct AmountsOfPeriod {
    /// Which.
    pub period: Period,
    /// What was spent or used.
    pub actual: f64,
}

impl Reply {
    /// `DescribeBudget`.
    pub fn budget(budget: &Budget, spending: &Spending, updated_ms: u64) -> Self {
        Self::of(json!({"Budget": shown(budget, spending, updated_ms)}))
    }

    /// `DescribeBudgets`.
    pub fn budgets(budgets: &[(Budget, Spending, u64)], next: Option<&str>) -> Self {
        let budgets = budgets.iter().map(|(budget, spending, updated_ms)| shown(budget, spending, *updated_ms));
        Self::page("Budgets", budgets, "NextToken", next)
    }

    /// `DescribeNotificationsForBudget`: notifications, and whether each is met in this period.
    pub fn budget_notifications(all: &[(NotificationWithSubscribers, bool)], next: Option<&str>) -> Self {
        Self::page("Notifications", all.iter().map(notification), "NextToken", next)
    }

    /// `DescribeBudgetNotificationsForAccount`: those of each budget.
    pub fn account_notifications(
        all: &[(String, Vec<(NotificationWithSubscribers, bool)>)],
        next: Option<&str>,
    ) -> Self {
        let of_budget = |(name, all): &(String, Vec<_>)| json!({"BudgetName": name, "Notifications": all.iter().map(notification).collect::<Vec<_>>()});
        Self::page("BudgetNotificationsForAccount", all.iter().map(of_budget), "NextToken", next)
    }

    /// `DescribeSubscribersForNotification`.
    pub fn subscribers(subscribers: &[Subscriber], next: Option<&str>) -> Self {
        Self::page("Subscribers", subscribers.iter().map(|one| json!(one)), "NextToken", next)
    }

    /// `DescribeBudgetPerformanceHistory`.
    pub fn budget_history(budget: &Budget, periods: &[AmountsOfPeriod], next: Option<&str>) -> Self {
        let unit = &budget.budget_limit.unit;
        let amounts: Vec<_> = periods
            .iter()
            .map(|one| {
                json!({
                    "BudgetedAmount": budget.budget_limit,
                    "ActualAmount": amount(one.actual, unit),
                    "TimePeriod": {"Start": seconds(one.period.start), "End": seconds(one.period.end)},
                })
            })
            .collect();
        let history = json!({
            "BudgetName": budget.budget_name,
            "BudgetType": budget.budget_type,
            "CostFilters": budget.cost_filters,
            "TimeUnit": budget.time_unit,
            "BudgetedAndActualAmountsList": amounts,
        });
        let reply = Self::of(json!({"BudgetPerformanceHistory": history}));
        match next {
            Some(next) => reply.with("NextToken", json!(next)),
            None => reply,
        }
    }

    /// `ListTagsForResource` of a budget.
    pub fn budget_tags(tags: &[Tag]) -> Self {
        Self::of(json!({"ResourceTags": tags}))
    }
}

fn shown(budget: &Budget, spending: &Spending, updated_ms: u64) -> Value {
    let unit = &budget.budget_limit.unit;
    let mut shown = json!(budget);
    shown["CalculatedSpend"] =
        json!({"ActualSpend": amount(spending.actual, unit), "ForecastedSpend": amount(spending.forecast, unit)});
    shown["LastUpdatedTime"] = seconds(updated_ms);
    shown["HealthStatus"] = json!({"Status": "HEALTHY", "LastUpdatedTime": seconds(updated_ms)});
    shown
}

fn amount(amount: f64, unit: &str) -> Value {
    // A budget of less than a cent is spent by less than a cent.
    let digits = if amount != 0.0 && amount.abs() < 0.1 { 6 } else { 3 };
    json!({"Amount": format!("{amount:.digits$}"), "Unit": unit})
}

fn notification((one, is_met): &(NotificationWithSubscribers, bool)) -> Value {
    let mut shown = json!(one.notification);
    shown["NotificationState"] = json!(if *is_met { "ALARM" } else { "OK" });
    shown
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::budgets::{ComparisonOperator, Notification, NotificationType, ThresholdType};

    #[test]
    fn small_amounts_are_not_nothing() {
        let shown = [0.0, 0.0004, 0.25, 12.3456].map(|it| amount(it, "USD")["Amount"].clone());
        assert_eq!(shown, ["0.000", "0.000400", "0.250", "12.346"]);
    }

    #[test]
    fn the_forecast_goes_on_as_until_now() {
        let forecast = |now| Spending::of(10.0, 2.0, &(1000..2000), now).forecast;
        assert_eq!((forecast(1250), forecast(2000), forecast(9000)), (8.0, 2.0, 2.0));
        // Too early to say anything.
        assert_eq!((forecast(1000), forecast(1009)), (2.0, 2.0));
    }

    #[test]
    fn thresholds_are_percent_of_the_limit_or_amounts() {
        let spending = Spending { limit: 10.0, actual: 8.0, forecast: 12.0 };
        let met = |kind, comparison_operator, threshold, threshold_type| {
            let notification = Notification { notification_type: kind, comparison_operator, threshold, threshold_type };
            notification.is_met(&spending)
        };
        use ComparisonOperator::{EqualTo, GreaterThan, LessThan};
        use NotificationType::{Actual, Forecasted};
        use ThresholdType::{AbsoluteValue, Percentage};
        assert!(met(Actual, GreaterThan, 79.0, Percentage) && !met(Actual, GreaterThan, 80.0, Percentage));
        assert!(met(Actual, EqualTo, 80.0, Percentage) && met(Actual, LessThan, 81.0, Percentage));
        assert!(met(Forecasted, GreaterThan, 100.0, Percentage) && !met(Forecasted, GreaterThan, 12.0, AbsoluteValue));
        assert!(met(Actual, GreaterThan, 7.9, AbsoluteValue));
    }
}
