//! Listing what is under way: uploads of a bucket, and parts of an upload.

use std::sync::Arc;

use s3s::dto::{
    CommonPrefix, ETag, Initiator, ListMultipartUploadsInput, ListMultipartUploadsOutput, ListPartsInput,
    ListPartsOutput, MultipartUpload, Owner, Part, StorageClass,
};
use s3s::{S3Response, S3Result, s3_error};
use shoal_store::UploadMeta;

use crate::attributes;
use crate::backend::Backend;
use crate::checksums::part_with_checksums;
use crate::errors::blocking;
use crate::key_encoding::Encoding;
use crate::lifecycle_settings;
use crate::multipart::{LAST_PART, check_upload, named};
use crate::storage_class;

/// S3 never lists more at once.
const LARGEST_PAGE: i32 = 1000;

pub(crate) async fn list_parts(backend: &Backend, input: ListPartsInput) -> S3Result<S3Response<ListPartsOutput>> {
    backend.check_owner(input.expected_bucket_owner.as_deref())?;
    let upload = check_upload(backend, &input.upload_id, &input.bucket, &input.key).await?;
    let (objects, id) = (Arc::clone(&backend.objects), input.upload_id.clone());
    let (mut parts, upload, abort) = blocking(move || {
        let abort = lifecycle_settings::abort_of(&objects, &upload);
        Ok((objects.parts(&id)?, upload, abort))
    })
    .await?;
    let (abort_date, abort_rule_id) = abort.unzip();
    let after = input.part_number_marker.and_then(|marker| u32::try_from(marker).ok()).unwrap_or(0);
    parts.retain(|part| part.number > after);
    let (max_parts, most) = page_size(input.max_parts, "max-parts")?;
    let more = parts.len() > most;
    parts.truncate(most);
    let number = |number: u32| i32::try_from(number).unwrap_or(LAST_PART);
    // AWS names the last part of every page, of the last one, too.
    let next_part_number_marker = Some(parts.last().map_or(0, |part| number(part.number)));
    let listed = parts.into_iter().map(|part| {
        part_with_checksums!(
            &part.checksums,
            Part {
                part_number: Some(number(part.number)),
                size: Some(attributes::signed(part.size)),
                e_tag: Some(ETag::Strong(part.etag)),
                last_modified: Some(attributes::timestamp(part.modified_ms)),
            }
        )
    });
    let (checksum_algorithm, checksum_type) = named(upload.checksum.as_ref());
    Ok(S3Response::new(ListPartsOutput {
        bucket: Some(input.bucket),
        key: Some(input.key),
        upload_id: Some(input.upload_id),
        parts: Some(listed.collect()),
        part_number_marker: Some(input.part_number_marker.unwrap_or(0)),
        next_part_number_marker,
        max_parts: Some(max_parts),
        is_truncated: Some(more),
        checksum_algorithm,
        checksum_type,
        abort_date,
        abort_rule_id,
        initiator: Some(Initiator { display_name: None, id: Some(backend.options.account.clone()) }),
        owner: Some(owner(backend)),
        storage_class: Some(StorageClass::from(storage_class::of(&upload.attributes))),
        ..ListPartsOutput::default()
    }))
}

pub(crate) async fn list_multipart_uploads(
    backend: &Backend,
    input: ListMultipartUploadsInput,
) -> S3Result<S3Response<ListMultipartUploadsOutput>> {
    backend.check_owner(input.expected_bucket_owner.as_deref())?;
    let encoding = Encoding::of(input.encoding_type)?;
    let (objects, bucket) = (Arc::clone(&backend.objects), input.bucket.clone());
    let prefix = input.prefix.clone().unwrap_or_default();
    let (max_uploads, most) = page_size(input.max_uploads, "max-uploads")?;
    let uploads = blocking(move || objects.uploads(&bucket, &prefix)).await?;
    let page = page(
        uploads,
        input.prefix.as_deref().unwrap_or_default(),
        input.delimiter.as_deref().filter(|delimiter| !delimiter.is_empty()),
        input.key_marker.as_deref().filter(|marker| !marker.is_empty()),
        input.upload_id_marker.as_deref().filter(|marker| !marker.is_empty()),
        most,
    );
    let listed = page.uploads.into_iter().map(|upload| {
        let (checksum_algorithm, checksum_type) = named(upload.checksum.as_ref());
        MultipartUpload {
            key: Some(encoding.text(upload.key)),
            upload_id: Some(upload.id),
            initiated: Some(attributes::timestamp(upload.created_ms)),
            checksum_algorithm,
            checksum_type,
            initiator: Some(Initiator { display_name: None, id: Some(backend.options.account.clone()) }),
            owner: Some(owner(backend)),
            storage_class: Some(StorageClass::from(storage_class::of(&upload.attributes))),
        }
    });
    let (next_key_marker, next_upload_id_marker) = page.next.unzip();
    Ok(S3Response::new(ListMultipartUploadsOutput {
        bucket: Some(input.bucket),
        prefix: input.prefix.map(|prefix| encoding.text(prefix)),
        delimiter: input.delimiter.map(|delimiter| encoding.text(delimiter)),
        key_marker: Some(encoding.text(input.key_marker.unwrap_or_default())),
        upload_id_marker: Some(input.upload_id_marker.unwrap_or_default()),
        max_uploads: Some(max_uploads),
        uploads: Some(listed.collect()),
        common_prefixes: Some(
            page.common_prefixes
                .into_iter()
                .map(|common| CommonPrefix { prefix: Some(encoding.text(common)) })
                .collect(),
        ),
        is_truncated: Some(next_key_marker.is_some()),
        next_key_marker: next_key_marker.map(|key| encoding.text(key)),
        next_upload_id_marker,
        encoding_type: encoding.named(),
        ..ListMultipartUploadsOutput::default()
    }))
}

fn owner(backend: &Backend) -> Owner {
    Owner { display_name: None, id: Some(backend.options.account.clone()) }
}

fn page_size(asked: Option<i32>, name: &str) -> S3Result<(i32, usize)> {
    let size = asked.unwrap_or(LARGEST_PAGE).min(LARGEST_PAGE);
    match usize::try_from(size) {
        Ok(most) => Ok((size, most)),
        Err(_) => Err(s3_error!(InvalidArgument, "Argument {} must be an integer between 0 and 2147483647", name)),
    }
}

/// One page of uploads.
#[derive(Debug, Default)]
struct Page {
    uploads: Vec<UploadMeta>,
    common_prefixes: Vec<String>,
    /// Key (or common prefix) and upload that the next page comes after.
    next: Option<(String, String)>,
}

/// At most `most` uploads and common prefixes, of uploads in the order of key and id. With a key's
/// marker alone the key itself is behind it.
fn page(
    uploads: Vec<UploadMeta>,
    prefix: &str,
    delimiter: Option<&str>,
    key_marker: Option<&str>,
    id_marker: Option<&str>,
    most: usize,
) -> Page {
    let mut page = Page::default();
    let mut last = None;
    for upload in uploads {
        let rest = &upload.key[prefix.len()..];
        let common = delimiter.and_then(|delimiter| Some(prefix.len() + rest.find(delimiter)? + delimiter.len()));
        let shown = &upload.key[..common.unwrap_or(upload.key.len())];
        let behind = key_marker.is_some_and(|marker| match id_marker {
            Some(id) if common.is_none() => (shown, upload.id.as_str()) <= (marker, id),
            _ => shown <= marker,
        });
        if behind || (common.is_some() && page.common_prefixes.last().is_some_and(|last| last == shown)) {
            continue;
        }
        if page.uploads.len() + page.common_prefixes.len() >= most {
            page.next = last;
            break;
        }
        if common.is_some() {
            last = Some((shown.to_owned(), String::new()));
            page.common_prefixes.push(shown.to_owned());
        } else {
            last = Some((upload.key.clone(), upload.id.clone()));
            page.uploads.push(upload);
        }
    }
    page
}

#[cfg(test)]
mod tests {
    use shoal_store::Attributes;

    use super::*;

    #[test]
    fn pages_of_every_size_give_the_same_uploads() {
        let upload = |(key, id): (&str, &str)| UploadMeta {
            id: id.to_owned(),
            bucket: "b".to_owned(),
            key: key.to_owned(),
            created_ms: 0,
            attributes: Attributes::default(),
            checksum: None,
        };
        let all = [("a", "1"), ("a", "2"), ("a/x", "1"), ("a/x", "2"), ("a/y/z", "1"), ("b", "1"), ("c/d", "1")];
        for (prefix, delimiter, expected) in [
            ("", None, "a1 a2 a/x1 a/x2 a/y/z1 b1 c/d1"),
            ("", Some("/"), "a1 a2 b1 | a/ c/"),
            ("a/", Some("/"), "a/x1 a/x2 | a/y/"),
            ("zzz", None, ""),
        ] {
            for most in 1..9 {
                let (mut uploads, mut commons, mut next) = (Vec::new(), Vec::new(), None::<(String, String)>);
                loop {
                    let matching = all.into_iter().filter(|(key, _)| key.starts_with(prefix)).map(upload).collect();
                    let (key, id) = next.unzip();
                    let id = id.filter(|id| !id.is_empty());
                    let found = page(matching, prefix, delimiter, key.as_deref(), id.as_deref(), most);
                    assert!(found.uploads.len() + found.common_prefixes.len() <= most);
                    uploads.extend(found.uploads.into_iter().map(|upload| upload.key + &upload.id));
                    commons.extend(found.common_prefixes);
                    next = found.next;
                    if next.is_none() {
                        break;
                    }
                }
                let commons = if commons.is_empty() { String::new() } else { format!(" | {}", commons.join(" ")) };
                assert_eq!(uploads.join(" ") + &commons, expected, "{prefix:?} {delimiter:?} by {most}");
            }
        }
    }
}
