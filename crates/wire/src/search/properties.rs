//! The properties of what is searched for: their paths, kinds and values.

use serde_json::Value;

use crate::{constraints, shape::Shape};

/// What a property's values are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Text,
    Number,
    Time,
    Boolean,
    /// Hyperparameters: texts, compared as numbers where they are some.
    TextOrNumber,
    /// It has properties of its own.
    Container,
}

/// A value of a property.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum PropertyValue<'a> {
    /// Texts, and `true` and `false`.
    Text(&'a str),
    /// Numbers; seconds since the epoch for times.
    Number(f64),
}

impl PropertyValue<'_> {
    /// The number that it is or spells.
    pub fn number(self) -> Option<f64> {
        match self {
            Self::Text(text) => text.trim().parse().ok().filter(|number: &f64| number.is_finite()),
            Self::Number(number) => Some(number),
        }
    }
}

/// The one list that is not searched: its times and messages would be half of all there is to look
/// through.
const UNSEARCHED: &str = "SecondaryStatusTransitions";

/// What a trial component has of each metric.
const STATISTICS: [&str; 7] = ["Max", "Min", "Avg", "Last", "Count", "StdDev", "TimeStamp"];

/// Maps of a trial component whose values are structures, and the members of those.
const MAPS: [(&str, &[&str]); 3] = [
    ("Parameters", &["NumberValue", "StringValue"]),
    ("InputArtifacts", &["Value", "MediaType"]),
    ("OutputArtifacts", &["Value", "MediaType"]),
];

/// What a path of a trial component has below it: members of a parameter, an artifact or a metric.
pub(super) fn members_below(path: &str) -> &'static [&'static str] {
    let Some((first, name)) = path.split_once('.').filter(|(_, name)| !name.is_empty()) else { return &[] };
    match MAPS.iter().find(|(map, _)| *map == first) {
        Some((_, members)) => members,
        None if first == "Metrics" && !name.contains('.') => &STATISTICS,
        None => &[],
    }
}

/// A path of a trial component's property, whatever the case of its first name and of the last one
/// below a metric, parameter or artifact.
pub(super) fn of_component(record: &'static Shape, path: &str) -> String {
    let (first, rest) = path.split_once('.').map_or((path, None), |(first, rest)| (first, Some(rest)));
    let Shape::Structure(members) = record else { return path.to_owned() };
    let member = members.iter().map(|member| member.name).find(|name| name.eq_ignore_ascii_case(first));
    let first = member.unwrap_or(first);
    match (rest, rest.and_then(|rest| rest.rsplit_once('.'))) {
        (None, _) => first.to_owned(),
        (_, Some((name, last))) => {
            let known = below(first).iter().find(|known| known.eq_ignore_ascii_case(last));
            format!("{first}.{name}.{}", known.unwrap_or(&last))
        }
        (Some(rest), None) => format!("{first}.{rest}"),
    }
}

/// What each entry of this member of a trial component has.
fn below(member: &str) -> &'static [&'static str] {
    let map = MAPS.iter().find(|(map, _)| *map == member).map(|(_, members)| *members);
    map.unwrap_or(if member == "Metrics" { &STATISTICS } else { &[] })
}

/// The kind of a property of a metric, a parameter or an artifact of a trial component, below the
/// member of this name; one of these alone has properties.
fn kind_in_component(member: &str, path: &str) -> Option<Kind> {
    if path.is_empty() {
        return None;
    }
    let last = path.rsplit_once('.').map(|(_, last)| last).filter(|last| below(member).contains(last));
    Some(match last {
        None => Kind::Container,
        Some("TimeStamp") => Kind::Time,
        Some("StringValue" | "Value" | "MediaType") => Kind::Text,
        Some(_) => Kind::Number,
    })
}

/// The kind of the property at a path; `None` if such records have none there that is searched.
pub(super) fn kind(record: &'static Shape, path: &str) -> Option<Kind> {
    if path.split('.').next() == Some(UNSEARCHED) {
        return None;
    }
    let is_component = std::ptr::eq(record, constraints::trial_component());
    match path.split_once('.') {
        Some((member, rest)) if is_component && !below(member).is_empty() => return kind_in_component(member, rest),
        Some(("Tags", key)) => return (!key.is_empty()).then_some(Kind::Text),
        Some(("Metrics", name)) => return (!name.is_empty()).then_some(Kind::Number),
        Some(("HyperParameters", name)) => return (!name.is_empty()).then_some(Kind::TextOrNumber),
        _ => {}
    }
    Some(match walk(record, path)?.0 {
        Shape::Structure(_) | Shape::Map { .. } => Kind::Container,
        Shape::List { member: Shape::String { .. } | Shape::Enum(_), .. } | Shape::String { .. } | Shape::Enum(_) => {
            Kind::Text
        }
        Shape::List { .. } => Kind::Container,
        Shape::Number { .. } => Kind::Number,
        Shape::Boolean => Kind::Boolean,
        Shape::Timestamp => Kind::Time,
    })
}

/// The list whose items have this property: the outermost one on its path.
pub(super) fn list_of(record: &'static Shape, path: &str) -> Option<String> {
    walk(record, path)?.1
}

/// The shape at a path, and the outermost list above it.
fn walk(record: &'static Shape, path: &str) -> Option<(&'static Shape, Option<String>)> {
    let mut shape = record;
    let mut list = None;
    let mut rest = path;
    loop {
        if let Shape::List { member, .. } = shape {
            list = list.or_else(|| Some(path[..path.len() - rest.len() - 1].to_owned()));
            shape = member;
        }
        let (name, below) = rest.split_once('.').map_or((rest, None), |(name, below)| (name, Some(below)));
        shape = match shape {
            Shape::Structure(members) => members.iter().find(|member| member.name == name)?.shape,
            // A key may have dots.
            Shape::Map { value, .. } => return Some((value, list)),
            _ => return None,
        };
        match below {
            Some(below) => rest = below,
            None => return Some((shape, list)),
        }
    }
}

/// Every property of a record ([`crate::search_record`], [`crate::tuning_search_record`]): its
/// path, the number from 1 of its item if it is below a list (else 0), its value.
pub fn properties(record: &Value, each: &mut dyn FnMut(&str, usize, PropertyValue<'_>)) {
    let Value::Object(members) = record else { return };
    for (name, value) in members {
        match name.as_str() {
            UNSEARCHED => {}
            "Tags" => pairs(value, "Tags", "Key", "Value", each),
            "FinalMetricDataList" => {
                pairs(value, "Metrics", "MetricName", "Value", each);
                descend(value, &mut name.clone(), 0, each);
            }
            // Only trial components have metrics as a list.
            "Metrics" => {
                for metric in value.as_array().into_iter().flatten() {
                    let Some(name) = metric["MetricName"].as_str() else { continue };
                    for statistic in STATISTICS {
                        descend(&metric[statistic], &mut format!("Metrics.{name}.{statistic}"), 0, each);
                    }
                }
            }
            _ => descend(value, &mut name.clone(), 0, each),
        }
    }
}

/// A list of names with values as properties of those names.
fn pairs(list: &Value, path: &str, name: &str, value: &str, each: &mut dyn FnMut(&str, usize, PropertyValue<'_>)) {
    for item in list.as_array().into_iter().flatten() {
        if let Some(name) = item[name].as_str() {
            descend(&item[value], &mut format!("{path}.{name}"), 0, each);
        }
    }
}

fn descend(value: &Value, path: &mut String, item: usize, each: &mut dyn FnMut(&str, usize, PropertyValue<'_>)) {
    match value {
        Value::Null => {}
        Value::Bool(value) => each(path, item, PropertyValue::Text(if *value { "true" } else { "false" })),
        Value::Number(number) => each(path, item, PropertyValue::Number(number.as_f64().unwrap_or_default())),
        Value::String(text) => each(path, item, PropertyValue::Text(text)),
        Value::Array(items) => {
            for (at, inner) in items.iter().enumerate() {
                descend(inner, path, if item == 0 { at + 1 } else { item }, each);
            }
        }
        Value::Object(members) => {
            let length = path.len();
            for (name, inner) in members {
                path.push('.');
                path.push_str(name);
                descend(inner, path, item, each);
                path.truncate(length);
            }
        }
    }
}
