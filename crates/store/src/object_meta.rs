//! What is known of an object: what the store says of it, and what its writer does.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use shoal_encryption::Envelope;

use crate::Version;

/// An object as of its last commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectMeta {
    /// Its key.
    pub key: String,
    /// Bytes.
    pub size: u64,
    /// Entity tag without quotes: the MD5 in hexadecimal, or `<MD5 of the parts' MD5s>-<parts>`; of
    /// an encrypted content that of its ciphertext.
    pub etag: String,
    /// When it was committed, in milliseconds since the epoch.
    pub modified_ms: u64,
    /// Names the file. A new object of the same key has another id.
    pub id: String,
    /// What the writer said about it.
    pub attributes: Attributes,
    /// Which version of its key it is.
    pub version: Version,
    /// The bucket, if that shows one elsewhere as it is.
    pub passthrough: Option<Arc<str>>,
}

/// What a writer says about an object. Kept and given back, never interpreted.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Attributes {
    /// `Content-Type`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub content_type: Option<String>,
    /// Other HTTP headers that come back with the object, by lower-case name (`content-encoding`,
    /// `cache-control`).
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, String>,
    /// User metadata, by name without `x-amz-meta-`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub user: BTreeMap<String, String>,
    /// Checksums of the whole content, base64 by lower-case algorithm (`crc32`).
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub checksums: BTreeMap<String, String>,
    /// Tags, by name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub tags: BTreeMap<String, String>,
    /// The parts that it came in, runs of equal ones as (count, bytes each); empty for an object
    /// that came in one piece.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<(u32, u64)>,
    /// The wrapped key of an encrypted content; the store's own, whatever a writer gives.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub encryption: Option<Envelope>,
}

/// One page of a bucket. Objects and common prefixes are each in the order of their UTF-8 bytes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Listing {
    /// Objects whose key does not go on after a delimiter.
    pub objects: Vec<ObjectMeta>,
    /// The prefix and what follows up to and with the next delimiter, once each.
    pub common_prefixes: Vec<String>,
    /// What the next page starts after (a key or a common prefix); `None` at the end.
    pub next: Option<String>,
}

/// What must hold for an object to be written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PutCondition {
    /// Nothing.
    Always,
    /// No object has the key.
    Absent,
    /// The key's present object has this ETag.
    Matches(String),
}
