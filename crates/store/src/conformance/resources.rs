//! Resources' rows: changes, lists, keys.

use super::Reopen;
use crate::{
    Batch, Journal, Key, KeyTest, LinkEnd, Linked, ResourceFilter, ResourceKind, ResourceProgress, ResourceRow,
    ResourceSort, RowChange, Rows, SortOrder, StoreError,
};

/// A kind that the storage knows nothing of.
const KIND: ResourceKind = ResourceKind::new("kind-of-a-test");

fn change(journal: &mut dyn Journal, rows: impl IntoIterator<Item = RowChange>) {
    journal.append(&Batch { events: Vec::new(), rows: rows.into_iter().collect() }).expect("append");
}

fn put(row: &ResourceRow) -> RowChange {
    RowChange::Put(Box::new(row.clone()))
}

fn row(kind: ResourceKind, name: &str) -> ResourceRow {
    ResourceRow {
        kind,
        name: name.to_owned(),
        uid: "1f".to_owned(),
        arn: "arn:x".to_owned(),
        created_ms: 1,
        modified_ms: 2,
        ended_ms: None,
        status: "InProgress".to_owned(),
        ended: false,
        parent: Some("fleet".to_owned()),
        keys: [Some("Starting".into()), Some(Key::Number(-1e-300))],
        request: b"{\"a\":1}".to_vec(),
        spec: b"{\"v\":1}".to_vec(),
        view: b"{}".to_vec(),
        tags: b"[]".to_vec(),
        creator: Some("anna".to_owned()),
    }
}

fn progress(kind: ResourceKind, name: &str) -> ResourceProgress {
    ResourceProgress {
        kind,
        name: name.to_owned(),
        modified_ms: 9,
        ended_ms: Some(8),
        status: "Completed".to_owned(),
        ended: true,
        keys: [Some(Key::Number(0.1 + 0.2)), None],
        view: b"{1}".to_vec(),
    }
}

pub(super) fn rows_change_with_their_events(reopen: &Reopen) {
    for (at, kind) in [KIND, ResourceKind::TRAINING_JOB, ResourceKind::TUNING_JOB].into_iter().enumerate() {
        let (mut journal, rows) = reopen();
        let created = row(kind, "titanic");
        journal.append(&Batch { events: vec![b"created".to_vec()], rows: vec![put(&created)] }).expect("append");
        assert_eq!(rows.resource(kind, "titanic").expect("row"), Some(created.clone()));
        assert_eq!(rows.resource(kind, "Titanic").expect("row"), None, "names are case-sensitive");

        let moves = ["titanic", "no-such-row"].map(|name| RowChange::Move(Box::new(progress(kind, name))));
        journal.append(&Batch { events: vec![b"ended".to_vec()], rows: moves.to_vec() }).expect("append");
        assert_eq!(rows.resource(kind, "no-such-row").expect("row"), None, "only rows that exist move");
        drop((journal, rows));
        let (mut journal, rows) = reopen();
        let ResourceProgress { modified_ms, ended_ms, status, ended, keys, view, .. } = progress(kind, "titanic");
        let ended = ResourceRow { modified_ms, ended_ms, status, ended, keys, view, ..created };
        assert_eq!(rows.resource(kind, "titanic").expect("row"), Some(ended.clone()));

        let gone = || RowChange::Delete(kind, "titanic".to_owned());
        let changes = vec![gone(), put(&ended), gone()];
        let version = journal.append(&Batch { events: vec![], rows: changes }).expect("append");
        assert_eq!(version, 2 * (at as u64 + 1), "rows take no version");
        assert_eq!(rows.resource(kind, "titanic").expect("row"), None);
    }
}

pub(super) fn kinds_do_not_share_names(reopen: &Reopen) {
    let (mut journal, rows) = reopen();
    let kinds = [KIND, ResourceKind::TRAINING_JOB, ResourceKind::TUNING_JOB];
    change(&mut *journal, kinds.map(|kind| put(&row(kind, "same"))));
    change(&mut *journal, [RowChange::Move(Box::new(progress(KIND, "same")))]);
    let statuses = kinds.map(|kind| rows.resource(kind, "same").expect("row").map(|row| row.status));
    assert_eq!(statuses, ["Completed", "InProgress", "InProgress"].map(|status| Some(status.to_owned())));
    for kind in kinds {
        assert_eq!(rows.count(&ResourceFilter::new(kind)).expect("count"), 1);
        assert_eq!(rows.names(kind, "SAME").expect("names"), ["same"]);
    }
    change(&mut *journal, [RowChange::Delete(ResourceKind::TUNING_JOB, "same".to_owned())]);
    let left = kinds.map(|kind| rows.list(&ResourceFilter::new(kind)).expect("list").rows.len());
    assert_eq!(left, [1, 1, 0]);
}

/// All pages of a list, their names in order.
fn listed(rows: &dyn Rows, filter: &ResourceFilter) -> String {
    let mut filter = filter.clone();
    let mut names = Vec::new();
    loop {
        let page = rows.list(&filter).expect("list");
        assert!(page.rows.len() <= filter.limit);
        assert!(page.rows.iter().all(|row| row.kind == filter.kind));
        names.extend(page.rows.into_iter().map(|row| row.name));
        let Some(next) = page.next else { return names.join(" ") };
        filter.after = Some(next.to_string().parse().expect("a cursor's text form is a cursor"));
    }
}

pub(super) fn lists_are_filtered_ordered_and_paged(reopen: &Reopen) {
    let (mut journal, rows) = reopen();
    // Name, created, modified, status, parent, keys; two share a creation time.
    let number = |value: f64| Some(Key::Number(value));
    let listed_rows = [
        ("c", 10, 50, "Failed", None, [Some("Even".into()), number(0.5)]),
        ("a", 20, 40, "Completed", Some("p"), [Some("Even".into()), number(-2.0)]),
        ("ab", 20, 30, "Failed", Some("p"), [Some("Odd".into()), None]),
        ("B", 30, 60, "InProgress", Some("q"), [Some("Even".into()), Some("text".into())]),
    ];
    let row = |(name, created_ms, modified_ms, status, parent, keys): (
        &str,
        u64,
        u64,
        &str,
        Option<&str>,
        [Option<Key>; 2],
    )| {
        let (status, parent) = (status.to_owned(), parent.map(str::to_owned));
        put(&ResourceRow { created_ms, modified_ms, status, parent, keys, ..ResourceRow::new(KIND, name) })
    };
    let mut puts = Vec::from(listed_rows.map(row));
    puts.push(put(&ResourceRow {
        created_ms: 20,
        keys: [Some("Odd".into()), number(0.0)],
        ..ResourceRow::new(ResourceKind::TRAINING_JOB, "b")
    }));
    change(&mut *journal, puts);

    let base = ResourceFilter::new(KIND);
    let descending = ResourceFilter { order: SortOrder::Descending, ..base.clone() };
    let some = |text: &str| Some(text.to_owned());
    let keys = |first: Option<KeyTest>, second: Option<KeyTest>| [first, second];
    let failed = ResourceFilter { status: some("Failed"), ..base.clone() };
    for (filter, expected) in [
        (base.clone(), "c a ab B"),
        (descending.clone(), "B ab a c"),
        (ResourceFilter { sort: ResourceSort::Name, ..base.clone() }, "B a ab c"),
        (ResourceFilter { sort: ResourceSort::Name, ..descending.clone() }, "c ab a B"),
        (ResourceFilter { sort: ResourceSort::Status, ..base.clone() }, "a ab c B"),
        (ResourceFilter { sort: ResourceSort::Status, ..descending.clone() }, "B c ab a"),
        (ResourceFilter { sort: ResourceSort::FirstKey, ..base.clone() }, "B a c ab"),
        (ResourceFilter { sort: ResourceSort::FirstKey, ..descending.clone() }, "ab c a B"),
        (failed.clone(), "c ab"),
        (ResourceFilter { name_contains: some("b"), ..base.clone() }, "ab"),
        (ResourceFilter { name_contains: some("%"), ..base.clone() }, ""),
        (
            ResourceFilter { names: Some(vec!["ab".to_owned(), "c".to_owned(), "other".to_owned()]), ..base.clone() },
            "c ab",
        ),
        (ResourceFilter { names: Some(Vec::new()), ..base.clone() }, ""),
        (ResourceFilter { name_resembles: some("b"), ..base.clone() }, "ab B"),
        (ResourceFilter { name_resembles: some("AB"), ..base.clone() }, "ab"),
        (ResourceFilter { name_resembles: some("_"), ..base.clone() }, ""),
        (ResourceFilter { parent: some("p"), ..base.clone() }, "a ab"),
        (ResourceFilter { parent: some("p"), sort: ResourceSort::Name, ..descending }, "ab a"),
        (ResourceFilter { parent: some(""), ..base.clone() }, ""),
        (ResourceFilter { keys: keys(Some(KeyTest::Is("Odd".into())), None), ..failed.clone() }, "ab"),
        (ResourceFilter { keys: keys(Some(KeyTest::IsNot("Odd".into())), None), ..failed.clone() }, "c"),
        (ResourceFilter { keys: keys(None, Some(KeyTest::Is(Key::Number(0.5)))), ..base.clone() }, "c"),
        (ResourceFilter { keys: keys(None, Some(KeyTest::IsNot(Key::Number(0.5)))), ..base.clone() }, "a B"),
        (
            ResourceFilter {
                keys: keys(Some(KeyTest::Is("Even".into())), Some(KeyTest::IsNot("text".into()))),
                ..base.clone()
            },
            "c a",
        ),
        (ResourceFilter { created_after_ms: Some(10), created_before_ms: Some(30), ..base.clone() }, "a ab"),
        (ResourceFilter { modified_after_ms: Some(40), modified_before_ms: Some(60), ..base.clone() }, "c"),
        (ResourceFilter { created_after_ms: Some(10), ..failed }, "ab"),
    ] {
        assert_eq!(rows.count(&filter).expect("count"), expected.split_whitespace().count() as u64, "{filter:?}");
        for limit in 1..=5 {
            let filter = ResourceFilter { limit, ..filter.clone() };
            assert_eq!(listed(&*rows, &filter), expected, "{filter:?}");
        }
    }
    for limit in 1..=4 {
        let by_key = ResourceFilter { sort: ResourceSort::SecondKey, limit, ..base.clone() };
        assert_eq!(listed(&*rows, &by_key), "a c B", "numbers before texts, no row without the key");
        assert_eq!(listed(&*rows, &ResourceFilter { order: SortOrder::Descending, ..by_key.clone() }), "B c a");
        assert_eq!(rows.count(&by_key).expect("count"), 4, "an order counts for nothing");
    }
}

pub(super) fn resources_of_a_creator_are_listed(reopen: &Reopen) {
    let (mut journal, rows) = reopen();
    let of = |name: &str, created_ms, creator: Option<&str>| ResourceRow {
        created_ms,
        creator: creator.map(str::to_owned),
        ..ResourceRow::new(KIND, name)
    };
    let all = [of("c", 1, Some("anna")), of("a", 2, Some("ben")), of("b", 3, None), of("d", 4, Some("anna"))];
    change(&mut *journal, all.iter().map(put));
    change(&mut *journal, [RowChange::Move(Box::new(progress(KIND, "c")))]);
    for (creator, expected) in [("anna", "c d"), ("ben", "a"), ("Anna", ""), ("", "")] {
        let filter = ResourceFilter { creator: Some(creator.to_owned()), ..ResourceFilter::new(KIND) };
        assert_eq!(rows.count(&filter).expect("count"), expected.split_whitespace().count() as u64, "{creator}");
        for (limit, sort) in [(1, ResourceSort::CreationTime), (9, ResourceSort::Name)] {
            assert_eq!(listed(&*rows, &ResourceFilter { limit, sort, ..filter.clone() }), expected, "{creator}");
        }
    }
}

pub(super) fn jobs_without_a_spec_are_found(reopen: &Reopen) {
    let (mut journal, rows) = reopen();
    let old = |kind, name| ResourceRow { spec: Vec::new(), ..row(kind, name) };
    let (job, tuning) = (ResourceKind::TRAINING_JOB, ResourceKind::TUNING_JOB);
    let of_before = [old(job, "a"), old(job, "c"), old(tuning, "b")];
    change(&mut *journal, of_before.iter().chain([&row(job, "b"), &row(tuning, "d"), &old(KIND, "a")]).map(put));
    let name = |kind, name: &str| (kind, name.to_owned());
    assert_eq!(rows.without_spec().expect("rows"), [name(job, "a"), name(job, "c"), name(tuning, "b")]);
    change(&mut *journal, [&row(job, "a"), &row(tuning, "b")].map(put));
    drop((journal, rows));
    assert_eq!(reopen().1.without_spec().expect("rows"), [name(job, "c")]);
}

pub(super) fn names_are_found_in_either_case(reopen: &Reopen) {
    let (mut journal, rows) = reopen();
    change(&mut *journal, ["c", "a", "ab", "B", "b"].map(|name| put(&ResourceRow::new(KIND, name))));
    for (name, expected) in [("A", "a"), ("b", "B b"), ("AB", "ab"), ("", ""), ("a%", "")] {
        assert_eq!(rows.names(KIND, name).expect("names").join(" "), expected, "{name}");
    }
}

pub(super) fn names_at_the_ends_of_links_are_listed(reopen: &Reopen) {
    let (mut journal, rows) = reopen();
    let links = ResourceKind::new("link-of-a-test");
    let named = |(name, created_ms)| put(&ResourceRow { created_ms, ..ResourceRow::new(KIND, name) });
    let link = |(parent, first, second): (&str, &str, Option<&str>)| {
        let name = format!("{parent}/{first}");
        let keys = [Some(first.into()), second.map(Key::from)];
        put(&ResourceRow { parent: Some(parent.to_owned()), keys, ..ResourceRow::new(links, &name) })
    };
    change(&mut *journal, [("a", 3), ("b", 2), ("c", 1)].map(named));
    change(
        &mut *journal,
        [("x", "a", Some("e")), ("x", "b", Some("e")), ("y", "b", None), ("y", "gone", Some("e"))].map(link),
    );
    let linked = |by, is: &str, names| Linked { links, by, is: is.to_owned(), names };
    let (parent, first, second) = (LinkEnd::Parent, LinkEnd::FirstKey, LinkEnd::SecondKey);
    for (linked, expected) in [
        (linked(parent, "x", first), "b a"),
        (linked(parent, "y", first), "b"),
        (linked(second, "e", first), "b a"),
        (linked(first, "b", parent), ""),
        (linked(parent, "z", first), ""),
    ] {
        let filter = ResourceFilter { linked: Some(linked.clone()), ..ResourceFilter::new(KIND) };
        assert_eq!(rows.count(&filter).expect("count"), expected.split_whitespace().count() as u64, "{linked:?}");
        for limit in 1..=3 {
            assert_eq!(listed(&*rows, &ResourceFilter { limit, ..filter.clone() }), expected, "{linked:?}");
        }
        let mut of_links = ResourceFilter::new(links);
        linked.by.select(&mut of_links, &linked.is);
        let found = rows.list(&of_links).expect("list").rows;
        assert!(found.iter().all(|link| linked.by.of(link) == Some(&*linked.is)), "{linked:?}");
    }
}

pub(super) fn cursors_survive_their_text_form(reopen: &Reopen) {
    let (mut journal, rows) = reopen();
    let keyed =
        |(name, key): (&str, Key)| put(&ResourceRow { keys: [Some(key), None], ..ResourceRow::new(KIND, name) });
    let keys = [("a", "x/y"), ("b", "x/y"), ("c", "x%2Fy"), ("d", "")].map(|(name, key)| (name, Key::from(key)));
    change(&mut *journal, keys.map(keyed));
    change(
        &mut *journal,
        [("e", 0.1 + 0.2), ("f", 1e300), ("g", -0.5)].map(|(name, key)| keyed((name, Key::Number(key)))),
    );
    let by_key = ResourceFilter { sort: ResourceSort::FirstKey, limit: 1, ..ResourceFilter::new(KIND) };
    assert_eq!(listed(&*rows, &by_key), "g e f d c a b");
    assert_eq!(listed(&*rows, &ResourceFilter { order: SortOrder::Descending, ..by_key.clone() }), "b a c d f e g");
    for (sort, text) in
        [(ResourceSort::CreationTime, "x/a"), (ResourceSort::FirstKey, "x/a"), (ResourceSort::FirstKey, "nx/a")]
    {
        let bad = ResourceFilter { sort, after: Some(text.parse().expect("has a slash")), ..by_key.clone() };
        assert!(matches!(rows.list(&bad), Err(StoreError::BadCursor(_))), "{text}");
    }
}
