//! Searches over rows: what changes is seen, pages hold every job once, in order.

use serde_json::json;
use shoal_console::{Cell, RunsPage, RunsQuery};
use shoal_store::{ResourceKind, SqliteJournal, SqliteRows};
use shoal_wire::{Test, Wanted};

use super::*;

fn put(name: &str, record: &Value) -> RowChange {
    let row =
        ResourceRow { request: record.to_string().into_bytes(), ..ResourceRow::new(ResourceKind::TRAINING_JOB, name) };
    RowChange::Put(Box::new(row))
}

/// In these tests a row's request is its record.
fn record(row: &ResourceRow) -> Result<Value, Error> {
    serde_json::from_slice(&row.request).map_err(|error| Error::validation(error.to_string()))
}

struct Fixture {
    rows: SqliteRows,
    journal: Box<dyn Journal>,
    indexes: Arc<Indexes>,
    _dir: tempfile::TempDir,
}

impl Fixture {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let journal = SqliteJournal::open(&dir.path().join("shoal.db")).unwrap();
        let (rows, indexes) = (journal.rows(), Indexes::new(Arc::new(Ledger::new())));
        Self { journal: indexes.watch(journal), rows, indexes, _dir: dir }
    }

    fn change(&mut self, changes: Vec<RowChange>) {
        self.journal.append(&Batch { events: Vec::new(), rows: changes }).unwrap();
    }

    fn names(&self, condition: &Condition<String>, sort_by: &str, order: SortOrder, limit: usize) -> String {
        let index = self.indexes.of(ResourceKind::TRAINING_JOB).unwrap();
        index.refresh(&self.rows, &record).unwrap();
        let (mut names, mut after) = (Vec::new(), None);
        loop {
            let page = index.find(None, condition.clone(), sort_by, order, after.as_ref(), limit);
            assert!(page.names.len() <= limit);
            names.extend(page.names);
            let Some(next) = page.next else {
                assert_eq!(page.total, names.len() as u64);
                return names.join(" ");
            };
            after = Some(next.to_string().parse().expect("a place's text is a place"));
            assert_eq!(after, Some(next));
        }
    }
}

fn is(path: &str, value: &str) -> Condition<String> {
    Condition::Property(path.to_owned(), Test { negated: false, wanted: Wanted::Text(value.to_owned()) })
}

fn all() -> Condition<String> {
    Condition::All(Vec::new())
}

#[test]
fn what_the_journal_changes_is_seen() {
    let mut fixture = Fixture::new();
    let check = |fixture: &Fixture, condition: &Condition<String>, expected: &str| {
        assert_eq!(fixture.names(condition, "Name", SortOrder::Ascending, 9), expected);
    };
    check(&fixture, &all(), "");
    fixture.change(vec![put("a", &json!({"Status": "InProgress"})), put("b", &json!({"Status": "InProgress"}))]);
    check(&fixture, &is("Status", "InProgress"), "a b");
    fixture.change(vec![put("a", &json!({"Status": "Completed"}))]);
    check(&fixture, &is("Status", "InProgress"), "b");
    check(&fixture, &is("Status", "Completed"), "a");
    fixture.change(vec![
        RowChange::Delete(ResourceKind::TRAINING_JOB, "b".to_owned()),
        RowChange::Delete(ResourceKind::TRAINING_JOB, "never".to_owned()),
    ]);
    let of_another_kind =
        ResourceRow { request: b"{}".to_vec(), ..ResourceRow::new(ResourceKind::TUNING_JOB, "other") };
    fixture.change(vec![RowChange::Put(Box::new(of_another_kind))]);
    check(&fixture, &all(), "a");
    check(&fixture, &is("Colour", "red"), "");
    let item = |channel: &str, uri: &str| {
        let test = |path: &str, value: &str| {
            (format!("Input.{path}"), Test { negated: false, wanted: Wanted::Text(value.to_owned()) })
        };
        Condition::Item(vec![test("Name", channel), test("Uri", uri)])
    };
    fixture
        .change(vec![put("c", &json!({"Input": [{"Name": "train", "Uri": "one"}, {"Name": "test", "Uri": "two"}]}))]);
    check(&fixture, &item("train", "one"), "c");
    check(&fixture, &item("train", "two"), "");
    fixture.change(vec![put("broken", &json!("x"))]);
    fixture.change(vec![RowChange::Put(Box::new(ResourceRow {
        request: b"{".to_vec(),
        ..ResourceRow::new(ResourceKind::TRAINING_JOB, "worse")
    }))]);
    check(&fixture, &is("Status", "Completed"), "a");
}

#[test]
fn pages_hold_every_job_once_in_order() {
    let mut fixture = Fixture::new();
    let jobs = [
        ("a", json!({"Size": 2, "Colour": "red"})),
        ("b", json!({"Size": 10.5, "Colour": "blue"})),
        ("c", json!({"Colour": "blue"})),
        ("d", json!({"Size": -1})),
        ("e", json!({"Size": 2, "Text": "x".repeat(70_000)})),
    ];
    fixture.change(jobs.iter().map(|(name, record)| put(name, record)).collect());
    for limit in 1..7 {
        let check = |sort_by: &str, order: SortOrder, expected: &str| {
            assert_eq!(fixture.names(&all(), sort_by, order, limit), expected, "{sort_by} {order:?} {limit}");
        };
        check("Size", SortOrder::Ascending, "d a e b c");
        check("Size", SortOrder::Descending, "b e a d c");
        check("Colour", SortOrder::Ascending, "b c a d e");
        check("Colour", SortOrder::Descending, "a c b e d");
        check("Text", SortOrder::Ascending, "e a b c d");
        check("Nothing", SortOrder::Ascending, "a b c d e");
    }
    assert!("made up".parse::<Place>().is_err() && "a/nx".parse::<Place>().is_err());
}

#[test]
fn a_table_has_its_columns_grouped_and_ordered() {
    let mut fixture = Fixture::new();
    let run = |experiments: &[&str], rate: Value, loss: Option<f64>| {
        let parents: Vec<_> = experiments.iter().map(|name| json!({"ExperimentName": name})).collect();
        let metrics: Vec<_> = loss.map(|loss| json!({"MetricName": "loss", "Last": loss})).into_iter().collect();
        json!({"Parents": parents, "Parameters": {"rate": rate, "kind": {"StringValue": "tree"}}, "Metrics": metrics})
    };
    let number = |value: f64| json!({"NumberValue": value});
    fixture.change(vec![
        put("a", &run(&["e"], number(0.5), Some(3.0))),
        put("b", &run(&["e", "f"], json!({"StringValue": "fast"}), Some(1.0))),
        put("c", &run(&["e"], number(0.5), None)),
        put("d", &run(&["f"], number(0.1), Some(2.0))),
        put("e", &run(&["e"], number(0.1), Some(2.0))),
    ]);
    let index = fixture.indexes.of(ResourceKind::TRAINING_JOB).unwrap();
    index.refresh(&fixture.rows, &record).unwrap();
    let paths = |paths: &[&str]| paths.iter().map(|&path| path.to_owned()).collect::<Vec<_>>();
    let rate = paths(&["Parameters.rate.NumberValue", "Parameters.rate.StringValue"]);
    let table = |group: &[String], order, from, limit| {
        index.table(
            None,
            RunsQuery {
                condition: is("Parents.ExperimentName", "e"),
                group: group.to_vec(),
                order: (paths(&["Metrics.loss.Last"]), order),
                columns: vec![rate.clone(), paths(&["Metrics.loss.Last"]), paths(&["Nothing"])],
                from,
                limit,
            },
        )
    };
    let names = |page: &RunsPage| page.runs.iter().map(|run| run.name.clone()).collect::<Vec<_>>().join(" ");
    let page = table(&[], SortOrder::Descending, 0, 9);
    assert_eq!((names(&page), page.total, page.groups.len()), ("a e b c".to_owned(), 4, 0));
    assert_eq!(page.runs[2].cells, [Some(Cell::Text("fast".to_owned())), Some(Cell::Number(1.0)), None]);
    let varying: Vec<_> = page.properties.iter().map(|it| (it.path.as_str(), it.varies)).collect();
    let expected = [
        ("Metrics.loss.Last", true),
        ("Parameters.kind.StringValue", false),
        ("Parameters.rate.NumberValue", true),
        ("Parameters.rate.StringValue", true),
    ];
    assert_eq!(varying, expected);
    let page = table(&rate, SortOrder::Ascending, 1, 2);
    assert_eq!((names(&page), page.total), ("a c".to_owned(), 4));
    let number = |value| Some(Cell::Number(value));
    assert_eq!(page.groups, [(number(0.1), 1), (number(0.5), 2), (Some(Cell::Text("fast".to_owned())), 1)]);
    assert_eq!(page.runs[0].group, number(0.5));
    let counts: Vec<_> = index.counts(None, "Parents.ExperimentName").into_iter().collect();
    assert_eq!(counts, [("e".to_owned(), 4), ("f".to_owned(), 2)]);
}
