//! Buckets that show one of another store as it is: [`shoal_store`] knows which objects are asked
//! for, [`shoal_elsewhere`] how they are had.

use std::{collections::BTreeMap, fs::File, sync::Arc, thread, time::Duration};

use shoal_elsewhere::{Address, BucketAsIs, Condition, Described, Error, NewObject};
use shoal_store::{
    Attributes, ForeignBucket, ForeignError, ForeignFault, Listing, NewForeign, ObjectMeta, Objects, Passthrough,
    PutCondition, StoreError, Version,
};

/// For how long a request is repeated that fails: a client waits for it.
const RETRY_TIMEOUT: Duration = Duration::from_secs(4);

/// What names of users' own metadata have in front.
const USER: &str = "x-amz-meta-";

/// Buckets of other stores that are shown as they are.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PassthroughOptions {
    /// By the names that they have here.
    pub buckets: BTreeMap<String, PassthroughBucket>,
    /// Bytes on disk at most for copies of contents that jobs read.
    pub cache_bytes: u64,
}

/// One of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PassthroughBucket {
    address: Address,
    is_read_only: bool,
}

impl PassthroughBucket {
    /// Reads the setting `passthrough`.
    ///
    /// # Errors
    /// It is no address of a bucket; with a reason.
    pub fn parse(address: &str, is_read_only: bool) -> Result<Self, String> {
        let address = Address::parse(address).map_err(|error| error.to_string())?;
        Ok(Self { address, is_read_only })
    }

    /// URL of the store that has it; `None`: AWS.
    #[must_use]
    pub fn endpoint(&self) -> Option<&str> {
        self.address.endpoint.as_deref()
    }

    /// Whether it answers, and its objects may be listed; for `shoal doctor`. Returns its address.
    ///
    /// # Errors
    /// What is wrong, and what to do.
    pub fn check(&self, name: &str) -> Result<String, String> {
        let bucket = self.open(name).map_err(|error| error.to_string())?;
        bucket.list("", None, None, 1).map_err(|error| error.to_string())?;
        Ok(bucket.location())
    }

    fn open(&self, name: &str) -> Result<ShownBucket, StoreError> {
        let bucket = BucketAsIs::open(&self.address, RETRY_TIMEOUT);
        let bucket = bucket.map_err(|error| StoreError::BadElsewhere(format!("[bucket.{name}]: {error}")))?;
        Ok(ShownBucket { name: name.to_owned(), is_read_only: self.is_read_only, bucket })
    }
}

impl PassthroughOptions {
    /// The objects with these buckets. Whether they answer is looked at meanwhile, for the log.
    pub(crate) fn open(&self, objects: Objects) -> Result<Objects, StoreError> {
        let mut buckets = BTreeMap::new();
        for (name, options) in &self.buckets {
            let bucket: Arc<dyn ForeignBucket> = Arc::new(options.open(name)?);
            let looked_at = Arc::clone(&bucket);
            thread::spawn(move || match looked_at.list("", None, None, 1) {
                Ok(_) => tracing::info!("bucket {} is shown", looked_at.location()),
                Err(error) => tracing::warn!("{error}"),
            });
            buckets.insert(name.clone(), Passthrough { bucket, is_read_only: options.is_read_only });
        }
        objects.with_passthrough(buckets, self.cache_bytes).map_err(|error| match error {
            StoreError::BucketExists(name) => StoreError::BadElsewhere(format!(
                "[bucket.{name}] in shoal.toml shows a bucket of another store, and this server has a bucket {name} of \
                 its own: choose another name there, or take it out, start the server and remove the bucket first"
            )),
            error => error,
        })
    }
}

/// A bucket as the store needs it.
#[derive(Debug)]
struct ShownBucket {
    /// What it is called here.
    name: String,
    is_read_only: bool,
    bucket: BucketAsIs,
}

impl ShownBucket {
    /// What is wrong, and what to do.
    fn failed(&self, error: Error) -> StoreError {
        let shows = format!("bucket `{}` shows {}", self.name, self.bucket.location());
        let (fault, text) = match error {
            Error::File(source) => return StoreError::Io { what: "read or write", path: "objects".into(), source },
            Error::NoBucket { .. } => (
                ForeignFault::NoBucket,
                format!("{shows}, which does not exist: create it, or correct [bucket.{}] in shoal.toml", self.name),
            ),
            Error::Refused { message, .. } => {
                let writes = if self.is_read_only { "" } else { ", s3:PutObject, s3:DeleteObject" };
                let todo = format!(
                    "they need s3:ListBucket, s3:GetObject{writes} there; set AWS_ACCESS_KEY_ID and \
                     AWS_SECRET_ACCESS_KEY of the server, or name a profile with ?profile=NAME"
                );
                (ForeignFault::Refused, format!("{shows}, which refuses this server's keys ({message}): {todo}"))
            }
            Error::NoKeys { .. } => (ForeignFault::Refused, format!("{shows}: {error}")),
            Error::Rejected { message, .. } => {
                (ForeignFault::Rejected, format!("{shows}, which refuses the request: {message}"))
            }
            Error::Unreachable { message, .. } => {
                (ForeignFault::Away, format!("{shows}, which does not answer: {message}; try again"))
            }
            // The rest is the callers'.
            error => (ForeignFault::Away, format!("{shows}: {error}; try again")),
        };
        ForeignError { fault, text }.into()
    }
}

/// An object without what the store fills in.
fn meta_of(described: Described) -> ObjectMeta {
    let Described { key, size, etag, modified_ms, mut headers } = described;
    let content_type = headers.remove("content-type");
    let (user, headers): (BTreeMap<_, _>, BTreeMap<_, _>) =
        headers.into_iter().partition(|(name, _)| name.starts_with(USER));
    let user = user.into_iter().map(|(name, value)| (name[USER.len()..].to_owned(), value)).collect();
    let attributes = Attributes { content_type, headers, user, ..Attributes::default() };
    let (id, version, passthrough) = (String::new(), Version::default(), None);
    ObjectMeta { key, size, etag, modified_ms, id, attributes, version, passthrough }
}

fn headers_of(attributes: &Attributes) -> BTreeMap<String, String> {
    let kind = attributes.content_type.as_ref().map(|kind| ("content-type".to_owned(), kind.clone()));
    let user = attributes.user.iter().map(|(name, value)| (format!("{USER}{name}"), value.clone()));
    attributes.headers.clone().into_iter().chain(kind).chain(user).collect()
}

impl ForeignBucket for ShownBucket {
    fn location(&self) -> String {
        self.bucket.location()
    }

    fn head(&self, key: &str) -> Result<Option<ObjectMeta>, StoreError> {
        Ok(self.bucket.head(key).map_err(|error| self.failed(error))?.map(meta_of))
    }

    fn list(
        &self,
        prefix: &str,
        after: Option<&str>,
        delimiter: Option<&str>,
        max: usize,
    ) -> Result<Listing, StoreError> {
        let page = self.bucket.list(prefix, after, delimiter, max).map_err(|error| self.failed(error))?;
        let last = page.objects.last().map(|object| object.key.as_str());
        let last = last.max(page.common_prefixes.last().map(String::as_str)).filter(|_| page.is_truncated);
        Ok(Listing {
            next: last.map(str::to_owned),
            objects: page.objects.into_iter().map(meta_of).collect(),
            common_prefixes: page.common_prefixes,
        })
    }

    fn read(&self, meta: &ObjectMeta, at: u64, length: usize) -> Result<Option<Vec<u8>>, StoreError> {
        match self.bucket.read(&meta.key, &meta.etag, at, length) {
            Err(Error::Missing { .. } | Error::Changed { .. }) => Ok(None),
            read => read.map(|bytes| Some(bytes.to_vec())).map_err(|error| self.failed(error)),
        }
    }

    fn fetch(&self, meta: &ObjectMeta, to: &File, is_cancelled: &dyn Fn() -> bool) -> Result<bool, StoreError> {
        match self.bucket.fetch(&meta.key, &meta.etag, meta.size, to, is_cancelled) {
            Err(Error::Cancelled { .. }) if is_cancelled() => Err(StoreError::Cancelled),
            Err(Error::Missing { .. } | Error::Changed { .. }) => Ok(false),
            fetched => fetched.map(|()| true).map_err(|error| self.failed(error)),
        }
    }

    fn put(&self, object: NewForeign<'_>) -> Result<String, StoreError> {
        let NewForeign { key, attributes, file, size, condition } = object;
        let condition = match condition {
            PutCondition::Always => Condition::Always,
            PutCondition::Absent => Condition::Absent,
            PutCondition::Matches(etag) => Condition::Matches(etag.clone()),
        };
        let headers = headers_of(attributes);
        let put = self.bucket.put(NewObject { key, headers: &headers, file, size, condition: &condition });
        put.map_err(|error| match error {
            Error::Changed { .. } => StoreError::PreconditionFailed { key: key.to_owned() },
            error => self.failed(error),
        })
    }

    fn remove(&self, key: &str) -> Result<(), StoreError> {
        self.bucket.remove(key).map_err(|error| self.failed(error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_writer_gives_comes_back() {
        let attributes = Attributes {
            content_type: Some("text/csv".to_owned()),
            headers: [("cache-control".to_owned(), "no-store".to_owned())].into(),
            user: [("by".to_owned(), "anna".to_owned())].into(),
            ..Attributes::default()
        };
        let headers = headers_of(&attributes);
        assert_eq!(headers["x-amz-meta-by"], "anna");
        let described = Described { key: "k".to_owned(), headers, ..Described::default() };
        assert_eq!(meta_of(described).attributes, attributes);
    }

    #[test]
    fn errors_say_what_to_do() {
        let shown = PassthroughBucket::parse("s3://theirs/a?endpoint=http://127.0.0.1:1", false).unwrap();
        let bucket = shown.open("team").unwrap();
        let location = || bucket.location();
        for (error, fault, expected) in [
            (Error::NoBucket { location: location() }, ForeignFault::NoBucket, "correct [bucket.team]"),
            (
                Error::Refused { location: location(), message: "InvalidAccessKeyId".to_owned() },
                ForeignFault::Refused,
                "they need s3:ListBucket, s3:GetObject, s3:PutObject",
            ),
            (Error::NoKeys { location: location() }, ForeignFault::Refused, "name a profile"),
            (
                Error::Unreachable { location: location(), message: "connection refused".to_owned() },
                ForeignFault::Away,
                "bucket `team` shows s3://theirs/a at http://127.0.0.1:1, which does not answer",
            ),
        ] {
            let StoreError::Foreign(found) = bucket.failed(error) else { panic!("it is the bucket's") };
            assert!(found.fault == fault && found.text.contains(expected), "{found:?}");
        }
    }
}
