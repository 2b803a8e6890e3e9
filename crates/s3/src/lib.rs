//! The S3 front: the `s3s` framework over `store`'s objects. It verifies signatures (SigV4 by
//! header, by URL and by chunk; SigV2 by URL), checks every operation against the key's scope, and
//! streams objects both ways in bounded memory.
//!
//! It keeps no locks: requests that ask for them are refused with a sentence
//! (`refusals`). What is accepted without effect is in docs/accepted.md; answers
//! name it, or a strict front refuses it.

mod access;
mod attributes;
mod backend;
mod buckets;
mod checksums;
mod chunked;
mod conditions;
mod copy;
mod delete;
mod download;
mod encryption;
mod error_document;
mod errors;
mod front;
mod guard;
mod key_encoding;
mod lifecycle;
mod lifecycle_document;
mod lifecycle_settings;
mod list;
mod list_uploads;
mod multipart;
mod operations;
mod passthrough;
mod percent;
mod presigned;
mod query;
mod ranges;
mod refusals;
mod scope;
mod settings;
mod signed_headers;
mod storage_class;
mod tags;
mod upload;
mod versions;

pub use access::{KeyFault, KeyStore, OnVerified, Verified};
pub use backend::Options;
pub use encryption::PrivateTransport;
pub use errors::{slow_down, tls_only};
pub use front::S3Front;
pub use guard::{PolicyCaller, bucket_decision};
pub use lifecycle::{Judge, Lifecycle, day_of};
pub use refusals::{NO_EFFECT, NoEffect};
/// The body of a response; an [`http` body](https://docs.rs/http-body) of `Bytes`.
pub use s3s::Body;
pub use scope::Scope;
