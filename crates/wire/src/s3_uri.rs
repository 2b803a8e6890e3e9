//! `s3://bucket/prefix`.

use std::{fmt, str::FromStr};

/// An S3 location.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
pub struct S3Uri {
    /// 3 to 63 characters.
    pub bucket: String,
    /// Key or prefix of keys; may be empty; as written, so a final `/` is kept.
    pub prefix: String,
}

/// Why a text is no S3 location.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum S3UriError {
    /// Another scheme.
    #[error("it must begin with s3://, as in s3://my-bucket/my/prefix")]
    Scheme,
    /// The S3 bucket's name is not one.
    #[error(
        "the S3 bucket's name must have 3 to 63 lower-case letters, digits, dots and hyphens, and begin and end with a \
         letter or digit"
    )]
    Bucket,
    /// S3 keys end at 1024 bytes.
    #[error("the key is longer than 1024 bytes")]
    Key,
}

impl S3Uri {
    /// The location of `path` below this one.
    #[must_use]
    pub fn below(&self, path: &str) -> Self {
        Self { bucket: self.bucket.clone(), prefix: self.folder() + path }
    }

    /// The prefix of what is in this folder, whether or not the URI ends in `/`; empty for the
    /// bucket itself.
    #[must_use]
    pub fn folder(&self) -> String {
        let folder = self.prefix.trim_end_matches('/');
        if folder.is_empty() { String::new() } else { format!("{folder}/") }
    }
}

impl FromStr for S3Uri {
    type Err = S3UriError;

    fn from_str(text: &str) -> Result<Self, S3UriError> {
        let rest = text.strip_prefix("s3://").ok_or(S3UriError::Scheme)?;
        let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        let allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'.' || byte == b'-';
        let ends = |byte: Option<&u8>| byte.is_some_and(|byte| byte.is_ascii_alphanumeric());
        let bytes = bucket.as_bytes();
        if !(3..=63).contains(&bytes.len())
            || !bytes.iter().all(|byte| allowed(*byte))
            || !ends(bytes.first())
            || !ends(bytes.last())
        {
            return Err(S3UriError::Bucket);
        }
        if prefix.len() > 1024 {
            return Err(S3UriError::Key);
        }
        Ok(Self { bucket: bucket.to_owned(), prefix: prefix.to_owned() })
    }
}

impl fmt::Display for S3Uri {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "s3://{}/{}", self.bucket, self.prefix)
    }
}
