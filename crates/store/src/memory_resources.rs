//! Resources' rows in memory.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use crate::{
    Cursor, Key, KeyTest, Linked, Page, ResourceFilter, ResourceKind, ResourceProgress, ResourceRow, ResourceSort,
    SortOrder, StoreError,
};

#[derive(Debug, Default)]
pub(crate) struct Resources(BTreeMap<(ResourceKind, String), ResourceRow>);

/// Position of a row in a list: what the sort does not use is equal for all.
#[derive(Debug, PartialEq, PartialOrd)]
struct Position(u64, String, Option<Key>, String);

impl Position {
    fn of(row: &ResourceRow, sort: ResourceSort) -> Self {
        let name = row.name.clone();
        match sort {
            ResourceSort::Name => Self(0, String::new(), None, name),
            ResourceSort::CreationTime => Self(row.created_ms, String::new(), None, name),
            ResourceSort::Status => Self(0, row.status.clone(), None, name),
            ResourceSort::FirstKey => Self(0, String::new(), row.keys[0].clone(), name),
            ResourceSort::SecondKey => Self(0, String::new(), row.keys[1].clone(), name),
        }
    }

    fn at(cursor: &Cursor, sort: ResourceSort) -> Result<Self, StoreError> {
        let name = cursor.name.clone();
        Ok(match sort {
            ResourceSort::Name => Self(0, String::new(), None, name),
            ResourceSort::CreationTime => Self(cursor.number()?, String::new(), None, name),
            ResourceSort::Status => Self(0, cursor.value.clone(), None, name),
            ResourceSort::FirstKey | ResourceSort::SecondKey => Self(0, String::new(), Some(cursor.key()?), name),
        })
    }

    /// Keys are finite, so any two positions have an order.
    fn compare(&self, other: &Self, order: SortOrder) -> Ordering {
        let ascending = self.partial_cmp(other).unwrap_or(Ordering::Equal);
        if order == SortOrder::Descending { ascending.reverse() } else { ascending }
    }
}

impl Resources {
    pub(crate) fn put(&mut self, row: &ResourceRow) {
        self.0.insert((row.kind, row.name.clone()), row.clone());
    }

    pub(crate) fn advance(&mut self, progress: &ResourceProgress) {
        if let Some(row) = self.0.get_mut(&(progress.kind, progress.name.clone())) {
            row.advance(progress.clone());
        }
    }

    pub(crate) fn delete(&mut self, kind: ResourceKind, name: &str) {
        self.0.remove(&(kind, name.to_owned()));
    }

    pub(crate) fn get(&self, kind: ResourceKind, name: &str) -> Option<&ResourceRow> {
        self.0.get(&(kind, name.to_owned()))
    }

    pub(crate) fn names(&self, kind: ResourceKind, name: &str) -> Vec<String> {
        self.0
            .keys()
            .filter(|(of, it)| *of == kind && it.eq_ignore_ascii_case(name))
            .map(|(_, it)| it.clone())
            .collect()
    }

    pub(crate) fn without_spec(&self) -> Vec<(ResourceKind, String)> {
        let of = |kind| self.0.values().filter(move |row| row.kind == kind && row.spec.is_empty());
        ResourceKind::WITH_SPEC.into_iter().flat_map(of).map(|row| (row.kind, row.name.clone())).collect()
    }

    pub(crate) fn list(&self, filter: &ResourceFilter) -> Result<Page, StoreError> {
        let start = filter.after.as_ref().map(|cursor| Position::at(cursor, filter.sort)).transpose()?;
        let is_listed = |row: &&ResourceRow| {
            self.matches(filter, row) && filter.sort.key_index().is_none_or(|index| row.keys[index].is_some())
        };
        let mut rows: Vec<_> =
            self.0.values().filter(is_listed).map(|row| (Position::of(row, filter.sort), row)).collect();
        rows.sort_by(|(one, _), (other, _)| one.compare(other, filter.order));
        rows.retain(|(position, _)| {
            start.as_ref().is_none_or(|start| position.compare(start, filter.order) == Ordering::Greater)
        });
        rows.truncate(filter.limit.saturating_add(1));
        Ok(Page::cut(rows.into_iter().map(|(_, row)| row.clone()).collect(), filter))
    }

    pub(crate) fn count(&self, filter: &ResourceFilter) -> u64 {
        self.0.values().filter(|row| self.matches(filter, row)).count() as u64
    }

    fn matches(&self, filter: &ResourceFilter, row: &ResourceRow) -> bool {
        let has_row = |linked: &Linked| {
            let links = self.0.values().filter(|link| link.kind == linked.links);
            let mut selected = links.filter(|link| linked.by.of(link) == Some(&*linked.is));
            selected.any(|link| linked.names.of(link) == Some(&*row.name))
        };
        matches(filter, row) && filter.linked.as_ref().is_none_or(has_row)
    }
}

/// Whether a row matches the conditions that are on it alone.
fn matches(filter: &ResourceFilter, row: &ResourceRow) -> bool {
    let passes = |(test, key): (&Option<KeyTest>, &Option<Key>)| match (test, key) {
        (None, _) => true,
        (Some(_), None) => false,
        (Some(KeyTest::Is(wanted)), Some(key)) => key == wanted,
        (Some(KeyTest::IsNot(unwanted)), Some(key)) => key != unwanted,
    };
    row.kind == filter.kind
        && filter.name_contains.as_ref().is_none_or(|part| row.name.contains(part.as_str()))
        && filter.names.as_ref().is_none_or(|names| names.contains(&row.name))
        && filter
            .name_resembles
            .as_ref()
            .is_none_or(|part| row.name.to_ascii_lowercase().contains(&part.to_ascii_lowercase()))
        && filter.status.as_ref().is_none_or(|status| row.status == *status)
        && filter.parent.as_ref().is_none_or(|parent| row.parent.as_ref() == Some(parent))
        && filter.creator.as_ref().is_none_or(|creator| row.creator.as_ref() == Some(creator))
        && filter.keys.iter().zip(&row.keys).all(passes)
        && filter.created_after_ms.is_none_or(|ms| row.created_ms > ms)
        && filter.created_before_ms.is_none_or(|ms| row.created_ms < ms)
        && filter.modified_after_ms.is_none_or(|ms| row.modified_ms > ms)
        && filter.modified_before_ms.is_none_or(|ms| row.modified_ms < ms)
}
