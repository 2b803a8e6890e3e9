//! `QueryLineage`: what an entity comes from and what became of it, over associations.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use serde_json::{Value, json};
use shoal_store::{LinkEnd, ResourceRow};
use shoal_wire::{Call, Error, Reply, arn, timestamp};

use super::{Lookup, Members, Registry, kind, kinds::ASSOCIATION, lineage::Entity, links::links, request};
use crate::{
    api::{listing::members, token},
    internal::internal,
};

/// Associations between the start and what is found, at most and by default.
const DEEPEST: u64 = 10;
/// Vertices on a page by default.
const VERTICES: u64 = 50;
/// Most entities that one query visits, and most associations of one entity.
const MOST: usize = 10_000;

/// Against or along the associations' direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Ascendants,
    Descendants,
}

/// An association.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Edge {
    source: String,
    destination: String,
    of_type: Option<String>,
}

/// Returns the edges of an entity.
type Edges<'a> = dyn FnMut(&str, Way) -> Result<Vec<Edge>, Error> + 'a;

/// Entities in the order in which they were reached, each with the edges by which it was.
#[derive(Debug, Default)]
struct Reached {
    order: Vec<String>,
    by: BTreeMap<String, Vec<Edge>>,
}

impl Reached {
    /// Walks from a start.
    fn walk(&mut self, start: &str, way: Way, depth: u64, edges: &mut Edges<'_>) -> Result<(), Error> {
        let mut seen = BTreeSet::from([start.to_owned()]);
        let mut next = VecDeque::from([(start.to_owned(), 0)]);
        while let Some((entity, far)) = next.pop_front() {
            if far == depth {
                continue;
            }
            for edge in edges(&entity, way)? {
                let other = match way {
                    Way::Ascendants => &edge.source,
                    Way::Descendants => &edge.destination,
                }
                .clone();
                if other == start {
                    continue;
                }
                let by = self.by.entry(other.clone()).or_insert_with(|| {
                    self.order.push(other.clone());
                    Vec::new()
                });
                if !by.contains(&edge) {
                    by.push(edge);
                }
                if seen.insert(other.clone()) {
                    next.push_back((other, far + 1));
                }
            }
            if self.order.len() > MOST {
                return Err(Error::validation(format!(
                    "The query reaches more than {MOST} entities; give a smaller MaxDepth or one Direction."
                )));
            }
        }
        Ok(())
    }

    /// The entities by which these were reached, and these.
    fn on_paths(&self, wanted: &BTreeSet<String>) -> BTreeSet<String> {
        let mut found = wanted.clone();
        let mut next: Vec<_> = wanted.iter().cloned().collect();
        while let Some(entity) = next.pop() {
            for edge in self.by.get(&entity).into_iter().flatten() {
                for end in [&edge.source, &edge.destination] {
                    if self.by.contains_key(end) && found.insert(end.clone()) {
                        next.push(end.clone());
                    }
                }
            }
        }
        found
    }
}

/// Which entities a query returns.
struct Filters(Members);

impl Filters {
    fn pass(&self, row: &ResourceRow, entity: &Entity) -> bool {
        let texts = |member: &str| self.0.get(member).and_then(Value::as_array).filter(|list| !list.is_empty());
        let among = |member: &str, text: Option<&str>| {
            texts(member).is_none_or(|list| list.iter().any(|it| it.as_str().is_some() && it.as_str() == text))
        };
        let time = |member: &str| self.0.get(member).and_then(Value::as_f64).map(timestamp::from_seconds);
        let properties = self.0.get("Properties").and_then(Value::as_object).filter(|pairs| !pairs.is_empty());
        among("Types", Some(&entity.of_type))
            && among("LineageTypes", entity.lineage_type)
            && time("CreatedBefore").is_none_or(|ms| row.created_ms < ms)
            && time("CreatedAfter").is_none_or(|ms| row.created_ms > ms)
            && time("ModifiedBefore").is_none_or(|ms| row.modified_ms < ms)
            && time("ModifiedAfter").is_none_or(|ms| row.modified_ms > ms)
            && properties
                .is_none_or(|pairs| pairs.iter().any(|(name, value)| entity.properties.get(name) == Some(value)))
    }
}

impl Registry {
    /// `QueryLineage`.
    ///
    /// # Errors
    /// There is no such entity to start from, or it has too many relatives.
    pub(crate) async fn query_lineage(&self, call: Call) -> Result<Reply, Error> {
        let input = members(&call)?.clone();
        let start = input.get("StartArns").and_then(|list| list[0].as_str()).map(str::to_owned);
        let Some(start) = start else {
            return Err(Error::validation("StartArns is empty: give the ARN of the entity to start from."));
        };
        let start = self.entity(&start)?;
        let implied = self.implied(&start).await?;
        let question = question(&input)?;
        let skipped = match input.get("NextToken").and_then(Value::as_str) {
            None => 0,
            Some(given) => token::open(&question, given)?.parse::<usize>().map_err(|error| internal(&error))?,
        };
        self.reading(move |lookup| {
            let key = start.key();
            let stored = lookup.rows.resource(start.of.kind, &key).map_err(|error| internal(&error))?;
            stored.or(implied).ok_or_else(|| start.missing())?;
            answer(lookup, &start.arn, &input, &question, skipped)
        })
        .await
    }
}

/// The query without its page.
fn question(input: &Members) -> Result<String, Error> {
    let mut asked = input.clone();
    for page in ["NextToken", "MaxResults"] {
        asked.shift_remove(page);
    }
    token::question(&("QueryLineage", &asked))
}

fn answer(lookup: Lookup<'_>, start: &str, input: &Members, question: &str, skipped: usize) -> Result<Reply, Error> {
    let depth = input.get("MaxDepth").and_then(Value::as_u64).unwrap_or(DEEPEST).min(DEEPEST);
    let ways: &[Way] = match input.get("Direction").and_then(Value::as_str) {
        Some("Ascendants") => &[Way::Ascendants],
        Some("Descendants") => &[Way::Descendants],
        _ => &[Way::Ascendants, Way::Descendants],
    };
    let mut reached = Reached::default();
    for way in ways {
        reached.walk(start, *way, depth, &mut |entity, way| edges(lookup, entity, way))?;
    }
    let filters = Filters(input.get("Filters").and_then(Value::as_object).cloned().unwrap_or_default());
    let mut entities = BTreeMap::new();
    let mut wanted = BTreeSet::new();
    for arn in &reached.order {
        let Some(row) = entity_row(lookup, arn)? else { continue };
        let entity = Entity::of(&row)?;
        if filters.pass(&row, &entity) {
            wanted.insert(arn.clone());
        }
        entities.insert(arn.clone(), entity);
    }
    let with_edges = input.get("IncludeEdges").and_then(Value::as_bool).unwrap_or(true);
    let found = if with_edges { reached.on_paths(&wanted) } else { wanted };
    let page_size = input.get("MaxResults").and_then(Value::as_u64).unwrap_or(VERTICES);
    let page_size = usize::try_from(page_size).unwrap_or(usize::MAX);
    let all: Vec<_> = reached
        .order
        .iter()
        .filter(|arn| found.contains(*arn))
        .filter_map(|arn| Some((arn, entities.get(arn)?)))
        .collect();
    let page = all.iter().skip(skipped).take(page_size);
    let (mut vertices, mut page_edges) = (Vec::new(), Vec::new());
    for (arn, entity) in page {
        let mut vertex = json!({"Arn": arn, "Type": entity.of_type.chars().take(40).collect::<String>()});
        if let Some(lineage_type) = entity.lineage_type {
            vertex["LineageType"] = json!(lineage_type);
        }
        vertices.push(vertex);
        if with_edges {
            let is_whole = |edge: &&Edge| {
                [&edge.source, &edge.destination].into_iter().all(|end| *end == start || found.contains(end))
            };
            page_edges.extend(reached.by.get(*arn).into_iter().flatten().filter(is_whole).map(shown));
        }
    }
    let end = skipped + vertices.len();
    let mut body = json!({"Vertices": vertices, "Edges": page_edges});
    if end < all.len() {
        body["NextToken"] = json!(token::seal(question, &end.to_string()));
    }
    Ok(Reply::of(body))
}

fn shown(edge: &Edge) -> Value {
    let mut shown = json!({"SourceArn": edge.source, "DestinationArn": edge.destination});
    if let Some(of_type) = &edge.of_type {
        shown["AssociationType"] = json!(of_type);
    }
    shown
}

/// The row of an entity; none if it was deleted and its associations were not.
fn entity_row(lookup: Lookup<'_>, given: &str) -> Result<Option<ResourceRow>, Error> {
    let Some((kind, name)) = arn::resource(given).and_then(|it| Some((kind(it.kind)?, it.name))) else {
        return Ok(None);
    };
    lookup.rows.resource(kind, name).map_err(|error| internal(&error))
}

fn edges(lookup: Lookup<'_>, entity: &str, way: Way) -> Result<Vec<Edge>, Error> {
    let end = match way {
        Way::Ascendants => LinkEnd::FirstKey,
        Way::Descendants => LinkEnd::Parent,
    };
    let edge = |row: ResourceRow| {
        let link = request(&row)?;
        let text = |member: &str| link.get(member).and_then(Value::as_str).map(str::to_owned);
        Ok(Edge {
            source: text("SourceArn").unwrap_or_default(),
            destination: text("DestinationArn").unwrap_or_default(),
            of_type: text("AssociationType"),
        })
    };
    links(lookup, ASSOCIATION, end, entity, MOST)?.into_iter().map(edge).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// data -> job -> model -> endpoint; image -> job; data -> other
    fn graph(entity: &str, way: Way) -> Vec<Edge> {
        let edges = [
            ("data", "job"),
            ("image", "job"),
            ("job", "model"),
            ("model", "endpoint"),
            ("data", "other"),
            ("model", "model"),
        ];
        let of = |(source, destination): (&str, &str)| match way {
            Way::Ascendants => destination == entity,
            Way::Descendants => source == entity,
        } && (source, destination) != ("", "");
        let edge = |(source, destination): (&str, &str)| Edge {
            source: source.to_owned(),
            destination: destination.to_owned(),
            of_type: None,
        };
        edges.into_iter().filter(|ends| of(*ends)).map(edge).collect()
    }

    fn reached(start: &str, ways: &[Way], depth: u64) -> Reached {
        let mut reached = Reached::default();
        for way in ways {
            reached.walk(start, *way, depth, &mut |entity, way| Ok(graph(entity, way))).unwrap();
        }
        reached
    }

    #[test]
    fn a_walk_follows_one_way_to_its_depth() {
        let both = [Way::Ascendants, Way::Descendants];
        for (start, ways, depth, expected) in [
            ("job", &both[..1], 10, "data image"),
            ("job", &both[1..], 10, "model endpoint"),
            ("job", &both[1..], 1, "model"),
            // The other one that came of the data is no relative.
            ("job", &both[..], 10, "data image model endpoint"),
            ("endpoint", &both[..1], 10, "model job data image"),
            ("endpoint", &both[1..], 10, ""),
            ("job", &both[..], 0, ""),
        ] {
            assert_eq!(reached(start, ways, depth).order.join(" "), expected, "{start} {ways:?} {depth}");
        }
    }

    #[test]
    fn what_lies_on_the_way_is_found_with_what_matches() {
        let walk = reached("endpoint", &[Way::Ascendants], 10);
        let on_paths = |wanted: &str| {
            let found = walk.on_paths(&BTreeSet::from([wanted.to_owned()]));
            found.into_iter().collect::<Vec<_>>().join(" ")
        };
        assert_eq!(on_paths("data"), "data job model");
        assert_eq!(on_paths("model"), "model");
    }
}
