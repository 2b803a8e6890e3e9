//! `Search`: conditions over the properties of jobs and of what experiments consist of, typed and
//! checked; the holder of the records evaluates them.

mod properties;

use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::{
    Call, Error, Input, Reply, SortOrder, Tag, TrainingJobDescription, call::read, constraints, refusal::refuse,
    reply::object, shape::Shape, tags, timestamp, training_job,
};
use properties::Kind;
pub use properties::{PropertyValue, properties};

/// Filters, nested filters and expressions in one request, at most.
const MOST_PARTS: usize = 50;
/// Results on a page by default.
const DEFAULT_RESULTS: u32 = 10;

/// A `Search` that passed every check which needs no state.
#[derive(Debug, Clone, PartialEq)]
pub struct Search {
    /// What is searched for.
    pub resource: SearchResource,
    /// What results must meet.
    pub condition: Condition<String>,
    /// A property's path.
    pub sort_by: String,
    /// Of the results.
    pub sort_order: SortOrder,
    /// From the page before.
    pub next_token: Option<String>,
    /// 1 to 100.
    pub max_results: u32,
}

/// `Resource` of a search.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
pub enum SearchResource {
    /// Training jobs.
    TrainingJob,
    /// Hyperparameter tuning jobs.
    TuningJob,
    /// Experiments.
    Experiment,
    /// Trials of experiments.
    Trial,
    /// Trial components: runs, and those of training jobs.
    TrialComponent,
    /// What Shoal has none of: endpoints, pipelines and the like.
    Other,
}

impl SearchResource {
    fn of(name: &str) -> Self {
        match name {
            "TrainingJob" => Self::TrainingJob,
            "HyperParameterTuningJob" => Self::TuningJob,
            "Experiment" => Self::Experiment,
            "ExperimentTrial" => Self::Trial,
            "ExperimentTrialComponent" => Self::TrialComponent,
            _ => Self::Other,
        }
    }

    /// The member of a result that has the record.
    fn member(self) -> &'static str {
        match self {
            Self::TuningJob => "HyperParameterTuningJob",
            Self::Experiment => "Experiment",
            Self::Trial => "Trial",
            Self::TrialComponent => "TrialComponent",
            Self::TrainingJob | Self::Other => "TrainingJob",
        }
    }

    fn plural(self) -> &'static str {
        match self {
            Self::TuningJob => "tuning jobs",
            Self::Experiment => "experiments",
            Self::Trial => "trials",
            Self::TrialComponent => "trial components",
            Self::TrainingJob | Self::Other => "training jobs",
        }
    }

    /// What a record of it is.
    fn shape(self) -> &'static Shape {
        match self {
            Self::TuningJob => constraints::tuning_job(),
            Self::Experiment => constraints::experiment(),
            Self::Trial => constraints::trial(),
            Self::TrialComponent => constraints::trial_component(),
            Self::TrainingJob | Self::Other => constraints::training_job(),
        }
    }

    /// Whether a property is a name (or has one) that is the same in any case: the SDKs write the
    /// names of experiments in lower case, however they were created.
    fn ignores_case(self, path: &str) -> bool {
        const NAMES: [&str; 5] = ["ExperimentName", "TrialName", "TrialComponentName", "RunName", "SourceArn"];
        let last = path.rsplit_once('.').map_or(path, |(_, last)| last);
        matches!(self, Self::Experiment | Self::Trial | Self::TrialComponent) && NAMES.contains(&last)
    }

    /// The path of a property as records have it. AWS's examples write `metrics.loss.min` of trial
    /// components, and `Metrics.loss.Min`.
    fn path(self, given: String) -> String {
        if self == Self::TrialComponent { properties::of_component(self.shape(), &given) } else { given }
    }
}

/// A condition over a record's properties. `P` names a property: by its path, or by whatever the
/// holder of the records knows it. A path that ends in a dot stands for all properties below it.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub enum Condition<P> {
    /// All of these hold; so does an empty list.
    All(Vec<Self>),
    /// One of these holds.
    Any(Vec<Self>),
    /// A property, any of its values if it has several, passes a test.
    Property(P, Test),
    /// One item of a list passes all tests of its properties.
    Item(Vec<(P, Test)>),
}

/// A test of a property's values: whether one of them is wanted, or, negated, whether none is.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct Test {
    /// The opposite is asked.
    pub negated: bool,
    /// Which values pass.
    pub wanted: Wanted,
}

/// Which values pass a test.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub enum Wanted {
    /// Whatever is there.
    Anything,
    /// This text.
    Text(String),
    /// This text, whatever the case of its letters.
    Name(String),
    /// Texts that contain this.
    Part(String),
    /// One of these texts.
    OneOf(Vec<String>),
    /// Numbers, and texts that are numbers.
    Number {
        /// How the property's value stands to `value`.
        comparison: Comparison,
        /// Seconds since the epoch for times.
        value: f64,
        /// The property's value is cut to a whole number first.
        whole: bool,
    },
}

/// How two numbers stand to each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
pub enum Comparison {
    /// `==`
    Equal,
    /// `>`
    Greater,
    /// `>=`
    GreaterOrEqual,
    /// `<`
    Less,
    /// `<=`
    LessOrEqual,
}

impl Comparison {
    fn holds(self, left: f64, right: f64) -> bool {
        match self {
            Self::Equal => left == right,
            Self::Greater => left > right,
            Self::GreaterOrEqual => left >= right,
            Self::Less => left < right,
            Self::LessOrEqual => left <= right,
        }
    }
}

impl Wanted {
    /// Whether this value passes.
    pub fn passes(&self, found: PropertyValue<'_>) -> bool {
        match (self, found) {
            (Self::Anything, _) => true,
            (Self::Text(wanted), PropertyValue::Text(found)) => found == wanted,
            (Self::Name(wanted), PropertyValue::Text(found)) => found.eq_ignore_ascii_case(wanted),
            (Self::Part(part), PropertyValue::Text(found)) => found.contains(part.as_str()),
            (Self::OneOf(choices), PropertyValue::Text(found)) => choices.iter().any(|choice| choice == found),
            (Self::Number { comparison, value, whole }, found) => found.number().is_some_and(|number| {
                let number = if *whole { number.trunc() } else { number };
                comparison.holds(number, *value)
            }),
            _ => false,
        }
    }
}

impl<P> Condition<P> {
    /// The same with other names of the properties.
    pub fn rename<Q>(self, name: &mut impl FnMut(P) -> Q) -> Condition<Q> {
        match self {
            Self::All(parts) => Condition::All(parts.into_iter().map(|part| part.rename(name)).collect()),
            Self::Any(parts) => Condition::Any(parts.into_iter().map(|part| part.rename(name)).collect()),
            Self::Property(property, test) => Condition::Property(name(property), test),
            Self::Item(tests) => {
                Condition::Item(tests.into_iter().map(|(property, test)| (name(property), test)).collect())
            }
        }
    }
}

/// A training job as `Search` gives it: what Describe says, and its tags.
pub fn search_record(request: Map<String, Value>, description: &TrainingJobDescription, tags: &[Tag]) -> Value {
    let mut record = training_job::describe(request, description);
    record["Tags"] = tags::to_json(tags);
    record
}

impl Reply {
    /// `Search`: one page of [`search_record`]s or [`crate::tuning_search_record`]s, and how many
    /// there are on all pages.
    pub fn search(resource: SearchResource, records: Vec<Value>, next_token: Option<&str>, total: u64) -> Self {
        let results = records.into_iter().map(|record| object(resource.member(), record));
        Self::page("Results", results, "NextToken", next_token)
            .with("TotalHits", json!({"Value": total, "Relation": "EqualTo"}))
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct SearchRequest {
    resource: String,
    search_expression: Option<SearchExpression>,
    sort_by: Option<String>,
    sort_order: Option<SortOrder>,
    next_token: Option<String>,
    max_results: Option<u32>,
    cross_account_filter_option: Option<String>,
    #[serde(default)]
    visibility_conditions: Vec<VisibilityCondition>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct SearchExpression {
    #[serde(default)]
    filters: Vec<Filter>,
    #[serde(default)]
    nested_filters: Vec<NestedFilters>,
    #[serde(default)]
    sub_expressions: Vec<SearchExpression>,
    operator: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Filter {
    name: String,
    operator: Option<String>,
    value: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct NestedFilters {
    nested_property_name: String,
    filters: Vec<Filter>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct VisibilityCondition {
    key: Option<String>,
    value: Option<String>,
}

impl Input for Search {
    fn read(call: Call) -> Result<Self, Error> {
        read::<SearchRequest>(call.input)?.check()
    }
}

impl SearchRequest {
    /// Checks only conditions on resources that exist here.
    fn check(self) -> Result<Search, Error> {
        let resource = SearchResource::of(&self.resource);
        let mut search = Search {
            resource,
            condition: Condition::All(Vec::new()),
            sort_by: resource.path(self.sort_by.unwrap_or_else(|| "LastModifiedTime".to_owned())),
            sort_order: self.sort_order.unwrap_or(SortOrder::Descending),
            next_token: self.next_token,
            max_results: self.max_results.unwrap_or(DEFAULT_RESULTS),
        };
        if resource == SearchResource::Other {
            return Ok(search);
        }
        let mut conditions = Vec::new();
        if self.cross_account_filter_option.as_deref() == Some("CrossAccount") {
            // There is one account, so nothing is shared by others.
            conditions.push(Condition::Any(Vec::new()));
        }
        if let Some(expression) = self.search_expression {
            let mut count = Count { resource, parts: 0, contains: 0 };
            conditions.push(expression.check("searchExpression", &mut count)?);
        }
        for (at, visible) in self.visibility_conditions.into_iter().enumerate() {
            conditions.push(visible.check(&format!("visibilityConditions.{}.member", at + 1))?);
        }
        if matches!(properties::kind(resource.shape(), &search.sort_by), None | Some(Kind::Container)) {
            return refuse(
                "sortBy",
                &format!("{} have no property '{}' to sort by", resource.plural(), search.sort_by),
            );
        }
        search.condition = Condition::All(conditions);
        Ok(search)
    }
}

/// What a request has used of its limits.
struct Count {
    resource: SearchResource,
    parts: usize,
    contains: usize,
}

impl Count {
    fn part(&mut self) -> Result<(), Error> {
        self.parts += 1;
        if self.parts > MOST_PARTS {
            return refuse(
                "searchExpression",
                &format!("it has more than {MOST_PARTS} filters, nested filters and subexpressions"),
            );
        }
        Ok(())
    }
}

impl SearchExpression {
    fn check(self, path: &str, count: &mut Count) -> Result<Condition<String>, Error> {
        let mut parts = Vec::new();
        for (at, filter) in self.filters.into_iter().enumerate() {
            let (property, test) = filter.check(&format!("{path}.filters.{}.member", at + 1), count)?;
            parts.push(Condition::Property(property, test));
        }
        for (at, nested) in self.nested_filters.into_iter().enumerate() {
            parts.push(nested.check(&format!("{path}.nestedFilters.{}.member", at + 1), count)?);
        }
        for (at, expression) in self.sub_expressions.into_iter().enumerate() {
            count.part()?;
            parts.push(expression.check(&format!("{path}.subExpressions.{}.member", at + 1), count)?);
        }
        if parts.is_empty() {
            return refuse(path, "give at least one of Filters, NestedFilters and SubExpressions");
        }
        Ok(if self.operator.as_deref() == Some("Or") { Condition::Any(parts) } else { Condition::All(parts) })
    }
}

impl NestedFilters {
    fn check(self, path: &str, count: &mut Count) -> Result<Condition<String>, Error> {
        count.part()?;
        let list = self.nested_property_name;
        let mut tests = Vec::new();
        for (at, filter) in self.filters.into_iter().enumerate() {
            let path = format!("{path}.filters.{}.member", at + 1);
            if properties::list_of(count.resource.shape(), &filter.name).as_deref() != Some(list.as_str()) {
                return refuse(
                    &format!("{path}.name"),
                    &format!("'{}' is not a property of the items of the list '{list}'", filter.name),
                );
            }
            tests.push(filter.check(&path, count)?);
        }
        Ok(Condition::Item(tests))
    }
}

impl VisibilityCondition {
    /// A resource without the tag is visible, too.
    fn check(self, path: &str) -> Result<Condition<String>, Error> {
        let key = self.key.unwrap_or_default();
        if key.strip_prefix("Tags.").is_none_or(str::is_empty) {
            return refuse(&format!("{path}.key"), &format!("'{key}' is not of the form Tags.<key>"));
        }
        let absent = Test { negated: true, wanted: Wanted::Anything };
        let equal = Test { negated: false, wanted: Wanted::Text(self.value.unwrap_or_default()) };
        Ok(Condition::Any(vec![Condition::Property(key.clone(), absent), Condition::Property(key, equal)]))
    }
}

impl Filter {
    fn check(self, path: &str, count: &mut Count) -> Result<(String, Test), Error> {
        count.part()?;
        let name = count.resource.path(self.name);
        let Some(kind) = properties::kind(count.resource.shape(), &name) else {
            let plural = count.resource.plural();
            return refuse(&format!("{path}.name"), &format!("{plural} have no property '{name}' to search by"));
        };
        let operator = match (self.operator.as_deref(), &self.value) {
            (Some(operator), _) => operator,
            (None, Some(_)) => "Equals",
            (None, None) => return refuse(path, "a filter needs an Operator or a Value"),
        };
        let negated = matches!(operator, "NotEquals" | "NotExists");
        let wanted = match (operator, self.value) {
            ("Exists" | "NotExists", _) => Wanted::Anything,
            (operator, Some(value)) => {
                if operator == "Contains" {
                    count.contains += 1;
                    if count.contains > 1 {
                        return Err(Error::validation("'CONTAINS' operator usage limit of 1 exceeded."));
                    }
                }
                wanted(operator, &name, kind, value).or_else(|what| refuse(path, &what))?
            }
            (operator, None) => {
                return refuse(&format!("{path}.value"), &format!("the operator {operator} needs a value"));
            }
        };
        let wanted = match wanted {
            Wanted::Text(text) if count.resource.ignores_case(&name) => Wanted::Name(text),
            other => other,
        };
        let property = if kind == Kind::Container { format!("{name}.") } else { name };
        Ok((property, Test { negated, wanted }))
    }
}

/// What an operator with its value asks of a property; in the error, why it cannot.
fn wanted(operator: &str, name: &str, kind: Kind, value: String) -> Result<Wanted, String> {
    let comparison = match operator {
        "Equals" | "NotEquals" => Comparison::Equal,
        "GreaterThan" => Comparison::Greater,
        "GreaterThanOrEqualTo" => Comparison::GreaterOrEqual,
        "LessThan" => Comparison::Less,
        "LessThanOrEqualTo" => Comparison::LessOrEqual,
        other => {
            let is_text = matches!(kind, Kind::Text | Kind::TextOrNumber);
            return match other {
                _ if !is_text => Err(format!("the operator {other} is for text properties only, and '{name}' is none")),
                "Contains" => Ok(Wanted::Part(value)),
                _ => Ok(Wanted::OneOf(value.split(',').map(|choice| choice.trim().to_owned()).collect())),
            };
        }
    };
    let number = value.trim().parse::<f64>().ok().filter(|number| number.is_finite());
    let equality = comparison == Comparison::Equal;
    let ordered = |what: &str| format!("the operator {operator} is not supported for the {what} property '{name}'");
    match kind {
        Kind::Container => {
            let below = properties::members_below(name).iter().map(|member| format!("{name}.{member}"));
            let below = Vec::from_iter(below).join(", ");
            let below = if below.is_empty() { below } else { format!(" ({below})") };
            Err(format!("'{name}' has properties of its own{below}; only Exists and NotExists are for it"))
        }
        Kind::Text if equality => Ok(Wanted::Text(value)),
        Kind::Text => Err(ordered("text")),
        Kind::Boolean if !equality => Err(ordered("Boolean")),
        Kind::Boolean => match value.to_lowercase() {
            value if value == "true" || value == "false" => Ok(Wanted::Text(value)),
            _ => Err(format!("'{value}' is not true or false, which is what the property '{name}' is")),
        },
        Kind::Number => match number {
            Some(value) => Ok(Wanted::Number { comparison, value, whole: false }),
            None => Err(format!("'{value}' is not a number, which is what the property '{name}' is")),
        },
        Kind::TextOrNumber => match number {
            Some(number) => {
                Ok(Wanted::Number { comparison, value: number, whole: value.trim().parse::<i64>().is_ok() })
            }
            None if equality => Ok(Wanted::Text(value)),
            None => Err(format!("'{value}' is not a number, and the operator {operator} compares numbers")),
        },
        Kind::Time => {
            // Without an offset a time is UTC.
            let ms = timestamp::parse(&value).or_else(|| timestamp::parse(&format!("{value}Z")));
            let ms = ms.ok_or_else(|| {
                format!("'{value}' is not an ISO 8601 time such as 2026-11-21T07:24:28, and '{name}' is a time")
            })?;
            Ok(Wanted::Number { comparison, value: ms as f64 / 1000.0, whole: equality && ms % 1000 == 0 })
        }
    }
}

#[cfg(test)]
mod tests;
