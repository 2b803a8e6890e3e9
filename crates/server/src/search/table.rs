//! Pages of a table of records: any columns of those that meet a condition, grouped and ordered,
//! read from memory alone.

use std::{cmp::Ordering, collections::BTreeMap, sync::PoisonError};

use shoal_console::{Cell, RunCells, RunProperty, RunsPage, RunsQuery};
use shoal_wire::{Condition, PropertyValue, SortOrder};

use super::{
    Contents, SearchIndex, created_by,
    document::{Document, Key, Property},
};

/// Which properties a table can have columns of, beside those that all records have.
const CHOSEN: [&str; 3] = ["Parameters.", "Metrics.", "Tags."];

/// A record as far as it is ordered: its group, its place in that, its name.
type Place<'a> = (Key<&'a str>, Key<&'a str>, &'a str, &'a Document);

/// What a property is over many records.
#[derive(Clone, Copy, Default)]
struct Use<'a> {
    records: usize,
    first: Option<PropertyValue<'a>>,
    differs: bool,
}

impl SearchIndex {
    /// A page of a table; with a creator, only of that one's records.
    pub(crate) fn table(&self, creator: Option<&str>, query: RunsQuery) -> RunsPage {
        let contents = self.contents.read().unwrap_or_else(PoisonError::into_inner);
        let condition = created_by(creator, query.condition).rename(&mut |path| contents.numbers(&path));
        let numbers = |paths: &[String]| -> Vec<Property> {
            paths.iter().filter_map(|path| contents.properties.get(path).copied()).collect()
        };
        let (group, order) = (numbers(&query.group), numbers(&query.order.0));
        let columns: Vec<_> = query.columns.iter().map(|paths| numbers(paths)).collect();
        let texts = &contents.texts;
        let mut found: Vec<Place<'_>> = contents
            .documents
            .iter()
            .filter(|(_, document)| document.meets(&condition, texts))
            .map(|(name, document)| {
                (document.first_key(&group, texts), document.first_key(&order, texts), name.as_str(), document)
            })
            .collect();
        let compare = |left: &Place<'_>, right: &Place<'_>| {
            let by_group = if group.is_empty() { Ordering::Equal } else { left.0.compare(&right.0) };
            by_group.then_with(|| directed(query.order.1, &left.1, &right.1)).then_with(|| left.2.cmp(right.2))
        };
        let properties = contents.properties_of(&found);
        if query.limit == 0 {
            return RunsPage { total: found.len(), properties, ..RunsPage::default() };
        }
        found.sort_unstable_by(compare);
        let mut groups: Vec<(Option<Cell>, usize)> = Vec::new();
        for (at, it) in found.iter().enumerate().filter(|_| !query.group.is_empty()) {
            match groups.last_mut().filter(|_| at > 0 && found[at - 1].0 == it.0) {
                Some((_, count)) => *count += 1,
                None => groups.push((contents.cell(it.3, &group), 1)),
            }
        }
        let page = found.iter().skip(query.from).take(query.limit).map(|it| RunCells {
            name: it.2.to_owned(),
            group: contents.cell(it.3, &group),
            cells: columns.iter().map(|column| contents.cell(it.3, column)).collect(),
        });
        RunsPage { total: found.len(), runs: page.collect(), groups, properties }
    }

    /// How many records have each text of a property; with a creator, only of that one's. One that
    /// has several counts for each.
    pub(crate) fn counts(&self, creator: Option<&str>, path: &str) -> BTreeMap<String, usize> {
        let contents = self.contents.read().unwrap_or_else(PoisonError::into_inner);
        let mut counts = BTreeMap::new();
        let Some(property) = contents.properties.get(path) else { return counts };
        let is_counted = created_by(creator, Condition::All(Vec::new())).rename(&mut |path| contents.numbers(&path));
        for document in contents.documents.values().filter(|it| it.meets(&is_counted, &contents.texts)) {
            let mut texts: Vec<&str> = document.texts(*property, &contents.texts).collect();
            texts.sort_unstable();
            texts.dedup();
            for text in texts {
                match counts.get_mut(text) {
                    Some(count) => *count += 1,
                    None => drop(counts.insert(text.to_owned(), 1)),
                }
            }
        }
        counts
    }
}

fn directed(order: SortOrder, left: &Key<&str>, right: &Key<&str>) -> Ordering {
    match (left, right) {
        (Key::Absent, _) | (_, Key::Absent) => left.compare(right),
        _ if order == SortOrder::Descending => left.compare(right).reverse(),
        _ => left.compare(right),
    }
}

impl Contents {
    fn cell(&self, document: &Document, column: &[Property]) -> Option<Cell> {
        let value = column.iter().find_map(|property| document.first(*property, &self.texts))?;
        Some(match value {
            PropertyValue::Text(text) => Cell::Text(text.to_owned()),
            PropertyValue::Number(number) => Cell::Number(number),
        })
    }

    /// Properties that some of these records have, by path.
    fn properties_of(&self, found: &[Place<'_>]) -> Vec<RunProperty> {
        let mut uses = vec![None; self.properties.len()];
        for (path, number) in &self.properties {
            if CHOSEN.iter().any(|chosen| path.starts_with(chosen)) {
                uses[*number as usize] = Some(Use::default());
            }
        }
        for (.., document) in found {
            document.each_first(&self.texts, &mut |property, value| {
                if let Some(of) = &mut uses[property as usize] {
                    of.records += 1;
                    of.differs |= *of.first.get_or_insert(value) != value;
                }
            });
        }
        let used = self.properties.iter().filter_map(|(path, number)| Some((path, uses[*number as usize]?)));
        used.filter(|(_, of)| of.records > 0)
            .map(|(path, of)| RunProperty { path: path.clone(), varies: of.differs || of.records < found.len() })
            .collect()
    }
}
