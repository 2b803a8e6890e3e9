//! `shoal budget`: limits on what training jobs cost or use.

use anyhow::Result;
use clap::{Args, Subcommand, ValueEnum};
use serde_json::{Value, json};
use shoal_wire::budgets::{AT_LIMIT_TAG, ROLE_FILTER, TAG_FILTER};

use crate::{
    client::{Client, ClientError},
    exit::{Exit, UsageError},
    output::{show, show_json, table},
    settings::ClientFlags,
};

/// Subcommands of `shoal budget`.
#[derive(Debug, Subcommand)]
pub(crate) enum BudgetCommand {
    /// Create a budget, or change it.
    Set(Box<SetArgs>),
    /// Show budgets and what is spent of each in its period.
    List(ListArgs),
    /// Delete a budget: nothing is limited by it any more.
    Delete {
        /// Budget's name.
        name: String,
        #[command(flatten)]
        settings: ClientFlags,
    },
}

/// Length of a period.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum Per {
    /// From midnight UTC.
    Day,
    /// Of the calendar.
    Month,
    /// Of the calendar.
    Quarter,
    /// Of the calendar.
    Year,
}

/// What happens when the limit is reached.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum AtLimit {
    /// Subscribers are notified.
    Notify,
    /// New jobs that the budget counts are refused, too.
    Refuse,
    /// Those that run are stopped, too, as StopTrainingJob stops them.
    Stop,
}

/// Arguments of `shoal budget set`.
#[derive(Debug, Args)]
pub(crate) struct SetArgs {
    /// Budget's name.
    name: String,
    /// US dollars in each period; hours of instances with --hours.
    #[arg(long, value_name = "AMOUNT")]
    limit: f64,
    /// The limit counts hours of instances, whatever they cost.
    #[arg(long)]
    hours: bool,
    /// Length of a period, in UTC.
    #[arg(long, value_enum, default_value = "month")]
    per: Per,
    /// Count jobs with this tag only; given several times, with one of them.
    #[arg(long, value_name = "KEY=VALUE")]
    tag: Vec<String>,
    /// Count jobs with this RoleArn only; given several times, with one of them.
    #[arg(long, value_name = "ARN")]
    role: Vec<String>,
    /// What happens when the limit is reached.
    #[arg(long, value_enum, default_value = "notify")]
    at_limit: AtLimit,
    /// Percent of the limit at which subscribers are notified.
    #[arg(long, value_name = "PERCENT", default_value = "100")]
    notify_at: f64,
    /// Compare the forecast of the period, not what is spent.
    #[arg(long)]
    forecast: bool,
    /// Notify this address.
    #[arg(long, value_name = "ADDRESS")]
    email: Vec<String>,
    /// Notify the subscribers of this SNS topic.
    #[arg(long, value_name = "ARN")]
    topic: Option<String>,
    #[command(flatten)]
    settings: ClientFlags,
}

/// Arguments of `shoal budget list`.
#[derive(Debug, Args)]
pub(crate) struct ListArgs {
    /// DescribeBudgets' answer as it is.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    settings: ClientFlags,
}

/// Does it.
pub(crate) fn run(command: &BudgetCommand) -> Result<Exit> {
    match command {
        BudgetCommand::Set(args) => set(args),
        BudgetCommand::List(args) => list(args),
        BudgetCommand::Delete { name, settings } => {
            let client = Client::connect(settings)?;
            client.budgets("DeleteBudget", &json!({"AccountId": settings.settings()?.account, "BudgetName": name}))?;
            Ok(Exit::Ok)
        }
    }
}

fn set(args: &SetArgs) -> Result<Exit> {
    let client = Client::connect(&args.settings)?;
    let account = args.settings.settings()?.account;
    let (budget, tags, notifications) = (budget(args)?, at_limit_tags(args), notifications(args));
    let create = json!({"AccountId": account, "Budget": budget, "ResourceTags": tags,
        "NotificationsWithSubscribers": notifications});
    match client.budgets("CreateBudget", &create) {
        Err(ClientError::Refused(error)) if error.code == "DuplicateRecordException" => {}
        created => return Ok(created.map(|_| Exit::Ok)?),
    }
    client.budgets("UpdateBudget", &json!({"AccountId": account, "NewBudget": budget}))?;
    let arn = format!("arn:aws:budgets::{account}:budget/{}", args.name);
    client.budgets("TagResource", &json!({"ResourceARN": arn, "ResourceTags": tags}))?;
    let named = json!({"AccountId": account, "BudgetName": args.name});
    let with = |members: &Value| {
        let mut input = named.clone();
        for (name, value) in members.as_object().into_iter().flatten() {
            input[name] = value.clone();
        }
        input
    };
    let present = client.budgets("DescribeNotificationsForBudget", &named)?;
    for notification in present["Notifications"].as_array().into_iter().flatten() {
        client.budgets("DeleteNotification", &with(&json!({"Notification": notification})))?;
    }
    for notification in &notifications {
        client.budgets("CreateNotification", &with(notification))?;
    }
    Ok(Exit::Ok)
}

fn budget(args: &SetArgs) -> Result<Value> {
    let mut filters = json!({});
    if !args.tag.is_empty() {
        let tags: Option<Vec<_>> = args.tag.iter().map(|tag| tag.split_once('=')).collect();
        let tags = tags.ok_or_else(|| UsageError("--tag is KEY=VALUE, such as team=vision".to_owned()))?;
        filters[TAG_FILTER] = tags.iter().map(|(key, value)| format!("user:{key}${value}")).collect();
    }
    if !args.role.is_empty() {
        filters[ROLE_FILTER] = json!(args.role);
    }
    let unit = match args.per {
        Per::Day => "DAILY",
        Per::Month => "MONTHLY",
        Per::Quarter => "QUARTERLY",
        Per::Year => "ANNUALLY",
    };
    Ok(json!({
        "BudgetName": args.name,
        "BudgetLimit": {"Amount": args.limit.to_string(), "Unit": if args.hours { "Hrs" } else { "USD" }},
        "CostFilters": filters,
        "TimeUnit": unit,
        "BudgetType": if args.hours { "USAGE" } else { "COST" },
    }))
}

fn at_limit_tags(args: &SetArgs) -> Value {
    let value = match args.at_limit {
        AtLimit::Notify => "notify",
        AtLimit::Refuse => "refuse",
        AtLimit::Stop => "stop",
    };
    json!([{"Key": AT_LIMIT_TAG, "Value": value}])
}

/// None without subscribers.
fn notifications(args: &SetArgs) -> Vec<Value> {
    let mails = args.email.iter().map(|address| json!({"SubscriptionType": "EMAIL", "Address": address}));
    let topics = args.topic.iter().map(|arn| json!({"SubscriptionType": "SNS", "Address": arn}));
    let subscribers: Vec<_> = mails.chain(topics).collect();
    if subscribers.is_empty() {
        return Vec::new();
    }
    let notification = json!({
        "NotificationType": if args.forecast { "FORECASTED" } else { "ACTUAL" },
        "ComparisonOperator": "GREATER_THAN",
        "Threshold": args.notify_at,
        "ThresholdType": "PERCENTAGE",
    });
    vec![json!({"Notification": notification, "Subscribers": subscribers})]
}

fn list(args: &ListArgs) -> Result<Exit> {
    let client = Client::connect(&args.settings)?;
    let account = args.settings.settings()?.account;
    let answer = client.budgets("DescribeBudgets", &json!({"AccountId": account, "MaxResults": 1000}))?;
    if args.json {
        show_json(&answer)?;
    } else {
        show(&text(&answer))?;
    }
    Ok(Exit::Ok)
}

fn text(answer: &Value) -> String {
    let budgets = answer["Budgets"].as_array().map_or(&[][..], Vec::as_slice);
    if budgets.is_empty() {
        return "There is no budget; `shoal budget set NAME --limit 100` creates one.\n".to_owned();
    }
    let mut rows = vec![["BUDGET", "PER", "LIMIT", "SPENT", "FORECAST", "COUNTS"].map(str::to_owned).to_vec()];
    rows.extend(budgets.iter().map(|budget| {
        let amount = |spend: &Value| {
            let number: f64 = spend["Amount"].as_str().and_then(|text| text.parse().ok()).unwrap_or_default();
            format!("{number:.2} {}", spend["Unit"].as_str().unwrap_or_default())
        };
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let (spent, filters) = (&budget["CalculatedSpend"], budget["CostFilters"].as_object());
        let values = filters.into_iter().flatten().flat_map(|(_, values)| values.as_array().into_iter().flatten());
        let counts: Vec<_> = values.map(|value| text(value).replace("user:", "").replacen('$', "=", 1)).collect();
        vec![
            text(&budget["BudgetName"]),
            text(&budget["TimeUnit"]).to_lowercase(),
            amount(&budget["BudgetLimit"]),
            amount(&spent["ActualSpend"]),
            amount(&spent["ForecastedSpend"]),
            if counts.is_empty() { "all jobs".to_owned() } else { counts.join(", ") },
        ]
    }));
    table(&rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn budgets_are_a_table() {
        let spend = |amount: &str| json!({"Amount": amount, "Unit": "USD"});
        let budget = json!({"BudgetName": "a", "TimeUnit": "MONTHLY", "BudgetLimit": spend("10"),
            "CalculatedSpend": {"ActualSpend": spend("2.5"), "ForecastedSpend": spend("7.125")},
            "CostFilters": {TAG_FILTER: ["user:team$vision"]}});
        let shown = text(&json!({"Budgets": [budget]}));
        let words: Vec<_> = shown.lines().nth(1).unwrap().split_whitespace().collect();
        assert_eq!(words, ["a", "monthly", "10.00", "USD", "2.50", "USD", "7.12", "USD", "team=vision"]);
        assert!(text(&json!({})).contains("shoal budget set"));
    }
}
