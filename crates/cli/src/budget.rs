//! `shoal budget`: limits on what training jobs cost or use.

use anyhow::Result;
use clap::{Args, Subcommand, ValueEnum};
use serde_json::{Value, json};
use shoal_wire::budgets::{AT_LIMIT_TAG, ROLE_FILTER, TAG_FILTER};

use crate::{
    client::{Client, ClientError},
    exit::{Exit, UsageError},
    output::{amount, show, show_json, table},
    settings::ClientFlags,
};

/// Percent of the limit at which subscribers are notified by default.
const AT_LIMIT: f64 = 100.0;

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
    #[arg(long, value_name = "AMOUNT", allow_negative_numbers = true)]
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
    /// Percent of the limit at which subscribers (--email, --topic) are notified [default: 100].
    #[arg(long, value_name = "PERCENT", allow_negative_numbers = true)]
    notify_at: Option<f64>,
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

/// What the service would accept, and would do nothing.
fn check(args: &SetArgs) -> Result<(), UsageError> {
    let refuse = |text: String| Err(UsageError(text));
    if !args.limit.is_finite() || args.limit <= 0.0 {
        return refuse(format!("--limit {}: it must be more than 0", args.limit));
    }
    if let Some(at) = args.notify_at {
        if !at.is_finite() || at <= 0.0 {
            return refuse(format!("--notify-at {at}: it must be a percentage of more than 0"));
        }
        if args.email.is_empty() && args.topic.is_none() {
            return refuse(format!("--notify-at {at} notifies without a subscriber: give --email or --topic, too"));
        }
    }
    if let Some(role) = args.role.iter().find(|role| !(role.starts_with("arn:") && role.contains(":role/"))) {
        return refuse(format!("--role {role}: it must be a RoleArn, such as arn:aws:iam::123456789012:role/shoal"));
    }
    if let Some(topic) = args.topic.as_ref().filter(|topic| !topic.starts_with("arn:aws:sns:")) {
        return refuse(format!("--topic {topic}: it must be a topic's ARN, as CreateTopic of SNS answers it"));
    }
    Ok(())
}

fn set(args: &SetArgs) -> Result<Exit> {
    check(args)?;
    let client = Client::connect(&args.settings)?;
    let account = args.settings.settings()?.account;
    let (budget, tags, notifications) = (budget(args)?, at_limit_tags(args), notifications(args));
    let create = json!({"AccountId": account, "Budget": budget, "ResourceTags": tags,
        "NotificationsWithSubscribers": notifications});
    match client.budgets("CreateBudget", &create) {
        Err(ClientError::Refused(error)) if error.code == "DuplicateRecordException" => {}
        created => {
            created?;
            show(&sentence(args, "created"))?;
            return Ok(Exit::Ok);
        }
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
    show(&sentence(args, "changed"))?;
    Ok(Exit::Ok)
}

/// What the budget does from now on.
fn sentence(args: &SetArgs, done: &str) -> String {
    let unit = if args.hours { "instance hours" } else { "USD" };
    let per = match args.per {
        Per::Day => "day",
        Per::Month => "month",
        Per::Quarter => "quarter",
        Per::Year => "year",
    };
    let counts: Vec<_> = args.tag.iter().chain(&args.role).map(String::as_str).collect();
    let counts = if counts.is_empty() { "all jobs".to_owned() } else { format!("jobs with {}", counts.join(" or ")) };
    let at_limit = match args.at_limit {
        AtLimit::Notify => "nothing is refused or stopped",
        AtLimit::Refuse => "new jobs are refused",
        AtLimit::Stop => "new jobs are refused and running ones stopped",
    };
    let subscribers: Vec<_> = args.email.iter().chain(&args.topic).map(String::as_str).collect();
    let notified = match subscribers.is_empty() {
        true => "no one is notified".to_owned(),
        false => format!("{} are notified at {} %", subscribers.join(", "), args.notify_at.unwrap_or(AT_LIMIT)),
    };
    format!(
        "The budget {} is {done}: {} {unit} a {per} for {counts}; at the limit {at_limit}; {notified}.\n",
        args.name, args.limit
    )
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
        "Threshold": args.notify_at.unwrap_or(AT_LIMIT),
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
        let budgets = answer["Budgets"].as_array().into_iter().flatten();
        let details = budgets.map(|budget| Details::of(&client, &account, &budget["BudgetName"]));
        show(&text(&answer, &details.collect::<Result<Vec<_>>>()?))?;
    }
    Ok(Exit::Ok)
}

/// What DescribeBudgets does not answer.
#[derive(Debug, Default)]
struct Details {
    at_limit: String,
    /// Thresholds with subscribers.
    notifies: String,
}

impl Details {
    fn of(client: &Client, account: &str, name: &Value) -> Result<Self> {
        let arn = format!("arn:aws:budgets::{account}:budget/{}", name.as_str().unwrap_or_default());
        let tags = client.budgets("ListTagsForResource", &json!({"ResourceARN": arn}))?;
        let tag = tags["ResourceTags"].as_array().into_iter().flatten().find(|tag| tag["Key"] == AT_LIMIT_TAG);
        let named = json!({"AccountId": account, "BudgetName": name});
        let mut notifies = Vec::new();
        let found = client.budgets("DescribeNotificationsForBudget", &named)?;
        for notification in found["Notifications"].as_array().into_iter().flatten() {
            let mut input = named.clone();
            input["Notification"] = notification.clone();
            let found = client.budgets("DescribeSubscribersForNotification", &input)?;
            let subscribers = found["Subscribers"].as_array().into_iter().flatten();
            let addresses: Vec<_> = subscribers.filter_map(|it| it["Address"].as_str()).collect();
            notifies.push(format!("{} at {} %", addresses.join(", "), notification["Threshold"]));
        }
        let at_limit = tag.and_then(|tag| tag["Value"].as_str()).unwrap_or("notify").to_owned();
        Ok(Self { at_limit, notifies: notifies.join("; ") })
    }
}

fn text(answer: &Value, details: &[Details]) -> String {
    let budgets = answer["Budgets"].as_array().map_or(&[][..], Vec::as_slice);
    if budgets.is_empty() {
        return "There is no budget; `shoal budget set NAME --limit 100` creates one.\n".to_owned();
    }
    let heads = ["BUDGET", "PER", "LIMIT", "SPENT", "FORECAST", "COUNTS", "AT LIMIT", "NOTIFIES"];
    let mut rows = vec![heads.map(str::to_owned).to_vec()];
    rows.extend(budgets.iter().zip(details).map(|(budget, details)| {
        let amount = |spend: &Value| {
            let number: f64 = spend["Amount"].as_str().and_then(|text| text.parse().ok()).unwrap_or_default();
            format!("{} {}", amount(number), spend["Unit"].as_str().unwrap_or_default())
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
            details.at_limit.clone(),
            if details.notifies.is_empty() { "-".to_owned() } else { details.notifies.clone() },
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
        let details = Details { at_limit: "refuse".to_owned(), notifies: "me@x.org at 80.0 %".to_owned() };
        let shown = text(&json!({"Budgets": [budget]}), &[details]);
        let words: Vec<_> = shown.lines().nth(1).unwrap().split_whitespace().collect();
        assert_eq!(
            words,
            [
                "a",
                "monthly",
                "10.00",
                "USD",
                "2.50",
                "USD",
                "7.12",
                "USD",
                "team=vision",
                "refuse",
                "me@x.org",
                "at",
                "80.0",
                "%"
            ]
        );
        assert!(text(&json!({}), &[]).contains("shoal budget set"));
    }

    fn set_args(given: &[&str]) -> SetArgs {
        #[derive(Debug, clap::Parser)]
        struct Line {
            #[command(flatten)]
            args: SetArgs,
        }
        <Line as clap::Parser>::parse_from(["shoal", "b"].iter().chain(given)).args
    }

    #[test]
    fn what_would_do_nothing_is_refused() {
        let refused = |given: &[&str]| check(&set_args(given)).map_err(|error| error.0).expect_err("a mistake");
        assert_eq!(refused(&["--limit", "-5"]), "--limit -5: it must be more than 0");
        assert!(refused(&["--limit", "5", "--role", "me"]).contains("must be a RoleArn"));
        assert!(refused(&["--limit", "5", "--topic", "jobs"]).contains("a topic's ARN"));
        assert!(refused(&["--limit", "5", "--notify-at", "80"]).contains("give --email or --topic"));
        assert!(refused(&["--limit", "5", "--notify-at", "0", "--email", "me@x.org"]).contains("more than 0"));
        let args = set_args(&["--limit", "5", "--tag", "team=a", "--email", "me@x.org", "--at-limit", "stop"]);
        assert!(check(&args).is_ok());
        assert_eq!(
            sentence(&args, "created"),
            "The budget b is created: 5 USD a month for jobs with team=a; at the limit new jobs are refused and running \
             ones stopped; me@x.org are notified at 100 %.\n"
        );
    }
}
