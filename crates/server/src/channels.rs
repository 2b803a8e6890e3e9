//! A job's channels as trees of links on this machine: which objects belong to a channel, which of them a host sees, and the
//! tree that is made once for all jobs that read the same objects.

use std::{
    collections::{BTreeMap, HashSet},
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
};

use sha2::{Digest, Sha256};
use shoal_store::{ObjectMeta, Objects, StoreError};
use shoal_wire::{Channel, Distribution, S3DataType, S3Uri};

/// Objects listed per call to the store.
const PAGE: usize = 1000;

/// Why a channel's objects cannot be told.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ChannelError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(
        "{uri} is no manifest: {detail}; it must be a JSON list whose first entry is {{\"prefix\": \"s3://bucket/prefix/\"}}, the others keys below it"
    )]
    Manifest { uri: String, detail: String },
}

/// The objects of a channel, in key order, with their paths below the channel's directory.
///
/// A prefix that ends in `/` is cut off whole; else the path starts after the last `/` of the prefix, so that `s3://b/data/train.csv` gives
/// `train.csv` and `s3://b/data/tr` gives `train.csv` as well.
pub(crate) fn objects_of(objects: &Objects, channel: &Channel) -> Result<Vec<(String, ObjectMeta)>, ChannelError> {
    match channel.data_type {
        S3DataType::S3Prefix => Ok(below(objects, &channel.uri)?),
        S3DataType::ManifestFile => listed(objects, &channel.uri),
    }
}

fn below(objects: &Objects, uri: &S3Uri) -> Result<Vec<(String, ObjectMeta)>, StoreError> {
    let base = uri.prefix.rfind('/').map_or(0, |slash| slash + 1);
    // `s3://b/data` that names a folder means what lies in `data/`, as users expect of a prefix without its slash.
    let folder = format!("{}/", uri.prefix);
    let mut found = Vec::new();
    let mut after: Option<String> = None;
    loop {
        let page = objects.list(&uri.bucket, &uri.prefix, after.as_deref(), None, PAGE)?;
        for object in page.objects {
            let cut = if !uri.prefix.is_empty() && object.key.starts_with(&folder) { folder.len() } else { base };
            let path = object.key[cut..].to_owned();
            // Keys that end in a slash stand for folders and hold nothing.
            if !path.is_empty() && !path.ends_with('/') {
                found.push((path, object));
            }
        }
        match page.next {
            Some(next) => after = Some(next),
            None => return Ok(found),
        }
    }
}

/// The objects that a manifest names.
fn listed(objects: &Objects, uri: &S3Uri) -> Result<Vec<(String, ObjectMeta)>, ChannelError> {
    let fail = |detail: String| ChannelError::Manifest { uri: uri.to_string(), detail };
    let (_, file) = objects.read(&uri.bucket, &uri.prefix)?;
    let entries: Vec<serde_json::Value> =
        serde_json::from_reader(std::io::BufReader::new(file)).map_err(|error| fail(error.to_string()))?;
    let mut entries = entries.into_iter();
    let first = entries.next().and_then(|first| first.get("prefix")?.as_str().map(str::to_owned));
    let prefix = first.ok_or_else(|| fail("the first entry has no prefix".to_owned()))?;
    let root: S3Uri = prefix.parse().map_err(|error| fail(format!("prefix {prefix:?}: {error}")))?;
    let mut found = Vec::new();
    for entry in entries {
        let path = entry.as_str().ok_or_else(|| fail(format!("{entry} is not a key")))?;
        let key = format!("{}{path}", root.prefix);
        let meta = objects.get(&root.bucket, &key)?.ok_or_else(|| fail(format!("there is no object s3://{}/{key}", root.bucket)))?;
        found.push((path.to_owned(), meta));
    }
    Ok(found)
}

/// The part that host `host` of `hosts` sees of a channel sharded by key: every `hosts`-th object in key order.
fn partition(all: &[(String, ObjectMeta)], host: u32, hosts: u32) -> Vec<(String, ObjectMeta)> {
    all.iter().skip(host as usize - 1).step_by(hosts as usize).cloned().collect()
}

/// Trees of links below the data directory, one for each set of objects, kept while a live attempt reads it.
pub(crate) struct Trees {
    root: PathBuf,
    objects: Arc<Objects>,
    users: Mutex<BTreeMap<PathBuf, HashSet<String>>>,
}

impl Trees {
    pub(crate) fn new(root: PathBuf, objects: Arc<Objects>) -> Self {
        Self { root, objects, users: Mutex::default() }
    }

    /// The tree of a channel for each host (the same path where all see everything). Made if it is not there.
    ///
    /// # Errors
    /// The prefix is empty, two keys cannot stand in one tree, or the store fails; the text is for the failure reason.
    pub(crate) fn prepare(&self, attempt: &str, channel: &Channel, hosts: u32) -> Result<Vec<PathBuf>, String> {
        let fail = |error: &dyn std::error::Error| format!("channel {}: {}", channel.name, crate::effects::describe(error));
        let all = objects_of(&self.objects, channel).map_err(|error| fail(&error))?;
        if all.is_empty() {
            return Err(format!("channel {}: no object below {}", channel.name, channel.uri));
        }
        let parts: Vec<_> = match channel.distribution {
            Distribution::FullyReplicated => vec![all],
            Distribution::ShardedByS3Key => (1..=hosts).map(|host| partition(&all, host, hosts)).collect(),
        };
        let mut trees = Vec::with_capacity(parts.len());
        for part in &parts {
            let path = self.root.join(digest(part));
            self.claim(&path, attempt);
            if !path.exists() {
                let refs: Vec<_> = part.iter().map(|(path, meta)| (path.as_str(), meta)).collect();
                self.objects.link_tree(&path, &refs).map_err(|error| fail(&error))?;
            }
            trees.push(path);
        }
        if trees.len() == 1 {
            trees.resize(hosts as usize, trees[0].clone());
        }
        Ok(trees)
    }

    /// An attempt reads a tree (said again after a restart).
    pub(crate) fn claim(&self, tree: &Path, attempt: &str) {
        self.lock().entry(tree.to_owned()).or_default().insert(attempt.to_owned());
    }

    /// An attempt is over: trees that nobody else reads are removed.
    pub(crate) fn release(&self, attempt: &str) {
        let mut users = self.lock();
        users.retain(|tree, attempts| {
            attempts.remove(attempt);
            if attempts.is_empty() {
                remove_tree(tree);
            }
            !attempts.is_empty()
        });
    }

    /// Removes trees that no claim names: what a crash left.
    pub(crate) fn sweep(&self) {
        let users = self.lock();
        let Ok(entries) = std::fs::read_dir(&self.root) else { return };
        for entry in entries.flatten() {
            if !users.contains_key(&entry.path()) {
                remove_tree(&entry.path());
            }
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<PathBuf, HashSet<String>>> {
        self.users.lock().expect("no holder of this lock panics")
    }
}

fn remove_tree(path: &Path) {
    if let Err(error) = std::fs::remove_dir_all(path)
        && error.kind() != std::io::ErrorKind::NotFound
    {
        tracing::warn!("could not remove {}: {error}", path.display());
    }
}

/// Names a tree by what is in it.
fn digest(objects: &[(String, ObjectMeta)]) -> String {
    let mut hash = Sha256::new();
    for (path, meta) in objects {
        hash.update(path.as_bytes());
        hash.update([0]);
        hash.update(meta.id.as_bytes());
        hash.update([0]);
    }
    hash.finalize().iter().take(16).map(|byte| format!("{byte:02x}")).collect()
}
