//! What keys open, by the names and paths of operations.

use s3s::path::S3Path;

/// What a key opens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Scope {
    /// Everything.
    All,
    /// A job's own objects, as pairs of a bucket and the prefix that keys must start with.
    Job {
        /// Objects that may be read, and prefixes that may be listed.
        read: Vec<(String, String)>,
        /// Objects that may be written and deleted.
        write: Vec<(String, String)>,
    },
    /// What the owner has allowed a key: as a job's, and names and settings of buckets.
    Key {
        /// Objects that may be read in addition to those that may be written; `None` for all.
        read: Option<Vec<(String, String)>>,
        /// Objects that may be written and deleted.
        write: Vec<(String, String)>,
    },
}

/// Operations on buckets that a key may call which reads something of the bucket. Others that read
/// have to be declared here first.
const BUCKET_READS: [&str; 18] = [
    "HeadBucket",
    "GetBucketLocation",
    "GetBucketTagging",
    "GetBucketVersioning",
    "GetBucketAcl",
    "GetBucketPolicy",
    "GetBucketPolicyStatus",
    "GetBucketEncryption",
    "GetBucketCors",
    "GetBucketWebsite",
    "GetBucketLifecycleConfiguration",
    "GetBucketLogging",
    "GetBucketNotificationConfiguration",
    "GetBucketOwnershipControls",
    "GetBucketReplication",
    "GetBucketRequestPayment",
    "GetObjectLockConfiguration",
    "GetPublicAccessBlock",
];

impl Scope {
    pub(crate) fn may_read(&self, bucket: &str, key: &str) -> bool {
        match self {
            Self::All => true,
            Self::Job { read, .. } => covers(read, bucket, key),
            Self::Key { read: None, .. } => true,
            Self::Key { read: Some(read), write } => covers(read, bucket, key) || covers(write, bucket, key),
        }
    }

    pub(crate) fn may_write(&self, bucket: &str, key: &str) -> bool {
        match self {
            Self::All => true,
            Self::Job { write, .. } | Self::Key { write, .. } => covers(write, bucket, key),
        }
    }

    fn may_see_bucket(&self, bucket: &str) -> bool {
        match self {
            Self::All => true,
            Self::Key { read: None, .. } => true,
            Self::Job { read, write } | Self::Key { read: Some(read), write } => {
                read.iter().chain(write).any(|(allowed, _)| allowed == bucket)
            }
        }
    }

    /// What the operation's name and path alone decide.
    pub(crate) fn permits(&self, operation: &str, path: &S3Path) -> bool {
        if *self == Self::All {
            return true;
        }
        match (operation, path) {
            (
                "GetObject" | "HeadObject" | "GetObjectAttributes" | "GetObjectTagging",
                S3Path::Object { bucket, key },
            ) => self.may_read(bucket, key),
            (
                "PutObject"
                | "CopyObject"
                | "DeleteObject"
                | "PutObjectTagging"
                | "DeleteObjectTagging"
                | "CreateMultipartUpload"
                | "UploadPart"
                | "UploadPartCopy"
                | "ListParts"
                | "CompleteMultipartUpload"
                | "AbortMultipartUpload",
                S3Path::Object { bucket, key },
            ) => self.may_write(bucket, key),
            ("HeadBucket" | "GetBucketLocation", S3Path::Bucket { bucket }) => self.may_see_bucket(bucket),
            (operation, S3Path::Bucket { bucket })
                if matches!(self, Self::Key { .. }) && BUCKET_READS.contains(&operation) =>
            {
                self.may_see_bucket(bucket)
            }
            ("ListBuckets", S3Path::Root) => matches!(self, Self::Key { .. }),
            ("GetObjectAcl", S3Path::Object { bucket, key }) => {
                matches!(self, Self::Key { .. }) && self.may_read(bucket, key)
            }
            // Of all keys that have uploads.
            ("ListMultipartUploads", S3Path::Bucket { .. }) => matches!(self, Self::Key { read: None, .. }),
            // Their inputs decide, below.
            ("ListObjects" | "ListObjectsV2" | "ListObjectVersions" | "DeleteObjects", S3Path::Bucket { .. }) => true,
            _ => false,
        }
    }
}

impl Scope {
    /// A job's program removes no version permanently: what it deletes by mistake is still there.
    pub(crate) fn permits_version(&self, operation: &str, is_version: bool) -> bool {
        !(is_version && operation == "DeleteObject" && matches!(self, Self::Job { .. }))
    }
}

fn covers(prefixes: &[(String, String)], bucket: &str, key: &str) -> bool {
    prefixes.iter().any(|(allowed, prefix)| allowed == bucket && key.starts_with(prefix.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_sees_its_own_prefixes() {
        let pair = |bucket: &str, prefix: &str| (bucket.to_owned(), prefix.to_owned());
        let scope =
            Scope::Job { read: vec![pair("data", "train/"), pair("ckpt", "j/")], write: vec![pair("ckpt", "j/")] };
        let object = |bucket: &str, key: &str| S3Path::Object { bucket: bucket.into(), key: key.into() };
        let bucket = |bucket: &str| S3Path::Bucket { bucket: bucket.into() };
        for (operation, path, expected) in [
            ("GetObject", object("data", "train/a"), true),
            ("GetObject", object("data", "training"), false),
            ("GetObject", object("other", "train/a"), false),
            ("HeadObject", object("ckpt", "j/x"), true),
            ("PutObject", object("ckpt", "j/x"), true),
            ("PutObject", object("data", "train/a"), false),
            ("UploadPart", object("ckpt", "k/x"), false),
            ("DeleteObject", object("data", "train/a"), false),
            ("HeadBucket", bucket("data"), true),
            ("HeadBucket", bucket("other"), false),
            ("DeleteBucket", bucket("ckpt"), false),
            ("CreateBucket", bucket("new"), false),
            ("ListBuckets", S3Path::Root, false),
            ("PostObject", bucket("ckpt"), false),
            ("PutObjectAcl", object("ckpt", "j/x"), false),
        ] {
            assert_eq!(scope.permits(operation, &path), expected, "{operation} {path:?}");
            assert!(Scope::All.permits(operation, &path));
        }
    }

    #[test]
    fn a_job_removes_no_version() {
        let scope = Scope::Job { read: Vec::new(), write: vec![("ckpt".to_owned(), String::new())] };
        let user = Scope::Key { read: None, write: Vec::new() };
        assert!(!scope.permits_version("DeleteObject", true) && scope.permits_version("DeleteObject", false));
        assert!(scope.permits_version("GetObject", true) && user.permits_version("DeleteObject", true));
    }

    /// All operations that change something, and some that read.
    #[test]
    fn a_key_reads_and_writes_what_the_owner_has_allowed() {
        let pair = |bucket: &str, prefix: &str| (bucket.to_owned(), prefix.to_owned());
        let reader = Scope::Key { read: None, write: Vec::new() };
        let user = Scope::Key { read: Some(vec![pair("data", "shared/")]), write: vec![pair("out", "anna/")] };
        let object = |bucket: &str, key: &str| S3Path::Object { bucket: bucket.into(), key: key.into() };
        let bucket = |bucket: &str| S3Path::Bucket { bucket: bucket.into() };
        for (operation, path, by_reader, by_user) in [
            ("GetObject", object("data", "shared/a"), true, true),
            ("GetObject", object("data", "private/a"), true, false),
            ("GetObject", object("out", "anna/a"), true, true),
            ("HeadObject", object("out", "ben/a"), true, false),
            ("GetObjectAcl", object("out", "ben/a"), true, false),
            ("HeadBucket", bucket("out"), true, true),
            ("HeadBucket", bucket("other"), true, false),
            ("GetBucketVersioning", bucket("data"), true, true),
            ("GetBucketTagging", bucket("other"), true, false),
            ("ListBuckets", S3Path::Root, true, true),
            ("ListMultipartUploads", bucket("out"), true, false),
            ("PutObject", object("out", "anna/a"), false, true),
            ("PutObject", object("out", "ben/a"), false, false),
            ("PutObject", object("data", "shared/a"), false, false),
            ("CopyObject", object("out", "annabel/a"), false, false),
            ("DeleteObject", object("out", "anna/a"), false, true),
            ("DeleteObject", object("data", "shared/a"), false, false),
            ("PutObjectTagging", object("out", "ben/a"), false, false),
            ("CreateMultipartUpload", object("out", "ben/a"), false, false),
            ("UploadPart", object("out", "anna/a"), false, true),
            ("UploadPartCopy", object("out", "ben/a"), false, false),
            ("CompleteMultipartUpload", object("out", "ben/a"), false, false),
            ("AbortMultipartUpload", object("out", "ben/a"), false, false),
            ("CreateBucket", bucket("new"), false, false),
            ("DeleteBucket", bucket("out"), false, false),
            ("PutBucketTagging", bucket("out"), false, false),
            ("DeleteBucketTagging", bucket("out"), false, false),
            ("PutBucketPolicy", bucket("out"), false, false),
            ("PutPublicAccessBlock", bucket("out"), false, false),
            ("PostObject", bucket("out"), false, false),
            ("PutObjectAcl", object("out", "anna/a"), false, false),
            ("AnOperationOfTomorrow", bucket("out"), false, false),
            ("AnOperationOfTomorrow", object("out", "anna/a"), false, false),
        ] {
            assert_eq!(reader.permits(operation, &path), by_reader, "{operation} {path:?} by a reader");
            assert_eq!(user.permits(operation, &path), by_user, "{operation} {path:?} by a user");
        }
    }
}
