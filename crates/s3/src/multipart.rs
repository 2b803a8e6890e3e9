//! Uploads in parts.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use futures::future::BoxFuture;
use http::Response;
use http::header::TRANSFER_ENCODING;
use s3s::dto::{
    AbortMultipartUploadInput, AbortMultipartUploadOutput, Checksum, ChecksumAlgorithm, ChecksumType,
    CompleteMultipartUploadInput, CompleteMultipartUploadOutput, CompletedPart, CreateMultipartUploadInput,
    CreateMultipartUploadOutput, StreamingBlob,
};
use s3s::{Body, S3ErrorCode, S3Request, S3Response, S3Result, s3_error};
use shoal_store::{ObjectMeta, PartMeta, StoreError, UploadChecksum, UploadMeta, uploaded_etag};

use crate::attributes;
use crate::backend::Backend;
use crate::checksums::{self, object_with_checksums};
use crate::conditions::put_condition;
use crate::encryption::{Shown, asked, with_encryption};
use crate::errors::{blocking, blocking_s3, from_store};
use crate::guard::Guard;
use crate::lifecycle_settings;

/// S3's limit.
pub(crate) const LAST_PART: i32 = 10_000;

/// Bytes that all parts but the last have at least.
const SMALLEST_PART: u64 = 5 << 20;

pub(crate) fn part_number(number: i32) -> S3Result<u32> {
    match u32::try_from(number) {
        Ok(valid) if (1..=LAST_PART).contains(&number) => Ok(valid),
        _ => Err(s3_error!(InvalidArgument, "Part number must be an integer between 1 and 10000, inclusive")),
    }
}

/// An upload's id opens that upload only under its own bucket and key, which the scope was checked
/// for.
pub(crate) async fn check_upload(backend: &Backend, upload: &str, bucket: &str, key: &str) -> S3Result<UploadMeta> {
    let (objects, id) = (Arc::clone(&backend.objects), upload.to_owned());
    let meta = blocking(move || objects.upload(&id)).await?;
    if meta.bucket != bucket || meta.key != key {
        return Err(from_store(StoreError::NoSuchUpload(upload.to_owned())));
    }
    Ok(meta)
}

pub(crate) async fn create_multipart_upload(
    backend: &Backend,
    req: S3Request<CreateMultipartUploadInput>,
) -> S3Result<S3Response<CreateMultipartUploadOutput>> {
    let S3Request { input, headers, extensions, .. } = req;
    backend.check_owner(input.expected_bucket_owner.as_deref())?;
    let guard = extensions.get::<Guard>().cloned();
    let asked = asked!(backend, guard.as_ref(), input)?;
    let attributes = attributes::from_request(&headers, input.metadata, input.tagging.as_deref())?;
    let checksum = checksums::for_upload(input.checksum_algorithm.as_ref(), input.checksum_type.as_ref())?;
    let (algorithm, kind) = named(checksum.as_ref());
    let (own, customer) = (backend.clone(), asked.customer().cloned());
    let (bucket, key) = (input.bucket.clone(), input.key.clone());
    let (upload, shown, abort) = blocking_s3(move || {
        let (objects, encryption) = (&own.objects, asked.encryption(&own, guard.as_ref(), &bucket)?);
        let upload = objects.create_encrypted_upload(&bucket, &key, &attributes, checksum.as_ref(), &encryption);
        let upload = upload.map_err(from_store)?;
        let abort = objects.upload(&upload).ok().and_then(|upload| lifecycle_settings::abort_of(objects, &upload));
        Ok((upload, Shown::of_new(&own, &encryption, customer.as_ref()), abort))
    })
    .await?;
    let (abort_date, abort_rule_id) = abort.unzip();
    let output = CreateMultipartUploadOutput {
        bucket: Some(input.bucket),
        key: Some(input.key),
        upload_id: Some(upload),
        abort_date,
        abort_rule_id,
        checksum_algorithm: algorithm,
        checksum_type: kind,
        ..CreateMultipartUploadOutput::default()
    };
    Ok(S3Response::new(with_encryption!(shown, output)))
}

/// An upload's checksum as S3 names it.
pub(crate) fn named(checksum: Option<&UploadChecksum>) -> (Option<ChecksumAlgorithm>, Option<ChecksumType>) {
    let kind = |composite| if composite { ChecksumType::COMPOSITE } else { ChecksumType::FULL_OBJECT };
    let algorithm = checksum.map(|checksum| ChecksumAlgorithm::from(checksum.algorithm.to_ascii_uppercase()));
    (algorithm, checksum.map(|checksum| ChecksumType::from_static(kind(checksum.composite))))
}

/// After this time of waiting, an answer begins before its end is known. Clients give up after a
/// minute without a byte.
const LONGEST_SILENCE: Duration = Duration::from_secs(10);

/// Joins an upload's parts. Said again, as clients do that have not heard the answer, it is
/// answered again.
pub(crate) async fn complete_multipart_upload(
    backend: &Backend,
    input: CompleteMultipartUploadInput,
) -> S3Result<S3Response<CompleteMultipartUploadOutput>> {
    backend.check_owner(input.expected_bucket_owner.as_deref())?;
    let is_sent = backend.objects.passthrough(&input.bucket).is_some();
    let own = backend.clone();
    let answer = async move { complete(&own, input).await };
    match is_sent {
        true => kept_alive(Box::pin(answer), LONGEST_SILENCE).await,
        false => answer.await,
    }
    .map(S3Response::new)
}

/// As AWS does it: an answer that takes long is a success that has blanks until its document
/// comes, which may be an error's.
async fn kept_alive(
    mut answer: BoxFuture<'static, S3Result<CompleteMultipartUploadOutput>>,
    silence: Duration,
) -> S3Result<CompleteMultipartUploadOutput> {
    match tokio::time::timeout(silence, &mut answer).await {
        Ok(answer) => answer,
        Err(_) => {
            Ok(CompleteMultipartUploadOutput { future: Some(answer), ..CompleteMultipartUploadOutput::default() })
        }
    }
}

/// s3s writes a second XML declaration before an error that comes after the keep-alive blanks. No
/// XML parser accepts that: this removes it.
pub(crate) fn with_one_declaration(response: Response<Body>) -> Response<Body> {
    // Only such answers are made piece by piece.
    if !response.headers().contains_key(TRANSFER_ENCODING) {
        return response;
    }
    let mut is_first = true;
    response.map(|body| {
        Body::from(StreamingBlob::wrap(body.map(move |piece| {
            let piece = piece.map_err(io::Error::other)?;
            let declares = !std::mem::take(&mut is_first) && piece.starts_with(b"<?xml");
            let end = piece.windows(2).position(|two| two == b"?>").filter(|_| declares);
            Ok::<_, io::Error>(end.map_or(piece.clone(), |end| piece.slice(end + 2..)))
        })))
    })
}

async fn complete(backend: &Backend, input: CompleteMultipartUploadInput) -> S3Result<CompleteMultipartUploadOutput> {
    let (bucket, key, upload) = (input.bucket.clone(), input.key.clone(), input.upload_id.clone());
    let listed = input.multipart_upload.as_ref().and_then(|upload| upload.parts.as_deref()).unwrap_or_default();
    let chosen = listed.iter().map(chosen_part).collect::<S3Result<Vec<_>>>()?;
    match join(backend, input).await {
        Err(error) if *error.code() == S3ErrorCode::NoSuchUpload => {
            let own = backend.clone();
            let there = blocking(move || {
                let sent = own.objects.sent_upload(&upload, &chosen);
                let sent = sent.filter(|meta| meta.key == key && meta.passthrough.as_deref() == Some(&bucket));
                if let Some(meta) = sent {
                    return Ok(Some(completed(&own, bucket, key, &meta)));
                }
                // The same parts in the same order have the same entity tag, and no other content
                // has it.
                let there = own.objects.get(&bucket, &key)?;
                let there = there.filter(|meta| uploaded_etag(&chosen).as_ref() == Some(&meta.etag));
                Ok(there.map(|meta| completed(&own, bucket, key, &meta)))
            });
            there.await?.ok_or(error)
        }
        answer => answer,
    }
}

async fn join(backend: &Backend, input: CompleteMultipartUploadInput) -> S3Result<CompleteMultipartUploadOutput> {
    let upload = check_upload(backend, &input.upload_id, &input.bucket, &input.key).await?;
    let condition = put_condition(input.if_match, input.if_none_match)?;
    let listed = input.multipart_upload.and_then(|upload| upload.parts).unwrap_or_default();
    if listed.is_empty() {
        return Err(s3_error!(MalformedXML, "You must specify at least one part"));
    }
    let chosen = listed.iter().map(chosen_part).collect::<S3Result<Vec<_>>>()?;

    let (objects, id) = (Arc::clone(&backend.objects), input.upload_id.clone());
    let stored = blocking(move || objects.parts(&id)).await?;
    let parts = parts_of(&stored, listed)?;
    if let Some(asked) = input.mpu_object_size
        && attributes::signed(parts.iter().map(|part| part.size).sum()) != asked
    {
        return Err(s3_error!(
            InvalidRequest,
            "The provided 'x-amz-mp-object-size' header does not match what was computed."
        ));
    }
    let (_, kind) = named(upload.checksum.as_ref());
    if input.checksum_type.is_some_and(|asked| Some(asked) != kind) {
        return Err(s3_error!(
            InvalidRequest,
            "The upload was created using a different checksum type than the complete request names."
        ));
    }
    let whole = upload
        .checksum
        .as_ref()
        .and_then(|wanted| Some((wanted.algorithm.clone(), checksums::of_parts(wanted, &parts)?)));
    let whole: BTreeMap<String, String> = whole.into_iter().collect();
    let promised = checksums::from_dto(Checksum {
        checksum_crc32: input.checksum_crc32,
        checksum_crc32c: input.checksum_crc32c,
        checksum_crc64nvme: input.checksum_crc64nvme,
        checksum_sha1: input.checksum_sha1,
        checksum_sha256: input.checksum_sha256,
        checksum_type: None,
    });
    // A composite checksum may be promised without the number of its parts.
    let alike = |promised: &str, whole: &str| whole == promised || whole.split('-').next() == Some(promised);
    if promised.iter().any(|(name, promised)| whole.get(name).is_some_and(|whole| !alike(promised, whole))) {
        return Err(s3_error!(BadDigest, "The checksum that you specified did not match the calculated checksum."));
    }

    let (objects, upload, checksums) = (Arc::clone(&backend.objects), input.upload_id, whole);
    let own = backend.clone();
    let answer = blocking(move || {
        let meta = objects.complete_upload(&upload, &chosen, &checksums, &condition)?;
        Ok(completed(&own, input.bucket, input.key, &meta))
    });
    // It continues when its caller has gone.
    answer.await
}

fn completed(backend: &Backend, bucket: String, key: String, meta: &ObjectMeta) -> CompleteMultipartUploadOutput {
    let shown = Shown::of(backend, meta.attributes.encryption.as_ref(), None);
    object_with_checksums!(
        &meta.attributes.checksums,
        CompleteMultipartUploadOutput {
            expiration: lifecycle_settings::expiration(&backend.objects, &bucket, meta),
            version_id: meta.version.shown().map(str::to_owned),
            location: Some(format!("/{bucket}/{key}")),
            bucket: Some(bucket),
            key: Some(key),
            e_tag: Some(attributes::etag(meta)),
            server_side_encryption: shown.kind,
            ssekms_key_id: shown.kms_key_id,
            bucket_key_enabled: shown.bucket_key,
            ..CompleteMultipartUploadOutput::default()
        }
    )
}

/// The stored parts that completion lists; each has to be there, to have the checksums that are
/// listed, and to be large enough. Their order and entity tags are the store's to check.
fn parts_of(stored: &[PartMeta], listed: Vec<CompletedPart>) -> S3Result<Vec<&PartMeta>> {
    let stored: BTreeMap<u32, &PartMeta> = stored.iter().map(|part| (part.number, part)).collect();
    let last = listed.len() - 1;
    let mut parts = Vec::with_capacity(listed.len());
    for (at, part) in listed.into_iter().enumerate() {
        let (number, etag) = chosen_part(&part)?;
        let promised = checksums_of(part);
        let found = stored.get(&number).copied().filter(|found| {
            found.etag == etag
                && promised.iter().all(|(name, sum)| found.checksums.get(name).is_none_or(|kept| kept == sum))
        });
        let found = found.ok_or_else(|| from_store(StoreError::InvalidPart(number)))?;
        if at < last && found.size < SMALLEST_PART {
            return Err(s3_error!(EntityTooSmall, "Your proposed upload is smaller than the minimum allowed size"));
        }
        parts.push(found);
    }
    Ok(parts)
}

fn chosen_part(part: &CompletedPart) -> S3Result<(u32, String)> {
    let (Some(number), Some(etag)) = (part.part_number, &part.e_tag) else {
        return Err(s3_error!(MalformedXML, "Every part needs a PartNumber and an ETag"));
    };
    Ok((part_number(number)?, etag.value().to_owned()))
}

fn checksums_of(part: CompletedPart) -> BTreeMap<String, String> {
    checksums::from_dto(Checksum {
        checksum_crc32: part.checksum_crc32,
        checksum_crc32c: part.checksum_crc32c,
        checksum_crc64nvme: part.checksum_crc64nvme,
        checksum_sha1: part.checksum_sha1,
        checksum_sha256: part.checksum_sha256,
        checksum_type: None,
    })
}

pub(crate) async fn abort_multipart_upload(
    backend: &Backend,
    input: AbortMultipartUploadInput,
) -> S3Result<S3Response<AbortMultipartUploadOutput>> {
    backend.check_owner(input.expected_bucket_owner.as_deref())?;
    check_upload(backend, &input.upload_id, &input.bucket, &input.key).await?;
    let objects = Arc::clone(&backend.objects);
    blocking(move || objects.abort_upload(&input.upload_id)).await?;
    Ok(S3Response::new(AbortMultipartUploadOutput::default()))
}

#[cfg(test)]
mod tests {
    use s3s::S3;
    use s3s::service::S3ServiceBuilder;

    use super::*;

    /// Completes uploads slowly: `fails` by its key.
    struct Slow;

    #[async_trait::async_trait]
    impl S3 for Slow {
        async fn complete_multipart_upload(
            &self,
            req: S3Request<CompleteMultipartUploadInput>,
        ) -> S3Result<S3Response<CompleteMultipartUploadOutput>> {
            let key = req.input.key;
            let answer = async move {
                tokio::time::sleep(Duration::from_millis(300)).await;
                match key.as_str() {
                    "fails" => Err(s3_error!(ServiceUnavailable, "It does not answer")),
                    _ => Ok(CompleteMultipartUploadOutput { key: Some(key), ..Default::default() }),
                }
            };
            kept_alive(Box::pin(answer), Duration::from_millis(20)).await.map(S3Response::new)
        }
    }

    #[tokio::test]
    async fn an_answer_that_takes_long_begins_early_and_is_one_document() {
        let service = S3ServiceBuilder::new(Slow).build();
        for (key, expected) in [("k", "<Key>k</Key>"), ("fails", "<Error><Code>ServiceUnavailable</Code>")] {
            let text = "<CompleteMultipartUpload><Part><PartNumber>1</PartNumber><ETag>\"a\"</ETag></Part>\
                        </CompleteMultipartUpload>";
            let request = http::Request::post(format!("http://localhost/bucket/{key}?uploadId=u"));
            let response = service.call(request.body(Body::from(text.to_owned())).unwrap()).await.unwrap();
            let mut response = with_one_declaration(response);
            assert_eq!(response.status(), 200);
            let document = response.body_mut().store_all_limited(10_000).await.unwrap();
            let document = String::from_utf8_lossy(&document).into_owned();
            assert!(document.starts_with("<?xml") && document.contains(expected), "{document}");
            assert_eq!(document.matches("<?xml").count(), 1, "{document}");
            assert!(document.contains(" <"), "blanks come before it: {document}");
        }
    }
}
