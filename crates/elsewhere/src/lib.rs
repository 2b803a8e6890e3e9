//! A bucket of an S3-compatible store elsewhere: AWS's, MinIO, Ceph, or another. Callers block; the
//! requests run on threads of this crate. Policy is theirs.

mod address;
mod as_is;
mod bucket;
mod credentials;
mod documents;
mod http;
mod outgoing;
mod requests;
mod sending;
#[cfg(test)]
mod tests;

pub use address::{Address, BadAddress};
pub use as_is::{BucketAsIs, Described, NewObject, Page};
pub use bucket::{Bucket, Condition, Error, Found};
pub use http::download;
pub use outgoing::Outgoing;
