//! Resources' rows on SQLite: one table for all kinds.

use rusqlite::types::{FromSql, FromSqlError, FromSqlResult, ToSql, ToSqlOutput, Value, ValueRef};
use rusqlite::{Connection, OptionalExtension, Row, params, params_from_iter};

use crate::{
    Key, KeyTest, LinkEnd, Page, ResourceFilter, ResourceKind, ResourceProgress, ResourceRow, ResourceSort, SortOrder,
    StoreError,
};

/// Format 4: training jobs and tuning jobs, which had a table each, become resources.
pub(crate) const TABLE: &str = "
    CREATE TABLE resource (
        kind TEXT NOT NULL, name TEXT NOT NULL, uid TEXT NOT NULL, arn TEXT NOT NULL,
        created_ms INTEGER NOT NULL, modified_ms INTEGER NOT NULL, ended_ms INTEGER,
        status TEXT NOT NULL, ended INTEGER NOT NULL, parent TEXT, key_1, key_2,
        request BLOB NOT NULL, view BLOB NOT NULL, tags BLOB NOT NULL, UNIQUE (kind, name));
    INSERT INTO resource SELECT 'training-job', name, uid, arn, created_ms, modified_ms, ended_ms, status, ended,
        (SELECT tuning FROM trial WHERE trial.job = job.name), secondary, NULL, request, view, tags FROM job ORDER BY \
                                job.rowid;
    INSERT INTO resource SELECT 'hyper-parameter-tuning-job', name, uid, arn, created_ms, modified_ms, ended_ms, \
                                status, ended,
        NULL, NULL, NULL, request, view, tags FROM tuning ORDER BY tuning.rowid;
    DROP TABLE job;
    DROP TABLE tuning;
    -- A list is found in one index, filters and all, and only its page is read from the table.
    CREATE INDEX resource_by_creation ON resource (kind, created_ms, name, status, modified_ms);
    CREATE INDEX resource_by_status ON resource (kind, status, name, created_ms, modified_ms);
    CREATE INDEX resource_of_status_by_creation ON resource (kind, status, created_ms, name, modified_ms);
    CREATE INDEX resource_of_parent_by_creation ON resource (kind, parent, created_ms, name) WHERE parent IS NOT NULL;
    -- Training jobs' key, the secondary status, orders no list: an index would cost each of its changes a fifth more.
    CREATE INDEX resource_by_key_1 ON resource (kind, key_1, name, status) WHERE key_1 IS NOT NULL AND kind <> \
                                'training-job';
    CREATE INDEX resource_by_key_2 ON resource (kind, key_2, name, status) WHERE key_2 IS NOT NULL AND kind <> \
                                'training-job';
    ";

/// Format 5: what the server needs of a request is stored next to it. Rows of before get theirs
/// from the server.
pub(crate) const SPEC: &str = "
    ALTER TABLE resource ADD COLUMN spec BLOB NOT NULL DEFAULT x'';
    CREATE INDEX resource_without_spec ON resource (kind, name)
        WHERE spec = x'' AND kind IN ('training-job', 'hyper-parameter-tuning-job');
    ";

/// Format 6: whose key a resource was created with. The owner of the data directory has all that
/// was created before, and rows without a creator are in no index of creators.
pub(crate) const CREATOR: &str = "
    ALTER TABLE resource ADD COLUMN creator TEXT;
    CREATE INDEX resource_of_creator_by_creation ON resource (kind, creator, created_ms, name) WHERE creator IS NOT NULL;
    ";

/// All but the kind, which the caller knows.
pub(crate) const COLUMNS: &str = "name, uid, arn, created_ms, modified_ms, ended_ms, status, ended, parent, key_1, \
                                  key_2, request, view, tags, spec, creator";

impl ToSql for ResourceKind {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        self.name().to_sql()
    }
}

impl ToSql for Key {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        match self {
            Self::Number(number) => number.to_sql(),
            Self::Text(text) => text.to_sql(),
        }
    }
}

impl FromSql for Key {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        match value {
            ValueRef::Real(number) => Ok(Self::Number(number)),
            ValueRef::Text(_) => value.as_str().map(Self::from),
            _ => Err(FromSqlError::InvalidType),
        }
    }
}

impl From<Key> for Value {
    fn from(key: Key) -> Self {
        match key {
            Key::Number(number) => Self::Real(number),
            Key::Text(text) => Self::Text(text),
        }
    }
}

pub(crate) fn put(tx: &Connection, row: &ResourceRow) -> Result<(), StoreError> {
    let upsert = "INSERT INTO resource (kind, name, uid, arn, created_ms, modified_ms, ended_ms, status, ended, \
                  parent, key_1, key_2,
            request, view, tags, spec, creator)
        VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17)
        ON CONFLICT (kind, name) DO UPDATE SET uid = ?3, arn = ?4, created_ms = ?5, modified_ms = ?6, ended_ms = ?7, \
                  status = ?8, ended = ?9,
            parent = ?10, key_1 = ?11, key_2 = ?12, request = ?13, view = ?14, tags = ?15, spec = ?16, creator \
                  = ?17";
    let ResourceRow {
        kind,
        name,
        uid,
        arn,
        created_ms,
        modified_ms,
        ended_ms,
        status,
        ended,
        parent,
        keys,
        request,
        view,
        tags,
        spec,
        creator,
    } = row;
    let [first, second] = keys;
    tx.prepare_cached(upsert)?.execute(params![
        kind,
        name,
        uid,
        arn,
        created_ms,
        modified_ms,
        ended_ms,
        status,
        ended,
        parent,
        first,
        second,
        request,
        view,
        tags,
        spec,
        creator
    ])?;
    Ok(())
}

pub(crate) fn advance(tx: &Connection, progress: &ResourceProgress) -> Result<(), StoreError> {
    let update = "UPDATE resource SET modified_ms = ?3, ended_ms = ?4, status = ?5, ended = ?6, key_1 = ?7, key_2 = \
                  ?8, view = ?9
        WHERE kind = ?1 AND name = ?2";
    let ResourceProgress { kind, name, modified_ms, ended_ms, status, ended, keys, view } = progress;
    let [first, second] = keys;
    tx.prepare_cached(update)?.execute(params![
        kind,
        name,
        modified_ms,
        ended_ms,
        status,
        ended,
        first,
        second,
        view
    ])?;
    Ok(())
}

pub(crate) fn delete(tx: &Connection, kind: ResourceKind, name: &str) -> Result<(), StoreError> {
    tx.prepare_cached("DELETE FROM resource WHERE kind = ? AND name = ?")?.execute(params![kind, name])?;
    Ok(())
}

/// The row whose [`COLUMNS`] are the first of `row`.
pub(crate) fn resource_of(kind: ResourceKind, row: &Row<'_>) -> rusqlite::Result<ResourceRow> {
    Ok(ResourceRow {
        kind,
        name: row.get(0)?,
        uid: row.get(1)?,
        arn: row.get(2)?,
        created_ms: row.get(3)?,
        modified_ms: row.get(4)?,
        ended_ms: row.get(5)?,
        status: row.get(6)?,
        ended: row.get(7)?,
        parent: row.get(8)?,
        keys: [row.get(9)?, row.get(10)?],
        request: row.get(11)?,
        view: row.get(12)?,
        tags: row.get(13)?,
        spec: row.get(14)?,
        creator: row.get(15)?,
    })
}

pub(crate) fn get(connection: &Connection, kind: ResourceKind, name: &str) -> Result<Option<ResourceRow>, StoreError> {
    let sql = format!("SELECT {COLUMNS} FROM resource WHERE kind = ? AND name = ?");
    Ok(connection.prepare_cached(&sql)?.query_row(params![kind, name], |row| resource_of(kind, row)).optional()?)
}

pub(crate) fn without_spec(connection: &Connection) -> Result<Vec<(ResourceKind, String)>, StoreError> {
    // The condition on all kinds is that of the index.
    let sql = "SELECT name FROM resource WHERE kind = ? AND spec = x'' AND kind IN ('training-job', \
               'hyper-parameter-tuning-job') ORDER BY name";
    let mut select = connection.prepare_cached(sql)?;
    let mut found = Vec::new();
    for kind in ResourceKind::WITH_SPEC {
        for name in select.query_map([kind], |row| row.get(0))? {
            found.push((kind, name?));
        }
    }
    Ok(found)
}

pub(crate) fn names(connection: &Connection, kind: ResourceKind, name: &str) -> Result<Vec<String>, StoreError> {
    // No index ignores case: all names of the kind are compared, in the index that has them.
    let sql = "SELECT name FROM resource WHERE kind = ? AND name = ? COLLATE NOCASE ORDER BY name";
    let mut select = connection.prepare_cached(sql)?;
    Ok(select.query_map(params![kind, name], |row| row.get(0))?.collect::<rusqlite::Result<_>>()?)
}

pub(crate) fn list(connection: &Connection, filter: &ResourceFilter) -> Result<Page, StoreError> {
    let (page, order, values) = page_sql(filter)?;
    let sql = format!("SELECT {COLUMNS} FROM resource WHERE rowid IN ({page}) ORDER BY {order}");
    let mut select = connection.prepare_cached(&sql)?;
    let rows = select.query_map(params_from_iter(values), |row| resource_of(filter.kind, row))?;
    Ok(Page::cut(rows.collect::<rusqlite::Result<_>>()?, filter))
}

pub(crate) fn count(connection: &Connection, filter: &ResourceFilter) -> Result<u64, StoreError> {
    let (sql, values) = count_sql(filter);
    Ok(connection.prepare_cached(&sql)?.query_row(params_from_iter(values), |row| row.get(0))?)
}

fn count_sql(filter: &ResourceFilter) -> (String, Vec<Value>) {
    let Conditions { sql, values } = Conditions::of(filter);
    (format!("SELECT count(*) FROM resource WHERE {}", sql.join(" AND ")), values)
}

pub(crate) fn time(ms: u64) -> Value {
    Value::Integer(i64::try_from(ms).unwrap_or(i64::MAX))
}

/// Conditions of a statement and their operands.
struct Conditions {
    sql: Vec<String>,
    values: Vec<Value>,
}

impl Conditions {
    fn require(&mut self, condition: impl Into<String>, operands: impl IntoIterator<Item = Value>) {
        self.sql.push(condition.into());
        self.values.extend(operands);
    }

    /// Without order and cursor.
    fn of(filter: &ResourceFilter) -> Self {
        let mut all = Self { sql: Vec::new(), values: Vec::new() };
        all.require("kind = ?", [filter.kind.name().to_owned().into()]);
        if let Some(part) = &filter.name_contains {
            all.require("instr(name, ?) > 0", [part.clone().into()]);
        }
        if let Some(names) = &filter.names {
            all.require(
                "name IN (SELECT value FROM json_each(?))",
                [Value::Text(serde_json::json!(names).to_string())],
            );
        }
        if let Some(part) = &filter.name_resembles {
            all.require("instr(lower(name), ?) > 0", [part.to_ascii_lowercase().into()]);
        }
        for (condition, wanted) in
            [("status = ?", &filter.status), ("parent = ?", &filter.parent), ("creator = ?", &filter.creator)]
        {
            if let Some(text) = wanted {
                all.require(condition, [text.clone().into()]);
            }
        }
        if let Some(linked) = &filter.linked {
            let [by, names] = [linked.by, linked.names].map(column);
            // The keys' indexes apply to statements that repeat their condition.
            all.require(
                format!(
                    "name IN (SELECT {names} FROM resource WHERE kind = ? AND kind <> 'training-job' AND {by} = ?)"
                ),
                [linked.links.name().to_owned().into(), linked.is.clone().into()],
            );
        }
        for (column, test) in ["key_1", "key_2"].iter().zip(&filter.keys) {
            match test {
                None => {}
                Some(KeyTest::Is(key)) => {
                    all.require(format!("{column} = ?"), [key.clone().into()]);
                    all.permit_key_indexes(filter.kind);
                }
                Some(KeyTest::IsNot(key)) => all.require(format!("{column} <> ?"), [key.clone().into()]),
            }
        }
        for (condition, bound) in [
            ("created_ms > ?", filter.created_after_ms),
            ("created_ms < ?", filter.created_before_ms),
            ("modified_ms > ?", filter.modified_after_ms),
            ("modified_ms < ?", filter.modified_before_ms),
        ] {
            if let Some(ms) = bound {
                all.require(condition, [time(ms)]);
            }
        }
        all
    }

    /// The keys' indexes apply to statements that repeat their condition.
    fn permit_key_indexes(&mut self, kind: ResourceKind) {
        if kind != ResourceKind::TRAINING_JOB {
            self.require("kind <> 'training-job'", []);
        }
    }
}

fn column(end: LinkEnd) -> &'static str {
    match end {
        LinkEnd::Parent => "parent",
        LinkEnd::FirstKey => "key_1",
        LinkEnd::SecondKey => "key_2",
    }
}

/// Row ids of a page, its order, and the operands: one statement per combination of conditions, so
/// that each is answered from the index that fits.
fn page_sql(filter: &ResourceFilter) -> Result<(String, String, Vec<Value>), StoreError> {
    let mut conditions = Conditions::of(filter);
    let (beyond, direction) = match filter.order {
        SortOrder::Ascending => (">", "ASC"),
        SortOrder::Descending => ("<", "DESC"),
    };
    let column = match filter.sort {
        ResourceSort::Name => None,
        ResourceSort::CreationTime => Some("created_ms"),
        // Rows of one status are in the order of their names.
        ResourceSort::Status => Some("status").filter(|_| filter.status.is_none()),
        ResourceSort::FirstKey => Some("key_1"),
        ResourceSort::SecondKey => Some("key_2"),
    };
    if let Some(column) = column.filter(|_| filter.sort.key_index().is_some()) {
        conditions.require(format!("{column} IS NOT NULL"), []);
        conditions.permit_key_indexes(filter.kind);
    }
    if let Some(cursor) = &filter.after {
        let name = cursor.name.clone().into();
        let value = match filter.sort {
            ResourceSort::Name => None,
            ResourceSort::CreationTime => Some(time(cursor.number()?)),
            ResourceSort::Status => Some(cursor.value.clone().into()),
            ResourceSort::FirstKey | ResourceSort::SecondKey => Some(cursor.key()?.into()),
        };
        match (column, value) {
            (Some(column), Some(value)) => {
                conditions.require(format!("({column}, name) {beyond} (?, ?)"), [value, name]);
            }
            _ => conditions.require(format!("name {beyond} ?"), [name]),
        }
    }
    let order =
        column.map_or_else(String::new, |column| format!("{column} {direction}, ")) + &format!("name {direction}");
    // One row more than requested shows whether there is a next page.
    conditions.values.push(Value::Integer(i64::try_from(filter.limit.saturating_add(1)).unwrap_or(i64::MAX)));
    let page = format!("SELECT rowid FROM resource WHERE {} ORDER BY {order} LIMIT ?", conditions.sql.join(" AND "));
    Ok((page, order, conditions.values))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Cursor, SqliteJournal};

    /// Plans of lists and counts; the operands are in no plan.
    #[test]
    fn lists_and_counts_are_answered_from_one_index() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("shoal.db");
        SqliteJournal::open(&path).unwrap();
        let connection = Connection::open(path).unwrap();
        let plan = |sql: &str, values: Vec<Value>| {
            let mut explain = connection.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
            let steps = explain.query_map(params_from_iter(values), |row| row.get::<_, String>(3)).unwrap();
            steps.map(Result::unwrap).collect::<Vec<_>>().join("; ")
        };
        let (failed, some) = (Some("Failed".to_owned()), Some("a".to_owned()));
        let not_first = [Some(KeyTest::IsNot("Pending".into())), None];
        let (of_jobs, all) =
            (ResourceFilter::new(ResourceKind::TRAINING_JOB), ResourceFilter::new(ResourceKind::new("model")));
        let (name, created, status) = (ResourceSort::Name, ResourceSort::CreationTime, ResourceSort::Status);
        let by_all = vec![name, created, status, ResourceSort::FirstKey, ResourceSort::SecondKey];
        let not_by_key = vec![name, created, status];
        // Filters, the orders that they are used with, and whether the index holds all that the
        // filter needs.
        for (filter, sorts, covered) in [
            (all.clone(), by_all.clone(), true),
            (of_jobs.clone(), not_by_key.clone(), true),
            (ResourceFilter { status: failed.clone(), ..all.clone() }, by_all.clone(), true),
            (ResourceFilter { name_contains: some.clone(), ..all.clone() }, by_all, true),
            (
                ResourceFilter { modified_after_ms: Some(1), status: failed.clone(), ..of_jobs.clone() },
                not_by_key.clone(),
                true,
            ),
            (ResourceFilter { status: failed, keys: not_first, ..of_jobs }, not_by_key.clone(), false),
            (ResourceFilter { parent: some.clone(), ..all.clone() }, not_by_key.clone(), false),
            (ResourceFilter { creator: some, ..all }, not_by_key, false),
        ] {
            let covering = if covered { "USING COVERING INDEX" } else { "USING" };
            for sort in sorts {
                for order in [SortOrder::Ascending, SortOrder::Descending] {
                    for after in [
                        None,
                        Some(Cursor {
                            value: if sort.key_index().is_some() { "n1" } else { "1" }.to_owned(),
                            name: "a".to_owned(),
                        }),
                    ] {
                        let (sql, _, values) =
                            page_sql(&ResourceFilter { sort, order, after, ..filter.clone() }).unwrap();
                        let plan = plan(&sql, values);
                        assert!(
                            plan.contains(covering) && plan.contains("kind=?") && !plan.contains("TEMP B-TREE"),
                            "{sql}: {plan}"
                        );
                    }
                }
            }
            let (sql, values) = count_sql(&filter);
            let plan = plan(&sql, values);
            let needs_status = filter.status.is_none() || plan.contains("status=?");
            assert!(plan.contains(covering) && plan.contains("kind=?") && needs_status, "{sql}: {plan}");
        }
    }

    /// Each component of 10,000 looks for its own links when all are searched.
    #[test]
    fn links_of_a_name_are_found_in_the_index_of_their_end() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("shoal.db");
        SqliteJournal::open(&path).unwrap();
        let connection = Connection::open(path).unwrap();
        let plan = |sql: &str, values: Vec<Value>| {
            let mut explain = connection.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
            let steps = explain.query_map(params_from_iter(values), |row| row.get::<_, String>(3)).unwrap();
            steps.map(Result::unwrap).collect::<Vec<_>>().join("; ")
        };
        let kind = ResourceKind::new("link-of-a-test");
        for (end, used) in [
            (LinkEnd::Parent, "resource_of_parent_by_creation (kind=? AND parent=?"),
            (LinkEnd::FirstKey, "resource_by_key_1 (kind=? AND key_1=?"),
            (LinkEnd::SecondKey, "resource_by_key_2 (kind=? AND key_2=?"),
        ] {
            let mut filter = ResourceFilter::new(kind);
            end.select(&mut filter, "a");
            let (sql, _, values) = page_sql(&filter).unwrap();
            let links = plan(&sql, values);
            assert!(links.contains(used) && !links.contains("TEMP B-TREE"), "{sql}: {links}");
            let linked = crate::Linked { links: kind, by: end, is: "a".to_owned(), names: LinkEnd::FirstKey };
            let (sql, values) = count_sql(&ResourceFilter { linked: Some(linked), ..ResourceFilter::new(kind) });
            let named = plan(&sql, values);
            assert!(named.contains(used), "{sql}: {named}");
        }
    }
}
