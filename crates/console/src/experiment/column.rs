//! Columns of a table of runs: their names in addresses, the properties that they show, and how
//! values look.

use std::fmt;

use shoal_wire::arn;

use crate::{
    Cell, amounts,
    status::{Badge, run_badge},
};

/// What a column shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Name,
    Status,
    Created,
    Modified,
    Started,
    Ended,
    Trial,
    Tuning,
    Parameter,
    Last,
    Min,
    Max,
    Mean,
    Tag,
}

/// Kinds of which there is one column: in addresses, as a heading.
const SINGLE: [(Kind, &str, &str); 8] = [
    (Kind::Name, "name", "Name"),
    (Kind::Status, "status", "Status"),
    (Kind::Created, "created", "Created"),
    (Kind::Modified, "modified", "Modified"),
    (Kind::Started, "started", "Started"),
    (Kind::Ended, "ended", "Ended"),
    (Kind::Trial, "trial", "Trial"),
    (Kind::Tuning, "tuning", "Tuning job"),
];
/// Kinds of which there is one column for each parameter, metric or tag: in addresses, the
/// statistic behind the name.
const NAMED: [(Kind, &str, &str); 6] = [
    (Kind::Parameter, "param", ""),
    (Kind::Last, "last", ""),
    (Kind::Min, "min", "min"),
    (Kind::Max, "max", "max"),
    (Kind::Mean, "mean", "mean"),
    (Kind::Tag, "tag", ""),
];

/// A column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Column {
    pub(crate) kind: Kind,
    /// Of a parameter, metric or tag.
    pub(crate) name: String,
}

/// A value as a page shows it.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Shown {
    pub(crate) text: String,
    /// The exact value, where the text is shorter.
    pub(crate) title: String,
    pub(crate) badge: Option<Badge>,
    /// Milliseconds since the epoch.
    pub(crate) time_ms: Option<u64>,
    pub(crate) link: Option<String>,
    pub(crate) is_number: bool,
}

impl fmt::Display for Column {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match SINGLE.iter().find(|(kind, ..)| *kind == self.kind) {
            Some((_, key, _)) => f.write_str(key),
            None => {
                let key = NAMED.iter().find(|(kind, ..)| *kind == self.kind).map_or("", |(_, key, _)| key);
                write!(f, "{key}:{}", self.name)
            }
        }
    }
}

impl Column {
    pub(crate) fn of(kind: Kind) -> Self {
        Self { kind, name: String::new() }
    }

    pub(crate) fn named(kind: Kind, name: &str) -> Self {
        Self { kind, name: name.to_owned() }
    }

    /// The column of an address.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        if let Some((kind, ..)) = SINGLE.iter().find(|(_, key, _)| *key == text) {
            return Some(Self::of(*kind));
        }
        let (key, name) = text.split_once(':')?;
        let (kind, ..) = NAMED.iter().find(|(_, known, _)| *known == key)?;
        (!name.is_empty()).then(|| Self::named(*kind, name))
    }

    /// The column of a property's path; several properties may be of one.
    pub(crate) fn of_path(path: &str) -> Option<Self> {
        if let Some(name) = path.strip_prefix("Tags.") {
            return Some(Self::named(Kind::Tag, name));
        }
        if let Some((name, _)) = path.strip_prefix("Parameters.").and_then(|rest| rest.rsplit_once('.')) {
            return Some(Self::named(Kind::Parameter, name));
        }
        let (name, _) = path.strip_prefix("Metrics.")?.rsplit_once('.').filter(|(_, last)| *last == "Last")?;
        Some(Self::named(Kind::Last, name))
    }

    /// The heading.
    pub(crate) fn label(&self) -> String {
        if let Some((.., label)) = SINGLE.iter().find(|(kind, ..)| *kind == self.kind) {
            return (*label).to_owned();
        }
        let statistic = NAMED.iter().find(|(kind, ..)| *kind == self.kind).map_or("", |(.., label)| label);
        if statistic.is_empty() { self.name.clone() } else { format!("{} {statistic}", self.name) }
    }

    /// What it is, for the heading's second line.
    pub(crate) fn class(&self) -> &'static str {
        match self.kind {
            Kind::Parameter => "parameter",
            Kind::Tag => "tag",
            Kind::Last | Kind::Min | Kind::Max | Kind::Mean => "metric",
            _ => "fact",
        }
    }

    pub(crate) fn is_time(&self) -> bool {
        matches!(self.kind, Kind::Created | Kind::Modified | Kind::Started | Kind::Ended)
    }

    /// The properties' paths: the first one that a run has counts.
    pub(crate) fn paths(&self) -> Vec<String> {
        let name = &self.name;
        let paths: &[&str] = match self.kind {
            Kind::Name => &["TrialComponentName"],
            Kind::Status => &["Status.PrimaryStatus"],
            Kind::Created => &["CreationTime"],
            Kind::Modified => &["LastModifiedTime"],
            Kind::Started => &["StartTime"],
            Kind::Ended => &["EndTime"],
            Kind::Trial => &["Parents.TrialName"],
            Kind::Tuning => &["SourceDetail.TrainingJob.TuningJobArn"],
            Kind::Parameter => {
                return ["NumberValue", "StringValue"].map(|value| format!("Parameters.{name}.{value}")).to_vec();
            }
            Kind::Last => return vec![format!("Metrics.{name}.Last")],
            Kind::Min => return vec![format!("Metrics.{name}.Min")],
            Kind::Max => return vec![format!("Metrics.{name}.Max")],
            Kind::Mean => return vec![format!("Metrics.{name}.Avg")],
            Kind::Tag => return vec![format!("Tags.{name}")],
        };
        paths.iter().map(|&path| path.to_owned()).collect()
    }

    /// How a value of it looks.
    pub(crate) fn shown(&self, cell: Option<&Cell>) -> Shown {
        match cell {
            None => Shown { text: "–".to_owned(), ..Shown::default() },
            Some(Cell::Number(seconds)) if self.is_time() => {
                let time_ms = (seconds * 1000.0).max(0.0) as u64;
                Shown { text: amounts::utc(time_ms), time_ms: Some(time_ms), ..Shown::default() }
            }
            Some(Cell::Number(number)) => {
                Shown { text: amounts::value(*number), title: number.to_string(), is_number: true, ..Shown::default() }
            }
            Some(Cell::Text(text)) if self.kind == Kind::Status => {
                Shown { badge: Some(run_badge(text)), text: text.clone(), ..Shown::default() }
            }
            Some(Cell::Text(text)) if self.kind == Kind::Tuning => {
                let name = arn::resource(text).map_or(text.as_str(), |it| it.name).to_owned();
                Shown { link: Some(format!("/console/tuning/{name}")), text: name, ..Shown::default() }
            }
            Some(Cell::Text(text)) => Shown { text: text.clone(), title: text.clone(), ..Shown::default() },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_the_same_after_an_address() {
        for text in ["name", "status", "created", "tuning", "param:eta", "last:validation:auc", "min:a b", "tag:team"] {
            assert_eq!(Column::parse(text).expect("a column").to_string(), text);
        }
        for text in ["", "colour", "param:", "last", "x:y"] {
            assert_eq!(Column::parse(text), None, "{text}");
        }
        let column = Column::parse("max:validation:auc").expect("a column");
        assert_eq!(
            (&*column.label(), column.paths()),
            ("validation:auc max", vec!["Metrics.validation:auc.Max".to_owned()])
        );
    }

    #[test]
    fn columns_follow_from_what_runs_have() {
        for (path, expected) in [
            ("Parameters.layers.0.size.NumberValue", Some("param:layers.0.size")),
            ("Parameters.kind.StringValue", Some("param:kind")),
            ("Metrics.loss.Last", Some("last:loss")),
            ("Metrics.loss.Max", None),
            ("Tags.team", Some("tag:team")),
            ("CreationTime", None),
        ] {
            assert_eq!(Column::of_path(path).map(|column| column.to_string()).as_deref(), expected);
        }
    }

    #[test]
    fn values_look_like_what_they_are() {
        let rate = Column::named(Kind::Parameter, "rate");
        let shown = rate.shown(Some(&Cell::Number(0.123_456_789)));
        assert_eq!((&*shown.text, &*shown.title, shown.is_number), ("0.12346", "0.123456789", true));
        assert_eq!(rate.shown(None).text, "–");
        let arn = "arn:aws:sagemaker:eu-west-1:000000000000:hyper-parameter-tuning-job/search";
        let shown = Column::of(Kind::Tuning).shown(Some(&Cell::Text(arn.to_owned())));
        assert_eq!((&*shown.text, shown.link.as_deref()), ("search", Some("/console/tuning/search")));
        assert_eq!(Column::of(Kind::Created).shown(Some(&Cell::Number(1.5))).time_ms, Some(1500));
        let shown = Column::of(Kind::Status).shown(Some(&Cell::Text("InProgress".to_owned())));
        assert_eq!(shown.badge.map(|badge| badge.word), Some("Running"));
    }
}
