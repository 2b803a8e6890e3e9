//! Listing a bucket by prefix and delimiter, as S3 does.

use rusqlite::params;

use crate::object_rows::{VERSIONED_COLUMNS, bucket_id, bucket_row, versioned_object_of};
use crate::{Listing, Objects, StoreError};

impl Objects {
    /// Bytes of all objects of a bucket whose keys start with `prefix`, in all their versions; none
    /// of a bucket that does not exist.
    ///
    /// # Errors
    /// The storage's.
    pub fn stored_bytes(&self, bucket: &str, prefix: &str) -> Result<u64, StoreError> {
        self.index.read(|connection| {
            let bucket = match bucket_id(connection, bucket) {
                Err(StoreError::NoSuchBucket(_)) => return Ok(0),
                found => found?,
            };
            let end = after_prefix(prefix);
            let sum = |table: &str| -> Result<i64, StoreError> {
                let sql = format!("SELECT COALESCE(SUM(size), 0) FROM {table} WHERE bucket = ?1 AND key >= ?2");
                Ok(match &end {
                    None => connection.prepare_cached(&sql)?.query_row(params![bucket, prefix], |row| row.get(0))?,
                    Some(end) => connection
                        .prepare_cached(&format!("{sql} AND key < ?3"))?
                        .query_row(params![bucket, prefix, end], |row| row.get(0))?,
                })
            };
            Ok(u64::try_from(sum("object")? + sum("version")?).unwrap_or(0))
        })
    }

    /// At most `max` keys and common prefixes of a bucket that start with `prefix` and come after
    /// `start_after`. With a delimiter, keys that go on after it are rolled up into common
    /// prefixes; a `start_after` that is a common prefix skips all of it.
    ///
    /// # Errors
    /// [`StoreError::NoSuchBucket`].
    pub fn list(
        &self,
        bucket: &str,
        prefix: &str,
        start_after: Option<&str>,
        delimiter: Option<&str>,
        max: usize,
    ) -> Result<Listing, StoreError> {
        let delimiter = delimiter.filter(|delimiter| !delimiter.is_empty());
        if let Some(shown) = self.passthrough(bucket) {
            return self.foreign_list(shown, bucket, (prefix, start_after), delimiter, max);
        }
        let Some(mut from) = first_candidate(prefix, start_after, delimiter) else { return Ok(Listing::default()) };
        self.index.read(|connection| {
            let bucket = bucket_row(connection, bucket)?;
            let mut listing = Listing::default();
            let mut last = None;
            let sql = format!("SELECT {VERSIONED_COLUMNS} FROM object WHERE bucket = ? AND key >= ? ORDER BY key");
            let mut select = connection.prepare_cached(&sql)?;
            // One turn per common prefix: its keys are jumped over, not read.
            'jump: loop {
                let mut rows = select.query(params![bucket.id, from])?;
                while let Some(row) = rows.next()? {
                    let key = row.get_ref(0)?.as_str().map_err(rusqlite::Error::from)?;
                    if !key.starts_with(prefix) {
                        break;
                    }
                    if listing.objects.len() + listing.common_prefixes.len() >= max {
                        listing.next = last;
                        break;
                    }
                    match common_prefix(key, prefix, delimiter) {
                        None => {
                            last = Some(key.to_owned());
                            listing.objects.push(versioned_object_of(row, bucket.versioning)?);
                        }
                        Some(common) => {
                            last = Some(common.to_owned());
                            listing.common_prefixes.push(common.to_owned());
                            match after_prefix(common) {
                                Some(next) => from = next,
                                None => break,
                            }
                            continue 'jump;
                        }
                    }
                }
                return Ok(listing);
            }
        })
    }
}

/// The least key that may be listed; `None` if none may.
fn first_candidate(prefix: &str, start_after: Option<&str>, delimiter: Option<&str>) -> Option<String> {
    let Some(start) = start_after.filter(|start| *start >= prefix) else { return Some(prefix.to_owned()) };
    if common_prefix(start, prefix, delimiter) == Some(start) {
        return after_prefix(start);
    }
    // The least string that is greater.
    Some(format!("{start}\0"))
}

pub(crate) fn common_prefix<'a>(key: &'a str, prefix: &str, delimiter: Option<&str>) -> Option<&'a str> {
    let delimiter = delimiter?;
    let rest = key.strip_prefix(prefix)?;
    let at = rest.find(delimiter)?;
    Some(&key[..prefix.len() + at + delimiter.len()])
}

/// The least string that is greater than all that start with `prefix`; `None` if there is none.
pub(crate) fn after_prefix(prefix: &str) -> Option<String> {
    let mut chars: Vec<char> = prefix.chars().collect();
    while let Some(last) = chars.pop() {
        // A range of characters steps over the surrogates.
        if let Some(next) = (last..=char::MAX).nth(1) {
            chars.push(next);
            return Some(chars.into_iter().collect());
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Attributes, DataDir};

    #[test]
    fn the_successor_of_a_prefix() {
        for (prefix, expected) in
            [("a/", Some("a0")), ("", None), ("\u{d7ff}", Some("\u{e000}")), ("a\u{10ffff}", Some("b"))]
        {
            assert_eq!(after_prefix(prefix).as_deref(), expected, "{prefix:?}");
        }
    }

    #[test]
    fn pages_of_every_size_give_the_same_listing() {
        let temp = tempfile::tempdir().unwrap();
        let objects = Objects::open(&DataDir::open(temp.path()).unwrap()).unwrap();
        objects.create_bucket("b").unwrap();
        for key in ["a", "a/", "a/1", "a/2/x", "a/2/y", "a0", "ä/ö", "b/c", "b/c/d", "\u{ffff}/", "\u{1f600}"] {
            objects.put("b", key, key.as_bytes(), &Attributes::default()).unwrap();
        }
        // Prefix, start after, delimiter; keys and common prefixes in order.
        for (prefix, start, delimiter, expected) in [
            ("", None, None, "a a/ a/1 a/2/x a/2/y a0 b/c b/c/d ä/ö \u{ffff}/ \u{1f600}"),
            ("", None, Some("/"), "a a0 \u{1f600} | a/ b/ ä/ \u{ffff}/"),
            ("a/", None, Some("/"), "a/ a/1 | a/2/"),
            ("a", None, Some("/"), "a a0 | a/"),
            ("a/", Some("a/1"), None, "a/2/x a/2/y"),
            ("", Some("a/"), Some("/"), "a0 \u{1f600} | b/ ä/ \u{ffff}/"),
            ("", Some("a/1"), Some("/"), "a0 \u{1f600} | a/ b/ ä/ \u{ffff}/"),
            ("", None, Some("/c"), "a a/ a/1 a/2/x a/2/y a0 ä/ö \u{ffff}/ \u{1f600} | b/c"),
            ("zzz", None, None, ""),
            ("a/", Some("b"), None, ""),
        ] {
            for max in 1..=12 {
                let (mut keys, mut commons, mut after) = (Vec::new(), Vec::new(), start.map(str::to_owned));
                loop {
                    let page = objects.list("b", prefix, after.as_deref(), delimiter, max).unwrap();
                    assert!(page.objects.len() + page.common_prefixes.len() <= max);
                    keys.extend(page.objects.into_iter().map(|meta| meta.key));
                    commons.extend(page.common_prefixes);
                    after = page.next;
                    if after.is_none() {
                        break;
                    }
                }
                let commons = if commons.is_empty() { String::new() } else { format!(" | {}", commons.join(" ")) };
                assert_eq!(
                    format!("{}{commons}", keys.join(" ")),
                    expected,
                    "{prefix:?} {start:?} {delimiter:?} by {max}"
                );
            }
        }
        assert_eq!(objects.list("b", "", None, None, 0).unwrap(), Listing::default());
        assert!(matches!(objects.list("c", "", None, None, 9), Err(StoreError::NoSuchBucket(_))));
    }
}
