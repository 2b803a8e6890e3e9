//! Checks a whole data directory, with a server in it or without: the database files by SQLite's
//! own check, log lines, and each object and each part of an unfinished upload by what was written.
//! Reads only.

use std::fs::File;
use std::io;
use std::path::Path;

use rusqlite::{Connection, OpenFlags, OptionalExtension, params};

use crate::block_sums::of_file;
use crate::content_seals;
use crate::elsewhere::rows;
use crate::error::io_at;
use crate::integrity::{damage, damage_in_place, parts_of};
use crate::object_rows::{OBJECT_COLUMNS, VERSIONED_COLUMNS, object_of, versioned_object_of};
use crate::object_writer::file_path;
use crate::part_places::Place;
use crate::verify_logs::verify_logs;
use crate::{ObjectMeta, StoreError, Versioning};

/// Rows that are read at a time.
const PAGE: usize = 500;

/// The databases of a data directory.
const DATABASES: [&str; 3] = ["shoal.db", "objects.db", "telemetry.db"];

/// From this format on the index keeps the content of small files that were not yet synced, and
/// sums of blocks.
const FORMAT_WITH_CONTENT: i64 = 2;
const FORMAT_WITH_SUMS: i64 = 3;
/// From this one on parts may lie in files that they share.
const FORMAT_WITH_PLACES: i64 = 4;
/// From this one on contents may be elsewhere.
const FORMAT_WITH_ELSEWHERE: i64 = 5;
/// From this one on objects may have earlier versions.
const FORMAT_WITH_VERSIONS: i64 = 7;
/// From this one on contents may be encrypted.
const FORMAT_WITH_SEALS: i64 = 8;

/// Something that is not what was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Damage {
    /// `s3://bucket/key`, with the id for an earlier version and the number for a part of an
    /// upload; a database's file name; or a log stream.
    pub name: String,
    /// What is wrong with it.
    pub detail: String,
}

/// What was checked, and what is wrong.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    /// Objects in all their versions, and parts of unfinished uploads.
    pub objects: u64,
    /// Bytes of them.
    pub bytes: u64,
    /// Objects whose contents are in a store elsewhere alone, which were not read.
    pub elsewhere: u64,
    /// In the order in which it was found.
    pub damages: Vec<Damage>,
}

/// How far a check is.
#[derive(Debug, Clone, Copy)]
pub enum Step<'a> {
    /// This database is being checked.
    Database(&'a str),
    /// So much is checked.
    Objects {
        /// Objects and parts.
        done: u64,
        /// All of them, as of the beginning.
        of: u64,
        /// Bytes of those that are done.
        bytes: u64,
    },
}

/// Checks the data directory at this path.
///
/// # Errors
/// [`StoreError::NotADataDir`]; a database cannot be opened, or a file cannot be read.
pub fn verify(root: &Path, progress: &mut dyn FnMut(Step<'_>)) -> Result<Report, StoreError> {
    if !root.join("VERSION").exists() {
        return Err(StoreError::NotADataDir(root.to_owned()));
    }
    let mut report = Report::default();
    for name in DATABASES {
        let path = root.join(name);
        if path.exists() {
            progress(Step::Database(name));
            let problems = quick_check(&path).unwrap_or_else(|error| vec![describe(&error)]);
            report.damages.extend(problems.into_iter().map(|detail| Damage { name: name.to_owned(), detail }));
        }
    }
    let index = root.join("objects.db");
    // What cannot be read has been reported.
    if index.exists() && report.damages.iter().all(|damage| damage.name != "objects.db") {
        Check::open(root, &index)?.run(&mut report, progress)?;
    }
    let telemetry = root.join("telemetry.db");
    if telemetry.exists() && report.damages.iter().all(|damage| damage.name != "telemetry.db") {
        report.damages.extend(verify_logs(&telemetry, &root.join("logs"))?);
    }
    Ok(report)
}

fn describe(error: &StoreError) -> String {
    let cause = std::error::Error::source(error).map(|cause| format!(": {cause}")).unwrap_or_default();
    format!("{error}{cause}")
}

pub(crate) fn open(path: &Path) -> Result<Connection, StoreError> {
    let connection =
        Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
    connection.busy_timeout(std::time::Duration::from_secs(10))?;
    Ok(connection)
}

fn quick_check(path: &Path) -> Result<Vec<String>, StoreError> {
    let connection = open(path)?;
    let mut check = connection.prepare("PRAGMA quick_check")?;
    let lines = check.query_map([], |row| row.get::<_, String>(0))?.collect::<rusqlite::Result<Vec<_>>>()?;
    Ok(lines.into_iter().filter(|line| line != "ok").collect())
}

/// A part as an object.
struct StoredPart {
    name: String,
    upload: String,
    meta: ObjectMeta,
    /// Where it begins, in which file, if it has none of its own.
    place: Option<(u64, String)>,
}

struct Check<'a> {
    root: &'a Path,
    index: Connection,
    format: i64,
}

impl<'a> Check<'a> {
    fn open(root: &'a Path, index: &Path) -> Result<Self, StoreError> {
        let index = open(index)?;
        let format = index.pragma_query_value(None, "user_version", |row| row.get(0))?;
        Ok(Self { root, index, format })
    }

    fn run(&self, report: &mut Report, progress: &mut dyn FnMut(Step<'_>)) -> Result<(), StoreError> {
        let versions = if self.format >= FORMAT_WITH_VERSIONS { "count(file) FROM version" } else { "0" };
        let count = format!("SELECT (SELECT count(*) FROM object) + (SELECT {versions}) + (SELECT count(*) FROM part)");
        let of = self.index.query_row(&count, [], |row| row.get(0))?;
        let mut after = (String::new(), String::new());
        loop {
            let page = self.objects_after(&after.0, &after.1)?;
            let Some((bucket, last)) = page.last() else { break };
            after = (bucket.clone(), last.key.clone());
            for (bucket, meta) in &page {
                self.check(&format!("s3://{bucket}/{}", meta.key), meta, None, report, || {
                    self.is_present(bucket, meta)
                })?;
                progress(Step::Objects { done: report.objects, of, bytes: report.bytes });
            }
        }
        // Later: what was replaced meanwhile is found here.
        if self.format >= FORMAT_WITH_VERSIONS {
            self.versions(of, report, progress)?;
        }
        for StoredPart { name, upload, meta, place } in self.parts()? {
            self.check(&name, &meta, place.as_ref(), report, || self.is_present_part(&upload, &meta))?;
            progress(Step::Objects { done: report.objects, of, bytes: report.bytes });
        }
        Ok(())
    }

    fn versions(&self, of: u64, report: &mut Report, progress: &mut dyn FnMut(Step<'_>)) -> Result<(), StoreError> {
        let sql = format!(
            "SELECT {VERSIONED_COLUMNS}, name, bucket.id, place FROM version JOIN bucket ON bucket.id = bucket WHERE \
             file IS NOT NULL AND (bucket, key, place) > (?, ?, ?) ORDER BY bucket, key, place LIMIT ?"
        );
        let mut after = (i64::MIN, String::new(), i64::MIN);
        loop {
            let mut select = self.index.prepare_cached(&sql)?;
            let rows = select.query_map(params![after.0, after.1, after.2, PAGE], |row| {
                Ok((row.get(7)?, row.get(8)?, row.get(9)?, versioned_object_of(row, Versioning::Enabled)))
            })?;
            let page = rows.collect::<rusqlite::Result<Vec<(String, i64, i64, _)>>>()?;
            if page.is_empty() {
                return Ok(());
            }
            for (name, bucket, place, meta) in page {
                let meta = meta?;
                let name = format!("s3://{name}/{}?versionId={}", meta.key, meta.version.id());
                self.check(&name, &meta, None, report, || self.is_present_version(bucket, &meta))?;
                progress(Step::Objects { done: report.objects, of, bytes: report.bytes });
                after = (bucket, meta.key, place);
            }
        }
    }

    fn is_present_version(&self, bucket: i64, meta: &ObjectMeta) -> Result<bool, StoreError> {
        let sql = "SELECT 1 FROM version WHERE bucket = ?1 AND key = ?2 AND file = ?3 UNION ALL SELECT 1 FROM object \
                   WHERE bucket = ?1 AND key = ?2 AND file = ?3";
        Ok(self.index.prepare_cached(sql)?.exists(params![bucket, meta.key, meta.id])?)
    }

    fn objects_after(&self, bucket: &str, key: &str) -> Result<Vec<(String, ObjectMeta)>, StoreError> {
        let sql = format!(
            "SELECT {OBJECT_COLUMNS}, name FROM object JOIN bucket ON bucket.id = bucket WHERE (name, key) > (?, ?) \
             ORDER BY name, key LIMIT ?"
        );
        let mut select = self.index.prepare_cached(&sql)?;
        let rows = select.query_map(params![bucket, key, PAGE], |row| Ok((row.get(6)?, object_of(row))))?;
        rows.map(|row| row.map_err(StoreError::from).and_then(|(bucket, meta)| Ok((bucket, meta?)))).collect()
    }

    fn parts(&self) -> Result<Vec<StoredPart>, StoreError> {
        let place = if self.format >= FORMAT_WITH_PLACES { "shared, slot" } else { "NULL, NULL" };
        let sql = format!(
            "SELECT name, key, number, upload, file, part.size, part.etag, modified_ms, {place}
            FROM part JOIN upload ON upload.id = upload JOIN bucket ON bucket.id = bucket"
        );
        let mut select = self.index.prepare_cached(&sql)?;
        let rows = select.query_map([], |row| {
            let (bucket, key, number): (String, String, u32) = (row.get(0)?, row.get(1)?, row.get(2)?);
            let meta = ObjectMeta {
                passthrough: None,
                id: row.get(4)?,
                size: row.get(5)?,
                etag: row.get(6)?,
                modified_ms: row.get(7)?,
                attributes: crate::Attributes::default(),
                version: crate::Version::default(),
                key,
            };
            let place = row.get::<_, Option<String>>(8)?.zip(row.get(9)?).map(|(file, slot)| Place { file, slot });
            let place = place.map(|place| (place.start(number), place.file));
            let name = format!("s3://{bucket}/{} (part {number} of an upload)", meta.key);
            Ok(StoredPart { name, upload: row.get(3)?, meta, place })
        })?;
        Ok(rows.collect::<rusqlite::Result<_>>()?)
    }

    fn check(
        &self,
        name: &str,
        meta: &ObjectMeta,
        place: Option<&(u64, String)>,
        report: &mut Report,
        is_present: impl Fn() -> Result<bool, StoreError>,
    ) -> Result<(), StoreError> {
        let path = file_path(&self.root.join("objects"), place.map_or(&meta.id, |(_, file)| file));
        let sums = if self.format >= FORMAT_WITH_SUMS { of_file(&self.index, &meta.id)? } else { None };
        let found = match File::open(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Some("its file is missing".to_owned()),
            file => {
                let file = file.map_err(io_at("open", &path))?;
                let damage = match place {
                    Some((start, _)) => damage_in_place(&file, *start, meta.size, sums.as_deref().unwrap_or_default()),
                    None => damage(&file, meta, sums.as_deref()),
                };
                damage.map_err(io_at("read", &path))?
            }
        };
        let found = found.map_or_else(|| self.damaged_seals(meta), |damage| Ok(Some(damage)))?;
        if let Some(detail) = found {
            // A running server may have replaced or deleted it meanwhile.
            if !is_present()? {
                return Ok(());
            }
            // What is damaged here is read there.
            if place.is_none() && self.format >= FORMAT_WITH_ELSEWHERE && rows::is_there(&self.index, &meta.id)? {
                report.elsewhere += 1;
                return Ok(());
            }
            if !self.is_in_index(meta)? {
                report.damages.push(Damage { name: name.to_owned(), detail });
            }
        }
        report.objects += 1;
        report.bytes += meta.size;
        Ok(())
    }

    /// What is wrong with the seals of an encrypted content, as far as that shows without its key.
    fn damaged_seals(&self, meta: &ObjectMeta) -> Result<Option<String>, StoreError> {
        if self.format < FORMAT_WITH_SEALS || meta.attributes.encryption.is_none() {
            return Ok(None);
        }
        let seals = content_seals::of_file(&self.index, &meta.id)?.map_or(0, |seals| seals.len() as u64);
        let expected = content_seals::length_of(&parts_of(meta));
        Ok((seals != expected).then(|| format!("it has {seals} bytes of seals instead of {expected}")))
    }

    fn is_present(&self, bucket: &str, meta: &ObjectMeta) -> Result<bool, StoreError> {
        let sql = "SELECT 1 FROM object JOIN bucket ON bucket.id = bucket WHERE name = ? AND key = ? AND file = ?";
        Ok(self.index.prepare_cached(sql)?.exists(params![bucket, meta.key, meta.id])?)
    }

    fn is_present_part(&self, upload: &str, meta: &ObjectMeta) -> Result<bool, StoreError> {
        Ok(self
            .index
            .prepare_cached("SELECT 1 FROM part WHERE upload = ? AND file = ?")?
            .exists(params![upload, meta.id])?)
    }

    /// Whether the index has the content of a small file, which a crash may have taken: the next
    /// start writes it again.
    fn is_in_index(&self, meta: &ObjectMeta) -> Result<bool, StoreError> {
        if self.format < FORMAT_WITH_CONTENT {
            return Ok(false);
        }
        let mut select = self.index.prepare_cached("SELECT length(content) FROM unsynced WHERE file = ?")?;
        let length: Option<u64> = select.query_row([&meta.id], |row| row.get(0)).optional()?;
        Ok(length == Some(meta.size))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::fs;

    use super::*;
    use crate::{Attributes, DataDir, Objects};

    fn check(root: &Path) -> (Report, Vec<String>) {
        let mut steps = Vec::new();
        let report = verify(root, &mut |step| steps.push(format!("{step:?}"))).unwrap();
        (report, steps)
    }

    #[test]
    fn damage_is_found_with_and_without_a_server() {
        let temp = tempfile::tempdir().unwrap();
        let root = temp.path().join("data");
        let dir = DataDir::open(&root).unwrap();
        let objects = Objects::open(&dir).unwrap();
        objects.create_bucket("b").unwrap();
        let long = vec![9; 2_500_000];
        let meta = objects.put("b", "long", &long, &Attributes::default()).unwrap();
        objects.put("b", "small", b"content", &Attributes::default()).unwrap();
        let upload = objects.create_upload("b", "k", &Attributes::default(), None).unwrap();
        let mut writer = objects.writer().unwrap();
        writer.append(&long).unwrap();
        objects.commit_part(writer, &upload, 1, &BTreeMap::new()).unwrap();
        let path = objects.path(&meta);

        let (report, steps) = check(&root);
        assert_eq!(report, Report { objects: 3, bytes: 5_000_007, elsewhere: 0, damages: Vec::new() });
        assert_eq!(
            steps,
            [
                "Database(\"objects.db\")",
                "Objects { done: 1, of: 3, bytes: 2500000 }",
                "Objects { done: 2, of: 3, bytes: 2500007 }",
                "Objects { done: 3, of: 3, bytes: 5000007 }",
            ]
        );
        drop((objects, dir));
        assert_eq!(check(&root).0, report);

        let mut bytes = fs::read(&path).unwrap();
        bytes[2_000_000] ^= 1;
        fs::write(&path, &bytes).unwrap();
        let damages = check(&root).0.damages;
        let detail = "its bytes 1048576 to 2097151 are not those that were written";
        assert_eq!(damages, [Damage { name: "s3://b/long".to_owned(), detail: detail.to_owned() }]);
        fs::remove_file(&path).unwrap();
        assert_eq!(check(&root).0.damages[0].detail, "its file is missing");
    }

    #[test]
    fn a_damaged_database_is_named() {
        let temp = tempfile::tempdir().unwrap();
        let dir = DataDir::open(temp.path()).unwrap();
        let objects = Objects::open(&dir).unwrap();
        objects.create_bucket("b").unwrap();
        for number in 0..2_000 {
            objects.put("b", &format!("key-{number:040}"), b"", &Attributes::default()).unwrap();
        }
        drop(objects);
        let path = dir.object_index_path();
        drop(Objects::open(&dir).unwrap());
        let mut bytes = fs::read(&path).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle..middle + 8192].fill(0xA5);
        fs::write(&path, bytes).unwrap();
        let damages = check(temp.path()).0.damages;
        assert!(!damages.is_empty() && damages.iter().all(|damage| damage.name == "objects.db"), "{damages:?}");
        assert!(matches!(verify(&temp.path().join("objects"), &mut |_| {}), Err(StoreError::NotADataDir(_))));
    }
}
