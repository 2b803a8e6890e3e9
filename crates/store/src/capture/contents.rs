//! Which files belong to a capture: objects, parts of unfinished uploads, segments of logs. Each is
//! written once and never changed, so a copy that has one has it permanently.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use rusqlite::Connection;

use super::source::Capture;
use crate::StoreError;
use crate::elsewhere::rows;
use crate::error::io_at;
use crate::object_writer::file_path;
use crate::part_places::Place;
use crate::version_rows::has_versions;

/// Bytes that are written once, by the name under which rows know them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Content {
    /// An object, or a part of an unfinished upload.
    Object {
        /// What its row names.
        id: String,
        /// Its length.
        size: u64,
        /// Of a part in a file that others share: which file, and where it begins.
        place: Option<(String, u64)>,
    },
    /// A compressed piece of a log.
    Segment {
        /// The file's name.
        file: String,
    },
}

/// A content as far as a row has it, without a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ContentKey<'a> {
    /// An object's id, and its length.
    Object(u128, u64),
    /// A file of a log.
    Segment(&'a str),
}

/// Which contents a caller has already.
pub type IsKnown<'a> = dyn Fn(ContentKey<'_>) -> bool + 'a;

/// A content that is open for reading from where it begins.
#[derive(Debug)]
pub struct Opened {
    /// The file.
    pub file: File,
    /// Where it begins.
    pub start: u64,
    /// Bytes that it has.
    pub size: u64,
}

impl Content {
    /// Distinguishes it from others.
    pub fn key(&self) -> ContentKey<'_> {
        match self {
            Self::Object { id, size, .. } => ContentKey::Object(number_of(id), *size),
            Self::Segment { file } => ContentKey::Segment(file),
        }
    }

    /// The name of a copy of it.
    pub fn name(&self) -> String {
        match self {
            Self::Object { id, .. } => format!("objects/{}/{id}", id.get(..2).unwrap_or("__")),
            Self::Segment { file } => format!("logs/{file}"),
        }
    }

    /// Opens it in the data directory at this path; `None`: it is not there any more.
    ///
    /// # Errors
    /// I/O.
    pub fn open(&self, root: &Path) -> Result<Option<Opened>, StoreError> {
        let (path, start) = self.source(root);
        let file = match File::open(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            opened => opened.map_err(io_at("open", &path))?,
        };
        let length = file.metadata().map_err(io_at("read", &path))?.len();
        let size = match self {
            Self::Object { size, .. } => *size,
            Self::Segment { .. } => length,
        };
        // Longer than the disk has it: damaged, which a check of the copy finds.
        Ok(Some(Opened { file, start, size: size.min(length.saturating_sub(start)) }))
    }

    /// Where it is in a data directory.
    pub fn source(&self, root: &Path) -> (PathBuf, u64) {
        match self {
            Self::Object { place: Some((file, start)), .. } => (file_path(&root.join("objects"), file), *start),
            Self::Object { id, .. } => (file_path(&root.join("objects"), id), 0),
            Self::Segment { file } => (root.join("logs").join(file), 0),
        }
    }

    /// Whether the bytes may be overwritten once no row names it.
    fn is_in_shared_file(&self) -> bool {
        matches!(self, Self::Object { place: Some(_), .. })
    }
}

/// An id as a number: sets of them are a third as large.
fn number_of(id: &str) -> u128 {
    u128::from_str_radix(id, 16).unwrap_or_default()
}

impl Capture {
    /// What the captured rows name, without what is known.
    ///
    /// # Errors
    /// SQLite's.
    pub fn contents(&self, is_known: &IsKnown<'_>) -> Result<Vec<Content>, StoreError> {
        let mut contents = Vec::new();
        for view in &self.databases {
            match view.name() {
                "objects.db" => objects(view.reader(), is_known, &mut contents)?,
                "telemetry.db" => segments(view.reader(), is_known, &mut contents)?,
                _ => {}
            }
        }
        Ok(contents)
    }

    /// Training jobs that had not ended.
    ///
    /// # Errors
    /// SQLite's.
    pub fn jobs_running(&self) -> Result<u64, StoreError> {
        let journal = self.databases.iter().find(|view| view.name() == "shoal.db");
        journal.map_or(Ok(0), |view| running(view.reader()))
    }
}

/// What the rows of the data directory at this path name, where no server runs.
///
/// # Errors
/// SQLite's.
pub fn contents_of(root: &Path) -> Result<Vec<Content>, StoreError> {
    let (mut contents, open) = (Vec::new(), |name: &str| crate::verify::open(&root.join(name)));
    objects(&open("objects.db")?, &|_| false, &mut contents)?;
    segments(&open("telemetry.db")?, &|_| false, &mut contents)?;
    Ok(contents)
}

/// Whether every one of these is named by a row still. Those that were read from files that parts
/// share are what they were only then.
///
/// # Errors
/// SQLite's.
pub fn are_named(root: &Path, of: &[Content]) -> Result<bool, StoreError> {
    let shared: Vec<&Content> = of.iter().filter(|content| content.is_in_shared_file()).collect();
    if shared.is_empty() {
        return Ok(true);
    }
    let connection = crate::verify::open(&root.join("objects.db"))?;
    let mut select = connection.prepare("SELECT 1 FROM part WHERE file = ?")?;
    for content in shared {
        if let Content::Object { id, .. } = content
            && !select.exists([id])?
        {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Rows that are known cost no copy: there may be a million of them, several times a second.
fn objects(connection: &Connection, is_known: &IsKnown<'_>, contents: &mut Vec<Content>) -> Result<(), StoreError> {
    // What is elsewhere is the business of its own store.
    let is_local = rows::is_local(connection)?;
    let versions = match has_versions(connection)? {
        true => format!(" UNION ALL SELECT file, size FROM version WHERE file IS NOT NULL AND {is_local}"),
        false => String::new(),
    };
    let sql = format!("SELECT file, size FROM object WHERE {is_local}{versions}");
    let mut select = connection.prepare_cached(&sql)?;
    let mut rows = select.query([])?;
    while let Some(row) = rows.next()? {
        let (id, size) = (row.get_ref(0)?.as_str().map_err(rusqlite::Error::from)?, row.get(1)?);
        if !is_known(ContentKey::Object(number_of(id), size)) {
            contents.push(Content::Object { id: id.to_owned(), size, place: None });
        }
    }
    let mut select = connection.prepare_cached("SELECT file, size, number, shared, slot FROM part")?;
    let mut rows = select.query([])?;
    while let Some(row) = rows.next()? {
        let (id, size, number): (String, u64, u32) = (row.get(0)?, row.get(1)?, row.get(2)?);
        let place = row.get::<_, Option<String>>(3)?.zip(row.get(4)?).map(|(file, slot)| Place { file, slot });
        let place = place.map(|place| (place.file.clone(), place.start(number)));
        if !is_known(ContentKey::Object(number_of(&id), size)) {
            contents.push(Content::Object { id, size, place });
        }
    }
    Ok(())
}

fn segments(connection: &Connection, is_known: &IsKnown<'_>, contents: &mut Vec<Content>) -> Result<(), StoreError> {
    let mut select = connection.prepare_cached("SELECT file FROM log_segment")?;
    let mut rows = select.query([])?;
    while let Some(row) = rows.next()? {
        let file: String = row.get(0)?;
        if !is_known(ContentKey::Segment(&file)) {
            contents.push(Content::Segment { file });
        }
    }
    Ok(())
}

/// Training jobs that have not ended, by the rows of the data directory at this path.
///
/// # Errors
/// SQLite's.
pub fn jobs_running(root: &Path) -> Result<u64, StoreError> {
    running(&crate::verify::open(&root.join("shoal.db"))?)
}

fn running(connection: &Connection) -> Result<u64, StoreError> {
    let select = "SELECT count(*) FROM resource WHERE kind = ? AND ended = 0";
    Ok(connection.query_row(select, [crate::ResourceKind::TRAINING_JOB.name()], |row| row.get(0))?)
}
