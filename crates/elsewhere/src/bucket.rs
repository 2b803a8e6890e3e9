//! The bucket: whole objects in, whole objects and ranges out.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::future::Future;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::{StreamExt, TryStreamExt, stream};
use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};
use object_store::memory::InMemory;
use object_store::multipart::MultipartStore;
use object_store::path::Path;
use object_store::signer::Signer;
use object_store::{
    BackoffConfig, ClientOptions, ObjectStore, ObjectStoreExt, PutMode, PutOptions, PutPayload, RetryConfig,
    UpdateVersion, WriteMultipart,
};
use tokio::runtime::{Builder, Runtime};

use crate::address::Address;
use crate::credentials;
use crate::http::Connector;

/// Longer ones are sent in parts of this length.
pub(crate) const PART_BYTES: u64 = 8 << 20;

/// Requests at a time.
const AT_ONCE: usize = 16;

/// Parts of one object on their way.
const PARTS_AT_ONCE: usize = 4;

/// For how long a request is repeated that failed.
const RETRY_TIMEOUT: Duration = Duration::from_secs(20);

/// A prefix of a bucket.
pub struct Bucket {
    address: Address,
    pub(crate) store: Arc<dyn ObjectStore>,
    /// The same store, for uploads in parts whose ids its caller notes.
    pub(crate) parts: Arc<dyn MultipartStore>,
    /// The same, for addresses that are signed; a store in memory has none.
    pub(crate) signer: Option<Arc<dyn Signer>>,
    /// Requests run on it.
    runtime: Option<Runtime>,
}

/// An object's bytes, and its ETag.
pub type Found = (Vec<u8>, Option<String>);

/// What must hold for an object to be written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Condition {
    /// Nothing.
    Always,
    /// There is none of this name.
    Absent,
    /// It has this ETag.
    Matches(String),
}

/// Why a request failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is no such object (or bucket).
    #[error("{name} is not in {location}")]
    Missing {
        /// The bucket.
        location: String,
        /// The object.
        name: String,
    },
    /// A condition does not hold.
    #[error("{name} in {location} is not what it was")]
    Changed {
        /// The bucket.
        location: String,
        /// The object.
        name: String,
    },
    /// There is no such bucket.
    #[error("{location} is a bucket that does not exist")]
    NoBucket {
        /// The bucket.
        location: String,
    },
    /// The store does not do that.
    #[error("{location} refuses the request: {message}")]
    Rejected {
        /// The bucket.
        location: String,
        /// What it answered.
        message: String,
    },
    /// The keys are refused.
    #[error("{location} refuses these keys: {message}")]
    Refused {
        /// The bucket.
        location: String,
        /// What it answered.
        message: String,
    },
    /// There are none.
    #[error(
        "{location} needs keys, and there are none in AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, in ~/.aws/credentials \
         or from this machine's instance metadata: set them, or name a profile, {location}?profile=NAME"
    )]
    NoKeys {
        /// The bucket.
        location: String,
    },
    /// The profile that was asked for has none.
    #[error(
        "{location} names the profile {profile}, which has no aws_access_key_id and aws_secret_access_key in \
         ~/.aws/credentials or ~/.aws/config of the server's user{}: give it keys (aws configure --profile {profile}), or \
         name another",
        unread(.source_of_keys)
    )]
    NoProfile {
        /// The bucket.
        location: String,
        /// Its name.
        profile: String,
        /// Where keys would come from that is not asked: `role_arn`.
        source_of_keys: Option<&'static str>,
    },
    /// It did not answer, or with an error.
    #[error("{location} does not answer: {message}")]
    Unreachable {
        /// The bucket.
        location: String,
        /// What went wrong.
        message: String,
    },
    /// The caller ended it.
    #[error("{location}: cancelled")]
    Cancelled {
        /// The bucket.
        location: String,
    },
    /// A file of this machine.
    #[error("cannot read or write a file")]
    File(#[from] std::io::Error),
}

impl Bucket {
    /// The bucket at an address, with the keys of the usual places: the environment, AWS's
    /// configuration files, a web identity, the container, the instance.
    ///
    /// # Errors
    /// No threads can be started, or the address is refused by the library.
    pub fn open(address: &Address) -> Result<Self, Error> {
        Self::open_for(address, RETRY_TIMEOUT)
    }

    /// The same for callers that a client waits for: a request that fails is repeated for this
    /// time.
    ///
    /// # Errors
    /// As [`Bucket::open`].
    pub fn open_for(address: &Address, retry_timeout: Duration) -> Result<Self, Error> {
        let unreachable =
            |error: object_store::Error| Error::Unreachable { location: address.to_string(), message: text(&error) };
        let store = Arc::new(builder(address, retry_timeout)?.build().map_err(unreachable)?);
        Self::of(address, store.clone(), store.clone(), Some(store))
    }

    /// With keys that no server minds.
    #[cfg(test)]
    pub(crate) fn open_with_keys(address: &Address, retry_timeout: Duration) -> Result<Self, Error> {
        let builder = builder(address, retry_timeout)?.with_access_key_id("id").with_secret_access_key("secret");
        let store = Arc::new(builder.build().map_err(|error| error_of(&address.to_string(), "", &error))?);
        Self::of(address, store.clone(), store.clone(), Some(store))
    }

    /// A bucket in memory, for tests.
    ///
    /// # Errors
    /// No threads can be started.
    pub fn in_memory(address: &Address) -> Result<Self, Error> {
        Self::over(address, &Arc::new(InMemory::new()))
    }

    fn over(address: &Address, store: &Arc<InMemory>) -> Result<Self, Error> {
        Self::of(address, store.clone(), store.clone(), None)
    }

    fn of(
        address: &Address,
        store: Arc<dyn ObjectStore>,
        parts: Arc<dyn MultipartStore>,
        signer: Option<Arc<dyn Signer>>,
    ) -> Result<Self, Error> {
        let runtime = Builder::new_multi_thread().worker_threads(2).thread_name("s3").enable_all().build()?;
        Ok(Self { address: address.clone(), store, parts, signer, runtime: Some(runtime) })
    }

    /// As a user names it.
    pub fn location(&self) -> String {
        self.address.to_string()
    }

    /// Writes an object; returns its ETag.
    ///
    /// # Errors
    /// [`Error::Changed`]; the store's.
    pub fn put(&self, name: &str, content: Vec<u8>, condition: &Condition) -> Result<Option<String>, Error> {
        let mode = match condition {
            Condition::Always => PutMode::Overwrite,
            Condition::Absent => PutMode::Create,
            Condition::Matches(etag) => PutMode::Update(UpdateVersion { e_tag: Some(etag.clone()), version: None }),
        };
        let (path, options) = (self.path(name), PutOptions::from(mode));
        let done = self.block(self.store.put_opts(&path, PutPayload::from(content), options));
        Ok(done.map_err(|error| self.error(name, &error))?.e_tag)
    }

    /// Writes parts of files as objects, several at a time; all are there when this returns.
    ///
    /// # Errors
    /// The store's, or a file's.
    pub fn put_files(&self, files: Vec<(String, File, u64, u64)>) -> Result<u64, Error> {
        let sent = stream::iter(files).map(|(name, file, start, size)| self.send(name, file, start, size));
        self.block(sent.buffer_unordered(AT_ONCE).try_fold(0, |all, size| async move { Ok(all + size) }))
    }

    async fn send(&self, name: String, file: File, start: u64, size: u64) -> Result<u64, Error> {
        let (path, file) = (self.path(&name), Arc::new(file));
        let read = |at: u64, length: u64| {
            let file = Arc::clone(&file);
            tokio::task::spawn_blocking(move || {
                let mut bytes = vec![0; usize::try_from(length).unwrap_or(usize::MAX)];
                file.read_exact_at(&mut bytes, start + at).map(|()| bytes)
            })
        };
        let joined = |read: Result<std::io::Result<Vec<u8>>, tokio::task::JoinError>| {
            read.unwrap_or_else(|error| Err(std::io::Error::other(error)))
        };
        let failed = |error: object_store::Error| self.error(&name, &error);
        if size <= PART_BYTES {
            let bytes = joined(read(0, size).await)?;
            self.store.put(&path, PutPayload::from(bytes)).await.map_err(failed)?;
            return Ok(size);
        }
        let upload = self.store.put_multipart(&path).await.map_err(failed)?;
        let mut upload = WriteMultipart::new_with_chunk_size(upload, usize::try_from(PART_BYTES).unwrap_or(usize::MAX));
        let mut at = 0;
        while at < size {
            let length = PART_BYTES.min(size - at);
            let bytes = match joined(read(at, length).await) {
                Ok(bytes) => bytes,
                Err(error) => {
                    // Its parts would stay, unseen.
                    let _ = upload.abort().await;
                    return Err(error.into());
                }
            };
            upload.wait_for_capacity(PARTS_AT_ONCE).await.map_err(failed)?;
            upload.put(Bytes::from(bytes));
            at += length;
        }
        upload.finish().await.map_err(failed)?;
        Ok(size)
    }

    /// An object and its ETag, if it is there.
    ///
    /// # Errors
    /// The store's.
    pub fn get(&self, name: &str) -> Result<Option<Found>, Error> {
        let path = self.path(name);
        let read = self.block(async {
            let found = self.store.get(&path).await?;
            let etag = found.meta.e_tag.clone();
            Ok((found.bytes().await?.to_vec(), etag))
        });
        match read {
            Err(object_store::Error::NotFound { .. }) => Ok(None),
            read => Ok(Some(read.map_err(|error| self.error(name, &error))?)),
        }
    }

    /// Bytes of an object.
    ///
    /// # Errors
    /// [`Error::Missing`]; the store's.
    pub fn get_range(&self, name: &str, at: u64, length: usize) -> Result<Vec<u8>, Error> {
        let (path, range) = (self.path(name), at..at + length as u64);
        let read = self.block(self.store.get_range(&path, range));
        Ok(read.map_err(|error| self.error(name, &error))?.to_vec())
    }

    /// Writes an object's bytes into a file, from this place on, as they come; returns their
    /// number, or `None` where there is no such object.
    ///
    /// # Errors
    /// The store's, or the file's.
    pub fn fetch(&self, name: &str, to: &File, at: u64) -> Result<Option<u64>, Error> {
        let path = self.path(name);
        self.block(async {
            let mut pieces = match self.store.get(&path).await {
                Err(object_store::Error::NotFound { .. }) => return Ok(None),
                found => found.map_err(|error| self.error(name, &error))?.into_stream(),
            };
            let mut done = 0;
            while let Some(piece) = pieces.next().await {
                let piece = piece.map_err(|error| self.error(name, &error))?;
                to.write_all_at(&piece, at + done)?;
                done += piece.len() as u64;
            }
            Ok(Some(done))
        })
    }

    /// All objects below a folder, with their lengths.
    ///
    /// # Errors
    /// The store's.
    pub fn list(&self, folder: &str) -> Result<BTreeMap<String, u64>, Error> {
        let path = self.path(folder);
        let root = if self.address.prefix.is_empty() { 0 } else { self.address.prefix.len() + 1 };
        let found = self.block(self.store.list(Some(&path)).try_collect::<Vec<_>>());
        let named = |meta: object_store::ObjectMeta| Some((meta.location.as_ref().get(root..)?.to_owned(), meta.size));
        Ok(found.map_err(|error| self.error(folder, &error))?.into_iter().filter_map(named).collect())
    }

    /// Removes objects; missing ones do not matter.
    ///
    /// # Errors
    /// The store's.
    pub fn remove(&self, names: &[String]) -> Result<(), Error> {
        let gone = stream::iter(names).map(|name| async move {
            match self.store.delete(&self.path(name)).await {
                Err(object_store::Error::NotFound { .. }) => Ok(()),
                gone => gone.map_err(|error| self.error(name, &error)),
            }
        });
        self.block(gone.buffer_unordered(AT_ONCE).try_collect())
    }

    pub(crate) fn path(&self, name: &str) -> Path {
        Path::from(format!("{}/{name}", self.address.prefix))
    }

    pub(crate) fn block<T>(&self, work: impl Future<Output = T>) -> T {
        self.runtime.as_ref().expect("it is there until the drop").block_on(work)
    }

    pub(crate) fn error(&self, name: &str, error: &object_store::Error) -> Error {
        error_of(&self.location(), name, error)
    }
}

/// What an error of the library means.
pub(crate) fn error_of(location: &str, name: &str, error: &object_store::Error) -> Error {
    let (location, name, message) = (location.to_owned(), name.to_owned(), text(error));
    match error {
        object_store::Error::NotFound { .. } => Error::Missing { location, name },
        object_store::Error::AlreadyExists { .. } | object_store::Error::Precondition { .. } => {
            Error::Changed { location, name }
        }
        object_store::Error::PermissionDenied { .. } | object_store::Error::Unauthenticated { .. } => {
            Error::Refused { location, message }
        }
        _ if message.contains(METADATA) => Error::NoKeys { location },
        _ => Error::Unreachable { location, message },
    }
}

impl fmt::Debug for Bucket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bucket").field("address", &self.address).finish_non_exhaustive()
    }
}

impl Drop for Bucket {
    /// May be on a thread of another run time, which must not wait.
    fn drop(&mut self) {
        self.runtime.take().into_iter().for_each(Runtime::shutdown_background);
    }
}

/// Where instances of EC2 have keys, which is asked last.
const METADATA: &str = "http://169.254.169.254/";

/// ` (its role_arn is not followed)`
fn unread(source_of_keys: &Option<&str>) -> String {
    source_of_keys.map_or(String::new(), |source| format!(" (its {source} is not followed)"))
}

/// # Errors
/// [`Error::NoProfile`].
pub(crate) fn builder(address: &Address, retry_timeout: Duration) -> Result<AmazonS3Builder, Error> {
    let profile = credentials::of_files(address.profile.as_deref());
    if let (Some(name), None, _) | (Some(name), _, None) = (&address.profile, &profile.access_key, &profile.secret_key)
    {
        let (location, profile, source_of_keys) = (address.to_string(), name.clone(), profile.source);
        return Err(Error::NoProfile { location, profile, source_of_keys });
    }
    let mut builder = AmazonS3Builder::from_env()
        .with_http_connector(Connector)
        .with_client_options(ClientOptions::new().with_allow_http(true))
        .with_bucket_name(&address.bucket)
        .with_retry(RetryConfig {
            backoff: BackoffConfig { init_backoff: Duration::from_millis(50), ..BackoffConfig::default() },
            max_retries: 10,
            retry_timeout,
        });
    let has = |builder: &AmazonS3Builder, key| builder.get_config_value(&key).is_some();
    // A profile that was asked for goes before the environment.
    let is_chosen = address.profile.is_some() || !has(&builder, AmazonS3ConfigKey::AccessKeyId);
    if let (true, Some(access), Some(secret)) = (is_chosen, &profile.access_key, &profile.secret_key) {
        builder = builder.with_access_key_id(access).with_secret_access_key(secret);
        if let Some(token) = &profile.token {
            builder = builder.with_token(token);
        }
    }
    let region =
        address.region.clone().or_else(|| profile.region.filter(|_| !has(&builder, AmazonS3ConfigKey::Region)));
    if let Some(region) = region {
        builder = builder.with_region(region);
    }
    // The endpoint of a shell that is pointed at Shoal is not where its objects go.
    Ok(match &address.endpoint {
        Some(endpoint) => builder.with_endpoint(endpoint),
        None => {
            let region = builder.get_config_value(&AmazonS3ConfigKey::Region).unwrap_or("us-east-1".to_owned());
            builder.with_endpoint(format!("https://s3.{region}.amazonaws.com"))
        }
    })
}

pub(crate) fn text(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        source = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn a_machine_without_keys_and_a_silent_bucket_differ() {
        let bucket = Bucket::in_memory(&Address::parse("s3://team").unwrap()).unwrap();
        let failed = |message: &str| object_store::Error::Generic { store: "S3", source: message.into() };
        let metadata = "Error performing PUT http://169.254.169.254/latest/api/token: connection refused";
        assert!(matches!(bucket.error("a", &failed(metadata)), Error::NoKeys { .. }));
        assert!(matches!(bucket.error("a", &failed("connection refused")), Error::Unreachable { .. }));
    }

    /// Over object_store's own store in memory; servers are the client tests' business.
    #[test]
    fn objects_go_there_and_come_back() {
        let store = Arc::new(InMemory::new());
        let open = |typed: &str| Bucket::over(&Address::parse(typed).unwrap(), &store).unwrap();
        let bucket = open("s3://team/shoal/one");
        assert!(bucket.get("a").unwrap().is_none());
        let etag = bucket.put("a", b"first".to_vec(), &Condition::Absent).unwrap().unwrap();
        assert!(matches!(bucket.put("a", b"second".to_vec(), &Condition::Absent), Err(Error::Changed { .. })));
        let renewed = bucket.put("a", b"renewed".to_vec(), &Condition::Matches(etag.clone())).unwrap();
        assert!(matches!(bucket.put("a", b"x".to_vec(), &Condition::Matches(etag)), Err(Error::Changed { .. })));
        assert_eq!(bucket.get("a").unwrap().unwrap(), (b"renewed".to_vec(), renewed));
        assert_eq!(bucket.get_range("a", 1, 3).unwrap(), b"ene");
        assert!(matches!(bucket.get_range("none", 0, 1), Err(Error::Missing { .. })));

        // Parts and a bit, from the middle of a file; many small ones beside it.
        let long: Vec<u8> = (0..20_000_000_u32).map(|at| (at % 251) as u8).collect();
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&long).unwrap();
        let mut files = vec![("b/long".to_owned(), file.try_clone().unwrap(), 1000, 19_999_000)];
        files.extend((0..40).map(|number| (format!("b/{number:02}"), file.try_clone().unwrap(), number, 100)));
        assert_eq!(bucket.put_files(files).unwrap(), 19_999_000 + 4000);
        let listed = bucket.list("b").unwrap();
        assert_eq!((listed.len(), listed["b/long"], listed["b/39"]), (41, 19_999_000, 100));
        let back = tempfile::NamedTempFile::new().unwrap();
        assert_eq!(bucket.fetch("b/long", back.as_file(), 10).unwrap(), Some(19_999_000));
        assert!(std::fs::read(back.path()).unwrap()[10..] == long[1000..]);
        assert_eq!(bucket.fetch("b/none", back.as_file(), 0).unwrap(), None);

        bucket.remove(&["b/long".to_owned(), "b/00".to_owned(), "b/none".to_owned()]).unwrap();
        assert_eq!(bucket.list("").unwrap().len(), 40);
        let names: Vec<String> = open("s3://team").list("").unwrap().into_keys().take(1).collect();
        assert_eq!(names, ["shoal/one/a"], "names of a whole bucket have the prefix");
    }
}
