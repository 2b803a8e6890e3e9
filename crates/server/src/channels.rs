//! A job's channels as trees of links on this machine: which objects belong to a channel, which of
//! them a host sees, and the tree that is made once for all jobs that read the same objects.

use std::{
    collections::{BTreeMap, HashSet},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard},
};

use sha2::{Digest, Sha256};
use shoal_link::{Input, ManifestEntry, ObjectTree};
use shoal_plane::AttemptId;
use shoal_runtime::{
    InputClaims,
    input_claims::{Event, Io},
};
use shoal_store::{ObjectMeta, Objects, StoreError, check_tree};
use shoal_wire::{Channel, Distribution, S3DataType, S3Uri};

use crate::{error_chain::describe, hex::hex};

/// Names of trees that hold objects by id end so.
const OF_OBJECTS: &str = "-objects";

/// Objects listed per call to the store.
const PAGE: usize = 1000;

/// Why a channel's objects cannot be told.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ChannelError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(
        "{uri} is no manifest: {detail}; it must be a JSON list whose first entry is {{\"prefix\": \
         \"s3://bucket/prefix/\"}}, the others keys below it"
    )]
    Manifest { uri: String, detail: String },
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
/// as well.
pub(crate) fn objects_of(objects: &Objects, channel: &Channel) -> Result<Vec<(String, ObjectMeta)>, ChannelError> {
    match channel.data_type {
        S3DataType::S3Prefix => Ok(below(objects, &channel.uri)?),
        S3DataType::ManifestFile => listed(objects, &channel.uri),
    }
}

/// The objects of a checkpoint location, with their paths below the checkpoint directory.
pub(crate) fn checkpoints_of(objects: &Objects, uri: &S3Uri) -> Result<Vec<(String, ObjectMeta)>, StoreError> {
    below(objects, &S3Uri { bucket: uri.bucket.clone(), prefix: uri.folder() })
}

fn below(objects: &Objects, uri: &S3Uri) -> Result<Vec<(String, ObjectMeta)>, StoreError> {
    let base = uri.prefix.rfind('/').map_or(0, |slash| slash + 1);
    // `s3://b/data` that names a folder means what lies in `data/`, as users expect of a prefix
    // without its slash.
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
    let root: S3Uri = prefix.parse().map_err(|error| fail(format!("prefix \"{prefix}\": {error}")))?;
    let mut found = Vec::new();
    for entry in entries {
        let path = entry.as_str().ok_or_else(|| fail(format!("{entry} is not a key")))?;
        let key = format!("{}{path}", root.prefix);
        let meta = objects
            .get(&root.bucket, &key)?
            .ok_or_else(|| fail(format!("there is no object s3://{}/{key}", root.bucket)))?;
        found.push((path.to_owned(), meta));
    }
    Ok(found)
}

/// The part that host `host` of `hosts` sees of a channel sharded by key: every `hosts`-th object
/// in key order.
fn partition(all: &[(String, ObjectMeta)], host: u32, hosts: u32) -> Vec<(String, ObjectMeta)> {
    all.iter().skip(host as usize - 1).step_by(hosts as usize).cloned().collect()
}

/// So often objects are listed anew that are replaced while a tree is made of them.
const TRIES: u32 = 100;
/// Between two of these.
const AGAIN: std::time::Duration = std::time::Duration::from_millis(2);

/// What is made of objects as they are listed. One that is replaced meanwhile (a client uploads its
/// data again, a trial that runs on saves its checkpoint) is taken as it is then.
fn of_newest<T>(mut make: impl FnMut() -> Result<T, ChannelError>) -> Result<T, ChannelError> {
    let mut tries = 1;
    loop {
        match make() {
            Err(ChannelError::Store(StoreError::ObjectGone { .. })) if tries < TRIES => std::thread::sleep(AGAIN),
            made => return made,
        }
        tries += 1;
    }
}

/// Trees of links below the data directory, one for each set of objects, kept while a live attempt
/// reads it. Clones are the same trees.
#[derive(Clone)]
pub(crate) struct Trees {
    root: PathBuf,
    objects: Arc<Objects>,
    /// Agents get objects from the server: trees hold them by id, with a manifest.
    is_remote: bool,
    claims: Arc<Mutex<InputClaims>>,
    /// Attempts for which no more trees are made; apart from the claims, which are locked while a
    /// tree is removed.
    cancelled: Arc<Mutex<HashSet<AttemptId>>>,
}

impl Trees {
    pub(crate) fn new(root: PathBuf, objects: Arc<Objects>) -> Self {
        Self { root, objects, is_remote: false, claims: Arc::default(), cancelled: Arc::default() }
    }

    /// As agents that share no files with this server get them, or as those that do.
    pub(crate) fn for_agents(&self, is_remote: bool) -> Self {
        Self { is_remote, ..self.clone() }
    }

    /// A tree as assignments name it.
    pub(crate) fn input(&self, tree: &Path) -> Input {
        let name = tree.file_name().unwrap_or_default().to_string_lossy();
        match name.ends_with(OF_OBJECTS) {
            true => Input::Objects(ObjectTree { tree: name.into_owned() }),
            false => Input::Local(tree.display().to_string()),
        }
    }

    /// The tree that an assignment names so.
    pub(crate) fn path_of(&self, input: &Input) -> PathBuf {
        match input {
            Input::Local(path) => path.into(),
            Input::Objects(tree) => self.root.join(&tree.tree),
        }
    }

    /// The list of what is in a tree of objects: a [`ManifestEntry`] in each line.
    pub(crate) fn manifest(&self, tree: &str) -> PathBuf {
        self.root.join(tree).join("manifest")
    }

    /// An object of a tree; a text that is no id names nothing that is there.
    pub(crate) fn object(&self, tree: &str, id: &str) -> PathBuf {
        let is_id = !id.is_empty() && id.bytes().all(|byte| byte.is_ascii_hexdigit());
        self.root.join(tree).join(if is_id { id } else { "no-id" })
    }

    /// The tree of a channel for each host (the same path where all see everything). Made if it is
    /// not there.
    ///
    /// # Errors
    /// The prefix is empty, two keys cannot stand in one tree, or the store fails; the text is for
    /// the failure reason.
    pub(crate) fn prepare(&self, attempt: &AttemptId, channel: &Channel, hosts: u32) -> Result<Vec<PathBuf>, String> {
        let fail = |error: &dyn std::error::Error| format!("channel {}: {}", channel.name, describe(error));
        let made = of_newest(|| {
            let all = objects_of(&self.objects, channel)?;
            if all.is_empty() {
                return Ok(Vec::new());
            }
            let parts: Vec<_> = match channel.distribution {
                Distribution::FullyReplicated => vec![all],
                Distribution::ShardedByS3Key => (1..=hosts).map(|host| partition(&all, host, hosts)).collect(),
            };
            Ok(parts.iter().map(|part| self.tree(attempt, part)).collect::<Result<Vec<_>, _>>()?)
        });
        let mut trees = match made {
            Ok(trees) => trees,
            Err(error) if error.is_absent() => Vec::new(),
            Err(error @ ChannelError::Manifest { .. }) => return Err(format!("ClientError: {}", fail(&error))),
            Err(error) => return Err(fail(&error)),
        };
        if trees.is_empty() {
            return Err(format!(
                "ClientError: channel {}: there is no object below {} any more",
                channel.name, channel.uri
            ));
        }
        if trees.len() == 1 {
            trees.resize(hosts as usize, trees[0].clone());
        }
        Ok(trees)
    }

    /// A tree with one object alone, under the last part of its key.
    ///
    /// # Errors
    /// There is no such object, or the store fails; the text is for the failure reason.
    pub(crate) fn prepare_object(&self, attempt: &AttemptId, uri: &S3Uri) -> Result<PathBuf, String> {
        let made = of_newest(|| match self.objects.get(&uri.bucket, &uri.prefix)? {
            None => Ok(None),
            Some(meta) => {
                Ok(Some(self.tree(attempt, &[(uri.prefix.rsplit('/').next().unwrap_or_default().to_owned(), meta)])?))
            }
        });
        match made {
            Ok(Some(tree)) => Ok(tree),
            Ok(None) | Err(ChannelError::Store(StoreError::NoSuchBucket(_))) => {
                Err(format!("ClientError: there is no object {uri} any more"))
            }
            Err(error) => Err(format!("{uri}: {}", describe(&error))),
        }
    }

    /// A tree with the source of a user's own rule: the object of that name, or else the folder.
    ///
    /// # Errors
    /// There is neither, or the store fails; the text is for the failure reason.
    pub(crate) fn prepare_source(&self, attempt: &AttemptId, uri: &S3Uri) -> Result<PathBuf, String> {
        match self.prepare_object(attempt, uri) {
            Err(missing) => self.prepare_folder(attempt, uri)?.ok_or(missing),
            made => made,
        }
    }

    /// The tree of what an earlier run has left as checkpoints, if it has left any.
    ///
    /// # Errors
    /// Two keys cannot stand in one tree, or the store fails; the text is for the failure reason.
    pub(crate) fn prepare_checkpoints(&self, attempt: &AttemptId, uri: &S3Uri) -> Result<Option<PathBuf>, String> {
        self.prepare_folder(attempt, uri).map_err(|error| format!("checkpoints {error}"))
    }

    /// The tree of what is in a folder, if there is anything.
    ///
    /// # Errors
    /// As above.
    pub(crate) fn prepare_folder(&self, attempt: &AttemptId, uri: &S3Uri) -> Result<Option<PathBuf>, String> {
        let found = of_newest(|| match checkpoints_of(&self.objects, uri) {
            Ok(found) if found.is_empty() => Ok(None),
            Err(StoreError::NoSuchBucket(_)) => Ok(None),
            found => Ok(Some(self.tree(attempt, &found?)?)),
        });
        found.map_err(|error| format!("below {uri}: {}", describe(&error)))
    }

    fn tree(&self, attempt: &AttemptId, objects: &[(String, ObjectMeta)]) -> Result<PathBuf, StoreError> {
        let name = digest(objects);
        if self.is_remote {
            return self.tree_of_objects(attempt, &format!("{name}{OF_OBJECTS}"), objects);
        }
        let path = self.root.join(name);
        self.claim(&path, attempt);
        if !path.exists() {
            let refs: Vec<_> = objects.iter().map(|(path, meta)| (path.as_str(), meta)).collect();
            self.objects.link_tree(&path, &refs, &|| self.is_cancelled(attempt))?;
        }
        Ok(path)
    }

    /// Links to the objects by id, and the manifest, which is written last.
    fn tree_of_objects(
        &self,
        attempt: &AttemptId,
        name: &str,
        objects: &[(String, ObjectMeta)],
    ) -> Result<PathBuf, StoreError> {
        let (path, manifest) = (self.root.join(name), self.manifest(name));
        self.claim(&path, attempt);
        if manifest.exists() {
            return Ok(path);
        }
        let refs: Vec<_> = objects.iter().map(|(path, meta)| (path.as_str(), meta)).collect();
        check_tree(&refs)?;
        let by_id: BTreeMap<&str, &ObjectMeta> = objects.iter().map(|(_, meta)| (meta.id.as_str(), meta)).collect();
        self.objects.link_tree(&path, &Vec::from_iter(by_id), &|| self.is_cancelled(attempt))?;
        let mut text = String::new();
        for (path, meta) in objects {
            let entry = ManifestEntry { path: path.clone(), id: meta.id.clone(), size: meta.size };
            text.push_str(&serde_json::to_string(&entry).expect("two strings and a number serialise"));
            text.push('\n');
        }
        let draft = path.join(format!("manifest-{attempt}"));
        let written = std::fs::write(&draft, text).and_then(|()| std::fs::rename(&draft, &manifest));
        written.map_err(|source| StoreError::Io { what: "write", path: manifest, source })?;
        Ok(path)
    }

    /// An attempt reads a tree (said again after a restart).
    pub(crate) fn claim(&self, tree: &Path, reader: &str) {
        self.handle(Event::Claimed { dir: tree, reader });
    }

    /// Ends what is being made for an attempt that will be released.
    pub(crate) fn cancel(&self, attempt: &AttemptId) {
        self.cancelled().insert(attempt.clone());
    }

    /// Until its release.
    pub(crate) fn is_cancelled(&self, attempt: &AttemptId) -> bool {
        self.cancelled().contains(attempt)
    }

    fn cancelled(&self) -> MutexGuard<'_, HashSet<AttemptId>> {
        self.cancelled.lock().expect("no holder of this lock panics")
    }

    /// An attempt is over: trees that nobody else reads are removed.
    pub(crate) fn release(&self, reader: &str) {
        self.cancelled().remove(reader);
        self.handle(Event::Released { reader });
    }

    /// Removes trees that no claim names: what a crash left.
    pub(crate) fn sweep(&self) {
        let Ok(entries) = std::fs::read_dir(&self.root) else { return };
        self.handle(Event::Found(entries.flatten().map(|entry| entry.path()).collect()));
    }

    /// A tree is removed before anybody else can claim it.
    fn handle(&self, event: Event<'_>) {
        let mut claims = self.lock();
        claims.handle(event).into_iter().for_each(|Io::Remove(tree)| remove_tree(&tree));
    }

    fn lock(&self) -> MutexGuard<'_, InputClaims> {
        self.claims.lock().expect("no holder of this lock panics")
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
    hex(&hash.finalize()[..16])
}

#[cfg(test)]
mod tests;
