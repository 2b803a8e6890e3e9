//! Storage classes: labels that an object keeps and gives back. All objects lie on the same disk
//! and can be read at any time.

use std::collections::BTreeMap;

use http::HeaderMap;
use s3s::dto::StorageClass;
use s3s::{S3Result, s3_error};
use shoal_store::Attributes;

const HEADER: &str = "x-amz-storage-class";
/// The class of objects that name none; AWS does not show it in headers.
pub(crate) const STANDARD: &str = StorageClass::STANDARD;
/// The other classes of general purpose buckets.
const OTHERS: [&str; 7] =
    ["REDUCED_REDUNDANCY", "STANDARD_IA", "ONEZONE_IA", "INTELLIGENT_TIERING", "GLACIER", "GLACIER_IR", "DEEP_ARCHIVE"];

/// The header as an attribute of the object, unless the class is the usual one.
///
/// # Errors
/// `InvalidStorageClass`.
pub(crate) fn of_request(headers: &HeaderMap) -> S3Result<Option<(String, String)>> {
    let Some(class) = headers.get(HEADER) else { return Ok(None) };
    match class.to_str().unwrap_or_default() {
        STANDARD => Ok(None),
        class if OTHERS.contains(&class) => Ok(Some((HEADER.to_owned(), class.to_owned()))),
        _ => Err(s3_error!(InvalidStorageClass, "The storage class you specified is not valid")),
    }
}

/// The headers of a source with the class of the request that copies it.
pub(crate) fn replaced(
    mut source: BTreeMap<String, String>,
    request: &BTreeMap<String, String>,
) -> BTreeMap<String, String> {
    source.remove(HEADER);
    source.extend(request.get_key_value(HEADER).map(|(name, class)| (name.clone(), class.clone())));
    source
}

/// The object's class.
pub(crate) fn of(attributes: &Attributes) -> String {
    attributes.headers.get(HEADER).map_or_else(|| STANDARD.to_owned(), Clone::clone)
}

/// The object's class if it is not the usual one.
pub(crate) fn other(attributes: &Attributes) -> Option<StorageClass> {
    attributes.headers.get(HEADER).cloned().map(StorageClass::from)
}
