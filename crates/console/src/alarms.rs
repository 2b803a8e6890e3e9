//! What watches by itself: alarms, budgets, and what became of notifications. By the API's own
//! calls.

use askama::Template;
use http::Response;
use serde_json::{Value, json};

use super::{
    Console, Visit, amounts,
    frame::{Frame, PageError, rendered},
    responses::Body,
    status::Badge,
};

/// Most lines of a table.
const MOST: usize = 100;

#[derive(Template)]
#[template(path = "alarms.html")]
struct AlarmsPage {
    frame: Frame,
    alarms: Vec<AlarmLine>,
    budgets: Vec<BudgetLine>,
    notifications: Vec<NotificationLine>,
}

struct AlarmLine {
    badge: Badge,
    name: String,
    condition: String,
    reason: String,
    since_ms: u64,
}

struct BudgetLine {
    badge: Badge,
    name: String,
    period: String,
    spent: String,
    limit: String,
    /// Percent of the limit, at most 100, for a bar.
    share: String,
    counts: String,
}

struct NotificationLine {
    badge: Badge,
    subject: String,
    to: String,
    attempts: u64,
    reason: String,
    at_ms: u64,
}

impl Console {
    pub(super) async fn alarms_page(&self, visit: &Visit) -> Result<Response<Body>, PageError> {
        let server = &self.sources.server;
        let alarms = server.call("GraniteServiceVersion20100801.DescribeAlarms", json!({"MaxRecords": MOST})).await?;
        let account = json!({"AccountId": self.sources.account, "MaxResults": MOST});
        let budgets = server.call("AWSBudgetServiceGateway.DescribeBudgets", account).await?;
        let notifications = server.call("Shoal.ListNotifications", json!({"MaxResults": MOST})).await?;
        Ok(rendered(&AlarmsPage {
            frame: visit.frame("Alarms"),
            alarms: lines(&alarms["MetricAlarms"], alarm),
            budgets: lines(&budgets["Budgets"], budget),
            notifications: lines(&notifications["Notifications"], notification),
        }))
    }
}

fn lines<T>(list: &Value, line: fn(&Value) -> T) -> Vec<T> {
    list.as_array().into_iter().flatten().map(line).collect()
}

fn text(it: &Value, member: &str) -> String {
    it[member].as_str().unwrap_or_default().to_owned()
}

/// Seconds of a timestamp as milliseconds.
fn ms(it: &Value, member: &str) -> u64 {
    (it[member].as_f64().unwrap_or_default() * 1000.0) as u64
}

fn alarm(alarm: &Value) -> AlarmLine {
    let (kind, word) = match alarm["StateValue"].as_str() {
        Some("ALARM") => ("failed", "Alarm"),
        Some("OK") => ("completed", "OK"),
        _ => ("waiting", "Too little data"),
    };
    let statistic = ["Statistic", "ExtendedStatistic"].map(|member| text(alarm, member)).concat();
    let sign = match alarm["ComparisonOperator"].as_str() {
        Some("GreaterThanThreshold") => ">",
        Some("GreaterThanOrEqualToThreshold") => "≥",
        Some("LessThanThreshold") => "<",
        _ => "≤",
    };
    let dimensions = lines(&alarm["Dimensions"], |it| format!("{} {}", text(it, "Name"), text(it, "Value")));
    let of = if dimensions.is_empty() { String::new() } else { format!(" of {}", dimensions.join(", ")) };
    let threshold = amounts::value(alarm["Threshold"].as_f64().unwrap_or_default());
    let period = amounts::duration(alarm["Period"].as_u64().unwrap_or_default() * 1000);
    let periods = alarm["EvaluationPeriods"].as_u64().unwrap_or(1);
    let breaching = alarm["DatapointsToAlarm"].as_u64().unwrap_or(periods);
    let window = match (breaching, periods) {
        (1, 1) => period,
        _ => format!("{breaching} of {periods} periods of {period}"),
    };
    AlarmLine {
        badge: Badge { kind, word },
        name: text(alarm, "AlarmName"),
        condition: format!("{statistic} of {}{of} {sign} {threshold} in {window}", text(alarm, "MetricName")),
        reason: text(alarm, "StateReason"),
        since_ms: ms(alarm, "StateUpdatedTimestamp"),
    }
}

fn budget(budget: &Value) -> BudgetLine {
    let amount = |spend: &Value| text(spend, "Amount").parse::<f64>().unwrap_or_default();
    let unit = text(&budget["BudgetLimit"], "Unit");
    let (limit, spent) = (amount(&budget["BudgetLimit"]), amount(&budget["CalculatedSpend"]["ActualSpend"]));
    let forecast = amount(&budget["CalculatedSpend"]["ForecastedSpend"]);
    let (kind, word) = match () {
        () if spent >= limit => ("failed", "Spent"),
        () if forecast > limit => ("waiting", "Will not last"),
        () => ("completed", "OK"),
    };
    let counts = budget["CostFilters"].as_object().into_iter().flatten().flat_map(|(_, values)| {
        let values = values.as_array().into_iter().flatten().filter_map(Value::as_str);
        values.map(|value| value.trim_start_matches("user:").replacen('$', "=", 1))
    });
    let counts: Vec<_> = counts.collect();
    BudgetLine {
        badge: Badge { kind, word },
        name: text(budget, "BudgetName"),
        period: text(budget, "TimeUnit").to_lowercase(),
        spent: if spent > 0.0 && spent < 0.005 { format!("< 0.01 {unit}") } else { format!("{spent:.2} {unit}") },
        limit: format!("{} {unit}", text(&budget["BudgetLimit"], "Amount")),
        share: format!("{:.1}", (100.0 * spent / limit.max(f64::MIN_POSITIVE)).min(100.0)),
        counts: if counts.is_empty() { "all jobs".to_owned() } else { counts.join(", ") },
    }
}

fn notification(it: &Value) -> NotificationLine {
    let (kind, word) = match it["Status"].as_str() {
        Some("Delivered") => ("completed", "Delivered"),
        Some("Failed") => ("failed", "Given up"),
        _ => ("waiting", "Pending"),
    };
    NotificationLine {
        badge: Badge { kind, word },
        subject: text(it, "Subject"),
        to: format!("{} {}", text(it, "Protocol"), text(it, "Endpoint")),
        attempts: it["Attempts"].as_u64().unwrap_or_default(),
        reason: text(it, "Reason"),
        at_ms: ms(it, "Time"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_alarm_is_a_sentence() {
        let shown = alarm(&json!({"AlarmName": "a", "StateValue": "ALARM", "StateReason": "r", "Statistic": "Average",
            "MetricName": "loss", "Dimensions": [{"Name": "TrainingJobName", "Value": "j"}], "Threshold": 0.5,
            "ComparisonOperator": "GreaterThanThreshold", "Period": 60, "StateUpdatedTimestamp": 1.5}));
        assert_eq!(shown.condition, "Average of loss of TrainingJobName j > 0.5 in 1 m 00 s");
        assert_eq!((shown.badge.kind, shown.since_ms), ("failed", 1500));
        let shown = alarm(&json!({"Period": 10, "EvaluationPeriods": 3, "DatapointsToAlarm": 2}));
        assert!(shown.condition.ends_with("in 2 of 3 periods of 10 s"), "{}", shown.condition);
        let shown = alarm(&json!({"Period": 10, "EvaluationPeriods": 3}));
        assert!(shown.condition.ends_with("in 3 of 3 periods of 10 s"), "{}", shown.condition);
    }

    #[test]
    fn a_budget_is_spent_or_will_be() {
        let shown = |spent: &str, forecast: &str| {
            let spend = |amount| json!({"Amount": amount, "Unit": "USD"});
            let it = budget(&json!({"BudgetName": "b", "BudgetLimit": spend("10"), "TimeUnit": "MONTHLY",
                "CalculatedSpend": {"ActualSpend": spend(spent), "ForecastedSpend": spend(forecast)},
                "CostFilters": {"TagKeyValue": ["user:team$vision"]}}));
            (it.badge.word, it.share, it.counts)
        };
        assert_eq!(shown("2.5", "9"), ("OK", "25.0".to_owned(), "team=vision".to_owned()));
        assert_eq!(shown("2.5", "11").0, "Will not last");
        assert_eq!((shown("12", "20").0, &*shown("12", "20").1), ("Spent", "100.0"));
    }
}
