//! A job's channels as trees of links on this machine: which of a channel's objects a host sees,
//! and the tree that is made once for all jobs that read the same objects.

mod listing;
mod may_read;

use std::{
    collections::{BTreeMap, HashSet},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard},
};

use sha2::{Digest, Sha256};
use shoal_link::{Delivery, Input, ManifestEntry, ObjectTree, PRIVATE_ID, Pipe, Shard, order};
use shoal_plane::AttemptId;
use shoal_runtime::{
    InputClaims,
    input_claims::{Event, Io},
};
use shoal_store::{ContentAddress, ObjectMeta, Objects, StoreError, check_tree};
use shoal_wire::{Channel, Distribution, InputMode, RecordWrapper, S3Source, S3Uri};

use crate::{error_chain::describe, hex::hex, not_prepared::NotPrepared};

pub(crate) use listing::{ChannelError, Streamed, checkpoints_of, objects_of, streamed_of};
pub(crate) use may_read::{MayRead, may_read, may_write};

/// Names of trees that hold objects by id end so.
const OF_OBJECTS: &str = "-objects";

/// For how long agents may read a content from the store elsewhere.
const ADDRESS_LIFETIME: std::time::Duration = std::time::Duration::from_hours(1);

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
    /// Of objects that manifests name.
    may_read: MayRead,
    claims: Arc<Mutex<InputClaims>>,
    /// Attempts for which no more trees are made; apart from the claims, which are locked while a
    /// tree is removed.
    cancelled: Arc<Mutex<HashSet<AttemptId>>>,
}

impl Trees {
    pub(crate) fn new(root: PathBuf, objects: Arc<Objects>) -> Self {
        Self {
            root,
            objects,
            is_remote: false,
            may_read: Arc::new(|_, _| true),
            claims: Arc::default(),
            cancelled: Arc::default(),
        }
    }

    /// The same for a job whose creator may not read everything.
    pub(crate) fn of_reader(&self, may_read: MayRead) -> Self {
        Self { may_read, ..self.clone() }
    }

    /// As agents that share no files with this server get them, or as those that do.
    pub(crate) fn for_agents(&self, is_remote: bool) -> Self {
        Self { is_remote, ..self.clone() }
    }

    /// Whether these are for agents that share no files with this server.
    pub(crate) fn is_remote(&self) -> bool {
        self.is_remote
    }

    /// A tree as assignments name it.
    pub(crate) fn input(&self, tree: &Path) -> Input {
        if !self.is_remote {
            return Input::Local(tree.display().to_string());
        }
        let name = tree.file_name().unwrap_or_default().to_string_lossy();
        Input::Objects(ObjectTree { tree: name.into_owned() })
    }

    /// The tree that an assignment names so.
    pub(crate) fn path_of(&self, input: &Input) -> PathBuf {
        match input {
            Input::Local(path) => path.into(),
            Input::Objects(tree) => self.root.join(&tree.tree),
        }
    }

    /// Where the objects are.
    pub(crate) fn objects(&self) -> &Arc<Objects> {
        &self.objects
    }

    /// The list of what is in a tree of objects: a [`ManifestEntry`] in each line.
    pub(crate) fn manifest(&self, tree: &str) -> PathBuf {
        self.root.join(tree).join("manifest")
    }

    /// Where an object of a tree can be read instead, if it is in the store elsewhere.
    ///
    /// # Errors
    /// The store's.
    pub(crate) fn address(&self, id: &str) -> Result<Option<ContentAddress>, StoreError> {
        self.objects.content_address(id, ADDRESS_LIFETIME)
    }

    /// Makes an object of a tree a file of this machine, if it is in the store elsewhere alone.
    ///
    /// # Errors
    /// The store's.
    pub(crate) fn bring(&self, tree: &str, id: &str) -> Result<PathBuf, StoreError> {
        let path = self.object(tree, id);
        let is_held = || self.root.join(tree).join("elsewhere").join(id).exists();
        if !path.exists() && path.ends_with(id) && is_held() {
            self.objects.bring_held(&self.root.join(tree), id)?;
        }
        Ok(path)
    }

    /// An object of a tree; a text that is no id names nothing that is there.
    pub(crate) fn object(&self, tree: &str, id: &str) -> PathBuf {
        let digits = id.strip_prefix(PRIVATE_ID).unwrap_or(id);
        let is_id = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
        self.root.join(tree).join(if is_id { id } else { "no-id" })
    }

    /// What each of the hosts that have a channel of objects finds there; made if it is not there.
    ///
    /// # Errors
    /// The prefix is empty, two keys cannot stand in one tree, or the store fails; the text is for
    /// the failure reason.
    pub(crate) fn prepare(
        &self,
        attempt: &AttemptId,
        channel: &Channel,
        source: &S3Source,
        mode: InputMode,
        hosts: u32,
    ) -> Result<Vec<(Input, Delivery)>, NotPrepared> {
        let place = format!("channel {}", channel.name);
        let made = of_newest(|| match mode {
            InputMode::Pipe => self.pipes(attempt, channel, source, hosts),
            InputMode::File => self.files(attempt, channel, source, &Delivery::Files, hosts),
            InputMode::FastFile => self.files(attempt, channel, source, &Delivery::FilesAsRead, hosts),
        });
        let found = match made {
            Ok(found) => found,
            Err(error) if error.is_absent() => Vec::new(),
            Err(error @ (ChannelError::Manifest { .. } | ChannelError::Augmented { .. })) => {
                return Err(NotPrepared::Failed(format!("ClientError: {place}: {}", describe(&error))));
            }
            Err(error) => return Err(NotPrepared::of(&place, &error)),
        };
        if found.is_empty() {
            let why = format!("ClientError: {place}: there is no object below {} any more", source.uri);
            return Err(NotPrepared::Failed(why));
        }
        Ok(found)
    }

    /// A directory for each host; none without objects.
    fn files(
        &self,
        attempt: &AttemptId,
        channel: &Channel,
        source: &S3Source,
        delivery: &Delivery,
        hosts: u32,
    ) -> Result<Vec<(Input, Delivery)>, ChannelError> {
        let all = objects_of(&self.objects, source, &self.may_read, &|| self.is_cancelled(attempt))?;
        if all.is_empty() {
            return Ok(Vec::new());
        }
        let of = |shard: Option<Shard>| match shard {
            None => Ok((self.input(&self.tree(attempt, &all)?), delivery.clone())),
            Some(_) => {
                let part = order(all.len(), channel.shuffle_seed, 0, shard);
                let mut part = Vec::from_iter(part.into_iter().map(|index| all[index].clone()));
                part.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
                Ok((self.input(&self.tree(attempt, &part)?), delivery.clone()))
            }
        };
        match source.distribution {
            Distribution::FullyReplicated => Ok(vec![of(None)?; hosts as usize]),
            Distribution::ShardedByS3Key => shards(hosts).map(Some).map(of).collect(),
        }
    }

    /// The manifest of all that is streamed, with its objects, for each host; none without any.
    fn pipes(
        &self,
        attempt: &AttemptId,
        channel: &Channel,
        source: &S3Source,
        hosts: u32,
    ) -> Result<Vec<(Input, Delivery)>, ChannelError> {
        let all = streamed_of(&self.objects, source, &self.may_read, &|| self.is_cancelled(attempt))?;
        if all.is_empty() {
            return Ok(Vec::new());
        }
        let entries = all.iter().map(|streamed| match streamed {
            Streamed::Object(path, meta) => entry(path, meta),
            Streamed::Text(text) => {
                ManifestEntry { path: String::new(), id: String::new(), size: 0, text: Some(text.clone()) }
            }
        });
        let metas = all.iter().filter_map(|streamed| match streamed {
            Streamed::Object(_, meta) => Some(&**meta),
            Streamed::Text(_) => None,
        });
        let tree = self.input(&self.tree_of_objects(attempt, &Vec::from_iter(entries), metas)?);
        let pipe = Pipe {
            is_gzip: channel.is_gzip,
            is_record_io: channel.record_wrapper == RecordWrapper::RecordIO,
            shuffle_seed: channel.shuffle_seed,
            entries_per_sample: u32::try_from(source.attribute_names.len()).unwrap_or(u32::MAX).max(1),
            shard: None,
        };
        Ok(match source.distribution {
            Distribution::FullyReplicated => vec![(tree, Delivery::Pipe(pipe)); hosts as usize],
            Distribution::ShardedByS3Key => {
                let of = |shard| (tree.clone(), Delivery::Pipe(Pipe { shard: Some(shard), ..pipe }));
                shards(hosts).map(of).collect()
            }
        })
    }

    /// A tree with one object alone, under the last part of its key.
    ///
    /// # Errors
    /// There is no such object, or the store fails; the text is for the failure reason.
    pub(crate) fn prepare_object(&self, attempt: &AttemptId, uri: &S3Uri) -> Result<PathBuf, NotPrepared> {
        let made = of_newest(|| match self.objects.get(&uri.bucket, &uri.prefix)? {
            None => Ok(None),
            Some(meta) => {
                Ok(Some(self.tree(attempt, &[(uri.prefix.rsplit('/').next().unwrap_or_default().to_owned(), meta)])?))
            }
        });
        match made {
            Ok(Some(tree)) => Ok(tree),
            Ok(None) | Err(ChannelError::Store(StoreError::NoSuchBucket(_))) => {
                Err(NotPrepared::Failed(format!("ClientError: there is no object {uri} any more")))
            }
            Err(error) => Err(NotPrepared::of(&uri.to_string(), &error)),
        }
    }

    /// A tree with the source of a user's own rule: the object of that name, or else the folder.
    ///
    /// # Errors
    /// There is neither, or the store fails; the text is for the failure reason.
    pub(crate) fn prepare_source(&self, attempt: &AttemptId, uri: &S3Uri) -> Result<PathBuf, NotPrepared> {
        match self.prepare_object(attempt, uri) {
            Err(missing @ NotPrepared::Failed(_)) => self.prepare_folder(attempt, uri)?.ok_or(missing),
            made => made,
        }
    }

    /// The tree of what an earlier run has left as checkpoints, if it has left any.
    ///
    /// # Errors
    /// Two keys cannot stand in one tree, or the store fails; the text is for the failure reason.
    pub(crate) fn prepare_checkpoints(&self, attempt: &AttemptId, uri: &S3Uri) -> Result<Option<PathBuf>, NotPrepared> {
        self.prepare_folder(attempt, uri).map_err(|error| match error {
            NotPrepared::Failed(why) => NotPrepared::Failed(format!("checkpoints {why}")),
            delayed @ NotPrepared::Delayed(_) => delayed,
        })
    }

    /// The tree of what is in a folder, if there is anything.
    ///
    /// # Errors
    /// As above.
    pub(crate) fn prepare_folder(&self, attempt: &AttemptId, uri: &S3Uri) -> Result<Option<PathBuf>, NotPrepared> {
        let is_cancelled = || self.is_cancelled(attempt);
        let found = of_newest(|| match checkpoints_of(&self.objects, uri, &is_cancelled) {
            Ok(found) if found.is_empty() => Ok(None),
            Err(ChannelError::Store(StoreError::NoSuchBucket(_))) => Ok(None),
            found => Ok(Some(self.tree(attempt, &found?)?)),
        });
        found.map_err(|error| NotPrepared::of(&format!("below {uri}"), &error))
    }

    fn tree(&self, attempt: &AttemptId, objects: &[(String, ObjectMeta)]) -> Result<PathBuf, StoreError> {
        let refs: Vec<_> = objects.iter().map(|(path, meta)| (path.as_str(), meta)).collect();
        if self.is_remote {
            check_tree(&refs)?;
            let entries = objects.iter().map(|(path, meta)| entry(path, meta));
            return self.tree_of_objects(attempt, &Vec::from_iter(entries), objects.iter().map(|(_, meta)| meta));
        }
        let path = self.root.join(digest(objects.iter().map(|(path, meta)| (&**path, &*meta.id))));
        self.claim(&path, attempt);
        if !path.exists() {
            self.objects.link_tree(&path, &refs, &|| self.is_cancelled(attempt))?;
        }
        Ok(path)
    }

    /// Links to the objects by id, and the manifest, which is written last.
    fn tree_of_objects<'a>(
        &self,
        attempt: &AttemptId,
        entries: &[ManifestEntry],
        objects: impl Iterator<Item = &'a ObjectMeta>,
    ) -> Result<PathBuf, StoreError> {
        let named = entries.iter().map(|entry| match &entry.text {
            None => (&*entry.path, &*entry.id),
            Some(text) => ("", &**text),
        });
        let name = format!("{}{OF_OBJECTS}", digest(named));
        let (path, manifest) = (self.root.join(&name), self.manifest(&name));
        self.claim(&path, attempt);
        if manifest.exists() {
            return Ok(path);
        }
        let by_id: BTreeMap<String, &ObjectMeta> = objects.map(|meta| (id_of(meta), meta)).collect();
        let by_id = Vec::from_iter(by_id.iter().map(|(id, meta)| (id.as_str(), *meta)));
        let is_cancelled = || self.is_cancelled(attempt);
        match self.is_remote {
            true => self.objects.hold_tree(&path, &by_id, &is_cancelled)?,
            false => self.objects.link_tree(&path, &by_id, &is_cancelled)?,
        }
        let mut text = String::new();
        for entry in entries {
            text.push_str(&serde_json::to_string(entry).expect("texts and a number serialise"));
            text.push('\n');
        }
        let draft = path.join(format!("manifest-{attempt}"));
        let written = std::fs::write(&draft, text).and_then(|()| std::fs::rename(&draft, &manifest));
        written.map_err(|source| StoreError::Io { what: "write", path: manifest, source })?;
        Ok(path)
    }

    /// An attempt reads a tree (claimed again after a restart). What is no tree of ours, a file
    /// system of the owner's, is never removed.
    pub(crate) fn claim(&self, tree: &Path, reader: &str) {
        if tree.parent() == Some(&*self.root) {
            self.handle(Event::Claimed { dir: tree, reader });
        }
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
fn digest<'a>(files: impl Iterator<Item = (&'a str, &'a str)>) -> String {
    let mut hash = Sha256::new();
    for (path, id) in files {
        hash.update(path.as_bytes());
        hash.update([0]);
        hash.update(id.as_bytes());
        hash.update([0]);
    }
    hex(&hash.finalize()[..16])
}

fn entry(path: &str, meta: &ObjectMeta) -> ManifestEntry {
    ManifestEntry { path: path.to_owned(), id: id_of(meta), size: meta.size, text: None }
}

/// How agents know an object.
fn id_of(meta: &ObjectMeta) -> String {
    let prefix = if meta.attributes.encryption.is_some() { PRIVATE_ID } else { "" };
    format!("{prefix}{}", meta.id)
}

fn shards(count: u32) -> impl Iterator<Item = Shard> {
    (0..count).map(move |index| Shard { index, count })
}

#[cfg(test)]
mod tests;
