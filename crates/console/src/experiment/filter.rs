//! Conditions on runs: a column, a comparison, a value. An address has them as three lists,
//! `where`, `is` and `value`.

use shoal_wire::{Comparison, Condition, Test, Wanted};

use super::column::{Column, Kind};
use crate::query::Query;

/// Comparisons: in addresses, in words.
pub(crate) const COMPARISONS: [(&str, &str); 7] =
    [("eq", "is"), ("ne", "is not"), ("lt", "<"), ("le", "≤"), ("gt", ">"), ("ge", "≥"), ("has", "contains")];

/// A condition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Filter {
    pub(crate) column: Column,
    /// One of [`COMPARISONS`].
    pub(crate) comparison: &'static str,
    pub(crate) value: String,
}

impl Filter {
    /// Those of an address, and what is wrong with others.
    pub(crate) fn read(query: &Query) -> (Vec<Self>, Option<String>) {
        let (columns, comparisons, values) = (query.all("where"), query.all("is"), query.all("value"));
        let mut complaint = None;
        let mut filters = Vec::new();
        for ((column, comparison), value) in columns.into_iter().zip(comparisons).zip(values) {
            match Self::new(column, comparison, value) {
                Ok(filter) => filters.push(filter),
                Err(wrong) => complaint = Some(wrong),
            }
        }
        (filters, complaint)
    }

    fn new(column: &str, comparison: &str, value: &str) -> Result<Self, String> {
        let column = Column::parse(column).ok_or_else(|| format!("There is no column {column}."))?;
        let known = COMPARISONS.iter().find(|(key, _)| *key == comparison);
        let (comparison, word) = known.ok_or_else(|| format!("There is no comparison {comparison}."))?;
        if ordered(comparison).is_some() && value.trim().parse::<f64>().is_err() {
            return Err(format!("{} {word} {value}: {value} is not a number.", column.label()));
        }
        Ok(Self { column, comparison, value: value.to_owned() })
    }

    pub(crate) fn word(&self) -> &'static str {
        COMPARISONS.iter().find(|(key, _)| *key == self.comparison).map_or("", |(_, word)| word)
    }

    pub(crate) fn condition(&self) -> Condition<String> {
        let number = self.value.trim().parse::<f64>().ok().filter(|value| value.is_finite());
        let compared = |comparison| -> Vec<Wanted> {
            number.map(|value| Wanted::Number { comparison, value, whole: false }).into_iter().collect()
        };
        let text = match self.column.kind {
            Kind::Name | Kind::Trial => Wanted::Name(self.value.clone()),
            _ => Wanted::Text(self.value.clone()),
        };
        let wanted: Vec<Wanted> = match self.comparison {
            "eq" | "ne" => compared(Comparison::Equal).into_iter().chain([text]).collect(),
            // A tuning job stands in its ARN.
            "has" => vec![Wanted::Part(self.value.clone())],
            other => ordered(other).map(compared).unwrap_or_default(),
        };
        let is_tuning = self.column.kind == Kind::Tuning;
        let wanted = match is_tuning && self.comparison != "has" {
            true => vec![Wanted::Part(format!(":hyper-parameter-tuning-job/{}", self.value))],
            false => wanted,
        };
        let negated = self.comparison == "ne";
        let paths = self.column.paths();
        let test = |(path, wanted): (&String, Wanted)| Condition::Property(path.clone(), Test { negated, wanted });
        let parts = paths.iter().flat_map(|path| wanted.iter().map(move |it| (path, it.clone()))).map(test).collect();
        if negated { Condition::All(parts) } else { Condition::Any(parts) }
    }
}

fn ordered(comparison: &str) -> Option<Comparison> {
    Some(match comparison {
        "lt" => Comparison::Less,
        "le" => Comparison::LessOrEqual,
        "gt" => Comparison::Greater,
        "ge" => Comparison::GreaterOrEqual,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_filters_or_says_what_is_wrong() {
        let read = |text: &str| Filter::read(&Query::parse(text));
        let (filters, complaint) = read("where=param%3Aeta&is=lt&value=0.5&where=status&is=eq&value=Failed");
        assert_eq!((filters.len(), complaint), (2, None));
        assert_eq!((&*filters[0].column.label(), filters[0].word(), &*filters[0].value), ("eta", "<", "0.5"));
        let (filters, complaint) = read("where=param%3Aeta&is=lt&value=low");
        assert_eq!((filters.len(), complaint.as_deref()), (0, Some("eta < low: low is not a number.")));
        assert!(read("where=colour&is=eq&value=1").1.is_some() && read("where=status&is=x&value=1").1.is_some());
    }

    #[test]
    fn a_parameter_is_a_text_or_a_number() {
        let filter = Filter::new("param:eta", "eq", "0.5").unwrap();
        let Condition::Any(parts) = filter.condition() else { panic!("{filter:?}") };
        assert_eq!(parts.len(), 4);
        let Condition::All(parts) = Filter::new("tag:team", "ne", "blue").unwrap().condition() else { panic!() };
        let wanted = Wanted::Text("blue".to_owned());
        assert_eq!(parts, [Condition::Property("Tags.team".to_owned(), Test { negated: true, wanted })]);
    }
}
