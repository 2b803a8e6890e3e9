//! The store of objects' contents as a bucket elsewhere: [`shoal_store`] knows what is to be sent
//! and read, [`shoal_elsewhere`] how.

use std::{fs::File, sync::Arc, thread, time::Duration};

use shoal_elsewhere::{Address, Bucket, Condition, Error};
use shoal_store::{ContentStore, DataDir, ElsewhereOptions, Objects, Outgoing, StoreError};

use crate::passthrough::PassthroughOptions;

/// Where contents of objects are kept, beside the local disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectsElsewhere {
    /// The bucket.
    pub address: Address,
    /// Bytes of local files at most.
    pub cache_bytes: u64,
}

/// For how long a request is repeated that fails: a client waits for it.
const RETRY_TIMEOUT: Duration = Duration::from_secs(4);

/// Between two looks at what the store answers.
const WATCH_INTERVAL: Duration = Duration::from_secs(5);

/// Names the data directory whose contents these are.
const OWNER: &str = "owner";
/// Is removed to try whether that may be done; it is never there.
const PROBE: &str = "probe";

/// A bucket as the store needs it.
#[derive(Debug)]
pub(crate) struct ObjectBucket {
    bucket: Bucket,
}

impl ObjectsElsewhere {
    /// Reads the setting `objects`.
    ///
    /// # Errors
    /// It is no address of a bucket; with a reason.
    pub fn parse(address: &str, cache_bytes: u64) -> Result<Self, String> {
        let address = Address::parse(address).map_err(|error| error.to_string())?;
        Ok(Self { address, cache_bytes })
    }

    /// As the store is given it.
    ///
    /// # Errors
    /// [`StoreError::BadElsewhere`].
    pub(crate) fn open(&self) -> Result<ElsewhereOptions, StoreError> {
        let bucket = ObjectBucket::open(&self.address)?;
        Ok(ElsewhereOptions { store: Arc::new(bucket), local_bytes: self.cache_bytes })
    }

    /// Whether the bucket answers and the keys may do there what is needed; for `shoal doctor`.
    ///
    /// # Errors
    /// [`StoreError::BadElsewhere`], [`StoreError::Elsewhere`].
    pub fn check(&self) -> Result<(), StoreError> {
        let bucket = ObjectBucket::open(&self.address)?.bucket;
        bucket.get(OWNER).map(drop).map_err(|error| refused(&bucket, error))?;
        bucket.remove(&[PROBE.to_owned()]).map_err(|error| refused(&bucket, error))?;
        let probe = format!("probe-{}", std::process::id());
        bucket.put(&probe, b"shoal doctor".to_vec(), &Condition::Always).map_err(|error| refused(&bucket, error))?;
        bucket.remove(&[probe]).map_err(|error| refused(&bucket, error))
    }
}

/// The objects of a data directory, with the store elsewhere for their contents. Its calls block,
/// so a thread of its own makes them.
pub(crate) fn open_objects(
    data_dir: &DataDir,
    elsewhere: Option<ObjectsElsewhere>,
    passthrough: &PassthroughOptions,
) -> Result<Objects, StoreError> {
    let open = || {
        let objects = Objects::open_with(data_dir, elsewhere.map(|options| options.open()).transpose()?)?;
        passthrough.open(objects)
    };
    let opened = thread::scope(|scope| scope.spawn(open).join());
    opened.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Logs when the store stops answering, and when it answers again.
pub(crate) async fn watch(objects: Arc<Objects>) {
    let mut is_failing = false;
    while let Some(status) = objects.elsewhere_status() {
        match &status.failure {
            Some(failure) if !is_failing => tracing::warn!(
                "{failure}; {} objects ({} bytes) wait to be sent to {}",
                status.waiting,
                status.waiting_bytes,
                status.location
            ),
            None if is_failing => tracing::info!("{} answers again", status.location),
            _ => {}
        }
        is_failing = status.failure.is_some();
        tokio::time::sleep(WATCH_INTERVAL).await;
    }
}

impl ObjectBucket {
    fn open(address: &Address) -> Result<Self, StoreError> {
        let bucket = Bucket::open_for(address, RETRY_TIMEOUT);
        Ok(Self { bucket: bucket.map_err(|error| StoreError::BadElsewhere(format!("objects: {error}")))? })
    }

    fn owner(&self) -> Result<Option<String>, StoreError> {
        let found = self.bucket.get(OWNER).map_err(|error| refused(&self.bucket, error))?;
        Ok(found.map(|(content, _)| String::from_utf8_lossy(&content).trim().to_owned()))
    }

    fn put_owner(&self, owner: &str) -> Result<(), StoreError> {
        let content = format!("{owner}\n").into_bytes();
        match self.bucket.put(OWNER, content.clone(), &Condition::Absent) {
            Ok(_) | Err(Error::Changed { .. }) => Ok(()),
            // Not every store has conditions.
            Err(_) => self.bucket.put(OWNER, content, &Condition::Always).map(drop),
        }
        .map_err(|error| refused(&self.bucket, error))
    }
}

/// What is wrong with a bucket that a server is to use, and what to do.
fn refused(bucket: &Bucket, error: Error) -> StoreError {
    let location = bucket.location();
    StoreError::BadElsewhere(match error {
        Error::Missing { .. } => {
            format!("objects: the bucket of {location} does not exist: create it, or correct the setting objects")
        }
        Error::Refused { message, .. } => format!(
            "objects: {location} refuses this server's keys ({message}): they need s3:GetObject, s3:PutObject, \
             s3:DeleteObject and s3:AbortMultipartUpload there; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or \
             name a profile with ?profile=NAME"
        ),
        Error::NoKeys { .. } | Error::NoProfile { .. } => format!("objects: {error}"),
        error => return away(error),
    })
}

fn away(error: Error) -> StoreError {
    match error {
        Error::File(source) => StoreError::Io { what: "read or write", path: "objects".into(), source },
        error => StoreError::Elsewhere(format!("objects elsewhere: {error}")),
    }
}

/// What a call of the store's makes of both kinds of errors.
enum Failed {
    Bucket(Error),
    Store(StoreError),
}

impl From<Error> for Failed {
    fn from(error: Error) -> Self {
        Self::Bucket(error)
    }
}

impl ContentStore for ObjectBucket {
    fn location(&self) -> String {
        self.bucket.location()
    }

    fn claim(&self, owner: &str, has_contents: bool) -> Result<(), StoreError> {
        let location = self.location();
        let mut present = self.owner()?;
        if present.is_none() && has_contents {
            return Err(StoreError::BadElsewhere(format!(
                "objects: {location} does not have the contents of this data directory, which were sent elsewhere: \
                 correct the setting objects"
            )));
        }
        if present.is_none() {
            self.put_owner(owner)?;
            present = self.owner()?;
        }
        // The rest of what is needed.
        self.bucket.remove(&[PROBE.to_owned()]).map_err(|error| refused(&self.bucket, error))?;
        match present {
            Some(present) if present == owner => Ok(()),
            other => Err(StoreError::BadElsewhere(format!(
                "objects: {location} has the contents of another data directory, with the id {}: choose another prefix; \
                 if this directory was restored from a backup of that one, and that one's server has ended \
                 permanently, write {owner} into {location}/{OWNER}",
                other.unwrap_or_default()
            ))),
        }
    }

    fn send(&self, content: Outgoing<'_>) -> Result<(), StoreError> {
        let Outgoing { name, size, read, begun, is_cancelled } = content;
        let sent = self.bucket.send_pieces(shoal_elsewhere::Outgoing {
            name,
            size,
            read: &mut |at, length| read(at, length).map_err(Failed::Store),
            begun: &|upload| begun(upload).map_err(Failed::Store),
            is_cancelled,
        });
        sent.map_err(|failed| match failed {
            Failed::Bucket(error) => away(error),
            Failed::Store(error) => error,
        })
    }

    fn abort(&self, name: &str, upload: &str) -> Result<(), StoreError> {
        if !self.bucket.abort_upload(name, upload).map_err(away)? {
            tracing::warn!(
                "{} refuses to abort the upload {upload} of {name}, whose parts may stay: give the keys \
                 s3:AbortMultipartUpload, and the bucket a lifecycle rule with AbortIncompleteMultipartUpload",
                self.bucket.location()
            );
        }
        Ok(())
    }

    fn read(&self, name: &str, at: u64, length: usize) -> Result<Option<Vec<u8>>, StoreError> {
        match self.bucket.get_range(name, at, length) {
            Err(Error::Missing { .. }) => Ok(None),
            read => read.map(Some).map_err(away),
        }
    }

    fn fetch(&self, name: &str, to: &File) -> Result<Option<u64>, StoreError> {
        self.bucket.fetch(name, to, 0).map_err(away)
    }

    fn remove(&self, names: &[String]) -> Result<(), StoreError> {
        self.bucket.remove(names).map_err(away)
    }

    fn address(&self, name: &str, valid: Duration) -> Result<Option<String>, StoreError> {
        self.bucket.signed_address(name, valid).map_err(away)
    }
}

#[cfg(test)]
mod tests {
    use shoal_store::Attributes;

    use super::*;

    #[test]
    fn a_data_directory_uses_a_bucket_that_no_other_one_has() {
        let temp = tempfile::tempdir().unwrap();
        let bucket = Bucket::in_memory(&Address::parse("s3://team/shoal").unwrap()).unwrap();
        let store: Arc<ObjectBucket> = Arc::new(ObjectBucket { bucket });
        let options = || Some(ElsewhereOptions { store: store.clone(), local_bytes: 40 << 20 });
        let dir = DataDir::open(&temp.path().join("one")).unwrap();
        let objects = Objects::open_with(&dir, options()).unwrap();
        objects.create_bucket("b").unwrap();
        let long: Vec<u8> = (0..20_000_000_u32).map(|at| (at % 253) as u8).collect();
        let meta = objects.put("b", "k", &long, &Attributes::default()).unwrap();
        while objects.elsewhere_status().unwrap().waiting > 0 {
            thread::sleep(Duration::from_millis(10));
        }
        std::fs::remove_file(objects.path(&meta)).unwrap();
        assert!(objects.reader("b", "k").unwrap().read_all().unwrap() == long);
        objects.read("b", "k").unwrap();
        assert!(std::fs::read(objects.path(&meta)).unwrap() == long);

        let other = DataDir::open(&temp.path().join("other")).unwrap();
        let error = Objects::open_with(&other, options()).unwrap_err().to_string();
        let expected = format!("has the contents of another data directory, with the id {}: ", dir.id());
        assert!(error.contains(&expected) && error.contains("choose another prefix"), "{error}");
        drop(objects);
        let empty = Bucket::in_memory(&Address::parse("s3://team/other").unwrap()).unwrap();
        let empty = ElsewhereOptions { store: Arc::new(ObjectBucket { bucket: empty }), local_bytes: 1 };
        let error = Objects::open_with(&dir, Some(empty)).unwrap_err().to_string();
        assert!(error.contains("does not have the contents of this data directory"), "{error}");
    }

    #[test]
    fn what_is_wrong_with_a_bucket_is_an_error_that_says_what_to_do() {
        let bucket = Bucket::in_memory(&Address::parse("s3://team").unwrap()).unwrap();
        let location = || bucket.location();
        for (error, expected) in [
            (Error::Missing { location: location(), name: "owner".to_owned() }, "create it"),
            (Error::Refused { location: location(), message: "AccessDenied".to_owned() }, "s3:PutObject"),
            (Error::NoKeys { location: location() }, "name a profile"),
        ] {
            let error = refused(&bucket, error);
            assert!(matches!(&error, StoreError::BadElsewhere(text) if text.contains(expected)), "{error}");
        }
        let silent = Error::Unreachable { location: location(), message: "refused".to_owned() };
        assert!(matches!(refused(&bucket, silent), StoreError::Elsewhere(_)));
    }
}
