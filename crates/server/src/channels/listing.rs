//! Which objects belong to a channel, in which order.

use std::io::{BufRead, BufReader};

use serde_json::{Map, Value};
use shoal_store::{ObjectMeta, ObjectReader, ObjectStream, Objects, StoreError};
use shoal_wire::{S3DataType, S3Source, S3Uri};

use super::may_read::MayRead;

/// Objects listed per call to the store.
const PAGE: usize = 1000;
/// Longest manifest, in bytes.
const MAX_MANIFEST_BYTES: u64 = 64 << 20;
/// Most entries of a manifest: objects, or attributes of all lines together.
const MAX_ENTRIES: usize = 1_000_000;
/// Most objects below a prefix, which are kept in memory; a list that does not end has more.
const MAX_OBJECTS: usize = 5_000_000;

/// Why a channel's objects cannot be listed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ChannelError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(
        "there are more than {most} objects below {uri}; divide them over several channels, or store many in one \
         (an archive, RecordIO)"
    )]
    TooMany { uri: String, most: usize },
    #[error(
        "{uri} is no manifest: {detail}; it must be a JSON list whose first entry is {{\"prefix\": \
         \"s3://bucket/prefix/\"}}, the others keys below it"
    )]
    Manifest { uri: String, detail: String },
    #[error(
        "{uri} is no augmented manifest: {detail}; each line must be a JSON object that has the attributes of \
         AttributeNames, and those whose names end in -ref must be S3 URIs of objects"
    )]
    Augmented { uri: String, detail: String },
}

impl ChannelError {
    /// Whether the objects that the user named are not there (any more).
    pub(crate) fn is_absent(&self) -> bool {
        matches!(self, Self::Store(StoreError::NoSuchBucket(_) | StoreError::NoSuchKey { .. }))
    }
}

/// The objects of a channel, in key order, with their paths below the channel's directory.
///
/// A prefix that ends in `/` is cut off whole; else the path starts after the last `/` of the
/// prefix, so that `s3://b/data/train.csv` gives `train.csv` and `s3://b/data/tr` gives `train.csv`
/// as well. `is_cancelled` is asked before each page of a list, and each object of a manifest.
pub(crate) fn objects_of(
    objects: &Objects,
    source: &S3Source,
    may_read: &MayRead,
    is_cancelled: &dyn Fn() -> bool,
) -> Result<Vec<(String, ObjectMeta)>, ChannelError> {
    match source.data_type {
        S3DataType::S3Prefix => below(objects, &source.uri, MAX_OBJECTS, is_cancelled),
        S3DataType::ManifestFile => listed(objects, &source.uri, may_read, is_cancelled),
        S3DataType::AugmentedManifestFile => {
            let fail =
                |detail: &str| ChannelError::Augmented { uri: source.uri.to_string(), detail: detail.to_owned() };
            Err(fail("it is read in Pipe mode only"))
        }
    }
}

/// What is streamed of a channel, in order.
#[derive(Debug, PartialEq)]
pub(crate) enum Streamed {
    /// An object, with its path as a file of the channel.
    Object(String, Box<ObjectMeta>),
    /// The value of an attribute.
    Text(String),
}

/// What a pipe of the channel has, in order.
pub(crate) fn streamed_of(
    objects: &Objects,
    source: &S3Source,
    may_read: &MayRead,
    is_cancelled: &dyn Fn() -> bool,
) -> Result<Vec<Streamed>, ChannelError> {
    if source.data_type == S3DataType::AugmentedManifestFile {
        return augmented(objects, source, may_read, is_cancelled);
    }
    let all = objects_of(objects, source, may_read, is_cancelled)?;
    Ok(all.into_iter().map(|(path, meta)| Streamed::Object(path, Box::new(meta))).collect())
}

/// The objects of a checkpoint location, with their paths below the checkpoint directory.
pub(crate) fn checkpoints_of(
    objects: &Objects,
    uri: &S3Uri,
    is_cancelled: &dyn Fn() -> bool,
) -> Result<Vec<(String, ObjectMeta)>, ChannelError> {
    let folder = S3Uri { bucket: uri.bucket.clone(), prefix: uri.folder() };
    below(objects, &folder, MAX_OBJECTS, is_cancelled)
}

pub(super) fn below(
    objects: &Objects,
    uri: &S3Uri,
    most: usize,
    is_cancelled: &dyn Fn() -> bool,
) -> Result<Vec<(String, ObjectMeta)>, ChannelError> {
    let base = uri.prefix.rfind('/').map_or(0, |slash| slash + 1);
    // `s3://b/data` that names a folder means what lies in `data/`, as users expect of a prefix
    // without its slash.
    let folder = format!("{}/", uri.prefix);
    let mut found = Vec::new();
    let mut after: Option<String> = None;
    loop {
        go_on(is_cancelled)?;
        let page = objects.list(&uri.bucket, &uri.prefix, after.as_deref(), None, PAGE)?;
        for object in page.objects {
            let cut = if !uri.prefix.is_empty() && object.key.starts_with(&folder) { folder.len() } else { base };
            let path = object.key[cut..].to_owned();
            // Keys that end in a slash stand for folders and hold nothing.
            if !path.is_empty() && !path.ends_with('/') {
                found.push((path, object));
            }
        }
        if found.len() > most {
            return Err(ChannelError::TooMany { uri: uri.to_string(), most });
        }
        match page.next {
            Some(next) => after = Some(next),
            None => return Ok(found),
        }
    }
}

/// The objects that a manifest names.
fn listed(
    objects: &Objects,
    uri: &S3Uri,
    may_read: &MayRead,
    is_cancelled: &dyn Fn() -> bool,
) -> Result<Vec<(String, ObjectMeta)>, ChannelError> {
    let fail = |detail: String| ChannelError::Manifest { uri: uri.to_string(), detail };
    let manifest = objects.reader(&uri.bucket, &uri.prefix)?;
    readable(&manifest.meta).map_err(fail)?;
    let entries: Vec<Value> =
        serde_json::from_reader(BufReader::new(whole(manifest))).map_err(|error| fail(error.to_string()))?;
    bounded(entries.len()).map_err(fail)?;
    let mut entries = entries.into_iter();
    let first = entries.next().and_then(|first| first.get("prefix")?.as_str().map(str::to_owned));
    let prefix = first.ok_or_else(|| fail("the first entry has no prefix".to_owned()))?;
    let root: S3Uri = prefix.parse().map_err(|error| fail(format!("prefix \"{prefix}\": {error}")))?;
    let mut found = Vec::new();
    for entry in entries {
        go_on(is_cancelled)?;
        let path = entry.as_str().ok_or_else(|| fail(format!("{entry} is not a key")))?;
        let key = format!("{}{path}", root.prefix);
        // Who may not read it does not learn whether it is there.
        let meta = if may_read(&root.bucket, &key) { objects.get(&root.bucket, &key)? } else { None };
        let meta = meta.ok_or_else(|| fail(absent(&format!("s3://{}/{key}", root.bucket))))?;
        found.push((path.to_owned(), meta));
    }
    Ok(found)
}

/// The attributes of the lines of an augmented manifest: the contents of objects where their names
/// end in `-ref`, else their values as text.
fn augmented(
    objects: &Objects,
    source: &S3Source,
    may_read: &MayRead,
    is_cancelled: &dyn Fn() -> bool,
) -> Result<Vec<Streamed>, ChannelError> {
    let manifest = objects.reader(&source.uri.bucket, &source.uri.prefix)?;
    let of_all = |detail| ChannelError::Augmented { uri: source.uri.to_string(), detail };
    readable(&manifest.meta).map_err(of_all)?;
    let mut found = Vec::new();
    for (number, line) in (1..).zip(BufReader::new(whole(manifest)).lines()) {
        go_on(is_cancelled)?;
        let fail = |detail: String| ChannelError::Augmented {
            uri: source.uri.to_string(),
            detail: format!("line {number}: {detail}"),
        };
        let line = line.map_err(|error| fail(error.to_string()))?;
        if line.trim().is_empty() {
            continue;
        }
        let sample: Map<String, Value> = serde_json::from_str(&line).map_err(|error| fail(error.to_string()))?;
        bounded(found.len()).map_err(of_all)?;
        for name in &source.attribute_names {
            let value = sample.get(name).ok_or_else(|| fail(format!("it has no attribute \"{name}\"")))?;
            found.push(match (value, name.ends_with("-ref")) {
                (Value::String(uri), true) => referenced(objects, uri, may_read).map_err(|error| match error {
                    Unusable::Detail(detail) => fail(format!("{name}: {detail}")),
                    Unusable::Store(error) => error.into(),
                })?,
                (_, true) => return Err(fail(format!("{name} is no text"))),
                (Value::String(text), false) => Streamed::Text(text.clone()),
                (value, false) => Streamed::Text(value.to_string()),
            });
        }
    }
    Ok(found)
}

fn go_on(is_cancelled: &dyn Fn() -> bool) -> Result<(), StoreError> {
    if is_cancelled() { Err(StoreError::Cancelled) } else { Ok(()) }
}

fn whole(manifest: ObjectReader) -> ObjectStream {
    let size = manifest.meta.size;
    manifest.stream(0..size)
}

/// Manifests are read as a whole, and their entries are kept in memory.
fn readable(manifest: &ObjectMeta) -> Result<(), String> {
    if manifest.size <= MAX_MANIFEST_BYTES {
        return Ok(());
    }
    Err(format!(
        "it has {} bytes, and at most {MAX_MANIFEST_BYTES} are read; divide it over several channels",
        manifest.size
    ))
}

fn bounded(entries: usize) -> Result<(), String> {
    if entries <= MAX_ENTRIES {
        return Ok(());
    }
    Err(format!("it has more than {MAX_ENTRIES} entries; divide it over several channels"))
}

fn absent(uri: &str) -> String {
    format!("there is no object {uri} that the key which created the job may read")
}

enum Unusable {
    Detail(String),
    Store(StoreError),
}

fn referenced(objects: &Objects, uri: &str, may_read: &MayRead) -> Result<Streamed, Unusable> {
    let at: S3Uri = uri.parse().map_err(|error| Unusable::Detail(format!("\"{uri}\": {error}")))?;
    if !may_read(&at.bucket, &at.prefix) {
        return Err(Unusable::Detail(absent(uri)));
    }
    match objects.get(&at.bucket, &at.prefix) {
        Ok(Some(meta)) => Ok(Streamed::Object(at.prefix, Box::new(meta))),
        Ok(None) | Err(StoreError::NoSuchBucket(_)) => Err(Unusable::Detail(absent(uri))),
        Err(error) => Err(Unusable::Store(error)),
    }
}
