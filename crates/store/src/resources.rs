//! Rows of resources: everything that AWS lists by kind and name, written by the journal's
//! transactions.

use std::fmt;
use std::mem;
use std::str::FromStr;

use crate::StoreError;

/// Kind of a resource, named as in its ARN: `arn:aws:sagemaker:<region>:<account>:<kind>/<name>`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize)]
pub struct ResourceKind(&'static str);

impl ResourceKind {
    /// Its first key is the secondary status, its parent the tuning job whose trial it is.
    /// Checkpoint receipts and the trial's row are deleted with it.
    pub const TRAINING_JOB: Self = Self::new("training-job");
    /// Its trials' rows and its tuner's records are deleted with it.
    pub const TUNING_JOB: Self = Self::new("hyper-parameter-tuning-job");

    /// A kind of this name.
    pub const fn new(name: &'static str) -> Self {
        Self(name)
    }

    /// The kinds whose rows have a spec.
    pub(crate) const WITH_SPEC: [Self; 2] = [Self::TRAINING_JOB, Self::TUNING_JOB];

    /// As in ARNs.
    pub const fn name(self) -> &'static str {
        self.0
    }
}

/// A resource as lists and lookups see it. Times are milliseconds since the epoch.
#[derive(Debug, Clone, PartialEq)]
pub struct ResourceRow {
    /// Kind.
    pub kind: ResourceKind,
    /// Unique among rows of the kind.
    pub name: String,
    /// Random, given at creation.
    pub uid: String,
    /// Amazon resource name.
    pub arn: String,
    /// Creation.
    pub created_ms: u64,
    /// Last change.
    pub modified_ms: u64,
    /// End time as answers show it, if there is one.
    pub ended_ms: Option<u64>,
    /// Status; empty for kinds without one.
    pub status: String,
    /// The resource has reached a terminal status.
    pub ended: bool,
    /// Name of the resource that it belongs to; its kind follows from this row's kind.
    pub parent: Option<String>,
    /// Values that the kind is listed by in addition to name, creation and status. The kind says
    /// what they are.
    pub keys: [Option<Key>; 2],
    /// The request as it was received, JSON.
    pub request: Vec<u8>,
    /// What the server needs of the request, in a form of its own; empty for kinds without one. Of
    /// kinds that have one it is empty in rows of database formats before 5:
    /// [`crate::Rows::without_spec`].
    pub spec: Vec<u8>,
    /// The core's view, JSON; empty for kinds that the core does not know.
    pub view: Vec<u8>,
    /// Tags, JSON.
    pub tags: Vec<u8>,
    /// Name of the key that it was created with; `None` for the owner of the data directory.
    pub creator: Option<String>,
}

impl ResourceRow {
    /// A row in which everything else is empty.
    pub fn new(kind: ResourceKind, name: &str) -> Self {
        Self {
            kind,
            name: name.to_owned(),
            uid: String::new(),
            arn: String::new(),
            created_ms: 0,
            modified_ms: 0,
            ended_ms: None,
            status: String::new(),
            ended: false,
            parent: None,
            keys: [None, None],
            request: Vec::new(),
            spec: Vec::new(),
            view: Vec::new(),
            tags: Vec::new(),
            creator: None,
        }
    }

    /// Replaces what `progress` has; kind and name are not compared.
    pub fn advance(&mut self, progress: ResourceProgress) {
        let ResourceProgress { kind: _, name: _, modified_ms, ended_ms, status, ended, keys, view } = progress;
        let row = mem::replace(self, Self::new(self.kind, ""));
        *self = Self { modified_ms, ended_ms, status, ended, keys, view, ..row };
    }
}

/// The part of a row that changes while the resource exists; requests and tags are not part of it.
/// Members as in [`ResourceRow`].
#[derive(Debug, Clone, PartialEq)]
#[expect(missing_docs, reason = "as in ResourceRow")]
pub struct ResourceProgress {
    pub kind: ResourceKind,
    /// Nothing happens if there is no such row.
    pub name: String,
    pub modified_ms: u64,
    pub ended_ms: Option<u64>,
    pub status: String,
    pub ended: bool,
    pub keys: [Option<Key>; 2],
    pub view: Vec<u8>,
}

/// A value that a kind's rows are listed by. Numbers come before texts.
#[derive(Debug, Clone, PartialEq, PartialOrd, serde::Serialize)]
pub enum Key {
    /// A finite number.
    Number(f64),
    /// A text, ordered by its bytes.
    Text(String),
}

impl Key {
    /// The text, unless it is a number.
    pub fn text(&self) -> Option<&str> {
        match self {
            Self::Number(_) => None,
            Self::Text(text) => Some(text),
        }
    }
}

impl From<&str> for Key {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

/// Selects rows of one kind. All conditions that are set must hold.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct ResourceFilter {
    /// Rows of this kind.
    pub kind: ResourceKind,
    /// The name contains this, case-sensitively.
    pub name_contains: Option<String>,
    /// The name is one of these.
    pub names: Option<Vec<String>>,
    /// The name contains this, whatever the case of ASCII letters.
    pub name_resembles: Option<String>,
    /// The status is this.
    pub status: Option<String>,
    /// The parent is this.
    pub parent: Option<String>,
    /// It was created with the key of this name.
    pub creator: Option<String>,
    /// The name is among those that links have at one end.
    pub linked: Option<Linked>,
    /// Of each key, what it is compared with. A row without the key does not match.
    pub keys: [Option<KeyTest>; 2],
    /// Created later than this.
    pub created_after_ms: Option<u64>,
    /// Created earlier than this.
    pub created_before_ms: Option<u64>,
    /// Modified later than this.
    pub modified_after_ms: Option<u64>,
    /// Modified earlier than this.
    pub modified_before_ms: Option<u64>,
    /// Order of the rows; equal ones come by name.
    pub sort: ResourceSort,
    /// Direction of the order.
    pub order: SortOrder,
    /// End of the previous page.
    pub after: Option<Cursor>,
    /// Maximum number of rows in a page.
    pub limit: usize,
}

impl ResourceFilter {
    /// The first 100 rows of the kind by creation.
    pub fn new(kind: ResourceKind) -> Self {
        Self {
            kind,
            name_contains: None,
            names: None,
            name_resembles: None,
            status: None,
            parent: None,
            creator: None,
            linked: None,
            keys: [None, None],
            created_after_ms: None,
            created_before_ms: None,
            modified_after_ms: None,
            modified_before_ms: None,
            sort: ResourceSort::CreationTime,
            order: SortOrder::Ascending,
            after: None,
            limit: 100,
        }
    }
}

/// The rows that links of one kind have at one end, selected by another end. A link is a row whose
/// parent and keys are names of other rows.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Linked {
    /// Kind of the links.
    pub links: ResourceKind,
    /// The end that selects links.
    pub by: LinkEnd,
    /// What that end is.
    pub is: String,
    /// The end that has the names.
    pub names: LinkEnd,
}

/// A place of a link that has a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
pub enum LinkEnd {
    /// `parent`.
    Parent,
    /// `keys[0]`.
    FirstKey,
    /// `keys[1]`.
    SecondKey,
}

impl LinkEnd {
    /// The name that a link has at this end.
    pub fn of(self, link: &ResourceRow) -> Option<&str> {
        match self {
            Self::Parent => link.parent.as_deref(),
            Self::FirstKey => link.keys[0].as_ref().and_then(Key::text),
            Self::SecondKey => link.keys[1].as_ref().and_then(Key::text),
        }
    }

    /// Restricts a filter to the links that have this name at this end, in the order in which the
    /// end's index has them: by name, those of a parent by creation.
    pub fn select(self, filter: &mut ResourceFilter, name: &str) {
        match self {
            Self::Parent => {
                filter.parent = Some(name.to_owned());
                filter.sort = ResourceSort::CreationTime;
            }
            Self::FirstKey => {
                filter.keys[0] = Some(KeyTest::Is(name.into()));
                filter.sort = ResourceSort::FirstKey;
            }
            Self::SecondKey => {
                filter.keys[1] = Some(KeyTest::Is(name.into()));
                filter.sort = ResourceSort::SecondKey;
            }
        }
    }
}

/// What a key is compared with.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub enum KeyTest {
    /// The key equals this.
    Is(Key),
    /// The key differs from this.
    IsNot(Key),
}

/// Sort key of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
pub enum ResourceSort {
    /// `name`.
    Name,
    /// `created_ms`.
    CreationTime,
    /// `status`.
    Status,
    /// `keys[0]`; rows without it are not listed.
    FirstKey,
    /// `keys[1]`; rows without it are not listed.
    SecondKey,
}

impl ResourceSort {
    /// Index into `keys`.
    pub(crate) fn key_index(self) -> Option<usize> {
        match self {
            Self::Name | Self::CreationTime | Self::Status => None,
            Self::FirstKey => Some(0),
            Self::SecondKey => Some(1),
        }
    }
}

/// Direction of an order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
pub enum SortOrder {
    /// Smallest first.
    Ascending,
    /// Greatest first.
    Descending,
}

/// Rows of one page.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Page {
    /// In the filter's order.
    pub rows: Vec<ResourceRow>,
    /// Start of the next page; `None` at the end.
    pub next: Option<Cursor>,
}

impl Page {
    /// The page of `rows`, which were read with one more than `filter.limit` allows to see whether
    /// there is a next page.
    pub(crate) fn cut(mut rows: Vec<ResourceRow>, filter: &ResourceFilter) -> Self {
        let more = rows.len() > filter.limit;
        rows.truncate(filter.limit);
        let next = rows.last().filter(|_| more).map(|row| Cursor::after(row, filter.sort));
        Self { rows, next }
    }
}

/// A position in a list: after the row with this sort value and name. It remains valid when rows
/// are added and removed. `Display` and `FromStr` are its text form, for tokens.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Cursor {
    pub(crate) value: String,
    pub(crate) name: String,
}

impl Cursor {
    /// The position after `row` in a list sorted by `sort`.
    pub fn after(row: &ResourceRow, sort: ResourceSort) -> Self {
        let value = match sort {
            ResourceSort::Name => String::new(),
            ResourceSort::CreationTime => row.created_ms.to_string(),
            ResourceSort::Status => row.status.clone(),
            ResourceSort::FirstKey => key_text(row.keys[0].as_ref()),
            ResourceSort::SecondKey => key_text(row.keys[1].as_ref()),
        };
        Self { value, name: row.name.clone() }
    }

    /// The sort value of a list by a number.
    pub(crate) fn number<T: FromStr>(&self) -> Result<T, StoreError> {
        self.value.parse().map_err(|_| StoreError::BadCursor(self.to_string()))
    }

    /// The sort value of a list by a key.
    pub(crate) fn key(&self) -> Result<Key, StoreError> {
        let bad = || StoreError::BadCursor(self.to_string());
        match self.value.split_at_checked(1) {
            Some(("n", number)) => Ok(Key::Number(number.parse().map_err(|_| bad())?)),
            Some(("t", text)) => Ok(Key::Text(text.to_owned())),
            _ => Err(bad()),
        }
    }
}

/// `n` or `t`, then the shortest text that is read back as the same key.
fn key_text(key: Option<&Key>) -> String {
    match key {
        Some(Key::Number(number)) => format!("n{number}"),
        Some(Key::Text(text)) => format!("t{text}"),
        None => String::new(),
    }
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.value.replace('%', "%25").replace('/', "%2F"), self.name)
    }
}

impl FromStr for Cursor {
    type Err = StoreError;

    fn from_str(text: &str) -> Result<Self, StoreError> {
        let (value, name) = text.split_once('/').ok_or_else(|| StoreError::BadCursor(text.to_owned()))?;
        Ok(Self { value: value.replace("%2F", "/").replace("%25", "%"), name: name.to_owned() })
    }
}
