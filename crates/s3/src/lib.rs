//! The S3 front: the `s3s` framework over `store`'s objects. It verifies signatures (SigV4 by header, by URL and by chunk; SigV2 by
//! URL), checks every operation against the key's scope, and streams objects both ways in bounded memory.
//!
//! It keeps no versions, policies or encryption: requests that ask for them by header are served without; a bucket's CORS, policy and
//! encryption can be put and are never there; operations on versions answer `NotImplemented`.

mod access;
mod attributes;
mod buckets;
mod checksums;
mod copy;
mod delete;
mod download;
mod errors;
mod front;
mod list;
mod list_uploads;
mod multipart;
mod operations;
mod presigned;
mod settings;
mod signed_headers;
mod tags;
mod upload;

pub use access::{KeyFault, KeyStore, OnVerified, Scope};
pub use errors::slow_down;
pub use front::{Options, S3Front};
/// The body of a response; an [`http` body](https://docs.rs/http-body) of `Bytes`.
pub use s3s::Body;
